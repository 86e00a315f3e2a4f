/* test_ollama.c: Ollama's parameters, each at a value that is taken and at one that is refused, and
 * what becomes of them. */
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/ollama/ollama_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ASK "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define CALL(name) "{\"function\":{\"name\":\"" name "\",\"arguments\":{\"x\":1}}}"
#define CALLS(list) "{\"role\":\"assistant\",\"tool_calls\":[" list "]}"

/* Refused, with what the message must have. */
static const struct {
	const char *json, *text;
} refused[] = {
	{ "", "'model'" },
	{ "\"model\":\"\"", "'model'" },
	{ "\"model\":1", "'model'" },
	{ ASK ",\"stream\":1", "'stream'" },
	{ ASK ",\"keep_alive\":true", "'keep_alive'" },
	{ ASK ",\"keep_alive\":\"5x\"", "'keep_alive'" },
	{ ASK ",\"keep_alive\":\"5m3\"", "'keep_alive'" },
	{ ASK ",\"keep_alive\":\"-\"", "'keep_alive'" },
	{ ASK ",\"keep_alive\":\"1.2.3s\"", "'keep_alive'" },
	{ ASK ",\"keep_alive\":\".\"", "'keep_alive'" },
	{ ASK ",\"think\":\"much\"", "'think'" },
	{ ASK ",\"think\":1", "'think'" },
	{ ASK ",\"format\":\"xml\"", "'format'" },
	{ ASK ",\"format\":[]", "'format'" },
	{ ASK ",\"options\":[]", "'options'" },
	{ ASK ",\"options\":{\"num_predict\":-3}", "'options.num_predict'" },
	{ ASK ",\"options\":{\"temperature\":2.5}", "'options.temperature'" },
	{ ASK ",\"options\":{\"top_p\":0}", "'options.top_p'" },
	{ ASK ",\"options\":{\"seed\":1.5}", "'options.seed'" },
	{ ASK ",\"options\":{\"num_ctx\":\"x\"}", "'options.num_ctx'" },
	{ ASK ",\"options\":{\"use_mmap\":1}", "'options.use_mmap'" },
	{ ASK ",\"top_logprobs\":1", "'top_logprobs'" },
	{ ASK ",\"logprobs\":true,\"top_logprobs\":21", "'top_logprobs'" },
	{ "\"model\":\"m\",\"messages\":{}", "'messages'" },
	{ "\"model\":\"m\",\"messages\":[{\"role\":\"judge\"}]", "'messages[0].role'" },
	{ "\"model\":\"m\",\"messages\":[" CALLS(
		  "{\"function\":{\"name\":\"f\",\"arguments\":\"\"}}") "]",
	  "'messages[0].tool_calls[0].function.arguments'" },
	{ "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"images\":[1]}]",
	  "'messages[0].images[0]'" },
	{ "\"model\":\"m\",\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"x\"}]",
	  "'messages[0].tool_call_id'" },
};

static void test_refused(void **state)
{
	struct ig_request r;
	struct ig_api_error e;
	char json[1024];

	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		snprintf(json, sizeof json, "{%s}", refused[i].json);
		int rc =
			ig_request_read(&ig_ollama_chat_request, json, strlen(json), false, &r, &e);
		if (!rc || e.status != 400 || !strstr(e.message, refused[i].text))
			fail_msg("%s: %d %s", json, e.status, e.message);
		ig_request_finish(&r);
	}
}

static void take(const struct ig_request_format *format, struct ig_request *r, const char *fmt, ...)
{
	struct ig_api_error e;
	char json[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(json, sizeof json, fmt, ap);
	va_end(ap);
	if (ig_request_read(format, json, strlen(json), false, r, &e))
		fail_msg("%s: %s", json, e.message);
}

static void test_keep_alive(void **state)
{
	static const struct {
		const char *json;
		int64_t ns;
	} rows[] = {
		{ "0", 0 },
		{ "\"0\"", 0 },
		{ "300", 300000000000 },
		{ "0.5", 500000000 },
		{ "-1", -1 },
		{ "\"-1\"", -1 },
		{ "\"-1m\"", -1 },
		{ "\"5m\"", 300000000000 },
		{ "\"1h30m\"", 5400000000000 },
		{ "\"1.5h\"", 5400000000000 },
		{ "\"250ms\"", 250000000 },
		{ "\"+2s\"", 2000000000 },
		{ "\"20\"", 20000000000 },
		{ "1e300", -1 },
		{ "\"99999999999999999999h\"", -1 },
	};
	struct ig_request r;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		take(&ig_ollama_chat_request, &r, "{" ASK ",\"keep_alive\":%s}", rows[i].json);
		if (!r.has_keep_alive || r.keep_alive_ns != rows[i].ns)
			fail_msg("%s: %lld", rows[i].json, (long long)r.keep_alive_ns);
		ig_request_finish(&r);
	}
	take(&ig_ollama_chat_request, &r, "{" ASK "}");
	assert_false(r.has_keep_alive);
	ig_request_finish(&r);
}

