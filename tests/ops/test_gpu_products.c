/*
 * test_gpu_products.c: what the case table (test_gpu_ops.c) does not have: weights side
 * by side, of one format or of several, at odd columns, with bias and residual; results in
 * every type; one row's bits alone and among few and many; what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/gpu/unpack.h"
#include "ops/op_private.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_shader ig_shader_tiles_unpack;

static struct ig_gpu_lab *lab;

struct layout {
	uint32_t n; /* weights */
	uint32_t dtype[4];
	int64_t rows_of[4], k;
	uint32_t act;
	bool bias, residual;
	uint32_t f32, out_dtype;
	double tolerance;  /* of the result's largest value */
	int32_t most_rows; /* 0: MOST_ROWS */
	uint32_t tiles;	   /* weights are in tiles */
	bool glu;	   /* of both weights; else linear */
};

/* Weights of a norm of x that the product computes. */
static const float *norm_of_x;
#define NORM_EPS 1e-5f

#define MOST_ROWS 70

struct world {
	const struct layout *l;
	struct ig_linear_params params;
	struct ig_glu_params glu;
	void *weight[4];
	float *bias[4], *x, *residual;
	int64_t columns;
	int32_t most_rows;
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static float *floats(int64_t n, uint64_t *seed)
{
	float *p = must(malloc((size_t)n * sizeof *p));

	for (int64_t i = 0; i < n; i++)
		p[i] = ig_random_normalish(seed);
	return p;
}

static void *weights(uint32_t dtype, int64_t rows, int64_t k, uint64_t *seed)
{
	uint64_t row = ig_dtype_row_bytes(dtype, k);
	uint8_t *p = must(aligned_alloc(64, ((size_t)(row * (uint64_t)rows) + 127) & ~(size_t)63));

	for (int64_t r = 0; r < rows; r++)
		ig_case_weight_row(dtype, p + row * (uint64_t)r, k, seed);
	return p;
}

static void open_world(struct world *w, const struct layout *l)
{
	uint64_t seed = 0x243f6a8885a308d3u ^ (uint64_t)l->k;

	*w = (struct world){ .l = l,
			     .params = { sizeof w->params, l->n, l->act, l->bias },
			     .glu = { .struct_size = sizeof w->glu, .act = l->act } };
	w->most_rows = l->most_rows ? l->most_rows : MOST_ROWS;
	for (uint32_t i = 0; i < l->n; i++) {
		w->weight[i] = weights(l->dtype[i], l->rows_of[i], l->k, &seed);
		w->bias[i] = floats(l->rows_of[i], &seed);
		w->columns += l->glu && i ? 0 : l->rows_of[i];
	}
	w->x = floats(w->most_rows * l->k, &seed);
	w->residual = floats(w->most_rows * w->columns, &seed);
}

static void close_world(struct world *w)
{
	for (uint32_t i = 0; i < w->l->n; i++) {
		free(w->weight[i]);
		free(w->bias[i]);
	}
	free(w->x);
	free(w->residual);
}

/* Rows first … of the result. */
static int run(struct world *w, int32_t first, int32_t n, float *out, bool reference,
	       struct ig_error *err)
{
	const struct layout *l = w->l;
	struct ig_step step = { .struct_size = sizeof step, .n_rows = n };
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .params = l->glu ? (void *)&w->glu : &w->params,
				       .step = &step,
				       .n_in = l->residual ? 2 : 1,
				       .n_out = 1,
				       .n_weights = l->n * (1 + l->bias) };
	struct ig_gpu_case c = { .op = l->glu ? &ig_op_glu : &ig_op_linear,
				 .launch = &launch,
				 .in_class = IG_ROWS_TOKENS,
				 .out_dtype = l->out_dtype,
				 .f32 = l->f32,
				 .tiles = l->tiles,
				 .norm = reference ? NULL : norm_of_x,
				 .norm_eps = NORM_EPS };

