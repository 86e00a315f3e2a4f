/*
 * test_arch_golden.c: tiny random models of every architecture against transformers' results
 * (make.py, which also describes the format of NAME.golden).
 *
 * With float32 activations and cache: the logits' normalised squared error is at most
 * 1e-6, the sampled tokens are the golden's, and the bits are the same whether a prompt is
 * read at once or in chunks, alone or beside another one, on every instruction set that the
 * machine has.  INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "tests/golden/model/stepper.h"
#include "model/quantize/convert.h"
#include "ops/cpu/tile16.h"
#include "runtime/split.h"
#include "runtime/stages.h"
#include "tests/brief.h"

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

#ifndef INGOT_TEST_ARCHS
#error "the build names the folder of the models"
#endif

#define N_PROMPTS 2
#define N_STEPS 8
#define MAX_PROMPT 512

struct prompt {
	uint32_t n_ids;
	int32_t ids[MAX_PROMPT];
	int32_t greedy[N_STEPS];
	float *logits; /* [N_STEPS, n_vocab] */
};

struct golden {
	uint32_t n_vocab;
	struct prompt prompts[N_PROMPTS];
};

static void must_read(FILE *f, void *to, size_t n_bytes)
{
	if (fread(to, 1, n_bytes, f) != n_bytes)
		fail_msg("the golden is too short");
}

static void open_golden(const char *name, struct golden *g)
{
	char path[512], magic[4];
	uint32_t n_prompts, n_steps;
	FILE *f;

	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.golden", name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	must_read(f, magic, sizeof magic);
	assert_memory_equal(magic, "IGA1", 4);
	must_read(f, &g->n_vocab, 4);
	must_read(f, &n_prompts, 4);
	must_read(f, &n_steps, 4);
	assert_int_equal(n_prompts, N_PROMPTS);
	assert_int_equal(n_steps, N_STEPS);
	assert_in_range(g->n_vocab, 1, 100000);
	for (uint32_t i = 0; i < n_prompts; i++) {
		struct prompt *p = &g->prompts[i];

		must_read(f, &p->n_ids, 4);
		assert_in_range(p->n_ids, 1, MAX_PROMPT);
		must_read(f, p->ids, p->n_ids * sizeof *p->ids);
		must_read(f, p->greedy, sizeof p->greedy);
		p->logits = malloc((size_t)N_STEPS * g->n_vocab * sizeof *p->logits);
		assert_non_null(p->logits);
		must_read(f, p->logits, (size_t)N_STEPS * g->n_vocab * sizeof *p->logits);
	}
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
}

static void close_golden(struct golden *g)
{
	for (int i = 0; i < N_PROMPTS; i++)
		free(g->prompts[i].logits);
}

/* ---- one way of running ---- */

static struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const struct golden *g,
				       const char *isa, const char *experts, bool keep_all)
{
	const struct ig_stepper_options o = {
		.isa = isa,
		.activations = "f32",
		.experts = experts,
		.k_dtype = IG_F32,
		.v_dtype = IG_F32,
		.n_threads = 2,
		.max_rows = MAX_PROMPT + 16,
		.max_seqs = N_PROMPTS,
		.max_context = m->plan->info.n_context,
		.cache_tokens = 2 * (MAX_PROMPT + N_STEPS),
		.shuffle = 5,
		.keep_all = keep_all,
	};
	struct ig_error err = { 0 };
	struct ig_stepper *s;
	int rc = ig_stepper_open(m, &o, &s, &err);

	if (rc == -ENOTSUP && isa)
		return NULL;
	if (rc)
		fail_msg("%s", err.text);
	assert_int_equal(ig_stepper_n_vocab(s), g->n_vocab);
	return s;
}

/* Feed prompt p but for its last `left` tokens, in chunks. */
static void feed(struct ig_stepper *s, int seq, const struct prompt *p, uint32_t chunk,
		 uint32_t left)
{
	for (uint32_t at = 0; at < p->n_ids - left; at += chunk) {
		uint32_t n = p->n_ids - left - at < chunk ? p->n_ids - left - at : chunk;

		assert_int_equal(ig_stepper_put(s, seq, p->ids + at, (int32_t)n, NULL), 0);
		assert_int_equal(ig_stepper_run(s, false), 0);
	}
}

