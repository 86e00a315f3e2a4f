/*
 * test_at_prep.c: requests that are at prep for longer than server.keepalive_interval: what streams
 * are given meanwhile, and how errors that prep finds are told before and after that.
 */
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":9"
#define S 1000000000ll

static int setup(void **state)
{
	world_setup_saying_hi(state);
	struct world *w = *state;
	fake_engine_hold_prep(w->engine, true);
	return 0;
}

/* Something is parsed, and wants keep-alives while prep has it. */
static void until_at_prep(struct world *w)
{
	while (ig_api_tick(w->api, ig_now_ns()) < 0)
		wait_news(w);
}

/* The first keep-alive is due. */
static void interval_passes(struct world *w)
{
	until_at_prep(w);
	ig_api_tick(w->api, ig_now_ns() + 6 * S);
}

/* A protocol's streams: their first keep-alive, the end of a good one and the error of another. */
static const struct {
	const char *path, *ask, *keep_alive, *end, *error;
} streams[] = {
	{ CHAT, "{" MESSAGES ",\"stream\":true", ": keep-alive\n\n", "data: [DONE]\n\n",
	  "data: {\"error\":{\"message\":\"no model is named" },
	{ "/v1/completions", "{\"prompt\":\"q\",\"stream\":true", ": keep-alive\n\n",
	  "data: [DONE]\n\n", "data: {\"error\":{\"message\":\"no model is named" },
	{ "/v1/messages", "{" MESSAGES ",\"stream\":true",
	  "event: ping\ndata: {\"type\":\"ping\"}\n\n", "event: message_stop\n",
	  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"" },
	{ "/v1/responses", "{\"input\":\"q\",\"stream\":true", "event: response.created\n",
	  "event: response.completed\n", "event: response.failed\n" },
	{ "/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]",
	  "{\"model\":", "\"done\":true", "{\"error\":\"" },
};
#define N_STREAMS (sizeof streams / sizeof streams[0])

static struct ig_exchange *begin_stream(struct world *w, size_t i, const char *model)
{
	char body[200];

	snprintf(body, sizeof body, "%s,\"model\":\"%s\"}", streams[i].ask, model);
	return begin(w, streams[i].path, body);
}

static void check_begins(const char *path, const char *text, const char *with)
{
	if (strncmp(text, with, strlen(with)))
		fail_msg("%s: %s", path, text);
}

/* The head and a keep-alive go out when the interval is over, then one each interval. */
static void test_streams(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	for (size_t i = 0; i < N_STREAMS; i++) {
		fake_engine_hold_prep(w->engine, true);
		struct ig_exchange *x = begin_stream(w, i, "fake");
		until_at_prep(w);
		ig_api_tick(w->api, ig_now_ns() + 4 * S);
		assert_false(ig_exchange_head(x, &h));
		for (int k = 0; k < 2; k++) {
			ig_api_tick(w->api, ig_now_ns() + 6 * S);
			assert_true(ig_exchange_head(x, &h));
			assert_int_equal(h.status, 200);
			char *got = filled(x);
			if (i == 3 && k) /* Responses: created comes once */
				check_begins(streams[i].path, got, "event: response.in_progress\n");
			else
				check_begins(streams[i].path, got, streams[i].keep_alive);
			free(got);
			check_filled(x, "");
		}
		fake_engine_hold_prep(w->engine, false);
		char *rest = body_of(w, x);
		if (!strstr(rest, streams[i].end) || strstr(rest, "response.created"))
			fail_msg("%s: %s", streams[i].path, rest);
		free(rest);
	}
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, N_STREAMS);
}

/* Whole replies wait without a word. */
static void test_whole(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, "{" MESSAGES "}"), *y = begin_stream(w, 0, "fake");
	struct ig_http_head h;

	interval_passes(w);
	assert_true(ig_exchange_head(y, &h));
	assert_false(ig_exchange_head(x, &h));
	fake_engine_hold_prep(w->engine, false);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
	free(body_of(w, y));
}

/* An error of prep is a status until the first keep-alive; then it is the last event. */
static void test_errors(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	for (size_t i = 0; i < N_STREAMS; i++) {
		fake_engine_hold_prep(w->engine, true);
		struct ig_exchange *x = begin_stream(w, i, "none");
		until_at_prep(w);
		fake_engine_hold_prep(w->engine, false);
		head_of(w, x, &h);
		assert_int_equal(h.status, 404);
		free(body_of(w, x));

		fake_engine_hold_prep(w->engine, true);
		x = begin_stream(w, i, "none");
		interval_passes(w);
		assert_true(ig_exchange_head(x, &h));
		assert_int_equal(h.status, 200);
		char *got = filled(x);
		check_begins(streams[i].path, got, streams[i].keep_alive);
		free(got);
		fake_engine_hold_prep(w->engine, false);
		got = body_of(w, x);
		check_begins(streams[i].path, got, streams[i].error);
		free(got);
		assert_int_equal(fake_engine_seen(w->engine).n_refused, 2 * (i + 1));
		assert_int_equal(fake_engine_seen(w->engine).refused.status, 404);
	}
}