	launch.in[0] = (struct ig_tensor){ w->x + first * l->k, n, l->k, l->k * 4, IG_F32,
					   IG_LAYOUT_ROWS };
	if (l->residual)
		launch.in[1] = (struct ig_tensor){ w->residual + first * w->columns,
						   n,
						   w->columns,
						   w->columns * 4,
						   IG_F32,
						   IG_LAYOUT_ROWS };
	for (uint32_t i = 0; i < l->n; i++) {
		launch.weight[i] = (struct ig_tensor){
			w->weight[i], l->rows_of[i],
			l->k,	      (int64_t)ig_dtype_row_bytes(l->dtype[i], l->k),
			l->dtype[i],  IG_LAYOUT_ROWS
		};
		if (l->bias)
			launch.weight[l->n + i] =
				(struct ig_tensor){ w->bias[i],	       1,      l->rows_of[i],
						    l->rows_of[i] * 4, IG_F32, IG_LAYOUT_ROWS };
	}
	launch.out[0] =
		(struct ig_tensor){ out, n, w->columns, w->columns * 4, IG_F32, IG_LAYOUT_ROWS };
	return reference ? ig_gpu_case_reference(lab, &c, err) : ig_gpu_case_run(lab, &c, err);
}

static void check(const struct layout *l)
{
	static const int32_t counts[] = { 1,	     8,	  9,   16,  17,	 40,  64,
					  MOST_ROWS, 128, 129, 257, 300, 384, 400 };
	struct ig_error err = { 0 };
	struct world w;
	double most = 0.0;

	open_world(&w, l);
	const int32_t most_rows = w.most_rows;
	float *ref = must(malloc((size_t)(most_rows * w.columns) * sizeof *ref));
	float *all = must(malloc((size_t)(most_rows * w.columns) * sizeof *all));
	float *got = must(malloc((size_t)(most_rows * w.columns) * sizeof *got));
	assert_int_equal(run(&w, 0, most_rows, ref, true, &err), 0);
	if (run(&w, 0, most_rows, all, false, &err))
		fail_msg("%s", err.text);
	for (int64_t i = 0; i < most_rows * w.columns; i++)
		most = fmax(most, fabs((double)ref[i]));
	assert_true(most > 0.1 && most < 1e4);
	for (int64_t i = 0; i < most_rows * w.columns; i++)
		if (!(fabs((double)all[i] - (double)ref[i]) <= l->tolerance * most))
			fail_msg("row %lld column %lld is %.9g, expected %.9g",
				 (long long)(i / w.columns), (long long)(i % w.columns),
				 (double)all[i], (double)ref[i]);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		int32_t first = most_rows - counts[c];

		if (first < 0)
			break;
		if (run(&w, first, counts[c], got, false, &err))
			fail_msg("%d rows: %s", counts[c], err.text);
		for (int32_t r = 0; r < counts[c]; r++)
			if (memcmp(got + r * w.columns, all + (first + r) * w.columns,
				   (size_t)w.columns * sizeof *got))
				fail_msg("row %d has other bits among %d rows", first + r,
					 counts[c]);
	}
	free(ref);
	free(all);
	free(got);
	close_world(&w);
}

#define SIDE(...) { __VA_ARGS__ }

static void test_one_format(void **state)
{
	check(&(struct layout){ 3, SIDE(IG_F16, IG_F16, IG_F16), SIDE(64, 8, 8), 576, IG_ACT_NONE,
				false, false, 0, IG_F32, 1e-4 });
	check(&(struct layout){ 3, SIDE(IG_Q4_0, IG_Q4_0, IG_Q4_0), SIDE(33, 17, 1), 96,
				IG_ACT_SILU, true, true, 0, IG_F32, 1e-3 });
	check(&(struct layout){ 4, SIDE(IG_BF16, IG_BF16, IG_BF16, IG_BF16), SIDE(1, 2, 3, 65),
				1024, IG_ACT_GELU, true, false, 0, IG_F32, 1e-4 });
	check(&(struct layout){ 2, SIDE(IG_F32, IG_F32), SIDE(7, 40), 37, IG_ACT_NONE, false, true,
				0, IG_F32, 1e-5 });
}

