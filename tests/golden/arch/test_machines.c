/*
 * test_machines.c: models over several ranks, each with a driver of its own, joined by a transport between threads: the
 * logits of one rank, bit for bit; what each refuses; what hostile bytes do, which is nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "runtime/machines/machines.h"
#include "runtime/machines/worker.h"
#include "runtime/stages.h"
#include "tests/golden/model/stepper.h"
#include "tests/unit/runtime/loopback.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 3
#define N_SEQS 4
#define N_PROMPT 90
#define N_STEPS 4
#define SILENCE_MS 60000u

static const struct ig_driver_options one_thread = {
	.isa = "auto", .n_threads = 1, .activations = "f32", .strict = 1
};

/* ---- ranks ------------------------------------------------------------------------------- */

struct ranks {
	uint32_t n;
	const struct ig_stepper_model *model;
	struct ig_link *links[MOST_RANKS];
	pthread_t threads[MOST_RANKS];
	int rc[MOST_RANKS];
	struct ig_error err[MOST_RANKS];
	const char *path; /* where workers find the model */
	uint32_t n_begun;
};

static int find_model(void *ctx, const char *name, const char **path, struct ig_error *err)
{
	const struct ranks *r = ctx;

	*path = r->path;
	return r->path ? 0 : ig_fail(err, -ENOENT, "no model %s here", name);
}

static void *work(void *ctx)
{
	struct ranks *r = ctx;
	const uint32_t rank = __atomic_add_fetch(&r->n_begun, 1, __ATOMIC_SEQ_CST);
	struct ig_worker w = {
		.link = r->links[rank], .modules = r->model->modules, .find = find_model, .ctx = r
	};

	r->rc[rank] = ig_driver_open("cpu", &one_thread, &w.driver, &r->err[rank]);
	if (!r->rc[rank])
		r->rc[rank] = ig_worker_run(&w, &r->err[rank]);
	ig_driver_close(w.driver);
	ig_link_close(r->links[rank]);
	return NULL;
}

