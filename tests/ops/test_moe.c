/*
 * test_moe.c: the ops of the module moe, in every weight format and on every instruction
 * set that linear has here: near their references on the same (quantised) activations, the
 * same bits however units and rows are cut up and whether experts are packed or mapped,
 * nothing written outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"
#include "ops/float.h"
#include "runtime/cpu/isa.h"
#include "runtime/modules/modules.h"
#include "tests/emulated.h"
#include "tests/ops/cases.h"
#include "tests/ops/moe_routers.h"

#include <errno.h>
#include <stdlib.h>

/* As in test_ops.c; the sums here are shorter, and there are more of them. */
#define TOLERANCE 1e-5
#define GUARD 64
#define GUARD_BYTE 0xa5

struct shape {
	uint32_t n_experts, top_k;
	int32_t rows;
	int64_t blocks, n; /* inner length in the format's blocks; rows of one expert's matrix */
	uint32_t act;
	bool normalise, residual, shared; /* shared: there is a shared expert with a weight */
	uint32_t form, bias;		  /* of moe_glu; moe_combine has the bias, too */
	bool sum_bias;			  /* moe_combine has one of the sum instead */
};

static const struct shape shapes[] = {
	{ 1, 1, 1, 1, 16, IG_ACT_SILU, true, false },
	{ 4, 2, 3, 2, 48, IG_ACT_SILU, true, true },
	{ 8, 3, 9, 1, 32, IG_ACT_GELU, false, true },
	{ 16, 8, 7, 1, 16, IG_ACT_NONE, true, false },
	{ 5, 5, 6, 3, 16, IG_ACT_SILU, false, true },  /* every expert, every row */
	{ 128, 8, 2, 1, 16, IG_ACT_SILU, true, true }, /* most are idle */
	{ 6, 2, 5, 1, 32, IG_ACT_SILU, true, true, true },
	{ 4, 2, 5, 1, 32, IG_ACT_CLAMPED, true, true, false, IG_MOE_PAIR, 1 },
	{ 4, 2, 70, 1, 272, IG_ACT_SILU, true, true, false, IG_MOE_FUSED, 0 },
	{ 5, 3, 4, 1, 32, IG_ACT_RELU2, true, true, true, IG_MOE_UP, 0 },
	{ 3, 2, 2, 1, 16, IG_ACT_RELU2, true, false, false, IG_MOE_UP, 1 },
	{ 4, 2, 5, 1, 48, IG_ACT_GELU_ERF, false, true, false, IG_MOE_UP, 0 },
	{ 5, 3, 6, 1, 48, IG_ACT_GELU_ERF, false, true, false, IG_MOE_UP, 0, true },
	{ 3, 1, 4, 1, 32, IG_ACT_SILU, false, false, false, IG_MOE_PAIR, 0, true },
	{ 6, 2, 70, 1, 272, IG_ACT_SILU, false, true, true, IG_MOE_PAIR, 0, true },
	{ 2, 2, 66, 1, 272, IG_ACT_SILU, true, true }, /* groups and blocks in several parts */
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static struct ig_modules *modules;

static const struct ig_op *op_of(const char *name)
{
	const struct ig_op *op = ig_modules_op(modules, name);

	assert_non_null(op);
	return op;
}

/* ---- memory with guards round each row ------------------------------------------------- */

struct rows {
	uint8_t *mem;
	int64_t n, n_cols, stride;
};

static struct rows rows_make(int64_t n, int64_t n_cols)
{
	struct rows r = { .n = n, .n_cols = n_cols, .stride = (n_cols * 4 + 63) / 64 * 64 + GUARD };
	size_t bytes = (size_t)(r.stride * n + GUARD);

	r.mem = aligned_alloc(64, bytes);
	assert_non_null(r.mem);
	memset(r.mem, GUARD_BYTE, bytes);
	return r;
}

static struct ig_tensor rows_tensor(const struct rows *r, int64_t first, int64_t n, uint32_t dtype)
{
	return (struct ig_tensor){
		r->mem + GUARD + first * r->stride, n, r->n_cols, r->stride, dtype, IG_LAYOUT_ROWS
	};
}

static float *rows_at(const struct rows *r, int64_t row)
{
	return (float *)(r->mem + GUARD + row * r->stride);
}

static void rows_clear(struct rows *r)
{
	memset(r->mem, GUARD_BYTE, (size_t)(r->stride * r->n + GUARD));
}

static void rows_random(struct rows *r, uint64_t *seed)
{
	for (int64_t i = 0; i < r->n; i++)
		for (int64_t j = 0; j < r->n_cols; j++)
			rows_at(r, i)[j] = ig_random_normalish(seed) + 0.1f;
}

static bool rows_whole(const struct rows *r)
{
	uint8_t guards[2 * GUARD];
	const int64_t width = r->n_cols * 4, gap = r->stride - width;

	memset(guards, GUARD_BYTE, sizeof guards);
	assert_true(gap <= (int64_t)sizeof guards);
	for (int64_t i = 0; i < r->n; i++)
		if (memcmp(r->mem + GUARD + i * r->stride + width, guards, (size_t)gap))
			return false;
	return !memcmp(r->mem, guards, GUARD);
}

static bool rows_same(const struct rows *a, const struct rows *b)
{
	for (int64_t i = 0; i < a->n; i++)
		if (memcmp(rows_at(a, i), rows_at(b, i), (size_t)a->n_cols * 4))
			return false;
	return true;
}

static double rows_worst(const struct rows *a, const struct rows *b)
{
	double size = 0, worst = 0;

	for (int64_t i = 0; i < a->n; i++)
		for (int64_t j = 0; j < a->n_cols; j++)
			size += (double)rows_at(b, i)[j] * (double)rows_at(b, i)[j];
	size = sqrt(size / (double)(a->n * a->n_cols)) + 1e-3;
	for (int64_t i = 0; i < a->n; i++)
		for (int64_t j = 0; j < a->n_cols; j++) {
			double y = (double)rows_at(b, i)[j];
			double e = fabs((double)rows_at(a, i)[j] - y) / (size + fabs(y));

			if (!(e <= worst)) /* NaN is the worst */
				worst = e;
		}
	return worst;
}

/* ---- one op of one shape --------------------------------------------------------------- */

struct setup {
	const struct shape *s;
	const struct ig_op *op;
	union {
		struct ig_moe_glu_params glu;
		struct ig_moe_combine_params combine;
	} params;
	uint32_t dtype, n_weights, n_matrices;
	int64_t k, n_rows; /* inner length; rows of a matrix of all experts */
	struct rows x, route, residual, shared, out;
	uint8_t *packed; /* x in another form */
	uint8_t *weight[2], *tiled[2];
	float *bias[2]; /* [n_experts, n] */
};

static struct ig_moe_route_params route_params(const struct shape *s)
{
	return (struct ig_moe_route_params){ .struct_size = sizeof(struct ig_moe_route_params),
					     .n_experts = s->n_experts,
					     .top_k = s->top_k,
					     .normalise = s->normalise,
					     .scale = 1.5f,
					     .shared = s->shared };
}

static int64_t route_words(const struct ig_moe_route_params *p)
{
	return 4 * (int64_t)p->top_k + p->shared;
}

/* The route of some rows by themselves, from the kernel; weights: those that p asks for. */
static void run_route(const struct ig_moe_route_params *p, const struct rows *weights,
		      const struct rows *logits, int64_t first, int64_t n, const struct rows *route)
{
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = 1,
				  .n_weights = p->select_bias + p->expert_scale,
				  .n_out = 1,
				  .params = p };

	for (uint32_t i = 0; i < c.n_weights; i++)
		c.weight[i] = rows_tensor(&weights[i], 0, 1, IG_F32);
	c.in[0] = rows_tensor(logits, first, n, IG_F32);
	c.out[0] = rows_tensor(route, 0, n, IG_I32);
	c.kernel = &op_of("moe_route")->cpu_kernels[0];
	assert_int_equal(c.kernel->n_units(&c), 1);
	c.kernel->run(&c, 0, 1, NULL);
}

