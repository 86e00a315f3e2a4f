/*
 * test_moe_gpu.c: moe_route, moe_glu and moe_combine on a GPU device against their
 * references: routes word for word but for the weights' last bits, products of every weight
 * format, and a row's bits alone and among few and many.
 *
 *   test_moe_gpu [soft|cuda]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "modules/moe/moe_private.h"
#include "ops/cpu/tile16.h"
#include "ops/op_private.h"
#include "ops/ops.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"
#include "tests/ops/moe_routers.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 70

static struct ig_gpu_lab *lab;
static const struct ig_op *op_route, *op_glu, *op_combine;
static const int32_t counts[] = { 1, 8, 9, 16, 17, 40, MOST_ROWS, 256, 257, 300 };

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static float *floats(int64_t n, float scale, uint64_t *seed)
{
	float *p = must(malloc((size_t)n * sizeof *p));

	for (int64_t i = 0; i < n; i++)
		p[i] = ig_random_normalish(seed) * scale;
	return p;
}

/* ---- the module ------------------------------------------------------------------------- */

static const struct ig_op *core_op(const char *name)
{
	for (size_t i = 0; ig_core_ops[i]; i++)
		if (!strcmp(ig_core_ops[i]->name, name))
			return ig_core_ops[i];
	return NULL;
}

/* Only kernels of the cpu lay out tiles. */
static void no_tiles(uint32_t dtype, const void *rows, int64_t k, void *tile) { abort(); }

static const struct ig_kernel_host *kernels(const char *build_id)
{
	static const struct ig_kernel_host host = { .struct_size = sizeof host,
						    .core_op = core_op,
						    .tile_bytes = ig_tile16_tile_bytes,
						    .tile_pack = no_tiles };
	return &host;
}

static void open_module(void)
{
	static const struct ig_host host = { .struct_size = sizeof host, .kernels = kernels };
	void *so = dlopen(MOE_MODULE, RTLD_NOW | RTLD_LOCAL);
	const struct ig_module *m = so ? dlsym(so, "ingot_module") : NULL;

	if (!m || m->init(&host)) {
		fprintf(stderr, "%s: %s\n", MOE_MODULE, m ? "init failed" : dlerror());
		abort();
	}
	for (const struct ig_op *const *op = m->ops; *op; op++) {
		op_route = strcmp((*op)->name, "moe_route") ? op_route : *op;
		op_glu = strcmp((*op)->name, "moe_glu") ? op_glu : *op;
		op_combine = strcmp((*op)->name, "moe_combine") ? op_combine : *op;
	}
}

static struct ig_tensor values(const void *data, int64_t n_rows, int64_t n_cols, uint32_t dtype)
{
	return (struct ig_tensor){ (void *)(uintptr_t)data, n_rows, n_cols, n_cols * 4, dtype,
				   IG_LAYOUT_ROWS };
}

static void run(const struct ig_op *op, const struct ig_op_launch *launch, uint32_t out_dtype,
		uint32_t f32, uint32_t tiles, bool reference)
{
	const struct ig_gpu_case c = { .op = op,
				       .launch = launch,
				       .in_class = IG_ROWS_TOKENS,
				       .out_dtype = out_dtype,
				       .f32 = f32,
				       .tiles = tiles };
	struct ig_error err = { 0 };

	if (reference ? ig_gpu_case_reference(lab, &c, &err) : ig_gpu_case_run(lab, &c, &err))
		fail_msg("%s: %s", op->name, err.text);
}

/* ---- moe_route ---------------------------------------------------------------------------- */

/* out [n, 4 * top_k + shared]; w [2, n_experts]: the selection bias and the experts' scales */
static void route_rows(const struct ig_moe_route_params *p, const float *x, const float *w,
		       int32_t n, uint32_t *out, bool reference)
{
	const struct ig_step step = { .struct_size = sizeof step, .n_rows = n };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.n_in = 1,
		.n_weights = p->select_bias + p->expert_scale,
		.n_out = 1,
		.params = p,
		.step = &step,
		.in = { values(x, n, p->n_experts + p->shared, IG_F32) },
		.out = { values(out, n, 4 * p->top_k + p->shared, IG_I32) },
	};

	for (uint32_t i = 0; i < launch.n_weights; i++)
		launch.weight[i] = values(w + (p->select_bias ? i : 1) * p->n_experts, 1,
					  p->n_experts, IG_F32);
	run(op_route, &launch, IG_F32, 0, 0, reference);
}