/* A driver over n ranks, of which all but the first are threads. */
static struct ig_driver *open_ranks(struct ranks *r, const struct ig_stepper_model *m, uint32_t n,
				    const char *path)
{
	const struct ig_link_options o = { &loopback, SILENCE_MS };
	struct ig_driver *own, *out;

	*r = (struct ranks){ .n = n, .model = m, .path = path };
	loopback_begin(n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(ig_link_open(&o, &r->links[i], NULL), 0);
	for (uint32_t i = 1; i < n; i++)
		assert_int_equal(pthread_create(&r->threads[i], NULL, work, r), 0);
	assert_int_equal(ig_driver_open("cpu", &one_thread, &own, NULL), 0);
	assert_int_equal(ig_machines_open(own, r->links[0], 1, &out, NULL), 0);
	return out;
}

/* After the driver is closed. */
static void join_ranks(struct ranks *r)
{
	for (uint32_t i = 1; i < r->n; i++)
		assert_int_equal(pthread_join(r->threads[i], NULL), 0);
}

/* ---- equal bits ---------------------------------------------------------------------------- */

static struct ig_stepper *open_stepper(const struct ig_stepper_model *m, struct ig_driver *opened)
{
	const struct ig_stepper_options o = {
		.opened = opened,
		.driver = "cpu",
		.activations = "f32",
		.k_dtype = IG_F16,
		.v_dtype = IG_F16,
		.n_threads = 1,
		.max_rows = N_SEQS * N_PROMPT,
		.max_seqs = N_SEQS,
		.max_context = m->plan->info.n_context,
		.cache_tokens = 2 * N_SEQS * (N_PROMPT + N_STEPS),
		.shuffle = 7,
	};
	struct ig_stepper *s;
	struct ig_error err = { 0 };

	if (ig_stepper_open(m, &o, &s, &err))
		fail_msg("%s", err.text);
	return s;
}

/* N_SEQS prompts of different lengths in one step, a few more of their tokens, with and without logits. */
static void run(struct ig_stepper *s, float *logits, int32_t *ids)
{
	static const struct ig_sample_params warm = { .temperature = 1,
						      .top_p = 0.9f,
						      .min_p = 0.01f,
						      .top_k = 30,
						      .repetition_penalty = 1,
						      .seed = 9,
						      .mask = -1 };
	const uint32_t n_vocab = ig_stepper_n_vocab(s);
	int32_t prompt[N_PROMPT], next[N_SEQS];
	int seq[N_SEQS], draw[N_SEQS];

	for (int i = 0; i < N_SEQS; i++)
		assert_true((seq[i] = ig_stepper_add(s, N_PROMPT + N_STEPS)) >= 0);
	for (int t = 0; t < N_STEPS; t++) {
		for (int i = 0; i < N_SEQS; i++) {
			for (int k = 0; k < N_PROMPT; k++)
				prompt[k] = (int32_t)((uint32_t)(k * 7 + i * 31 + 3) % n_vocab);
			draw[i] = ig_stepper_put(s, seq[i], t ? &next[i] : prompt,
						 t ? 1 : N_PROMPT - 20 * i,
						 i % 2 ? &warm : &ig_stepper_greedy);
			assert_int_equal(draw[i], i);
		}
		assert_int_equal(ig_stepper_run(s, t != 1), 0);
		for (int i = 0; i < N_SEQS; i++) {
			*ids++ = next[i] = ig_stepper_sampled(s, draw[i]);
			if (t != 1)
				memcpy(logits, ig_stepper_logits(s, draw[i]),
				       n_vocab * sizeof *logits);
			logits += n_vocab;
		}
	}
}

static void model_path(char path[512], const char *name)
{
	snprintf(path, 512, INGOT_TEST_ARCHS "/%s.gguf", name);
}

static void test_bits(void **state)
{
	const char *name = *state;
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	struct ranks r;
	int32_t ids[2][N_STEPS * N_SEQS];
	char path[512];

	model_path(path, name);
	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	const size_t n = (size_t)N_STEPS * N_SEQS * m.plan->info.n_vocab;
	float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
	assert_non_null(want);
	assert_non_null(got);
	struct ig_stepper *s = open_stepper(&m, NULL);
	run(s, want, ids[0]);
	ig_stepper_close(s);
	for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++) {
		struct ig_plan *stage;
		if (ig_plan_cut(m.plan, ranks, 0, &stage, &err))
			break;
		ig_plan_destroy(stage);
		memset(got, 0, n * sizeof *got);
		s = open_stepper(&m, open_ranks(&r, &m, ranks, path));
		run(s, got, ids[1]);
		ig_stepper_close(s);
		join_ranks(&r);
		for (uint32_t i = 1; i < ranks; i++)
			if (r.rc[i])
				fail_msg("rank %u: %s", i, r.err[i].text);
		assert_memory_equal(got, want, n * sizeof *got);
		assert_memory_equal(ids[1], ids[0], sizeof ids[0]);
	}
	free(want);
	free(got);
	ig_stepper_model_close(&m);
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* Rank 1's reason is rank 0's error, and the ranks go on. */
static void test_rank_without_model(void **state)
{
	const struct ig_program_limits limits = { 32, 4, 4, 128, IG_F16, IG_F16, 8 };
	struct ig_program_memory memory;
	struct ig_program *program;
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	struct ranks r;
	char path[512], other[512];

	model_path(path, "llama3");
	model_path(other, "qwen2");
	assert_int_equal(ig_stepper_model_open(&m, path, NULL, &err), 0);
	struct ig_driver *d = open_ranks(&r, &m, 2, NULL);
	assert_int_equal(ig_driver_lower(d, m.plan, &limits, &program, &memory, &err), -ENOENT);
	assert_string_equal(err.text, "rank 1: no model llama3.gguf here");
	r.path = other;
	assert_int_equal(ig_driver_lower(d, m.plan, &limits, &program, &memory, &err), -EINVAL);
	assert_non_null(strstr(err.text, "is another file than rank 0's"));
	r.path = path;
	assert_int_equal(ig_driver_lower(d, m.plan, &limits, &program, &memory, &err), 0);
	assert_int_equal(ig_program_load(program, &err), 0);
	ig_program_destroy(program);
	ig_driver_close(d);
	join_ranks(&r);
	assert_int_equal(r.rc[1], 0);
	ig_stepper_model_close(&m);
}

/* ---- hostile bytes ---------------------------------------------------------------------------- */

#define ROWS 6
#define SLAB_BYTES (1u << 20)

struct by_hand {
	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	struct ig_kv_layout layouts[IG_MAX_CACHE_GROUPS];
	uint32_t table[IG_MAX_CACHE_GROUPS];
	int32_t ids[ROWS], positions[ROWS], seq[ROWS], lens[1], logit_rows[2];
	struct ig_sample_params sample[2];
	struct ig_logit_adjust adjusts[1];
	void *bases[1];
};

static uint32_t first_slab(void *ctx, const void *base) { return 0; }

static int strides(void *ctx, struct ig_kv_layout *l, struct ig_error *err)
{
	l->k_token_stride = l->v_token_stride = l->head_dim * sizeof(float);
	l->head_stride = l->k_token_stride * IG_BLOCK_TOKENS;
	l->v_offset = l->head_stride * l->n_kv_heads;
	l->layer_stride = l->v_offset * 2;
	l->block_bytes = l->layer_stride * l->n_layers;
	return 0;
}

static void fill(struct by_hand *b, const struct ig_stepper_model *m)
{
	memset(b, 0, sizeof *b);
	for (uint32_t g = 0; g < m->plan->info.n_groups; g++) {
		const struct ig_cache_group *of = &m->plan->info.groups[g];
		b->layouts[g] = (struct ig_kv_layout){ .k_dtype = IG_F32,
						       .v_dtype = IG_F32,
						       .n_layers = of->n_layers,
						       .n_kv_heads = of->n_kv_heads,
						       .head_dim = of->head_dim,
						       .kind = of->kind };
		strides(NULL, &b->layouts[g], NULL);
		b->table[g] = IG_BLOCK_WORD(0, g);
		b->kv[g] = (struct ig_step_kv){ &b->layouts[g], &b->table[g], 1 };
	}
	for (int i = 0; i < ROWS; i++) {
		b->ids[i] = i + 3;
		b->positions[i] = i;
	}
	b->lens[0] = ROWS;
	b->logit_rows[0] = 2;
	b->logit_rows[1] = ROWS - 1;
	b->sample[0] = b->sample[1] = ig_stepper_greedy;
	b->sample[1].n_adjusts = 1;
	b->adjusts[0] = (struct ig_logit_adjust){ .id = 5, .bias = 1 };
	b->step = (struct ig_step){ .struct_size = sizeof b->step,
				    .n_rows = ROWS,
				    .n_seqs = 1,
				    .n_logit_rows = 2,
				    .token_ids = b->ids,
				    .positions = b->positions,
				    .row_seq = b->seq,
				    .seq_lens = b->lens,
				    .logit_rows = b->logit_rows,
				    .sample = b->sample,
				    .slab_bases = b->bases,
				    .kv = b->kv,
				    .n_groups = m->plan->info.n_groups,
				    .n_adjusts = 1,
				    .adjusts = b->adjusts };
}

static uint32_t next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*x >> 33);
}