static void make_route(const struct shape *s, const struct rows *logits, int64_t first, int64_t n,
		       const struct rows *route)
{
	const struct ig_moe_route_params p = route_params(s);

	run_route(&p, NULL, logits, first, n, route);
}

static uint64_t seed_of(const struct shape *s, uint32_t dtype)
{
	return 0x9e3779b97f4a7c15u ^
	       (uint64_t)(s->n_experts * 131 + (uint32_t)s->rows * 7 + dtype * 977);
}

static struct rows make_logits(const struct shape *s)
{
	struct rows logits = rows_make(s->rows, s->n_experts + s->shared);
	uint64_t seed = seed_of(s, 0);

	rows_random(&logits, &seed);
	return logits;
}

static void setup_create(struct setup *t, const char *op, const struct shape *s, uint32_t dtype)
{
	const int64_t block = ig_dtype_row_bytes(dtype, 32) ? 32 : 256;
	const uint64_t row_bytes = ig_dtype_row_bytes(dtype, s->blocks * block);
	const bool glu = !strcmp(op, "moe_glu");
	const int64_t n = s->n * s->n_experts * (glu && s->form == IG_MOE_FUSED ? 2 : 1);
	struct rows logits = make_logits(s);
	uint64_t seed = seed_of(s, dtype);

	*t = (struct setup){ .s = s,
			     .op = op_of(op),
			     .dtype = dtype,
			     .n_matrices = glu && s->form == IG_MOE_PAIR ? 2 : 1,
			     .k = s->blocks * block,
			     .n_rows = n };
	t->n_weights = t->n_matrices * (1 + s->bias) + (!glu && s->sum_bias);
	if (glu)
		t->params.glu = (struct ig_moe_glu_params){
			sizeof t->params.glu, s->act, s->n_experts, s->top_k, s->form, s->bias, 1.5f
		};
	else
		t->params.combine =
			(struct ig_moe_combine_params){ sizeof t->params.combine, s->n_experts,
							s->top_k, s->shared,
							s->sum_bias ? IG_MOE_BIAS_SUM : s->bias };
	t->x = rows_make(s->rows, glu ? t->k : t->k * s->top_k);
	rows_random(&t->x, &seed);
	for (int64_t r = 0; r < t->x.n; r++)
		for (int64_t i = r % 7; i < t->x.n_cols; i += 53)
			rows_at(&t->x, r)[i] *= 40.0f; /* an outlier of its block */
	t->residual = rows_make(s->rows, s->n);
	rows_random(&t->residual, &seed);
	t->shared = rows_make(s->rows, s->n);
	rows_random(&t->shared, &seed);
	t->route = rows_make(s->rows, 4 * (int64_t)s->top_k + s->shared);
	make_route(s, &logits, 0, s->rows, &t->route);
	t->out = rows_make(s->rows, glu ? s->n * s->top_k : s->n);
	t->packed = aligned_alloc(64, (size_t)s->rows *
					      (ig_layout_row_bytes(IG_LAYOUT_ROWS, t->x.n_cols)));
	assert_non_null(t->packed);
	for (uint32_t i = 0; i < 2; i++) {
		t->bias[i] = malloc((size_t)(s->n * s->n_experts) * sizeof *t->bias[i]);
		assert_non_null(t->bias[i]);
		for (int64_t j = 0; j < s->n * s->n_experts; j++)
			t->bias[i][j] = ig_random_normalish(&seed);
	}
	for (uint32_t i = 0; i < t->n_matrices; i++) {
		t->weight[i] = aligned_alloc(64, (row_bytes * (uint64_t)n + 63) / 64 * 64);
		t->tiled[i] = aligned_alloc(64, ig_tile16_tile_bytes(dtype, t->k) *
							(uint64_t)ig_tile16_n_tiles(n));
		assert_non_null(t->weight[i]);
		assert_non_null(t->tiled[i]);
		for (int64_t r = 0; r < n; r++)
			ig_case_weight_row(dtype, t->weight[i] + row_bytes * (uint64_t)r, t->k,
					   &seed);
		ig_tile16_pack(dtype, t->weight[i], n, t->k, t->tiled[i], 0, ig_tile16_n_tiles(n));
	}
	free(logits.mem);
}

