/* prepare.c: see prepare.h. */
#include "daemon/protocol/core/prepare.h"

#include "base/clock.h"
#include "daemon/protocol/core/normalize.h"
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/texts.h"
#include "daemon/protocol/core/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ig_prepared_finish(struct ig_prepared *p)
{
	for (size_t i = 0; i < p->n_prompts; i++)
		ig_ids_finish(&p->prompts[i]);
	free(p->prompts);
	free(p->texts);
	if (p->prediction)
		ig_ids_finish(p->prediction);
	free(p->prediction);
	ig_grammar_unref(p->grammar);
	ig_engine_release_model(p->model);
	*p = (struct ig_prepared){ 0 };
}

/* ---- prompts --------------------------------------------------------------------------- */

/* The most tokens of prompt and output; the engine tells clients of other protocols what the cache
 * has no space for. */
static size_t context_of(const struct ig_reply *r)
{
	const struct ig_engine_model *m = r->prepared.model;
	bool by_cache = r->protocol->fail_length && m->n_cache && m->n_cache < m->n_context;

	return by_cache ? m->n_cache : m->n_context;
}

static int fail_length(struct ig_reply *r, const char *more, size_t n)
{
	const struct ig_engine_model *m = r->prepared.model;

	if (r->protocol->fail_length)
		return r->protocol->fail_length(&r->error, n, context_of(r) - 1);
	/* OpenAI's words: by them alone LiteLLM, and so aider, know it */
	return ig_api_fail(&r->error, 400, "context_length_exceeded", r->protocol->prompt_param,
			   "This model's maximum context length is %u tokens, output included; the "
			   "prompt for '%s' has %s%zu.",
			   m->n_context, m->name, more, n);
}

static int fail_prompt(struct ig_reply *r, int rc, const struct ig_error *err)
{
	if (rc == -E2BIG)
		return fail_length(r, "more than ", (size_t)r->prepared.model->n_context * 4);
	if (rc == -ENOMEM)
		return ig_fail_memory(&r->error);
	return ig_api_fail(&r->error, 400, "invalid_value", r->protocol->prompt_param, "%s",
			   err->text[0] ? err->text : "The prompt can't be rendered.");
}

static int fail_empty(struct ig_reply *r)
{
	return ig_api_fail(&r->error, 400, "invalid_value", r->protocol->prompt_param,
			   "The prompt has nothing that this server reads.");
}

/* For templates that read the reasoning of earlier turns as thinking: gpt-oss's takes either it or a
 * content beside tool calls.  Messages are shared, so they are copied. */
static int add_thinking(json_t *list)
{
	json_t *m, *copy;
	size_t i;

	json_array_foreach(list, i, m)
	{
		json_t *reasoning = json_object_get(m, "reasoning_content");
		if (!reasoning || (json_object_get(m, "tool_calls") &&
				   json_string_length(json_object_get(m, "content"))))
			continue;
		copy = ig_json_copy(m);
		if (!copy || json_object_set(copy, "thinking", reasoning) < 0) {
			json_decref(copy);
			return -1;
		}
		if (json_array_set_new(list, i, copy) < 0)
			return -1;
	}
	return 0;
}

/* Instructions, then the history, then the new messages: a new list. */
static json_t *whole_conversation(const struct ig_request *q, bool thinking)
{
	json_t *list = json_array();

	if (q->instructions &&
	    json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content",
						  q->instructions)) < 0)
		goto fail;
	if (q->history && json_array_extend(list, q->history) < 0)
		goto fail;
	if (json_array_extend(list, q->messages) < 0)
		goto fail;
	if (thinking && add_thinking(list) < 0)
		goto fail;
	return list;
fail:
	json_decref(list);
	return NULL;
}

/* More bytes than four contexts of the longest token: checked before template and tokenizer run. */
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

