/*
 * test_session.c: a WebSocket session over the fake engine: events compared field by
 * field, lanes, cancels, errors, keep-alives.
 */
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RESPONSE(status, error, incomplete, output, usage)                                             \
	"{\"id\":\"#resp_\",\"object\":\"response\",\"created_at\":\"*\",\"status\":\"" status         \
	"\","                                                                                          \
	"\"background\":false,\"error\":" error ",\"incomplete_details\":" incomplete ","              \
	"\"instructions\":\"be brief\",\"max_output_tokens\":50,\"model\":\"fake\",\"output\":" output \
	","                                                                                            \
	"\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":null,"               \
	"\"service_tier\":\"default\",\"store\":true,"                                                 \
	"\"temperature\":0.5,\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\","      \
	"\"tools\":[],\"top_p\":1,\"truncation\":\"disabled\",\"usage\":" usage ","                    \
	"\"metadata\":{\"k\":\"v\"}}"
#define PART(text) "{\"type\":\"output_text\",\"text\":" text ",\"annotations\":[],\"logprobs\":[]}"
#define ITEM(status, content)                                                                      \
	"{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\","                           \
	"\"status\":\"" status "\",\"content\":[" content "]}"
#define PLACE "\"item_id\":\"#msg_\",\"output_index\":0,\"content_index\":0"
#define USAGE(in, out, sum)                                                                        \
	"{\"input_tokens\":" in ",\"input_tokens_details\":{\"cached_tokens\":3,"                  \
	"\"cache_write_tokens\":0},\"output_tokens\":" out ","                                     \
	"\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":" sum "}"
#define CREATE                                                                                     \
	"{\"type\":\"response.create\",\"model\":\"fake\",\"instructions\":\"be brief\","          \
	"\"input\":\"hi\",\"temperature\":0.5,\"max_output_tokens\":50,\"metadata\":{\"k\":\"v\"}"

static void test_sequence(void **state)
{
	static const char *const pieces[] = { "He said \"", "no\"\n", "é\x01", NULL };
	struct world *w = *state;

	fake_engine_script(
		w->engine,
		&(struct fake_script){ .pieces = pieces, .hold = true, .finish = IG_FINISH_STOP });
	send_text(w, CREATE "}");
	expect(w, "{\"type\":\"response.created\",\"sequence_number\":0,\"response\":" RESPONSE(
			  "in_progress", "null", "null", "[]", "null") "}");
	expect(w, "{\"type\":\"response.in_progress\",\"sequence_number\":1,\"response\":" RESPONSE(
			  "in_progress", "null", "null", "[]", "null") "}");
	assert_null(try_event(w));
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_string_equal(seen.prompt, "system:be brief;user:hi;");
	assert_true(seen.temperature == 0.5f && seen.top_p == 1 && seen.top_k == 0 &&
		    seen.max_tokens == 50);
	fake_engine_release(w->engine);
	while (fake_engine_seen(w->engine).n_finished < 1)
		usleep(1000);
	expect(w,
	       "{\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,"
	       "\"item\":" ITEM("in_progress", "") "}");
	expect(w, "{\"type\":\"response.content_part.added\",\"sequence_number\":3," PLACE
		  ",\"part\":" PART("\"\"") "}");
	expect(w, "{\"type\":\"response.output_text.delta\",\"sequence_number\":4," PLACE
		  ",\"delta\":\"He said \\\"no\\\"\\né\\u0001\",\"logprobs\":[]}");
	expect(w, "{\"type\":\"response.output_text.done\",\"sequence_number\":5," PLACE
		  ",\"text\":\"He said \\\"no\\\"\\né\\u0001\",\"logprobs\":[]}");
	expect(w, "{\"type\":\"response.content_part.done\",\"sequence_number\":6," PLACE
		  ",\"part\":" PART("\"He said \\\"no\\\"\\né\\u0001\"") "}");
	expect(w,
	       "{\"type\":\"response.output_item.done\",\"sequence_number\":7,\"output_index\":0,"
	       "\"item\":" ITEM("completed", PART("\"He said \\\"no\\\"\\né\\u0001\"")) "}");
	expect(w, "{\"type\":\"response.completed\",\"sequence_number\":8,\"response\":" RESPONSE(
			  "completed", "null,\"completed_at\":\"*\"", "null",
			  "[" ITEM("completed", PART("\"He said \\\"no\\\"\\né\\u0001\"")) "]",
			  USAGE("24", "3", "27")) "}");
	assert_null(try_event(w));
}

/* Skip to the final event and return it. */
static json_t *last_event(struct world *w, const char *lane)
{
	for (;;) {
		json_t *v = event(w);
		const char *type = str(v, "type");
		if ((!strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
		     !strcmp(type, "response.failed")) &&
		    !strcmp(str(v, "stream_id"), lane))
			return v;
		json_decref(v);
	}
}

