/*
 * prepare.c: from a request to what the engine takes: token ids, a grammar, which
 * control tokens are shown.  The prep thread; all that can be slow about a request.
 */
#include "daemon/protocol/core/api_private.h"
#include "daemon/protocol/core/request_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The loop says when to come again. */
static void fail_model(struct ig_job *j, int rc, const struct ig_error *err)
{
	struct ig_api_error *e = &j->error;

	switch (rc) {
	case -ENOENT:
		ig_api_fail(e, 404, "invalid_request_error", "model_not_found", "model", "%s",
			    err->text);
		break;
	case -ENOMEM:
		ig_api_fail(e, 503, "server_error", "insufficient_memory", "model", "%s",
			    err->text);
		break;
	case -EIO:
		ig_api_fail(e, 503, "server_error", "model_load_failed", "model", "%s", err->text);
		break;
	case -ESHUTDOWN:
		ig_api_fail(e, 503, "server_error", "server_shutting_down", NULL,
			    "The server is shutting down.");
		break;
	default:
		ig_api_fail(e, 500, "server_error", "server_error", NULL, "%s", err->text);
	}
}

static int fail_prompt(struct ig_job *j, int rc, const struct ig_error *err)
{
	const struct ig_engine_model *m = j->prepared.model;

	if (rc == -E2BIG)
		return ig_api_fail(&j->error, 400, "invalid_request_error",
				   "context_length_exceeded", j->protocol->prompt_param,
				   "The prompt has more than %zu tokens; the "
				   "model '%s' has a context of %u tokens, answer included.",
				   (size_t)m->n_context * 4, m->name, m->n_context);
	if (rc == -ENOMEM) {
		ig_fail_memory(&j->error);
		return -1;
	}
	return ig_api_fail(&j->error, 400, "invalid_request_error", "invalid_value",
			   j->protocol->prompt_param, "%s",
			   err->text[0] ? err->text : "The prompt can't be rendered.");
}

static bool is_system(const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));

	return role && !strcmp(role, "system");
}

/* Responses have instructions, and developers' messages beside them; templates want one
 * system message that is the first.  Later ones are the template's to judge. */
static int merge_leading(json_t *list)
{
	struct ig_strbuf text = { 0 };
	size_t n = 0;
	int rc = -1;

	while (is_system(json_array_get(list, n)))
		n++;
	if (n < 2)
		return 0;
	for (size_t i = 0; i < n; i++) {
		json_t *content = json_object_get(json_array_get(list, i), "content");
		if (i)
			ig_strbuf_puts(&text, "\n\n");
		ig_strbuf_add(&text, json_string_value(content), json_string_length(content));
	}
	for (size_t i = 1; i < n; i++)
		json_array_remove(list, 1);
	if (ig_strbuf_ok(&text))
		rc = json_array_set_new(
			list, 0,
			json_pack("{s:s, s:s%}", "role", "system", "content", text.data, text.len));
	ig_strbuf_finish(&text);
	return rc;
}

/* Instructions, then what is continued, then the new messages: a new list. */
static json_t *whole_conversation(const struct ig_request *r)
{
	json_t *list = json_array();

	if (r->instructions &&
	    json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content",
						  r->instructions)) < 0)
		goto fail;
	if (r->history && json_array_extend(list, r->history) < 0)
		goto fail;
	if (json_array_extend(list, r->messages) < 0)
		goto fail;
	if (r->kind == IG_REQUEST_CREATE && merge_leading(list) < 0)
		goto fail;
	return list;
fail:
	json_decref(list);
	return NULL;
}

/* So many bytes that the context could not hold them, were each token the longest: told
 * before the template and the tokenizer have worked for nothing. */
static bool too_long(const struct ig_engine_model *m, size_t n_bytes)
{
	return n_bytes / ig_tokenizer_longest(m->tokenizer) > (size_t)m->n_context * 4;
}

static size_t contents_length(const json_t *messages)
{
	size_t i, n = 0;
	json_t *m;

	json_array_foreach((json_t *)messages, i, m) n +=
		json_string_length(json_object_get(m, "content"));
	return n;
}