/*
 * Prompts first … last - 1 in one batch: all but their last `left` tokens in chunks, each
 * prompt on its own; then those tokens of all prompts together, and N_STEPS - 1 decoded ones.
 * logits [N_PROMPTS, N_STEPS, n_vocab].  forced: the golden's tokens, whatever is sampled.
 */
static void run_along(struct ig_stepper *s, const struct golden *g, int first, int last,
		      uint32_t chunk, uint32_t left, bool forced, float *logits)
{
	int32_t id[N_PROMPTS];
	int seq[N_PROMPTS], draw[N_PROMPTS];

	ig_stepper_reset(s);
	for (int i = first; i < last; i++) {
		seq[i] = ig_stepper_add(s, g->prompts[i].n_ids + N_STEPS);
		assert_in_range(seq[i], 0, N_PROMPTS - 1);
		if (left < g->prompts[i].n_ids)
			feed(s, seq[i], &g->prompts[i], chunk, left);
	}
	for (uint32_t t = 0; t < N_STEPS; t++) {
		for (int i = first; i < last; i++) {
			const struct prompt *p = &g->prompts[i];
			const uint32_t n = left < p->n_ids ? left : p->n_ids;

			draw[i] = ig_stepper_put(s, seq[i], t ? &id[i] : p->ids + p->n_ids - n,
						 t ? 1 : (int32_t)n, &ig_stepper_greedy);
			assert_int_equal(draw[i], i - first);
		}
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int i = first; i < last; i++) {
			id[i] = ig_stepper_sampled(s, draw[i]);
			memcpy(logits + ((size_t)i * N_STEPS + t) * g->n_vocab,
			       ig_stepper_logits(s, draw[i]), g->n_vocab * sizeof *logits);
			if (!forced && id[i] != g->prompts[i].greedy[t])
				fail_msg("prompt %d, step %u: token %d, expected %d", i, t, id[i],
					 g->prompts[i].greedy[t]);
			id[i] = g->prompts[i].greedy[t];
		}
	}
}

static void run(struct ig_stepper *s, const struct golden *g, int first, int last, uint32_t chunk,
		uint32_t left, float *logits)
{
	run_along(s, g, first, last, chunk, left, false, logits);
}

/* A prompt alone, with a wrong guess behind each token: the state of recurrent layers goes back. */
static void run_guessed(struct ig_stepper *s, const struct golden *g, int prompt, float *logits)
{
	const struct prompt *p = &g->prompts[prompt];
	int seq;

	ig_stepper_reset(s);
	seq = ig_stepper_add(s, p->n_ids + N_STEPS + 1);
	feed(s, seq, p, 64, 1);
	for (uint32_t t = 0; t < N_STEPS; t++) {
		int32_t id = t ? p->greedy[t - 1] : p->ids[p->n_ids - 1],
			wrong = (id + 1) % (int32_t)g->n_vocab;
		int draw;

		ig_stepper_checkpoint(s, seq, 1);
		draw = ig_stepper_put_draft(s, seq, (const int32_t[]){ id, wrong }, 2,
					    &ig_stepper_greedy);
		assert_int_equal(draw, 0);
		assert_int_equal(ig_stepper_run(s, true), 0);
		memcpy(logits + ((size_t)prompt * N_STEPS + t) * g->n_vocab,
		       ig_stepper_logits(s, draw), g->n_vocab * sizeof *logits);
		ig_stepper_rewind(s, seq, (int32_t)(p->n_ids + t));
	}
}

/* Of a group with a window, one sequence that was fed so many rows at a time had no more
 * blocks than its window and these rows touch, wherever they lie. */
static void expect_windows(const struct ig_stepper_model *m, const struct ig_stepper *s,
			   const char *name, uint32_t chunk, uint32_t n_tokens)
{
	const struct ig_model_info *info = &m->plan->info;

	for (uint32_t g = 0; g < info->n_groups; g++) {
		const uint32_t window = info->groups[g].window, all = (n_tokens + 15) / 16;
		const uint32_t most = (window + chunk + 13) / 16 + 1;
		const uint32_t had = ig_stepper_most_blocks(s, g);

		if (info->groups[g].kind == IG_CACHE_STATE)
			continue;
		if (!window) {
			assert_int_equal(had, all);
			continue;
		}
		printf("# %s, chunks of %u: group %u had %u of %u blocks\n", name, chunk, g, had,
		       all);
		assert_true(had <= most);
		assert_true(had < all);
	}
}

