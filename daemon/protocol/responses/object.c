/* object.c: a response as JSON: its items, which its parts become, and all about it. */
#include "base/clock.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/responses/responses_private.h"

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
	case IG_FINISH_STOP:
		return IG_OUTCOME_COMPLETED;
	case IG_FINISH_LENGTH:
		return IG_OUTCOME_INCOMPLETE;
	case IG_FINISH_CANCELLED:
		return strcmp(g->cancel_reason, "client_cancel") ? IG_OUTCOME_FAILED :
								   IG_OUTCOME_CANCELLED;
	default:
		return IG_OUTCOME_FAILED;
	}
}

/* ---- items ------------------------------------------------------------------------- */

void ig_response_text(struct ig_strbuf *out, const struct ig_strbuf *s)
{
	out->failed |= s->failed;
	ig_strbuf_json(out, s->len ? s->data : "", s->len);
}

/* with_bytes: as parts have them and deltas do not. */
void ig_response_logprobs(struct ig_reply *r, size_t first, size_t last, bool with_bytes,
			  struct ig_strbuf *out)
{
	ig_strbuf_puts(out, ",\"logprobs\":");
	ig_json_logprobs(out, r->prepared.model, r->choices[0].notes, first, last, with_bytes);
}

void ig_response_content(struct ig_reply *r, const struct ig_part *p, bool whole,
			 struct ig_strbuf *out)
{
	static const struct ig_strbuf nothing;
	bool message = p->kind == IG_PART_TEXT;

	ig_strbuf_puts(out, message ? "{\"type\":\"output_text\",\"text\":" :
				      "{\"type\":\"reasoning_text\",\"text\":");
	ig_response_text(out, whole ? &p->text : &nothing);
	if (message) {
		ig_strbuf_puts(out, ",\"annotations\":[]");
		ig_response_logprobs(r, p->first_note, whole ? p->end_note : p->first_note, true,
				     out);
	}
	ig_strbuf_puts(out, "}");
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
void ig_response_custom_input(const struct ig_part *p, struct ig_strbuf *out)
{
	json_t *v = p->text.len ? json_loadb(p->text.data, p->text.len, JSON_ALLOW_NUL, NULL) :
				  NULL,
	       *input = json_object_get(v, "input");

	if (json_is_string(input))
		ig_strbuf_json(out, json_string_value(input), json_string_length(input));
	else
		ig_response_text(out, &p->text);
	json_decref(v);
}

static const char *item_status(const struct ig_choice *c, size_t i)
{
	bool whole = i + 1 < c->n_parts || c->parts[i].whole ||
		     (c->finished && c->result.finish == IG_FINISH_STOP);

	return whole ? "completed" : "incomplete";
}

void ig_response_item(struct ig_reply *r, size_t i, bool done, struct ig_strbuf *out)
{
	static const struct ig_strbuf nothing;
	const struct ig_choice *c = &r->choices[0];
	const struct ig_part *p = &c->parts[i];
	const char *status = done ? item_status(c, i) : "in_progress";
	bool custom = p->kind == IG_PART_CALL && ig_response_is_custom(r, p);

	ig_strbuf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", p->id,
			 p->kind == IG_PART_TEXT      ? "message" :
			 p->kind == IG_PART_REASONING ? "reasoning" :
			 custom			      ? "custom_tool_call" :
							"function_call",
			 status);
	if (p->kind == IG_PART_CALL) {
		ig_strbuf_printf(out, ",\"call_id\":\"%s\",\"name\":", p->call_id);
		ig_json_text(out, p->name);
		ig_strbuf_puts(out, custom ? ",\"input\":" : ",\"arguments\":");
		if (custom && done)
			ig_response_custom_input(p, out);
		else
			ig_response_text(out, done ? &p->text : &nothing);
		ig_strbuf_puts(out, "}");
		return;
	}
	ig_strbuf_puts(out, p->kind == IG_PART_TEXT ? ",\"role\":\"assistant\",\"content\":[" :
						      ",\"summary\":[],\"content\":[");
	if (done)
		ig_response_content(r, p, true, out);
	ig_strbuf_puts(out, "]}");
}

void ig_response_items(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "[");
	for (size_t i = 0; i < r->choices[0].n_parts; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		ig_response_item(r, i, true, out);
	}
	ig_strbuf_puts(out, "]");
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

static void usage(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_strbuf_printf(out,
			 "{\"input_tokens\":%lld,\"input_tokens_details\":"
			 "{\"cached_tokens\":%lld,\"cache_write_tokens\":0},"
			 "\"output_tokens\":%lld,\"output_tokens_details\":"
			 "{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
			 (long long)u.prompt, (long long)u.cached, (long long)u.output,
			 (long long)reasoning_tokens(r, u.output),
			 (long long)(u.prompt + u.output));
}

