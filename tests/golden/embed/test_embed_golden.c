/*
 * test_embed_golden.c: tiny random models of embeddings against sentence-transformers' results
 * (make.py, which also describes the format of NAME.golden): the texts' ids; the vectors, each value
 * within 1e-5, with float32 and with the usual activations; the same bits alone and beside other
 * texts, in any order, and from a GGUF file as from a folder, on every instruction set of the machine.
 * INGOT_TEST_DRIVER names another driver than cpu.  The usual activations of a GPU are of the type of the
 * weights, F16 here: their values may differ by GPU_TOLERANCE.
 */
#include "tests/brief.h"
#include "tests/golden/model/stepper.h"

#include "model/chat/rerank_template.h"
#include "model/formats/checkpoint.h"
#include "model/quantize/convert.h"
#include "model/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef INGOT_TEST_EMBED
#error "the build names the folder of the models"
#endif

#define MAX_TEXTS 16
#define MAX_ROWS 2048

#define TOLERANCE 1e-5
/* Sums of some ten values that are rounded to 11 bits in each of a few layers, of vectors of 64 values
 * and length 1.  Logits of a reranker that are longer may differ by as much more. */
#define GPU_TOLERANCE 1e-3

struct text {
	uint32_t n_bytes, n_ids;
	int32_t *ids, *types; /* [n_ids] */
	double *want;	      /* [n_columns] */
	char *bytes;
};

struct golden {
	uint32_t n_columns, n_texts;
	bool ranks; /* results are logits */
	struct text texts[MAX_TEXTS];
};

/* Of a real model, which is not in the repository (README.md), the folder above it. */
static const char *folder_of(const char *name)
{
	const char *real = getenv("INGOT_TEST_EMBED_MODEL");

	return strcmp(name, "minilm") ? INGOT_TEST_EMBED : real;
}

static void *must_read(FILE *f, size_t n, size_t size)
{
	void *p = malloc(n * size + 1);

	assert_non_null(p);
	if (fread(p, size, n, f) != n)
		fail_msg("the golden is too short");
	return p;
}

static uint32_t read_u32(FILE *f)
{
	uint32_t *p = must_read(f, 1, 4), v = *p;

	free(p);
	return v;
}

