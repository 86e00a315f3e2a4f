/*
 * test_responses_items.c: the input of Responses: items as messages, tools as functions, and what is
 * refused of both.
 */
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses.h"
#include "tests/unit/protocol/responses_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALL(id, name, arguments)                                                                  \
	"{\"id\":\"" id "\",\"type\":\"function\",\"function\":"                                   \
	"{\"name\":\"" name "\",\"arguments\":" arguments "}}"

static void test_items(void **state)
{
	static const struct {
		const char *input, *messages;
	} rows[] = {
		{ "\"hi\"", "[" MESSAGE("user", "hi") "]" },
		{ "[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"role\":\"user\","
		  "\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":"
		  "\"b\"}]}]",
		  "[" MESSAGE("system", "d") "," MESSAGE("user", "ab") "]" },
		/* text, then calls: one message; a result each */
		{ "[{\"role\":\"user\",\"content\":\"q\"},"
		  "{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\",\"role\":\"assistant\","
		  "\"content\":[{\"type\":\"output_text\",\"text\":\"well\",\"annotations\":[],"
		  "\"logprobs\":[]}]},"
		  "{\"type\":\"function_call\",\"id\":\"fc_1\",\"status\":\"completed\",\"call_id\":\"c1\","
		  "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"},"
		  "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"what\"},"
		  "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"one\"},"
		  "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
		  "\"input_text\",\"text\":\"two\"}]}]",
		  "[" MESSAGE("user", "q") ",{\"role\":\"assistant\",\"content\":\"well\",\"tool_calls\":[" CALL(
			  "c1", "f",
			  "{\"a\":1}") "," CALL("c2", "g",
						"\"what\"") "]},"
							    "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"f\",\"content\":\"one\"},"
							    "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"name\":\"g\",\"content\":\"two\"}]" },
		/* reasoning belongs to the text or call after it */
		{ "[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":"
		  "\"reasoning_text\",\"text\":\"hm\"}]},{\"role\":\"assistant\",\"content\":\"a\"},"
		  "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}],"
		  "\"encrypted_content\":null},{\"role\":\"assistant\",\"content\":\"b\"},"
		  "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"text\",\"text\":\"x\"}]},"
		  "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"text\",\"text\":\"y\"}]},"
		  "{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"t\",\"input\":\"free\"},"
		  "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":\"ok\"}]",
		  "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"hm\"}," MESSAGE(
			  "assistant",
			  "b") ",{\"role\":\"assistant\",\"content\":\"\","
			       "\"reasoning_content\":\"xy\",\"tool_calls\":[" CALL(
				       "c", "t",
				       "{\"input\":\"free\"}") "]},"
							       "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"name\":\"t\",\"content\":\"ok\"}]" },
		{ "[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"},"
		  "{\"type\":\"output_text\",\"text\":\", sorry\"}],\"phase\":\"final_answer\"}]",
		  "[" MESSAGE("assistant", "no, sorry") "]" },
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_strbuf b = { 0 };
		ig_strbuf_printf(&b, "{\"input\":%s}", rows[i].input);
		if (ig_request_read(&ig_create_request, b.data, b.len, true, &r, &e) ||
		    ig_items_link(&r, &e))
			fail_msg("%s: %s", rows[i].input, e.message);
		char *got = json_dumps(r.messages, 0);
		match_text(rows[i].input, got, rows[i].messages);
		/* the items in their one spelling mean the same */
		json_t *again = json_array(), *item;
		size_t k;
		json_array_foreach(r.items, k, item)
			assert_int_equal(ig_items_fold(again, item), 0);
		json_t *was = json_loads(rows[i].messages, 0, NULL), *m;
		json_array_foreach(was, k, m) if (json_object_get(m, "tool_call_id"))
			json_object_del(m, "name");
		match("again", again, was);
		json_decref(again);
		json_decref(was);
		free(got);
		ig_request_finish(&r);
		ig_strbuf_finish(&b);
	}
}

static void test_bad_items(void **state)
{
#define CHECK(input, param, text) { input, param, text }
	static const struct {
		const char *input, *param, *text;
	} rows[] = {
		CHECK("{\"a\":1}", "input", "a string or a list"),
		CHECK("[7]", "input[0]", "an object"),
		CHECK("[{\"type\":7}]", "input[0].type", "a string"),
		CHECK("[{\"type\":\"web_search_call\"}]", "input[0].type", "'web_search_call'"),
		CHECK("[{\"type\":\"message\",\"content\":\"a\"}]", "input[0].role", "Missing"),
		CHECK("[{\"role\":\"tool\",\"content\":\"a\"}]", "input[0].role",
		      "expected system"),
		CHECK("[{\"role\":\"user\"}]", "input[0].content", "Missing"),
		CHECK("[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"n\"}]}]",
		      "input[0].content[0].type", "only text"),
		CHECK("[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"text\":\"n\"}]}]",
		      "input[0].content[0].refusal", "type and refusal"),
		CHECK("[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]",
		      "input[0].call_id", "Missing"),
		CHECK("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":{}}]",
		      "input[0].arguments", "a string"),
		CHECK("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\","
		      "\"namespace\":7}]",
		      "input[0].namespace", "a string"),
		CHECK("[{\"type\":\"function_call_output\",\"call_id\":\"c\"}]", "input[0].output",
		      "Missing"),
		CHECK("[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":"
		      "\"input_image\"}]}]",
		      "input[0].output[0].type", "only text"),
		CHECK("[{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\"}]",
		      "input[0].input", "Missing"),
		CHECK("[{\"type\":\"reasoning\",\"summary\":\"s\"}]", "input[0].summary", "a list"),
		CHECK("[{\"type\":\"reasoning\",\"content\":[{\"type\":\"x\",\"text\":\"\"}]}]",
		      "input[0].content[0]", "reasoning_text"),
		CHECK("[{\"type\":\"reasoning\",\"encrypted_content\":\"abc\"}]",
		      "input[0].encrypted_content", "not supported"),
		CHECK("[{\"type\":\"function_call_output\",\"call_id\":\"nix\",\"output\":\"o\"}]",
		      "input", "call_id 'nix'"),
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_strbuf b = { 0 };
		ig_strbuf_printf(&b, "{\"input\":%s}", rows[i].input);
		if (!ig_request_read(&ig_create_request, b.data, b.len, true, &r, &e) &&
		    !ig_items_link(&r, &e))
			fail_msg("%s: accepted", rows[i].input);
		if (e.status != 400 || strcmp(e.param, rows[i].param) ||
		    !strstr(e.message, rows[i].text))
			fail_msg("%s: %d %s '%s'", rows[i].input, e.status, e.param, e.message);
		ig_request_finish(&r);
		ig_strbuf_finish(&b);
	}
	/* a lane is a WebSocket's */
	static const char lane[] = "{\"input\":\"a\",\"stream_id\":\"x\"}";
	assert_int_equal(ig_request_read(&ig_create_request, lane, strlen(lane), true, &r, &e), -1);
	assert_string_equal(e.param, "stream_id");
	ig_request_finish(&r);
}

