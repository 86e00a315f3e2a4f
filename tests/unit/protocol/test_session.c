/*
 * test_session.c: a WebSocket session and chat exchanges over the fake engine:
 * events compared field by field, lanes, cancels, errors, keep-alives.
 *
 * The test is the loop: it polls when woken and fills as a connection would.
 */
#include "daemon/protocol/exchange.h"
#include "tests/unit/protocol/fake_engine.h"

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

struct world {
	struct ig_engine *engine;
	struct ig_api *api;
	struct ig_session *session;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool woken;
};

static void wake(void *ctx)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->woken = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void want_write(void *conn)
{
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->engine = fake_engine_create();
	struct ig_api_deps deps = {
		.engine = w->engine, .wake = wake, .wake_ctx = w, .want_write = want_write,
		.options = { .client_buffer = 4096, .keepalive_interval_ms = 5000, .retry_after_s = 2 },
	};
	w->api = ig_api_create(&deps);
	w->session = ig_session_open(w->api, "127.0.0.1", w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	ig_session_end(w->session);
	ig_engine_destroy(w->engine);
	ig_api_destroy(w->api);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return 0;
}

/* Sleep until there is news, 5 s at most. */
static void wait_news(struct world *w)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 5;
	pthread_mutex_lock(&w->lock);
	while (!w->woken)
		if (pthread_cond_timedwait(&w->cond, &w->lock, &end)) {
			pthread_mutex_unlock(&w->lock);
			fail_msg("nothing came for 5 s");
		}
	w->woken = false;
	pthread_mutex_unlock(&w->lock);
	ig_api_poll(w->api);
}

static void send_text(struct world *w, const char *text)
{
	ig_session_receive(w->session, strdup(text), strlen(text));
}

/* The next event, or NULL if none is there now. */
static json_t *try_event(struct world *w)
{
	struct ig_strbuf b = { 0 };
	json_error_t je;

	enum ig_fill f = ig_session_fill(w->session, &b);
	if (f != IG_FILL_DATA) {
		assert_int_equal(b.len, 0);
		return NULL;
	}
	json_t *v = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, &je);
	if (!v)
		fail_msg("not JSON: %s: %s", je.text, b.data);
	ig_strbuf_finish(&b);
	return v;
}

static json_t *event(struct world *w)
{
	json_t *v;

	while (!(v = try_event(w)))
		wait_news(w);
	return v;
}

static const char *str(json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));

	return s ? s : "(none)";
}

/* v must be exactly want, where "*" stands for anything and "#resp_" for a string
 * that begins so. */
static void match(const char *at, json_t *v, json_t *want)
{
	const char *s = json_string_value(want), *key;
	char sub[300];
	json_t *x;
	size_t i;

	if (s && !strcmp(s, "*")) {
		if (!v)
			fail_msg("%s is missing", at);
		return;
	}
	if (s && s[0] == '#') {
		if (strncmp(json_string_value(v) ? json_string_value(v) : "", s + 1, strlen(s) - 1))
			fail_msg("%s: %s", at, s);
		return;
	}
	if (json_is_object(want) && json_is_object(v)) {
		json_object_foreach(want, key, x) {
			snprintf(sub, sizeof sub, "%s.%s", at, key);
			match(sub, json_object_get(v, key), x);
		}
		json_object_foreach(v, key, x)
			if (!json_object_get(want, key))
				fail_msg("%s.%s should not be there", at, key);
		return;
	}
	if (json_is_array(want) && json_is_array(v) && json_array_size(want) == json_array_size(v)) {
		json_array_foreach(want, i, x) {
			snprintf(sub, sizeof sub, "%s[%zu]", at, i);
			match(sub, json_array_get(v, i), x);
		}
		return;
	}
	if (!json_equal(v, want)) {
		char *a = json_dumps(v, JSON_ENCODE_ANY), *b = json_dumps(want, JSON_ENCODE_ANY);
		fail_msg("%s: %s, expected %s", at, a ? a : "(missing)", b);
	}
}