static void open_golden(const char *name, struct golden *g)
{
	char path[512], *magic;
	FILE *f;

	snprintf(path, sizeof path, "%s/%s.golden", folder_of(name), name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	magic = must_read(f, 4, 1);
	assert_memory_equal(magic, "IGE1", 4);
	free(magic);
	g->n_columns = read_u32(f);
	g->n_texts = read_u32(f);
	assert_in_range(g->n_texts, 1, MAX_TEXTS);
	for (uint32_t i = 0; i < g->n_texts; i++) {
		struct text *t = &g->texts[i];
		t->n_bytes = read_u32(f);
		t->n_ids = read_u32(f);
		t->ids = must_read(f, t->n_ids, sizeof *t->ids);
		t->types = must_read(f, t->n_ids, sizeof *t->types);
		t->want = must_read(f, g->n_columns, sizeof *t->want);
		t->bytes = must_read(f, t->n_bytes, 1);
	}
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
	g->ranks = strstr(name, "rank") != NULL;
}

static void close_golden(struct golden *g)
{
	for (uint32_t i = 0; i < g->n_texts; i++) {
		free(g->texts[i].ids);
		free(g->texts[i].types);
		free(g->texts[i].want);
		free(g->texts[i].bytes);
	}
}

/* ---- tokens ---- */

/* A text as a model of embeddings gets it, or a reranker a pair, of which transformers makes one text if the
 * second one is empty. */
static void expect_ids(const struct ig_tokenizer *t, const struct text *x, bool ranks)
{
	const char *second = memchr(x->bytes, 0, x->n_bytes);
	bool pair = ranks && second + 1 < x->bytes + x->n_bytes;
	size_t n = pair ? (size_t)(second - x->bytes) : x->n_bytes;
	int32_t bos = ig_tokenizer_bos(t), suffix = ig_tokenizer_suffix(t);
	struct ig_ids ids = { 0 };
	unsigned n_between;
	const int32_t *between = ig_tokenizer_separators(t, &n_between);
	size_t at = 0;

	if (bos >= 0 && ig_tokenizer_add_bos(t))
		assert_int_equal(x->ids[at++], bos);
	assert_int_equal(ig_tokenizer_encode(t, x->bytes, n, false, SIZE_MAX, &ids), 0);
	assert_true(at + ids.n <= x->n_ids);
	assert_memory_equal(ids.ids, x->ids + at, ids.n * sizeof *ids.ids);
	at += ids.n;
	ig_ids_finish(&ids);
	for (unsigned i = 0; pair && i < n_between; i++)
		assert_int_equal(x->ids[at++], between[i]);
	if (pair) {
		assert_int_equal(ig_tokenizer_encode(t, second + 1, x->n_bytes - n - 1, false,
						     SIZE_MAX, &ids),
				 0);
		assert_memory_equal(ids.ids, x->ids + at, ids.n * sizeof *ids.ids);
		at += ids.n;
		ig_ids_finish(&ids);
	}
	if (suffix >= 0)
		assert_int_equal(x->ids[at++], suffix);
	assert_int_equal(at, x->n_ids);
}

/* A pair in the prompt that the file has. */
static void expect_prompt(const struct ig_rerank_template *c, const struct text *x)
{
	const char *second = memchr(x->bytes, 0, x->n_bytes);
	const size_t n = (size_t)(second - x->bytes);
	struct ig_ids ids = { 0 };

	assert_int_equal(ig_rerank_template_encode(c, x->bytes, n, second + 1, x->n_bytes - n - 1,
						   0, SIZE_MAX, &ids),
			 0);
	assert_int_equal(ids.n, x->n_ids);
	assert_memory_equal(ids.ids, x->ids, ids.n * sizeof *ids.ids);
	ig_ids_finish(&ids);
}

static void expect_all_ids(const struct ig_stepper_model *m, const struct golden *g)
{
	struct ig_rerank_template *prompt = NULL;
	struct ig_tokenizer *t;
	struct ig_error err = { 0 };

	if (ig_tokenizer_open(m->file, &t, &err) ||
	    (g->ranks && ig_rerank_template_open(m->file, t, &prompt, &err)))
		fail_msg("%s", err.text);
	for (uint32_t i = 0; i < g->n_texts; i++)
		if (prompt)
			expect_prompt(prompt, &g->texts[i]);
		else
			expect_ids(t, &g->texts[i], g->ranks);
	ig_rerank_template_close(prompt);
	ig_tokenizer_close(t);
}

/* ---- vectors ---- */

struct runner {
	struct ig_driver *driver;
	struct ig_program *program;
	uint32_t n_columns;
};

/* False: the machine has no such instruction set. */
static bool open_runner(const struct ig_stepper_model *m, const char *isa, const char *activations,
			struct runner *r)
{
	const struct ig_driver_options o = {
		.isa = isa, .n_threads = 2, .activations = activations, .strict = 1
	};
	const struct ig_program_limits limits = { .max_rows = MAX_ROWS,
						  .max_seqs = MAX_TEXTS,
						  .max_logit_rows = MAX_TEXTS,
						  .max_context = m->plan->info.n_context };
	struct ig_program_memory memory;
	struct ig_error err = { 0 };
	int rc = ig_driver_open(ig_stepper_driver(), &o, &r->driver, &err);

	if (rc == -ENOTSUP && strcmp(isa, "auto"))
		return false;
	if (!rc)
		rc = ig_driver_lower(r->driver, m->plan, &limits, &r->program, &memory, &err);
	if (!rc)
		rc = ig_program_load(r->program, &err);
	if (rc)
		fail_msg("%s", err.text);
	r->n_columns = m->plan->n_results;
	return true;
}

static void close_runner(struct runner *r)
{
	ig_program_destroy(r->program);
	ig_driver_close(r->driver);
}

/* Texts order[0] … order[n - 1] in one step: out [n, n_columns]. */
static void run(struct runner *r, const struct golden *g, const uint32_t *order, uint32_t n,
		float *out)
{
	static int32_t ids[MAX_ROWS], positions[MAX_ROWS], seqs[MAX_ROWS], types[MAX_ROWS];
	int32_t lens[MAX_TEXTS], last[MAX_TEXTS], sampled[MAX_TEXTS];
	struct ig_sample_params sample[MAX_TEXTS] = { 0 };
	struct ig_step step = { .struct_size = sizeof step,
				.n_seqs = (int32_t)n,
				.n_logit_rows = (int32_t)n,
				.token_ids = ids,
				.positions = positions,
				.row_seq = seqs,
				.row_types = types,
				.seq_lens = lens,
				.logit_rows = last,
				.sample = sample,
				.sampled_ids = sampled,
				.logits = out };

	for (uint32_t i = 0; i < n; i++) {
		const struct text *t = &g->texts[order[i]];
		sample[i].mask = -1;
		lens[i] = (int32_t)t->n_ids;
		for (uint32_t k = 0; k < t->n_ids; k++, step.n_rows++) {
			assert_true(step.n_rows < MAX_ROWS);
			ids[step.n_rows] = t->ids[k];
			types[step.n_rows] = t->types[k];
			positions[step.n_rows] = (int32_t)k;
			seqs[step.n_rows] = (int32_t)i;
		}
		last[i] = step.n_rows - 1;
	}
	if (ig_program_submit(r->program, &step) || ig_program_wait(r->program))
		fail_msg("%s", ig_program_error(r->program)->text);
}

static double length_of(const float *v, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)v[i] * (double)v[i];
	return sqrt(sum);
}

