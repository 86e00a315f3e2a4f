/*
 * test_responses.c: Responses beyond one text answer: items, reasoning, calls, what is
 * kept and continued, over the WebSocket and over HTTP.
 */
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses.h"
#include "tests/unit/protocol/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const say_x[] = { "x", NULL };

static const struct fake_script says_x = { .pieces = say_x, .finish = IG_FINISH_STOP };

static void match_value(const char *at, json_t *v, const char *want)
{
	char *text = json_dumps(v, 0);

	match_text(at, text, want);
	free(text);
}

/* ---- items to messages ------------------------------------------------------------- */

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

/* ---- the session ------------------------------------------------------------------- */

static bool is_final(json_t *v)
{
	const char *type = str(v, "type");

	return !strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
	       !strcmp(type, "response.failed") || !strcmp(type, "error");
}

/* The next final event, whatever the lane. */
static json_t * final(struct world *w)
{
	for (;;) {
		json_t *v = event(w);
		if (is_final(v))
			return v;
		json_decref(v);
	}
}

/* Send a create with these members; its final event. */
static json_t *ask(struct world *w, const char *members)
{
	char text[2000];

	assert_true(snprintf(text, sizeof text, "{\"type\":\"response.create\",%s}", members) <
		    (int)sizeof text);
	send_text(w, text);
	return final(w);
}

static const char *id_of(json_t *v) { return str(json_object_get(v, "response"), "id"); }

static void expect_code(json_t *v, const char *code, const char *param)
{
	json_t *e = json_object_get(v, "error");

	assert_string_equal(str(v, "type"), "error");
	assert_string_equal(str(e, "code"), code);
	assert_string_equal(str(e, "param"), param);
	assert_int_equal(json_integer_value(json_object_get(v, "status")), 400);
	json_decref(v);
}

static void expect_prompt(struct world *w, const char *want)
{
	assert_string_equal(fake_engine_seen(w->engine).prompt, want);
}

/* Continue id with text; the response's id. */
static void go_on(struct world *w, const char *more, const char *id, const char *text, char out[64])
{
	char members[400];

	snprintf(members, sizeof members, "%s\"input\":\"%s\",\"previous_response_id\":\"%s\"",
		 more, text, id);
	json_t *v = ask(w, members);
	if (strcmp(str(v, "type"), "response.completed"))
		fail_msg("%s", json_dumps(v, 0));
	assert_string_equal(str(json_object_get(v, "response"), "previous_response_id"), id);
	snprintf(out, 64, "%s", id_of(v));
	json_decref(v);
}

static void test_continue(void **state)
{
	struct world *w = *state;
	char a[64], b[64], c[64], d[64];

	fake_engine_script(w->engine, &says_x);
	json_t *v = ask(w, "\"input\":\"1\",\"instructions\":\"first\"");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	expect_prompt(w, "system:first;user:1;");
	/* instructions do not carry over; those that come stand in front */
	go_on(w, "", a, "2", b);
	expect_prompt(w, "user:1;assistant:x;user:2;");
	/* two forks of one, on other lanes */
	go_on(w, "\"instructions\":\"new\",", b, "3a", c);
	expect_prompt(w, "system:new;user:1;assistant:x;user:2;assistant:x;user:3a;");
	go_on(w, "\"stream_id\":\"other\",", b, "3b", d);
	expect_prompt(w, "user:1;assistant:x;user:2;assistant:x;user:3b;");
	go_on(w, "\"stream_id\":\"other\",", a, "2b", d);
	expect_prompt(w, "user:1;assistant:x;user:2b;");
	/* nothing new is fine */
	char members[200];
	snprintf(members, sizeof members, "\"input\":[],\"previous_response_id\":\"%s\"", c);
	v = ask(w, members);
	assert_string_equal(str(v, "type"), "response.completed");
	json_decref(v);
	expect_prompt(w, "user:1;assistant:x;user:2;assistant:x;user:3a;assistant:x;");
	/* but not without anything before it */
	expect_code(ask(w, "\"input\":[]"), "invalid_value", "input");
	/* one that there is not */
	v = ask(w, "\"input\":\"a\",\"previous_response_id\":\"resp_nix\",\"stream_id\":\"l\"");
	assert_string_equal(str(v, "stream_id"), "l");
	assert_string_equal(str(json_object_get(v, "error"), "type"), "invalid_request_error");
	expect_code(v, "previous_response_not_found", "previous_response_id");
	assert_string_equal(fake_engine_seen(w->engine).refused.finish, "refused");
	/* what is stored outlives its connection */
	ig_session_end(w->session);
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1",
				     &(struct ig_principal){ .key = "k1", .identity = 1 }, w);
	go_on(w, "", a, "later", d);
	expect_prompt(w, "user:1;assistant:x;user:later;");
	/* and is its key's */
	ig_session_end(w->session);
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1",
				     &(struct ig_principal){ .key = "k2", .identity = 2 }, w);
	snprintf(members, sizeof members, "\"input\":\"a\",\"previous_response_id\":\"%s\"", a);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
	/* not the one's that was made later with the same id */
	ig_session_end(w->session);
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1",
				     &(struct ig_principal){ .key = "k1", .identity = 3 }, w);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
}

