/*
 * test_model_invariance.c: a request's logits and tokens are bit for bit the same
 * whatever runs beside it, however its prompt is cut, on any number of threads and
 * wherever its blocks lie; for each instruction set by itself.
 *
 * With adapters the base's rows have the bits that they have without, and an adapter's are the same
 * alone and among others.
 *
 * ./check divides prompts in fewer ways than --long (brief.h).
 *
 * INGOT_TEST_MODEL names the model's file (without it the tests are skipped),
 * INGOT_TEST_MODELS_MORE further files, separated by ':', for other weight formats.
 * The prompts' ids are those of the truth's golden.
 */
#include "model/formats/adapter.h"
#include "model/formats/checkpoint.h"
#include "tests/brief.h"
#include "tests/golden/model/golden.h"
#include "tests/golden/model/stepper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef INGOT_TEST_GOLDEN
#error "the build names the golden"
#endif

#define N_OTHERS 15
#define MAX_MODELS 8

static struct ig_golden golden;
static struct ig_stepper_model models[MAX_MODELS];
static uint32_t n_models;
static struct ig_plan *adapted[MAX_MODELS]; /* of the same models, with two adapters */

/* What one request gave: the subject's logits at every step, and its tokens. */
struct answer {
	uint32_t n_steps;
	int32_t *ids;  /* [n_steps] */
	float *logits; /* [n_steps, n_vocab] */
};

/* A request under way. */
struct client {
	int seq;
	const int32_t *ids; /* [n_ids] the prompt */
	uint32_t n_ids, fed, chunk;
	uint32_t from_step, n_left; /* tokens still to sample */
	int32_t last;		    /* the last sampled token */
	int draw;		    /* in the step that runs; -1: none */
	struct ig_sample_params sample;
};

static const struct ig_sample_params seeded = {
	.temperature = 0.8f,
	.top_p = 0.9f,
	.top_k = 40,
	.repetition_penalty = 1.0f,
	.mask = -1,
	.seed = 4711,
};

static void put(struct ig_stepper *s, struct client *c)
{
	uint32_t n = c->n_ids - c->fed;

	c->draw = -1;
	if (!c->n_left)
		return;
	if (!n) {
		c->draw = ig_stepper_put(s, c->seq, &c->last, 1, &c->sample);
		assert_in_range(c->draw, 0, N_OTHERS);
		return;
	}
	if (n > c->chunk) {
		assert_int_equal(
			ig_stepper_put(s, c->seq, c->ids + c->fed, (int32_t)c->chunk, NULL), 0);
		c->fed += c->chunk;
		return;
	}
	c->draw = ig_stepper_put(s, c->seq, c->ids + c->fed, (int32_t)n, &c->sample);
	assert_in_range(c->draw, 0, N_OTHERS);
	c->fed += n;
}

static void add_client(struct ig_stepper *s, struct client *c, uint32_t prompt, uint32_t max_ids,
		       uint32_t chunk, uint32_t n_draws, const struct ig_sample_params *sample)
{
	const struct ig_golden_prompt *p = &golden.prompts[prompt];

	*c = (struct client){
		.ids = p->ids,
		.n_ids = p->n_ids < max_ids ? p->n_ids : max_ids,
		.chunk = chunk,
		.n_left = n_draws,
		.sample = *sample,
	};
	c->seq = ig_stepper_add(s, c->n_ids + n_draws);
	assert_true(c->seq >= 0);
}

/* How one machine is tested: instruction set, arithmetic, and how much. */
struct setting {
	int32_t adapter;    /* the subject's number plus one; 0: none */
	bool others_differ; /* the others have none, the first or the second, in turn */
	const char *isa, *activations;
	uint32_t k_dtype, v_dtype;
	uint32_t prompt, max_ids, n_steps; /* the subject's */
	uint32_t others_ids, others_steps; /* the most that others have */
	const uint32_t *alone, *among;	   /* chunks of its prompt, ending with 0 */
};

/* Run the subject, alone or among others that come, prefill in chunks of their own and
 * leave; in every step the rows of all stand in another order. */
