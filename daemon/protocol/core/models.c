/*
 * models.c: the models as clients see them: /v1/models, and what administrators ask for:
 * /v1/ingot/models/load and /unload.
 *
 * Everybody may know which models there are and whether they are loaded; where their
 * files lie, what they take and who uses them is the administrators' business.
 */
#include "daemon/protocol/core/api_private.h"
#include "daemon/protocol/core/request_private.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what the engine knows -------------------------------------------------------- */

struct ig_model_status *ig_models_read(struct ig_api *api, size_t *n)
{
	for (size_t cap = 16;; cap *= 2) {
		struct ig_model_status *list = calloc(cap, sizeof *list);
		if (!list)
			return NULL;
		*n = ig_engine_models(api->deps.engine, list, cap);
		if (*n < cap)
			return list;
		free(list); /* there may be more of them */
	}
}

const struct ig_model_status *ig_models_find(const struct ig_model_status *list, size_t n,
					     const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (name && name[0] ? !strcmp(list[i].name, name) : list[i].is_default)
			return &list[i];
	return NULL;
}

/* ---- objects -------------------------------------------------------------------------- */

static const char *state_name(enum ig_model_state s)
{
	switch (s) {
	case IG_MODEL_LOADING:
		return "loading";
	case IG_MODEL_READY:
		return "ready";
	case IG_MODEL_LEAVING:
		return "leaving";
	case IG_MODEL_FAILED:
		return "failed";
	default:
		return "unloaded";
	}
}

/* What only administrators are told. */
static void details(struct ig_strbuf *out, const struct ig_model_status *m)
{
	bool there = m->state == IG_MODEL_READY || m->state == IG_MODEL_LEAVING;

	ig_strbuf_printf(out, ",\"pinned\":%s,\"architecture\":", m->pinned ? "true" : "false");
	ig_json_text(out, m->arch[0] ? m->arch : NULL);
	ig_strbuf_puts(out, ",\"file\":");
	ig_json_text(out, m->file);
	ig_strbuf_puts(out, ",\"error\":");
	ig_json_text(out, m->state == IG_MODEL_FAILED ? m->error : NULL);
	ig_strbuf_printf(out,
			 ",\"weight_bytes\":%llu,\"scratch_bytes\":%llu,\"active_requests\":%u,"
			 "\"loads\":%llu,\"load_s\":%.3f",
			 (unsigned long long)m->weight_bytes, (unsigned long long)m->scratch_bytes,
			 m->n_active, (unsigned long long)m->n_loads, m->loaded_s);
	if (there)
		ig_strbuf_printf(out, ",\"idle_s\":%.3f", m->idle_s);
	else
		ig_strbuf_puts(out, ",\"idle_s\":null");
	if (there && m->expires_s >= 0)
		ig_strbuf_printf(out, ",\"expires_s\":%.3f", m->expires_s);
	else
		ig_strbuf_puts(out, ",\"expires_s\":null");
}

/* OpenAI's members and Anthropic's in one object, and ours. */
static void object(struct ig_strbuf *out, const struct ig_model_status *m, bool all)
{
	time_t created = (time_t)m->created_s;
	char when[32] = "1970-01-01T00:00:00Z";
	struct tm tm;

	if (gmtime_r(&created, &tm))
		strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
	ig_strbuf_puts(out, "{\"id\":");
	ig_json_text(out, m->name);
	ig_strbuf_printf(out,
			 ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ingot\","
			 "\"type\":\"model\",\"display_name\":",
			 (long long)m->created_s);
	ig_json_text(out, m->name);
	ig_strbuf_printf(out, ",\"created_at\":\"%s\",\"lifecycle\":\"active\"", when);
	if (m->n_context)
		ig_strbuf_printf(out, ",\"max_input_tokens\":%u", m->n_context);
	else
		ig_strbuf_puts(out, ",\"max_input_tokens\":null");
	ig_strbuf_printf(out, ",\"state\":\"%s\",\"default\":%s", state_name(m->state),
			 m->is_default ? "true" : "false");
	if (all)
		details(out, m);
	ig_strbuf_puts(out, "}");
}