/* A copy with one of its bytes, or a few numbers, changed. */
static struct ig_message *spoil(const struct ig_message *of, uint64_t *random)
{
	struct ig_message *m = ig_message_create(of->kind, (size_t)of->n_bytes);
	const uint32_t n = 1 + next_random(random) % 3;

	memcpy(m->data, of->data, (size_t)of->n_bytes);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = next_random(random) % (uint32_t)of->n_bytes;
		static const uint32_t numbers[] = { 0,		1,	    2,
						    7,		0x7fffffff, 64,
						    0x80000000, 0xffffffff, 0xfffffffe };
		const size_t word = at & ~3u;
		if (next_random(random) % 2)
			m->data[at] = (uint8_t)next_random(random);
		else if (word + 4 <= of->n_bytes)
			memcpy(m->data + word, &numbers[next_random(random) % 9], 4);
	}
	return m;
}

static uint32_t n_layers_of(const struct ig_stepper_model *m, uint32_t group)
{
	struct ig_plan *stage;

	assert_int_equal(ig_plan_cut(m->plan, 2, 0, &stage, NULL), 0);
	const uint32_t n = stage->info.groups[group].n_layers;
	ig_plan_destroy(stage);
	return n;
}

static void test_hostile_steps(void **state)
{
	const struct ig_program_limits limits = { 32, 4, 4, 64, IG_F32, IG_F32, 8 };
	struct ig_part_slabs slabs = { 0 };
	struct ig_program_memory memory;
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	struct ig_message *rows = NULL, *out = NULL;
	struct ig_part *parts[2];
	struct by_hand b;
	uint64_t random = 11;
	uint32_t n_refused = 0;
	char path[512];

	model_path(path, "llama3");
	assert_int_equal(ig_stepper_model_open(&m, path, NULL, &err), 0);
	assert_int_equal(ig_driver_open("cpu", &one_thread, &slabs.driver, &err), 0);
	assert_int_equal(ig_part_map(&slabs, 0, SLAB_BYTES, &err), 0);
	for (uint32_t i = 0; i < 2; i++) {
		if (ig_part_lower(slabs.driver, m.plan, 2, i, 0, &limits, strides, NULL, &parts[i],
				  &memory, &err) ||
		    ig_part_load(parts[i], &err))
			fail_msg("%s", err.text);
	}
	fill(&b, &m);
	for (uint32_t g = 0; g < b.step.n_groups; g++) { /* as a stage's cache has them */
		b.layouts[g].n_layers = n_layers_of(&m, g);
		strides(NULL, &b.layouts[g], NULL);
	}
	const struct ig_wire_program *p = ig_part_program(parts[1]);
	struct ig_message *good = ig_wire_write_step(p, 1, &b.step, 0, ROWS, first_slab, NULL);
	assert_non_null(good);
	if (ig_part_run(parts[0], &slabs, good, NULL, &rows, &err) ||
	    ig_part_run(parts[1], &slabs, good, rows, &out, &err))
		fail_msg("%s", err.text);
	free(out);
	/* cut short */
	for (uint64_t n = 0; n < good->n_bytes; n++) {
		struct ig_message *m2 = ig_message_create(good->kind, (size_t)n);
		memcpy(m2->data, good->data, (size_t)n);
		assert_int_equal(ig_part_run(parts[1], &slabs, m2, rows, &out, &err), -EPROTO);
		free(m2);
	}
	assert_int_equal(ig_part_run(parts[1], &slabs, good, NULL, &out, &err), -EPROTO);
	for (int i = 0; i < 3000; i++) {
		struct ig_message *bad = spoil(good, &random), *bad_rows = spoil(rows, &random);
		const int rc =
			ig_part_run(parts[1], &slabs, bad, i % 4 ? rows : bad_rows, &out, &err);
		n_refused += rc != 0;
		if (rc)
			assert_true(err.text[0]);
		free(out);
		free(bad);
		free(bad_rows);
	}
	printf("# %u of 3000 refused\n", n_refused);
	assert_true(n_refused > 500);
	/* and what is right is still taken */
	assert_int_equal(ig_part_run(parts[1], &slabs, good, rows, &out, &err), 0);
	free(out);
	free(good);
	free(rows);
	for (uint32_t i = 0; i < 2; i++)
		ig_part_destroy(parts[i]);
	ig_part_unmap_all(&slabs);
	ig_driver_close(slabs.driver);
	ig_stepper_model_close(&m);
}

