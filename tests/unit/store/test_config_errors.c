/*
 * test_config_errors.c: what is no configuration: each error with its place and text, and how deep,
 * large and long one may be.
 */
#include "support.h"

#include "config_case.h"

#include <errno.h>

#define TIME "expected a time from 100ms to 1h with its unit (ms, s, m, h or d), got "
#define SIZE                                                                                       \
	"expected a size in bytes from 1KiB to 1GiB (with KiB, MiB, GiB, kB, MB or "               \
	"GB), got "
#define NAME "expected a model's name: 1 to 128 of A-Z a-z 0-9 . _ : / -, got "

static const struct {
	const char *yaml, *error; /* after the label */
} errors[] = {
	/* keys */
	{ "server:\n  prot: 1\n",
	  "2:3: unknown key \"server.prot\"; did you mean \"server.port\"?" },
	{ "sever: {}\n", "1:1: unknown key \"sever\"; did you mean \"server\"?" },
	{ "model: []\n", "1:1: unknown key \"model\"; did you mean \"models\"?" },
	{ "log:\n  port: 1\n", "2:3: unknown key \"log.port\"; did you mean \"server.port\"?" },
	{ "port: 1\n", "1:1: unknown key \"port\"; did you mean \"server.port\"?" },
	{ "server.port: 1\n",
	  "1:1: unknown key \"server.port\"; write \"port\" below \"server:\"" },
	{ "scheduler:\n  max_batch_token: 1\n",
	  "2:3: unknown key \"scheduler.max_batch_token\"; did you mean "
	  "\"scheduler.max_batch_tokens\"?" },
	{ "zebra: 1\n", "1:1: unknown key \"zebra\"" },
	{ "server: {zebra: 1}\n", "1:10: unknown key \"server.zebra\"" },
	{ "<<: {}\n", "1:1: unknown key \"<<\"" },
	{ "\"a\\tb\": 1\n", "1:1: unknown key \"a?b\"" },
	{ "\"server\\0\": {}\n", "1:1: unknown key \"server?\"" },
	{ "? [a]\n: 1\n", "1:3: a key must be a word, not a list or a mapping" },
	{ "server:\n  ? {a: b}\n  : 1\n", "2:5: a key must be a word, not a list or a mapping" },
	{ "server:\n  port: 1\n  host: a\n  port: 2\n",
	  "4:3: duplicate key \"server.port\"; first given in line 2" },
	{ "server: {}\nlog: {}\nserver: {}\n",
	  "3:1: duplicate key \"server\"; first given in line 1" },
	{ "models: []\nmodels: []\n", "2:1: duplicate key \"models\"; first given in line 1" },
	{ "default_model: a\ndefault_model: a\n",
	  "2:1: duplicate key \"default_model\"; first given in line 1" },
	/* shapes */
	{ "server\n", "1:1: expected sections such as server: and models:, got one value" },
	{ "- a\n", "1:1: expected sections such as server: and models:, got a list" },
	{ "server: 1\n", "1:9: server: expected a mapping of options, got one value" },
	{ "server: [a]\n", "1:9: server: expected a mapping of options, got a list" },
	{ "server:\n  port: [1]\n", "2:9: server.port: " PORT "a list" },
	{ "server:\n  port: {a: 1}\n", "2:9: server.port: " PORT "a mapping" },
	{ "server:\n  port:\n", "2:8: server.port: " PORT "nothing" },
	{ "server:\n  port: ~\n", "2:9: server.port: " PORT "nothing" },
	{ "log: {file: null}\n", "1:13: log.file: expected a path, got nothing" },
	{ "server: {allowed_hosts: a}\n",
	  "1:25: server.allowed_hosts: expected a list, such as [a, b], got one value" },
	{ "server: {allowed_hosts: [a, [b]]}\n",
	  "1:29: server.allowed_hosts: an entry must be one value, got a list" },
	{ "modules:\n  path:\n    - a\n    -\n",
	  "4:6: modules.path: an entry must be one value, got nothing" },
	/* numbers */
	{ "server:\n  port: 70000\n", "2:9: server.port: " PORT "\"70000\"" },
	{ "server: {port: -1}\n", "1:16: server.port: " PORT "\"-1\"" },
	{ "server: {port: +1}\n", "1:16: server.port: " PORT "\"+1\"" },
	{ "server: {port: 1.5}\n", "1:16: server.port: " PORT "\"1.5\"" },
	{ "server: {port: 0x10}\n", "1:16: server.port: " PORT "\"0x10\"" },
	{ "server: {port: 010}\n", "1:16: server.port: " PORT "\"010\"" },
	{ "server: {port: 1_000}\n", "1:16: server.port: " PORT "\"1_000\"" },
	{ "server: {port: \"\"}\n", "1:16: server.port: " PORT "\"\"" },
	{ "server: {port: http}\n", "1:16: server.port: " PORT "\"http\"" },
	{ "server: {port: \"1\\0\"}\n", "1:16: server.port: " PORT "\"1?\"" },
	{ "server: {port: 18446744073709551617}\n",
	  "1:16: server.port: " PORT "\"18446744073709551617\"" },
	{ "ledger: {queue: 0}\n",
	  "1:17: ledger.queue: expected a whole number of rows from 1 to 65536, got \"0\"" },
	/* sizes */
	{ "server: {max_body: 1023}\n", "1:20: server.max_body: " SIZE "\"1023\"" },
	{ "server: {max_body: 2GiB}\n", "1:20: server.max_body: " SIZE "\"2GiB\"" },
	{ "server: {max_body: 1.5MiB}\n", "1:20: server.max_body: " SIZE "\"1.5MiB\"" },
	{ "server: {max_body: 32mb}\n", "1:20: server.max_body: " SIZE "\"32mb\"" },
	{ "server: {max_body: MiB}\n", "1:20: server.max_body: " SIZE "\"MiB\"" },
	{ "server: {max_body: 18014398509481985KiB}\n",
	  "1:20: server.max_body: " SIZE "\"18014398509481985KiB\"" },
	{ "kvcache: {slab: 3MiB}\n",
	  "1:17: kvcache.slab: expected a power of two in bytes from 16KiB to 1GiB (with KiB, MiB, "
	  "GiB, kB, MB or GB), got \"3MiB\"" },
	/* times */
	{ "server: {slow_client_timeout: 30}\n",
	  "1:31: server.slow_client_timeout: " TIME "\"30\"" },
	{ "server: {slow_client_timeout: 0}\n", "1:31: server.slow_client_timeout: " TIME "\"0\"" },
	{ "server: {slow_client_timeout: 2h}\n",
	  "1:31: server.slow_client_timeout: " TIME "\"2h\"" },
	{ "server: {slow_client_timeout: 1d}\n",
	  "1:31: server.slow_client_timeout: " TIME "\"1d\"" },
	{ "server: {slow_client_timeout: 1min}\n",
	  "1:31: server.slow_client_timeout: " TIME "\"1min\"" },
	{ "scheduler: {retry_after: 1500ms}\n",
	  "1:26: scheduler.retry_after: expected a time from 1s to 1h with its unit (ms, s, m, h "
	  "or d), got \"1500ms\"; it must be whole seconds" },
	/* yes and no */
	{ "runtime: {strict: yes}\n",
	  "1:19: runtime.strict: expected true or false, got \"yes\"; write true" },
	{ "runtime: {strict: on}\n",
	  "1:19: runtime.strict: expected true or false, got \"on\"; write true" },
	{ "runtime: {strict: no}\n",
	  "1:19: runtime.strict: expected true or false, got \"no\"; write false" },
	{ "runtime: {strict: off}\n",
	  "1:19: runtime.strict: expected true or false, got \"off\"; write false" },
	{ "runtime: {strict: maybe}\n",
	  "1:19: runtime.strict: expected true or false, got \"maybe\"" },
	/* words */
	{ "log: {level: loud}\n",
	  "1:14: log.level: expected one of error, warn, info, debug, got \"loud\"" },
	{ "runtime: {isa: AVX2}\n",
	  "1:16: runtime.isa: expected one of auto, generic, avx2, avx512, avx512_bf16, "
	  "neon, neon_dotprod, neon_i8mm, got "
	  "\"AVX2\"" },
	{ "kvcache: {service: \"\"}\n",
	  "1:20: kvcache.service: expected 1 to 64 characters, none of them a control character, got "
	  "\"\"" },
	{ "server: {host: \"a\\nb\"}\n",
	  "1:16: server.host: expected 0 to 255 characters, none of them a control character, got "
	  "\"a?b\"" },
	{ "server:\n  allowed_hosts: [a, http://b]\n",
	  "2:22: server.allowed_hosts: expected host names such as ingot.lan, without scheme or "
	  "path, got \"http://b\"" },
	{ "runtime: {devices: [0, 1x]}\n",
	  "1:24: runtime.devices: expected numbers of devices from 0 to 255, or all, got \"1x\"" },
	{ "runtime: {devices: [256]}\n",
	  "1:21: runtime.devices: expected numbers of devices from 0 to 255, or all, got \"256\"" },
	{ "server:\n  allowed_hosts: [\"a\\0b\"]\n",
	  "2:19: server.allowed_hosts: an entry has a NUL in it" },
	{ "server:\n  allowed_origins: [chat.example]\n",
	  "2:21: server.allowed_origins: expected origins such as https://chat.example, without a "
	  "path, got \"chat.example\"" },
	{ "server:\n  allowed_origins: [\"https://chat.example/\"]\n",
	  "2:21: server.allowed_origins: expected origins such as https://chat.example, without a "
	  "path, got \"https://chat.example/\"" },
	{ "log: {file: ~root/x}\n", "1:13: log.file: only ~/ is allowed, got \"~root/x\"" },
	{ "modules: {path: [\"\"]}\n", "1:18: modules.path: expected paths of folders, got \"\"" },
	/* models */
	{ "models: {name: a}\n", "1:10: unknown key \"models.name\"" },
	{ "models: {entries: {name: a}}\n",
	  "1:19: models.entries: expected a list, got a mapping" },
	{ "models: {entries: [], entries: []}\n",
	  "1:23: duplicate key \"models.entries\"; first given in line 1" },
	{ "models: {folder: [a]}\n", "1:18: models.folder: expected a path, got a list" },
	{ "models: {folders: a}\n",
	  "1:10: unknown key \"models.folders\"; did you mean \"models.folder\"?" },
	{ "models: [a]\n", "1:10: models[0]: expected name, path …, got one value" },
	{ "models:\n  - name: a\n    path: b\n    adapters: [{name: x, path: y, scale: 2}]\n",
	  "4:35: unknown key \"models[0].adapters[0].scale\"; an adapter has name, path and "
	  "scale_percent" },
	{ "models:\n  - name: a\n    path: b\n    adapters: [{name: x, path: y, scale_percent: 0}]\n",
	  "4:50: models[0].adapters[0].scale_percent: expected a whole number from 1 to 1000, got \"0\"" },
	{ "models:\n  - name: a\n    path: b\n    adapters: [{name: x, path: y, name: z}]\n",
	  "4:35: duplicate key \"models[0].adapters[0].name\"" },
	{ "models:\n  - name: a\n    path: b\n    adapters: [{name: x, path: y}, {name: x, path: z}]\n",
	  "4:36: models[0].adapters[1]: there is an adapter \"x\" already" },
	{ "models:\n  - name: a\n", "2:5: models[0]: path is missing" },
	{ "models:\n  - {name: a, path: b}\n  - path: c\n", "3:5: models[1]: name is missing" },
	{ "models:\n  - name: a\n    path: b\n    contxt: 1\n",
	  "4:5: unknown key \"models[0].contxt\"; a model has name, path, context, kv_dtype, "
	  "draft, load, keep_alive, pin and adapters" },
	{ "models:\n  - name: a\n    path: b\n    draft: ./b\n",
	  "2:5: models[0].draft: it is the model itself" },
	{ "models:\n  - name: a\n    path: b\n    draft: [c]\n",
	  "4:12: models[0].draft: expected a path, got a list" },
	{ "models:\n  - name: a\n    path: b\n    name: c\n",
	  "4:5: duplicate key \"models[0].name\"; first given in line 2" },
	{ "models:\n  - {name: a, path: b}\n  - name: a\n    path: c\n",
	  "3:11: models[1].name: \"a\" is the name of models[0] already" },
	{ "models:\n  - name: a b\n", "2:11: models[0].name: " NAME "\"a b\"" },
	{ "models:\n  - name: \"\"\n", "2:11: models[0].name: " NAME "\"\"" },
	{ "models:\n  - name: \xc3\xa4\n", "2:11: models[0].name: " NAME "\"\xc3\xa4\"" },
	{ "models:\n  - path: \"\"\n", "2:11: models[0].path: expected a path, got \"\"" },
	{ "models:\n  - context: 16777217\n",
	  "2:14: models[0].context: expected a whole number of tokens from 0 to 16777216, got "
	  "\"16777217\"" },
	{ "default_model: c\nmodels: [{name: a, path: x}, {name: b, path: y}]\n",
	  "1:16: default_model: there is no model \"c\"; models has a, b" },
	{ "server: {model_id_prefix: a b}\n", "1:27: server.model_id_prefix: " NAME "\"a b\"" },
	{ "aliases: [a]\n",
	  "1:10: aliases: expected names, each with the name of a model, got a list" },
	{ "aliases:\n  a: b\n", "2:6: aliases.a: there is no model \"b\"; models has no entry" },
	{ "aliases:\n  claude-*: c\nmodels: [{name: a, path: x}]\n",
	  "2:13: aliases.claude-*: there is no model \"c\"; models has a" },
	{ "aliases: {b*: a, a: a}\nmodels: [{name: a, path: x}]\n",
	  "1:21: aliases.a: this is the name of a model already" },
	{ "aliases:\n  b: a\n  c: a\n  b: a\n",
	  "4:3: duplicate key \"aliases.b\"; first given in line 2" },
	{ "aliases: {}\naliases: {}\n", "2:1: duplicate key \"aliases\"; first given in line 1" },
	{ "aliases: {\"a b\": a}\n",
	  "1:11: aliases: a name is 1 to 127 of A-Z a-z 0-9 . _ : / - and * for any characters, "
	  "got \"a b\"" },
	{ "aliases: {a: [b]}\n", "1:14: aliases.a: expected a model's name, got a list" },
	{ "aliases: {a: }\n", "1:14: aliases.a: expected a model's name, got nothing" },
	{ "alias: {}\n", "1:1: unknown key \"alias\"; did you mean \"aliases\"?" },
/* rules for prompts */
#define RULES "kvcache: {normalize: ["
	{ "kvcache: {normalize: all}\n",
	  "1:22: kvcache.normalize: expected a list of rules, got one value" },
	{ "kvcache:\n  normalize: []\n  normalize: []\n",
	  "3:3: duplicate key \"kvcache.normalize\"; first given in line 2" },
	{ RULES "a]}\n", "1:23: kvcache.normalize[0]: expected name, pattern …, got one value" },
	{ RULES "{pattern: a}]}\n", "1:33: kvcache.normalize[0]: name is missing" },
	{ RULES "{name: a}]}\n", "1:23: kvcache.normalize[0], rule \"a\": pattern is missing" },
	{ RULES "{nam: a}]}\n",
	  "1:24: unknown key \"kvcache.normalize[0].nam\"; a rule has name, pattern, replacement, "
	  "enabled, models, except_models and clients" },
	{ RULES "{name: a, name: b}]}\n",
	  "1:33: duplicate key \"kvcache.normalize[0].name\"; first given in line 1" },
	{ RULES "{name: a b, pattern: a}]}\n",
	  "1:30: kvcache.normalize[0].name: expected a name: 1 to 64 of A-Z a-z 0-9 . _ : / -, got "
	  "\"a b\"" },
	{ RULES "{name: a, pattern: a}, {name: a, pattern: b}]}\n",
	  "1:65: kvcache.normalize[1]: there is a rule \"a\" already" },
	{ RULES "{name: dates}, {name: dates}]}\n",
	  "1:38: kvcache.normalize[1]: there is a rule \"dates\" already" },
	{ RULES "{name: dates, pattern: a}]}\n",
	  "1:46: kvcache.normalize[0], rule \"dates\": this rule is built in: give yours another name" },
	{ RULES "{name: dates, replacement: a}]}\n",
	  "1:23: kvcache.normalize[0], rule \"dates\": this rule is built in: its replacement is "
	  "fixed" },
	{ "kvcache:\n  normalize:\n    - name: a\n      pattern: \"x(\"\n",
	  "4:16: kvcache.normalize[0], rule \"a\": the pattern does not compile: missing closing "
	  "parenthesis, at byte 2" },
	{ RULES "{name: a, pattern: x*}]}\n",
	  "1:42: kvcache.normalize[0], rule \"a\": the pattern matches the empty text" },
	{ RULES "{name: a, pattern: (x), replacement: $2}]}\n",
	  "1:42: kvcache.normalize[0], rule \"a\": the replacement has $2; the pattern has groups up "
	  "to $1" },
	{ RULES "{name: a, pattern: x, replacement: 5$}]}\n",
	  "1:42: kvcache.normalize[0], rule \"a\": in the replacement a group ($0 to $9) or $ must "
	  "follow $" },
	{ RULES "{name: a, pattern: x, enabled: yes}]}\n",
	  "1:54: kvcache.normalize[0].enabled: expected true or false, got \"yes\"; write true" },
	{ RULES "{name: a, pattern: x, models: m}]}\n",
	  "1:53: kvcache.normalize[0].models: expected a list, such as [a, b], got one value" },
	{ RULES "{name: a, pattern: x, models: [\"a?\"]}]}\n",
	  "1:54: kvcache.normalize[0].models: expected names: 1 to 128 of A-Z a-z 0-9 . _ : / - = "
	  "and * for any characters, got \"a?\"" },
	{ RULES "{name: a, pattern: \"x\\0\"}]}\n",
	  "1:42: kvcache.normalize[0].pattern: the value has a NUL in it" },
	/* the form */
	{ "server: &a {}\n", "1:9: anchors (&) are not allowed" },
	{ "a: &x 1\nb: *x\n", "1:4: anchors (&) are not allowed" },
	{ "- &x [*x]\n", "1:3: anchors (&) are not allowed" },
	{ "server: *a\n", "1:9: aliases (*) are not allowed" },
	{ "server: {port: !!int 1}\n", "1:16: tags (!) are not allowed" },
	{ "server: !x {}\n", "1:9: tags (!) are not allowed" },
	{ "models: !x []\n", "1:9: tags (!) are not allowed" },
	{ "server: {}\n---\nlog: {}\n", "2:1: a second document (---) is not allowed" },
	{ "server: {port: 1\n", "2:1: not valid YAML: while parsing a flow mapping, did not find "
				"expected ',' or '}'" },
	{ "a: b: c\n", "1:5: not valid YAML: mapping values are not allowed in this context" },
	{ "server:\n\tport: 1\n", "2:1: not valid YAML: while scanning for the next token, found "
				  "character that cannot start any token" },
	{ "# \xc3\xa4\xc3\xb6\nab\x01\n",
	  "2:3: not valid YAML: control characters are not allowed" },
	{ "# ok\n# \xff\n", "2:3: not valid YAML: invalid leading UTF-8 octet" },
	/* columns are characters, not bytes */
	{ "{\"\xc3\xa4\": 1}\n", "1:2: unknown key \"\xc3\xa4\"" },
	{ "server: {\"host\": \"\xc3\xa4\xc3\xb6\", port: x}\n",
	  "1:30: server.port: " PORT "\"x\"" },
};

