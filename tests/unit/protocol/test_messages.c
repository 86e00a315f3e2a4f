/*
 * test_messages.c: Anthropic's messages over the fake engine: requests of every kind of
 * block, responses whole and as events, errors in their format.
 */
#include "daemon/protocol/messages/messages.h"
#include "tests/unit/protocol/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATH "/v1/messages"
#define HI "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* ---- requests -------------------------------------------------------------------------- */

static void test_requests(void **state)
{
	static const struct {
		const char *json, *param, *text; /* param NULL: accepted */
	} rows[] = {
		{ "{" HI "}" },
		{ "{" HI
		  ",\"system\":\"s\",\"temperature\":1,\"top_p\":0.9,\"top_k\":5,\"stream\":true,"
		  "\"stop_sequences\":[\"a\"],\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\","
		  "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"cache_control\":{\"type\":"
		  "\"ephemeral\"}}" },
		{ "{" HI
		  ",\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":"
		  "\"ephemeral\"}}]}" },
		{ "{" HI
		  ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":"
		  "\"object\"}}}}" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "max_tokens",
		  "Missing" },
		{ "{\"max_tokens\":1}", "messages", "Missing" },
		{ "{\"max_tokens\":1,\"messages\":[]}", "messages", "at least one" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]}",
		  "messages[0].role", "expected user or assistant" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
		  "\"assistant\",\"content\":\"b\"}]}",
		  "messages", "must be the user's" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
		  "\"source\":{}}]}]}",
		  "messages[0].content[0].type",
		  "'image'; this server has text and tool_result of the user" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
		  "messages[0].content[0].text", "Missing" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
		  "\"tool_use_id\":\"x\"}]}]}",
		  "messages[0].content[0].tool_use_id", "no tool_use before" },
		{ "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"b\"}]}",
		  "messages[0].name", "Unsupported" },
		{ "{" HI ",\"container\":\"c\"}", "container", "Unsupported" },
		{ "{" HI ",\"thinking\":{\"type\":\"x\"}}", "thinking.type", "expected enabled" },
		{ "{" HI ",\"metadata\":{\"x\":\"y\"}}", "metadata.x", "Unsupported" },
		{ "{" HI ",\"output_config\":{\"effort\":\"low\"}}", "output_config.effort",
		  "Unsupported" },
		{ "{" HI ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice",
		  "there are no tools" },
		{ "{" HI
		  ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"tool\","
		  "\"name\":\"g\"}}",
		  "tool_choice", "no tool 'g'" },
		{ "{" HI ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}",
		  "tools[0].type", "accepted only as \"custom\"" },
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int rc = ig_request_read(&ig_messages_request, rows[i].json, strlen(rows[i].json),
					 true, &r, &e);
		if (!rows[i].param ? rc :
				     !rc || strcmp(e.param, rows[i].param) ||
					     !strstr(e.message, rows[i].text))
			fail_msg("%s: %d %s: %s", rows[i].json, rc, e.param, e.message);
		ig_request_finish(&r);
	}
}

static void test_conversation(void **state)
{
	static const char json[] =
		"{\"max_tokens\":1,\"messages\":["
		"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
		"\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"}]},"
		"{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":"
		"\"\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"text\",\"text\":\"d\"},"
		"{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"x\":1}},"
		"{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{}}]},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"content\":"
		"[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
		"\"is_error\":true,\"content\":\"no\"},{\"type\":\"text\",\"text\":\"go on\"}]}]}";
	struct ig_request r;
	struct ig_api_error e;

	assert_int_equal(ig_request_read(&ig_messages_request, json, strlen(json), true, &r, &e),
			 0);
	char *text = json_dumps(r.messages, JSON_COMPACT);
	assert_string_equal(
		text,
		"[{\"role\":\"user\",\"content\":\"a\\nb\\nc\"},"
		"{\"role\":\"assistant\",\"content\":\"d\",\"tool_calls\":["
		"{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
		"{\"x\":1}}},{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
		"\"arguments\":{}}}],\"reasoning_content\":\"hm\"},"
		"{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"name\":\"g\",\"content\":\"r\"},"
		"{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"name\":\"f\",\"content\":\"Error: no\"},"
		"{\"role\":\"user\",\"content\":\"go on\"}]");
	free(text);
	ig_request_finish(&r);
}

