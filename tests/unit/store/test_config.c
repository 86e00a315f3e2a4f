/*
 * test_config.c: the configuration: its defaults, each option from YAML, names and rules for
 * prompts, differences.
 */
#include "support.h"

#include "config_case.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- defaults --------------------------------------------------------------------- */

/* The defaults in config.h's comments, which the table must have. */
static void check_defaults(const struct ig_config *c)
{
	assert_string_equal(c->server.host, "127.0.0.1");
	assert_int_equal(c->server.port, 6468);
	assert_int_equal(c->server.also_listen, 0);
	assert_int_equal(c->server.max_connections, 512);
	assert_int_equal(c->server.prep_threads, 3);
	assert_int_equal(c->server.max_body, 32 << 20);
	assert_int_equal(c->server.max_header, 16 << 10);
	assert_int_equal(c->server.client_buffer, 256 << 10);
	assert_int_equal(c->server.slow_client_timeout_ms, 30000);
	assert_int_equal(c->server.keepalive_interval_ms, 5000);
	assert_int_equal(c->server.model_wait_ms, 120000);
	assert_true(c->server.watch_config);
	assert_int_equal(c->server.drain_timeout_ms, 20000);
	assert_null(c->server.allowed_hosts[0]);
	assert_null(c->server.allowed_origins[0]);
	assert_string_equal(c->runtime.driver, "auto");
	assert_string_equal(c->runtime.isa, "auto");
	assert_int_equal(c->runtime.threads, 0);
	assert_string_equal(c->runtime.activations, "auto");
	assert_string_equal(c->runtime.experts, "packed");
	assert_string_equal(c->runtime.repack, "auto");
	assert_string_equal(c->runtime.tensor_units, "auto");
	assert_false(c->runtime.strict);
	assert_int_equal(c->runtime.keep_wired_ms, 180000);
	assert_int_equal(c->memory.budget, 0);
	assert_string_equal(c->kvcache.service, "paged");
	assert_int_equal(c->kvcache.arena, 0);
	assert_int_equal(c->kvcache.slab, 4 << 20);
	assert_string_equal(c->kvcache.dtype, "f16");
	assert_int_equal(c->scheduler.max_batch_tokens, 512);
	assert_int_equal(c->scheduler.prefill_chunk, 512);
	assert_int_equal(c->scheduler.max_seqs, 64);
	assert_int_equal(c->scheduler.max_queue, 256);
	assert_int_equal(c->scheduler.retry_after_s, 2);
	assert_int_equal(c->scheduler.max_output_tokens, 0);
	assert_string_equal(c->scheduler.speculation, "on");
	assert_non_null(c->modules.path[0]);
	assert_non_null(strstr(c->modules.path[0], "/ingot/modules"));
	assert_null(c->modules.path[1]);
	assert_true(c->ledger.enabled);
	assert_non_null(strstr(c->ledger.path, "ingot/ledger.db"));
	assert_int_equal(c->ledger.queue, 4096);
	assert_int_equal(c->ledger.retention_days, 90);
	assert_string_equal(c->log.level, "info");
	assert_string_equal(c->log.file, "");
	assert_int_equal(c->n_models, 0);
	assert_string_equal(c->default_model, "");
}

static void test_empty_files_are_valid(void **state)
{
	static const char *const texts[] = { "",
					     "\n",
					     "# nothing\n",
					     "---\n",
					     "---\n...\n",
					     "{}",
					     "~",
					     "server:\nmodels:\n",
					     "server: {}\nmodels: []\n",
					     "\xef\xbb\xbf# a mark of byte order\n" };

	for (size_t i = 0; i < N_OF(texts); i++) {
		struct ig_config *c = config_case_parse(texts[i]);
		check_defaults(c);
		ig_config_destroy(c);
	}
	ig_config_destroy(NULL);
}

static void test_ledger_path_default(void **state)
{
	char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");

	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/home/somebody", 1);
	struct ig_config *c = config_case_parse("");
#ifndef __APPLE__
	assert_string_equal(c->ledger.path, "/home/somebody/.local/state/ingot/ledger.db");
	ig_config_destroy(c);
	setenv("XDG_STATE_HOME", "/var/state", 1);
	c = config_case_parse("ledger: {path: \"\"}");
	assert_string_equal(c->ledger.path, "/var/state/ingot/ledger.db");
	unsetenv("XDG_STATE_HOME");
#endif
	ig_config_destroy(c);
	setenv("HOME", home, 1);
	free(home);
}

