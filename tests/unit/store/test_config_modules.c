/*
 * test_config_modules.c: options that modules bring: kept until their tables judge them, then
 * of the same types and bounds as all others.
 */
#include "support.h"

#include "base/setting.h"
#include "store/config_private.h"

#include <errno.h>

static const char *const colours[] = { "red", "green", NULL };
static const struct ig_module_option toy_options[] = {
	{ .key = "loud", .type = IG_OPTION_BOOL, .number = 1, .help = "Say more." },
	{ .key = "rows",
	  .type = IG_OPTION_INT,
	  .min = 2,
	  .max = 9,
	  .number = 4,
	  .unit = "rows",
	  .help = "How many." },
	{ .key = "size",
	  .type = IG_OPTION_SIZE,
	  .min = 1024,
	  .max = 1 << 30,
	  .number = 4096,
	  .help = "How large." },
	{ .key = "pause",
	  .type = IG_OPTION_TIME,
	  .max = 60000,
	  .number = 1500,
	  .help = "How long." },
	{ .key = "colour",
	  .type = IG_OPTION_CHOICE,
	  .text = "green",
	  .choices = colours,
	  .help = "Which one." },
	{ .key = "motto", .type = IG_OPTION_TEXT, .max = 12, .text = "", .help = "What to say." },
	{ NULL },
};
static const struct ig_module toy = { .name = "toy", .options = toy_options };
static const struct ig_module plain = { .name = "plain" };
static const struct ig_module *const modules[] = { &toy, &plain };

static struct ig_config *parsed(const char *text)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };

	if (ig_config_parse(text, strlen(text), "/etc/a.yaml", &c, &err))
		fail_msg("%s: %s", text, err.text);
	return c;
}

static void test_values(void **state)
{
	struct ig_config *c = parsed("modules:\n  path: [/m]\n  toy:\n    rows: 7\n    size: 8KiB\n"
				     "    loud: false\n    pause: 2s\n    colour: red\n"
				     "    motto: \"on, on\"\n  plain:\n");
	const struct ig_setting should[] = {
		{ "toy", "rows", 7, NULL },
		{ "toy", "size", 8192, NULL },
		{ "toy", "loud", 0, NULL },
		{ "toy", "pause", 2000, NULL },
		{ "toy", "colour", 0, (char *)"red" },
		{ "toy", "motto", 0, (char *)"on, on" },
	};

	assert_int_equal(c->modules.n_settings, 0); /* nobody has judged it */
	for (int twice = 0; twice < 2; twice++) {
		struct ig_error err = { 0 };
		if (ig_config_check_modules(c, modules, 2, &err))
			fail_msg("%s", err.text);
		assert_int_equal(c->modules.n_settings, 6);
		for (size_t i = 0; i < 6; i++) {
			const struct ig_setting *s = &c->modules.settings[i];
			assert_string_equal(s->module, should[i].module);
			assert_string_equal(s->key, should[i].key);
			assert_int_equal(s->number, should[i].number);
			if (should[i].text)
				assert_string_equal(s->text, should[i].text);
			else
				assert_null(s->text);
		}
	}
	ig_config_destroy(c);
}

/* Place, expected value, actual value. */
static void test_refusals(void **state)
{
	static const char *const cases[][2] = {
		{ "modules: {zeppelin: {a: 1}}",
		  "/etc/a.yaml:1:11: unknown key \"modules.zeppelin\"; the modules are toy, plain" },
		{ "modules:\n  zeppelin:\n", "/etc/a.yaml:2:3: unknown key \"modules.zeppelin\"" },
		{ "modules:\n  toy:\n    raws: 1\n",
		  "/etc/a.yaml:3:5: unknown key \"modules.toy.raws\"; the module's options are loud, "
		  "rows, size" },
		{ "modules:\n  plain: {a: 1}\n",
		  "/etc/a.yaml:2:11: unknown key \"modules.plain.a\"; the module's options are none" },
		{ "modules:\n  toy:\n    rows: 10\n",
		  "/etc/a.yaml:3:11: modules.toy.rows: expected a whole number of rows from 2 to 9, got \"10\"" },
		{ "modules: {toy: {rows: -1}}", "1:23: modules.toy.rows: expected" },
		{ "modules: {toy: {size: 1}}", "modules.toy.size: expected a size in bytes" },
		{ "modules: {toy: {pause: 61s}}", "modules.toy.pause: expected a time" },
		{ "modules: {toy: {loud: yes}}", "modules.toy.loud: expected true or false" },
		{ "modules: {toy: {colour: blue}}", "modules.toy.colour: expected" },
		{ "modules: {toy: {motto: far too long for it}}", "modules.toy.motto: expected" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ig_config *c = parsed(cases[i][0]);
		struct ig_error err = { 0 };

		assert_int_equal(ig_config_check_modules(c, modules, 2, &err), -EINVAL);
		if (!strstr(err.text, cases[i][1]))
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i][1]);
		ig_config_destroy(c);
	}
}

