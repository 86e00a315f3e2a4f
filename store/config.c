/*
 * config.c: the table of all options, and the life of a configuration: defaults,
 * file, environment, the checks over the whole, differences.
 * The YAML itself is read in config_parse.c, single values in config_value.c.
 */
#include "store/config_private.h"

#include "base/log.h"
#include "store/keys.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* ---- the table --------------------------------------------------------------------- */

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define SECOND 1000u
#define HOUR (3600u * SECOND)

#define FIELD(f) .offset = offsetof(struct ig_config, f), .size = sizeof(((struct ig_config *)0)->f)
#define MODEL_FIELD(f)                                                                             \
	.offset = offsetof(struct ig_config_model, f),                                             \
	.size = sizeof(((struct ig_config_model *)0)->f)
#define CHOICES(...)                                                                               \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

/* Options of one section stand together: the reference is written in this order. */
const struct config_option config_options[] = {
	{ "server.host", CONFIG_TEXT, FIELD(server.host), .max = 255, .value = "127.0.0.1",
	  .help = "Address to listen on; 0.0.0.0 or :: opens the server to the network, which needs API "
		  "keys; \"\" means unix_socket alone." },
	{ "server.port", CONFIG_INT, FIELD(server.port), .max = 65535, .value = "6468",
	  .help = "Port to listen on; 0 takes any free one." },
	{ "server.max_connections", CONFIG_INT, FIELD(server.max_connections), .min = 1,
	  .max = 65536, .value = "512", .unit = "connections",
	  .help = "Connections open at once; more are refused." },
	{ "server.max_body", CONFIG_BYTES, FIELD(server.max_body), .min = KIB, .max = GIB,
	  .value = "32MiB", .unit = "bytes",
	  .help = "The largest HTTP body or WebSocket message that is accepted." },
	{ "server.max_header", CONFIG_BYTES, FIELD(server.max_header), .min = KIB, .max = 64 * KIB,
	  .value = "16KiB", .unit = "bytes", .help = "All headers of one HTTP request together." },
	{ "server.client_buffer", CONFIG_BYTES, FIELD(server.client_buffer), .min = KIB,
	  .max = 64 * MIB, .value = "256KiB", .unit = "bytes",
	  .help = "Unsent output kept for one request; when it is full, that request pauses." },
	{ "server.slow_client_timeout", CONFIG_TIME, FIELD(server.slow_client_timeout_ms),
	  .min = 100, .max = HOUR, .ms_per_unit = 1, .value = "30s", .unit = "time",
	  .reloadable = true,
	  .help = "A paused request whose client reads nothing for so long is cancelled." },
	{ "server.keepalive_interval", CONFIG_TIME, FIELD(server.keepalive_interval_ms), .min = 100,
	  .max = HOUR, .ms_per_unit = 1, .value = "5s", .unit = "time", .reloadable = true,
	  .help = "A stream that has nothing to say for so long gets a keep-alive event." },
	{ "server.model_wait", CONFIG_TIME, FIELD(server.model_wait_ms), .max = HOUR,
	  .ms_per_unit = 1, .value = "2m", .unit = "time", .reloadable = true,
	  .help = "A request waits so long for its model to load before it is refused with 503; 0 "
		  "refuses at once." },
	{ "server.watch_config", CONFIG_BOOL, FIELD(server.watch_config), .value = "true",
	  .reloadable = true, .help = "Take over a changed configuration file without a SIGHUP." },
	{ "server.drain_timeout", CONFIG_TIME, FIELD(server.drain_timeout_ms), .max = HOUR,
	  .ms_per_unit = 1, .value = "20s", .unit = "time", .reloadable = true,
	  .help = "On SIGTERM, requests under way get so long to finish." },
	{ "server.allowed_hosts", CONFIG_HOSTS, FIELD(server.allowed_hosts), .min = 1, .max = 255,
	  .value = "", .help = "Names accepted in the Host header besides the loopback ones." },
	{ "server.allowed_origins", CONFIG_ORIGINS, FIELD(server.allowed_origins), .min = 1,
	  .max = 255, .value = "", .help = "Web pages that may call the server from a browser." },
	{ "server.unix_socket", CONFIG_PATH, FIELD(server.unix_socket), .max = 4096, .value = "",
	  .help = "A unix socket to listen on too; \"\" means none." },
	{ "server.unix_socket_mode", CONFIG_MODE, FIELD(server.unix_socket_mode), .min = 0200,
	  .max = 0777, .value = "0600",
	  .help = "Who may connect to the unix socket: its permissions." },
	{ "server.tls_cert", CONFIG_PATH, FIELD(server.tls_cert), .max = 4096, .value = "",
	  .help = "PEM file of the certificate, with its chain; with it and tls_key the port speaks "
		  "HTTPS only. SIGHUP reads both again." },
	{ "server.tls_key", CONFIG_PATH, FIELD(server.tls_key), .max = 4096, .value = "",
	  .help = "PEM file of the certificate's private key; nobody but its owner may read it." },
	{ "server.keys_file", CONFIG_PATH, FIELD(server.keys_file), .max = 4096, .value = "",
	  .help = "The API keys that `ingot keys` makes; once the file is there, requests need one. "
		  "\"\" means ingot/keys below $XDG_STATE_HOME or ~/.local/state, on macOS the "
		  "installed var. SIGHUP reads it again." },
	{ "server.allow_anonymous", CONFIG_BOOL, FIELD(server.allow_anonymous), .value = "false",
	  .help = "Serve requests that come without a key where keys are, or beyond loopback; as a "
		  "user, never as an administrator." },

	{ "limits.max_concurrent", CONFIG_INT, FIELD(limits.max_concurrent), .max = IG_LIMIT_MAX,
	  .value = "0", .unit = "requests", .reloadable = true,
	  .help = "Requests of one key that run or wait at once; more get 429. 0 means no limit. Those "
		  "without a key count together, and a key's own limits go first." },
	{ "limits.requests_per_minute", CONFIG_INT, FIELD(limits.requests_per_minute),
	  .max = IG_LIMIT_MAX, .value = "0", .unit = "requests", .reloadable = true,
	  .help = "Requests of one key in a minute; 0 means no limit." },
	{ "limits.tokens_per_minute", CONFIG_INT, FIELD(limits.tokens_per_minute),
	  .max = IG_LIMIT_MAX, .value = "0", .unit = "tokens", .reloadable = true,
	  .help = "Tokens of one key in a minute, of prompts and answers; 0 means no limit." },

	{ "responses.max_kept", CONFIG_INT, FIELD(responses.max_kept), .max = 1000000,
	  .value = "4096", .unit = "responses", .reloadable = true,
	  .help = "Finished responses that are kept, to be continued by previous_response_id and asked "
		  "for; the least recently used go first. 0 keeps none." },
	{ "responses.max_kept_bytes", CONFIG_BYTES, FIELD(responses.max_kept_bytes),
	  .max = GIB << 10, .value = "256MiB", .unit = "bytes", .reloadable = true,
	  .help = "Memory of all kept responses together." },

	{ "runtime.driver", CONFIG_CHOICE, FIELD(runtime.driver), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "cpu", "metal", "cuda"), .value = "auto",
	  .help = "What computes; auto takes a GPU where this build and machine have one." },
	{ "runtime.isa", CONFIG_CHOICE, FIELD(runtime.isa), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "generic", "avx2", "avx512", "avx512_bf16", "neon",
			     "neon_dotprod", "neon_i8mm"),
	  .value = "auto",
	  .help = "Instruction set of the cpu kernels; auto takes the best that there is." },
	{ "runtime.threads", CONFIG_INT, FIELD(runtime.threads), .max = 1024, .value = "0",
	  .unit = "threads",
	  .help = "Threads that compute; 0 means as many as there are processors that "
		  "the daemon may use." },
	{ "runtime.activations", CONFIG_CHOICE, FIELD(runtime.activations), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "f32"), .value = "auto",
	  .help = "Arithmetic of the activations; auto is fast, f32 is exact and slow." },
	{ "runtime.experts", CONFIG_CHOICE, FIELD(runtime.experts), .min = 1, .max = 32,
	  .choices = CHOICES("packed", "mapped"), .value = "packed",
	  .help = "Where the cpu has the weights of a mixture's experts: packed in memory, or read from "
		  "the mapped file as they are needed, slower, and outside the memory budget." },
	{ "runtime.run_ahead", CONFIG_CHOICE, FIELD(runtime.run_ahead), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "on", "off"), .value = "auto",
	  .help = "Start a step before the tokens of the one before it are looked at; auto does where "
		  "a GPU computes." },
	{ "runtime.strict", CONFIG_BOOL, FIELD(runtime.strict), .value = "false",
	  .help = "Treat a second wait for the device within one step as an error." },

	{ "memory.budget", CONFIG_BYTES, FIELD(memory.budget), .max = GIB << 20, .value = "0",
	  .unit = "bytes",
	  .help = "Weights, cache and scratch together; 0 means three quarters of the memory that the "
		  "machine, or the daemon's control group, has." },

	{ "kvcache.service", CONFIG_TEXT, FIELD(kvcache.service), .min = 1, .max = 64,
	  .value = "paged", .help = "The cache, by the name that a module gives it." },
	{ "kvcache.arena", CONFIG_BYTES, FIELD(kvcache.arena), .max = GIB << 20, .value = "0",
	  .unit = "bytes",
	  .help = "Memory reserved for keys and values; 0 means the rest of the budget, at most "
		  "4GiB." },
	{ "kvcache.slab", CONFIG_BYTES, FIELD(kvcache.slab), .min = 16 * KIB, .max = GIB,
	  .power_of_two = true, .value = "4MiB", .unit = "bytes",
	  .help = "The piece in which the arena is taken and given back; a power of two." },
	{ "kvcache.dtype", CONFIG_CHOICE, FIELD(kvcache.dtype), .min = 1, .max = 32,
	  .choices = CHOICES("f16", "f32"), .value = "f16",
	  .help = "Element type of keys and values." },
	{ "kvcache.prefix_cache", CONFIG_BOOL, FIELD(kvcache.prefix_cache), .value = "true",
	  .help = "Keep what is computed for the next prompt that begins the same way, as long as "
		  "nothing else wants the room." },
	{ "kvcache.share", CONFIG_CHOICE, FIELD(kvcache.share), .min = 1, .max = 32,
	  .choices = CHOICES("key", "all"), .value = "key",
	  .help = "Whose prompts share what is computed: those of one API key, or all. cached_tokens "
		  "and the time to the first token tell what others have asked, where all share." },

	{ "scheduler.max_batch_tokens", CONFIG_INT, FIELD(scheduler.max_batch_tokens), .min = 1,
	  .max = 65536, .value = "512", .unit = "tokens",
	  .help = "Tokens that one step computes, of all sequences together." },
	{ "scheduler.prefill_chunk", CONFIG_INT, FIELD(scheduler.prefill_chunk), .min = 1,
	  .max = 65536, .value = "512", .unit = "tokens", .reloadable = true,
	  .help = "Tokens of one prompt that a step reads at most." },
	{ "scheduler.max_seqs", CONFIG_INT, FIELD(scheduler.max_seqs), .min = 1, .max = 4096,
	  .value = "64", .unit = "sequences",
	  .help = "Sequences that run at once, max_batch_tokens of them at most; others wait." },
	{ "scheduler.max_queue", CONFIG_INT, FIELD(scheduler.max_queue), .min = 1, .max = 100000,
	  .value = "256", .unit = "requests", .reloadable = true,
	  .help = "Requests that wait; more are refused with 503." },
	{ "scheduler.retry_after", CONFIG_TIME, FIELD(scheduler.retry_after_s), .min = SECOND,
	  .max = HOUR, .ms_per_unit = SECOND, .value = "2s", .unit = "time", .reloadable = true,
	  .help = "What a refused client is told in Retry-After; whole seconds." },
	{ "scheduler.max_output_tokens", CONFIG_INT, FIELD(scheduler.max_output_tokens),
	  .max = 1u << 24, .value = "0", .unit = "tokens", .reloadable = true,
	  .help = "Length of an answer whose request names none; 0 means up to the context." },

	{ "modules.path", CONFIG_PATHS, FIELD(modules.path), .min = 1, .max = 4096, .value = "",
	  .help = "Folders from which modules (*.so) are loaded; [] means those of the build tree that "
		  "the program lies in, or else the installed one." },

	{ "ledger.enabled", CONFIG_BOOL, FIELD(ledger.enabled), .value = "true",
	  .help = "Keep one row for each request (never its text) in SQLite." },
	{ "ledger.path", CONFIG_PATH, FIELD(ledger.path), .max = 4096, .value = "",
	  .help = "The database; \"\" means ingot/ledger.db below $XDG_STATE_HOME or "
		  "~/.local/state, on macOS the installed var." },
	{ "ledger.queue", CONFIG_INT, FIELD(ledger.queue), .min = 1, .max = 65536, .value = "4096",
	  .unit = "rows",
	  .help = "Rows that wait to be written; when it is full, rows are dropped and counted." },
	{ "ledger.retention_days", CONFIG_INT, FIELD(ledger.retention_days), .max = 36500,
	  .value = "90", .unit = "days", .reloadable = true,
	  .help = "Rows older than this are deleted; 0 keeps them for ever." },

	{ "log.level", CONFIG_CHOICE, FIELD(log.level), .min = 1, .max = 32,
	  .choices = CHOICES("error", "warn", "info", "debug"), .value = "info", .reloadable = true,
	  .help = "How much is logged." },
	{ "log.file", CONFIG_PATH, FIELD(log.file), .max = 4096, .value = "", .reloadable = true,
	  .help = "A file to append the log to; \"\" means standard error. SIGHUP reopens it." },

	{ "default_model", CONFIG_NAME, FIELD(default_model), .max = 128, .value = "",
	  .reloadable = true,
	  .help = "The model of a request that names none; \"\" means the first of models." },
};
const size_t config_n_options = sizeof config_options / sizeof config_options[0];
_Static_assert(sizeof config_options / sizeof config_options[0] <= CONFIG_MAX_OPTIONS,
	       "struct config has a place for each option");