static void check_options(const struct ig_moe_route_params *p)
{
	const uint32_t n_experts = p->n_experts, top_k = p->top_k;
	const uint32_t words = 4 * top_k + p->shared, columns = n_experts + p->shared;
	uint64_t seed = n_experts * 64 + top_k;
	float *x = floats((int64_t)MOST_ROWS * columns, 3.0f, &seed);
	float *w = floats(2 * (int64_t)n_experts, 0.3f, &seed);
	uint32_t *want = must(calloc(MOST_ROWS * words, 4)),
		 *got = must(calloc(MOST_ROWS * words, 4));
	uint32_t *all = must(calloc(MOST_ROWS * words, 4));

	for (uint32_t i = 0; i < n_experts; i++) { /* equal, zeros of both signs, not ordinary */
		x[1 * columns + i] = 0.5f;
		x[2 * columns + i] = i % 3 ? 0.0f : -0.0f;
		x[3 * columns + i] = i % 2 ? NAN : x[3 * columns + i];
		x[4 * columns + i] = i == n_experts - 1 ? 1.0f : -INFINITY;
	}
	route_rows(p, x, w, MOST_ROWS, all, false);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		const int32_t n = counts[c], first = n < 8 ? 9 : 0;

		if (n > MOST_ROWS)
			break;
		route_rows(p, x + first * (int32_t)columns, w, n, want, true);
		route_rows(p, x + first * (int32_t)columns, w, n, got, false);
		for (uint32_t i = 0; i < (uint32_t)n * words; i++) {
			const uint32_t part = i % words / top_k,
				       in_all = i + (uint32_t)first * words;
			const bool weight = part == IG_ROUTE_WEIGHTS || i % words == 4 * top_k;
			float y, g;

			memcpy(&y, &want[i], 4);
			memcpy(&g, &got[i], 4);
			if (!weight ? want[i] != got[i] :
				      !(fabsf(g - y) <= 2e-6f * fabsf(y)) && !(y != y && g != g))
				fail_msg(
					"%u of %u experts, %d rows, row %u, word %u: %u or %g, expected %u or %g",
					top_k, n_experts, n, i / words, i % words, got[i],
					(double)g, want[i], (double)y);
			if ((part == IG_ROUTE_IDS || weight) && got[i] != all[in_all])
				fail_msg("%u of %u experts: row %u has other bits among %d rows",
					 top_k, n_experts, i / words, n);
		}
	}
	free(x);
	free(w);
	free(want);
	free(got);
	free(all);
}

static void check_route(uint32_t n_experts, uint32_t top_k, uint32_t normalise, float scale)
{
	const struct ig_moe_route_params p = { sizeof p, n_experts, top_k, normalise, scale };

	check_options(&p);
}

static void test_route(void **state)
{
	check_route(8, 2, 1, 1.0f);
	check_route(64, 8, 0, 1.0f);
	check_route(128, 8, 1, 2.5f);
	check_route(5, 5, 0, 1.0f);
	check_route(33, 1, 1, 1.0f);
	check_route(1024, 32, 1, 1.0f);
	check_route(160, 6, 0, 16.0f);
	check_route(256, 8, 1, 1.0f);
	check_route(257, 8, 1, 1.0f);
	check_route(512, 10, 1, 1.0f);
	check_route(513, 4, 0, 1.0f);
}

static void test_route_options(void **state)
{
	for (size_t i = 0; i < N_MOE_ROUTERS; i++) {
		const struct ig_moe_route_params p = moe_router(i);

		check_options(&p);
	}
}

/* ---- products ------------------------------------------------------------------------------- */