static void expect(struct world *w, const char *want)
{
	json_error_t je;
	json_t *a = event(w), *b = json_loads(want, JSON_ALLOW_NUL, &je);

	if (!b)
		fail_msg("the test's JSON: %s at %d", je.text, je.position);
	match(str(a, "type"), a, b);
	json_decref(a);
	json_decref(b);
}

#define RESPONSE(status, error, incomplete, output, usage) \
	"{\"id\":\"#resp_\",\"object\":\"response\",\"created_at\":\"*\",\"status\":\"" status "\"," \
	"\"background\":false,\"error\":" error ",\"incomplete_details\":" incomplete "," \
	"\"instructions\":\"be brief\",\"max_output_tokens\":50,\"model\":\"fake\",\"output\":" output "," \
	"\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":null,\"store\":false," \
	"\"temperature\":0.5,\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\"," \
	"\"tools\":[],\"top_p\":1,\"truncation\":\"disabled\",\"usage\":" usage "," \
	"\"metadata\":{\"k\":\"v\"}}"
#define PART(text) "{\"type\":\"output_text\",\"text\":" text ",\"annotations\":[],\"logprobs\":[]}"
#define ITEM(status, content) "{\"id\":\"#msg_\",\"type\":\"message\",\"role\":\"assistant\"," \
	"\"status\":\"" status "\",\"content\":[" content "]}"
#define PLACE "\"item_id\":\"#msg_\",\"output_index\":0,\"content_index\":0"
#define USAGE(in, out, sum) "{\"input_tokens\":" in ",\"input_tokens_details\":{\"cached_tokens\":3," \
	"\"cache_write_tokens\":0},\"output_tokens\":" out "," \
	"\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":" sum "}"
#define CREATE "{\"type\":\"response.create\",\"model\":\"fake\",\"instructions\":\"be brief\"," \
	"\"input\":\"hi\",\"temperature\":0.5,\"max_output_tokens\":50,\"metadata\":{\"k\":\"v\"}"

static void test_sequence(void **state)
{
	static const char *const pieces[] = { "He said \"", "no\"\n", "é\x01", NULL };
	struct world *w = *state;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .hold = true,
							     .finish = IG_FINISH_STOP });
	send_text(w, CREATE "}");
	expect(w, "{\"type\":\"response.created\",\"sequence_number\":0,\"response\":"
	       RESPONSE("in_progress", "null", "null", "[]", "null") "}");
	expect(w, "{\"type\":\"response.in_progress\",\"sequence_number\":1,\"response\":"
	       RESPONSE("in_progress", "null", "null", "[]", "null") "}");
	assert_null(try_event(w));
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_string_equal(seen.prompt, "system:be brief;user:hi;");
	assert_true(seen.temperature == 0.5f && seen.top_p == 1 && seen.top_k == 0 &&
		    seen.max_tokens == 50);
	fake_engine_release(w->engine);
	while (fake_engine_seen(w->engine).n_finished < 1)
		usleep(1000);
	expect(w, "{\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,"
	       "\"item\":" ITEM("in_progress", "") "}");
	expect(w, "{\"type\":\"response.content_part.added\",\"sequence_number\":3," PLACE
	       ",\"part\":" PART("\"\"") "}");
	expect(w, "{\"type\":\"response.output_text.delta\",\"sequence_number\":4," PLACE
	       ",\"delta\":\"He said \\\"no\\\"\\né\\u0001\",\"logprobs\":[]}");
	expect(w, "{\"type\":\"response.output_text.done\",\"sequence_number\":5," PLACE
	       ",\"text\":\"He said \\\"no\\\"\\né\\u0001\",\"logprobs\":[]}");
	expect(w, "{\"type\":\"response.content_part.done\",\"sequence_number\":6," PLACE
	       ",\"part\":" PART("\"He said \\\"no\\\"\\né\\u0001\"") "}");
	expect(w, "{\"type\":\"response.output_item.done\",\"sequence_number\":7,\"output_index\":0,"
	       "\"item\":" ITEM("completed", PART("\"He said \\\"no\\\"\\né\\u0001\"")) "}");
	expect(w, "{\"type\":\"response.completed\",\"sequence_number\":8,\"response\":"
	       RESPONSE("completed", "null", "null",
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
		     !strcmp(type, "response.failed")) && !strcmp(str(v, "stream_id"), lane))
			return v;
		json_decref(v);
	}
}

