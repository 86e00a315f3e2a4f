/*
 * golden.h: the golden that truth.py writes, and the sums that judge a run by it.
 *
 * What a record holds, and why signed projections stand for a whole vector of logits, is
 * said in truth.py.
 */
#pragma once

#include <ingot/op.h>

#define IG_GOLDEN_TOP 8
#define IG_GOLDEN_PROJ 16

struct ig_golden_record { /* of the truth's logits at one step */
	float nll;	  /* of the forced id */
	float mean, css;  /* of all logits; sum of squares about the mean */
	uint16_t top[IG_GOLDEN_TOP];
	float top_logit[IG_GOLDEN_TOP]; /* less the mean */
	float proj[IG_GOLDEN_PROJ];
};

struct ig_golden_prompt {
	uint32_t n_ids;
	int32_t *ids;			  /* [n_ids] */
	int32_t *forced;		  /* [n_steps] */
	struct ig_golden_record *records; /* [n_steps] */
};

struct ig_golden {
	uint32_t n_prompts, n_steps, n_vocab;
	uint32_t model_bytes; /* size of the model's file */
	struct ig_golden_prompt *prompts;
	uint16_t *signs; /* [2 * n_vocab], repeated: bit j set: projection j takes a negative */
};

int ig_golden_open(const char *path, struct ig_golden *g, struct ig_error *err);
void ig_golden_close(struct ig_golden *g); /* zeros are fine */

/* How far a run is from the truth; begin with zeros. */
struct ig_golden_sum {
	uint32_t n_steps, n_equal;
	double squares, css; /* estimated squared difference, and the truth's own sum */
	double nll;	     /* sum of differences */
	double mean;	     /* greatest difference of the means */
	double lost_gap;     /* the truth's greatest top-two gap of a step that is not equal */
};

/* Judge the logits [n_vocab] of one step of one prompt; returns their argmax, or -1 when
 * one of them is not finite. */
int32_t ig_golden_judge(const struct ig_golden *g, uint32_t prompt, uint32_t step,
			const float *logits, struct ig_golden_sum *sum);
/* Add one sum to another. */
void ig_golden_add(struct ig_golden_sum *all, const struct ig_golden_sum *one);
static inline double ig_golden_nmse(const struct ig_golden_sum *s) { return s->squares / s->css; }