static void test_devices(void **state)
{
	static const char text[] = "runtime: {devices: [3, 0, 12]}\n";
	static const char whole[] = "runtime: {devices: [0, all]}\n";
	uint32_t out[IG_CONFIG_DEVICES], all = 7;
	struct ig_config *c = config_case_parse(text);

	assert_int_equal(ig_config_devices(c, out, &all), 3);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 0);
	assert_int_equal(out[2], 12);
	assert_int_equal(all, 0);
	ig_config_destroy(c);
	c = config_case_parse(whole);
	assert_int_equal(ig_config_devices(c, out, &all), 0);
	assert_int_equal(all, 1);
	ig_config_destroy(c);
	c = config_case_parse("");
	assert_int_equal(ig_config_devices(c, out, &all), 0);
	assert_int_equal(all, 0);
	ig_config_destroy(c);
}

/* A program beside modules/NAME/NAME.so finds these: this test, copied into such a
 * tree, prints what it found. */
static void copy_self(const char *to)
{
	char buf[65536];
	size_t n;
	FILE *in = fopen("/proc/self/exe", "r"), *out = fopen(to, "w");

	assert_true(in && out);
	while ((n = fread(buf, 1, sizeof buf, in)) > 0)
		assert_int_equal(fwrite(buf, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(chmod(to, 0755), 0);
}

static void test_modules_of_a_build_tree(void **state)
{
	static const char *const folders[] = { "tree",		 "tree/daemon",
					       "tree/modules",	 "tree/modules/b",
					       "tree/modules/a", "tree/modules/empty" };
	char path[256], command[300], line[1024], expected[1024];

	if (access("/proc/self/exe", R_OK))
		return; /* not this system's way to name a program */
	for (size_t i = 0; i < N_OF(folders); i++)
		assert_int_equal(mkdir(in_dir(path, folders[i]), 0755), 0);
	write_text(in_dir(path, "tree/modules/a/a.so"), "");
	write_text(in_dir(path, "tree/modules/b/b.so"), "");
	copy_self(in_dir(path, "tree/daemon/program"));
	snprintf(command, sizeof command, "%s --module-path", path);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof line, f));
	assert_int_equal(pclose(f), 0);
	snprintf(expected, sizeof expected, "%s/tree/modules/a %s/tree/modules/b \n", test_dir,
		 test_dir);
	assert_string_equal(line, expected);
}

static int print_module_path(void)
{
	struct ig_config *c = NULL;

	if (ig_config_parse("", 0, "f", &c, NULL))
		return 1;
	for (char **p = c->modules.path; *p; p++)
		printf("%s ", *p);
	printf("\n");
	ig_config_destroy(c);
	return 0;
}

/* ---- each option --------------------------------------------------------------------- */

static const char *const reloadable[] = {
	"log.level",
	"log.file",
	"server.slow_client_timeout",
	"server.keepalive_interval",
	"server.model_wait",
	"server.model_id_prefix",
	"server.watch_config",
	"server.unknown_parameters",
	"tools.fallback",
	"server.drain_timeout",
	"scheduler.max_queue",
	"scheduler.retry_after",
	"scheduler.prefill_chunk",
	"scheduler.prompt_share",
	"scheduler.max_output_tokens",
	"scheduler.speculation",
	"ledger.retention_days",
	"default_model",
	"models.folder",
	"limits.max_concurrent",
	"limits.requests_per_minute",
	"limits.tokens_per_minute",
	"responses.max_stored",
	"responses.max_stored_bytes",
	"responses.max_stored_per_lane",
};

static char *yaml_line(char *buf, size_t size, const char *key, const char *value)
{
	const char *dot = strchr(key, '.');

	if (dot)
		snprintf(buf, size, "%.*s:\n  %s: %s\n", (int)(dot - key), key, dot + 1, value);
	else
		snprintf(buf, size, "%s: %s\n", key, value);
	return buf;
}

