/* embeddings_request.c: the bodies of POST /v1/embeddings, in OpenAI's format, and of POST /v1/rerank, in
 * Jina's and Cohere's. */
#include "daemon/protocol/embeddings/embeddings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ----------------------------------------------------------------------------- */

static int read_ids(struct ig_prompt *p, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_array_size(v))
		return ig_fail_value(e, name, "expected at least one token");
	p->ids = malloc(json_array_size(v) * sizeof *p->ids);
	if (!p->ids)
		return ig_fail_memory(e);
	for (; p->n_ids < json_array_size(v); p->n_ids++) {
		char sub[96];
		snprintf(sub, sizeof sub, "%s[%zu]", name, p->n_ids);
		if (ig_read_int(&p->ids[p->n_ids], 0, INT32_MAX, sub, json_array_get(v, p->n_ids),
				e) < 0)
			return -1;
	}
	return 0;
}

static int read_one(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	struct ig_prompt *p = &r->prompts[r->n_prompts++];

	if (json_is_array(v))
		return read_ids(p, name, v, e);
	p->len = json_string_length(v);
	p->text = ig_copy_text(json_string_value(v), p->len);
	return p->text ? 0 : ig_fail_memory(e);
}

int ig_read_texts(struct ig_request *r, const char *name, json_t *v, bool ids,
		  struct ig_api_error *e)
{
	const char *kinds = ids ? "a string, a list of tokens, or a list of either" :
				  "a string or a list of strings";
	bool list = json_is_array(v) && !(ids && json_is_integer(json_array_get(v, 0)));
	size_t n = list ? json_array_size(v) : 1;

	if (!json_is_array(v) && !json_is_string(v))
		return ig_fail_type(e, name, kinds, v);
	if (!n || n > IG_MAX_TEXTS)
		return ig_fail_value(e, name, "expected 1 to %d texts, got %zu", IG_MAX_TEXTS, n);
	r->prompts = calloc(n, sizeof *r->prompts);
	if (!r->prompts)
		return ig_fail_memory(e);
	if (!list)
		return read_one(r, name, v, e);
	for (size_t i = 0; i < n; i++) {
		json_t *x = json_array_get(v, i);
		char sub[64];
		snprintf(sub, sizeof sub, "%s[%zu]", name, i);
		if (!json_is_string(x) && !(ids && json_is_array(x)))
			return ig_fail_type(e, sub,
					    ids ? "a string or a list of tokens" : "a string", x);
		if (read_one(r, sub, x, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- embeddings --------------------------------------------------------------------------- */

static int param_input(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_texts(r, name, v, true, e);
}

static int param_encoding(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *s = json_string_value(v);

	if (!s)
		return ig_fail_type(e, name, "a string", v);
	r->base64 = !strcmp(s, "base64");
	return r->base64 || !strcmp(s, "float") ?
		       0 :
		       ig_fail_value(e, name, "expected \"float\" or \"base64\"");
}

static const struct ig_param embeddings_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "input", .read = param_input, .required = true },
	{ "encoding_format", .read = param_encoding },
	{ "dimensions", IG_PARAM_INT, IG_AT(dimensions), 1, 1 << 20 },
	{ "user", IG_PARAM_SKIP },
	{ .more = ig_order_params },
	{ NULL },
};

const struct ig_request_format ig_embeddings_request = { embeddings_params, NULL };

/* ---- rerank ------------------------------------------------------------------------------- */

/* Texts, or objects with a member text. */
static int param_documents(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	size_t n = json_array_size(v);

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list of strings", v);
	if (!n || n > IG_MAX_TEXTS)
		return ig_fail_value(e, name, "expected 1 to %d texts, got %zu", IG_MAX_TEXTS, n);
	r->prompts = calloc(n, sizeof *r->prompts);
	if (!r->prompts)
		return ig_fail_memory(e);
	for (size_t i = 0; i < n; i++) {
		json_t *x = json_array_get(v, i);
		char sub[64];
		snprintf(sub, sizeof sub, "%s[%zu]", name, i);
		if (json_is_object(x))
			x = json_object_get(x, "text");
		if (!json_is_string(x))
			return ig_fail_type(e, sub, "a string, or an object with a text",
					    json_array_get(v, i));
		if (read_one(r, sub, x, e) < 0)
			return -1;
	}
	return 0;
}

static const struct ig_param rerank_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "query", IG_PARAM_STRING, IG_AT(query), .required = true },
	{ "documents", .read = param_documents, .required = true },
	{ "top_n", IG_PARAM_INT, IG_AT(top_n), 1, INT32_MAX },
	{ "return_documents", IG_PARAM_BOOL, IG_AT(return_documents) },
	{ "max_tokens_per_doc", IG_PARAM_INT, IG_AT(max_doc_tokens), 1, INT32_MAX },
	{ "user", IG_PARAM_SKIP },
	{ .more = ig_order_params },
	{ NULL },
};

static int check_rerank(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	r->truncate = true;
	return r->query[0] ? 0 : ig_fail_value(e, "query", "expected a text that is not empty");
}

const struct ig_request_format ig_rerank_request = { rerank_params, check_rerank };
