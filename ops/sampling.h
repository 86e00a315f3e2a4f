/*
 * sampling.h: the arithmetic of a draw, the same for every kernel on every device.
 *
 * A logit's weight is an integer, so that a sum of weights does not depend on the
 * order in which it is taken, and every cut and draw is made in integers.  With
 * top the largest logit and z = (x - top) * (1 / temperature), at least -64:
 *   weight = 2^30 e^z + 1/2 in float (ig_expf_near), cut off to an integer
 *   top_p reached at: floor(total of weights * top_p), at least 1
 *   min_p: weights below floor(2^30 min_p) are left out
 *   drawn: the first of the kept candidates, in the order of ids, where the sum of
 *   weights up to it exceeds floor(total of the kept * r / 2^64), r being 64 bits that
 *   are a function of (seed, position)
 * Weights vanish 21.5 units of z below the top.
 */
#ifndef INGOT_OPS_SAMPLING_H
#define INGOT_OPS_SAMPLING_H

#include <ingot/op.h>

#include "ops/float.h"

/* Counter-based: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011),
 * Philox 4x32-10, the first two words. */
uint64_t ig_sample_bits(uint64_t seed, uint64_t position);

/* Whether the row is drawn; if not, its largest logit is taken.  (Also where nothing
 * is finite.)  Temperatures below 2^-100 are 0. */
static inline bool ig_sample_is_drawn(const struct ig_sample_params *p)
{
	return p->temperature >= 0x1p-100f && p->top_k != 1;
}

static inline float ig_sample_edited(float x, const struct ig_logit_edit *e,
				     const struct ig_sample_params *p)
{
	if (e->seen)
		x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
	x -= (float)e->n_drawn * p->frequency_penalty;
	if (e->n_drawn)
		x -= p->presence_penalty;
	return x + e->bias;
}

/* top is finite; NaN and -infinity weigh nothing.  In two parts, because a compiler
 * would make a branch of the bound and then no vectors of the loop. */
static inline float ig_sample_z(float x, float top, float inv)
{
	float z = (x - top) * inv;
	return z > -64.0f ? z : -64.0f;
}

static inline uint32_t ig_sample_weight(float z)
{
	return (uint32_t)(int32_t)(ig_expf_near(z) * 0x1p30f + 0.5f);
}

static inline uint32_t ig_sample_min_weight(const struct ig_sample_params *p)
{
	float least = p->min_p > 0.0f ? p->min_p : 0.0f;
	return (uint32_t)(int32_t)((least < 1.0f ? least : 1.0f) * 0x1p30f);
}

/* top_p < 1. */
static inline uint64_t ig_sample_need(uint64_t total, const struct ig_sample_params *p)
{
	uint64_t share = p->top_p > 0.0f ? (uint64_t)(p->top_p * 0x1p32f) : 0;
	uint64_t need = (total >> 32) * share + ((total & 0xffffffffu) * share >> 32);
	return need ? need : 1;
}

/* The upper half of the 128-bit product. */
static inline uint64_t ig_sample_place(uint64_t total, uint64_t bits)
{
	uint64_t th = total >> 32, tl = total & 0xffffffffu;
	uint64_t bh = bits >> 32, bl = bits & 0xffffffffu;
	uint64_t a = tl * bh + (tl * bl >> 32);
	uint64_t b = th * bl + (a & 0xffffffffu);
	return th * bh + (a >> 32) + (b >> 32);
}

static inline bool ig_sample_is_allowed(const uint32_t *mask, int64_t id)
{
	return !mask || (mask[id / 32] >> (id % 32) & 1);
}

/* The row's mask, or NULL. */
static inline const uint32_t *ig_sample_mask(const struct ig_step *s,
					     const struct ig_sample_params *p, int64_t n_vocab)
{
	return p->mask >= 0 ? s->masks + p->mask * ((n_vocab + 31) / 32) : NULL;
}

#endif