static void test_every_option(void **state)
{
	struct ig_config *base = config_case_parse("");
	char text[256];

	/* The list above has each option once, in the table's order. */
	assert_int_equal(config_case_n_others, config_n_options);
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		struct config_seen seen = { .want = o->key };
		bool expect_reload = false;
		char *was = config_case_format(o, base);

		assert_string_equal(o->key, config_case_others[i].key);
		yaml_line(text, sizeof text, o->key, config_case_others[i].yaml);
		if (config_case_others[i].also)
			snprintf(text + strlen(text), sizeof text - strlen(text), "  %s\n",
				 config_case_others[i].also);
		struct ig_config *c = config_case_parse(text);
		char *is = config_case_format(o, c);
		assert_string_equal(is, config_case_others[i].formatted);
		ig_config_diff(base, c, config_case_note, &seen);
		/* that option and no other, but for the two defaults beside it */
		assert_int_equal(seen.n, 1 + (config_case_others[i].also != NULL) +
						 2 * !strcmp(o->key, "ledger.path"));
		assert_string_equal(seen.key, o->key);
		assert_string_equal(seen.was, was);
		assert_string_equal(seen.is, is);
		for (size_t j = 0; j < N_OF(reloadable); j++)
			expect_reload |= !strcmp(reloadable[j], o->key);
		assert_int_equal(seen.reloadable, expect_reload);
		ig_config_destroy(c);
		free(is);
		free(was);
	}
	ig_config_destroy(base);
}