const struct config_option config_model_options[] = {
	{ "name", CONFIG_NAME, MODEL_FIELD(name), .min = 1, .max = 128, .value = NULL,
	  .help = "What clients ask for: 1 to 128 of A-Z a-z 0-9 . _ : / -, each name once." },
	{ "path", CONFIG_PATH, MODEL_FIELD(path), .min = 1, .max = 4096, .value = NULL,
	  .help = "The GGUF file, or a folder with safetensors." },
	{ "context", CONFIG_INT, MODEL_FIELD(context), .max = 1u << 24, .value = "0",
	  .unit = "tokens",
	  .help = "Tokens that one sequence may have; 0 means as many as the model was trained "
		  "for, which is also the most." },
	{ "load", CONFIG_CHOICE, MODEL_FIELD(load), .min = 1, .max = 32,
	  .choices = CHOICES("start", "first_use"), .value = "start",
	  .help = "When its weights are loaded: with the daemon, or for the first request." },
	{ "keep_alive", CONFIG_TIME, MODEL_FIELD(keep_alive_ms), .max = 7 * 24 * HOUR,
	  .ms_per_unit = 1, .value = "0", .unit = "time",
	  .help = "It is unloaded after so long without a request; 0 keeps it." },
	{ "pin", CONFIG_BOOL, MODEL_FIELD(pin), .value = "false",
	  .help = "Never unload it to make room for another model." },
};
const size_t config_n_model_options = sizeof config_model_options / sizeof config_model_options[0];
_Static_assert(sizeof config_model_options / sizeof config_model_options[0] <=
		       CONFIG_MAX_MODEL_OPTIONS,
	       "the parser has a line for each option of a model");

