/*
 * responses_writer.c: one response as clients read it: its events in their order, for the
 * WebSocket as they are and over HTTP as SSE frames, or the whole object; and what is kept
 * of it.
 *
 * Written as text straight into the connection's buffer.  next_event is a small machine:
 * r->stage says where the response is, its call's part and stage where the item is that is
 * under way.  The parts of an answer become items: text a message, reasoning and calls
 * their own.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"
#include "daemon/protocol/responses/stored.h"
#include "daemon/protocol/core/request_private.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text of one delta at most: a client that reads slowly gets fewer, larger ones. */
#define MAX_DELTA 4096

enum { STAGE_CREATED, STAGE_IN_PROGRESS, STAGE_PARTS, STAGE_FINAL, STAGE_ERROR, STAGE_END };
/* Of the part under way. */
enum { PART_ITEM, PART_CONTENT, PART_DELTA, PART_TEXT_DONE, PART_CONTENT_DONE, PART_ITEM_DONE };

enum outcome { RUNS, COMPLETED, INCOMPLETE, CANCELLED, FAILED };

static enum outcome outcome_of(const struct ig_reply *r)
{
	const struct ig_gen_result *g = &r->calls[0].result;

	if (!r->finished)
		return RUNS;
	if (!r->n_calls) /* a warm-up of nothing */
		return r->error.status ? FAILED : COMPLETED;
	switch (g->finish) {
	case IG_FINISH_STOP:
		return COMPLETED;
	case IG_FINISH_LENGTH:
		return INCOMPLETE;
	case IG_FINISH_CANCELLED:
		return strcmp(g->cancel_reason, "client_cancel") ? FAILED : CANCELLED;
	default:
		return FAILED;
	}
}

/* ---- frames ------------------------------------------------------------------------ */

static void begin(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	if (r->framed)
		ig_strbuf_printf(out, "event: %s\ndata: ", type);
	ig_strbuf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, r->sequence++);
	if (r->request.stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, r->request.stream_id);
	}
}

static void end(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, r->framed ? "}\n\n" : "}");
}

static void text(struct ig_strbuf *out, const struct ig_strbuf *s)
{
	out->failed |= s->failed;
	ig_strbuf_json(out, s->len ? s->data : "", s->len);
}

/* ---- items ------------------------------------------------------------------------- */

/* Notes first … last - 1; whole: with bytes, as parts have them and deltas do not. */
static void logprobs(struct ig_reply *r, size_t first, size_t last, bool whole,
		     struct ig_strbuf *out)
{
	const struct ig_token_note *notes = r->calls[0].notes;

	ig_strbuf_puts(out, ",\"logprobs\":[");
	for (size_t i = first; i < last; i++) {
		ig_strbuf_puts(out, i > first ? ",{" : "{");
		ig_json_token(out, r->model, notes[i].id, notes[i].logprob, whole);
		ig_strbuf_puts(out, ",\"top_logprobs\":[");
		for (int32_t k = 0; k < notes[i].n_top; k++) {
			ig_strbuf_puts(out, k ? ",{" : "{");
			ig_json_token(out, r->model, notes[i].top[k].id, notes[i].top[k].logprob,
				      whole);
			ig_strbuf_puts(out, "}");
		}
		ig_strbuf_puts(out, "]}");
	}
	ig_strbuf_puts(out, "]");
}

static void content_part(struct ig_reply *r, const struct ig_part *p, bool whole,
			 struct ig_strbuf *out)
{
	static const struct ig_strbuf nothing;
	bool message = p->kind == IG_PART_TEXT;

	ig_strbuf_puts(out, message ? "{\"type\":\"output_text\",\"text\":" :
				      "{\"type\":\"reasoning_text\",\"text\":");
	text(out, whole ? &p->text : &nothing);
	if (message) {
		ig_strbuf_puts(out, ",\"annotations\":[]");
		logprobs(r, p->first_note, whole ? p->end_note : p->first_note, true, out);
	}
	ig_strbuf_puts(out, "}");
}

