/*
 * test_config_files.c: where the configuration comes from: files, their search order, the environment.
 */
#include "support.h"

#include "base/log.h"
#include "config_case.h"

#include <errno.h>
#include <sys/stat.h>

static void test_load(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	char path[256], expected[600];

	write_text(in_dir(path, "a.yaml"), "server: {port: 1}\nlog: {file: x/../a.log}\n");
	assert_int_equal(ig_config_load(path, &c, &err), 0);
	assert_int_equal(c->server.port, 1);
	assert_string_equal(c->file, path);
	snprintf(expected, sizeof expected, "%s/x/../a.log", test_dir);
	assert_string_equal(c->log.file, expected);
	ig_config_destroy(c);

	/* A relative name: relative paths still start from the file's folder. */
	char *cwd = getcwd(NULL, 0);
	assert_int_equal(chdir(test_dir), 0);
	assert_int_equal(ig_config_load("a.yaml", &c, &err), 0);
	assert_string_equal(c->log.file, expected);
	ig_config_destroy(c);
	assert_int_equal(mkdir("sub", 0700), 0);
	write_text("sub/b.yaml", "log: {file: b.log}\n");
	assert_int_equal(ig_config_load("sub/b.yaml", &c, &err), 0);
	snprintf(expected, sizeof expected, "%s/sub/b.log", test_dir);
	assert_string_equal(c->log.file, expected);
	ig_config_destroy(c);
	assert_int_equal(chdir(cwd), 0);
	free(cwd);

	write_text(path, "server:\n  prot: 1\n");
	assert_int_equal(ig_config_load(path, &c, &err), -EINVAL);
	snprintf(expected, sizeof expected,
		 "%s:2:3: unknown key \"server.prot\"; did you mean \"server.port\"?", path);
	assert_string_equal(err.text, expected);

	in_dir(path, "none.yaml");
	assert_int_equal(ig_config_load(path, &c, &err), -ENOENT);
	snprintf(expected, sizeof expected, "%s: cannot be read: No such file or directory", path);
	assert_string_equal(err.text, expected);
	assert_int_equal(ig_config_load(test_dir, &c, &err), -EISDIR);
	snprintf(expected, sizeof expected, "%s: is a folder, not a file", test_dir);
	assert_string_equal(err.text, expected);

	/* An endless file. */
	assert_int_equal(ig_config_load("/dev/zero", &c, &err), -EFBIG);
	assert_string_equal(err.text, "/dev/zero: larger than 1 MiB");
}