static void test_length(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	struct world *w = *state;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	send_text(w, CREATE ",\"stream_id\":\"lane\"}");
	json_t *v = last_event(w, "lane");
	assert_string_equal(str(v, "type"), "response.incomplete");
	json_t *want = json_loads(RESPONSE("incomplete", "null", "{\"reason\":\"max_output_tokens\"}",
		"[" ITEM("incomplete", PART("\"a\"")) "]", USAGE("24", "1", "25")), 0, NULL);
	match("response", json_object_get(v, "response"), want);
	json_decref(v);
	json_decref(want);
}

static void test_failed(void **state)
{
	struct world *w = *state;

	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_ERROR, .error = "it broke" });
	send_text(w, CREATE "}");
	json_decref(event(w));
	json_decref(event(w));
	/* no item was begun */
	expect(w, "{\"type\":\"response.failed\",\"sequence_number\":2,\"response\":"
	       RESPONSE("failed", "{\"code\":\"server_error\",\"message\":\"it broke\"}", "null", "[]",
			USAGE("24", "0", "24")) "}");
	/* and the connection lives on */
	static const char *const pieces[] = { "ok", NULL };
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
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
	assert_string_equal(str(e, "type"), status >= 500 ? "server_error" : "invalid_request_error");
	assert_int_equal(json_integer_value(json_object_get(v, "retry_after")), retry ? 2 : 0);
	json_decref(v);
}

static void test_errors(void **state)
{
	struct world *w = *state;
	char big[3000];

	send_text(w, "{nonsense");
	expect_error(w, 400, "invalid_json", "(none)", "(none)", false);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"foo\":1,\"stream_id\":\"x\"}");
	expect_error(w, 400, "unsupported_parameter", "foo", "x", false);
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
	int n = snprintf(big, sizeof big, "{\"type\":\"response.create\",\"input\":\"%0*d\"}", 2500, 0);
	assert_true(n < (int)sizeof big);
	send_text(w, big);
	expect_error(w, 400, "context_length_exceeded", "input", "(none)", false);
	char *huge = malloc(20000);
	snprintf(huge, 20000, "{\"type\":\"response.create\",\"input\":\"%0*d\"}", 9000, 0);
	send_text(w, huge);
	free(huge);
	expect_error(w, 400, "context_length_exceeded", "input", "(none)", false);
	/* full, then draining */
	fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = -11 /* EAGAIN */ });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"y\"}");
	expect_error(w, 503, "server_is_overloaded", "(none)", "y", true);
	fake_engine_script(w->engine, &(struct fake_script){ .prep_rc = -11 });
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	expect_error(w, 503, "server_is_overloaded", "(none)", "(none)", true);
	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_STOP });
	ig_engine_drain(w->engine);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\"}");
	expect_error(w, 503, "server_shutting_down", "(none)", "(none)", true);
	send_text(w, "{\"type\":\"response.processed\",\"response_id\":\"x\"}");
	send_text(w, "{\"type\":\"response.steer\",\"input\":\"a\",\"previous_response_id\":\"r\"}");
	expect(w, "{\"type\":\"response.steer.failed\",\"sequence_number\":0,\"steer\":"
	       "{\"previous_response_id\":\"r\",\"input\":\"a\"},\"error\":{\"type\":"
	       "\"invalid_request_error\",\"code\":\"steering_not_supported\",\"message\":\"*\"}}");
}

