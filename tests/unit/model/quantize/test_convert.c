/* test_convert.c: which tensor gets which type; files made of small ones in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/quantize/convert.h"

#include "tiny_gguf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- types ----------------------------------------------------------------------------- */

static uint32_t chosen(const char *mix, const struct ig_mix_model *m, const char *name,
		       int64_t n_cols)
{
	struct ig_checkpoint_tensor t = { .name = name,
					  .dtype = IG_BF16,
					  .n_dims = 2,
					  .n_rows = 8,
					  .n_cols = n_cols,
					  .dims = { n_cols, 8, 1, 1 } };

	assert_non_null(ig_mix_find(mix));
	return ig_mix_choose(ig_mix_find(mix), m, &t);
}

static void names_of_mixes(void **state)
{
	int n = 0;

	for (const struct ig_mix *m = ig_mixes(); m->name; m++) {
		assert_ptr_equal(ig_mix_find(m->name), m);
		n++;
	}
	assert_int_equal(n, 20);
	assert_string_equal(ig_mix_find("q4_k_m")->name, "Q4_K_M");
	assert_null(ig_mix_find("Q4_K_X"));
	assert_null(ig_mix_find(""));
}

static void matrices_and_others(void **state)
{
	const struct ig_mix_model m = { .n_layers = 16, .heads_per_kv = 1, .has_output = true };
	static const char *const exact[] = { "output_norm.weight",
					     "blk.0.attn_norm.weight",
					     "blk.3.attn_q_norm.weight",
					     "blk.3.ffn_gate_inp.weight",
					     "position_embd.weight",
					     "blk.3.attn_q.bias",
					     "blk.0.ssm_conv1d.weight",
					     "blk.0.ssm_norm.weight",
					     "blk.0.shortconv.conv.weight",
					     "blk.0.ssm_a",
					     "blk.0.ssm_d" };
	struct ig_checkpoint_tensor t = { .name = "blk.3.attn_q.weight",
					  .dtype = IG_F16,
					  .n_dims = 1,
					  .n_rows = 1,
					  .n_cols = 512,
					  .dims = { 512, 1, 1, 1 } };

	for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
		assert_int_equal(chosen("Q4_0", &m, exact[i], 512), IG_F32);
		assert_int_equal(chosen("F16", &m, exact[i], 512), IG_F32);
	}
	assert_int_equal(ig_mix_choose(ig_mix_find("Q4_0"), &m, &t), IG_F32); /* a vector */
	t.dtype = IG_Q8_0; /* one that came quantised is let be, unless all becomes plain */
	assert_int_equal(ig_mix_choose(ig_mix_find("Q4_0"), &m, &t), IG_Q8_0);
	assert_int_equal(ig_mix_choose(ig_mix_find("F16"), &m, &t), IG_F32);
	/* MXFP4 is kept, too: models are trained in it. */
	t = (struct ig_checkpoint_tensor){ .name = "blk.0.ffn_up_exps.weight",
					   .dtype = IG_MXFP4,
					   .n_dims = 3,
					   .n_rows = 24,
					   .n_cols = 512,
					   .dims = { 512, 8, 3, 1 } };
	assert_int_equal(ig_mix_choose(ig_mix_find("Q4_K_M"), &m, &t), IG_MXFP4);
	assert_int_equal(ig_mix_choose(ig_mix_find("Q8_0"), &m, &t), IG_MXFP4);
	assert_int_equal(ig_mix_choose(ig_mix_find("Q2_K"), &m, &t), IG_MXFP4);
	assert_int_equal(ig_mix_choose(ig_mix_find("BF16"), &m, &t), IG_BF16);
	assert_int_equal(chosen("F16", &m, "output.weight", 7), IG_F16);
	assert_int_equal(chosen("F32", &m, "output.weight", 7), IG_F32);
	assert_int_equal(chosen("BF16", &m, "blk.0.ffn_up.weight", 7), IG_BF16);
}

