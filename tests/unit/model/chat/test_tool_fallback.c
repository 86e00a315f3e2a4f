/* test_tool_fallback.c: a conversation with tools as one without, for templates that know none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/chat/completion.h"

#include <stdlib.h>
#include <string.h>

#define TOOLS                                                                                      \
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"Does \\\"it\\\".\"}}]"
#define CALL(args)                                                                                 \
	"\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":" args "}}]"
#define CALLED(args) "<tool_call>\n{\"name\": \"f\", \"arguments\": " args "}\n</tool_call>"
#define RESULT(text) "<tool_response>\n" text "\n</tool_response>"

static json_t *rewrite(const char *messages, const char *tools)
{
	json_t *m = json_loads(messages, 0, NULL), *t = tools ? json_loads(tools, 0, NULL) : NULL;
	json_t *before = json_deep_copy(m), *out;

	assert_non_null(m);
	assert_int_equal(ig_tool_fallback(m, t, &out), 0);
	assert_true(json_equal(m, before)); /* the request's own are not changed */
	json_decref(before);
	json_decref(m);
	json_decref(t);
	return out;
}

/* want: role, content, role, content … */
static void becomes(const char *messages, const char *const *want)
{
	json_t *out = rewrite(messages, NULL);
	size_t n = 0;

	for (; want[2 * n]; n++) {
		const json_t *m = json_array_get(out, n);
		assert_string_equal(ig_json_text(m, "role"), want[2 * n]);
		assert_string_equal(ig_json_text(m, "content"), want[2 * n + 1]);
		assert_null(json_object_get(m, "tool_calls"));
		assert_null(json_object_get(m, "tool_call_id"));
	}
	assert_int_equal(json_array_size(out), n);
	json_decref(out);
}
#define BECOMES(messages, ...) becomes(messages, (const char *const[]){ __VA_ARGS__, NULL })

static void conversations(void **state)
{
	BECOMES("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
		"user", "a", "assistant", "b");
	/* calls and results; arguments as an object, or as a text of one */
	BECOMES("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null," CALL(
			"{\"x\":[1,\"\\n\"]}") "},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}]",
		"user", "a", "assistant", CALLED("{\"x\": [1, \"\\n\"]}"), "user", RESULT("r"));
	BECOMES("[{\"role\":\"assistant\",\"content\":\"Hm.\"," CALL("\"{}\"") "}]", "assistant",
		"Hm.\n" CALLED("{}"));
	/* several results, and the user's next words, are one turn */
	BECOMES("[{\"role\":\"tool\",\"content\":\"r\"},{\"role\":\"tool\",\"content\":\"s\"},"
		"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
		"{\"role\":\"system\",\"content\":\"c\"}]",
		"user", RESULT("r") "\n" RESULT("s") "\n\na\n\nb", "system", "c");
	BECOMES("[]", NULL, NULL);
}

/* The tools are described in the system message, after what it says. */
static void described(void **state)
{
	json_t *out = rewrite("[{\"role\":\"system\",\"content\":\"Be brief.\"},"
			      "{\"role\":\"user\",\"content\":\"a\"}]",
			      TOOLS);
	const char *text = ig_json_text(json_array_get(out, 0), "content"), *tool;

	assert_int_equal(json_array_size(out), 2);
	assert_memory_equal(text, "Be brief.\n\n# Tools\n", 19);
	tool = strstr(text, "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", "
			    "\"description\": \"Does \\\"it\\\".\"}}\n</tools>");
	assert_non_null(tool);
	assert_non_null(strstr(tool, "<tool_call>\n{\"name\": "));
	json_decref(out);
	out = rewrite("[{\"role\":\"user\",\"content\":\"a\"}]", TOOLS);
	assert_int_equal(json_array_size(out), 2);
	assert_string_equal(ig_json_text(json_array_get(out, 0), "role"), "system");
	assert_memory_equal(ig_json_text(json_array_get(out, 0), "content"), "# Tools\n", 8);
	assert_string_equal(ig_json_text(json_array_get(out, 1), "content"), "a");
	json_decref(out);
}

