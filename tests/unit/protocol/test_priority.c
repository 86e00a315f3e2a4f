/*
 * test_priority.c: a request's priority and deadline in each protocol: which values are taken, which
 * priority the engine is given beside the key's, and how a request ends whose deadline has passed
 * before the engine has it, while its model is being loaded, and in the engine.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/messages/messages.h"
#include "daemon/protocol/ollama/ollama_private.h"
#include "daemon/protocol/responses/responses.h"
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

#define S 1000000000ll
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"

/* In each protocol: a body whose %s is what is asked for. */
static const struct protocol {
	const char *path; /* NULL: the WebSocket */
	const struct ig_request_format *format;
	const char *body, *stream; /* stream: what makes it one; NULL: it is one */
	const char *at;		   /* before the names of parameters */
} protocols[] = {
	{ "/v1/chat/completions", &ig_chat_request, "{" MESSAGES ",%s}", ",\"stream\":true", "" },
	{ "/v1/completions", &ig_completion_request, "{\"prompt\":\"q\",%s}", ",\"stream\":true",
	  "" },
	{ "/v1/messages", &ig_messages_request, "{" MESSAGES ",\"max_tokens\":9,%s}",
	  ",\"stream\":true", "" },
	{ "/v1/responses", &ig_create_request, "{\"input\":\"q\",%s}", ",\"stream\":true", "" },
	{ "/api/chat", &ig_ollama_chat_request,
	  "{\"model\":\"fake\",\"stream\":false," MESSAGES ",\"options\":{%s}}", NULL, "options." },
	{ "/api/generate", &ig_ollama_generate_request,
	  "{\"model\":\"fake\",\"stream\":false,\"prompt\":\"q\",\"options\":{%s}}", NULL,
	  "options." },
	{ NULL, &ig_ws_request, "{\"type\":\"response.create\",\"input\":\"q\",%s}", NULL, "" },
};
#define N_PROTOCOLS (sizeof protocols / sizeof protocols[0])

static const char *body_with(const struct protocol *p, const char *what)
{
	static char text[512];

	snprintf(text, sizeof text, p->body, what);
	return text;
}

/* ---- values ------------------------------------------------------------------------------- */

static void test_values(void **state)
{
	static const struct {
		const char *json, *name, *code, *text; /* code NULL: it is taken */
		int32_t priority;
		double deadline_s;
	} rows[] = {
		{ "\"priority\":-100", .priority = -100 },
		{ "\"priority\":100,\"deadline\":86400", .priority = 100, .deadline_s = 86400 },
		{ "\"deadline\":0.25", .deadline_s = 0.25 },
		{ "\"priority\":null,\"deadline\":null" },
		{ "\"priority\":-101", "priority", "invalid_value", "from -100 to 100, got -101" },
		{ "\"priority\":101", "priority", "invalid_value", "from -100 to 100" },
		{ "\"priority\":1.5", "priority", "invalid_type", "an integer" },
		{ "\"priority\":\"1\"", "priority", "invalid_type", "an integer" },
		{ "\"priority\":true", "priority", "invalid_type", "an integer" },
		{ "\"deadline\":0", "deadline", "invalid_value", "above 0 and at most 86400" },
		{ "\"deadline\":-1", "deadline", "invalid_value", "above 0" },
		{ "\"deadline\":86400.5", "deadline", "invalid_value", "at most 86400" },
		{ "\"deadline\":\"5\"", "deadline", "invalid_type", "a number" },
		{ "\"deadline\":[]", "deadline", "invalid_type", "a number" },
	};
	struct ig_request r;
	struct ig_api_error e;
	char param[64];

	for (size_t i = 0; i < N_PROTOCOLS * (sizeof rows / sizeof rows[0]); i++) {
		const struct protocol *p = &protocols[i % N_PROTOCOLS];
		size_t k = i / N_PROTOCOLS;
		const char *body = body_with(p, rows[k].json);
		int rc = ig_request_read(p->format, body, strlen(body), true, &r, &e);
		if (!rows[k].code && (rc || r.priority != rows[k].priority ||
				      r.has_priority != (rows[k].priority != 0) ||
				      r.deadline_s != rows[k].deadline_s))
			fail_msg("%s: %s", body, e.message);
		snprintf(param, sizeof param, "%s%s", p->at, rows[k].code ? rows[k].name : "");
		if (rows[k].code &&
		    (!rc || e.status != 400 || strcmp(e.param, param) ||
		     strcmp(e.code, rows[k].code) || !strstr(e.message, rows[k].text)))
			fail_msg("%s: %d %s %s", body, rc, e.param, e.message);
		ig_request_finish(&r);
	}
}

