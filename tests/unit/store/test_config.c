/*
 * test_config.c: the configuration: each option from YAML, environment and set; each
 * error with its place and text; files, search order, differences.
 */
#include "support.h"

#include "base/log.h"
#include "store/config_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static struct ig_config *parse(const char *text)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };

	if (ig_config_parse(text, strlen(text), "/etc/x/ingot.yaml", &c, &err))
		fail_msg("%s", err.text);
	return c;
}

static char *format(const struct config_option *o, const void *base)
{
	struct ig_strbuf b = { 0 };

	config_format(o, base, &b);
	char *s = ig_strbuf_steal(&b);
	assert_non_null(s);
	return s;
}

/* ---- defaults --------------------------------------------------------------------- */

static void test_devices(void **state)
{
	static const char text[] = "runtime: {devices: [3, 0, 12]}\n";
	static const char whole[] = "runtime: {devices: [0, all]}\n";
	uint32_t out[IG_CONFIG_DEVICES], all = 7;
	struct ig_config *c = parse(text);

	assert_int_equal(ig_config_devices(c, out, &all), 3);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 0);
	assert_int_equal(out[2], 12);
	assert_int_equal(all, 0);
	ig_config_destroy(c);
	c = parse(whole);
	assert_int_equal(ig_config_devices(c, out, &all), 0);
	assert_int_equal(all, 1);
	ig_config_destroy(c);
	c = parse("");
	assert_int_equal(ig_config_devices(c, out, &all), 0);
	assert_int_equal(all, 0);
	ig_config_destroy(c);
}

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
		struct ig_config *c = parse(texts[i]);
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
	struct ig_config *c = parse("");
#ifndef __APPLE__
	assert_string_equal(c->ledger.path, "/home/somebody/.local/state/ingot/ledger.db");
	ig_config_destroy(c);
	setenv("XDG_STATE_HOME", "/var/state", 1);
	c = parse("ledger: {path: \"\"}");
	assert_string_equal(c->ledger.path, "/var/state/ingot/ledger.db");
	unsetenv("XDG_STATE_HOME");
#endif
	ig_config_destroy(c);
	setenv("HOME", home, 1);
	free(home);
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

/* A value other than the default, as YAML and as config_format's result. */
static const struct {
	const char *key, *yaml, *formatted;
	const char *also; /* a line of its section that it needs */
} others[] = {
	{ "server.host", "0.0.0.0", "0.0.0.0" },
	{ "server.port", "0", "0" },
	{ "server.also_listen", "11434", "11434" },
	{ "server.max_connections", "7", "7" },
	{ "server.max_body", "1MiB", "1MiB" },
	{ "server.max_header", "8192", "8KiB" },
	{ "server.client_buffer", "1 MiB", "1MiB" },
	{ "server.slow_client_timeout", "1500ms", "1500ms" },
	{ "server.keepalive_interval", "250ms", "250ms" },
	{ "server.model_wait", "0", "0s" },
	{ "server.model_id_prefix", "claude-", "claude-" },
	{ "server.watch_config", "false", "false" },
	{ "server.drain_timeout", "2m", "2m" },
	{ "server.allowed_hosts", "[ingot.lan, other.lan]", "[\"ingot.lan\", \"other.lan\"]" },
	{ "server.allowed_origins", "[\"https://chat.example\"]", "[\"https://chat.example\"]" },
	{ "server.unix_socket", "ingot.sock", "/etc/x/ingot.sock" },
	{ "server.unix_socket_mode", "660", "0660" },
	{ "server.tls_cert", "c.pem", "/etc/x/c.pem", "tls_key: k.pem" },
	{ "server.tls_key", "k.pem", "/etc/x/k.pem", "tls_cert: c.pem" },
	{ "server.keys_file", "keys", "/etc/x/keys" },
	{ "server.keys_command", "bin/keys", "/etc/x/bin/keys" },
	{ "server.unknown_parameters", "refuse", "refuse" },
	{ "server.prep_threads", "16", "16" },
	{ "server.open_metrics", "true", "true" },
	{ "server.allow_anonymous", "true", "true" },
	{ "tools.fallback", "refuse", "refuse" },
	{ "limits.max_concurrent", "4", "4" },
	{ "limits.requests_per_minute", "60", "60" },
	{ "limits.tokens_per_minute", "100000", "100000" },
	{ "responses.max_stored", "10", "10" },
	{ "responses.max_stored_bytes", "1MiB", "1MiB" },
	{ "responses.max_stored_per_lane", "3", "3" },
	{ "responses.persist", "false", "false" },
	{ "responses.path", "r.db", "/etc/x/r.db" },
	{ "runtime.driver", "metal", "metal" },
	{ "runtime.devices", "[1, 0]", "[\"1\", \"0\"]" },
	{ "runtime.isa", "avx2", "avx2" },
	{ "runtime.threads", "3", "3" },
	{ "runtime.activations", "f32", "f32" },
	{ "runtime.experts", "mapped", "mapped" },
	{ "runtime.packed_cache", "packed", "/etc/x/packed" },
	{ "runtime.packed_cache_size", "40GiB", "40GiB" },
	{ "runtime.run_ahead", "on", "on" },
	{ "runtime.strict", "true", "true" },
	{ "runtime.keep_wired", "0", "0s" },
	{ "memory.budget", "2GB", "2GB" },
	{ "kvcache.service", "other", "other" },
	{ "kvcache.arena", "64MiB", "64MiB" },
	{ "kvcache.slab", "65536", "64KiB" },
	{ "kvcache.dtype", "q8_0/f16", "q8_0/f16" },
	{ "kvcache.prefix_cache", "false", "false" },
	{ "kvcache.share", "all", "all" },
	{ "kvcache.disk", "kv", "/etc/x/kv" },
	{ "kvcache.disk_size", "5GiB", "5GiB" },
	{ "scheduler.max_batch_tokens", "64", "64" },
	{ "scheduler.prefill_chunk", "7", "7" },
	{ "scheduler.prompt_share", "90", "90" },
	{ "scheduler.max_seqs", "1", "1" },
	{ "scheduler.max_queue", "8", "8" },
	{ "scheduler.retry_after", "1m", "1m" },
	{ "scheduler.max_output_tokens", "100", "100" },
	{ "scheduler.speculation", "off", "off" },
	{ "modules.path", "[a, /b]", "[\"/etc/x/a\", \"/b\"]" },
	{ "ledger.enabled", "false", "false" },
	{ "ledger.path", "x.db", "/etc/x/x.db" },
	{ "ledger.queue", "16", "16" },
	{ "ledger.retention_days", "0", "0" },
	{ "log.level", "debug", "debug" },
	{ "log.file", "./log/a.log", "/etc/x/log/a.log" },
	{ "models.folder", "m", "/etc/x/m" },
	{ "default_model", "some/model:v1.2-x_y", "some/model:v1.2-x_y" },
};

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

