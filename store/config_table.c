/* config_table.c: the table of all options, and the search for their names. */
#include "store/config_private.h"

#include "base/nearest.h"
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
#define RULE_FIELD(f)                                                                              \
	.offset = offsetof(struct ig_prompt_rule, f),                                              \
	.size = sizeof(((struct ig_prompt_rule *)0)->f)
#define ADAPTER_FIELD(f)                                                                           \
	.offset = offsetof(struct ig_config_adapter, f),                                           \
	.size = sizeof(((struct ig_config_adapter *)0)->f)
#define CHOICES(...)                                                                               \
	(const char *const[]) { __VA_ARGS__, NULL }

/* Options of one section stand together: the reference has this order. */
const struct config_option config_options[] = {
	{ "server.host", CONFIG_TEXT, FIELD(server.host), .max = 255, .value = "127.0.0.1",
	  .help = "Address to listen on; 0.0.0.0 or :: opens the server to the network, which needs API "
		  "keys; \"\" means unix_socket only." },
	{ "server.port", CONFIG_INT, FIELD(server.port), .max = 65535, .value = "6468",
	  .help = "Port to listen on; 0 takes any free one." },
	{ "server.also_listen", CONFIG_INT, FIELD(server.also_listen), .max = 65535, .value = "0",
	  .help = "Second port of the same host with the same API, and with HTTPS where port has it; "
		  "11434 for programs with Ollama's port built in. 0 means none." },
	{ "server.max_connections", CONFIG_INT, FIELD(server.max_connections), .min = 1,
	  .max = 65536, .value = "512", .unit = "connections",
	  .help = "Most connections open at once; further ones are refused." },
	{ "server.max_body", CONFIG_BYTES, FIELD(server.max_body), .min = KIB, .max = GIB,
	  .value = "32MiB", .unit = "bytes", .help = "Largest HTTP body or WebSocket message." },
	{ "server.max_header", CONFIG_BYTES, FIELD(server.max_header), .min = KIB, .max = 64 * KIB,
	  .value = "16KiB", .unit = "bytes",
	  .help = "Largest head of an HTTP request: its first line and all headers." },
	{ "server.client_buffer", CONFIG_BYTES, FIELD(server.client_buffer), .min = KIB,
	  .max = 64 * MIB, .value = "256KiB", .unit = "bytes",
	  .help = "Buffer for unsent output of one request; when it is full, the request pauses." },
	{ "server.slow_client_timeout", CONFIG_TIME, FIELD(server.slow_client_timeout_ms),
	  .min = 100, .max = HOUR, .ms_per_unit = 1, .value = "30s", .unit = "time",
	  .reloadable = true,
	  .help = "Time after which a paused request is cancelled if its client reads nothing." },
	{ "server.keepalive_interval", CONFIG_TIME, FIELD(server.keepalive_interval_ms), .min = 100,
	  .max = HOUR, .ms_per_unit = 1, .value = "5s", .unit = "time", .reloadable = true,
	  .help = "Time without an event after which a stream gets a keep-alive event." },
	{ "server.model_wait", CONFIG_TIME, FIELD(server.model_wait_ms), .max = HOUR,
	  .ms_per_unit = 1, .value = "2m", .unit = "time", .reloadable = true,
	  .help = "How long a request waits for its model to load before it is refused with 503; 0 "
		  "refuses at once." },
	{ "server.model_id_prefix", CONFIG_NAME, FIELD(server.model_id_prefix), .max = 64,
	  .value = "", .unit = "text that begins names of models", .reloadable = true,
	  .help = "/v1/models lists each model a second time, with this before its name, and requests "
		  "may name it so: for clients that show only some names (claude- for Claude Code). \"\" "
		  "means once." },
	{ "server.watch_config", CONFIG_BOOL, FIELD(server.watch_config), .value = "true",
	  .reloadable = true, .help = "Reload a changed configuration file without SIGHUP." },
	{ "server.drain_timeout", CONFIG_TIME, FIELD(server.drain_timeout_ms), .max = HOUR,
	  .ms_per_unit = 1, .value = "20s", .unit = "time", .reloadable = true,
	  .help = "How long active requests may run after SIGTERM." },
	{ "server.allowed_hosts", CONFIG_HOSTS, FIELD(server.allowed_hosts), .min = 1, .max = 255,
	  .value = "", .help = "Names accepted in the Host header besides the loopback ones." },
	{ "server.allowed_origins", CONFIG_ORIGINS, FIELD(server.allowed_origins), .min = 1,
	  .max = 255, .value = "",
	  .help = "Web pages that may call the server from a browser, besides its own." },
	{ "server.unix_socket", CONFIG_PATH, FIELD(server.unix_socket), .max = 4096, .value = "",
	  .help = "Path of a unix socket to listen on too; \"\" means none." },
	{ "server.unix_socket_mode", CONFIG_MODE, FIELD(server.unix_socket_mode), .min = 0200,
	  .max = 0777, .value = "0600",
	  .help = "Permissions of the unix socket: who may connect." },
	{ "server.tls_cert", CONFIG_PATH, FIELD(server.tls_cert), .max = 4096, .value = "",
	  .help = "PEM file of the certificate with its chain; with it and tls_key the port serves "
		  "HTTPS only. SIGHUP reads both again." },
	{ "server.tls_key", CONFIG_PATH, FIELD(server.tls_key), .max = 4096, .value = "",
	  .help = "PEM file of the certificate's private key; only its owner may read it." },
	{ "server.keys_file", CONFIG_PATH, FIELD(server.keys_file), .max = 4096, .value = "",
	  .help = "File of the API keys that `ingot keys` adds; when it exists, requests need a key. "
		  "\"\" means ingot/keys in $XDG_STATE_HOME or ~/.local/state, on macOS in the "
		  "installed var. SIGHUP reads it again." },
	{ "server.keys_command", CONFIG_PATH, FIELD(server.keys_command), .max = 4096, .value = "",
	  .help = "A program that prints the keys, in the format of keys_file and instead of it: for "
		  "a fleet whose keys are kept elsewhere. Run at the start and on SIGHUP without "
		  "arguments and without a shell; it must end within 10 s." },
	{ "server.unknown_parameters", CONFIG_CHOICE, FIELD(server.unknown_parameters), .min = 1,
	  .max = 32, .choices = CHOICES("note", "refuse"), .value = "note", .reloadable = true,
	  .help = "What happens to fields, content parts and tools of a request that Ingot does not "
		  "know: they are left out and named in the reply's header x-ingot-ignored, the log, "
		  "the ledger and the metrics, or the request is refused." },
	{ "server.prep_threads", CONFIG_INT, FIELD(server.prep_threads), .min = 1, .max = 16,
	  .value = "3", .unit = "threads",
	  .help = "Threads that render and tokenize prompts.  Prompts of 64 KiB and more never have "
		  "the last one of several, so that small ones do not wait for them." },
	{ "server.open_metrics", CONFIG_BOOL, FIELD(server.open_metrics), .value = "false",
	  .help = "/metrics needs no key: for who reads it and has none to send, as the endpoint picker "
		  "of Kubernetes' inference gateway. It has names of models, counts and times." },
	{ "server.allow_anonymous", CONFIG_BOOL, FIELD(server.allow_anonymous), .value = "false",
	  .help = "Serve requests without a key even when there are keys or the client is not local; "
		  "with the role user, never administrator." },

	{ "tools.fallback", CONFIG_CHOICE, FIELD(tools.fallback), .min = 1, .max = 32,
	  .choices = CHOICES("hermes", "refuse"), .value = "hermes", .reloadable = true,
	  .help = "What happens to a request with tools if the model's chat template knows none: the "
		  "system message describes them in Hermes' format and the reply has the header "
		  "x-ingot-tool-format, or the request is refused." },

	{ "limits.max_concurrent", CONFIG_INT, FIELD(limits.max_concurrent), .max = IG_LIMIT_MAX,
	  .value = "0", .unit = "requests", .reloadable = true,
	  .help = "Most requests of one key that run or wait at once; further ones get 429. 0 means no "
		  "limit. Requests without a key count together; a key's own limits override these." },
	{ "limits.requests_per_minute", CONFIG_INT, FIELD(limits.requests_per_minute),
	  .max = IG_LIMIT_MAX, .value = "0", .unit = "requests", .reloadable = true,
	  .help = "Most requests of one key in a minute; 0 means no limit." },
	{ "limits.tokens_per_minute", CONFIG_INT, FIELD(limits.tokens_per_minute),
	  .max = IG_LIMIT_MAX, .value = "0", .unit = "tokens", .reloadable = true,
	  .help = "Most tokens of one key in a minute, of prompts and responses; 0 means no limit." },

	{ "responses.max_stored", CONFIG_INT, FIELD(responses.max_stored), .max = 1000000,
	  .value = "4096", .unit = "responses", .reloadable = true,
	  .help = "Most responses that are stored for previous_response_id and GET; the least recently "
		  "used are deleted first. 0 stores none." },
	{ "responses.max_stored_bytes", CONFIG_BYTES, FIELD(responses.max_stored_bytes),
	  .max = GIB << 10, .value = "256MiB", .unit = "bytes", .reloadable = true,
	  .help = "Most memory of all stored responses together." },
	{ "responses.max_stored_per_lane", CONFIG_INT, FIELD(responses.max_stored_per_lane),
	  .min = 1, .max = 1000, .value = "8", .unit = "responses", .reloadable = true,
	  .help = "Most responses with store: false that each lane of a WebSocket keeps, to be "
		  "continued; the oldest is dropped." },
	{ "responses.persist", CONFIG_BOOL, FIELD(responses.persist), .value = "true",
	  .help = "Stored responses, with their text, are kept in a file, too, so that they survive a "
		  "restart; only its owner may read it, and it is not encrypted." },
	{ "responses.path", CONFIG_PATH, FIELD(responses.path), .max = 4096, .value = "",
	  .help = "Their file, an SQLite database; \"\" means the ledger's name with -responses: "
		  "ledger-responses.db." },

	{ "runtime.driver", CONFIG_CHOICE, FIELD(runtime.driver), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "cpu", "metal", "cuda"), .value = "auto",
	  .help = "Driver that computes; auto means a GPU where this build and machine have one." },
	{ "runtime.devices", CONFIG_DEVICES, FIELD(runtime.devices), .min = 1, .max = 3,
	  .value = "",
	  .help = "Numbers of the GPUs that compute, with the driver cuda; [] means the first. A model is "
		  "divided over two, or over [all] of two: each holds a part of the weights and of the cache. "
		  "memory.budget and kvcache.arena are then those of each GPU. GPUs that do not reach each "
		  "other's memory need NVIDIA's library NCCL." },
	{ "runtime.transport", CONFIG_CHOICE, FIELD(runtime.transport), .min = 1, .max = 32,
	  .choices = CHOICES("none", "mpi"), .value = "none",
	  .help = "What joins the machines that share each model, its layers divided over them: mpi is Open MPI, "
		  "whose mpirun starts one ingotd and an ingotd --worker for every other machine. "
		  "memory.budget and kvcache.arena are then those of each machine." },
	{ "runtime.transport_timeout", CONFIG_TIME, FIELD(runtime.transport_timeout_ms),
	  .min = 2000, .max = 600000, .ms_per_unit = 1, .value = "10s", .unit = "time",
	  .help = "A machine that is not heard for this long is gone: requests under way end with an error "
		  "that names it, and ingotd ends with status 1, so that its supervisor starts all anew." },
	{ "runtime.isa", CONFIG_CHOICE, FIELD(runtime.isa), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "generic", "avx2", "avx512", "avx512_bf16", "neon",
			     "neon_dotprod", "neon_i8mm"),
	  .value = "auto",
	  .help = "Instruction set of the CPU kernels; auto means the best available one." },
	{ "runtime.threads", CONFIG_INT, FIELD(runtime.threads), .max = 1024, .value = "0",
	  .unit = "threads",
	  .help = "Threads that compute; 0 means one for each processor that the daemon may use." },
	{ "runtime.activations", CONFIG_CHOICE, FIELD(runtime.activations), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "f32"), .value = "auto",
	  .help = "Arithmetic of the activations; auto is fast, f32 is exact and slow." },
	{ "runtime.experts", CONFIG_CHOICE, FIELD(runtime.experts), .min = 1, .max = 32,
	  .choices = CHOICES("packed", "mapped"), .value = "packed",
	  .help = "How the CPU driver holds the weights of experts: packed in memory, or read from the "
		  "mapped file when needed, which is slower and outside the memory budget." },
	{ "runtime.repack", CONFIG_CHOICE, FIELD(runtime.repack), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "always", "never"), .value = "auto",
	  .help = "Whether a GPU driver copies quantised weights, when a model is loaded, to the order in "
		  "which a matrix instruction takes them: as many bytes as in the file. auto: on NVIDIA GPUs of "
		  "compute capability 9.0; Metal reads the mapped file, as nobody has measured there what it brings." },
	{ "runtime.tensor_units", CONFIG_CHOICE, FIELD(runtime.tensor_units), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "never"), .value = "auto",
	  .help = "Whether the Metal driver multiplies on the GPU's tensor units, which Apple's chips have from the M5 "
		  "on: auto does if a short trial at the start gives right results, and says so; never uses the "
		  "kernels of older chips." },
	{ "runtime.packed_cache", CONFIG_PATH, FIELD(runtime.packed_cache), .max = 4096,
	  .value = "",
	  .help = "Folder in which the CPU driver keeps a copy of each model's packed weights, which later "
		  "loads map instead of packing, so that a start takes the time of reading it once; \"\" "
		  "keeps none. The first load is longer by what the disk takes to write it." },
	{ "runtime.packed_cache_size", CONFIG_BYTES, FIELD(runtime.packed_cache_size),
	  .max = GIB << 20, .value = "0", .unit = "bytes",
	  .help = "Most bytes of that folder; 0 means half of what is free on its disk with what the folder "
		  "has. The copies that were not loaded for the longest time are removed first." },
	{ "runtime.run_ahead", CONFIG_CHOICE, FIELD(runtime.run_ahead), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "on", "off"), .value = "auto",
	  .help = "Start a step before the previous step's tokens are read; auto means on with a GPU." },
	{ "runtime.strict", CONFIG_BOOL, FIELD(runtime.strict), .value = "false",
	  .help = "Treat a second wait for the device within one step as an error." },
	{ "runtime.keep_wired", CONFIG_TIME, FIELD(runtime.keep_wired_ms), .max = 24 * HOUR,
	  .ms_per_unit = 1, .value = "3m", .unit = "time",
	  .help = "How long the Metal driver keeps the memory of models wired after the last step; the "
		  "system unwires it within a second otherwise, and the next step waits for it. 0 means "
		  "not at all." },

	{ "memory.budget", CONFIG_BYTES, FIELD(memory.budget), .max = GIB << 20, .value = "0",
	  .unit = "bytes",
	  .help = "Memory of weights, cache and scratch together; 0 means three quarters of the memory "
		  "of the machine or of the daemon's control group; with a GPU what that one has, on a Mac "
		  "less the system's share." },

	{ "kvcache.service", CONFIG_TEXT, FIELD(kvcache.service), .min = 1, .max = 64,
	  .value = "paged", .help = "Name of the cache service, which a module provides." },
	{ "kvcache.arena", CONFIG_BYTES, FIELD(kvcache.arena), .max = GIB << 20, .value = "0",
	  .unit = "bytes",
	  .help = "Memory reserved for keys and values; 0 means the rest of the budget, at most "
		  "4GiB." },
	{ "kvcache.slab", CONFIG_BYTES, FIELD(kvcache.slab), .min = 16 * KIB, .max = GIB,
	  .power_of_two = true, .value = "4MiB", .unit = "bytes",
	  .help = "Size of the arena's slabs, in which memory is allocated and freed; a power of two." },
	{ "kvcache.dtype", CONFIG_CHOICE, FIELD(kvcache.dtype), .min = 1, .max = 32,
	  .choices = CHOICES("f16", "f32", "q8_0", "q8_0/f16", "f16/q8_0"), .value = "f16",
	  .help = "Element type of keys and values, or of keys/values; q8_0, 8 bits, takes 0.53 of "
		  "the memory of f16. A model's kv_dtype comes before it." },
	{ "kvcache.prefix_cache", CONFIG_BOOL, FIELD(kvcache.prefix_cache), .value = "true",
	  .help = "Keep the keys and values of prompts for later prompts with the same prefix, until "
		  "the memory is needed." },
	{ "kvcache.share", CONFIG_CHOICE, FIELD(kvcache.share), .min = 1, .max = 32,
	  .choices = CHOICES("key", "all"), .value = "key",
	  .help = "Whose prompts share cached prefixes: those of one API key, or all. With all, "
		  "cached_tokens and the time to the first token reveal other clients' prompts." },

	{ "kvcache.disk", CONFIG_PATH, FIELD(kvcache.disk), .max = 4096, .value = "",
	  .choices = CHOICES("none"), .unit = "a path, or none",
	  .help = "A folder where the keys and values of prompts are kept, for the time after a restart or "
		  "a change of models. It has the prompts' tokens, too: only the daemon's user may read it. \"\" "
		  "means kv beside ledger.path; none means that nothing is kept (./none is a folder of that name)." },
	{ "kvcache.disk_size", CONFIG_BYTES, FIELD(kvcache.disk_size), .max = GIB << 20,
	  .value = "0", .unit = "bytes",
	  .help = "Most bytes of that folder; 0 means a tenth of what is free on its disk at the start, at "
		  "most 20GiB." },

	{ "scheduler.max_batch_tokens", CONFIG_INT, FIELD(scheduler.max_batch_tokens), .min = 1,
	  .max = 65536, .value = "512", .unit = "tokens",
	  .help = "Most tokens of one step, of all sequences together." },
	{ "scheduler.prefill_chunk", CONFIG_INT, FIELD(scheduler.prefill_chunk), .min = 1,
	  .max = 65536, .value = "512", .unit = "tokens", .reloadable = true,
	  .help = "Most tokens of one prompt that a step prefills." },
	{ "scheduler.prompt_share", CONFIG_INT, FIELD(scheduler.prompt_share), .min = 5, .max = 95,
	  .value = "36", .unit = "percent", .reloadable = true,
	  .help = "Part of the time in which a long prompt is read while other requests' tokens are "
		  "generated; each step is limited, so that these keep coming." },
	{ "scheduler.max_seqs", CONFIG_INT, FIELD(scheduler.max_seqs), .min = 1, .max = 4096,
	  .value = "64", .unit = "sequences",
	  .help = "Most sequences that run at once, at most max_batch_tokens; others wait." },
	{ "scheduler.max_queue", CONFIG_INT, FIELD(scheduler.max_queue), .min = 1, .max = 100000,
	  .value = "256", .unit = "requests", .reloadable = true,
	  .help = "Most requests that wait; further ones are refused with 503." },
	{ "scheduler.retry_after", CONFIG_TIME, FIELD(scheduler.retry_after_s), .min = SECOND,
	  .max = HOUR, .ms_per_unit = SECOND, .value = "2s", .unit = "time", .reloadable = true,
	  .help = "Value of Retry-After for refused clients; whole seconds." },
	{ "scheduler.max_output_tokens", CONFIG_INT, FIELD(scheduler.max_output_tokens),
	  .max = 1u << 24, .value = "0", .unit = "tokens", .reloadable = true,
	  .help = "Most output tokens of requests that set no limit; 0 means up to the context." },
	{ "scheduler.speculation", CONFIG_CHOICE, FIELD(scheduler.speculation), .min = 1, .max = 32,
	  .choices = CHOICES("on", "lookup", "draft", "mtp", "off"), .value = "on",
	  .reloadable = true,
	  .help = "A request's next tokens are guessed, and a step verifies several at once where that is "
		  "faster; no token changes. lookup: from what followed the same tokens earlier in its text; "
		  "draft: by the draft model of its model, if that has one; mtp: by a head of its model that "
		  "guesses the token after the next one, which models have that are loaded while this is mtp or on; "
		  "on: by all." },

	{ "modules.path", CONFIG_PATHS, FIELD(modules.path), .min = 1, .max = 4096, .value = "",
	  .help = "Folders from which modules (*.so) are loaded; [] means those of the program's build "
		  "tree, or else the installed folder." },

	{ "ledger.enabled", CONFIG_BOOL, FIELD(ledger.enabled), .value = "true",
	  .help = "Write one row for each request (never its text) to an SQLite database." },
	{ "ledger.path", CONFIG_PATH, FIELD(ledger.path), .max = 4096, .value = "",
	  .help = "The database; \"\" means ingot/ledger.db in $XDG_STATE_HOME or ~/.local/state, on "
		  "macOS in the installed var." },
	{ "ledger.queue", CONFIG_INT, FIELD(ledger.queue), .min = 1, .max = 65536, .value = "4096",
	  .unit = "rows",
	  .help = "Most rows that wait to be written; further ones are dropped and counted." },
	{ "ledger.retention_days", CONFIG_INT, FIELD(ledger.retention_days), .max = 36500,
	  .value = "90", .unit = "days", .reloadable = true,
	  .help = "Older rows are deleted; 0 deletes none." },

	{ "log.level", CONFIG_CHOICE, FIELD(log.level), .min = 1, .max = 32,
	  .choices = CHOICES("error", "warn", "info", "debug"), .value = "info", .reloadable = true,
	  .help = "Messages of this level and above are logged." },
	{ "log.file", CONFIG_PATH, FIELD(log.file), .max = 4096, .value = "", .reloadable = true,
	  .help = "File to append the log to; \"\" means standard error. SIGHUP reopens it." },

	{ "models.folder", CONFIG_PATH, FIELD(models_folder), .max = 4096, .value = "",
	  .choices = CHOICES("none"), .unit = "a path, or none", .reloadable = true,
	  .help = "A folder whose models are served too: each GGUF file and each folder of safetensors in "
		  "it, by its name, loaded by its first request; an entry with its name or file counts "
		  "instead. \"\" means the folder of `ingot pull`: $INGOT_MODELS_DIR or ~/.local/share/ingot/models; "
		  "none means no folder (./none is one of that name)." },

	{ "default_model", CONFIG_NAME, FIELD(default_model), .max = 128, .value = "",
	  .reloadable = true,
	  .help = "Model of requests that name none; \"\" means the first of models." },
};
const size_t config_n_options = sizeof config_options / sizeof config_options[0];
_Static_assert(sizeof config_options / sizeof config_options[0] <= CONFIG_MAX_OPTIONS,
	       "struct config has a place for each option");

