/*
 * test_attention_rows.c: the ops without a cache, rope_rows and attention_rows: every kernel against the
 * reference over windows, directions and lengths, with equal bits on every instruction set, unit by unit,
 * and alone as beside other texts; shapes that are refused.
 */
#include "attention_world.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 1200
#define N_TEXTS 5

static const uint32_t isas[] = { IG_ISA_GENERIC, IG_ISA_AVX2, IG_ISA_AVX512 };

struct rows {
	int32_t positions[MAX_ROWS], seqs[MAX_ROWS], lens[N_TEXTS];
	struct ig_step step;
};

static void make_rows(struct rows *r, const int32_t *lens, int32_t n)
{
	r->step = (struct ig_step){ .struct_size = sizeof r->step,
				    .n_seqs = n,
				    .positions = r->positions,
				    .row_seq = r->seqs,
				    .seq_lens = r->lens };
	for (int32_t i = 0; i < n; i++) {
		r->lens[i] = lens[i];
		for (int32_t k = 0; k < lens[i]; k++, r->step.n_rows++) {
			assert_true(r->step.n_rows < MAX_ROWS);
			r->positions[r->step.n_rows] = k;
			r->seqs[r->step.n_rows] = i;
		}
	}
}

static double largest(const struct guarded *a, const struct guarded *b)
{
	double most = 0;

	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t i = 0; i < a->t.n_cols; i++) {
			double d =
				fabs((double)guarded_row(a, r)[i] - (double)guarded_row(b, r)[i]);
			most = d > most || isnan(d) ? (isnan(d) ? INFINITY : d) : most;
		}
	return most;
}

static void expect_same(const struct guarded *a, int64_t from, const struct guarded *b, int64_t n)
{
	for (int64_t r = 0; r < n; r++)
		assert_memory_equal(guarded_row(a, from + r), guarded_row(b, r),
				    (size_t)a->t.n_cols * sizeof(float));
}

static void test_attention(void **state)
{
	static const struct {
		uint32_t n_heads, n_kv_heads, head_dim, back, ahead;
	} shapes[] = {
		{ 4, 4, 32, IG_ATTENTION_ALL, IG_ATTENTION_ALL },
		{ 6, 2, 24, IG_ATTENTION_ALL, 0 },
		{ 3, 1, 64, 9, 9 },
		{ 2, 2, 8, 300, 0 },
		{ 1, 1, 256, 0, IG_ATTENTION_ALL },
		{ 5, 1, 40, 256, 256 },
	};
	static const int32_t lens[N_TEXTS] = { 1, 17, 530, 16, 257 };
	const struct ig_op *op = world_op("attention_rows");
	static struct rows all, one;

	memset(&all, 0, sizeof all);
	make_rows(&all, lens, N_TEXTS);
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		const struct ig_attention_rows_params p = {
			.struct_size = sizeof p,
			.n_heads = shapes[s].n_heads,
			.n_kv_heads = shapes[s].n_kv_heads,
			.head_dim = shapes[s].head_dim,
			.scale = 1 / sqrtf((float)shapes[s].head_dim),
			.back = shapes[s].back,
			.ahead = shapes[s].ahead,
		};
		const int64_t n_in = ((int64_t)p.n_heads + 2 * p.n_kv_heads) * p.head_dim;
		struct guarded x, want, got, other, first = { 0 };
		world_seed(s + 1);
		guarded_create(&x, all.step.n_rows, n_in);
		guarded_create(&want, all.step.n_rows, (int64_t)p.n_heads * p.head_dim);
		for (int64_t r = 0; r < all.step.n_rows; r++)
			for (int64_t i = 0; i < n_in; i++)
				guarded_row(&x, r)[i] = 3 * world_uniform();
		struct ig_op_launch launch = { .struct_size = sizeof launch,
					       .n_in = 1,
					       .n_out = 1,
					       .params = &p,
					       .in = { x.t },
					       .out = { want.t },
					       .step = &all.step };
		op->reference(&launch);
		for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
			const struct ig_cpu_kernel *k = world_kernel(op, isas[i]);
			if (!k)
				continue;
			guarded_create(&got, all.step.n_rows, want.t.n_cols);
			launch.out[0] = got.t;
			launch.step = &all.step;
			launch.in[0] = x.t;
			world_run(k, &launch, 0);
			guarded_check(&got);
			double most = largest(&got, &want);
			if (!(most <= 1e-5))
				fail_msg("shape %zu, %s: a difference of %g", s,
					 world_isa_name(isas[i]), most);
			guarded_create(&other, all.step.n_rows, want.t.n_cols);
			launch.out[0] = other.t;
			world_run(k, &launch, 1);
			expect_same(&other, 0, &got, all.step.n_rows);
			guarded_destroy(&other);
			/* the third text alone */
			memset(&one, 0, sizeof one);
			make_rows(&one, &lens[2], 1);
			guarded_create(&other, lens[2], want.t.n_cols);
			launch.out[0] = other.t;
			launch.in[0] = x.t;
			launch.in[0].data = guarded_row(&x, 18);
			launch.in[0].n_rows = lens[2];
			launch.step = &one.step;
			world_run(k, &launch, 0);
			guarded_check(&other);
			expect_same(&got, 18, &other, lens[2]);
			guarded_destroy(&other);
			if (first.bytes)
				expect_same(&first, 0, &got, all.step.n_rows);
			if (first.bytes)
				guarded_destroy(&got);
			else
				first = got;
		}
		guarded_destroy(&first);
		guarded_destroy(&x);
		guarded_destroy(&want);
	}
}

