/* test_errand.c: replies that the reader thread makes: its error, a client that leaves before it, and
 * the events of a session that watches. */
#include "tests/unit/protocol/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ig_exchange *ask(struct world *w, const char *method, const char *path)
{
	struct ig_http_request r = { .method = method,
				     .path = path,
				     .client = "c",
				     .who = { .role = IG_ROLE_ADMINISTRATOR } };

	return ig_exchange_begin(w->api, &r, w);
}

static void test_reply(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	struct ig_exchange *x = ask(w, "GET", "/v1/ingot/keys");
	head_of(w, x, &h);
	assert_int_equal(h.status, 409);
	char *body = body_of(w, x);
	assert_non_null(strstr(body, "no_keys_file"));
	free(body);
}

static void test_client_leaves(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	for (int i = 0; i < 20; i++)
		ig_exchange_end(ask(w, i % 2 ? "GET" : "DELETE",
				    i % 2 ? "/v1/ingot/keys" : "/v1/ingot/keys/k"));
	/* those that came before it are done */
	struct ig_exchange *x = ask(w, "GET", "/v1/ingot/keys");
	head_of(w, x, &h);
	free(body_of(w, x));
}

static void test_no_ledger(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	struct ig_exchange *x = ask(w, "GET", "/v1/ingot/stats");
	assert_true(ig_exchange_head(x, &h));
	assert_int_equal(h.status, 404);
	free(body_of(w, x));
}

static void test_events(void **state)
{
	static const char *const types[] = { "status", "requests", "models" };
	struct ig_principal who = { .role = IG_ROLE_ADMINISTRATOR };
	struct world *w = *state;
	struct ig_strbuf out = { 0 };

	struct ig_session *s = ig_api_open(w->api, "/v1/ingot/events", "r", "c", &who, w);
	assert_non_null(s);
	assert_true(ig_session_needs_key(s));
	for (int i = 0; i < 3; i++) {
		char begin[40];
		snprintf(begin, sizeof begin, "{\"type\":\"%s\",\"data\":{", types[i]);
		assert_int_equal(ig_session_fill(s, &out), IG_FILL_DATA);
		assert_memory_equal(out.data, begin, strlen(begin));
		ig_strbuf_clear(&out);
	}
	assert_int_equal(ig_session_fill(s, &out), IG_FILL_WAIT);
	/* nothing has changed, and it looks once a second */
	assert_in_range(ig_api_tick(w->api, 1), 1, 1000000000);
	assert_int_equal(ig_session_fill(s, &out), IG_FILL_WAIT);
	fake_engine_model(w->engine, -EIO);
	assert_in_range(ig_api_tick(w->api, INT64_C(5000000000)), 1, 1000000000);
	assert_int_equal(ig_session_fill(s, &out), IG_FILL_DATA);
	assert_non_null(strstr(out.data, "\"state\":\"failed\""));
	ig_strbuf_clear(&out);
	/* it takes no messages */
	ig_session_receive(s, strdup("{}"), 2);
	assert_false(ig_session_wants_input(s));
	assert_int_equal(ig_session_fill(s, &out), IG_FILL_DATA);
	assert_non_null(strstr(out.data, "unexpected_message"));
	assert_true(ig_session_wants_input(s));
	ig_strbuf_clear(&out);
	ig_api_drain(w->api);
	assert_int_equal(ig_session_fill(s, &out), IG_FILL_END);
	ig_session_cancel(s, "shutdown");
	ig_session_end(s);
	assert_int_equal(ig_api_tick(w->api, INT64_C(9000000000)), -1);
	ig_strbuf_finish(&out);
	assert_null(ig_api_open(w->api, "/v1/models", "r", "c", &who, w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reply, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_client_leaves, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_no_ledger, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_events, world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
