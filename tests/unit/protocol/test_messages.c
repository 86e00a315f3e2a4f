/*
 * test_messages.c: Anthropic's messages over the fake engine: requests of every kind of
 * block, responses whole and as events, errors in their format.
 */
#include "daemon/protocol/messages/messages.h"
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATH "/v1/messages"
#define ONE(role, content)                                                                         \
	"{\"max_tokens\":1,\"messages\":[{\"role\":\"" role "\",\"content\":" content "}]"
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
		{ ONE("system", "\"a\"") "}" },
		{ ONE("system", "[{\"type\":\"text\",\"text\":\"a\"}]") "}" },
		{ ONE("system", "[{\"type\":\"tool_result\",\"tool_use_id\":\"x\"}]") "}",
		  "messages[0].content[0].type", "this server has text of the system" },
		{ ONE("developer", "\"a\"") "}", "messages[0].role",
		  "expected user, assistant or system" },
		{ ONE("user", "5") "}", "messages[0].content", "expected a string or a list" },
		{ ONE("user", "null") "}", "messages[0].content", "Missing" },
		{ ONE("user", "[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":5}]") "}",
		  "messages[0].content[0].cache_control", "expected an object" },
		/* an assistant's last message is continued, but not a call */
		{ ONE("assistant", "\"a\"") "}" },
		{ ONE("assistant", "[]") "}", "messages", "no message has a content" },
		{ ONE("assistant", "[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\","
				   "\"input\":{}}]") "}",
		  "messages", "a tool_use without a result" },
		{ ONE("assistant",
		      "\"a\"") ",\"output_config\":{\"format\":{\"type\":\"json_schema\","
			       "\"schema\":{}}}}",
		  "output_config.format", "not with a last message of the assistant" },
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
		{ "{" HI ",\"thinking\":5}", "thinking", "expected an object" },
		{ "{" HI ",\"thinking\":{}}", "thinking.type", "Missing" },
		{ "{" HI ",\"thinking\":{\"type\":5}}", "thinking.type", "expected a string" },
		{ "{" HI ",\"thinking\":{\"type\":\"x\"}}", "thinking.type",
		  "'x'; this server has enabled, adaptive" },
		{ "{" HI ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}}" },
		{ "{" HI ",\"thinking\":{\"type\":\"between_tools\",\"display\":\"updates\"}}" },
		{ "{" HI ",\"thinking\":{\"type\":\"enabled\",\"display\":[]}}", "thinking.display",
		  "expected a string" },
		{ "{" HI ",\"thinking\":{\"type\":\"enabled\",\"display\":\"x\"}}",
		  "thinking.display", "'x'; this server has summarized" },
		{ "{" HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":\"x\"}}",
		  "thinking.budget_tokens", "expected an integer" },
		{ "{" HI
		  ",\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\","
		  "\"keep\":\"all\"}]}}" },
		{ "{" HI ",\"context_management\":[]}", "context_management",
		  "expected an object" },
		{ "{" HI ",\"context_management\":{\"edits\":{}}}", "context_management.edits",
		  "expected a list" },
		{ "{" HI ",\"context_management\":{\"edits\":[5]}}", "context_management.edits[0]",
		  "expected an object" },
		{ "{" HI ",\"context_management\":{\"edits\":[{}]}}",
		  "context_management.edits[0].type", "Missing" },
		{ "{" HI ",\"context_management\":{\"edits\":[{\"type\":\"clear_tool_uses\"}]}}",
		  "context_management.edits[0].type", "'clear_tool_uses'; this server" },
		{ "{" HI ",\"diagnostics\":{}}" },
		{ "{" HI ",\"diagnostics\":{\"a\":1}}", "diagnostics", "accepted only as {}" },
		{ "{" HI ",\"diagnostics\":1}", "diagnostics", "expected {}" },
		{ "{" HI ",\"speed\":\"standard\",\"mcp_servers\":[]}" },
		{ "{" HI ",\"speed\":\"fast\"}", "speed", "accepted only as" },
		{ "{" HI ",\"mcp_servers\":[{}]}", "mcp_servers", "accepted only as []" },
		{ "{" HI ",\"metadata\":{\"x\":\"y\"}}", "metadata.x", "Unsupported" },
		{ "{" HI ",\"output_config\":{\"effort\":\"low\",\"task_budget\":{}}}" },
		{ "{" HI ",\"output_config\":{\"effort\":5}}", "output_config.effort",
		  "expected a string" },
		{ "{" HI ",\"output_config\":{\"effort\":\"x\"}}", "output_config.effort",
		  "'x'; this server has low" },
		{ "{" HI ",\"output_config\":{\"task_budget\":{\"type\":\"tokens\"}}}",
		  "output_config.task_budget", "accepted only as {}" },
		{ "{" HI ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice",
		  "there are no tools" },
		{ "{" HI
		  ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"tool\","
		  "\"name\":\"g\"}}",
		  "tool_choice", "no tool 'g'" },
		{ "{" HI ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}",
		  "tools[0].type", "'bash_20250124'; this server has \"custom\"" },
		{ "{" HI ",\"tools\":[{\"name\":\"f\",\"defer_loading\":true,\"strict\":false}]}" },
		{ "{" HI ",\"tools\":[{\"name\":\"f\",\"defer_loading\":5}]}",
		  "tools[0].defer_loading", "expected a boolean" },
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