static void setup_destroy(struct setup *t)
{
	free(t->x.mem);
	free(t->route.mem);
	free(t->residual.mem);
	free(t->shared.mem);
	free(t->out.mem);
	free(t->packed);
	for (int i = 0; i < 2; i++) {
		free(t->weight[i]);
		free(t->tiled[i]);
		free(t->bias[i]);
	}
}

/* x in a form; with back, as the form sees it, in place of x. */
static struct ig_tensor in_layout(const struct setup *t, uint32_t layout, bool back)
{
	const int64_t n_cols = t->x.n_cols, stride = (int64_t)ig_layout_row_bytes(layout, n_cols);
	struct ig_op_launch c = { .n_in = 1, .n_out = 1 };

	c.in[0] = rows_tensor(&t->x, 0, t->x.n, IG_F32);
	if (layout == IG_LAYOUT_ROWS)
		return c.in[0];
	c.out[0] = (struct ig_tensor){ t->packed, t->x.n, n_cols, stride, IG_F32, layout };
	(layout == IG_LAYOUT_Q8 ? ig_pack_q8_generic : ig_pack_bf16_generic)(&c, 0, t->x.n, NULL);
	for (int64_t r = 0; back && r < t->x.n; r++) {
		const uint8_t *row = t->packed + r * stride;

		for (int64_t i = 0; i < n_cols; i++)
			rows_at(&t->x, r)[i] = layout == IG_LAYOUT_Q8 ?
						       ig_case_q8_value(row, n_cols, i) :
						       ig_f32_from_bf16(((const uint16_t *)row)[i]);
	}
	return c.out[0];
}