/* Variables in our part of the environment that are not options. */
static const char *const other_variables[] = { "INGOT_CONFIG", "INGOT_URL",
					       "INGOT_MODELS", "INGOT_MODELS_DIR",
					       "INGOT_PYTHON", "INGOT_API_KEY",
					       "INGOT_CACERT", NULL };

/* ---- names ---------------------------------------------------------------------------- */

const char *config_leaf(const struct config_option *o)
{
	const char *dot = strchr(o->key, '.');

	return dot ? dot + 1 : o->key;
}

const struct config_option *config_find(const char *key, size_t len)
{
	for (size_t i = 0; i < config_n_options; i++)
		if (strlen(config_options[i].key) == len &&
		    !memcmp(config_options[i].key, key, len))
			return &config_options[i];
	return NULL;
}

char *config_env_name(const struct config_option *o, char *buf)
{
	int n = snprintf(buf, 64, "INGOT_%s", o->key);

	for (int i = 0; i < n && i < 63; i++)
		buf[i] = buf[i] == '.' ? '_' : (char)toupper((unsigned char)buf[i]);
	return buf;
}

/* Insertions, deletions, replacements and swaps of neighbours between two short
 * words (the restricted Damerau-Levenshtein distance). */
static unsigned distance(const char *a, const char *b)
{
	enum { MAX = 64 };
	unsigned row[3][MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > MAX || m > MAX)
		return MAX;
	for (size_t j = 0; j <= m; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
		now[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);
			if (last[j] + 1 < best)
				best = last[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			now[j] = best;
		}
	}
	return row[n % 3][m];
}

