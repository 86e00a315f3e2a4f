/*
 * test_mtp_golden.c: models' heads that guess the token after the next one, against the reference in
 * mtp.py (which also describes the format of NAME_mtp.guesses).
 *
 * With float32 activations and cache the normalised squared error of the head's logits is at most 1e-6.
 * Their bits are the same whether a prompt is read at once or in chunks, alone or beside another one, and
 * behind the right tokens of a draft, on every instruction set that the machine has.  The model's own logits have
 * the bits that they have without the head, also in steps that leave it out.  INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "model/quantize/convert.h"
#include "tests/brief.h"
#include "tests/golden/model/stepper.h"
#include "tests/golden/nmse.h"

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

#ifndef INGOT_TEST_ARCHS
#error "the build names the folder of the models"
#endif

#define N_PROMPTS 2
#define N_STEPS 8
#define N_VOCAB 300
#define MAX_PROMPT 512

struct prompt {
	uint32_t n_ids;
	int32_t ids[MAX_PROMPT]; /* and the greedy ones behind them */
	float want[N_STEPS][N_VOCAB];
};
static struct prompt prompts[N_PROMPTS];

/* n_tensors: of the head. */
static const struct model {
	const char *name;
	int n_tensors;
} models[] = { { "glm4moe", 23 },
	       { "qwen35", 15 },
	       { "qwen35moe", 20 },
	       { "qwen3next", 20 },
	       { "glmlite", 22 } };
#define N_MODELS (sizeof models / sizeof *models)
static const struct model *model;

/* Of a way of running: the model's logits and the head's. */
struct results {
	float logits[N_PROMPTS][N_STEPS][N_VOCAB], guesses[N_PROMPTS][N_STEPS][N_VOCAB];
	int32_t guessed[N_PROMPTS][N_STEPS];
};
static struct results alone, other, plain;

static void must_read(FILE *f, void *to, size_t n_bytes)
{
	if (fread(to, 1, n_bytes, f) != n_bytes)
		fail_msg("the golden is too short");
}

static FILE *open_file(const char *end, const char *magic)
{
	char path[512], text[4];
	uint32_t sizes[3];
	FILE *f;

	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s%s", model->name, end);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	must_read(f, text, 4);
	assert_memory_equal(text, magic, 4);
	must_read(f, sizes, sizeof sizes);
	assert_int_equal(sizes[0], N_VOCAB);
	assert_int_equal(sizes[1], N_PROMPTS);
	assert_int_equal(sizes[2], N_STEPS);
	return f;
}

static int setup(void **state)
{
	FILE *base, *guesses;

	model = *state;
	base = open_file(".golden", "IGA1");
	guesses = open_file("_mtp.guesses", "IGG1");

	for (int i = 0; i < N_PROMPTS; i++) {
		struct prompt *p = &prompts[i];
		must_read(base, &p->n_ids, 4);
		assert_in_range(p->n_ids, 1, MAX_PROMPT - N_STEPS);
		must_read(base, p->ids, (p->n_ids + N_STEPS) * sizeof *p->ids);
		fseek(base, sizeof p->want, SEEK_CUR);
		must_read(guesses, p->want, sizeof p->want);
	}
	fclose(base);
	fclose(guesses);
	return 0;
}

/* end: of the name, ".gguf" or "": the folder. */
static void open_form(struct ig_stepper_model *m, const char *end, bool with_mtp)
{
	struct ig_error err = { 0 };
	char path[512];
	int rc;

	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s_mtp%s", model->name, end);
	rc = with_mtp ? ig_stepper_model_open_mtp(m, path, NULL, &err) :
			ig_stepper_model_open(m, path, NULL, &err);
	if (rc)
		fail_msg("%s", err.text);
}

static void open_model(struct ig_stepper_model *m, bool with_mtp)
{
	open_form(m, ".gguf", with_mtp);
}

static struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const char *isa)
{
	const struct ig_stepper_options o = {
		.isa = isa,
		.activations = "f32",
		.k_dtype = IG_F32,
		.v_dtype = IG_F32,
		.n_threads = 2,
		.max_rows = MAX_PROMPT + 16,
		.max_seqs = N_PROMPTS * N_STEPS,
		.max_context = m->plan->info.n_context,
		.cache_tokens = 2 * (MAX_PROMPT + N_STEPS),
		.shuffle = 5,
	};
	struct ig_error err = { 0 };
	struct ig_stepper *s;
	int rc = ig_stepper_open(m, &o, &s, &err);

	if (rc == -ENOTSUP && isa)
		return NULL;
	if (rc)
		fail_msg("%s", err.text);
	return s;
}

/* All but the last token of a prompt, in chunks; the head is told what follows each. */
static void feed(struct ig_stepper *s, int seq, const struct prompt *p, uint32_t chunk)
{
	for (uint32_t at = 0; at + 1 < p->n_ids; at += chunk) {
		uint32_t n = p->n_ids - 1 - at < chunk ? p->n_ids - 1 - at : chunk;

		assert_int_equal(ig_stepper_put(s, seq, p->ids + at, (int32_t)n, NULL), 0);
		ig_stepper_say_next(s, p->ids[at + n]);
		assert_int_equal(ig_stepper_run(s, false), 0);
	}
}

