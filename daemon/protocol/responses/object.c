/* object.c: a response as JSON: its items, which its parts become, and all about it. */
#include "base/clock.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/responses/responses_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum ig_outcome ig_response_outcome(const struct ig_reply *r)
{
	const struct ig_gen_result *g = &r->choices[0].result;

	if (!r->finished)
		return IG_OUTCOME_RUNS;
	if (!r->n_choices) /* a warm-up of nothing */
		return r->error.status ? IG_OUTCOME_FAILED : IG_OUTCOME_COMPLETED;
	switch (g->finish) {
	case IG_FINISH_STOP: return IG_OUTCOME_COMPLETED;
	case IG_FINISH_LENGTH: return IG_OUTCOME_INCOMPLETE;
	case IG_FINISH_CANCELLED:
		return strcmp(g->cancel_reason, "client_cancel") ? IG_OUTCOME_FAILED :
								   IG_OUTCOME_CANCELLED;
	default: return IG_OUTCOME_FAILED;
	}
}

/* ---- items ------------------------------------------------------------------------- */

void ig_response_text(const char *key, const struct ig_strbuf *text, struct ig_json_writer *w)
{
	w->out->failed |= text->failed;
	ig_json_put_string(w, key, text->len ? text->data : "", text->len);
}

/* with_bytes: as parts have them and deltas do not. */
void ig_response_logprobs(struct ig_reply *r, size_t first, size_t last, bool with_bytes,
			  struct ig_json_writer *w)
{
	ig_json_put_logprobs(w, "logprobs", r->prepared.model, r->choices[0].logprobs, first, last,
			     with_bytes);
}

void ig_response_content(struct ig_reply *r, const char *key, const struct ig_part *p, bool whole,
			 struct ig_json_writer *w)
{
	static const struct ig_strbuf nothing;
	bool message = p->kind == IG_PART_TEXT;

	ig_json_open_object(w, key);
	ig_json_put_text(w, "type", message ? "output_text" : "reasoning_text");
	ig_response_text("text", whole ? &p->text : &nothing, w);
	if (message) {
		ig_json_put_raw(w, "annotations", "[]");
		ig_response_logprobs(r, p->first_logprob, whole ? p->end_logprob : p->first_logprob,
				     true, w);
	}
	ig_json_close_object(w);
}

/* Whether the tool of a call is one of free text. */
bool ig_response_is_custom(const struct ig_reply *r, const struct ig_part *p)
{
	size_t i;
	json_t *tool;

	json_array_foreach(json_object_get(r->request.said, "tools"), i, tool)
	{
		const char *type = json_string_value(json_object_get(tool, "type")),
			   *name = json_string_value(json_object_get(tool, "name"));
		if (p->name && type && name && !strcmp(type, "custom") && !strcmp(name, p->name))
			return true;
	}
	return false;
}

/* What a custom tool is to get: the one string of its function's arguments. */
void ig_response_custom_input(const char *key, const struct ig_part *p, struct ig_json_writer *w)
{
	const struct ig_json_limits limits = { .allow_nul = true };
	json_t *v, *input;

	if (ig_json_read(p->text.data, p->text.len, &limits, &v, NULL) == -ENOMEM)
		w->out->failed = true;
	input = json_object_get(v, "input");
	if (json_is_string(input))
		ig_json_put_string(w, key, json_string_value(input), json_string_length(input));
	else
		ig_response_text(key, &p->text, w);
	json_decref(v);
}

static const char *item_status(const struct ig_choice *c, size_t i)
{
	bool whole = i + 1 < c->n_parts || c->parts[i].whole ||
		     (c->finished && c->result.finish == IG_FINISH_STOP);

	return whole ? "completed" : "incomplete";
}

static void put_call(const struct ig_part *p, bool custom, bool done, struct ig_json_writer *w)
{
	static const struct ig_strbuf nothing;
	const char *key = custom ? "input" : "arguments";

	ig_json_put_text(w, "call_id", p->call_id);
	ig_json_put_text(w, "name", p->name);
	if (custom && done)
		ig_response_custom_input(key, p, w);
	else
		ig_response_text(key, done ? &p->text : &nothing, w);
}

