/* instance_private.h: one opened model, from its file's path to a program that steps are
 * submitted to. */
#pragma once

#include "daemon/engine/backend_private.h"
#include "daemon/engine/guess_count_private.h"
#include "daemon/engine/model.h"
#include "daemon/engine/pace_private.h"
#include "runtime/plan.h"

#include <stdatomic.h>
#include <sys/queue.h>

struct ig_models;
struct ig_model_entry;

/* A step and the arrays that it points at, sized by the limits; the engine's thread
 * writes them while the step is not in flight. */
struct ig_step_buffer {
	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	int32_t *token_ids, *token_from, *positions, *row_seq; /* [max_rows] */
	int32_t *row_adapter, *row_types;		       /* the same */
	float *results;	   /* [max_logit_rows, n_logits], of a model without a cache */
	int32_t *seq_lens; /* [max_seqs] */
	int32_t *logit_rows, *sampled_ids; /* [max_logit_rows] */
	/* of a model that takes rows from outside */
	const float **outside;		   /* [max_rows] */
	int32_t *rope_positions, *sees_to; /* [max_rows, IG_ROPE_AXES], [max_rows] */
	/* of a model with a head that guesses */
	int32_t *next_ids;			     /* [max_rows] */
	int32_t *guess_rows, *guessed_ids;	     /* [max_logit_rows] */
	struct ig_sample_params *sample;	     /* [max_logit_rows] */
	struct ig_logit_adjust *adjusts;	     /* [IG_MAX_STEP_ADJUSTS] */
	uint32_t *masks;			     /* [max_logit_rows, mask_words] */
	uint32_t *block_tables[IG_MAX_CACHE_GROUPS]; /* [max_seqs, max_blocks] */
	/* Of a model with state, whose tables have a row for each state: [max_segments]. */
	struct ig_step_segment *segments;
};

/* The most segments of a step, and states that they read and write. */
static inline size_t ig_max_segments(const struct ig_program_limits *l)
{
	return (size_t)l->max_seqs * IG_KV_MAX_SEGMENTS;
}
static inline size_t ig_max_states(const struct ig_program_limits *l)
{
	return ig_max_segments(l) + l->max_seqs;
}

/* Identifies a file, to notice when another replaces it. */
struct ig_file_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns;
	uint64_t files; /* of a folder: of the files in it */
};

/* An adapter of an entry, or of an instance. */
struct ig_model_adapter {
	char *name, *path;
	uint32_t scale_percent;
	struct ig_file_id file_id; /* of an instance: when it was opened */
};

/* What a model takes of the memory contract, in bytes. */
struct ig_need {
	uint64_t weights, scratch;
	uint64_t draft;	 /* of the weights: its draft model's */
	uint64_t logits; /* all copies of its steps' logits; models share them */
	uint64_t least;	 /* the smallest arena that serves it */
};

/* What is known of the draft model's guesses, of all sequences together. */
struct ig_draft_record {
	struct ig_guess_count count;
	uint32_t n_idle, probe_after; /* tokens without such a draft; so many, then one is tried */
	uint32_t n_ready; /* sequences that could have one, when a round was last planned */
};

/* The same of its own head's (mtp.c). */
struct ig_mtp_record {
	struct ig_guess_count count;
	uint32_t n_seen;   /* guesses whose token came */
	uint32_t n_passed; /* sequences that began while all guesses were hopeless */
};

/* What an entry of the configuration says of its instances. */
struct ig_model_wants {
	uint32_t context;	   /* 0: as the model was trained */
	uint32_t k_dtype, v_dtype; /* IG_DTYPE_NONE: those of kvcache.dtype */
};

/* A draft model of an entry, or of an instance: it guesses that model's tokens (draft_model.c). */
struct ig_model_draft {
	char *path; /* NULL: none */
	struct ig_file_id file_id;
};

/* One opened model, an instance.  Immutable once requests can get it, but for its steps. */
struct ig_model {
	struct ig_engine_model shown; /* first: the protocol holds a pointer to it */
	const struct ig_backend *backend;
	struct ig_models *home; /* which counts its references */
	char *name, *path, *arch;
	char *chat_error;
	struct ig_rerank_template *rerank; /* of a reranker; or NULL */
	struct ig_model_wants wants;
	struct ig_model_adapter *adapters; /* [n_adapters] */
	uint32_t n_adapters;
	struct ig_engine_model *adapted;  /* [n_adapters]: what requests for each get */
	struct ig_kv_name *adapter_names; /* [n_adapters]: of their matrices, for the cache */
	struct ig_model *draft; /* its draft model, loaded with it and in no list; NULL: none */
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
	bool has_state;		/* some of its groups are of state */
	bool has_mtp;		/* its plan has a head that guesses */
	bool head_named;	/* its draft is a file with a head that guesses */
	uint32_t window;	/* the widest of its groups' windows; 0: no group has one */
	uint32_t chunk;		/* maximum rows of one sequence in a step, when it was opened */
	uint32_t max_kv_tokens; /* of one sequence that is alone in the arena */
	bool whole_texts;	/* it has no cache: a step has whole texts (texts.c) */
	uint32_t n_logits;	/* of one row: the vocabulary and the file's padding, or a vector */
	uint32_t mask_words;	/* of one row */
	uint32_t split_rows;	/* a step with as many ends, although its round goes on */
	struct ig_kv_name kv_name; /* of what its blocks' bytes depend on */
	bool gives_logits;	   /* there is memory for copies of them */
	atomic_uint n_active;	   /* requests that run or wait */

