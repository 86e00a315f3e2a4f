/*
 * fake_runtime.h: a driver, models, a tokenizer, a ledger and metrics for the
 * engine's tests.  The fake model's next token is a hash of the sequence's tokens
 * as they are found in the cache through the block tables (or a test's script), so
 * a wrong table, position, slot or length changes what is generated, and most are
 * reported as such: see fake.n_errors.
 *
 * A model "file" is its path: "good", "good2" (other tokens), "groups" (two cache
 * groups), "window" (the second with a window), "state" (two groups of state), "nochat", "odd-template",
 * "notokenizer", "noarch", "heavy" (1 TiB of weights), "w7" (7 MiB of weights), "wide"
 * (many logits), "noload"; "texts" (no cache; its results are vectors); "small:KIND", which guesses the tokens of KIND, with a vocabulary of other
 * tokens if that is "strange", of fewer if it is "short", with a short context if it is "brief";
 * "mtp:KIND", KIND with a head that guesses; "head": a file with nothing but such a head.  Of an absolute path the file's first word says so.  Anything
 * else does not exist.  An adapter is any path without "bad" in it; its rows' tokens are those of
 * a file "FILE:N", of adapter N - 1, and their places in the cache are marked with it.
 */
#pragma once

#include "daemon/engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

#define FAKE_VOCAB 64
#define FAKE_LOGITS 100	      /* of a row: some more than there are tokens */
#define FAKE_WIDE_LOGITS 4000 /* of the model "wide" */
#define FAKE_N_TEXT 60	      /* ids below it are text */
#define FAKE_CONTROL 60
#define FAKE_CONTROL_TEXT "<call>"
#define FAKE_HALF_1 61	 /* the first two bytes of a euro sign */
#define FAKE_HALF_2 62	 /* its last byte */
#define FAKE_END 63	 /* ends a turn */
#define FAKE_RANKS 2	 /* over which a model may be divided */
#define FAKE_CONTEXT 512 /* as trained */
#define FAKE_WINDOW 40	 /* of the model "window" */
#define FAKE_BRIEF 100	 /* the context of the model "brief" */
#define FAKE_MAX_ROWS 4096
#define FAKE_COLUMNS 3 /* of a result of the model "texts", which has no cache */

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under the lock */
	bool gated;    /* a step waits in ig_program_wait until a test lets it go */
	int n_allowed; /* steps that the gate lets through */
	int n_waiting; /* steps that stand at the gate */
	struct ig_ledger_row rows[FAKE_MAX_ROWS];
	int n_rows;
	bool loads_gated; /* a load waits in ig_program_load */
	int n_loading;	  /* loads that are there */

	/* set before the engine starts */
	int32_t (*script)(const int32_t *tokens, int32_t n); /* NULL: a hash */
	/* The hash is of so many tokens before, of a few different ones, so that they soon repeat, with
	 * exceptions and now and then an end; 0: of all. */
	int32_t memory;
	bool penalizes;			  /* penalties and negative biases change what is sampled */
	int fail_submit_at, fail_wait_at; /* the number of the step from 1; 0: never */
	int fail_code;			  /* what they fail with; 0: -EIO */
	bool no_logits;			  /* the device has no memory for copies of them */
	/* Of a step, and of each of its rows; the driver says exactly that, however busy the machine is. */
	int delay_us, row_us;
	int said_row_us; /* that each of its rows is said to take, besides */
	/* Sees every step that is complete, and says what it took, in ns; in the engine's thread.  NULL: the
	 * above.  small: of a small model. */
	int64_t (*took)(const struct ig_step *step, bool small);
	int small_us;	       /* of a step of a small model, whatever its rows */
	int small_first_us;    /* that its first step takes besides */
	atomic_int misguesses; /* percent of a small model's guesses, or a head's, that are wrong */
	int guess_us;	       /* that each guess of a head takes */
	int prepare_ns;	       /* that every submit says it took for a recording */
	bool heads_refused;    /* the driver takes no heads */
	bool head_is_broken;   /* a plan with one can't be recorded */
	bool head_is_odd;      /* the same, lowered */
	bool takes_outside;    /* steps may have rows from outside (fake_outside.h) */
	atomic_int n_guesses;  /* of heads */
	atomic_int n_headless; /* steps of a model with a head that left it out */
	int unmap_us;	       /* that giving a slab back takes */
	int map_us;	       /* that one takes to get */
	int most_maps;	       /* slabs that the engine's thread got between two submits, at most */
	uint64_t driver_memory;	  /* that the driver says it has; 0: nothing */
	bool is_unified;	  /* that memory is the host's */
	uint32_t n_ranks;	  /* devices that a model is divided over; 0: one */
	_Atomic uint64_t reserve; /* bytes of slabs that the driver keeps */
	/* The engine is told, as by ig_driver_watch_memory. */
	void (*on_memory)(void *ctx, uint64_t n_bytes);
	void *memory_ctx;
	uint32_t split_rows; /* that the driver says; 0: it does not know */
	/* Nothing is read from the cache: the next token is the script's, which sees only the number of tokens, or
	 * 0; for timing the scheduler, and for long texts. */
	bool no_compute;
	uint32_t n_context; /* as trained, with no_compute; 0: FAKE_CONTEXT */

	atomic_uint k_dtype, v_dtype; /* of the cache of the model that was lowered last */
	atomic_int n_errors;	      /* breaches of the contract */
	char error[200];	      /* the first */
	atomic_int n_steps, n_mapped, n_lost;
	atomic_int max_rows_seen, max_seqs_seen, max_in_flight;
	atomic_int n_requests, n_itl, n_step_metrics, n_prefill_rows, n_decode_rows;
	/* n_decode_rows before the first step with rows of prompts since it was set to -1, and before
	 * the last such step */
	atomic_int n_decode_before, n_decode_until;
	_Atomic double gauges[IG_N_GAUGES];
	struct ig_rank_bytes ranks[FAKE_RANKS]; /* as the engine says, under the lock */
	uint32_t n_rank_gauges;
	atomic_int counters[IG_N_COUNTERS];
	atomic_int n_sampled, n_seen; /* of the penalties of the row sampled last */
	_Atomic float bias;
	_Atomic uint64_t pulse;	   /* that the driver gives */
	atomic_int n_restored;	   /* blocks that were written from the host */
	atomic_int fail_write_at;  /* the number of that write from 1; 0: never */
	_Atomic int64_t driver_ns; /* time spent in submit and wait */
	/* Time of the engine's thread outside of them since the first: of the processor, by the clock. */
	_Atomic int64_t engine_cpu_ns, engine_wall_ns;
	atomic_int n_allocations; /* by the engine's thread, between a wait and a submit */
	/* So many allocations from now on, one fails: of the engine's thread between a wait and
	 * a submit, of any thread.  0: none, or that was it. */
	atomic_long fail_engine_at, fail_any_at;
	atomic_int n_models_stepped[2]; /* steps of "good", "good2" */
	atomic_int n_small_steps, n_small_rows;
	atomic_int fail_small_at;   /* the number of a step of a small model from 1; 0: never */
	atomic_int n_grammars;	    /* that live */
	atomic_int n_masked;	    /* rows sampled under a mask */
	atomic_int n_opens, n_open; /* of files, in all and now */
	atomic_int n_programs;	    /* that are loaded */
	atomic_bool fail_load;
	atomic_int n_dropped;	  /* tokenizers that were dropped from the cache of grammars */
	atomic_int n_loads;	  /* of models, by the metrics */
	atomic_int n_logit_steps; /* steps whose logits were wanted */
};
extern struct fake fake;

