/*
 * engine_private.h: what the files of the engine share.
 *
 * One lock (ig_engine.lock) guards what other threads and the engine's thread
 * both touch: the inbox, the list of all sequences, wishes to cancel or resume,
 * the options, the published figures.  Everything else of the scheduler belongs
 * to the engine's thread.  No callback (a stream's wake, the ledger) is ever
 * called with the lock held.
 */
#ifndef INGOT_ENGINE_ENGINE_PRIVATE_H
#define INGOT_ENGINE_ENGINE_PRIVATE_H

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "daemon/engine/engine.h"
#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "runtime/plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

struct ig_seq;	/* sequence_private.h */
struct ig_slot; /* models_private.h */
struct ig_models;
TAILQ_HEAD(ig_seq_list, ig_seq);

/* ---- models.c ------------------------------------------------------------------ */

/* A step and the arrays it points at, sized from the limits; the engine's thread
 * writes them while the step is not under way. */
struct ig_step_buffer {
	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	int32_t *token_ids, *token_from, *positions, *row_seq; /* [max_rows] */
	int32_t *seq_lens;				       /* [max_seqs] */
	int32_t *logit_rows, *sampled_ids;		       /* [max_logit_rows] */
	struct ig_sample_params *sample;		       /* [max_logit_rows] */
	struct ig_logit_edit *edits;			       /* [IG_MAX_STEP_EDITS] */
	uint32_t *masks;				       /* [max_logit_rows, mask_words] */
	uint32_t *block_tables[IG_MAX_CACHE_GROUPS];	       /* [max_seqs, max_blocks] */
};

/* What tells a file from another that is put in its place. */
struct ig_file_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns;
	uint64_t files; /* of a folder: those in it */
};

/* What a model takes of the memory contract, in bytes. */
struct ig_need {
	uint64_t weights, scratch;
	uint64_t logits; /* all copies of its steps' logits, which models share */
	uint64_t least;	 /* the smallest arena that serves it */
};

/* One model that was opened, an instance.  Immutable once requests are given it, but for
 * its steps. */
struct ig_model {
	struct ig_engine_model shown; /* first: what the protocol holds a pointer to */
	struct ig_engine *engine;
	struct ig_models *home;
	char *name, *path, *arch;
	char *chat_note;
	uint32_t wanted_context; /* of its entry in the configuration */
	struct ig_file_id file_id;
	struct ig_checkpoint *file;
	struct ig_tokenizer *tokenizer;
	struct ig_chat_template *chat;
	struct ig_plan *plan;
	struct ig_program *program;
	struct ig_program_limits limits;
	struct ig_program_memory memory;
	struct ig_need need;
	uint32_t n_groups;
	struct ig_kv_layout layouts[IG_MAX_CACHE_GROUPS];
	uint32_t window;	/* the widest of its groups' windows; 0: they keep all positions */
	uint32_t chunk;		/* the most rows of one sequence in a step, when it was opened */
	uint32_t max_kv_tokens; /* of one sequence that has the arena for itself */
	uint32_t n_logits;	/* of one row: the vocabulary, with what pads it in the file */
	uint32_t mask_words;	/* of one row */
	bool gives_logits;	/* there is room for copies of them */
	atomic_uint n_active;	/* requests that run or wait */

	/* ---- under ig_models.lock ---- */
	TAILQ_ENTRY(ig_model) all;
	struct ig_slot *slot;  /* whose it is or was; NULL: of none that is configured */
	uint32_t n_holds;      /* one is its slot's, while that points at it */
	int64_t idle_since_ns; /* when the last but its slot let go */

	/* ---- the engine's thread ---- */
	TAILQ_ENTRY(ig_model) turn;
	bool takes_turns;
	uint32_t kv_groups[IG_MAX_CACHE_GROUPS];
	uint32_t n_groups_added;
	/* Step buffers, used in turns. */
	struct ig_step_buffer steps[IG_STEPS_IN_FLIGHT];
	uint32_t next_step;
	uint32_t max_blocks;
};
TAILQ_HEAD(ig_turns, ig_model);

/* Open all models of the configuration, load those that load at start, make the cache; e
 * has its models from the first moment on, also on an error. */
int ig_models_create(struct ig_engine *e, const struct ig_config *config, struct ig_error *err);
/* Start the loader's thread. */
int ig_models_start(struct ig_models *ms, struct ig_error *err);
/* Nobody is given one any more; who waits for one is told. */
void ig_models_drain(struct ig_models *ms);
/* And the loader's thread ends; the engine's thread still runs. */
void ig_models_stop(struct ig_models *ms);
/* Free all but what somebody still holds. */
void ig_models_destroy(struct ig_models *ms);
/* Main's thread. */
void ig_models_reload(struct ig_models *ms, const struct ig_config *config);
void ig_models_describe(struct ig_models *ms, struct ig_strbuf *out);
/* Of describe: budget, weights, scratch, arena. */
void ig_models_sums(struct ig_models *ms, uint64_t out[4]);

