/*
 * test_waiting.c: requests whose model is being loaded, over the fake engine: what streams
 * are given meanwhile, how a wait ends, who may not wait; and what administrators ask for.
 */
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":9"
#define S 1000000000

static int setup(void **state)
{
	world_setup_saying_hi(state);
	struct world *w = *state;
	fake_engine_model(w->engine, -EINPROGRESS);
	return 0;
}

/* Prep has seen as many requests that have to wait; the loop has parked them. */
static void until_parked(struct world *w, int n_callbacks)
{
	while (fake_engine_seen(w->engine).n_callbacks < n_callbacks)
		wait_news(w);
	/* whoever is on its way from prep */
	for (int i = 0; i < 50; i++) {
		usleep(1000);
		ig_api_poll(w->api);
	}
}

static const struct {
	const char *path, *body;
} whole[] = {
	{ CHAT, ASK "}" },
	{ "/v1/messages", ASK "}" },
	{ "/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}" },
	{ "/v1/completions", "{\"prompt\":\"q\"}" },
	{ "/v1/responses", "{\"input\":\"q\"}" },
	{ "/v1/responses/input_tokens", "{\"input\":\"q\"}" },
	{ "/v1/tokenize", "{\"prompt\":\"q\",\"model\":\"fake\"}" },
	{ "/v1/detokenize", "{\"tokens\":[97]}" },
};
#define N_WHOLE (sizeof whole / sizeof whole[0])

/* Whole replies wait without a word, and come when the model is there. */
static void test_whole(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x[N_WHOLE];
	struct ig_http_head h;

	for (size_t i = 0; i < N_WHOLE; i++)
		x[i] = begin(w, whole[i].path, whole[i].body);
	until_parked(w, 2);
	/* the default one, and the one that was named */
	assert_int_equal(fake_engine_seen(w->engine).n_callbacks, 2);
	int64_t next = ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	assert_true(next > 0 && next <= 54ll * S);
	for (size_t i = 0; i < N_WHOLE; i++)
		assert_false(ig_exchange_head(x[i], &h));
	fake_engine_load_ends(w->engine, 0);
	for (size_t i = 0; i < N_WHOLE; i++) {
		head_of(w, x[i], &h);
		if (h.status != 200)
			fail_msg("%s: %d", whole[i].path, h.status);
		free(body_of(w, x[i]));
	}
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 4);
	assert_int_equal(fake_engine_seen(w->engine).n_refused, 0);
	assert_int_equal(ig_api_tick(w->api, ig_now_ns()), -1);
}

/* ---- streams ------------------------------------------------------------------------ */

/* The response headers are sent with the first keep-alive; then one each interval. */
static void test_chat_stream(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK ",\"stream\":true}");
	struct ig_http_head h;

	until_parked(w, 1);
	int64_t now = ig_now_ns();
	assert_true(ig_api_tick(w->api, now) <= 5ll * S);
	assert_false(ig_exchange_head(x, &h));
	assert_int_equal(ig_api_tick(w->api, now + 6ll * S), 5ll * S);
	assert_true(ig_exchange_head(x, &h));
	assert_int_equal(h.status, 200);
	assert_int_equal(h.length, -1);
	assert_string_equal(h.content_type, "text/event-stream; charset=utf-8");
	check_filled(x, ": keep-alive\n\n");
	check_filled(x, "");
	ig_api_tick(w->api, now + 6ll * S); /* the clock of the fill was the real one */
	check_filled(x, ": keep-alive\n\n");
	fake_engine_load_ends(w->engine, 0);
	char *body = body_of(w, x);
	assert_ptr_equal(strstr(body, "data: {\"id\":\"chatcmpl-"), body);
	assert_non_null(strstr(body, "\"role\":\"assistant\""));
	assert_non_null(strstr(body, "\"content\":\"Hi\""));
	assert_non_null(strstr(body, "data: [DONE]"));
	free(body);
}