/* Errors that need no module's table are found at once. */
static void test_form(void **state)
{
	static const char *const cases[][2] = {
		{ "modules: {pathh: [a]}",
		  "1:11: unknown key \"modules.pathh\"; did you mean \"modules.path\"?" },
		{ "modules: {toy: 5}", "1:11: unknown key \"modules.toy\"" },
		{ "modules: {toy: {rows: [1]}}",
		  "1:23: modules.toy.rows: expected one value, got a list" },
		{ "modules: {toy: {rows: }}", "modules.toy.rows: expected one value, got nothing" },
		{ "modules:\n  toy: {rows: 3}\n  toy: {size: 1KiB}\n",
		  "3:3: duplicate key \"modules.toy\"; first given in line 2" },
		{ "modules:\n  toy:\n    rows: 3\n    rows: 4\n",
		  "4:5: duplicate key \"modules.toy.rows\"; first given in line 3" },
		{ "modules: {toy: {[a]: 1}}", "a key must be a word" },
		{ "modules: {toy: {motto: \"a\\0b\"}}", "has a NUL in it" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ig_config *c = NULL;
		struct ig_error err = { 0 };

		assert_int_equal(
			ig_config_parse(cases[i][0], strlen(cases[i][0]), "/etc/a.yaml", &c, &err),
			-EINVAL);
		if (!strstr(err.text, cases[i][1]))
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i][1]);
	}
}

static void note(void *ctx, const char *key, const char *was, const char *is, bool reloadable)
{
	char *text = ctx;
	size_t n = strlen(text);

	assert_false(reloadable);
	snprintf(text + n, 400 - n, "%s: %s -> %s\n", key, was, is);
}

static void test_differences(void **state)
{
	struct ig_config *a = parsed("modules: {toy: {rows: 7, size: 8KiB, pause: 1500ms}}");
	struct ig_config *b = parsed("modules: {toy: {colour: red, loud: true, rows: 8}}");
	char text[400] = "";

	assert_int_equal(ig_config_check_modules(a, modules, 2, NULL), 0);
	assert_int_equal(ig_config_check_modules(b, modules, 2, NULL), 0);
	ig_config_diff(a, b, note, text);
	assert_string_equal(text, "modules.toy.rows: 7 -> 8\nmodules.toy.size: 8KiB -> 4KiB\n"
				  "modules.toy.colour: green -> red\n");
	text[0] = 0;
	ig_config_diff(a, a, note, text);
	assert_string_equal(text, "");
	ig_config_destroy(a);
	ig_config_destroy(b);
}

/* etc/ingot.yaml has them, and its values are valid. */
static void test_reference(void **state)
{
	static const char *const has[] = {
		"\n  toy:\n    # Say more.\n",
		"    # Default true; true or false; needs a restart.\n    #loud: true\n",
		"    # How many.\n    # Default 4; rows: 2 to 9; needs a restart.\n    #rows: 4\n",
		"    #size: 4KiB\n",
		"    #pause: 1500ms\n",
		"    # Default green; one of red, green; needs a restart.\n    #colour: green\n",
		"    #motto: \"\"\n",
	};
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(ig_config_write_reference(f, modules, 2), 0);
	fclose(f);
	for (size_t i = 0; i < sizeof has / sizeof *has; i++)
		if (!strstr(text, has[i]))
			fail_msg("the file has no %s", has[i]);
	assert_null(strstr(text, "plain"));
	struct ig_config *c = parsed(text);
	assert_int_equal(ig_config_check_modules(c, modules, 2, NULL), 0);
	ig_config_destroy(c);
	free(text);
	f = open_memstream(&text, &len);
	assert_int_equal(config_write_table(f, modules, 2), 0);
	fclose(f);
	assert_non_null(strstr(text, "| `modules.toy.rows` | `4` | rows: 2 to 9 | no |  |\n"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),	  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_form),	  cmocka_unit_test(test_differences),
		cmocka_unit_test(test_reference),
	};
	return cmocka_run_group_tests_name("options of modules", tests, NULL, NULL);
}
