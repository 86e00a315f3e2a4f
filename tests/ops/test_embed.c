/*
 * test_embed.c: embed with learned positions: the kernel against the reference, whatever
 * the tables' formats and however its rows are cut; shapes that are refused.  Plain embed is
 * in the table of cases, GPUs are in test_gpu_rows.c.
 */
#include "ops/cpu/tile16.h"
#include "ops/ops.h"
#include "tests/ops/cases.h"

#include "model/formats/checkpoint.h"

#include <ingot/arch.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N_COLS 70
#define N_ROWS 9

struct table {
	uint32_t dtype;
	int64_t n;
	void *rows, *tiled; /* as files have them; tiles of sixteen */
};

static struct table make_table(uint32_t dtype, int64_t n, uint64_t *random)
{
	uint64_t row = ig_dtype_row_bytes(dtype, N_COLS);
	struct table t = { dtype, n, calloc((size_t)n, row),
			   calloc((size_t)ig_tile16_n_tiles(n),
				  ig_tile16_tile_bytes(dtype, N_COLS)) };

	assert_non_null(t.rows);
	assert_non_null(t.tiled);
	for (int64_t i = 0; i < n * N_COLS; i++) {
		float x = (float)((int64_t)(ig_random_u64(random) >> 40) - (1 << 23)) / (1 << 22);
		uint32_t bits;

		memcpy(&bits, &x, sizeof bits);
		if (dtype == IG_F32)
			((float *)t.rows)[i] = x;
		else /* bf16: any upper half of a float is one */
			((uint16_t *)t.rows)[i] = (uint16_t)(bits >> 16);
	}
	ig_tile16_pack(dtype, t.rows, n, N_COLS, t.tiled, 0, ig_tile16_n_tiles(n));
	return t;
}

static struct ig_tensor tensor_of(const struct table *t, int tiled)
{
	return (struct ig_tensor){ tiled ? t->tiled : t->rows,
				   t->n,
				   N_COLS,
				   tiled ? 0 : (int64_t)ig_dtype_row_bytes(t->dtype, N_COLS),
				   t->dtype,
				   tiled ? IG_LAYOUT_TILE16 : IG_LAYOUT_ROWS };
}

static void check_tables(uint32_t token_dtype, uint32_t position_dtype, int64_t n_positions)
{
	static const int32_t ids[N_ROWS] = { 49, 0, 7, 7, 16, 15, 31, 32, 1 };
	static const int32_t positions[N_ROWS] = { 0, 1, 2, 19, 3, 17, 16, 15, 4 };
	const struct ig_embed_params p = { sizeof p, 1.5f };
	const struct ig_step step = { .struct_size = sizeof step,
				      .n_rows = N_ROWS,
				      .token_ids = ids,
				      .positions = positions };
	const struct ig_cpu_kernel *k = &ig_op_embed.cpu_kernels[0];
	uint64_t random = 11;
	struct table token = make_table(token_dtype, 50, &random);
	struct table learned = make_table(position_dtype, n_positions, &random);
	float want[N_ROWS][N_COLS], got[N_ROWS][N_COLS], scratch[N_COLS], row[N_COLS];
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.n_weights = 2,
		.n_out = 1,
		.params = &p,
		.step = &step,
		.weight = { tensor_of(&token, 0), tensor_of(&learned, 0) },
		.out = { { want, N_ROWS, N_COLS, sizeof want[0], IG_F32, IG_LAYOUT_ROWS } },
	};

	ig_op_embed.reference(&launch);
	for (int r = 0; r < N_ROWS; r++) { /* what it means, said once more */
		int64_t at = positions[r] < n_positions ? positions[r] : 0;

		ig_dtype_to_f32(token.dtype,
				(char *)token.rows + ids[r] * launch.weight[0].row_stride, row,
				N_COLS);
		ig_dtype_to_f32(learned.dtype,
				(char *)learned.rows + at * launch.weight[1].row_stride, scratch,
				N_COLS);
		for (int i = 0; i < N_COLS; i++)
			assert_true(want[r][i] == row[i] * 1.5f + scratch[i]);
	}
	launch.weight[0] = tensor_of(&token, 1);
	launch.weight[1] = tensor_of(&learned, n_positions > 1);
	launch.out[0].data = got;
	assert_int_equal(k->scratch_bytes(&launch), sizeof scratch);
	assert_int_equal(k->n_units(&launch), N_ROWS);
	memset(got, 0xff, sizeof got);
	k->run(&launch, 0, N_ROWS, scratch);
	assert_memory_equal(got, want, sizeof got);
	memset(got, 0xff, sizeof got);
	for (int r = N_ROWS; r-- > 0;)
		k->run(&launch, r, r + 1, scratch);
	assert_memory_equal(got, want, sizeof got);
	free(token.rows);
	free(token.tiled);
	free(learned.rows);
	free(learned.tiled);
}