/* ---- responses ------------------------------------------------------------------------- */

static void test_whole(void **state)
{
	static const char *const pieces[] = { "Hel", "lo", NULL };
	static const struct {
		enum ig_finish finish;
		int stop;
		const char *reason;
	} rows[] = {
		{ IG_FINISH_STOP, 0, "\"end_turn\",\"stop_sequence\":null" },
		{ IG_FINISH_LENGTH, 0, "\"max_tokens\",\"stop_sequence\":null" },
		{ IG_FINISH_STOP, 2, "\"stop_sequence\",\"stop_sequence\":\"b\"" },
	};
	struct world *w = *state;
	struct ig_http_head h;

	for (size_t i = 0; i < 3; i++) {
		char want[512];
		fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
								     .finish = rows[i].finish,
								     .stop_index = rows[i].stop });
		char *body = body_of(w, post(w, PATH,
					     "{" HI ",\"system\":\"s\",\"stop_sequences\":[\"a\","
					     "\"b\"]}",
					     &h));
		assert_int_equal(h.status, 200);
		snprintf(
			want, sizeof want,
			"{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\","
			"\"model\":\"fake\",\"content\":[{\"type\":\"text\",\"text\":\"Hello\",\"citations\":"
			"null}],\"stop_reason\":%s,\"usage\":{\"input_tokens\":14,"
			"\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":3,"
			"\"output_tokens\":2}}",
			rows[i].reason);
		match_text("body", body, want);
		free(body);
	}
	assert_string_equal(fake_engine_seen(w->engine).prompt, "system:s;user:hi;");
	assert_int_equal(fake_engine_seen(w->engine).max_tokens, 9);
}

/* The events of a stream as "type data" lines are compared with want. */
static void check_events(char *body, const char *const *want)
{
	size_t i = 0;

	for (char *p = body; *p; i++) {
		char *end = strstr(p, "\n\n"), *data = strstr(p, "\ndata: ");
		assert_true(end && data && !memcmp(p, "event: ", 7));
		*end = *data = 0;
		if (!want[i])
			fail_msg("one event too many: %s", data + 7);
		json_t *v = json_loads(data + 7, 0, NULL);
		assert_string_equal(str(v, "type"), p + 7);
		json_decref(v);
		match_text(p + 7, data + 7, want[i]);
		p = end + 2;
	}
	assert_null(want[i]);
	free(body);
}

#define START                                                                                          \
	"{\"type\":\"message_start\",\"message\":{\"id\":\"#msg_\",\"type\":\"message\",\"role\":"     \
	"\"assistant\",\"model\":\"fake\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null," \
	"\"usage\":\"*\"}}"
#define BLOCK(i, block)                                                                            \
	"{\"type\":\"content_block_start\",\"index\":" i ",\"content_block\":" block "}"
#define DELTA(i, delta) "{\"type\":\"content_block_delta\",\"index\":" i ",\"delta\":" delta "}"
#define STOP(i) "{\"type\":\"content_block_stop\",\"index\":" i "}"
#define ENDS(reason, n)                                                                                \
	"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" reason "\","                       \
	"\"stop_sequence\":null},\"usage\":{\"input_tokens\":\"*\",\"cache_creation_input_tokens\":0," \
	"\"cache_read_input_tokens\":3,\"output_tokens\":" n "}}"

