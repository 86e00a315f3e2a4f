/* ollama_embed.c: /api/embed, and the older /api/embeddings, whose vectors are not scaled to length 1. */
#include "daemon/protocol/embeddings/embeddings.h"
#include "daemon/protocol/ollama/ollama_private.h"

#include "base/clock.h"
#include "daemon/protocol/core/reply.h"

#include <stdlib.h>

static int param_input(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_texts(r, name, v, false, e);
}

static int param_prompt(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_string(v) ? ig_read_texts(r, name, v, false, e) :
				   ig_fail_type(e, name, "a string", v);
}

static const struct ig_param embed_common[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model), .required = true },
	{ "options", .read = ig_ollama_options },
	{ "keep_alive", .read = ig_ollama_keep_alive },
	{ NULL },
};

static const struct ig_param embed_params[] = {
	{ "input", .read = param_input, .required = true },
	{ "truncate", IG_PARAM_BOOL, IG_AT(truncate) },
	{ "dimensions", IG_PARAM_INT, IG_AT(dimensions), 1, 1 << 20 },
	{ .more = embed_common },
	{ NULL },
};

static const struct ig_param embeddings_params[] = {
	{ "prompt", .read = param_prompt, .required = true },
	{ .more = embed_common },
	{ NULL },
};

/* A text that is too long is cut by default. */
static int read_body(struct ig_request *r, const struct ig_param *table, json_t *root,
		     struct ig_api_error *e)
{
	r->truncate = true;
	if (ig_params_read(r, r, table, NULL, root, e) < 0)
		return -1;
	return r->model[0] ? 0 : ig_fail_missing(e, "model");
}

static int check_embed(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return read_body(r, embed_params, root, e);
}

static int check_embeddings(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	r->raw_vectors = true;
	return read_body(r, embeddings_params, root, e);
}

static const struct ig_request_format embed_request = { .check = check_embed },
				      embeddings_request = { .check = check_embeddings };

static void put(struct ig_reply *r, struct ig_json_writer *w, const char *key, uint32_t i)
{
	uint32_t n;
	float *v = ig_embedding(r, i, &n);

	w->out->failed |= !v;
	if (v)
		ig_put_vector(w, key, v, n);
	free(v);
}

static void write_embed(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_putf(&w, "{'model': %s, 'embeddings': [", ig_reply_model_name(r));
	for (uint32_t i = 0; i < r->choices[0].vectors->n_rows; i++)
		put(r, &w, NULL, i);
	ig_json_putf(&w,
		     "], 'total_duration': %lld, 'load_duration': %lld, 'prompt_eval_count': %lld}",
		     (long long)(ig_now_ns() - r->origin->received_ns), (long long)r->waited_ns,
		     u.prompt);
}

static void write_embeddings(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	put(r, &w, "embedding", 0);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_ollama_embed_protocol = {
	.id_prefix = "embed-",
	.prompt_param = "input",
	.request = &embed_request,
	.task = IG_TASK_EMBED,
	.act = ig_ollama_prepare,
	.whole = write_embed,
	.error = ig_ollama_error,
};

const struct ig_protocol ig_ollama_embeddings_protocol = {
	.id_prefix = "embed-",
	.prompt_param = "prompt",
	.request = &embeddings_request,
	.task = IG_TASK_EMBED,
	.act = ig_ollama_prepare,
	.whole = write_embeddings,
	.error = ig_ollama_error,
};