static int render(struct ig_job *j, struct ig_ids *out)
{
	const struct ig_request *r = &j->request;
	const struct ig_engine_model *m = j->prepared.model;
	struct ig_error err = { 0 };

	if (!m->chat)
		return ig_api_fail(&j->error, 400, "invalid_request_error", "unsupported_model",
				   "model", "The model '%s' can't chat: %s.", m->name,
				   m->chat_note);
	if (too_long(m, contents_length(r->history) + contents_length(r->messages)))
		return fail_prompt(j, -E2BIG, &err);
	json_t *messages = whole_conversation(r);
	if (!messages)
		return fail_prompt(j, -ENOMEM, &err);
	struct ig_chat_input in = {
		.messages = messages,
		.tools = r->tool_choice == IG_TOOLS_NONE ? NULL : r->tools,
		.extra = r->template_vars,
		.add_generation_prompt = !r->plain,
	};
	/* Beyond four contexts nobody needs the exact number. */
	int rc = ig_chat_template_encode_json(m->chat, &in, (size_t)m->n_context * 4, out, &err);
	json_decref(messages);
	/* A warm-up may come before there is a conversation that a template takes. */
	if (rc == -EINVAL && r->warm_up) {
		ig_ids_finish(out);
		return 0;
	}
	return rc < 0 ? fail_prompt(j, rc, &err) : 0;
}

/* A prompt that is no conversation: its tokens, after a BOS where the model wants one. */
static int tokenize(struct ig_job *j, const struct ig_prompt *p, struct ig_ids *out)
{
	const struct ig_engine_model *m = j->prepared.model;
	size_t max = (size_t)m->n_context * 4;
	int32_t n_vocab = ig_tokenizer_n_vocab(m->tokenizer);

	if (p->text && too_long(m, p->len))
		return fail_prompt(j, -E2BIG, NULL);
	if (p->text) {
		int32_t bos = ig_tokenizer_bos(m->tokenizer);
		if (ig_tokenizer_add_bos(m->tokenizer) && bos >= 0 && !j->request.plain) {
			out->ids = malloc(sizeof *out->ids);
			if (!out->ids)
				return fail_prompt(j, -ENOMEM, NULL);
			out->ids[0] = bos;
			out->n = out->cap = 1;
		}
		/* Who sends a whole prompt may write control tokens in it. */
		int rc = ig_tokenizer_encode(m->tokenizer, p->text, p->len, !j->request.plain, max,
					     out);
		return rc < 0 ? fail_prompt(j, rc, &(struct ig_error){ 0 }) : 0;
	}
	if (p->n_ids > max)
		return fail_prompt(j, -E2BIG, NULL);
	for (size_t i = 0; i < p->n_ids; i++)
		if (p->ids[i] < 0 || p->ids[i] >= n_vocab)
			return ig_api_fail(&j->error, 400, "invalid_request_error", "invalid_value",
					   j->protocol->prompt_param,
					   "Token %zu of the prompt is %d; the "
					   "model '%s' has tokens 0 to %d.",
					   i, p->ids[i], m->name, n_vocab - 1);
	out->ids = malloc(p->n_ids * sizeof *out->ids + 1);
	if (!out->ids)
		return fail_prompt(j, -ENOMEM, NULL);
	if (p->n_ids)
		memcpy(out->ids, p->ids, p->n_ids * sizeof *out->ids);
	out->n = out->cap = p->n_ids;
	return 0;
}

static int check_length(struct ig_job *j, const struct ig_ids *ids)
{
	const struct ig_engine_model *m = j->prepared.model;

	if (!ids->n)
		return ig_api_fail(&j->error, 400, "invalid_request_error", "invalid_value",
				   j->protocol->prompt_param, "The prompt has no tokens.");
	if (ids->n < m->n_context)
		return 0;
	return ig_api_fail(&j->error, 400, "invalid_request_error", "context_length_exceeded",
			   j->protocol->prompt_param,
			   "The prompt has %zu tokens; the model '%s' has a "
			   "context of %u tokens, answer included.",
			   ids->n, m->name, m->n_context);
}

