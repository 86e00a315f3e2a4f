/*
 * test_recurrent.c: the ops of the module recurrent on the CPU: against their references, and with equal bits
 * however rows are divided into steps, segments and units, alone or beside other sequences, in place
 * or from one state to another; what their checks refuse.
 */
#include "recurrent_case.h"
#include "tests/emulated.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool runs_here(uint32_t isa)
{
#if defined(__x86_64__)
	if (isa == IG_ISA_AVX2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (isa == IG_ISA_AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#elif defined(__aarch64__)
	if (isa == IG_ISA_NEON)
		return true;
#endif
	return isa == IG_ISA_GENERIC;
}

static void run_kernel(const struct runner *r, const struct recurrent_case *t,
		       const struct division *d, const struct ig_op_launch *launch,
		       void *const slabs[N_SLABS], uint64_t slab_bytes)
{
	const struct ig_cpu_kernel *k = r->context;
	struct ig_op_launch c = *launch;
	void *scratch;
	int64_t n;

	(void)t, (void)slabs, (void)slab_bytes;
	c.kernel = k;
	n = k->n_units(&c);
	scratch = malloc(k->scratch_bytes ? k->scratch_bytes(&c) : 1);
	for (int64_t i = n; d->by_units && i-- > 0;)
		k->run(&c, i, i + 1, scratch);
	if (!d->by_units)
		k->run(&c, 0, n, scratch);
	free(scratch);
}

static void check_kernel(const struct recurrent_case *t, const struct ig_cpu_kernel *k,
			 const struct result *want)
{
	const struct runner kernel = { run_kernel, k };
	struct result r = recurrent_run(t, &kernel, recurrent_whole);
	const double e = recurrent_error(t, &r, want);

	printf("# %s, instruction set %u: worst error %.1e\n", t->op->name, k->isa, e);
	assert_true(e <= t->tolerance);
	for (size_t d = 0; d < n_recurrent_others && cuts_are_tested(k); d++) {
		struct result other = recurrent_run(t, &kernel, recurrent_others[d]);
		if (!recurrent_equal(t, &other, &r))
			fail_msg("%s, instruction set %u, division %zu: other bits", t->op->name,
				 k->isa, d);
		recurrent_free(&other);
	}
	recurrent_free(&r);
}

static void test_kernels(void **state)
{
	for (size_t i = 0; i < n_recurrent_cases; i++) {
		struct recurrent_case t;
		struct result want;

		recurrent_open(&t, i);
		want = recurrent_run(&t, &recurrent_reference, recurrent_whole);
		for (uint32_t k = 0; k < t.op->n_cpu_kernels; k++)
			if (runs_here(t.op->cpu_kernels[k].isa))
				check_kernel(&t, &t.op->cpu_kernels[k], &want);
		recurrent_free(&want);
		recurrent_close(&t);
	}
}

/* ---- checks -------------------------------------------------------------------------------------- */

static void refuses(const struct ig_op *op, const struct ig_op_shape *s, const char *text)
{
	struct ig_op_shape copy = *s;
	struct ig_error err = { 0 };

	assert_int_equal(op->check(&copy, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" instead of \"%s\"", err.text, text);
}

static void test_conv1d_shapes(void **state)
{
	const struct ig_op *op = recurrent_op("conv1d");
	struct ig_conv1d_params p = { sizeof p, 4, IG_ACT_SILU, 0, 1, 0 };
	const struct ig_op_shape good = { .struct_size = sizeof good,
					  .n_in = 1,
					  .n_weights = 2,
					  .n_out = 1,
					  .params = &p,
					  .in = { { 0, 64, IG_F32, IG_ROWS_TOKENS } },
					  .weight = { { 64, 4, IG_F32, 0 },
						      { 1, 64, IG_F32, 0 } } };
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 64);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_conv1d_params before = p;                                                \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("taps, not 2", p.n_taps = 1);
	BAD("taps, not 2", p.n_taps = 9);
	BAD("gated 2", p.gated = 2);
	BAD("act 2", p.act = IG_ACT_GELU);
	BAD("group 4", p.group = 4);
	BAD("taps of [64, 3]", s.weight[0].n_cols = 3);
	BAD("taps of [64, 4] of type 1", s.weight[0].dtype = IG_F16);
	BAD("the bias must be [1, 64]", s.weight[1].n_cols = 63);
	BAD("has 63 columns", s.in[0].n_cols = 63);
	BAD("expected 192", p.gated = 1);
	BAD("expected 67", p.first = 2; p.rest = 1);
	BAD("columns from 2 on", p.gated = 1; p.first = 2);
	BAD("one row a token", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("0 inputs", s.n_in = 0);
#undef BAD
}

static void test_gated_delta_shapes(void **state)
{
	const struct ig_op *op = recurrent_op("gated_delta");
	struct ig_gated_delta_params p = { sizeof p, 2, 6, 16, 32, 1, 3, 1e-6f, 1, 0 };
	const struct ig_op_shape good = { .struct_size = sizeof good,
					  .n_in = 2,
					  .n_weights = 2,
					  .n_out = 1,
					  .params = &p,
					  .in = { { 0, 256, IG_F32, IG_ROWS_TOKENS },
						  { 0, 12, IG_F32, IG_ROWS_TOKENS } },
					  .weight = { { 1, 6, IG_F32, 0 }, { 1, 6, IG_F32, 0 } } };
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 192);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_gated_delta_params before = p;                                           \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("4 heads of keys and 6 of values", p.n_k_heads = 4);
	BAD("0 heads of keys", p.n_k_heads = 0);
	BAD("values of 24", p.v_dim = 24);
	BAD("keys of 257", p.k_dim = 257);
	BAD("parts of 4 heads of 6", p.part_heads = 4);
	BAD("parts of 0 heads", p.part_heads = 0);
	BAD("group 4", p.group = 4);
	BAD("by_key 2", p.by_key = 2; p.tiled = 0);
	BAD("tiled 1, by_key 1", p.by_key = 1);
	BAD("inputs of 255", s.in[0].n_cols = 255);
	BAD("and 13 columns", s.in[1].n_cols = 13);
	BAD("operands 1", s.weight[1].n_cols = 5);
	BAD("operands 0", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("1 weights", s.n_weights = 1);
#undef BAD
}

static void test_selective_scan_shapes(void **state)
{
	const struct ig_op *op = recurrent_op("selective_scan");
	struct ig_selective_scan_params p = { sizeof p, 6, 16, 2, 24, 3, 5, 1, 0 };
	const struct ig_op_shape good = {
		.struct_size = sizeof good,
		.n_in = 2,
		.n_weights = 3,
		.n_out = 1,
		.params = &p,
		.in = { { 0, 192, IG_F32, IG_ROWS_TOKENS }, { 0, 11, IG_F32, IG_ROWS_TOKENS } },
		.weight = { { 1, 6, IG_F32, 0 }, { 6, 1, IG_F32, 0 }, { 1, 6, IG_F32, 0 } }
	};
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 96);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_selective_scan_params before = p;                                        \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("6 heads in 4 groups", p.n_groups = 4);
	BAD("6 heads in 0 groups", p.n_groups = 0);
	BAD("0 heads in 2 groups", p.n_heads = 0);
	BAD("for heads of 24", p.head_dim = 24);
	BAD("states of 257", p.state_dim = 257);
	BAD("states of 0", p.state_dim = 0);
	BAD("parts of 4 heads of 6", p.part_heads = 4);
	BAD("parts of 0 heads", p.part_heads = 0);
	BAD("group 4", p.group = 4);
	BAD("input 0 has 191 columns", s.in[0].n_cols = 191);
	BAD("input 1 has 11 columns, expected 12", p.dt_first = 6);
	BAD("input 0 has 192 columns", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("weight 1 must be", s.weight[1].n_rows = 5);
	BAD("weight 2 must be", s.weight[2].dtype = IG_F16);
	BAD("weight 0 must be", s.weight[0] = ((struct ig_shape){ 2, 3, IG_F32, 0 }));
	BAD("2 weights", s.n_weights = 2);
#undef BAD
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_conv1d_shapes),
		cmocka_unit_test(test_gated_delta_shapes),
		cmocka_unit_test(test_selective_scan_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