/* What the loader asks of the engine's thread, at a step's boundary. */
struct ig_change {
	struct ig_model *add, *remove; /* either may be NULL */
	/* The copies of logits from now on; afterwards those until now. */
	bool swaps_logits;
	float *logits[IG_STEPS_IN_FLIGHT];
	int rc;
	struct ig_error err;
	bool done; /* under the engine's lock */
};

/* ---- prep.c -------------------------------------------------------------------- */

struct ig_prep;
int ig_prep_create(struct ig_prep **out, struct ig_error *err);
/* 0, -EAGAIN when 256 jobs wait, -ESHUTDOWN once it is being destroyed. */
int ig_prep_run(struct ig_prep *p, void (*fn)(void *ctx), void *ctx);
/* Runs what is queued, then stops.  NULL is fine. */
void ig_prep_destroy(struct ig_prep *p);

/* ---- the engine ---------------------------------------------------------------- */

/* The options that a reload may change. */
struct ig_engine_options {
	uint32_t prefill_chunk, max_queue, max_output_tokens;
	int64_t slow_client_timeout_ns;
};

/* A step under way, and whom it computes for. */
struct ig_flight {
	struct ig_model *model;
	struct ig_step_buffer *buffer;
	struct ig_flight_seq {
		struct ig_seq *seq;
		int32_t n_rows, logit_index; /* -1: no logits */
	} *seqs;			     /* [max_seqs], by row_seq */
	uint32_t n_seqs;
	uint32_t n_prefill, n_decode; /* rows */
	int64_t submit_ns;
};

struct ig_engine {
	struct ig_ledger *ledger;
	struct ig_metrics *metrics;
	void (*device_lost)(void *ctx); /* NULL: not wanted, or called already */
	void *device_lost_ctx;
	struct ig_modules *modules;
	struct ig_driver *driver;
	const struct ig_kvcache_service *kv;
	struct ig_kvcache *cache;
	uint32_t kv_dtype, max_slabs; /* of the cache */
	bool prefix_cache;
	struct ig_grammar_cache *grammars;
	struct ig_models *models;
	uint32_t max_seqs, max_rows; /* the limits that the programs were lowered with */
	struct ig_prep *prep;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_cond_t changed; /* a change was made */

	/* ---- under the lock ---- */
	struct ig_change *change; /* that is asked for; NULL: none */
	bool events;		  /* something below changed: look before sleeping */
	bool draining, stopping, cancels;
	uint64_t last_number;
	struct ig_seq_list inbox; /* by ig_seq.link */
	struct ig_seq_list all;	  /* by ig_seq.all */
	uint32_t n_all;
	uint32_t n_inbox; /* of the inbox, and those that left it since the last boundary */
	struct ig_engine_options options;
	/* published at each step's boundary */
	struct ig_kv_stats kv_stats;
	uint32_t n_waiting_shown, n_running_shown, n_paused_shown;
	uint32_t n_slots; /* running sequences that could join at once */

	/* ---- the engine's thread ---- */
	struct ig_engine_options now;	     /* a copy of options */
	struct ig_seq_list waiting, running; /* by link, oldest first */
	struct ig_seq_list ended;      /* by link: what is left of their text waits for room */
	struct ig_seq_list show;       /* by show_link: has text or progress to pass on */
	uint32_t n_waiting, n_running; /* n_running: paused ones are not counted */
	uint32_t n_paused, n_holding;  /* that hold blocks */
	uint32_t n_edits; /* most edits of logits that the running sequences may have */
	bool kv_freed;	  /* since admission last ran out of blocks */
	bool kv_blocked;  /* admission ran out of blocks */
	bool moved;	  /* something ended or was preempted: look again before sleeping */
	struct ig_flight flights[IG_STEPS_IN_FLIGHT]; /* oldest first */
	uint32_t n_flights;
	uint32_t max_flights; /* 2: a step starts before the one before it is read */
	uint64_t n_submitted; /* steps: they take turns with the copies of logits */
	float *logits
		[IG_STEPS_IN_FLIGHT]; /* [max_logit_rows, n_logits] of any model that gives them */
	uint64_t step;		      /* number of the step being built */
	bool wants_room;       /* a step was put off until nothing is under way: it must preempt */
	int64_t landed_ns;     /* when the last step was done */
	struct ig_turns turns; /* models by turn, the one whose turn it is first */
	bool holds_back;       /* no step begins before a change is made */
};

/* ---- engine.c ------------------------------------------------------------------ */

/* A lock and a condition that can be waited for until a time of ig_now_ns. */
int ig_lock_init(pthread_mutex_t *lock, pthread_cond_t *cond);
/* Until the condition is signalled or the time has come (INT64_MAX: never); or sooner. */
void ig_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns);
/* A finished or refused request's row, to the ledger and the metrics. */
void ig_engine_note(struct ig_engine *e, const struct ig_ledger_row *row);

/* ---- scheduler.c --------------------------------------------------------------- */

/* The engine's thread; arg is the engine. */
void *ig_scheduler_main(void *arg);
/* That thread, or another while there is none and no step is under way that the change
 * touches. */
void ig_scheduler_change(struct ig_engine *e, struct ig_change *c);

#endif
