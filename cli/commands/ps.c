/* ps.c: `ingot ps`: the models that the daemon has loaded and its active requests, from
 * GET /v1/models and /v1/ingot/requests. */
#include <stdlib.h>

#include "cli/commands/command.h"
#include "base/json.h"
#include "cli/net/http_client.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/term/text.h"

#define TIMEOUT_MS 5000

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = ig_json_text(o, key);

	return s && *s ? s : "-";
}

/* 0 where the member is missing or not an integer. */
static void add_count(struct ig_table *t, const json_t *o, const char *key)
{
	ig_table_addf(t, "%lld", (long long)json_integer_value(json_object_get(o, key)));
}

static int print_models(const json_t *list)
{
	static const char *const headers[] = { "MODEL",	  "STATE", ">SIZE",  ">CONTEXT",
					       ">ACTIVE", ">IDLE", "EXPIRES" };
	struct ig_table t;
	char buf[32];
	size_t n = 0;
	int rc = 0;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i), *idle = json_object_get(m, "idle_s");
		if (!ig_served_is_loaded(m))
			continue;
		n++;
		ig_table_add(&t, ig_served_name(list, i));
		ig_table_add(&t, ig_served_state(m));
		ig_table_add(&t, ig_served_size(m, buf, sizeof buf));
		ig_table_add(&t, ig_served_count(m, "max_input_tokens", buf, sizeof buf));
		ig_table_add(&t, ig_served_count(m, "active_requests", buf, sizeof buf));
		ig_table_add(&t, json_is_number(idle) ?
					 ig_text_seconds(buf, sizeof buf, json_number_value(idle)) :
					 "-");
		ig_table_add(&t, ig_served_expiry(m, buf, sizeof buf));
	}
	if (n)
		rc = ig_table_print(&t);
	else
		puts("no model is loaded");
	ig_table_finish(&t);
	putchar('\n');
	return rc;
}

static int print_requests(const json_t *list)
{
	static const char *const headers[] = { "ID",	  "MODEL", "STATE",    ">PROMPT", ">DONE",
					       ">OUTPUT", ">AGE",  "ENDPOINT", "CLIENT" };
	struct ig_table t;
	char age[32];
	int rc;

	if (!json_array_size(list)) {
		puts("no request is running or waiting");
		return 0;
	}
	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *r = json_array_get(list, i);
		ig_table_add(&t, text_of(r, "id"));
		ig_table_add(&t, text_of(r, "model"));
		ig_table_add(&t, text_of(r, "state"));
		add_count(&t, r, "prompt_tokens");
		add_count(&t, r, "prefilled_tokens");
		add_count(&t, r, "output_tokens");
		ig_table_add(&t, ig_text_seconds(age, sizeof age,
						 json_number_value(json_object_get(r, "age_s"))));
		ig_table_add(&t, text_of(r, "endpoint"));
		ig_table_add(&t, text_of(r, "client"));
	}
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	return rc;
}

/* For a container's health check and scripts: /healthz needs no key. */
static int check_health(const struct ig_endpoint *e, bool json)
{
	struct ig_error err = { 0 };
	json_t *root = NULL;
	long http;
	int rc = ig_http_get_json(e, "/healthz", TIMEOUT_MS, &root, &http, &err);

	if (rc)
		return http ? ig_complain("%s", err.text) : ig_endpoint_complain(e, rc, err.text);
	if (json)
		rc = ig_json_print(root, 0);
	else
		puts(text_of(root, "status"));
	json_decref(root);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}

int ig_ps_main(int argc, char **argv)
{
	struct ig_where where = { 0 };
	bool json = false, health = false;
	const struct ig_option opts[] = {
		IG_FLAG("json", 0, &json, "print JSON"),
		IG_FLAG("health", 0, &health,
			"only check that the daemon serves requests; 1 if it does not, or stops"),
		IG_WHERE_OPTIONS(&where),
		{ 0 },
	};
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	json_t *root = NULL, *models = NULL;
	long http;
	int rc = ig_command_start(
		"ps [options]",
		"List the models that the daemon has loaded, and its active requests.", opts, argc,
		argv, NULL);

	if (rc >= 0)
		return rc;
	if (ig_endpoint_open(&where, &e, &err))
		return ig_complain("%s", err.text);
	if (health)
		return check_health(&e, json);
	rc = ig_http_get_json(&e, "/v1/ingot/requests", TIMEOUT_MS, &root, &http, &err);
	if (rc)
		return http ? ig_complain("%s", err.text) : ig_endpoint_complain(&e, rc, err.text);
	models = ig_served_list(&e, &err);
	json_t *list = json_object_get(root, "data");
	if (!models)
		rc = ig_complain("%s", err.text);
	else if (!json_is_array(list))
		rc = ig_complain("%s/v1/ingot/requests: the response has no list \"data\"", e.url);
	else if (json)
		rc = json_object_set(root, "models", models) || ig_json_print(root, 0);
	else
		rc = print_models(models) || print_requests(list);
	json_decref(models);
	json_decref(root);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}