static void test_messages_stream(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, "/v1/messages", ASK ",\"stream\":true}");

	until_parked(w, 1);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	check_filled(x, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
	fake_engine_load_ends(w->engine, 0);
	char *body = body_of(w, x);
	assert_ptr_equal(strstr(body, "event: message_start\n"), body);
	assert_non_null(strstr(body, "event: message_stop\n"));
	free(body);
}

/* Sequence numbers rise by one, the id stays, created comes once. */
static void check_events(char *body, const char *last)
{
	int n = 0, n_created = 0;
	char id[64] = "", type[64] = "";

	for (char *p = body; *p; n++) {
		char *end = strstr(p, "\n\n"), *data = strstr(p, "data: ");
		assert_non_null(end);
		*end = 0;
		json_t *v = json_loads(data + 6, 0, NULL), *r = json_object_get(v, "response");
		assert_non_null(v);
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), n);
		snprintf(type, sizeof type, "%s", str(v, "type"));
		n_created += !strcmp(type, "response.created");
		assert_int_equal(n_created, 1);
		if (r && !id[0])
			snprintf(id, sizeof id, "%s", str(r, "id"));
		if (r) {
			assert_string_equal(str(r, "id"), id);
			assert_string_equal(str(r, "model"), "fake");
		}
		json_decref(v);
		p = end + 2;
	}
	assert_string_equal(type, last);
	free(body);
}

static void test_responses_stream(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, "/v1/responses", "{\"input\":\"q\",\"stream\":true}");
	struct ig_strbuf all = { 0 };

	until_parked(w, 1);
	for (int i = 0; i < 2; i++) {
		ig_api_tick(w->api, ig_now_ns() + 6ll * S);
		char *got = filled(x);
		assert_int_equal(strstr(got, "response.created") != NULL, i == 0);
		assert_non_null(strstr(got, "event: response.in_progress"));
		assert_non_null(strstr(got, "\"model\":\"fake\"")); /* which nobody named */
		ig_strbuf_puts(&all, got);
		free(got);
	}
	fake_engine_load_ends(w->engine, 0);
	char *rest = body_of(w, x);
	ig_strbuf_puts(&all, rest);
	free(rest);
	check_events(ig_strbuf_steal(&all), "response.completed");
}

static void test_socket(void **state)
{
	struct world *w = *state;

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"stream_id\":\"a\"}");
	until_parked(w, 1);
	assert_null(try_event(w));
	assert_true(ig_session_wants_input(w->session));
	/* the same lane does not overtake, another does */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"second\",\"model\":\"spare\","
		     "\"stream_id\":\"a\"}");
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"model\":\"spare\","
		     "\"stream_id\":\"b\"}");
	json_t *v;
	do {
		v = event(w);
		assert_string_equal(str(v, "stream_id"), "b");
		json_decref(v);
	} while (fake_engine_seen(w->engine).n_finished < 1);
	while ((v = try_event(w))) {
		assert_string_equal(str(v, "stream_id"), "b");
		json_decref(v);
	}
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	static const char *const types[] = { "response.created", "response.in_progress" };
	char id[64];
	for (int i = 0; i < 2; i++) {
		v = event(w);
		assert_string_equal(str(v, "type"), types[i]);
		assert_string_equal(str(v, "stream_id"), "a");
		assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), i);
		snprintf(id, sizeof id, "%s", str(json_object_get(v, "response"), "id"));
		json_decref(v);
	}
	assert_null(try_event(w));
	fake_engine_load_ends(w->engine, 0);
	v = event(w);
	assert_string_equal(str(v, "type"), "response.output_item.added");
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), 2);
	json_decref(v);
	for (bool done = false; !done;) {
		v = event(w);
		done = !strcmp(str(v, "type"), "response.completed");
		if (done)
			assert_string_equal(str(json_object_get(v, "response"), "id"), id);
		json_decref(v);
	}
	v = event(w);
	assert_string_equal(str(v, "type"), "response.created");
	assert_string_equal(str(json_object_get(v, "response"), "model"), "spare");
	json_decref(v);
	while (fake_engine_seen(w->engine).n_submitted < 3)
		wait_news(w);
}

/* ---- a load that fails ------------------------------------------------------------------ */

