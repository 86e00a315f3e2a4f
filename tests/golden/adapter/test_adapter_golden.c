/*
 * test_adapter_golden.c: two adapters of a tiny model against PEFT's results (make.py), and the bits
 * of rows beside each other: the base's rows have those of a plan without adapters, alone and beside
 * adapters' rows; an adapter's rows have the same in chunks, alone and in a batch.  The same adapter
 * in GGUF, of llama.cpp's converter and of our writer, has the same bits as in PEFT's format.
 * INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "model/formats/adapter.h"
#include "model/formats/checkpoint.h"
#include "model/formats/gguf_write.h"
#include "ops/float.h"
#include "tests/golden/model/stepper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_STEPS 8
#define MAX_PROMPT 512
#define N_SEQS 3 /* the base, and each adapter */
#define N_VOCAB 300

static const char *const names[N_SEQS] = { "arch/llama3", "adapter/all", "adapter/some" };

struct golden {
	uint32_t n_ids;
	int32_t ids[MAX_PROMPT], greedy[N_STEPS];
	float logits[N_STEPS][N_VOCAB];
};

/* The first prompt of the golden. */
static void open_golden(const char *name, struct golden *g)
{
	uint32_t head[4];
	char path[512];
	FILE *f;

	snprintf(path, sizeof path, INGOT_TEST_ADAPTERS "/%s.golden", name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(fread(head, 4, 4, f), 4);
	assert_int_equal(head[1], N_VOCAB);
	assert_int_equal(head[3], N_STEPS);
	assert_int_equal(fread(&g->n_ids, 4, 1, f), 1);
	assert_in_range(g->n_ids, 1, MAX_PROMPT);
	assert_int_equal(fread(g->ids, 4, g->n_ids, f), g->n_ids);
	assert_int_equal(fread(g->greedy, 4, N_STEPS, f), N_STEPS);
	assert_int_equal(fread(g->logits, sizeof g->logits, 1, f), 1);
	fclose(f);
}

static struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const char *isa,
				       const char *activations)
{
	const struct ig_stepper_options o = { .isa = isa,
					      .activations = activations,
					      .k_dtype = IG_F32,
					      .v_dtype = IG_F32,
					      .n_threads = 2,
					      .max_rows = N_SEQS * MAX_PROMPT,
					      .max_seqs = N_SEQS,
					      .max_context = m->plan->info.n_context,
					      .cache_tokens = N_SEQS * (MAX_PROMPT + N_STEPS),
					      .shuffle = 5 };
	struct ig_error err = { 0 };
	struct ig_stepper *s;
	int rc = ig_stepper_open(m, &o, &s, &err);

	if (rc == -ENOTSUP && isa)
		return NULL;
	if (rc)
		fail_msg("%s", err.text);
	return s;
}

/* Sequences first … last - 1 of the golden in one batch, each prompt in chunks of its own. */
static void run(struct ig_stepper *s, const struct golden *g, int first, int last, int32_t chunk,
		float (*logits)[N_STEPS][N_VOCAB])
{
	int seq[N_SEQS], draw[N_SEQS];
	int32_t id[N_SEQS];

	ig_stepper_reset(s);
	for (int i = first; i < last; i++) {
		seq[i] = ig_stepper_add(s, g[i].n_ids + N_STEPS);
		ig_stepper_adapt(s, seq[i], i - 1);
		for (int32_t at = 0; at + chunk < (int32_t)g[i].n_ids; at += chunk) {
			assert_int_equal(ig_stepper_put(s, seq[i], g[i].ids + at, chunk, NULL), 0);
			assert_int_equal(ig_stepper_run(s, false), 0);
		}
	}
	for (int t = 0; t < N_STEPS; t++) {
		for (int i = first; i < last; i++) {
			int32_t left = ((int32_t)g[i].n_ids - 1) % chunk + 1;
			draw[i] =
				ig_stepper_put(s, seq[i], t ? &id[i] : g[i].ids + g[i].n_ids - left,
					       t ? 1 : left, &ig_stepper_greedy);
		}
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int i = first; i < last; i++) {
			id[i] = ig_stepper_sampled(s, draw[i]);
			memcpy(logits[i][t], ig_stepper_logits(s, draw[i]), sizeof logits[i][t]);
		}
	}
}

