/*
 * attention_tile.h: the vector kernel of attention, compiled once for each
 * instruction set that includes this file.
 *
 * A unit is one KV head and a few consecutive rows of one sequence.  Their query
 * vectors (rows * heads that share the KV head) are the rows of two small matrix
 * products: scores = Q K^T, with K's blocks transposed into scratch so that a
 * lane is a token, and out = P V, where a lane is a dimension.  So K and V are
 * converted once for all query vectors of a unit, and no sum crosses lanes.  Few
 * query vectors read K and V in place.  Values of Q8_0 are code * scale, which is
 * exact: the sums are those of a cache of floats with these values.
 *
 * Order of sums for one row and one query head, the same for any other rows, in prefill and
 * in decode:
 *   positions are processed in ranges of IG_ATTENTION_RANGE, at absolute multiples of it;
 *   q . k: one fused sum, dimensions ascending;
 *   sum of p: lane = position modulo VL, ascending, then one tree;
 *   p v: one fused sum a dimension, positions ascending;
 *   ranges are merged in ascending order, then the sink.
 *
 * With few rows a unit has a single range, and its partial result is kept until all are there; a second kernel
 * merges them by the same operations in the same order (units.h).
 *
 * The includer defines
 *   VL, vec            floats in a vector, its type
 *   TILE_Q, TILE_V     query vectors and vectors of a tile that fit the registers
 *   vec_zero vec_set1 vec_load vec_store vec_add vec_mul vec_max vec_fma
 *   vec_load_f16(p)    VL halves
 *   vec_load_i8(p)     VL integers of 8 bits
 *   vec_keep(v, from, to, other)   lanes from <= i < to of v, else other
 *   vec_exp(x)         for x <= 0, within 1e-7 of its value; 0 below -87
 *   vec_hmax, vec_hsum
 *   widen_8(y, h)          y[i] = h[i] of 8 halves
 * and, below the inclusion, transpose_f16, transpose_f32 and scores_in_place.
 */
#pragma once

#include "cache_row.h"
#include "kernels_private.h"
#include "pages.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define RANGE IG_ATTENTION_RANGE
#define RANGE_BLOCKS (RANGE / IG_BLOCK_TOKENS)
#define S_STRIDE (RANGE + 16) /* not a power of two: rows use different cache sets */
#define BLOCK_VECS (IG_BLOCK_TOKENS / VL)
#define KT_STRIDE 64				 /* tokens whose K or V is converted at a time */
#define SUB_BLOCKS (KT_STRIDE / IG_BLOCK_TOKENS) /* blocks converted at a time */

_Static_assert(TILE_V % BLOCK_VECS == 0 && SUB_BLOCKS * BLOCK_VECS % TILE_V == 0,
	       "a tile of scores is whole blocks, a sub-range whole tiles");

/* Loops whose arrays must be registers. */
#if defined(IG_KEEP_LOOPS)
#define UNROLL
#define UNROLL_32
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_32 _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_32 _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

/* ---- the unit ------------------------------------------------------------------- */

struct unit {
	const struct ig_attention_params *p;
	const struct ig_step *step;
	const struct ig_kv_layout *layout;
	struct pages pages;
	int32_t dim, v_dim, dim16; /* of a key; of a value; that rounded up to 16 */
	struct cache_side v_side;
	struct row_span rows;
	uint32_t kv_head;
	int32_t n; /* query vectors: row by row, head by head */
	/* Scratch. */
	float *kt;		      /* [dim, KT_STRIDE] */
	float *v;		      /* [KT_STRIDE, dim16] */
	float *v_scale;		      /* [v_dim / IG_KV_GROUP, RANGE]: of V in Q8_0 */
	float *s;		      /* [n, S_STRIDE]: scores, then weights of one range */
	float *o;		      /* [n, dim16]: of one range */
	float *o_all;		      /* [n, dim16]: merged */
	float *max, *sum;	      /* [n rounded up to 16]: of one range */
	float *max_all, *sum_all;     /* merged */
	float *old_share, *new_share; /* weights of the merged part and of the range */
	const float **q;	      /* [n] the query vectors */
	int32_t *lo, *hi; /* [n] the positions attended to, relative to the range's start */
};

