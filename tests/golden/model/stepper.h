/*
 * stepper.h: a model run step by step without the daemon, for the model tests and the
 * bench: file, modules, plan, driver, program, and a plain paged cache.
 *
 * The cache here is not the kvcache service but a few slabs whose blocks are handed out
 * in shuffled order, so that nothing can rely on blocks that happen to be neighbours.
 * A step is built sequence by sequence and run; then its logits and sampled ids are read.
 * One thread; nothing is allocated between open and close but in ig_stepper_add.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "runtime/plan.h"

#include <stdbool.h>

/* A model's file and its plan; several steppers may share it. */
struct ig_stepper_model {
	struct ig_checkpoint *file;
	struct ig_modules *modules;
	struct ig_plan *plan;
	/* If plan is the first stage of several (runtime/stages.h), the others': each has a cache of its
	 * own, and a step runs one after the other.  Not owned. */
	struct ig_plan *const *later; /* [n_later] */
	uint32_t n_later;	      /* at most IG_STEPPER_LATER */
};
#define IG_STEPPER_LATER 3

/* Modules come from the folders of module_path (separated by ':'); NULL: the
 * environment's INGOT_MODULE_PATH, else the build's own. */
int ig_stepper_model_open(struct ig_stepper_model *m, const char *path, const char *module_path,
			  struct ig_error *err);
/* The same with the head that guesses, if the file has one: then each draw has a guess. */
int ig_stepper_model_open_mtp(struct ig_stepper_model *m, const char *path, const char *module_path,
			      struct ig_error *err);
void ig_stepper_model_close(struct ig_stepper_model *m); /* zeros are fine */

/* Whether a kernel of this instruction set, not of one that it includes, fits any of the model's ops
 * and weights.  If none does, "avx512_bf16", say, runs the same kernels as "avx512": bfloat16 has
 * kernels of its own, other formats have not. */
bool ig_stepper_isa_matters(const struct ig_stepper_model *m, const char *isa);

struct ig_stepper_options {
	struct ig_driver *opened; /* taken, in place of one that is opened; NULL: none */
	const char *driver;	  /* NULL: the environment's INGOT_TEST_DRIVER, else cpu */
	uint32_t
		n_devices; /* from number 0 on; 0: the environment's INGOT_TEST_DEVICES, else one */
	const char *isa;   /* NULL: auto */
	const char *activations;     /* NULL: auto */
	const char *experts;	     /* NULL: packed */
	const char *repack;	     /* NULL: auto */
	const char *tensor_units;    /* NULL: auto */
	const char *packed;	     /* a file for a copy of the packed weights; NULL: none */
	uint32_t n_threads;	     /* 0: as many as there are processors */
	uint32_t k_dtype, v_dtype;   /* IG_F16, IG_F32, IG_Q8_0 */
	uint32_t max_rows, max_seqs; /* of one step */
	uint32_t max_context;	     /* tokens of one sequence */
	uint64_t cache_tokens;	     /* of all sequences, each in whole blocks */
	uint64_t shuffle;	     /* seed of the blocks' order */
	bool keep_all;		     /* groups with a window too */
};

struct ig_stepper;

/* The driver of which INGOT_TEST_DRIVER has the name; without it "cpu". */
const char *ig_stepper_driver(void);
/* That is another one than cpu, which alone has instruction sets. */
bool ig_stepper_on_gpu(void);

int ig_stepper_open(const struct ig_stepper_model *m, const struct ig_stepper_options *o,
		    struct ig_stepper **out, struct ig_error *err);
void ig_stepper_close(struct ig_stepper *s); /* NULL is fine */
const char *ig_stepper_describe(const struct ig_stepper *s);
uint64_t ig_stepper_weight_bytes(const struct ig_stepper *s); /* packed */
uint64_t ig_stepper_scratch_bytes(const struct ig_stepper *s);
bool ig_stepper_is_mapped(const struct ig_stepper *s); /* the packed weights are a file's */
/* The driver's pulse: the cpu driver counts the phases that it opens for all threads. */
uint64_t ig_stepper_pulse(const struct ig_stepper *s);
uint32_t ig_stepper_n_vocab(const struct ig_stepper *s);

/* A new sequence of up to max_tokens: its number, or -ENOSPC, -ENOMEM, or -EINVAL past
 * max_context. */
int ig_stepper_add(struct ig_stepper *s, uint32_t max_tokens);
/* The rows that the sequence is fed next, but for the first n, are guesses: recurrent layers leave the state before
 * them.  n is less than those rows. */
void ig_stepper_checkpoint(struct ig_stepper *s, int seq, int32_t n);
/* Forget all but the sequence's first n_tokens, keep their blocks.  What a window has left
 * behind by then does not come back: it is read as anything.  With recurrent layers only where the last checkpoint is,
 * before any more rows. */
void ig_stepper_rewind(struct ig_stepper *s, int seq, int32_t n_tokens);
/* All sequences are gone; the blocks are shuffled anew. */
void ig_stepper_reset(struct ig_stepper *s);
/* The most blocks of a cache group that all sequences had at once since then. */
uint32_t ig_stepper_most_blocks(const struct ig_stepper *s, uint32_t group);
/* The sequence has this adapter of the plan from now on; -1: none. */
void ig_stepper_adapt(struct ig_stepper *s, int seq, int32_t adapter);
/* Tokens that the sequence has been fed. */
int32_t ig_stepper_length(const struct ig_stepper *s, int seq);

/* Feed the sequence n more tokens in the coming step; at most once a step.  With draw,
 * a token is sampled by it from the last one's logits (its position is filled in).
 * Returns the index of that sample, 0 without one, or -ENOSPC, -EINVAL past a limit. */
int ig_stepper_put(struct ig_stepper *s, int seq, const int32_t *ids, int32_t n,
		   const struct ig_sample_params *draw);
/* The same with a sample for each of the n tokens; returns the index of the first.  A step has at
 * most max_seqs samples. */
int ig_stepper_put_draft(struct ig_stepper *s, int seq, const int32_t *ids, int32_t n,
			 const struct ig_sample_params *draw);
/* What follows the tokens put last, without a draw, for the head that guesses; else it reads token 0. */
void ig_stepper_say_next(struct ig_stepper *s, int32_t id);
/* The step that was put does without that head. */
void ig_stepper_leave_out_head(struct ig_stepper *s);
/* Row i of the tokens put last is no token's: its embedding (NULL: it is the token's), what RoPE turns it by, and so
 * many rows behind it that it sees.  row must live until the step has run. */
void ig_stepper_say_outside(struct ig_stepper *s, int32_t i, const float *row,
			    const int32_t turned[IG_ROPE_AXES], int32_t ahead);
/* Run the step.  The draws are readable until the next put. */
int ig_stepper_run(struct ig_stepper *s, bool want_logits);
int32_t ig_stepper_sampled(const struct ig_stepper *s, int draw);
const float *ig_stepper_logits(const struct ig_stepper *s, int draw); /* [n_vocab] */

/* What the head guesses behind the token of that draw, and by which logits. */
int32_t ig_stepper_guessed(const struct ig_stepper *s, int draw);
const float *ig_stepper_guess_logits(const struct ig_stepper *s, int draw); /* [n_vocab] */

/* The largest logit. */
extern const struct ig_sample_params ig_stepper_greedy;