static void test_what_does_not_travel(void **state)
{
	const int32_t one[1] = { 0 };
	struct ig_error err = { 0 };
	struct ig_step s = { .n_rows = 1 };

	assert_int_equal(ig_wire_check(&s, &err), 0);
	s.next_ids = one;
	assert_int_equal(ig_wire_check(&s, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "guesses"));
	s = (struct ig_step){ .n_rows = 1, .row_adapter = one };
	assert_int_equal(ig_wire_check(&s, &err), -ENOTSUP);
	s = (struct ig_step){ .n_rows = 1, .row_types = one };
	assert_int_equal(ig_wire_check(&s, &err), -ENOTSUP);
	s = (struct ig_step){ .n_rows = 1, .token_from = one };
	assert_int_equal(ig_wire_check(&s, &err), -ENOTSUP);
	s = (struct ig_step){ .n_rows = 1, .sees_to = one };
	assert_int_equal(ig_wire_check(&s, &err), -ENOTSUP);
}

/* Numbers that are in use, or are not; copies beyond a slab. */
static void test_hostile_slabs(void **state)
{
	struct ig_part_slabs s = { 0 };
	struct ig_error err = { 0 };
	const struct ig_wire_copy copies[] = { { 0, 1, 0, 0, 4097 },
					       { 0, 1, 1, 0, 4096 },
					       { 0, 1, 0, UINT64_MAX, 8 },
					       { 0, 2, 0, 0, 8 },
					       { UINT32_MAX, 0, 0, 0, 8 } };

	assert_int_equal(ig_driver_open("cpu", &one_thread, &s.driver, &err), 0);
	assert_int_equal(ig_part_map(&s, 0, 4096, &err), 0);
	assert_int_equal(ig_part_map(&s, 0, 4096, &err), -EPROTO);
	assert_int_equal(ig_part_map(&s, IG_PART_MAX_SLABS, 4096, &err), -EPROTO);
	assert_int_equal(ig_part_map(&s, 1, 4096, &err), 0);
	assert_int_equal(ig_part_unmap(&s, 2, &err), -EPROTO);
	for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
		assert_int_equal(ig_part_copy(&s, &copies[i], &err), -EPROTO);
	assert_int_equal(ig_part_copy(&s, &(struct ig_wire_copy){ 0, 1, 8, 8, 4088 }, &err), 0);
	ig_part_unmap_all(&s);
	ig_driver_close(s.driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "llama3", test_bits, NULL, NULL, (void *)"llama3" },
		{ "gemma3 (windows)", test_bits, NULL, NULL, (void *)"gemma3" },
		{ "qwen35 (states)", test_bits, NULL, NULL, (void *)"qwen35" },
		{ "qwen3moe", test_bits, NULL, NULL, (void *)"qwen3moe" },
		cmocka_unit_test(test_rank_without_model),
		cmocka_unit_test(test_hostile_steps),
		cmocka_unit_test(test_what_does_not_travel),
		cmocka_unit_test(test_hostile_slabs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