/* Place the unit's arrays from base on; with base 0, count their bytes. */
static uint64_t lay_out(struct unit *u, const struct ig_attention_params *p, uintptr_t base)
{
	const uint64_t n = (uint64_t)unit_rows(p) * (p->n_heads / p->n_kv_heads);
	const uint64_t n16 = (n + 15) / 16 * 16, dim16 = (value_dim(p) + 15) / 16 * 16;
	uintptr_t at = (base + 63) & ~(uintptr_t)63;

#define TAKE(member, count)                                                                        \
	do {                                                                                       \
		u->member = (void *)at;                                                            \
		at += ((count) * sizeof *u->member + 63) & ~(uintptr_t)63;                         \
	} while (0)
	TAKE(kt, p->head_dim * (uint64_t)KT_STRIDE);
	TAKE(v, KT_STRIDE * dim16);
	TAKE(v_scale, dim16 / IG_KV_GROUP * (uint64_t)RANGE);
	TAKE(s, n * S_STRIDE);
	TAKE(o, n * dim16);
	TAKE(o_all, n * dim16);
	TAKE(max, n16);
	TAKE(sum, n16);
	TAKE(max_all, n16);
	TAKE(sum_all, n16);
	TAKE(old_share, n16);
	TAKE(new_share, n16);
	TAKE(q, n);
	TAKE(lo, n);
	TAKE(hi, n);
#undef TAKE
	return at - base + 63;
}

static uint64_t unit_scratch_bytes(const struct ig_op_launch *launch)
{
	struct unit u;
	return lay_out(&u, launch->params, 0);
}

/* ---- K and V of a few blocks -------------------------------------------------------- */

/* dst[d * KT_STRIDE + t] = src[t][d] for 16 tokens of n halves. */
static void transpose_f16(float *dst, const char *src, uint64_t stride, int32_t n);

/* Scores of a block of halves for the first nq query vectors, with K transposed in registers:
 * the same sums as scores_tile's.  Returns 0 if it does not support the shape. */
static int scores_in_place(const struct unit *u, int nq, const char *block, float *s);

/* dst[d * KT_STRIDE + t] = src[t][d] for 16 tokens of n floats. */
static void transpose_f32(float *dst, const char *src, uint64_t stride, int32_t n);

/* Scales of 16 tokens, [dim / IG_KV_GROUP, 16], of the half of a head that begins at p. */
INLINE const uint16_t *scales_of(const struct unit *u, const char *p)
{
	return (const uint16_t *)(const void *)(p + IG_BLOCK_TOKENS * u->dim);
}

/* dst[d * KT_STRIDE + t] = K of 16 tokens in Q8_0, which the cache has transposed. */
static void spread_q8(const struct unit *u, float *dst, const char *src)
{
	const uint16_t *scale = scales_of(u, src);

	for (int32_t g = 0; g < u->dim; g += IG_KV_GROUP, scale += IG_BLOCK_TOKENS)
		for (int t = 0; t < IG_BLOCK_TOKENS; t += VL) {
			const vec by = vec_load_f16(scale + t);
			for (int32_t d = g; d < g + IG_KV_GROUP; d++)
				vec_store(dst + d * KT_STRIDE + t,
					  vec_mul(vec_load_i8((const int8_t *)src +
							      d * IG_BLOCK_TOKENS + t),
						  by));
		}
}

/* Transpose K of n blocks into u->kt, side by side. */
static void load_k(struct unit *u, char *const *blocks, int32_t n)
{
	const uint64_t stride = u->layout->k_token_stride;

	for (int32_t i = 0; i < n; i++) {
		float *to = u->kt + i * IG_BLOCK_TOKENS;
		if (u->layout->k_dtype == IG_Q8_0)
			spread_q8(u, to, blocks[i]);
		else if (u->layout->k_dtype == IG_F16)
			transpose_f16(to, blocks[i], stride, u->dim);
		else
			transpose_f32(to, blocks[i], stride, u->dim);
	}
}

/* A token's V in Q8_0 as floats; scale: its first one.  Codes of a key lie apart. */
static void load_v_q8(const struct unit *u, float *y, const int8_t *code, const uint16_t *scale)
{
	if (u->p->v_dim) {
		for (int32_t d = 0; d < u->v_dim; d++)
			y[d] = (float)code[d * IG_BLOCK_TOKENS] *
			       f16_to_f32(scale[d / IG_KV_GROUP * IG_BLOCK_TOKENS]);
		return;
	}
	for (int32_t g = 0; g < u->v_dim; g += IG_KV_GROUP, scale += IG_BLOCK_TOKENS) {
		const vec by = vec_set1(f16_to_f32(*scale));
		for (int32_t d = g; d < g + IG_KV_GROUP; d += VL)
			vec_store(y + d, vec_mul(vec_load_i8(code + d), by));
	}
}