static void test_errors(void **state)
{
	for (size_t i = 0; i < N_OF(errors); i++) {
		struct ig_config *c = NULL;
		struct ig_error err = { 0 };
		char expected[600];

		snprintf(expected, sizeof expected, "ingot.yaml:%s", errors[i].error);
		int rc = ig_config_parse(errors[i].yaml, strlen(errors[i].yaml), "ingot.yaml", &c,
					 &err);
		if (!rc)
			fail_msg("accepted: %s", errors[i].yaml);
		assert_string_equal(err.text, expected);
		assert_int_equal(rc, -EINVAL);
		assert_int_equal(err.code, -EINVAL);
		assert_null(c);
		/* It fails in the same way without an ig_error. */
		assert_int_equal(
			ig_config_parse(errors[i].yaml, strlen(errors[i].yaml), "x", &c, NULL),
			-EINVAL);
	}
}

static void test_depth(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	char text[4096];

	/* 32 levels are parsed, 33 are refused. */
	memset(text, '[', 32);
	memset(text + 32, ']', 32);
	assert_int_equal(ig_config_parse(text, 64, "f", &c, &err), -EINVAL);
	assert_string_equal(err.text,
			    "f:1:1: expected sections such as server: and models:, got a list");
	memset(text, '[', sizeof text);
	assert_int_equal(ig_config_parse(text, sizeof text, "f", &c, &err), -EINVAL);
	assert_string_equal(err.text, "f:1:33: nested deeper than 32 levels");
}

