/*
 * test_prefix_report.c: what a request is told about the prefix cache: each reason once, how many
 * tokens are the same, the texts and who may see them; and the bounds of what is remembered.
 */
#include "harness.h"

#include "daemon/engine/prompts_private.h"

static struct ig_config config;
static const char *const two[] = { "good", "good2" };
static const char *const windowed[] = { "window" };

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, two, 2);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static struct ig_prefix_report report_of(struct ig_engine *e, const struct ask *a)
{
	struct client c;

	client_ask(&c, e, a);
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
	return c.result.report;
}

static void assert_report(struct ig_engine *e, const struct ask *a, enum ig_prefix_reason reason,
			  int32_t n_same, const char *compared)
{
	struct ig_prefix_report r = report_of(e, a);
	struct ig_ledger_row row = ledger_find(a->id);

	assert_string_equal(ig_prefix_reason_name(r.reason), ig_prefix_reason_name(reason));
	assert_int_equal(r.n_same, n_same);
	assert_string_equal(r.compared, compared);
	assert_int_equal(r.n_other_key, 0);
	assert_string_equal(row.cache_reason, ig_prefix_reason_name(reason));
	assert_string_equal(row.cache_compared, compared);
	assert_int_equal(row.n_same, n_same);
}

/* A conversation, and what it is compared with. */
static void test_reasons(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 30, .seed = 1, .id = "a" }, b = a;
	int32_t tokens[200];
	struct ig_engine *e = harness_engine(&config);

	make_prompt(tokens, 200, 0);
	a.prompt = b.prompt = tokens;
	assert_report(e, &a, IG_PREFIX_FIRST_SEEN, -1, "");
	b.id = "again";
	assert_report(e, &b, IG_PREFIX_FULL, 100, "a");
	/* it begins with all that "again" said */
	for (int i = 100; i < 130; i++)
		tokens[i] = fake_next("good", tokens, i, a.seed);
	tokens[130] = (fake_next("good", tokens, 130, a.seed) + 1) % FAKE_N_TEXT;
	b.id = "more";
	b.n_prompt = 150;
	assert_report(e, &b, IG_PREFIX_EXTENDED, 130, "again");
	/* another word in the middle */
	tokens[77] = (tokens[77] + 1) % FAKE_N_TEXT;
	b.id = "edited";
	assert_report(e, &b, IG_PREFIX_DIVERGED, 77, "more");
	b.id = "model";
	b.model = "good2";
	assert_report(e, &b, IG_PREFIX_OTHER_MODEL, 150, "edited");
	b.model = NULL;
	b.id = "short";
	b.n_prompt = IG_BLOCK_TOKENS;
	assert_report(e, &b, IG_PREFIX_SHORT, 16, "edited");
	b.id = "not so short";
	b.n_prompt++;
	assert_report(e, &b, IG_PREFIX_FULL, 17, "edited");
	harness_close(e);
}

static void test_disabled(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .id = "a" };
	struct ig_engine *e;

	config.kvcache.prefix_cache = false;
	e = harness_engine(&config);
	assert_report(e, &a, IG_PREFIX_DISABLED, -1, "");
	a.id = "b";
	assert_report(e, &a, IG_PREFIX_DISABLED, -1, "");
	harness_close(e);
}

/* Another prompt needs the memory. */
static void test_evicted(void **state)
{
	struct ask a = { .n_prompt = 200, .max_tokens = 3, .id = "a" };
	struct ig_engine *e;

	config.kvcache.arena = 24 * GOOD_BLOCK_BYTES;
	e = harness_engine(&config);
	assert_report(e, &a, IG_PREFIX_FIRST_SEEN, -1, "");
	assert_int_equal(
		report_of(e, &(struct ask){ .n_prompt = 300, .prompt_seed = 9, .max_tokens = 3 })
			.reason,
		IG_PREFIX_FIRST_SEEN);
	a.id = "b";
	assert_report(e, &a, IG_PREFIX_EVICTED, 200, "a");
	harness_close(e);
}

/* Let steps through the gate until the request has ended; another one runs all the while. */
static struct ig_prefix_report report_beside(struct ig_engine *e, const struct ask *a)
{
	struct client c;

	client_ask(&c, e, a);
	while (client_take(&c), !c.over) {
		fake_wait_at_gate();
		fake_allow(1);
	}
	client_drop(&c);
	return c.result.report;
}

