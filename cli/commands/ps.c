/*
 * ps.c: `ingot ps`: the models that the daemon has loaded and the requests that it is
 * working on, from GET /v1/models and /v1/ingot/requests.
 */
#include <stdlib.h>
#include <string.h>

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

static long long count_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? (long long)json_integer_value(v) : 0;
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

static int print_table(const json_t *list)
{
	static const char *const headers[] = { "ID",	  "MODEL", "STATE",    ">PROMPT", ">DONE",
					       ">OUTPUT", ">AGE",  "ENDPOINT", "CLIENT" };
	struct ig_table t;
	char age[32];
	int rc;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *r = json_array_get(list, i);
		ig_table_add(&t, text_of(r, "id"));
		ig_table_add(&t, text_of(r, "model"));
		ig_table_add(&t, text_of(r, "state"));
		ig_table_addf(&t, "%lld", count_of(r, "prompt_tokens"));
		ig_table_addf(&t, "%lld", count_of(r, "prefilled_tokens"));
		ig_table_addf(&t, "%lld", count_of(r, "output_tokens"));
		ig_table_add(&t, ig_text_seconds(age, sizeof age,
						 json_number_value(json_object_get(r, "age_s"))));
		ig_table_add(&t, text_of(r, "endpoint"));
		ig_table_add(&t, text_of(r, "client"));
	}
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	return rc;
}

int ig_ps_main(int argc, char **argv)
{
	struct ig_where where = { 0 };
	bool json = false, help = false;
	const struct ig_option opts[] = {
		{ "json", 0, IG_OPT_FLAG, &json, NULL, NULL, "print JSON" },
		IG_WHERE_OPTIONS(&where),
		{ "help", 'h', IG_OPT_FLAG, &help, NULL, NULL, "print this" },
		{ 0 },
	};
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	json_t *root = NULL, *models = NULL;
	long http;
	int n_args, rc;

	if (ig_options_parse(opts, argc, argv, &n_args, &err) || n_args) {
		ig_complain("ps: %s (ingot help ps)", err.code ? err.text : "no argument expected");
		return IG_EXIT_USAGE;
	}
	if (help) {
		ig_options_help(
			stdout, "ps [options]",
			"List the models that the daemon has loaded, and the requests that it is "
			"working on.",
			opts);
		return IG_EXIT_OK;
	}
	if (ig_endpoint_open(&where, &e, &err)) {
		ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	rc = ig_http_get_json(&e, "/v1/ingot/requests", TIMEOUT_MS, &root, &http, &err);
	if (rc) {
		if (!http)
			ig_endpoint_complain_absent(&e, err.text);
		else
			ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	models = ig_served_list(&e, &err);
	json_t *list = json_object_get(root, "data");
	if (!models) {
		ig_complain("%s", err.text);
		rc = -1;
	} else if (!json_is_array(list)) {
		ig_complain("%s/v1/ingot/requests: not the list that was expected", e.url);
		rc = -1;
	} else if (json) {
		rc = json_object_set(root, "models", models);
		rc = rc ? rc : ig_json_print(root, 0);
	} else {
		rc = print_models(models);
		if (rc || json_array_size(list))
			rc = rc ? rc : print_table(list);
		else
			puts("no request is running or waiting");
	}
	json_decref(models);
	json_decref(root);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}
