/* test_imatrix.c: importance matrices in both formats, wrong ones, and what they change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/quantize/convert.h"
#include "model/quantize/quantize.h"

#include "tiny_gguf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLS = 512, ROWS = 40, EXPERTS = 3 };

static char dir[64], path[96], model[96];

static int make_folder(void **state)
{
	strcpy(dir, "/tmp/ig-imatrix-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/weights.dat", dir);
	snprintf(model, sizeof model, "%s/out.gguf", dir);
	return 0;
}

static int remove_folder(void **state)
{
	unlink(path);
	unlink(model);
	return rmdir(dir); /* fails when anything else was left in it */
}

static void put_file(const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* ---- the model and its importance matrix ---------------------------------------------- */

/* Few columns matter, others in each expert; expert 1 was never used. */
static double mean_square(int expert, int col)
{
	return expert == 1 ? 0 : (col * 7 + expert) % 16 == 0 ? 400 : 0.5 + col % 3;
}

static struct ig_checkpoint *make_model(struct gw *w)
{
	static const uint64_t matrix[] = { COLS, ROWS }, experts[] = { COLS, ROWS, EXPERTS };
	const size_t n = COLS * ROWS * (1 + EXPERTS);
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };

	gw_init(w);
	gw_str(w, "general.architecture", "llama");
	gw_u32(w, "llama.block_count", 2);
	gw_tensor(w, "blk.1.ffn_up.weight", matrix, 2, IG_F32, 0);
	gw_tensor(w, "blk.1.ffn_up_exps.weight", experts, 3, IG_F32, 4 * COLS * ROWS);
	gw_data(w, 32, 4 * n);
	float *x = (float *)(void *)(w->data + w->len - 4 * n);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(sin((double)i * i) * (1 + sin(0.37 * (double)i)));
	if (ig_checkpoint_open_memory(w->data, w->len, "source", &g, &err))
		fail_msg("%s", err.text);
	return g;
}

static void put_values(struct gw *w, int experts, double factor)
{
	for (int e = 0; e < experts; e++)
		for (int i = 0; i < COLS; i++) {
			float f = (float)(mean_square(e, i) * factor);
			gw_put(w, &f, sizeof f);
		}
}

static void put_entry(struct gw *w, const char *name, int experts)
{
	gw_number(w, strlen(name), 4);
	gw_put(w, name, strlen(name));
	gw_number(w, 4, 4); /* the values are sums of four chunks */
	gw_number(w, (uint64_t)experts * COLS, 4);
	put_values(w, experts, 4);
}

/* The older format; ends[]: lengths at which a file is whole. */
static void make_old(struct gw *w, size_t ends[2])
{
	*w = (struct gw){ 0 };
	gw_number(w, 2, 4);
	put_entry(w, "blk.1.ffn_up.weight", 1);
	put_entry(w, "blk.1.ffn_up_exps.weight", EXPERTS);
	ends[0] = w->len;
	gw_number(w, 4, 4);
	gw_number(w, 5, 4);
	gw_put(w, "a.txt", 5);
	ends[1] = w->len;
}

static void make_new(struct gw *w, const char *type)
{
	static const uint64_t one[] = { COLS, 1 }, all[] = { COLS, EXPERTS }, count[] = { 1, 1 },
			      counts[] = { 1, EXPERTS };
	const float n[] = { 8, 8, 0, 8 };
	const size_t n_bytes = 4 * COLS * (1 + EXPERTS) + 128;

	gw_init(w);
	gw_str(w, "general.type", type);
	gw_strs(w, "imatrix.datasets", (const char *const[]){ "a.txt" }, 1);
	gw_u32(w, "imatrix.chunk_count", 4);
	gw_u32(w, "imatrix.chunk_size", 512);
	gw_tensor(w, "blk.1.ffn_up.weight.in_sum2", one, 2, IG_F32, 128);
	gw_tensor(w, "blk.1.ffn_up.weight.counts", count, 2, IG_F32, 0);
	gw_tensor(w, "blk.1.ffn_up_exps.weight.in_sum2", all, 2, IG_F32, 128 + 4 * COLS);
	gw_tensor(w, "blk.1.ffn_up_exps.weight.counts", counts, 2, IG_F32, 64);
	gw_data(w, 32, n_bytes);
	w->len -= n_bytes;
	size_t at = w->len;
	gw_put(w, n, 4);
	gw_put(w, (char[60]){ 0 }, 60);
	gw_put(w, n + 1, 12);
	gw_put(w, (char[52]){ 0 }, 52);
	put_values(w, 1, 8);
	put_values(w, EXPERTS, 8);
	assert_int_equal(w->len, at + n_bytes);
}