static void test_stream(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	static const char *const want[] = {
		START,
		BLOCK("0", "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
		DELTA("0", "{\"type\":\"text_delta\",\"text\":\"a\"}"),
		STOP("0"),
		ENDS("end_turn", "1"),
		"{\"type\":\"message_stop\"}",
		NULL,
	};
	static const char *const broken[] = {
		START,
		BLOCK("0", "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
		DELTA("0", "{\"type\":\"text_delta\",\"text\":\"a\"}"),
		STOP("0"),
		"{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"it broke\"}}",
		NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	check_events(body_of(w, post(w, PATH, "{" HI ",\"stream\":true}", &h)), want);
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .finish = IG_FINISH_ERROR,
							     .error = "it broke" });
	check_events(body_of(w, post(w, PATH, "{" HI ",\"stream\":true}", &h)), broken);
}

#define TOOLS                                                                                      \
	",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}]"

static void test_blocks(void **state)
{
	static const char *const pieces[] = {
		"<think>hm</think>Look. <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>",
		NULL,
	};
	static const char *const invalid[] = {
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1",
		NULL,
	};
	static const char *const want[] = {
		START,
		BLOCK("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"),
		DELTA("0", "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}"),
		STOP("0"),
		BLOCK("1", "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
		DELTA("1", "{\"type\":\"text_delta\",\"text\":\"Look.\"}"),
		STOP("1"),
		BLOCK("2", "{\"type\":\"tool_use\",\"id\":\"#call_\",\"name\":\"f\",\"input\":{}}"),
		DELTA("2", "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\": 1}\"}"),
		STOP("2"),
		ENDS("tool_use", "1"),
		"{\"type\":\"message_stop\"}",
		NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_style(
		&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES, .reasoning = true });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	check_events(body_of(w, post(w, PATH, "{" HI TOOLS ",\"stream\":true}", &h)), want);
	char *body = body_of(w, post(w, PATH, "{" HI TOOLS "}", &h));
	match_text(
		"body", body,
		"{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"
		"\"fake\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
		"{\"type\":\"text\",\"text\":\"Look.\",\"citations\":null},{\"type\":\"tool_use\",\"id\":"
		"\"#call_\",\"name\":\"f\",\"input\":{\"x\":1}}],\"stop_reason\":\"tool_use\","
		"\"stop_sequence\":null,\"usage\":\"*\"}");
	free(body);
	/* truncated arguments are not an object: they become invalid_json */
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = invalid, .finish = IG_FINISH_LENGTH });
	body = body_of(w, post(w, PATH, "{" HI TOOLS "}", &h));
	assert_non_null(strstr(body, "\"input\":{\"invalid_json\":\"{\\\"x\\\": 1\"}"));
	assert_non_null(strstr(body, "\"stop_reason\":\"max_tokens\""));
	free(body);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

static void test_count(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	char *body = body_of(w, post(w, PATH "/count_tokens",
				     "{\"messages\":[{\"role\":\"user\","
				     "\"content\":\"hi\"}],\"system\":\"s\"}",
				     &h));
	assert_int_equal(h.status, 200);
	assert_string_equal(body, "{\"input_tokens\":17}");
	free(body);
	body = body_of(w, post(w, PATH "/count_tokens", "{\"max_tokens\":1}", &h));
	assert_int_equal(h.status, 400);
	free(body);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
}

static void test_errors(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	char *body = body_of(w, post(w, PATH, "{" HI ",\"model\":\"other\"}", &h));
	assert_int_equal(h.status, 404);
	match_text("body", body,
		   "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":"
		   "\"*\"}}");
	free(body);
	body = body_of(w, post(w, PATH, "{", &h));
	assert_int_equal(h.status, 400);
	match_text("body", body,
		   "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
		   "\"message\":\"*\"}}");
	free(body);
	fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = -EAGAIN });
	body = body_of(w, post(w, PATH, "{" HI "}", &h));
	assert_int_equal(h.status, 503);
	assert_int_equal(h.retry_after_s, 2);
	match_text("body", body,
		   "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
		   "\"*\"}}");
	free(body);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_conversation),
		TEST(test_whole),
		TEST(test_stream),
		TEST(test_blocks),
		TEST(test_count),
		TEST(test_errors),
	};
	return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
