/* models.c: the models for clients, /v1/models, and for administrators, /v1/ingot/models/load and
 * /unload.  Only administrators see the models' files, memory and use. */
#include "daemon/protocol/models/models.h"

#include "base/utf8.h"
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/url_query.h"
#include "daemon/protocol/models/catalog.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- objects -------------------------------------------------------------------------- */

/* Members for administrators only. */
static void details(struct ig_json_writer *w, const struct ig_model_status *m)
{
	bool there = m->state == IG_MODEL_READY || m->state == IG_MODEL_UNLOADING;

	ig_json_putf(w, "'pinned': %-s, 'architecture': %s, 'file': %s, 'error': %s",
		     ig_json_bool(m->pinned), m->arch[0] ? m->arch : NULL, m->file,
		     m->state == IG_MODEL_FAILED ? m->error : NULL);
	ig_json_putf(w, "'fits': %s, 'quantization': %s", ig_model_fit_name(m->fit),
		     m->traits.quantization[0] ? m->traits.quantization : NULL);
	ig_json_put_uint(w, "file_bytes", m->traits.file_bytes);
	ig_json_put_uint(w, "weight_bytes", m->weight_bytes);
	ig_json_put_uint(w, "scratch_bytes", m->scratch_bytes);
	ig_json_put_uint(w, "active_requests", m->n_active);
	ig_json_put_uint(w, "loads", m->n_loads);
	ig_json_putf(w, "'load_s': %.3f, 'idle_s': %.3f, 'expires_s': %.3f", m->loaded_s,
		     there ? m->idle_s : NAN, there && m->expires_s >= 0 ? m->expires_s : NAN);
}

struct base_name {
	char text[IG_MAX_MODEL_NAME + 1];
};

/* Of MODEL:ADAPTER: an adapter's name has no colon. */
static struct base_name base_of(const struct ig_model_status *m)
{
	struct base_name b;

	snprintf(b.text, sizeof b.text, "%.*s", (int)(strrchr(m->name, ':') - m->name), m->name);
	return b;
}

/* The members of OpenAI, Anthropic and Ingot in one object.  id: the model's name, or another by
 * which requests may name it. */
static void object(struct ig_json_writer *w, const struct ig_model_status *m, const char *id,
		   bool all)
{
	time_t created = (time_t)m->created_s;
	char when[32] = "1970-01-01T00:00:00Z";
	struct tm tm;

	if (gmtime_r(&created, &tm))
		strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
	ig_json_putf(w,
		     "{'id': %s, 'object': 'model', 'created': %lld, 'owned_by': 'ingot', "
		     "'type': 'model', 'display_name': %s, 'created_at': %s, "
		     "'lifecycle': 'active', 'max_input_tokens': %.0f, 'state': %s, 'default': %-s",
		     id, (long long)m->created_s, m->name, when,
		     m->n_context ? (double)m->n_context : NAN, ig_model_state_name(m->state),
		     ig_json_bool(m->is_default));
	/* once the file was opened */
	ig_json_put_text(w, "task", m->traits.n_params ? ig_model_task(&m->traits) : NULL);
	if (m->traits.n_dimensions)
		ig_json_put_uint(w, "dimensions", m->traits.n_dimensions);
	if (strcmp(id, m->name))
		ig_json_putf(w, "'alias_of': %s", m->name);
	if (m->is_adapter)
		ig_json_putf(w, "'adapter_of': %s", base_of(m).text);
	if (all)
		details(w, m);
	ig_json_close_object(w);
}

/* ---- the list ---------------------------------------------------------------------------- */

#define MAX_LIMIT 1000

/* The page that a query asks for, as Anthropic's clients do: at most limit models, after one or
 * before one.  OpenAI's clients know no pages and get all. */
struct page {
	int32_t limit;
	char after[256], before[256]; /* an id; "": none */
};

struct listed {
	const struct ig_model_status *model;
	char id[IG_MAX_MODEL_NAME + 65];
};

struct list {
	struct ig_model_status *models;
	struct listed *ids;
	size_t n_models, n_ids, first, end; /* the page: ids[first], up to end */
	bool has_more;			    /* in the direction of the page */
};