/* Each format is a dispatch of its own; they write neighbouring columns. */
static void test_several_formats(void **state)
{
	check(&(struct layout){ 3, SIDE(IG_Q8_0, IG_Q4_1, IG_Q4_1), SIDE(33, 16, 9), 512,
				IG_ACT_NONE, true, true, 0, IG_F32, 1e-3 });
	check(&(struct layout){ 4, SIDE(IG_Q4_0, IG_F16, IG_Q4_0, IG_Q8_0), SIDE(5, 32, 31, 8), 64,
				IG_ACT_SILU, false, false, 0, IG_F16, 2e-3 });
	/* bfloat16 and float16 meet in float */
	check(&(struct layout){ 2, SIDE(IG_BF16, IG_F16), SIDE(19, 20), 99, IG_ACT_NONE, true, true,
				0, IG_F32, 1e-5 });
	check(&(struct layout){ 3, SIDE(IG_F32, IG_Q4_1, IG_BF16), SIDE(3, 40, 5), 160, IG_ACT_NONE,
				false, false, 0, IG_F32, 1e-5 });
}

static void test_in_float(void **state)
{
	check(&(struct layout){ 2, SIDE(IG_Q8_0, IG_Q8_0), SIDE(48, 6), 2048, IG_ACT_NONE, false,
				true, 1, IG_F32, 1e-5 });
	check(&(struct layout){ 1, SIDE(IG_F16), SIDE(21), 1, IG_ACT_GELU, true, false, 1, IG_F32,
				1e-5 });
}

static void test_results(void **state)
{
	check(&(struct layout){ 2, SIDE(IG_F16, IG_F16), SIDE(7, 26), 128, IG_ACT_NONE, true, true,
				0, IG_F16, 2e-3 });
	check(&(struct layout){ 2, SIDE(IG_Q4_1, IG_Q8_0), SIDE(7, 26), 128, IG_ACT_NONE, true,
				false, 0, IG_BF16, 1e-2 });
}

/* Weights and rows so many that all kernels of large ones come to run, as they are chosen on a
 * GPU of 132 multiprocessors; the software device would take minutes. */
static void test_large(void **state)
{
	check(&(struct layout){ 3, SIDE(IG_F16, IG_F16, IG_F16), SIDE(4096, 1200, 1042), 200,
				IG_ACT_NONE, true, true, 0, IG_F32, 1e-4, 400 });
	check(&(struct layout){ 1, SIDE(IG_F16), SIDE(5120), 264, IG_ACT_NONE, false, false, 0,
				IG_F16, 2e-3, 400 });
	check(&(struct layout){ 2, SIDE(IG_BF16, IG_BF16), SIDE(12801, 130), 72, IG_ACT_GELU, true,
				false, 0, IG_F32, 1e-4, 300 });
	check(&(struct layout){ 1, SIDE(IG_F16), SIDE(643), 1288, IG_ACT_NONE, false, true, 0,
				IG_BF16, 1e-2, 300 });
}

/* A sum beyond a half is its largest, never infinite: x and w of 2^9, 64 of them. */
static void test_saturated(void **state)
{
	const struct layout l = { 1,	 SIDE(IG_F16), SIDE(4), 64,	IG_ACT_NONE,
				  false, false,	       0,	IG_F16, 0 };
	struct ig_error err = { 0 };
	struct world w;
	float got[4 * 2];

	open_world(&w, &l);
	for (int64_t i = 0; i < 2 * l.k; i++)
		w.x[i] = i < l.k ? 512.0f : -512.0f;
	for (int64_t i = 0; i < 4 * l.k; i++)
		((uint16_t *)w.weight[0])[i] = 0x6000; /* 512 */
	assert_int_equal(run(&w, 0, 2, got, false, &err), 0);
	for (int i = 0; i < 8; i++)
		assert_float_equal(got[i], i < 4 ? 65504.0f : -65504.0f, 0.0f);
	close_world(&w);
}