/* A client's text is cut within a character: the error must stay UTF-8. */
static void test_cut_text(void **state)
{
	struct world *w = *state;
	char text[2000];
	size_t k = (size_t)snprintf(text, sizeof text, "{\"type\":\"response.create\",\"input\":\"a\",\"model\":\"x");

	for (int i = 0; i < 500; i++, k += 2)
		memcpy(text + k, "é", 2);
	strcpy(text + k, "\"}");
	send_text(w, text);
	expect_error(w, 404, "model_not_found", "model", "(none)", false);
	k = (size_t)snprintf(text, sizeof text, "{\"type\":\"response.cancel\",\"response_id\":\"x");
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

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .hold = true,
							     .finish = IG_FINISH_STOP });
	/* two in one lane: the second waits; twenty lanes: sixteen run */
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 2; k++) {
			snprintf(text, sizeof text, "{\"type\":\"response.create\",\"input\":\"%d\",\"stream_id\":"
				 "\"l%d\",\"metadata\":{\"k\":\"%d\"}}", k, i, k);
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
	struct { int number, response, done; } lanes[20] = { 0 };
	for (int n_done = 0; n_done < 40;) {
		json_t *v = event(w);
		int lane = atoi(str(v, "stream_id") + 1);
		const char *type = str(v, "type");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), lanes[lane].number);
		lanes[lane].number++;
		json_t *r = json_object_get(v, "response");
		if (r)
			assert_int_equal(atoi(str(json_object_get(r, "metadata"), "k")), lanes[lane].done);
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
		snprintf(text, sizeof text, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"n%d\"}", i);
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
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .repeat = 1000000000,
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
	send_text(w, "{\"type\":\"response.create\",\"input\":\"b\"}");
	send_text(w, "{\"type\":\"response.cancel\"}");
	for (int i = 0; i < 2; i++) {
		v = last_event(w, "(none)");
		assert_string_equal(str(json_object_get(v, "response"), "status"), "cancelled");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), i ? 2 : 2);
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
		snprintf(text, sizeof text, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"%d\"}", i);
		send_text(w, text);
	}
	send_text(w, "{\"type\":\"response.create\",\"input\":\"a\",\"stream_id\":\"0\"}");
	while (fake_engine_seen(w->engine).n_submitted < 3)
		wait_news(w);
	for (int i = 0; i < 20; i++) {
		ig_api_poll(w->api);
		usleep(1000);
	}
	/* one more is still with prep when the socket goes */
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

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .repeat = 5000,
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

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true, .finish = IG_FINISH_STOP });
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

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true, .finish = IG_FINISH_STOP });
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

/* ---- chat ------------------------------------------------------------------------ */

static struct ig_exchange *post(struct world *w, const char *body, struct ig_http_head *head)
{
	struct ig_http_request r = { .method = "POST", .path = "/v1/chat/completions",
				     .client = "::1", .body = strdup(body), .body_len = strlen(body) };
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);

	assert_null(r.body);
	while (!ig_exchange_head(x, head))
		wait_news(w);
	return x;
}

/* The body, whole. */
static char *body_of(struct world *w, struct ig_exchange *x)
{
	struct ig_strbuf b = { 0 };
	enum ig_fill f;

	while ((f = ig_exchange_fill(x, &b)) != IG_FILL_END)
		if (f == IG_FILL_WAIT)
			wait_news(w);
	ig_exchange_end(x);
	return ig_strbuf_steal(&b);
}

static void match_text(const char *at, const char *text, const char *want)
{
	json_t *a = json_loads(text, 0, NULL), *b = json_loads(want, 0, NULL);

	if (!a || !b)
		fail_msg("%s is not JSON: %s", a ? "want" : "got", a ? want : text);
	match(at, a, b);
	json_decref(a);
	json_decref(b);
}

static void test_chat_whole(void **state)
{
	static const char *const pieces[] = { "Hel", "lo", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	struct ig_exchange *x = post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"seed\":5,"
				     "\"stop\":[\"END\"],\"top_k\":4,\"min_p\":0.25,"
				     "\"frequency_penalty\":0.5,\"presence_penalty\":-1,"
				     "\"repetition_penalty\":1.5,\"logit_bias\":{\"3\":-2.5}}", &h);
	assert_int_equal(h.status, 200);
	assert_string_equal(h.content_type, "application/json");
	char *body = body_of(w, x);
	assert_int_equal(h.length, strlen(body));
	match_text("body", body, "{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion\",\"created\":\"*\","
		   "\"model\":\"fake\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
		   "\"content\":\"Hello\",\"refusal\":null,\"annotations\":[]},\"logprobs\":null,"
		   "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
		   "\"total_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":3},"
		   "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
	free(body);
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_true(s.seed == 5 && s.top_k == 4 && s.temperature == 1 && s.min_p == 0.25f &&
		    s.frequency_penalty == 0.5f && s.presence_penalty == -1.0f &&
		    s.repetition_penalty == 1.5f && s.n_biases == 1 && s.bias.id == 3 &&
		    s.bias.bias == -2.5f);
	assert_string_equal(s.stops[0], "END");
}

