/*
 * tile_kernels.h: shared by the kernels of linear, glu and logits: the loops over tiles and
 * rows, and the epilogue of a product.
 *
 * An instruction set's file has products of one tile with up to TILE_ROWS rows; TILE_KERNELS makes
 * three kernels from each.  A row's sums depend only on the row and the tile: groups of 1 to
 * TILE_ROWS rows run the same instructions on each row, in the same order of k.
 */
#pragma once

#include "ops/cpu/tile16.h"
#include "ops/cpu/tile_fetch.h"
#include "ops/float.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Products of one tile with n_rows rows of x: out [n_rows][16]. */
typedef void tile_product(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t x_stride,
			  float *out, int n_rows);

/* Tiles that stay in the second-level cache for the next rows. */
#define TILE_BLOCK_BYTES (256 << 10)
/* Rows that stay in cache for the next tile. */
#define ROW_BLOCK 64

struct tile_range {
	int64_t first, last; /* tiles */
	int64_t row, row_end;
};

/* Call body for blocks of tiles and rows that stay in cache. */
#define FOR_TILE_BLOCKS(range, tile_first, tile_last, tile_bytes, n_rows)                          \
	for (int64_t tb_step = TILE_BLOCK_BYTES / (int64_t)(tile_bytes) > 0 ?                      \
				       TILE_BLOCK_BYTES / (int64_t)(tile_bytes) :                  \
				       1,                                                          \
		     tb = (tile_first);                                                            \
	     tb < (tile_last); tb += tb_step)                                                      \
		for (int64_t rb = 0; rb < (n_rows); rb += ROW_BLOCK)                               \
			for (struct tile_range range = { tb,                                       \
							 tb + tb_step < (tile_last) ?              \
								 tb + tb_step :                    \
								 (tile_last),                      \
							 rb,                                       \
							 rb + ROW_BLOCK < (n_rows) ?               \
								 rb + ROW_BLOCK :                  \
								 (n_rows) };                       \
			     range.first < range.last; range.first = range.last)

struct epilogue {
	uint32_t act;
	const float *bias;		  /* [n] or NULL */
	const struct ig_tensor *residual; /* or NULL */
};

/* ig_act of 16 values.  Each activation has a loop of its own, which compilers make vectors of; one loop in
 * which act is chosen takes as long as a third of the products of a BERT. */
#define ACTIVATE(function)                                                                         \
	for (int i = 0; i < IG_TILE; i++)                                                          \
	v[i] = function(v[i])
ALWAYS_INLINE void activate(uint32_t act, float *v)
{
	switch (act) {
	case IG_ACT_SILU: ACTIVATE(ig_siluf); break;
	case IG_ACT_GELU: ACTIVATE(ig_geluf); break;
	case IG_ACT_GELU_ERF: ACTIVATE(ig_gelu_erff); break;
	case IG_ACT_RELU2: ACTIVATE(ig_relu2f); break;
	case IG_ACT_TANH: ACTIVATE(ig_tanhf); break;
	default: break;
	}
}
#undef ACTIVATE

/* Write [n_rows][16] products to out; its last tile may have fewer columns. */
ALWAYS_INLINE void finish_tile(const struct ig_tensor *out, const struct epilogue *e, int64_t tile,
			       int64_t row, int n_rows, float *v)
{
	int64_t col = tile * IG_TILE;
	int n = out->n_cols - col < IG_TILE ? (int)(out->n_cols - col) : IG_TILE;

	for (int r = 0; r < n_rows; r++, v += IG_TILE) {
		float *dst = (float *)((char *)out->data + (row + r) * out->row_stride) + col;
		if (e->bias)
			for (int i = 0; i < n; i++)
				v[i] += e->bias[col + i];
		if (e->act != IG_ACT_NONE)
			activate(e->act, v);
		if (e->residual) {
			const float *res = (const float *)((const char *)e->residual->data +
							   (row + r) * e->residual->row_stride) +
					   col;
			for (int i = 0; i < n; i++)
				v[i] += res[i];
		}
		if (n == IG_TILE)
			memcpy(dst, v, IG_TILE * sizeof *dst);
		else
			memcpy(dst, v, (size_t)n * sizeof *dst);
	}
}