static void finer_ones_of_a_mix(void **state)
{
	struct ig_mix_model m = { .n_layers = 32, .heads_per_kv = 4, .has_output = true };
	static const struct {
		const char *mix, *name;
		uint32_t dtype;
	} cases[] = {
		{ "Q4_K_M", "output.weight", IG_Q6_K },
		{ "Q4_K_M", "token_embd.weight", IG_Q4_K },
		{ "Q8_0", "output.weight", IG_Q8_0 },
		{ "Q4_0", "output.weight", IG_Q6_K },
		{ "Q4_0", "blk.0.attn_v.weight", IG_Q4_0 },
		{ "Q6_K", "blk.0.ffn_down.weight", IG_Q6_K },
		/* the first and last four layers, and every third between: 6, 9, … */
		{ "Q4_K_M", "blk.0.attn_v.weight", IG_Q6_K },
		{ "Q4_K_M", "blk.4.attn_v.weight", IG_Q4_K },
		{ "Q4_K_M", "blk.6.ffn_down.weight", IG_Q6_K },
		{ "Q4_K_M", "blk.7.ffn_down.weight", IG_Q4_K },
		{ "Q4_K_M", "blk.28.ffn_down_exps.weight", IG_Q6_K },
		{ "Q4_K_M", "blk.0.ffn_up.weight", IG_Q4_K },
		{ "Q4_K_M", "blk.0.attn_qkv.weight", IG_Q5_K },
		{ "Q5_K_M", "blk.31.attn_v.weight", IG_Q6_K },
		{ "Q5_K_M", "blk.1.attn_qkv.weight", IG_Q6_K },
		{ "Q5_K_S", "blk.31.attn_v.weight", IG_Q5_K },
		{ "Q4_K_S", "blk.3.attn_v.weight", IG_Q5_K },
		{ "Q4_K_S", "blk.4.attn_v.weight", IG_Q4_K },
		{ "Q4_K_S", "blk.3.ffn_down.weight", IG_Q5_K },
		{ "Q3_K_S", "blk.0.attn_v.weight", IG_Q3_K },
		{ "Q3_K_M", "blk.1.attn_v.weight", IG_Q5_K },
		{ "Q3_K_M", "blk.2.attn_v.weight", IG_Q4_K },
		{ "Q3_K_M", "blk.1.ffn_down.weight", IG_Q5_K },
		{ "Q3_K_M", "blk.2.ffn_down.weight", IG_Q4_K },
		{ "Q3_K_M", "blk.9.attn_output.weight", IG_Q4_K },
		{ "Q3_K_L", "blk.9.attn_output.weight", IG_Q5_K },
		{ "Q3_K_L", "blk.9.ffn_down.weight", IG_Q5_K },
		{ "Q2_K", "blk.9.attn_v.weight", IG_Q4_K },
		{ "Q2_K", "blk.9.ffn_down.weight", IG_Q3_K },
		{ "Q2_K", "blk.9.attn_output.weight", IG_Q3_K },
		{ "Q2_K", "blk.9.attn_q.weight", IG_Q2_K },
		{ "IQ4_XS", "blk.9.attn_v.weight", IG_Q5_K },
		{ "IQ4_NL", "blk.3.ffn_down.weight", IG_Q5_K },
		{ "IQ4_XS", "blk.9.ffn_down.weight", IG_IQ4_XS },
		{ "MXFP4", "blk.9.ffn_down.weight", IG_MXFP4 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (chosen(cases[i].mix, &m, cases[i].name, 512) != cases[i].dtype)
			fail_msg("%s of %s", cases[i].name, cases[i].mix);
	/* A head of its own is not there: the embedding is it. */
	m.has_output = false;
	assert_int_equal(chosen("Q4_K_M", &m, "token_embd.weight", 512), IG_Q6_K);
	m.heads_per_kv = 1;
	assert_int_equal(chosen("Q2_K", &m, "blk.9.attn_v.weight", 512), IG_Q3_K);
	/* Eight experts. */
	m.n_experts = 8;
	assert_int_equal(chosen("Q4_K_M", &m, "blk.9.attn_k.weight", 512), IG_Q8_0);
	assert_int_equal(chosen("Q4_K_M", &m, "blk.9.attn_v.weight", 512), IG_Q8_0);
	assert_int_equal(chosen("Q4_K_M", &m, "blk.9.attn_output.weight", 512), IG_Q5_K);
}

static void rows_that_fill_no_block(void **state)
{
	const struct ig_mix_model m = { .n_layers = 32, .heads_per_kv = 1, .has_output = true };
	const char *up = "blk.9.ffn_up.weight";

	assert_int_equal(chosen("Q2_K", &m, up, 576), IG_IQ4_NL);
	assert_int_equal(chosen("Q3_K_M", &m, up, 576), IG_IQ4_NL);
	assert_int_equal(chosen("Q4_K_M", &m, up, 576), IG_Q5_0);
	assert_int_equal(chosen("Q5_K_M", &m, up, 576), IG_Q5_1);
	assert_int_equal(chosen("Q6_K", &m, up, 576), IG_Q8_0);
	assert_int_equal(chosen("IQ4_XS", &m, up, 576), IG_IQ4_NL);
	assert_int_equal(chosen("Q4_K_M", &m, "output.weight", 576), IG_Q8_0);
	assert_int_equal(chosen("Q4_0", &m, up, 50), IG_F16);
	assert_int_equal(chosen("Q4_K_M", &m, "output.weight", 50), IG_F16);
	assert_int_equal(chosen("Q8_0", &m, "output.weight", 50), IG_F16);
}

/* ---- files ------------------------------------------------------------------------------- */

static char dir[64], path[96];

static int make_folder(void **state)
{
	strcpy(dir, "/tmp/ig-convert-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/out.gguf", dir);
	return 0;
}

static int remove_folder(void **state)
{
	unlink(path);
	return rmdir(dir); /* fails when anything else was left in it */
}

enum { ROWS = 40, COLS = 512 };

/* Two layers, a norm, experts; the values are a rule. */
static void source(struct gw *w, float spoiled)
{
	static const uint64_t matrix[] = { COLS, ROWS }, norm[] = { COLS },
			      experts[] = { COLS, ROWS, 3 };
	size_t at = 0;

	gw_init(w);
	gw_str(w, "general.architecture", "llama");
	gw_u32(w, "general.file_type", 0);
	gw_u32(w, "general.alignment", 64);
	gw_u32(w, "llama.block_count", 2);
	gw_str(w, "quantize.imatrix.file", "x");
	gw_strs(w, "tokenizer.ggml.tokens", (const char *const[]){ "a", "", "ccc" }, 3);
	gw_tensor(w, "token_embd.weight", matrix, 2, IG_F32, at);
	at += 4 * COLS * ROWS;
	gw_tensor(w, "blk.0.attn_norm.weight", norm, 1, IG_F32, at);
	at += 4 * COLS;
	gw_tensor(w, "blk.1.ffn_up_exps.weight", experts, 3, IG_F32, at);
	at += 4 * COLS * ROWS * 3;
	gw_data(w, 64, at);
	float *x = (float *)(void *)(w->data + w->len - at);
	for (size_t i = 0; i < at / 4; i++)
		x[i] = (float)sin((double)i * i) * (1.0f + (float)(i % 7));
	x[5 * COLS + 3] = spoiled ? spoiled : x[5 * COLS + 3];
}

static struct ig_checkpoint *opened(struct gw *w)
{
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };

	if (ig_checkpoint_open_memory(w->data, w->len, "source", &g, &err))
		fail_msg("%s", err.text);
	return g;
}

static uint64_t told_done, told_total, told_times;

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	assert_true(done >= told_done && done <= total);
	told_done = done;
	told_total = total;
	told_times++;
}

