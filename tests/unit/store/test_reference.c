/*
 * test_reference.c: etc/ingot.yaml and the table in docs/configuration.md are what
 * the table of options makes of them, and say what the daemon does.
 * (meson compile update-reference writes both anew.)
 */
#include "support.h"

#include "runtime/modules/modules.h"
#include "store/config_private.h"

static char *read_all(const char *path)
{
	struct ig_strbuf b = { 0 };
	char buf[4096];
	size_t n;
	FILE *f = fopen(path, "r");

	if (!f)
		fail_msg("%s is missing", path);
	while ((n = fread(buf, 1, sizeof buf, f)) > 0)
		ig_strbuf_add(&b, buf, n);
	fclose(f);
	char *s = ig_strbuf_steal(&b);
	assert_non_null(s);
	return s;
}

static struct ig_modules *registry;
static const struct ig_module *modules[IG_MAX_MODULES];
static size_t n_modules;

static int load(void **state)
{
	static const char *const paths[] = { SHIPPED };
	struct ig_error err = { 0 };
	int rc = ig_modules_create(&registry, &err);

	for (size_t i = 0; i < sizeof paths / sizeof *paths && !rc; i++)
		rc = ig_modules_load(registry, paths[i], &err);
	if (rc)
		fail_msg("%s", err.text);
	n_modules = ig_modules_list(registry, modules);
	return 0;
}

static int unload(void **state)
{
	ig_modules_destroy(registry);
	return 0;
}

static char *written_by(int (*write)(FILE *f, const struct ig_module *const *modules, size_t n))
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(write(f, modules, n_modules), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void test_file_is_up_to_date(void **state)
{
	char *is = read_all(SOURCE_ROOT "/etc/ingot.yaml");
	char *should = written_by(ig_config_write_reference);

	if (strcmp(is, should))
		fail_msg("etc/ingot.yaml differs from the table: meson compile update-reference");
	free(is);
	free(should);
}

static void test_docs_are_up_to_date(void **state)
{
	char *is = read_all(SOURCE_ROOT "/docs/configuration.md");
	char *should = written_by(config_write_table);

	if (!strstr(is, should))
		fail_msg("docs/configuration.md differs: meson compile update-reference");
	free(is);
	free(should);
}

/* With the first # of each option's line taken away, for the options (examples stand
 * as "#  - …" and stay) or for the examples. */
static char *uncommented(const char *text, bool examples)
{
	struct ig_strbuf b = { 0 };

	while (*text) {
		size_t n = strcspn(text, "\n") + (strchr(text, '\n') != NULL);
		size_t indent = strspn(text, " ");
		bool example = indent == 0 && !strncmp(text, "#  ", 3);
		bool option =
			text[indent] == '#' && text[indent + 1] >= 'a' && text[indent + 1] <= 'z';
		if (examples ? example : option) {
			ig_strbuf_add(&b, text, indent);
			ig_strbuf_add(&b, text + indent + 1, n - indent - 1);
		} else {
			ig_strbuf_add(&b, text, n);
		}
		text += n;
	}
	return ig_strbuf_steal(&b);
}

static void count(void *ctx, const char *key, const char *was, const char *is, bool reloadable)
{
	print_message("# %s: %s became %s\n", key, was, is);
	(*(size_t *)ctx)++;
}

static size_t n_differences(const char *text)
{
	struct ig_config *a = NULL, *b = NULL;
	struct ig_error err = { 0 };
	size_t n = 0;

	assert_int_equal(ig_config_parse("", 0, "/etc/empty", &a, &err), 0);
	if (ig_config_parse(text, strlen(text), "/etc/ingot.yaml", &b, &err))
		fail_msg("%s", err.text);
	if (ig_config_check_modules(b, modules, n_modules, &err))
		fail_msg("%s", err.text);
	ig_config_diff(a, b, count, &n);
	ig_config_destroy(a);
	ig_config_destroy(b);
	return n;
}

static void test_file_gives_the_defaults(void **state)
{
	char *text = read_all(SOURCE_ROOT "/etc/ingot.yaml");
	char *options = uncommented(text, false), *examples = uncommented(text, true);

	assert_int_equal(n_differences(text), 0);
	/* Each option is in force now, with the same effect. */
	for (size_t i = 0; i < config_n_options; i++) {
		char line[128];
		snprintf(line, sizeof line,
			 "\n%s%s: ", strchr(config_options[i].key, '.') ? "  " : "",
			 config_leaf(&config_options[i]));
		assert_non_null(strstr(options, line));
	}
	assert_int_equal(n_differences(options), 0);
	/* The examples of a model and of an alias are valid, and are the only differences. */
	assert_int_equal(n_differences(examples), 2);
	free(text);
	free(options);
	free(examples);
}

/* Above each option: default, bounds, reload, variable. */
static void test_comments_are_complete(void **state)
{
	char *text = read_all(SOURCE_ROOT "/etc/ingot.yaml");
	char name[64];

	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		struct ig_strbuf bounds = { 0 };
		char mark[80], *block, *env;

		/* The block of comment between the blank line above and the option. */
		snprintf(mark, sizeof mark, " %s;", config_env_name(o, name));
		env = strstr(text, mark);
		if (!env)
			fail_msg("%s is not named", name);
		for (block = env; block > text && strncmp(block, "\n\n", 2); block--)
			;
		block = strndup(block, (size_t)(env - block) + strcspn(env, ".") + 1);
		for (char *p = block; (p = strstr(p, "\n")); p++)
			*p = ' ';
		assert_non_null(strstr(block, "Default "));
		assert_non_null(strstr(env, o->reloadable ? "reloadable" : "needs a restart"));
		config_bounds(o, &bounds);
		if (o->type == CONFIG_INT || o->type == CONFIG_TIME)
			assert_non_null(strstr(block, bounds.data));
		ig_strbuf_finish(&bounds);
		free(block);
	}
	free(text);
}

static void test_full_disk(void **state)
{
#ifdef __linux__
	FILE *f = fopen("/dev/full", "w");

	assert_non_null(f);
	assert_true(ig_config_write_reference(f, modules, n_modules) < 0);
	fclose(f);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file_is_up_to_date),
		cmocka_unit_test(test_docs_are_up_to_date),
		cmocka_unit_test(test_file_gives_the_defaults),
		cmocka_unit_test(test_comments_are_complete),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