/* Whether the tool of a call is one of free text. */
static bool is_custom(const struct ig_reply *r, const struct ig_part *p)
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
static void custom_input(const struct ig_part *p, struct ig_strbuf *out)
{
	json_t *v = p->text.len ? json_loadb(p->text.data, p->text.len, JSON_ALLOW_NUL, NULL) :
				  NULL,
	       *input = json_object_get(v, "input");

	if (json_is_string(input))
		ig_strbuf_json(out, json_string_value(input), json_string_length(input));
	else
		text(out, &p->text);
	json_decref(v);
}

static const char *item_status(const struct ig_call *c, size_t i)
{
	bool whole = i + 1 < c->n_parts || c->parts[i].whole ||
		     (c->finished && c->result.finish == IG_FINISH_STOP);

	return whole ? "completed" : "incomplete";
}

static void item(struct ig_reply *r, size_t i, bool done, struct ig_strbuf *out)
{
	static const struct ig_strbuf nothing;
	const struct ig_call *c = &r->calls[0];
	const struct ig_part *p = &c->parts[i];
	const char *status = done ? item_status(c, i) : "in_progress";
	bool custom = p->kind == IG_PART_CALL && is_custom(r, p);

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
			custom_input(p, out);
		else
			text(out, done ? &p->text : &nothing);
		ig_strbuf_puts(out, "}");
		return;
	}
	ig_strbuf_puts(out, p->kind == IG_PART_TEXT ? ",\"role\":\"assistant\",\"content\":[" :
						      ",\"summary\":[],\"content\":[");
	if (done)
		content_part(r, p, true, out);
	ig_strbuf_puts(out, "]}");
}

static void items(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "[");
	for (size_t i = 0; i < r->calls[0].n_parts; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		item(r, i, true, out);
	}
	ig_strbuf_puts(out, "]");
}

/* An answer that says nothing is an empty message. */
static bool add_nothing(struct ig_reply *r)
{
	struct ig_call *c = &r->calls[0];
	enum outcome o = outcome_of(r);

	if (c->n_parts || r->request.warm_up || (o != COMPLETED && o != INCOMPLETE))
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
	const struct ig_call *c = &r->calls[0];
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
	char message[sizeof e->message];

	ig_strbuf_puts(out, "{\"code\":");
	ig_json_text(out, e->code);
	ig_strbuf_puts(out, ",\"message\":");
	ig_utf8_copy(message, sizeof message, e->message);
	ig_json_text(out, message);
	ig_strbuf_puts(out, "}");
}

