/*
 * test_outside_golden.c: a whole tiny model with rows that are no token's, as an image's would be: against an
 * independent forward pass (outside.py), the same bits in any chunks and beside another sequence, and the
 * bits of tokens where the rows are what their tokens have.  INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "tests/golden/model/stepper.h"
#include "tests/golden/nmse.h"

#include "model/formats/checkpoint.h"
#include "ops/float.h"
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

#ifndef INGOT_TEST_ARCHS
#error "the build names the folder of the models"
#endif

#define MAX_ROWS 320
#define MAX_VOCAB 512
#define N_LOGITS 3

struct golden {
	uint32_t n_vocab, n_ids, first, n, width, n_positions, sections[IG_ROPE_AXES], n_logits;
	int32_t ids[MAX_ROWS];
	float rows[64][64];
	int32_t positions[64][IG_ROPE_AXES];
	int32_t at[N_LOGITS];
	float logits[N_LOGITS][MAX_VOCAB];
};

static struct golden golden;

static void must_read(FILE *f, void *to, size_t n_bytes)
{
	if (fread(to, 1, n_bytes, f) != n_bytes)
		fail_msg("the golden is too short");
}

static int read_golden(void **state)
{
	struct golden *g = &golden;
	char magic[4];
	FILE *f = fopen(INGOT_TEST_ARCHS "/outside.golden", "rb");

	assert_non_null(f);
	must_read(f, magic, sizeof magic);
	assert_memory_equal(magic, "IGO1", 4);
	must_read(f, g, 10 * sizeof(uint32_t));
	assert_true(g->n_vocab <= MAX_VOCAB && g->n_ids <= MAX_ROWS && g->n <= 64 &&
		    g->width <= 64 && g->n_logits == N_LOGITS);
	must_read(f, g->ids, g->n_ids * sizeof *g->ids);
	for (uint32_t i = 0; i < g->n; i++)
		must_read(f, g->rows[i], g->width * sizeof(float));
	must_read(f, g->positions, g->n * sizeof *g->positions);
	must_read(f, g->at, sizeof g->at);
	for (int i = 0; i < N_LOGITS; i++)
		must_read(f, g->logits[i], g->n_vocab * sizeof(float));
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
	return 0;
}

static void open_model(struct ig_stepper_model *m, const char *name)
{
	struct ig_error err = { 0 };
	char path[512];

	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", name);
	if (ig_stepper_model_open(m, path, NULL, &err))
		fail_msg("%s", err.text);
}

/* RoPE of all layers along three axes, which the file does not have.  The plan is not lowered yet. */
static void set_sections(const struct ig_stepper_model *m, const uint32_t *sections,
			 bool interleaved)
{
	for (uint32_t i = 0; i < m->plan->n_nodes; i++) {
		const struct ig_plan_node *n = &m->plan->nodes[i];
		if (strcmp(n->op->name, "rope_table"))
			continue;
		struct ig_rope_table_params *p = (void *)(uintptr_t)n->params;
		memcpy(p->sections, sections, sizeof p->sections);
		p->interleaved = interleaved;
	}
}

static struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const char *isa)
{
	const struct ig_stepper_options o = { .isa = isa,
					      .activations = "f32",
					      .k_dtype = IG_F32,
					      .v_dtype = IG_F32,
					      .n_threads = 2,
					      .max_rows = MAX_ROWS,
					      .max_seqs = 2,
					      .max_context = MAX_ROWS,
					      .cache_tokens = 3 * MAX_ROWS,
					      .shuffle = 5 };
	struct ig_error err = { 0 };
	struct ig_stepper *s;
	int rc = ig_stepper_open(m, &o, &s, &err);

	if (rc == -ENOTSUP)
		return NULL;
	if (rc)
		fail_msg("%s", err.text);
	return s;
}

/* ---- the image of the golden ------------------------------------------------------------------ */

/* Row `at` of the prompt, the i-th of those put last. */
static void say(struct ig_stepper *s, int32_t i, int32_t at)
{
	const struct golden *g = &golden;
	const int32_t first = (int32_t)g->first, in = at - first, n = (int32_t)g->n;
	const int32_t behind = at + (int32_t)g->n_positions - n;
	int32_t turned[IG_ROPE_AXES] = { behind, behind, behind };

	if (in < 0)
		return;
	for (int k = 0; k < IG_ROPE_AXES && in < n; k++)
		turned[k] = first + g->positions[in][k];
	ig_stepper_say_outside(s, i, in < n ? g->rows[in] : NULL, turned, in < n ? n - 1 - in : 0);
}

/* The prompt in chunks that end before these rows, and the logits of the golden's rows that end one. */
static void feed(struct ig_stepper *s, const int32_t *ends, bool beside, float (*logits)[MAX_VOCAB])
{
	const struct golden *g = &golden;
	int seq, other = -1;

	ig_stepper_reset(s);
	if (beside)
		other = ig_stepper_add(s, 60);
	seq = ig_stepper_add(s, g->n_ids);
	for (int32_t at = 0; at < (int32_t)g->n_ids; at = *ends++) {
		int draw;
		/* two of its rows before those of the prompt */
		if (beside && ig_stepper_length(s, other) < 58)
			assert_int_equal(ig_stepper_put(s, other, g->ids, 2, NULL), 0);
		draw = ig_stepper_put(s, seq, g->ids + at, *ends - at, &ig_stepper_greedy);
		assert_true(draw >= 0);
		for (int32_t i = at; i < *ends; i++)
			say(s, i - at, i);
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int i = 0; i < N_LOGITS; i++)
			if (g->at[i] == *ends - 1)
				memcpy(logits[i], ig_stepper_logits(s, draw),
				       g->n_vocab * sizeof(float));
	}
}

