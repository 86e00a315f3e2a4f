/*
 * tekken.c: a tokenizer from Mistral's tekken.json: byte-level BPE given only by the ranks of its
 * tokens, like tiktoken's, after a thousand special tokens.  The file has no merges.  A token is
 * merged from the two tokens that its bytes become by lower ranks, and never from others: merges
 * within a token's bytes do not depend on adjacent bytes.
 */
#include "base/json.h"
#include "base/json_scan.h"
#include "model/tokenizer/steps_private.h"

#include "base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SPECIAL 65536
#define MAX_TOKEN_TEXT (64u << 10)

/* For files that don't list them. */
static const char *const first_specials[] = {
	"<unk>",
	"<s>",
	"</s>",
	"[INST]",
	"[/INST]",
	"[AVAILABLE_TOOLS]",
	"[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]",
	"[/TOOL_RESULTS]",
	"[TOOL_CALLS]",
	"[IMG]",
	"<pad>",
	"[IMG_BREAK]",
	"[IMG_END]",
	"[PREFIX]",
	"[MIDDLE]",
	"[SUFFIX]",
	"[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]",
	"[TOOL_CONTENT]",
};
#define N_FIRST (sizeof first_specials / sizeof first_specials[0])

struct token {
	const char *text; /* base64, or a special token's text */
	size_t len;
};

struct reading {
	struct ig_builder *b;
	struct ig_error *err;
	json_t *config, *special_json;
	struct ig_json_scan vocab;
	bool has_vocab;
	struct token *tokens; /* [n_special + n_plain] */
	size_t n_special, n_plain, n_read;
	char (*names)[40];    /* [n_special] "<SPECIAL_17>" */
	unsigned char *bytes; /* of one token */
};

static int bad(struct reading *r, const char *what)
{
	return ig_fail(r->err, -EINVAL, "tekken.json: %s", what);
}

static bool is(const char *key, size_t len, const char *name)
{
	return strlen(name) == len && !memcmp(key, name, len);
}

static int take_key(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct reading *r = ctx;
	json_t **small = is(key, len, "config")		? &r->config :
			 is(key, len, "special_tokens") ? &r->special_json :
							  NULL;

	if (small)
		return *small ? ig_json_scan_bad(s, "a duplicate key") :
				ig_json_scan_json(s, small);
	if (!is(key, len, "vocab"))
		return ig_json_scan_skip(s, NULL);
	if (r->has_vocab)
		return ig_json_scan_bad(s, "a duplicate key");
	r->has_vocab = true;
	return ig_json_scan_skip(s, &r->vocab);
}

/* ---- the tokens --------------------------------------------------------------------------- */

static int read_sizes(struct reading *r)
{
	json_int_t n = json_integer_value(json_object_get(r->config, "default_vocab_size"));
	json_int_t special =
		json_integer_value(json_object_get(r->config, "default_num_special_tokens"));

	if (special < 0 || special > MAX_SPECIAL || n <= special || n > IG_MAX_VOCAB)
		return bad(r, "no valid default_vocab_size or default_num_special_tokens");
	r->n_special = (size_t)special;
	r->n_plain = (size_t)(n - special);
	/* A token takes more than a byte of the file. */
	if (!r->has_vocab || r->n_plain > (size_t)(r->vocab.end - r->vocab.p))
		return bad(r, "fewer tokens than default_vocab_size says");
	r->tokens = calloc((size_t)n, sizeof *r->tokens);
	r->names = calloc(r->n_special + 1, sizeof *r->names);
	r->bytes = malloc(MAX_TOKEN_TEXT);
	return r->tokens && r->names && r->bytes ? 0 : -ENOMEM;
}

static int read_special(struct reading *r)
{
	const json_t *one;
	size_t i;

	for (i = 0; i < r->n_special; i++) {
		bool known = !json_is_array(r->special_json) && i < N_FIRST;
		snprintf(r->names[i], sizeof r->names[i], "<SPECIAL_%zu>", i);
		r->tokens[i].text = known ? first_specials[i] : r->names[i];
		r->tokens[i].len = strlen(r->tokens[i].text);
	}
	if (!r->special_json || json_is_null(r->special_json))
		return 0;
	if (!json_is_array(r->special_json))
		return bad(r, "special_tokens is not a list");
	json_array_foreach(r->special_json, i, one)
	{
		const json_t *rank = json_object_get(one, "rank");
		const json_t *text = json_object_get(one, "token_str");
		json_int_t v = json_integer_value(rank);
		if (!json_is_integer(rank) || v < 0 || v >= (json_int_t)r->n_special ||
		    !json_is_string(text) || json_string_length(text) > MAX_TOKEN_TEXT)
			return bad(r, "a special token has no valid rank or token_str");
		r->tokens[v] = (struct token){ json_string_value(text), json_string_length(text) };
	}
	return 0;
}

struct entry {
	int64_t rank;
	struct token bytes;
	bool has_rank, has_bytes;
};

static int take_entry_key(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct entry *e = ctx;

	if (is(key, len, "rank")) {
		e->has_rank = true;
		return ig_json_scan_integer(s, &e->rank);
	}
	if (is(key, len, "token_bytes")) {
		e->has_bytes = true;
		return ig_json_scan_string(s, &e->bytes.text, &e->bytes.len);
	}
	return ig_json_scan_skip(s, NULL);
}