static void response(struct ig_reply *r, struct ig_strbuf *out)
{
	static const char *const names[] = {
		[RUNS] = "in_progress",	   [COMPLETED] = "completed", [INCOMPLETE] = "incomplete",
		[CANCELLED] = "cancelled", [FAILED] = "failed",
	};
	const struct ig_request *q = &r->request;
	enum outcome o = r->stage >= STAGE_FINAL ? outcome_of(r) : RUNS;

	ig_strbuf_printf(out,
			 "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,"
			 "\"status\":\"%s\",\"background\":false",
			 r->id, (long long)r->created_s, names[o]);
	if (o == COMPLETED)
		ig_strbuf_printf(out, ",\"completed_at\":%lld",
				 (long long)(ig_wall_ns() / 1000000000));
	ig_strbuf_puts(out, ",\"error\":");
	if (o == FAILED)
		error_object(&r->error, out);
	else
		ig_strbuf_puts(out, "null");
	ig_strbuf_puts(out, ",\"incomplete_details\":");
	ig_strbuf_puts(out, o == INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : "null");
	ig_strbuf_puts(out, ",\"instructions\":");
	ig_json_text(out, q->instructions);
	if (q->max_tokens)
		ig_strbuf_printf(out, ",\"max_output_tokens\":%d", q->max_tokens);
	else
		ig_strbuf_puts(out, ",\"max_output_tokens\":null");
	said(r, "max_tool_calls", NULL, out);
	ig_strbuf_puts(out, ",\"model\":");
	ig_json_text(out, r->model->name);
	ig_strbuf_puts(out, ",\"output\":");
	if (o == RUNS)
		ig_strbuf_puts(out, "[]");
	else
		items(r, out);
	ig_strbuf_printf(out, ",\"parallel_tool_calls\":%s,\"previous_response_id\":",
			 q->parallel_tool_calls ? "true" : "false");
	ig_json_text(out, q->previous_id);
	said(r, "prompt_cache_key", NULL, out);
	said(r, "reasoning", "null", out);
	said(r, "safety_identifier", NULL, out);
	ig_strbuf_printf(out, ",\"service_tier\":\"default\",\"store\":%s,\"temperature\":%.7g",
			 q->store ? "true" : "false", q->temperature);
	text_config(r, out);
	said(r, "tool_choice", "\"auto\"", out);
	said(r, "tools", "[]", out);
	said(r, "top_logprobs", NULL, out);
	ig_strbuf_printf(out, ",\"top_p\":%.7g,\"truncation\":\"disabled\",\"usage\":", q->top_p);
	if (o == RUNS)
		ig_strbuf_puts(out, "null");
	else
		usage(r, out);
	said(r, "user", NULL, out);
	ig_strbuf_printf(out, ",\"metadata\":%s}", q->metadata ? q->metadata : "{}");
}

/* ---- what is kept ------------------------------------------------------------------ */

static bool give_ids(json_t *list)
{
	static const char *const prefixes[][2] = {
		{ "message", "msg_" },
		{ "reasoning", "rs_" },
		{ "function_call", "fc_" },
		{ "custom_tool_call", "ctc_" },
		{ "function_call_output", "fco_" },
		{ "custom_tool_call_output", "ctco_" },
	};
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));
		char id[48];
		size_t k = 0;
		if (json_object_get(v, "id"))
			continue;
		while (k + 1 < sizeof prefixes / sizeof prefixes[0] && strcmp(prefixes[k][0], type))
			k++;
		ig_random_id(id, sizeof id, prefixes[k][1]);
		if (json_object_set_new(v, "id", json_string(id)) < 0)
			return false;
	}
	return true;
}

/* The answer's items, as values, and the messages that they are. */
static bool read_answer(struct ig_reply *r, json_t **output, json_t **answer)
{
	struct ig_strbuf b = { 0 };
	json_t *v;
	size_t i;

	items(r, &b);
	*answer = json_array();
	/* A model may say any byte. */
	*output = ig_strbuf_ok(&b) ? json_loadb(b.data, b.len, JSON_ALLOW_NUL, NULL) : NULL;
	ig_strbuf_finish(&b);
	if (!*output || !*answer)
		return false;
	json_array_foreach(*output, i, v)
	{
		/* Half a call is nothing that a tool could answer, or a template write. */
		bool half = json_object_get(v, "call_id") &&
			    strcmp(json_string_value(json_object_get(v, "status")), "completed");
		if (!half && ig_items_fold(*answer, v) < 0)
			return false;
	}
	return true;
}

/* Keep the response for those who will continue it or ask for it; object: as text. */
static int keep(struct ig_reply *r, const char *object)
{
	struct ig_request *q = &r->request;
	json_t *output = NULL, *answer = NULL;
	int rc = -ENOMEM;

	if (!q->store && !r->connection)
		return 0;
	if (read_answer(r, &output, &answer) && give_ids(q->items)) {
		struct ig_kept_spec spec = {
			.id = r->id,
			.owner = r->who.identity,
			.stored = q->store,
			.connection = r->connection,
			.lane = q->stream_id,
			.previous_id = q->previous_id,
			.history = q->history,
			.messages = q->messages,
			.answer = answer,
			.input = q->store ? q->items : NULL,
			.output = q->store ? output : NULL,
			.text = q->store ? object : NULL,
		};
		rc = ig_kept_add(r->api->kept, &spec);
	}
	json_decref(output);
	json_decref(answer);
	return rc;
}