static void take(struct ig_stepper *s, const struct ig_stepper_model *m, int draw, int prompt,
		 uint32_t step, struct results *out)
{
	const struct prompt *p = &prompts[prompt];
	const size_t n_bytes = N_VOCAB * sizeof(float);

	assert_int_equal(ig_stepper_sampled(s, draw), p->ids[p->n_ids + step]);
	memcpy(out->logits[prompt][step], ig_stepper_logits(s, draw), n_bytes);
	if (!m->plan->first_mtp_node)
		return;
	memcpy(out->guesses[prompt][step], ig_stepper_guess_logits(s, draw), n_bytes);
	out->guessed[prompt][step] = ig_stepper_guessed(s, draw);
}

/* The steps with logits of a run. */
enum kind {
	PLAIN,
	DRAFTED, /* one: the tokens are verified together */
	WITHOUT, /* every second one does without the head */
};

/* Prompts first … last - 1 side by side; chunk 0: each at once. */
static void run(struct ig_stepper *s, const struct ig_stepper_model *m, int first, int last,
		uint32_t chunk, enum kind kind, struct results *out)
{
	const bool drafted = kind == DRAFTED;

	int seq[N_PROMPTS], draw[N_PROMPTS];

	memset(out, 0, sizeof *out);
	ig_stepper_reset(s);
	for (int i = first; i < last; i++) {
		seq[i] = ig_stepper_add(s, prompts[i].n_ids + N_STEPS);
		assert_true(seq[i] >= 0);
		if (chunk)
			feed(s, seq[i], &prompts[i], chunk);
	}
	for (uint32_t t = 0; t < N_STEPS; t++) {
		for (int i = first; i < last; i++) {
			const struct prompt *p = &prompts[i];
			const uint32_t n = t || chunk ? 1 : p->n_ids;
			const int32_t *ids = p->ids + p->n_ids + t - n;

			draw[i] = drafted ? ig_stepper_put_draft(s, seq[i], ids, N_STEPS,
								 &ig_stepper_greedy) :
					    ig_stepper_put(s, seq[i], ids, (int32_t)n,
							   &ig_stepper_greedy);
			assert_true(draw[i] >= 0);
		}
		if (kind == WITHOUT && t % 2 == 0)
			ig_stepper_leave_out_head(s);
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int i = first; i < last; i++)
			for (uint32_t k = 0; k < (drafted ? N_STEPS : 1); k++)
				take(s, m, draw[i] + (int)k, i, t + k, out);
		if (drafted)
			return;
	}
}

static double nmse(int prompt)
{
	return ig_nmse(&prompts[prompt].want[0][0], &alone.guesses[prompt][0][0],
		       (size_t)N_STEPS * N_VOCAB);
}

static void expect_same(const char *how, int first, int last)
{
	for (int i = first; i < last; i++)
		if (memcmp(other.logits[i], alone.logits[i], sizeof alone.logits[i]) ||
		    memcmp(other.guesses[i], alone.guesses[i], sizeof alone.guesses[i]) ||
		    memcmp(other.guessed[i], alone.guessed[i], sizeof alone.guessed[i]))
			fail_msg("other bits %s, prompt %d", how, i);
}

static bool run_isa(const struct ig_stepper_model *m, const char *isa)
{
	struct ig_stepper *s = open_stepper(m, isa);
	static struct results one;

	if (!s)
		return false;
	for (int i = 0; i < N_PROMPTS; i++) {
		run(s, m, i, i + 1, 0, PLAIN, &one);
		memcpy(alone.logits[i], one.logits[i], sizeof alone.logits[i]);
		memcpy(alone.guesses[i], one.guesses[i], sizeof alone.guesses[i]);
		memcpy(alone.guessed[i], one.guessed[i], sizeof alone.guessed[i]);
	}
	for (int i = 0; i < N_PROMPTS; i++) {
		printf("# %s, %s, prompt %d: NMSE %.2e\n", model->name, isa ? isa : "auto", i,
		       nmse(i));
		assert_true(nmse(i) <= 1e-6);
	}
	run(s, m, 0, 1, 37, PLAIN, &other);
	expect_same("in chunks of 37", 0, 1);
	run(s, m, 1, 2, 1, PLAIN, &other);
	expect_same("in chunks of 1", 1, 2);
	run(s, m, 0, N_PROMPTS, 64, PLAIN, &other);
	expect_same("side by side", 0, N_PROMPTS);
	run(s, m, 0, N_PROMPTS, 64, DRAFTED, &other);
	expect_same("behind drafts", 0, N_PROMPTS);
	run(s, m, 0, N_PROMPTS, 64, WITHOUT, &other);
	assert_memory_equal(other.logits, alone.logits, sizeof other.logits);
	ig_stepper_close(s);
	return true;
}