/* What is wrong with the text is known before prep has time for it. */
static void test_parsed_meanwhile(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin_stream(w, 0, "fake"), *y;
	struct ig_http_head h;

	until_at_prep(w);
	y = post(w, CHAT, "{\"messages\":7,\"stream\":true}", &h);
	assert_int_equal(h.status, 400);
	free(body_of(w, y));
	fake_engine_hold_prep(w->engine, false);
	free(body_of(w, x));
}

/* What parsing leaves out and what prep does are one list. */
static void test_ignored(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_hold_prep(w->engine, false);
	struct ig_exchange *x = post(w, "/api/chat",
				     "{\"model\":\"fake\"," MESSAGES
				     ",\"zeppelin\":1,\"keep_alive\":\"5m\",\"stream\":false}",
				     &h);
	assert_int_equal(h.status, 200);
	assert_string_equal(h.ignored, "max_tokens, zeppelin, keep_alive");
	free(body_of(w, x));
}

/* A client that leaves while prep has its stream. */
static void test_gone(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin_stream(w, 0, "fake");

	interval_passes(w);
	check_filled(x, ": keep-alive\n\n");
	ig_exchange_end(x);
	assert_int_equal(ig_api_tick(w->api, ig_now_ns() + 60 * S), -1);
	fake_engine_hold_prep(w->engine, false);
	while (!fake_engine_seen(w->engine).n_refused)
		wait_news(w);
	assert_int_equal(fake_engine_seen(w->engine).refused.status, 499);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
}

/* ---- the WebSocket ------------------------------------------------------------------ */

static void expect_type(struct world *w, const char *type, int number)
{
	json_t *v = event(w);

	assert_string_equal(str(v, "type"), type);
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), number);
	json_decref(v);
}

static void test_socket(void **state)
{
	struct world *w = *state;
	const char *type = "";

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_at_prep(w);
	assert_null(try_event(w));
	ig_api_tick(w->api, ig_now_ns() + 6 * S);
	expect_type(w, "response.created", 0);
	expect_type(w, "response.in_progress", 1);
	assert_null(try_event(w));
	ig_api_tick(w->api, ig_now_ns() + 6 * S);
	expect_type(w, "response.in_progress", 2);
	fake_engine_hold_prep(w->engine, false);
	for (int n = 3; strcmp(type, "response.completed"); n++) {
		json_t *v = event(w);
		type = !strcmp(str(v, "type"), "response.completed") ? "response.completed" : "";
		assert_string_not_equal(str(v, "type"), "response.created");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), n);
		json_decref(v);
	}
}

static void test_socket_error(void **state)
{
	struct world *w = *state;

	for (int late = 0; late < 2; late++) {
		fake_engine_hold_prep(w->engine, true);
		send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"model\":\"none\"}");
		until_at_prep(w);
		if (late) {
			ig_api_tick(w->api, ig_now_ns() + 6 * S);
			expect_type(w, "response.created", 0);
			expect_type(w, "response.in_progress", 1);
		}
		fake_engine_hold_prep(w->engine, false);
		json_t *v = event(w), *r = json_object_get(v, "response");
		assert_string_equal(str(v, "type"), late ? "response.failed" : "error");
		assert_string_equal(str(json_object_get(late ? r : v, "error"), "code"),
				    "model_not_found");
		json_decref(v);
	}
	assert_int_equal(fake_engine_seen(w->engine).n_refused, 2);
}

/* A cancel reaches a create that is at prep, and it ends as cancelled. */
static void test_socket_cancel(void **state)
{
	struct world *w = *state;

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	interval_passes(w);
	expect_type(w, "response.created", 0);
	expect_type(w, "response.in_progress", 1);
	send_text(w, "{\"type\":\"response.cancel\"}");
	/* the next message is answered after the cancel was read */
	send_text(w, "{\"type\":\"response.cancel\",\"stream_id\":\"other\"}");
	json_t *v = event(w);
	assert_string_equal(str(json_object_get(v, "error"), "code"), "response_not_found");
	json_decref(v);
	fake_engine_hold_prep(w->engine, false);
	v = event(w);
	assert_string_equal(str(json_object_get(v, "response"), "status"), "cancelled");
	json_decref(v);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_streams),	     TEST(test_whole),	      TEST(test_errors),
		TEST(test_parsed_meanwhile), TEST(test_ignored),      TEST(test_gone),
		TEST(test_socket),	     TEST(test_socket_error), TEST(test_socket_cancel),
	};
	return cmocka_run_group_tests_name("at prep", tests, NULL, NULL);
}
