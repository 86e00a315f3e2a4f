/* The request as JSON, and the events of its response. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/net/response.h"

static char got[256];

static int on_text(void *ctx, const char *s, size_t len)
{
	assert_true(strlen(got) + len < sizeof got);
	strncat(got, s, len);
	return ctx ? *(int *)ctx : 0;
}

static struct ig_response a;
static struct ig_error err;

static int setup(void **state)
{
	got[0] = 0;
	memset(&err, 0, sizeof err);
	ig_response_init(&a, on_text, NULL);
	a.sent_ns = 1000000;
	return 0;
}

static int event(const char *json, int64_t ms)
{
	return ig_response_event(&a, json, strlen(json), ms * 1000000, &err);
}

static void test_request(void **state)
{
	struct ig_strbuf b;
	struct ig_cli_request q = { .prompt = "a \"b\"\n\x01", .prompt_len = 7 };

	b = (struct ig_strbuf){ 0 };
	assert_true(ig_cli_request_write(&q, &b));
	assert_string_equal(b.data, "{\"type\":\"response.create\",\"store\":false,"
				    "\"input\":\"a \\\"b\\\"\\n\\u0001\"}");
	ig_strbuf_clear(&b);
	q = (struct ig_cli_request){ .prompt = "x",
				     .prompt_len = 1,
				     .model = "m",
				     .system = "s",
				     .has_max_tokens = true,
				     .max_tokens = 5,
				     .has_temperature = true,
				     .temperature = 0,
				     .has_top_p = true,
				     .top_p = 0.95,
				     .has_top_k = true,
				     .top_k = 0,
				     .has_seed = true,
				     .seed = INT64_MAX };
	assert_true(ig_cli_request_write(&q, &b));
	json_t *root = json_loads(b.data, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "model")), "m");
	assert_string_equal(json_string_value(json_object_get(root, "instructions")), "s");
	assert_int_equal(json_integer_value(json_object_get(root, "max_output_tokens")), 5);
	assert_true(json_number_value(json_object_get(root, "temperature")) == 0);
	assert_true(json_number_value(json_object_get(root, "top_p")) == 0.95);
	assert_true(json_is_integer(json_object_get(root, "top_k")));
	assert_int_equal(json_integer_value(json_object_get(root, "seed")), INT64_MAX);
	assert_int_equal(json_object_size(root), 10);
	json_decref(root);
	ig_strbuf_finish(&b);
}

static void test_request_of_several_turns(void **state)
{
	struct ig_conversation c;
	struct ig_strbuf b = { 0 };
	struct ig_cli_request q = { .prompt = "and now?", .prompt_len = 8, .history = &c };

	ig_conversation_init(&c);
	assert_true(ig_cli_request_write(&q, &b));
	assert_non_null(strstr(b.data, "\"input\":\"and now?\""));
	ig_strbuf_clear(&b);
	assert_int_equal(ig_conversation_add(&c, "a\n", 2, "b\0", 2), 0);
	assert_true(ig_cli_request_write(&q, &b));
	assert_non_null(strstr(b.data, "\"input\":[{\"role\":\"user\",\"content\":\"a\\n\"},"
				       "{\"role\":\"assistant\",\"content\":\"b\\u0000\"},"
				       "{\"role\":\"user\",\"content\":\"and now?\"}]"));
	ig_conversation_finish(&c);
	ig_strbuf_finish(&b);
}

static void test_cancel(void **state)
{
	struct ig_strbuf b = { 0 };

	assert_true(ig_cli_request_cancel("", &b));
	assert_string_equal(b.data, "{\"type\":\"response.cancel\"}");
	ig_strbuf_clear(&b);
	assert_true(ig_cli_request_cancel("resp_\"1", &b));
	assert_string_equal(b.data,
			    "{\"type\":\"response.cancel\",\"response_id\":\"resp_\\\"1\"}");
	ig_strbuf_finish(&b);
}

static void test_what_can_be_sent(void **state)
{
	struct ig_cli_request q = { .model = "m", .system = "s", .seed = INT64_MAX };

	assert_int_equal(ig_cli_request_check(&q, &err), 0);
	q.seed++;
	assert_int_equal(ig_cli_request_check(&q, &err), -EINVAL);
	q = (struct ig_cli_request){ .model = "" };
	assert_int_equal(ig_cli_request_check(&q, &err), -EINVAL);
	q = (struct ig_cli_request){ .model = "\xff" };
	assert_int_equal(ig_cli_request_check(&q, &err), -EINVAL);
	q = (struct ig_cli_request){ .system = "\xc3" };
	assert_int_equal(ig_cli_request_check(&q, &err), -EINVAL);
}

static void assert_json(const char *text, const char *expected)
{
	struct ig_strbuf b = { 0 };

	assert_true(ig_response_json(&a, text, strlen(text), &b));
	assert_string_equal(b.data, expected);
	ig_strbuf_finish(&b);
}

static void test_json(void **state)
{
	event("{\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"m\"}}", 2);
	event("{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}", 41);
	event("{\"type\":\"response.output_text.delta\",\"delta\":\"b\"}", 541);
	event("{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":31,"
	      "\"input_tokens_details\":{\"cached_tokens\":16},\"output_tokens\":11}}}",
	      601);
	assert_json(
		"a\"b",
		"{\"model\":\"m\",\"text\":\"a\\\"b\",\"finish_reason\":\"stop\",\"usage\":"
		"{\"input_tokens\":31,\"cached_tokens\":16,\"output_tokens\":11},\"timings\":"
		"{\"first_token_ms\":40.000,\"total_ms\":600.000,\"tokens_per_second\":20.000}}\n");
	assert_string_equal(a.model, "m");
	setup(state);
	event("{\"type\":\"error\",\"status\":404,\"error\":{\"code\":\"c\",\"message\":\"no\"}}",
	      5);
	assert_json(
		"",
		"{\"model\":null,\"text\":\"\",\"finish_reason\":\"error\",\"usage\":"
		"{\"input_tokens\":null,\"cached_tokens\":null,\"output_tokens\":null},\"timings\":"
		"{\"first_token_ms\":null,\"total_ms\":4.000,\"tokens_per_second\":null},"
		"\"error\":{\"code\":\"c\",\"message\":\"no\"}}\n");
	setup(state);
	event("{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\","
	      "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}",
	      5);
	assert_string_equal(ig_response_finish_reason(&a), "length");
	setup(state);
	event("{\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":"
	      "{\"reason\":\"content_filter\"}}}",
	      5);
	assert_string_equal(ig_response_finish_reason(&a), "content_filter");
	setup(state);
	event("{\"type\":\"response.incomplete\",\"response\":{\"status\":\"cancelled\"}}", 5);
	assert_string_equal(ig_response_finish_reason(&a), "cancelled");
}

static int on_thought(void *ctx, const char *s, size_t len)
{
	assert_true(len == 3 && !memcmp(s, "hmm", 3));
	strcat(got, "(hmm)");
	return 0;
}

static void test_thoughts(void **state)
{
	a.thought = on_thought;
	event("{\"type\":\"response.reasoning_text.delta\",\"delta\":\"hmm\"}", 3);
	event("{\"type\":\"response.output_text.delta\",\"delta\":\"x\"}", 5);
	assert_string_equal(got, "(hmm)x");
	assert_int_equal(a.first_ns, 3000000);
	a.thought = NULL;
	assert_int_equal(event("{\"type\":\"response.reasoning_text.delta\",\"delta\":7}", 6), 0);
}

static void test_whole_answer(void **state)
{
	char line[300];

	assert_int_equal(
		event("{\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}", 2), 0);
	assert_int_equal(a.state, IG_RESPONSE_STREAMING);
	assert_string_equal(a.id, "resp_1");
	assert_int_equal(event("{\"type\":\"response.in_progress\"}", 3), 0);
	assert_int_equal(event("{\"type\":\"something.new\",\"delta\":7}", 3), 0);
	assert_int_equal(event("{\"type\":\"response.output_text.delta\",\"delta\":\"Gr\"}", 41),
			 0);
	assert_false(ig_response_ended(&a));
	assert_int_equal(
		event("{\"type\":\"response.output_text.delta\",\"delta\":\"\xc3\xbc\xc3\x9f"
		      "e\"}",
		      541),
		0);
	assert_int_equal(
		event("{\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\","
		      "\"status\":\"completed\",\"usage\":{\"input_tokens\":31,"
		      "\"input_tokens_details\":{\"cached_tokens\":16},\"output_tokens\":11}}}",
		      600),
		0);
	assert_int_equal(a.state, IG_RESPONSE_COMPLETED);
	assert_string_equal(got, "Gr\xc3\xbc\xc3\x9f"
				 "e");
	ig_response_summary(&a, line, sizeof line);
	assert_string_equal(line, "11 tokens, 20.0 tok/s, first token after 40.0 ms, "
				  "prompt 31 tokens (16 cached)");
}

static void test_ends(void **state)
{
	char line[300];

	assert_int_equal(
		event("{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\","
		      "\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
		      "\"usage\":{\"output_tokens\":1}}}",
		      5),
		0);
	assert_int_equal(a.state, IG_RESPONSE_INCOMPLETE);
	ig_response_summary(&a, line, sizeof line);
	assert_string_equal(line, "1 token, ended early: max_output_tokens");

	setup(state);
	assert_int_equal(
		event("{\"type\":\"response.incomplete\",\"response\":{\"status\":\"cancelled\"}}",
		      5),
		0);
	assert_int_equal(a.state, IG_RESPONSE_CANCELLED);
	ig_response_summary(&a, line, sizeof line);
	assert_string_equal(line, "tokens not counted, cancelled");

	setup(state);
	assert_int_equal(event("{\"type\":\"response.failed\",\"response\":{\"error\":"
			       "{\"code\":\"server_error\",\"message\":\"no memory\"}}}",
			       5),
			 0);
	assert_int_equal(a.state, IG_RESPONSE_FAILED);
	assert_string_equal(a.error, "no memory");
	assert_string_equal(a.code, "server_error");
}

static void test_errors_of_both_shapes(void **state)
{
	assert_int_equal(
		event("{\"type\":\"error\",\"status\":404,\"error\":{\"code\":\"model_not_found\","
		      "\"message\":\"no model x\\u001b[31m\"}}",
		      5),
		0);
	assert_int_equal(a.state, IG_RESPONSE_FAILED);
	assert_string_equal(a.error, "no model x [31m"); /* nothing that drives a terminal */
	setup(state);
	assert_int_equal(event("{\"type\":\"error\",\"message\":\"flat\",\"code\":null}", 5), 0);
	assert_string_equal(a.error, "flat");
	setup(state);
	assert_int_equal(event("{\"type\":\"error\",\"error\":{}}", 5), 0);
	assert_int_not_equal(strlen(a.error), 0);
}

