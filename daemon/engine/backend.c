/* backend.c: see backend_private.h and backend.h. */
#include "daemon/engine/backend_private.h"

#include "base/dtype.h"
#include "base/log.h"
#include "daemon/engine/backend.h"
#include "daemon/engine/kv_disk_private.h"
#include "runtime/machines/machines.h"

#include <errno.h>
#include <string.h>

/* Compiled grammars that are cached for later requests. */
#define GRAMMAR_CACHE_BYTES (256u << 20)

/* Rows of a step that may have logits, if only few sequences may run at once. */
#define LOGIT_ROWS 16

static uint32_t clamp(uint32_t v, uint32_t low, uint32_t high)
{
	return v < low ? low : v > high ? high : v;
}

uint32_t ig_backend_chunk(const struct ig_backend *b, const struct ig_config *config)
{
	return clamp(config->scheduler.prefill_chunk, 1, b->max_rows);
}

int ig_backend_find_service(const struct ig_modules *modules, const struct ig_config *config,
			    const struct ig_kvcache_service **out, struct ig_error *err)
{
	char *const *folders = config->modules.path; /* the loaded configuration names them */

	*out = ig_modules_kvcache(modules, config->kvcache.service);
	if (!*out)
		return ig_fail(err, -ENOENT,
			       "kvcache.service is \"%s\"; no module in %s%s provides it",
			       config->kvcache.service, folders[0], folders[1] ? " …" : "");
	return 0;
}

/* On three and four H200 tests/golden's test_arch_golden got tokens that one, or two, do not give. */
#define MOST_DEVICES 2

int ig_backend_open_link(const struct ig_config *config, struct ig_link **out, struct ig_error *err)
{
	struct ig_link_options o = { .silence_ms = config->runtime.transport_timeout_ms };
	int rc = ig_transport_load(config->modules.path, config->runtime.transport, &o.transport,
				   err);

	return rc ? rc : ig_link_open(&o, out, err);
}

/* The driver becomes rank 0's of several. */
static int join_machines(struct ig_backend *b, const struct ig_config *config, struct ig_error *err)
{
	struct ig_driver *own = b->driver;
	struct ig_link *link;
	int rc;

	if (ig_driver_n_ranks(own) > 1 || !strcmp(config->runtime.run_ahead, "on"))
		return ig_fail(err, -ENOTSUP,
			       "runtime.transport: over several machines there can be no %s",
			       ig_driver_n_ranks(own) > 1 ? "runtime.devices" :
							    "runtime.run_ahead: on");
	if ((rc = ig_backend_open_link(config, &link, err)))
		return rc;
	b->driver = NULL;
	return ig_machines_open(own, link, config->runtime.strict, &b->driver, err);
}

struct ig_driver_options ig_backend_driver_options(const struct ig_config *config)
{
	return (struct ig_driver_options){
		.isa = config->runtime.isa,
		.n_threads = config->runtime.threads,
		.activations = config->runtime.activations,
		.experts = config->runtime.experts,
		.repack = config->runtime.repack,
		.tensor_units = config->runtime.tensor_units,
		.strict = config->runtime.strict,
		.keep_wired_ms = config->runtime.keep_wired_ms,
	};
}

static int open_driver(struct ig_backend *b, const struct ig_config *config, struct ig_error *err)
{
	struct ig_driver_options o = ig_backend_driver_options(config);
	uint32_t devices[IG_CONFIG_DEVICES];
	int rc;

	o.devices = devices;
	o.n_devices = ig_config_devices(config, devices, &o.all_devices);
	rc = ig_driver_open(config->runtime.driver, &o, &b->driver, err);
	if (rc < 0)
		return rc;
	if (ig_driver_n_ranks(b->driver) > MOST_DEVICES)
		return ig_fail(
			err, -ENOTSUP,
			"runtime.devices: these are %u GPUs; a model is divided over two at most "
			"for now, as on three and more some tokens were wrong",
			ig_driver_n_ranks(b->driver));
	if (strcmp(config->runtime.transport, "none") != 0 && (rc = join_machines(b, config, err)))
		return rc;
	if (!strcmp(config->runtime.run_ahead, "auto"))
		b->max_flights = ig_driver_steps_in_flight(b->driver);
	else
		b->max_flights = strcmp(config->runtime.run_ahead, "on") ? 1 : IG_STEPS_IN_FLIGHT;
	return 0;
}

static int read_cache_options(struct ig_backend *b, const struct ig_config *config,
			      struct ig_error *err)
{
	uint64_t slabs;

	if (!ig_cache_dtypes(config->kvcache.dtype, &b->k_dtype, &b->v_dtype))
		return ig_fail(err, -ENOTSUP,
			       "kvcache.dtype is \"%s\"; f16, f32 and q8_0 are known, also as "
			       "keys/values",
			       config->kvcache.dtype);
	b->prefix_cache = config->kvcache.prefix_cache;
	b->with_mtp = ig_driver_takes_mtp(b->driver) && ig_config_guesses_by(config, "mtp");
	b->share_all = !strcmp(config->kvcache.share, "all");
	slabs = config->kvcache.arena ? config->kvcache.arena : IG_DEFAULT_ARENA;
	/* plus what one short sequence of any model takes */
	slabs = slabs / config->kvcache.slab +
		IG_MAX_CACHE_GROUPS * (IG_LEAST_TOKENS / IG_BLOCK_TOKENS + 1);
	b->max_slabs =
		slabs < 1u << (32 - IG_BLOCK_BITS) ? (uint32_t)slabs : 1u << (32 - IG_BLOCK_BITS);
	return 0;
}