/* What the messages show as a call is read back as that call. */
static void on_event(void *ctx, const struct ig_completion_event *e)
{
	if (e->kind == IG_COMPLETION_TOOL_CALL)
		assert_memory_equal(e->data, "f", 1);
	if (e->kind == IG_COMPLETION_ARGUMENTS)
		assert_string_equal(e->data, "{\"x\": \"</tool_call>\\\"\"}");
	assert_true(e->kind != IG_COMPLETION_TEXT);
	++*(int *)ctx;
}

static void read_back(void **state)
{
	json_t *out = rewrite("[{\"role\":\"assistant\",\"content\":\"\"," CALL(
				      "{\"x\":\"</tool_call>\\\"\"}") "}]",
			      NULL);
	const char *text = ig_json_text(json_array_get(out, 0), "content");
	static const struct ig_completion_style s = { .calls = IG_TOOL_CALLS_HERMES };
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	int n = 0;

	assert_int_equal(ig_completion_parser_feed(p, text, strlen(text), true, on_event, &n), 0);
	assert_true(n >= 3);
	assert_null(ig_completion_parser_problem(p));
	ig_completion_parser_destroy(p);
	json_decref(out);
}

/* ---- ids --------------------------------------------------------------------------------------- */

static void ids(void **state)
{
	static const char text[] =
		"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"name\":"
		"\"f\"}},{\"id\":\"abcdefgh9\",\"function\":{\"name\":\"g\"}}]},{\"role\":\"tool\","
		"\"tool_call_id\":\"abcdefgh9\"},{\"role\":\"tool\",\"tool_call_id\":\"call_1\"},"
		"{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"f\"}}]},"
		"{\"role\":\"tool\",\"tool_call_id\":\"other\"}]";
	static const enum ig_tool_call_format formats[] = { IG_TOOL_CALLS_KIMI,
							    IG_TOOL_CALLS_MISTRAL_ARGS,
							    IG_TOOL_CALLS_HERMES };

	for (int i = 0; i < 3; i++) {
		json_t *before = json_loads(text, 0, NULL), *m = json_copy(before);
		json_t *same = json_deep_copy(before);
		const char *got[6];
		assert_int_equal(ig_tool_ids(formats[i], m), 0);
		assert_true(json_equal(before, same)); /* the messages are the request's */
		json_t *calls = json_object_get(json_array_get(m, 0), "tool_calls");
		got[0] = ig_json_text(json_array_get(calls, 0), "id");
		got[1] = ig_json_text(json_array_get(calls, 1), "id");
		got[2] = ig_json_text(json_array_get(m, 1), "tool_call_id");
		got[3] = ig_json_text(json_array_get(m, 2), "tool_call_id");
		calls = json_object_get(json_array_get(m, 3), "tool_calls");
		got[4] = ig_json_text(json_array_get(calls, 0), "id");
		got[5] = ig_json_text(json_array_get(m, 4), "tool_call_id");
		assert_string_equal(got[3], got[0]);
		assert_string_equal(got[2], got[1]);
		assert_string_equal(got[5], "other");
		if (formats[i] == IG_TOOL_CALLS_KIMI) {
			assert_string_equal(got[0], "functions.f:0");
			assert_string_equal(got[1], "functions.g:1");
			assert_string_equal(got[4], "functions.f:2");
		} else if (formats[i] == IG_TOOL_CALLS_MISTRAL_ARGS) {
			assert_string_equal(got[1], "abcdefgh9");
			assert_int_equal(strlen(got[0]), 9);
			assert_int_equal(strspn(got[0], "0123456789abcdefghijklmnopqrstuvwxyz"), 9);
			assert_int_equal(strlen(got[4]), 9);
		} else {
			assert_true(json_equal(m, same));
		}
		json_decref(m);
		json_decref(before);
		json_decref(same);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conversations),
		cmocka_unit_test(described),
		cmocka_unit_test(read_back),
		cmocka_unit_test(ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