static double nmse(const struct golden *g, float (*logits)[N_VOCAB])
{
	double off = 0, all = 0;

	for (int t = 0; t < N_STEPS; t++)
		for (int i = 0; i < N_VOCAB; i++) {
			double want = (double)g->logits[t][i], d = (double)logits[t][i] - want;
			off += d * d;
			all += want * want;
		}
	return off / all; /* NaN fails every comparison */
}

static void run_isa(const struct ig_stepper_model *base, const struct ig_stepper_model *adapted,
		    const struct golden *g, const char *isa, const char *activations)
{
	static float plain[N_SEQS][N_STEPS][N_VOCAB], alone[N_SEQS][N_STEPS][N_VOCAB],
		other[N_SEQS][N_STEPS][N_VOCAB];
	struct ig_stepper *s = open_stepper(base, isa, activations);

	if (!s)
		return;
	run(s, g, 0, 1, MAX_PROMPT, plain);
	ig_stepper_close(s);
	s = open_stepper(adapted, isa, activations);
	for (int i = 0; i < N_SEQS; i++) {
		run(s, g, i, i + 1, MAX_PROMPT, alone);
		double e = nmse(&g[i], alone[i]);
		printf("# %s, %s, activations %s: NMSE %.2e\n", names[i], isa ? isa : "auto",
		       activations, e);
		if (!strcmp(activations, "f32") && !(e <= 1e-6))
			fail_msg("%s: NMSE %g", names[i], e);
	}
	assert_memory_equal(alone[0], plain[0], sizeof plain[0]);
	assert_memory_not_equal(alone[1], alone[0], sizeof alone[0]);
	assert_memory_not_equal(alone[2], alone[1], sizeof alone[0]);
	run(s, g, 0, N_SEQS, MAX_PROMPT, other);
	assert_memory_equal(other, alone, sizeof alone);
	run(s, g, 0, N_SEQS, 37, other);
	assert_memory_equal(other, alone, sizeof alone);
	run(s, g, 1, 2, 5, other);
	assert_memory_equal(other, alone, sizeof alone);
	ig_stepper_close(s);
}

static struct ig_adapter *open_adapter(const struct ig_stepper_model *base, const char *path)
{
	struct ig_adapter *a;
	struct ig_error err = { 0 };

	if (ig_adapter_open(path, base->file, ig_modules_archs(base->modules), &a, &err))
		fail_msg("%s", err.text);
	return a;
}

static void record(const struct ig_stepper_model *base, struct ig_adapter *const *a, uint32_t n,
		   struct ig_stepper_model *out)
{
	struct ig_plan_adapter list[4];
	struct ig_error err = { 0 };

	assert_in_range(n, 1, 4);
	*out = *base;
	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct ig_plan_adapter){ "a", a[i] };
	if (ig_plan_record_adapted(base->modules, base->file, list, n, &out->plan, &err))
		fail_msg("%s", err.text);
}

static void open_adapted(const struct ig_stepper_model *base, struct ig_stepper_model *out)
{
	struct ig_adapter *a[N_SEQS - 1];
	char path[512];

	for (int i = 0; i < N_SEQS - 1; i++) {
		snprintf(path, sizeof path, INGOT_TEST_ADAPTERS "/%s", names[i + 1]);
		a[i] = open_adapter(base, path);
	}
	record(base, a, N_SEQS - 1, out);
	for (int i = 0; i < N_SEQS - 1; i++)
		ig_adapter_close(a[i]);
}

