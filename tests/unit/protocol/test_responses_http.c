/*
 * test_responses_http.c: Responses over HTTP: whole and as a stream, kept, read again, deleted, counted.
 */
#include "tests/unit/protocol/responses_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_http),	 TEST(test_http_refused), TEST(test_http_stream),
		TEST(test_input_tokens), TEST(test_no_space),
	};
	return cmocka_run_group_tests_name("responses over HTTP", tests, NULL, NULL);
}