static int make_prompts(struct ig_job *j)
{
	struct ig_prepared *p = &j->prepared;
	const struct ig_request *r = &j->request;

	p->prompts = calloc(r->messages ? 1 : r->n_prompts, sizeof *p->prompts);
	if (!p->prompts) {
		ig_fail_memory(&j->error);
		return -1;
	}
	p->n_prompts = r->messages ? 1 : r->n_prompts;
	for (size_t i = 0; i < p->n_prompts; i++) {
		int rc = r->messages ? render(j, &p->prompts[i]) :
				       tokenize(j, &r->prompts[i], &p->prompts[i]);
		if (!rc && r->warm_up && !p->prompts[i].n) {
			ig_ids_finish(&p->prompts[i]);
			p->n_prompts = 0; /* nothing to read ahead */
			return 0;
		}
		if (!rc && !j->protocol->immediate)
			rc = check_length(j, &p->prompts[i]);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int fail_grammar(struct ig_job *j, int rc, const char *param, const struct ig_error *err)
{
	if (rc == -ENOMEM) {
		ig_fail_memory(&j->error);
		return -1;
	}
	return ig_api_fail(&j->error, 400, "invalid_request_error",
			   rc == -ENOTSUP ? "unsupported_model" : "invalid_value", param, "%s",
			   err->text);
}

/* The forms that the model must keep to, if any. */
static int make_grammar(struct ig_job *j)
{
	struct ig_prepared *p = &j->prepared;
	const struct ig_request *r = &j->request;
	struct ig_grammar_cache *cache = ig_engine_grammars(j->api->deps.engine);
	struct ig_error err = { 0 };
	int rc;

	if (r->tool_choice == IG_TOOLS_REQUIRED || r->tool_choice == IG_TOOLS_NAMED) {
		rc = ig_answer_calls_grammar(&p->style, p->model->tokenizer, cache, r->tools,
					     r->tool_choice == IG_TOOLS_NAMED ? r->tool_name : NULL,
					     r->parallel_tool_calls, &p->grammar, &err);
		return rc < 0 ? fail_grammar(j, rc, "tool_choice", &err) : 0;
	}
	if (r->form == IG_OUTPUT_FREE)
		return 0;
	struct ig_grammar_part part = {
		.kind = r->form == IG_OUTPUT_OBJECT ? IG_GRAMMAR_OBJECT :
			r->form == IG_OUTPUT_SCHEMA ? IG_GRAMMAR_SCHEMA :
						      IG_GRAMMAR_REGEX,
		.text = r->regex,
		.len = r->regex ? strlen(r->regex) : 0,
		.schema = r->schema,
	};
	struct ig_grammar_choice choice = { &part, 1 };
	struct ig_grammar_source source = { .before = ig_answer_before(&p->style),
					    .choices = &choice,
					    .n_choices = 1,
					    .max_repeats = 1 };
	rc = ig_grammar_cache_get(cache, p->model->tokenizer, &source, &p->grammar, &err);
	return rc < 0 ? fail_grammar(j, rc, j->protocol->form_param, &err) : 0;
}

/* A bias of a token that there is not. */
static int check_biases(struct ig_job *j)
{
	const struct ig_request *r = &j->request;
	int32_t n_vocab = ig_tokenizer_n_vocab(j->prepared.model->tokenizer);

	for (uint32_t i = 0; i < r->sampling.n_biases; i++)
		if (r->sampling.biases[i].id >= n_vocab)
			return ig_api_fail(&j->error, 400, "invalid_request_error", "invalid_value",
					   "logit_bias",
					   "logit_bias names token %d; the model '%s' has "
					   "tokens 0 to %d.",
					   r->sampling.biases[i].id, j->prepared.model->name,
					   n_vocab - 1);
	return 0;
}

void ig_prepare(struct ig_job *j)
{
	struct ig_prepared *p = &j->prepared;
	struct ig_error err = { 0 };
	int rc;

	if (j->request.kind == IG_REQUEST_UNLOAD) {
		rc = ig_engine_unload_model(j->api->deps.engine, j->request.model, &err);
		if (rc < 0)
			fail_model(j, rc, &err);
		return;
	}
	rc = ig_job_take_model(j, &err);
	if (rc == -EINPROGRESS) {
		/* Whoever loads may not want to wait. */
		j->waits = j->request.kind != IG_REQUEST_LOAD || j->request.wait;
		return;
	}
	if (rc < 0) {
		fail_model(j, rc, &err);
		return;
	}
	if (j->request.kind == IG_REQUEST_LOAD)
		return;
	if (p->model->chat && j->request.messages) {
		ig_answer_style_of(p->model->chat, &p->style);
		if (j->request.tools && j->request.tool_choice != IG_TOOLS_NONE &&
		    p->style.calls == IG_CALLS_NONE) {
			ig_api_fail(&j->error, 400, "invalid_request_error", "unsupported_model",
				    "tools", "The chat template of the model '%s' knows no tools.",
				    p->model->name);
			return;
		}
		p->n_shown = (uint32_t)ig_answer_shown_tokens(&p->style, p->model->tokenizer,
							      p->shown, IG_MAX_SHOWN);
	}
	if (j->request.kind == IG_REQUEST_CREATE && ig_items_link(&j->request, &j->error) < 0)
		return;
	if (check_biases(j) < 0 || make_prompts(j) < 0 || j->protocol->immediate || !p->n_prompts)
		return;
	if (j->request.messages)
		ig_answer_style_prompted(&p->style, p->model->tokenizer, p->prompts[0].ids,
					 p->prompts[0].n);
	make_grammar(j);
}
