/*
 * backend_private.h: what the parts of the engine stand on: modules, the driver, the cache
 * and its service, the limits that programs are lowered with, and where figures go.  Only
 * the cache comes later than the rest; after the start nothing in it changes.
 */
#pragma once

#include "model/grammar/grammar.h"
#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "store/config.h"
#include "store/ledger.h"
#include "store/metrics.h"

#include <ingot/kvcache.h>

#define IG_DEFAULT_ARENA ((uint64_t)4 << 30)
/* An arena that can't hold one conversation of so many tokens serves nobody. */
#define IG_LEAST_TOKENS 256

struct ig_backend {
	const struct ig_modules *modules; /* not owned */
	struct ig_driver *driver;
	const struct ig_kvcache_service *kv;
	struct ig_kvcache *cache;
	struct ig_kvcache *ruler;     /* an empty cache that layouts are asked of; the loader's */
	uint32_t kv_dtype, max_slabs; /* of the cache */
	bool prefix_cache, share_all; /* share_all: prefixes have no salt */
	uint32_t max_seqs, max_rows;  /* of a step */
	uint32_t max_flights;	      /* 2: a step starts before the one before it is read */
	struct ig_grammar_cache *grammars;
	struct ig_ledger *ledger; /* may be NULL */
	struct ig_metrics *metrics;
};

/* All but the cache.  On an error too b is to be closed. */
int ig_backend_open(struct ig_backend *b, const struct ig_config *config, struct ig_error *err);
int ig_backend_make_cache(struct ig_backend *b, uint64_t arena_bytes, uint64_t slab_bytes,
			  struct ig_kvcache **out, struct ig_error *err);
void ig_backend_close(struct ig_backend *b);
/* A finished or refused request's row, to the ledger and the metrics. */
void ig_backend_record(const struct ig_backend *b, const struct ig_ledger_row *row);
/* scheduler.prefill_chunk, as far as a step has rows. */
uint32_t ig_backend_chunk(const struct ig_backend *b, const struct ig_config *config);