static void test_length(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	struct world *w = *state;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	send_text(w, CREATE ",\"stream_id\":\"lane\"}");
	json_t *v = last_event(w, "lane");
	assert_string_equal(str(v, "type"), "response.incomplete");
	json_t *want = json_loads(
		RESPONSE("incomplete", "null", "{\"reason\":\"max_output_tokens\"}",
			 "[" ITEM("incomplete", PART("\"a\"")) "]", USAGE("24", "1", "25")),
		0, NULL);
	match("response", json_object_get(v, "response"), want);
	json_decref(v);
	json_decref(want);
}

static void test_failed(void **state)
{
	struct world *w = *state;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .finish = IG_FINISH_ERROR, .error = "it broke" });
	send_text(w, CREATE "}");
	json_decref(event(w));
	json_decref(event(w));
	/* no item was begun */
	expect(w, "{\"type\":\"response.failed\",\"sequence_number\":2,\"response\":" RESPONSE(
			  "failed", "{\"code\":\"server_error\",\"message\":\"it broke\"}", "null",
			  "[]", USAGE("24", "0", "24")) "}");
	/* and the connection lives on */
	static const char *const pieces[] = { "ok", NULL };
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	send_text(w, CREATE "}");
	json_t *v = last_event(w, "(none)");
	assert_string_equal(str(v, "type"), "response.completed");
	json_decref(v);
}

static void expect_error(struct world *w, int status, const char *code, const char *param,
			 const char *lane, bool retry)
{
	json_t *v = event(w), *e = json_object_get(v, "error");

	if (strcmp(str(v, "type"), "error"))
		fail_msg("%s instead of an error", str(v, "type"));
	assert_int_equal(json_integer_value(json_object_get(v, "status")), status);
	assert_true(json_is_integer(json_object_get(v, "status")));
	assert_string_equal(str(e, "code"), code);
	assert_string_equal(str(e, "param"), param);
	assert_string_equal(str(v, "stream_id"), lane);
	assert_true(json_is_string(json_object_get(e, "message")));
	assert_string_equal(str(e, "type"),
			    status >= 500 ? "server_error" : "invalid_request_error");
	assert_int_equal(json_integer_value(json_object_get(v, "retry_after")), retry ? 2 : 0);
	json_decref(v);
}

/* Agents compact at the event of a response that failed, not at an error. */
static void expect_overflow(struct world *w)
{
	json_t *v = last_event(w, "(none)");
	json_t *r = json_object_get(v, "response");

	assert_string_equal(str(v, "type"), "response.failed");
	assert_string_equal(str(r, "status"), "failed");
	assert_string_equal(str(json_object_get(r, "error"), "code"), "context_length_exceeded");
	assert_int_equal(json_array_size(json_object_get(r, "output")), 0);
	json_decref(v);
}

static void test_errors(void **state)
{
	struct world *w = *state;
	char big[3000];

	send_text(w, "{nonsense");
	expect_error(w, 400, "invalid_json", "(none)", "(none)", false);
	send_text(
		w,
		"{\"type\":\"response.create\",\"input\":\"a\",\"background\":true,\"stream_id\":\"x\"}");
	expect_error(w, 400, "unsupported_parameter", "background", "x", false);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"\"}");
	expect_error(w, 400, "invalid_stream_id", "stream_id", "(none)", false);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"model\":\"other\"}");
	expect_error(w, 404, "model_not_found", "model", "(none)", false);
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_int_equal(seen.n_refused, 4);
	assert_string_equal(seen.refused.endpoint, "ws /v1/responses");
	assert_string_equal(seen.refused.client, "127.0.0.1");
	assert_string_equal(seen.refused.finish, "refused");
	assert_string_equal(seen.refused.model, "other");
	assert_int_equal(seen.refused.status, 404);
	assert_true(seen.refused.received_ns > 0 && seen.refused.ttft_ms < 0);
	/* a prompt beyond the context, and one beyond four of them */
	int n = snprintf(big, sizeof big, "{\"type\":\"response.create\",\"input\":\"%0*d\"}", 2500,
			 0);
	assert_true(n < (int)sizeof big);
	send_text(w, big);
	expect_overflow(w);
	char *huge = malloc(20000);
	snprintf(huge, 20000, "{\"type\":\"response.create\",\"input\":\"%0*d\"}", 9000, 0);
	send_text(w, huge);
	free(huge);
	expect_overflow(w);
	/* full, then draining */
	fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = -11 /* EAGAIN */ });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"y\"}");
	expect_error(w, 503, "server_busy", "(none)", "y", true);
	fake_engine_script(w->engine, &(struct fake_script){ .prep_rc = -11 });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	expect_error(w, 503, "server_busy", "(none)", "(none)", true);
	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	ig_engine_drain(w->engine);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	expect_error(w, 503, "server_shutting_down", "(none)", "(none)", true);
	send_text(w, "{\"type\":\"response.processed\",\"response_id\":\"x\"}");
	send_text(w,
		  "{\"type\":\"response.steer\",\"input\":\"a\",\"previous_response_id\":\"r\"}");
	expect(w,
	       "{\"type\":\"response.steer.failed\",\"sequence_number\":0,\"steer\":"
	       "{\"previous_response_id\":\"r\",\"input\":\"a\"},\"error\":{\"type\":"
	       "\"invalid_request_error\",\"code\":\"steering_not_supported\",\"message\":\"*\"}}");
}