/* Developers' messages are the system's, each where it stands, also right after the instructions. */
static void test_system(void **state)
{
	struct world *w = *state;

	fake_engine_script(w->engine, &says_x);
	json_decref(ask(
		w, "\"instructions\":\"i\",\"input\":[{\"role\":\"developer\",\"content\":\"d\"},"
		   "{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
		   "{\"role\":\"developer\",\"content\":\"later\"}]"));
	expect_prompt(w, "system:i;system:d;system:s;user:u;system:later;");
}

#define CONNECTION "\"store\":false,"

static void test_not_stored(void **state)
{
	struct world *w = *state;
	char a[64], b[64], c[64], members[300];

	fake_engine_script(w->engine, &says_x);
	json_t *v = ask(w, CONNECTION "\"input\":\"1\"");
	assert_true(json_is_false(json_object_get(json_object_get(v, "response"), "store")));
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	/* another lane may fork it */
	go_on(w, CONNECTION "\"stream_id\":\"l\",", a, "fork", b);
	expect_prompt(w, "user:1;assistant:x;user:fork;");
	go_on(w, CONNECTION, a, "2", c);
	expect_prompt(w, "user:1;assistant:x;user:2;");
	/* each lane keeps its latest (max_stored_per_lane is 1 here) */
	snprintf(members, sizeof members,
		 CONNECTION "\"stream_id\":\"m\",\"input\":\"a\","
			    "\"previous_response_id\":\"%s\"",
		 a);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
	/* a fork that fails lets nothing go */
	snprintf(members, sizeof members,
		 CONNECTION "\"stream_id\":\"m\",\"input\":\"a\",\"top_p\":7,"
			    "\"previous_response_id\":\"%s\"",
		 c);
	expect_code(ask(w, members), "invalid_value", "top_p");
	go_on(w, CONNECTION "\"stream_id\":\"l\",", c, "fork", b);
	/* one on the lane that fails does: at parsing, … */
	snprintf(members, sizeof members,
		 CONNECTION "\"input\":\"a\",\"top_p\":7,"
			    "\"previous_response_id\":\"%s\"",
		 c);
	expect_code(ask(w, members), "invalid_value", "top_p");
	snprintf(members, sizeof members,
		 CONNECTION "\"input\":\"a\",\"previous_response_id\":\"%s\"", c);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
	/* … at prep, … */
	snprintf(members, sizeof members,
		 CONNECTION "\"stream_id\":\"l\",\"input\":\"a\",\"model\":\"nix\","
			    "\"previous_response_id\":\"%s\"",
		 b);
	v = ask(w, members);
	assert_int_equal(json_integer_value(json_object_get(v, "status")), 404);
	json_decref(v);
	snprintf(members, sizeof members,
		 CONNECTION "\"stream_id\":\"l\",\"input\":\"a\","
			    "\"previous_response_id\":\"%s\"",
		 b);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
	/* … at the engine's door, and in it */
	for (int i = 0; i < 2; i++) {
		fake_engine_script(w->engine, &says_x);
		v = ask(w, CONNECTION "\"input\":\"1\"");
		snprintf(members, sizeof members,
			 CONNECTION "\"input\":\"a\","
				    "\"previous_response_id\":\"%s\"",
			 id_of(v));
		json_decref(v);
		fake_engine_script(w->engine, i ? &(struct fake_script){ .finish = IG_FINISH_ERROR,
									 .error = "broken" } :
						  &(struct fake_script){ .submit_rc = -EAGAIN });
		v = ask(w, members);
		assert_string_equal(str(v, "type"), i ? "response.failed" : "error");
		json_decref(v);
		fake_engine_script(w->engine, &says_x);
		expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
	}
	/* gone with the connection */
	v = ask(w, CONNECTION "\"input\":\"1\"");
	snprintf(members, sizeof members, "\"input\":\"a\",\"previous_response_id\":\"%s\"",
		 id_of(v));
	json_decref(v);
	ig_session_end(w->session);
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1",
				     &(struct ig_principal){ .key = "k1", .identity = 1 }, w);
	expect_code(ask(w, members), "previous_response_not_found", "previous_response_id");
}

/* No failure drops a stored response. */
static void test_stored_stays(void **state)
{
	struct world *w = *state;
	char a[64], b[64], members[300];

	fake_engine_script(w->engine, &says_x);
	json_t *v = ask(w, "\"input\":\"1\"");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	snprintf(members, sizeof members,
		 "\"input\":\"a\",\"top_p\":7,\"previous_response_id\":\"%s\"", a);
	expect_code(ask(w, members), "invalid_value", "top_p");
	go_on(w, "", a, "2", b);
}

