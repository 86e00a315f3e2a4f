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
#define NOW_CALL "{\"name\": \"now\", \"arguments\": {}}"

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
	{ .calls = IG_TOOL_CALLS_QWEN },
	{ .calls = IG_TOOL_CALLS_QWEN, .reasoning = true, .opens_reasoning = true },
	{ .calls = IG_TOOL_CALLS_HARMONY },
	{ .calls = IG_TOOL_CALLS_GLM },
	{ .calls = IG_TOOL_CALLS_GLM, .compact = true },
	{ .calls = IG_TOOL_CALLS_KIMI },
	{ .calls = IG_TOOL_CALLS_DEEPSEEK },
	{ .calls = IG_TOOL_CALLS_DEEPSEEK31 },
	{ .calls = IG_TOOL_CALLS_DSML },
	{ .calls = IG_TOOL_CALLS_DSML4 },
	{ .calls = IG_TOOL_CALLS_MINIMAX },
	{ .calls = IG_TOOL_CALLS_GEMMA },
	{ .calls = IG_TOOL_CALLS_GRANITE },
	{ .calls = IG_TOOL_CALLS_LFM2 },
	{ .calls = IG_TOOL_CALLS_PYTHON },
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

static struct ig_grammar_matcher *make_of(const struct ig_completion_style *s, const json_t *list,
					  const struct ig_tool_grammar *spec)
{
	struct ig_grammar_matcher *m;
	struct ig_error err;
	struct ig_grammar *g;

	if (ig_completion_tool_grammar(s, tokenizer, cache, list, spec, &g, &err))
		fail_msg("%s", err.text);
	m = ig_grammar_matcher_create(g);
	assert_non_null(m);
	ig_grammar_unref(g);
	return m;
}