static void a_file_is_converted(void **state)
{
	struct ig_convert_options o = { .mix = ig_mix_find("Q4_K_M"),
					.n_threads = 3,
					.replace = true,
					.progress = on_progress };
	struct ig_convert_report r;
	const struct ig_checkpoint_tensor *t;
	struct ig_checkpoint *in, *out;
	struct ig_error err = { 0 };
	struct gw w;
	uint32_t v = 0;
	uint64_t n = 0;

	source(&w, 0);
	in = opened(&w);
	told_done = told_times = 0;
	assert_int_equal(ig_convert(in, path, &o, &r, &err), 0);
	assert_true(told_times >= 3 && told_done == told_total);
	assert_int_equal(r.n_tensors, 3);
	assert_int_equal(r.tensors[0].to, IG_Q6_K);
	assert_int_equal(r.tensors[1].to, IG_F32);
	assert_int_equal(r.tensors[2].to, IG_Q4_K);
	assert_true(r.tensors[1].errors == 0 && r.tensors[1].bytes_after == 4 * COLS);
	assert_int_equal(r.tensors[2].n_values, 3 * ROWS * COLS);
	assert_int_equal(r.tensors[2].bytes_after, 3 * ROWS * 2 * 144);
	assert_true(sqrt(r.tensors[0].errors / r.tensors[0].squares) < 0.03);
	assert_true(sqrt(r.tensors[2].errors / r.tensors[2].squares) < 0.1);

	assert_int_equal(ig_checkpoint_open(path, NULL, &out, &err), 0);
	assert_int_equal(ig_checkpoint_file_bytes(out), r.file_bytes);
	assert_int_equal(ig_checkpoint_u32(out, "general.file_type", &v, &err), 0);
	assert_int_equal(v, 15);
	assert_int_equal(ig_checkpoint_u32(out, "general.quantization_version", &v, &err), 0);
	assert_int_equal(ig_checkpoint_u32(out, "general.alignment", &v, &err), -ENOENT);
	assert_int_equal(ig_checkpoint_u32(out, "quantize.imatrix.file", &v, &err), -ENOENT);
	assert_int_equal(ig_checkpoint_array_len(out, "tokenizer.ggml.tokens", &n, &err), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ig_checkpoint_n_keys(out), 5);
	/* The reported errors are those of the file. */
	for (size_t i = 0; i < 3; i++) {
		const struct ig_checkpoint_tensor *s = ig_checkpoint_tensor(in, i);
		double e = 0;
		float worst = 0, a[COLS], b[COLS];

		t = ig_checkpoint_find_tensor(out, s->name);
		assert_non_null(t);
		assert_memory_equal(t->dims, s->dims, sizeof t->dims);
		for (int64_t row = 0; row < s->n_rows; row++) {
			ig_dtype_to_f32(s->dtype,
					(const char *)s->data +
						(uint64_t)row * ig_dtype_row_bytes(s->dtype, COLS),
					a, COLS);
			ig_dtype_to_f32(t->dtype,
					(const char *)t->data +
						(uint64_t)row * ig_dtype_row_bytes(t->dtype, COLS),
					b, COLS);
			for (int j = 0; j < COLS; j++) {
				e += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
				worst = fmaxf(worst, fabsf(a[j] - b[j]));
			}
		}
		assert_true(fabs(e - r.tensors[i].errors) <= 1e-6 * e);
		assert_true(worst == r.tensors[i].worst);
	}
	ig_checkpoint_close(out);
	ig_convert_report_finish(&r);
	ig_checkpoint_close(in);
	gw_finish(&w);
}