static void expect_vectors(const struct golden *g, const char *name, const char *isa,
			   const float *v, double tolerance)
{
	const bool relative = tolerance == GPU_TOLERANCE;
	double most = 0;

	for (uint32_t i = 0; i < g->n_texts; i++, v += g->n_columns) {
		double length = length_of(v, g->n_columns);
		double by = g->ranks ? 1 : length,
		       unit = g->ranks && relative ? fmax(length, 1) : 1;
		for (uint32_t k = 0; k < g->n_columns; k++)
			most = fmax(most, fabs((double)v[k] / by - g->texts[i].want[k]) / unit);
	}
	printf("# %s, %s: the largest difference is %.1e\n", name, isa, most);
	if (!(most <= tolerance))
		fail_msg("%s, %s: a difference of %g", name, isa, most);
}

/* A software GPU is slow: ./check runs texts beside others there in one order, and not of a folder, whose
 * vectors alone have the file's bits. */
static bool is_slow(void) { return ig_stepper_on_gpu() && ig_brief(); }

/* Returns each text's vector alone, [n_texts][n_columns], to be freed; NULL: the machine has no such
 * instruction set. */
static float *run_isa(const struct ig_stepper_model *m, const struct golden *g, const char *name,
		      const char *isa, const char *activations, bool among_others)
{
	static const uint32_t order[MAX_TEXTS] = { 0, 1, 2,  3,	 4,  5,	 6,  7,
						   8, 9, 10, 11, 12, 13, 14, 15 };
	const size_t n = g->n_columns, n_bytes = n * sizeof(float);
	float *alone = calloc(MAX_TEXTS, n_bytes), *other = calloc(MAX_TEXTS, n_bytes);
	uint32_t back[MAX_TEXTS];
	struct runner r;

	assert_non_null(alone);
	assert_non_null(other);
	if (open_runner(m, isa, activations, &r)) {
		assert_int_equal(r.n_columns, g->n_columns);
		for (uint32_t i = 0; i < g->n_texts; i++)
			run(&r, g, &order[i], 1, alone + i * n);
		expect_vectors(g, name, ig_stepper_on_gpu() ? activations : isa, alone,
			       ig_stepper_on_gpu() && strcmp(activations, "f32") ? GPU_TOLERANCE :
										   TOLERANCE);
		if (among_others && !is_slow()) {
			run(&r, g, order, g->n_texts, other);
			assert_memory_equal(other, alone, g->n_texts * n_bytes);
		}
		for (uint32_t i = 0; i < g->n_texts; i++)
			back[i] = g->n_texts - 1 - i;
		if (among_others) {
			run(&r, g, back, g->n_texts, other);
			for (uint32_t i = 0; i < g->n_texts; i++)
				assert_memory_equal(other + i * n, alone + back[i] * n, n_bytes);
		}
		close_runner(&r);
	} else {
		free(alone);
		alone = NULL;
	}
	free(other);
	return alone;
}