static void consider(const char *candidate, unsigned d, unsigned limit, unsigned *best,
		     const char **out)
{
	if (d <= limit && d < *best) {
		*best = d;
		*out = candidate;
	}
}

const char *config_nearest(const char *section, const char *key)
{
	static const char *const sections[] = {
		"server", "runtime", "memory", "kvcache",   "scheduler", "modules",
		"ledger", "log",     "limits", "responses", "models",	 "default_model"
	};
	/* One slip in a short word, two in a usual one, three in a long one. */
	unsigned limit = 1 + (unsigned)(strlen(key) < 64 ? strlen(key) : 64) / 5, best = 100;
	const char *out = NULL;
	char full[128];

	snprintf(full, sizeof full, "%s%s%s", section, *section ? "." : "", key);
	if (!*section)
		for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
			consider(sections[i], distance(key, sections[i]), limit, &best, &out);
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		consider(o->key, distance(full, o->key), limit, &best, &out);
		/* The right name in the wrong section. */
		if (!strcmp(key, config_leaf(o)))
			consider(o->key, 1, limit, &best, &out);
	}
	return out;
}

/* ---- making one -------------------------------------------------------------------------- */

void ig_config_destroy(struct ig_config *pub)
{
	struct config *c = (struct config *)pub;

	if (!c)
		return;
	for (size_t i = 0; i < config_n_options; i++)
		config_clear(&config_options[i], &c->pub);
	for (size_t i = 0; i < c->pub.n_models; i++)
		for (size_t j = 0; j < config_n_model_options; j++)
			config_clear(&config_model_options[j], &c->pub.models[i]);
	config_clear_modules(c);
	free(c->pub.models);
	free(c->pub.file);
	free(c->label);
	free(c->dir);
	free(c);
}

