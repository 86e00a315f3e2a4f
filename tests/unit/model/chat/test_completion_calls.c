/*
 * test_completion_calls.c: required tool calls, from the grammar to the parser.
 *
 * Texts sampled at random under the grammar are parsed as tool calls with arguments that are
 * objects; and the grammar allows what a model of the format was trained to write.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "made_vocabulary.h"
#include "model/chat/completion.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define N_VOCAB 1500

static const char tools_text[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
	"{\"type\": "
	"\"object\", \"properties\": {\"place\": {\"enum\": [\"Rome\", \"\xc5\x81\xc3\xb3"
	"d\xc5"
	"\xba\"]}, "
	"\"days\": {\"type\": \"boolean\"}}, \"required\": [\"place\"], \"additionalProperties\": "
	"false}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": "
	"{\"type\": "
	"\"object\", \"properties\": {}, \"additionalProperties\": false}}}]";

static const struct ig_completion_style styles[] = {
	{ .calls = IG_TOOL_CALLS_HERMES },
	{ .calls = IG_TOOL_CALLS_HERMES, .reasoning = true, .opens_reasoning = true },
	{ .calls = IG_TOOL_CALLS_LLAMA3 },
	{ .calls = IG_TOOL_CALLS_MISTRAL },
	{ .calls = IG_TOOL_CALLS_MISTRAL, .reasoning = true, .opens_reasoning = true },
	{ .calls = IG_TOOL_CALLS_MISTRAL_ARGS },
};

static struct ig_tokenizer *tokenizer;
static struct ig_grammar_cache *cache;
static json_t *tools;

static int set_up(void **state)
{
	tokenizer = made_vocabulary(N_VOCAB, NULL, 0);
	tools = json_loads(tools_text, 0, NULL);
	return ig_grammar_cache_create(1 << 24, &cache) || !tokenizer || !tools;
}

static int tear_down(void **state)
{
	ig_grammar_cache_destroy(cache);
	ig_tokenizer_close(tokenizer);
	json_decref(tools);
	return 0;
}

static struct ig_grammar_matcher *make(const struct ig_completion_style *s, const char *name,
				       bool parallel)
{
	struct ig_grammar_matcher *m;
	struct ig_error err;
	struct ig_grammar *g;

	if (ig_completion_tool_grammar(
		    s, tokenizer, cache, tools,
		    &(struct ig_tool_grammar){ .name = name, .parallel = parallel }, &g, &err))
		fail_msg("%s", err.text);
	m = ig_grammar_matcher_create(g);
	assert_non_null(m);
	ig_grammar_unref(g);
	return m;
}

/* ---- from the grammar to the parser ----------------------------------------------------- */

struct seen {
	struct ig_strbuf name, arguments;
	unsigned n_calls, n_of[2];
};

static void on_event(void *ctx, const struct ig_completion_event *e)
{
	struct seen *s = ctx;

	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	/* Nothing but calls. */
	assert_true(e->kind != IG_COMPLETION_TEXT && e->kind != IG_COMPLETION_REASONING);
	if (e->kind == IG_COMPLETION_TOOL_CALL) {
		ig_strbuf_clear(&s->name);
		ig_strbuf_clear(&s->arguments);
		ig_strbuf_add(&s->name, e->data, e->len);
	} else if (e->kind == IG_COMPLETION_ARGUMENTS) {
		ig_strbuf_add(&s->arguments, e->data, e->len);
	} else {
		json_t *a = json_loads(s->arguments.data, JSON_REJECT_DUPLICATES, NULL);
		const char *place = json_string_value(json_object_get(a, "place"));
		bool is_now = !strcmp(s->name.data, "now");
		assert_true(json_is_object(a));
		if (is_now) {
			assert_int_equal(json_object_size(a), 0);
		} else {
			assert_string_equal(s->name.data, "get_weather");
			assert_non_null(place);
			assert_true(!strcmp(place, "Rome") || !strcmp(place, "\xc5\x81\xc3\xb3"
									     "d\xc5\xba"));
		}
		s->n_of[is_now]++;
		s->n_calls++;
		json_decref(a);
	}
}

static uint64_t seed = 88172645463325252u;

static uint32_t draw(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed % n);
}

/* One of the tokens that may come; the end where it may come, one time in two. */
static int32_t choose(struct ig_grammar_matcher *m)
{
	static uint32_t mask[(N_VOCAB + 31) / 32];
	int32_t ids[N_VOCAB];
	uint32_t n = 0;

	ig_grammar_matcher_mask(m, mask);
	for (int32_t id = 0; id < N_VOCAB; id++) {
		if (!(mask[id / 32] >> (id % 32) & 1))
			continue;
		if (ig_tokenizer_is_end(tokenizer, id) && draw(2))
			return id;
		ids[n++] = id;
	}
	assert_true(n > 0);
	return ids[draw(n)];
}

/* Returns how many calls one walk made. */
static unsigned walk(const struct ig_completion_style *s, const char *name, bool parallel,
		     struct seen *seen)
{
	struct ig_grammar_matcher *m = make(s, name, parallel);
	struct ig_completion_parser *p = ig_completion_parser_create(s, true, NULL);
	unsigned before = seen->n_calls;

