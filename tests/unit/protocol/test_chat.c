/*
 * test_chat.c: exchanges over the fake engine: chat completions whole and as a stream,
 * refusals, and what lies at which path.
 */
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"

/* ---- chat ------------------------------------------------------------------------ */

static void test_chat_whole(void **state)
{
	static const char *const pieces[] = { "Hel", "lo", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	struct ig_exchange *x = post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"seed\":5,"
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
	struct ig_exchange *x = post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}", &h);
	assert_int_equal(h.status, 200);
	assert_int_equal(h.length, -1);
	assert_string_equal(h.content_type, "text/event-stream; charset=utf-8");
	check_frames(body_of(w, x), plain);
	x = post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true,"
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
	check_frames(body_of(w, post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}", &h)), want);
	/* whole: a status */
	char *body = body_of(w, post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", &h));
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
		char *body = body_of(w, post(w, CHAT, rows[i].body, &h));
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
	struct ig_exchange *x = post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
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

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_chat_whole), TEST(test_chat_stream), TEST(test_chat_stream_error),
		TEST(test_chat_refused), TEST(test_chat_gone), TEST(test_routes),
	};
	return cmocka_run_group_tests_name("chat completions", tests, NULL, NULL);
}