static void test_tools(void **state)
{
	static const struct {
		const char *tools, *param; /* param: NULL: fine */
		size_t n;
	} rows[] = {
		{ "[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"},\"strict\":true},"
		  "{\"type\":\"custom\",\"name\":\"c\",\"description\":\"d\",\"format\":{\"type\":\"text\"}}]",
		  NULL, 2 },
		{ "[{\"type\":\"web_search\"}]", "tools[0].type", 0 },
		{ "[{\"type\":\"local_shell\"}]", "tools[0].type", 0 },
		{ "[{\"type\":\"web_search\",\"external_web_access\":false},{\"type\":\"function\",\"name\":"
		  "\"f\"}],\"client_metadata\":{\"x\":\"y\"}",
		  NULL, 1 },
		{ "[{\"type\":\"local_shell\"}],\"client_metadata\":{}", "tools[0].type", 0 },
		{ "[{\"type\":\"custom\",\"name\":\"c\",\"format\":{\"type\":\"grammar\",\"syntax\":\"ebnf\","
		  "\"definition\":\"x\"}}]",
		  "tools[0].format", 0 },
		{ "[{\"type\":\"custom\",\"name\":\"c\",\"strict\":true}]", "tools[0].strict", 0 },
		{ "[{\"type\":\"custom\",\"name\":\"c\"}],\"tool_choice\":{\"type\":\"custom\",\"name\":\"c\"}",
		  NULL, 1 },
#define TWO                                                                                        \
	"[{\"type\":\"custom\",\"name\":\"c\"},{\"type\":\"function\",\"name\":\"f\"}],"           \
	"\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":"
		{ TWO "\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}", NULL, 1 },
		{ TWO "\"auto\",\"tools\":[{\"name\":\"f\"},{\"name\":\"g\"}]}",
		  "tool_choice.tools[1]", 0 },
		{ TWO "\"auto\",\"tools\":[]}", "tool_choice.tools", 0 },
		{ TWO "\"none\",\"tools\":[{\"name\":\"f\"}]}", "tool_choice.mode", 0 },
		{ "[{\"type\":\"custom\",\"name\":\"c\"}],\"tool_choice\":{\"type\":\"custom\",\"name\":\"d\"}",
		  "tool_choice", 0 },
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_strbuf b = { 0 };
		ig_strbuf_printf(&b, "{\"input\":\"a\",\"tools\":%s}", rows[i].tools);
		int rc = ig_request_read(&ig_create_request, b.data, b.len, true, &r, &e);
		if (rows[i].param) {
			if (!rc || strcmp(e.param, rows[i].param))
				fail_msg("%s: %d %s %s", rows[i].tools, rc, e.param, e.message);
		} else {
			if (rc)
				fail_msg("%s: %s", rows[i].tools, e.message);
			assert_int_equal(json_array_size(r.tools), rows[i].n);
		}
		ig_request_finish(&r);
		ig_strbuf_finish(&b);
	}
	/* a custom tool is a function of one string; its description has the grammar */
	static const char custom[] =
		"{\"input\":\"a\",\"tools\":[{\"type\":\"custom\",\"name\":\"c\","
		"\"description\":\"d\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\","
		"\"definition\":\"start: X\"}}],\"reasoning\":{\"effort\":\"none\"}}";
	assert_int_equal(ig_request_read(&ig_create_request, custom, strlen(custom), true, &r, &e),
			 0);
	match_value(
		"tools", r.tools,
		"[{\"type\":\"function\",\"function\":{\"name\":\"c\","
		"\"description\":\"d\\n\\nThe input is text of this Lark grammar:\\nstart: X\","
		"\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
		"\"required\":[\"input\"],\"additionalProperties\":false}}}]");
	/* to which its calls are held */
	assert_true(ig_has_strict_tool(&r));
	match_value("formats", r.formats,
		    "{\"c\":{\"syntax\":\"lark\",\"definition\":\"start: X\","
		    "\"at\":\"tools[0].format.definition\"}}");
	match_value("vars", r.template_vars,
		    "{\"reasoning_effort\":\"none\",\"enable_thinking\":false}");
	ig_request_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_bad_items),
		cmocka_unit_test(test_tools),
	};
	return cmocka_run_group_tests_name("responses, items", tests, NULL, NULL);
}
