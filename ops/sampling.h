/*
 * sampling.h: the arithmetic of sampling, bit-exact for every kernel on every device.  Weights
 * are computed with subtractions and multiplications that cannot be fused; everything after
 * them is in integers, whose sums do not depend on the order.  With top the largest logit:
 *   u = (top - x) * (log2(e) / temperature), in units of 2^-26
 *   weight = 2^30 * 2^-u, a polynomial of degree 6, rounded: within 3e-6 of
 *   2^30 e^((x - top) / temperature) and 2; 0 from u = 31 on
 *   top_p reached at: floor(total of weights * top_p), at least 1
 *   min_p: weights below floor(2^30 min_p) are left out
 *   sampled: the first remaining candidate, in the order of ids, at which the sum of weights
 *   exceeds floor(total of the remaining * r / 2^64), where r is 64 bits that are a function of
 *   (seed, position)
 */
#pragma once

#include <ingot/op.h>

#include "ops/float.h"

/* Counter-based: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011),
 * Philox 4x32-10, the first two words. */
uint64_t ig_sample_bits(uint64_t seed, uint64_t position);

/* Whether the row samples at random; if not, its largest logit is taken (also if no logit is
 * finite).  Temperatures below 2^-100 count as 0. */
static inline bool ig_sample_is_random(const struct ig_sample_params *p)
{
	return p->temperature >= 0x1p-100f && p->top_k != 1;
}

/* One rounding per operation of the formula in op.h, except that the product with n_sampled is
 * fused. */
static inline float ig_sample_adjusted(float x, const struct ig_logit_adjust *e,
				       const struct ig_sample_params *p)
{
	if (e->seen)
		x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
	x = fmaf(-(float)e->n_sampled, p->frequency_penalty, x);
	if (e->n_sampled)
		x -= p->presence_penalty;
	return x + e->bias;
}

#define IG_SAMPLE_UNITS 26 /* fractional bits of u */

static inline float ig_sample_scale(const struct ig_sample_params *p)
{
	return 1.0f / p->temperature * (1.44269504f * 0x1p26f);
}

/* u, below 32; top must be finite.  NaN counts as -infinity. */
static inline uint32_t ig_sample_distance(float x, float top, float scale)
{
	float u = (top - x) * scale;
	return (uint32_t)(int32_t)(u < 0x1p31f ? u : 2147483520.0f);
}

static inline uint32_t ig_sample_mulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)((uint64_t)a * b >> 32);
}

static inline uint32_t ig_sample_weight(uint32_t u)
{
	uint32_t f = u << (32 - IG_SAMPLE_UNITS), p = 0x0003c405u;
	/* 2^-f in 31 bits, interpolated at Chebyshev nodes: error 6e-9 */
	p = 0x002a5309u - ig_sample_mulhi(f, p);
	p = 0x013a79c4u - ig_sample_mulhi(f, p);
	p = 0x071a9948u - ig_sample_mulhi(f, p);
	p = 0x1ebfba83u - ig_sample_mulhi(f, p);
	p = 0x58b90bf0u - ig_sample_mulhi(f, p);
	p = 0x80000000u - ig_sample_mulhi(f, p);
	return ((p >> (u >> IG_SAMPLE_UNITS)) + 1) >> 1;
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

/* What row r of an op `sample` samples by, and where it puts the id, and a copy of the logits (NULL: nowhere). */
struct ig_sample_row {
	struct ig_sample_params params;
	int32_t *id;
	float *logits;
};
static inline struct ig_sample_row ig_sample_row_of(const struct ig_op_launch *c, int64_t r)
{
	const struct ig_sample_op_params *p = c->params;
	const struct ig_step *s = c->step;
	const int64_t n = c->in[0].n_cols;
	struct ig_sample_row row;

	if (!p->guess)
		return (struct ig_sample_row){ s->sample[r], &s->sampled_ids[r],
					       s->logits ? s->logits + r * n : NULL };
	row = (struct ig_sample_row){ s->sample[s->guess_rows[r]], &s->guessed_ids[r],
				      s->guess_logits ? s->guess_logits + r * n : NULL };
	row.params.position++;
	row.params.mask = -1; /* that of the token before */
	return row;
}

/* The row's mask, or NULL. */
static inline const uint32_t *ig_sample_mask(const struct ig_step *s,
					     const struct ig_sample_params *p, int64_t n_vocab)
{
	return p->mask >= 0 ? s->masks + p->mask * ((n_vocab + 31) / 32) : NULL;
}