void fake_reset(void);
/* Of this thread's allocations, the one after n fails (not without WRAP_MALLOC). */
void fake_fail_here(long n);
/* Whether it did; none will. */
bool fake_failed_here(void);
/* fail_any_at passes over this thread's allocations. */
void fake_spare_here(bool spare);
/* Let n more steps through the gate. */
void fake_allow(int n);
/* Wait until a step stands at the gate. */
void fake_wait_at_gate(void);
/* A gate for loads, or none; wait until one stands at it. */
void fake_gate_loads(bool gated);
void fake_wait_for_load(void);
/* No gate from now on; one again. */
void fake_open_gate(void);
void fake_close_gate(void);
/* The text of a token. */
const char *fake_token_text(int32_t id);
/* What the fake model samples after these tokens. */
void fake_vector(const int32_t *tokens, const int32_t *types, int32_t n, float out[FAKE_COLUMNS]);
int32_t fake_next(const char *model, const int32_t *tokens, int32_t n, uint64_t seed);

/* The row of logits after these tokens; sampling does not depend on it. */
void fake_logits(const int32_t *tokens, int32_t n, float *out); /* [FAKE_LOGITS] */

/* A grammar: its i-th token is one whose remainder is that of i; after n_tokens comes the
 * end token, or, if it closes, nothing. */
struct fake_grammar {
	int n_tokens, modulus;
	bool closes;
	bool allows_none; /* a mask without a bit */
};
struct ig_grammar *fake_grammar(const struct fake_grammar *rules);
bool fake_grammar_allows(const struct fake_grammar *rules, int i, int32_t id);