struct seen {
	const char *want; /* NULL: the last is noted */
	size_t n;
	char key[64], was[300], is[300];
	bool reloadable;
};

static void note(void *ctx, const char *key, const char *was, const char *is, bool reloads)
{
	struct seen *s = ctx;

	s->n++;
	if (s->want && strcmp(s->want, key))
		return;
	snprintf(s->key, sizeof s->key, "%s", key);
	snprintf(s->was, sizeof s->was, "%s", was);
	snprintf(s->is, sizeof s->is, "%s", is);
	s->reloadable = reloads;
}

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
	struct ig_config *base = parse("");
	char text[256];

	/* The list above has each option once, in the table's order. */
	assert_int_equal(N_OF(others), config_n_options);
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		struct seen seen = { .want = o->key };
		bool expect_reload = false;
		char *was = format(o, base);

		assert_string_equal(o->key, others[i].key);
		yaml_line(text, sizeof text, o->key, others[i].yaml);
		if (others[i].also)
			snprintf(text + strlen(text), sizeof text - strlen(text), "  %s\n",
				 others[i].also);
		struct ig_config *c = parse(text);
		char *is = format(o, c);
		assert_string_equal(is, others[i].formatted);
		ig_config_diff(base, c, note, &seen);
		/* that option and no other, but for the two defaults beside it */
		assert_int_equal(seen.n,
				 1 + (others[i].also != NULL) + 2 * !strcmp(o->key, "ledger.path"));
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
		"activations: f32, experts: mapped, strict: true, keep_wired: 90s}\n"
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
	struct ig_config *c = parse(b.data);
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
	struct ig_config *c = parse("");
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
	struct ig_config *c = parse("");
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
	c = parse("server: {host: \"\", unix_socket: s}\n");
	assert_string_equal(c->server.host, "");
	ig_config_destroy(c);
}

/* Stored responses are beside the ledger, so that two daemons need two names only once. */
static void test_default_responses_file(void **state)
{
	struct ig_config *c = parse("ledger: {path: /elsewhere/l.db}\n");

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
		c = parse(text);
		assert_string_equal(c->responses.path, pairs[i][1]);
		ig_config_destroy(c);
	}
	c = parse("ledger: {path: /elsewhere/l.db, enabled: false}\nresponses: {path: /r.db}\n");
	assert_string_equal(c->responses.path, "/r.db");
	ig_config_destroy(c);
}

