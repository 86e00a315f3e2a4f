/* test_model_list.c: GET /v1/models: its pages, and the errors of its parameters. */
#include "tests/unit/protocol/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The status, and the body. */
static int list(struct world *w, const char *query, json_t **out)
{
	struct ig_http_request r = {
		.method = "GET", .path = "/v1/models", .query = query, .client = "c"
	};
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	struct ig_http_head h;

	assert_true(ig_exchange_head(x, &h));
	char *body = body_of(w, x);
	*out = json_loads(body, 0, NULL);
	free(body);
	assert_non_null(*out);
	return h.status;
}

static int give_second_ids(void **state)
{
	if (world_setup(state))
		return -1;
	struct world *w = *state;
	struct ig_api_options o = w->options;
	snprintf(o.model_id_prefix, sizeof o.model_id_prefix, "x-");
	ig_api_set_options(w->api, &o);
	return 0;
}

static void test_pages(void **state)
{
	static const struct {
		const char *query, *ids;
		bool more;
	} rows[] = {
		{ NULL, " fake spare x-fake x-spare", false },
		{ "client_version=0.163.0", " fake spare x-fake x-spare", false },
		{ "limit=1000", " fake spare x-fake x-spare", false },
		{ "limit=4", " fake spare x-fake x-spare", false },
		{ "limit=3", " fake spare x-fake", true },
		{ "limit=2&after_id=fake", " spare x-fake", true },
		{ "after_id=spare", " x-fake x-spare", false },
		{ "after_id=x-spare&limit=1", "", false },
		{ "before_id=x-spare&limit=2", " spare x-fake", true },
		{ "limit=1&before_id=spare", " fake", false },
		{ "before_id=fake", "", false },
	};
	json_t *v, *m;
	size_t k;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const char *query = rows[i].query ? rows[i].query : "";
		char ids[100] = "", first[50] = "(none)", last[50] = "(none)";
		assert_int_equal(list(*state, rows[i].query, &v), 200);
		json_array_foreach(json_object_get(v, "data"), k, m)
		{
			snprintf(last, sizeof last, "%s", str(m, "id"));
			if (!k)
				memcpy(first, last, sizeof first);
			strcat(strcat(ids, " "), last);
		}
		if (strcmp(ids, rows[i].ids))
			fail_msg("%s:%s", query, ids);
		if (json_is_true(json_object_get(v, "has_more")) != rows[i].more)
			fail_msg("%s: has_more", query);
		assert_string_equal(str(v, "first_id"), first);
		assert_string_equal(str(v, "last_id"), last);
		assert_string_equal(str(v, "object"), "list");
		/* Codex's catalog is whole on every page */
		assert_int_equal(json_array_size(json_object_get(v, "models")), 2);
		json_decref(v);
	}
}

static void test_bad_parameters(void **state)
{
	static const struct {
		const char *query, *param;
	} rows[] = {
		{ "limit=", "limit" },		 { "limit", "limit" },
		{ "limit=0", "limit" },		 { "limit=-1", "limit" },
		{ "limit=1.0", "limit" },	 { "limit=1001", "limit" },
		{ "limit=4294967297", "limit" }, { "limit=5&after_id=none", "after_id" },
		{ "after_id=", "after_id" },	 { "before_id=spar", "before_id" },
		{ "before_id", "before_id" },	 { "before_id=spare&after_id=fake", "before_id" },
	};
	json_t *v;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (list(*state, rows[i].query, &v) != 400 ||
		    strcmp(str(json_object_get(v, "error"), "param"), rows[i].param))
			fail_msg("%s: %s", rows[i].query, json_dumps(v, 0));
		json_decref(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pages, give_second_ids, world_teardown),
		cmocka_unit_test_setup_teardown(test_bad_parameters, world_setup, world_teardown),
	};
	return cmocka_run_group_tests_name("the list of models", tests, NULL, NULL);
}