/* The ledger's row of what the engine never saw. */
static void note_done(struct ig_reply *r)
{
	struct ig_ledger_row row = { .status = 200,
				     .received_ns = r->received_wall_ns,
				     .queue_ms = -1,
				     .prefill_ms = -1,
				     .decode_ms = -1,
				     .ttft_ms = -1 };

	snprintf(row.id, sizeof row.id, "%s", r->id);
	snprintf(row.model, sizeof row.model, "%s", r->model->name);
	snprintf(row.endpoint, sizeof row.endpoint, "%s", r->endpoint);
	snprintf(row.client, sizeof row.client, "%s", r->client);
	snprintf(row.key, sizeof row.key, "%s", r->who.key);
	snprintf(row.finish, sizeof row.finish, "%s", ig_finish_name(IG_FINISH_STOP));
	row.total_ms = (float)((double)(ig_now_ns() - r->received_ns) / 1e6);
	ig_engine_note_refused(r->api->deps.engine, &row);
}

/* The final object; what it says of being stored is true by now. */
static void final_object(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_strbuf object = { 0 };

	r->stage = STAGE_FINAL;
	response(r, &object);
	if (outcome_of(r) == FAILED) {
		/* What a lane could not go on from is not offered again. */
		if (r->request.previous_id)
			ig_kept_drop_of_lane(r->api->kept, r->connection, r->request.stream_id,
					     r->request.previous_id);
	} else if (ig_strbuf_ok(&object) && keep(r, object.data) < 0 && r->request.store) {
		r->request.store = false;
		ig_strbuf_clear(&object);
		response(r, &object);
	}
	out->failed |= object.failed;
	ig_strbuf_add(out, object.data, object.len);
	ig_strbuf_finish(&object);
	if (!r->n_calls && !r->error.status) /* of what is refused it has one */
		note_done(r);
}

int ig_responses_recall(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
			const void *connection, struct ig_api_error *e)
{
	struct ig_kept *k = ig_kept_find(api->kept, q->previous_id, who->identity, connection);

	if (!k)
		return ig_api_fail(e, 400, "invalid_request_error", "previous_response_not_found",
				   "previous_response_id",
				   "Previous response with id '%.100s' not "
				   "found.",
				   q->previous_id);
	q->history = ig_kept_messages(k);
	if (q->history)
		return 0;
	ig_fail_memory(e);
	return -1;
}

/* ---- events ------------------------------------------------------------------------ */

static void response_event(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	begin(r, out, type);
	ig_strbuf_puts(out, ",\"response\":");
	if (r->stage >= STAGE_FINAL)
		final_object(r, out);
	else
		response(r, out);
	end(r, out);
}

static void final_event(struct ig_reply *r, struct ig_strbuf *out)
{
	static const char *const types[] = {
		[COMPLETED] = "response.completed",
		[INCOMPLETE] = "response.incomplete",
		[CANCELLED] = "response.incomplete",
		[FAILED] = "response.failed",
	};
	enum outcome o = outcome_of(r);

	response_event(r, out, types[o]);
	/* Over HTTP a failure is an error too, for readers who know no response.failed. */
	r->stage = o == FAILED && r->framed ? STAGE_ERROR : STAGE_END;
}

/* In both shapes at once: readers look for a flat message or for an error object. */
static void error_event(struct ig_reply *r, struct ig_strbuf *out)
{
	char message[sizeof r->error.message];

	ig_utf8_copy(message, sizeof message, r->error.message);
	begin(r, out, "error");
	ig_strbuf_puts(out, ",\"code\":");
	ig_json_text(out, r->error.code);
	ig_strbuf_puts(out, ",\"message\":");
	ig_json_text(out, message);
	ig_strbuf_puts(out, ",\"param\":null,\"error\":");
	ig_error_members(out, &r->error);
	end(r, out);
	r->stage = STAGE_END;
}