/* The absolute folder of a file's path. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ig_strbuf b;
	char cwd[4096];

	ig_strbuf_init(&b);
	if (path[0] != '/') {
		if (!getcwd(cwd, sizeof cwd))
			return NULL;
		ig_strbuf_puts(&b, cwd);
		if (slash)
			ig_strbuf_puts(&b, "/");
	}
	if (slash)
		ig_strbuf_add(&b, path, slash == path ? 1 : (size_t)(slash - path));
	char *out = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return out;
}

/* All defaults; label names the file in messages and gives the folder. */
static int create(const char *label, struct config **out, struct ig_error *err)
{
	struct config *c = calloc(1, sizeof *c);
	size_t len = strlen(label);
	int rc;

	if (!c)
		return ig_fail(err, -ENOMEM, "out of memory");
	/* A long path must leave room for the message itself. */
	if (len > 200) {
		c->label = malloc(204);
		if (c->label)
			snprintf(c->label, 204, "...%s", label + len - 200);
	} else {
		c->label = strdup(label);
	}
	c->pub.file = strdup(label);
	c->dir = folder_of(label);
	if (!c->label || !c->pub.file || !c->dir) {
		ig_config_destroy(&c->pub);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		rc = config_store(c->dir, &c->pub, o, o->key, o->value, strlen(o->value), err);
		if (rc) {
			ig_config_destroy(&c->pub);
			return rc;
		}
	}
	*out = c;
	return 0;
}

