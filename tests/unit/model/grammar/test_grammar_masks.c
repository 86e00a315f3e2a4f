/*
 * test_grammar_masks.c: masks against the plain truth: a token is in the mask when its
 * bytes, one after the other, are taken.  Along seeded walks through grammars that are
 * recursive, ambiguous, counted; the second time with the masks that the first one left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test_grammar.h"

#include <pthread.h>

#define N_TOKENS 900
#define N_STEPS 16

static struct ig_tokenizer *tokenizer;
static struct ig_grammar_matcher *ahead; /* copies of all that are checked */

static int setup(void **state)
{
	tokenizer = made_vocabulary(N_TOKENS, NULL, 0);
	ahead = ig_grammar_matcher_create(NULL);
	return 0;
}

static int teardown(void **state)
{
	ig_grammar_matcher_destroy(ahead);
	ig_tokenizer_close(tokenizer);
	return 0;
}

struct walk {
	unsigned long long seed;
	char text[8192];
	size_t len;
	uint32_t mask[N_TOKENS / 32 + 1];
};

static unsigned draw(struct walk *w, unsigned n)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return (unsigned)((w->seed >> 11) % n);
}

/* A matcher after the walk's text, byte by byte. */
static struct ig_grammar_matcher *replay(struct walk *w, struct ig_grammar *g)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);

	assert_true(takes_bytes(m, w->text, w->len));
	return m;
}

static void check_mask(struct walk *w, struct ig_grammar *g, const char *name)
{
	struct ig_grammar_matcher *m = NULL;

	for (int32_t id = 0; id < N_TOKENS; id++) {
		size_t len;
		bool special;
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		if (special) /* test_grammar.c */
			continue;
		if (has_bit(w->mask, MADE_BYTE + (unsigned char)*s) && draw(w, 6))
			continue; /* a part of those that take a new matcher each */
		if (!m)
			m = replay(w, g);
		/* Most fail at once and leave m as it was. */
		bool first = takes_bytes(m, s, 1), all = first && takes_bytes(m, s + 1, len - 1);
		if (all != has_bit(w->mask, id))
			fail_msg("%s, after \"%.*s\": \"%.*s\" is %sin the mask", name, (int)w->len,
				 w->text, (int)len, s, all ? "not " : "");
		if (first) {
			ig_grammar_matcher_destroy(m);
			m = NULL;
		}
	}
	ig_grammar_matcher_destroy(m);
}

/* A copy that goes ahead has the mask that m will have, and leaves m as it is. */
static void go_ahead(struct walk *w, struct ig_grammar_matcher *m, int32_t id)
{
	uint32_t mask[N_TOKENS / 32 + 1] = { 0 };

	ig_grammar_matcher_copy(ahead, m);
	ig_grammar_matcher_mask(ahead, mask);
	assert_memory_equal(mask, w->mask, (N_TOKENS + 31) / 32 * sizeof *mask);
	assert_int_equal(ig_grammar_matcher_accept(ahead, id), 0);
	ig_grammar_matcher_mask(m, mask);
	assert_memory_equal(mask, w->mask, (N_TOKENS + 31) / 32 * sizeof *mask);
	assert_int_equal(ig_grammar_matcher_accept(m, id), 0);
	assert_int_equal(ig_grammar_matcher_is_done(ahead), ig_grammar_matcher_is_done(m));
	ig_grammar_matcher_mask(ahead, w->mask);
	ig_grammar_matcher_mask(m, mask);
	assert_memory_equal(mask, w->mask, (N_TOKENS + 31) / 32 * sizeof *mask);
}

static void walk(struct walk *w, struct ig_grammar *g, const char *name, bool check)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);

	w->len = 0;
	for (int i = 0; i < N_STEPS; i++) {
		int32_t list[N_TOKENS], n = 0, id, best;
		size_t len;
		bool special;
		ig_grammar_matcher_mask(m, w->mask);
		if (check)
			check_mask(w, g, name);
		for (id = 0; id < N_TOKENS; id++)
			if (has_bit(w->mask, id))
				list[n++] = id;
		assert_true(n > 0);
		id = list[draw(w, (unsigned)n)];
		for (int k = 0; k < 6; k++) { /* rather what JSON is made of */
			best = list[draw(w, (unsigned)n)];
			if (best >= N_MADE_LEAST && best < N_MADE_LEAST + 100)
				id = best;
		}
		if (check) /* one thread */
			go_ahead(w, m, id);
		else
			assert_int_equal(ig_grammar_matcher_accept(m, id), 0);
		if (ig_tokenizer_is_end(tokenizer, id))
			break;
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		memcpy(w->text + w->len, s, len);
		w->len += len;
	}
	ig_grammar_matcher_destroy(m);
}