/* Of a whole request: its messages, or another member, as JSON. */
static void check_read(const char *json, const char *messages, const char *vars, const char *system,
		       const char *ignored)
{
	struct ig_request r;
	struct ig_api_error e;

	if (ig_request_read(&ig_messages_request, json, strlen(json), false, &r, &e))
		fail_msg("%s: %s", json, e.message);
	char *text = json_dumps(r.messages, JSON_COMPACT);
	assert_string_equal(text, messages);
	free(text);
	text = json_dumps(r.template_vars, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(text ? text : "", vars);
	free(text);
	assert_string_equal(r.instructions ? json_string_value(r.instructions) : "", system);
	assert_string_equal(r.ignored, ignored);
	ig_request_finish(&r);
}

#define USER_A "{\"role\":\"user\",\"content\":\"a\"}"

static void test_agents(void **state)
{
	/* the system's turns stay where they are; what changes in them is left to kvcache.normalize */
	check_read("{\"max_tokens\":1,\"system\":[{\"type\":\"text\",\"text\":"
		   "\"x-anthropic-billing-header: cc_version=2; cch=1f2e3;\"},{\"type\":\"text\","
		   "\"text\":\"s\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}},"
		   "{\"type\":\"text\",\"text\":\"t\"}],\"messages\":[" USER_A
		   ",{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
		   "\"x-anthropic-billing-header: x\"},{\"type\":\"text\",\"text\":\"m\"}]},"
		   "{\"role\":\"system\",\"content\":\"n\"}," USER_A "]}",
		   "[" USER_A
		   ",{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: x\\nm\\nn\"}"
		   "," USER_A "]",
		   "", "x-anthropic-billing-header: cc_version=2; cch=1f2e3;\ns\nt", "");
	/* a user who writes such a text has written it */
	check_read(ONE("user", "\"x-anthropic-billing-header: a\"") "}",
		   "[{\"role\":\"user\",\"content\":\"x-anthropic-billing-header: a\"}]", "", "",
		   "");
	/* what is left out has a name, and its turn stays */
	check_read(
		"{\"max_tokens\":1,\"messages\":[" USER_A
		",{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":[{\"type\":"
		"\"image\",\"source\":{}}]}]}",
		"[" USER_A
		",{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":"
		"\"\"}]",
		"", "", "messages[2].content[0].type=image");
	check_read("{" HI ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}],"
		   "\"thinking\":{\"type\":\"later\"},\"context_management\":{\"edits\":[{\"type\":"
		   "\"clear_tool_uses_20250919\"}]},\"container\":\"c\"}",
		   "[{\"role\":\"user\",\"content\":\"hi\"}]", "", "",
		   "tools[0].type=web_search_20250305, thinking.type=later, "
		   "context_management.edits[0].type=clear_tool_uses_20250919, container");
	check_read("{" HI ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"},"
		   "\"output_config\":{\"effort\":\"xhigh\"}}",
		   "[{\"role\":\"user\",\"content\":\"hi\"}]",
		   "{\"enable_thinking\":true,\"reasoning_effort\":\"xhigh\"}", "", "");
	check_read("{" HI ",\"thinking\":{\"type\":\"disabled\"}}",
		   "[{\"role\":\"user\",\"content\":\"hi\"}]", "{\"enable_thinking\":false}", "",
		   "");
	/* thinking that was not shown is in its signature; another's signature is not text */
	check_read("{\"max_tokens\":1,\"messages\":[" USER_A
		   ",{\"role\":\"assistant\",\"content\":["
		   "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"ingot:hm\"},"
		   "{\"type\":\"thinking\",\"thinking\":\"b\",\"signature\":\"ingot:no\"},"
		   "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"EqAB\"},"
		   "{\"type\":\"text\",\"text\":\"c\"}]}," USER_A "]}",
		   "[" USER_A ",{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":"
		   "\"hm\\nb\\n\"}," USER_A "]",
		   "", "", "");
	/* U+0000 is text, wherever a text is read */
	check_read(
		"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000a\"},"
		"{\"role\":\"assistant\",\"content\":["
		"{\"type\":\"thinking\",\"thinking\":\"b\\u0000c\",\"signature\":\"s\"},"
		"{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"ingot:h\\u0000m\"},"
		"{\"type\":\"text\",\"text\":\"\\u0000\"},"
		"{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"x\":\"\\u0000\"}}]},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
		"\"is_error\":true,\"content\":\"n\\u0000o\"}]}]}",
		"[{\"role\":\"user\",\"content\":\"\\u0000a\"},"
		"{\"role\":\"assistant\",\"content\":\"\\u0000\",\"tool_calls\":[{\"id\":\"t\",\"type\":"
		"\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":\"\\u0000\"}}}],"
		"\"reasoning_content\":\"b\\u0000c\\nh\\u0000m\"},"
		"{\"role\":\"tool\",\"tool_call_id\":\"t\",\"name\":\"f\",\"content\":\"Error: n\\u0000o\"}]",
		"", "", "");
	/* an assistant's last message without text is not there */
	check_read("{\"max_tokens\":1,\"messages\":[" USER_A ",{\"role\":\"assistant\",\"content\":"
		   "\" \\n\"}]}",
		   "[" USER_A "]", "", "", "");
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

#define START_OF(usage)                                                                            \
	"{\"type\":\"message_start\",\"message\":{\"id\":\"#msg_\",\"type\":\"message\","          \
	"\"role\":\"assistant\",\"model\":\"fake\",\"content\":[],\"stop_reason\":null,"           \
	"\"stop_sequence\":null,\"usage\":" usage "}}"
#define START                                                                                      \
	START_OF("{\"input_tokens\":5,\"cache_creation_input_tokens\":0,"                          \
		 "\"cache_read_input_tokens\":3,\"output_tokens\":0}")
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
		START_OF("\"*\""),
		BLOCK("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"),
		DELTA("0", "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}"),
		DELTA("0", "{\"type\":\"signature_delta\",\"signature\":\"#rs_\"}"),
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
		"\"fake\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"#rs_\"},"
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

/* Thinking that the client does not want to see: a block without text, with all in its signature. */
static void test_omitted(void **state)
{
	static const char *const pieces[] = { "<think>h", "m</think>Yes", NULL };
	static const char *const want[] = {
		START,
		BLOCK("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"),
		DELTA("0", "{\"type\":\"signature_delta\",\"signature\":\"ingot:hm\"}"),
		STOP("0"),
		BLOCK("1", "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
		DELTA("1", "{\"type\":\"text_delta\",\"text\":\"Yes\"}"),
		STOP("1"),
		ENDS("end_turn", "2"),
		"{\"type\":\"message_stop\"}",
		NULL,
	};
#define OMITTED ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}"
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_style(&(struct ig_completion_style){ .reasoning = true });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	check_events(body_of(w, post(w, PATH, "{" HI OMITTED ",\"stream\":true}", &h)), want);
	char *body = body_of(w, post(w, PATH, "{" HI OMITTED "}", &h));
	assert_non_null(strstr(body, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":"
				     "\"ingot:hm\"}"));
	free(body);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* A stream that waits in the engine, and then does what script says. */
static struct ig_exchange *begin_waiting(struct world *w, struct fake_script *script)
{
	int n = fake_engine_seen(w->engine).n_submitted;

	script->hold = script->waits = true;
	fake_engine_script(w->engine, script);
	struct ig_exchange *x = begin(w, PATH, "{" HI ",\"stream\":true}");
	while (fake_engine_seen(w->engine).n_submitted == n)
		wait_news(w);
	return x;
}

/* Another client gets its place in the queue: as long as nothing is sent it is refused. */
static void test_displaced(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;
	struct ig_exchange *x =
		begin_waiting(w, &(struct fake_script){ .finish = IG_FINISH_ERROR,
							.error = "the queue is full",
							.error_code = -EAGAIN });

	fake_engine_release(w->engine);
	head_of(w, x, &h);
	assert_int_equal(h.status, 503);
	assert_true(h.retry_after_s > 0);
	char *body = body_of(w, x);
	assert_non_null(strstr(body, "the queue is full"));
	free(body);
}

/* The first event has the tokens that the cache had, so it waits for them, and pings meanwhile; an
 * answer without text has all events. */
static void test_start(void **state)
{
	static const char *const none[] = { NULL };
	static const char *const want[] = { START, ENDS("end_turn", "0"),
					    "{\"type\":\"message_stop\"}", NULL };
	struct world *w = *state;
	struct ig_strbuf b = { 0 };
	struct ig_http_head h;
	struct ig_exchange *x =
		begin_waiting(w, &(struct fake_script){ .pieces = none, .finish = IG_FINISH_STOP });

	/* nor are its headers sent */
	assert_false(ig_exchange_head(x, &h));
	ig_api_tick(w->api, ig_now_ns() + 6000000000);
	assert_true(ig_exchange_head(x, &h));
	assert_int_equal(h.status, 200);
	assert_int_equal(ig_exchange_fill(x, &b), IG_FILL_DATA);
	assert_string_equal(b.data, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
	ig_strbuf_finish(&b);
	fake_engine_release(w->engine);
	check_events(body_of(w, x), want);
}

/* A model's other names: the reply repeats the request's, the engine and the ledger get its own. */
static void test_alias(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	for (int i = 0; i < 2; i++) {
		char *body = body_of(w, post(w, PATH,
					     i ? "{" HI ",\"model\":\"alias-1\",\"stream\":true}" :
						 "{" HI ",\"model\":\"alias-1\"}",
					     &h));
		assert_non_null(strstr(body, "\"model\":\"alias-1\""));
		free(body);
		assert_string_equal(fake_engine_seen(w->engine).model, "spare");
	}
	char too_long[2200];
	snprintf(too_long, sizeof too_long,
		 "{\"model\":\"alias-1\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
		 "\"content\":\"%02000d\"}]}",
		 0);
	char *body = body_of(w, post(w, PATH, too_long, &h));
	assert_int_equal(h.status, 400);
	assert_string_equal(fake_engine_seen(w->engine).refused.model, "spare");
	free(body);
}

/* Templates without a place for a turn get it in another one; a last message of the assistant is
 * left open. */
static void test_turns(void **state)
{
	static const struct {
		struct ig_chat_turns turns;
		const char *system, *messages, *want;
	} rows[] = {
#define M(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
		{ { true, true, true, true },
		  "s",
		  M("user", "a") "," M("system", "b") "," M("assistant", "c"),
		  "system:s;user:a;system:b;assistant:c" },
		{ { true, false, true, true },
		  "s",
		  M("user", "a") "," M("system", "b") "," M("user", "c"),
		  "system:s;user:a\n\nb;user:c;" },
		{ { true, false, false, true },
		  "s",
		  M("user", "a") "," M("system", "b") "," M("user", "c") "," M(
			  "assistant", "d") "," M("system", "e") "," M("user", "f"),
		  "system:s;user:a\n\nb\n\nc;assistant:d;user:e\n\nf;" },
		{ { true, false, true, true },
		  "s",
		  M("system", "a") "," M("system", "b") "," M("user", "c"),
		  "system:s\n\na\nb;user:c;" },
		{ { false, false, true, true },
		  "s",
		  M("user", "a") "," M("assistant", "b") "," M("system", "c"),
		  "user:s\n\na;assistant:b;user:c;" },
		{ { true, false, false, true },
		  "",
		  M("user", "a") "," M("assistant", "b") "," M("system", "c") "," M("assistant",
										    "d"),
		  "user:a;assistant:b;user:c;assistant:d" },
	};
	static const char after_tool[] =
		"{\"max_tokens\":1,\"messages\":[" USER_A
		",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":"
		"\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
		"\"tool_use_id\":\"t\",\"content\":\"r\"},{\"type\":\"text\",\"text\":\"b\"}]}]}";
	struct world *w = *state;
	struct ig_http_head h;
	char body[600];

	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		fake_engine_turns(&rows[i].turns);
		snprintf(body, sizeof body,
			 "{\"max_tokens\":1,\"system\":\"%s\",\"messages\":[%s]}", rows[i].system,
			 rows[i].messages);
		free(body_of(w, post(w, PATH, body, &h)));
		assert_string_equal(fake_engine_seen(w->engine).prompt, rows[i].want);
	}
	fake_engine_style(&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES });
	fake_engine_turns(&(struct ig_chat_turns){ true, true, true, false });
	free(body_of(w, post(w, PATH, after_tool, &h)));
	assert_non_null(strstr(fake_engine_seen(w->engine).prompt, ";tool:r\n\nb;"));
	fake_engine_turns(&(struct ig_chat_turns){ true, true, true, true });
	free(body_of(w, post(w, PATH, after_tool, &h)));
	assert_non_null(strstr(fake_engine_seen(w->engine).prompt, ";tool:r;user:b;"));
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* The words by which clients compact a conversation, or reduce max_tokens.  The context has 2000
 * tokens, of which the reserve is 125; a token is a byte, and 6 are of the role. */
static void test_length(void **state)
{
	static const struct {
		int n, max_tokens;
		const char *words; /* NULL: accepted */
	} rows[] = {
		{ 1869, 32000 },
		{ 1870, 32000,
		  "input length and `max_tokens` exceed context limit: 1876 + 32000 > 2000, decrease "
		  "input length or `max_tokens` and try again (prompt is too long: 1876 tokens > "
		  "1875 maximum" },
		{ 1870, 124 },
		{ 1993, 1 },
		{ 1984, 11, "limit: 1990 + 11 > 2000" },
		{ 1994, 1, "prompt is too long: 2000 tokens > 1999 maximum" },
		{ 9000, 1, "prompt is too long: 8000 tokens > 1999 maximum" },
	};
	struct world *w = *state;
	struct ig_http_head h;
	char body[9200];

	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		snprintf(
			body, sizeof body,
			"{\"max_tokens\":%d,\"messages\":[{\"role\":\"user\",\"content\":\"%0*d\"}]}",
			rows[i].max_tokens, rows[i].n, 0);
		char *got = body_of(w, post(w, PATH, body, &h));
		assert_int_equal(h.status, rows[i].words ? 400 : 200);
		if (rows[i].words && (!strstr(got, rows[i].words) ||
				      !strstr(got, "\"type\":\"invalid_request_error\"")))
			fail_msg("%s", got);
		free(got);
	}
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
		cmocka_unit_test(test_agents),
		TEST(test_whole),
		TEST(test_stream),
		TEST(test_blocks),
		TEST(test_omitted),
		TEST(test_start),
		TEST(test_displaced),
		TEST(test_alias),
		TEST(test_turns),
		TEST(test_length),
		TEST(test_count),
		TEST(test_errors),
	};
	return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