#define CHUNK(delta, finish) "{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion.chunk\"," \
	"\"created\":\"*\",\"model\":\"fake\",\"choices\":[{\"index\":0,\"delta\":" delta "," \
	"\"logprobs\":null,\"finish_reason\":" finish "}]"

static void check_frames(char *body, const char *const *want)
{
	size_t i = 0;

	for (char *p = body; *p; i++) {
		char *end = strstr(p, "\n\n");
		assert_non_null(end);
		*end = 0;
		if (!want[i])
			fail_msg("one frame too many: %s", p);
		if (want[i][0] == '{') {
			assert_memory_equal(p, "data: ", 6);
			match_text("frame", p + 6, want[i]);
		} else {
			assert_string_equal(p, want[i]);
		}
		p = end + 2;
	}
	assert_null(want[i]);
	free(body);
}

static void test_chat_stream(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	static const char *const plain[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") "}",
		CHUNK("{\"content\":\"a\"}", "null") "}", CHUNK("{}", "\"length\"") "}",
		"data: [DONE]", NULL,
	};
	static const char *const usage[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") ",\"usage\":null}",
		CHUNK("{\"content\":\"a\"}", "null") ",\"usage\":null}",
		CHUNK("{}", "\"length\"") ",\"usage\":null}",
		"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion.chunk\",\"created\":\"*\","
		"\"model\":\"fake\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,"
		"\"total_tokens\":8,\"prompt_tokens_details\":{\"cached_tokens\":3},"
		"\"completion_tokens_details\":{\"reasoning_tokens\":0}}}",
		"data: [DONE]", NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	struct ig_exchange *x = post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}", &h);
	assert_int_equal(h.status, 200);
	assert_int_equal(h.length, -1);
	assert_string_equal(h.content_type, "text/event-stream; charset=utf-8");
	check_frames(body_of(w, x), plain);
	x = post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true,"
		 "\"stream_options\":{\"include_usage\":true}}", &h);
	check_frames(body_of(w, x), usage);
}

static void test_chat_stream_error(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	static const char *const want[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") "}",
		CHUNK("{\"content\":\"a\"}", "null") "}",
		"{\"error\":{\"message\":\"it broke\",\"type\":\"server_error\",\"param\":null,"
		"\"code\":\"server_error\"}}", NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_ERROR,
							     .error = "it broke" });
	check_frames(body_of(w, post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}", &h)), want);
	/* whole: a status */
	char *body = body_of(w, post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", &h));
	assert_int_equal(h.status, 500);
	match_text("body", body, want[2]);
	free(body);
}

static void test_chat_refused(void **state)
{
	static const struct {
		int submit_rc, prep_rc, status;
		const char *body, *code;
		bool retry;
		int refused;
	} rows[] = {
		{ 0, 0, 400, "{", "invalid_json", false, 1 },
		{ 0, 0, 400, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"zap\":1}",
		  "unsupported_parameter", false, 1 },
		{ 0, 0, 404, "{\"model\":\"nix\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "model_not_found", false, 1 },
		{ -11, 0, 503, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "server_is_overloaded", true, 0 },
		{ 0, -11, 503, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "server_is_overloaded", true, 1 },
		{ -7, 0, 400, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "context_length_exceeded", false, 0 },
	};
	struct world *w = *state;
	struct ig_http_head h;
	int n_refused = 0;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = rows[i].submit_rc,
								     .prep_rc = rows[i].prep_rc });
		char *body = body_of(w, post(w, rows[i].body, &h));
		json_t *v = json_loads(body, 0, NULL);
		assert_int_equal(h.status, rows[i].status);
		assert_string_equal(str(json_object_get(v, "error"), "code"), rows[i].code);
		assert_int_equal(h.retry_after_s, rows[i].retry ? 2 : 0);
		n_refused += rows[i].refused;
		assert_int_equal(fake_engine_seen(w->engine).n_refused, n_refused);
		json_decref(v);
		free(body);
	}
	assert_string_equal(fake_engine_seen(w->engine).refused.endpoint, "POST /v1/chat/completions");
}