static double nmse(const struct golden *g, int prompt, const float *logits)
{
	const size_t n = (size_t)N_STEPS * g->n_vocab;
	const float *want = g->prompts[prompt].logits;
	double mean = 0, off = 0, all = 0;

	for (size_t i = 0; i < n; i++)
		mean += (double)want[i] / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = (double)logits[(size_t)prompt * n + i] - (double)want[i];
		double v = (double)want[i] - mean;

		off += d * d;
		all += v * v;
	}
	return off / all; /* NaN fails every comparison */
}

/* A GPU's driver has no instruction sets. */
static bool on_gpu(void)
{
	const char *driver = getenv("INGOT_TEST_DRIVER");

	return driver && strcmp(driver, "cpu");
}

static bool has_window(const struct ig_stepper_model *m)
{
	for (uint32_t g = 0; g < m->plan->info.n_groups; g++)
		if (m->plan->info.groups[g].window)
			return true;
	return false;
}

/* Whole prompts, alone; then every other way with the same bits (brief: in other chunks side by side at once, and
 * alone where a window is expected to free blocks).
 * 0: not on this machine. */
static int run_isa(const struct ig_stepper_model *m, const struct golden *g, const char *name,
		   const char *isa)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_stepper *s = open_stepper(m, g, isa, NULL, false);
	const bool brief = on_gpu() && ig_brief();
	float *alone, *other;

	if (!s)
		return 0;
	alone = calloc(n, sizeof *alone);
	other = calloc(n, sizeof *other);
	assert_non_null(alone);
	assert_non_null(other);
	for (int i = 0; i < N_PROMPTS; i++)
		run(s, g, i, i + 1, MAX_PROMPT, MAX_PROMPT, alone);
	for (int i = 0; i < N_PROMPTS; i++) {
		double e = nmse(g, i, alone);

		printf("# %s, %s, prompt %d: NMSE %.2e\n", name, isa ? isa : "auto", i, e);
		if (!(e <= 1e-6))
			fail_msg("%s: NMSE %g", name, e);
	}
	/* chunks that are no multiple of a block, and of one token */
	if (!brief || has_window(m)) {
		for (int i = N_PROMPTS - 1; i >= 0; i--)
			run(s, g, i, i + 1, 37, 5, other);
		expect_windows(m, s, name, 37, g->prompts[0].n_ids + N_STEPS);
		assert_memory_equal(other, alone, n * sizeof *other);
	}
	if (!brief) {
		run(s, g, 1, 2, 1, 1, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		run(s, g, 0, 1, 5, 1, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		expect_windows(m, s, name, 5, g->prompts[0].n_ids + N_STEPS);
		/* longer than a window */
		run(s, g, 0, 1, 100, 64, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		expect_windows(m, s, name, 100, g->prompts[0].n_ids + N_STEPS);
	}
	if (!has_window(m)) { /* whose blocks do not come back */
		memset(other, 0, n * sizeof *other);
		for (int i = brief ? N_PROMPTS - 1 : 0; i < N_PROMPTS; i++) {
			const size_t at = (size_t)i * N_STEPS * g->n_vocab;
			run_guessed(s, g, i, other);
			assert_memory_equal(other + at, alone + at,
					    N_STEPS * g->n_vocab * sizeof *other);
		}
	}
	/* side by side */
	memset(other, 0, n * sizeof *other);
	if (!brief) {
		run(s, g, 0, N_PROMPTS, MAX_PROMPT, MAX_PROMPT, other);
		assert_memory_equal(other, alone, n * sizeof *other);
	}
	run(s, g, 0, N_PROMPTS, brief ? 37 : 64, brief ? 5 : 3, other);
	assert_memory_equal(other, alone, n * sizeof *other);
	ig_stepper_close(s);
	/* whether or not blocks outside the window are freed */
	if (has_window(m) && !brief) {
		s = open_stepper(m, g, isa, NULL, true);
		run(s, g, 0, N_PROMPTS, 64, 3, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		ig_stepper_close(s);
	}
	free(alone);
	free(other);
	return 1;
}

/* Experts that stay in the file: the same bits for less memory. */
static void run_mapped(const struct ig_stepper_model *m, const struct golden *g)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_stepper *packed = open_stepper(m, g, NULL, "packed", false);
	struct ig_stepper *mapped = open_stepper(m, g, NULL, "mapped", false);
	float *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
	uint64_t n_bytes = 0;

	assert_non_null(a);
	assert_non_null(b);
	assert_null(strstr(ig_stepper_describe(packed), "experts"));
	assert_non_null(strstr(ig_stepper_describe(mapped), "experts mapped"));
	for (uint32_t i = 0; i < m->plan->n_weights; i++) {
		const struct ig_plan_weight *w = &m->plan->weights[i];
		if (!strstr(w->name, "_exps.weight"))
			continue;
		n_bytes += ig_tile16_tile_bytes(w->shape.dtype, w->shape.n_cols) *
			   (uint64_t)ig_tile16_n_tiles(w->shape.n_rows);
	}
	assert_true(n_bytes > 0);
	assert_int_equal(ig_stepper_weight_bytes(mapped) + n_bytes,
			 ig_stepper_weight_bytes(packed));
	run(packed, g, 0, N_PROMPTS, 64, 3, a);
	run(mapped, g, 0, N_PROMPTS, 64, 3, b);
	assert_memory_equal(a, b, n * sizeof *a);
	free(a);
	free(b);
	ig_stepper_close(packed);
	ig_stepper_close(mapped);
}

static bool has_experts(const struct ig_plan *p)
{
	for (uint32_t i = 0; i < p->n_nodes; i++)
		if (!strcmp(p->nodes[i].op->name, "moe_route"))
			return true;
	return false;
}

static void test_model(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	const char *name = *state;
	struct golden g = { 0 };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", name);
	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(run_isa(&m, &g, name, NULL), 1);
	if (!on_gpu() && has_experts(m.plan))
		run_mapped(&m, &g);
	for (size_t i = 1; !on_gpu() && i < sizeof isas / sizeof *isas; i++)
		run_isa(&m, &g, name, isas[i]);
	ig_stepper_model_close(&m);
	close_golden(&g);
}

struct ranks {
	const char *name, *suffix; /* of the golden, and of the model */
	const char *refused[3];	   /* on two, three and four: why not; NULL: it is divided */
};

/* What is left out is said, by the same words for both forms of a file. */
static void expect_left_out(const char *name, const struct ig_stepper_model *m)
{
	char text[256];

	ig_plan_left_out(m->plan, text, sizeof text);
	if (!strcmp(name, "glm4moe"))
		assert_string_equal(text, "4 tensors of the prediction of further tokens (MTP)");
	else if (!strcmp(name, "qwen35moe"))
		assert_string_equal(text, "2 tensors of the prediction of further tokens (MTP)");
	else if (!*text || strcmp(name, "mistral"))
		assert_string_equal(text, "");
	else
		assert_string_equal(text, "1 tensor of vision");
}

/* NAME/ holds the numbers of NAME.gguf: as its architecture reads them, to the bit. */
static void test_folder(void **state)
{
	const char *name = *state;
	struct ig_stepper_model file, folder;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512];

	open_golden(name, &g);
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g.n_vocab;
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", name);
	if (ig_stepper_model_open(&file, path, NULL, &err))
		fail_msg("%s", err.text);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&folder, path, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(folder.plan->info.n_context, file.plan->info.n_context);
	assert_int_equal(folder.plan->n_weights, file.plan->n_weights);
	expect_left_out(name, &file);
	expect_left_out(name, &folder);
	/* a device gets the same bytes from both, so one model is enough there */
	if (!on_gpu() || !strcmp(name, "llama3")) {
		struct ig_stepper *a = open_stepper(&file, &g, NULL, NULL, false);
		struct ig_stepper *b = open_stepper(&folder, &g, NULL, NULL, false);
		float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);

		assert_non_null(x);
		assert_non_null(y);
		run(a, &g, 0, N_PROMPTS, 64, 3, x);
		run(b, &g, 0, N_PROMPTS, 64, 3, y);
		assert_memory_equal(x, y, n * sizeof *x);
		free(x);
		free(y);
		ig_stepper_close(a);
		ig_stepper_close(b);
	}
	ig_stepper_model_close(&file);
	ig_stepper_model_close(&folder);
	close_golden(&g);
}