static void ask(struct ig_stepper *s, const struct setting *how, uint32_t chunk, bool among_others,
		const struct ig_sample_params *sample, struct answer *a)
{
	static const uint32_t chunks[] = { 5, 64, 1, 16, 33 };
	struct client c[1 + N_OTHERS];
	uint32_t n = 1, n_vocab = ig_stepper_n_vocab(s), got = 0;

	ig_stepper_reset(s);
	add_client(s, &c[0], how->prompt, how->max_ids, chunk, a->n_steps, sample);
	ig_stepper_adapt(s, c[0].seq, how->adapter - 1);
	for (uint32_t i = 0; among_others && i < N_OTHERS; i++, n++) {
		add_client(s, &c[n], (how->prompt + 1 + i) % 24, how->others_ids, chunks[i % 5],
			   1 + i % how->others_steps, i % 2 ? &ig_stepper_greedy : &seeded);
		ig_stepper_adapt(s, c[n].seq, how->others_differ ? (int32_t)(i % 3) - 1 : -1);
		c[n].sample.seed += i;
		c[n].from_step = i % 4;
	}
	for (uint32_t step = 0; got < a->n_steps; step++) {
		for (uint32_t i = 0; i < n; i++) {
			struct client *who = &c[(i + 5 * step) % n];

			who->draw = -1;
			if (step >= who->from_step)
				put(s, who);
		}
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (uint32_t i = 0; i < n; i++) {
			if (c[i].draw < 0)
				continue;
			c[i].last = ig_stepper_sampled(s, c[i].draw);
			assert_in_range(c[i].last, 0, n_vocab - 1);
			c[i].n_left--;
		}
		if (c[0].draw < 0)
			continue;
		a->ids[got] = c[0].last;
		memcpy(a->logits + (size_t)got * n_vocab, ig_stepper_logits(s, c[0].draw),
		       n_vocab * sizeof *a->logits);
		got++;
	}
}

static void make_answer(struct answer *a, uint32_t n_steps, uint32_t n_vocab)
{
	a->n_steps = n_steps;
	a->ids = calloc(n_steps, sizeof *a->ids);
	a->logits = calloc((size_t)n_steps * n_vocab, sizeof *a->logits);
	assert_non_null(a->ids);
	assert_non_null(a->logits);
}

static void free_answer(struct answer *a)
{
	free(a->ids);
	free(a->logits);
}

static void same_bits(const struct answer *a, const struct answer *b, uint32_t n_vocab,
		      const char *how, uint32_t chunk)
{
	for (uint32_t t = 0; t < a->n_steps; t++) {
		const float *x = a->logits + (size_t)t * n_vocab,
			    *y = b->logits + (size_t)t * n_vocab;

		if (memcmp(x, y, n_vocab * sizeof *x)) {
			uint32_t n = 0, first = n_vocab;

			for (uint32_t v = n_vocab; v-- > 0;)
				if (memcmp(&x[v], &y[v], sizeof *x)) {
					n++;
					first = v;
				}
			fail_msg("%s, chunks of %u: %u logits of step %u differ, first %u: %.9g, "
				 "alone %.9g",
				 how, chunk, n, t, first, (double)y[first], (double)x[first]);
		}
		if (a->ids[t] != b->ids[t])
			fail_msg("%s, chunks of %u: token %u is %d, alone %d", how, chunk, t,
				 b->ids[t], a->ids[t]);
	}
}

/* The tokens of an answer, verified as drafts of which the first ones are right: the others leave no trace. */
static void ask_by_drafts(struct ig_stepper *s, const struct setting *how,
			  const struct ig_sample_params *sample, const struct answer *alone,
			  struct answer *a)
{
	uint32_t n_vocab = ig_stepper_n_vocab(s), got = 0;
	int32_t draft[8];
	struct client c;

