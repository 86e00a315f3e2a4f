/*
 * models.c: `ingot models`: the models that models.yaml knows, which of them are on
 * this machine, and what the daemon serves if one runs.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/catalog.h"
#include "cli/command.h"
#include "cli/http_client.h"
#include "cli/options.h"
#include "cli/served.h"
#include "cli/text.h"

#define TIMEOUT_MS 3000

struct models {
	struct ig_catalog *catalog;
	char dir[4096];
	const struct ig_endpoint *endpoint;
	json_t *served; /* the daemon's list; NULL: none runs */
	const char *why; /* none runs */
};

/* "yes", "part" (a pull was cut short), "other" (a file of another size), "no" */
static const char *on_disk(const struct models *m, const struct ig_known_model *k)
{
	char path[4608];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", m->dir, k->file);
	if (stat(path, &st) == 0)
		return S_ISREG(st.st_mode) && (uint64_t)st.st_size == k->n_bytes ? "yes" : "other";
	snprintf(path, sizeof path, "%s/%s.part", m->dir, k->file);
	return stat(path, &st) == 0 ? "part" : "no";
}

static int print_table(const struct models *m)
{
	static const char *const headers[] = { "NAME", ">SIZE", "PULLED", "SERVED", "LICENCE",
					       "DESCRIPTION" };
	const json_t *list = json_object_get(m->served, "data");
	struct ig_table t;
	char size[32];
	int rc;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < m->catalog->n_models; i++) {
		const struct ig_known_model *k = &m->catalog->models[i];
		ig_table_add(&t, k->name);
		ig_table_add(&t, ig_text_bytes(size, sizeof size, k->n_bytes));
		ig_table_add(&t, on_disk(m, k));
		ig_table_add(&t, !m->served ? "-" : ig_served_has(list, k->name) ? "yes" : "no");
		ig_table_add(&t, k->license);
		ig_table_add(&t, k->description);
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (ig_catalog_find(m->catalog, ig_served_name(list, i)))
			continue;
		ig_table_add(&t, ig_served_name(list, i));
		ig_table_add(&t, "-");
		ig_table_add(&t, "-");
		ig_table_add(&t, "yes");
		ig_table_add(&t, "-");
		ig_table_add(&t, "served by the daemon, not in models.yaml");
	}
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	printf("\nmodels folder: %s\n", m->dir);
	if (m->served)
		printf("daemon: %s serves %zu\n", m->endpoint->url, json_array_size(list));
	else
		printf("daemon: none at %s (%s)\n", m->endpoint->url, m->why);
	return rc;
}

static int print_json(const struct models *m)
{
	const json_t *list = json_object_get(m->served, "data");
	json_t *known = json_array();
	json_t *root = json_pack("{s:s, s:o}", "folder", m->dir, "known", known);
	int rc = -1;

	for (size_t i = 0; root && i < m->catalog->n_models; i++) {
		const struct ig_known_model *k = &m->catalog->models[i];
		json_t *o = json_pack("{s:s, s:I, s:s, s:s, s:s, s:b}", "name", k->name, "bytes",
				      (json_int_t)k->n_bytes, "license", k->license, "description",
				      k->description, "pulled", on_disk(m, k), "served",
				      ig_served_has(list, k->name));
		if (json_array_append_new(known, o))
			goto out;
	}
	if (root && !json_object_set(root, "served", m->served ? (json_t *)list : json_null()))
		rc = json_dumpf(root, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
out:
	json_decref(root);
	if (rc)
		ig_complain("models: no JSON could be written");
	return rc;
}

static int print_served_names(const struct ig_where *where)
{
	struct ig_error err = { 0 };
	struct ig_endpoint e;
	struct ig_strbuf line;
	json_t *list;

	if (ig_endpoint_open(where, &e, &err) || !(list = ig_served_list(&e, &err))) {
		ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	ig_strbuf_init(&line);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = ig_served_name(list, i);
		ig_strbuf_clear(&line);
		ig_text_plain(&line, s, strlen(s), false);
		puts(line.len ? line.data : "");
	}
	ig_strbuf_finish(&line);
	json_decref(list);
	return IG_EXIT_OK;
}

int ig_models_main(int argc, char **argv)
{
	const char *models = NULL, *to = NULL, *names = NULL;
	struct ig_where where = { 0 };
	bool json = false, help = false;
	const struct ig_option opts[] = {
		{ "json", 0, IG_OPT_FLAG, &json, NULL, NULL, "print JSON" },
		{ "names", 0, IG_OPT_STRING, &names, NULL, "WHICH",
		  "print names alone, one a line: known or served" },
		{ "models", 0, IG_OPT_STRING, &models, NULL, "FILE",
		  "the list of known models (default: the installed models.yaml)" },
		{ "to", 0, IG_OPT_STRING, &to, NULL, "DIR",
		  "the models folder (default: $INGOT_MODELS_DIR, ~/.local/share/ingot/models)" },
		IG_WHERE_OPTIONS(&where),
		{ "help", 'h', IG_OPT_FLAG, &help, NULL, NULL, "print this" },
		{ 0 },
	};
	struct models m = { 0 };
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	char list[4096];
	long http = 0;
	int n_args, status = IG_EXIT_FAILED;

	if (ig_options_parse(opts, argc, argv, &n_args, &err) || n_args) {
		ig_complain("models: %s (ingot help models)",
			    err.code ? err.text : "no argument expected");
		return IG_EXIT_USAGE;
	}
	if (help) {
		ig_options_help(stdout, "models [options]",
				"List the models that pull knows, which of them are here, and what the "
				"daemon serves.", opts);
		return IG_EXIT_OK;
	}
	if (names && (json || (strcmp(names, "known") && strcmp(names, "served")))) {
		ig_complain("models: --names: %s", json ? "not together with --json" :
			    "known or served is expected");
		return IG_EXIT_USAGE;
	}
	if (names && !strcmp(names, "served"))
		return print_served_names(&where);
	if (ig_catalog_locate(models, list, sizeof list, &err) ||
	    ig_catalog_load(list, &m.catalog, &err) ||
	    ig_models_dir(to, m.dir, sizeof m.dir, &err) ||
	    ig_endpoint_open(&where, &e, &err)) {
		ig_complain("%s", err.text);
		goto out;
	}
	if (names) {
		for (size_t i = 0; i < m.catalog->n_models; i++)
			puts(m.catalog->models[i].name);
		status = IG_EXIT_OK;
		goto out;
	}
	m.endpoint = &e;
	m.why = err.text;
	if (ig_http_get_json(&e, "/v1/models", TIMEOUT_MS, &m.served, &http, &err) && http) {
		ig_complain("%s", err.text);
		goto out;
	}
	if (m.served && !json_is_array(json_object_get(m.served, "data"))) {
		ig_complain("%s/v1/models: not the list that was expected", e.url);
		goto out;
	}
	if (!(json ? print_json(&m) : print_table(&m)))
		status = IG_EXIT_OK;
out:
	json_decref(m.served);
	ig_catalog_destroy(m.catalog);
	return status;
}