static const struct {
	const char *schema, *regex;
} cases[] = {
	{ "{}", NULL },
	{ "{'type':'object','properties':{'name':{'type':'string'},'id':{'type':'integer'}}}",
	  NULL },
	{ "{'$defs':{'n':{'type':'object','properties':{'value':{'type':'number'},'children':{'type':'array',"
	  "'items':{'$ref':'#/$defs/n'}}},'required':['value','children'],'additionalProperties':false}},"
	  "'$ref':'#/$defs/n'}",
	  NULL },
	/* Two readings of one text, until something tells. */
	{ "{'$defs':{'a':{'type':'object','properties':{'left':{'$ref':'#/$defs/a'},'kind':{'type':'null'}}},"
	  "'b':{'type':'object','properties':{'left':{'$ref':'#/$defs/b'},'type':{'type':'string'}}}},"
	  "'anyOf':[{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'},{'type':'array','items':{'anyOf':["
	  "{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}]}}]}",
	  NULL },
	{ "{'type':'string','minLength':3,'maxLength':70}", NULL },
	{ "{'type':'array','items':{'type':'string','maxLength':4},'minItems':2}", NULL },
	{ "{'type':'string','pattern':'^a.{2,9}(b|hello)+$'}", NULL },
	{ "{'type':'object','additionalProperties':{'type':['boolean','null']}}", NULL },
	{ "{'enum':['true','tru','the',true,null,1.5]}", NULL },
	{ NULL, ".*" },
	{ NULL, "(the|hello|[a-z ]{3,20}, )*end" },
	{ NULL, "[^\"]*(\"[^\"]*\")*" },
	{ NULL, "(.|\\n)*x{2}" },
};

static struct ig_grammar *compile(size_t i)
{
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	if (cases[i].schema ? compile_schema(tokenizer, cases[i].schema, &g, &err) :
			      compile_regex(tokenizer, cases[i].regex, &g, &err))
		fail_msg("%s", err.text);
	return g;
}

static void against_truth(void **state)
{
	struct walk w;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ig_grammar *g = compile(i);
		const char *name = cases[i].schema ? cases[i].schema : cases[i].regex;
		for (int again = 0; again < 2; again++) {
			w.seed = 88172645463325252ull + i;
			for (int k = 0; k < 2; k++)
				walk(&w, g, name, true);
		}
		ig_grammar_unref(g);
	}
}

/* Deep down, where only what closes is allowed. */
static void against_truth_deep(void **state)
{
	struct ig_grammar *g = compile(0);
	struct walk w = { .seed = 7 };
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);

	memset(w.text, '[', 80);
	w.len = 80;
	assert_true(takes_bytes(m, w.text, w.len));
	for (int i = 0; i < 24; i++) { /* across the bound */
		ig_grammar_matcher_mask(m, w.mask);
		if (i > 8)
			for (int32_t id = MADE_BYTE; id < N_TOKENS; id++) {
				/* A token may go on beyond the bound where single bytes may not. */
				struct ig_grammar_matcher *other = replay(&w, g);
				assert_int_equal(!ig_grammar_matcher_accept(other, id),
						 has_bit(w.mask, id));
				ig_grammar_matcher_destroy(other);
			}
		if (ig_grammar_matcher_accept(m, MADE_BYTE + '['))
			break;
		w.text[w.len++] = '[';
	}
	assert_true(w.len > 80 && w.len < 104);
	assert_true(takes_bytes(m, "]", 1));
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
}

struct job {
	struct ig_grammar *g;
	struct walk w;
};

static void *run_job(void *arg)
{
	struct job *j = arg;

	for (int k = 0; k < 60; k++)
		walk(&j->w, j->g, "threads", false);
	return NULL;
}

/* One grammar's masks are made and used by several matchers at once. */
static void in_threads(void **state)
{
	for (size_t i = 0; i < 4; i++) {
		struct ig_grammar *g = compile(i);
		struct job *jobs = calloc(4, sizeof *jobs);
		pthread_t threads[4];
		for (unsigned k = 0; k < 4; k++) {
			jobs[k].g = g;
			jobs[k].w.seed = 1000 + k;
			assert_int_equal(pthread_create(&threads[k], NULL, run_job, &jobs[k]), 0);
		}
		for (unsigned k = 0; k < 4; k++)
			pthread_join(threads[k], NULL);
		jobs[0].w.seed = 5;
		walk(&jobs[0].w, g, "after threads", true);
		free(jobs);
		ig_grammar_unref(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(against_truth),
		cmocka_unit_test(against_truth_deep),
		cmocka_unit_test(in_threads),
	};

	return cmocka_run_group_tests_name("model/grammar_masks", tests, setup, teardown);
}