static void test_guesses(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	struct ig_stepper_model m, without;
	struct ig_stepper *s;

	open_model(&m, true);
	open_model(&without, false);
	assert_int_equal(m.plan->info.n_mtp_layers, 1);
	assert_int_equal(m.plan->info.groups[0].n_layers,
			 without.plan->info.groups[0].n_layers + 1);
	for (size_t i = 0; i < (ig_stepper_on_gpu() ? 1 : sizeof isas / sizeof *isas); i++)
		assert_true(run_isa(&m, isas[i]) || i);
	/* alone has the last instruction set's results now: those of the best one again */
	if (!ig_stepper_on_gpu())
		run_isa(&m, NULL);
	s = open_stepper(&without, NULL);
	run(s, &without, 0, N_PROMPTS, 64, PLAIN, &plain);
	assert_memory_equal(plain.logits, alone.logits, sizeof plain.logits);
	ig_stepper_close(s);
	ig_stepper_model_close(&m);
	ig_stepper_model_close(&without);
}

/* Whether what is read and written is left to the driver cpu. */
static bool is_of_no_device(void) { return ig_stepper_on_gpu() && ig_brief(); }

/* NAME_mtp/ has the same numbers: the same bits of the model's logits and the head's. */
static void test_folder(void **state)
{
	struct ig_stepper_model file, folder;

	if (is_of_no_device())
		return;
	open_model(&file, true);
	open_form(&folder, "", true);
	assert_int_equal(folder.plan->info.n_mtp_layers, 1);
	assert_int_equal(folder.plan->n_weights, file.plan->n_weights);
	for (int drafted = 0; drafted < 2; drafted++) {
		struct ig_stepper *a = open_stepper(&file, NULL), *b = open_stepper(&folder, NULL);
		run(a, &file, 0, N_PROMPTS, 64, drafted ? DRAFTED : PLAIN, &alone);
		run(b, &folder, 0, N_PROMPTS, 64, drafted ? DRAFTED : PLAIN, &other);
		expect_same(drafted ? "of the folder, behind drafts" : "of the folder", 0,
			    N_PROMPTS);
		ig_stepper_close(a);
		ig_stepper_close(b);
	}
	ig_stepper_model_close(&file);
	ig_stepper_model_close(&folder);
}

/* What ig_convert writes of the folder drafts as the folder does: with the same numbers bit for bit. */
static void test_converted(void **state)
{
	const struct ig_convert_options o = { .mix = ig_mix_find("F16"), .n_threads = 2 };
	char dir[] = "/tmp/ig-converted-XXXXXX", out[64];
	struct ig_stepper_model file, folder;
	struct ig_error err = { 0 };
	struct ig_convert_report r;
	struct ig_stepper *s;

	if (is_of_no_device())
		return;
	assert_non_null(mkdtemp(dir));
	snprintf(out, sizeof out, "%s/out.gguf", dir);
	open_form(&folder, "", true);
	if (ig_convert(folder.file, out, &o, &r, &err) ||
	    ig_stepper_model_open_mtp(&file, out, NULL, &err))
		fail_msg("%s", err.text);
	ig_convert_report_finish(&r);
	assert_int_equal(file.plan->info.n_mtp_layers, 1);
	s = open_stepper(&folder, NULL);
	run(s, &folder, 0, N_PROMPTS, 64, PLAIN, &alone);
	ig_stepper_close(s);
	s = open_stepper(&file, NULL);
	run(s, &file, 0, N_PROMPTS, 64, PLAIN, &other);
	expect_same("of the converted file", 0, N_PROMPTS);
	ig_stepper_close(s);
	ig_stepper_model_close(&file);
	ig_stepper_model_close(&folder);
	assert_int_equal(unlink(out), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* What the head uses is no longer left out; of both forms the same words. */
static void test_left_out(void **state)
{
	static const char *const ends[] = { ".gguf", "" };
	struct ig_stepper_model m;
	char text[256], want[256];

	snprintf(want, sizeof want, "%d tensors of the prediction of further tokens (MTP)",
		 model->n_tensors);
	for (int i = 0; i < 2; i++) {
		open_form(&m, ends[i], true);
		ig_plan_left_out(m.plan, text, sizeof text);
		assert_string_equal(text, "");
		ig_stepper_model_close(&m);
		open_form(&m, ends[i], false);
		ig_plan_left_out(m.plan, text, sizeof text);
		assert_string_equal(text, want);
		ig_stepper_model_close(&m);
	}
}

int main(void)
{
	static const struct {
		const char *name;
		void (*test)(void **state);
	} kinds[] = { { "guesses", test_guesses },
		      { "folder", test_folder },
		      { "converted", test_converted },
		      { "left out", test_left_out } };
	enum { N_KINDS = sizeof kinds / sizeof *kinds };
	struct CMUnitTest tests[N_KINDS * N_MODELS];
	char names[N_KINDS * N_MODELS][64];

	for (size_t i = 0; i < N_KINDS * N_MODELS; i++) {
		const struct model *m = &models[i / N_KINDS];
		snprintf(names[i], sizeof names[i], "%s, %s", m->name, kinds[i % N_KINDS].name);
		tests[i] = (struct CMUnitTest){ names[i], kinds[i % N_KINDS].test, setup, NULL,
						(void *)(uintptr_t)m };
	}
	return cmocka_run_group_tests_name("mtp golden", tests, NULL, NULL);
}
