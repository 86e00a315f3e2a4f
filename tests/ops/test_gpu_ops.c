/*
 * test_gpu_ops.c: every case of the table on a GPU device: near the op's reference on
 * the same rounded inputs, nothing else written, and the same bits for a row whatever
 * rows stand beside it.
 *
 *   test_gpu_ops [DEVICE [OP]]     soft (the default), cuda
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/float.h"
#include "ops/op_private.h"
#include "tests/brief.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"

#include <ingot/gpu_lower.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_lab *lab;
static const char *only_op;
static bool on_soft = true, have_tiles;

/* How a case is run. */
struct way {
	uint32_t f32; /* products in float32 */
	uint32_t out_dtype;
	uint32_t tiles; /* weights in tiles */
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static double dmin(double a, double b) { return a < b ? a : b; }

/* ---- what an error may be --------------------------------------------------------- */

/* A sum of k products in float32: tensor cores cut off after each 16 of them, so the
 * error grows with k / 16 units of 2^-23 of the sum of sizes, and some for the ends. */
static double sum_eps(int64_t k) { return ((double)k / 8 + 16) * 0x1p-24; }

/* Error of one weight as the product sees it: quantised ones are rounded to a half; in
 * float32 a product may be three of tf32, which leave 2^-22 of each. */
static double weight_eps(uint32_t dtype, uint32_t in_dtype)
{
	if (in_dtype == IG_F32)
		return 0x1p-21;
	return dtype == IG_F16 || dtype == IG_BF16 ? 0.0 : 0x1p-11;
}

/* What the minimum takes from value i of a row of Q4_K or Q5_K; others: 0.  In products of halves it is
 * rounded by itself. */
static double minimum_of(const struct ig_tensor *w, int64_t row, int64_t i)
{
	if (w->dtype != IG_Q4_K && w->dtype != IG_Q5_K)
		return 0.0;
	const uint8_t *p = (const uint8_t *)w->data + row * w->row_stride +
			   i / 256 * (w->dtype == IG_Q4_K ? 144 : 176);
	const uint8_t *n = p + 4;
	const int64_t j = i % 256 / 32;
	uint16_t m;

	memcpy(&m, p + 2, sizeof m);
	return (double)ig_f32_from_f16(m) *
	       (j < 4 ? n[4 + j] & 63 : n[4 + j] >> 4 | (n[j] >> 6) << 4);
}

/* The error that x W^T may have in one output; low: what minima take from the weights.  Errors of
 * weights are independent: five times the root of the sum of squares, but never more than the sum
 * of sizes. */
static double product_bound(const float *x, const float *w, const double *low, int64_t k,
			    double w_eps, double *y)
{
	double size = 0.0, most = 0.0, squares = 0.0, sum = 0.0;

	for (int64_t i = 0; i < k; i++) {
		double p = (double)x[i] * (double)w[i];
		double e = fabs(p) + fabs((double)x[i] * low[i]);

		sum += p;
		size += fabs(p);
		most += e;
		squares += e * e;
	}
	*y = sum;
	return sum_eps(k) * size + w_eps * dmin(most, 5.0 * sqrt(squares));
}

/* bounds[] for the products: one for each value of the result. */
static void product_bounds(const struct ig_case *c, const struct ig_op_launch *launch,
			   uint32_t in_dtype, double *bounds)
{
	const bool glu = !strcmp(c->op, "glu");
	const double w_eps = weight_eps(c->dtype, in_dtype);
	float *x = must(malloc((size_t)c->k * sizeof *x));
	float *w[2];
	double *low[2];

	for (int i = 0; i < 2; i++) {
		w[i] = must(malloc((size_t)c->k * sizeof *w[i]));
		low[i] = must(calloc((size_t)c->k, sizeof *low[i]));
	}
	for (int64_t j = 0; j < c->n; j++) {
		for (int i = 0; i <= glu; i++) {
			ig_weight_row(&launch->weight[i], j, w[i]);
			for (int64_t l = 0; in_dtype == IG_F16 && l < c->k; l++)
				low[i][l] = minimum_of(&launch->weight[i], j, l);
		}
		for (int64_t r = 0; r < launch->out[0].n_rows; r++) {
			const float *row = ig_row(&launch->in[0], r);
			double y, u, e, f;

			for (int64_t i = 0; i < c->k; i++)
				x[i] = ig_gpu_case_round(in_dtype, row[i]);
			e = product_bound(x, w[0], low[0], c->k, w_eps, &y);
			if (c->bias)
				y += (double)((const float *)launch->weight[1].data)[j];
			/* silu and gelu: slope below 1.13, their own error some units */
			e = 1.2 * e + 0x1p-21 * fabs(y);
			if (glu) {
				f = product_bound(x, w[1], low[1], c->k, w_eps, &u);
				e = e * fabs(u) + fabs(y) * f + e * f + 0x1p-22 * fabs(y * u);
			}
			if (c->residual)
				e += 0x1p-23 * fabs((double)ig_row(&launch->in[1], r)[j]);
			bounds[r * c->n + j] = e + 1e-30;
		}
	}
	free(x);
	for (int i = 0; i < 2; i++) {
		free(w[i]);
		free(low[i]);
	}
}

/* Some units of what was summed; the sum x + delta itself is exact. */
static void norm_bounds(const struct ig_case *c, const struct ig_op_launch *launch, double *bounds)
{
	const int64_t n = c->k, rows = launch->out[0].n_rows;

	for (int64_t r = 0; r < rows; r++) {
		int64_t from = c->gather ? launch->step->logit_rows[r] : r;
		double mean = 0.0, size = 0.0, var = 0.0, scale;

		for (int pass = 0; pass < 3; pass++)
			for (int64_t i = 0; i < n; i++) {
				double x = (double)ig_row(&launch->in[0], from)[i];

				if (c->residual)
					x = (double)(float)(x + (double)ig_row(&launch->in[1],
									       from)[i]);
				if (pass == 0) {
					mean += c->kind == IG_NORM_LAYER ? x / (double)n : 0.0;
					size += fabs(x) / (double)n;
				} else if (pass == 1) {
					var += (x - mean) * (x - mean) / (double)n;
				} else {
					scale = 1.0 / sqrt(var + 1e-5);
					bounds[r * n + i] =
						16 * 0x1p-24 * (fabs(x) + size) * scale *
							fabs((double)((float *)launch->weight[0]
									      .data)[i]) +
						(c->bias ? 0x1p-22 : 0.0);
				}
			}
	}
	if (c->residual)
		memset(bounds + rows * n, 0, (size_t)(rows * n) * sizeof *bounds);
}

static void embed_bounds(const struct ig_case *c, const float *ref, double *bounds)
{
	for (int64_t r = 0; r < c->rows; r++) {
		double most = 0.0;

		for (int64_t i = 0; i < c->k; i++)
			most = fmax(most, fabs((double)ref[r * c->k + i]));
		for (int64_t i = 0; i < c->k; i++)
			bounds[r * c->k + i] = 0x1p-22 * most;
	}
}

/* ---- one case ------------------------------------------------------------------------ */

static const char *name_of(const struct ig_case *c, const struct way *how)
{
	static char buf[200];

	snprintf(buf, sizeof buf, "%s %s [%lld, %lld] rows %d%s%s%s act %u kind %u%s to %s", c->op,
		 ig_dtype_name(c->dtype), (long long)c->n, (long long)c->k, c->rows,
		 c->bias ? " bias" : "", c->residual ? " residual" : "", c->gather ? " gather" : "",
		 c->act, c->kind, how->f32 ? " in f32" : "", ig_dtype_name(how->out_dtype));
	return buf;
}

/* Run rows first … first + n - 1 of the result into out. */
static int run_rows(struct ig_case_data *d, const struct ig_case *c, const struct way *how,
		    int32_t first, int32_t n, float *const out[IG_MAX_OUT], bool reference)
{
	struct ig_op_launch launch;
	struct ig_step step;
	struct ig_gpu_case g = {
		.op = ig_case_op(d),
		.launch = &launch,
		.f32 = how->f32,
		.tiles = how->tiles,
		.out_dtype = how->out_dtype,
		.in_class = strcmp(c->op, "logits") ? IG_ROWS_TOKENS : IG_ROWS_LOGITS,
	};
	struct ig_error err = { 0 };
	int rc;

	ig_case_call(d, first, n, out, &launch, &step);
	rc = reference ? ig_gpu_case_reference(lab, &g, &err) : ig_gpu_case_run(lab, &g, &err);
	if (rc)
		print_error("%s, rows %d … %d: %s\n", name_of(c, how), first, first + n - 1,
			    err.text);
	return rc;
}

static int compare(const struct ig_case *c, const struct way *how, const float *got,
		   const float *ref, const double *bounds, int64_t n, double *worst)
{
	int64_t n_bad = 0, first = -1;
	double kept = how->out_dtype == IG_F16 ? 0x1p-11 : how->out_dtype == IG_BF16 ? 0x1p-8 : 0.0;

	for (int64_t i = 0; i < n; i++) {
		double e = fabs((double)got[i] - (double)ref[i]);
		double may = bounds[i] + kept * (fabs((double)ref[i]) + bounds[i]) +
			     0x1p-24 * fabs((double)ref[i]) * (bounds[i] > 0.0) +
			     (how->out_dtype == IG_F16 ? 0x1p-25 : 0.0);

		if (!(e <= may)) {
			n_bad++;
			first = first < 0 ? i : first;
		} else if (may > 0.0 && e / may > *worst) {
			*worst = e / may;
		}
	}
	if (n_bad)
		print_error("%s: %lld of %lld values are off, first %lld: %.9g, expected %.9g "
			    "within %.3g\n",
			    name_of(c, how), (long long)n_bad, (long long)n, (long long)first,
			    (double)got[first], (double)ref[first], bounds[first]);
	return n_bad != 0;
}

/* Rows first … by themselves have the bits that they have among all. */
static int check_bits(struct ig_case_data *d, const struct ig_case *c, const struct way *how,
		      int32_t first, int32_t n, float *const all[IG_MAX_OUT], float *space)
{
	int64_t rows = ig_case_out_rows(d), cols = ig_case_out_cols(d);
	uint32_t n_out = (uint32_t)(ig_case_out_len(d) / (rows * cols));
	float *part[IG_MAX_OUT];
	int failed = 0;

	for (uint32_t i = 0; i < IG_MAX_OUT; i++)
		part[i] = space + i * rows * cols;
	if (run_rows(d, c, how, first, n, part, false))
		return 1;
	for (uint32_t i = 0; i < n_out; i++)
		for (int32_t r = 0; r < n && !failed; r++)
			if (memcmp(part[i] + r * cols, all[i] + (first + r) * cols,
				   (size_t)cols * sizeof **part)) {
				print_error(
					"%s: row %d has other bits among %d rows than among %d\n",
					name_of(c, how), first + r, n, (int)rows);
				failed = 1;
			}
	return failed;
}

static int check_case(const struct ig_case *c, const struct way *how, double *worst)
{
	struct ig_case_data *d = ig_case_open(c);
	const int64_t n = ig_case_out_len(d);
	const int32_t rows = ig_case_out_rows(d);
	const int64_t one = rows * ig_case_out_cols(d);
	/* results, the reference's, and space for parts: IG_MAX_OUT outputs each */
	float *buf = must(calloc((size_t)(3 * IG_MAX_OUT * one), sizeof *buf));
	double *bounds = must(calloc((size_t)(IG_MAX_OUT * one), sizeof *bounds));
	float *got[IG_MAX_OUT] = { buf, buf + one };
	float *ref[IG_MAX_OUT] = { buf + 2 * one, buf + 3 * one };
	static const int32_t parts[] = { 1, 5, 16, 17 };
	struct ig_op_launch launch;
	struct ig_step step;
	int failed =
		run_rows(d, c, how, 0, rows, got, false) || run_rows(d, c, how, 0, rows, ref, true);

	if (failed)
		goto out;
	ig_case_call(d, 0, rows, ref, &launch, &step);
	if (!strcmp(c->op, "norm")) {
		norm_bounds(c, &launch, bounds);
	} else if (!strcmp(c->op, "embed")) {
		embed_bounds(c, ref[0], bounds);
	} else {
		struct ig_gpu_case g = { .op = ig_case_op(d), .launch = &launch, .f32 = how->f32 };

		product_bounds(c, &launch, ig_gpu_case_in_dtype(lab, &g, 0), bounds);
	}
	failed = compare(c, how, got[0], ref[0], bounds, one, worst);
	for (int64_t i = one; i < n && !failed; i++) /* the sum of two floats has one answer */
		if (memcmp(&got[0][i], &ref[0][i], sizeof **got)) {
			print_error("%s: the sum's value %lld is %.9g, expected %.9g\n",
				    name_of(c, how), (long long)(i - one), (double)got[0][i],
				    (double)ref[0][i]);
			failed = 1;
		}
	for (size_t i = 0; i < sizeof parts / sizeof *parts && !failed; i++)
		if (parts[i] < rows)
			failed = check_bits(d, c, how,
					    rows - parts[i] -
						    (int32_t)(i % 2 == 1 && rows - parts[i] > 1),
					    parts[i], got, buf + 4 * one);
out:
	free(buf);
	free(bounds);
	ig_case_close(d);
	return failed;
}

static void check_op(const char *name)
{
	int n_failed = 0, n_checked = 0;
	double worst = 0.0;

	if (only_op && strcmp(only_op, name))
		skip();
	for (size_t i = 0; i < ig_n_cases; i++) {
		const struct ig_case *c = &ig_cases[i];
		struct way how = { 0, IG_F32, 0 };
		struct ig_case_data *d;
		uint32_t flags;

		/* the bench's sizes where they take no time; what overflows 8-bit products is
		 * nothing to a GPU */
		if (strcmp(c->op, name) || c->extreme || (c->bench && (on_soft || c->rows > 100)))
			continue;
		if (on_soft && ig_brief() && ig_case_repeats(c))
			continue;
		d = ig_case_open(c);
		if (!ig_case_op(d)->gpu) {
			ig_case_close(d);
			fail_msg("%s: no GPU runs it", name);
		}
		flags = ig_case_op(d)->gpu->flags;
		ig_case_close(d);
		n_failed += check_case(c, &how, &worst);
		n_checked++;
		/* what else a plan may ask for, each of some cases */
		if (flags & IG_GPU_OUT_ANY && i % 3 != 2) {
			how.out_dtype = i % 3 ? IG_BF16 : IG_F16;
			n_failed += check_case(c, &how, &worst);
			n_checked++;
		}
		if (c->dtype != IG_F32 && i % 4 == 1) {
			how = (struct way){ 1, IG_F32, 0 };
			n_failed += check_case(c, &how, &worst);
			n_checked++;
		}
		if (have_tiles && ig_gpu_is_blocks(c->dtype)) {
			how = (struct way){ 0, IG_F32, 1 };
			n_failed += check_case(c, &how, &worst);
			n_checked++;
		}
	}
	print_message("# %s: %d runs, errors up to %.0f %% of what they may be\n", name, n_checked,
		      100.0 * worst);
	assert_true(n_checked > 0);
	assert_int_equal(n_failed, 0);
}

static void test_linear(void **state) { check_op("linear"); }
static void test_glu(void **state) { check_op("glu"); }
static void test_logits(void **state) { check_op("logits"); }
static void test_norm(void **state) { check_op("norm"); }
static void test_embed(void **state) { check_op("embed"); }

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_norm),   cmocka_unit_test(test_embed),
		cmocka_unit_test(test_linear), cmocka_unit_test(test_glu),
		cmocka_unit_test(test_logits),
	};
	struct ig_error err = { 0 };
	const char *device = argc > 1 ? argv[1] : getenv("INGOT_TEST_GPU");
	int rc;

	only_op = argc > 2 ? argv[2] : NULL;
	on_soft = !device || !strcmp(device, "soft");
	rc = ig_gpu_lab_open(device, &lab, &err);
	if (rc) {
		fprintf(stderr, "%s: %s\n", device ? device : "soft", err.text);
		return 1;
	}
	/* the software device runs what Metal would */
	have_tiles = on_soft || ig_gpu_lab_facts(lab)->tiles;
	rc = cmocka_run_group_tests_name("core ops on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
