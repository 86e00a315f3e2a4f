/*
 * test_gpu_rows.c: cases of row-wise kernels that the table of cases does not have:
 * conversions to 16 bits (an operation of the runtime), ids that the previous step sampled,
 * learned positions and types of texts, pooling and results, and values that are not ordinary numbers.
 *
 *   test_gpu_rows [soft|cuda]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/float.h"
#include "ops/ops.h"
#include "runtime/gpu/gpu_private.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"
#include "tests/ops/pool_case.h"
#include "tests/ops/row_options.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 3
#define COLS 1031

static struct ig_gpu_lab *lab;

static int run(const struct ig_op *op, struct ig_op_launch *launch, uint32_t out_dtype)
{
	const struct ig_gpu_case c = { .op = op,
				       .launch = launch,
				       .out_dtype = out_dtype,
				       .in_class = IG_ROWS_TOKENS,
				       .max_logit_rows = 4 };
	struct ig_error err = { 0 };
	int rc = ig_gpu_case_run(lab, &c, &err);

	if (rc)
		print_error("%s\n", err.text);
	return rc;
}

/* ---- conversions, as an op that is nothing else ---- */

static int check_same(struct ig_op_shape *s, struct ig_error *err)
{
	s->n_out = 1;
	s->out[0] = s->in[0];
	return 0;
}

static int lower_convert(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_error *err)
{
	return ig_gpu_emit_convert(t, &c->in[0], &c->out[0]);
}

static const struct ig_gpu_op convert_gpu = {
	sizeof(struct ig_gpu_op),
	IG_GPU_OUT_ANY,
	NULL,
	lower_convert,
};
static const struct ig_op convert_op = {
	.struct_size = sizeof convert_op,
	.name = "convert",
	.check = check_same,
	.gpu = &convert_gpu,
};

