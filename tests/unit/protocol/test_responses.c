/*
 * test_responses.c: Responses beyond one text answer, over the WebSocket: reasoning, calls, what is
 * kept and continued, and whose turn it is.
 */
#include "tests/unit/protocol/responses_case.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the session ------------------------------------------------------------------- */

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
		TEST(test_continue),	 TEST(test_system),    TEST(test_not_stored),
		TEST(test_stored_stays), TEST(test_warm_up),   TEST(test_turns),
		TEST(test_many_turns),	 TEST(test_parts),     TEST(test_half_a_call),
		TEST(test_logprobs),	 TEST(test_short_ids), TEST(test_keepalive),
	};
	return cmocka_run_group_tests_name("responses", tests, NULL, NULL);
}