	ig_stepper_reset(s);
	add_client(s, &c, how->prompt, how->max_ids, 512, a->n_steps + 8, sample);
	ig_stepper_adapt(s, c.seq, how->adapter - 1);
	put(s, &c);
	for (int32_t n = 1, n_right = 0; got < a->n_steps;) {
		int32_t length = ig_stepper_length(s, c.seq) - n;
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int32_t i = 0; i <= n_right && got < a->n_steps; i++, got++) {
			a->ids[got] = ig_stepper_sampled(s, c.draw + i);
			memcpy(a->logits + (size_t)got * n_vocab, ig_stepper_logits(s, c.draw + i),
			       n_vocab * sizeof *a->logits);
		}
		if (got == a->n_steps)
			break;
		ig_stepper_rewind(s, c.seq, length + 1 + n_right);
		n_right = (int32_t)(got % 4);
		if (n_right > (int32_t)(a->n_steps - got))
			n_right = (int32_t)(a->n_steps - got);
		n = 1 + n_right + (int32_t)(got % 3);
		for (int32_t i = 0; i < n; i++) {
			draft[i] = alone->ids[got - 1 + (uint32_t)(i < n_right ? i : n_right)];
			if (i > n_right)
				draft[i] = (draft[i] + i) % (int32_t)n_vocab;
		}
		c.draw = ig_stepper_put_draft(s, c.seq, draft, n, sample);
		assert_in_range(c.draw, 0, N_OTHERS);
	}
}

static int open_stepper(const struct ig_stepper_model *m, const struct setting *c,
			uint32_t n_threads, struct ig_stepper **s)
{
	struct ig_stepper_options o = {
		.isa = c->isa,
		.activations = c->activations,
		.n_threads = n_threads,
		.k_dtype = c->k_dtype,
		.v_dtype = c->v_dtype,
		.max_rows = 512 + N_OTHERS * 64,
		.max_seqs = 1 + N_OTHERS,
		.max_context = 512,
		.cache_tokens = N_OTHERS * 128 + 512,
		.shuffle = n_threads,
	};
	struct ig_error err = { 0 };
	int rc = ig_stepper_open(m, &o, s, &err);

	if (rc && rc != -ENOTSUP)
		fail_msg("%s", err.text);
	return rc;
}

/* 0, or -ENOTSUP when this machine lacks the instruction set. */
static int check_setting(const struct ig_stepper_model *m, const struct setting *c)
{
	const struct ig_sample_params *draws[] = { &ig_stepper_greedy, &seeded };
	struct answer alone[2], other;
	struct ig_stepper *s;
	uint32_t n_vocab;
	int rc = open_stepper(m, c, 2, &s);

	if (rc)
		return rc;
	n_vocab = ig_stepper_n_vocab(s);
	make_answer(&other, c->n_steps, n_vocab);
	for (int d = 0; d < 2; d++) {
		make_answer(&alone[d], c->n_steps, n_vocab);
		ask(s, c, 512, false, draws[d], &alone[d]);
	}
	for (int i = 0; c->alone[i]; i++) {
		ask(s, c, c->alone[i], false, draws[i % 2], &other);
		same_bits(&alone[i % 2], &other, n_vocab, "alone", c->alone[i]);
	}
	ask_by_drafts(s, c, draws[1], &alone[1], &other);
	same_bits(&alone[1], &other, n_vocab, "by drafts", 512);
	for (int i = 0; c->among[i]; i++) {
		ask(s, c, c->among[i], true, draws[i % 2], &other);
		same_bits(&alone[i % 2], &other, n_vocab, "among 15 others", c->among[i]);
	}
	printf("# %s: bit for bit the same\n", ig_stepper_describe(s));
	ig_stepper_close(s);

	rc = open_stepper(m, c, 1, &s);
	assert_int_equal(rc, 0);
	ask(s, c, 512, false, draws[0], &other);
	same_bits(&alone[0], &other, n_vocab, "one thread", 512);
	if (c->among[0] && c->among[1]) {
		ask(s, c, 64, true, draws[1], &other);
		same_bits(&alone[1], &other, n_vocab, "one thread, among 15 others", 64);
	}
	ig_stepper_close(s);
	for (int d = 0; d < 2; d++)
		free_answer(&alone[d]);
	free_answer(&other);
	return 0;
}

static const uint32_t many_alone[] = { 64, 7, 1, 0 }, many_among[] = { 512, 7, 0 };
static const uint32_t few_alone[] = { 7, 0 }, few_among[] = { 64, 0 }, single_alone[] = { 1, 0 };

/* Of q8_0's groups a head has only whole ones. */
static bool takes_q8(const struct ig_stepper_model *m)
{
	bool whole = true;

	for (uint32_t g = 0; g < m->plan->info.n_groups; g++)
		whole = whole && m->plan->info.groups[g].head_dim % 32 == 0;
	return whole;
}