static void check_error(struct world *w, struct ig_exchange *x, int status, const char *code,
			const char *text)
{
	struct ig_http_head h;

	head_of(w, x, &h);
	assert_int_equal(h.status, status);
	assert_int_equal(h.retry_after_s, status == 503 ? 2 : status == 429 ? 1 : 0);
	char *body = body_of(w, x);
	json_t *v = json_loads(body, 0, NULL), *e = json_object_get(v, "error");
	assert_string_equal(str(e, "code"), code);
	if (!strstr(str(e, "message"), text))
		fail_msg("%s", body);
	json_decref(v);
	free(body);
}

static void test_failed(void **state)
{
	struct world *w = *state;

	struct ig_exchange *x = begin(w, CHAT, ASK ",\"stream\":true}"),
			   *y = begin(w, "/v1/messages", ASK "}");
	struct ig_http_head h;
	until_parked(w, 1);
	fake_engine_load_ends(w->engine, -EIO);
	check_error(w, x, 503, "model_load_failed", "the file is damaged");
	head_of(w, y, &h);
	assert_int_equal(h.status, 503);
	char *body = body_of(w, y);
	assert_non_null(strstr(body, "\"overloaded_error\""));
	free(body);
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_refused, 2);
	assert_int_equal(s.refused.status, 503);
	/* the limit is 0: nobody waits */
	fake_engine_model(w->engine, -ENOMEM);
	check_error(w, begin(w, CHAT, ASK "}"), 503, "insufficient_memory", "raise memory.budget");
	/* and then it is there */
	fake_engine_model(w->engine, 0);
	free(body_of(w, post(w, CHAT, ASK "}", &h)));
	assert_int_equal(h.status, 200);
}

/* Streams that have begun end with the error, each in its way; the ledger has a row. */
static void test_failed_streams(void **state)
{
	static const struct {
		const char *path, *body, *begin;
	} rows[] = {
		{ CHAT, ASK ",\"stream\":true}",
		  "data: {\"error\":{\"message\":\"fake: the file is damaged\","
		  "\"type\":\"server_error\",\"param\":\"model\",\"code\":\"model_load_failed\"}}\n\n" },
		{ "/v1/completions", "{\"prompt\":\"q\",\"stream\":true}",
		  "data: {\"error\":{\"message\":\"fake: the file is damaged\"," },
		{ "/v1/messages", ASK ",\"stream\":true}",
		  "event: error\ndata: {\"type\":\"error\",\"error\":"
		  "{\"type\":\"overloaded_error\",\"message\":\"fake: the file is damaged\"}}\n\n" },
		{ "/v1/responses", "{\"input\":\"q\",\"stream\":true}",
		  "event: response.failed\n" },
	};
	struct world *w = *state;
	struct ig_exchange *x[4];
	char *body, *begun[4];

	for (int i = 0; i < 4; i++)
		x[i] = begin(w, rows[i].path, rows[i].body);
	until_parked(w, 1);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	for (int i = 0; i < 4; i++) {
		begun[i] = filled(x[i]);
		assert_true(begun[i][0]);
	}
	fake_engine_load_ends(w->engine, -EIO);
	for (int i = 0; i < 4; i++) {
		body = body_of(w, x[i]);
		if (strncmp(body, rows[i].begin, strlen(rows[i].begin)))
			fail_msg("%s: %s", rows[i].path, body);
		if (i < 3) {
			assert_ptr_equal(strstr(body, "\n\n") + 2, body + strlen(body));
			free(body);
			free(begun[i]);
			continue;
		}
		struct ig_strbuf all = { 0 };
		ig_strbuf_puts(&all, begun[i]);
		ig_strbuf_puts(&all, body);
		free(begun[i]);
		free(body);
		check_events(ig_strbuf_steal(&all), "error");
	}
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_refused, 4);
	assert_int_equal(s.refused.status, 503);
	assert_string_equal(s.refused.key, "k2");
	assert_int_equal(s.n_submitted, 0);
}