/* Convert V of tokens from … to - 1 to floats in u->v, row by row; columns beyond v_dim are 0. */
static void load_v(struct unit *u, char *const *blocks, int32_t from, int32_t to)
{
	for (int32_t t = from; t < to; t++) {
		const char *block = blocks[t / IG_BLOCK_TOKENS] + u->v_side.offset;
		const int32_t in_block = t % IG_BLOCK_TOKENS;
		const char *src = block + (uint64_t)in_block * u->v_side.token_stride;
		float *y = u->v + t * u->dim16;
		int32_t d = 0;

		if (u->v_side.dtype == IG_Q8_0) {
			load_v_q8(u, y,
				  (const int8_t *)block +
					  in_block * (u->v_side.code_stride == 1 ? u->dim : 1),
				  scales_of(u, block) + in_block);
		} else if (u->v_side.dtype == IG_F16) {
			const uint16_t *h = (const uint16_t *)src;
			for (; d + VL <= u->v_dim; d += VL)
				vec_store(y + d, vec_load_f16(h + d));
			if (d < u->v_dim) /* VL is 16: 8 are left */
				widen_8(y + d, h + d);
		} else {
			memcpy(y, src, (size_t)u->v_dim * sizeof *y);
		}
		if (u->v_dim < u->dim16)
			memset(y + u->v_dim, 0, 8 * sizeof *y);
	}
}

static void prefetch_half(const struct unit *u, const char *p, uint32_t dtype, uint64_t stride)
{
	const uint64_t in_row = (uint64_t)u->dim * (dtype == IG_F16 ? 2 : 4);
	const uint64_t q8 = IG_BLOCK_TOKENS * (uint64_t)u->dim / IG_KV_GROUP * (IG_KV_GROUP + 2);
	const uint64_t bytes = dtype == IG_Q8_0 ? q8 : in_row;

	for (int t = 0; t < (dtype == IG_Q8_0 ? 1 : IG_BLOCK_TOKENS); t++)
		for (uint64_t b = 0; b < bytes; b += 64)
			__builtin_prefetch(p + (uint64_t)t * stride + b, 0, 2);
}

static void prefetch_k(const struct unit *u, const char *block)
{
	prefetch_half(u, block, u->layout->k_dtype, u->layout->k_token_stride);
}

static void prefetch_v(const struct unit *u, const char *block)
{
	if (!u->p->v_dim) /* or it is there with K */
		prefetch_half(u, block + u->v_side.offset, u->v_side.dtype, u->v_side.token_stride);
}

#include "attention_products.h"
#include "attention_range.h"

/* ---- a unit: rows row … row + n_rows - 1, one KV head ------------------------------------ */

/* Multiply a head's output y by its gate.  The unit has finished: kt is free. */
static void apply_gate(struct unit *u, float *restrict y, const float *restrict x)
{
	const uint32_t kind = u->p->gate;
	const int32_t n = u->p->gate_dim == 1 ? 1 : u->v_dim;
	float *restrict e = u->kt;

	for (int32_t d = 0; d < n; d++)
		e[d] = -fabsf(x[d]);
	for (int32_t d = n; d < (n + VL - 1) / VL * VL; d++)
		e[d] = 0;
	for (int32_t d = 0; d < n; d += VL)
		vec_store(e + d, vec_exp(vec_load(e + d)));
	for (int32_t d = 0; d < n; d++)
		e[d] = gate_value(kind, x[d], e[d]);
	for (int32_t d = 0; d < u->v_dim; d++)
		y[d] *= e[n == 1 ? 0 : d];
}

static int32_t per_kv_head(const struct unit *u)
{
	return (int32_t)(u->p->n_heads / u->p->n_kv_heads);
}

static int64_t window_of(const struct unit *u)
{
	return u->p->window ? u->p->window : INT64_MAX / 2;
}

static void begin_unit(struct unit *u, const struct ig_op_launch *launch, struct row_span rows,
		       uint32_t kv_head)
{
	const struct ig_attention_params *p = u->p;
	const int32_t per_kv = per_kv_head(u);

	u->rows = rows;
	u->kv_head = kv_head;
	u->pages = pages_of(launch->step, p->group, p->layer, launch->step->row_seq[rows.first],
			    kv_head);
	u->n = (int32_t)rows.n * per_kv;
	for (int32_t i = 0, q = 0; i < rows.n; i++) {
		const float *x = (const float *)((const char *)launch->in[0].data +
						 (rows.first + i) * launch->in[0].row_stride) +
				 (int64_t)kv_head * per_kv * u->dim;
		for (int32_t g = 0; g < per_kv; g++, q++)
			u->q[q] = x + g * u->dim;
	}
	for (int32_t q = 0; q < (u->n + 15) / 16 * 16; q++) {
		u->max[q] = u->max_all[q] = -INFINITY;
		u->sum[q] = u->sum_all[q] = 0;
	}
	memset(u->o_all, 0, (size_t)u->n * (size_t)u->dim16 * sizeof *u->o_all);
}

/* The last position that the unit's i-th row sees. */
static int64_t sees_to(const struct unit *u, int32_t i)
{
	return ig_step_sees_to(u->step, u->p->spans, u->rows.first + i);
}

