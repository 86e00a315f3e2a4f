/* Turns, and the file of a saved conversation. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/chat/conversation.h"

static char folder[] = "/tmp/ingot-conversation-XXXXXX", path[128];
static struct ig_conversation c;
static struct ig_error err;

static int setup(void **state)
{
	ig_conversation_init(&c);
	memset(&err, 0, sizeof err);
	unlink(path);
	return 0;
}

static int teardown(void **state)
{
	ig_conversation_finish(&c);
	return 0;
}

static void add(const char *q, const char *a)
{
	assert_int_equal(ig_conversation_add(&c, q, strlen(q), a, strlen(a)), 0);
}

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_turns(void **state)
{
	char *q = NULL;
	size_t n = 0;

	assert_false(ig_conversation_undo(&c, &q, &n));
	for (int i = 0; i < 100; i++)
		add("q", "a");
	add("last", "answer");
	assert_int_equal(c.n, 202);
	assert_false(c.turns[200].assistant);
	assert_true(c.turns[201].assistant);
	assert_true(ig_conversation_undo(&c, &q, &n));
	assert_string_equal(q, "last");
	assert_int_equal(n, 4);
	free(q);
	assert_true(ig_conversation_undo(&c, NULL, NULL));
	assert_int_equal(c.n, 198);
	assert_int_equal(ig_conversation_set(&c.system, "s"), 0);
	ig_conversation_clear(&c);
	assert_int_equal(c.n, 0);
	assert_string_equal(c.system, "s");
	assert_int_equal(ig_conversation_set(&c.system, ""), 0);
	assert_null(c.system);
}

static void test_there_and_back(void **state)
{
	struct ig_conversation d;
	struct stat st;

	add("Wörter \"und\"\n\tZeilen \\", "\x01\x7f🦀");
	assert_int_equal(ig_conversation_add(&c, "a\0b", 3, "", 0), 0);
	ig_conversation_set(&c.model, "m/x:1");
	ig_conversation_set(&c.system, "be\nbrief");
	umask(0);
	assert_int_equal(ig_conversation_save(&c, path, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	ig_conversation_init(&d);
	ig_conversation_set(&d.model, "other");
	assert_int_equal(ig_conversation_load(&d, path, &err), 0);
	assert_string_equal(d.model, "m/x:1");
	assert_string_equal(d.system, "be\nbrief");
	assert_int_equal(d.n, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(d.turns[i].assistant, i % 2);
		assert_int_equal(d.turns[i].len, c.turns[i].len);
		assert_memory_equal(d.turns[i].text, c.turns[i].text, c.turns[i].len);
	}
	/* and over itself */
	add("more", "text");
	assert_int_equal(ig_conversation_save(&c, path, &err), 0);
	assert_int_equal(ig_conversation_load(&d, path, &err), 0);
	assert_int_equal(d.n, 6);
	ig_conversation_finish(&d);
}

static void test_others_files_are_left_alone(void **state)
{
	static const char *const theirs[] = { "precious", "{\"key\":1}", "[]",
					      "{\"ingot_chat\":2}" };
	char text[64];

	add("q", "a");
	for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
		put(theirs[i]);
		assert_int_equal(ig_conversation_save(&c, path, &err), -EEXIST);
		assert_non_null(strstr(err.text, "not a saved conversation"));
		FILE *f = fopen(path, "r");
		assert_non_null(f);
		assert_int_equal(fread(text, 1, sizeof text, f), strlen(theirs[i]));
		assert_memory_equal(text, theirs[i], strlen(theirs[i]));
		fclose(f);
	}
	put("");
	assert_int_equal(ig_conversation_save(&c, path, &err), 0);
	assert_int_equal(ig_conversation_save(&c, folder, &err), -EEXIST);
	assert_int_equal(ig_conversation_save(&c, "/nonexistent/x", &err), -ENOENT);
}

static void test_bad_files(void **state)
{
#define HEAD "{\"ingot_chat\":1,"
#define Q "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"
	static const struct {
		const char *text, *said;
	} bad[] = {
		{ "", ":1:0:" },
		{ "{", ":1:" },
		{ "[]", "is not a conversation that /save wrote" },
		{ "{}", "is not a conversation that /save wrote" },
		{ "{\"ingot_chat\":\"1\"}", "not a conversation" },
		{ "{\"ingot_chat\":2}", "unknown format 2" },
		{ HEAD "\"zeppelin\":1}", "unknown key \"zeppelin\"" },
		{ HEAD "\"model\":7}", "model: expected a string" },
		{ HEAD "\"system\":\"a\\u0000b\"}", "system: expected a string without NUL" },
		{ HEAD "\"model\":\"a\",\"model\":\"b\"}", "duplicate" },
		{ HEAD "\"messages\":{}}", "messages: expected a list" },
		{ HEAD "\"messages\":[" Q "]}", "messages[0] has no reply" },
		{ HEAD "\"messages\":[" A "," Q "]}", "messages[0].role: expected \"user\"" },
		{ HEAD "\"messages\":[" Q "," Q "]}", "messages[1].role: expected \"assistant\"" },
		{ HEAD "\"messages\":[" Q "," A ",1,2]}", "messages[2].role" },
		{ HEAD "\"messages\":[{\"role\":\"user\"}," A "]}", "messages[0].content" },
		{ HEAD "\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"x\":1}," A "]}",
		  "more than role and content" },
		{ HEAD "\"model\":\"\xff\"}", ":1:" },
	};

	add("kept", "kept");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		put(bad[i].text);
		if (ig_conversation_load(&c, path, &err) != -EINVAL)
			fail_msg("accepted: %s", bad[i].text);
		if (!strstr(err.text, bad[i].said) || !strstr(err.text, path))
			fail_msg("%s: said \"%s\"", bad[i].text, err.text);
		assert_int_equal(c.n, 2);
	}
	assert_int_equal(ig_conversation_load(&c, "/dev/null", &err), -EINVAL);
	assert_int_equal(ig_conversation_load(&c, folder, &err), -EINVAL);
	unlink(path);
	assert_int_equal(ig_conversation_load(&c, path, &err), -ENOENT);
	/* a named pipe without a writer must not block */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(ig_conversation_load(&c, path, &err), -EINVAL);
}

static void test_too_large(void **state)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)IG_CONVERSATION_MAX_BYTES + 1), 0);
	close(fd);
	assert_int_equal(ig_conversation_load(&c, path, &err), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others_files_are_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
	};

	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof path, "%s/chat.json", folder);
	int rc = cmocka_run_group_tests_name("cli conversation", tests, NULL, NULL);
	unlink(path);
	rmdir(folder);
	return rc;
}