static bool is_glu(const struct setup *t) { return !strcmp(t->op->name, "moe_glu"); }

/* The call on rows first … first + n - 1, with a route of theirs. */
static struct ig_op_launch call_of(const struct setup *t, struct ig_tensor x,
				   const struct rows *route, uint32_t weight_layout, int64_t first,
				   int64_t n)
{
	const bool tiled = weight_layout == IG_LAYOUT_TILE16;
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = is_glu(t) || !t->s->residual ? 2 :
					  t->s->shared		       ? 4 :
									 3,
				  .n_weights = t->n_weights,
				  .n_out = 1,
				  .params = &t->params };

	c.in[0] = x;
	c.in[0].data = (char *)x.data + first * x.row_stride;
	c.in[0].n_rows = n;
	c.in[1] = rows_tensor(route, 0, n, IG_I32);
	if (c.n_in > 2)
		c.in[2] = rows_tensor(&t->residual, first, n, IG_F32);
	if (c.n_in > 3)
		c.in[3] = rows_tensor(&t->shared, first, n, IG_F32);
	for (uint32_t i = t->n_matrices; i < c.n_weights; i++)
		c.weight[i] = (struct ig_tensor){ t->bias[i - t->n_matrices],
						  t->s->sum_bias ? 1 : t->s->n_experts,
						  t->s->n,
						  t->s->n * 4,
						  IG_F32,
						  IG_LAYOUT_ROWS };
	for (uint32_t i = 0; i < t->n_matrices; i++)
		c.weight[i] =
			(struct ig_tensor){ tiled ? t->tiled[i] : t->weight[i],
					    t->n_rows,
					    t->k,
					    tiled ? 0 : (int64_t)ig_dtype_row_bytes(t->dtype, t->k),
					    t->dtype,
					    weight_layout };
	c.out[0] = rows_tensor(&t->out, first, n, IG_F32);
	return c;
}

enum cut { CUT_NONE, CUT_UNITS, CUT_ROWS };

#define MANY_ROWS 16

/* Rows of the next piece of a call that is cut by rows: each row by itself, or of many rows 1, 2, 3 and so on. */
static int64_t piece_rows(const struct shape *s, int64_t last, int64_t left)
{
	const int64_t n = s->rows < MANY_ROWS ? 1 : last + 1;

	return n < left ? n : left;
}