static void test_nonsense(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"[]",
		"{}",
		"{\"type\":7}",
		"null",
		"{\"type\":\"a\"} {}",
		"{\"type\":\"response.output_text.delta\"}",
		"{\"type\":\"response.output_text.delta\",\"delta\":null}",
		"{\"type\":\"response.completed\"}",
		"{\"type\":\"response.completed\",\"response\":[]}",
		"{\"type\":\"response.output_text.delta\",\"delta\":\"\xff\"}",
	};
	char deep[6000];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (event(bad[i], 5) != -EBADMSG)
			fail_msg("taken: %s", bad[i]);
	memset(deep, '[', sizeof deep);
	assert_int_equal(ig_response_event(&a, deep, sizeof deep, 5, &err), -EBADMSG);
	/* unusual, but not an error */
	assert_int_equal(event("{\"type\":\"response.created\",\"response\":{\"id\":7}}", 5), 0);
	assert_string_equal(a.id, "");
	assert_int_equal(
		event("{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":-1,"
		      "\"output_tokens\":\"x\"}}}",
		      5),
		0);
	assert_int_equal(a.n_input, -1);
	assert_int_equal(a.n_output, -1);
}

/* Texts of any length are cut to fit, and between characters. */
static void test_long_error(void **state)
{
	char json[5000], text[4000];

	for (size_t i = 0; i < sizeof text - 2; i += 2)
		memcpy(text + i, "\xc3\xbc", 3);
	snprintf(json, sizeof json, "{\"type\":\"error\",\"error\":{\"message\":\"x%s\"}}", text);
	assert_int_equal(event(json, 5), 0);
	assert_int_equal(strlen(a.error), sizeof a.error - 1);
	setup(state);
	snprintf(json, sizeof json, "{\"type\":\"error\",\"error\":{\"message\":\"%s\"}}", text);
	assert_int_equal(event(json, 5), 0);
	assert_int_equal(strlen(a.error), sizeof a.error - 2);
}

