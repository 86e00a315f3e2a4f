/* models.c: `ingot models`: lists the models in models.yaml, which of them are downloaded, and the
 * models that a running daemon serves, with their states; has the daemon load or unload one. */
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
#include "store/model_folder.h"

#define TIMEOUT_MS 3000
#define AGAIN_MS 500

struct models {
	struct ig_catalog *catalog;
	char dir[4096];
	struct ig_folder_model *here; /* the models in it */
	size_t n_here;
	const struct ig_endpoint *endpoint;
	json_t *served;	 /* the daemon's list; NULL: no daemon runs */
	const char *why; /* the cause, when none runs */
};

/* "yes", "part" (an unfinished download), "other" (a file of another size), "no" */
static const char *on_disk(const struct models *m, const struct ig_known_model *k)
{
	char path[4608];
	struct stat st;

	/* the file's name is the Hub's to say; the lock beside it has ours */
	for (size_t i = 0; k->hub && i < m->n_here; i++)
		if (!strcmp(m->here[i].name, k->name))
			return "yes";
	if (k->hub)
		return "no";
	snprintf(path, sizeof path, "%s/%s", m->dir, k->file);
	if (stat(path, &st) == 0)
		return S_ISREG(st.st_mode) && (uint64_t)st.st_size == k->n_bytes ? "yes" : "other";
	snprintf(path, sizeof path, "%s/%s.part", m->dir, k->file);
	return stat(path, &st) == 0 ? "part" : "no";
}

/* The columns of a served model; entry NULL: the daemon does not serve it. */
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
	if (k->hub)
		ig_table_addf(t, "about %s", ig_text_bytes(size, sizeof size, k->about_bytes));
	else
		ig_table_add(t, ig_text_bytes(size, sizeof size, k->n_bytes));
	ig_table_add(t, on_disk(m, k));
	add_served(t, entry);
	ig_table_add(t, k->license ? k->license : "-");
	if (k->hub)
		ig_table_addf(t, "%s; for %llu GB", k->description,
			      (unsigned long long)k->memory_gb);
	else
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
	const char *task = ig_json_text(entry, "task");
	if (task && strcmp(task, "generate"))
		ig_table_addf(t, "%s model, served by the daemon, not in models.yaml", task);
	else
		ig_table_add(t, "served by the daemon, not in models.yaml");
}

/* The causes of failed loads; only administrators get them. */
static void print_errors(const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *why = ig_json_text(json_array_get(list, i), "error");
		struct ig_strbuf line = { 0 };
		if (!why)
			continue;
		ig_strbuf_printf(&line, "%s: %s", ig_served_name(list, i), why);
		ig_print_line(ig_strbuf_text(&line));
		ig_strbuf_finish(&line);
	}
}

static int print_table(const struct models *m)
{
	static const char *const headers[] = { "NAME",	  ">SIZE",   "PULLED",	"STATE",
					       ">ACTIVE", "EXPIRES", "LICENCE", "DESCRIPTION" };
	const json_t *list = m->served;
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
	json_t *known = json_array();
	json_t *root = json_pack("{s:s, s:o}", "folder", m->dir, "known", known);
	int rc = -1;

	for (size_t i = 0; root && i < m->catalog->n_models; i++) {
		const struct ig_known_model *k = &m->catalog->models[i];
		json_t *o =
			json_pack("{s:s, s:I, s:s?, s:s, s:s, s:b, s:s?, s:I}", "name", k->name,
				  "bytes", (json_int_t)(k->hub ? k->about_bytes : k->n_bytes),
				  "license", k->license, "description", k->description, "pulled",
				  on_disk(m, k), "served", ig_served_has(m->served, k->name), "hub",
				  k->hub, "memory_gb", (json_int_t)k->memory_gb);
		if (json_array_append_new(known, o))
			goto out;
	}
	if (root && !json_object_set(root, "served", m->served ? m->served : json_null()))
		rc = ig_json_print(root, 0);
out:
	json_decref(root);
	if (rc)
		ig_complain("models: the JSON cannot be written");
	return rc;
}

static int print_served_names(const struct ig_where *where)
{
	struct ig_error err = { 0 };
	struct ig_endpoint e;
	json_t *list;

	if (ig_endpoint_open(where, &e, &err) || !(list = ig_served_list(&e, &err)))
		return ig_complain("%s", err.text);
	for (size_t i = 0; i < json_array_size(list); i++)
		ig_print_line(ig_served_name(list, i));
	json_decref(list);
	return IG_EXIT_OK;
}