/* The base as GGUF, whose Q and K have their rows in pairs, and as a folder. */
static void test_adapters(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	static struct golden g[N_SEQS];
	struct ig_stepper_model base, adapted;
	struct ig_error err = { 0 };
	char path[512];

	for (int i = 0; i < N_SEQS; i++)
		open_golden(names[i], &g[i]);
	snprintf(path, sizeof path, INGOT_TEST_ADAPTERS "/arch/llama3%s", (const char *)*state);
	if (ig_stepper_model_open(&base, path, NULL, &err))
		fail_msg("%s", err.text);
	open_adapted(&base, &adapted);
	/* a GPU's driver has no instruction sets */
	for (size_t i = 0; i < (ig_stepper_on_gpu() ? 1 : sizeof isas / sizeof *isas); i++) {
		run_isa(&base, &adapted, g, isas[i], "f32");
		run_isa(&base, &adapted, g, isas[i], "auto");
	}
	ig_plan_destroy(adapted.plan);
	ig_stepper_model_close(&base);
}

/* ---- GGUF ---- */

enum { PEFT, CONVERTED, WRITTEN, HALF, N_FILES };

/* What half precision leaves of v, by truncation. */
static uint16_t to_half(float v)
{
	uint32_t u = ig_bits_from_f32(v), exponent = u >> 23 & 0xff;

	if (exponent < 113) /* below its normal numbers */
		return (uint16_t)(u >> 16 & 0x8000);
	assert_in_range(exponent, 113, 142);
	return (uint16_t)((u >> 16 & 0x8000) | (exponent - 112) << 10 | (u >> 13 & 0x3ff));
}

static void write_matrix(struct ig_gguf_writer *w, const float *m, int64_t n_rows, int64_t n_cols,
			 bool transposed, uint32_t dtype)
{
	struct ig_error err = { 0 };

	for (int64_t r = 0; r < n_rows; r++)
		for (int64_t c = 0; c < n_cols; c++) {
			float v = transposed ? m[c * n_rows + r] : m[r * n_cols + c];
			uint16_t half = dtype == IG_F16 ? to_half(v) : 0;
			const void *from = dtype == IG_F16 ? (const void *)&half : &v;
			if (ig_gguf_write(w, from, dtype == IG_F16 ? 2 : 4, &err))
				fail_msg("%s", err.text);
		}
}

static void put_text(struct ig_gguf_writer *w, const char *key, const char *text)
{
	char raw[64];
	uint64_t n = strlen(text);

	memcpy(raw, &n, 8);
	memcpy(raw + 8, text, n);
	ig_gguf_put(w, key, strlen(key), IG_GGUF_STRING, raw, 8 + n);
}

static void write_gguf(const struct ig_adapter *a, uint32_t dtype, const char *path)
{
	struct ig_gguf_writer *w;
	struct ig_error err = { 0 };
	char name[128];
	int rc = ig_gguf_create(path, false, &w, &err);
	float alpha = a->parts[0].scale * (float)a->parts[0].rank;

	if (rc)
		fail_msg("%s", err.text);
	put_text(w, "general.architecture", "llama");
	put_text(w, "general.type", "adapter");
	put_text(w, "adapter.type", "lora");
	ig_gguf_put(w, "adapter.lora.alpha", 18, IG_GGUF_F32, &alpha, sizeof alpha);
	for (uint32_t i = 0; i < a->n_parts && !rc; i++) {
		const struct ig_adapter_part *p = &a->parts[i];
		snprintf(name, sizeof name, "%s.lora_a", p->weight);
		rc = ig_gguf_add_tensor(w, name, (int64_t[]){ p->n_cols, p->rank }, 2, dtype, &err);
		snprintf(name, sizeof name, "%s.lora_b", p->weight);
		rc = rc ? rc :
			  ig_gguf_add_tensor(w, name, (int64_t[]){ p->rank, p->n_rows }, 2, dtype,
					     &err);
	}
	if (rc || ig_gguf_begin(w, &err))
		fail_msg("%s", err.text);
	for (uint32_t i = 0; i < a->n_parts; i++) {
		const struct ig_adapter_part *p = &a->parts[i];
		write_matrix(w, p->a, p->rank, p->n_cols, false, dtype);
		write_matrix(w, p->b, p->n_rows, p->rank, true, dtype);
	}
	if (ig_gguf_finish(w, &err))
		fail_msg("%s", err.text);
	ig_gguf_close(w);
}

