/*
 * backend_private.h: what all parts of the engine use: modules, the driver, the cache
 * and its service, the limits that programs are lowered with, ledger and metrics.  The cache is
 * made after the rest; after the start nothing changes.
 */
#pragma once

#include "model/grammar/grammar.h"
#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "store/config.h"
#include "store/kv_files.h"
#include "store/ledger.h"
#include "store/metrics.h"
#include "store/packed_files.h"

#include <ingot/kvcache.h>

#define IG_DEFAULT_ARENA ((uint64_t)4 << 30)
/* Tokens of one sequence that an arena must hold at least. */
#define IG_LEAST_TOKENS 256

struct ig_backend {
	const struct ig_modules *modules; /* not owned */
	struct ig_driver *driver;
	const struct ig_kvcache_service *kv;
	struct ig_kvcache *cache;
	struct ig_kvcache *ruler;	      /* an empty cache to query layouts; the loader's */
	uint32_t k_dtype, v_dtype, max_slabs; /* of the cache; a model may have other types */
	bool with_mtp; /* models have their heads that guess, if their files have some */
	bool prefix_cache, share_all; /* share_all: prefixes are not salted by key */
	uint32_t max_seqs, max_rows;  /* of a step */
	uint32_t max_logit_rows;      /* the same; some more than few sequences need, for drafts */
	uint32_t max_flights; /* 2: a step starts before the results of the previous one are read */
	struct ig_packed_files *packed; /* copies of packed weights; NULL: none are kept */
	struct ig_kv_files *disk;	/* computed blocks; NULL: none are kept */
	struct ig_kv_name programs;	/* that compute both (kv_names.c) */
	bool named;			/* programs is known */
	struct ig_grammar_cache *grammars;
	struct ig_ledger *ledger; /* may be NULL */
	struct ig_metrics *metrics;
	void (*loading)(void *ctx, const char *model,
			uint64_t bytes); /* see struct ig_engine_deps */
	void *loading_ctx;
};

/* All but the cache.  b must be closed, after an error too. */
int ig_backend_open(struct ig_backend *b, const struct ig_config *config, struct ig_error *err);
int ig_backend_make_cache(struct ig_backend *b, uint64_t arena_bytes, uint64_t slab_bytes,
			  struct ig_kvcache **out, struct ig_error *err);
void ig_backend_close(struct ig_backend *b);
/* A finished or refused request's row, to the ledger and the metrics. */
void ig_backend_record(const struct ig_backend *b, const struct ig_ledger_row *row);
/* scheduler.prefill_chunk, at most the rows of a step. */
uint32_t ig_backend_chunk(const struct ig_backend *b, const struct ig_config *config);