static const uint32_t block_formats[] = { IG_Q4_0,   IG_Q4_1,	IG_Q5_0,  IG_Q5_1, IG_Q8_0,
					  IG_Q2_K,   IG_Q3_K,	IG_Q4_K,  IG_Q5_K, IG_Q6_K,
					  IG_IQ4_NL, IG_IQ4_XS, IG_MXFP4, IG_Q8_M };
#define N_BLOCK_FORMATS (sizeof block_formats / sizeof *block_formats)

/* Every format of blocks, with rows on both sides of every kernel; in float too. */
static void test_blocks(void **state)
{
	for (size_t i = 0; i < N_BLOCK_FORMATS; i++) {
		check(&(struct layout){ 1, SIDE(block_formats[i]), SIDE(37), 768, IG_ACT_NONE,
					false, true, 0, IG_F32, 2e-3 });
		check(&(struct layout){ 1, SIDE(block_formats[i]), SIDE(37), 512, IG_ACT_NONE,
					false, false, 1, IG_F32, 1e-5, 20 });
	}
}

/* On NVIDIA where the GPU has kernels for them, on Metal where tensor units are not used. */
static bool have_tiles(void)
{
	const struct ig_gpu_facts *f = ig_gpu_lab_facts(lab);
	return f->kind == IG_GPU_CUDA ? f->tiles : !f->tensor_units;
}

/* MXFP4: every scale of whose values none is infinite and some are not zero as halves, and some below. */
static void spread_scales(uint8_t *blocks, uint64_t n_bytes)
{
	for (uint64_t i = 0; i * 17 < n_bytes; i++)
		blocks[i * 17] = (uint8_t)(95 + i % 46); /* 2^-32 to 2^13 */
}

/* In tiles every weight has the bits that it has in rows: rows of x with a single one choose one
 * after another, few rows and many. */
static void test_tiles_are_the_weights(void **state)
{
	for (size_t i = 0; have_tiles() && i < N_BLOCK_FORMATS; i++) {
		const struct layout l = { 2,
					  SIDE(block_formats[i], block_formats[i]),
					  SIDE(21, 16),
					  768,
					  IG_ACT_NONE,
					  false,
					  false,
					  0,
					  IG_F32,
					  0 };
		struct layout tiles = l;
		struct ig_error err = { 0 };
		struct world w;

		tiles.tiles = 1;
		open_world(&w, &l);
		if (block_formats[i] == IG_MXFP4)
			spread_scales(w.weight[1],
				      l.rows_of[1] * ig_dtype_row_bytes(IG_MXFP4, l.k));
		float *got[2];
		for (int j = 0; j < 2; j++)
			got[j] = must(malloc((size_t)(w.most_rows * w.columns) * sizeof **got));
		for (int32_t n = 3; n <= w.most_rows; n += w.most_rows - 3) {
			memset(w.x, 0, (size_t)(n * l.k) * sizeof *w.x);
			for (int32_t r = 0; r < n; r++)
				w.x[r * l.k + (r * 11 + n) % l.k] = 1.0f;
			for (int j = 0; j < 2; j++) {
				w.l = j ? &tiles : &l;
				if (run(&w, 0, n, got[j], false, &err))
					fail_msg("%s", err.text);
			}
			for (int64_t j = 0; j < n * w.columns; j++)
				if (got[0][j] != got[1][j])
					fail_msg("format %u, row %lld column %lld is %.9g, in rows "
						 "%.9g",
						 block_formats[i], (long long)(j / w.columns),
						 (long long)(j % w.columns), (double)got[1][j],
						 (double)got[0][j]);
		}
		free(got[0]);
		free(got[1]);
		close_world(&w);
	}
}