struct layer {
	uint32_t dtype, n_experts, top_k;
	int64_t k, n; /* inner length, outputs of an expert */
	uint32_t act;
	uint32_t f32, out_dtype;
	double tolerance;    /* of the result's largest value */
	uint32_t form, bias; /* of moe_glu; moe_combine has the bias, too */
	uint32_t tiles;	     /* weights are in tiles, where there are kernels for it */
	int32_t most_rows;   /* 0: MOST_ROWS */
	uint32_t sum_bias;   /* moe_combine has one of the sum instead */
};

struct world {
	const struct layer *l;
	bool glu, residual, shared;
	uint8_t *w[2];
	float *bias[2];
	uint32_t n_matrices;
	float *logits, *x, *res, *shared_y;
	int64_t x_cols, y_cols;
};

static void product_rows(const struct world *w, int32_t first, int32_t n, float *out,
			 bool reference)
{
	const struct layer *l = w->l;
	const struct ig_moe_route_params rp = { .struct_size = sizeof rp,
						.n_experts = l->n_experts,
						.top_k = l->top_k,
						.normalise = 1,
						.scale = 1.0f,
						.shared = w->shared };
	const int64_t words = 4 * (int64_t)l->top_k + w->shared, logits = l->n_experts + w->shared;
	const struct ig_moe_glu_params gp = { sizeof gp, l->act,  l->n_experts, l->top_k,
					      l->form,	 l->bias, 1.5f };
	const struct ig_moe_combine_params cp = { sizeof cp, l->n_experts, l->top_k, w->shared,
						  l->sum_bias ? IG_MOE_BIAS_SUM : l->bias };
	const struct ig_step step = { .struct_size = sizeof step, .n_rows = n };
	const int64_t row = (int64_t)ig_dtype_row_bytes(l->dtype, l->k);
	uint32_t *route = must(malloc((size_t)(n * words) * 4));
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.n_in = w->glu	    ? 2 :
			w->shared   ? 4 :
			w->residual ? 3 :
				      2,
		.n_out = 1,
		.n_weights = w->n_matrices * (1 + l->bias) + (!w->glu && l->sum_bias),
		.params = w->glu ? (const void *)&gp : &cp,
		.step = &step,
	};

	route_rows(&rp, w->logits + first * logits, NULL, n, route, true);
	launch.in[0] = values(w->x + first * w->x_cols, n, w->x_cols, IG_F32);
	launch.in[1] = values(route, n, words, IG_I32);
	if (w->residual)
		launch.in[2] = values(w->res + first * w->y_cols, n, w->y_cols, IG_F32);
	if (w->shared && !w->glu)
		launch.in[3] = values(w->shared_y + first * w->y_cols, n, w->y_cols, IG_F32);
	const int64_t fused = w->glu && l->form == IG_MOE_FUSED ? 2 : 1;
	for (uint32_t i = 0; i < w->n_matrices; i++)
		launch.weight[i] = (struct ig_tensor){ w->w[i],	 fused * l->n_experts * l->n,
						       l->k,	 row,
						       l->dtype, IG_LAYOUT_ROWS };
	for (uint32_t i = w->n_matrices; i < launch.n_weights; i++)
		launch.weight[i] = values(w->bias[i - w->n_matrices],
					  l->sum_bias ? 1 : l->n_experts, l->n, IG_F32);
	launch.out[0] = values(out, n, w->y_cols, IG_F32);
	run(w->glu ? op_glu : op_combine, &launch, l->out_dtype, l->f32, l->tiles, reference);
	free(route);
}