static void place(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, ",\"item_id\":\"%s\",\"output_index\":%zu", p->id, r->calls[0].part);
	if (p->kind != IG_PART_CALL)
		ig_strbuf_puts(out, ",\"content_index\":0");
}

/* What is new of a part. */
static void delta(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	struct ig_call *c = &r->calls[0];
	bool custom = p->kind == IG_PART_CALL && is_custom(r, p);

	begin(r, out,
	      p->kind == IG_PART_TEXT	   ? "response.output_text.delta" :
	      p->kind == IG_PART_REASONING ? "response.reasoning_text.delta" :
	      custom			   ? "response.custom_tool_call_input.delta" :
					     "response.function_call_arguments.delta");
	place(r, p, out);
	ig_strbuf_puts(out, ",\"delta\":");
	if (custom)
		custom_input(p, out);
	else
		ig_strbuf_json(out, p->text.data + c->n_sent, p->text.len - c->n_sent);
	c->n_sent = p->text.len;
	if (p->kind == IG_PART_TEXT) {
		if (c->n_notes_sent < p->first_note)
			c->n_notes_sent = p->first_note;
		logprobs(r, c->n_notes_sent, p->end_note, false, out);
		if (p->end_note > c->n_notes_sent)
			c->n_notes_sent = p->end_note;
	}
	end(r, out);
}

static void text_done(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	bool custom = p->kind == IG_PART_CALL && is_custom(r, p);

	begin(r, out,
	      p->kind == IG_PART_TEXT	   ? "response.output_text.done" :
	      p->kind == IG_PART_REASONING ? "response.reasoning_text.done" :
	      custom			   ? "response.custom_tool_call_input.done" :
					     "response.function_call_arguments.done");
	place(r, p, out);
	if (p->kind == IG_PART_CALL && !custom) {
		ig_strbuf_puts(out, ",\"name\":");
		ig_json_text(out, p->name);
	}
	ig_strbuf_puts(out, p->kind != IG_PART_CALL ? ",\"text\":" :
			    custom		    ? ",\"input\":" :
						      ",\"arguments\":");
	if (custom)
		custom_input(p, out);
	else
		text(out, &p->text);
	if (p->kind == IG_PART_TEXT)
		logprobs(r, p->first_note, p->end_note, false, out);
	end(r, out);
}

static void item_event(struct ig_reply *r, bool done, struct ig_strbuf *out)
{
	begin(r, out, done ? "response.output_item.done" : "response.output_item.added");
	ig_strbuf_printf(out, ",\"output_index\":%zu,\"item\":", r->calls[0].part);
	item(r, r->calls[0].part, done, out);
	end(r, out);
}

static void content_event(struct ig_reply *r, const struct ig_part *p, bool done,
			  struct ig_strbuf *out)
{
	begin(r, out, done ? "response.content_part.done" : "response.content_part.added");
	place(r, p, out);
	ig_strbuf_puts(out, ",\"part\":");
	content_part(r, p, done, out);
	end(r, out);
}

/* A custom tool's input is known when its arguments are whole. */
static bool has_delta(const struct ig_reply *r, const struct ig_part *p)
{
	return p->text.len > r->calls[0].n_sent &&
	       (p->done || p->kind != IG_PART_CALL || !is_custom(r, p));
}

/* One event of the part under way; false: nothing is new. */
static bool part_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_call *c = &r->calls[0];
	const struct ig_part *p = &c->parts[c->part];
	bool has_content = p->kind != IG_PART_CALL;

	switch (c->stage) {
	case PART_ITEM:
		item_event(r, false, out);
		c->stage = has_content ? PART_CONTENT : PART_DELTA;
		return true;
	case PART_CONTENT:
		content_event(r, p, false, out);
		c->stage = PART_DELTA;
		return true;
	case PART_DELTA:
		if (has_delta(r, p)) {
			delta(r, p, out);
			return true;
		}
		if (!p->done)
			return false;
		text_done(r, p, out);
		c->stage = has_content ? PART_CONTENT_DONE : PART_ITEM_DONE;
		return true;
	case PART_CONTENT_DONE:
		content_event(r, p, true, out);
		c->stage = PART_ITEM_DONE;
		return true;
	default:
		item_event(r, true, out);
		c->stage = PART_ITEM;
		c->part++;
		c->n_sent = 0;
		return true;
	}
}