static void test_chat_gone(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	struct ig_exchange *x = post(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}", &h);
	/* the wall clock's comment */
	struct ig_strbuf b = { 0 };
	ig_exchange_fill(x, &b);
	ig_strbuf_clear(&b);
	ig_api_tick(w->api, ig_now_ns() + 6000000000);
	ig_exchange_fill(x, &b);
	assert_string_equal(b.data, ": keep-alive\n\n");
	ig_strbuf_finish(&b);
	ig_exchange_end(x);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
}

static void test_routes(void **state)
{
	static const struct {
		const char *method, *path;
		int status;
		const char *allow, *body;
	} rows[] = {
		{ "GET", "/healthz", 200, NULL, "{\"status\":\"ok\"}" },
		{ "GET", "/metrics", 200, NULL, NULL },
		{ "GET", "/v1/models", 200, NULL, "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":"
		  "\"model\",\"created\":1700000000,\"owned_by\":\"ingot\"}]}" },
		{ "GET", "/v1/models/fake", 200, NULL, "{\"id\":\"fake\",\"object\":\"model\",\"created\":"
		  "1700000000,\"owned_by\":\"ingot\"}" },
		{ "GET", "/v1/models/other", 404, NULL, "{\"error\":{\"message\":\"*\",\"type\":"
		  "\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}" },
		{ "GET", "/v1/models/", 404, NULL, NULL },
		{ "POST", "/v1/models", 405, "GET", NULL },
		{ "GET", "/v1/chat/completions", 405, "POST", NULL },
		{ "POST", "/v1/responses", 405, "GET", NULL },
		{ "GET", "/v1/responses", 426, NULL, NULL },
		{ "GET", "/v1/ingot/requests", 200, NULL, "{\"object\":\"list\",\"total\":0,\"data\":[]}" },
		{ "GET", "/v1/ingot/status", 200, NULL, "{\"fake\":true}" },
		{ "GET", "/nothing", 404, NULL, "{\"error\":{\"message\":\"Nothing is at GET /nothing.\","
		  "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"not_found\"}}" },
		{ "DELETE", "/healthz", 405, "GET", NULL },
	};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_http_request r = { .method = rows[i].method, .path = rows[i].path, .client = "c" };
		struct ig_http_head h;
		struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
		assert_true(ig_exchange_head(x, &h));
		if (h.status != rows[i].status)
			fail_msg("%s %s: %d", rows[i].method, rows[i].path, h.status);
		assert_true(rows[i].allow ? !strcmp(h.allow, rows[i].allow) : !h.allow);
		assert_int_equal(h.upgrade, h.status == 426);
		char *body = body_of(w, x);
		if (rows[i].body)
			match_text(rows[i].path, body, rows[i].body);
		free(body);
	}
	ig_api_drain(w->api);
	struct ig_http_request r = { .method = "GET", .path = "/healthz", .client = "c" };
	struct ig_http_head h;
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	assert_true(ig_exchange_head(x, &h));
	assert_int_equal(h.status, 503);
	free(body_of(w, x));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sequence), TEST(test_length), TEST(test_failed), TEST(test_errors),
		TEST(test_cut_text), TEST(test_lanes), TEST(test_lane_names), TEST(test_cancel),
		TEST(test_end_cancels), TEST(test_slow_reader), TEST(test_keepalive), TEST(test_drain),
		TEST(test_chat_whole), TEST(test_chat_stream), TEST(test_chat_stream_error),
		TEST(test_chat_refused), TEST(test_chat_gone), TEST(test_routes),
	};
	return cmocka_run_group_tests_name("sessions and exchanges", tests, NULL, NULL);
}