/* The same through the struct's own names, so that no two options share a field. */
static void test_fields(void **state)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_puts(
		&b,
		"kvcache: {service: s, arena: 1GiB, slab: 32KiB, dtype: f32}\n"
		"memory: {budget: 3GiB}\nruntime: {driver: cpu, isa: generic, threads: 5, "
		"activations: f32, experts: mapped, repack: never, tensor_units: never, strict: true, keep_wired: 90s}\n"
		"server: {host: h, port: 1, also_listen: 23, "
		"max_connections: 2, max_body: 3KiB, "
		"max_header: 4KiB, client_buffer: 5KiB, slow_client_timeout: 6s, "
		"keepalive_interval: 7s, model_wait: 9m, watch_config: false, "
		"drain_timeout: 8s, unix_socket: /s, "
		"unix_socket_mode: 0620, tls_cert: /c, tls_key: /k, keys_file: /keys, "
		"prep_threads: 12, allow_anonymous: true}\n"
		"limits: {max_concurrent: 18, requests_per_minute: 19, tokens_per_minute: 20}\n"
		"responses: {max_stored: 21, max_stored_bytes: 22KiB, "
		"max_stored_per_lane: 23, persist: false, path: /r}\n"
		"scheduler: {max_batch_tokens: 9, prefill_chunk: 10, max_seqs: 11, prompt_share: 25, "
		"max_queue: 12, retry_after: 13s, max_output_tokens: 14, speculation: off}\n"
		"ledger: {enabled: false, path: /p, queue: 15, retention_days: 16}\n"
		"log: {level: warn, file: /f}\n"
		"models: [{name: a, path: a.gguf, context: 17, kv_dtype: f16/q8_0, draft: s.gguf, load: first_use, "
		"keep_alive: 10m, pin: true}, {path: ~/b, name: b}]\n"
		"default_model: b\n");
	setenv("HOME", "/home/somebody", 1);
	struct ig_config *c = config_case_parse(b.data);
	assert_string_equal(c->file, "/etc/x/ingot.yaml");
	assert_string_equal(c->server.host, "h");
	assert_int_equal(c->server.port, 1);
	assert_int_equal(c->server.also_listen, 23);
	assert_int_equal(c->server.max_connections, 2);
	assert_int_equal(c->server.max_body, 3 << 10);
	assert_int_equal(c->server.max_header, 4 << 10);
	assert_int_equal(c->server.client_buffer, 5 << 10);
	assert_int_equal(c->server.slow_client_timeout_ms, 6000);
	assert_int_equal(c->server.keepalive_interval_ms, 7000);
	assert_int_equal(c->server.model_wait_ms, 540000);
	assert_false(c->server.watch_config);
	assert_int_equal(c->server.drain_timeout_ms, 8000);
	assert_string_equal(c->server.unix_socket, "/s");
	assert_int_equal(c->server.unix_socket_mode, 0620);
	assert_string_equal(c->server.tls_cert, "/c");
	assert_string_equal(c->server.tls_key, "/k");
	assert_string_equal(c->server.keys_file, "/keys");
	assert_int_equal(c->server.prep_threads, 12);
	assert_true(c->server.allow_anonymous);
	assert_int_equal(c->limits.max_concurrent, 18);
	assert_int_equal(c->limits.requests_per_minute, 19);
	assert_int_equal(c->limits.tokens_per_minute, 20);
	assert_int_equal(c->responses.max_stored, 21);
	assert_int_equal(c->responses.max_stored_bytes, 22 << 10);
	assert_int_equal(c->responses.max_stored_per_lane, 23);
	assert_false(c->responses.persist);
	assert_string_equal(c->responses.path, "/r");
	assert_int_equal(c->scheduler.max_batch_tokens, 9);
	assert_int_equal(c->scheduler.prefill_chunk, 10);
	assert_int_equal(c->scheduler.max_seqs, 11);
	assert_int_equal(c->scheduler.prompt_share, 25);
	assert_int_equal(c->scheduler.max_queue, 12);
	assert_int_equal(c->scheduler.retry_after_s, 13);
	assert_int_equal(c->scheduler.max_output_tokens, 14);
	assert_string_equal(c->scheduler.speculation, "off");
	assert_int_equal(c->ledger.queue, 15);
	assert_int_equal(c->ledger.retention_days, 16);
	assert_false(c->ledger.enabled);
	assert_string_equal(c->ledger.path, "/p");
	assert_string_equal(c->log.level, "warn");
	assert_string_equal(c->log.file, "/f");
	assert_int_equal(c->kvcache.arena, 1 << 30);
	assert_int_equal(c->kvcache.slab, 32 << 10);
	assert_string_equal(c->kvcache.service, "s");
	assert_string_equal(c->kvcache.dtype, "f32");
	assert_int_equal(c->memory.budget, (uint64_t)3 << 30);
	assert_string_equal(c->runtime.driver, "cpu");
	assert_string_equal(c->runtime.isa, "generic");
	assert_int_equal(c->runtime.threads, 5);
	assert_string_equal(c->runtime.activations, "f32");
	assert_string_equal(c->runtime.experts, "mapped");
	assert_string_equal(c->runtime.repack, "never");
	assert_string_equal(c->runtime.tensor_units, "never");
	assert_true(c->runtime.strict);
	assert_int_equal(c->runtime.keep_wired_ms, 90000);
	assert_int_equal(c->n_models, 2);
	assert_string_equal(c->models[0].name, "a");
	assert_string_equal(c->models[0].path, "/etc/x/a.gguf");
	assert_int_equal(c->models[0].context, 17);
	assert_string_equal(c->models[0].kv_dtype, "f16/q8_0");
	assert_string_equal(c->models[1].kv_dtype, "auto");
	assert_string_equal(c->models[0].draft, "/etc/x/s.gguf");
	assert_string_equal(c->models[1].draft, "");
	assert_string_equal(c->models[1].name, "b");
	assert_string_equal(c->models[1].path, "/home/somebody/b");
	assert_int_equal(c->models[1].context, 0);
	assert_string_equal(c->models[0].load, "first_use");
	assert_int_equal(c->models[0].keep_alive_ms, 600000);
	assert_true(c->models[0].pin);
	assert_string_equal(c->models[1].load, "start");
	assert_int_equal(c->models[1].keep_alive_ms, 0);
	assert_false(c->models[1].pin);
	assert_string_equal(c->default_model, "b");
	ig_config_destroy(c);
	ig_strbuf_finish(&b);
}

/* A configuration of this one option replaces *c. */
static int set(struct ig_config **c, const char *key, const char *value, struct ig_error *err)
{
	const char *dot = strchr(key, '.');
	char text[512];

	ig_config_destroy(*c);
	*c = NULL;
	snprintf(text, sizeof text, "%.*s: {%s: \"%s\"}\n", (int)(dot - key), key, dot + 1, value);
	return ig_config_parse(text, strlen(text), "/etc/x/ingot.yaml", c, err);
}

