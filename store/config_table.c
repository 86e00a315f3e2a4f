/* config_table.c: the table of all options, and how their names are found. */
#include "store/config_private.h"

#include "store/keys.h"

#include <ctype.h>
#include <string.h>

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
	(const char *const[]) { __VA_ARGS__, NULL }

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

	{ "responses.max_stored", CONFIG_INT, FIELD(responses.max_stored), .max = 1000000,
	  .value = "4096", .unit = "responses", .reloadable = true,
	  .help = "Finished responses that are kept, to be continued by previous_response_id and asked "
		  "for; the least recently used go first. 0 keeps none." },
	{ "responses.max_stored_bytes", CONFIG_BYTES, FIELD(responses.max_stored_bytes),
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

const struct config_option *config_nearest_variable(const char *name)
{
	const char *nearest = NULL;
	unsigned best = 4;
	char known[64];

	for (size_t i = 0; i < config_n_options; i++)
		consider(config_options[i].key,
			 distance(name, config_env_name(&config_options[i], known)), 3, &best,
			 &nearest);
	return nearest ? config_find(nearest, strlen(nearest)) : NULL;
}