static void check_matrix(const float *want, const float *got, int64_t n, bool half)
{
	for (int64_t i = 0; i < n; i++) {
		float v = half ? ig_f32_from_f16(to_half(want[i])) : want[i];
		assert_int_equal(ig_bits_from_f32(v), ig_bits_from_f32(got[i]));
	}
}

static void check_parts(const struct ig_adapter *want, const struct ig_adapter *got, bool half)
{
	assert_int_equal(got->n_parts, want->n_parts);
	for (uint32_t i = 0; i < want->n_parts; i++) {
		const struct ig_adapter_part *a = &want->parts[i], *b = &got->parts[i];
		assert_string_equal(b->weight, a->weight);
		assert_int_equal(b->rank, a->rank);
		assert_true(b->scale == a->scale);
		check_matrix(a->a, b->a, a->rank * a->n_cols, half);
		check_matrix(a->b, b->b, a->rank * a->n_rows, half);
	}
}

static void run_file(struct ig_stepper *s, const struct golden *g, int32_t adapter,
		     float (*logits)[N_VOCAB])
{
	ig_stepper_reset(s);
	int seq = ig_stepper_add(s, g->n_ids + N_STEPS), draw;

	ig_stepper_adapt(s, seq, adapter);
	for (int t = 0; t < N_STEPS; t++) {
		draw = ig_stepper_put(s, seq, t ? &g->greedy[t - 1] : g->ids,
				      t ? 1 : (int32_t)g->n_ids, &ig_stepper_greedy);
		assert_int_equal(ig_stepper_run(s, true), 0);
		memcpy(logits[t], ig_stepper_logits(s, draw), sizeof logits[t]);
	}
}

static void test_gguf(void **state)
{
	static float logits[N_FILES][N_STEPS][N_VOCAB];
	static struct golden g;
	struct ig_adapter *a[N_FILES];
	struct ig_stepper_model base, adapted;
	struct ig_error err = { 0 };
	char path[512], dir[] = "/tmp/ig-adapter-XXXXXX";

	open_golden(names[1], &g);
	snprintf(path, sizeof path, INGOT_TEST_ADAPTERS "/arch/llama3%s", (const char *)*state);
	if (ig_stepper_model_open(&base, path, NULL, &err))
		fail_msg("%s", err.text);
	a[PEFT] = open_adapter(&base, INGOT_TEST_ADAPTERS "/adapter/all");
	a[CONVERTED] = open_adapter(&base, INGOT_TEST_ADAPTERS "/adapter/all.gguf");
	assert_non_null(mkdtemp(dir));
	for (int i = WRITTEN; i < N_FILES; i++) {
		snprintf(path, sizeof path, "%s/a.gguf", dir);
		write_gguf(a[PEFT], i == HALF ? IG_F16 : IG_F32, path);
		a[i] = open_adapter(&base, path);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(dir), 0);
	for (int i = CONVERTED; i < N_FILES; i++)
		check_parts(a[PEFT], a[i], i == HALF);
	record(&base, a, N_FILES, &adapted);
	struct ig_stepper *s = open_stepper(&adapted, NULL, "f32");
	for (int i = 0; i < N_FILES; i++) {
		run_file(s, &g, i, logits[i]);
		ig_adapter_close(a[i]);
	}
	assert_memory_equal(logits[CONVERTED], logits[PEFT], sizeof logits[PEFT]);
	assert_memory_equal(logits[WRITTEN], logits[PEFT], sizeof logits[PEFT]);
	/* Each factor of a product is off by up to 2^-10 of itself, whose square is 1e-6; seven
	 * matrices of two layers add theirs. */
	printf("# float16: NMSE %.2e\n", nmse(&g, logits[HALF]));
	assert_memory_not_equal(logits[HALF], logits[PEFT], sizeof logits[PEFT]);
	assert_true(nmse(&g, logits[HALF]) <= 7e-5);
	ig_stepper_close(s);
	ig_plan_destroy(adapted.plan);
	ig_stepper_model_close(&base);
}