/* A long request keeps the start of its prefix in the index, but not the blocks of its window. */
static void test_window(void **state)
{
	struct ask a = { .n_prompt = 300, .max_tokens = 200, .id = "a" };
	struct ask b = { .n_prompt = 100, .max_tokens = 1 };
	struct ig_prefix_report r;
	struct client c;
	struct ig_engine *e;

	harness_config_finish(&config);
	harness_config(&config, windowed, 1);
	config.kvcache.arena = 96 * GOOD_BLOCK_BYTES;
	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	for (int i = 0; i < 8; i++) { /* it has computed its prompt */
		fake_wait_at_gate();
		fake_allow(1);
	}
	for (b.prompt_seed = 1; b.prompt_seed < 12; b.prompt_seed++)
		report_beside(e, &b); /* they need the memory */
	a.n_prompt = 150;
	a.max_tokens = 1;
	a.id = "b";
	r = report_beside(e, &a);
	assert_int_equal(r.reason, IG_PREFIX_WINDOW);
	assert_int_equal(r.n_same, 150);
	assert_string_equal(r.compared, "a");
	assert_string_equal(ledger_find("b").cache_reason, "window");
	fake_open_gate();
	client_finish(&c);
	harness_close(e);
}

/* A request is cancelled before it has computed what another one asks, too. */
static void test_not_computed(void **state)
{
	struct ask a = { .n_prompt = 400, .max_tokens = 3, .id = "a" };
	struct client c;
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	fake_wait_at_gate(); /* its first 64 tokens are computed */
	ig_engine_cancel(e, c.gen, "client_gone");
	fake_open_gate();
	client_finish(&c);
	a.id = "b";
	assert_report(e, &a, IG_PREFIX_NOT_COMPUTED, 400, "a");
	harness_close(e);
}

/* A client learns nothing of another key's prompts; administrators see that there is one. */
static void test_other_key(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .salt = 1, .id = "a" }, b = a;
	struct ig_prefix_report r;
	struct ig_ledger_row row;
	struct ig_engine *e = harness_engine(&config);

	b.wants_report = true;
	assert_report(e, &a, IG_PREFIX_FIRST_SEEN, -1, "");
	b.salt = 2;
	b.id = "b";
	b.compare_with = "a";
	r = report_of(e, &b);
	assert_int_equal(r.reason, IG_PREFIX_FIRST_SEEN);
	assert_int_equal(r.n_same, -1);
	assert_string_equal(r.compared, "");
	assert_true(r.not_found);
	assert_string_equal(r.same, "");
	assert_string_equal(r.earlier, "");
	assert_int_equal(r.n_other_key, 100);
	row = ledger_find("b");
	assert_string_equal(row.cache_reason, "other_key");
	assert_int_equal(row.n_same, 100);
	assert_string_equal(row.cache_compared, "");
	harness_close(e);
}

/* Who shares the cache sees where its prompt differs, not whose prompt it is compared with; without
 * a key its own are those of its address. */
static void test_shared_by_strangers(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .id = "a", .wants_report = true }, b = a;
	int32_t tokens[100];
	struct ig_prefix_report r;
	struct ig_engine *e;

	make_prompt(tokens, 100, 0);
	tokens[50] = (tokens[50] + 1) % FAKE_N_TEXT;
	b.prompt = tokens;
	for (int all = 0; all < 2; all++) {
		strcpy(config.kvcache.share, all ? "all" : "key");
		e = harness_engine(&config);
		a.salt = all;
		b.salt = 2 * (unsigned)all;
		b.client = "192.0.2.7";
		report_of(e, &a);
		r = report_of(e, &b);
		assert_int_equal(r.reason, IG_PREFIX_DIVERGED);
		assert_int_equal(r.n_same, 50);
		assert_string_equal(r.compared, "");
		assert_string_equal(r.same, "");
		assert_string_equal(r.earlier, "");
		assert_string_equal(r.now, "");
		assert_int_equal(r.n_other_key, 0);
		harness_close(e);
	}
}

static void put_expected(char *out, const int32_t *tokens, int from, int to)
{
	out[0] = 0;
	for (int i = from; i < to; i++)
		strcat(out, fake_token_text(tokens[i]));
}