static struct ig_grammar_matcher *make(const struct ig_completion_style *s, const char *name,
				       bool parallel)
{
	return make_of(s, tools, &(struct ig_tool_grammar){ .name = name, .parallel = parallel });
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
	struct ig_completion_parser *p = ig_completion_parser_create(s, true, tools);
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
		/* several in one completion, but for gpt-oss */
		assert_int_equal(most > 1, styles[i].calls != IG_TOOL_CALLS_HARMONY);
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

static void through(const struct ig_completion_style *s, struct ig_grammar_matcher *m,
		    const char *text, bool want)
{
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

static void lets_through(const struct ig_completion_style *s, const char *text, bool want)
{
	through(s, make(s, NULL, true), text, want);
}

/* With auto: any text, but calls of strict tools as their schemas say. */
static void free_text(void **state)
{
	static const struct {
		struct ig_completion_style style;
		const char *good, *other, *bad; /* calls of now, of then, of now with an argument */
	} cases[] = {
		{ { .calls = IG_TOOL_CALLS_HERMES },
		  "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		  "<tool_call>\n{\"name\": \"then\", \"arguments\": {\"x\": 1}}\n</tool_call>",
		  "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": 1}}\n</tool_call>" },
		{ { .calls = IG_TOOL_CALLS_QWEN },
		  "<tool_call>\n<function=now>\n</function>\n</tool_call>",
		  "<tool_call>\n<function=then>\n<parameter=x>\n1\n</parameter>\n</function>\n"
		  "</tool_call>",
		  "<tool_call>\n<function=now>\n<parameter=x>\n1\n</parameter>\n</function>\n"
		  "</tool_call>" },
		{ { .calls = IG_TOOL_CALLS_HARMONY },
		  " to=functions.now <|constrain|>json<|message|>{}",
		  " to=functions.then <|constrain|>json<|message|>{\"x\": 1}",
		  " to=functions.now <|constrain|>json<|message|>{\"x\": 1}" },
		{ { .calls = IG_TOOL_CALLS_MISTRAL },
		  "[TOOL_CALLS][" NOW_CALL "]",
		  "[TOOL_CALLS][{\"name\": \"then\", \"arguments\": {\"x\": 1}}]",
		  "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"x\": 1}}]" },
	};
	json_t *list = json_loads("[{\"function\": {\"name\": \"now\", \"strict\": true, "
				  "\"parameters\": {\"type\": \"object\", \"properties\": {}, "
				  "\"additionalProperties\": false}}}, {\"function\": {\"name\": "
				  "\"then\", \"parameters\": {\"nonsense\": 1}}}]",
				  0, NULL);
	struct ig_tool_grammar spec = { .parallel = true, .free = true };

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct ig_completion_style *s = &cases[i].style;
		char text[400];
		through(s, make_of(s, list, &spec), "Hello {\"a\": 1} \xc3\xa9 <b>", true);
		through(s, make_of(s, list, &spec), "", true);
		through(s, make_of(s, list, &spec), cases[i].good, true);
		through(s, make_of(s, list, &spec), cases[i].other, true);
		through(s, make_of(s, list, &spec), cases[i].bad, false);
		snprintf(text, sizeof text, "I look.%s", cases[i].good);
		through(s, make_of(s, list, &spec), text, true);
		snprintf(text, sizeof text, "I look.%s", cases[i].bad);
		through(s, make_of(s, list, &spec), text, false);
	}
	struct ig_completion_style llama = { .calls = IG_TOOL_CALLS_LLAMA3 };
	through(&llama, make_of(&llama, list, &spec), "It is {now}.", true);
	through(&llama, make_of(&llama, list, &spec), "{\"name\": \"now\", \"parameters\": {}}",
		true);
	through(&llama, make_of(&llama, list, &spec),
		"{\"name\": \"now\", \"parameters\": {\"x\": 1}}", false);
	/* Reasoning is text, too, with its control tokens. */
	struct ig_completion_style thinks = { .calls = IG_TOOL_CALLS_HERMES,
					      .reasoning = true,
					      .opens_reasoning = true };
	through(&thinks, make_of(&thinks, list, &spec), "Hm.</think>Hi", true);
	json_decref(list);
}

/* Text around calls; what is reasoned is no call; custom tools, also where strings have no quotes. */
static void around_calls(void **state)
{
	json_t *list = json_loads(
		"[{\"function\": {\"name\": \"now\", \"strict\": true, \"parameters\": {\"type\": "
		"\"object\", \"properties\": {\"zone\": {\"enum\": [\"UTC\"]}}, "
		"\"additionalProperties\": false}}}, {\"function\": {\"name\": \"patch\", \"strict\": "
		"true, \"parameters\": {\"type\": \"object\", \"properties\": {\"input\": {\"type\": "
		"\"string\", \"x-ingot-grammar\": {\"syntax\": \"lark\", \"definition\": \"start: "
		"\\\"+\\\" /./ \\\"\\\\n\\\"\"}}}, \"required\": [\"input\"], "
		"\"additionalProperties\": false}}}]",
		0, NULL);
	struct ig_tool_grammar spec = { .parallel = true, .free = true }, one = { .free = true };
	const struct ig_completion_style *h = &styles[0], *t = &styles[1];
	struct ig_completion_style q = { .calls = IG_TOOL_CALLS_QWEN };

	assert_non_null(list);
#define UTC "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\":\"UTC\"}}\n</tool_call>"
#define CET "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\":\"CET\"}}\n</tool_call>"
#define PATCH(text)                                                                                \
	"<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\":\"" text "\"}}\n</tool_call>"
	through(h, make_of(h, list, &spec), "Look:\n" UTC "\n" UTC " so " UTC ".", true);
	through(h, make_of(h, list, &spec), "Look:\n" UTC "\n" CET, false);
	through(h, make_of(h, list, &spec), PATCH("+x\\n") " and " PATCH("+\\\"\\n"), true);
	through(h, make_of(h, list, &spec), PATCH("-x\\n"), false);
	through(h, make_of(h, list, &spec), PATCH("+xx\\n"), false);
	through(h, make_of(h, list, &one), "Look: " UTC, true);
	through(h, make_of(h, list, &one), UTC "\n" UTC, false);
	through(t, make_of(t, list, &spec), "Hm <tool_call>?</think>\n\n" UTC, true);
	through(t, make_of(t, list, &spec), "Hm</think>\n\n" CET, false);
#define RAW(text)                                                                                  \
	"<tool_call>\n<function=patch>\n<parameter=input>\n" text "\n</parameter>\n</function>\n"  \
	"</tool_call>"
	through(&q, make_of(&q, list, &spec), RAW("+\"\n"), true);
	through(&q, make_of(&q, list, &spec), RAW("+\"\n") " <", true);
	through(&q, make_of(&q, list, &spec), RAW("\"\n"), false);
	through(&q, make_of(&q, list, &spec), "x <function=", false);
	json_decref(list);
}

/* The place of a custom tool's grammar, which the protocol knows. */
static void refused_grammar(void **state)
{
	json_t *bad = json_loads(
		"[{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"g\", \"strict\": true, "
		"\"parameters\": {\"properties\": {\"input\": {\"x-ingot-grammar\": {\"syntax\": "
		"\"lark\", \"at\": \"tools[7].format.definition\", \"definition\": \"start: "
		"a\"}}}}}}]",
		0, NULL);
	struct ig_tool_grammar spec = { .free = true };
	struct ig_grammar *g;
	struct ig_error err;

	assert_non_null(bad);
	assert_int_equal(
		ig_completion_tool_grammar(&styles[0], tokenizer, cache, bad, &spec, &g, &err),
		-EINVAL);
	assert_string_equal(err.text,
			    "tools[7].format.definition: line 1, column 8: 'a' is not defined");
	json_decref(bad);
}

/* With auto and a response format: calls, or a response. */
static void answers(void **state)
{
	json_t *schema = json_loads("{\"enum\": [\"yes\", \"no\"]}", 0, NULL);
	struct ig_grammar_part part = { .kind = IG_GRAMMAR_SCHEMA, .schema = schema };
	struct ig_tool_grammar spec = { .free = true, .answer = &part };
	struct ig_completion_style h = { .calls = IG_TOOL_CALLS_HARMONY };

	through(&styles[0], make_of(&styles[0], tools, &spec), "\"yes\"", true);
	through(&styles[0], make_of(&styles[0], tools, &spec), "yes", false);
	through(&styles[0], make_of(&styles[0], tools, &spec),
		"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", true);
	through(&styles[1], make_of(&styles[1], tools, &spec), "</think>\n\n\"no\"", true);
	through(&h, make_of(&h, tools, &spec), "<|channel|>final<|message|>\"yes\"", true);
	through(&h, make_of(&h, tools, &spec),
		"<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}", true);
	json_decref(schema);
}

/* The types of values in a format that is not JSON. */
static void members(void **state)
{
	static const char *const args[] = { "<parameter=s>\nany \"text\"\n</parameter>\n",
					    "<parameter=n>\n12\n</parameter>\n",
					    "<parameter=e>\nb c\n</parameter>\n" };
	struct ig_completion_style q = { .calls = IG_TOOL_CALLS_QWEN },
				   l = { .calls = IG_TOOL_CALLS_LFM2 },
				   d = { .calls = IG_TOOL_CALLS_DSML };
	struct ig_tool_grammar spec = { 0 };
	char text[400];
	json_t *list = json_loads(
		"[{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
		"\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, "
		"\"e\": {\"enum\": [\"a\", \"b c\"]}, \"p\": {\"type\": \"string\", "
		"\"pattern\": \"^[0-9]+$\"}}, \"required\": [\"n\"]}}}]",
		0, NULL);

#define WHOLE(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
	for (unsigned bits = 0; bits < 8; bits++) {
		snprintf(text, sizeof text, WHOLE("%s%s%s"), bits & 1 ? args[0] : "",
			 bits & 2 ? args[1] : "", bits & 4 ? args[2] : "");
		through(&q, make_of(&q, list, &spec), text, bits & 2);
	}
	through(&q, make_of(&q, list, &spec), WHOLE("<parameter=n>\nmany\n</parameter>\n"), false);
	through(&q, make_of(&q, list, &spec),
		WHOLE("<parameter=n>\n1\n</parameter>\n<parameter=e>\nc\n</parameter>\n"), false);
	through(&q, make_of(&q, list, &spec),
		WHOLE("<parameter=n>\n1\n</parameter>\n<parameter=p>\n007\n</parameter>\n"), true);
	through(&q, make_of(&q, list, &spec),
		WHOLE("<parameter=n>\n1\n</parameter>\n<parameter=p>\nx\n</parameter>\n"), false);
	through(&q, make_of(&q, list, &spec),
		WHOLE("<parameter=x>\n1\n</parameter>\n<parameter=n>\n1\n</parameter>\n"), false);
	through(&l, make_of(&l, list, &spec),
		"<|tool_call_start|>[f(s=\"x\", n=1, e=\"a\")]<|tool_call_end|>", true);
	through(&l, make_of(&l, list, &spec), "<|tool_call_start|>[f(n=1)]<|tool_call_end|>", true);
	through(&l, make_of(&l, list, &spec), "<|tool_call_start|>[f(, n=1)]<|tool_call_end|>",
		false);
	through(&l, make_of(&l, list, &spec), "<|tool_call_start|>[f(s=x, n=1)]<|tool_call_end|>",
		false);
#define DSML(args)                                                                                 \
	"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n" args                             \
	"</｜DSML｜invoke>\n</｜DSML｜function_calls>"
#define DP(k, string, v)                                                                           \
	"<｜DSML｜parameter name=\"" k "\" string=\"" string "\">" v "</｜DSML｜parameter>\n"
	through(&d, make_of(&d, list, &spec), DSML(DP("s", "true", "x") DP("n", "false", "1")),
		true);
	through(&d, make_of(&d, list, &spec), DSML(DP("s", "false", "x") DP("n", "false", "1")),
		false);
	through(&d, make_of(&d, list, &spec), DSML(DP("n", "true", "1")), false);
	json_decref(list);
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
		cmocka_unit_test(forced),	   cmocka_unit_test(trained),
		cmocka_unit_test(free_text),	   cmocka_unit_test(around_calls),
		cmocka_unit_test(refused_grammar), cmocka_unit_test(answers),
		cmocka_unit_test(members),	   cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