/* Bounds: both are valid, one beyond them is not. */
static void test_bounds(void **state)
{
	struct ig_config *c = config_case_parse("");
	char value[64];

	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		const char *unit = o->type == CONFIG_TIME ? "ms" : "";
		struct ig_error err;

		if (o->type != CONFIG_INT && o->type != CONFIG_BYTES && o->type != CONFIG_TIME)
			continue;
		assert_true(o->max > o->min);
		assert_true(o->size == 8 ||
			    o->max / (o->ms_per_unit ? o->ms_per_unit : 1) <= UINT32_MAX);
		snprintf(value, sizeof value, "%llu%s", (unsigned long long)o->min, unit);
		assert_int_equal(set(&c, o->key, value, NULL), 0);
		snprintf(value, sizeof value, "%llu%s", (unsigned long long)o->max, unit);
		assert_int_equal(set(&c, o->key, value, NULL), 0);
		snprintf(value, sizeof value, "%llu%s", (unsigned long long)o->max + 1, unit);
		assert_int_equal(set(&c, o->key, value, &err), -EINVAL);
		if (o->min == 0)
			continue;
		snprintf(value, sizeof value, "%llu%s", (unsigned long long)o->min - 1, unit);
		assert_int_equal(set(&c, o->key, value, &err), -EINVAL);
	}
	ig_config_destroy(c);
}

/* Permissions are octal, with or without a leading zero. */
static void test_modes(void **state)
{
	static const char *const bad[] = { "",	   "0",	    "0800", "9",    "1000", "00600",
					   "-600", "0o600", "rw",   "0177", "600 " };
	struct ig_config *c = config_case_parse("");
	struct ig_error err;

	assert_int_equal(c->server.unix_socket_mode, 0600);
	assert_int_equal(set(&c, "server.unix_socket_mode", "660", NULL), 0);
	assert_int_equal(c->server.unix_socket_mode, 0660);
	assert_int_equal(set(&c, "server.unix_socket_mode", "0777", NULL), 0);
	assert_int_equal(c->server.unix_socket_mode, 0777);
	for (size_t i = 0; i < N_OF(bad); i++)
		if (set(&c, "server.unix_socket_mode", bad[i], &err) != -EINVAL)
			fail_msg("%s is accepted", bad[i]);
	assert_non_null(
		strstr(err.text, "expected permissions in octal from 0200 to 0777, got \"600 \""));
	ig_config_destroy(c);
}

/* Options that need each other, and an address to listen on. */
static void test_server_as_a_whole(void **state)
{
	struct ig_config *c = NULL;
	struct ig_error err;
	static const struct {
		const char *text, *error;
	} bad[] = {
		{ "server:\n  tls_cert: c\n",
		  "/etc/x/ingot.yaml:2:13: server.tls_cert: server.tls_key must be set too" },
		{ "server:\n  tls_key: k\n",
		  "/etc/x/ingot.yaml:2:12: server.tls_key: server.tls_cert must be set too" },
		{ "server:\n  host: \"\"\n",
		  "/etc/x/ingot.yaml:2:9: server.host: \"\" means no TCP, and server.unix_socket is not "
		  "set: there is nothing to listen on" },
	};

	for (size_t i = 0; i < N_OF(bad); i++) {
		memset(&err, 0, sizeof err);
		assert_int_equal(ig_config_parse(bad[i].text, strlen(bad[i].text),
						 "/etc/x/ingot.yaml", &c, &err),
				 -EINVAL);
		assert_string_equal(err.text, bad[i].error);
	}
	c = config_case_parse("server: {host: \"\", unix_socket: s}\n");
	assert_string_equal(c->server.host, "");
	ig_config_destroy(c);
}