/* Types of texts, with positions and without. */
static void test_types(void **state)
{
	static const int32_t ids[3] = { 4, 0, 7 }, positions[3] = { 0, 1, 5 },
			     types[3] = { 0, 1, 9 };
	const struct ig_embed_params p = { sizeof p, 1.0f };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = 3,
				.token_ids = ids,
				.positions = positions,
				.row_types = types };
	uint64_t random = 5;
	struct table t[3] = { make_table(IG_F32, 20, &random), make_table(IG_F32, 20, &random),
			      make_table(IG_F32, 2, &random) };
	float want[3][N_COLS], got[3][N_COLS], scratch[N_COLS];

	for (int with = 0; with < 4; with++) {
		const bool positioned = with & 1;
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.n_weights = 3,
			.n_out = 1,
			.params = &p,
			.step = &step,
			.weight = { tensor_of(&t[0], 0), { 0 }, tensor_of(&t[2], 0) },
			.out = { { want, 3, N_COLS, sizeof want[0], IG_F32, IG_LAYOUT_ROWS } },
		};
		step.row_types = with & 2 ? types : NULL;
		if (positioned)
			launch.weight[1] = tensor_of(&t[1], 0);
		ig_op_embed.reference(&launch);
		for (int r = 0; r < 3; r++) {
			/* one beyond the table is row 0 */
			int type = with & 2 && types[r] < 2 ? types[r] : 0;
			for (int i = 0; i < N_COLS; i++) {
				float x = ((float *)t[0].rows)[ids[r] * N_COLS + i];
				if (positioned)
					x += ((float *)t[1].rows)[positions[r] * N_COLS + i];
				x += ((float *)t[2].rows)[type * N_COLS + i];
				assert_true(want[r][i] == x);
			}
		}
		for (int i = 0; i < 3; i++)
			if (launch.weight[i].data)
				launch.weight[i] = tensor_of(&t[i], 1);
		launch.out[0].data = got;
		ig_op_embed.cpu_kernels[0].run(&launch, 0, 3, scratch);
		assert_memory_equal(got, want, sizeof got);
	}
	for (int i = 0; i < 3; i++) {
		free(t[i].rows);
		free(t[i].tiled);
	}
}

