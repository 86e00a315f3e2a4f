/*
 * instance_private.h: one model that was opened, from its file's path to a program that
 * steps are submitted to.
 */
#pragma once

#include "daemon/engine/backend_private.h"
#include "daemon/engine/model.h"
#include "runtime/plan.h"

#include <stdatomic.h>
#include <sys/queue.h>

struct ig_models;
struct ig_model_entry;

/* A step and the arrays it points at, sized from the limits; the engine's thread
 * writes them while the step is not under way. */
struct ig_step_buffer {
	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	int32_t *token_ids, *token_from, *positions, *row_seq; /* [max_rows] */
	int32_t *seq_lens;				       /* [max_seqs] */
	int32_t *logit_rows, *sampled_ids;		       /* [max_logit_rows] */
	struct ig_sample_params *sample;		       /* [max_logit_rows] */
	struct ig_logit_adjust *adjusts;		       /* [IG_MAX_STEP_ADJUSTS] */
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
	const struct ig_backend *backend;
	struct ig_models *home; /* its holds are counted there */
	char *name, *path, *arch;
	char *chat_error;
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

	/* ---- under ig_models.lock (registry_private.h) ---- */
	TAILQ_ENTRY(ig_model) all;
	struct ig_model_entry *entry; /* whose it is or was; NULL: of none that is configured */
	uint32_t n_holds;	      /* one is its entry's, while that points at it */
	int64_t idle_since_ns;	      /* when the last but its entry let go */

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
TAILQ_HEAD(ig_model_queue, ig_model);

/* Open a file, record and lower it: all figures are known but `need` and `chunk`, nothing
 * large is allocated.  *out has one hold, is in no list and has no home. */
int ig_model_open(const struct ig_backend *b, const char *name, const char *path, uint32_t context,
		  struct ig_model **out, struct ig_error *err);
/* Allocate and pack, and make its steps. */
int ig_model_load(struct ig_model *m, struct ig_error *err);
/* Free all but the shell that holders point at.  The engine's thread knows it no more. */
void ig_model_close(struct ig_model *m);
/* Which file is there now; zeros: none. */
void ig_file_id_of(const char *path, struct ig_file_id *out);

/* What the loader asks of the engine's thread, at a step's boundary. */
struct ig_change {
	struct ig_model *add, *remove; /* either may be NULL */
	/* The copies of logits from now on; afterwards those until now. */
	bool swaps_logits;
	float *logits[IG_STEPS_IN_FLIGHT];
	int rc;
	struct ig_error err;
	bool done; /* under the scheduler's lock */
};