/* The file's or the folder's ids and vectors; *vectors: of all texts with the usual activations. */
static void run_file(const char *name, const char *path, const struct golden *g, bool all_isas,
		     float **vectors)
{
	static const char *const isas[] = { "auto", "generic", "avx2", "avx512", "neon" };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };

	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(m.plan->info.n_groups, 0);
	assert_int_equal(m.plan->info.result == IG_RESULT_SCORE, g->ranks);
	expect_all_ids(&m, g);
	/* a GPU's driver has no instruction sets */
	for (size_t i = 0; all_isas && i < (ig_stepper_on_gpu() ? 1 : sizeof isas / sizeof *isas);
	     i++)
		free(run_isa(&m, g, name, isas[i], "f32", true));
	*vectors = run_isa(&m, g, name, "auto", "auto", all_isas || !is_slow());
	assert_non_null(*vectors);
	ig_stepper_model_close(&m);
}

/* NAME.gguf and the folder have the golden's ids and vectors, and the same bits. */
static void compare(const char *name, const char *folder_name, bool all_isas)
{
	struct golden g = { 0 };
	float *file, *folder;
	char path[512];

	open_golden(name, &g);
	snprintf(path, sizeof path, "%s/%s.gguf", folder_of(name), name);
	run_file(name, path, &g, all_isas, &file);
	snprintf(path, sizeof path, "%s/%s", folder_of(name), folder_name);
	run_file(name, path, &g, false, &folder);
	assert_memory_equal(file, folder, g.n_texts * g.n_columns * sizeof *file);
	free(file);
	free(folder);
	close_golden(&g);
}

static void test_model(void **state) { compare(*state, *state, true); }

/* The same model by the names of its authors' folders. */
static void test_authors(void **state) { compare("nomic", *state, false); }

/* What ig_convert writes of a folder has its ids and vectors, bit for bit. */
static void test_converted(void **state)
{
	const struct ig_convert_options o = { .mix = ig_mix_find("F16"), .n_threads = 2 };
	const char *name = *state;
	char path[512], out[] = "/tmp/ig-converted-XXXXXX";
	struct ig_convert_report r;
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	float *vectors, *of_folder;
	bool causal = true;
	uint32_t n_types;
	int fd;

	if (ig_stepper_on_gpu()) /* what is written is of no device */
		return;
	open_golden(name, &g);
	snprintf(path, sizeof path, "%s/%s", folder_of(name), name);
	fd = mkstemp(out);
	assert_true(fd >= 0 && !close(fd) && !unlink(out));
	if (ig_stepper_model_open(&m, path, NULL, &err) || ig_convert(m.file, out, &o, &r, &err))
		fail_msg("%s", err.text);
	ig_convert_report_finish(&r);
	ig_stepper_model_close(&m);
	run_file(name, path, &g, false, &of_folder);
	run_file(name, out, &g, false, &vectors);
	assert_memory_equal(vectors, of_folder, g.n_texts * g.n_columns * sizeof *vectors);
	free(of_folder);
	if (!strncmp(name, "qwen3", 5) || !strncmp(name, "gemma", 5)) /* decoders' keys */
		goto out;
	/* what other readers need besides */
	assert_int_equal(ig_stepper_model_open(&m, out, NULL, &err), 0);
	snprintf(path, sizeof path, "%s.attention.causal", m.plan->arch->name);
	assert_int_equal(ig_checkpoint_bool(m.file, path, &causal, &err), 0);
	assert_false(causal);
	assert_int_equal(
		ig_checkpoint_u32(m.file, "tokenizer.ggml.token_type_count", &n_types, &err), 0);
	assert_int_equal(n_types, strncmp(name, "xlmr", 4) && strcmp(name, "nomicmoehub") ? 2 : 1);
	ig_stepper_model_close(&m);
out:
	assert_int_equal(unlink(out), 0);
	free(vectors);
	close_golden(&g);
}