/* An op that unpacks its weight: row r of the result is the weight's. */
static int check_unpack(struct ig_op_shape *s, struct ig_error *err)
{
	s->out[0] = (struct ig_shape){ .n_cols = s->weight[0].n_cols,
				       .dtype = IG_F32,
				       .row_class = IG_ROWS_TOKENS };
	return 0;
}
/* The bytes of a value are those of a row. */
static int dispatch_to_value(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d)
{
	const struct unpack_args *args = d->args;
	struct ig_gpu_dispatch to_value = *d;

	to_value.bind[1].n_bytes = (uint64_t)args->k * 2;
	return ig_gpu_tape_host.dispatch(t, &to_value);
}
static int lower_unpack(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	struct ig_gpu_host host = *h;

	host.dispatch = dispatch_to_value;
	return ig_gpu_unpack(c, &c->weight[0], 1, c->out[0].ref, &ig_shader_tiles_unpack,
			     "tiles_unpack", &host, t);
}
static bool any_tiles(const struct ig_gpu_launch *c, uint32_t i) { return true; }

#define UNPACKED 32 /* outputs */

/* Unpacked weights have the bits that few rows of x, each with a single one, find in the tiles. */
static void test_unpacked_are_the_tiles(void **state)
{
	static const struct ig_gpu_op gpu = { .struct_size = sizeof gpu,
					      .lower = lower_unpack,
					      .tiles = any_tiles };
	static const struct ig_op op = {
		.struct_size = sizeof op, .name = "unpack", .check = check_unpack, .gpu = &gpu
	};

	for (size_t i = 0; have_tiles() && i < 2 * N_BLOCK_FORMATS; i++) {
		const uint32_t dtype = block_formats[i / 2];
		const int64_t k = i % 2 ? 1024 : ig_dtype_row_bytes(dtype, 288) ? 288 : 768;
		const struct layout l = { 1,	 SIDE(dtype), SIDE(UNPACKED), k, IG_ACT_NONE, false,
					  false, 0,	      IG_F32,	      0, 16,	      1 };
		const struct ig_step step = { .struct_size = sizeof step, .n_rows = UNPACKED };
		struct ig_error err = { 0 };
		struct world w;

		open_world(&w, &l);
		float *rows = must(malloc((size_t)(UNPACKED * k) * sizeof *rows));
		float *got = must(malloc((size_t)(16 * UNPACKED) * sizeof *got));
		struct ig_op_launch launch = {
			.struct_size = sizeof launch, .step = &step, .n_weights = 1, .n_out = 1
		};
		const struct ig_gpu_case c = { .op = &op,
					       .launch = &launch,
					       .in_class = IG_ROWS_TOKENS,
					       .out_dtype = IG_F16,
					       .tiles = 1 };
		launch.weight[0] =
			(struct ig_tensor){ w.weight[0], UNPACKED,
					    k,		 (int64_t)ig_dtype_row_bytes(dtype, k),
					    dtype,	 IG_LAYOUT_ROWS };
		launch.out[0] =
			(struct ig_tensor){ rows, UNPACKED, k, k * 4, IG_F32, IG_LAYOUT_ROWS };
		if (ig_gpu_case_run(lab, &c, &err))
			fail_msg("%s", err.text);
		for (int64_t first = 0; first < k; first += k - 16) {
			memset(w.x, 0, (size_t)(16 * k) * sizeof *w.x);
			for (int64_t r = 0; r < 16; r++)
				w.x[r * k + (first ? first + r : r * 17)] = 1.0f;
			if (run(&w, 0, 16, got, false, &err))
				fail_msg("%s", err.text);
			for (int64_t j = 0; j < 16 * UNPACKED; j++) {
				const int64_t at = first ? first + j / UNPACKED : j / UNPACKED * 17;
				const float is = rows[j % UNPACKED * k + at];
				if (is != got[j])
					fail_msg("format %u: weight %lld of output %lld is %.9g, "
						 "in tiles %.9g",
						 dtype, (long long)at, (long long)(j % UNPACKED),
						 (double)is, (double)got[j]);
			}
		}
		free(rows);
		free(got);
		close_world(&w);
	}
}