static void run_product(const struct ig_op_launch *c, int64_t first, int64_t last,
			const struct epilogue *e, tile_product *product, int max_rows)
{
	const struct ig_tensor *x = &c->in[0], *w = &c->weight[0], *out = &c->out[0];
	uint64_t tile_bytes = ig_tile16_tile_bytes(w->dtype, w->n_cols);

	FOR_TILE_BLOCKS(b, first, last, tile_bytes, out->n_rows)
	for (int64_t t = b.first; t < b.last; t++) {
		const uint8_t *tile = (const uint8_t *)w->data + (uint64_t)t * tile_bytes;
		for (int64_t r = b.row; r < b.row_end; r += max_rows) {
			int n = b.row_end - r < max_rows ? (int)(b.row_end - r) : max_rows;
			float v[ROW_BLOCK * IG_TILE] __attribute__((aligned(64)));
			const uint8_t *rows = (const uint8_t *)x->data + r * x->row_stride;
			product(tile, w->n_cols, rows, x->row_stride, v, n);
			finish_tile(out, e, t, r, n, v);
		}
	}
}

/* Add the biases of a tile's columns to [n_rows][16] products. */
ALWAYS_INLINE void add_bias(const float *bias, int64_t n_cols, int64_t tile, int n_rows, float *v)
{
	const int64_t col = tile * IG_TILE;
	const int n = n_cols - col < IG_TILE ? (int)(n_cols - col) : IG_TILE;

	for (int r = 0; r < n_rows; r++, v += IG_TILE)
		for (int i = 0; i < n; i++)
			v[i] += bias[col + i];
}

/* gcc cannot see that a product writes all of the n_rows * 16 floats read below. */
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
static void run_glu(const struct ig_op_launch *c, int64_t first, int64_t last,
		    tile_product *product, int max_rows)
{
	const struct ig_glu_params *p = c->params;
	const struct ig_tensor *x = &c->in[0], *gate = &c->weight[0], *up = &c->weight[1];
	const struct ig_tensor *out = &c->out[0];
	const struct epilogue plain = { IG_ACT_NONE, NULL, NULL };
	uint64_t tile_bytes = ig_tile16_tile_bytes(gate->dtype, gate->n_cols);

	FOR_TILE_BLOCKS(b, first, last, 2 * tile_bytes, out->n_rows)
	for (int64_t t = b.first; t < b.last; t++) {
		uint64_t at = (uint64_t)t * tile_bytes;
		for (int64_t r = b.row; r < b.row_end; r += max_rows) {
			int n = b.row_end - r < max_rows ? (int)(b.row_end - r) : max_rows;
			const uint8_t *rows = (const uint8_t *)x->data + r * x->row_stride;
			float g[ROW_BLOCK * IG_TILE] __attribute__((aligned(64)));
			float u[ROW_BLOCK * IG_TILE] __attribute__((aligned(64)));
			product((const uint8_t *)gate->data + at, gate->n_cols, rows, x->row_stride,
				g, n);
			product((const uint8_t *)up->data + at, up->n_cols, rows, x->row_stride, u,
				n);
			if (p->bias) {
				add_bias(c->weight[2].data, out->n_cols, t, n, g);
				add_bias(c->weight[3].data, out->n_cols, t, n, u);
			}
			if (p->act == IG_ACT_CLAMPED)
				for (int i = 0; i < n * IG_TILE; i++)
					g[i] = ig_clampedf(g[i], u[i], p->limit);
			else if (p->act == IG_ACT_SILU)
				for (int i = 0; i < n * IG_TILE; i++)
					g[i] = ig_siluf(g[i]) * u[i];
			else if (p->act == IG_ACT_GELU)
				for (int i = 0; i < n * IG_TILE; i++)
					g[i] = ig_geluf(g[i]) * u[i];
			else
				for (int i = 0; i < n * IG_TILE; i++)
					g[i] *= u[i];
			finish_tile(out, &plain, t, r, n, g);
		}
	}
}
#pragma GCC diagnostic pop

/* A product for any number of rows from NAME_rows: a copy for each of 1 to 4 or 8 rows, whose
 * sums are in registers, or (ANY) one copy for any number. */
#define TILE_ROWS(name, n)                                                                         \
	case n: name##_rows(tile, k, x, x_stride, out, n); break;