static void expect_same_bytes(const struct ig_checkpoint *a, const struct ig_checkpoint *b,
			      const char *name)
{
	const struct ig_checkpoint_tensor *x = ig_checkpoint_find_tensor(a, name);
	const struct ig_checkpoint_tensor *y = ig_checkpoint_find_tensor(b, name);
	void *buf = malloc(x->n_bytes);

	assert_non_null(buf);
	assert_int_equal(y->dtype, x->dtype);
	assert_int_equal(y->n_bytes, x->n_bytes);
	assert_memory_equal(ig_checkpoint_rows(a, x, 0, x->n_rows, buf), y->data, x->n_bytes);
	free(buf);
}

/* What ig_convert writes of NAME/ loads; its logits are the golden's as far as its type allows, and
 * MXFP4 is the folder's bytes. */
static void test_converted(void **state)
{
	/* A changed choice of experts, which near-equal routes of random models invite, is the largest
	 * part of an error. */
	static const struct {
		const char *mix;
		double dense, experts; /* NMSE at most */
	} cases[] = { { "F32", 1e-6, 1e-6 }, { "Q8_0", 1e-2, 0.1 }, { "Q4_K_M", 0.26, 1 } };
	const char *name = *state;
	struct ig_stepper_model folder, file;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512], dir[] = "/tmp/ig-converted-XXXXXX", out[64];

	if (on_gpu()) /* what is written is of no device */
		return;
	open_golden(name, &g);
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g.n_vocab;
	float *logits = calloc(n, sizeof *logits);
	assert_non_null(logits);
	assert_non_null(mkdtemp(dir));
	snprintf(out, sizeof out, "%s/out.gguf", dir);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&folder, path, NULL, &err))
		fail_msg("%s", err.text);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct ig_convert_options o = { .mix = ig_mix_find(cases[i].mix),
						      .n_threads = 2 };
		const struct ig_checkpoint *from = folder.file;
		struct ig_convert_report r;

		if (ig_convert(from, out, &o, &r, &err) ||
		    ig_stepper_model_open(&file, out, NULL, &err))
			fail_msg("%s as %s: %s", name, cases[i].mix, err.text);
		for (size_t j = 0; j < r.n_tensors && i > 0; j++)
			if (r.tensors[j].from == IG_MXFP4)
				expect_same_bytes(from, file.file, r.tensors[j].name);
		ig_convert_report_finish(&r);
		struct ig_stepper *s = open_stepper(&file, &g, NULL, NULL, false);
		run_along(s, &g, 0, N_PROMPTS, 64, 3, i > 0, logits);
		for (int p = 0; p < N_PROMPTS; p++) {
			double e = nmse(&g, p, logits);
			printf("# %s as %s, prompt %d: NMSE %.2e\n", name, cases[i].mix, p, e);
			if (!(e <= (has_experts(file.plan) ? cases[i].experts : cases[i].dense)))
				fail_msg("%s as %s: NMSE %g", name, cases[i].mix, e);
		}
		ig_stepper_close(s);
		ig_stepper_model_close(&file);
		assert_int_equal(unlink(out), 0);
	}
	assert_int_equal(rmdir(dir), 0);
	ig_stepper_model_close(&folder);
	free(logits);
	close_golden(&g);
}