/* Parameters with other names have no effect. */
static int read_page(const char *query, struct page *p, struct ig_api_error *e)
{
	struct ig_query_pair q;

	*p = (struct page){ .limit = INT32_MAX };
	while (query && ig_query_next(&query, &q)) {
		bool after = !strcmp(q.name, "after_id"), before = !strcmp(q.name, "before_id");
		if (!strcmp(q.name, "limit") && ig_query_limit(&q, MAX_LIMIT, &p->limit, e) < 0)
			return -1;
		if ((after || before) && !q.value[0])
			return ig_fail_value(e, q.name, "expected the id of a model");
		if (after || before)
			memcpy(after ? p->after : p->before, q.value, sizeof q.value);
	}
	if (p->after[0] && p->before[0])
		return ig_fail_value(e, "before_id", "it can't be given beside after_id");
	return 0;
}

/* The models' names, then those with server.model_id_prefix. */
static int make_list(const struct ig_api *api, struct list *l, struct ig_api_error *e)
{
	const char *prefix = api->deps.options.model_id_prefix;

	l->models = ig_models_read(api->deps.engine, &l->n_models);
	l->ids = l->models ? calloc(2 * l->n_models + 1, sizeof *l->ids) : NULL;
	if (!l->ids)
		return ig_fail_memory(e);
	for (size_t i = 0; i < 2 * l->n_models; i++) {
		const struct ig_model_status *m = &l->models[i % l->n_models];
		bool second = i >= l->n_models;
		if (second && (!prefix[0] || !strncmp(m->name, prefix, strlen(prefix))))
			continue; /* its name has it */
		struct listed *to = &l->ids[l->n_ids++];
		to->model = m;
		snprintf(to->id, sizeof to->id, "%s%s", second ? prefix : "", m->name);
	}
	return 0;
}

static int find_id(const struct list *l, const char *param, const char *id, size_t *at,
		   struct ig_api_error *e)
{
	for (*at = 0; *at < l->n_ids; ++*at)
		if (!strcmp(l->ids[*at].id, id))
			return 0;
	return ig_fail_value(e, param, "no model has this id");
}

static int cut_page(struct list *l, const struct page *p, struct ig_api_error *e)
{
	size_t limit = (size_t)p->limit;

	l->end = l->n_ids;
	if (p->after[0]) {
		if (find_id(l, "after_id", p->after, &l->first, e) < 0)
			return -1;
		l->first++;
	}
	if (p->before[0] && find_id(l, "before_id", p->before, &l->end, e) < 0)
		return -1;
	if (l->end - l->first > limit) {
		l->has_more = true;
		if (p->before[0])
			l->first = l->end - limit;
		else
			l->end = l->first + limit;
	}
	return 0;
}

/* One object for all clients: OpenAI's list, Anthropic's page, Codex's catalog of all models. */
static void write_list(struct ig_exchange *x, const struct list *l)
{
	struct ig_json_writer w = { .out = &x->body };
	bool all = ig_exchange_is_administrator(x), empty = l->first == l->end;

	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (size_t i = l->first; i < l->end; i++)
		object(&w, l->ids[i].model, l->ids[i].id, all);
	ig_json_putf(&w, "], 'has_more': %-s, 'first_id': %s, 'last_id': %s",
		     ig_json_bool(l->has_more), empty ? NULL : l->ids[l->first].id,
		     empty ? NULL : l->ids[l->end - 1].id);
	ig_catalog_write(&w, l->models, l->n_models);
	ig_json_close_object(&w);
}

void ig_models_get(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct list l = { 0 };
	struct page p;
	struct ig_api_error e;

	if (read_page(r->query, &p, &e) < 0 || make_list(x->api, &l, &e) < 0 ||
	    cut_page(&l, &p, &e) < 0) {
		ig_exchange_fail(x, &e);
	} else {
		write_list(x, &l);
		ig_exchange_reply(x, 200);
	}
	free(l.ids);
	free(l.models);
}

void ig_models_write_states(struct ig_api *api, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	size_t n;
	struct ig_model_status *list = ig_models_read(api->deps.engine, &n);

	out->failed |= !list;
	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (size_t i = 0; list && i < n; i++)
		ig_json_putf(&w,
			     "{'id': %s, 'state': %s, 'fits': %s, 'pinned': %-s, "
			     "'active_requests': %u, 'loads': %llu}",
			     list[i].name, ig_model_state_name(list[i].state),
			     ig_model_fit_name(list[i].fit), ig_json_bool(list[i].pinned),
			     list[i].n_active, (unsigned long long)list[i].n_loads);
	ig_json_putf(&w, "]}");
	free(list);
}