static void test_warm_up(void **state)
{
	struct world *w = *state;
	char members[300], a[64];

	/* the engine prefills and samples nothing */
	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	json_t *v = ask(w, CONNECTION "\"generate\":false,\"input\":\"1\",\"instructions\":\"i\"");
	json_t *r = json_object_get(v, "response");
	assert_string_equal(str(v, "type"), "response.completed");
	assert_string_equal(str(r, "status"), "completed");
	assert_int_equal(json_array_size(json_object_get(r, "output")), 0);
	assert_true(json_is_array(json_object_get(r, "output")));
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), 2);
	assert_true(fake_engine_seen(w->engine).prefill_only);
	expect_prompt(w, "system:i;user:1;");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	/* what it had is continued, also with nothing new */
	fake_engine_script(w->engine, &says_x);
	snprintf(members, sizeof members,
		 CONNECTION "\"input\":[],\"instructions\":\"i\","
			    "\"previous_response_id\":\"%s\"",
		 a);
	v = ask(w, members);
	assert_string_equal(str(v, "type"), "response.completed");
	assert_false(fake_engine_seen(w->engine).prefill_only);
	expect_prompt(w, "system:i;user:1;");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	go_on(w, CONNECTION, a, "2", a);
	expect_prompt(w, "user:1;assistant:x;user:2;");
	/* before there is anything to say: nothing to read, and an id all the same */
	int n = fake_engine_seen(w->engine).n_submitted;
	v = ask(w, CONNECTION "\"generate\":false,\"input\":[]");
	assert_string_equal(str(v, "type"), "response.completed");
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, n);
	assert_int_equal(fake_engine_seen(w->engine).refused.status, 200);
	assert_string_equal(fake_engine_seen(w->engine).refused.finish, "stop");
	go_on(w, CONNECTION, id_of(v), "late", a);
	json_decref(v);
	expect_prompt(w, "user:late;");
}

static void test_turns(void **state)
{
	struct world *w = *state;
	char text[300], a[64];

	/* behind the one that it continues, which still runs: it waits, and finds it */
	fake_engine_script(
		w->engine,
		&(struct fake_script){ .pieces = say_x, .hold = true, .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"1\",\"store\":false}");
	json_t *v = event(w);
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"%d\",\"store\":false,"
			 "\"previous_response_id\":\"%s\"}",
			 i + 2, a);
		send_text(w, text);
	}
	fake_engine_release(w->engine);
	for (int i = 0; i < 2; i++) {
		v = final(w);
		assert_string_equal(str(v, "type"), "response.completed");
		json_decref(v);
	}
	expect_prompt(w, "user:1;assistant:x;user:2;");
	/* by the time of the third the lane has gone on */
	expect_code(final(w), "previous_response_not_found", "previous_response_id");
	/* a cancel finds one that waits, and one that is on its way to prep */
	fake_engine_script(w->engine, &says_x);
	v = ask(w, "\"input\":\"1\"");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"runs\"}");
	snprintf(text, sizeof text,
		 "{\"type\":\"response.create\",\"input\":\"waits\","
		 "\"previous_response_id\":\"%s\"}",
		 a);
	send_text(w, text);
	send_text(w, text);
	send_text(w, "{\"type\":\"response.cancel\"}");
	for (int i = 0; i < 3; i++) {
		v = final(w);
		assert_string_equal(str(v, "type"), "response.incomplete");
		assert_string_equal(str(json_object_get(v, "response"), "status"), "cancelled");
		json_decref(v);
	}
	/* what was cancelled can be continued; a small ring, so that it fits the context */
	ig_api_set_options(w->api, &(struct ig_api_options){ .client_buffer = 256,
							     .keepalive_interval_ms = 5000,
							     .max_stored = 64,
							     .max_stored_bytes = 1 << 20,
							     .max_stored_per_lane = 1 });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = say_x, .repeat = 1000000000 });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"stop\"}");
	for (size_t n = 0; n < 2; json_decref(v)) {
		v = event(w);
		if (!strcmp(str(v, "type"), "response.output_text.delta"))
			n += strlen(str(v, "delta"));
	}
	/* nothing is read until the cancel has arrived: the ring bounds the text */
	int n_cancelled = fake_engine_seen(w->engine).n_cancelled;
	send_text(w, "{\"type\":\"response.cancel\"}");
	while (fake_engine_seen(w->engine).n_cancelled == n_cancelled)
		wait_news(w);
	v = final(w);
	json_t *content = json_object_get(
		json_array_get(json_object_get(json_object_get(v, "response"), "output"), 0),
		"content");
	assert_int_equal(str(json_array_get(content, 0), "text")[0], 'x');
	fake_engine_script(w->engine, &says_x);
	go_on(w, "", id_of(v), "on", a);
	json_decref(v);
	assert_int_equal(strncmp(fake_engine_seen(w->engine).prompt, "user:stop;assistant:xx", 22),
			 0);
}

/* Sixteen run, including those at prep; the others wait. */
static void test_many_turns(void **state)
{
	struct world *w = *state;
	char text[300], a[64];
	int n_done = 0;

	fake_engine_script(w->engine, &says_x);
	json_t *v = ask(w, "\"input\":\"1\"");
	snprintf(a, sizeof a, "%s", id_of(v));
	json_decref(v);
	for (int i = 0; i < 60; i++) {
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"%d\",\"stream_id\":"
			 "\"l%d\",\"previous_response_id\":\"%s\"}",
			 i, i % 20, a);
		while (!ig_session_wants_input(w->session))
			wait_news(w);
		send_text(w, text);
	}
	while (n_done < 60) {
		v = final(w);
		assert_string_equal(str(v, "type"), "response.completed");
		n_done++;
		json_decref(v);
	}
	assert_true(fake_engine_seen(w->engine).n_running_max <= 16);
	/* and one that ends in the middle frees everything */
	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":"
			 "\"l%d\",\"previous_response_id\":\"%s\"}",
			 i / 2, a);
		send_text(w, text);
	}
	ig_session_end(w->session);
	w->session = NULL;
	for (int i = 0; i < 20; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
}