/* There is only a file. */
static void test_file(void **state)
{
	const char *name = *state;
	struct golden g = { 0 };
	float *vectors;
	char path[512];

	open_golden(name, &g);
	snprintf(path, sizeof path, "%s/%s.gguf", folder_of(name), name);
	run_file(name, path, &g, true, &vectors);
	free(vectors);
	close_golden(&g);
}

static void test_real(void **state)
{
	const char *name = *state;
	struct golden g = { 0 };
	float *vectors;
	char path[512];

	if (!folder_of(name)) {
		printf("# INGOT_TEST_EMBED_MODEL names no folder with it\n");
		return;
	}
	open_golden(name, &g);
	snprintf(path, sizeof path, "%s/%s", folder_of(name), name);
	run_file(name, path, &g, true, &vectors);
	free(vectors);
	close_golden(&g);
}

/* Steps that a plan without a cache refuses: a sequence must be whole, and its result the last
 * row's. */
static void test_steps(void **state)
{
	int32_t ids[4] = { 3, 7, 8, 4 }, positions[4] = { 0, 1, 2, 3 }, seqs[4] = { 0 };
	int32_t lens[2] = { 4, 4 }, last[1] = { 3 }, sampled[1];
	struct ig_sample_params sample[1] = { { .mask = -1 } };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = 4,
				.n_seqs = 1,
				.n_logit_rows = 1,
				.token_ids = ids,
				.positions = positions,
				.row_seq = seqs,
				.seq_lens = lens,
				.logit_rows = last,
				.sample = sample,
				.sampled_ids = sampled };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	struct runner r;

	if (ig_stepper_model_open(&m, INGOT_TEST_EMBED "/bert.gguf", NULL, &err))
		fail_msg("%s", err.text);
	assert_true(open_runner(&m, "auto", "auto", &r));
	assert_int_equal(ig_program_submit(r.program, &step), 0);
	assert_int_equal(ig_program_wait(r.program), 0);
	lens[0] = 5; /* the last of it is not there */
	assert_int_equal(ig_program_submit(r.program, &step), -EINVAL);
	assert_non_null(strstr(ig_program_error(r.program)->text, "not whole"));
	lens[0] = 4;
	last[0] = 2;
	assert_int_equal(ig_program_submit(r.program, &step), -EINVAL);
	assert_non_null(strstr(ig_program_error(r.program)->text, "not the last"));
	last[0] = 3;
	for (int i = 0; i < 4; i++)
		positions[i]++;
	lens[0] = 5; /* it begins elsewhere */
	assert_int_equal(ig_program_submit(r.program, &step), -EINVAL);
	for (int i = 0; i < 4; i++)
		positions[i]--;
	lens[0] = 4;
	step.n_seqs = 2; /* one without rows */
	assert_int_equal(ig_program_submit(r.program, &step), -EINVAL);
	close_runner(&r);
	ig_stepper_model_close(&m);
}

#define CONVERTED(name) { #name " converted", test_converted, NULL, NULL, (void *)#name }
#define MODEL(name) { #name, test_model, NULL, NULL, (void *)#name }

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(bert),
		MODEL(bertcls),
		MODEL(bertrank),
		MODEL(qwen3embed),
		MODEL(nomic),
		MODEL(nomicmoehub),
		MODEL(gemmaembed),
		MODEL(xlmr),
		MODEL(xlmrmean),
		MODEL(xlmrrank),
		MODEL(qwen3rank),
		MODEL(qwen3rankcls),
		CONVERTED(bert),
		CONVERTED(bertrank),
		CONVERTED(nomic),
		CONVERTED(nomicmoehub),
		CONVERTED(xlmr),
		CONVERTED(xlmrmean),
		CONVERTED(xlmrrank),
		CONVERTED(qwen3rank),
		CONVERTED(qwen3rankcls),
		CONVERTED(qwen3embed),
		CONVERTED(gemmaembed),
		{ "gemmadense", test_file, NULL, NULL, (void *)"gemmadense" },
		{ "nomicmoe", test_file, NULL, NULL, (void *)"nomicmoe" },
		{ "nomichub", test_authors, NULL, NULL, (void *)"nomichub" },
		{ "minilm", test_real, NULL, NULL, (void *)"minilm" },
		cmocka_unit_test(test_steps),
	};

	return cmocka_run_group_tests_name("embed", tests, NULL, NULL);
}