static void test_texts(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .id = "a" }, b = a;
	int32_t tokens[100], other[100];
	struct ig_prefix_report r;
	char text[2000];
	struct ig_engine *e = harness_engine(&config);

	make_prompt(tokens, 100, 0);
	memcpy(other, tokens, sizeof other);
	other[90] = FAKE_CONTROL;
	a.prompt = tokens;
	b.prompt = other;
	report_of(e, &a);
	b.id = "quiet";
	r = report_of(e, &b);
	assert_string_equal(r.now, ""); /* nobody asked for texts */
	b.id = "b";
	b.wants_report = true;
	b.compare_with = "a";
	r = report_of(e, &b);
	assert_int_equal(r.reason, IG_PREFIX_DIVERGED);
	assert_int_equal(r.n_same, 90);
	assert_string_equal(r.compared, "a");
	assert_false(r.not_found);
	put_expected(text, tokens, 70, 90);
	assert_string_equal(r.same, text);
	put_expected(text, tokens, 90, 100);
	assert_memory_equal(r.earlier, text, strlen(text)); /* and its output */
	strcpy(text, FAKE_CONTROL_TEXT);
	put_expected(text + strlen(text), other, 91, 100);
	assert_string_equal(r.now, text);
	/* to the first token there is nothing before it */
	other[0] = (other[0] + 1) % FAKE_N_TEXT;
	r = report_of(e, &b);
	assert_int_equal(r.n_same, 0);
	assert_string_equal(r.compared, "a");
	assert_string_equal(r.same, "");
	put_expected(text, tokens, 0, 20);
	assert_string_equal(r.earlier, text);
	harness_close(e);
}

/* ---- the memory ------------------------------------------------------------------------------- */

static struct ig_prompt_known *add(struct ig_prompts *p, struct ig_seq *s, const char *id,
				   const int32_t *tokens, int32_t n)
{
	static struct ig_model model = { .name = (char *)"m", .shown = { .name = "m" } };
	static struct ig_origin origin;

	*s = (struct ig_seq){
		.model = &model, .shown = &model.shown, .origin = &origin, .n_prompt = n
	};
	snprintf(s->id, sizeof s->id, "%s", id);
	s->tokens = (int32_t *)tokens;
	return ig_prompts_add(p, s);
}

static void test_same_tokens(void **state)
{
	static int32_t a[1000], b[1000];
	struct ig_prompt_known *ka, *kb;
	struct ig_seq sa, sb;
	struct ig_prompts p;

	ig_prompts_init(&p, 1 << 20);
	for (int n = 0; n <= 1000; n = n < 40 ? n + 1 : n + 111) {
		make_prompt(a, 1000, 3);
		memcpy(b, a, sizeof b);
		if (n < 1000)
			b[n]++;
		ka = add(&p, &sa, "a", a, 1000);
		kb = add(&p, &sb, "b", b, 990);
		assert_int_equal(ig_prompts_n_same(ka, kb), n < 990 ? n : 990);
		assert_int_equal(ig_prompts_n_same(kb, ka), n < 990 ? n : 990);
	}
	ig_prompts_finish(&p);
}

/* The oldest that have ended are forgotten; those that run are not. */
static void test_bounds(void **state)
{
	static int32_t tokens[2000];
	static struct ig_seq s[200];
	struct ig_prompt_known *k;
	struct ig_prompts p;
	int n = 0;

	ig_prompts_init(&p, 100000);
	make_prompt(tokens, 2000, 1);
	add(&p, &s[0], "runs", tokens, 2000);
	for (int i = 1; i < 200; i++) {
		char id[16];
		snprintf(id, sizeof id, "%d", i);
		k = add(&p, &s[i], id, tokens, 1000);
		ig_prompts_end(&p, k, 1500, 1400);
		assert_true(p.bytes <= 100000);
	}
	TAILQ_FOREACH(k, &p.list, link)
		n++;
	assert_in_range(n, 5, 16);
	assert_string_equal(TAILQ_FIRST(&p.list)->id, "199");
	assert_string_equal(TAILQ_LAST(&p.list, ig_prompt_list)->id, "runs");
	/* one that is larger than all is not kept */
	k = add(&p, &s[1], "large", tokens, 1000);
	p.max_bytes = 5000;
	ig_prompts_end(&p, k, 2000, 2000);
	assert_string_equal(TAILQ_FIRST(&p.list)->id, "runs");
	/* many short ones */
	p.max_bytes = 1 << 30;
	for (int i = 0; i < IG_PROMPTS_MAX + 100; i++)
		ig_prompts_end(&p, add(&p, &s[1], "short", tokens, 20), 20, 20);
	assert_int_equal(p.n, IG_PROMPTS_MAX);
	assert_string_equal(TAILQ_LAST(&p.list, ig_prompt_list)->id, "runs");
	ig_prompts_finish(&p);
	assert_int_equal(p.bytes, 0);
	assert_int_equal(p.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define UNIT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		UNIT(test_reasons),
		UNIT(test_disabled),
		UNIT(test_evicted),
		UNIT(test_window),
		UNIT(test_not_computed),
		UNIT(test_other_key),
		UNIT(test_shared_by_strangers),
		UNIT(test_texts),
		UNIT(test_same_tokens),
		UNIT(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