static void test_failed_socket(void **state)
{
	struct world *w = *state;

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_parked(w, 1);
	fake_engine_load_ends(w->engine, -EIO);
	expect(w,
	       "{\"type\":\"error\",\"status\":503,\"error\":{\"message\":\"fake: the file is damaged\","
	       "\"type\":\"server_error\",\"param\":\"model\",\"code\":\"model_load_failed\"},"
	       "\"retry_after\":2,\"headers\":{\"retry-after\":\"2\"}}");
	fake_engine_model(w->engine, -EINPROGRESS);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_parked(w, 2);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	json_decref(event(w));
	json_decref(event(w));
	fake_engine_load_ends(w->engine, -EIO);
	json_t *v = event(w), *r = json_object_get(v, "response");
	assert_string_equal(str(v, "type"), "response.failed");
	assert_string_equal(str(json_object_get(r, "error"), "code"), "model_load_failed");
	assert_string_equal(str(r, "model"), "fake");
	json_decref(v);
	assert_null(try_event(w));
	assert_int_equal(fake_engine_seen(w->engine).n_refused, 2);
}

/* The engine refuses what was loaded for: the stream that has begun says so. */
static void test_refused_afterwards(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK ",\"stream\":true}");

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_parked(w, 1);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	check_filled(x, ": keep-alive\n\n");
	json_decref(event(w));
	json_decref(event(w));
	fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = -EAGAIN });
	fake_engine_load_ends(w->engine, 0);
	char *body = body_of(w, x);
	assert_non_null(strstr(body, "\"code\":\"server_busy\""));
	free(body);
	json_t *v = event(w);
	assert_string_equal(str(v, "type"), "response.failed");
	json_decref(v);
}

/* ---- how long, how many ------------------------------------------------------------------ */

static void set_options(struct world *w, uint32_t wait_ms, uint32_t max_waiting)
{
	struct ig_api_options o = { .client_buffer = 4096,
				    .keepalive_interval_ms = 5000,
				    .retry_after_s = 2,
				    .model_wait_ms = wait_ms,
				    .max_waiting = max_waiting };

	ig_api_set_options(w->api, &o);
}

static void test_too_long(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK ",\"stream\":true}");
	struct ig_exchange *y = begin(w, "/v1/tokenize", "{\"prompt\":\"q\",\"model\":\"fake\"}");

	until_parked(w, 2);
	assert_true(ig_api_tick(w->api, ig_now_ns() + 59ll * S) <= S);
	check_filled(x, ": keep-alive\n\n");
	assert_int_equal(ig_api_tick(w->api, ig_now_ns() + 61ll * S), -1);
	char *body = body_of(w, x);
	assert_non_null(strstr(body, "\"code\":\"model_loading\""));
	free(body);
	check_error(w, y, 503, "model_loading",
		    "The model 'fake' is being loaded, for more than 60 s "
		    "(server.model_wait)");
	assert_int_equal(fake_engine_seen(w->engine).n_refused, 2);
	/* a shorter one holds for those that wait already */
	x = begin(w, CHAT, ASK "}");
	until_parked(w, 2);
	set_options(w, 1500, 8);
	ig_api_tick(w->api, ig_now_ns() + 2ll * S);
	check_error(w, x, 503, "model_loading", "more than 1.5 s");
	set_options(w, 0, 8);
	check_error(w, begin(w, CHAT, ASK "}"), 503, "model_loading",
		    "The default model is being loaded; try");
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	json_t *v = event(w);
	assert_string_equal(str(json_object_get(v, "error"), "code"), "model_loading");
	assert_int_equal(json_integer_value(json_object_get(v, "retry_after")), 2);
	json_decref(v);
	/* nobody is left for the call to wake */
	fake_engine_load_ends(w->engine, 0);
	struct ig_http_head h;
	free(body_of(w, post(w, CHAT, ASK "}", &h)));
	assert_int_equal(h.status, 200);
}

static void test_too_many(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x[3];
	struct ig_http_head h;

	set_options(w, 60000, 2);
	for (int i = 0; i < 3; i++)
		x[i] = begin(w, CHAT, ASK "}");
	until_parked(w, 1);
	check_error(w, x[2], 503, "server_busy", "Too many requests wait for models");
	fake_engine_load_ends(w->engine, 0);
	for (int i = 0; i < 2; i++) {
		head_of(w, x[i], &h);
		assert_int_equal(h.status, 200);
		free(body_of(w, x[i]));
	}
}