/* ---- items of a response ------------------------------------------------------------ */

#define TOOLS                                                                                      \
	"\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"}},"  \
	"{\"type\":\"custom\",\"name\":\"c\"}]"

static const char *const thinks_and_calls[] = {
	"<think>",
	"hm",
	"</think>\n\n",
	"wel",
	"l",
	"\n<tool_call>\n{\"name\": \"f\", \"argu",
	"ments\": {\"a\": 1}}\n</tool_call>",
	"\n<tool_call>\n{\"name\": \"c\", \"arguments\": {\"input\": "
	"\"a\\\"b\"}}\n</tool_call>",
	NULL,
};

static void set_style(void)
{
	fake_engine_style(
		&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES, .reasoning = true });
}

/* Every event, as "type place" lines; text joined from deltas. */
static void test_parts(void **state)
{
	static const char *const want[] = {
		"{\"type\":\"response.created\",\"sequence_number\":\"*\",\"response\":\"*\"}",
		"{\"type\":\"response.in_progress\",\"sequence_number\":\"*\",\"response\":\"*\"}",
		"{\"type\":\"response.output_item.added\",\"sequence_number\":\"*\",\"output_index\":0,"
		"\"item\":{\"id\":\"#rs_\",\"type\":\"reasoning\",\"status\":\"in_progress\",\"summary\":[],"
		"\"content\":[]}}",
		"{\"type\":\"response.content_part.added\",\"sequence_number\":\"*\",\"item_id\":\"#rs_\","
		"\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"reasoning_text\",\"text\":\"\"}}",
		"{\"type\":\"response.reasoning_text.delta\",\"sequence_number\":\"*\",\"item_id\":\"#rs_\","
		"\"output_index\":0,\"content_index\":0,\"delta\":\"hm\"}",
		"{\"type\":\"response.reasoning_text.done\",\"sequence_number\":\"*\",\"item_id\":\"#rs_\","
		"\"output_index\":0,\"content_index\":0,\"text\":\"hm\"}",
		"{\"type\":\"response.content_part.done\",\"sequence_number\":\"*\",\"item_id\":\"#rs_\","
		"\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"reasoning_text\",\"text\":\"hm\"}}",
		"{\"type\":\"response.output_item.done\",\"sequence_number\":\"*\",\"output_index\":0,"
		"\"item\":{\"id\":\"#rs_\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"
		"\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]}}",
		"{\"type\":\"response.output_item.added\",\"sequence_number\":\"*\",\"output_index\":1,"
		"\"item\":{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\",\"status\":"
		"\"in_progress\",\"content\":[]}}",
		"{\"type\":\"response.content_part.added\",\"sequence_number\":\"*\",\"item_id\":\"#msg_\","
		"\"output_index\":1,\"content_index\":0,\"part\":\"*\"}",
		"{\"type\":\"response.output_text.delta\",\"sequence_number\":\"*\",\"item_id\":\"#msg_\","
		"\"output_index\":1,\"content_index\":0,\"delta\":\"well\",\"logprobs\":[]}",
		"{\"type\":\"response.output_text.done\",\"sequence_number\":\"*\",\"item_id\":\"#msg_\","
		"\"output_index\":1,\"content_index\":0,\"text\":\"well\",\"logprobs\":[]}",
		"{\"type\":\"response.content_part.done\",\"sequence_number\":\"*\",\"item_id\":\"#msg_\","
		"\"output_index\":1,\"content_index\":0,\"part\":\"*\"}",
		"{\"type\":\"response.output_item.done\",\"sequence_number\":\"*\",\"output_index\":1,"
		"\"item\":{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\",\"status\":"
		"\"completed\",\"content\":\"*\"}}",
		"{\"type\":\"response.output_item.added\",\"sequence_number\":\"*\",\"output_index\":2,"
		"\"item\":{\"id\":\"#fc_\",\"type\":\"function_call\",\"status\":\"in_progress\",\"call_id\":"
		"\"#call_\",\"name\":\"f\",\"arguments\":\"\"}}",
		"{\"type\":\"response.function_call_arguments.delta\",\"sequence_number\":\"*\",\"item_id\":"
		"\"#fc_\",\"output_index\":2,\"delta\":\"{\\\"a\\\": 1}\"}",
		"{\"type\":\"response.function_call_arguments.done\",\"sequence_number\":\"*\",\"item_id\":"
		"\"#fc_\",\"output_index\":2,\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}",
		"{\"type\":\"response.output_item.done\",\"sequence_number\":\"*\",\"output_index\":2,"
		"\"item\":{\"id\":\"#fc_\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":"
		"\"#call_\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}",
		"{\"type\":\"response.output_item.added\",\"sequence_number\":\"*\",\"output_index\":3,"
		"\"item\":{\"id\":\"#fc_\",\"type\":\"custom_tool_call\",\"status\":\"in_progress\","
		"\"call_id\":\"#call_\",\"name\":\"c\",\"input\":\"\"}}",
		"{\"type\":\"response.custom_tool_call_input.delta\",\"sequence_number\":\"*\",\"item_id\":"
		"\"#fc_\",\"output_index\":3,\"delta\":\"a\\\"b\"}",
		"{\"type\":\"response.custom_tool_call_input.done\",\"sequence_number\":\"*\",\"item_id\":"
		"\"#fc_\",\"output_index\":3,\"input\":\"a\\\"b\"}",
		"{\"type\":\"response.output_item.done\",\"sequence_number\":\"*\",\"output_index\":3,"
		"\"item\":{\"id\":\"#fc_\",\"type\":\"custom_tool_call\",\"status\":\"completed\","
		"\"call_id\":\"#call_\",\"name\":\"c\",\"input\":\"a\\\"b\"}}",
	};
	struct world *w = *state;
	json_t *items = json_array(), *v;

	set_style();
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = thinks_and_calls,
							     .hold = true,
							     .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"," TOOLS "}");
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		if (i == 2) { /* all that there is, in one piece each */
			fake_engine_release(w->engine);
			while (fake_engine_seen(w->engine).n_finished < 1)
				usleep(1000);
		}
		v = event(w);
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), i);
		char *text = json_dumps(v, 0);
		match_text(str(v, "type"), text, want[i]);
		if (!strcmp(str(v, "type"), "response.output_item.done"))
			json_array_append(items, json_object_get(v, "item"));
		free(text);
		json_decref(v);
	}
	v = event(w);
	assert_string_equal(str(v, "type"), "response.completed");
	json_t *r = json_object_get(v, "response"), *usage = json_object_get(r, "usage");
	/* what was done is what is there in the end, byte for byte */
	assert_true(json_equal(json_object_get(r, "output"), items));
	assert_int_equal(json_array_size(json_object_get(r, "tools")), 2);
	assert_true(
		json_integer_value(json_object_get(json_object_get(usage, "output_tokens_details"),
						   "reasoning_tokens")) >= 1);
	/* and its results have the names of their calls */
	char text[600];
	snprintf(text, sizeof text,
		 TOOLS ",\"previous_response_id\":\"%s\",\"input\":[{\"type\":"
		       "\"function_call_output\",\"call_id\":\"%s\",\"output\":\"one\"},{\"type\":"
		       "\"custom_tool_call_output\",\"call_id\":\"%s\",\"output\":\"two\"}]",
		 id_of(v), str(json_array_get(items, 2), "call_id"),
		 str(json_array_get(items, 3), "call_id"));
	json_decref(v);
	fake_engine_script(w->engine, &says_x);
	v = ask(w, text);
	assert_string_equal(str(v, "type"), "response.completed");
	json_decref(v);
	struct fake_seen seen = fake_engine_seen(w->engine);
	const char *prompt = seen.prompt;
	assert_non_null(strstr(prompt, "user:a;assistant:well[{"));
	assert_non_null(strstr(prompt, "\"arguments\":{\"a\":1}"));
	assert_non_null(strstr(prompt, "{\"input\":\"a\\\"b\"}"));
	assert_non_null(strstr(prompt, "]tool:one;tool:two;") ?
				prompt :
				strstr(prompt, "tool:one;tool:two;"));
	/* a result of no call */
	snprintf(text, sizeof text,
		 "\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"call_x\","
		 "\"output\":\"one\"}]");
	expect_code(ask(w, text), "invalid_value", "input");
	json_decref(items);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* Cut short within a call: what there is of it is incomplete, and not gone on with. */
