/*
 * models.c: `ingot models`: the models that models.yaml knows, which of them are on
 * this machine, and what the daemon serves if one runs and in which state; models that the
 * daemon is to load or to let go.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/download/catalog.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/net/http_client.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/term/text.h"

#define TIMEOUT_MS 3000
#define AGAIN_MS 500

struct models {
	struct ig_catalog *catalog;
	char dir[4096];
	const struct ig_endpoint *endpoint;
	json_t *served;	 /* the daemon's list; NULL: none runs */
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

/* A row's columns of what the daemon says; NULL: it does not serve that. */
static void add_served(struct ig_table *t, const json_t *entry)
{
	char buf[32];

	ig_table_add(t, ig_served_state(entry));
	ig_table_add(t, ig_served_count(entry, "active_requests", buf, sizeof buf));
	ig_table_add(t, ig_served_expiry(entry, buf, sizeof buf));
}

static void add_known(struct ig_table *t, const struct models *m, const struct ig_known_model *k,
		      const json_t *entry)
{
	char size[32];

	ig_table_add(t, k->name);
	ig_table_add(t, ig_text_bytes(size, sizeof size, k->n_bytes));
	ig_table_add(t, on_disk(m, k));
	add_served(t, entry);
	ig_table_add(t, k->license);
	ig_table_add(t, k->description);
}

static void add_other(struct ig_table *t, const char *name, const json_t *entry)
{
	char size[32];

	ig_table_add(t, name);
	ig_table_add(t, ig_served_size(entry, size, sizeof size));
	ig_table_add(t, "-");
	add_served(t, entry);
	ig_table_add(t, "-");
	ig_table_add(t, "served by the daemon, not in models.yaml");
}

/* Why those that failed did; only administrators are told. */
static void print_errors(const json_t *list)
{
	struct ig_strbuf line;

	ig_strbuf_init(&line);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = ig_served_name(list, i),
			   *s = ig_json_text(json_array_get(list, i), "error");
		if (!s)
			continue;
		ig_strbuf_clear(&line);
		ig_text_plain(&line, name, strlen(name), false);
		ig_strbuf_puts(&line, ": ");
		ig_text_plain(&line, s, strlen(s), false);
		if (ig_strbuf_ok(&line))
			puts(line.data);
	}
	ig_strbuf_finish(&line);
}

static int print_table(const struct models *m)
{
	static const char *const headers[] = { "NAME",	  ">SIZE",   "PULLED",	"STATE",
					       ">ACTIVE", "EXPIRES", "LICENCE", "DESCRIPTION" };
	const json_t *list = json_object_get(m->served, "data");
	struct ig_table t;
	int rc;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < m->catalog->n_models; i++) {
		const struct ig_known_model *k = &m->catalog->models[i];
		add_known(&t, m, k, ig_served_find(list, k->name));
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = ig_served_name(list, i);
		if (!ig_catalog_find(m->catalog, name))
			add_other(&t, name, json_array_get(list, i));
	}
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	putchar('\n');
	print_errors(list);
	printf("models folder: %s\n", m->dir);
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
		rc = ig_json_print(root, 0);
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

/* ---- load and unload ------------------------------------------------------------------ */

struct change {
	const char *name;
	bool unload, no_wait, json;
};

/* Ask, and ask again where the daemon has answered that it takes longer than it waits. */
static int ask(const struct ig_endpoint *e, const struct change *c, json_t **out, long *http,
	       struct ig_error *err)
{
	json_t *body = c->unload ? json_pack("{s:s}", "model", c->name) :
				   json_pack("{s:s, s:b}", "model", c->name, "wait", !c->no_wait);
	char code[64];
	int rc;

	if (!body)
		return ig_fail(err, -ENOMEM, "out of memory");
	for (;;) {
		rc = ig_http_post_json(
			e, c->unload ? "/v1/ingot/models/unload" : "/v1/ingot/models/load", body,
			c->no_wait || c->unload ? TIMEOUT_MS : 0, out, http, code, err);
		if (!rc || strcmp(code, "model_loading"))
			break;
		poll(NULL, 0, AGAIN_MS);
	}
	json_decref(body);
	return rc;
}

