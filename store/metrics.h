/*
 * metrics.h: counters, gauges and histograms in memory, and their text in Prometheus's format.
 * Any thread may write, without a lock; names are vLLM's with the prefix ingot_ (docs/metrics.md).
 */
#pragma once

#include "base/strbuf.h"
#include "store/ledger.h"
#include "store/prompt_rules.h"

struct ig_metrics;

struct ig_metrics *ig_metrics_create(void);
void ig_metrics_destroy(struct ig_metrics *m);

/* Models that have series of their own; further ones share the series of the empty name. */
#define IG_METRICS_MODELS 64

/* One finished request, from its ledger row: counters and latency histograms by
 * model and finish reason.  A refused row, whose model's name comes from the client, creates no
 * series: if its model is unknown, it counts under the empty name. */
void ig_metrics_request(struct ig_metrics *m, const struct ig_ledger_row *row);
/* One token's inter-token time. */
void ig_metrics_inter_token(struct ig_metrics *m, double seconds);
/* One engine step: rows of prefill, rows of decode, seconds. */
void ig_metrics_step(struct ig_metrics *m, uint32_t n_prefill, uint32_t n_decode, double seconds);

/* A name in a request that is not known here.  Names come from clients: IG_METRICS_IGNORED of them
 * have series of their own, further ones share that of the empty name. */
#define IG_METRICS_IGNORED 64
void ig_metrics_ignored(struct ig_metrics *m, const char *name);

/* A prompt that this rule of kvcache.normalize has changed.  Rules without a series of their own share
 * that of the empty name. */
void ig_metrics_normalized(struct ig_metrics *m, const char *rule);

/* The time of one model load. */
void ig_metrics_model_load(struct ig_metrics *m, double seconds);

/* Gauges. */
enum ig_gauge {
	IG_GAUGE_REQUESTS_RUNNING, /* num_requests_running */
	IG_GAUGE_REQUESTS_WAITING,
	IG_GAUGE_REQUESTS_PAUSED, /* for a slow client */
	IG_GAUGE_KV_ARENA_BYTES,
	IG_GAUGE_KV_COMMITTED_BYTES,
	IG_GAUGE_KV_USED_BYTES,
	IG_GAUGE_KV_BLOCKS_USED,
	IG_GAUGE_KV_CACHED_BYTES, /* unused, kept for prompts with the same prefix */
	IG_GAUGE_KV_DISK_BYTES,
	IG_GAUGE_WEIGHT_BYTES,
	IG_GAUGE_SCRATCH_BYTES,
	IG_GAUGE_CONNECTIONS,
	IG_GAUGE_MODELS_LOADED,
	IG_GAUGE_LEDGER_FAILING,
	IG_GAUGE_RESPONSES_FAILING,
	IG_N_GAUGES,
};
void ig_metrics_set(struct ig_metrics *m, enum ig_gauge g, double v);
double ig_metrics_get(const struct ig_metrics *m, enum ig_gauge g);

/* Of each device or machine over which models are divided: their weights, and scratch memory.  n 0: they are on one
 * device, whose gauges have what IG_GAUGE_WEIGHT_BYTES and so on say.  Of more than IG_METRICS_RANKS the first ones have
 * gauges. */
#define IG_METRICS_RANKS 64
struct ig_rank_bytes {
	uint64_t weights, scratch;
};
void ig_metrics_set_ranks(struct ig_metrics *m, const struct ig_rank_bytes *ranks, uint32_t n);
/* What was set last; returns n. */
uint32_t ig_metrics_ranks(const struct ig_metrics *m, struct ig_rank_bytes ranks[IG_METRICS_RANKS]);

enum ig_counter {
	IG_COUNTER_PREEMPTIONS, /* num_preemptions_total */
	IG_COUNTER_STANDSTILLS, /* of the engine's loop */
	IG_COUNTER_REFUSED,	/* requests refused with 503 */
	IG_COUNTER_LEDGER_DROPPED,
	IG_COUNTER_CONNECTIONS, /* accepted */
	IG_COUNTER_MODELS_UNLOADED,
	IG_COUNTER_MODEL_LOAD_FAILURES,
	IG_COUNTER_MEMORY_PRESSURE, /* the system said that it is short of memory */
	IG_COUNTER_RECLAIMED_BYTES, /* freed because of that */
	/* spec_decode_…; of each the next one is that of draft models, then of models' own heads
	 * (enum ig_draft_source) */
	IG_COUNTER_DRAFTS, /* num_drafts_total */
	IG_COUNTER_MODEL_DRAFTS,
	IG_COUNTER_MTP_DRAFTS,
	IG_COUNTER_DRAFT_TOKENS, /* num_draft_tokens_total */
	IG_COUNTER_MODEL_DRAFT_TOKENS,
	IG_COUNTER_MTP_DRAFT_TOKENS,
	IG_COUNTER_ACCEPTED_TOKENS, /* num_accepted_tokens_total */
	IG_COUNTER_MODEL_ACCEPTED_TOKENS,
	IG_COUNTER_MTP_ACCEPTED_TOKENS,
	IG_COUNTER_DRAFT_SAVED_NS, /* saved_seconds_total */
	IG_COUNTER_MODEL_DRAFT_SAVED_NS,
	IG_COUNTER_MTP_DRAFT_SAVED_NS,
	IG_COUNTER_DRAFT_SPENT_NS, /* spent_seconds_total */
	IG_COUNTER_MODEL_DRAFT_SPENT_NS,
	IG_COUNTER_MTP_DRAFT_SPENT_NS,
	IG_COUNTER_KV_SAVED_TOKENS, /* whose blocks were given to kvcache.disk */
	IG_COUNTER_KV_RESTORED_TOKENS,
	IG_N_COUNTERS,
};
void ig_metrics_add(struct ig_metrics *m, enum ig_counter c, uint64_t n);

/* Append the exposition text (version 0.0.4). */
void ig_metrics_write(const struct ig_metrics *m, struct ig_strbuf *out);