/* Weights in tiles side by side, outputs that are no multiple of sixteen, k that is none of a
 * tile's, with one share and with several; rows on both sides of every kernel. */
static void test_tiles(void **state)
{
	for (size_t i = 0; have_tiles() && i < N_BLOCK_FORMATS; i++)
		check(&(struct layout){ 1, SIDE(block_formats[i]), SIDE(37), 768, IG_ACT_NONE,
					false, true, 0, IG_F32, 2e-3, 0, 1 });
	if (!have_tiles())
		return;
	check(&(struct layout){ 3, SIDE(IG_Q4_0, IG_Q4_0, IG_Q4_0), SIDE(33, 17, 1), 96,
				IG_ACT_SILU, true, true, 0, IG_F32, 1e-3, 0, 1 });
	check(&(struct layout){ 4, SIDE(IG_Q8_0, IG_Q4_1, IG_Q4_1, IG_F16), SIDE(33, 16, 9, 3),
				2080, IG_ACT_NONE, true, true, 0, IG_F16, 2e-3, 0, 1 });
	check(&(struct layout){ 1, SIDE(IG_Q6_K), SIDE(16), 2304, IG_ACT_GELU, true, false, 0,
				IG_BF16, 1e-2, 20, 1 });
}

/* The same of weights so large that all cuts of a GPU of 132 multiprocessors come up. */
static void test_large_tiles(void **state)
{
	static const uint32_t formats[] = { IG_Q4_0, IG_Q8_0, IG_Q4_K, IG_Q6_K };

	for (size_t i = 0; have_tiles() && i < sizeof formats / sizeof *formats; i++) {
		check(&(struct layout){ 3, SIDE(formats[i], formats[i], formats[i]),
					SIDE(2048, 256, 250), 2048, IG_ACT_NONE, true, true, 0,
					IG_F32, 1e-3, 300, 1 });
		check(&(struct layout){ 1, SIDE(formats[i]), SIDE(5120), 256, IG_ACT_NONE, false,
					false, 0, IG_F16, 2e-3, 260, 1 });
		check(&(struct layout){ 1, SIDE(formats[i]), SIDE(520), 14336, IG_ACT_NONE, false,
					true, 0, IG_F32, 1e-3, 17, 1 });
		check(&(struct layout){ 1, SIDE(formats[i]), SIDE(17000), 256, IG_ACT_NONE, false,
					false, 0, IG_F32, 1e-3, 17, 1 });
	}
}

/* Dot products in float: of a router's shape, of one of which a threadgroup has one row, and of outputs and k that
 * fill no tile; a row alone has the bits that it has in a tile. */
static void test_large_dots(void **state)
{
	static const struct layout of[] = {
		{ 1, SIDE(IG_F32), SIDE(128), 2048, IG_ACT_NONE, false, false, 0, IG_F32, 1e-5,
		  40 },
		{ 1, SIDE(IG_F32), SIDE(13), 6148, IG_ACT_SILU, true, true, 0, IG_F32, 1e-5, 20 },
		{ 3, SIDE(IG_F32, IG_F32, IG_F32), SIDE(32, 7, 1), 100, IG_ACT_NONE, true, false, 0,
		  IG_F16, 1e-3, 20 },
	};

	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		check(&of[i]);
}