static int open_packed(struct ig_backend *b, const struct ig_config *config, struct ig_error *err)
{
	int rc;

	if (!config->runtime.packed_cache || !config->runtime.packed_cache[0])
		return 0;
	rc = ig_kv_name_programs(b, config, &b->programs, err);
	b->named = rc == 0;
	return rc ? rc :
		    ig_packed_files_open(config->runtime.packed_cache,
					 config->runtime.packed_cache_size, &b->packed, err);
}

/* Without the folder that nobody has named the daemon goes on; one that is named must be usable. */
static int open_disk(struct ig_backend *b, const struct ig_config *config, struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc;

	if (!config->kvcache.disk || !config->kvcache.disk[0] || !b->prefix_cache)
		return 0;
	if (ig_driver_n_ranks(b->driver) > 1) {
		if (!config->kvcache.disk_by_default)
			return ig_fail(
				err, -ENOTSUP,
				"kvcache.disk: blocks that are divided over devices can't be "
				"kept on disk; \"\" keeps none");
		ig_log_info("computed blocks are not kept on disk: they are divided over devices");
		return 0;
	}
	rc = b->named ? 0 : ig_kv_name_programs(b, config, &b->programs, &why);
	if (!rc)
		rc = ig_kv_files_open(config->kvcache.disk, config->kvcache.disk_size, &b->disk,
				      &why);
	if (!rc || !config->kvcache.disk_by_default)
		return rc ? ig_fail(err, rc, "%s", why.text) : 0;
	ig_log_warn("computed blocks are not kept on disk: %s", why.text);
	return 0;
}

int ig_backend_create_cache(const struct ig_kvcache_service *kv, struct ig_driver *driver,
			    uint64_t arena_bytes, uint64_t slab_bytes, struct ig_kvcache **out,
			    struct ig_error *err)
{
	struct ig_kv_arena arena = {
		.struct_size = sizeof arena,
		.arena_bytes = arena_bytes,
		.slab_bytes = slab_bytes,
		.ctx = driver,
		.map_slab = ig_driver_map_slab,
		.unmap_slab = ig_driver_unmap_slab,
		.copy = ig_driver_copy,
	};

	return kv->create(&arena, out, err);
}

int ig_backend_make_cache(struct ig_backend *b, uint64_t arena_bytes, uint64_t slab_bytes,
			  struct ig_kvcache **out, struct ig_error *err)
{
	return ig_backend_create_cache(b->kv, b->driver, arena_bytes, slab_bytes, out, err);
}

int ig_backend_open(struct ig_backend *b, const struct ig_config *config, struct ig_error *err)
{
	int rc;

	/* Each running sequence takes a row of a step: with more of them than rows, prompts would
	 * starve. */
	b->max_rows = config->scheduler.max_batch_tokens ? config->scheduler.max_batch_tokens : 1;
	b->max_seqs = clamp(config->scheduler.max_seqs, 1, b->max_rows);
	b->max_logit_rows = clamp(LOGIT_ROWS, b->max_seqs, b->max_rows);
	if (b->max_seqs < config->scheduler.max_seqs)
		ig_log_warn(
			"scheduler.max_seqs is %u, but only scheduler.max_batch_tokens, %u, can run at "
			"once",
			config->scheduler.max_seqs, b->max_rows);
	if (ig_grammar_cache_create(GRAMMAR_CACHE_BYTES, &b->grammars) < 0)
		return ig_fail(err, -ENOMEM, "out of memory for the cache of grammars");
	if ((rc = ig_backend_find_service(b->modules, config, &b->kv, err)) ||
	    (rc = open_driver(b, config, err)) || (rc = read_cache_options(b, config, err)) ||
	    (rc = open_packed(b, config, err)) || (rc = open_disk(b, config, err)))
		return rc;
	return ig_backend_make_cache(b, config->kvcache.slab, config->kvcache.slab, &b->ruler, err);
}

void ig_backend_close(struct ig_backend *b)
{
	if (b->ruler)
		b->kv->destroy(b->ruler);
	if (b->cache)
		b->kv->destroy(b->cache);
	ig_kv_files_close(b->disk);
	ig_packed_files_close(b->packed);
	ig_grammar_cache_destroy(b->grammars);
	if (b->driver)
		ig_driver_close(b->driver);
}

void ig_backend_record(const struct ig_backend *b, const struct ig_ledger_row *row)
{
	ig_log_debug("request %s: x-request-id %s, %s, status %d, %s", row->id, row->request_id,
		     row->endpoint, row->status, row->finish);
	ig_metrics_request(b->metrics, row);
	if (b->ledger)
		ig_ledger_put(b->ledger, row);
}