static void test_convert(void **state)
{
	static const float special[] = {
		0.0f,
		-0.0f,
		INFINITY,
		-INFINITY,
		NAN,
		65504.0f,
		65519.9f,
		65520.0f,
		-65520.0f,
		1e30f,
		-3e38f,
		0x1p-14f,
		0x1p-24f,
		0x1.8p-25f,
		0x1p-26f,
		1.0f + 0x1p-11f,
		1.0f + 0x1.8p-10f,
		1.0f + 0x1p-8f,
		1.0f + 0x1.8p-7f,
		3.3e38f,
	};
	static float x[ROWS * COLS], y[ROWS * COLS];
	static const uint32_t types[] = { IG_F16, IG_BF16 };
	struct ig_step step = { .struct_size = sizeof step, .n_rows = ROWS };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.n_in = 1,
		.n_out = 1,
		.step = &step,
		.in = { { x, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { y, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	uint64_t s = 6;

	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = ldexpf(ig_random_normalish(&s), (int)(ig_random_u64(&s) % 48) - 30);
	memcpy(x + 1000, special, sizeof special);
	for (int t = 0; t < 2; t++) {
		assert_int_equal(run(&convert_op, &launch, types[t]), 0);
		for (int i = 0; i < ROWS * COLS; i++) {
			float want = ig_gpu_case_round(types[t], x[i]);
			if (x[i] != x[i])
				assert_true(y[i] != y[i]);
			else if (ig_bits_from_f32(y[i]) != ig_bits_from_f32(want))
				fail_msg("%g became %g, not %g", (double)x[i], (double)y[i],
					 (double)want);
		}
		if (types[t] == IG_F16) /* never infinite */
			assert_true(y[1002] == 65504.0f && y[1003] == -65504.0f &&
				    y[1009] == 65504.0f);
	}
}

/* ---- embed ---- */

static void test_embed_reads_the_last_draws(void **state)
{
	enum { VOCAB = 20, WIDTH = 33, TOKENS = 5 };
	static float table[VOCAB * WIDTH], want[TOKENS * WIDTH], got[TOKENS * WIDTH];
	static const int32_t ids[TOKENS] = { 3, 0, 19, -5, 20 }; /* the last two: not tokens */
	static const int32_t from[TOKENS] = { -1, 2, -1, -1, -1 };
	static const int32_t sampled[4] = { 1, 2, 17, 4 }; /* [max_logit_rows] */
	struct ig_embed_params p = { sizeof p, 0.5f };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = TOKENS,
				.token_ids = ids,
				.token_from = from,
				.prev_ids = sampled };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &p,
		.n_weights = 1,
		.n_out = 1,
		.step = &step,
		.weight = { { table, VOCAB, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { want, TOKENS, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
	};

	for (int i = 0; i < VOCAB * WIDTH; i++)
		table[i] = (float)i;
	ig_op_embed.reference(&launch);
	assert_true(want[WIDTH] == (float)(17 * WIDTH) * 0.5f);
	launch.out[0].data = got;
	assert_int_equal(run(&ig_op_embed, &launch, IG_F32), 0);
	assert_memory_equal(got, want, sizeof got);
}

/* The token after a row: the step's, or one that it has sampled. */
static void test_embed_reads_what_is_next(void **state)
{
	enum { VOCAB = 20, WIDTH = 33, TOKENS = 5 };
	static float table[VOCAB * WIDTH], want[TOKENS * WIDTH], got[TOKENS * WIDTH];
	static const int32_t ids[TOKENS] = { 3, 0, 19, 5, 2 }, next[TOKENS] = { 7, -3, 0, -1, 20 };
	int32_t sampled[4] = { 11, 2, 17, 4 }; /* [max_logit_rows] */
	struct ig_embed_params p = { sizeof p, 0.5f, .next = 1 };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = TOKENS,
				.n_logit_rows = 3,
				.token_ids = ids,
				.sampled_ids = sampled,
				.next_ids = next };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &p,
		.n_weights = 1,
		.n_out = 1,
		.step = &step,
		.weight = { { table, VOCAB, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { want, TOKENS, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	static const struct ig_sample_params sample[3];
	static const int32_t logit_rows[3] = { 0, 1, 3 };

	step.sample = sample;
	step.logit_rows = logit_rows;
	for (int i = 0; i < VOCAB * WIDTH; i++)
		table[i] = (float)i;
	ig_op_embed.reference(&launch);
	assert_true(want[0] == (float)(7 * WIDTH) * 0.5f);
	assert_true(want[WIDTH] == (float)(17 * WIDTH) * 0.5f);
	assert_true(want[3 * WIDTH] == (float)(11 * WIDTH) * 0.5f);
	launch.out[0].data = got;
	assert_int_equal(run(&ig_op_embed, &launch, IG_F32), 0);
	assert_memory_equal(got, want, sizeof got);
}

/* Of the rows with logits those for which a token is guessed. */
static void test_norm_gathers_guesses(void **state)
{
	enum { TOKENS = 7, WIDTH = 1031, GUESSES = 2 };
	static float x[TOKENS * WIDTH], w[WIDTH], want[GUESSES * WIDTH], got[GUESSES * WIDTH];
	static const int32_t logit_rows[] = { 1, 2, 5, 6 }, guess_rows[] = { 1, 3 };
	static const int32_t next[TOKENS] = { 0 };
	static const struct ig_sample_params sample[4];
	int32_t sampled[4] = { 0 };
	const struct ig_norm_params p = { sizeof p, .eps = 1e-5f, .gather = 2 };
	const struct ig_step step = { .struct_size = sizeof step,
				      .n_rows = TOKENS,
				      .n_logit_rows = 4,
				      .logit_rows = logit_rows,
				      .sample = sample,
				      .sampled_ids = sampled,
				      .next_ids = next,
				      .guess_rows = guess_rows,
				      .n_guesses = GUESSES };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &p,
		.n_in = 1,
		.n_weights = 1,
		.n_out = 1,
		.step = &step,
		.in = { { x, TOKENS, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
		.weight = { { w, 1, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { want, GUESSES, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	uint64_t seed = 8;

	for (int i = 0; i < TOKENS * WIDTH; i++)
		x[i] = ig_random_normalish(&seed);
	for (int i = 0; i < WIDTH; i++)
		w[i] = ig_random_normalish(&seed);
	ig_op_norm.reference(&launch);
	launch.out[0].data = got;
	assert_int_equal(run(&ig_op_norm, &launch, IG_F32), 0);
	for (int i = 0; i < GUESSES * WIDTH; i++)
		if (!(fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
			fail_msg("value %d is %.9g, expected %.9g", i, (double)got[i],
				 (double)want[i]);
}

/* Tables and positions of any formats; a position beyond the table reads its first row. */
static void test_embed_adds_learned_positions(void **state)
{
	enum { VOCAB = 7, POSITIONS = 9, WIDTH = 768, TOKENS = 4 };
	static const uint32_t formats[] = { IG_F32, IG_F16, IG_Q6_K, IG_BF16, IG_Q4_0, IG_F32 };
	static float want[TOKENS * WIDTH], got[TOKENS * WIDTH];
	static const int32_t ids[TOKENS] = { 3, 0, 6, 1 }, positions[TOKENS] = { 0, 8, 9, 5 };
	static _Alignas(64) uint8_t tables[2][POSITIONS * WIDTH * 4];
	struct ig_embed_params p = { sizeof p, 1.5f };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = TOKENS,
				.token_ids = ids,
				.positions = positions };
	uint64_t seed = 12;

	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		/* 41 values where the formats allow it */
		int64_t width = i ? WIDTH : 41;
		uint32_t other = formats[(i + 1) % (sizeof formats / sizeof *formats)];
		int64_t row[2] = { (int64_t)ig_dtype_row_bytes(formats[i], width),
				   (int64_t)ig_dtype_row_bytes(other, width) };
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_weights = 2,
			.n_out = 1,
			.step = &step,
			.weight = { { tables[0], VOCAB, width, row[0], formats[i], IG_LAYOUT_ROWS },
				    { tables[1], POSITIONS, width, row[1], other,
				      IG_LAYOUT_ROWS } },
			.out = { { want, TOKENS, width, width * 4, IG_F32, IG_LAYOUT_ROWS } },
		};

		for (int64_t r = 0; r < POSITIONS; r++) {
			ig_case_weight_row(formats[i], tables[0] + r * row[0], width, &seed);
			ig_case_weight_row(other, tables[1] + r * row[1], width, &seed);
		}
		ig_op_embed.reference(&launch);
		launch.out[0].data = got;
		assert_int_equal(run(&ig_op_embed, &launch, IG_F32), 0);
		for (int64_t j = 0; j < TOKENS * width; j++)
			if (!(fabsf(got[j] - want[j]) <= 0x1p-22f * (1.0f + fabsf(want[j]))))
				fail_msg("formats %u and %u: value %lld is %.9g, expected %.9g",
					 formats[i], other, (long long)j, (double)got[j],
					 (double)want[j]);
	}
}

/* Rows from outside in place of the table's, unscaled; learned positions are added to them as to any. */
static void test_embed_takes_rows_from_outside(void **state)
{
	enum { VOCAB = 33, POSITIONS = 9, WIDTH = 768, TOKENS = 5 };
	static const struct {
		uint32_t format;
		int64_t width;
		uint32_t tiles;
	} tables[] = {
		{ IG_F32, 41, 0 },     { IG_BF16, WIDTH, 0 }, { IG_F16, 40, 0 },
		{ IG_Q4_K, WIDTH, 0 }, { IG_Q4_K, WIDTH, 1 }, { IG_Q6_K, WIDTH, 1 },
	};
	static const int32_t ids[TOKENS] = { 3, 0, 32, 17, 1 },
			     positions[TOKENS] = { 0, 8, 1, 5, 2 };
	static _Alignas(64) uint8_t table[VOCAB * WIDTH * 4], learned[POSITIONS * WIDTH * 4];
	static float rows[TOKENS][WIDTH], want[TOKENS * WIDTH], got[TOKENS * WIDTH];
	/* the first and last, and one twice */
	const float *const some[][TOKENS] = {
		{ rows[0], NULL, rows[2], rows[2], NULL },
		{ NULL, NULL, NULL, NULL, rows[4] },
		{ rows[0], rows[1], rows[2], rows[3], rows[4] },
		{ NULL },
	};
	uint64_t seed = 14;

	for (size_t i = 0; i < TOKENS * WIDTH; i++)
		rows[i / WIDTH][i % WIDTH] = (float)((i * 7919) % 1000) / 250 - 2;
	for (size_t i = 0; i < sizeof tables / sizeof *tables * 8; i++) {
		const uint32_t format = tables[i / 8].format;
		const int64_t width = tables[i / 8].width;
		const int64_t row = (int64_t)ig_dtype_row_bytes(format, width);
		struct ig_embed_params p = { sizeof p, 1.5f, .outside = 1 };
		const struct ig_step step = { .struct_size = sizeof step,
					      .n_rows = TOKENS,
					      .token_ids = ids,
					      .positions = positions,
					      .outside = some[i / 2 % 4] };
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_weights = 1 + (uint32_t)i % 2,
			.n_out = 1,
			.step = &step,
			.weight = { { table, VOCAB, width, row, format, IG_LAYOUT_ROWS },
				    { learned, POSITIONS, width, width * 4, IG_F32,
				      IG_LAYOUT_ROWS } },
			.out = { { want, TOKENS, width, width * 4, IG_F32, IG_LAYOUT_ROWS } },
		};
		const struct ig_gpu_case c = { .op = &ig_op_embed,
					       .launch = &launch,
					       .in_class = IG_ROWS_TOKENS,
					       .tiles = tables[i / 8].tiles,
					       .max_logit_rows = 4 };
		struct ig_error err = { 0 };

		for (int64_t r = 0; r < VOCAB; r++)
			ig_case_weight_row(format, table + r * row, width, &seed);
		for (int64_t r = 0; r < POSITIONS; r++)
			ig_case_weight_row(IG_F32, learned + r * width * 4, width, &seed);
		/* 0: another table than the input's, which keeps its rows */
		for (p.outside = 0; p.outside < 2; p.outside++) {
			launch.out[0].data = want;
			ig_op_embed.reference(&launch);
			launch.out[0].data = got;
			if (ig_gpu_case_run(lab, &c, &err))
				fail_msg("%s", err.text);
			for (int64_t j = 0; j < TOKENS * width; j++) {
				const bool is_exact = p.outside && some[i / 2 % 4][j / width];
				const float most =
					is_exact ? 0 : 0x1p-22f * (1.0f + fabsf(want[j]));
				if (!(fabsf(got[j] - want[j]) <= most))
					fail_msg("case %zu: value %lld is %.9g, expected %.9g", i,
						 (long long)j, (double)got[j], (double)want[j]);
			}
		}
	}
}

/* Types with learned positions or without; a type that is not there reads the first row, and so does a step
 * without types. */
static void test_embed_adds_types(void **state)
{
	enum { VOCAB = 7, POSITIONS = 5, TYPES = 3, WIDTH = 41, TOKENS = 4 };
	static float tables[3][VOCAB * WIDTH], want[TOKENS * WIDTH], got[TOKENS * WIDTH];
	static const int32_t ids[TOKENS] = { 3, 0, 6, 1 }, positions[TOKENS] = { 0, 1, 2, 3 },
			     types[TOKENS] = { 1, 0, 2, 3 };
	const struct ig_embed_params p = { sizeof p, 1 };
	uint64_t seed = 5;

	for (int i = 0; i < 3 * VOCAB * WIDTH; i++)
		tables[i / (VOCAB * WIDTH)][i % (VOCAB * WIDTH)] = ig_random_normalish(&seed);
	for (int way = 0; way < 4; way++) {
		const struct ig_step step = { .struct_size = sizeof step,
					      .n_rows = TOKENS,
					      .token_ids = ids,
					      .positions = positions,
					      .row_types = way & 1 ? types : NULL };
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_weights = 3,
			.n_out = 1,
			.step = &step,
			.weight = { { tables[0], VOCAB, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS },
				    { 0 },
				    { tables[2], TYPES, WIDTH, WIDTH * 4, IG_F32,
				      IG_LAYOUT_ROWS } },
			.out = { { want, TOKENS, WIDTH, WIDTH * 4, IG_F32, IG_LAYOUT_ROWS } },
		};
		if (way & 2)
			launch.weight[1] =
				(struct ig_tensor){ tables[1], POSITIONS, WIDTH,
						    WIDTH * 4, IG_F32,	  IG_LAYOUT_ROWS };
		ig_op_embed.reference(&launch);
		launch.out[0].data = got;
		assert_int_equal(run(&ig_op_embed, &launch, IG_F32), 0);
		for (int j = 0; j < TOKENS * WIDTH; j++)
			assert_true(fabsf(got[j] - want[j]) <= 1e-6f);
	}
}

/* ---- pool and output ---- */

static void test_pool(void **state)
{
	static const uint32_t dtypes[] = { IG_F32, IG_F16, IG_BF16 };
	static struct pool_case c, other;

	for (uint32_t kind = IG_POOL_MEAN; kind <= IG_POOL_LAST; kind++) {
		pool_case_make(&c, kind);
		pool_case_make(&other, kind);
		for (int t = 0; t < 3; t++) {
			struct pool_case *r = t ? &other : &c;
			assert_int_equal(run(&ig_op_pool, &r->launch, dtypes[t]), 0);
			for (int i = 0; i < POOL_RESULTS; i++)
				for (int k = 0; k < POOL_COLS; k++)
					assert_true(t ? r->y[i][k] == ig_gpu_case_round(dtypes[t],
											c.y[i][k]) :
							fabs((double)r->y[i][k] -
							     pool_case_want(r, i, k)) <= 1e-6);
		}
	}
}

static void test_output(void **state)
{
	enum { RESULTS = 3, COLUMNS = 4100 };
	static float x[RESULTS][COLUMNS], results[RESULTS * COLUMNS];
	const struct ig_output_params p = { sizeof p, 0 };
	static const int32_t rows[RESULTS] = { 0, 1, 2 };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = RESULTS,
				.n_logit_rows = RESULTS,
				.logit_rows = rows };
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .n_in = 1,
				       .params = &p,
				       .step = &step,
				       .in = { { x, RESULTS, COLUMNS, sizeof x[0], IG_F32,
						 IG_LAYOUT_ROWS } } };
	const struct ig_gpu_case c = { .op = &ig_op_output,
				       .launch = &launch,
				       .in_class = IG_ROWS_LOGITS };
	struct ig_error err = { 0 };

	for (int i = 0; i < RESULTS * COLUMNS; i++)
		x[i / COLUMNS][i % COLUMNS] = (float)i;
	assert_int_equal(ig_gpu_case_run(lab, &c, &err), 0); /* nobody wants them */
	step.logits = results;
	assert_int_equal(ig_gpu_case_run(lab, &c, &err), 0);
	assert_memory_equal(results, x, sizeof results);
}

/* ---- norm ---- */

static void test_norm_of_what_is_not_ordinary(void **state)
{
	static float x[ROWS * COLS], y[ROWS * COLS], w[COLS];
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, 0.0f, 0 };
	struct ig_step step = { .struct_size = sizeof step, .n_rows = ROWS };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &p,
		.n_in = 1,
		.n_weights = 1,
		.n_out = 1,
		.step = &step,
		.in = { { x, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
		.weight = { { w, 1, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { y, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
	};

	for (int i = 0; i < COLS; i++) {
		w[i] = 1e6f; /* beyond a half's range */
		x[i] = i % 2 ? -1.0f : 1.0f;
		x[COLS + i] = i == 500 ? NAN : 1.0f;
		x[2 * COLS + i] = 1.0f;
	}
	assert_int_equal(run(&ig_op_norm, &launch, IG_F16), 0);
	for (int i = 0; i < COLS; i++) {
		assert_true(y[i] == (i % 2 ? -65504.0f : 65504.0f));
		assert_true(y[COLS + i] != y[COLS + i]); /* a NaN stays in its row, and is seen */
		assert_true(y[2 * COLS + i] == 65504.0f);
	}
}

/* A result in two types: float, and that rounded once. */
static void test_norm_twice(void **state)
{
	static float x[ROWS * COLS], y[ROWS * COLS], w[COLS], also[ROWS * COLS];
	static const uint32_t types[] = { IG_F16, IG_BF16 };
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, 1e-5f, 0 };
	struct ig_step step = { .struct_size = sizeof step, .n_rows = ROWS };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &p,
		.n_in = 1,
		.n_weights = 1,
		.n_out = 1,
		.step = &step,
		.in = { { x, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
		.weight = { { w, 1, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { y, ROWS, COLS, COLS * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	uint64_t seed = 5;

	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = ig_random_normalish(&seed);
	for (int i = 0; i < COLS; i++)
		w[i] = i == 7 ? 1e6f : ig_random_normalish(&seed);
	for (size_t t = 0; t < 2; t++) {
		const struct ig_gpu_case c = { .op = &ig_op_norm,
					       .launch = &launch,
					       .in_class = IG_ROWS_TOKENS,
					       .out_dtype = IG_F32,
					       .also = also,
					       .also_dtype = types[t] };
		struct ig_error err = { 0 };
		memset(also, 0, sizeof also);
		if (ig_gpu_case_run(lab, &c, &err))
			fail_msg("%s", err.text);
		for (int i = 0; i < ROWS * COLS; i++) {
			const float want = ig_gpu_case_round(types[t], y[i]);
			if (memcmp(&also[i], &want, sizeof want))
				fail_msg("%d is %.9g, rounded %.9g, expected %.9g", i, (double)y[i],
					 (double)also[i], (double)want);
		}
	}
}

/* ---- options of norm, multiply, soft_cap: as the reference has them ---- */

static void check_option(const struct ig_op *op, struct ig_op_launch *c, const char *what)
{
	const size_t n = OPTION_ROWS * OPTION_COLS;
	float *y = c->out[0].data, *want = malloc(n * sizeof *want);
	static const uint32_t types[] = { IG_F32, IG_F16, IG_BF16 };

	assert_non_null(want);
	op->reference(c);
	memcpy(want, y, n * sizeof *want);
	for (int t = 0; t < (op->gpu->flags & IG_GPU_OUT_ANY ? 3 : 1); t++) {
		const double rounded = types[t] == IG_F32 ? 0 :
				       types[t] == IG_F16 ? 0x1p-11 :
							    0x1p-8;
		memset(y, 0xff, n * sizeof *y);
		assert_int_equal(run(op, c, types[t]), 0);
		for (int64_t r = 0; r < c->out[0].n_rows; r++)
			for (int64_t i = 0; i < c->out[0].n_cols; i++) {
				const double a = (double)y[r * OPTION_COLS + i],
					     b = (double)want[r * OPTION_COLS + i];
				/* sums of values of about 1 */
				if (!(fabs(a - b) <= rounded * fabs(b) + 1e-6 * (fabs(b) + 1)))
					fail_msg("%s to type %u: row %lld, column %lld is %g, "
						 "expected %g",
						 what, types[t], (long long)r, (long long)i, a, b);
			}
	}
	free(want);
}

static void test_options(void **state) { each_row_option(check_option); }

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_convert),
		cmocka_unit_test(test_embed_reads_the_last_draws),
		cmocka_unit_test(test_embed_reads_what_is_next),
		cmocka_unit_test(test_norm_gathers_guesses),
		cmocka_unit_test(test_embed_adds_learned_positions),
		cmocka_unit_test(test_embed_takes_rows_from_outside),
		cmocka_unit_test(test_embed_adds_types),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_output),
		cmocka_unit_test(test_norm_of_what_is_not_ordinary),
		cmocka_unit_test(test_norm_twice),
		cmocka_unit_test(test_options),
	};
	struct ig_error err = { 0 };
	const char *device = argc > 1 ? argv[1] : getenv("INGOT_TEST_GPU");
	int rc = ig_gpu_lab_open(device, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s: %s\n", device ? device : "soft", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("rows on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