/* A client's text is cut within a character: the error must stay UTF-8. */
static void test_cut_text(void **state)
{
	struct world *w = *state;
	char text[2000];
	size_t k = (size_t)snprintf(text, sizeof text,
				    "{\"type\":\"response.create\",\"input\":\"a\",\"model\":\"x");

	for (int i = 0; i < 500; i++, k += 2)
		memcpy(text + k, "é", 2);
	strcpy(text + k, "\"}");
	send_text(w, text);
	expect_error(w, 404, "model_not_found", "model", "(none)", false);
	k = (size_t)snprintf(text, sizeof text,
			     "{\"type\":\"response.cancel\",\"response_id\":\"x");
	for (int i = 0; i < 200; i++, k += 2)
		memcpy(text + k, "é", 2);
	strcpy(text + k, "\"}");
	send_text(w, text);
	expect_error(w, 404, "response_not_found", "response_id", "(none)", false);
}

static void test_lanes(void **state)
{
	static const char *const pieces[] = { "x", NULL };
	struct world *w = *state;
	char text[200];
	int n_created = 0;

	fake_engine_script(
		w->engine,
		&(struct fake_script){ .pieces = pieces, .hold = true, .finish = IG_FINISH_STOP });
	/* two in one lane: the second waits; twenty lanes: sixteen run */
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 2; k++) {
			snprintf(text, sizeof text,
				 "{\"type\":\"response.create\",\"input\":\"%d\",\"stream_id\":"
				 "\"l%d\",\"metadata\":{\"k\":\"%d\"}}",
				 k, i, k);
			while (!ig_session_wants_input(w->session))
				wait_news(w);
			send_text(w, text);
		}
	}
	while (fake_engine_seen(w->engine).n_submitted < 16)
		wait_news(w);
	for (int i = 0; i < 50; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 16);
	fake_engine_release(w->engine);
	/* every lane: the first, whole, then the second; numbers rise from 0 in each */
	struct {
		int number, response, done;
	} lanes[20] = { 0 };
	for (int n_done = 0; n_done < 40;) {
		json_t *v = event(w);
		int lane = atoi(str(v, "stream_id") + 1);
		const char *type = str(v, "type");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")),
				 lanes[lane].number);
		lanes[lane].number++;
		json_t *r = json_object_get(v, "response");
		if (r)
			assert_int_equal(atoi(str(json_object_get(r, "metadata"), "k")),
					 lanes[lane].done);
		n_created += !strcmp(type, "response.created");
		if (!strcmp(type, "response.completed")) {
			lanes[lane].done++;
			lanes[lane].number = 0;
			n_done++;
		}
		json_decref(v);
	}
	assert_int_equal(n_created, 40);
	assert_true(fake_engine_seen(w->engine).n_running_max <= 16);
}

static void test_lane_names(void **state)
{
	struct world *w = *state;
	char text[200];

	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	for (int i = 0; i < 33; i++) {
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"n%d\"}", i);
		send_text(w, text);
		snprintf(text, sizeof text, "n%d", i);
		if (i < 32)
			json_decref(last_event(w, text));
	}
	expect_error(w, 400, "websocket_stream_limit_reached", "stream_id", "n32", false);
	/* a known one and the default lane still work */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"n0\"}");
	json_decref(last_event(w, "n0"));
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	json_decref(last_event(w, "(none)"));
}

