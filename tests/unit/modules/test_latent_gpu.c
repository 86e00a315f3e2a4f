/*
 * test_latent_gpu.c: rope_latent on a GPU: near the reference, in every type of q; the same bits row by row;
 * nothing written but the rows' keys.  A NaN in a latent reaches only the columns that are no values.
 */
#include "latent_case.h"
#include "tests/ops/gpu_case.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_lab *lab;

/* What the GPU leaves of the world's slabs. */
struct after {
	void *slabs[256];
	struct world w; /* the case's with these slabs */
};

static void after_open(struct after *a, const struct latent_case *c)
{
	a->w = c->w;
	for (uint32_t i = 0; i < c->w.n_slabs; i++) {
		a->slabs[i] = a->w.slabs[i] = malloc(c->w.slab_bytes);
		assert_non_null(a->slabs[i]);
	}
}

static void after_close(struct after *a)
{
	for (uint32_t i = 0; i < a->w.n_slabs; i++)
		free(a->slabs[i]);
}

static void run(struct latent_case *c, struct after *a, uint32_t out_dtype, int32_t first,
		int32_t n, struct guarded *out)
{
	struct ig_op_launch launch;
	struct ig_step step;
	struct ig_error err = { 0 };
	const struct ig_gpu_case g = { .op = world_op("rope_latent"),
				       .launch = &launch,
				       .out_dtype = out_dtype,
				       .n_slabs = c->w.n_slabs,
				       .slab_bytes = c->w.slab_bytes,
				       .slabs_after = a->slabs };

	latent_launch(c, first, n, out, &step, &launch);
	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
}

static void assert_near(const struct guarded *a, const struct guarded *b, double relative,
			const char *what)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t i = 0; i < a->t.n_cols; i++) {
			const double x = (double)guarded_row(a, r)[i],
				     y = (double)guarded_row(b, r)[i];
			if (!(fabs(x - y) <= relative * (fabs(y) + 1)))
				fail_msg("%s, row %lld, column %lld: %g, expected %g", what,
					 (long long)r, (long long)i, x, y);
		}
}

static void check_types(struct latent_case *c, struct after *a, const struct guarded *q,
			struct guarded *other)
{
	static const uint32_t types[] = { IG_F16, IG_BF16 };

	for (size_t j = 0; j < 2; j++) {
		run(c, a, types[j], 0, LATENT_ROWS, other);
		for (int32_t r = 0; r < LATENT_ROWS; r++)
			for (int64_t i = 0; i < q->t.n_cols; i++)
				assert_true(guarded_row(other, r)[i] ==
					    ig_gpu_case_round(types[j], guarded_row(q, r)[i]));
	}
}

static void test_shapes(void **state)
{
	for (size_t i = 0; i < n_latent_shapes; i++) {
		const struct latent_shape *s = &latent_shapes[i];
		const double stored = s->dtype == IG_F32 ? 1e-6 : s->dtype == IG_F16 ? 1e-3 : 2e-2;
		struct guarded ref, ref_keys, q, keys, other, other_keys;
		struct guarded *all[] = { &ref, &q, &other, &ref_keys, &keys, &other_keys };
		struct ig_op_launch launch;
		struct ig_step step;
		struct latent_case c;
		struct after a;

		world_seed(i + 31);
		latent_open(&c, s);
		after_open(&a, &c);
		for (int j = 0; j < 6; j++)
			guarded_create(all[j], LATENT_ROWS, j < 3 ? c.q.t.n_cols : c.dim);
		run(&c, &a, IG_F32, 0, LATENT_ROWS, &q);
		guarded_check(&q);
		latent_take(&c, &a.w, &keys);
		latent_launch(&c, 0, LATENT_ROWS, &ref, &step, &launch);
		world_op("rope_latent")->reference(&launch);
		latent_take(&c, &c.w, &ref_keys);
		assert_near(&q, &ref, 1e-6, "q");
		assert_near(&keys, &ref_keys, stored, "keys");
		/* row by row, each from the pages that the one before left: the same bits */
		for (int32_t r = LATENT_ROWS - 1; r >= 0; r--) {
			run(&c, &a, IG_F32, r, 1, &other);
			for (uint32_t j = 0; j < c.w.n_slabs; j++)
				memcpy(c.w.slabs[j], a.slabs[j], c.w.slab_bytes);
		}
		latent_take(&c, &c.w, &other_keys);
		assert_memory_equal(q.bytes, other.bytes, q.n_bytes);
		assert_memory_equal(keys.bytes, other_keys.bytes, keys.n_bytes);
		check_types(&c, &a, &q, &other);
		for (int j = 0; j < 6; j++)
			guarded_destroy(all[j]);
		after_close(&a);
		latent_close(&c);
	}
}

/* A weight of 0 times a value of a masked token must be 0. */
static void test_nan(void **state)
{
	struct guarded q, keys;
	struct latent_case c;
	struct after a;

	world_seed(5);
	latent_open(&c, &latent_shapes[1]);
	after_open(&a, &c);
	guarded_create(&q, LATENT_ROWS, c.q.t.n_cols);
	guarded_create(&keys, LATENT_ROWS, c.dim);
	guarded_row(&c.kv, 2)[5] = NAN;
	guarded_row(&c.kv, 3)[c.s->n_latent] = NAN;
	guarded_row(&c.kv, 4)[7] = INFINITY;
	run(&c, &a, IG_F32, 0, LATENT_ROWS, &q);
	latent_take(&c, &a.w, &keys);
	for (int32_t r = 0; r < LATENT_ROWS; r++) {
		int n_lost = 0;
		for (uint32_t i = 0; i < c.dim; i++)
			if (i < c.s->n_latent)
				assert_true(isfinite(guarded_row(&keys, r)[i]));
			else
				n_lost += isnan(guarded_row(&keys, r)[i]);
		if (r == 2 || r == 4)
			assert_int_equal(n_lost, 2 * c.s->n_pairs);
		else
			assert_int_equal(n_lost, r == 3 ? 2 : 0);
	}
	guarded_destroy(&q);
	guarded_destroy(&keys);
	after_close(&a);
	latent_close(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_nan),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("rope_latent on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