static size_t n_got;

static int on_bytes(void *ctx, const char *s, size_t len)
{
	n_got += len;
	return memcmp(s, "a\0b", 3) ? -EIO : 0;
}

/* A model may generate any character, also U+0000. */
static void test_nul_in_text(void **state)
{
	ig_response_init(&a, on_bytes, NULL);
	assert_int_equal(
		event("{\"type\":\"response.output_text.delta\",\"delta\":\"a\\u0000b\"}", 5), 0);
	assert_int_equal(n_got, 3);
}

static void test_reader_that_fails(void **state)
{
	int rc = -EPIPE;

	ig_response_init(&a, on_text, &rc);
	assert_int_equal(event("{\"type\":\"response.output_text.delta\",\"delta\":\"x\"}", 5),
			 -EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_request, setup),
		cmocka_unit_test_setup(test_request_of_several_turns, setup),
		cmocka_unit_test_setup(test_cancel, setup),
		cmocka_unit_test_setup(test_what_can_be_sent, setup),
		cmocka_unit_test_setup(test_json, setup),
		cmocka_unit_test_setup(test_thoughts, setup),
		cmocka_unit_test_setup(test_whole_answer, setup),
		cmocka_unit_test_setup(test_ends, setup),
		cmocka_unit_test_setup(test_errors_of_both_shapes, setup),
		cmocka_unit_test_setup(test_nonsense, setup),
		cmocka_unit_test_setup(test_long_error, setup),
		cmocka_unit_test_setup(test_nul_in_text, setup),
		cmocka_unit_test_setup(test_reader_that_fails, setup),
	};

	return cmocka_run_group_tests_name("cli response", tests, NULL, NULL);
}
