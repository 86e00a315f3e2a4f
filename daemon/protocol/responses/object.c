/* object.c: a response as JSON: its items, by its parts, and the response object. */
#include "base/clock.h"
#include "daemon/protocol/core/cache_report.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/responses/namespaces.h"
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
	ig_json_putf(w, "'type': %s", message ? "output_text" : "reasoning_text");
	ig_response_text("text", whole ? &p->text : &nothing, w);
	if (message) {
		ig_json_putf(w, "'annotations': []");
		ig_response_logprobs(r, p->first_logprob, whole ? p->end_logprob : p->first_logprob,
				     true, w);
	}
	ig_json_close_object(w);
}

bool ig_response_is_custom(const struct ig_reply *r, const struct ig_part *p)
{
	size_t i;
	json_t *tool;

	json_array_foreach(json_object_get(r->request.repeated, "tools"), i, tool)
	{
		const char *type = json_string_value(json_object_get(tool, "type")),
			   *name = json_string_value(json_object_get(tool, "name"));
		if (p->name && type && name && !strcmp(type, "custom") && !strcmp(name, p->name))
			return true;
	}
	return false;
}

/* The input of a custom tool: the one string in its function's arguments. */
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

void ig_response_tool_name(const struct ig_reply *r, const struct ig_part *p,
			   struct ig_json_writer *w)
{
	const json_t *names = ig_namespace_of(&r->request, p->name);

	if (names)
		ig_json_putf(w, "'namespace': %s, 'name': %s", ig_json_text(names, "namespace"),
			     ig_json_text(names, "name"));
	else
		ig_json_putf(w, "'name': %s", p->name);
}

static void put_call(const struct ig_reply *r, const struct ig_part *p, bool custom, bool done,
		     struct ig_json_writer *w)
{
	static const struct ig_strbuf nothing;
	const char *key = custom ? "input" : "arguments";

	ig_json_putf(w, "'call_id': %s", p->call_id);
	ig_response_tool_name(r, p, w);
	if (custom && done)
		ig_response_custom_input(key, p, w);
	else
		ig_response_text(key, done ? &p->text : &nothing, w);
}

bool ig_response_has_summary(const struct ig_reply *r, const struct ig_part *p)
{
	const json_t *v = json_object_get(r->request.repeated, "reasoning");
	const char *summary = ig_json_text(v, "summary");

	if (!summary)
		summary = ig_json_text(v, "generate_summary");
	return p->kind == IG_PART_REASONING && summary && strcmp(summary, "none");
}

/* The reasoning itself, where a summary was asked for: there are readers that show nothing else. */
static void put_summary(const struct ig_reply *r, const struct ig_part *p, bool done,
			struct ig_json_writer *w)
{
	ig_json_open_array(w, "summary");
	if (done && ig_response_has_summary(r, p)) {
		ig_json_putf(w, "{'type': 'summary_text'");
		ig_response_text("text", &p->text, w);
		ig_json_close_object(w);
	}
	ig_json_close_array(w);
}

void ig_response_item(struct ig_reply *r, const char *key, size_t i, bool done,
		      struct ig_json_writer *w)
{
	const struct ig_choice *c = &r->choices[0];
	const struct ig_part *p = &c->parts[i];
	bool custom = p->kind == IG_PART_TOOL_CALL && ig_response_is_custom(r, p);

	ig_json_open_object(w, key);
	ig_json_putf(w, "'id': %s, 'type': %s, 'status': %s", p->id,
		     p->kind == IG_PART_TEXT	  ? "message" :
		     p->kind == IG_PART_REASONING ? "reasoning" :
		     custom			  ? "custom_tool_call" :
						    "function_call",
		     done ? item_status(c, i) : "in_progress");
	if (p->kind == IG_PART_TOOL_CALL) {
		put_call(r, p, custom, done, w);
	} else {
		if (p->kind == IG_PART_TEXT)
			ig_json_putf(w, "'role': 'assistant'");
		else
			put_summary(r, p, done, w);
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

/* Tokens are not counted by part: an estimate by the share of reasoning in the bytes. */
static long long reasoning_tokens(const struct ig_reply *r, long long n_output)
{
	const struct ig_choice *c = &r->choices[0];
	size_t n_bytes = 0;

	for (size_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == IG_PART_REASONING)
			n_bytes += c->parts[i].text.len;
	if (!n_bytes || !c->n_bytes)
		return 0;
	double share = n_bytes < c->n_bytes ? (double)n_bytes / (double)c->n_bytes : 1;
	long long n = (long long)((double)n_output * share + 0.5);
	return n ? n : 1;
}

static void usage(struct ig_reply *r, struct ig_json_writer *w)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_putf(w,
		     "'usage': {'input_tokens': %lld, "
		     "'input_tokens_details': {'cached_tokens': %lld, 'cache_write_tokens': 0}, "
		     "'output_tokens': %lld, 'output_tokens_details': {'reasoning_tokens': %lld}, "
		     "'total_tokens': %lld}",
		     u.prompt, u.cached, u.output, reasoning_tokens(r, u.output),
		     u.prompt + u.output);
}

/* A parameter as the client sent it, or its default; NULL: no member. */
static void put_param(struct ig_reply *r, const char *name, const char *by_default,
		      struct ig_json_writer *w)
{
	const json_t *v = json_object_get(r->request.repeated, name);