static void test_search_order(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	char path[256], home[256], dir[256];

	in_dir(home, "home");
	assert_int_equal(mkdir(home, 0700), 0);
	setenv("HOME", home, 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("INGOT_CONFIG");
	/* No file (unless Ingot is installed on this machine). */
	if (access(IG_SYSCONFDIR "/ingot/ingot.yaml", F_OK)) {
		assert_int_equal(ig_config_load(NULL, &c, &err), -ENOENT);
		assert_non_null(strstr(err.text, "home/.config/ingot/ingot.yaml"));
		assert_non_null(strstr(err.text, IG_SYSCONFDIR "/ingot/ingot.yaml"));
	}
	assert_int_equal(mkdir(in_dir(dir, "home/.config"), 0700), 0);
	assert_int_equal(mkdir(in_dir(dir, "home/.config/ingot"), 0700), 0);
	write_text(in_dir(path, "home/.config/ingot/ingot.yaml"), "server: {port: 11}\n");
	assert_int_equal(ig_config_load(NULL, &c, &err), 0);
	assert_int_equal(c->server.port, 11);
	assert_string_equal(c->file, path);
	ig_config_destroy(c);
	/* XDG_CONFIG_HOME instead of ~/.config. */
	assert_int_equal(mkdir(in_dir(dir, "xdg"), 0700), 0);
	setenv("XDG_CONFIG_HOME", dir, 1);
	assert_int_equal(mkdir(in_dir(dir, "xdg/ingot"), 0700), 0);
	write_text(in_dir(path, "xdg/ingot/ingot.yaml"), "server: {port: 12}\n");
	assert_int_equal(ig_config_load(NULL, &c, &err), 0);
	assert_int_equal(c->server.port, 12);
	ig_config_destroy(c);
	unsetenv("XDG_CONFIG_HOME");
	/* INGOT_CONFIG before both, and an error when its file does not exist. */
	write_text(in_dir(path, "named.yaml"), "server: {port: 13}\n");
	setenv("INGOT_CONFIG", path, 1);
	assert_int_equal(ig_config_load(NULL, &c, &err), 0);
	assert_int_equal(c->server.port, 13);
	ig_config_destroy(c);
	setenv("INGOT_CONFIG", in_dir(path, "gone.yaml"), 1);
	assert_int_equal(ig_config_load(NULL, &c, &err), -ENOENT);
	assert_non_null(strstr(err.text, "gone.yaml: cannot be read"));
	unsetenv("INGOT_CONFIG");
}

static void test_environment(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	char path[256], name[64];

	write_text(in_dir(path, "env.yaml"),
		   "server: {port: 1, host: file}\nmodels: [{name: a, path: x}]\n");
	/* Each option has its own variable. */
	for (size_t i = 0; i < config_case_n_others; i++) {
		const struct config_option *o = &config_options[i];
		const char *value = config_case_others[i].yaml;
		if (!strcmp(o->key, "default_model"))
			continue; /* must name a model; below */
		if (config_is_list(o))
			value = !strcmp(o->key, "modules.path")		? "/b, /c" :
				!strcmp(o->key, "server.allowed_hosts") ? "one,two" :
				!strcmp(o->key, "runtime.devices")	? "0,2" :
									  "https://a.example";
		setenv(config_env_name(o, name), value, 1);
	}
	assert_int_equal(ig_config_load(path, &c, &err), 0);
	for (size_t i = 0; i < config_case_n_others; i++) {
		const struct config_option *o = &config_options[i];
		if (config_is_list(o) || !strcmp(o->key, "default_model"))
			continue;
		char *is = config_case_format(o, c);
		if (o->type == CONFIG_PATH)
			assert_non_null(strstr(is, test_dir));
		else
			assert_string_equal(is, config_case_others[i].formatted);
		free(is);
	}
	assert_string_equal(c->server.allowed_hosts[0], "one");
	assert_string_equal(c->server.allowed_hosts[1], "two");
	assert_null(c->server.allowed_hosts[2]);
	assert_string_equal(c->modules.path[0], "/b");
	assert_string_equal(c->modules.path[1], "/c");
	assert_string_equal(c->runtime.devices[1], "2");
	ig_config_destroy(c);
	for (size_t i = 0; i < config_case_n_others; i++)
		unsetenv(config_env_name(&config_options[i], name));

	/* config_case_parse() does not read the environment. */
	setenv("INGOT_SERVER_PORT", "99", 1);
	c = config_case_parse("");
	assert_int_equal(c->server.port, 6468);
	ig_config_destroy(c);
	setenv("INGOT_SERVER_PORT", "99999", 1);
	assert_int_equal(ig_config_load(path, &c, &err), -EINVAL);
	assert_string_equal(err.text, "INGOT_SERVER_PORT: " PORT "\"99999\"");
	unsetenv("INGOT_SERVER_PORT");
	setenv("INGOT_DEFAULT_MODEL", "zz", 1);
	assert_int_equal(ig_config_load(path, &c, &err), -EINVAL);
	assert_string_equal(err.text,
			    "INGOT_DEFAULT_MODEL: there is no model \"zz\"; models has a");
	unsetenv("INGOT_DEFAULT_MODEL");
}

static void test_unknown_variables_are_logged(void **state)
{
	struct ig_config *c = NULL;
	char path[256], log[256], text[4096];

	write_text(in_dir(path, "unknown.yaml"), "");
	in_dir(log, "unknown.log");
	assert_int_equal(ig_log_set_file(log), 0);
	setenv("INGOT_SERVER_PROT", "1", 1);
	setenv("INGOT_ZEBRA", "1", 1);
	setenv("INGOT_CONFIG", path, 1);
	assert_int_equal(ig_config_load(path, &c, NULL), 0);
	ig_config_destroy(c);
	unsetenv("INGOT_SERVER_PROT");
	unsetenv("INGOT_ZEBRA");
	unsetenv("INGOT_CONFIG");
	ig_log_set_file(NULL);
	FILE *f = fopen(log, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	assert_non_null(strstr(text,
			       "\"INGOT_SERVER_PROT\", which is not an option and is ignored; did "
			       "you mean INGOT_SERVER_PORT\n"));
	assert_non_null(strstr(text, "\"INGOT_ZEBRA\", which is not an option and is ignored\n"));
	assert_null(strstr(text, "INGOT_CONFIG"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_search_order),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_unknown_variables_are_logged),
	};

	return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