static void test_half_a_call(void **state)
{
	static const char *const pieces[] = {
		"well <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ", NULL
	};
	struct world *w = *state;
	char id[64];

	set_style();
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	json_t *v = ask(w, TOOLS ",\"input\":\"a\"");
	assert_string_equal(str(v, "type"), "response.incomplete");
	json_t *out = json_object_get(json_object_get(v, "response"), "output");
	assert_string_equal(str(json_array_get(out, 0), "status"), "completed");
	assert_string_equal(str(json_array_get(out, 1), "type"), "function_call");
	assert_string_equal(str(json_array_get(out, 1), "status"), "incomplete");
	fake_engine_script(w->engine, &says_x);
	go_on(w, "", id_of(v), "b", id);
	expect_prompt(w, "user:a;assistant:well;user:b;");
	json_decref(v);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* Tokens and their probabilities go with the text that they are. */
static void test_logprobs(void **state)
{
	static const char *const pieces[] = { "<think>", "hm", "</think>", "a", "b", "c", NULL };
	struct world *w = *state;
	struct ig_strbuf text = { 0 }, tokens = { 0 };
	json_t *v, *x;
	size_t i;

	set_style();
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"top_logprobs\":1,"
		     "\"include\":[\"message.output_text.logprobs\"]}");
	for (;;) {
		v = event(w);
		if (!strcmp(str(v, "type"), "response.output_text.delta")) {
			ig_strbuf_puts(&text, str(v, "delta"));
			json_array_foreach(json_object_get(v, "logprobs"), i, x)
			{
				ig_strbuf_puts(&tokens, str(x, "token"));
				assert_int_equal(
					json_array_size(json_object_get(x, "top_logprobs")), 1);
				assert_null(json_object_get(x, "bytes"));
			}
			/* as far as the text, so far the tokens */
			assert_string_equal(text.data, tokens.data);
		} else if (!strcmp(str(v, "type"), "response.output_text.done")) {
			assert_int_equal(json_array_size(json_object_get(v, "logprobs")), 3);
		} else if (is_final(v)) {
			break;
		}
		json_decref(v);
	}
	assert_string_equal(text.data, "abc");
	json_t *r = json_object_get(v, "response"),
	       *item = json_array_get(json_object_get(r, "output"), 1);
	char *part = json_dumps(json_array_get(json_object_get(item, "content"), 0), 0);
	match_text(
		"part", part,
		"{\"type\":\"output_text\",\"text\":\"abc\",\"annotations\":[],\"logprobs\":["
		"{\"token\":\"a\",\"logprob\":-2,\"bytes\":[97],\"top_logprobs\":[{\"token\":\"z\","
		"\"logprob\":-0.25,\"bytes\":[122]}]},"
		"{\"token\":\"b\",\"logprob\":-2.5,\"bytes\":[98],\"top_logprobs\":[{\"token\":\"z\","
		"\"logprob\":-0.25,\"bytes\":[122]}]},"
		"{\"token\":\"c\",\"logprob\":-3,\"bytes\":[99],\"top_logprobs\":[{\"token\":\"z\","
		"\"logprob\":-0.25,\"bytes\":[122]}]}]}");
	assert_int_equal(json_integer_value(json_object_get(r, "top_logprobs")), 1);
	free(part);
	json_decref(v);
	ig_strbuf_finish(&text);
	ig_strbuf_finish(&tokens);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* ---- over HTTP --------------------------------------------------------------------- */

/* A request with key k1; the status, and the body as JSON where it is that. */
static int http(struct world *w, const char *method, const char *path, const char *query,
		const char *body, json_t **out)
{
	struct ig_http_request r = { .method = method,
				     .path = path,
				     .query = query,
				     .client = "c",
				     .who = { .key = "k1", .identity = 1 },
				     .body = body ? strdup(body) : NULL,
				     .body_len = body ? strlen(body) : 0 };
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	struct ig_http_head h;

	head_of(w, x, &h);
	char *text = body_of(w, x);
	if (out)
		*out = json_loads(text, 0, NULL);
	free(text);
	return h.status;
}

static void expect_http_error(struct world *w, const char *method, const char *path,
			      const char *query, const char *body, int status, const char *param)
{
	json_t *v;
	int got = http(w, method, path, query, body, &v);

	if (got != status || strcmp(str(json_object_get(v, "error"), "param"), param))
		fail_msg("%s %s?%s: %d %s", method, path, query ? query : "", got,
			 json_dumps(v, 0));
	json_decref(v);
}

static void test_http(void **state)
{
	struct world *w = *state;
	char path[200], items[220], body[300], a[64];
	json_t *v, *again, *list, *x;

	fake_engine_script(w->engine, &says_x);
	assert_int_equal(http(w, "POST", "/v1/responses", NULL, "{\"input\":\"1\"}", &v), 200);
	assert_string_equal(str(v, "object"), "response");
	assert_string_equal(str(v, "status"), "completed");
	assert_true(json_is_true(json_object_get(v, "store")));
	snprintf(a, sizeof a, "%s", str(v, "id"));
	snprintf(path, sizeof path, "/v1/responses/%s", a);
	snprintf(items, sizeof items, "%s/input_items", path);
	/* the very object */
	assert_int_equal(http(w, "GET", path, "include[]=message.output_text.logprobs&stream=false",
			      NULL, &again),
			 200);
	assert_true(json_equal(v, again));
	json_decref(again);
	json_decref(v);
	/* continued, there and over the WebSocket */
	snprintf(body, sizeof body,
		 "{\"input\":\"2\",\"previous_response_id\":\"%s\",\"store\":false}", a);
	assert_int_equal(http(w, "POST", "/v1/responses", NULL, body, &v), 200);
	expect_prompt(w, "user:1;assistant:x;user:2;");
	/* what is not stored is nobody's, over HTTP */
	snprintf(body, sizeof body, "{\"input\":\"3\",\"previous_response_id\":\"%s\"}",
		 str(v, "id"));
	json_decref(v);
	expect_http_error(w, "POST", "/v1/responses", NULL, body, 400, "previous_response_id");
	char b[64];
	go_on(w, "", a, "ws", b);
	expect_prompt(w, "user:1;assistant:x;user:ws;");
	/* items, latest first as OpenAI has them, page by page */
	snprintf(items, sizeof items, "/v1/responses/%s/input_items", b);
	assert_int_equal(http(w, "GET", items, NULL, NULL, &list), 200);
	x = json_object_get(list, "data");
	assert_int_equal(json_array_size(x), 3);
	assert_string_equal(str(json_array_get(x, 1), "role"), "assistant");
	assert_string_equal(str(json_array_get(x, 2), "role"), "user");
	match_value(
		"item", json_array_get(x, 0),
		"{\"id\":\"#msg_\",\"type\":\"message\","
		"\"role\":\"user\",\"status\":\"completed\",\"content\":[{\"type\":\"input_text\","
		"\"text\":\"ws\"}]}");
	assert_true(json_is_false(json_object_get(list, "has_more")));
	assert_string_equal(str(list, "first_id"), str(json_array_get(x, 0), "id"));
	assert_string_equal(str(list, "last_id"), str(json_array_get(x, 2), "id"));
	char query[200];
	snprintf(query, sizeof query, "order=asc&limit=1&after=%s",
		 str(json_array_get(x, 2), "id"));
	json_t *page;
	assert_int_equal(http(w, "GET", items, query, NULL, &page), 200);
	assert_string_equal(str(page, "first_id"), str(json_array_get(x, 1), "id"));
	assert_true(json_is_true(json_object_get(page, "has_more")));
	json_decref(page);
	snprintf(query, sizeof query, "after=%s", str(list, "last_id"));
	assert_int_equal(http(w, "GET", items, query, NULL, &page), 200);
	assert_int_equal(json_array_size(json_object_get(page, "data")), 0);
	json_decref(page);
	json_decref(list);
	static const struct {
		const char *query, *param;
	} bad[] = {
		{ "limit=0", "limit" },
		{ "limit=101", "limit" },
		{ "limit=x", "limit" },
		{ "limit=", "limit" },
		{ "order=up", "order" },
		{ "after=nix", "after" },
		{ "colour=red", "colour" },
		{ "include[0]=file_search_call.results", "include" },
		{ "&&limit=20&order", "order" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		expect_http_error(w, "GET", items, bad[i].query, NULL, 400, bad[i].param);
	expect_http_error(w, "GET", path, "stream=true", NULL, 400, "stream");
	expect_http_error(w, "GET", path, "starting_after=1", NULL, 400, "starting_after");
	/* methods and paths */
	snprintf(items, sizeof items, "%s/cancel", path);
	expect_http_error(w, "POST", items, NULL, NULL, 400, "response_id");
	expect_http_error(w, "GET", items, NULL, NULL, 405, "(none)");
	expect_http_error(w, "POST", path, NULL, NULL, 405, "(none)");
	expect_http_error(w, "DELETE", "/v1/responses/resp_nix", NULL, NULL, 404, "response_id");
	expect_http_error(w, "GET", "/v1/responses/", NULL, NULL, 404, "(none)");
	snprintf(items, sizeof items, "%s/elsewhere", path);
	expect_http_error(w, "GET", items, NULL, NULL, 404, "(none)");
	/* gone; what continues it is not */
	assert_int_equal(http(w, "DELETE", path, NULL, NULL, &v), 200);
	snprintf(body, sizeof body,
		 "{\"id\":\"%s\",\"object\":\"response.deleted\",\"deleted\":true}", a);
	match_value("deleted", v, body);
	json_decref(v);
	expect_http_error(w, "GET", path, NULL, NULL, 404, "response_id");
	expect_http_error(w, "DELETE", path, NULL, NULL, 404, "response_id");
	go_on(w, "", b, "on", a);
	expect_prompt(w, "user:1;assistant:x;user:ws;assistant:x;user:on;");
}

static void test_http_refused(void **state)
{
	struct world *w = *state;

	expect_http_error(w, "POST", "/v1/responses", NULL, "{\"input\":\"a\",\"background\":true}",
			  400, "background");
	expect_http_error(w, "POST", "/v1/responses", NULL,
			  "{\"input\":\"a\",\"previous_response_id\":"
			  "\"resp_x\"}",
			  400, "previous_response_id");
	expect_http_error(w, "POST", "/v1/responses", NULL,
			  "{\"input\":\"a\",\"stream_options\":{}}", 400, "stream_options");
	assert_int_equal(fake_engine_seen(w->engine).n_refused, 3);
	/* a client that leaves while its request is at prep for the second time */
	fake_engine_script(w->engine, &says_x);
	json_t *v;
	assert_int_equal(http(w, "POST", "/v1/responses", NULL, "{\"input\":\"1\"}", &v), 200);
	struct ig_strbuf b = { 0 };
	ig_strbuf_printf(&b, "{\"input\":\"2\",\"previous_response_id\":\"%s\"}", str(v, "id"));
	json_decref(v);
	struct ig_http_request r = { .method = "POST",
				     .path = "/v1/responses",
				     .client = "c",
				     .who = { .key = "k1", .identity = 1 },
				     .body = strdup(b.data),
				     .body_len = b.len };
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	usleep(20000);
	ig_api_poll(w->api); /* it is sent to prep again */
	ig_exchange_end(x);
	for (int i = 0; i < 20; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
	ig_strbuf_finish(&b);
}

/* The types of a stream's frames; each has its name in front. */
static void stream_of(struct world *w, const char *body, struct ig_strbuf *types, json_t **last)
{
	struct ig_http_head h;
	char *text = body_of(w, post(w, "/v1/responses", body, &h));

	assert_int_equal(h.status, 200);
	assert_string_equal(h.content_type, "text/event-stream; charset=utf-8");
	*last = NULL;
	for (char *p = text; *p;) {
		char *end = strstr(p, "\n\n"), *data = strstr(p, "\ndata: ");
		assert_true(end && data && data < end);
		*end = *data = 0;
		assert_int_equal(strncmp(p, "event: ", 7), 0);
		json_decref(*last);
		*last = json_loads(data + 7, 0, NULL);
		assert_non_null(*last);
		assert_string_equal(p + 7, str(*last, "type"));
		assert_null(json_object_get(*last, "stream_id"));
		ig_strbuf_printf(types, "%s ", p + 7);
		p = end + 2;
	}
	free(text);
}

static void test_http_stream(void **state)
{
	struct world *w = *state;
	struct ig_strbuf types = { 0 };
	json_t *last;

	fake_engine_script(w->engine, &says_x);
	stream_of(w, "{\"input\":\"a\",\"stream\":true}", &types, &last);
	assert_string_equal(
		types.data,
		"response.created response.in_progress "
		"response.output_item.added response.content_part.added "
		"response.output_text.delta response.output_text.done "
		"response.content_part.done response.output_item.done response.completed ");
	assert_int_equal(json_integer_value(json_object_get(last, "sequence_number")), 8);
	json_decref(last);
	ig_strbuf_clear(&types);
	/* an error has both formats, and is the end */
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = say_x,
							     .finish = IG_FINISH_ERROR,
							     .error = "it broke" });
	stream_of(w, "{\"input\":\"a\",\"stream\":true}", &types, &last);
	assert_non_null(strstr(types.data, "response.output_item.done response.failed error "));
	match_value("error", last,
		    "{\"type\":\"error\",\"sequence_number\":9,"
		    "\"code\":\"server_error\",\"message\":\"it broke\",\"param\":null,\"error\":{"
		    "\"message\":\"it broke\",\"type\":\"server_error\",\"param\":null,"
		    "\"code\":\"server_error\"}}");
	json_decref(last);
	ig_strbuf_finish(&types);
	/* whole: a status */
	expect_http_error(w, "POST", "/v1/responses", NULL, "{\"input\":\"a\"}", 500, "(none)");
}

/* Counted, and nothing runs. */
static void test_input_tokens(void **state)
{
	struct world *w = *state;
	char body[200];
	json_t *v;

	assert_int_equal(http(w, "POST", "/v1/responses/input_tokens", NULL,
			      "{\"input\":\"12345\","
			      "\"instructions\":\"i\"}",
			      &v),
			 200);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
	match_value("count", v, "{\"object\":\"response.input_tokens\",\"input_tokens\":20}");
	json_decref(v);
	fake_engine_script(w->engine, &says_x);
	v = ask(w, "\"input\":\"1\"");
	snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\"}", id_of(v));
	json_decref(v);
	assert_int_equal(http(w, "POST", "/v1/responses/input_tokens", NULL, body, &v), 200);
	match_value("count", v, "{\"object\":\"response.input_tokens\",\"input_tokens\":19}");
	json_decref(v);
	expect_http_error(w, "POST", "/v1/responses/input_tokens", NULL, "{}", 400, "input");
	expect_http_error(w, "POST", "/v1/responses/input_tokens", NULL,
			  "{\"input\":\"a\",\"text\":1}", 400, "text");
	expect_http_error(w, "GET", "/v1/responses/input_tokens", NULL, NULL, 405, "(none)");
}

/* Mistral's templates are particular about the ids of calls. */
static void test_short_ids(void **state)
{
	static const char *const pieces[] = { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]",
					      NULL };
	struct world *w = *state;

	fake_engine_style(&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_MISTRAL });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	json_t *v = ask(w, TOOLS ",\"input\":\"a\""),
	       *call = json_array_get(json_object_get(json_object_get(v, "response"), "output"), 0);
	assert_string_equal(str(call, "type"), "function_call");
	assert_int_equal(strlen(str(call, "call_id")), 9);
	json_decref(v);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* A response that can't be stored says so. */