/* The kernel's result in `out`; false when something was written outside. */
static bool run_kernel(struct setup *t, const struct ig_cpu_kernel *k, enum cut cut,
		       struct rows *out)
{
	const struct ig_tensor x = in_layout(t, k->in_layout, false);
	struct rows logits = make_logits(t->s), route = rows_make(t->s->rows, t->route.n_cols);
	bool whole = true;

	rows_clear(&t->out);
	for (int64_t r = 0, n = 0; r < t->s->rows; r += n) {
		struct ig_op_launch c;
		uint64_t bytes;
		uint8_t *scratch;

		n = cut == CUT_ROWS ? piece_rows(t->s, n, t->s->rows - r) : t->s->rows;
		c = call_of(t, x, &route, k->weight_layout, r, n);
		make_route(t->s, &logits, r, n, &route);
		c.kernel = k;
		bytes = (k->scratch_bytes(&c) + 63) & ~(uint64_t)63;
		scratch = aligned_alloc(64, bytes + GUARD);
		assert_non_null(scratch);
		memset(scratch, 0xff, bytes); /* NaN where floats lie */
		memset(scratch + bytes, GUARD_BYTE, GUARD);
		for (int64_t u = k->n_units(&c) - 1; u >= 0 && cut == CUT_UNITS; u--)
			k->run(&c, u, u + 1, scratch);
		if (cut != CUT_UNITS)
			k->run(&c, 0, k->n_units(&c), scratch);
		for (int i = 0; i < GUARD; i++)
			whole = whole && scratch[bytes + (uint64_t)i] == GUARD_BYTE;
		free(scratch);
	}
	whole = whole && rows_whole(&t->out);
	for (int64_t r = 0; r < t->s->rows; r++)
		memcpy(rows_at(out, r), rows_at(&t->out, r), (size_t)out->n_cols * 4);
	free(route.mem);
	free(logits.mem);
	return whole;
}

static void run_reference(struct setup *t, uint32_t layout, struct rows *out)
{
	const size_t bytes = (size_t)(t->x.stride * t->x.n + GUARD);
	uint8_t *keep = malloc(bytes);
	struct ig_op_launch c;

	assert_non_null(keep);
	memcpy(keep, t->x.mem, bytes);
	in_layout(t, layout, true);
	rows_clear(&t->out);
	c = call_of(t, rows_tensor(&t->x, 0, t->x.n, IG_F32), &t->route, IG_LAYOUT_ROWS, 0,
		    t->s->rows);
	t->op->reference(&c);
	assert_true(rows_whole(&t->out));
	for (int64_t r = 0; r < t->s->rows; r++)
		memcpy(rows_at(out, r), rows_at(&t->out, r), (size_t)out->n_cols * 4);
	memcpy(t->x.mem, keep, bytes);
	free(keep);
}

static const char *name_of(const struct setup *t, const struct ig_cpu_kernel *k)
{
	static const char *const layouts[] = { "f32", "tile16", "q8", "bf16" };
	static char buf[160];

	snprintf(buf, sizeof buf, "%s %s, %u of %u experts, [%lld, %lld], %d rows, %s, x %s, %s",
		 t->op->name, ig_dtype_name(t->dtype), t->s->top_k, t->s->n_experts,
		 (long long)t->s->n, (long long)t->k, t->s->rows, ig_isa_name(k->isa),
		 layouts[k->in_layout], k->weight_layout == IG_LAYOUT_ROWS ? "mapped" : "packed");
	return buf;
}