const struct config_option config_model_options[] = {
	{ "name", CONFIG_NAME, MODEL_FIELD(name), .min = 1, .max = 128, .value = NULL,
	  .help = "Name for clients: 1 to 128 of A-Z a-z 0-9 . _ : / -, unique." },
	{ "path", CONFIG_PATH, MODEL_FIELD(path), .min = 1, .max = 4096, .value = NULL,
	  .help = "The GGUF file, or a folder with safetensors." },
	{ "context", CONFIG_INT, MODEL_FIELD(context), .max = 1u << 24, .value = "0",
	  .unit = "tokens",
	  .help = "Most tokens of one sequence; 0 means the length that the model was trained for, "
		  "which is also the largest value." },
	{ "kv_dtype", CONFIG_CHOICE, MODEL_FIELD(kv_dtype), .min = 1, .max = 32,
	  .choices = CHOICES("auto", "f16", "f32", "q8_0", "q8_0/f16", "f16/q8_0"), .value = "auto",
	  .help = "Element type of the model's keys and values in place of kvcache.dtype; auto means "
		  "that one." },
	{ "draft", CONFIG_PATH, MODEL_FIELD(draft), .max = 4096, .value = "",
	  .help = "A small model with the same vocabulary, a GGUF file or a folder, that guesses the "
		  "model's next tokens (scheduler.speculation), or a GGUF file with the model's head that "
		  "does (MTP); \"\" means none." },
	{ "load", CONFIG_CHOICE, MODEL_FIELD(load), .min = 1, .max = 32,
	  .choices = CHOICES("start", "first_use"), .value = "start",
	  .help = "When the weights are loaded: at the daemon's start, or for the first request." },
	{ "keep_alive", CONFIG_TIME, MODEL_FIELD(keep_alive_ms), .max = 7 * 24 * HOUR,
	  .ms_per_unit = 1, .value = "0", .unit = "time",
	  .help = "Time without a request after which the model is unloaded; 0 means never." },
	{ "pin", CONFIG_BOOL, MODEL_FIELD(pin), .value = "false",
	  .help = "Never unload the model to free memory for another one." },
};
const size_t config_n_model_options = sizeof config_model_options / sizeof config_model_options[0];
_Static_assert(sizeof config_model_options / sizeof config_model_options[0] <=
		       CONFIG_MAX_MODEL_OPTIONS,
	       "the parser has a line for each option of a model");