	/* ---- under ig_models.lock (registry_private.h) ---- */
	TAILQ_ENTRY(ig_model) all;
	struct ig_model_entry *entry; /* its entry, now or before; NULL: no longer configured */
	uint32_t n_holds;	      /* references; one is its entry's, while that points at it */
	int64_t idle_since_ns;	      /* since when only its entry holds it */

	/* ---- the engine's thread ---- */
	TAILQ_ENTRY(ig_model) rotation;
	bool in_rotation;
	uint32_t kv_groups[IG_MAX_CACHE_GROUPS];
	uint32_t n_groups_added;
	/* Step buffers, used in rotation. */
	struct ig_step_buffer steps[IG_STEPS_IN_FLIGHT];
	uint32_t next_step;
	uint32_t max_blocks;
	uint64_t round; /* the number of its round (rounds.c) */
	bool limited;	/* that was planned beside streams */
	struct ig_pace pace;
	struct ig_kv_rate rate;	       /* zeros: not known yet (kv_restore.c) */
	uint32_t n_not_restored;       /* prompts, because files were slower */
	uint32_t n_streams;	       /* while a round is planned */
	uint32_t n_limited;	       /* rounds beside streams that had rows of long prompts */
	uint32_t n_holding_rounds;     /* that had not all streams (clients.c) */
	uint32_t n_draft_rounds;       /* that could have drafts (speculate.c) */
	struct ig_draft_record record; /* of its draft model (draft_model.c) */
	struct ig_mtp_record mtp;      /* of its head that guesses (mtp.c) */
};
TAILQ_HEAD(ig_model_queue, ig_model);

/* Open a file, record and lower it: all figures are known but `need` and `chunk`, nothing
 * large is allocated.  *out has one reference, is in no list and has no home. */
struct ig_model_spec {
	const char *name, *path;
	struct ig_model_wants wants;
	const struct ig_model_adapter *adapters;
	uint32_t n_adapters;
	const char *draft;	      /* the path of its draft model; NULL: none */
	const struct ig_model *owner; /* it is that one's draft model; NULL: it is none */
};
int ig_model_open(const struct ig_backend *b, const struct ig_model_spec *spec,
		  struct ig_model **out, struct ig_error *err);
/* Copies of adapters' names and paths; NULL: out of memory. */
struct ig_model_adapter *ig_model_adapters_copy(const struct ig_model_adapter *a, uint32_t n);
void ig_model_adapters_free(struct ig_model_adapter *a, uint32_t n);
/* What distinguishes the prefixes that a request may share: whose they are, and of which adapter. */
uint64_t ig_model_salt(const struct ig_engine_model *m, uint64_t identity);
/* Allocate everything that a step needs, by the limits (step_buffer.c); after an error too, it is to be freed. */
int ig_step_buffer_make(const struct ig_model *m, struct ig_step_buffer *b, struct ig_error *err);
void ig_step_buffer_free(struct ig_step_buffer *b);
/* Allocate and pack, and make its steps. */
int ig_model_load(struct ig_model *m, struct ig_error *err);
/* Free all but the struct that holders point at.  The engine's thread no longer uses it. */
void ig_model_close(struct ig_model *m);
/* Free the struct, which nobody holds. */
void ig_model_free(struct ig_model *m);
/* What the opened file shows (traits.c), with the style that is known already. */
void ig_model_traits_of(const struct ig_model *m, struct ig_model_traits *out);
/* The file at path now; zeros: none. */
void ig_file_id_of(const char *path, struct ig_file_id *out);

/* A change that the engine's thread makes for the loader, at a step's boundary. */
struct ig_change {
	struct ig_model *add, *remove; /* either may be NULL */
	/* The new copies of logits; afterwards the old ones. */
	bool swaps_logits;
	float *logits[IG_STEPS_IN_FLIGHT];
	int rc;
	struct ig_error err;
	bool done; /* under the scheduler's lock */
};