/* A row from outside stands in place of its token's, unscaled; positions are added to it as to any. */
static void test_outside(void **state)
{
	static const int32_t ids[3] = { 4, 0, 7 }, positions[3] = { 0, 1, 5 };
	struct ig_embed_params p = { sizeof p, 1.5f, .outside = 1 };
	uint64_t random = 6;
	struct table t[2] = { make_table(IG_BF16, 20, &random), make_table(IG_F32, 20, &random) };
	float from[N_COLS], plain[3][N_COLS], want[3][N_COLS], got[3][N_COLS], scratch[N_COLS];
	const float *const outside[3] = { NULL, from, NULL };
	struct ig_step step = {
		.struct_size = sizeof step, .n_rows = 3, .token_ids = ids, .positions = positions
	};

	for (int i = 0; i < N_COLS; i++)
		from[i] = (float)i / 8 - 3;
	for (uint32_t n_weights = 1; n_weights <= 2; n_weights++) {
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.n_weights = n_weights,
			.n_out = 1,
			.params = &p,
			.step = &step,
			.weight = { tensor_of(&t[0], 0), tensor_of(&t[1], 0) },
			.out = { { plain, 3, N_COLS, sizeof plain[0], IG_F32, IG_LAYOUT_ROWS } },
		};
		step.outside = NULL;
		ig_op_embed.reference(&launch);
		step.outside = outside;
		launch.out[0].data = want;
		ig_op_embed.reference(&launch);
		assert_memory_equal(want[0], plain[0], sizeof plain[0]);
		assert_memory_equal(want[2], plain[2], sizeof plain[2]);
		for (int i = 0; i < N_COLS; i++) {
			float x =
				n_weights > 1 ? ((float *)t[1].rows)[positions[1] * N_COLS + i] : 0;
			assert_true(want[1][i] == from[i] + x);
		}
		for (uint32_t i = 0; i < n_weights; i++)
			launch.weight[i] = tensor_of(&t[i], 1);
		launch.out[0].data = got;
		for (int r = 3; r-- > 0;)
			ig_op_embed.cpu_kernels[0].run(&launch, r, r + 1, scratch);
		assert_memory_equal(got, want, sizeof got);
		/* a table that is not the input's */
		p.outside = 0;
		ig_op_embed.cpu_kernels[0].run(&launch, 0, 3, scratch);
		assert_memory_equal(got, plain, sizeof got);
		launch.weight[0] = tensor_of(&t[0], 0);
		launch.weight[1] = tensor_of(&t[1], 0);
		ig_op_embed.reference(&launch);
		assert_memory_equal(got, plain, sizeof got);
		p.outside = 1;
	}
	for (int i = 0; i < 2; i++) {
		free(t[i].rows);
		free(t[i].tiled);
	}
}

static void test_positions(void **state)
{
	check_tables(IG_F32, IG_F32, 20);
	check_tables(IG_BF16, IG_F32, 33);
	check_tables(IG_F32, IG_BF16, 20);
	check_tables(IG_BF16, IG_BF16, 1);
}

static void test_shapes(void **state)
{
	struct ig_embed_params p = { sizeof p, 1.0f };
	const struct ig_op_shape good = {
		.struct_size = sizeof good,
		.n_weights = 2,
		.n_out = 1,
		.params = &p,
		.weight = { { 50, 64, IG_F32, 0 }, { 20, 64, IG_F32, 0 } },
	};
	struct ig_op_shape s = good;
	struct ig_error err = { 0 };

	assert_int_equal(ig_op_embed.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 64);
	s = good;
	s.weight[1].n_cols = 63;
	assert_int_equal(ig_op_embed.check(&s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "positions of [20, 63]"));
	s = good;
	s.weight[1].n_rows = 0;
	assert_int_equal(ig_op_embed.check(&s, &err), -EINVAL);
	s = good;
	s.n_weights = 3; /* the types have no rows */
	assert_int_equal(ig_op_embed.check(&s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "types of [0, 0]"));
	s.weight[2] = (struct ig_shape){ 2, 64, IG_F32, 0 };
	s.weight[1] = (struct ig_shape){ 0 }; /* and there are no positions */
	assert_int_equal(ig_op_embed.check(&s, &err), 0);
	s.n_weights = 4;
	assert_int_equal(ig_op_embed.check(&s, &err), -EINVAL);
	s = good;
	p.outside = 1;
	assert_int_equal(ig_op_embed.check(&s, &err), 0);
	p.next = 1;
	assert_int_equal(ig_op_embed.check(&s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "beside next"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_positions),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_outside),
		cmocka_unit_test(test_shapes),
	};

	return cmocka_run_group_tests_name("embed", tests, NULL, NULL);
}
