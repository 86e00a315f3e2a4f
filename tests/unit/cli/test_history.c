/* The history of input, in memory and in its file. */
#include <errno.h>
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

#include "cli/download/files.h"
#include "cli/chat/history.h"

static char folder[] = "/tmp/ingot-history-XXXXXX", path[128];
static struct ig_history h;
static struct ig_error err;

static int setup(void **state)
{
	memset(&h, 0, sizeof h);
	memset(&err, 0, sizeof err);
	unlink(path);
	return 0;
}

static int teardown(void **state)
{
	ig_history_finish(&h);
	return 0;
}

static int add(const char *s) { return ig_history_add(&h, s, strlen(s), &err); }

static void reopen(void)
{
	ig_history_finish(&h);
	if (ig_history_open(&h, path, &err))
		fail_msg("%s", err.text);
}

static void test_there_and_back(void **state)
{
	static const char *const typed[] = { "hello", "a\nb\\n\\", "Wörter 🦀", "/system x" };
	struct stat st;

	umask(0);
	reopen(); /* makes the folders too */
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(add(typed[i]), 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	reopen();
	assert_int_equal(h.n, 4);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(h.entries[i], typed[i]);
}

static void test_what_is_left_out(void **state)
{
	char *longest = malloc(IG_HISTORY_MAX_ENTRY + 2);

	assert_non_null(longest);
	memset(longest, 'x', IG_HISTORY_MAX_ENTRY + 1);
	longest[IG_HISTORY_MAX_ENTRY + 1] = 0;
	reopen();
	assert_int_equal(add(""), 0);
	assert_int_equal(add("twice"), 1);
	assert_int_equal(add("twice"), 0);
	assert_int_equal(add(longest), 0);
	assert_int_equal(add(longest + 1), 1);
	assert_int_equal(add("twice"), 1);
	assert_int_equal(add("\xff"), 0);
	assert_int_equal(ig_history_add(&h, "a\0b", 3, &err), 0);
	assert_int_equal(h.n, 3);
	reopen();
	assert_int_equal(h.n, 3);
	free(longest);
}

static void test_bounds(void **state)
{
	char s[32];
	struct stat st;

	reopen();
	for (int i = 0; i < IG_HISTORY_MAX_ENTRIES + 5; i++) {
		snprintf(s, sizeof s, "entry %d", i);
		assert_int_equal(add(s), 1);
	}
	assert_int_equal(h.n, IG_HISTORY_MAX_ENTRIES);
	assert_string_equal(h.entries[0], "entry 5");
	for (int i = 0; i < IG_HISTORY_MAX_ENTRIES; i++) {
		snprintf(s, sizeof s, "later %d", i);
		assert_int_equal(add(s), 1);
	}
	assert_int_equal(stat(path, &st), 0);
	off_t before = st.st_size;
	reopen(); /* more than twice the limit: shortened */
	assert_int_equal(h.n, IG_HISTORY_MAX_ENTRIES);
	assert_string_equal(h.entries[0], "later 0");
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < before);
	reopen();
	assert_int_equal(h.n, IG_HISTORY_MAX_ENTRIES);
	assert_string_equal(h.entries[h.n - 1], "later 999");
}

static void test_two_at_once(void **state)
{
	struct ig_history other;

	reopen();
	assert_int_equal(ig_history_open(&other, path, &err), 0);
	assert_int_equal(add("one"), 1);
	assert_int_equal(ig_history_add(&other, "two", 3, &err), 1);
	assert_int_equal(add("three"), 1);
	ig_history_finish(&other);
	reopen();
	assert_int_equal(h.n, 3);
	assert_string_equal(h.entries[1], "two");
}

static void test_foreign_lines(void **state)
{
	FILE *f;

	reopen();
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("good\nbad \\x escape\nends in \\\n\n\xff\xfe\nalso good", f);
	fclose(f);
	assert_int_equal(chmod(path, 0644), 0);
	reopen();
	assert_int_equal(h.n, 2);
	assert_string_equal(h.entries[0], "good");
	assert_string_equal(h.entries[1], "also good");
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_no_file(void **state)
{
	assert_int_equal(ig_history_open(&h, NULL, &err), 0);
	assert_int_equal(add("x"), 1);
	assert_int_equal(h.n, 1);
	ig_history_finish(&h);
	assert_int_equal(ig_history_open(&h, folder, &err), -EISDIR);
	assert_int_equal(ig_history_open(&h, "/dev/null/x/y", &err), -ENOTDIR);
	assert_non_null(strstr(err.text, "/dev/null"));
}

static void test_place(void **state)
{
	char buf[64];

	setenv("HOME", "/home/u", 1);
	unsetenv("XDG_STATE_HOME");
	assert_int_equal(ig_history_locate(buf, sizeof buf, &err), 0);
	assert_string_equal(buf, "/home/u/.local/state/ingot/chat_history");
	setenv("XDG_STATE_HOME", "/s", 1);
	assert_int_equal(ig_history_locate(buf, sizeof buf, &err), 0);
	assert_string_equal(buf, "/s/ingot/chat_history");
	assert_int_equal(ig_history_locate(buf, 10, &err), -ENAMETOOLONG);
	setenv("XDG_STATE_HOME", "relative", 1); /* the XDG rules: ignored */
	unsetenv("HOME");
	assert_int_equal(ig_history_locate(buf, sizeof buf, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_lines, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_place, setup, teardown),
	};

	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof path, "%s/state/ingot/chat_history", folder);
	int rc = cmocka_run_group_tests_name("cli history", tests, NULL, NULL);
	ig_remove_tree(folder);
	return rc;
}