/* Prompt 24 has 340 tokens, so it crosses a range of 256 positions; plain C is slow and
 * takes the start of prompt 16, of 29, among others that are short. */
static void check_isa(const char *isa, bool slow)
{
	unsigned n_ran = 0;

	for (uint32_t i = 0; i < n_models; i++) {
		const bool few = slow || i || ig_brief();
		const struct setting fast = {
			.isa = isa,
			.activations = "auto",
			.k_dtype = IG_F16,
			.v_dtype = IG_F16,
			.prompt = slow ? 16 : 24,
			.max_ids = 512,
			.n_steps = slow ? 3 : 10,
			.others_ids = slow ? 3 : 24,
			.others_steps = slow ? 2 : 9,
			.alone = few ? few_alone : many_alone,
			.among = slow || i ? few_among : many_among,
		};
		const struct setting f32 = {
			.isa = isa,
			.activations = "f32",
			.k_dtype = IG_F32,
			.v_dtype = IG_F32,
			.prompt = fast.prompt,
			.max_ids = slow ? 9 : 270,
			.n_steps = slow ? 2 : 4,
			.others_ids = slow ? 2 : 12,
			.others_steps = slow ? 1 : 4,
			.alone = few_alone,
			.among = few_among,
		};

		struct setting q8 = f32; /* as little, but in the fast arithmetic */

		q8.activations = "auto";
		q8.k_dtype = q8.v_dtype = IG_Q8_0;
		if (!slow && ig_brief()) /* what many_alone has, in turn */
			q8.alone = single_alone;
		if (!strcmp(isa, "avx512_bf16") && !ig_stepper_isa_matters(&models[i], isa)) {
			printf("# %s: the kernels of avx512\n", isa);
			n_ran++;
		} else if (check_setting(&models[i], &fast) == 0 &&
			   check_setting(&models[i], &f32) == 0 &&
			   (!takes_q8(&models[i]) || check_setting(&models[i], &q8) == 0)) {
			n_ran++;
		}
	}
	if (!n_ran)
		printf("# %s: not on this machine\n", isa);
	/* Plain C runs everywhere, and so does what the driver picks by itself. */
	assert_true(n_ran == n_models || (n_ran == 0 && !slow && strcmp(isa, "auto")));
}

static void test_generic(void **state) { check_isa("generic", true); }

static void test_avx2(void **state) { check_isa("avx2", false); }

static void test_avx512(void **state) { check_isa("avx512", false); }

static void test_avx512_bf16(void **state) { check_isa("avx512_bf16", false); }

static void test_neon(void **state) { check_isa("neon", false); }

static void test_neon_dotprod(void **state) { check_isa("neon_dotprod", false); }

static void test_neon_i8mm(void **state) { check_isa("neon_i8mm", false); }

/* Whatever the driver picks: for drivers that have no instruction sets to choose among. */
static void test_auto(void **state) { check_isa("auto", false); }

/* Another prompt gives other logits, another seed other tokens: what same_bits compares
 * is not the same whatever is asked. */
static void test_the_comparison_can_fail(void **state)
{
	const struct setting one = { .isa = "auto",
				     .activations = "auto",
				     .k_dtype = IG_F16,
				     .v_dtype = IG_F16,
				     .prompt = 0,
				     .max_ids = 512 };
	/* A temperature at which eight samples are hardly the eight largest logits. */
	const struct ig_sample_params hot = { .temperature = 3.0f,
					      .top_p = 1.0f,
					      .repetition_penalty = 1.0f,
					      .mask = -1,
					      .seed = 4711 };
	struct setting two = one;
	struct answer a, b;
	struct ig_stepper *s;
	uint32_t n_vocab;

	two.prompt = 1;
	assert_true(ig_stepper_isa_matters(&models[0], "generic"));
	assert_false(ig_stepper_isa_matters(&models[0], "another"));
	assert_int_equal(open_stepper(&models[0], &one, 2, &s), 0);
	n_vocab = ig_stepper_n_vocab(s);
	make_answer(&a, 8, n_vocab);
	make_answer(&b, 8, n_vocab);
	ask(s, &one, 512, false, &ig_stepper_greedy, &a);
	ask(s, &two, 512, false, &ig_stepper_greedy, &b);
	assert_memory_not_equal(a.logits, b.logits, n_vocab * sizeof *a.logits);
	assert_memory_not_equal(a.ids, b.ids, 8 * sizeof *a.ids);
	ask(s, &one, 7, false, &hot, &b);
	assert_memory_equal(a.logits, b.logits, n_vocab * sizeof *a.logits);
	assert_memory_not_equal(a.ids, b.ids, 8 * sizeof *a.ids);
	ig_stepper_close(s);
	free_answer(&a);
	free_answer(&b);
}