/* ---- checks over the whole ------------------------------------------------------------------ */

static const struct ig_config_model *find_model(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->pub.n_models; i++)
		if (!strcmp(c->pub.models[i].name, name))
			return &c->pub.models[i];
	return NULL;
}

static int check_default_model(const struct config *c, const char *name, const char *who,
			       struct ig_error *err)
{
	struct ig_strbuf known;
	char got[80];

	if (!*name || c->pub.n_models == 0 || find_model(c, name))
		return 0;
	ig_strbuf_init(&known);
	for (size_t i = 0; i < c->pub.n_models && known.len < 200; i++)
		ig_strbuf_printf(&known, "%s%s", i ? ", " : "", c->pub.models[i].name);
	ig_fail(err, -EINVAL, "%s: there is no model %s; models has %s", who,
		config_quote(name, strlen(name), got), known.data ? known.data : "others");
	ig_strbuf_finish(&known);
	return -EINVAL;
}

/* How a message about option o begins. */
static void describe_place(const struct config *c, const struct config_option *o, char *buf,
			   size_t size)
{
	const struct config_place *p = &c->places[o - config_options];

	if (p->from == FROM_FILE)
		snprintf(buf, size, "%s:%u:%u: %s", c->label, p->line, p->column, o->key);
	else if (p->from == FROM_ENVIRONMENT)
		config_env_name(o, buf);
	else
		snprintf(buf, size, "%s", o->key);
}

/* A certificate goes with its key, and the daemon listens somewhere. */
static int check_server(const struct config *c, struct ig_error *err)
{
	bool cert = c->pub.server.tls_cert[0], key = c->pub.server.tls_key[0];
	const char *name = cert ? "server.tls_cert" : "server.tls_key";
	char who[320];

	if (cert != key) {
		describe_place(c, config_find(name, strlen(name)), who, sizeof who);
		return ig_fail(err, -EINVAL, "%s: server.%s must be set too", who,
			       cert ? "tls_key" : "tls_cert");
	}
	if (!c->pub.server.host[0] && !c->pub.server.unix_socket[0]) {
		describe_place(c, config_find("server.host", strlen("server.host")), who,
			       sizeof who);
		return ig_fail(err, -EINVAL,
			       "%s: \"\" means no TCP, and server.unix_socket is not set: "
			       "there is nothing to listen on",
			       who);
	}
	return 0;
}

static int check_whole(const struct config *c, struct ig_error *err)
{
	const struct config_option *o = config_find("default_model", strlen("default_model"));
	char who[320];

	describe_place(c, o, who, sizeof who);
	int rc = check_default_model(c, c->pub.default_model, who, err);
	return rc ? rc : check_server(c, err);
}

/* ---- environment ------------------------------------------------------------------------------ */

static void warn_unknown_variables(void)
{
	for (char **e = environ; e && *e; e++) {
		const char *eq = strchr(*e, '=');
		const char *nearest = NULL;
		char name[64], known[64], shown[80];
		unsigned best = 4;
		bool found = false;

		if (strncmp(*e, "INGOT_", 6) || !eq)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(eq - *e), *e);
		for (size_t i = 0; other_variables[i]; i++)
			found |= !strcmp(name, other_variables[i]);
		for (size_t i = 0; i < config_n_options && !found; i++) {
			unsigned d = distance(name, config_env_name(&config_options[i], known));
			found = d == 0;
			consider(config_options[i].key, d, 3, &best, &nearest);
		}
		if (found)
			continue;
		const struct config_option *o =
			nearest ? config_find(nearest, strlen(nearest)) : NULL;
		ig_log_warn("the environment has %s, which is no option and is ignored%s%s",
			    config_quote(*e, (size_t)(eq - *e), shown), o ? "; did you mean " : "",
			    o ? config_env_name(o, known) : "");
	}
}