/* MLX's groups of 4 and 8 bits against the model of their exact values. */
static void test_mlx(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	const char *name = *state;
	struct golden g = { 0 };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	char path[512];
	uint32_t n_q8_m = 0;

	open_golden(name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	for (uint32_t i = 0; i < m.plan->n_weights; i++)
		n_q8_m += m.plan->weights[i].shape.dtype == IG_Q8_M;
	assert_int_equal(n_q8_m, has_experts(m.plan) ? 0 : 3);
	for (size_t i = 0; i < (on_gpu() ? 1 : sizeof isas / sizeof *isas); i++)
		assert_true(run_isa(&m, &g, name, isas[i]) || i);
	ig_stepper_model_close(&m);
	close_golden(&g);
}

/* The nodes of two, three and four devices, run on one: the same logits within the same bound, and the same
 * bits in any chunk and batch.  What can't be divided is refused with the reason. */
static void test_ranks(void **state)
{
	const struct ranks *t = *state;
	struct golden g = { 0 };
	struct ig_stepper_model whole;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(t->name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s%s.gguf", t->name, t->suffix);
	if (ig_stepper_model_open(&whole, path, NULL, &err))
		fail_msg("%s", err.text);
	for (uint32_t n = 2; n <= 4; n++) {
		struct ig_stepper_model m = whole;
		int rc = ig_plan_split(whole.plan, n, IG_ALL_RANKS, &m.plan, &err);
		printf("# %s, %u devices: %s\n", t->name, n, rc ? err.text : "divided");
		if (t->refused[n - 2]) {
			assert_int_equal(rc, -ENOTSUP);
			assert_non_null(strstr(err.text, t->refused[n - 2]));
			continue;
		}
		if (rc)
			fail_msg("%s, %u devices: %s", t->name, n, err.text);
		assert_int_equal(run_isa(&m, &g, t->name, NULL), 1);
		ig_plan_destroy(m.plan);
	}
	ig_stepper_model_close(&whole);
	close_golden(&g);
}

/* ---- stages ---- */

struct staged {
	const char *name;
	uint32_t most;	 /* stages */
	const char *why; /* there can't be more; NULL: it has so many layers */
};

static uint64_t weight_bytes(const struct ig_plan *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n_weights; i++)
		sum += p->weights[i].n_bytes;
	return sum;
}

static uint32_t n_layers(const struct ig_plan *p)
{
	uint32_t sum = 0;

	for (uint32_t g = 0; g < p->info.n_groups; g++)
		sum += p->info.groups[g].n_layers;
	return sum;
}

/* Cut into n stages, which get each other's rows and have their own weights and cache: the bits of the whole. */
static void expect_stages(const struct ig_stepper_model *whole, const struct golden *g,
			  const char *name, uint32_t n, const float *want)
{
	static const struct {
		uint32_t chunk, left;
	} ways[] = { { MAX_PROMPT, MAX_PROMPT }, { 1, 1 }, { 7, 3 }, { 64, 20 } };
	const size_t size = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_plan *plans[1 + IG_STEPPER_LATER] = { NULL };
	struct ig_stepper_model m = *whole;
	float *got = calloc(size, sizeof *got);
	struct ig_error err = { 0 };

	assert_non_null(got);
	for (uint32_t i = 0; i < n; i++) {
		if (ig_plan_cut(whole->plan, n, i, &plans[i], &err))
			fail_msg("%s, stage %u of %u: %s", name, i, n, err.text);
		assert_true(weight_bytes(plans[i]) < weight_bytes(whole->plan));
		assert_true(n_layers(plans[i]) <= n_layers(whole->plan));
		assert_int_equal(plans[i]->width_in, i ? plans[i - 1]->width_out : 0);
		assert_int_equal(plans[i]->width_out > 0, i + 1 < n);
	}
	m.plan = plans[0];
	m.later = plans + 1;
	m.n_later = n - 1;
	struct ig_stepper *s = open_stepper(&m, g, NULL, NULL, false);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		memset(got, 0, size * sizeof *got);
		run(s, g, 0, N_PROMPTS, ways[i].chunk, ways[i].left, got);
		assert_memory_equal(got, want, size * sizeof *got);
	}
	for (int i = 0; i < N_PROMPTS; i++)
		run(s, g, i, i + 1, 64, 20, got);
	assert_memory_equal(got, want, size * sizeof *got);
	ig_stepper_close(s);
	for (uint32_t i = 0; i < n; i++)
		ig_plan_destroy(plans[i]);
	free(got);
}