static int check_dtype(const char *op, const struct shape *s, uint32_t dtype)
{
	struct rows ref[4], got, again, packed;
	bool have_ref[4] = { false };
	int n_failed = 0;
	struct setup t;

	setup_create(&t, op, s, dtype);
	got = rows_make(s->rows, t.out.n_cols);
	again = rows_make(s->rows, t.out.n_cols);
	packed = rows_make(s->rows, t.out.n_cols);
	for (int i = 0; i < 4; i++)
		ref[i] = rows_make(s->rows, t.out.n_cols);
	for (uint32_t i = 0; i < t.op->n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &t.op->cpu_kernels[i];
		double worst;

		if (k->weight_dtype != dtype || !ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		if (s->rows > 1 && !cuts_are_tested(k)) /* rows in pieces */
			continue;
		if (!have_ref[k->in_layout])
			run_reference(&t, k->in_layout, &ref[k->in_layout]);
		have_ref[k->in_layout] = true;
		if (!run_kernel(&t, k, CUT_NONE, &got)) {
			print_error("%s: wrote outside\n", name_of(&t, k));
			n_failed++;
		}
		worst = rows_worst(&got, &ref[k->in_layout]);
		if (!(worst <= TOLERANCE)) {
			print_error("%s: off by %g of the result's size\n", name_of(&t, k), worst);
			n_failed++;
		}
		for (enum cut cut = CUT_UNITS; cut <= CUT_ROWS && cuts_are_tested(k); cut++)
			if (!run_kernel(&t, k, cut, &again) || !rows_same(&got, &again)) {
				print_error("%s: other bits when cut by %s\n", name_of(&t, k),
					    cut == CUT_UNITS ? "units" : "rows");
				n_failed++;
			}
		/* the packed one comes first, then the mapped one with the same inner kernel */
		if (k->weight_layout == IG_LAYOUT_TILE16) {
			for (int64_t r = 0; r < s->rows; r++)
				memcpy(rows_at(&packed, r), rows_at(&got, r),
				       (size_t)got.n_cols * 4);
			assert_ptr_equal(k[1].inner, k->inner);
			assert_int_equal(k[1].weight_layout, IG_LAYOUT_ROWS);
		} else if (!rows_same(&got, &packed)) {
			print_error("%s: other bits than packed\n", name_of(&t, k));
			n_failed++;
		}
	}
	for (int i = 0; i < 4; i++)
		free(ref[i].mem);
	free(got.mem);
	free(again.mem);
	free(packed.mem);
	setup_destroy(&t);
	return n_failed;
}

/* Whether a shape is tried in format number i.  The two shapes of many rows are nearly all of the work, and what they
 * are for, the parts that groups are cut into, knows no format: where accesses are slow each is tried in every fourth. */
static bool is_tried(const struct shape *s, uint32_t i)
{
	return s->rows < MANY_ROWS || !is_slowed() || i % 4 == (s->form == IG_MOE_FUSED ? 0 : 2);
}

/* Every format that the inner op's kernels of tiles have. */
static void check_op(const char *name, const char *inner_name)
{
	const struct ig_op *op = op_of(name), *inner = op_of(inner_name);
	uint32_t seen[64], n_seen = 0, n_inner = 0;
	int n_failed = 0;

	for (uint32_t i = 0; i < inner->n_cpu_kernels; i++) {
		const uint32_t dtype = inner->cpu_kernels[i].weight_dtype;
		uint32_t j = 0;

		n_inner += inner->cpu_kernels[i].weight_layout == IG_LAYOUT_TILE16;
		while (j < n_seen && seen[j] != dtype)
			j++;
		if (j < n_seen)
			continue;
		assert_true(n_seen < 64);
		seen[n_seen++] = dtype;
		for (size_t s = 0; s < N_SHAPES; s++)
			if (is_tried(&shapes[s], n_seen - 1))
				n_failed += check_dtype(name, &shapes[s], dtype);
	}
	assert_int_equal(op->n_cpu_kernels, 2 * n_inner);
	assert_true(n_seen >= 16);
	assert_int_equal(n_failed, 0);
}

static void test_glu(void **state) { check_op("moe_glu", "glu"); }

static void test_combine(void **state) { check_op("moe_combine", "linear"); }

/* ---- routes ---------------------------------------------------------------------------- */

/* The kernel's route of all rows against the reference's, and of each row by itself. */
static void expect_params(const struct ig_moe_route_params *p, const struct rows *weights,
			  const struct rows *logits)
{
	const struct ig_op *op = op_of("moe_route");
	const int64_t n = logits->n, words = route_words(p);
	struct rows ref = rows_make(n, words), got = rows_make(n, words), one = rows_make(1, words);
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = 1,
				  .n_weights = p->select_bias + p->expert_scale,
				  .n_out = 1,
				  .params = p };
	const uint32_t k = p->top_k;

	for (uint32_t i = 0; i < c.n_weights; i++)
		c.weight[i] = rows_tensor(&weights[i], 0, 1, IG_F32);
	c.in[0] = rows_tensor(logits, 0, n, IG_F32);
	c.out[0] = rows_tensor(&ref, 0, n, IG_I32);
	op->reference(&c);
	run_route(p, weights, logits, 0, n, &got);
	assert_true(rows_whole(&ref) && rows_whole(&got));
	for (int64_t r = 0; r < n; r++) {
		const uint32_t *a = (uint32_t *)rows_at(&got, r), *b = (uint32_t *)rows_at(&ref, r);

		assert_memory_equal(a, b, k * sizeof *a);
		assert_memory_equal(a + 2 * k, b + 2 * k, 2 * k * sizeof *a);
		for (uint32_t j = 0; j < k + p->shared; j++) {
			const uint32_t at = j < k ? k + j : 4 * k;
			float x = rows_at(&got, r)[at], y = rows_at(&ref, r)[at];

			if (!(fabsf(x - y) <= 1e-6f * (1 + fabsf(y))) && !(x != x && y != y))
				fail_msg("row %d, slot %u: weight %g, expected %g", (int)r, j,
					 (double)x, (double)y);
		}
		/* by itself, the same bits */
		run_route(p, weights, logits, r, 1, &one);
		assert_memory_equal(rows_at(&one, 0), a, 2 * k * sizeof *a);
	}
	free(ref.mem);
	free(got.mem);
	free(one.mem);
}