/* The partial result of the range at base: max, sum and o. */
static void run_range(struct unit *u, int64_t base)
{
	const int64_t window = window_of(u), last_pos = u->rows.last;
	const int64_t seen = u->rows.position + 1 > window ? u->rows.position + 1 - window : 0;
	/* what any row of the unit attends to */
	const int32_t lo = (int32_t)(seen > base ? seen - base : 0);
	const int32_t hi = (int32_t)(last_pos + 1 - base < RANGE ? last_pos + 1 - base : RANGE);
	const int32_t first_block = lo / IG_BLOCK_TOKENS;
	const int32_t end_block = (hi + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	char *blocks[RANGE_BLOCKS];

	for (int32_t b = first_block; b < end_block; b++)
		blocks[b] = pages_block(&u->pages, base / IG_BLOCK_TOKENS + b);
	for (int32_t i = 0, q = 0; i < u->rows.n; i++) {
		const int64_t from = u->rows.position + i - base + 1 - window;
		const int64_t pos = sees_to(u, i) - base;
		for (int32_t g = 0; g < per_kv_head(u); g++, q++) {
			u->lo[q] = (int32_t)(from < 0 ? 0 : from > RANGE ? RANGE : from);
			u->hi[q] = (int32_t)(pos < 0 ? 0 : pos + 1 > RANGE ? RANGE : pos + 1);
		}
	}
	range_scores(u, blocks, first_block, end_block);
	for (int32_t q = 0; q < u->n; q++)
		if (u->lo[q] < u->hi[q])
			soft_max(u->s + q * S_STRIDE, u->lo[q], u->hi[q], u->p->scale, &u->max[q],
				 &u->sum[q]);
	range_values(u, blocks, lo, hi);
}

/* The outputs, when all ranges are merged. */
static void end_unit(struct unit *u, const struct ig_op_launch *launch)
{
	const int32_t per_kv = per_kv_head(u);
	const uint32_t heads = u->kv_head * (uint32_t)per_kv; /* before the unit's */

	if (sinks_of(launch))
		merge_sinks(u, sinks_of(launch) + heads, per_kv);
	for (int32_t i = 0, q = 0; i < u->rows.n; i++) {
		float *restrict y = (float *)((char *)launch->out[0].data +
					      (u->rows.first + i) * launch->out[0].row_stride) +
				    heads * (uint32_t)u->v_dim;
		for (int32_t g = 0; g < per_kv; g++, q++, y += u->v_dim) {
			const float *restrict o = u->o_all + q * u->dim16;
			const float share = 1 / u->sum_all[q];
			for (int32_t d = 0; d < u->v_dim; d++)
				y[d] = o[d] * share;
			if (u->p->gate)
				apply_gate(u, y,
					   gate_of_head(launch, u->rows.first + i,
							heads + (uint32_t)g));
		}
	}
}

static void run_unit(struct unit *u, const struct ig_op_launch *launch, struct row_span rows,
		     uint32_t kv_head)
{
	begin_unit(u, launch, rows, kv_head);
	for (int64_t i = 0, base = first_range(u->p, rows) * RANGE; i < n_ranges(u->p, rows);
	     i++, base += RANGE) {
		run_range(u, base);
		merge_range(u);
	}
	end_unit(u, launch);
}

static struct unit make_unit(const struct ig_op_launch *launch, void *scratch)
{
	const struct ig_attention_params *p = launch->params;
	struct unit u = { .p = p,
			  .step = launch->step,
			  .layout = launch->step->kv[p->group].layout,
			  .dim = (int32_t)p->head_dim,
			  .v_dim = (int32_t)value_dim(p),
			  .dim16 = (int32_t)(value_dim(p) + 15) / 16 * 16 };

	u.v_side = value_side(p, u.layout);
	lay_out(&u, p, (uintptr_t)scratch);
	return u;
}

static void run_whole(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
{
	const struct ig_attention_params *p = launch->params;
	const int64_t n_groups = n_row_groups(launch->step, unit_rows(p));
	struct unit u = make_unit(launch, scratch);
	struct row_span rows = { 0 };

	for (int64_t unit = first; unit < last; unit++) {
		const uint32_t kv_head = (uint32_t)(unit % p->n_kv_heads);
		if (unit == first || kv_head == 0)
			rows = row_span(p, launch->step,
					group_row(launch->step, unit_rows(p),
						  n_groups - 1 - unit / p->n_kv_heads));
		run_unit(&u, launch, rows, kv_head);
	}
}

#include "attention_parts.h"

static void run_units(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
{
	const struct split split = split_of(launch);

	if (split.n_ranges)
		run_ranges(launch, &split, first, last, scratch);
	else
		run_whole(launch, first, last, scratch);
}