static void test_size(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	size_t len = CONFIG_MAX_BYTES;
	char *text = malloc(len + 1);

	assert_non_null(text);
	memset(text, '#', len + 1);
	assert_int_equal(ig_config_parse(text, len, "f", &c, &err), 0);
	ig_config_destroy(c);
	assert_int_equal(ig_config_parse(text, len + 1, "f", &c, &err), -EFBIG);
	assert_string_equal(err.text, "f: larger than 1 MiB");
	free(text);
}

/* Long texts are cut between characters, and the message keeps line and column. */
static void test_long_texts(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	struct ig_strbuf b = { 0 };
	char label[1024];

	ig_strbuf_puts(&b, "log: {level: x");
	for (int i = 0; i < 100; i++)
		ig_strbuf_puts(&b, "\xc3\xa4");
	ig_strbuf_puts(&b, "}\n");
	memset(label, 'l', sizeof label - 1);
	label[sizeof label - 1] = 0;
	assert_int_equal(ig_config_parse(b.data, b.len, label, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, ":1:14: log.level: expected one of"));
	assert_non_null(strstr(err.text, "\xc3\xa4...\""));
	ig_strbuf_clear(&b);
	for (int i = 0; i < 300; i++)
		ig_strbuf_puts(&b, "k");
	ig_strbuf_puts(&b, ": 1\n");
	assert_int_equal(ig_config_parse(b.data, b.len, "f", &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "f:1:1: unknown key \"kkkk"));
	ig_strbuf_finish(&b);
}

