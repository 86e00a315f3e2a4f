/* ollama_prepare.c: what of a chat or generate depends on the model, on a prep thread: whether it can
 * think, whether it has a template for a prompt, how long it stays loaded. */
#include "daemon/protocol/ollama/ollama_private.h"

static bool may_manage(const struct ig_reply *r)
{
	return r->origin->who.role == IG_ROLE_ADMINISTRATOR;
}

static void keep(struct ig_reply *r)
{
	if (r->request.has_keep_alive)
		ig_engine_set_keep_alive(r->prepared.model, r->request.keep_alive_ns);
}

/* Only administrators decide how long a model stays loaded: of others it is noted, and refused
 * where there is nothing else to do. */
static int check_keep_alive(struct ig_reply *r)
{
	struct ig_request *q = &r->request;

	if (!q->has_keep_alive || may_manage(r))
		return 0;
	if (q->no_output && !q->keep_alive_ns)
		return ig_api_fail(&r->error, 403, "administrator_required", "keep_alive",
				   "Only the key of an administrator may unload a model.");
	q->has_keep_alive = false;
	return ig_request_ignore(q, "keep_alive", NULL, NULL, &r->error);
}

static void load_or_unload(struct ig_reply *r)
{
	struct ig_error err = { 0 };
	int rc;

	if (!r->request.has_keep_alive || r->request.keep_alive_ns) {
		if (!ig_prepare_model(r))
			keep(r);
		return;
	}
	rc = ig_engine_unload_model(r->api->deps.engine, r->request.model, &err);
	if (rc < 0)
		ig_fail_model(&r->error, rc, &err);
}

/* Templates that can omit reasoning read enable_thinking.  Without think a model thinks if it
 * can. */
static int set_thinking(struct ig_reply *r)
{
	const struct ig_engine_model *m = r->prepared.model;
	struct ig_request *q = &r->request;

	if (!q->messages)
		return 0;
	if (q->think == IG_THINK_ON && !m->traits.thinking)
		return ig_api_fail(&r->error, 400, "unsupported_model", "think",
				   "The model '%s' does not support thinking ('think').", m->name);
	if (!m->traits.thinking)
		return 0;
	if (!q->template_vars)
		q->template_vars = json_object();
	if (!q->template_vars || json_object_set_new(q->template_vars, "enable_thinking",
						     json_boolean(q->think != IG_THINK_OFF)))
		return ig_fail_memory(&r->error);
	return 0;
}

/* The messages of a generate for a model without a chat template, as one text. */
static int set_plain_prompt(struct ig_reply *r)
{
	struct ig_request *q = &r->request;
	struct ig_strbuf text = { 0 };
	size_t i;
	json_t *m;

	json_array_foreach(q->messages, i, m)
	{
		const json_t *content = json_object_get(m, "content");
		ig_strbuf_puts(&text, i ? "\n\n" : "");
		ig_strbuf_add(&text, json_string_value(content), json_string_length(content));
	}
	int rc = ig_strbuf_ok(&text) ?
			 ig_ollama_set_prompt(q, ig_strbuf_text(&text), text.len, &r->error) :
			 ig_fail_memory(&r->error);
	ig_strbuf_finish(&text);
	json_decref(q->messages);
	q->messages = NULL;
	return rc;
}

void ig_ollama_prepare(struct ig_reply *r)
{
	struct ig_request *q = &r->request;

	if (check_keep_alive(r) < 0)
		return;
	if (q->no_output) {
		load_or_unload(r);
		return;
	}
	if (ig_prepare_model(r) < 0)
		return;
	bool plain = r->protocol == &ig_ollama_generate_protocol && q->messages &&
		     !r->prepared.model->chat;
	if (plain && set_plain_prompt(r) < 0)
		return;
	if (set_thinking(r) < 0)
		return;
	ig_prepare_prompt(r);
	if (!r->error.status)
		keep(r);
}