const struct config_option config_adapter_options[] = {
	{ "name", CONFIG_NAME, ADAPTER_FIELD(name), .min = 1, .max = 126,
	  .help = "Requests name the adapter MODEL:NAME." },
	{ "path", CONFIG_PATH, ADAPTER_FIELD(path), .min = 1, .max = 4096,
	  .help = "The GGUF file, or the folder that PEFT has written." },
	{ "scale_percent", CONFIG_INT, ADAPTER_FIELD(scale_percent), .min = 1, .max = 1000,
	  .value = "100", .help = "How much of the adapter is added: 100 is as it was trained." },
};
const size_t config_n_adapter_options =
	sizeof config_adapter_options / sizeof config_adapter_options[0];

const struct config_option config_rule_options[] = {
	{ "name", CONFIG_NAME, RULE_FIELD(name), .min = 1, .max = 64,
	  .unit = "a name: 1 to 64 of A-Z a-z 0-9 . _ : / -",
	  .help = "The rule's name, in errors, the metrics and x-ingot-normalized; that of a built-in "
		  "rule changes where this one holds." },
	{ "pattern", CONFIG_TEXT, RULE_FIELD(pattern), .min = 1, .max = 1024,
	  .help = "A regular expression (PCRE2); ^ and $ match at each line. Required but for built-in "
		  "rules, whose pattern is fixed." },
	{ "replacement", CONFIG_TEXT, RULE_FIELD(replacement), .max = 1024, .value = "",
	  .help = "What stands for a match; $0 to $9 are the match and its groups, $$ is a $." },
	{ "enabled", CONFIG_BOOL, RULE_FIELD(enabled), .value = "true",
	  .help = "false switches the rule off." },
	{ "models", CONFIG_PATTERNS, RULE_FIELD(models), .min = 1, .max = 128, .value = "",
	  .help = "Models whose prompts it changes; [] means all." },
	{ "except_models", CONFIG_PATTERNS, RULE_FIELD(except_models), .min = 1, .max = 128,
	  .value = "", .help = "But not of these." },
	{ "clients", CONFIG_PATTERNS, RULE_FIELD(clients), .min = 1, .max = 128, .value = "",
	  .help = "Clients whose prompts it changes, by the id of their key, or by their address if "
		  "they have none; [] means all." },
};
const size_t config_n_rule_options = sizeof config_rule_options / sizeof config_rule_options[0];
_Static_assert(sizeof config_rule_options / sizeof config_rule_options[0] <=
		       CONFIG_MAX_RULE_OPTIONS,
	       "the parser has a line for each option of a rule");