static int change(const struct ig_where *where, const struct change *c)
{
	struct ig_error err = { 0 };
	struct ig_endpoint e;
	json_t *model;
	char size[32], context[32];
	long http = 0;
	int rc;

	if (ig_endpoint_open(where, &e, &err)) {
		ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	rc = ask(&e, c, &model, &http, &err);
	if (rc && !http)
		ig_endpoint_complain_absent(&e, err.text);
	else if (rc)
		ig_complain("models: %s: %s", c->unload ? "unload" : "load", err.text);
	else if (c->json) {
		rc = ig_json_print(model, 0);
	} else if (c->unload || !strcmp(ig_served_state(model), "loading")) {
		printf("%s: %s\n", c->name, ig_served_state(model));
	} else {
		printf("%s: %s, %s, a context of %s tokens\n", c->name, ig_served_state(model),
		       ig_served_size(model, size, sizeof size),
		       ig_served_count(model, "max_input_tokens", context, sizeof context));
	}
	json_decref(model);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}

/* ---- the command -------------------------------------------------------------------------- */

static int wrong(const char *why)
{
	ig_complain("models: %s (ingot help models)", why);
	return IG_EXIT_USAGE;
}

struct asked {
	const char *models, *to, *names;
	struct ig_where where;
	bool json, no_wait, help;
};

static int list_models(const struct asked *a)
{
	struct models m = { 0 };
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	char list[4096];
	long http = 0;
	int status = IG_EXIT_FAILED;

	if (ig_catalog_locate(a->models, list, sizeof list, &err) ||
	    ig_catalog_load(list, &m.catalog, &err) ||
	    ig_models_dir(a->to, m.dir, sizeof m.dir, &err) ||
	    ig_endpoint_open(&a->where, &e, &err)) {
		ig_complain("%s", err.text);
		goto out;
	}
	if (a->names) {
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
	if (!(a->json ? print_json(&m) : print_table(&m)))
		status = IG_EXIT_OK;
out:
	json_decref(m.served);
	ig_catalog_destroy(m.catalog);
	return status;
}

static int change_model(const struct asked *a, int n_args, char **args)
{
	struct change c = { .unload = !strcmp(args[0], "unload"),
			    .no_wait = a->no_wait,
			    .json = a->json };

	if (!c.unload && strcmp(args[0], "load"))
		return wrong("load or unload is expected, or nothing");
	if (n_args != 2)
		return wrong("the name of one model is expected");
	if (a->names || a->models || a->to)
		return wrong("--names, --models and --to are for the list");
	if (c.unload && a->no_wait)
		return wrong("--no-wait is for load");
	if (!ig_served_is_name(args[1]))
		return wrong("names of models are 1 to 128 of A-Z a-z 0-9 . _ : / -");
	c.name = args[1];
	return change(&a->where, &c);
}

int ig_models_main(int argc, char **argv)
{
	struct asked a = { 0 };
	const struct ig_option opts[] = {
		{ "json", 0, IG_OPT_FLAG, &a.json, NULL, NULL, "print JSON" },
		{ "names", 0, IG_OPT_STRING, &a.names, NULL, "WHICH",
		  "print names alone, one a line: known or served" },
		{ "models", 0, IG_OPT_STRING, &a.models, NULL, "FILE",
		  "the list of known models (default: the installed models.yaml)" },
		{ "to", 0, IG_OPT_STRING, &a.to, NULL, "DIR",
		  "the models folder (default: $INGOT_MODELS_DIR, ~/.local/share/ingot/models)" },
		{ "no-wait", 0, IG_OPT_FLAG, &a.no_wait, NULL, NULL,
		  "load: return when the load has begun" },
		IG_WHERE_OPTIONS(&a.where),
		{ "help", 'h', IG_OPT_FLAG, &a.help, NULL, NULL, "print this" },
		{ 0 },
	};
	struct ig_error err = { 0 };
	int n_args;

	if (ig_options_parse(opts, argc, argv, &n_args, &err))
		return wrong(err.text);
	if (a.help) {
		ig_options_help(
			stdout, "models [options] [load NAME | unload NAME]",
			"List the models that pull knows, which of them are here, and what the "
			"daemon serves\nand in which state; or have the daemon load or unload one.",
			opts);
		return IG_EXIT_OK;
	}
	if (n_args)
		return change_model(&a, n_args, argv);
	if (a.no_wait)
		return wrong("--no-wait is for load");
	if (a.names && (a.json || (strcmp(a.names, "known") && strcmp(a.names, "served"))))
		return wrong(a.json ? "--names is not together with --json" :
				      "--names: known or served is expected");
	if (a.names && !strcmp(a.names, "served"))
		return print_served_names(&a.where);
	return list_models(&a);
}