/* ---- the key's and the request's -------------------------------------------------------------- */

static void test_effective(void **state)
{
	static const struct {
		struct ig_principal who;
		const char *asked;
		int32_t want;
	} rows[] = {
		/* no keys at all */
		{ { .is_free = true }, "\"n\":1", 0 },
		{ { .is_free = true }, "\"priority\":-7", -7 },
		{ { .is_free = true }, "\"priority\":7", 7 },
		/* a key, and a request without one where others have keys */
		{ { .key = "k", .identity = 1 }, "\"priority\":-7", 0 },
		{ { .identity = 0 }, "\"priority\":-7", 0 },
		{ { .key = "k", .identity = 1, .priority = 5 }, "\"n\":1", 5 },
		{ { .key = "k", .identity = 1, .priority = 5 }, "\"priority\":4", 5 },
		{ { .key = "k", .identity = 1, .priority = 5 }, "\"priority\":6", 6 },
		{ { .key = "k", .identity = 1, .priority = -10 }, "\"n\":1", -10 },
		{ { .key = "k", .identity = 1, .priority = -10 }, "\"priority\":-20", -10 },
		{ { .key = "k", .identity = 1, .priority = -10 }, "\"priority\":-9", -9 },
		{ { .key = "k", .identity = 1, .priority = -10 }, "\"priority\":0", 0 },
	};
	struct world *w = *state;
	struct ig_http_head h;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_exchange *x = begin_as(
			w, protocols[0].path, body_with(&protocols[0], rows[i].asked), rows[i].who);
		head_of(w, x, &h);
		assert_int_equal(h.status, 200);
		free(body_of(w, x));
		int32_t got = fake_engine_seen(w->engine).priority;
		if (got != rows[i].want || fake_engine_seen(w->engine).deadline_ns)
			fail_msg("row %zu: %d", i, got);
	}
	/* all choices of a request, and what runs is listed with it */
	static const char *const pieces[] = { "Hi", NULL };
	fake_engine_script(
		w->engine,
		&(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP, .hold = true });
	struct ig_exchange *x =
		begin(w, protocols[1].path, "{\"prompt\":[\"a\",\"b\"],\"priority\":9}");
	while (fake_engine_seen(w->engine).n_submitted < 14)
		wait_news(w);
	struct ig_http_request get = { .method = "GET", .path = "/v1/ingot/requests" };
	struct ig_exchange *list = ig_exchange_begin(w->api, &get, w);
	char *body = body_of(w, list);
	assert_non_null(strstr(strstr(body, "\"priority\":9") + 1, "\"priority\":9"));
	free(body);
	fake_engine_release(w->engine);
	free(body_of(w, x));
}

/* ---- deadlines ----------------------------------------------------------------------------- */

static void test_absolute(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	for (size_t i = 0; i < N_PROTOCOLS - 1; i++) {
		int64_t before = ig_now_ns();
		free(body_of(w, post(w, protocols[i].path,
				     body_with(&protocols[i], "\"deadline\":1000.5"), &h)));
		assert_int_equal(h.status, 200);
		int64_t got = fake_engine_seen(w->engine).deadline_ns - 1000 * S - S / 2;
		assert_true(got >= before && got <= ig_now_ns());
	}
}