/* Who waits counts as a request at once; counting tokens does not. */
static void test_limits(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;
	struct ig_api_options o = { .client_buffer = 4096,
				    .keepalive_interval_ms = 5000,
				    .retry_after_s = 2,
				    .model_wait_ms = 60000,
				    .max_waiting = 8,
				    .limits = { .max_concurrent = 1, .requests_per_minute = 2 } };

	ig_api_set_options(w->api, &o);
	struct ig_exchange *x = begin(w, CHAT, ASK "}");
	until_parked(w, 1);
	check_error(w, begin(w, CHAT, ASK ",\"model\":\"spare\"}"), 429, "rate_limit_exceeded",
		    "1 requests at once");
	check_error(w, begin(w, CHAT, ASK "}"), 429, "rate_limit_exceeded", "1 requests at once");
	struct ig_exchange *y = begin(w, "/v1/tokenize", "{\"prompt\":\"q\"}");
	fake_engine_load_ends(w->engine, 0);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
	head_of(w, y, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, y));
	/* one whose client leaves counts no longer, and took nothing of the minute */
	fake_engine_model(w->engine, -EINPROGRESS);
	x = begin(w, CHAT, ASK "}");
	until_parked(w, 2);
	ig_exchange_end(x);
	fake_engine_load_ends(w->engine, 0);
	free(body_of(w, post(w, CHAT, ASK ",\"model\":\"spare\"}", &h)));
	assert_int_equal(h.status, 200);
}

/* Prep's queue is full when the load ends: it is sent again later. */
static void test_prep_full(void **state)
{
	static const char *const pieces[] = { "Hi", NULL };
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK "}");
	struct ig_http_head h;

	until_parked(w, 1);
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .finish = IG_FINISH_STOP,
							     .prep_rc = -EAGAIN });
	fake_engine_load_ends(w->engine, 0);
	wait_news(w);
	assert_false(ig_exchange_head(x, &h));
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	ig_api_poll(w->api);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
}

/* Loaded, and unloaded again before it was prepared: it waits on, with the same timeout. */
static void test_again(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK "}");
	struct ig_http_head h;

	until_parked(w, 1);
	fake_engine_load_ends(w->engine, -EINPROGRESS);
	until_parked(w, 2);
	assert_false(ig_exchange_head(x, &h));
	fake_engine_load_ends(w->engine, 0);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
}

/* ---- clients that leave, cancels, the end ------------------------------------------------- */

static void test_gone(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK "}");

	until_parked(w, 1);
	ig_exchange_end(x);
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_refused, 1);
	assert_int_equal(s.refused.status, 499);
	assert_string_equal(s.refused.error, "cancelled before it ran (client_gone)");
	assert_string_equal(s.refused.endpoint, "POST /v1/chat/completions");
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_parked(w, 1);
	ig_session_end(w->session);
	s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_refused, 2);
	assert_string_equal(s.refused.endpoint, "ws /v1/responses");
	fake_engine_load_ends(w->engine, 0);
	until_parked(w, 1);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1", &(struct ig_principal){ 0 }, w);
}

static void test_cancel(void **state)
{
	struct world *w = *state;
	char text[200];

	/* by its lane, before anything was sent */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"stream_id\":\"a\"}");
	until_parked(w, 1);
	send_text(w, "{\"type\":\"response.cancel\",\"stream_id\":\"a\"}");
	static const char *const types[] = { "response.created", "response.in_progress",
					     "response.incomplete" };
	for (int i = 0; i < 3; i++) {
		json_t *v = event(w);
		assert_string_equal(str(v, "type"), types[i]);
		if (i == 2)
			assert_string_equal(str(json_object_get(v, "response"), "status"),
					    "cancelled");
		json_decref(v);
	}
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_refused, 1);
	assert_string_equal(s.refused.error, "cancelled before it ran (client_cancel)");
	/* by its id, once that is known */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"stream_id\":\"a\"}");
	until_parked(w, 1);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	json_t *v = event(w);
	snprintf(text, sizeof text, "{\"type\":\"response.cancel\",\"response_id\":\"%s\"}",
		 str(json_object_get(v, "response"), "id"));
	json_decref(v);
	json_decref(event(w));
	send_text(w, text);
	v = event(w);
	assert_string_equal(str(v, "type"), "response.incomplete");
	assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), 2);
	json_decref(v);
	assert_null(try_event(w));
	/* the lane continues */
	fake_engine_load_ends(w->engine, 0);
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"stream_id\":\"a\"}");
	while (fake_engine_seen(w->engine).n_submitted < 1)
		wait_news(w);
}