size_t ig_prompt_bytes(const struct ig_request *q)
{
	size_t n = contents_length(q->history) + contents_length(q->messages);

	for (size_t i = 0; i < q->n_prompts; i++)
		n += q->prompts[i].text ? q->prompts[i].len : 0;
	return n;
}

static bool has_calls(const json_t *messages)
{
	const json_t *m;
	size_t i;

	json_array_foreach(messages, i, m)
	{
		const char *role = ig_json_text(m, "role");
		if (json_object_get(m, "tool_calls") || (role && !strcmp(role, "tool")))
			return true;
	}
	return false;
}

/* Put the tools, and earlier calls, into the messages if the template knows none; else give the calls
 * the ids that it expects. */
static int describe_tools(struct ig_reply *r, json_t **messages, const json_t **tools)
{
	const struct ig_completion_style *s = &r->prepared.style;
	json_t *out;

	if (!s->fallback &&
	    (s->calls != IG_TOOL_CALLS_NONE || r->refuse_tools || !has_calls(*messages)))
		return ig_tool_ids(s->calls, *messages);
	if (ig_tool_fallback(*messages, s->fallback ? *tools : NULL, &out) < 0)
		return -1;
	json_decref(*messages);
	*messages = out;
	*tools = NULL;
	return 0;
}

static int render(struct ig_reply *r, struct ig_ids *out)
{
	const struct ig_request *q = &r->request;
	const struct ig_engine_model *m = r->prepared.model;
	struct ig_error err = { 0 };

	if (!m->chat)
		return ig_api_fail(&r->error, 400, "unsupported_model", "model",
				   "The model '%s' can't chat: %s.", m->name, m->chat_error);
	if (too_long(m, contents_length(q->history) + contents_length(q->messages)))
		return fail_prompt(r, -E2BIG, &err);
	json_t *messages = whole_conversation(q, r->prepared.style.takes_thinking);
	const json_t *tools = q->tool_choice == IG_TOOLS_NONE ? NULL : q->tools;
	if (!messages || ig_normalize(r, messages) < 0) {
		json_decref(messages);
		return fail_prompt(r, -ENOMEM, &err);
	}
	if (r->applied && !json_array_size(messages)) {
		json_decref(messages);
		return q->warm_up ? 0 : fail_empty(r);
	}
	if (describe_tools(r, &messages, &tools) < 0) {
		json_decref(messages);
		return fail_prompt(r, -ENOMEM, &err);
	}
	struct ig_chat_input in = {
		.tools = tools,
		.extra = q->template_vars,
		.add_generation_prompt = !q->plain && !q->continues,
		.continues = q->continues,
	};
	if (ig_turns_fit(&messages, ig_chat_template_turns(m->chat, &in)) < 0) {
		json_decref(messages);
		return fail_prompt(r, -ENOMEM, &err);
	}
	in.messages = messages;
	/* Beyond four contexts the exact number does not matter. */
	int rc = ig_chat_template_encode_json(m->chat, &in, (size_t)m->n_context * 4, out, &err);
	json_decref(messages);
	/* A warm-up may come before the conversation is one that the template accepts. */
	if (rc == -EINVAL && q->warm_up) {
		ig_ids_finish(out);
		return 0;
	}
	return rc < 0 ? fail_prompt(r, rc, &err) : 0;
}

/* A text prompt may contain control tokens; a BOS is put before it where the model expects one. */
static int tokenize_text(struct ig_reply *r, const struct ig_prompt *p, struct ig_ids *out)
{
	const struct ig_tokenizer *t = r->prepared.model->tokenizer;
	bool plain = r->request.plain;
	int32_t bos = ig_tokenizer_bos(t);

	if (too_long(r->prepared.model, p->len))
		return fail_prompt(r, -E2BIG, NULL);
	if (ig_tokenizer_add_bos(t) && bos >= 0 && !plain) {
		out->ids = malloc(sizeof *out->ids);
		if (!out->ids)
			return fail_prompt(r, -ENOMEM, NULL);
		out->ids[0] = bos;
		out->n = out->cap = 1;
	}
	int rc = ig_tokenizer_encode(t, p->text, p->len, !plain,
				     (size_t)r->prepared.model->n_context * 4, out);
	return rc < 0 ? fail_prompt(r, rc, &(struct ig_error){ 0 }) : 0;
}

