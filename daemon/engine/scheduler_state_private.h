/*
 * scheduler_state_private.h: the scheduler's state, which admission.c, rounds.c, step.c, loop.c and
 * their neighbours share; opaque to all others (scheduler_private.h).  One lock guards what other
 * threads and the engine's thread both touch: the inbox, the list of all sequences, requests to cancel or resume, the
 * options, the published figures.  Everything else belongs to the engine's thread.  No callback (a
 * stream's wake, the ledger) is called with the lock held.
 */
#pragma once

#include "daemon/engine/clients_private.h"
#include "daemon/engine/kv_disk_private.h"
#include "daemon/engine/pace_private.h"
#include "daemon/engine/prompts_private.h"
#include "daemon/engine/scheduler_private.h"
#include "daemon/engine/sequence_private.h"

#include <pthread.h>

/* Lists of the table of sequences by their numbers, a power of two. */
#define IG_SEQ_TABLE 1024

/* The options that a reload may change. */
struct ig_sched_options {
	uint32_t prefill_chunk, max_queue, max_output_tokens;
	double prompt_share; /* a part of 1 */
	int64_t slow_client_timeout_ns;
	bool looks_up, drafts, guesses; /* guesses by lookup.c, by draft_model.c, by mtp.c */
};

/* A step in flight and its sequences. */
struct ig_flight {
	struct ig_model *model;
	struct ig_step_buffer *buffer;
	struct ig_flight_seq {
		struct ig_seq *seq;
		int32_t n_rows, n_draft; /* n_draft: the last of them */
		enum ig_draft_source draft_source;
		int32_t logit_index; /* of the first of 1 + n_draft; -1: no logits */
		int32_t guess_index; /* of the guess behind the first of them; -1: no guesses */
		int32_t n_texts;     /* results, of a model without a cache */
	} *seqs;		     /* [max_seqs], by row_seq */
	uint32_t n_seqs;
	uint32_t n_prefill, n_decode,
		n_long;		 /* rows; n_long: of long prompts, a part of n_prefill */
	uint32_t n_drafts;	 /* rows of drafts, and again after them, not counted above */
	uint32_t n_model_drafts; /* of them: of the draft model */
	double draft_ns;	 /* that it took for them */
	uint32_t n_guesses;	 /* by the model's head */
	bool disturbed; /* a step of a draft model ran meanwhile, or a later step was prepared */
	/* once it is complete: what a step without drafts takes, and what each row of one did, by source */
	double quiet_ns, draft_row_ns[IG_DRAFT_SOURCES];
	bool limited; /* planned beside streams (pace_private.h) */
};

struct ig_sched {
	const struct ig_backend *b;
	void (*device_lost)(void *ctx); /* NULL: not wanted, or called already */
	void *device_lost_ctx;
	void (*on_short)(void *ctx, uint64_t n_bytes); /* NULL: not wanted */
	void *short_ctx;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_cond_t changed; /* a change was made */

	/* ---- under the lock ---- */
	struct ig_change *change; /* to be made; NULL: none */
	bool events;		  /* something below changed: do not sleep */
	bool draining, stopping;
	struct ig_seq_list to_end; /* by ig_seq.to_end: cancelled or displaced */
	bool pressed;		   /* the system is short of n_pressed bytes, or no longer is: 0 */
	uint64_t n_pressed;
	uint64_t last_number;
	struct ig_seq_list inbox;	       /* by ig_seq.link */
	struct ig_seq_list all;		       /* by ig_seq.all; figures.n_all of them */
	struct ig_seq *numbered[IG_SEQ_TABLE]; /* the same, by their numbers */
	uint32_t n_inbox;     /* in the inbox, or taken from it since the last boundary */
	uint32_t n_displaced; /* of those that wait, also since then */
	struct ig_sched_options options;
	struct ig_sched_figures figures;
	uint32_t n_free;		   /* sequences that could be admitted at once */
	uint64_t n_boundaries, seen_pulse; /* for ig_sched_is_alive */

	/* ---- the engine's thread ---- */
	struct ig_sched_options now;	     /* a copy of options */
	struct ig_seq_list waiting, running; /* by link, oldest first */
	struct ig_seq_list ended;  /* by link: the rest of their text waits for space in the ring */
	struct ig_seq_list show;   /* by show_link: has text to pass on */
	struct ig_seq_list paused; /* by paused_link, the first that was paused first */
	struct ig_seq *prompts_first;  /* that run, by next_prompt; during an admission */
	struct ig_client_list clients; /* of all sequences */
	uint32_t n_waiting, n_running; /* n_running: paused ones are not counted */
	uint32_t n_paused, n_holding;  /* that hold blocks */
	int64_t first_deadline_ns;     /* none is earlier; INT64_MAX: there is none */
	uint32_t n_adjusts;	       /* sum of max_adjusts of the running sequences */
	bool kv_freed;		       /* since admission last ran out of blocks */
	bool kv_blocked;	       /* admission ran out of blocks */
	bool moved;		       /* something ended or was preempted: do not sleep */
	uint64_t n_moves, seen_moves;  /* standstill.c */
	uint32_t n_still;	       /* turns since the last of them */
	struct ig_flight flights[IG_STEPS_IN_FLIGHT]; /* oldest first */
	uint32_t n_flights;
	struct ig_pace_account pace;
	int32_t long_rows;    /* of long prompts that the round being planned still has */
	bool held_back;	      /* a round gave long prompts none, for streams that are owed time */
	uint64_t n_submitted; /* steps, which use the copies of logits in rotation */
	/* [max_logit_rows, n_logits] of any model that gives them */
	float *logits[IG_STEPS_IN_FLIGHT];
	bool must_preempt;		/* a step must preempt, and waits until none is in flight */
	struct ig_model_queue rotation; /* models in round-robin order, the next one first */
	bool holds_back;		/* no step starts before a change is made */
	struct ig_prompts prompts;	/* what recent requests said */
	struct ig_grammar_matcher *ahead; /* reads drafts; a copy of one sequence's */
	struct ig_seq **drafting;	  /* [max_seqs]: in a step of a draft model */
	double draft_ns;		  /* that draft models took since the last step was built */
	struct ig_kv_disk disk;
	/* Bytes to be freed for the system; of them unmapped, but perhaps kept by the driver. */
	uint64_t to_free, unmapped;
};

/* How many sequences could be admitted at the next boundary. */
static inline uint32_t ig_sched_n_free(const struct ig_sched *sch)
{
	return sch->kv_blocked || sch->n_running > sch->b->max_seqs ?
		       0 :
		       sch->b->max_seqs - sch->n_running;
}
