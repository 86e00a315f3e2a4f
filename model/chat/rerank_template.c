/*
 * rerank_template.c: see rerank_template.h.  Query and document are encoded together with the template's
 * text, since a token may reach from one into the other; only where the document must be cut is what is
 * behind it encoded alone.
 */
#include "model/chat/rerank_template.h"

#include "base/strbuf.h"
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char query_mark[] = "{query}", document_mark[] = "{document}";

struct ig_rerank_template {
	const struct ig_tokenizer *tokenizer;
	char *text; /* [len] */
	size_t len;
	size_t document; /* where its mark begins */
};

static const char *find(const char *text, size_t len, const char *mark)
{
	return memmem(text, len, mark, strlen(mark));
}

int ig_rerank_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			    struct ig_rerank_template **out, struct ig_error *err)
{
	static const char key[] = "tokenizer.chat_template.rerank";
	const size_t n_mark = sizeof document_mark - 1;
	struct ig_rerank_template *c;
	const char *s, *at;
	unsigned n_between;
	size_t len;
	int rc = ig_checkpoint_str(g, key, &s, &len, err);

	*out = NULL;
	if (rc == -ENOENT) {
		ig_tokenizer_separators(t, &n_between);
		*err = (struct ig_error){ 0 };
		return n_between ? 0 :
				   ig_fail(err, -ENOTSUP,
					   "%s: a reranker without %s, whose tokenizer has nothing "
					   "between a query and a text",
					   ig_checkpoint_label(g), key);
	}
	if (rc)
		return rc;
	at = find(s, len, document_mark);
	if (!at || !find(s, len, query_mark) ||
	    find(at + n_mark, len - (size_t)(at - s) - n_mark, document_mark))
		return ig_fail(err, -EINVAL, "%s: %s has not {query} and, once, {document}",
			       ig_checkpoint_label(g), key);
	c = calloc(1, sizeof *c);
	if (c)
		c->text = malloc(len);
	if (!c || !c->text) {
		free(c);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	c->tokenizer = t;
	c->len = len;
	c->document = (size_t)(at - s);
	memcpy(c->text, s, len);
	*out = c;
	return 0;
}

void ig_rerank_template_close(struct ig_rerank_template *c)
{
	if (c)
		free(c->text);
	free(c);
}

/* A prompt, and of each byte whether it is a client's. */
struct prompt {
	struct ig_strbuf text, client;
};

static void put(struct prompt *p, const char *s, size_t len, char client)
{
	ig_strbuf_add(&p->text, s, len);
	for (size_t i = 0; i < len; i++)
		ig_strbuf_add(&p->client, &client, 1);
}

/* Bytes from … to of the template, which has no {document} in them. */
static void put_part(struct prompt *p, const struct ig_rerank_template *c, size_t from, size_t to,
		     const char *query, size_t n_query)
{
	while (from < to) {
		const char *mark = find(c->text + from, to - from, query_mark);
		const size_t n = (mark ? (size_t)(mark - c->text) : to) - from;
		put(p, c->text + from, n, 0);
		if (mark)
			put(p, query, n_query, 1);
		from += n + (mark ? sizeof query_mark - 1 : 0);
	}
}

static int encode(const struct ig_rerank_template *c, const struct prompt *p, size_t from,
		  size_t to, struct ig_ids *out)
{
	if (!ig_strbuf_ok(&p->text) || !ig_strbuf_ok(&p->client))
		return -ENOMEM;
	return to == from ? 0 :
			    ig_tokenizer_encode_marked(c->tokenizer, p->text.data + from,
						       (const uint8_t *)p->client.data + from,
						       to - from, SIZE_MAX, out);
}

/* The same with a document that may have to be cut: it is bytes start … end of the prompt. */
static int encode_cut(const struct ig_rerank_template *c, const struct prompt *p, size_t start,
		      size_t end, size_t max_document, size_t max_ids, struct ig_ids *whole)
{
	struct ig_ids before = { 0 }, head = { 0 }, tail = { 0 };
	size_t most;
	int rc = encode(c, p, 0, start, &before);

	if (!rc)
		rc = encode(c, p, 0, end, &head);
	if (!rc)
		rc = encode(c, p, end, p->text.len, &tail);
	if (!rc && before.n + tail.n >= max_ids)
		rc = -E2BIG;
	most = rc ? 0 : max_ids - tail.n;
	if (!rc && max_document && max_document < most - before.n)
		most = before.n + max_document;
	if (!rc && (whole->n > max_ids || head.n > most)) {
		whole->n = 0;
		rc = ig_ids_add(whole, head.ids, head.n < most ? head.n : most, SIZE_MAX);
		if (!rc)
			rc = ig_ids_add(whole, tail.ids, tail.n, SIZE_MAX);
	}
	ig_ids_finish(&before);
	ig_ids_finish(&head);
	ig_ids_finish(&tail);
	return rc;
}

int ig_rerank_template_encode(const struct ig_rerank_template *c, const char *query, size_t n_query,
			      const char *document, size_t n_document, size_t max_document,
			      size_t max_ids, struct ig_ids *out)
{
	struct prompt p = { 0 };
	struct ig_ids ids = { 0 };
	size_t start, end;
	int rc;

	put_part(&p, c, 0, c->document, query, n_query);
	start = p.text.len;
	put(&p, document, n_document, 1);
	end = p.text.len;
	put_part(&p, c, c->document + sizeof document_mark - 1, c->len, query, n_query);
	rc = encode(c, &p, 0, p.text.len, &ids);
	if (!rc && (max_document || ids.n > max_ids))
		rc = encode_cut(c, &p, start, end, max_document, max_ids, &ids);
	if (!rc)
		rc = ig_ids_add(out, ids.ids, ids.n, SIZE_MAX);
	ig_ids_finish(&ids);
	ig_strbuf_finish(&p.text);
	ig_strbuf_finish(&p.client);
	return rc;
}