/* A prompt of text or token ids. */
static int tokenize(struct ig_reply *r, const struct ig_prompt *p, struct ig_ids *out)
{
	const struct ig_engine_model *m = r->prepared.model;
	int32_t n_vocab = ig_tokenizer_n_vocab(m->tokenizer);

	if (p->text)
		return tokenize_text(r, p, out);
	if (p->n_ids > (size_t)m->n_context * 4)
		return fail_prompt(r, -E2BIG, NULL);
	for (size_t i = 0; i < p->n_ids; i++)
		if (p->ids[i] < 0 || p->ids[i] >= n_vocab)
			return ig_api_fail(&r->error, 400, "invalid_value",
					   r->protocol->prompt_param,
					   "Token %zu of the prompt is %d; the "
					   "model '%s' has tokens 0 to %d.",
					   i, p->ids[i], m->name, n_vocab - 1);
	out->ids = malloc(p->n_ids * sizeof *out->ids + 1);
	if (!out->ids)
		return fail_prompt(r, -ENOMEM, NULL);
	if (p->n_ids)
		memcpy(out->ids, p->ids, p->n_ids * sizeof *out->ids);
	out->n = out->cap = p->n_ids;
	return 0;
}

static int check_length(struct ig_reply *r, const struct ig_ids *ids)
{
	if (!ids->n)
		return ig_api_fail(&r->error, 400, "invalid_value", r->protocol->prompt_param,
				   "The prompt has no tokens.");
	if (ids->n >= context_of(r))
		return fail_length(r, "", ids->n);
	return r->protocol->check_room ?
		       r->protocol->check_room(&r->request, ids->n, context_of(r), &r->error) :
		       0;
}