/* ---- names ---------------------------------------------------------------------------- */

const char *config_leaf(const struct config_option *o)
{
	const char *dot = strchr(o->key, '.');

	return dot ? dot + 1 : o->key;
}

const struct config_option *config_find(const char *key)
{
	for (size_t i = 0; i < config_n_options; i++)
		if (!strcmp(config_options[i].key, key))
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

/* Make candidate, at distance d, the result, if it is the nearest within the limit so far. */
static void consider(const char *candidate, size_t d, size_t limit, size_t *best, const char **out)
{
	if (d <= limit && d < *best) {
		*best = d;
		*out = candidate;
	}
}

const char *config_nearest(const char *section, const char *key)
{
	static const char *const sections[] = { "server",    "runtime",	  "memory", "kvcache",
						"scheduler", "modules",	  "ledger", "log",
						"limits",    "responses", "models", "default_model",
						"aliases" };
	/* one error for each five characters, and one more */
	size_t limit = 1 + strlen(key) / 5, best = SIZE_MAX;
	const char *out = NULL;
	char full[128];

	snprintf(full, sizeof full, "%s%s%s", section, *section ? "." : "", key);
	if (!*section)
		for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
			consider(sections[i], ig_edit_distance(key, sections[i]), limit, &best,
				 &out);
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		consider(o->key, ig_edit_distance(full, o->key), limit, &best, &out);
		/* the right name in the wrong section */
		if (!strcmp(key, config_leaf(o)))
			consider(o->key, 1, limit, &best, &out);
	}
	return out;
}

const struct config_option *config_nearest_variable(const char *name)
{
	const char *nearest = NULL;
	size_t best = SIZE_MAX;
	char known[64];

	for (size_t i = 0; i < config_n_options; i++)
		consider(config_options[i].key,
			 ig_edit_distance(name, config_env_name(&config_options[i], known)), 3,
			 &best, &nearest);
	return nearest ? config_find(nearest) : NULL;
}