/* What each protocol says of a request that was ended, in a body or a stream. */
static void check_ended(const struct protocol *p, int status, bool stream, char *body)
{
	bool messages = p->format == &ig_messages_request, ollama = p->at[0];
	const char *code = messages ? "\"type\":\"timeout_error\"" :
			   ollama   ? "{\"error\":\"The request's deadline has passed" :
				      "\"code\":\"deadline_exceeded\"";

	if (status != (stream ? 200 : 504) || !strstr(body, code))
		fail_msg("%s: %d %s", p->path, status, body);
	free(body);
}

static void test_over_at_once(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;
	char what[64];
	int n = 0;

	for (size_t i = 0; i < N_PROTOCOLS - 1; i++)
		for (int stream = 0; stream < 1 + !!protocols[i].stream; stream++) {
			snprintf(what, sizeof what, "\"priority\":3,\"deadline\":1e-9%s",
				 stream ? protocols[i].stream : "");
			struct ig_exchange *x =
				post(w, protocols[i].path, body_with(&protocols[i], what), &h);
			/* no stream has begun */
			check_ended(&protocols[i], h.status, false, body_of(w, x));
			struct fake_seen s = fake_engine_seen(w->engine);
			assert_int_equal(s.n_refused, ++n);
			assert_int_equal(s.n_submitted, 0);
			assert_int_equal(s.refused.status, 504);
			assert_int_equal(s.refused.priority, 3);
			assert_string_equal(s.refused.finish, "refused");
			assert_non_null(strstr(s.refused.error, "deadline"));
		}
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"deadline\":1e-9,"
		     "\"stream_id\":\"a\",\"priority\":3}");
	expect(w, "{\"type\":\"error\",\"status\":504,\"error\":{\"type\":\"server_error\","
		  "\"code\":\"deadline_exceeded\",\"param\":\"deadline\",\"message\":\"*\"},"
		  "\"stream_id\":\"a\"}");
	assert_int_equal(fake_engine_seen(w->engine).refused.priority, 3);
	/* the lane goes on */
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"stream_id\":\"a\"}");
	json_t *v = event(w);
	assert_string_equal(str(v, "type"), "response.created");
	json_decref(v);
}

/* It passes while prep has the prompt: the key's minute is not charged. */
static void test_over_after_prep(void **state)
{
	struct world *w = *state;
	struct ig_api_options o = w->options;
	struct ig_http_head h;

	o.limits.requests_per_minute = 1;
	ig_api_set_options(w->api, &o);
	struct ig_exchange *x =
		begin(w, protocols[0].path, body_with(&protocols[0], "\"deadline\":0.25,\"n\":2"));
	int64_t end = ig_now_ns() + S / 4;
	wait_news(w); /* it is parsed, and sent to prep */
	while (ig_now_ns() <= end) {
		/* nobody takes it back from there; the deadline counts from the beginning */
	}
	head_of(w, x, &h);
	check_ended(&protocols[0], h.status, false, body_of(w, x));
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
	x = begin(w, protocols[0].path, body_with(&protocols[0], "\"n\":1"));
	head_of(w, x, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, x));
}

/* The clock is so much later; whoever comes from prep meanwhile is seen to. */
static int64_t later(struct world *w, int64_t ns)
{
	usleep(1000);
	ig_api_poll(w->api);
	return ig_api_tick(w->api, ig_now_ns() + ns);
}