/* ---- adapters ---- */

#define N_ADAPTERS 2

static void fill(float *out, int64_t n, float size, uint64_t *seed)
{
	for (int64_t i = 0; i < n; i++) {
		*seed = *seed * 6364136223846793005u + 1442695040888963407u;
		out[i] = ((float)(*seed >> 40) * 0x1p-23f - 1) * size;
	}
}

/* Random matrices for all weights of these kinds. */
static struct ig_adapter *make_adapter(const struct ig_checkpoint *file, const char *const *kinds,
				       int64_t rank, uint64_t seed)
{
	struct ig_adapter *a = calloc(1, sizeof *a);

	assert_non_null(a);
	a->parts = calloc((size_t)ig_checkpoint_n_tensors(file), sizeof *a->parts);
	assert_non_null(a->parts);
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(file); i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(file, i);
		const char *const *k = kinds;
		while (*k && !strstr(t->name, *k))
			k++;
		if (!*k || t->n_dims != 2)
			continue;
		struct ig_adapter_part *p = &a->parts[a->n_parts++];
		*p = (struct ig_adapter_part){
			.n_rows = t->n_rows, .n_cols = t->n_cols, .rank = rank, .scale = 0.5f
		};
		snprintf(p->weight, sizeof p->weight, "%s", t->name);
		p->a = malloc((size_t)(rank * p->n_cols) * sizeof *p->a);
		p->b = malloc((size_t)(rank * p->n_rows) * sizeof *p->b);
		assert_non_null(p->a);
		assert_non_null(p->b);
		fill(p->a, rank * p->n_cols, 0.05f, &seed);
		fill(p->b, rank * p->n_rows, 0.05f, &seed);
	}
	assert_true(a->n_parts > 0);
	return a;
}

static void record_adapted(uint32_t i)
{
	static const char *const first[] = { ".attn_q.weight", ".attn_output.weight",
					     ".ffn_gate.weight", NULL };
	static const char *const second[] = { ".attn_q.weight", ".attn_v.weight", ".ffn_up.weight",
					      ".ffn_down.weight", NULL };
	struct ig_adapter *a[N_ADAPTERS] = { make_adapter(models[i].file, first, 4, 1),
					     make_adapter(models[i].file, second, 9, 2) };
	const struct ig_plan_adapter list[N_ADAPTERS] = { { "first", a[0] }, { "second", a[1] } };
	struct ig_error err = { 0 };

	if (ig_plan_record_adapted(models[i].modules, models[i].file, list, N_ADAPTERS, &adapted[i],
				   &err))
		fail_msg("%s", err.text);
	for (int k = 0; k < N_ADAPTERS; k++)
		ig_adapter_close(a[k]);
}

/* The base's answer is that of a plan without adapters; each adapter's is its own. */
static void check_adapted(uint32_t i, struct setting c)
{
	struct ig_stepper_model with = models[i];
	struct answer alone[1 + N_ADAPTERS], other;
	struct ig_stepper *s;
	uint32_t n_vocab;

	assert_int_equal(open_stepper(&models[i], &c, 2, &s), 0);
	n_vocab = ig_stepper_n_vocab(s);
	make_answer(&other, c.n_steps, n_vocab);
	for (int k = 0; k <= N_ADAPTERS; k++)
		make_answer(&alone[k], c.n_steps, n_vocab);
	ask(s, &c, 512, false, &seeded, &alone[0]);
	ig_stepper_close(s);
	with.plan = adapted[i];
	assert_int_equal(open_stepper(&with, &c, 2, &s), 0);
	c.others_differ = true;
	for (c.adapter = 0; c.adapter <= N_ADAPTERS; c.adapter++) {
		struct answer *a = &alone[c.adapter];
		if (c.adapter) {
			ask(s, &c, 512, false, &seeded, a);
			assert_memory_not_equal(a->logits, a[-1].logits,
						n_vocab * sizeof *a->logits);
		}
		ask(s, &c, 64, true, &seeded, &other);
		same_bits(a, &other, n_vocab, "among 15 others of all adapters", 64);
		if (!ig_brief() || c.adapter == 1) {
			ask(s, &c, 7, false, &seeded, &other);
			same_bits(a, &other, n_vocab, "with adapters, alone", 7);
		}
		if (!ig_brief() || c.adapter == 2) {
			ask_by_drafts(s, &c, &seeded, a, &other);
			same_bits(a, &other, n_vocab, "with adapters, by drafts", 512);
		}
	}
	printf("# %s, two adapters: bit for bit the same\n", ig_stepper_describe(s));
	ig_stepper_close(s);
	for (int k = 0; k <= N_ADAPTERS; k++)
		free_answer(&alone[k]);
	free_answer(&other);
}

