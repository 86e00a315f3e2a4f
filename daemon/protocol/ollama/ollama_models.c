/*
 * ollama_models.c: the models for Ollama's clients: /api/tags, /api/ps, /api/show, /api/version and GET
 * /.  A model has the configuration's name; clients may
 * add ":latest" to it.
 */
#include "daemon/protocol/models/models.h"
#include "daemon/protocol/ollama/ollama_private.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* The version of Ollama's API whose requests are understood: clients compare it with the one that
 * they need (Codex: 0.13.4). */
#define OLLAMA_VERSION "0.31.0"
/* When a model expires that is never unloaded: a time that every client can read. */
#define NEVER "2318-01-01T00:00:00.000000Z"

/* ---- members ------------------------------------------------------------------------------ */

/* "134.52M", "7.6B" */
static void size_text(char *out, size_t cap, uint64_t n)
{
	double d = (double)n;

	if (!n)
		out[0] = 0;
	else if (d >= 1e9)
		snprintf(out, cap, "%.1fB", d / 1e9);
	else if (d >= 1e6)
		snprintf(out, cap, "%.2fM", d / 1e6);
	else
		snprintf(out, cap, "%.0fK", d / 1e3);
}

static void put_details(struct ig_json_writer *w, const struct ig_model_status *m)
{
	char size[32];

	size_text(size, sizeof size, m->traits.n_params);
	ig_json_putf(
		w,
		"'details': {'parent_model': '', 'format': %s, 'family': %s, 'families': [%s], "
		"'parameter_size': %s, 'quantization_level': %s}",
		m->traits.format, m->arch, m->arch, size, m->traits.quantization);
}

static void put_capabilities(struct ig_json_writer *w, const struct ig_model_status *m)
{
	ig_json_putf(w, "'capabilities': [%s",
		     m->traits.embeds ? "embedding" :
		     m->traits.ranks  ? "rerank" :
					"completion");
	if (m->traits.tools)
		ig_json_putf(w, "'tools'");
	if (m->traits.thinking)
		ig_json_putf(w, "'thinking'");
	ig_json_close_array(w);
}

/* The digest names a version of the file; the file is not hashed. */
static void put_model(struct ig_json_writer *w, const struct ig_model_status *m, uint64_t bytes)
{
	unsigned long long v[4] = { m->traits.version };

	for (int i = 1; i < 4; i++)
		v[i] = (v[i - 1] ^ v[i - 1] >> 29) * 0xbf58476d1ce4e5b9ull;
	char digest[65];
	snprintf(digest, sizeof digest, "%016llx%016llx%016llx%016llx", v[0], v[1], v[2], v[3]);
	ig_json_putf(w, "'name': %s, 'model': %s, 'digest': %s", m->name, m->name, digest);
	ig_json_put_uint(w, "size", bytes);
	put_details(w, m);
}

static void put_modified(struct ig_json_writer *w, const struct ig_model_status *m)
{
	char when[IG_OLLAMA_TIME_CAP];

	ig_json_putf(w, "'modified_at': %s", ig_ollama_time(when, m->created_s * 1000000000));
}

/* ---- GET ------------------------------------------------------------------------------------- */

void ig_ollama_root(struct ig_exchange *x, const struct ig_http_request *r)
{
	size_t n = 1;

	/* word for word: programs look for it */
	ig_strbuf_puts(&x->body, "Ollama is running");
	free(ig_models_read(x->api->deps.engine, &n));
	if (!n)
		ig_strbuf_puts(
			&x->body,
			"\n\nThere is no model yet. `ingot pull NAME` downloads one, for example "
			"qwen3-4b;\n`ingot models` lists names, and `ingot chat` talks to it.\n");
	ig_exchange_reply(x, 200);
	x->head.content_type = "text/plain; charset=utf-8";
}

void ig_ollama_version(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_json_writer w = { .out = &x->body };

	ig_json_putf(&w, "{'version': %s, 'ingot': %s}", OLLAMA_VERSION, IG_VERSION);
	ig_exchange_reply(x, 200);
}