	if (v)
		ig_json_put_value(w, name, v);
	else if (by_default)
		ig_json_put_raw(w, name, by_default);
}

static void text_config(struct ig_reply *r, struct ig_json_writer *w)
{
	const json_t *v = json_object_get(r->request.repeated, "text"),
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

static void put_outcome(struct ig_reply *r, enum ig_outcome o, struct ig_json_writer *w)
{
	static const char *const names[] = {
		[IG_OUTCOME_RUNS] = "in_progress",	[IG_OUTCOME_COMPLETED] = "completed",
		[IG_OUTCOME_INCOMPLETE] = "incomplete", [IG_OUTCOME_CANCELLED] = "cancelled",
		[IG_OUTCOME_FAILED] = "failed",
	};

	ig_json_putf(w, "'status': %s, 'background': false", names[o]);
	if (o == IG_OUTCOME_COMPLETED)
		ig_json_put_int(w, "completed_at", ig_wall_ns() / 1000000000);
	if (o == IG_OUTCOME_FAILED) {
		ig_json_putf(w, "'error': {'code': %s", r->error.code);
		ig_error_message(w, &r->error);
		ig_json_close_object(w);
	} else {
		ig_json_putf(w, "'error': null");
	}
	ig_json_putf(w, o == IG_OUTCOME_INCOMPLETE ?
				"'incomplete_details': {'reason': 'max_output_tokens'}" :
				"'incomplete_details': null");
}

void ig_response_object(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_request *q = &r->request;
	enum ig_outcome o = r->stage >= STAGE_FINAL ? ig_response_outcome(r) : IG_OUTCOME_RUNS;
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'id': %s, 'object': 'response', 'created_at': %lld", r->id,
		     ig_reply_created_s(r));
	put_outcome(r, o, &w);
	ig_json_putf(&w, "'instructions': %.*s, 'max_output_tokens': %.0f",
		     (int)json_string_length(q->instructions), json_string_value(q->instructions),
		     q->sampling.max_tokens ? (double)q->sampling.max_tokens : NAN);
	put_param(r, "max_tool_calls", NULL, &w);
	ig_json_putf(&w, "'model': %s", ig_reply_model_name(r));
	if (o == IG_OUTCOME_RUNS)
		ig_json_putf(&w, "'output': []");
	else
		ig_response_items(r, "output", &w);
	ig_json_putf(&w, "'parallel_tool_calls': %-s, 'previous_response_id': %s",
		     ig_json_bool(q->parallel_tool_calls), q->previous_id);
	put_param(r, "prompt_cache_key", NULL, &w);
	put_param(r, "reasoning", "null", &w);
	put_param(r, "safety_identifier", NULL, &w);
	ig_json_putf(&w, "'service_tier': 'default', 'store': %-s, 'temperature': %.7g",
		     ig_json_bool(q->store), q->sampling.temperature);
	text_config(r, &w);
	put_param(r, "tool_choice", "\"auto\"", &w);
	put_param(r, "tools", "[]", &w);
	put_param(r, "top_logprobs", NULL, &w);
	ig_json_putf(&w, "'top_p': %.7g, 'truncation': 'disabled'", q->sampling.top_p);
	if (o == IG_OUTCOME_RUNS)
		ig_json_putf(&w, "'usage': null");
	else
		usage(r, &w);
	if (o != IG_OUTCOME_RUNS)
		ig_put_cache_report(r, &w);
	put_param(r, "user", NULL, &w);
	ig_json_putf(&w, "'metadata': %-s}", q->metadata ? q->metadata : "{}");
}