/* Stored responses are beside the ledger, so that two daemons need two names only once. */
static void test_default_responses_file(void **state)
{
	struct ig_config *c = config_case_parse("ledger: {path: /elsewhere/l.db}\n");

	assert_true(c->responses.persist);
	assert_string_equal(c->responses.path, "/elsewhere/l-responses.db");
	ig_config_destroy(c);
	static const char *const pairs[][2] = {
		{ "/a.b/ledger", "/a.b/ledger-responses" },
		{ "/a/.hidden", "/a/.hidden-responses" },
		{ "/a/x.y.sqlite", "/a/x.y-responses.sqlite" },
	};
	for (size_t i = 0; i < N_OF(pairs); i++) {
		char text[100];
		snprintf(text, sizeof text, "ledger: {path: %s}\n", pairs[i][0]);
		c = config_case_parse(text);
		assert_string_equal(c->responses.path, pairs[i][1]);
		ig_config_destroy(c);
	}
	c = config_case_parse(
		"ledger: {path: /elsewhere/l.db, enabled: false}\nresponses: {path: /r.db}\n");
	assert_string_equal(c->responses.path, "/r.db");
	ig_config_destroy(c);
}

/* The file of keys is in the ledger's default folder, even if ledger.path names another. */
static void test_default_keys_file(void **state)
{
	setenv("XDG_STATE_HOME", "/state", 1);
	struct ig_config *c = config_case_parse("ledger: {path: /elsewhere/l.db}\n");
#ifdef __APPLE__
	assert_string_equal(c->server.keys_file, IG_LOCALSTATEDIR "/ingot/keys");
#else
	assert_string_equal(c->server.keys_file, "/state/ingot/keys");
#endif
	ig_config_destroy(c);
	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/home/somebody", 1);
	c = config_case_parse("");
#ifndef __APPLE__
	assert_string_equal(c->server.keys_file, "/home/somebody/.local/state/ingot/keys");
#endif
	ig_config_destroy(c);
}

static void test_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{ "1024", 1024 }, { "2KiB", 2048 },   { "3MiB", 3 << 20 },   { "1GiB", 1 << 30 },
		{ "2kB", 2000 },  { "3MB", 3000000 }, { "1GB", 1000000000 }, { "5  KiB", 5120 },
	};
	static const struct {
		const char *text;
		uint32_t ms;
	} times[] = {
		{ "100ms", 100 }, { "1s", 1000 },    { "1 s", 1000 },
		{ "2m", 120000 }, { "1h", 3600000 },
	};
	struct ig_config *c = config_case_parse("");

	for (size_t i = 0; i < N_OF(sizes); i++) {
		assert_int_equal(set(&c, "server.max_body", sizes[i].text, NULL), 0);
		assert_int_equal(c->server.max_body, sizes[i].bytes);
	}
	for (size_t i = 0; i < N_OF(times); i++) {
		assert_int_equal(set(&c, "server.slow_client_timeout", times[i].text, NULL), 0);
		assert_int_equal(c->server.slow_client_timeout_ms, times[i].ms);
	}
	assert_int_equal(set(&c, "server.drain_timeout", "0", NULL), 0);
	assert_int_equal(c->server.drain_timeout_ms, 0);
	ig_config_destroy(c);
}

/* ---- lists --------------------------------------------------------------------------------- */

static void test_aliases(void **state)
{
	static const char models[] = "models: [{name: a, path: x}, {name: b, path: y}]\n";
	struct config_seen seen = { .want = "aliases" };
	char text[400];

	struct ig_config *none = config_case_parse(models);
	assert_int_equal(none->n_aliases, 0);
	snprintf(text, sizeof text, "%saliases:\n  claude-haiku-*: b\n  \"*\": a\n", models);
	struct ig_config *c = config_case_parse(text);
	assert_int_equal(c->n_aliases, 2);
	assert_string_equal(c->aliases[0].pattern, "claude-haiku-*");
	assert_string_equal(c->aliases[0].model, "b");
	assert_string_equal(c->aliases[1].pattern, "*");
	assert_string_equal(c->aliases[1].model, "a");
	ig_config_diff(none, c, config_case_note, &seen);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.was, "{}");
	assert_string_equal(seen.is, "{claude-haiku-*: b, *: a}");
	assert_true(seen.reloadable);
	ig_config_diff(c, c, config_case_note, &seen);
	assert_int_equal(seen.n, 1);
	ig_config_destroy(c);
	ig_config_destroy(none);
	ig_config_destroy(config_case_parse("aliases:\n"));
}