static void test_continued(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;
	char body[200];

	fake_engine_model(w->engine, 0);
	char *text = body_of(w, post(w, "/v1/responses", "{\"input\":\"one\"}", &h));
	json_t *v = json_loads(text, 0, NULL);
	snprintf(body, sizeof body, "{\"input\":\"two\",\"previous_response_id\":\"%s\"}",
		 str(v, "id"));
	json_decref(v);
	free(text);
	fake_engine_model(w->engine, -EINPROGRESS);
	struct ig_exchange *x = begin(w, "/v1/responses", body);
	head_of(w, x, &h); /* another key's */
	assert_int_equal(h.status, 400);
	free(body_of(w, x));
	struct ig_http_request r = { .method = "POST",
				     .path = "/v1/responses",
				     .client = "::1",
				     .body = strdup(body),
				     .body_len = strlen(body) };
	x = ig_exchange_begin(w->api, &r, w);
	until_parked(w, 1);
	assert_false(ig_exchange_head(x, &h));
	fake_engine_load_ends(w->engine, 0);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
	assert_string_equal(fake_engine_seen(w->engine).prompt, "user:one;assistant:Hi;user:two;");
}

static void test_drain(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x = begin(w, CHAT, ASK "}"),
			   *y = begin(w, CHAT, ASK ",\"stream\":true}");

	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\"}");
	until_parked(w, 1);
	ig_api_tick(w->api, ig_now_ns() + 6ll * S);
	check_filled(y, ": keep-alive\n\n");
	json_decref(event(w));
	json_decref(event(w));
	ig_api_drain(w->api);
	check_error(w, x, 503, "server_shutting_down", "shutting down");
	char *body = body_of(w, y);
	assert_non_null(strstr(body, "\"code\":\"server_shutting_down\""));
	free(body);
	json_t *v = try_event(w);
	assert_string_equal(str(v, "type"), "response.failed");
	json_decref(v);
	struct ig_strbuf b = { 0 };
	assert_int_equal(ig_session_fill(w->session, &b), IG_FILL_END);
}

/* What still waits at the end is freed. */
static void test_stop(void **state)
{
	struct world *w = *state;

	fake_engine_model(w->engine, 0);
	for (int i = 0; i < 20; i++) {
		struct ig_exchange *x = begin(w, CHAT, ASK "}");
		if (i == 10)
			usleep(2000);
		ig_exchange_end(x);
	}
}

/* ---- administrators ------------------------------------------------------------------------- */

static void check_admin(struct world *w, const char *path, const char *body, int status,
			const char *want)
{
	struct ig_exchange *x = begin(w, path, body);
	struct ig_http_head h;

	head_of(w, x, &h);
	char *got = body_of(w, x);
	if (h.status != status)
		fail_msg("%s %s: %d %s", path, body, h.status, got);
	if (want && !strstr(got, want))
		fail_msg("%s: %s", body, got);
	free(got);
}

#define LOAD "/v1/ingot/models/load"
#define UNLOAD "/v1/ingot/models/unload"