static void test_stages(void **state)
{
	const struct staged *t = *state;
	struct golden g = { 0 };
	struct ig_stepper_model whole;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(t->name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", t->name);
	if (ig_stepper_model_open(&whole, path, NULL, &err))
		fail_msg("%s", err.text);
	float *want = calloc((size_t)N_PROMPTS * N_STEPS * g.n_vocab, sizeof *want);
	struct ig_stepper *s = open_stepper(&whole, &g, NULL, NULL, false);
	assert_non_null(want);
	run(s, &g, 0, N_PROMPTS, MAX_PROMPT, MAX_PROMPT, want);
	ig_stepper_close(s);
	for (uint32_t n = 2; n <= 4; n++) {
		struct ig_plan *plan;
		int rc = ig_plan_cut(whole.plan, n, 0, &plan, &err);
		printf("# %s, %u stages: %s\n", t->name, n, rc ? err.text : "cut");
		ig_plan_destroy(plan);
		if (n <= t->most) {
			if (rc)
				fail_msg("%s, %u stages: %s", t->name, n, err.text);
			expect_stages(&whole, &g, t->name, n, want);
			continue;
		}
		assert_int_equal(rc, -ENOTSUP);
		assert_non_null(strstr(err.text, t->why ? t->why : "it has no more layers"));
	}
	free(want);
	ig_stepper_model_close(&whole);
	close_golden(&g);
}

#define STAGES(name, most, why)                                                                    \
	{                                                                                          \
		#name " in stages", test_stages, NULL, NULL, &(struct staged) { #name, most, why } \
	}
#define RANKS(name, ...)                                                                           \
	{                                                                                          \
		#name " on devices", test_ranks, NULL, NULL, &(struct ranks)                       \
		{                                                                                  \
			#name, "", { __VA_ARGS__ }                                                 \
		}                                                                                  \
	}
#define WIDE(name, ...)                                                                            \
	{                                                                                          \
		#name "_wide on devices", test_ranks, NULL, NULL, &(struct ranks)                  \
		{                                                                                  \
			#name, "_wide", { __VA_ARGS__ }                                            \
		}                                                                                  \
	}
#define MLX(name) { #name, test_mlx, NULL, NULL, (void *)#name }
#define MODEL(name) { #name, test_model, NULL, NULL, (void *)#name }
#define CONVERTED(name) { #name " converted", test_converted, NULL, NULL, (void *)#name }
#define FOLDER(name) { #name "/", test_folder, NULL, NULL, (void *)#name }

/* An argument is a pattern for names of tests: "*devices". */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		MODEL(llama3),
		MODEL(linear),
		MODEL(bias),
		MODEL(mistral),
		MODEL(mistral3),
		MODEL(qwen2),
		MODEL(qwen3),
		MODEL(gpt2),
		MODEL(gemma3),
		MODEL(gemma4e),
		MODEL(museglimmer),
		MODEL(gemma4moe),
		FOLDER(gemma4),
		FOLDER(gemma4e),
		FOLDER(gemma4moe),
		FOLDER(museglimmer),
		MODEL(gemma4),
		MODEL(qwen3moe),
		MODEL(mixtral),
		MODEL(olmoe),
		MODEL(glm4moe),
		FOLDER(glm4moe),
		MODEL(gptoss),
		MODEL(gptossmx),
		MODEL(minimaxm2),
		FOLDER(minimaxm2),
		FOLDER(gptoss),
		FOLDER(gptossmx),
		FOLDER(llama3),
		FOLDER(linear),
		FOLDER(bias),
		FOLDER(mistral),
		FOLDER(mistral3),
		FOLDER(qwen2),
		FOLDER(qwen3),
		FOLDER(gpt2),
		FOLDER(gemma3),
		FOLDER(qwen3moe),
		FOLDER(mixtral),
		FOLDER(olmoe),
		MODEL(lfm2),
		FOLDER(lfm2),
		MODEL(qwen35),
		FOLDER(qwen35),
		MODEL(glmlite),
		FOLDER(glmlite),
		MODEL(deepseek3),
		FOLDER(deepseek3),
		MODEL(deepseek2),
		FOLDER(deepseek2),
		MODEL(laguna),
		FOLDER(laguna),
		MODEL(lagunam),
		FOLDER(lagunam),
		MODEL(qwen35moe),
		FOLDER(qwen35moe),
		MODEL(qwen3next),
		FOLDER(qwen3next),
		MODEL(lfm2moe),
		FOLDER(lfm2moe),
		MLX(mlx),
		MLX(mlxmoe),
		MODEL(nemotronh),
		FOLDER(nemotronh),
		MODEL(nemotron3),
		FOLDER(nemotron3),
		MODEL(nemotron3l),
		FOLDER(nemotron3l),
		MODEL(qwen35o),
		MODEL(granite4a),
		FOLDER(granite4a),
		MODEL(granite),
		FOLDER(granite),
		MODEL(granite3m),
		FOLDER(granite3m),
		MODEL(granite3s),
		FOLDER(granite3s),
		MODEL(granite4m),
		MODEL(granite4),
		FOLDER(granite4m),
		FOLDER(granite4),
		RANKS(llama3, NULL, "2 heads of keys", NULL),
		RANKS(linear, NULL, "2 heads of keys", NULL),
		RANKS(bias, NULL, "2 heads of keys", NULL),
		RANKS(mistral, NULL, "2 heads of keys", NULL),
		RANKS(mistral3, NULL, "2 heads of keys", NULL),
		RANKS(qwen2, NULL, "2 heads of keys", NULL),
		RANKS(qwen3, NULL, "2 heads of keys", NULL),
		RANKS(gemma4, NULL, "2 heads of keys", NULL),
		RANKS(gemma3, NULL, "it has 4 heads", NULL),
		RANKS(gpt2, "3 heads of keys", NULL, "3 heads of keys"),
		RANKS(qwen3moe, "80 rows of weights for 10 experts", "2 heads",
		      "its experts are too small"),
		WIDE(gptoss, NULL, "2 heads of keys", "multiple of 16"),
		WIDE(gemma4moe, NULL, "2 heads of keys", "multiple of 32"),
		WIDE(qwen3moe, NULL, "2 heads of keys", "multiple of 16"),
		RANKS(minimaxm2, "a norm over all heads", "2 heads", "a norm over all heads"),
		RANKS(lfm2, "states", "states", "states"),
		RANKS(deepseek3, "latent keys", "latent keys", "latent keys"),
		/* these last: of the driver cpu alone */
		CONVERTED(gemma4),
		CONVERTED(gemma4e),
		CONVERTED(gemma4moe),
		CONVERTED(museglimmer),
		CONVERTED(glm4moe),
		CONVERTED(minimaxm2),
		CONVERTED(gptoss),
		CONVERTED(gptossmx),
		CONVERTED(llama3),
		CONVERTED(linear),
		CONVERTED(bias),
		CONVERTED(mistral),
		CONVERTED(mistral3),
		CONVERTED(qwen2),
		CONVERTED(qwen3),
		CONVERTED(gpt2),
		CONVERTED(gemma3),
		CONVERTED(qwen3moe),
		CONVERTED(mixtral),
		CONVERTED(olmoe),
		CONVERTED(lfm2),
		CONVERTED(qwen35),
		CONVERTED(glmlite),
		CONVERTED(deepseek3),
		CONVERTED(deepseek2),
		CONVERTED(laguna),
		CONVERTED(lagunam),
		CONVERTED(qwen35moe),
		CONVERTED(qwen3next),
		CONVERTED(lfm2moe),
		CONVERTED(nemotronh),
		CONVERTED(nemotron3),
		CONVERTED(nemotron3l),
		CONVERTED(granite4a),
		CONVERTED(granite),
		CONVERTED(granite3m),
		CONVERTED(granite3s),
		CONVERTED(granite4m),
		CONVERTED(granite4),
		CONVERTED(mlx),
		CONVERTED(mlxmoe),
		STAGES(llama3, 2, NULL),
		STAGES(linear, 1, NULL),
		STAGES(bias, 1, NULL),
		STAGES(mistral, 2, NULL),
		STAGES(mistral3, 1, NULL),
		STAGES(qwen2, 2, NULL),
		STAGES(qwen3, 2, NULL),
		STAGES(gpt2, 2, NULL),
		STAGES(gemma3, 4, NULL),
		STAGES(gemma4, 3, NULL),
		STAGES(gemma4e, 1, "later layers read the cache of layer 0"),
		STAGES(gemma4moe, 2, NULL),
		STAGES(museglimmer, 4, NULL),
		STAGES(qwen3moe, 2, NULL),
		STAGES(mixtral, 2, NULL),
		STAGES(olmoe, 2, NULL),
		STAGES(glm4moe, 2, NULL),
		STAGES(gptoss, 2, NULL),
		STAGES(gptossmx, 2, NULL),
		STAGES(minimaxm2, 2, NULL),
		STAGES(lfm2, 4, NULL),
		STAGES(lfm2moe, 3, NULL),
		STAGES(qwen35, 4, NULL),
		STAGES(qwen35moe, 3, NULL),
		STAGES(qwen3next, 3, NULL),
		STAGES(glmlite, 2, NULL),
		STAGES(deepseek2, 2, NULL),
		STAGES(deepseek3, 2, NULL),
		STAGES(laguna, 3, NULL),
		STAGES(lagunam, 3, NULL),
		STAGES(nemotronh, 4, NULL),
		STAGES(nemotron3, 4, NULL),
		STAGES(nemotron3l, 3, NULL),
		STAGES(granite4, 4, NULL),
		STAGES(granite4a, 2, NULL),
		STAGES(granite4m, 2, NULL),
		STAGES(granite3s, 2, NULL),
	};
	size_t n = sizeof tests / sizeof *tests;

	while (on_gpu() &&
	       (tests[n - 1].test_func == test_stages || tests[n - 1].test_func == test_converted))
		n--; /* GPUs have no stages, and files that were written are read by the same code */
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests("architectures", tests, n, NULL, NULL);
}
