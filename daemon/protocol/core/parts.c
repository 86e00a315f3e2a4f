/* parts.c: parses the model's text into parts: text, reasoning, tool calls. */
#include "daemon/protocol/core/choice.h"
#include "base/array.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/core/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_mistral(const struct ig_completion_style *s)
{
	return s->calls == IG_TOOL_CALLS_MISTRAL || s->calls == IG_TOOL_CALLS_MISTRAL_ARGS;
}

static struct ig_part *part_new(struct ig_choice *c, enum ig_part_kind kind)
{
	static const char *const prefixes[] = {
		[IG_PART_TEXT] = "msg_",
		[IG_PART_REASONING] = "rs_",
		[IG_PART_TOOL_CALL] = "fc_",
	};

	if (!ig_array_grow(c->parts, &c->cap_parts, c->n_parts))
		return NULL;
	if (c->n_parts)
		c->parts[c->n_parts - 1].done = true;
	struct ig_part *p = &c->parts[c->n_parts];
	*p = (struct ig_part){ .kind = kind };
	ig_random_id(p->id, sizeof p->id, prefixes[kind]);
	/* Mistral's templates take ids of nine characters only. */
	if (kind == IG_PART_TOOL_CALL && is_mistral(&c->reply->prepared.style))
		ig_random_id(p->call_id, 10, "");
	else if (kind == IG_PART_TOOL_CALL)
		ig_random_id(p->call_id, sizeof p->call_id, "call_");
	c->n_parts++;
	return p;
}

struct feed {
	struct ig_choice *choice;
	bool last;
	bool failed;
};

static void on_event(void *ctx, const struct ig_completion_event *e)
{
	struct feed *f = ctx;
	struct ig_choice *c = f->choice;
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
	enum ig_part_kind kind = e->kind == IG_COMPLETION_TEXT	    ? IG_PART_TEXT :
				 e->kind == IG_COMPLETION_REASONING ? IG_PART_REASONING :
								      IG_PART_TOOL_CALL;

	if (f->failed || e->kind == IG_COMPLETION_MARKUP)
		return;
	if (e->kind == IG_COMPLETION_TOOL_CALL_END) {
		/* The end of the text ends a tool call, too. */
		if (p) {
			p->done = true;
			p->whole = !f->last;
		}
		return;
	}
	if (!p || p->kind != kind || p->done || e->kind == IG_COMPLETION_TOOL_CALL)
		p = part_new(c, kind);
	if (!p) {
		f->failed = true;
		return;
	}
	if (e->kind == IG_COMPLETION_TOOL_CALL) {
		p->name = strndup(e->data, e->len);
		f->failed = !p->name;
		return;
	}
	ig_strbuf_add(&p->text, e->data, e->len);
	f->failed = !ig_strbuf_ok(&p->text);
}

/* Any piece of the model's text; last: it is complete. */
static bool feed(struct ig_choice *c, const char *text, size_t len, bool last)
{
	struct feed f = { .choice = c, .last = last };

	if (c->parser)
		return !ig_completion_parser_feed(c->parser, text, len, last, on_event, &f) &&
		       !f.failed;
	if (len)
		on_event(&f, &(struct ig_completion_event){
				     .kind = IG_COMPLETION_TEXT, .data = text, .len = len });
	return !f.failed;
}

/* Assign the logprobs of the tokens fed so far to the last part, if that is text; other tokens
 * (reasoning, tool calls, markers) have none in the response. */
static void place_logprobs(struct ig_choice *c, size_t n_parts_before, size_t len_before)
{
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;

	if (!p || (c->n_parts == n_parts_before && p->text.len == len_before))
		return; /* the parser holds the text back: their part is not known yet */
	if (p->kind == IG_PART_TEXT) {
		/* The last tokens that make up the text: a marker may come before it. */
		size_t first = c->n_placed;
		for (uint64_t n = 0; n < p->text.len && first > c->first_unplaced; first--)
			n += c->logprobs[first - 1].text_end -
			     (first > 1 ? c->logprobs[first - 2].text_end : 0);
		if (!p->end_logprob)
			p->first_logprob = first;
		p->end_logprob = c->n_placed;
	}
	c->first_unplaced = c->n_placed;
}

bool ig_choice_feed(struct ig_choice *c, const char *text, size_t len, bool last)
{
	do {
		size_t n = len, n_parts = c->n_parts,
		       before = n_parts ? c->parts[n_parts - 1].text.len : 0;
		while (c->n_placed < c->n_logprobs && c->logprobs[c->n_placed].text_end <= c->n_fed)
			c->n_placed++;
		if (c->n_placed < c->n_logprobs && c->logprobs[c->n_placed].text_end - c->n_fed < n)
			n = (size_t)(c->logprobs[c->n_placed].text_end - c->n_fed);
		if (!feed(c, text, n, last && n == len))
			return false;
		c->n_fed += n;
		text += n;
		len -= n;
		while (c->n_placed < c->n_logprobs && c->logprobs[c->n_placed].text_end <= c->n_fed)
			c->n_placed++;
		place_logprobs(c, n_parts, before);
	} while (len);
	/* Last tokens without text belong to the last part. */
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
	if (last && p && p->kind == IG_PART_TEXT && p->end_logprob)
		p->end_logprob = c->n_placed;
	return true;
}

void ig_part_put_arguments(const struct ig_part *p, const char *key, struct ig_json_writer *w)
{
	const struct ig_json_limits limits = { .allow_nul = true };
	const char *text = p->text.len ? p->text.data : "{}";
	const size_t len = p->text.len ? p->text.len : 2;
	json_t *v;

	if (ig_json_read(text, len, &limits, &v, NULL) == -ENOMEM)
		w->out->failed = true;
	if (json_is_object(v)) {
		ig_json_put_value(w, key, v);
	} else {
		ig_json_open_object(w, key);
		ig_json_putf(w, "'invalid_json': %.*s}", (int)len, text);
	}
	json_decref(v);
}

void ig_parts_finish(struct ig_choice *c)
{
	for (size_t i = 0; i < c->n_parts; i++) {
		ig_strbuf_finish(&c->parts[i].text);
		free(c->parts[i].name);
	}
	free(c->parts);
}