static void test_cancel(void **state)
{
	static const char *const pieces[] = { "part", NULL };
	struct world *w = *state;
	char text[200];

	/* by id, after some text */
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .repeat = 1000000000,
							     .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"l\"}");
	json_t *v = event(w);
	snprintf(text, sizeof text, "{\"type\":\"response.cancel\",\"response_id\":\"%s\"}",
		 str(json_object_get(v, "response"), "id"));
	json_decref(v);
	for (int i = 0; i < 5; i++)
		json_decref(event(w));
	send_text(w, text);
	v = last_event(w, "l");
	assert_string_equal(str(v, "type"), "response.incomplete");
	json_t *r = json_object_get(v, "response");
	assert_string_equal(str(r, "status"), "cancelled");
	assert_true(json_is_null(json_object_get(r, "incomplete_details")));
	json_t *item = json_array_get(json_object_get(r, "output"), 0);
	assert_string_equal(str(item, "status"), "incomplete");
	json_decref(v);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_cancel");
	/* a lane: what runs and what waits */
	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	while (fake_engine_seen(w->engine).n_submitted < 2)
		wait_news(w);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"b\"}");
	send_text(w, "{\"type\":\"response.cancel\"}");
	for (int i = 0; i < 2; i++) {
		v = last_event(w, "(none)");
		assert_string_equal(str(json_object_get(v, "response"), "status"), "cancelled");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")),
				 i ? 2 : 2);
		json_decref(v);
	}
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 2);
	/* nothing there */
	send_text(w, "{\"type\":\"response.cancel\",\"stream_id\":\"l\"}");
	expect_error(w, 404, "response_not_found", "stream_id", "l", false);
	send_text(w, "{\"type\":\"response.cancel\",\"response_id\":\"resp_x\"}");
	expect_error(w, 404, "response_not_found", "response_id", "(none)", false);
}

static void test_end_cancels(void **state)
{
	struct world *w = *state;

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	for (int i = 0; i < 3; i++) {
		char text[100];
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"%d\"}", i);
		send_text(w, text);
	}
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"0\"}");
	while (fake_engine_seen(w->engine).n_submitted < 3)
		wait_news(w);
	for (int i = 0; i < 20; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
	/* one more is still at prep when the socket is closed */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"9\"}");
	ig_session_end(w->session);
	w->session = NULL;
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_int_equal(seen.n_cancelled, 3);
	assert_string_equal(seen.cancel_reason, "client_gone");
	for (int i = 0; i < 20; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 3);
	assert_int_equal(fake_engine_seen(w->engine).n_finished, 3);
}

static void test_slow_reader(void **state)
{
	static const char *const pieces[] = { "0123456789", NULL };
	struct world *w = *state;
	size_t total = 0;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .repeat = 5000,
							     .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	json_decref(event(w));
	json_decref(event(w));
	usleep(20000); /* the engine runs into the full ring and pauses */
	assert_int_equal(fake_engine_seen(w->engine).n_finished, 0);
	for (;;) {
		json_t *v = event(w);
		bool done = !strcmp(str(v, "type"), "response.completed");
		if (!strcmp(str(v, "type"), "response.output_text.delta")) {
			assert_true(json_string_length(json_object_get(v, "delta")) <= 4096);
			total += json_string_length(json_object_get(v, "delta"));
		}
		json_decref(v);
		if (done)
			break;
	}
	assert_int_equal(total, 50000);
	assert_true(fake_engine_seen(w->engine).n_resumed > 10);
}

static void test_keepalive(void **state)
{
	struct world *w = *state;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .hold = true, .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	json_decref(event(w));
	json_decref(event(w));
	assert_null(try_event(w));
	int64_t now = ig_now_ns();
	int64_t next = ig_api_tick(w->api, now);
	assert_true(next > 4000000000 && next <= 5000000000);
	assert_null(try_event(w));
	assert_true(ig_api_tick(w->api, now + 5100000000) > 0);
	json_t *v = event(w);
	assert_string_equal(str(v, "type"), "response.in_progress");
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), 2);
	json_decref(v);
	assert_null(try_event(w)); /* one, not one a tick */
	fake_engine_release(w->engine);
	json_decref(last_event(w, "(none)"));
	assert_int_equal(ig_api_tick(w->api, now), -1);
}

static void test_drain(void **state)
{
	struct world *w = *state;
	struct ig_strbuf b = { 0 };

	fake_engine_script(w->engine,
			   &(struct fake_script){ .hold = true, .finish = IG_FINISH_STOP });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	json_decref(event(w));
	ig_api_drain(w->api);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"b\"}");
	json_t *v;
	while (strcmp(str(v = event(w), "type"), "error"))
		json_decref(v);
	assert_int_equal(json_integer_value(json_object_get(v, "status")), 503);
	json_decref(v);
	assert_int_equal(ig_session_fill(w->session, &b), IG_FILL_WAIT);
	fake_engine_release(w->engine);
	v = last_event(w, "(none)");
	assert_string_equal(str(v, "type"), "response.completed");
	json_decref(v);
	assert_int_equal(ig_session_fill(w->session, &b), IG_FILL_END);
	ig_strbuf_finish(&b);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sequence),	TEST(test_length),    TEST(test_failed),
		TEST(test_errors),	TEST(test_cut_text),  TEST(test_lanes),
		TEST(test_lane_names),	TEST(test_cancel),    TEST(test_end_cancels),
		TEST(test_slow_reader), TEST(test_keepalive), TEST(test_drain),
	};
	return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