static void check_product(const struct layer *l, bool glu, bool residual, bool shared)
{
	uint64_t seed = 77 + l->dtype * 5 + (uint64_t)l->k;
	const int64_t row = (int64_t)ig_dtype_row_bytes(l->dtype, l->k);
	const int64_t n_w = l->n_experts * l->n * (glu && l->form == IG_MOE_FUSED ? 2 : 1);
	struct world w = { .l = l,
			   .glu = glu,
			   .residual = residual,
			   .shared = shared,
			   .n_matrices = glu && l->form == IG_MOE_PAIR ? 2 : 1,
			   .x_cols = glu ? l->k : l->k * l->top_k,
			   .y_cols = glu ? l->n * l->top_k : l->n };
	const int32_t most_rows = l->most_rows ? l->most_rows : MOST_ROWS;
	double most = 0.0;

	for (uint32_t i = 0; i < 2; i++)
		w.bias[i] = floats(l->n_experts * l->n, 1.0f, &seed);
	for (uint32_t i = 0; i < w.n_matrices; i++) {
		w.w[i] = must(aligned_alloc(64, ((size_t)(row * n_w) + 127) & ~(size_t)63));
		for (int64_t r = 0; r < n_w; r++)
			ig_case_weight_row(l->dtype, w.w[i] + r * row, l->k, &seed);
	}
	const int64_t logits = l->n_experts + shared;
	w.logits = floats(most_rows * logits, 1.0f, &seed);
	for (int32_t r = 0; r < most_rows; r++) { /* the first expert is idle, the second busy */
		w.logits[r * logits] = -100.0f;
		w.logits[r * logits + 1] += 1.5f;
	}
	w.x = floats(most_rows * w.x_cols, 1.0f, &seed);
	w.res = floats(most_rows * w.y_cols, 1.0f, &seed);
	w.shared_y = floats(most_rows * w.y_cols, 1.0f, &seed);

	const size_t n = (size_t)(most_rows * w.y_cols);
	float *ref = must(malloc(n * 4)), *all = must(malloc(n * 4)), *got = must(malloc(n * 4));

	product_rows(&w, 0, most_rows, ref, true);
	product_rows(&w, 0, most_rows, all, false);
	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)ref[i]));
	assert_true(most > 0.1 && most < 1e5);
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)all[i] - (double)ref[i]) <= l->tolerance * most))
			fail_msg("%s, type %u: row %lld column %lld is %.9g, expected %.9g",
				 glu ? "moe_glu" : "moe_combine", l->dtype, (long long)i / w.y_cols,
				 (long long)i % w.y_cols, (double)all[i], (double)ref[i]);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		const int32_t first = most_rows - counts[c];

		if (first < 0)
			break;
		product_rows(&w, first, counts[c], got, false);
		for (int32_t r = 0; r < counts[c]; r++)
			if (memcmp(got + r * w.y_cols, all + (first + r) * w.y_cols,
				   (size_t)w.y_cols * 4))
				fail_msg("%s, type %u: row %d has other bits among %d rows",
					 glu ? "moe_glu" : "moe_combine", l->dtype, first + r,
					 counts[c]);
	}
	free(w.w[0]);
	free(w.w[1]);
	free(w.bias[0]);
	free(w.bias[1]);
	free(w.logits);
	free(w.x);
	free(w.res);
	free(w.shared_y);
	free(ref);
	free(all);
	free(got);
}

static void check_both(struct layer l)
{
	check_product(&l, true, false, l.top_k == 3);
	l.out_dtype = IG_F32; /* moe_combine's is the residual stream */
	check_product(&l, false, true, l.top_k > 2);
}

static void test_floats(void **state)
{
	check_both((struct layer){ IG_F16, 8, 2, 96, 48, IG_ACT_SILU, 0, IG_F16, 2e-3 });
	check_both((struct layer){ IG_BF16, 5, 3, 528, 80, IG_ACT_GELU, 0, IG_BF16, 2e-2 });
	check_both((struct layer){ IG_F32, 6, 1, 80, 16, IG_ACT_SILU, 0, IG_F32, 1e-5 });
	check_both((struct layer){ IG_F16, 4, 4, 1024, 32, IG_ACT_NONE, 1, IG_F32, 1e-5 });
	check_both((struct layer){ IG_BF16, 40, 2, 64, 32, IG_ACT_SILU, 1, IG_F32, 1e-5 });
	check_product(&(struct layer){ IG_F16, 8, 2, 48, 64, IG_ACT_NONE, 0, IG_F32, 2e-3 }, false,
		      false, false);
}

