/*
 * hf_reranker.c: recognises folders of Qwen3-Reranker, whose config.json is that of a model that generates
 * text: by the module LogitScore of sentence-transformers, or as llama.cpp's converter does, by the
 * README's title or the folder's name.  A document's score are the logits of "yes" and "no" behind a prompt
 * that the model card has; both become what a GGUF file has: rows of the output matrix as cls.output, and
 * tokenizer.chat_template.rerank.  Conversions to Qwen3ForSequenceClassification have one row of their own,
 * score.weight: that of "yes" less that of "no".
 */
#include "model/formats/hf_config_private.h"

#include "base/json.h"
#include "base/json_scan.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const char prompt[] =
	"<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
	"the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
	"<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
	"answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
	"<|im_start|>assistant\n<think>\n\n</think>\n\n";

static bool has_word(const char *text, size_t len, const char *word)
{
	const size_t n = strlen(word);

	for (size_t i = 0; i + n <= len; i++)
		if (!strncasecmp(text + i, word, n))
			return true;
	return false;
}

/* A file of the folder; false: there is none, or after an error. */
static bool find(struct ig_hf_reading *r, const char *name, const char **text, size_t *len)
{
	struct ig_error why = { 0 };
	int rc = r->rc ? -ENOENT : ig_folder_sibling(r->g, name, text, len, &why);

	if (rc && rc != -ENOENT)
		r->rc = ig_fail(r->err, rc, "%s", why.text);
	return !rc;
}

/* The file as an object; the caller's.  NULL: as above. */
static json_t *find_json(struct ig_hf_reading *r, const char *name)
{
	json_t *root = NULL;
	const char *text;
	size_t len;

	if (find(r, name, &text, &len))
		r->rc = ig_json_read_file(name, text, len, &root, r->err);
	return root;
}

/* ---- LogitScore ------------------------------------------------------------------------------- */

static bool take_id(struct ig_hf_reading *r, const char *label, const json_t *v, const char *name,
		    uint32_t *out)
{
	const json_int_t id = json_integer_value(v);

	if (!json_is_integer(v) || id < 0 || id > INT32_MAX) {
		r->rc = ig_fail(r->err, -EINVAL, "%s: %s is not the id of a token", label, name);
		return false;
	}
	*out = (uint32_t)id;
	return true;
}

/* The ids in the module's file. */
static void take_ids(struct ig_hf_reading *r, const char *path)
{
	struct ig_hf_config *c = r->out;
	char name[128];
	json_t *j;

	if ((size_t)snprintf(name, sizeof name, "%s/config.json", path) >= sizeof name) {
		r->rc = ig_fail(r->err, -EINVAL,
				"modules.json: the path of LogitScore is too long");
		return;
	}
	j = find_json(r, name);
	if (!j && !r->rc)
		r->rc = ig_fail(r->err, -EINVAL, "%s is missing", name);
	if (!r->rc && take_id(r, name, json_object_get(j, "true_token_id"), "true_token_id",
			      &c->score_rows[0])) {
		const json_t *no = json_object_get(j, "false_token_id");
		c->n_scores = 1;
		if (no && !json_is_null(no) &&
		    take_id(r, name, no, "false_token_id", &c->score_rows[1]))
			c->n_scores = 2;
	}
	json_decref(j);
}

static void read_modules(struct ig_hf_reading *r)
{
	json_t *modules = find_json(r, "modules.json"), *one;
	size_t i;

	json_array_foreach(modules, i, one)
	{
		const char *type = json_string_value(json_object_get(one, "type"));
		const char *path = json_string_value(json_object_get(one, "path"));
		if (!r->rc && type && path && ig_ends_with(type, ".LogitScore"))
			take_ids(r, path);
	}
	json_decref(modules);
}

/* ---- the vocabulary ----------------------------------------------------------------------------- */

static const char *const answers[] = { "yes", "no" };

struct looking {
	int64_t id[2];
};

static int take_token(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct looking *l = ctx;

	for (int i = 0; i < 2; i++)
		if (len == strlen(answers[i]) && !memcmp(key, answers[i], len))
			return ig_json_scan_integer(s, &l->id[i]);
	return ig_json_scan_skip(s, NULL);
}

static int take_vocab(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	return len == 5 && !memcmp(key, "vocab", 5) && ig_json_scan_peek(s) == '{' ?
		       ig_json_scan_object(s, take_token, ctx) :
		       ig_json_scan_skip(s, NULL);
}

static int take_model(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	return len == 5 && !memcmp(key, "model", 5) && ig_json_scan_peek(s) == '{' ?
		       ig_json_scan_object(s, take_vocab, ctx) :
		       ig_json_scan_skip(s, NULL);
}

/* The ids of "yes" and "no" in tokenizer.json. */
static void read_answers(struct ig_hf_reading *r)
{
	static const char name[] = "tokenizer.json";
	struct looking l = { { -1, -1 } };
	struct ig_json_scan s;
	const char *text;
	size_t len;

	if (!find(r, name, &text, &len)) {
		if (!r->rc)
			r->rc = ig_fail(r->err, -EINVAL, "%s: a reranker of Qwen 3 without %s",
					r->out->gguf, name);
		return;
	}
	ig_json_scan_init(&s, name, text, len, r->err);
	r->rc = ig_json_scan_object(&s, take_model, &l);
	ig_json_scan_finish(&s);
	for (int i = 0; i < 2 && !r->rc; i++) {
		if (l.id[i] < 0 || l.id[i] > INT32_MAX)
			r->rc = ig_fail(r->err, -EINVAL, "%s: a reranker without the token \"%s\"",
					name, answers[i]);
		r->out->score_rows[i] = (uint32_t)l.id[i];
	}
	r->out->n_scores = 2;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static bool is_named(struct ig_hf_reading *r)
{
	const char *dir = r->g->folder->dir, *text;
	size_t end = strlen(dir), len, from;

	while (end && dir[end - 1] == '/')
		end--;
	for (from = end; from && dir[from - 1] != '/'; from--)
		;
	return has_word(dir + from, end - from, "qwen3-reranker") ||
	       (find(r, "README.md", &text, &len) && has_word(text, len, "# qwen3-reranker"));
}

/* One logit; of several labels nobody says which one means that a text is relevant. */
static bool read_label(struct ig_hf_reading *r)
{
	const json_t *labels = ig_hf_get(r->out->root, "id2label");

	r->out->no_output = true;
	if (labels && json_object_size(labels) != 1)
		r->rc = ig_fail(r->err, -ENOTSUP,
				"%s: id2label has %zu labels; a Qwen3ForSequenceClassification is "
				"supported as a reranker, with one",
				r->label, json_object_size(labels));
	ig_hf_put_u32(r, "pooling_type", 4);
	if (!r->rc && is_named(r))
		ig_hf_put_str(r, "tokenizer.chat_template.rerank", prompt);
	return true;
}

bool ig_hf_read_reranker(struct ig_hf_reading *r, const char *class)
{
	struct ig_hf_config *c = r->out;

	if (!class || strcmp(c->gguf, "qwen3"))
		return false;
	if (!strcmp(class, "Qwen3ForSequenceClassification"))
		return read_label(r);
	if (strcmp(class, "Qwen3ForCausalLM"))
		return false;
	read_modules(r);
	if (!c->n_scores && !r->rc && is_named(r))
		read_answers(r);
	if (r->rc || !c->n_scores)
		return false;
	ig_hf_put_u32(r, "pooling_type", 4);
	ig_hf_put_str(r, "tokenizer.chat_template.rerank", prompt);
	return true;
}