	assert_non_null(p);
	for (int n = 0;; n++) {
		int32_t id = choose(m);
		bool special;
		size_t len;
		const char *text = ig_tokenizer_token(tokenizer, id, &len, &special);
		/* White space in JSON could go on for ever, but not by chance. */
		assert_true(n < 100000);
		assert_int_equal(ig_grammar_matcher_accept(m, id), 0);
		if (ig_tokenizer_is_end(tokenizer, id))
			break;
		assert_int_equal(ig_completion_parser_feed(p, text, len, false, on_event, seen), 0);
	}
	assert_int_equal(ig_completion_parser_feed(p, NULL, 0, true, on_event, seen), 0);
	ig_completion_parser_destroy(p);
	ig_grammar_matcher_destroy(m);
	return seen->n_calls - before;
}

static void forced(void **state)
{
	for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
		struct seen seen = { 0 };
		unsigned most = 0;
		for (int k = 0; k < 50; k++) {
			unsigned n = walk(&styles[i], NULL, true, &seen);
			assert_in_range(n, 1, 16);
			most = n > most ? n : most;
			assert_int_equal(walk(&styles[i], NULL, false, &seen), 1);
		}
		assert_true(most > 1); /* several in one completion */
		assert_true(seen.n_of[0] && seen.n_of[1]);
		seen.n_of[0] = 0;
		for (int k = 0; k < 10; k++)
			walk(&styles[i], "now", true, &seen);
		assert_int_equal(seen.n_of[0], 0);
		ig_strbuf_finish(&seen.name);
		ig_strbuf_finish(&seen.arguments);
	}
}

/* ---- what models were trained to write ------------------------------------------------------ */

static void lets_through(const struct ig_completion_style *s, const char *text, bool want)
{
	struct ig_grammar_matcher *m = make(s, NULL, true);
	static uint32_t mask[(N_VOCAB + 31) / 32];
	struct ig_ids ids = { 0 };
	size_t n = 0;

	/* Its control tokens are control tokens. */
	assert_int_equal(ig_tokenizer_encode(tokenizer, text, strlen(text), true, 10000, &ids), 0);
	while (n < ids.n && !ig_grammar_matcher_accept(m, ids.ids[n]))
		n++;
	if (n == ids.n) {
		ig_grammar_matcher_mask(m, mask);
		n += mask[MADE_END / 32] >> (MADE_END % 32) & 1;
	}
	if ((n == ids.n + 1) != want)
		fail_msg("%u: %s at token %zu of %zu", (unsigned)s->calls, text, n, ids.n);
	ig_ids_finish(&ids);
	ig_grammar_matcher_destroy(m);
}

static void trained(void **state)
{
#define NOW "{\"name\": \"now\", \"arguments\": {}}"
#define ROME "{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Rome\", \"days\": true}}"
#define TAG(call) "<tool_call>\n" call "\n</tool_call>"
	lets_through(&styles[0], TAG(NOW), true);
	lets_through(&styles[0], TAG(ROME) "\n" TAG(NOW) "\n" TAG(NOW), true);
	lets_through(&styles[0], TAG(NOW) "\n", false);
	lets_through(&styles[0], "Hello", false);
	lets_through(&styles[1], TAG(NOW), false);
	lets_through(&styles[1], "</think>\n\n" TAG(NOW), true);
	lets_through(&styles[2], "{\"name\": \"now\", \"parameters\": {}}", true);
	lets_through(&styles[2],
		     "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", "
		     "\"parameters\": {\"place\": \"\xc5\x81\xc3\xb3"
		     "d\xc5\xba\"}}",
		     true);
	lets_through(&styles[2], "{\"name\": \"then\", \"parameters\": {}}", false);
	lets_through(&styles[3], "[TOOL_CALLS][" ROME ", " NOW "]", true);
	lets_through(&styles[3], "[TOOL_CALLS][]", false);
	lets_through(&styles[4], "</think>\n\n[TOOL_CALLS][" NOW "]", true);
	lets_through(&styles[5], "[TOOL_CALLS]now[ARGS]{}", true);
	lets_through(&styles[5],
		     "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{\"place\": "
		     "\"Rome\"}",
		     true);
	lets_through(&styles[5], "[TOOL_CALLS]now[ARGS]{\"a\": 1}", false);
}

/* Whose schema can't be held. */
static void refused(void **state)
{
	json_t *bad = json_loads("[{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": "
				 "\"g\", "
				 "\"parameters\": {\"properties\": {\"a\": {\"type\": "
				 "\"nothing\"}}}}}]",
				 0, NULL);
	struct ig_grammar *g;
	struct ig_error err;

	assert_int_equal(ig_completion_tool_grammar(&styles[0], tokenizer, cache, bad,
						    &(struct ig_tool_grammar){ .parallel = true },
						    &g, &err),
			 -EINVAL);
	assert_memory_equal(err.text, "tools[1].function.parameters: ", 30);
	assert_non_null(strstr(err.text, "a"));
	assert_non_null(strstr(err.text, "nothing"));
	assert_null(g);
	json_decref(bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forced),
		cmocka_unit_test(trained),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
