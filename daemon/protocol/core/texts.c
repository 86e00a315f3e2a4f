/*
 * texts.c: the texts of a request for embeddings or scores as the engine gets them, one after the other,
 * with the tokens around them that the model was trained with: before and behind a text, and between a
 * query and a text.  A text is what a client sent: control tokens in it are plain text.
 */
#include "daemon/protocol/core/texts.h"

#include "base/array.h"
#include "daemon/protocol/core/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct building {
	struct ig_reply *r;
	const struct ig_engine_model *m;
	struct ig_ids *out;  /* of all texts */
	struct ig_ids query; /* of a reranker */
	struct ig_ids ids;   /* of one text */
	size_t start;	     /* of the text that is built */
};

static int fail_task(struct ig_reply *r, const char *can)
{
	const struct ig_engine_model *m = r->prepared.model;
	const char *is = m->traits.embeds ? "makes embeddings" :
			 m->traits.ranks  ? "is a reranker" :
					    "generates text";

	return ig_api_fail(&r->error, 400, "unsupported_model", "model",
			   "The model '%s' %s and can't %s.", m->name, is, can);
}

int ig_check_task(struct ig_reply *r)
{
	const struct ig_model_traits *t = &r->prepared.model->traits;

	switch (r->protocol->task) {
	case IG_TASK_EMBED: return t->embeds ? 0 : fail_task(r, "make embeddings");
	case IG_TASK_RANK: return t->ranks ? 0 : fail_task(r, "rank texts");
	default:
		return r->protocol->immediate || !(t->embeds || t->ranks) ?
			       0 :
			       fail_task(r, "generate text");
	}
}

static int fail_long(const struct building *b, size_t i, size_t n, const char *more)
{
	return ig_api_fail(&b->r->error, 400, "context_length_exceeded",
			   b->r->protocol->prompt_param,
			   "Text %zu has %s%zu tokens; the model '%s' takes at most %u.", i, more,
			   n, b->m->name, b->m->n_context);
}

static int add(struct building *b, const int32_t *ids, size_t n)
{
	struct ig_ids *to = b->out;

	if (n && !ig_array_grow(to->ids, &to->cap, to->n + n - 1))
		return ig_fail_memory(&b->r->error);
	if (n)
		memcpy(to->ids + to->n, ids, n * sizeof *ids);
	to->n += n;
	return 0;
}

/* The tokens of a text; those of one that is far too long need not all be known. */
static int encode(const struct building *b, const char *text, size_t len, struct ig_ids *out,
		  bool *cut)
{
	const size_t most = (size_t)b->m->n_context * 4,
		     longest = ig_tokenizer_longest(b->m->tokenizer);
	int rc;

	*cut = len / longest > most;
	if (*cut)
		len = most * longest;
	rc = ig_tokenizer_encode(b->m->tokenizer, text, len, false, SIZE_MAX, out);
	return rc < 0 ? ig_fail_memory(&b->r->error) : 0;
}

/* Text i, between the tokens before and behind it: of at most `room` tokens if it may be cut. */
static int add_text(struct building *b, size_t i, size_t room)
{
	const struct ig_request *q = &b->r->request;
	const struct ig_prompt *p = &q->prompts[i];
	struct ig_ids ids = { 0 };
	bool cut = false;
	int rc = encode(b, p->text, p->len, &ids, &cut);

	if (!rc && (cut || ids.n > room) && !q->truncate)
		rc = fail_long(b, i, ids.n + b->m->n_context - room, cut ? "more than " : "");
	if (ids.n > room)
		ids.n = room;
	if (q->max_doc_tokens && ids.n > (size_t)q->max_doc_tokens)
		ids.n = (size_t)q->max_doc_tokens;
	if (!rc)
		rc = add(b, ids.ids, ids.n);
	ig_ids_finish(&ids);
	return rc;
}

/* A text of ids is complete. */
static int add_ids(struct building *b, size_t i)
{
	const struct ig_request *q = &b->r->request;
	const struct ig_prompt *p = &q->prompts[i];
	int32_t n_vocab = ig_tokenizer_n_vocab(b->m->tokenizer);
	size_t n = p->n_ids;

	for (size_t k = 0; k < n; k++)
		if (p->ids[k] < 0 || p->ids[k] >= n_vocab)
			return ig_api_fail(
				&b->r->error, 400, "invalid_value", b->r->protocol->prompt_param,
				"Token %zu of text %zu is %d; the model '%s' has tokens 0 "
				"to %d.",
				k, i, p->ids[k], b->m->name, n_vocab - 1);
	if (n > b->m->n_context)
		return fail_long(b, i, n, "");
	return add(b, p->ids, n);
}