static void test_no_space(void **state)
{
	struct world *w = *state;
	struct ig_api_options o = { .client_buffer = 4096, .keepalive_interval_ms = 5000 };
	json_t *v;

	ig_api_set_options(w->api, &o);
	fake_engine_script(w->engine, &says_x);
	assert_int_equal(
		http(w, "POST", "/v1/responses", NULL, "{\"input\":\"1\",\"store\":true}", &v),
		200);
	assert_true(json_is_false(json_object_get(v, "store")));
	json_decref(v);
	v = ask(w, "\"input\":\"1\"");
	assert_true(json_is_false(json_object_get(json_object_get(v, "response"), "store")));
	json_decref(v);
}

static void test_keepalive(void **state)
{
	struct world *w = *state;

	/* in the midst of an item too, with the next number */
	static const char *const pieces[] = { "<think>", "h", NULL };
	set_style();
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .hold = true });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	json_decref(event(w));
	json_decref(event(w));
	ig_api_tick(w->api, INT64_MAX / 2);
	json_t *v = event(w);
	assert_string_equal(str(v, "type"), "response.in_progress");
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), 2);
	json_decref(v);
	assert_null(try_event(w));
	fake_engine_release(w->engine);
	json_decref(final(w));
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_bad_items),
		cmocka_unit_test(test_tools),
		TEST(test_continue),
		TEST(test_system),
		TEST(test_not_stored),
		TEST(test_stored_stays),
		TEST(test_warm_up),
		TEST(test_turns),
		TEST(test_many_turns),
		TEST(test_parts),
		TEST(test_half_a_call),
		TEST(test_logprobs),
		TEST(test_http),
		TEST(test_http_refused),
		TEST(test_http_stream),
		TEST(test_input_tokens),
		TEST(test_short_ids),
		TEST(test_no_space),
		TEST(test_keepalive),
	};
	return cmocka_run_group_tests_name("responses", tests, NULL, NULL);
}