static int take_entry(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct reading *r = ctx;
	struct entry e = { 0 };
	int rc;

	if (i >= r->n_plain) /* the file may have more tokens than the model */
		return ig_json_scan_skip(s, NULL);
	if ((rc = ig_json_scan_object(s, take_entry_key, &e)))
		return rc;
	if (!e.has_rank || e.rank != (int64_t)i || !e.has_bytes || !e.bytes.len ||
	    e.bytes.len > MAX_TOKEN_TEXT)
		return ig_json_scan_bad(s, "a token without bytes, or whose rank is not its index");
	r->tokens[r->n_special + i] = e.bytes;
	r->n_read = i + 1;
	return 0;
}

static int build_tokens(struct reading *r)
{
	size_t n = r->n_special + r->n_plain, longest = 1;
	uint64_t n_bytes = 0;
	int rc;

	for (size_t i = 0; i < n; i++) {
		n_bytes += r->tokens[i].len;
		longest = r->tokens[i].len > longest ? r->tokens[i].len : longest;
	}
	rc = ig_builder_begin(r->b, IG_MODEL_BYTES, n, n_bytes, longest);
	for (size_t i = 0; i < n && !rc; i++) {
		const struct token *x = &r->tokens[i];
		if (i < r->n_special) {
			rc = ig_builder_token(r->b, i, IG_TYPE_CONTROL, x->text, x->len);
			continue;
		}
		int64_t len = ig_base64_decode(x->text, x->len, r->bytes);
		rc = len <= 0 ? bad(r, "token_bytes are not base64") :
				ig_builder_token(r->b, i, IG_TYPE_RAW, (const char *)r->bytes,
						 (size_t)len);
	}
	if (!rc && r->b->twice >= 0)
		rc = ig_fail(r->err, -EINVAL,
			     "tekken.json: token %d has the bytes of another token",
			     (int)r->b->twice);
	if (rc)
		return rc;
	ig_builder_tokens_end(r->b);
	return ig_tokenizer_collect_specials(r->b->t);
}

/* ---- merges ------------------------------------------------------------------------------- */

static int build_merges(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	struct ig_merge_work w = { 0 };
	int rc = ig_builder_begin_merges(r->b, r->n_plain);

	for (unsigned i = 0; i < 256 && !rc; i++)
		if (t->merges.byte_ids[i] < 0)
			rc = bad(r, "a byte has no token");
	for (uint32_t id = (uint32_t)r->n_special; id < t->n_vocab && !rc; id++) {
		const int32_t *ids;
		size_t n;
		if (ig_tokenizer_len(t, (int32_t)id) == 1)
			continue;
		rc = ig_merges_apply(&t->merges, &w, t->bytes + t->starts[id],
				     ig_tokenizer_len(t, (int32_t)id), &ids, &n);
		if (!rc && n != 2)
			rc = ig_fail(r->err, -ENOTSUP,
				     "tekken.json: token %u is not merged from two of lower rank",
				     (unsigned)id);
		if (!rc)
			ig_merges_add(&t->merges, ids[0], ids[1], (int32_t)id);
	}
	ig_merge_work_finish(&w);
	return rc;
}

static int add_pattern(struct reading *r, bool jit)
{
	const json_t *pattern = json_object_get(r->config, "pattern");
	struct ig_strbuf regex = { 0 };
	int rc;

	if (!json_is_string(pattern))
		return bad(r, "no pattern");
	rc = ig_regex_translate(json_string_value(pattern), json_string_length(pattern), &regex,
				r->err);
	if (!rc && !regex.len)
		rc = bad(r, "no pattern");
	if (!rc)
		rc = ig_splitter_create(&r->b->t->splitter);
	if (!rc)
		rc = ig_splitter_add(r->b->t->splitter, regex.data, IG_SPLIT_ISOLATED, false, jit,
				     r->err);
	ig_strbuf_finish(&regex);
	return rc;
}

int ig_tokenizer_read_tekken(struct ig_builder *b, const char *data, size_t len, bool jit)
{
	struct reading r = { .b = b, .err = b->err };
	struct ig_json_scan s;
	int rc;

	b->tokens = "tekken.json: vocab";
	b->merges = "tekken.json";
	ig_json_scan_init(&s, "tekken.json", data, len, b->err);
	if ((rc = ig_json_scan_object(&s, take_key, &r)) || (rc = ig_json_scan_end(&s)) ||
	    (rc = read_sizes(&r)) || (rc = read_special(&r)) ||
	    (rc = ig_json_scan_array(&r.vocab, take_entry, &r)))
		goto out;
	rc = r.n_read < r.n_plain ? bad(&r, "fewer tokens than default_vocab_size says") :
				    build_tokens(&r);
	if (rc || (rc = build_merges(&r)) || (rc = add_pattern(&r, jit)))
		goto out;
	b->t->cuts_user = true;
	b->t->ignore_merges = true;
	b->t->bos = ig_tokenizer_find_special(b->t, "<s>");
	b->t->add_bos = b->t->bos >= 0;
	ig_builder_end(b, ig_tokenizer_find_special(b->t, "</s>"));
out:
	free(r.bytes);
	free(r.names);
	free(r.tokens);
	ig_json_scan_finish(&r.vocab);
	ig_json_scan_finish(&s);
	json_decref(r.config);
	json_decref(r.special_json);
	return rc;
}