/* The norm of w->x, as the op norm stores it for products of halves. */
static void normalise(struct world *w, const float *weights_of, float *y)
{
	struct ig_norm_params params = { sizeof params, .kind = IG_NORM_RMS, .eps = NORM_EPS };
	struct ig_step step = { .struct_size = sizeof step, .n_rows = w->most_rows };
	const int64_t k = w->l->k;
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .params = &params,
				       .step = &step,
				       .n_in = 1,
				       .n_out = 1,
				       .n_weights = 1 };
	struct ig_gpu_case c = { .op = &ig_op_norm,
				 .launch = &launch,
				 .in_class = IG_ROWS_TOKENS,
				 .out_dtype = IG_F16 };
	struct ig_error err = { 0 };

	launch.in[0] = (struct ig_tensor){ w->x, w->most_rows, k, k * 4, IG_F32, IG_LAYOUT_ROWS };
	launch.weight[0] = (struct ig_tensor){
		(void *)(uintptr_t)weights_of, 1, k, k * 4, IG_F32, IG_LAYOUT_ROWS
	};
	launch.out[0] = (struct ig_tensor){ y, w->most_rows, k, k * 4, IG_F32, IG_LAYOUT_ROWS };
	if (ig_gpu_case_run(lab, &c, &err))
		fail_msg("%s", err.text);
}

/* A product that computes the norm of its rows has the bits of the norm and then the product. */
static void check_norm(const struct layout *l)
{
	struct ig_error err = { 0 };
	struct world w;
	uint64_t seed = 17;

	open_world(&w, l);
	const size_t n = (size_t)(w.most_rows * w.columns);
	float *weights_of = floats(l->k, &seed), *x = w.x;
	float *y = must(malloc((size_t)(w.most_rows * l->k) * sizeof *y));
	float *apart = must(malloc(n * sizeof *apart)), *got = must(malloc(n * sizeof *got));
	normalise(&w, weights_of, y);
	w.x = y;
	if (run(&w, 0, w.most_rows, apart, false, &err))
		fail_msg("%s", err.text);
	w.x = x;
	norm_of_x = weights_of;
	for (int32_t rows = 1; rows <= w.most_rows; rows++) {
		const int32_t first = w.most_rows - rows;
		if (run(&w, first, rows, got, false, &err))
			fail_msg("%d rows of %lld: %s", rows, (long long)l->k, err.text);
		if (memcmp(got, apart + first * w.columns,
			   (size_t)(rows * w.columns) * sizeof *got))
			fail_msg("%d rows of %lld have other bits with their norm", rows,
				 (long long)l->k);
	}
	norm_of_x = NULL;
	free(weights_of);
	free(y);
	free(apart);
	free(got);
	close_world(&w);
}

static void test_large_norm(void **state)
{
	static const int64_t ks[] = { 64, 256, 992, 2048, 2304, 5120 };

	if (!have_tiles())
		return;
	for (size_t i = 0; i < N_BLOCK_FORMATS; i++)
		check_norm(&(struct layout){ 3, SIDE(block_formats[i], block_formats[i], IG_Q8_0),
					     SIDE(300, 37, 64), 768, IG_ACT_NONE, true, true, 0,
					     IG_F32, 0, 8, 1 });
	for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
		const uint32_t format = ks[i] % 256 ? IG_Q8_0 : IG_Q4_K;
		/* so many outputs that no cluster divides x */
		check_norm(&(struct layout){ 1, SIDE(format), SIDE(ks[i] > 5000 ? 6144 : 2560),
					     ks[i], IG_ACT_NONE, false, false, 0, IG_F32, 0, 8,
					     1 });
		check_norm(&(struct layout){
			2, SIDE(format, format),
			SIDE(ks[i] > 5000 ? 9000 : 700, ks[i] > 5000 ? 9000 : 700), ks[i],
			IG_ACT_SILU, false, false, 0, IG_F16, 0, 8, 1, true });
	}
}

/* So many rows that weights are unpacked: with 8, 4, 2 shares of k and with one, of one weight, of
 * several, and of pairs, with columns and k that fill no tile. */
