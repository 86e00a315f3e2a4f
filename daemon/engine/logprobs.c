/*
 * logprobs.c: see logprobs.h.  log p(i) = x[i] - max - log(sum of exp(x - max)): no term of the sum
 * is above 1 and the largest is 1, so it can't overflow.  There are LANES partial sums, each in
 * double and in ascending order, which compilers vectorize; the exponentials are float, with a
 * relative error of about 1e-7.
 */
#include "daemon/engine/logprobs.h"

#include <math.h>
#include <string.h>

#define LANES 16

/* exp(x) for x <= 0: 2^n e^r with |r| <= ln(2) / 2, e^r by its series to r^7.  0 below -87,
 * where the result would be denormal, and for NaN.  Integer comparisons without a branch let
 * a loop of it be vectorized. */
static inline float exp_of(float x)
{
	/* adding and subtracting 1.5 * 2^23 rounds to an integer */
	const float magic = 12582912.0f, log2e = 1.44269504f;
	const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
	const uint32_t bits_of_87 = 0x42ae0000;
	uint32_t bits, keep;
	float n, r, p = 1.0f / 5040;

	memcpy(&bits, &x, sizeof bits);
	keep = (bits & 0x7fffffff) < bits_of_87 ? 0xffffffff : 0;
	bits &= keep;
	memcpy(&x, &bits, sizeof x);
	n = x * log2e + magic - magic;
	r = x - n * ln2_high - n * ln2_low;
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	/* times 2^n; 0.5 < p < 2 and n >= -126 */
	memcpy(&bits, &p, sizeof bits);
	bits = (bits + ((uint32_t)(int32_t)n << 23)) & keep;
	memcpy(&p, &bits, sizeof p);
	return p;
}

/* Floats as integers in the same order (-0 below 0; NaN beyond the infinities). */
static inline int32_t order_of(float x)
{
	int32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits ^ (bits >> 31 & 0x7fffffff);
}

static float largest(const float *x, int32_t n)
{
	int32_t lanes[LANES], max = INT32_MIN, i = 0;
	float found;

	for (int j = 0; j < LANES; j++)
		lanes[j] = INT32_MIN;
	for (; i + LANES <= n; i += LANES) {
		for (int j = 0; j < LANES; j++) {
			int32_t v = order_of(x[i + j]);
			lanes[j] = v > lanes[j] ? v : lanes[j];
		}
	}
	for (; i < n; i++)
		max = order_of(x[i]) > max ? order_of(x[i]) : max;
	for (int j = 0; j < LANES; j++)
		max = lanes[j] > max ? lanes[j] : max;
	max ^= max >> 31 & 0x7fffffff;
	memcpy(&found, &max, sizeof found);
	return found;
}

static double sum_of_exps(const float *x, int32_t n, float max)
{
	double lanes[LANES] = { 0 }, sum = 0;
	int32_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		float e[LANES];
		for (int j = 0; j < LANES; j++)
			e[j] = exp_of(x[i + j] - max);
		for (int j = 0; j < LANES; j++)
			lanes[j] += (double)e[j];
	}
	for (; i < n; i++)
		sum += (double)exp_of(x[i] - max);
	for (int j = 0; j < LANES; j++)
		sum += lanes[j];
	return sum;
}

/* Whether none of x[LANES] is above v. */
static bool none_above(const float *x, float v)
{
	int32_t n = 0;

	for (int j = 0; j < LANES; j++)
		n += x[j] > v;
	return !n;
}

/* The n_top largest, descending; of equal ones the smaller id first. */
static int32_t find_top(const float *x, int32_t n_ids, struct ig_token_prob *top, int32_t n_top)
{
	int32_t n = 0;

	for (int32_t i = 0; n_top && i < n_ids; i++) {
		int32_t at;
		if (n == n_top && i % LANES == 0)
			while (i + LANES <= n_ids && none_above(x + i, top[n - 1].logprob))
				i += LANES;
		if (i == n_ids)
			break;
		if (isnan(x[i]) || (n == n_top && !(x[i] > top[n - 1].logprob)))
			continue;
		at = n < n_top ? n++ : n - 1;
		for (; at > 0 && x[i] > top[at - 1].logprob; at--)
			top[at] = top[at - 1];
		top[at] = (struct ig_token_prob){ i, x[i] };
	}
	return n;
}

static float logprob_of(float x, float max, double log_sum)
{
	double p = (double)x - (double)max - log_sum;

	return p > (double)IG_LEAST_LOGPROB ? p < 0 ? (float)p : 0.0f : IG_LEAST_LOGPROB;
}

float ig_logprobs(const float *logits, int32_t n_logits, int32_t n_ids, int32_t id,
		  struct ig_token_prob *top, int32_t n_top, int32_t *n_found)
{
	float max = largest(logits, n_logits);
	double log_sum = log(sum_of_exps(logits, n_logits, max));

	*n_found = find_top(logits, n_ids, top, n_top);
	for (int32_t i = 0; i < *n_found; i++)
		top[i].logprob = logprob_of(top[i].logprob, max, log_sum);
	return logprob_of(logits[id], max, log_sum);
}