void ig_response_item(struct ig_reply *r, const char *key, size_t i, bool done,
		      struct ig_json_writer *w)
{
	const struct ig_choice *c = &r->choices[0];
	const struct ig_part *p = &c->parts[i];
	bool custom = p->kind == IG_PART_TOOL_CALL && ig_response_is_custom(r, p);

	ig_json_open_object(w, key);
	ig_json_put_text(w, "id", p->id);
	ig_json_put_text(w, "type",
			 p->kind == IG_PART_TEXT      ? "message" :
			 p->kind == IG_PART_REASONING ? "reasoning" :
			 custom			      ? "custom_tool_call" :
							"function_call");
	ig_json_put_text(w, "status", done ? item_status(c, i) : "in_progress");
	if (p->kind == IG_PART_TOOL_CALL) {
		put_call(p, custom, done, w);
	} else {
		if (p->kind == IG_PART_TEXT)
			ig_json_put_text(w, "role", "assistant");
		else
			ig_json_put_raw(w, "summary", "[]");
		ig_json_open_array(w, "content");
		if (done)
			ig_response_content(r, NULL, p, true, w);
		ig_json_close_array(w);
	}
	ig_json_close_object(w);
}

void ig_response_items(struct ig_reply *r, const char *key, struct ig_json_writer *w)
{
	ig_json_open_array(w, key);
	for (size_t i = 0; i < r->choices[0].n_parts; i++)
		ig_response_item(r, NULL, i, true, w);
	ig_json_close_array(w);
}

/* An answer that says nothing is an empty message. */
bool ig_response_add_nothing(struct ig_reply *r)
{
	struct ig_choice *c = &r->choices[0];
	enum ig_outcome o = ig_response_outcome(r);

	if (c->n_parts || r->request.warm_up ||
	    (o != IG_OUTCOME_COMPLETED && o != IG_OUTCOME_INCOMPLETE))
		return false;
	c->parts = calloc(1, sizeof *c->parts);
	if (!c->parts)
		return false;
	c->cap_parts = c->n_parts = 1;
	c->parts[0] = (struct ig_part){ .kind = IG_PART_TEXT, .done = true };
	ig_random_id(c->parts[0].id, sizeof c->parts[0].id, "msg_");
	return true;
}

/* ---- the response object ----------------------------------------------------------- */

/* Tokens are not counted by what they say: thoughts have their share of the bytes. */
static int64_t reasoning_tokens(const struct ig_reply *r, int64_t n_output)
{
	const struct ig_choice *c = &r->choices[0];
	size_t thought = 0;

	for (size_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == IG_PART_REASONING)
			thought += c->parts[i].text.len;
	if (!thought || !c->n_bytes)
		return 0;
	double share = thought < c->n_bytes ? (double)thought / (double)c->n_bytes : 1;
	int64_t n = (int64_t)((double)n_output * share + 0.5);
	return n ? n : 1;
}

static void usage(struct ig_reply *r, struct ig_json_writer *w)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_open_object(w, "usage");
	ig_json_put_int(w, "input_tokens", u.prompt);
	ig_json_open_object(w, "input_tokens_details");
	ig_json_put_int(w, "cached_tokens", u.cached);
	ig_json_put_int(w, "cache_write_tokens", 0);
	ig_json_close_object(w);
	ig_json_put_int(w, "output_tokens", u.output);
	ig_json_open_object(w, "output_tokens_details");
	ig_json_put_int(w, "reasoning_tokens", reasoning_tokens(r, u.output));
	ig_json_close_object(w);
	ig_json_put_int(w, "total_tokens", u.prompt + u.output);
	ig_json_close_object(w);
}

/* What the client said, or what holds when it says nothing; otherwise NULL: no member. */
static void said(struct ig_reply *r, const char *name, const char *otherwise,
		 struct ig_json_writer *w)
{
	const json_t *v = json_object_get(r->request.said, name);