static void test_load(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	check_admin(w, LOAD, "{\"model\":\"fake\"}", 202, "\"state\":\"loading\"");
	check_admin(w, LOAD, "{\"model\":\"spare\"}", 200, "\"state\":\"ready\"");
	check_admin(w, LOAD, "{\"model\":\"nix\"}", 404, "model_not_found");
	check_admin(w, LOAD, "{}", 400, "missing_required_parameter");
	check_admin(w, LOAD, "{\"model\":\"\"}", 400, "\"model\"");
	check_admin(w, LOAD, "{\"model\":\"fake\",\"wait\":1}", 400, "\"wait\"");
	check_admin(w, LOAD, "{\"model\":\"fake\",\"zap\":1}", 400, "unsupported_parameter");
	struct ig_exchange *x = begin(w, LOAD, "{\"model\":\"fake\",\"wait\":true}");
	/* the one that did not wait wanted to be called too, for all that come after it */
	until_parked(w, 1);
	assert_false(ig_exchange_head(x, &h));
	fake_engine_load_ends(w->engine, 0);
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	char *body = body_of(w, x);
	match_text(
		"model", body,
		"{\"id\":\"fake\",\"object\":\"model\",\"created\":1700000000,"
		"\"owned_by\":\"ingot\",\"type\":\"model\",\"display_name\":\"fake\",\"created_at\":"
		"\"2023-11-14T22:13:20Z\",\"lifecycle\":\"active\",\"max_input_tokens\":2000,"
		"\"state\":\"ready\",\"default\":true,\"pinned\":false,\"architecture\":\"fake\","
		"\"file\":\"fake.gguf\",\"error\":null,\"fits\":\"yes\",\"quantization\":\"Q8_0\","
		"\"file_bytes\":990,\"weight_bytes\":1000,\"scratch_bytes\":10,"
		"\"active_requests\":0,\"loads\":1,\"load_s\":0.5,\"idle_s\":2.0,\"expires_s\":60.0,"
		"\"task\":null}");
	free(body);
	fake_engine_model(w->engine, -EIO);
	check_admin(w, LOAD, "{\"model\":\"fake\",\"wait\":true}", 503, "the file is damaged");
	check_admin(w, UNLOAD, "{\"model\":\"fake\"}", 200, "\"state\":\"failed\"");
	check_admin(w, UNLOAD, "{\"model\":\"nix\"}", 404, "model_not_found");
	check_admin(w, UNLOAD, "{\"model\":\"fake\",\"wait\":true}", 400, "unsupported_parameter");
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_unloaded, 1);
	assert_int_equal(s.n_refused, 0); /* the ledger is about other things */
	set_options(w, 0, 8);
	fake_engine_model(w->engine, -EINPROGRESS);
	check_admin(w, LOAD, "{\"model\":\"fake\",\"wait\":true}", 503, "model_loading");
}

/* Who sees which members. */
static void test_told(void **state)
{
	struct world *w = *state;

	fake_engine_model(w->engine, -EIO);
	for (int all = 0; all < 2; all++) {
		struct ig_http_request r = { .method = "GET",
					     .path = "/v1/models/fake",
					     .client = "c",
					     .who = { .role = all ? IG_ROLE_ADMINISTRATOR :
								    IG_ROLE_USER } };
		char *body = body_of(w, ig_exchange_begin(w->api, &r, w));
		assert_non_null(strstr(body, "\"state\":\"failed\""));
		assert_non_null(strstr(body, "\"max_input_tokens\":null"));
		assert_int_equal(strstr(body, "the file is damaged") != NULL, all);
		assert_int_equal(strstr(body, "fake.gguf") != NULL, all);
		free(body);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_whole),
		TEST(test_chat_stream),
		TEST(test_messages_stream),
		TEST(test_responses_stream),
		TEST(test_socket),
		TEST(test_failed),
		TEST(test_failed_streams),
		TEST(test_failed_socket),
		TEST(test_refused_afterwards),
		TEST(test_too_long),
		TEST(test_too_many),
		TEST(test_limits),
		TEST(test_prep_full),
		TEST(test_again),
		TEST(test_gone),
		TEST(test_cancel),
		TEST(test_continued),
		TEST(test_drain),
		TEST(test_stop),
		TEST(test_load),
		TEST(test_told),
	};
	return cmocka_run_group_tests_name("waiting for a model", tests, NULL, NULL);
}
