/* test_gpu_cuts.c: how products of few rows with weights in tiles are cut into threadgroups and clusters on
 * NVIDIA (ops/gpu/product_kernels.c): no GPU is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/gpu/product_private.h"

#include <string.h>

/* An H200, and what one would expect of it. */
static const struct ig_gpu_facts h200 = { .struct_size = sizeof h200,
					  .kind = IG_GPU_CUDA,
					  .arch = 90,
					  .n_cores = 132,
					  .max_threadgroup_bytes = 232448,
					  .max_threads = 1024,
					  .tiles = 1,
					  .n_clusters = { 66, 30, 15 } },
				 unknown = { .struct_size = sizeof unknown,
					     .kind = IG_GPU_CUDA,
					     .arch = 90,
					     .n_cores = 132,
					     .max_threadgroup_bytes = 232448,
					     .max_threads = 1024,
					     .tiles = 1 };

struct cut {
	struct ig_product_variants v;
	struct ig_gpu_tensor weight[2];
	struct ig_gpu_launch launch;
	struct ig_product p;
	uint32_t shares;
};

static void choose_of(struct cut *c, const struct ig_gpu_facts *facts, uint32_t dtype,
		      int64_t outputs, int64_t k, uint32_t pair)
{
	*c = (struct cut){ 0 };
	c->launch.facts = facts;
	c->p = (struct ig_product){ .launch = &c->launch,
				    .op = pair ? "glu" : "linear",
				    .n = 1 + pair,
				    .dtype = dtype,
				    .element = dtype == IG_F32 ? IG_F32 : IG_F16,
				    .pair = pair,
				    .k = k };
	for (uint32_t i = 0; i <= pair; i++) {
		c->weight[i] = (struct ig_gpu_tensor){
			.n_rows = outputs,
			.n_cols = k,
			.dtype = dtype,
			.layout = dtype == IG_F32 ? IG_GPU_ROWS : IG_GPU_TILES,
		};
		c->p.weight[i] = &c->weight[i];
	}
	c->shares = ig_product_choose(&c->p, &c->v);
}

static void choose(struct cut *c, const struct ig_gpu_facts *facts, int64_t outputs, int64_t k,
		   uint32_t pair)
{
	choose_of(c, facts, IG_Q4_K, outputs, k, pair);
}

/* The kernel for so many rows. */
static const struct ig_product_variant *of(const struct cut *c, uint32_t rows)
{
	for (uint32_t i = 0; i < c->v.n; i++)
		if (rows >= c->v.v[i].min_rows && rows <= c->v.v[i].max_rows)
			return &c->v.v[i];
	fail_msg("no kernel for %u rows", rows);
	return NULL;
}

static uint32_t width(const struct cut *c, uint32_t rows)
{
	return ig_product_tiles_width(&c->p, of(c, rows), c->shares);
}

/* The cuts that were fastest, or less than a tenth slower, on an H200 (docs/gpu.md); a cluster divides x where a
 * threadgroup has no room for it, and where that leaves fewer turns or less to fetch. */
static void test_fastest(void **state)
{
	static const struct {
		int64_t outputs, k;
		/* cluster and width for 1 and for 16 rows; width 0: a warpgroup's kernel */
		uint32_t pair, shares, few[2], many[2];
	} of_shape[] = {
		{ 2048, 2048, 0, 8, { 0, 1 }, { 8, 0 } },
		{ 2560, 2048, 0, 8, { 0, 2 }, { 8, 0 } },
		{ 2048, 4096, 0, 8, { 0, 1 }, { 8, 0 } },
		{ 5632, 2048, 1, 2, { 0, 3 }, { 2, 0 } },
		{ 2048, 5632, 0, 8, { 0, 1 }, { 8, 0 } },
		{ 6144, 5120, 0, 4, { 0, 3 }, { 4, 0 } },
		{ 5120, 4096, 0, 4, { 0, 3 }, { 4, 0 } },
		{ 5120, 32768, 0, 8, { 8, 12 }, { 8, 12 } },
		{ 32768, 5120, 1, 1, { 0, 8 }, { 0, 8 } },
		{ 32000, 2048, 0, 1, { 0, 16 }, { 0, 0 } },
		{ 131072, 5120, 0, 1, { 0, 16 }, { 0, 16 } },
	};
	struct cut c;

	for (size_t i = 0; i < sizeof of_shape / sizeof *of_shape; i++) {
		choose(&c, &h200, of_shape[i].outputs, of_shape[i].k, of_shape[i].pair);
		assert_int_equal(c.shares, of_shape[i].shares);
		for (uint32_t rows = 1; rows <= 16; rows += 15) {
			const uint32_t *expected = rows == 1 ? of_shape[i].few : of_shape[i].many;
			const struct ig_product_variant *at = of(&c, rows);
			const bool few = expected[1] > 0;
			if (at->kind != (few ? TILES : WIDE) || at->cluster != expected[0] ||
			    (few && width(&c, rows) != expected[1]))
				fail_msg("%lld x %lld, %u rows: %s, clusters of %u",
					 (long long)of_shape[i].outputs, (long long)of_shape[i].k,
					 rows, at->suffix, at->cluster);
			if (few)
				assert_int_equal(!!strstr(at->suffix, "cluster"), expected[0] > 0);
		}
	}
	(void)state;
}

