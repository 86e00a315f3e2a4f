/*
 * embeddings_writer.c: the responses of /v1/embeddings and /v1/rerank.  Vectors are cut to the
 * dimensions that were asked for, then scaled to length 1.  A score is the probability that a text
 * answers the query: the logistic function of the model's one logit, or the share of its first of two.
 */
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/embeddings/embeddings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ig_vectors *vectors_of(const struct ig_reply *r)
{
	return r->choices[0].vectors;
}

float *ig_embedding(const struct ig_reply *r, uint32_t i, uint32_t *n)
{
	const struct ig_vectors *v = vectors_of(r);
	const uint32_t wanted = (uint32_t)r->request.dimensions;
	float *out;
	double sum = 0;

	*n = wanted && wanted < v->n_columns ? wanted : v->n_columns;
	out = malloc(*n * sizeof *out + 1);
	if (!out)
		return NULL;
	memcpy(out, v->rows + (size_t)i * v->n_columns, *n * sizeof *out);
	if (r->request.raw_vectors)
		return out;
	for (uint32_t k = 0; k < *n; k++)
		sum += (double)out[k] * (double)out[k];
	for (uint32_t k = 0; k < *n && sum > 0; k++)
		out[k] = (float)((double)out[k] / sqrt(sum));
	return out;
}

/* A number of a vector of length 1 has nine decimals: half a unit of the last is less than a float's
 * own error from 0.01 on, and never matters to a sum of products. */
static size_t put_number(char *to, float x)
{
	char digits[9], *p = to;
	int64_t n = llround(fabs((double)x) * 1e9);

	if (!(fabsf(x) <= 1.0f))
		return isfinite(x) ? (size_t)sprintf(to, "%.9g", (double)x) :
				     (size_t)sprintf(to, "null");
	if (x < 0 && n)
		*p++ = '-';
	*p++ = (char)('0' + n / 1000000000);
	*p++ = '.';
	n %= 1000000000;
	for (int i = 9; i-- > 0; n /= 10)
		digits[i] = (char)('0' + n % 10);
	memcpy(p, digits, sizeof digits);
	return (size_t)(p + sizeof digits - to);
}

void ig_put_vector(struct ig_json_writer *w, const char *key, const float *v, uint32_t n)
{
	ig_json_open_array(w, key);
	ig_strbuf_reserve(w->out, (size_t)n * 16);
	for (uint32_t i = 0; i < n; i++) {
		char text[32];
		size_t len = put_number(text + 1, v[i]);
		text[0] = ',';
		ig_strbuf_add(w->out, text + !i, len + (i > 0));
	}
	w->comma = n > 0;
	ig_json_close_array(w);
}

/* Little-endian floats. */
static void put_base64(struct ig_json_writer *w, const char *key, const float *v, uint32_t n)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n_bytes = (size_t)n * 4, len = (n_bytes + 2) / 3 * 4;
	char *text = malloc(len + 1), *to = text;
	unsigned char three[3];
	size_t held = 0;

	w->out->failed |= !text;
	for (size_t i = 0; text && i < n_bytes; i++) {
		uint32_t bits;
		memcpy(&bits, &v[i / 4], sizeof bits);
		three[held++] = (unsigned char)(bits >> i % 4 * 8);
		if (held < 3 && i + 1 < n_bytes)
			continue;
		memset(three + held, 0, 3 - held);
		*to++ = alphabet[three[0] >> 2];
		*to++ = alphabet[(three[0] & 3) << 4 | three[1] >> 4];
		*to++ = held > 1 ? alphabet[(three[1] & 15) << 2 | three[2] >> 6] : '=';
		*to++ = held > 2 ? alphabet[three[2] & 63] : '=';
		held = 0;
	}
	if (text)
		ig_json_put_string(w, key, text, (size_t)(to - text));
	free(text);
}

static void put_usage(struct ig_reply *r, struct ig_json_writer *w)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_putf(w, "'usage': {'prompt_tokens': %lld, 'total_tokens': %lld}", u.prompt,
		     u.prompt);
}

static void write_embeddings(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_vectors *v = vectors_of(r);
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (uint32_t i = 0; i < v->n_rows; i++) {
		uint32_t n;
		float *x = ig_embedding(r, i, &n);
		ig_json_putf(&w, "{'object': 'embedding', 'index': %u", i);
		out->failed |= !x;
		if (x && r->request.base64)
			put_base64(&w, "embedding", x, n);
		else if (x)
			ig_put_vector(&w, "embedding", x, n);
		ig_json_close_object(&w);
		free(x);
	}
	ig_json_putf(&w, "], 'model': %s", ig_reply_model_name(r));
	put_usage(r, &w);
	ig_json_close_object(&w);
}

/* ---- rerank --------------------------------------------------------------------------- */

struct scored {
	uint32_t index;
	double score;
};

static int by_score(const void *a, const void *b)
{
	const struct scored *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

static double score_of(const struct ig_vectors *v, uint32_t i)
{
	const float *x = v->rows + (size_t)i * v->n_columns;
	double margin = v->n_columns > 1 ? (double)x[0] - (double)x[1] : (double)x[0];

	return 1 / (1 + exp(-margin));
}

static void write_rerank(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_vectors *v = vectors_of(r);
	const struct ig_request *q = &r->request;
	struct scored *list = calloc(v->n_rows, sizeof *list);
	struct ig_json_writer w = { .out = out };
	uint32_t n = v->n_rows;

	out->failed |= !list;
	for (uint32_t i = 0; list && i < n; i++)
		list[i] = (struct scored){ i, score_of(v, i) };
	if (list)
		qsort(list, n, sizeof *list, by_score);
	if (q->top_n && (uint32_t)q->top_n < n)
		n = (uint32_t)q->top_n;
	ig_json_putf(&w, "{'id': %s, 'object': 'list', 'model': %s", r->id, ig_reply_model_name(r));
	put_usage(r, &w);
	ig_json_open_array(&w, "results");
	for (uint32_t i = 0; list && i < n; i++) {
		const struct ig_prompt *p = &q->prompts[list[i].index];
		ig_json_putf(&w, "{'index': %u", list[i].index);
		ig_json_put_real(&w, "relevance_score", "%.9g", list[i].score);
		if (q->return_documents) {
			ig_json_open_object(&w, "document");
			ig_json_put_string(&w, "text", p->text, p->len);
			ig_json_close_object(&w);
		}
		ig_json_close_object(&w);
	}
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	free(list);
}

const struct ig_protocol ig_embeddings_protocol = {
	.id_prefix = "embd-",
	.prompt_param = "input",
	.request = &ig_embeddings_request,
	.task = IG_TASK_EMBED,
	.whole = write_embeddings,
	.error = ig_error_object,
};

const struct ig_protocol ig_rerank_protocol = {
	.id_prefix = "rerank-",
	.prompt_param = "documents",
	.request = &ig_rerank_request,
	.task = IG_TASK_RANK,
	.whole = write_rerank,
	.error = ig_error_object,
};