static void test_rules(void **state)
{
	struct config_seen seen = { 0 };
	struct ig_config *none = config_case_parse("kvcache: {normalize: }");
	struct ig_config *c = config_case_parse(
		"kvcache:\n  normalize:\n"
		"    - {name: dates, enabled: false}\n"
		"    - {name: mine, pattern: 'a(b)', replacement: $1, models: [m-*], "
		"except_models: [m-2], clients: [k]}\n");
	const struct ig_prompt_rules *rules = c->kvcache.normalize;
	size_t n = ig_prompt_rules_n(none->kvcache.normalize);

	assert_int_equal(ig_prompt_rules_n(rules), n + 1);
	for (size_t i = 0; i < n; i++) {
		const struct ig_prompt_rule *r = ig_prompt_rules_get(rules, i);
		assert_string_equal(r->name, ig_prompt_rule_name(i));
		assert_true(ig_prompt_rule_is_builtin(r->name));
		assert_int_equal(r->enabled, strcmp(r->name, "dates") != 0);
		assert_true(ig_prompt_rules_get(none->kvcache.normalize, i)->enabled);
	}
	assert_null(ig_prompt_rule_name(n));
	const struct ig_prompt_rule *mine = ig_prompt_rules_get(rules, n);
	assert_string_equal(mine->name, "mine");
	assert_string_equal(mine->pattern, "a(b)");
	assert_string_equal(mine->replacement, "$1");
	assert_string_equal(mine->models[0], "m-*");
	assert_string_equal(mine->except_models[0], "m-2");
	assert_string_equal(mine->clients[0], "k");
	ig_config_diff(none, c, config_case_note, &seen);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.key, "kvcache.normalize");
	assert_true(seen.reloadable);
	assert_string_equal(seen.was, "[{name: claude-code-header}, {name: dates}]");
	assert_string_equal(seen.is, "[{name: claude-code-header}, {name: dates, enabled: false}, "
				     "{name: mine, pattern: a(b), replacement: $1, models: "
				     "[\"m-*\"], except_models: [\"m-2\"], clients: [\"k\"]}]");
	ig_config_diff(c, c, config_case_note, &seen);
	assert_int_equal(seen.n, 1);
	ig_config_destroy(c);
	ig_config_destroy(none);
}

/* ---- diff ------------------------------------------------------------------------------- */

static void test_diff_of_models(void **state)
{
	static const char *const texts[] = {
		"models: [{name: a, path: /y}]",
		"models: [{name: b, path: /x}]",
		("models: [{name: a, path: /x, context: 5, kv_dtype: q8_0, draft: /s, load: first_use, "
		 "keep_alive: 5m, pin: true}]"),
		"models: [{name: a, path: /x}, {name: b, path: /x}]",
		"",
	};
	struct ig_config *a = config_case_parse("models: [{name: a, path: /x}]");

	for (size_t i = 0; i < N_OF(texts); i++) {
		struct config_seen seen = { 0 };
		struct ig_config *b = config_case_parse(texts[i]);
		ig_config_diff(a, b, config_case_note, &seen);
		assert_int_equal(seen.n, 1);
		assert_string_equal(seen.key, "models");
		assert_string_equal(seen.was,
				    "[{name: a, path: /x, context: 0, kv_dtype: auto, draft: \"\", "
				    "load: start, keep_alive: 0s, pin: false}]");
		if (i == 2)
			assert_string_equal(
				seen.is, "[{name: a, path: /x, context: 5, kv_dtype: q8_0, draft: "
					 "/s, load: first_use, keep_alive: 5m, pin: true}]");
		assert_true(seen.reloadable);
		ig_config_destroy(b);
	}
	struct config_seen none = { 0 };
	struct ig_config *same = config_case_parse("models:\n  - path: /x\n    name: a\n");
	ig_config_diff(a, same, config_case_note, &none);
	assert_int_equal(none.n, 0);
	ig_config_destroy(same);
	ig_config_destroy(a);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--module-path"))
		return print_module_path();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty_files_are_valid),
		cmocka_unit_test(test_ledger_path_default),
		cmocka_unit_test(test_default_responses_file),
		cmocka_unit_test(test_modules_of_a_build_tree),
		cmocka_unit_test(test_every_option),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_server_as_a_whole),
		cmocka_unit_test(test_default_keys_file),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_diff_of_models),
	};

	return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