/* ---- wrong adapters, refused by name ---- */

static void refuse(const struct ig_stepper_model *base, const char *config, const char *tensors,
		   size_t len, const char *what)
{
	struct ig_checkpoint_file files[2] = { { "adapter_config.json", config, strlen(config) },
					       { "adapter_model.safetensors", tensors, len } };
	struct ig_adapter *a = NULL;
	struct ig_error err = { 0 };

	assert_true(ig_adapter_open_files(files, 2, base->file, ig_modules_archs(base->modules), &a,
					  &err) < 0);
	assert_null(a);
	if (!strstr(err.text, what))
		fail_msg("\"%s\" does not have \"%s\"", err.text, what);
}

/* A safetensors file with A and B of these shapes, of zeros. */
static size_t make_file(char *out, size_t cap, const char *module, const char *dtype, int size,
			int rank_a, int in, int rows, int rank_b)
{
	int a = rank_a * in * size, b = rows * rank_b * size;
	uint64_t n = (uint64_t)snprintf(
		out + 8, cap - 8,
		"{\"base_model.model.model.%s.lora_A.weight\":{\"dtype\":\"%s\",\"shape\":[%d,%d],"
		"\"data_offsets\":[0,%d]},\"base_model.model.model.%s.lora_B.weight\":{\"dtype\":"
		"\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
		module, dtype, rank_a, in, a, module, dtype, rows, rank_b, a, a + b);

	memcpy(out, &n, 8);
	assert_true(8 + n + (uint64_t)(a + b) <= cap);
	memset(out + 8 + n, 0, (size_t)(a + b));
	return 8 + n + (size_t)(a + b);
}

static void test_wrong(void **state)
{
	static const char good[] = "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}";
	static const char *const q = "layers.0.self_attn.q_proj";
	static char file[1 << 20];
	struct ig_stepper_model base;
	struct ig_error err = { 0 };
	size_t n;

	if (ig_stepper_model_open(&base, INGOT_TEST_ADAPTERS "/arch/llama3.gguf", NULL, &err))
		fail_msg("%s", err.text);
	const struct ig_checkpoint_tensor *t =
		ig_checkpoint_find_tensor(base.file, "blk.0.attn_q.weight");
	int in = (int)t->n_cols, rows = (int)t->n_rows;
	n = make_file(file, sizeof file, q, "F32", 4, 4, in, rows, 4);
	refuse(&base, good, file, n - 1, "adapter_model.safetensors");
	refuse(&base, good, file, 6, "can't be a safetensors file");
	refuse(&base, "[]", file, n, "adapter_config.json: not an object");
	refuse(&base, "{\"peft_type\":\"IA3\"}", file, n, "\"peft_type\" is \"IA3\"");
	refuse(&base, "{\"peft_type\":\"LORA\",\"r\":4}", file, n, "\"lora_alpha\"");
	refuse(&base, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"use_dora\":true}", file,
	       n, "\"use_dora\" is not supported");
	refuse(&base, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"bias\":\"all\"}", file, n,
	       "\"bias\" is \"all\"");
	refuse(&base,
	       "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"rank_pattern\":{\"q.*\":4}}",
	       file, n, "rank_pattern");
	refuse(&base, "{\"peft_type\":\"LORA\",\"r\":5,\"lora_alpha\":8}", file, n,
	       "has rank 4, adapter_config.json says 5");
	n = make_file(file, sizeof file, q, "F32", 4, 4, in + 1, rows, 4);
	refuse(&base, good, file, n, "of the base model");
	n = make_file(file, sizeof file, q, "F32", 4, 4, in, rows + 2, 4);
	refuse(&base, good, file, n, "of the base model");
	n = make_file(file, sizeof file, q, "I32", 4, 4, in, rows, 4);
	refuse(&base, good, file, n, "is of type I32");
	n = make_file(file, sizeof file, "layers.9.self_attn.q_proj", "F32", 4, 4, in, rows, 4);
	refuse(&base, good, file, n, "layers.9.self_attn.q_proj");
	n = make_file(file, sizeof file, "layers.0.nothing", "F32", 4, 4, in, rows, 4);
	refuse(&base, good, file, n, "layers.0.nothing");
	ig_stepper_model_close(&base);
	/* two matrices in one */
	if (ig_stepper_model_open(&base, INGOT_TEST_ADAPTERS "/arch/granite4.gguf", NULL, &err))
		fail_msg("%s", err.text);
	n = make_file(file, sizeof file, "layers.0.shared_mlp.input_linear", "F32", 4, 4, 32, 96,
		      4);
	refuse(&base, good, file, n, "is of a part that adapters can't change");
	ig_stepper_model_close(&base);
}