static void test_rope(void **state)
{
	const struct ig_op *op = world_op("rope_rows");
	static const int32_t lens[2] = { 5, 40 };
	static struct rows all;

	memset(&all, 0, sizeof all);
	make_rows(&all, lens, 2);
	for (int norm = 0; norm < 2; norm++)
		for (uint32_t mode = IG_ROPE_PAIRS; mode <= IG_ROPE_HALVES; mode++) {
			const struct ig_rope_kv_params p = { .struct_size = sizeof p,
							     .n_heads = 4,
							     .n_kv_heads = 2,
							     .head_dim = 16,
							     .mode = mode,
							     .n_pairs = 6,
							     .norm_eps = 1e-6f };
			struct guarded x, table, want, got;
			float w[2][16];
			guarded_create(&x, 45, 8 * 16);
			guarded_create(&table, 45, 12);
			guarded_create(&want, 45, 8 * 16);
			guarded_create(&got, 45, 8 * 16);
			for (int64_t r = 0; r < 45; r++) {
				for (int i = 0; i < 8 * 16; i++)
					guarded_row(&x, r)[i] = world_uniform();
				for (int i = 0; i < 6; i++) {
					guarded_row(&table, r)[i] =
						cosf((float)r * 0.1f + (float)i);
					guarded_row(&table, r)[6 + i] =
						sinf((float)r * 0.1f + (float)i);
				}
			}
			for (int i = 0; i < 32; i++)
				w[i / 16][i % 16] = 1 + world_uniform() / 2;
			struct ig_op_launch launch = {
				.struct_size = sizeof launch,
				.n_in = 2,
				.n_out = 1,
				.n_weights = norm ? 2 : 0,
				.params = &p,
				.in = { x.t, table.t },
				.out = { want.t },
				.weight = { { w[0], 1, 16, 64, IG_F32, 0 },
					    { w[1], 1, 16, 64, IG_F32, 0 } },
				.step = &all.step,
			};
			if (!norm)
				memset(launch.weight, 0, sizeof launch.weight);
			op->reference(&launch);
			launch.out[0] = got.t;
			world_run(world_kernel(op, IG_ISA_GENERIC), &launch, 1);
			guarded_check(&got);
			assert_true(largest(&got, &want) <= 1e-5);
			/* values are as they were */
			for (int64_t r = 0; r < 45; r++)
				assert_memory_equal(guarded_row(&got, r) + 6 * 16,
						    guarded_row(&x, r) + 6 * 16, 2 * 16 * 4);
			guarded_destroy(&x);
			guarded_destroy(&table);
			guarded_destroy(&want);
			guarded_destroy(&got);
		}
}

static void refused(const char *name, const void *params, int64_t n_cols, uint32_t row_class,
		    const char *text)
{
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .n_out = 1,
				 .params = params,
				 .in = { { 0, n_cols, IG_F32, row_class } } };
	struct ig_error err = { 0 };

	assert_int_equal(world_op(name)->check(&s, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("wanted '%s' in: %s", text, err.text);
}

static void test_refused(void **state)
{
	const struct ig_attention_rows_params good = { sizeof good,	 4, 2, 16, 0.25f,
						       IG_ATTENTION_ALL, 0 };
	struct ig_attention_rows_params p = good;
	struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16
	};

	refused("attention_rows", &p, 127, IG_ROWS_TOKENS, "127 columns");
	refused("attention_rows", &p, 128, IG_ROWS_LOGITS, "one row a token");
	p.head_dim = 12;
	refused("attention_rows", &p, 96, IG_ROWS_TOKENS, "head_dim is 12");
	p = good;
	p.n_kv_heads = 3;
	refused("attention_rows", &p, 160, IG_ROWS_TOKENS, "do not share");
	p = good;
	p.scale = NAN;
	refused("attention_rows", &p, 128, IG_ROWS_TOKENS, "scale");
	rope.layer = 1;
	refused("rope_rows", &rope, 128, IG_ROWS_TOKENS, "it has none of these");
	rope.layer = 0;
	refused("rope_rows", &rope, 100, IG_ROWS_TOKENS, "rope_rows, as rope_kv");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("attention_rows", tests, NULL, NULL);
}