static void test_list_caps(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };
	struct ig_strbuf b;

	for (int extra = 0; extra < 2; extra++) {
		b = (struct ig_strbuf){ 0 };
		ig_strbuf_puts(&b, "modules:\n  path:\n");
		for (int i = 0; i < CONFIG_MAX_ITEMS + extra; i++)
			ig_strbuf_puts(&b, "    - a\n");
		int rc = ig_config_parse(b.data, b.len, "f", &c, &err);
		assert_int_equal(rc, extra ? -EINVAL : 0);
		if (!extra)
			ig_config_destroy(c);
		else
			assert_string_equal(err.text,
					    "f:259:7: modules.path: more than 256 entries");
		ig_strbuf_clear(&b);
		ig_strbuf_puts(&b, "models:\n");
		for (int i = 0; i < CONFIG_MAX_MODELS + extra; i++)
			ig_strbuf_printf(&b, "  - {name: m%d, path: p}\n", i);
		rc = ig_config_parse(b.data, b.len, "f", &c, &err);
		assert_int_equal(rc, extra ? -EINVAL : 0);
		if (!extra)
			ig_config_destroy(c);
		else
			assert_string_equal(err.text, "f:258:5: models: more than 256 entries");
		ig_strbuf_finish(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),	  cmocka_unit_test(test_depth),
		cmocka_unit_test(test_size),	  cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_list_caps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