static const uint32_t formats[] = { IG_Q4_0,   IG_Q4_1,	  IG_Q5_0,  IG_Q5_1, IG_Q8_0,
				    IG_Q2_K,   IG_Q3_K,	  IG_Q4_K,  IG_Q5_K, IG_Q6_K,
				    IG_IQ4_NL, IG_IQ4_XS, IG_MXFP4, IG_Q8_M };

static void test_blocks(void **state)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		check_both(
			(struct layer){ formats[i], 6, 2, 512, 48, IG_ACT_SILU, 0, IG_F32, 3e-3 });
		if (i % 4 == 0)
			check_both((struct layer){ formats[i], 3, 2, 256, 16, IG_ACT_GELU, 1,
						   IG_F32, 1e-5 });
	}
}

/* Biases, clamped gates, gate and up in one matrix, no gate. */
static void test_forms(void **state)
{
	check_both((struct layer){ IG_F16, 6, 2, 64, 48, IG_ACT_CLAMPED, 0, IG_F16, 3e-3,
				   IG_MOE_PAIR, 1 });
	check_both((struct layer){ IG_MXFP4, 4, 3, 256, 32, IG_ACT_CLAMPED, 0, IG_F16, 3e-3,
				   IG_MOE_PAIR, 1 });
	check_both((struct layer){ IG_BF16, 5, 2, 64, 48, IG_ACT_CLAMPED, 1, IG_F32, 1e-5,
				   IG_MOE_PAIR, 1 });
	check_both((struct layer){ IG_Q8_0, 5, 2, 64, 48, IG_ACT_GELU, 0, IG_F16, 3e-3,
				   IG_MOE_FUSED, 0 });
	check_both((struct layer){ IG_F32, 5, 2, 64, 32, IG_ACT_SILU, 0, IG_F32, 1e-5, IG_MOE_FUSED,
				   0 });
	check_both((struct layer){ IG_F16, 6, 2, 80, 64, IG_ACT_RELU2, 0, IG_F16, 3e-3, IG_MOE_UP,
				   0 });
	check_both((struct layer){ IG_Q4_K, 3, 2, 256, 48, IG_ACT_RELU2, 0, IG_F32, 3e-3, IG_MOE_UP,
				   1 });
	check_both((struct layer){ IG_F16, 6, 2, 80, 64, IG_ACT_GELU_ERF, 0, IG_F16, 3e-3,
				   IG_MOE_UP, 0, 0, 0, 1 });
	check_both((struct layer){ IG_Q8_0, 5, 3, 64, 48, IG_ACT_SILU, 0, IG_F32, 3e-3, IG_MOE_PAIR,
				   0, 0, 0, 1 });
	check_product(&(struct layer){ IG_F32, 4, 1, 48, 1040, IG_ACT_NONE, 1, IG_F32, 1e-5,
				       IG_MOE_UP, 0, 0, 0, 1 },
		      false, false, false);
}

/* In tiles: one share of k and several, k that is no multiple of a tile's, more teams than one. */
static void test_tiles(void **state)
{
	const struct ig_gpu_facts *f = ig_gpu_lab_facts(lab);

	if (f->kind == IG_GPU_CUDA && !f->tiles)
		skip();
	if (f->tensor_units) /* which have no kernels for them */
		return;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		check_both((struct layer){ formats[i], 6, 2, 768, 48, IG_ACT_SILU, 0,
					   i % 2 ? IG_F32 : IG_F16, 3e-3, IG_MOE_PAIR, 0, 1 });
	check_both((struct layer){ IG_Q4_0, 5, 3, 352, 16, IG_ACT_GELU, 0, IG_F32, 3e-3,
				   IG_MOE_PAIR, 0, 1 });
	check_both((struct layer){ IG_Q8_0, 3, 1, 96, 160, IG_ACT_SILU, 0, IG_F16, 3e-3,
				   IG_MOE_PAIR, 0, 1 });
	check_both((struct layer){ IG_MXFP4, 4, 3, 256, 32, IG_ACT_CLAMPED, 0, IG_F16, 3e-3,
				   IG_MOE_PAIR, 1, 1 });
	check_both((struct layer){ IG_Q8_0, 5, 2, 160, 48, IG_ACT_GELU, 0, IG_F16, 3e-3,
				   IG_MOE_FUSED, 0, 1 });
	check_both((struct layer){ IG_Q4_K, 3, 2, 512, 48, IG_ACT_RELU2, 0, IG_F32, 3e-3, IG_MOE_UP,
				   1, 1 });
}