/* The file of keys is in the ledger's default folder, even if ledger.path names another. */
static void test_default_keys_file(void **state)
{
	setenv("XDG_STATE_HOME", "/state", 1);
	struct ig_config *c = parse("ledger: {path: /elsewhere/l.db}\n");
#ifdef __APPLE__
	assert_string_equal(c->server.keys_file, IG_LOCALSTATEDIR "/ingot/keys");
#else
	assert_string_equal(c->server.keys_file, "/state/ingot/keys");
#endif
	ig_config_destroy(c);
	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/home/somebody", 1);
	c = parse("");
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
	struct ig_config *c = parse("");

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

/* ---- errors -------------------------------------------------------------------------------- */

#define PORT "expected a whole number from 0 to 65535, got "
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

static void test_aliases(void **state)
{
	static const char models[] = "models: [{name: a, path: x}, {name: b, path: y}]\n";
	struct seen seen = { .want = "aliases" };
	char text[400];

	struct ig_config *none = parse(models);
	assert_int_equal(none->n_aliases, 0);
	snprintf(text, sizeof text, "%saliases:\n  claude-haiku-*: b\n  \"*\": a\n", models);
	struct ig_config *c = parse(text);
	assert_int_equal(c->n_aliases, 2);
	assert_string_equal(c->aliases[0].pattern, "claude-haiku-*");
	assert_string_equal(c->aliases[0].model, "b");
	assert_string_equal(c->aliases[1].pattern, "*");
	assert_string_equal(c->aliases[1].model, "a");
	ig_config_diff(none, c, note, &seen);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.was, "{}");
	assert_string_equal(seen.is, "{claude-haiku-*: b, *: a}");
	assert_true(seen.reloadable);
	ig_config_diff(c, c, note, &seen);
	assert_int_equal(seen.n, 1);
	ig_config_destroy(c);
	ig_config_destroy(none);
	ig_config_destroy(parse("aliases:\n"));
}

static void test_rules(void **state)
{
	struct seen seen = { 0 };
	struct ig_config *none = parse("kvcache: {normalize: }");
	struct ig_config *c =
		parse("kvcache:\n  normalize:\n"
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
	ig_config_diff(none, c, note, &seen);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.key, "kvcache.normalize");
	assert_true(seen.reloadable);
	assert_string_equal(seen.was, "[{name: claude-code-header}, {name: dates}]");
	assert_string_equal(seen.is, "[{name: claude-code-header}, {name: dates, enabled: false}, "
				     "{name: mine, pattern: a(b), replacement: $1, models: "
				     "[\"m-*\"], except_models: [\"m-2\"], clients: [\"k\"]}]");
	ig_config_diff(c, c, note, &seen);
	assert_int_equal(seen.n, 1);
	ig_config_destroy(c);
	ig_config_destroy(none);
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

/* ---- files and the environment --------------------------------------------------------------- */

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
	for (size_t i = 0; i < N_OF(others); i++) {
		const struct config_option *o = &config_options[i];
		const char *value = others[i].yaml;
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
	for (size_t i = 0; i < N_OF(others); i++) {
		const struct config_option *o = &config_options[i];
		if (config_is_list(o) || !strcmp(o->key, "default_model"))
			continue;
		char *is = format(o, c);
		if (o->type == CONFIG_PATH)
			assert_non_null(strstr(is, test_dir));
		else
			assert_string_equal(is, others[i].formatted);
		free(is);
	}
	assert_string_equal(c->server.allowed_hosts[0], "one");
	assert_string_equal(c->server.allowed_hosts[1], "two");
	assert_null(c->server.allowed_hosts[2]);
	assert_string_equal(c->modules.path[0], "/b");
	assert_string_equal(c->modules.path[1], "/c");
	assert_string_equal(c->runtime.devices[1], "2");
	ig_config_destroy(c);
	for (size_t i = 0; i < N_OF(others); i++)
		unsetenv(config_env_name(&config_options[i], name));

	/* parse() does not read the environment. */
	setenv("INGOT_SERVER_PORT", "99", 1);
	c = parse("");
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
	struct ig_config *a = parse("models: [{name: a, path: /x}]");

	for (size_t i = 0; i < N_OF(texts); i++) {
		struct seen seen = { 0 };
		struct ig_config *b = parse(texts[i]);
		ig_config_diff(a, b, note, &seen);
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
	struct seen none = { 0 };
	struct ig_config *same = parse("models:\n  - path: /x\n    name: a\n");
	ig_config_diff(a, same, note, &none);
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
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_list_caps),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_search_order),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_unknown_variables_are_logged),
		cmocka_unit_test(test_diff_of_models),
	};

	return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