int ig_models_list(struct ig_api *api, bool all, struct ig_strbuf *out, struct ig_api_error *e)
{
	size_t n;
	struct ig_model_status *list = ig_models_read(api, &n);

	if (!list)
		return ig_fail_memory(e);
	ig_strbuf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		object(out, &list[i], all);
	}
	ig_strbuf_puts(out, "],\"has_more\":false,\"first_id\":");
	ig_json_text(out, n ? list[0].name : NULL);
	ig_strbuf_puts(out, ",\"last_id\":");
	ig_json_text(out, n ? list[n - 1].name : NULL);
	ig_strbuf_puts(out, "}");
	free(list);
	return 0;
}

static void fail_unknown(const struct ig_model_status *list, size_t n, const char *name,
			 struct ig_api_error *e)
{
	struct ig_strbuf known = { 0 };
	char shown[140];

	for (size_t i = 0; i < n; i++)
		ig_strbuf_printf(&known, "%s%s", i ? ", " : "", list[i].name);
	ig_printable(shown, sizeof shown, name);
	ig_api_fail(e, 404, "invalid_request_error", "model_not_found", "model",
		    "No model is named '%s'; known: %.400s.", shown,
		    known.len ? known.data : "none");
	ig_strbuf_finish(&known);
}

int ig_models_show(struct ig_api *api, const char *name, bool all, struct ig_strbuf *out,
		   struct ig_api_error *e)
{
	size_t n;
	struct ig_model_status *list = ig_models_read(api, &n);

	if (!list)
		return ig_fail_memory(e);
	const struct ig_model_status *m = name[0] ? ig_models_find(list, n, name) : NULL;
	if (m)
		object(out, m, all);
	else
		fail_unknown(list, n, name, e);
	free(list);
	return m ? 0 : -1;
}

/* ---- load and unload --------------------------------------------------------------------- */

static int param_wait(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->wait, name, v, e);
}

static const struct ig_param load_table[] = {
	{ "model", ig_param_model },
	{ "wait", param_wait },
	{ NULL, NULL },
};

static const struct ig_param unload_table[] = {
	{ "model", ig_param_model },
	{ NULL, NULL },
};

static int parse(const char *text, size_t len, enum ig_request_kind kind,
		 const struct ig_param *table, struct ig_request *r, struct ig_api_error *e)
{
	json_t *root;

	ig_request_init(r, kind);
	*e = (struct ig_api_error){ 0 };
	if (ig_json_load_object(text, len, &root, e) < 0)
		return -1;
	int rc = ig_params_read(r, table, root, e);
	/* The default one is to be named too: who unloads says what. */
	if (!rc && (!r->model || !r->model[0]))
		rc = ig_fail_missing(e, "model");
	return ig_json_end(root, rc, e);
}

int ig_request_parse_load(const char *text, size_t len, struct ig_request *r,
			  struct ig_api_error *e)
{
	return parse(text, len, IG_REQUEST_LOAD, load_table, r, e);
}

int ig_request_parse_unload(const char *text, size_t len, struct ig_request *r,
			    struct ig_api_error *e)
{
	return parse(text, len, IG_REQUEST_UNLOAD, unload_table, r, e);
}

/* As it is now.  A reload may have taken it away meanwhile. */
static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	size_t n;
	struct ig_model_status *list = ig_models_read(r->api, &n);
	const struct ig_model_status *m = list ? ig_models_find(list, n, r->request.model) : NULL;
	struct ig_model_status gone = { .state = IG_MODEL_UNLOADED, .expires_s = -1 };

	out->failed |= !list;
	ig_utf8_copy(gone.name, sizeof gone.name, r->request.model);
	object(out, m ? m : &gone, true);
	free(list);
}

/* 202: the load is under way. */
static int status(const struct ig_reply *r)
{
	return r->prepared.model ? 200 : 202;
}

const struct ig_protocol ig_load_protocol = {
	.path = "/v1/ingot/models/load",
	.id_prefix = "load-",
	.parse = ig_request_parse_load,
	.whole = whole,
	.status = status,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};

const struct ig_protocol ig_unload_protocol = {
	.path = "/v1/ingot/models/unload",
	.id_prefix = "unload-",
	.parse = ig_request_parse_unload,
	.whole = whole,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};
