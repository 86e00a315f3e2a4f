/*
 * test_recurrent_gpu.c: the ops of the module recurrent on a GPU: near the reference, in every type of results; the
 * same bits however rows are divided into steps and segments, alone or beside other sequences, in place or
 * from one state to another.
 */
#include "recurrent_case.h"
#include "tests/ops/gpu_case.h"

#include <stdio.h>
#include <string.h>

static struct ig_gpu_lab *lab;

struct context {
	uint32_t out_dtype;
};

static void run_gpu(const struct runner *r, const struct recurrent_case *t,
		    const struct division *d, const struct ig_op_launch *launch,
		    void *const slabs[N_SLABS], uint64_t slab_bytes)
{
	const struct context *context = r->context;
	const struct ig_gpu_case g = { .op = t->op,
				       .launch = launch,
				       .out_dtype = context->out_dtype,
				       .n_slabs = t->n_parts ? N_SLABS : 0,
				       .slab_bytes = slab_bytes,
				       .slabs_after = slabs };
	struct ig_error err = { 0 };

	(void)d;
	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
}

/* Results in 16 bits are those in 32 bits, rounded; states are the same. */
static void check_types(const struct recurrent_case *t, const struct result *r)
{
	static const struct context types[] = { { IG_F16 }, { IG_BF16 } };

	for (size_t i = 0; i < 2; i++) {
		const struct runner gpu = { run_gpu, &types[i] };
		struct result other = recurrent_run(t, &gpu, recurrent_whole);
		for (int64_t j = 0; j < t->out.n_rows * t->out.n_cols; j++) {
			const float want = ig_gpu_case_round(types[i].out_dtype, r->out[j]);
			assert_true(other.out[j] == want);
			other.out[j] = r->out[j];
		}
		assert_true(recurrent_equal(t, &other, r));
		recurrent_free(&other);
	}
}

static void check_case(const struct recurrent_case *t)
{
	static const struct context floats = { IG_F32 };
	const struct runner gpu = { run_gpu, &floats };
	struct result want = recurrent_run(t, &recurrent_reference, recurrent_whole);
	struct result r = recurrent_run(t, &gpu, recurrent_whole);
	const double e = recurrent_error(t, &r, &want);

	printf("# %s: worst error %.1e\n", t->op->name, e);
	assert_true(e <= t->tolerance);
	for (size_t d = 0; d < n_recurrent_others; d++) {
		if (recurrent_others[d].by_units)
			continue;
		struct result other = recurrent_run(t, &gpu, recurrent_others[d]);
		if (!recurrent_equal(t, &other, &r))
			fail_msg("%s, division %zu: other bits", t->op->name, d);
		recurrent_free(&other);
	}
	if (t->op->gpu->flags & IG_GPU_OUT_ANY)
		check_types(t, &r);
	recurrent_free(&r);
	recurrent_free(&want);
}

static void test_cases(void **state)
{
	for (size_t i = 0; i < n_recurrent_cases; i++) {
		struct recurrent_case t;

		recurrent_open(&t, i);
		check_case(&t);
		recurrent_close(&t);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("recurrent layers on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
