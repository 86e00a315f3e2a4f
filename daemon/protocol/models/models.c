/* models.c: the models for clients, /v1/models, and for administrators, /v1/ingot/models/load and
 * /unload.  Only administrators see the models' files, memory and use. */
#include "daemon/protocol/models/models.h"

#include "base/utf8.h"
#include "daemon/protocol/core/params.h"
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
	ig_json_put_uint(w, "weight_bytes", m->weight_bytes);
	ig_json_put_uint(w, "scratch_bytes", m->scratch_bytes);
	ig_json_put_uint(w, "active_requests", m->n_active);
	ig_json_put_uint(w, "loads", m->n_loads);
	ig_json_putf(w, "'load_s': %.3f, 'idle_s': %.3f, 'expires_s': %.3f", m->loaded_s,
		     there ? m->idle_s : NAN, there && m->expires_s >= 0 ? m->expires_s : NAN);
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
	if (strcmp(id, m->name))
		ig_json_putf(w, "'alias_of': %s", m->name);
	if (all)
		details(w, m);
	ig_json_close_object(w);
}

/* The id of m with server.model_id_prefix; false: it has none but its name. */
static bool second_id(const struct ig_api *api, const struct ig_model_status *m,
		      char out[IG_MAX_MODEL_NAME + 65])
{
	const char *prefix = api->deps.options.model_id_prefix;

	snprintf(out, IG_MAX_MODEL_NAME + 65, "%s%s", prefix, m->name);
	return prefix[0] && strncmp(m->name, prefix, strlen(prefix));
}

void ig_models_get(struct ig_exchange *x, const struct ig_http_request *r)
{
	size_t n;
	struct ig_model_status *list = ig_models_read(x->api->deps.engine, &n);
	struct ig_json_writer w = { .out = &x->body };
	bool all = ig_exchange_is_administrator(x);
	char id[IG_MAX_MODEL_NAME + 65], last[sizeof id] = "";
	struct ig_api_error e;

	if (!list) {
		ig_fail_memory(&e);
		ig_exchange_fail(x, &e);
		return;
	}
	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (size_t i = 0; i < n; i++) {
		object(&w, &list[i], list[i].name, all);
		snprintf(last, sizeof last, "%s", list[i].name);
	}
	for (size_t i = 0; i < n; i++)
		if (second_id(x->api, &list[i], id)) {
			object(&w, &list[i], id, all);
			memcpy(last, id, sizeof last);
		}
	ig_json_putf(&w, "], 'has_more': false, 'first_id': %s, 'last_id': %s",
		     n ? list[0].name : NULL, n ? last : NULL);
	ig_catalog_write(&w, list, n);
	ig_json_close_object(&w);
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

/* The default model must be named too. */
static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->model && r->model[0] ? 0 : ig_fail_missing(e, "model");
}

static const struct ig_request_format load_request = { load_table, check },
				      unload_request = { unload_table, check };

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