/* One event of the parts; false: the engine has nothing new, or there are no more. */
static bool parts_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_call *c = &r->calls[0];

	if (c->part < c->n_parts && part_event(r, out))
		return true;
	ig_reply_take(r, MAX_DELTA);
	if (c->part < c->n_parts || add_nothing(r))
		return part_event(r, out);
	return false;
}

static bool next_event(struct ig_reply *r, struct ig_strbuf *out)
{
	switch (r->stage) {
	case STAGE_CREATED:
		response_event(r, out, "response.created");
		r->stage++;
		return true;
	case STAGE_IN_PROGRESS:
		response_event(r, out, "response.in_progress");
		r->stage++;
		return true;
	case STAGE_PARTS:
		if (parts_event(r, out))
			return true;
		if (r->finished) {
			r->stage = STAGE_FINAL;
			final_event(r, out);
			return true;
		}
		if (r->keepalive)
			response_event(r, out, "response.in_progress");
		return r->keepalive;
	case STAGE_ERROR:
		error_event(r, out);
		return true;
	default:
		return false;
	}
}

bool ig_responses_next_event(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	bool some = next_event(r, out);

	if (some)
		ig_reply_wrote(r);
	*last = r->stage == STAGE_END;
	return some;
}

bool ig_responses_wait_event(struct ig_reply *r, struct ig_strbuf *out)
{
	bool first = r->stage == STAGE_CREATED;

	response_event(r, out, first ? "response.created" : "response.in_progress");
	r->stage = first ? STAGE_IN_PROGRESS : STAGE_PARTS;
	return first;
}

/* ---- over HTTP --------------------------------------------------------------------- */

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	r->framed = true;
	return ig_responses_next_event(r, out, last);
}

static bool write_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	r->framed = true;
	return ig_responses_wait_event(r, out);
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	add_nothing(r);
	final_object(r, out);
}

const struct ig_protocol ig_responses_protocol = {
	.path = "/v1/responses",
	.id_prefix = "resp_",
	.prompt_param = "input",
	.form_param = "text.format",
	.parse = ig_request_parse_create,
	.next = next,
	.whole = whole,
	.wait = write_wait,
	.error = ig_error_object,
};

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
			 r->prepared.prompts[0].n);
}

const struct ig_protocol ig_input_tokens_protocol = {
	.path = "/v1/responses/input_tokens",
	.id_prefix = "resp_",
	.prompt_param = "input",
	.form_param = "text.format",
	.parse = ig_request_parse_input_tokens,
	.whole = count,
	.error = ig_error_object,
	.immediate = true,
};

/* ---- the WebSocket's own events ---------------------------------------------------- */

void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id)
{
	ig_strbuf_printf(out, "{\"type\":\"error\",\"status\":%d,\"error\":", e->status);
	ig_error_members(out, e);
	if (e->retry_after_s)
		ig_strbuf_printf(out, ",\"retry_after\":%u", e->retry_after_s);
	if (stream_id && stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, stream_id);
	}
	ig_strbuf_puts(out, "}");
}

void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id)
{
	ig_strbuf_printf(out,
			 "{\"type\":\"response.steer.failed\",\"sequence_number\":0,"
			 "\"steer\":%s,\"error\":{\"type\":\"invalid_request_error\","
			 "\"code\":\"steering_not_supported\","
			 "\"message\":\"This server can't steer a response.\"}",
			 steer);
	if (stream_id && stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, stream_id);
	}
	ig_strbuf_puts(out, "}");
}