static void test_values(void **state)
{
	struct ig_request r;

	take(&ig_ollama_chat_request, &r, "{" ASK "}");
	assert_true(r.stream && !r.no_output && r.think == IG_THINK_UNSET);
	assert_true(r.sampling.temperature == 0.8 && r.sampling.top_k == 40 &&
		    r.sampling.top_p == 0.9 && !r.sampling.max_tokens && !r.has_seed);
	ig_request_finish(&r);
	take(&ig_ollama_chat_request, &r,
	     "{" ASK
	     ",\"stream\":false,\"think\":\"low\",\"format\":{\"type\":\"object\"},\"options\":"
	     "{\"temperature\":0.5,\"top_k\":7,\"top_p\":0.25,\"min_p\":0.125,\"num_predict\":9,\"seed\":3,"
	     "\"repeat_penalty\":1.5,\"presence_penalty\":1,\"frequency_penalty\":-1,\"stop\":\"x\","
	     "\"num_ctx\":8,\"mirostat\":0,\"zeppelin\":1}}");
	assert_true(!r.stream && r.think == IG_THINK_ON && r.form == IG_OUTPUT_SCHEMA);
	assert_true(r.sampling.temperature == 0.5 && r.sampling.top_k == 7 &&
		    r.sampling.top_p == 0.25 && r.sampling.min_p == 0.125 &&
		    r.sampling.max_tokens == 9 && r.has_seed && r.sampling.seed == 3 &&
		    r.sampling.repetition_penalty == 1.5 && r.sampling.presence_penalty == 1 &&
		    r.sampling.frequency_penalty == -1);
	assert_string_equal(r.sampling.stops[0], "x");
	assert_string_equal(r.ignored, "options.num_ctx, options.zeppelin");
	assert_string_equal(ig_json_text(r.template_vars, "reasoning_effort"), "low");
	ig_request_finish(&r);
	take(&ig_ollama_chat_request, &r, "{\"model\":\"m\",\"messages\":[]}");
	assert_true(r.no_output && !r.stream);
	ig_request_finish(&r);
	take(&ig_ollama_generate_request, &r, "{\"model\":\"m\"}");
	assert_true(r.no_output);
	ig_request_finish(&r);
	take(&ig_ollama_generate_request, &r, "{\"model\":\"m\",\"prompt\":\"a\",\"raw\":true}");
	assert_true(!r.messages && r.n_prompts == 1 && r.prompts[0].len == 1);
	ig_request_finish(&r);
	take(&ig_ollama_generate_request, &r,
	     "{\"model\":\"m\",\"prompt\":\"a\",\"system\":\"s\",\"suffix\":\"\",\"context\":[]}");
	assert_int_equal(json_array_size(r.messages), 2);
	ig_request_finish(&r);
}

/* Of the i-th message. */
static const char *member(const struct ig_request *r, size_t i, const char *name)
{
	return ig_json_text(json_array_get(r->messages, i), name);
}

/* Results that name no call are those of the first one that has none. */
static void test_results(void **state)
{
	struct ig_request r;

	take(&ig_ollama_chat_request, &r,
	     "{\"model\":\"m\",\"messages\":[" CALLS(CALL("f") "," CALL("g") "," CALL(
		     "f")) ","
			   "{\"role\":\"tool\",\"content\":\"1\",\"tool_name\":\"g\"},{\"role\":\"tool\",\"content\":\"2\"},"
			   "{\"role\":\"tool\",\"content\":\"3\"},{\"role\":\"tool\",\"content\":\"4\",\"tool_name\":\"h\"},"
			   "{\"role\":\"tool\"}]}");
	json_t *calls = json_object_get(json_array_get(r.messages, 0), "tool_calls");
	for (size_t i = 0; i < 3; i++) {
		static const size_t of[] = { 1, 0, 2 };
		const char *id = ig_json_text(json_array_get(calls, of[i]), "id");
		assert_int_equal(strlen(id), 9);
		assert_string_equal(member(&r, 1 + i, "tool_call_id"), id);
		assert_string_equal(member(&r, 1 + i, "name"),
				    ig_tool_name(json_array_get(calls, of[i])));
	}
	/* a result without a call stays one */
	assert_null(member(&r, 4, "tool_call_id"));
	assert_string_equal(member(&r, 4, "name"), "h");
	assert_string_equal(member(&r, 5, "content"), "");
	ig_request_finish(&r);
	/* a client that dropped the calls' ids, but not the result's */
	take(&ig_ollama_chat_request, &r,
	     "{\"model\":\"m\",\"messages\":[" CALLS(
		     CALL("f")) ",{\"role\":\"tool\",\"tool_call_id\":"
				"\"abc\"}]}");
	assert_int_equal(strlen(member(&r, 1, "tool_call_id")), 9);
	ig_request_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_keep_alive),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