static void expect_route(const struct shape *s, const struct rows *logits)
{
	const struct ig_moe_route_params p = route_params(s);

	expect_params(&p, NULL, logits);
}

static void test_route_options(void **state)
{
	for (size_t i = 0; i < N_MOE_ROUTERS; i++) {
		const struct ig_moe_route_params p = moe_router(i);
		struct rows logits = rows_make(20, p.n_experts + p.shared);
		struct rows weights[2] = { rows_make(1, p.n_experts), rows_make(1, p.n_experts) };
		uint64_t seed = 40 + i;

		rows_random(&logits, &seed);
		for (int w = 0; w < 2; w++)
			rows_random(&weights[w], &seed);
		expect_params(&p, weights, &logits);
		/* many that are equal, some that are not numbers */
		for (int64_t r = 0; r < logits.n; r++)
			for (int64_t j = 0; j < logits.n_cols; j++)
				rows_at(&logits, r)[j] = r < 3 && j % (r + 2) == 0 ?
								 NAN :
								 rintf(rows_at(&logits, r)[j] * 2);
		for (uint32_t j = 0; j < p.n_experts; j++)
			rows_at(&weights[0], 0)[j] = j % 3 ? 0.25f : -0.5f;
		expect_params(&p, weights, &logits);
		free(logits.mem);
		free(weights[0].mem);
		free(weights[1].mem);
	}
}

/* What is worked out by hand: the bias selects but does not weigh, and an expert in a group that
 * is not used is not selected, however good it is. */