/* The converter's file with something else at one place. */
static void refuse_gguf(const struct ig_stepper_model *base, const char *file, size_t len,
			const char *from, const char *to, size_t n, const char *what)
{
	char *copy = malloc(len), *at;
	struct ig_adapter *a = NULL;
	struct ig_error err = { 0 };

	assert_non_null(copy);
	memcpy(copy, file, len);
	at = memmem(copy, len, from, strlen(from));
	assert_non_null(at);
	memcpy(at, to, n);
	struct ig_checkpoint_file files = { "adapter.gguf", copy, len };
	assert_true(ig_adapter_open_files(&files, 1, base->file, ig_modules_archs(base->modules),
					  &a, &err) < 0);
	assert_null(a);
	if (!strstr(err.text, what))
		fail_msg("\"%s\" does not have \"%s\"", err.text, what);
	free(copy);
}

static void test_wrong_gguf(void **state)
{
	static char file[1 << 16];
	struct ig_stepper_model base;
	struct ig_error err = { 0 };
	FILE *f = fopen(INGOT_TEST_ADAPTERS "/adapter/all.gguf", "rb");

	assert_non_null(f);
	size_t len = fread(file, 1, sizeof file, f);
	fclose(f);
	if (ig_stepper_model_open(&base, INGOT_TEST_ADAPTERS "/arch/llama3.gguf", NULL, &err))
		fail_msg("%s", err.text);
#define REFUSE(from, to, what) refuse_gguf(&base, file, len, from, to, sizeof(to) - 1, what)
	REFUSE("general.type", "general.typo", "key 'general.type' is missing");
	REFUSE("adapter.type", "adapter.typo", "key 'adapter.type' is missing");
	REFUSE("lora\x0c", "rola", "key 'adapter.type' is \"rola\", expected \"lora\"");
	REFUSE("llama", "gemma", "key 'general.architecture' is \"gemma\", expected \"llama\"");
	REFUSE("adapter.lora.alpha", "adapter.lora.alphb", "adapter.lora.alpha");
	REFUSE("adapter.lora.alpha", "adapter.lora.alpha\6\0\0\0\0\0\0\0",
	       "key 'adapter.lora.alpha' is 0");
	REFUSE("adapter.lora.alpha", "adapter.lora.alpha\6\0\0\0\0\0\xc0\x7f",
	       "key 'adapter.lora.alpha' is not a finite number");
	REFUSE("blk.0.attn_q.weight.lora_b", "blk.0.attn_q.weight.lora_c",
	       "\"blk.0.attn_q.weight.lora_c\" is not NAME.lora_a or NAME.lora_b");
	REFUSE("blk.0.attn_q.weight.lora_b", "blk.9.attn_q.weight.lora_b",
	       "\"blk.0.attn_q.weight.lora_a\" has no lora_B beside it");
#undef REFUSE
	ig_stepper_model_close(&base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "adapters of a GGUF file", test_adapters, NULL, NULL,
		  (void *)(uintptr_t)".gguf" },
		{ "adapters of a folder", test_adapters, NULL, NULL, (void *)(uintptr_t)"" },
		{ "GGUF, base in GGUF", test_gguf, NULL, NULL, (void *)(uintptr_t)".gguf" },
		{ "GGUF, base in a folder", test_gguf, NULL, NULL, (void *)(uintptr_t)"" },
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_wrong_gguf),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