/* ---- load and unload ------------------------------------------------------------------ */

struct change {
	const char *name;
	bool unload, no_wait, json;
};

/* Send the request; again while the daemon replies that the model is still being loaded. */
static int send_change(const struct ig_endpoint *e, const struct change *c, json_t **out,
		       long *http, struct ig_error *err)
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

	if (ig_endpoint_open(where, &e, &err))
		return ig_complain("%s", err.text);
	rc = send_change(&e, c, &model, &http, &err);
	if (rc && !http)
		ig_endpoint_complain(&e, rc, err.text);
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

struct options {
	const char *models, *to, *names;
	struct ig_where where;
	bool json, no_wait;
};

static int list_models(const struct options *a)
{
	struct models m = { 0 };
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	char list[4096];
	bool served;
	int rc = 1;

	if (ig_catalog_locate(a->models, list, sizeof list, &err) ||
	    ig_catalog_load(list, &m.catalog, &err) ||
	    ig_models_dir_find(a->to, m.dir, sizeof m.dir, &served, &err) ||
	    ig_endpoint_open(&a->where, &e, &err)) {
		ig_complain("%s", err.text);
		goto out;
	}
	if (a->names) {
		for (size_t i = 0; i < m.catalog->n_models; i++)
			puts(m.catalog->models[i].name);
		rc = 0;
		goto out;
	}
	m.endpoint = &e;
	if (ig_model_folder_read(m.dir, SIZE_MAX, &m.here, &m.n_here)) {
		ig_complain("%s cannot be read", m.dir);
		goto out;
	}
	m.why = err.text;
	m.served = ig_served_list(&e, &err);
	if (!m.served && err.code == -EPROTO)
		ig_complain("%s", err.text);
	else
		rc = a->json ? print_json(&m) : print_table(&m);
out:
	json_decref(m.served);
	ig_model_folder_free(m.here, m.n_here);
	ig_catalog_destroy(m.catalog);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}

static int change_model(const struct options *a, int n_args, char **args)
{
	struct change c = { .unload = !strcmp(args[0], "unload"),
			    .no_wait = a->no_wait,
			    .json = a->json };

	if (!c.unload && strcmp(args[0], "load"))
		return ig_wrong_usage("models", "expected load, unload or nothing");
	if (n_args != 2)
		return ig_wrong_usage("models", "expected the name of one model");
	if (a->names || a->models || a->to)
		return ig_wrong_usage("models", "--names, --models and --to are for the list");
	if (c.unload && a->no_wait)
		return ig_wrong_usage("models", "--no-wait is for load");
	if (!ig_is_model_name(args[1]))
		return ig_wrong_usage("models",
				      "names of models are 1 to 128 of A-Z a-z 0-9 . _ : / -");
	c.name = args[1];
	return change(&a->where, &c);
}

int ig_models_main(int argc, char **argv)
{
	struct options a = { 0 };
	const struct ig_option opts[] = {
		IG_FLAG("json", 0, &a.json, "print JSON"),
		IG_TEXT("names", 0, &a.names, "WHICH",
			"print names only, one a line: known or served"),
		IG_TEXT("models", 0, &a.models, "FILE",
			"the list of known models (default: the installed models.yaml)"),
		IG_TEXT("to", 0, &a.to, "DIR",
			"the models folder (default: $INGOT_MODELS_DIR, ~/.local/share/ingot/models)"),
		IG_FLAG("no-wait", 0, &a.no_wait, "load: return when the load has started"),
		IG_WHERE_OPTIONS(&a.where),
		{ 0 },
	};
	int n_args,
		status = ig_command_start(
			"models [options] [load NAME | unload NAME]",
			"List the models that pull knows, which are downloaded, and the models that the "
			"daemon\nserves, with their states; or have the daemon load or unload one.",
			opts, argc, argv, &n_args);

	if (status >= 0)
		return status;
	if (n_args)
		return change_model(&a, n_args, argv);
	if (a.no_wait)
		return ig_wrong_usage("models", "--no-wait is for load");
	if (a.names && a.json)
		return ig_wrong_usage("models", "--names and --json exclude each other");
	if (!a.names || !strcmp(a.names, "known"))
		return list_models(&a);
	if (strcmp(a.names, "served"))
		return ig_wrong_usage("models", "--names: expected known or served");
	return print_served_names(&a.where);
}