/* So many rows that experts' weights are unpacked: more than a tile of rows of one expert and none of
 * another, with shares of k, in one piece and in several. */
static void test_unpacked(void **state)
{
	const struct ig_gpu_facts *f = ig_gpu_lab_facts(lab);

	if (!f->tiles)
		return; /* an older GPU */
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		check_both((struct layer){ formats[i], 6, 2, 2304, 304, IG_ACT_SILU, 0,
					   i % 2 ? IG_F32 : IG_F16, 4e-3, IG_MOE_PAIR, 0, 1, 420 });
	check_both((struct layer){ IG_MXFP4, 4, 3, 288, 176, IG_ACT_CLAMPED, 0, IG_F16, 3e-3,
				   IG_MOE_PAIR, 1, 1, 300 });
	check_both((struct layer){ IG_Q8_0, 5, 2, 160, 144, IG_ACT_GELU, 0, IG_F16, 3e-3,
				   IG_MOE_FUSED, 0, 1, 300 });
	check_both((struct layer){ IG_Q4_K, 3, 2, 512, 48, IG_ACT_RELU2, 0, IG_F32, 3e-3, IG_MOE_UP,
				   1, 1, 300 });
	check_product(&(struct layer){ IG_Q8_0, 3, 1, 512, 131088, IG_ACT_SILU, 0, IG_F32, 3e-3,
				       IG_MOE_PAIR, 0, 1, 257 },
		      false, true, false);
}

/* What no kernel does is named. */
static void test_refused(void **state)
{
	const struct ig_moe_glu_params p = { sizeof p, IG_ACT_SILU, 2, 1 };
	struct ig_gpu_launch c = { .struct_size = sizeof c,
				   .n_in = 2,
				   .n_weights = 2,
				   .n_out = 1,
				   .params = &p,
				   .facts = ig_gpu_lab_facts(lab),
				   .max_rows = 1 };
	struct ig_error err = { 0 };

	c.in[0] = (struct ig_gpu_tensor){ .n_cols = 32, .row_stride = 64, .dtype = IG_F16 };
	c.in[1] = (struct ig_gpu_tensor){ .n_cols = 4, .row_stride = 64, .dtype = IG_F32 };
	c.weight[0] = c.weight[1] = (struct ig_gpu_tensor){
		.n_rows = 32, .n_cols = 32, .row_stride = 64, .dtype = IG_I32
	};
	c.out[0] = (struct ig_gpu_tensor){ .n_cols = 16, .row_stride = 64, .dtype = IG_F32 };
	assert_int_equal(op_glu->gpu->lower(&c, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "dtype 26"));
	c.weight[0].dtype = IG_BF16;
	assert_int_equal(op_glu->gpu->lower(&c, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "in dtype 1"));
	c.in[0].dtype = IG_BF16;
	c.in[0].n_cols = 24;
	assert_int_equal(op_glu->gpu->lower(&c, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "multiples of 16"));
	c.max_rows = 1u << 30;
	assert_int_equal(op_glu->gpu->lower(&c, &ig_gpu_tape_host, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "too many"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_route),	 cmocka_unit_test(test_route_options),
		cmocka_unit_test(test_floats),	 cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_forms),	 cmocka_unit_test(test_tiles),
		cmocka_unit_test(test_unpacked), cmocka_unit_test(test_refused),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	open_module();
	if (ig_gpu_lab_facts(lab)->kind != IG_GPU_CUDA)
		cmocka_set_skip_filter("test_unpacked");
	rc = cmocka_run_group_tests_name("experts on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
