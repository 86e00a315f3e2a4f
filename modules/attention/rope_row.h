/*
 * rope_row.h: the kernel of rope_kv over a range of rows, compiled once for each
 * instruction set that includes this file.
 *
 * The includer defines store_f16(dst, src, n): n is a multiple of 8, values are
 * rounded to the nearest half.  Compilers can vectorise everything else without changing a sum,
 * so all instruction sets give the same bits.
 *
 * Order of sums: the sum of squares of a head, or of all heads together, has 8
 * partial sums (dimension modulo 8, ascending) and one tree; everything else is element
 * by element.
 */
#pragma once

#include "cache_row.h"
#include "kernels_private.h"
#include "pages.h"

#include <math.h>
#include <string.h>

/* cos and sin of one row's RoPE, expanded over the dimensions of a head. */
struct rotation {
	float c[MAX_HEAD_DIM], s[MAX_HEAD_DIM];
};

/* IG_ROPE_PAIRS: c and s of a pair are at both of its dimensions, s negative at the even one.
 * IG_ROPE_HALVES: the order is that of the table. */
static inline void spread_rotation(struct rotation *rot, const struct ig_rope_kv_params *p,
				   const float *table)
{
	const float *c = table, *s = table + p->n_pairs;

	if (p->mode == IG_ROPE_HALVES) {
		memcpy(rot->c, c, p->n_pairs * sizeof *c);
		memcpy(rot->s, s, p->n_pairs * sizeof *s);
		return;
	}
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		rot->c[2 * i] = rot->c[2 * i + 1] = c[i];
		rot->s[2 * i] = -s[i];
		rot->s[2 * i + 1] = s[i];
	}
}

static inline void rotate(float *restrict y, const float *restrict x,
			  const struct ig_rope_kv_params *p, const struct rotation *rot)
{
	const uint32_t n = p->n_pairs;

	if (p->mode == IG_ROPE_PAIRS) {
		for (uint32_t i = 0; i < 2 * n; i += 2) {
			y[i] = x[i] * rot->c[i] + x[i + 1] * rot->s[i];
			y[i + 1] = x[i + 1] * rot->c[i + 1] + x[i] * rot->s[i + 1];
		}
	} else {
		for (uint32_t i = 0; i < n; i++) {
			y[i] = x[i] * rot->c[i] - x[i + n] * rot->s[i];
			y[i + n] = x[i + n] * rot->c[i] + x[i] * rot->s[i];
		}
	}
	memcpy(y + 2 * n, x + 2 * n, (p->head_dim - 2 * n) * sizeof *y);
}

/* 1 / rms(x[n]), n a multiple of 8 */
static inline float inverse_rms(const float *x, uint32_t n, float eps)
{
	float acc[8] = { 0 }, sum;
	for (uint32_t i = 0; i < n; i += 8)
		for (int j = 0; j < 8; j++)
			acc[j] += x[i + j] * x[i + j];
	sum = ((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]));
	return 1.0f / sqrtf(sum / (float)n + eps);
}

/* The norm of q or of k in one row. */
struct head_norm {
	const float *w; /* NULL: none */
	uint32_t step;	/* from one head's weights to the next one's; 0: all heads share them */
	float inv;	/* of all heads together, where step is not 0 */
};

static inline struct head_norm norm_of(const struct ig_op_launch *launch, uint32_t i,
				       const float *x)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_tensor *w = &launch->weight[i];
	struct head_norm n = { launch->n_weights > i ? w->data : NULL, 0, 0 };

	if (n.w && w->n_cols != p->head_dim) {
		n.step = p->head_dim;
		n.inv = inverse_rms(x, (uint32_t)w->n_cols, p->norm_eps);
	}
	return n;
}

/* Head h of q or k at x: normalised if there is a weight, rotated if there is a table. */
static inline void head_of(float *restrict y, const float *restrict x, uint32_t h,
			   const struct head_norm *norm, const struct ig_rope_kv_params *p,
			   const struct rotation *rot)
{
	float tmp[MAX_HEAD_DIM];

	if (norm->w) {
		const float *w = norm->w + (size_t)h * norm->step;
		float inv = norm->step ? norm->inv : inverse_rms(x, p->head_dim, p->norm_eps);
		for (uint32_t i = 0; i < p->head_dim; i++)
			tmp[i] = x[i] * inv * w[i];
		x = tmp;
	}
	if (rot)
		rotate(y, x, p, rot);
	else
		memcpy(y, x, p->head_dim * sizeof *y);
}