static void put_running(struct ig_json_writer *w, const struct ig_model_status *m)
{
	uint64_t bytes = m->weight_bytes + m->scratch_bytes;
	char when[IG_OLLAMA_TIME_CAP];
	/* one that is in use begins to expire when its last request ends */
	double s = m->expires_s >= 0 ? m->expires_s : m->keep_alive_s;
	int64_t expires = ig_wall_ns() + (int64_t)(s * 1e9);

	ig_json_open_object(w, NULL);
	put_model(w, m, bytes);
	ig_json_putf(w, "'expires_at': %s, 'context_length': %u",
		     s >= 0 ? ig_ollama_time(when, expires) : NEVER, m->n_context);
	ig_json_put_uint(w, "size_vram", m->on_device ? bytes : 0);
	ig_json_close_object(w);
}

static void put_known(struct ig_json_writer *w, const struct ig_model_status *m)
{
	ig_json_open_object(w, NULL);
	put_model(w, m, m->traits.file_bytes);
	put_modified(w, m);
	put_capabilities(w, m);
	ig_json_close_object(w);
}

static void list(struct ig_exchange *x, bool running)
{
	size_t n;
	struct ig_model_status *models = ig_models_read(x->api->deps.engine, &n);
	struct ig_json_writer w = { .out = &x->body };
	struct ig_api_error e;

	if (!models) {
		ig_fail_memory(&e);
		ig_exchange_fail(x, &e);
		return;
	}
	ig_json_putf(&w, "{'models': [");
	for (size_t i = 0; i < n; i++)
		if (!running)
			put_known(&w, &models[i]);
		else if (models[i].state == IG_MODEL_READY)
			put_running(&w, &models[i]);
	ig_json_putf(&w, "]}");
	free(models);
	ig_exchange_reply(x, 200);
}

void ig_ollama_tags(struct ig_exchange *x, const struct ig_http_request *r) { list(x, false); }

void ig_ollama_ps(struct ig_exchange *x, const struct ig_http_request *r) { list(x, true); }

bool ig_ollama_below(struct ig_exchange *x, const struct ig_http_request *r, const char *rest)
{
	return false;
}

/* ---- show ---------------------------------------------------------------------------------------- */

static const struct ig_param show_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "name", IG_PARAM_STRING, IG_AT(model) },
	{ "verbose", IG_PARAM_NOTED, .values = "false" },
	{ NULL },
};

static int check_model(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->model && r->model[0] ? 0 : ig_fail_missing(e, "model");
}

static const struct ig_request_format show_request = { show_params, check_model };

/* The model's status, a copy; false with r->error. */
static bool find(struct ig_reply *r, struct ig_model_status *out)
{
	size_t n = 0;
	struct ig_model_status *models = ig_models_read(r->api->deps.engine, &n);
	const struct ig_model_status *m =
		models ? ig_models_find(models, n, r->request.model) : NULL;

	if (m)
		*out = *m;
	else if (models)
		ig_models_fail_unknown(models, n, r->request.model, &r->error);
	else
		ig_fail_memory(&r->error);
	free(models);
	return m;
}

/* A loaded model shows its template, too. */
static void show(struct ig_reply *r)
{
	struct ig_model_status m;

	if (!find(r, &m) || m.state != IG_MODEL_READY)
		return;
	ig_prepare_model(r);
	r->error = (struct ig_api_error){ 0 };
	r->waits = false;
}

static void put_info(struct ig_json_writer *w, const struct ig_model_status *m)
{
	char key[96];

	ig_json_open_object(w, "model_info");
	if (m->arch[0]) {
		ig_json_put_text(w, "general.architecture", m->arch);
		ig_json_put_uint(w, "general.parameter_count", m->traits.n_params);
		snprintf(key, sizeof key, "%s.context_length", m->arch);
		ig_json_put_uint(w, key, m->n_context);
	}
	ig_json_close_object(w);
}

static void write_show(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_engine_model *loaded = r->prepared.model;
	struct ig_json_writer w = { .out = out };
	struct ig_model_status m = { 0 };
	const char *template = NULL;
	size_t len = 0;

	find(r, &m); /* a reload may have removed it meanwhile */
	if (loaded && loaded->chat)
		template = ig_chat_template_source(loaded->chat, 0, &len);
	ig_json_open_object(&w, NULL);
	put_details(&w, &m);
	put_info(&w, &m);
	put_capabilities(&w, &m);
	put_modified(&w, &m);
	if (template)
		ig_json_put_string(&w, "template", template, len);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_ollama_show_protocol = {
	.id_prefix = "show-",
	.request = &show_request,
	.act = show,
	.whole = write_show,
	.error = ig_ollama_error,
	.immediate = true,
};