void ig_get_models(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_json_writer w = { .out = &x->body };
	struct ig_api_error e;
	size_t n;
	struct ig_model_status *list = ig_models_read(x->api->deps.engine, &n);

	if (!list) {
		ig_fail_memory(&e);
		ig_exchange_fail(x, &e);
		return;
	}
	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (size_t i = 0; i < n; i++)
		object(&w, &list[i], list[i].name, true);
	ig_json_putf(&w, "]}");
	free(list);
	ig_exchange_reply(x, 200);
}

int ig_models_fail_unknown(const struct ig_model_status *list, size_t n, const char *name,
			   struct ig_api_error *e)
{
	struct ig_strbuf known = { 0 };
	char shown[140];

	for (size_t i = 0; i < n; i++)
		ig_strbuf_printf(&known, "%s%s", i ? ", " : "", list[i].name);
	ig_printable(shown, sizeof shown, name);
	ig_api_fail(e, 404, "model_not_found", "model", "No model is named '%s'; known: %.400s.",
		    shown, known.len ? known.data : "none");
	ig_strbuf_finish(&known);
	return -1;
}

bool ig_models_below(struct ig_exchange *x, const struct ig_http_request *r, const char *name)
{
	struct ig_model_status *list = NULL;
	const struct ig_model_status *m = NULL;
	char known[IG_MAX_MODEL_NAME + 1];
	struct ig_api_error e;
	size_t n = 0;

	if (strcmp(r->method, "GET")) {
		ig_exchange_wrong_method(x, r, "GET");
		return true;
	}
	list = ig_models_read(x->api->deps.engine, &n);
	if (name[0] && ig_engine_model_name(x->api->deps.engine, name, known))
		m = ig_models_find(list, n, known);
	if (m) {
		object(&(struct ig_json_writer){ .out = &x->body }, m, name,
		       ig_exchange_is_administrator(x));
		ig_exchange_reply(x, 200);
	} else {
		if (list)
			ig_models_fail_unknown(list, n, name, &e);
		else
			ig_fail_memory(&e);
		ig_exchange_fail(x, &e);
	}
	free(list);
	return true;
}

/* ---- load and unload --------------------------------------------------------------------- */

static const struct ig_param load_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "wait", IG_PARAM_BOOL, IG_AT(wait) },
	{ NULL },
};

static const struct ig_param unload_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ NULL },
};

static const struct ig_param pin_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "pinned", IG_PARAM_BOOL, IG_AT(pinned), .required = true },
	{ NULL },
};

/* The default model must be named too. */
static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->model && r->model[0] ? 0 : ig_fail_missing(e, "model");
}

static const struct ig_request_format load_request = { load_table, check },
				      unload_request = { unload_table, check },
				      pin_request = { pin_table, check };

static void load(struct ig_reply *r)
{
	ig_prepare_model(r);
	r->waits &= r->request.wait;
}

static void unload(struct ig_reply *r)
{
	struct ig_error err = { 0 };
	int rc = ig_engine_unload_model(r->api->deps.engine, r->request.model, &err);

	if (rc < 0)
		ig_fail_model(&r->error, rc, &err);
}

static void pin(struct ig_reply *r)
{
	struct ig_error err = { 0 };
	int rc =
		ig_engine_pin_model(r->api->deps.engine, r->request.model, r->request.pinned, &err);

	if (rc < 0)
		ig_fail_model(&r->error, rc, &err);
}

/* Its current state.  A reload may have removed it meanwhile. */
static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	size_t n;
	struct ig_model_status *list = ig_models_read(r->api->deps.engine, &n);
	struct ig_model_status gone = { .state = IG_MODEL_UNLOADED, .expires_s = -1 };

	out->failed |= !list;
	ig_reply_ledger_name(r, gone.name);
	const struct ig_model_status *m = list ? ig_models_find(list, n, gone.name) : NULL;
	object(&(struct ig_json_writer){ .out = out }, m ? m : &gone, gone.name, true);
	free(list);
}

/* 202: the load is under way. */
static int status(const struct ig_reply *r) { return r->prepared.model ? 200 : 202; }

const struct ig_protocol ig_load_protocol = {
	.id_prefix = "load-",
	.request = &load_request,
	.act = load,
	.whole = whole,
	.status = status,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};

const struct ig_protocol ig_unload_protocol = {
	.id_prefix = "unload-",
	.request = &unload_request,
	.act = unload,
	.whole = whole,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};

const struct ig_protocol ig_pin_protocol = {
	.id_prefix = "pin-",
	.request = &pin_request,
	.act = pin,
	.whole = whole,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};