/* The same bytes and sums, however many work. */
static void threads_make_no_difference(void **state)
{
	struct ig_convert_report one, many;
	struct ig_error err = { 0 };
	struct ig_checkpoint *in, *a, *b;
	struct gw w;
	char other[112];

	source(&w, 0);
	in = opened(&w);
	snprintf(other, sizeof other, "%s.2", path);
	struct ig_convert_options o = { .mix = ig_mix_find("Q3_K_L"),
					.n_threads = 1,
					.replace = true };
	assert_int_equal(ig_convert(in, path, &o, &one, &err), 0);
	o.n_threads = 7;
	assert_int_equal(ig_convert(in, other, &o, &many, &err), 0);
	for (size_t i = 0; i < 3; i++)
		assert_true(one.tensors[i].errors == many.tensors[i].errors &&
			    one.tensors[i].squares == many.tensors[i].squares);
	assert_int_equal(ig_checkpoint_open(path, NULL, &a, &err), 0);
	assert_int_equal(ig_checkpoint_open(other, NULL, &b, &err), 0);
	const void *base_a = NULL, *base_b = NULL;
	uint64_t n_a = 0, n_b = 0;
	assert_true(ig_checkpoint_map(a, &base_a, &n_a) && ig_checkpoint_map(b, &base_b, &n_b));
	assert_int_equal(n_a, n_b);
	assert_memory_equal(base_a, base_b, n_a);
	ig_checkpoint_close(a);
	ig_checkpoint_close(b);
	ig_convert_report_finish(&one);
	ig_convert_report_finish(&many);
	assert_int_equal(unlink(other), 0);
	ig_checkpoint_close(in);
	gw_finish(&w);
}

static void failures_leave_nothing(void **state)
{
	static const volatile sig_atomic_t now = 1;
	struct ig_convert_options o = { .mix = ig_mix_find("Q8_0"), .n_threads = 2 };
	struct ig_convert_report r;
	struct ig_error err = { 0 };
	struct ig_checkpoint *in;
	struct gw w;

	unlink(path);
	source(&w, NAN);
	in = opened(&w);
	assert_int_equal(ig_convert(in, path, &o, &r, &err), -ERANGE);
	assert_string_equal(err.text, "source: tensor 'token_embd.weight', row 5, column 3 is nan, "
				      "which Q8_0 can't hold");
	assert_null(r.tensors);
	ig_checkpoint_close(in);
	gw_finish(&w);

	source(&w, 0);
	in = opened(&w);
	o.stop = &now;
	assert_int_equal(ig_convert(in, path, &o, &r, &err), -EINTR);
	assert_int_equal(access(path, F_OK), -1);
	o.stop = NULL;
	assert_int_equal(ig_convert(in, dir, &o, &r, &err), -EISDIR);
	ig_checkpoint_close(in);
	gw_finish(&w);

	gw_init(&w);
	in = opened(&w);
	assert_int_equal(ig_convert(in, path, &o, &r, &err), -EINVAL);
	ig_checkpoint_close(in);
	gw_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_mixes),
		cmocka_unit_test(matrices_and_others),
		cmocka_unit_test(finer_ones_of_a_mix),
		cmocka_unit_test(rows_that_fill_no_block),
		cmocka_unit_test(a_file_is_converted),
		cmocka_unit_test(threads_make_no_difference),
		cmocka_unit_test(failures_leave_nothing),
	};

	return cmocka_run_group_tests_name("model/convert", tests, make_folder, remove_folder);
}