static void test_sigmoid_by_hand(void **state)
{
	const struct ig_moe_route_params p = { .struct_size = sizeof p,
					       .n_experts = 6,
					       .top_k = 2,
					       .normalise = 1,
					       .scale = 2,
					       .gating = IG_GATING_SIGMOID,
					       .select_bias = 1,
					       .n_groups = 3,
					       .n_groups_used = 1,
					       .sum_epsilon = 0.25f,
					       .expert_scale = 1,
					       .shared = 1 };
	/* scores 1/2, 1/2, 1, 0, 1/2, 3/4, and 1/4 of the shared expert */
	static const float logits[7] = { 0, 0, 100, -100, 0, 1.0986123f, -1.0986123f };
	/* groups: 1/2 + 1/2 + 1/4 = 1.25, 1 + 0 = 1, 1/2 + 3/4 = 1.25: the first one */
	static const float bias[6] = { 0.25f, 0, 0, 0, 0, 0 }, scale[6] = { 3, 1, 9, 9, 9, 9 };
	struct rows x = rows_make(1, 7), route = rows_make(1, 9);
	struct rows weights[2] = { rows_make(1, 6), rows_make(1, 6) };

	memcpy(rows_at(&x, 0), logits, sizeof logits);
	memcpy(rows_at(&weights[0], 0), bias, sizeof bias);
	memcpy(rows_at(&weights[1], 0), scale, sizeof scale);
	run_route(&p, weights, &x, 0, 1, &route);
	assert_int_equal(((uint32_t *)rows_at(&route, 0))[0], 0);
	assert_int_equal(((uint32_t *)rows_at(&route, 0))[1], 1);
	assert_true(fabsf(rows_at(&route, 0)[2] - 3 * 2 * 0.5f / 1.25f) < 1e-6f);
	assert_true(fabsf(rows_at(&route, 0)[3] - 2 * 0.5f / 1.25f) < 1e-6f);
	assert_true(fabsf(rows_at(&route, 0)[8] - 0.25f) < 1e-6f);
	free(x.mem);
	free(route.mem);
	free(weights[0].mem);
	free(weights[1].mem);
}

static void test_route(void **state)
{
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct rows logits = make_logits(&shapes[i]);

		expect_route(&shapes[i], &logits);
		/* whole numbers: many that are equal */
		for (int64_t r = 0; r < logits.n; r++)
			for (int64_t j = 0; j < logits.n_cols; j++)
				rows_at(&logits, r)[j] = rintf(rows_at(&logits, r)[j] * 2);
		expect_route(&shapes[i], &logits);
		free(logits.mem);
	}
}

/* What is worked out by hand. */
static void test_route_by_hand(void **state)
{
	static const float logits[3][5] = {
		{ 1, 3, 2, 3, 0 },	       /* 1 and 3 are equal and go before 2 */
		{ 0, 0, 0, 0, 0 },	       /* all are: the first two */
		{ 5, NAN, -INFINITY, NAN, 1 }, /* 0 and 4 */
	};
	static const uint32_t ids[3][2] = { { 1, 3 }, { 0, 1 }, { 0, 4 } };
	/* assignments: row 0 has 0 (expert 1) and 1 (3), row 1 has 2 (0) and 3 (1), row 2 has
	 * 4 (0) and 5 (4) */
	static const uint32_t order[6] = { 2, 4, 0, 3, 1, 5 }, runs[6] = { 0, 2, 4, 5, 6, 6 };
	const struct shape s = { 5, 2, 3, 0, 0, 0, true, false };
	struct rows x = rows_make(3, 5), route = rows_make(3, 8);

	for (int r = 0; r < 3; r++)
		memcpy(rows_at(&x, r), logits[r], sizeof logits[r]);
	make_route(&s, &x, 0, 3, &route);
	for (uint32_t i = 0; i < 6; i++) {
		const uint32_t *row = (uint32_t *)rows_at(&route, i / 2);

		assert_int_equal(row[i % 2], ids[i / 2][i % 2]);
		assert_int_equal(row[4 + i % 2], order[i]);
		assert_int_equal(row[6 + i % 2], runs[i]);
	}
	assert_true(rows_at(&route, 0)[2] == 0.75f && rows_at(&route, 0)[3] == 0.75f);
	assert_true(fabsf(rows_at(&route, 2)[2] - 1.5f / (1 + expf(-4))) < 1e-6f);
	free(x.mem);
	free(route.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_route),	      cmocka_unit_test(test_route_by_hand),
		cmocka_unit_test(test_route_options), cmocka_unit_test(test_sigmoid_by_hand),
		cmocka_unit_test(test_glu),	      cmocka_unit_test(test_combine),
	};
	struct ig_error err = { 0 };
	int rc = ig_modules_create(&modules, &err);

	if (!rc)
		rc = ig_modules_load(modules, ATTENTION_MODULE, &err);
	if (!rc)
		rc = ig_modules_load(modules, MOE_MODULE, &err);
	if (!rc)
		rc = ig_modules_start(modules, NULL, 0, &err);
	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("mixture of experts", tests, NULL, NULL);
	ig_modules_destroy(modules);
	return rc;
}