#define TILE_ROWS_4(name)                                                                          \
	TILE_ROWS(name, 1) TILE_ROWS(name, 2) TILE_ROWS(name, 3) TILE_ROWS(name, 4)
#define TILE_ROWS_8(name)                                                                          \
	TILE_ROWS_4(name)                                                                          \
	TILE_ROWS(name, 5) TILE_ROWS(name, 6) TILE_ROWS(name, 7) TILE_ROWS(name, 8)
#define TILE_ROWS_ANY(name)                                                                        \
	default: name##_rows(tile, k, x, x_stride, out, n_rows);

#ifdef IG_KEEP_LOOPS
#undef TILE_ROWS_4
#undef TILE_ROWS_8
#define TILE_ROWS_4(name) TILE_ROWS_ANY(name)
#define TILE_ROWS_8(name) TILE_ROWS_ANY(name)
#endif

/* Up to four rows as above, and more than that by NAME_wide, which takes all rows of a block. */
#define TILE_ROWS_WIDE(name)                                                                       \
	case 1:                                                                                    \
	case 2:                                                                                    \
	case 3:                                                                                    \
	case 4: name##_few(tile, k, x, x_stride, out, n_rows); break;                              \
	default: name##_wide(tile, k, x, x_stride, out, n_rows);

enum tile_max_rows { TILE_MAX_4 = 4, TILE_MAX_8 = 8, TILE_MAX_ANY = 4, TILE_MAX_WIDE = ROW_BLOCK };

/* From NAME_rows, an always-inline product of up to max rows (4, 8, or ANY: 4 at once, in one
 * copy), make the kernels ig_linear_NAME, ig_glu_NAME and ig_logits_NAME; the second for weights
 * of that dtype and rows in IG_LAYOUT_Q8, whose outliers NAME_rows omits. */
#define TILE_KERNELS(name, max) TILE_KERNELS_(name, max, (void)0)
#define TILE_KERNELS_Q8(name, max, dtype)                                                          \
	TILE_KERNELS_(name, max, add_outliers(dtype, tile, k, x, x_stride, out, n_rows))
#define TILE_KERNELS_(name, max, then)                                                             \
	static void name##_product(const uint8_t *tile, int64_t k, const uint8_t *x,               \
				   int64_t x_stride, float *out, int n_rows)                       \
	{                                                                                          \
		switch (n_rows) {                                                                  \
			TILE_ROWS_##max(name)                                                      \
		}                                                                                  \
		then;                                                                              \
	}                                                                                          \
	void ig_linear_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)  \
	{                                                                                          \
		const struct ig_linear_params *p = c->params;                                      \
		struct epilogue e = { p->act, p->bias ? c->weight[1].data : NULL,                  \
				      c->in[1].data ? &c->in[1] : NULL };                          \
		run_product(c, first, last, &e, name##_product, TILE_MAX_##max);                   \
	}                                                                                          \
	void ig_glu_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)     \
	{                                                                                          \
		run_glu(c, first, last, name##_product, TILE_MAX_##max);                           \
	}                                                                                          \
	void ig_logits_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)  \
	{                                                                                          \
		const struct epilogue e = { IG_ACT_NONE, NULL, NULL };                             \
		run_product(c, first, last, &e, name##_product, TILE_MAX_##max);                   \
	}

#include "ops/cpu/tile_list.h"

/* For TILE_QUANTS: the kernels of a format, from the products quants_q8 and quants_f32 of all. */
#define TILE_QUANT_ROWS(name, quants, dtype)                                                       \
	ALWAYS_INLINE void name##_rows(const uint8_t *tile, int64_t k, const uint8_t *x,           \
				       int64_t stride, float *out, const int n_rows)               \
	{                                                                                          \
		quants(dtype, tile, k, x, stride, out, n_rows);                                    \
	}
#define TILE_QUANT_KERNELS_Q8(format, dtype, isa, max)                                             \
	TILE_QUANT_ROWS(isa##_##format, quants_q8, dtype)                                          \
	TILE_KERNELS_Q8(isa##_##format, max, dtype)
#define TILE_QUANT_KERNELS_F32(format, dtype, isa, max)                                            \
	TILE_QUANT_ROWS(isa##_##format##_f32, quants_f32, dtype)                                   \
	TILE_KERNELS(isa##_##format##_f32, max)
