/* Input lines as messages, and messages as commands. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/chat/chat_input.h"

static struct ig_chat_input in;
static struct ig_chat_command cmd;
static struct ig_error err;

static int setup(void **state)
{
	in = (struct ig_chat_input){ 0 };
	return 0;
}

static int teardown(void **state)
{
	ig_chat_input_finish(&in);
	return 0;
}

static bool line(const char *s) { return ig_chat_input_line(&in, s, strlen(s), false); }

static bool pasted(const char *s) { return ig_chat_input_line(&in, s, strlen(s), true); }

static void assert_text(const char *expected)
{
	assert_int_equal(in.text.len, strlen(expected));
	assert_string_equal(in.text.len ? in.text.data : "", expected);
}

static void test_one_line(void **state)
{
	assert_true(line("hello"));
	assert_text("hello");
	assert_false(in.several);
	ig_chat_input_clear(&in);
	assert_true(line(""));
	assert_text("");
	ig_chat_input_clear(&in);
	/* quotes and backslashes elsewhere are text */
	assert_true(line("say \"\"\"x\"\"\" a\\b"));
	assert_text("say \"\"\"x\"\"\" a\\b");
}

static void test_backslash(void **state)
{
	assert_false(line("one\\"));
	assert_false(line("\\"));
	assert_true(line("three"));
	assert_text("one\n\nthree");
	assert_true(in.several);
	ig_chat_input_clear(&in);
	assert_false(in.several || in.started);
	/* an even number is text */
	assert_true(line("path\\\\"));
	assert_text("path\\\\");
	ig_chat_input_clear(&in);
	assert_false(line("three\\\\\\"));
	assert_true(line(""));
	assert_text("three\\\\\n");
}

static void test_block(void **state)
{
	assert_false(line("\"\"\""));
	assert_false(line("/clear\\"));
	assert_false(line(""));
	assert_false(line("\"\"\"quoted\"\"\" inside"));
	assert_true(line("\"\"\""));
	assert_text("/clear\\\n\n\"\"\"quoted\"\"\" inside");
	assert_int_equal(ig_chat_parse(&in, &cmd, &err), 0);
	assert_int_equal(cmd.verb, IG_CHAT_MESSAGE);
	ig_chat_input_clear(&in);
	assert_false(line("  \"\"\"first"));
	assert_true(line("last\"\"\"  "));
	assert_text("first\nlast");
	ig_chat_input_clear(&in);
	assert_true(line("\"\"\"all in one\"\"\""));
	assert_text("all in one");
	ig_chat_input_clear(&in);
	assert_false(line("\"\"\""));
	assert_true(line("\"\"\""));
	assert_text("");
}

static void test_paste(void **state)
{
	assert_false(pasted("/exit\\"));
	assert_false(pasted(""));
	assert_true(line("end"));
	assert_text("/exit\\\n\nend");
	assert_int_equal(ig_chat_parse(&in, &cmd, &err), 0);
	assert_int_equal(cmd.verb, IG_CHAT_MESSAGE);
	ig_chat_input_clear(&in);
	/* a block in a paste ends, and the paste continues */
	assert_false(pasted("\"\"\"a"));
	assert_false(pasted("b\"\"\""));
	assert_true(line("c"));
	assert_text("a\nb\nc");
	ig_chat_input_clear(&in);
	/* one entry of the history may be several lines */
	assert_true(line("/exit\nmore"));
	assert_int_equal(ig_chat_parse(&in, &cmd, &err), 0);
	assert_int_equal(cmd.verb, IG_CHAT_MESSAGE);
}

static void parse(const char *s, enum ig_chat_verb verb, const char *rest)
{
	ig_chat_input_clear(&in);
	assert_true(line(s));
	if (ig_chat_parse(&in, &cmd, &err))
		fail_msg("%s: %s", s, err.text);
	assert_int_equal(cmd.verb, verb);
	assert_int_equal(cmd.len, strlen(rest));
	assert_memory_equal(cmd.rest, rest, cmd.len);
}

static void refuse(const char *s, enum ig_chat_verb verb, const char *said)
{
	ig_chat_input_clear(&in);
	assert_true(line(s));
	assert_int_equal(ig_chat_parse(&in, &cmd, &err), -EINVAL);
	assert_int_equal(cmd.verb, verb);
	if (!strstr(err.text, said))
		fail_msg("%s: said \"%s\", expected \"%s\"", s, err.text, said);
}

static void test_commands(void **state)
{
	parse("hello", IG_CHAT_MESSAGE, "hello");
	parse(" /help", IG_CHAT_MESSAGE, " /help");
	parse("//etc is a folder", IG_CHAT_MESSAGE, "/etc is a folder");
	parse("/help", IG_CHAT_HELP, "");
	parse("/help  \t", IG_CHAT_HELP, "");
	parse("/system", IG_CHAT_SYSTEM, "");
	parse("/system  Be brief.  ", IG_CHAT_SYSTEM, "Be brief.");
	parse("/model a/b:c", IG_CHAT_MODEL, "a/b:c");
	parse("/save my file.json", IG_CHAT_SAVE, "my file.json");
	parse("/load x", IG_CHAT_LOAD, "x");
	parse("/clear", IG_CHAT_CLEAR, "");
	parse("/retry", IG_CHAT_RETRY, "");
	parse("/undo", IG_CHAT_UNDO, "");
	parse("/stats", IG_CHAT_STATS, "");
	parse("/exit", IG_CHAT_EXIT, "");
	parse("/quit", IG_CHAT_EXIT, "");
	ig_chat_input_clear(&in);
	assert_true(line(" \t "));
	assert_int_equal(ig_chat_parse(&in, &cmd, &err), 0);
	assert_int_equal(cmd.verb, IG_CHAT_NOTHING);
	/* each command of the table has its own verb */
	for (const struct ig_chat_command_info *c = ig_chat_commands; c->name; c++) {
		char s[64];
		snprintf(s, sizeof s, "/%s%s", c->name, c->needs_arg ? " x" : "");
		parse(s, c->verb, c->needs_arg ? "x" : "");
	}
}

static void test_mistakes(void **state)
{
	char name[300];

	refuse("/modle x", IG_CHAT_UNKNOWN, "unknown command /modle; did you mean /model?");
	refuse("/", IG_CHAT_UNKNOWN, "unknown command /;");
	refuse("/usr/local/bin", IG_CHAT_UNKNOWN, "// starts a text with a slash");
	refuse("/Help", IG_CHAT_UNKNOWN, "/help");
	refuse("/x\033[31my", IG_CHAT_UNKNOWN, "unknown command /x [31my");
	refuse("/save", IG_CHAT_SAVE, "/save needs a name: /save FILE");
	refuse("/load   ", IG_CHAT_LOAD, "/load needs a name");
	refuse("/clear all", IG_CHAT_CLEAR, "/clear takes no argument");
	memset(name, 'a', sizeof name - 1);
	name[0] = '/';
	name[sizeof name - 1] = 0;
	refuse(name, IG_CHAT_UNKNOWN, "unknown command /aaaa");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_backslash, setup, teardown),
		cmocka_unit_test_setup_teardown(test_block, setup, teardown),
		cmocka_unit_test_setup_teardown(test_paste, setup, teardown),
		cmocka_unit_test_setup_teardown(test_commands, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mistakes, setup, teardown),
	};

	return cmocka_run_group_tests_name("cli chat input", tests, NULL, NULL);
}