/* Whoever waits for a model waits no longer than its deadline. */
static void test_over_while_parked(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x[N_PROTOCOLS - 1], *y;
	struct ig_http_head h;
	int64_t next;
	json_t *v;

	fake_engine_model(w->engine, -EINPROGRESS);
	y = begin(w, protocols[0].path, body_with(&protocols[0], "\"n\":1"));
	for (size_t i = 0; i < N_PROTOCOLS - 1; i++)
		x[i] = begin(w, protocols[i].path, body_with(&protocols[i], "\"deadline\":30"));
	/* the loop sleeps until the deadline, which is before the end of server.model_wait */
	do
		next = later(w, 10 * S);
	while (next < 0 || next > 20 * S);
	for (size_t i = 0; i < N_PROTOCOLS - 1; i++) {
		while (!ig_exchange_head(x[i], &h))
			later(w, 31 * S);
		check_ended(&protocols[i], h.status, false, body_of(w, x[i]));
	}
	send_text(w, "{\"type\":\"response.create\",\"input\":\"q\",\"deadline\":30}");
	/* a keep-alive may have begun it */
	while (!(v = try_event(w)) ||
	       (strcmp(str(v, "type"), "error") && strcmp(str(v, "type"), "response.failed"))) {
		json_decref(v);
		later(w, 31 * S);
	}
	json_t *of = json_object_get(v, "response");
	assert_string_equal(str(json_object_get(of ? of : v, "error"), "code"),
			    "deadline_exceeded");
	json_decref(v);
	/* the one without a deadline waits on */
	assert_false(ig_exchange_head(y, &h));
	fake_engine_load_ends(w->engine, 0);
	head_of(w, y, &h);
	assert_int_equal(h.status, 200);
	free(body_of(w, y));
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 1);
}

/* A stream that has begun ends with the error. */
static void test_over_in_a_stream(void **state)
{
	struct world *w = *state;
	struct ig_exchange *x[4];
	struct ig_http_head h;

	fake_engine_model(w->engine, -EINPROGRESS);
	for (size_t i = 0; i < 4; i++)
		x[i] = begin(w, protocols[i].path,
			     body_with(&protocols[i], "\"deadline\":30,\"stream\":true"));
	for (size_t i = 0; i < 4; i++) {
		struct ig_strbuf b = { 0 };
		while (!ig_exchange_head(x[i], &h))
			later(w, 6 * S); /* its first keep-alive */
		assert_int_equal(h.status, 200);
		while (ig_exchange_fill(x[i], &b) != IG_FILL_END)
			later(w, 31 * S);
		ig_exchange_end(x[i]);
		check_ended(&protocols[i], 200, true, ig_strbuf_steal(&b));
	}
	assert_int_equal(fake_engine_seen(w->engine).refused.status, 504);
}

/* The engine ends it, with its own words or without. */
static void test_over_in_the_engine(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	struct world *w = *state;
	struct ig_http_head h;
	char what[64];

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .finish = IG_FINISH_ERROR,
							     .error_code = -ETIME,
							     .error = "" });
	for (size_t i = 0; i < N_PROTOCOLS - 1; i++)
		for (int stream = 0; stream < 1 + !!protocols[i].stream; stream++) {
			snprintf(what, sizeof what, "\"deadline\":5%s",
				 stream ? protocols[i].stream : "");
			struct ig_exchange *x =
				post(w, protocols[i].path, body_with(&protocols[i], what), &h);
			check_ended(&protocols[i], h.status, stream, body_of(w, x));
		}
	fake_engine_script(w->engine, &(struct fake_script){ .finish = IG_FINISH_ERROR,
							     .error_code = -ETIME,
							     .error = "it waited too long" });
	char *body = body_of(
		w, post(w, protocols[0].path, body_with(&protocols[0], "\"deadline\":5"), &h));
	match_text("body", body,
		   "{\"error\":{\"message\":\"it waited too long\",\"type\":\"server_error\","
		   "\"param\":\"deadline\",\"code\":\"deadline_exceeded\"}}");
	free(body);
	/* or does not take it */
	fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = -ETIME });
	check_ended(&protocols[0], 504, false,
		    body_of(w, post(w, protocols[0].path,
				    body_with(&protocols[0], "\"deadline\":5"), &h)));
	assert_int_equal(h.status, 504);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup_saying_hi, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),	 IN_WORLD(test_effective),
		IN_WORLD(test_absolute),	 IN_WORLD(test_over_at_once),
		IN_WORLD(test_over_after_prep),	 IN_WORLD(test_over_while_parked),
		IN_WORLD(test_over_in_a_stream), IN_WORLD(test_over_in_the_engine),
	};

	return cmocka_run_group_tests_name("priorities and deadlines", tests, NULL, NULL);
}