/* A grid has no more clusters than the GPU runs at once: one more would begin when the others end. */
static void test_clusters_at_once(void **state)
{
	struct ig_gpu_facts twenty = h200;
	struct cut c;

	assert_int_equal(ig_gpu_clusters(&h200, 8), 15);
	assert_int_equal(ig_gpu_clusters(&h200, 2), 66);
	assert_int_equal(ig_gpu_clusters(&h200, 1), 132);
	assert_int_equal(ig_gpu_clusters(&unknown, 8), 16);
	assert_int_equal(ig_gpu_clusters(&unknown, 4), 33);
	choose(&c, &h200, 5120, 32768, 0);
	assert_int_equal(width(&c, 16), 12); /* 15 times 12 in two turns make 320 */
	twenty.n_clusters[2] = 20;
	choose(&c, &twenty, 5120, 32768, 0);
	assert_int_equal(of(&c, 16)->cluster, 8);
	assert_int_equal(width(&c, 16), 16); /* all in one */
	(void)state;
}

/* Every number of rows has one kernel, and each kernel that is chosen fits. */
static void test_all_rows(void **state)
{
	static const int64_t outputs[] = { 16, 48, 512, 5120, 20000 },
			     ks[] = { 256, 4096, 12288, 32768, 65536, 262144 };
	struct cut c;

	for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
		for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
			uint32_t next = 1;
			choose(&c, &h200, outputs[i], ks[j], 0);
			for (uint32_t v = 0; v < c.v.n; v++) {
				const struct ig_product_variant *at = &c.v.v[v];
				assert_int_equal(at->min_rows, next);
				assert_true(at->max_rows >= at->min_rows);
				next = at->max_rows + 1;
				if (at->kind != TILES)
					continue;
				uint32_t w = ig_product_tiles_width(&c.p, at, c.shares);
				assert_true(w >= 1 && w * ig_product_team(&c.p, at, c.shares) <=
							      TILES_THREADS / 32);
				assert_true(ig_product_tiles_bytes(&c.p, at, w, c.shares) <=
					    h200.max_threadgroup_bytes);
				assert_true(at->max_rows <= at->shape.bm);
			}
			assert_int_equal(next, ig_product_unpacks_from(&c.p));
		}
	(void)state;
}

/* Up to 256 rows, of large weights 512, are a warpgroup's, whose kernels have 32, 64 or 128 rows: of small weights from nine
 * rows on, else from seventeen. A cluster has all shares. */