static int make_prompts(struct ig_reply *r)
{
	struct ig_prepared *p = &r->prepared;
	const struct ig_request *q = &r->request;

	/* all that its messages had was left out */
	if (!q->messages && !q->n_prompts && !q->warm_up)
		return fail_empty(r);
	p->prompts = calloc(q->messages ? 1 : q->n_prompts, sizeof *p->prompts);
	if (!p->prompts)
		return ig_fail_memory(&r->error);
	p->n_prompts = q->messages ? 1 : q->n_prompts;
	for (size_t i = 0; i < p->n_prompts; i++) {
		int rc = q->messages ? render(r, &p->prompts[i]) :
				       tokenize(r, &q->prompts[i], &p->prompts[i]);
		if (!rc && q->warm_up && !p->prompts[i].n) {
			ig_ids_finish(&p->prompts[i]);
			p->n_prompts = 0; /* nothing to prefill */
			return 0;
		}
		if (!rc && !r->protocol->immediate)
			rc = check_length(r, &p->prompts[i]);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int make_prediction(struct ig_reply *r)
{
	const struct ig_engine_model *m = r->prepared.model;
	const json_t *text = r->request.prediction;
	int rc = -E2BIG;

	if (!text)
		return 0;
	r->prepared.prediction = calloc(1, sizeof *r->prepared.prediction);
	if (!r->prepared.prediction)
		return ig_fail_memory(&r->error);
	if (!too_long(m, json_string_length(text)))
		rc = ig_tokenizer_encode(m->tokenizer, json_string_value(text),
					 json_string_length(text), false, m->n_context,
					 r->prepared.prediction);
	if (rc == -E2BIG)
		return ig_api_fail(&r->error, 400, "invalid_value", "prediction",
				   "prediction has more tokens than the context of the model '%s', "
				   "%u.",
				   m->name, m->n_context);
	return rc < 0 ? ig_fail_memory(&r->error) : 0;
}

static int fail_grammar(struct ig_reply *r, int rc, const char *param, const struct ig_error *err)
{
	if (rc == -ENOMEM)
		return ig_fail_memory(&r->error);
	return ig_api_fail(&r->error, 400, rc == -ENOTSUP ? "unsupported_model" : "invalid_value",
			   param, "%s", err->text);
}

/* A custom tool as a function whose input is held to its grammar.  The prompt has the tool without:
 * its description shows the grammar. */
static json_t *with_format(json_t *tool, json_t *format)
{
	return json_pack("{s:s, s:{s:s, s:b, s:{s:s, s:{s:{s:s, s:O}}, s:[s], s:b}}}", "type",
			 "function", "function", "name", ig_tool_name(tool), "strict", 1,
			 "parameters", "type", "object", "properties", "input", "type", "string",
			 "x-ingot-grammar", format, "required", "input", "additionalProperties", 0);
}

/* The tools as the grammar needs them: a new reference. */
static json_t *tools_for_grammar(const struct ig_request *q)
{
	json_t *list, *tool;
	size_t i;

	if (!q->formats)
		return json_incref(q->tools);
	list = json_array();
	json_array_foreach(q->tools, i, tool)
	{
		json_t *format = json_object_get(q->formats, ig_tool_name(tool));
		if (format ? json_array_append_new(list, with_format(tool, format)) :
			     json_array_append(list, tool)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* The grammar of tool calls, required or not; answer: what may come instead; NULL: nothing. */
static int make_tool_grammar(struct ig_reply *r, const struct ig_grammar_part *answer)
{
	struct ig_prepared *p = &r->prepared;
	const struct ig_request *q = &r->request;
	struct ig_tool_grammar calls = {
		.name = q->tool_choice == IG_TOOLS_NAMED ? q->tool_name : NULL,
		.parallel = q->parallel_tool_calls,
		.free = q->tool_choice == IG_TOOLS_AUTO,
		.answer = q->tool_choice == IG_TOOLS_AUTO ? answer : NULL,
	};
	struct ig_error err = { 0 };
	json_t *tools = tools_for_grammar(q);
	int rc;

	if (!tools)
		return ig_fail_memory(&r->error);
	rc = ig_completion_tool_grammar(&p->style, p->model->tokenizer,
					ig_engine_grammars(r->api->deps.engine), tools, &calls,
					&p->grammar, &err);
	json_decref(tools);
	return rc < 0 ? fail_grammar(r, rc, calls.free ? "tools" : "tool_choice", &err) : 0;
}

static int make_format_grammar(struct ig_reply *r, const struct ig_grammar_part *format)
{
	struct ig_prepared *p = &r->prepared;
	struct ig_grammar_choice choice = { format, 1 };
	struct ig_grammar_source source = { .before = ig_completion_prefix(&p->style),
					    .choices = &choice,
					    .n_choices = 1,
					    .max_repeats = 1 };
	struct ig_error err = { 0 };
	int rc = ig_grammar_cache_get(ig_engine_grammars(r->api->deps.engine), p->model->tokenizer,
				      &source, &p->grammar, &err);

	return rc < 0 ? fail_grammar(r, rc, r->protocol->format_param, &err) : 0;
}

/* The grammar of required or strict tool calls, or of a response format, if any. */
static int make_grammar(struct ig_reply *r)
{
	const struct ig_request *q = &r->request;
	bool calls = q->tools && q->tool_choice != IG_TOOLS_NONE;
	bool formatted = q->form != IG_OUTPUT_FREE;
	struct ig_grammar_part format = {
		.kind = q->form == IG_OUTPUT_OBJECT ? IG_GRAMMAR_OBJECT :
			q->form == IG_OUTPUT_SCHEMA ? IG_GRAMMAR_SCHEMA :
						      IG_GRAMMAR_REGEX,
		.text = q->regex,
		.len = q->regex ? strlen(q->regex) : 0,
		.schema = q->schema,
	};

	if (formatted && calls) { /* so that an error names what it is about */
		if (make_format_grammar(r, &format) < 0)
			return -1;
		ig_grammar_unref(r->prepared.grammar);
		r->prepared.grammar = NULL;
	}
	if (calls && (formatted || q->tool_choice != IG_TOOLS_AUTO || ig_has_strict_tool(q)))
		return make_tool_grammar(r, formatted ? &format : NULL);
	return formatted ? make_format_grammar(r, &format) : 0;
}

/* An error for a bias of a token that does not exist. */
static int check_biases(struct ig_reply *r)
{
	const struct ig_request *q = &r->request;
	int32_t n_vocab = ig_tokenizer_n_vocab(r->prepared.model->tokenizer);

	for (uint32_t i = 0; i < q->sampling.n_biases; i++)
		if (q->sampling.biases[i].id >= n_vocab)
			return ig_api_fail(&r->error, 400, "invalid_value", "logit_bias",
					   "logit_bias names token %d; the model '%s' has "
					   "tokens 0 to %d.",
					   q->sampling.biases[i].id, r->prepared.model->name,
					   n_vocab - 1);
	return 0;
}

/* How the model writes reasoning and tool calls. */
static int read_style(struct ig_reply *r)
{
	struct ig_prepared *p = &r->prepared;
	const struct ig_request *q = &r->request;

	if (!p->model->chat || !q->messages)
		return 0;
	p->style = p->model->style;
	if (q->tools && q->tool_choice != IG_TOOLS_NONE && p->style.calls == IG_TOOL_CALLS_NONE) {
		if (r->refuse_tools)
			return ig_api_fail(
				&r->error, 400, "unsupported_model", "tools",
				"The chat template of the model '%s' does not support tools.",
				p->model->name);
		p->style.calls = IG_TOOL_CALLS_HERMES;
		p->style.fallback = true;
	}
	p->n_shown = (uint32_t)ig_completion_shown_tokens(&p->style, p->model->tokenizer, p->shown,
							  IG_MAX_SHOWN);
	return 0;
}

int ig_prepare_model(struct ig_reply *r)
{
	const char *name = r->request.model ? r->request.model : "";
	char known[IG_MAX_MODEL_NAME + 1];
	struct ig_error err = { 0 };

	/* Of all names of a model one waits for it. */
	if (name[0] && ig_engine_model_name(r->api->deps.engine, name, known))
		name = known;
	int rc = ig_model_take(&r->api->model_waits, name, &r->prepared.model, &r->ticket, &err);

	r->waits = rc == -EINPROGRESS;
	if (rc < 0 && !r->waits)
		ig_fail_model(&r->error, rc, &err);
	return rc;
}

void ig_prepare(struct ig_reply *r)
{
	if (ig_reply_check_deadline(r, ig_now_ns(), &r->error) < 0)
		r->waits = false;
	else if (r->protocol->act)
		r->protocol->act(r);
	else
		ig_prepare_prompt(r);
}

void ig_prepare_prompt(struct ig_reply *r)
{
	const struct ig_protocol *protocol = r->protocol;
	struct ig_prepared *p = &r->prepared;

	if ((!p->model && ig_prepare_model(r) < 0) || ig_check_task(r) < 0)
		return;
	if (protocol->task != IG_TASK_GENERATE) {
		ig_prepare_texts(r);
		return;
	}
	if (read_style(r) < 0)
		return;
	if (protocol->complete && protocol->complete(&r->request, &r->error) < 0)
		return;
	if (check_biases(r) < 0 || make_prompts(r) < 0 || protocol->immediate || !p->n_prompts ||
	    make_prediction(r) < 0)
		return;
	if (r->request.messages)
		ig_completion_style_prompted(&p->style, p->model->tokenizer, p->prompts[0].ids,
					     p->prompts[0].n);
	make_grammar(r);
}
