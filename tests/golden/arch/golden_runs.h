/*
 * golden_runs.h: a tiny random model against the golden of its architecture, which make.py made: the ways of running it
 * that have the same bits.  For cmocka's tests, which fail in here.
 */
#pragma once

#include "tests/golden/model/stepper.h"

#include <stdbool.h>
#include <stdint.h>

#define N_PROMPTS 2
#define N_STEPS 8
#define MAX_PROMPT 512

struct prompt {
	uint32_t n_ids;
	int32_t ids[MAX_PROMPT];
	int32_t greedy[N_STEPS];
	float *logits; /* [N_STEPS, n_vocab] */
};

struct golden {
	uint32_t n_vocab;
	struct prompt prompts[N_PROMPTS];
};

/* NAME.golden; free it with close_golden. */
void open_golden(const char *name, struct golden *g);
void close_golden(struct golden *g);

/* With float32 activations and cache.  isa, experts: as of struct ig_stepper_options; NULL: the default.  keep_all: blocks
 * outside a window are not freed.  NULL: not on this machine. */
struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const struct golden *g,
				const char *isa, const char *experts, bool keep_all);

/*
 * Prompts first … last - 1 in one batch: all but their last `left` tokens in chunks, each
 * prompt on its own; then those tokens of all prompts together, and N_STEPS - 1 decoded ones.
 * logits [N_PROMPTS, N_STEPS, n_vocab].  forced: the golden's tokens, whatever is sampled.
 */
void run_along(struct ig_stepper *s, const struct golden *g, int first, int last, uint32_t chunk,
	       uint32_t left, bool forced, float *logits);
/* The same, and what is sampled must be the golden's. */
void run(struct ig_stepper *s, const struct golden *g, int first, int last, uint32_t chunk,
	 uint32_t left, float *logits);

/* Normalised squared error of a prompt's logits; NaN fails every comparison. */
double nmse(const struct golden *g, int prompt, const float *logits);

/* Whole prompts, alone; then every other way with the same bits (brief: in other chunks side by side at once, and
 * alone where a window is expected to free blocks).  0: not on this machine. */
int run_isa(const struct ig_stepper_model *m, const struct golden *g, const char *name,
	    const char *isa);