static void test_adapters(void **state)
{
	for (uint32_t i = 0; i < n_models; i++) {
		const struct setting fast = { .isa = "auto",
					      .activations = "auto",
					      .k_dtype = IG_F16,
					      .v_dtype = IG_F16,
					      .prompt = 24,
					      .max_ids = 270,
					      .n_steps = 6,
					      .others_ids = 24,
					      .others_steps = 9 };
		const struct setting slow = { .isa = "generic",
					      .activations = "f32",
					      .k_dtype = IG_F32,
					      .v_dtype = IG_F32,
					      .prompt = 16,
					      .max_ids = 9,
					      .n_steps = 2,
					      .others_ids = 2,
					      .others_steps = 1 };
		record_adapted(i);
		check_adapted(i, fast);
		check_adapted(i, slow);
		ig_plan_destroy(adapted[i]);
		adapted[i] = NULL;
	}
}

static int open_models(void **state)
{
	const char *more = getenv("INGOT_TEST_MODELS_MORE");
	char *list = NULL, *rest = NULL, *path;
	struct ig_error err = { 0 };

	if (ig_golden_open(INGOT_TEST_GOLDEN, &golden, &err))
		goto fail;
	if (ig_stepper_model_open(&models[0], getenv("INGOT_TEST_MODEL"), NULL, &err))
		goto fail;
	n_models = 1;
	list = strdup(more ? more : "");
	for (path = list ? strtok_r(list, ":", &rest) : NULL; path;
	     path = strtok_r(NULL, ":", &rest)) {
		if (n_models == MAX_MODELS) {
			ig_fail(&err, -E2BIG, "more than %d models", MAX_MODELS);
			goto fail;
		}
		if (ig_stepper_model_open(&models[n_models], path, NULL, &err))
			goto fail;
		n_models++;
	}
	free(list);
	for (uint32_t i = 0; i < n_models; i++)
		if (models[i].plan->info.n_vocab < golden.n_vocab) {
			printf("# a model with a smaller vocabulary than the golden's\n");
			return -1;
		}
	return 0;
fail:
	free(list);
	printf("# %s\n", err.text);
	return -1;
}

static int close_models(void **state)
{
	for (uint32_t i = 0; i < n_models; i++)
		ig_stepper_model_close(&models[i]);
	ig_golden_close(&golden);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_comparison_can_fail),
		cmocka_unit_test(test_generic),
		cmocka_unit_test(test_avx2),
		cmocka_unit_test(test_avx512),
		cmocka_unit_test(test_avx512_bf16),
		cmocka_unit_test(test_neon),
		cmocka_unit_test(test_neon_dotprod),
		cmocka_unit_test(test_neon_i8mm),
		cmocka_unit_test(test_adapters),
	};
	const struct CMUnitTest any[] = {
		cmocka_unit_test(test_the_comparison_can_fail),
		cmocka_unit_test(test_auto),
	};

	if (!getenv("INGOT_TEST_MODEL")) {
		printf("1..0 # SKIP INGOT_TEST_MODEL does not name the model's file\n");
		return 0;
	}
	if (ig_stepper_on_gpu())
		return cmocka_run_group_tests_name("model invariance", any, open_models,
						   close_models);
	return cmocka_run_group_tests_name("model invariance", tests, open_models, close_models);
}