/* Document i in the reranker's own prompt, with the query. */
static int add_prompt(struct building *b, size_t i)
{
	const struct ig_request *q = &b->r->request;
	const struct ig_prompt *p = &q->prompts[i];
	const size_t most = (size_t)b->m->n_context * 4 * ig_tokenizer_longest(b->m->tokenizer);
	const size_t max_document = (size_t)q->max_doc_tokens;
	/* what is left out of a text that is far too long would be cut */
	int rc = ig_rerank_template_encode(b->m->rerank, q->query, strlen(q->query), p->text,
					   p->len < most ? p->len : most, max_document,
					   b->m->n_context, &b->ids);

	if (rc == -E2BIG)
		return fail_long(b, i, b->m->n_context, "with its query more than ");
	if (rc)
		return ig_fail_memory(&b->r->error);
	rc = add(b, b->ids.ids, b->ids.n);
	b->ids.n = 0;
	return rc;
}

static int build_text(struct building *b, size_t i, struct ig_text *text)
{
	const struct ig_tokenizer *t = b->m->tokenizer;
	const struct ig_prompt *p = &b->r->request.prompts[i];
	const bool ranks = b->r->protocol->task == IG_TASK_RANK;
	const int32_t bos = ig_tokenizer_add_bos(t) ? ig_tokenizer_bos(t) : -1;
	unsigned n_between;
	const int32_t *between = ig_tokenizer_separators(t, &n_between);
	size_t n_around = (bos >= 0) + (b->m->suffix >= 0) + (ranks ? b->query.n + n_between : 0);

	b->start = b->out->n;
	text->second = INT32_MAX;
	if (!p->text) {
		if (add_ids(b, i) < 0)
			return -1;
	} else if (b->m->rerank) {
		if (add_prompt(b, i) < 0)
			return -1;
	} else {
		if (n_around >= b->m->n_context)
			return fail_long(b, i, n_around, "with its query more than ");
		if ((bos >= 0 && add(b, &bos, 1) < 0) ||
		    (ranks &&
		     (add(b, b->query.ids, b->query.n) < 0 || add(b, between, n_between) < 0)))
			return -1;
		if (ranks)
			text->second = (int32_t)(b->out->n - b->start);
		if (add_text(b, i, b->m->n_context - n_around) < 0 ||
		    (b->m->suffix >= 0 && add(b, &b->m->suffix, 1) < 0))
			return -1;
	}
	text->n_ids = (int32_t)(b->out->n - b->start);
	if (!text->n_ids)
		return ig_api_fail(&b->r->error, 400, "invalid_value", b->r->protocol->prompt_param,
				   "Text %zu is empty.", i);
	if (text->second > text->n_ids)
		text->second = text->n_ids;
	return b->out->n > INT32_MAX ? fail_long(b, i, b->out->n, "") : 0;
}

static int build(struct ig_reply *r, struct building *b)
{
	struct ig_prepared *p = &r->prepared;
	const struct ig_request *q = &r->request;
	bool cut = false;

	if (q->query && encode(b, q->query, strlen(q->query), &b->query, &cut) < 0)
		return -1;
	if (cut)
		return fail_long(b, 0, b->m->n_context, "with its query more than ");
	if ((uint32_t)q->dimensions > b->m->n_results && b->m->traits.embeds)
		return ig_api_fail(&r->error, 400, "invalid_value", "dimensions",
				   "dimensions is %d; the vectors of the model '%s' have %u.",
				   q->dimensions, b->m->name, b->m->n_results);
	p->texts = calloc(q->n_prompts, sizeof *p->texts);
	p->prompts = calloc(1, sizeof *p->prompts);
	if (!p->texts || !p->prompts)
		return ig_fail_memory(&r->error);
	p->n_prompts = 1;
	p->n_texts = q->n_prompts;
	b->out = &p->prompts[0];
	for (size_t i = 0; i < q->n_prompts; i++)
		if (build_text(b, i, &p->texts[i]) < 0)
			return -1;
	return 0;
}

void ig_prepare_texts(struct ig_reply *r)
{
	struct building b = { .r = r, .m = r->prepared.model };

	build(r, &b);
	ig_ids_finish(&b.query);
	ig_ids_finish(&b.ids);
}