static int apply_environment(struct config *c, struct ig_error *err)
{
	char name[64];

	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		const char *value = getenv(config_env_name(o, name));
		if (!value)
			continue;
		int rc = config_store(c->dir, &c->pub, o, name, value, strlen(value), err);
		if (rc)
			return rc;
		c->places[i] = (struct config_place){ .from = FROM_ENVIRONMENT };
	}
	warn_unknown_variables();
	return 0;
}

/* ---- public -------------------------------------------------------------------------------------- */

static int parse(const char *text, size_t len, const char *label, bool environment,
		 struct ig_config **out, struct ig_error *err)
{
	struct config *c = NULL;
	int rc;

	if (len > CONFIG_MAX_BYTES)
		return ig_fail(err, -EFBIG, "%s: larger than 1MiB, which no configuration is",
			       label);
	rc = create(label, &c, err);
	if (rc)
		return rc;
	rc = config_parse_yaml(c, text, len, err);
	if (!rc && environment)
		rc = apply_environment(c, err);
	if (!rc)
		rc = config_fill_in(c, err);
	if (!rc)
		rc = check_whole(c, err);
	if (rc) {
		ig_config_destroy(&c->pub);
		return rc;
	}
	*out = &c->pub;
	return 0;
}

int ig_config_parse(const char *text, size_t len, const char *label, struct ig_config **out,
		    struct ig_error *err)
{
	return parse(text, len, label, false, out, err);
}