static void test_image(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	/* ends are rows of the golden (230, 262, 270), or others outside the image */
	static const int32_t chunks[][24] = {
		{ 230, 262, 270 },
		{ 37, 74, 111, 148, 185, 222, 230, 262, 265, 270 },
		{ 100, 230, 262, 263, 264, 265, 266, 267, 268, 269, 270 },
	};
	static float logits[N_LOGITS][MAX_VOCAB], other[N_LOGITS][MAX_VOCAB];
	struct ig_stepper_model m;

	open_model(&m, "gemma3");
	set_sections(&m, golden.sections, false);
	for (size_t k = 0; k < (ig_stepper_on_gpu() ? 1 : sizeof isas / sizeof *isas); k++) {
		struct ig_stepper *s = open_stepper(&m, isas[k]);
		if (!s)
			continue; /* not on this machine */
		memset(logits, 0, sizeof logits);
		feed(s, chunks[0], false, logits);
		for (int i = 0; i < N_LOGITS; i++) {
			double e = ig_nmse(golden.logits[i], logits[i], golden.n_vocab);
			printf("# %s, row %d: NMSE %.2e\n", isas[k] ? isas[k] : "auto",
			       golden.at[i], e);
			if (!(e <= 1e-9))
				fail_msg("row %d: NMSE %g", golden.at[i], e);
		}
		for (size_t c = ig_stepper_on_gpu() && ig_brief() ? 2 : 0;
		     c < sizeof chunks / sizeof *chunks; c++)
			for (int beside = 0; beside < 2; beside++) {
				memset(other, 0, sizeof other);
				feed(s, chunks[c], beside, other);
				assert_memory_equal(other, logits, sizeof other);
			}
		/* the image in the middle of a step */
		memcpy(other, logits, sizeof other);
		feed(s, (const int32_t[]){ 225, 270 }, true, other);
		assert_memory_equal(other, logits, sizeof other);
		feed(s, (const int32_t[]){ 270 }, false, other);
		assert_memory_equal(other, logits, sizeof other);
		ig_stepper_close(s);
	}
	ig_stepper_model_close(&m);
}

/* ---- the rows of tokens ------------------------------------------------------------------------ */

/* Logits of the last token; outside: every third row is given as what the table has of its token, and has another
 * one's id, and all are turned by their position along each axis. */
static void run_rows(const struct ig_stepper_model *m, bool outside, float scale, float *logits)
{
	static float rows[MAX_ROWS][128];
	const struct ig_checkpoint_tensor *table =
		ig_checkpoint_find_tensor(m->file, "token_embd.weight");
	const uint32_t width = table ? (uint32_t)table->n_cols : 0;
	struct ig_stepper *s = open_stepper(m, NULL);
	int32_t ids[MAX_ROWS];
	int seq, draw;

	assert_non_null(s);
	assert_non_null(table);
	assert_true(width <= 128);
	seq = ig_stepper_add(s, 60);
	for (int32_t i = 0; i < 60; i++)
		ids[i] = outside && i % 3 == 0 ? 0 : golden.ids[i];
	draw = ig_stepper_put(s, seq, ids, 60, &ig_stepper_greedy);
	assert_true(draw >= 0);
	for (int32_t i = 0; outside && i < 60; i++) {
		ig_dtype_to_f32(table->dtype,
				(const char *)table->data +
					(uint64_t)golden.ids[i] *
						ig_dtype_row_bytes(table->dtype, width),
				rows[i], width);
		for (uint32_t k = 0; k < width; k++)
			rows[i][k] *= scale;
		ig_stepper_say_outside(s, i, i % 3 ? NULL : rows[i], (const int32_t[]){ i, i, i },
				       0);
	}
	assert_int_equal(ig_stepper_run(s, true), 0);
	memcpy(logits, ig_stepper_logits(s, draw), ig_stepper_n_vocab(s) * sizeof *logits);
	ig_stepper_close(s);
}

/* A row from outside with the numbers of a token's has its bits, and positions that are equal along all axes have
 * those of one, with sections and without; also with recurrent layers, and with a scale of the table's rows. */
static void test_rows_of_tokens(void **state)
{
	static const struct {
		const char *name;
		uint32_t sections[IG_ROPE_AXES];
		uint32_t width; /* by whose root the table is multiplied; 0: it is not */
	} models[] = { { "qwen3", { 4, 4, 4 }, 0 },
		       { "qwen35", { 2, 1, 1 }, 0 },
		       { "gemma4", { 0 }, 48 } };
	static float want[MAX_VOCAB], got[MAX_VOCAB];

	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct ig_stepper_model m;
		const float scale = models[i].width ? sqrtf((float)models[i].width) : 1;

		open_model(&m, models[i].name);
		run_rows(&m, false, scale, want);
		run_rows(&m, true, scale, got);
		assert_memory_equal(got, want, m.plan->info.n_vocab * sizeof *want);
		if (models[i].sections[0]) {
			set_sections(&m, models[i].sections, i % 2);
			run_rows(&m, false, scale, got);
			assert_memory_equal(got, want, m.plan->info.n_vocab * sizeof *want);
			run_rows(&m, true, scale, got);
			assert_memory_equal(got, want, m.plan->info.n_vocab * sizeof *want);
		}
		ig_stepper_model_close(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_image),
		cmocka_unit_test(test_rows_of_tokens),
	};

	return cmocka_run_group_tests(tests, read_golden, NULL);
}