	if (v)
		ig_json_put_value(w, name, v);
	else if (otherwise)
		ig_json_put_raw(w, name, otherwise);
}

static void text_config(struct ig_reply *r, struct ig_json_writer *w)
{
	const json_t *v = json_object_get(r->request.said, "text"),
		     *format = json_object_get(v, "format"),
		     *verbosity = json_object_get(v, "verbosity");

	ig_json_open_object(w, "text");
	if (format && !json_is_null(format))
		ig_json_put_value(w, "format", format);
	else
		ig_json_put_raw(w, "format", "{\"type\":\"text\"}");
	if (verbosity && !json_is_null(verbosity))
		ig_json_put_value(w, "verbosity", verbosity);
	ig_json_close_object(w);
}

/* How it ended. */
static void put_outcome(struct ig_reply *r, enum ig_outcome o, struct ig_json_writer *w)
{
	static const char *const names[] = {
		[IG_OUTCOME_RUNS] = "in_progress",	[IG_OUTCOME_COMPLETED] = "completed",
		[IG_OUTCOME_INCOMPLETE] = "incomplete", [IG_OUTCOME_CANCELLED] = "cancelled",
		[IG_OUTCOME_FAILED] = "failed",
	};

	ig_json_put_text(w, "status", names[o]);
	ig_json_put_bool(w, "background", false);
	if (o == IG_OUTCOME_COMPLETED)
		ig_json_put_int(w, "completed_at", ig_wall_ns() / 1000000000);
	if (o == IG_OUTCOME_FAILED) {
		ig_json_open_object(w, "error");
		ig_json_put_text(w, "code", r->error.code);
		ig_error_message(w, &r->error);
		ig_json_close_object(w);
	} else {
		ig_json_put_raw(w, "error", NULL);
	}
	ig_json_put_raw(w, "incomplete_details",
			o == IG_OUTCOME_INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : NULL);
}

void ig_response_object(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_request *q = &r->request;
	enum ig_outcome o = r->stage >= STAGE_FINAL ? ig_response_outcome(r) : IG_OUTCOME_RUNS;
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, "id", r->id);
	ig_json_put_text(&w, "object", "response");
	ig_json_put_int(&w, "created_at", ig_reply_created_s(r));
	put_outcome(r, o, &w);
	ig_json_put_text(&w, "instructions", q->instructions);
	if (q->sampling.max_tokens)
		ig_json_put_int(&w, "max_output_tokens", q->sampling.max_tokens);
	else
		ig_json_put_raw(&w, "max_output_tokens", NULL);
	said(r, "max_tool_calls", NULL, &w);
	ig_json_put_text(&w, "model", ig_reply_model_name(r));
	if (o == IG_OUTCOME_RUNS)
		ig_json_put_raw(&w, "output", "[]");
	else
		ig_response_items(r, "output", &w);
	ig_json_put_bool(&w, "parallel_tool_calls", q->parallel_tool_calls);
	ig_json_put_text(&w, "previous_response_id", q->previous_id);
	said(r, "prompt_cache_key", NULL, &w);
	said(r, "reasoning", "null", &w);
	said(r, "safety_identifier", NULL, &w);
	ig_json_put_text(&w, "service_tier", "default");
	ig_json_put_bool(&w, "store", q->store);
	ig_json_put_real(&w, "temperature", "%.7g", q->sampling.temperature);
	text_config(r, &w);
	said(r, "tool_choice", "\"auto\"", &w);
	said(r, "tools", "[]", &w);
	said(r, "top_logprobs", NULL, &w);
	ig_json_put_real(&w, "top_p", "%.7g", q->sampling.top_p);
	ig_json_put_text(&w, "truncation", "disabled");
	if (o == IG_OUTCOME_RUNS)
		ig_json_put_raw(&w, "usage", NULL);
	else
		usage(r, &w);
	said(r, "user", NULL, &w);
	ig_json_put_raw(&w, "metadata", q->metadata ? q->metadata : "{}");
	ig_json_close_object(&w);
}