/* The whole file, at most one byte more than is allowed; the caller's. */
static int read_file(const char *path, char **out, size_t *len, struct ig_error *err)
{
	size_t cap = CONFIG_MAX_BYTES + 1, n = 0;
	struct stat st;
	char *text = NULL;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = ig_fail(err, -errno, "%s: cannot be read: %s", path, strerror(errno));
		goto out;
	}
	if (S_ISDIR(st.st_mode)) {
		rc = ig_fail(err, -EISDIR, "%s: is a folder, not a file", path);
		goto out;
	}
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < cap)
		cap = (size_t)st.st_size + 1;
	text = malloc(cap);
	if (!text) {
		rc = ig_fail(err, -ENOMEM, "%s: out of memory", path);
		goto out;
	}
	while (n < cap) {
		ssize_t got = read(fd, text + n, cap - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			rc = ig_fail(err, -errno, "%s: cannot be read: %s", path, strerror(errno));
			goto out;
		}
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*out = text;
	*len = n;
	text = NULL;
out:
	free(text);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* The first file of the search order that exists, or -ENOENT. */
static int find_file(char **out, struct ig_error *err)
{
	const char *named = getenv("INGOT_CONFIG"), *xdg = getenv("XDG_CONFIG_HOME");
	const char *installed = IG_SYSCONFDIR "/ingot/ingot.yaml";
	struct ig_strbuf b;
	int rc = 0;

	if (named && *named) {
		*out = strdup(named);
		return *out ? 0 : ig_fail(err, -ENOMEM, "out of memory");
	}
	ig_strbuf_init(&b);
	if (xdg && xdg[0] == '/') {
		ig_strbuf_printf(&b, "%s/ingot/ingot.yaml", xdg);
	} else {
		char *home = config_home();
		if (home)
			ig_strbuf_printf(&b, "%s/.config/ingot/ingot.yaml", home);
		free(home);
	}
	/* One that exists but cannot be read is an error for read_file to name. */
	if (b.len && access(b.data, F_OK)) {
		if (access(installed, F_OK)) {
			rc = ig_fail(err, -ENOENT,
				     "no configuration: neither %s nor %s exists, and INGOT_CONFIG "
				     "is not set",
				     b.data, installed);
			goto out;
		}
		ig_strbuf_clear(&b);
	}
	if (!b.len)
		ig_strbuf_puts(&b, installed);
	*out = ig_strbuf_steal(&b);
	if (!*out)
		rc = ig_fail(err, -ENOMEM, "out of memory");
out:
	ig_strbuf_finish(&b);
	return rc;
}

int ig_config_load(const char *path, struct ig_config **out, struct ig_error *err)
{
	char *found = NULL, *text = NULL;
	size_t len = 0;
	int rc = 0;

	if (!path) {
		rc = find_file(&found, err);
		path = found;
	}
	if (!rc)
		rc = read_file(path, &text, &len, err);
	if (!rc)
		rc = parse(text, len, path, true, out, err);
	free(text);
	free(found);
	return rc;
}

int ig_config_set(struct ig_config *pub, const char *key, const char *value, struct ig_error *err)
{
	struct config *c = (struct config *)pub;
	const struct config_option *o = config_find(key, strlen(key));
	int rc;

	if (!o) {
		const char *dot = strchr(key, '.'), *nearest;
		char section[32] = "", shown[80];
		if (dot)
			snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
		nearest = config_nearest(section, dot ? dot + 1 : key);
		config_quote(key, strlen(key), shown);
		if (!strcmp(key, "models"))
			return ig_fail(err, -EINVAL, "models is set in the file only");
		if (nearest)
			return ig_fail(err, -EINVAL, "unknown option %s; did you mean \"%s\"?",
				       shown, nearest);
		return ig_fail(err, -EINVAL, "unknown option %s", shown);
	}
	if (!strcmp(key, "default_model")) {
		rc = check_default_model(c, value, key, err);
		if (rc)
			return rc;
	}
	rc = config_store(c->dir, pub, o, key, value, strlen(value), err);
	if (rc)
		return rc;
	c->places[o - config_options] = (struct config_place){ .from = FROM_SET };
	return config_fill_in(c, err);
}

/* ---- differences ------------------------------------------------------------------------------------ */

static bool models_equal(const struct ig_config *a, const struct ig_config *b)
{
	if (a->n_models != b->n_models)
		return false;
	for (size_t i = 0; i < a->n_models; i++)
		for (size_t j = 0; j < config_n_model_options; j++)
			if (!config_equal(&config_model_options[j], &a->models[i], &b->models[i]))
				return false;
	return true;
}

static void format_models(const struct ig_config *c, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "[");
	for (size_t i = 0; i < c->n_models; i++) {
		const struct ig_config_model *m = &c->models[i];
		for (size_t j = 0; j < config_n_model_options; j++) {
			ig_strbuf_printf(out, "%s%s: ",
					 j ? ", " :
					 i ? ", {" :
					     "{",
					 config_model_options[j].key);
			config_format(&config_model_options[j], m, out);
		}
		ig_strbuf_puts(out, "}");
	}
	ig_strbuf_puts(out, "]");
}

static const char *text_of(const struct ig_strbuf *b)
{
	return ig_strbuf_ok(b) && b->data ? b->data : "(out of memory)";
}

void ig_config_diff(const struct ig_config *old, const struct ig_config *new_,
		    void (*each)(void *ctx, const char *key, const char *was, const char *is,
				 bool reloadable),
		    void *ctx)
{
	struct ig_strbuf was, is;

	ig_strbuf_init(&was);
	ig_strbuf_init(&is);
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		if (config_equal(o, old, new_))
			continue;
		ig_strbuf_clear(&was);
		ig_strbuf_clear(&is);
		config_format(o, old, &was);
		config_format(o, new_, &is);
		each(ctx, o->key, text_of(&was), text_of(&is), o->reloadable);
	}
	config_diff_modules((const struct config *)old, (const struct config *)new_, each, ctx);
	if (!models_equal(old, new_)) {
		ig_strbuf_clear(&was);
		ig_strbuf_clear(&is);
		format_models(old, &was);
		format_models(new_, &is);
		each(ctx, "models", text_of(&was), text_of(&is), true);
	}
	ig_strbuf_finish(&was);
	ig_strbuf_finish(&is);
}