static void test_large_unpacked(void **state)
{
	if (!have_tiles())
		return;
	for (size_t i = 0; i < N_BLOCK_FORMATS; i++)
		check(&(struct layout){ 2, SIDE(block_formats[i], block_formats[i]), SIDE(300, 37),
					2304, IG_ACT_NONE, true, true, 0, IG_F32, 2e-3, 400, 1 });
	check(&(struct layout){ 1, SIDE(IG_Q4_0), SIDE(5000), 1056, IG_ACT_NONE, false, true, 0,
				IG_F32, 2e-3, 300, 1 });
	check(&(struct layout){ 2, SIDE(IG_Q4_K, IG_Q4_K), SIDE(9001, 130), 768, IG_ACT_GELU, true,
				false, 0, IG_F16, 2e-3, 300, 1 });
	check(&(struct layout){ 2, SIDE(IG_Q5_0, IG_Q5_0), SIDE(17001, 70), 288, IG_ACT_NONE, true,
				true, 0, IG_F32, 2e-3, 400, 1 });
	static const int64_t pairs[] = { 700, 3000, 6001, 9000 };
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		check(&(struct layout){ 2, SIDE(IG_Q4_K, IG_Q4_K), SIDE(pairs[i], pairs[i]), 768,
					IG_ACT_SILU, false, false, 0, i % 2 ? IG_F16 : IG_F32, 4e-3,
					300, 1, true });
}

/* Weights of more than a piece: the second weight's begin in the third. */
static void test_large_pieces(void **state)
{
	if (!have_tiles())
		return;
	check(&(struct layout){ 2, SIDE(IG_Q8_0, IG_Q8_0), SIDE(140000, 523), 256, IG_ACT_NONE,
				true, true, 0, IG_F32, 2e-3, 258, 1 });
	check(&(struct layout){ 2, SIDE(IG_Q8_0, IG_Q8_0), SIDE(70003, 70003), 256, IG_ACT_SILU,
				false, false, 0, IG_F16, 4e-3, 258, 1, true });
}

/* A format that no kernel knows is named. */
static void test_refused(void **state)
{
	struct ig_linear_params params = { sizeof params, 1, IG_ACT_NONE, 0 };
	struct ig_gpu_launch launch = { .struct_size = sizeof launch,
					.n_in = 1,
					.n_weights = 1,
					.n_out = 1,
					.params = &params,
					.facts = ig_gpu_lab_facts(lab),
					.max_rows = 1 };
	struct ig_error err = { 0 };

	launch.in[0] = (struct ig_gpu_tensor){ .n_cols = 32, .row_stride = 64, .dtype = IG_F32 };
	launch.weight[0] = (struct ig_gpu_tensor){
		.n_rows = 1, .n_cols = 32, .row_stride = 34, .dtype = IG_I32
	};
	launch.out[0] = (struct ig_gpu_tensor){ .n_cols = 1, .row_stride = 64, .dtype = IG_F32 };
	assert_int_equal(ig_op_linear.gpu->lower(&launch, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "dtype 26"));
	launch.weight[0].dtype = IG_BF16;
	launch.in[0].dtype = IG_F16;
	assert_int_equal(ig_op_linear.gpu->lower(&launch, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	launch.in[0].dtype = IG_BF16;
	launch.in[0].n_cols = (int64_t)1 << 40;
	assert_int_equal(ig_op_linear.gpu->lower(&launch, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "too long"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_format),
		cmocka_unit_test(test_several_formats),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_in_float),
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_saturated),
		cmocka_unit_test(test_tiles_are_the_weights),
		cmocka_unit_test(test_unpacked_are_the_tiles),
		cmocka_unit_test(test_tiles),
		cmocka_unit_test(test_large_tiles),
		cmocka_unit_test(test_large_dots),
		cmocka_unit_test(test_large_norm),
		cmocka_unit_test(test_large_unpacked),
		cmocka_unit_test(test_large_pieces),
		cmocka_unit_test(test_refused),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	if (ig_gpu_lab_facts(lab)->kind != IG_GPU_CUDA)
		cmocka_set_skip_filter("test_large*");
	rc = cmocka_run_group_tests_name("products on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