/* ,"name": what the client said, or what holds when it says nothing. */
static void said(struct ig_reply *r, const char *name, const char *otherwise, struct ig_strbuf *out)
{
	json_t *v = json_object_get(r->request.said, name);

	if (!v && !otherwise)
		return;
	ig_strbuf_printf(out, ",\"%s\":", name);
	if (v)
		ig_json_value(out, v);
	else
		ig_strbuf_puts(out, otherwise);
}

static void text_config(struct ig_reply *r, struct ig_strbuf *out)
{
	json_t *v = json_object_get(r->request.said, "text"),
	       *format = json_object_get(v, "format"), *verbosity = json_object_get(v, "verbosity");

	ig_strbuf_puts(out, ",\"text\":{\"format\":");
	if (format && !json_is_null(format))
		ig_json_value(out, format);
	else
		ig_strbuf_puts(out, "{\"type\":\"text\"}");
	if (verbosity && !json_is_null(verbosity)) {
		ig_strbuf_puts(out, ",\"verbosity\":");
		ig_json_value(out, verbosity);
	}
	ig_strbuf_puts(out, "}");
}

static void error_object(const struct ig_api_error *e, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "{\"code\":");
	ig_json_text(out, e->code);
	ig_strbuf_puts(out, ",\"message\":");
	ig_error_message(out, e);
	ig_strbuf_puts(out, "}");
}

void ig_response_object(struct ig_reply *r, struct ig_strbuf *out)
{
	static const char *const names[] = {
		[IG_OUTCOME_RUNS] = "in_progress",	[IG_OUTCOME_COMPLETED] = "completed",
		[IG_OUTCOME_INCOMPLETE] = "incomplete", [IG_OUTCOME_CANCELLED] = "cancelled",
		[IG_OUTCOME_FAILED] = "failed",
	};
	const struct ig_request *q = &r->request;
	enum ig_outcome o = r->stage >= STAGE_FINAL ? ig_response_outcome(r) : IG_OUTCOME_RUNS;

	ig_strbuf_printf(out,
			 "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,"
			 "\"status\":\"%s\",\"background\":false",
			 r->id, ig_reply_created_s(r), names[o]);
	if (o == IG_OUTCOME_COMPLETED)
		ig_strbuf_printf(out, ",\"completed_at\":%lld",
				 (long long)(ig_wall_ns() / 1000000000));
	ig_strbuf_puts(out, ",\"error\":");
	if (o == IG_OUTCOME_FAILED)
		error_object(&r->error, out);
	else
		ig_strbuf_puts(out, "null");
	ig_strbuf_puts(out, ",\"incomplete_details\":");
	ig_strbuf_puts(out,
		       o == IG_OUTCOME_INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : "null");
	ig_strbuf_puts(out, ",\"instructions\":");
	ig_json_text(out, q->instructions);
	if (q->sampling.max_tokens)
		ig_strbuf_printf(out, ",\"max_output_tokens\":%d", q->sampling.max_tokens);
	else
		ig_strbuf_puts(out, ",\"max_output_tokens\":null");
	said(r, "max_tool_calls", NULL, out);
	ig_strbuf_puts(out, ",\"model\":");
	ig_json_text(out, ig_reply_model_name(r));
	ig_strbuf_puts(out, ",\"output\":");
	if (o == IG_OUTCOME_RUNS)
		ig_strbuf_puts(out, "[]");
	else
		ig_response_items(r, out);
	ig_strbuf_printf(out, ",\"parallel_tool_calls\":%s,\"previous_response_id\":",
			 q->parallel_tool_calls ? "true" : "false");
	ig_json_text(out, q->previous_id);
	said(r, "prompt_cache_key", NULL, out);
	said(r, "reasoning", "null", out);
	said(r, "safety_identifier", NULL, out);
	ig_strbuf_printf(out, ",\"service_tier\":\"default\",\"store\":%s,\"temperature\":%.7g",
			 q->store ? "true" : "false", q->sampling.temperature);
	text_config(r, out);
	said(r, "tool_choice", "\"auto\"", out);
	said(r, "tools", "[]", out);
	said(r, "top_logprobs", NULL, out);
	ig_strbuf_printf(
		out, ",\"top_p\":%.7g,\"truncation\":\"disabled\",\"usage\":", q->sampling.top_p);
	if (o == IG_OUTCOME_RUNS)
		ig_strbuf_puts(out, "null");
	else
		usage(r, out);
	said(r, "user", NULL, out);
	ig_strbuf_printf(out, ",\"metadata\":%s}", q->metadata ? q->metadata : "{}");
}