static struct ig_imatrix *opened(const struct gw *w)
{
	struct ig_imatrix *m;
	struct ig_error err = { 0 };

	put_file(w->data, w->len);
	if (ig_imatrix_open(path, &m, &err))
		fail_msg("%s", err.text);
	return m;
}

/* ---- reading ------------------------------------------------------------------------------ */

static void both_formats(void **state)
{
	float a[COLS * EXPERTS], b[COLS * EXPERTS];
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	struct gw w, f;
	size_t ends[2], len;
	const char *s;

	g = make_model(&w);
	for (int format = 0; format < 2; format++) {
		if (format)
			make_new(&f, "imatrix");
		else
			make_old(&f, ends);
		struct ig_imatrix *m = opened(&f);
		assert_string_equal(ig_imatrix_label(m), "weights.dat");
		assert_int_equal(ig_imatrix_n_entries(m), 2);
		assert_int_equal(ig_imatrix_n_chunks(m), 4);
		assert_true(ig_imatrix_dataset(m, &s, &len) && len == 5 && !memcmp(s, "a.txt", 5));
		if (ig_imatrix_check(m, g, &err))
			fail_msg("%s", err.text);
		float *x = format ? b : a;
		assert_true(ig_imatrix_weights(m, ig_checkpoint_tensor(g, 1), x));
		for (int e = 0; e < EXPERTS; e++) {
			double mean = 0;
			for (int i = 0; i < COLS; i++)
				mean += x[e * COLS + i] / (double)COLS;
			assert_true(fabs(mean - 1) < 1e-3);
			for (int i = 1; i < COLS; i++)
				assert_true(fabs(x[e * COLS + i] * mean_square(e, 0) -
						 x[e * COLS] * mean_square(e, i)) < 1e-2);
		}
		ig_imatrix_close(m);
		gw_finish(&f);
	}
	for (int i = 0; i < COLS * EXPERTS; i++)
		assert_true(fabsf(a[i] - b[i]) <= 1e-5f * a[i]);
	for (int i = 0; i < COLS; i++)
		assert_true(a[COLS + i] == 1); /* of the expert that was never used */
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void expect_refused(const struct gw *w, size_t len, const char *said)
{
	struct ig_imatrix *m;
	struct ig_error err = { 0 };

	put_file(w->data, len);
	if (ig_imatrix_open(path, &m, &err) >= 0)
		fail_msg("%zu bytes of %zu were read", len, w->len);
	assert_null(m);
	if (!strstr(err.text, said) || !strstr(err.text, "weights.dat"))
		fail_msg("%s", err.text);
}

static void wrong_files(void **state)
{
	struct gw w;
	size_t ends[2];
	float nan = NAN, below = -1;

	make_old(&w, ends);
	for (size_t len = 0; len < w.len; len += len > 60 && len + 70 < ends[0] ? 61 : 1)
		if (len != ends[0])
			expect_refused(&w, len, "");
	expect_refused(&w, ends[0] - 1, "is truncated or no importance matrix: entry 2 of 2");
	expect_refused(&w, w.len - 1, "is truncated after its entries");
	memcpy(w.data + 4 + 4 + 19 + 8 + 4 * 3, &nan, 4);
	expect_refused(&w, w.len, "'blk.1.ffn_up.weight', value 3 is nan");
	memcpy(w.data + 4 + 4 + 19 + 8 + 4 * 3, &below, 4);
	expect_refused(&w, w.len, "value 3 is -1");
	gw_patch(&w, 0, 0, 4);
	expect_refused(&w, w.len, "is no importance matrix");
	gw_finish(&w);

	make_new(&w, "imatrix");
	for (size_t len = w.len - 1; len > 10; len -= len > 9000 ? 401 : 17)
		expect_refused(&w, len, "");
	gw_finish(&w);
	make_new(&w, "model");
	expect_refused(&w, w.len, "but no importance matrix");
	gw_finish(&w);
}

static void another_model(void **state)
{
	struct ig_convert_options o = { .mix = ig_mix_find("Q4_0"), .n_threads = 1 };
	static const struct {
		const char *name;
		int experts;
		const char *said;
	} cases[] = {
		{ "blk.9.ffn_up.weight", 1, "source has no tensor 'blk.9.ffn_up.weight'" },
		{ "blk.1.ffn_up.weight", 2, "has 1024 values, but in source 1 matrices of 512" },
		{ "blk.1.ffn_up_exps.weight", 1,
		  "has 512 values, but in source 3 matrices of 512" },
	};
	struct ig_convert_report r;
	struct ig_error err = { 0 };
	struct gw w, f;
	struct ig_checkpoint *g = make_model(&w);

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		f = (struct gw){ 0 };
		gw_number(&f, 1, 4);
		put_entry(&f, cases[i].name, cases[i].experts);
		struct ig_imatrix *m = opened(&f);
		o.imatrix = m;
		assert_int_equal(ig_convert(g, model, &o, &r, &err), -EINVAL);
		if (!strstr(err.text, cases[i].said) ||
		    !strstr(err.text, "weights.dat: is of another model"))
			fail_msg("%s", err.text);
		assert_int_equal(access(model, F_OK), -1);
		ig_imatrix_close(m);
		gw_finish(&f);
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
}

/* ---- what it changes ------------------------------------------------------------------------ */

/* The squared error of tensor i of the written file, weighted by the importance matrix. */
static double error_of(const struct ig_checkpoint *in, uint64_t i)
{
	const struct ig_checkpoint_tensor *s = ig_checkpoint_tensor(in, i), *t;
	struct ig_checkpoint *out;
	struct ig_error err = { 0 };
	double e = 0;
	float back[COLS];

	assert_int_equal(ig_checkpoint_open(model, NULL, &out, &err), 0);
	t = ig_checkpoint_tensor(out, i);
	for (int64_t r = 0; r < t->n_rows; r++) {
		const float *x = (const float *)s->data + r * COLS;
		ig_dtype_to_f32(t->dtype,
				(const char *)t->data +
					(uint64_t)r * ig_dtype_row_bytes(t->dtype, COLS),
				back, COLS);
		for (int c = 0; c < COLS; c++)
			e += mean_square((int)(r / ROWS), c) * ((double)x[c] - back[c]) *
			     ((double)x[c] - back[c]);
	}
	ig_checkpoint_close(out);
	return e;
}

/* Smaller errors where they matter, in every type; an unused expert stays as it was. */
static void errors_are_weighted(void **state)
{
	struct ig_convert_report r;
	struct ig_error err = { 0 };
	size_t ends[2];
	struct gw w, f;
	struct ig_checkpoint *g = make_model(&w), *out;
	const char *s;
	size_t len;
	uint32_t v;

	make_old(&f, ends);
	struct ig_imatrix *m = opened(&f);
	for (const struct ig_mix *mix = ig_mixes(); mix->name; mix++) {
		struct ig_convert_options o = { .mix = mix, .n_threads = 2, .replace = true };
		const bool plain =
			mix->dtype == IG_F32 || mix->dtype == IG_F16 || mix->dtype == IG_BF16;
		double without[2], with[2];

		assert_int_equal(ig_convert(g, model, &o, &r, &err), 0);
		assert_false(r.tensors[0].weighted);
		ig_convert_report_finish(&r);
		for (uint64_t i = 0; i < 2; i++)
			without[i] = error_of(g, i);
		o.imatrix = m;
		assert_int_equal(ig_convert(g, model, &o, &r, &err), 0);
		assert_true(r.tensors[0].weighted == !plain && r.tensors[1].weighted == !plain);
		ig_convert_report_finish(&r);
		for (uint64_t i = 0; i < 2; i++) {
			with[i] = error_of(g, i);
			printf("# %s, tensor %d: %.4g without, %.4g with\n", mix->name, (int)i,
			       without[i], with[i]);
			if (plain)
				assert_true(with[i] == without[i]);
			else
				assert_true(with[i] < 0.97 * without[i]);
		}
	}
	assert_int_equal(ig_checkpoint_open(model, NULL, &out, &err), 0);
	assert_int_equal(ig_checkpoint_str(out, "quantize.imatrix.file", &s, &len, &err), 0);
	assert_true(len == 11 && !memcmp(s, "weights.dat", 11));
	assert_int_equal(ig_checkpoint_str(out, "quantize.imatrix.dataset", &s, &len, &err), 0);
	assert_true(len == 5 && !memcmp(s, "a.txt", 5));
	assert_int_equal(ig_checkpoint_u32(out, "quantize.imatrix.entries_count", &v, &err), 0);
	assert_int_equal(v, 2);
	assert_int_equal(ig_checkpoint_u32(out, "quantize.imatrix.chunks_count", &v, &err), 0);
	assert_int_equal(v, 4);
	ig_checkpoint_close(out);
	ig_imatrix_close(m);
	gw_finish(&f);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

/* Weights of 1 are none; wild ones never leave a block worse by their own measure. */
static void weights_of_rows(void **state)
{
	unsigned char plain[4096], other[4096];
	float x[256], ones[256], weights[256], a[256], b[256];
	uint32_t seed = 1;

	for (int trial = 0; trial < 50; trial++)
		for (uint32_t dtype = 0; dtype < 64; dtype++) {
			double without = 0, with = 0;
			if (!ig_quantize_knows(dtype) || !ig_quant_type(dtype))
				continue;
			for (int i = 0; i < 256; i++) {
				seed = seed * 1664525 + 1013904223;
				x[i] = (float)(int32_t)seed * 0x1p-31f;
				ones[i] = 1;
				weights[i] = powf(10, (float)(seed >> 8 & 1023) / 128 - 4);
			}
			assert_int_equal(ig_quantize_row(dtype, x, 256, plain, NULL), 0);
			assert_int_equal(ig_quantize_weighted(dtype, x, ones, 256, other, NULL), 0);
			assert_memory_equal(plain, other, ig_dtype_row_bytes(dtype, 256));
			assert_int_equal(ig_quantize_weighted(dtype, x, weights, 256, other, NULL),
					 0);
			ig_dtype_to_f32(dtype, plain, a, 256);
			ig_dtype_to_f32(dtype, other, b, 256);
			for (int i = 0; i < 256; i++) {
				without +=
					weights[i] * ((double)x[i] - a[i]) * ((double)x[i] - a[i]);
				with += weights[i] * ((double)x[i] - b[i]) * ((double)x[i] - b[i]);
			}
			assert_true(with <= without * (1 + 1e-12));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_formats),	   cmocka_unit_test(wrong_files),
		cmocka_unit_test(another_model),   cmocka_unit_test(errors_are_weighted),
		cmocka_unit_test(weights_of_rows),
	};

	return cmocka_run_group_tests_name("model/imatrix", tests, make_folder, remove_folder);
}