/* Token t of the head at block. */
static inline void store_row(char *block, struct cache_side side, uint32_t t, const float *x,
			     uint32_t n)
{
	char *to = block + side.offset + t * side.token_stride;

	if (side.dtype == IG_Q8_0)
		store_row_q8(block, side, t, x, n);
	else if (side.dtype == IG_F16)
		store_f16((uint16_t *)(void *)to, x, n);
	else
		memcpy(to, x, n * sizeof *x);
}

/* K and V of one row and KV head. */
static inline void store_cache(const struct ig_op_launch *launch, int64_t row, uint32_t kv_head,
			       const float *k, const float *v)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const struct pages pages = pages_of(step, p->group, p->layer, step->row_seq[row], kv_head);
	const int64_t pos = step->positions[row];
	const uint32_t t = (uint32_t)(pos % IG_BLOCK_TOKENS);
	char *block = pages_block(&pages, pos / IG_BLOCK_TOKENS);

	store_row(block, k_side(pages.layout), t, k, p->head_dim);
	store_row(block, v_side(pages.layout), t, v, p->head_dim);
}

/* The parts of x after q: k and v, k alone, or none. */
static inline uint32_t n_kv_parts(const struct ig_rope_kv_params *p)
{
	return p->flags & IG_ROPE_KV_Q_ONLY ? 0 : p->flags & IG_ROPE_KV_NO_V ? 1 : 2;
}

/* Normalise and rotate k of a row; write k and v. */
static inline void write_kv(const struct ig_op_launch *launch, int64_t row, const float *k,
			    const struct rotation *rot)
{
	const struct ig_rope_kv_params *p = launch->params;
	const uint32_t dim = p->head_dim;
	const struct head_norm norm = norm_of(launch, 1, k);
	const float *v = k + (size_t)(n_kv_parts(p) - 1) * p->n_kv_heads * dim;
	float k_head[MAX_HEAD_DIM], v_head[MAX_HEAD_DIM];

	for (uint32_t h = 0; h < p->n_kv_heads; h++, k += dim, v += dim) {
		const float *from = v;
		head_of(k_head, k, h, &norm, p, rot);
		if (p->flags & IG_ROPE_KV_V_NORM) {
			const float inv = inverse_rms(v, dim, p->norm_eps);
			for (uint32_t i = 0; i < dim; i++)
				v_head[i] = v[i] * inv;
			from = v_head;
		}
		store_cache(launch, row, h, k_head, from);
	}
}

static inline void rope_kv_rows(const struct ig_op_launch *launch, int64_t first, int64_t last)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const struct ig_tensor *in = &launch->in[0], *table = &launch->in[1],
			       *out = &launch->out[0];
	const int has_table = launch->n_in > 1 && table->data;
	const uint32_t dim = p->head_dim, stride = ig_rope_q_stride(p);
	struct rotation rot;

	for (int64_t row = first; row < last; row++) {
		const char *x_row = (const char *)in->data + row * in->row_stride;
		const float *q = (const float *)x_row; /* n_heads of head_dim, stride apart */
		float *y = (float *)((char *)out->data + row * out->row_stride);
		const struct head_norm q_norm = norm_of(launch, 0, q);

		if (has_table)
			spread_rotation(&rot, p,
					(const float *)((const char *)table->data +
							row * table->row_stride));
		for (uint32_t h = 0; h < p->n_heads; h++)
			head_of(y + (size_t)h * dim, q + (size_t)h * stride, h, &q_norm, p,
				has_table ? &rot : NULL);
		if (p->q_scale_length && (uint32_t)step->positions[row] >= p->q_scale_length) {
			const float scale = ig_rope_q_scale(p, step->positions[row] /
								       (int32_t)p->q_scale_length);
			for (uint32_t i = 0; i < p->n_heads * dim; i++)
				y[i] *= scale;
		}
		if (n_kv_parts(p)) /* k and v: [n_kv_heads, head_dim] each */
			write_kv(launch, row, q + (size_t)p->n_heads * stride,
				 has_table ? &rot : NULL);
	}
}