static void test_wide(void **state)
{
	static const struct {
		int64_t outputs, k;
		uint32_t pair, shares, first;
	} of_shape[] = {
		{ 2048, 2048, 0, 8, 9 },   { 5632, 2048, 1, 2, 9 },   { 6144, 5120, 0, 4, 9 },
		{ 5120, 32768, 0, 8, 17 }, { 32768, 5120, 1, 1, 17 }, { 16, 768, 0, 3, 9 },
		{ 16, 262144, 0, 8, 4 },
	};
	struct cut c;

	for (size_t i = 0; i < sizeof of_shape / sizeof *of_shape; i++) {
		choose(&c, &h200, of_shape[i].outputs, of_shape[i].k, of_shape[i].pair);
		assert_int_equal(c.shares, of_shape[i].shares);
		assert_true(of(&c, of_shape[i].first - 1)->kind == TILES);
		const uint32_t end =
			of_shape[i].outputs * of_shape[i].k * (of_shape[i].pair ? 2 : 1) <=
					1 << 26 ?
				257 :
				513;
		assert_int_equal(ig_product_unpacks_from(&c.p), end);
		for (uint32_t rows = of_shape[i].first; rows < end; rows++) {
			const struct ig_product_variant *at = of(&c, rows);
			if (at->kind != WIDE || at->shape.bm != (rows <= 32 ? 32 :
								 rows <= 64 ? 64 :
									      128))
				fail_msg("%lld x %lld, %u rows: by %s",
					 (long long)of_shape[i].outputs, (long long)of_shape[i].k,
					 rows, at->suffix);
			assert_int_equal(at->cluster, c.shares > 1 ? c.shares : 0);
			assert_true(ig_product_wide_bytes(at->shape.bm, c.shares) <=
				    (rows <= 64 ? 1 : 2) * (h200.max_threadgroup_bytes / 2));
		}
	}
	(void)state;
}

/* Few rows by few outputs in float are dot products, if one has room beside eight of the weight. */
static void test_dots(void **state)
{
	static const struct {
		int64_t outputs, k;
		uint32_t rows, of_group;
	} of_shape[] = { { 128, 2048, 16, 4 }, { 1, 2048, 16, 4 },   { 1056, 2048, 16, 4 },
			 { 1057, 2048, 0, 0 }, { 128, 5120, 16, 3 }, { 128, 6148, 16, 1 },
			 { 256, 12288, 0, 0 }, { 128, 2046, 0, 0 } };
	struct cut c;

	for (size_t i = 0; i < sizeof of_shape / sizeof *of_shape; i++) {
		choose_of(&c, &h200, IG_F32, of_shape[i].outputs, of_shape[i].k, 0);
		for (uint32_t rows = 1; rows <= 20; rows++) {
			const bool dots = of(&c, rows)->kind == DOTS;
			if (dots != (rows <= of_shape[i].rows))
				fail_msg("%lld x %lld: %u rows by %s",
					 (long long)of_shape[i].outputs, (long long)of_shape[i].k,
					 rows, of(&c, rows)->suffix);
			if (!dots)
				continue;
			assert_int_equal(ig_product_dots_rows(&c.p, c.shares),
					 of_shape[i].of_group);
			assert_true(ig_product_dots_bytes(&c.p, of_shape[i].of_group, c.shares) <=
				    h200.max_threadgroup_bytes);
		}
	}
	choose_of(&c, &h200, IG_F32, 128, 2048, 1); /* no kernel for pairs */
	assert_true(of(&c, 1)->kind != DOTS);
	(void)state;
}

/* A kernel that computes the norm of its rows has whole rows: none of a cluster. */
static void test_norms(void **state)
{
	static const struct {
		int64_t outputs, k;
		uint32_t pair, rows;
	} of_shape[] = { { 2560, 2048, 0, 8 },	{ 5632, 2048, 1, 8 },  { 6144, 5120, 0, 8 },
			 { 32768, 5120, 1, 8 }, { 5120, 32768, 0, 0 }, { 2560, 14336, 0, 0 } };
	struct ig_gpu_facts older = h200;
	struct cut c;

	older.arch = 80;
	for (size_t i = 0; i < sizeof of_shape / sizeof *of_shape; i++) {
		choose(&c, &h200, of_shape[i].outputs, of_shape[i].k, of_shape[i].pair);
		assert_int_equal(ig_product_norm_rows(&c.p), of_shape[i].rows);
		if (of_shape[i].rows)
			assert_int_equal(of(&c, of_shape[i].rows)->cluster, 0);
		c.launch.facts = &older;
		assert_int_equal(ig_product_norm_rows(&c.p), 0);
	}
	choose_of(&c, &h200, IG_F32, 128, 2048, 0);
	assert_int_equal(ig_product_norm_rows(&c.p), 0);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fastest),	 cmocka_unit_test(test_clusters_at_once),
		cmocka_unit_test(test_all_rows), cmocka_unit_test(test_wide),
		cmocka_unit_test(test_dots),	 cmocka_unit_test(test_norms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
