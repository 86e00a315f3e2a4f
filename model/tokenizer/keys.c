/*
 * keys.c: see keys.h.  GGUF has a name for the way in which a text is split, where tokenizer.json
 * has expressions: each known name is tried until one gives the same ids.  Merges between
 * characters become the scores of their results.  The keys are read back as from a file and must
 * give the same ids, so a vocabulary that keys can't express is refused, never changed silently.
 */
#include "model/tokenizer/keys.h"

#include "base/log.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "model/formats/gguf_write.h"
#include "model/tokenizer/tokenizer_private.h"
#include "model/tokenizer/config_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_BYTES (1u << 20)

struct making {
	const struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	const struct ig_model_config *config;
	struct ig_strbuf b;
	uint64_t n_keys;
	bool strips; /* spaces at a text's end may have ids of their own in the folder only */
	struct ig_error *err;
};

/* ---- keys in the file's format -------------------------------------------------------------- */

static void put_text(struct ig_strbuf *b, const char *s, size_t len)
{
	uint64_t n = len;

	ig_strbuf_add(b, &n, sizeof n);
	ig_strbuf_add(b, s, len);
}

static void put_key(struct making *m, const char *key, uint32_t type)
{
	put_text(&m->b, key, strlen(key));
	ig_strbuf_add(&m->b, &type, sizeof type);
	m->n_keys++;
}

static void put_str(struct making *m, const char *key, const char *s, size_t len)
{
	put_key(m, key, IG_GGUF_STRING);
	put_text(&m->b, s, len);
}

static void put_bool(struct making *m, const char *key, bool v)
{
	char byte = v;

	put_key(m, key, IG_GGUF_BOOL);
	ig_strbuf_add(&m->b, &byte, 1);
}

/* No key for -1. */
static void put_id(struct making *m, const char *key, int32_t id)
{
	if (id < 0)
		return;
	put_key(m, key, IG_GGUF_U32);
	ig_strbuf_add(&m->b, &id, sizeof id);
}

static void put_array(struct making *m, const char *key, uint32_t type, uint64_t n)
{
	put_key(m, key, IG_GGUF_ARRAY);
	ig_strbuf_add(&m->b, &type, sizeof type);
	ig_strbuf_add(&m->b, &n, sizeof n);
}

/* ---- tokens and merges --------------------------------------------------------------------- */

/* GPT-2's alphabet: a character for each byte. */
static void spell_bytes(struct ig_strbuf *out, const char *s, size_t len)
{
	static const unsigned first_odd = 0x100;

	for (size_t i = 0; i < len; i++) {
		unsigned byte = (unsigned char)s[i], c = first_odd;
		char utf8[4];
		bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
		if (printable) {
			c = byte;
		} else { /* the others in ascending order from U+0100 on */
			for (unsigned b = 0; b < byte; b++)
				c += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad));
		}
		ig_strbuf_add(out, utf8, ig_utf8_put(utf8, c));
	}
}

static void spell_spaces(struct ig_strbuf *out, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (s[i] == ' ')
			ig_strbuf_add(out, "\xe2\x96\x81", 3);
		else
			ig_strbuf_add(out, s + i, 1);
}

static bool is_byte_token(const struct ig_tokenizer *t, uint32_t id)
{
	return t->model != IG_MODEL_BYTES && ig_tokenizer_len(t, (int32_t)id) == 1 &&
	       t->merges.byte_ids[(unsigned char)t->bytes[t->starts[id]]] == (int32_t)id;
}

static int32_t type_of(const struct ig_tokenizer *t, uint32_t id, int32_t unknown)
{
	if ((int32_t)id == unknown)
		return IG_TYPE_UNKNOWN;
	if (is_byte_token(t, id))
		return IG_TYPE_BYTE;
	switch (t->kinds[id]) {
	case IG_TOKEN_CONTROL: return IG_TYPE_CONTROL;
	case IG_TOKEN_USER: return IG_TYPE_USER;
	case IG_TOKEN_UNUSED: return IG_TYPE_UNUSED;
	default: return IG_TYPE_NORMAL;
	}
}

/* A token's text in the file's spelling. */
static void spell(struct ig_strbuf *out, const struct ig_tokenizer *t, uint32_t id)
{
	const char *s = t->bytes + t->starts[id];
	size_t len = ig_tokenizer_len(t, (int32_t)id);
	bool bytes = t->model == IG_MODEL_BYTES;

	if (is_byte_token(t, id))
		ig_strbuf_printf(out, "<0x%02X>", (unsigned char)*s);
	else if (t->kinds[id] == IG_TOKEN_CONTROL || (bytes && t->kinds[id] == IG_TOKEN_USER))
		ig_strbuf_add(out, s, len);
	else if (bytes)
		spell_bytes(out, s, len);
	else
		spell_spaces(out, s, len);
}

/* Append a spelled text as a string, and empty it. */
static void put_spelled(struct making *m, struct ig_strbuf *text)
{
	m->b.failed = m->b.failed || !ig_strbuf_ok(text);
	put_text(&m->b, text->len ? text->data : "", text->len);
	ig_strbuf_clear(text);
}

static void put_tokens(struct making *m, int32_t unknown)
{
	const struct ig_tokenizer *t = m->t;
	struct ig_strbuf text = { 0 };

	put_array(m, "tokenizer.ggml.tokens", IG_GGUF_STRING, t->n_vocab);
	for (uint32_t id = 0; id < t->n_vocab; id++) {
		spell(&text, t, id);
		put_spelled(m, &text);
	}
	put_array(m, "tokenizer.ggml.token_type", IG_GGUF_I32, t->n_vocab);
	for (uint32_t id = 0; id < t->n_vocab; id++) {
		int32_t type = type_of(t, id, unknown);
		ig_strbuf_add(&m->b, &type, sizeof type);
	}
	ig_strbuf_finish(&text);
}

static void put_merges(struct making *m)
{
	const struct ig_tokenizer *t = m->t;
	struct ig_strbuf text = { 0 };

	put_array(m, "tokenizer.ggml.merges", IG_GGUF_STRING, t->merges.n);
	for (uint32_t i = 0; i < t->merges.n; i++) {
		spell(&text, t, (uint32_t)t->merges.list[i].left);
		ig_strbuf_puts(&text, " ");
		spell(&text, t, (uint32_t)t->merges.list[i].right);
		put_spelled(m, &text);
	}
	ig_strbuf_finish(&text);
}

/* The first merge has the highest score. */
static int put_scores(struct making *m)
{
	const struct ig_tokenizer *t = m->t;
	float *scores = malloc(t->n_vocab * sizeof *scores);
	const double *known = NULL;

	if (!scores)
		return -ENOMEM;
	if (t->spm)
		ig_spm_made_of(t->spm, &known);
	for (uint32_t id = 0; id < t->n_vocab; id++)
		scores[id] = known ? (float)known[id] : -(float)(t->merges.n + 1);
	for (uint32_t i = t->merges.n; i > 0 && !known; i--)
		scores[t->merges.list[i - 1].result] = -(float)i;
	put_array(m, "tokenizer.ggml.scores", IG_GGUF_F32, t->n_vocab);
	ig_strbuf_add(&m->b, scores, t->n_vocab * sizeof *scores);
	free(scores);
	return 0;
}

/* ---- other keys ---------------------------------------------------------------------- */

static int32_t named(const struct making *m, const char *name)
{
	size_t len;
	const char *s = ig_model_config_token(m->config, name, &len);

	/* truncated at a NUL it would be another token */
	return s && strlen(s) == len ? ig_tokenizer_find_special(m->t, s) : -1;
}

/* The token that a model of embeddings has behind a text; -1: none, or it is no such model. */
static int32_t text_end(const struct making *m)
{
	char key[96];
	const char *arch;
	size_t len;

	if (m->t->suffix < 0 || ig_checkpoint_str(m->g, "general.architecture", &arch, &len, NULL))
		return -1;
	snprintf(key, sizeof key, "%.*s.pooling_type", len < 64 ? (int)len : 64, arch);
	return ig_checkpoint_u32(m->g, key, &(uint32_t){ 0 }, NULL) ? -1 : m->t->suffix;
}

/* end: the token that readers put behind a text, which they know as the end of a sequence; -1: they put none, or
 * know it by another key. */
static void put_ids(struct making *m, int32_t unknown, int32_t end)
{
	const struct ig_tokenizer *t = m->t;
	int32_t eos = end >= 0 ? end : named(m, "eos_token"), eot = -1;

	if (eos < 0 && t->n_ends)
		eos = t->ends[0];
	for (unsigned i = 0; i < t->n_ends && eot < 0; i++)
		eot = t->ends[i] != eos ? t->ends[i] : -1;
	put_id(m, "tokenizer.ggml.bos_token_id", t->bos);
	put_id(m, "tokenizer.ggml.eos_token_id", eos);
	put_id(m, "tokenizer.ggml.eot_token_id", eot);
	put_id(m, "tokenizer.ggml.unknown_token_id",
	       unknown >= 0 ? unknown : named(m, "unk_token"));
	put_id(m, "tokenizer.ggml.padding_token_id", named(m, "pad_token"));
	put_bool(m, "tokenizer.ggml.add_bos_token", t->add_bos);
	if (end >= 0)
		put_bool(m, "tokenizer.ggml.add_eos_token", true);
}

#define MAX_TEMPLATES 16

struct templates {
	struct making *m;
	const char *names[MAX_TEMPLATES]; /* those beside the default */
	size_t n;
};

static int take_template(void *ctx, const char *name, const char *text, size_t len)
{
	struct templates *all = ctx;
	char key[160];

	if (!strcmp(name, "default")) {
		put_str(all->m, "tokenizer.chat_template", text, len);
		return 0;
	}
	if (all->n == MAX_TEMPLATES || strlen(name) > 64)
		return -ENOTSUP;
	all->names[all->n++] = name;
	snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
	put_str(all->m, key, text, len);
	return 0;
}

static int put_templates(struct making *m)
{
	struct templates all = { .m = m };
	int rc = ig_model_config_templates(m->config, take_template, &all, m->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return m->err->code ? rc :
				      ig_fail(m->err, rc, "its chat templates can't be written");
	if (all.n) {
		put_array(m, "tokenizer.chat_templates", IG_GGUF_STRING, all.n);
		for (size_t i = 0; i < all.n; i++)
			put_text(&m->b, all.names[i], strlen(all.names[i]));
	}
	return 0;
}

/* ---- comparing ids -------------------------------------------------------------------------- */

/* A text on which splitters differ: letters of scripts, digits, marks, spaces, line ends,
 * contractions, characters that can be composed, invalid bytes. */
static const char probe[] =
	"Hello World, HELLOWorld don't DON'T I'll we'Re 1 12 123 1234 12345 1234567 3.14159 "
	"x2y33z  two   three    \t\ttab \n\n\nlines\r\n\r\n  indented\n    more\n"
	"if (a->b[0] != NULL && c_d == 0x1F) { return -1; } // done\n#include <a/b.h>\n"
	"snake_case camelCase PascalCase kebab-case ... --- !!! ??? $100 50% a@b.c http://x.y/z\n"
	"Z\xc3\xbcrich na\xc3\xafve cafe\xcc\x81 A\xcc\x8angstro\xcc\x88m \xc2\xa0nbsp\xc2\xa0 "
	"\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 "
	"\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf \xec\x95\x88\xeb\x85\x95 "
	"\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 "
	"\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
	"\xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4 \xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd "
	"\xe2\x80\x93\xe2\x80\x94\xe2\x80\xa6 \xff\xfe\x80 (\"quoted\") 'single' `code`\n"
	"word/word\\word !abc ,abc .abc 's 'S 'll  end   ";

/* The text above, and all tokens one after the other. */
static char *probe_text(const struct ig_tokenizer *t, size_t *len)
{
	size_t n = t->starts[t->n_vocab] < PROBE_BYTES ? t->starts[t->n_vocab] : PROBE_BYTES;
	char *text = malloc(sizeof probe + n);

	if (text) {
		memcpy(text, probe, sizeof probe - 1);
		memcpy(text + sizeof probe - 1, t->bytes, n);
		*len = sizeof probe - 1 + n;
	}
	return text;
}

/* 1, 0, or -ENOMEM.  plain: control tokens in the text are only compared as plain text. */
static int same_ids(const struct ig_tokenizer *a, const struct ig_tokenizer *b, const char *text,
		    size_t len, bool plain)
{
	struct ig_ids x = { 0 }, y = { 0 };
	int rc, same = 1;

	for (int special = 0; special < (plain ? 1 : 2) && same == 1; special++) {
		x.n = y.n = 0;
		if ((rc = ig_tokenizer_encode(a, text, len, special, SIZE_MAX, &x)) ||
		    (rc = ig_tokenizer_encode(b, text, len, special, SIZE_MAX, &y)))
			same = rc;
		else
			same = x.n == y.n && (!x.n || !memcmp(x.ids, y.ids, x.n * sizeof *x.ids));
	}
	ig_ids_finish(&x);
	ig_ids_finish(&y);
	return same;
}

/* What is put behind a text, and between two. */
static bool same_ends(const struct ig_tokenizer *a, const struct ig_tokenizer *b)
{
	return a->suffix == b->suffix && a->n_separators == b->n_separators &&
	       !memcmp(a->separators, b->separators, a->n_separators * sizeof *a->separators);
}

/* What a text passes before it is looked up. */
static bool same_words(const struct ig_tokenizer *a, const struct ig_tokenizer *b)
{
	const struct ig_wordpiece *x = &a->wordpiece, *y = &b->wordpiece;

	return x->clean == y->clean && x->chinese == y->chinese &&
	       x->strip_accents == y->strip_accents && x->lowercase == y->lowercase &&
	       x->max_chars == y->max_chars && x->unknown == y->unknown;
}

static bool same_marks(const struct ig_tokenizer *a, const struct ig_tokenizer *b)
{
	if (a->n_vocab != b->n_vocab || a->bos != b->bos || a->add_bos != b->add_bos)
		return false;
	for (unsigned i = 0; i < a->n_ends; i++)
		if (!ig_tokenizer_is_end(b, a->ends[i]))
			return false;
	if (a->model == IG_MODEL_UNIGRAM)
		return same_ends(a, b);
	return a->model != IG_MODEL_WORDPIECE || (same_words(a, b) && same_ends(a, b));
}

/* Read the keys back as from a file: 1 if they give the same ids, 0 if not. */
static int check(struct making *m, struct ig_tokenizer_keys *out)
{
	const struct ig_tokenizer *of = m->t;
	uint64_t n_keys = m->n_keys;
	struct ig_tokenizer *t = NULL;
	struct ig_error err = { 0 };
	char *text = NULL;
	size_t len = 0, n_probe = sizeof probe - 1;
	int rc;

	while (m->strips && probe[n_probe - 1] == ' ')
		n_probe--;
	if (!ig_strbuf_ok(&m->b))
		return -ENOMEM;
	memcpy(m->b.data + 16, &n_keys, sizeof n_keys);
	rc = ig_checkpoint_open_memory(m->b.data, m->b.len, ig_checkpoint_label(m->g), &out->file,
				       &err);
	if (rc == 0)
		rc = ig_tokenizer_open(out->file, &t, &err);
	if (rc) {
		rc = rc == -ENOMEM ? rc : 0;
		goto out;
	}
	text = probe_text(of, &len);
	rc = text ? same_marks(of, t) && (text_end(m) < 0 || t->suffix == text_end(m)) : -ENOMEM;
	if (rc > 0)
		rc = same_ids(of, t, probe, n_probe, m->strips);
	if (rc > 0)
		rc = same_ids(of, t, text, len, m->strips);
out:
	free(text);
	ig_tokenizer_close(t);
	if (rc <= 0) {
		ig_checkpoint_close(out->file);
		out->file = NULL;
	}
	return rc;
}

/* ---- the five kinds ------------------------------------------------------------------------- */

static void begin(struct making *m)
{
	static const char head[24] = "GGUF\3";

	ig_strbuf_add(&m->b, head, sizeof head);
	m->n_keys = 0;
}

static int refuse(struct making *m, const char *what)
{
	return ig_fail(m->err, -ENOTSUP, "its tokenizer can't be expressed in a GGUF file: %s",
		       what);
}

static int make_bytes(struct making *m, struct ig_tokenizer_keys *out)
{
	/* Of names with the same meaning, the most common one. */
	static const char *const names[] = {
		"gpt-2",  "llama-bpe", "qwen2",	 "deepseek-r1-qwen", "smollm",
		"tekken", "gpt-4o",    "olmo",	 "deepseek-v3",	     "deepseek-coder",
		"qwen35", "kimi-k2",   "laguna", "default",	     NULL,
	};
	int rc;

	begin(m);
	put_str(m, "tokenizer.ggml.model", "gpt2", 4);
	put_tokens(m, -1);
	put_merges(m);
	put_ids(m, -1, text_end(m));
	if ((rc = put_templates(m)))
		return rc;
	size_t len = m->b.len;
	uint64_t n_keys = m->n_keys;
	for (const char *const *name = names; *name; name++) {
		m->b.len = len;
		m->n_keys = n_keys;
		put_str(m, "tokenizer.ggml.pre", *name, strlen(*name));
		rc = check(m, out);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return refuse(m, "its splitting of texts has no name there");
}

static int make_scores(struct making *m, struct ig_tokenizer_keys *out)
{
	const struct ig_tokenizer *t = m->t;
	const double *scores;
	int32_t unknown = t->spm ? ig_spm_made_of(t->spm, &scores)->unknown : t->pairs.unknown;
	int rc;

	begin(m);
	put_str(m, "tokenizer.ggml.model", "llama", 5);
	put_str(m, "tokenizer.ggml.pre", "default", 7);
	put_tokens(m, unknown);
	if ((rc = put_scores(m)))
		return rc;
	put_ids(m, unknown, text_end(m));
	if ((rc = put_templates(m)))
		return rc;
	size_t len = m->b.len;
	uint64_t n_keys = m->n_keys;
	for (int add = 1; add >= 0; add--) {
		m->b.len = len;
		m->n_keys = n_keys;
		put_bool(m, "tokenizer.ggml.add_space_prefix", add);
		put_bool(m, "tokenizer.ggml.remove_extra_whitespaces", t->trims);
		rc = check(m, out);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return refuse(m, "its merges don't follow from scores");
}

/* What models of texts have besides: the tokens around a text, and the number of texts' types. */
static void put_marks(struct making *m)
{
	const struct ig_checkpoint_tensor *types =
		ig_checkpoint_find_tensor(m->g, "token_types.weight");

	put_id(m, "tokenizer.ggml.cls_token_id", m->t->bos);
	put_id(m, "tokenizer.ggml.seperator_token_id", m->t->suffix);
	put_id(m, "tokenizer.ggml.mask_token_id", named(m, "mask_token"));
	if (types)
		put_id(m, "tokenizer.ggml.token_type_count", (int32_t)types->n_rows);
}

/* Of BERT.  The keys have no place for how a text is cleaned: readers take it as of models without case. */
static int make_words(struct making *m, struct ig_tokenizer_keys *out)
{
	const struct ig_tokenizer *t = m->t;
	int rc;

	begin(m);
	put_str(m, "tokenizer.ggml.model", "bert", 4);
	put_tokens(m, -1); /* a word's first token begins with a space, others do not */
	put_ids(m, t->wordpiece.unknown, -1);
	put_marks(m);
	if ((rc = put_templates(m)))
		return rc;
	rc = check(m, out);
	if (rc)
		return rc < 0 ? rc : 0;
	return refuse(m, t->wordpiece.lowercase && t->wordpiece.strip_accents ?
				 "its words are cut or marked in another way than BERT's" :
				 "it is a WordPiece model with case or accents");
}

/* SentencePiece's unigram: whether a space is put before a text, and others stripped and merged, is tried. */
static int make_unigram(struct making *m, struct ig_tokenizer_keys *out)
{
	const struct ig_tokenizer *t = m->t;
	const double *scores;
	const int32_t unknown = ig_spm_made_of(t->spm, &scores)->unknown;
	struct ig_strbuf map = { 0 };
	int rc;

	begin(m);
	put_str(m, "tokenizer.ggml.model", "t5", 2);
	put_str(m, "tokenizer.ggml.pre", "default", 7);
	put_tokens(m, unknown);
	if ((rc = put_scores(m)))
		return rc;
	put_ids(m, unknown, -1);
	put_marks(m);
	put_bool(m, "tokenizer.ggml.add_eos_token", t->suffix >= 0);
	put_bool(m, "tokenizer.ggml.add_sep_token", t->n_separators == 2);
	ig_normalizer_put_charsmap(t->normalizer, &map);
	m->b.failed |= map.failed;
	if (map.len) {
		put_array(m, "tokenizer.ggml.precompiled_charsmap", IG_GGUF_U8, map.len);
		ig_strbuf_add(&m->b, map.data, map.len);
	}
	ig_strbuf_finish(&map);
	if ((rc = put_templates(m)))
		return rc;
	size_t len = m->b.len;
	uint64_t n_keys = m->n_keys;
	for (int way = 0; way < 5; way++) {
		m->b.len = len;
		m->n_keys = n_keys;
		m->strips = way == 4; /* as way 0 */
		put_bool(m, "tokenizer.ggml.add_space_prefix", way < 2 || way == 4);
		put_bool(m, "tokenizer.ggml.remove_extra_whitespaces", way % 2 == 0);
		rc = check(m, out);
		if (rc > 0 && m->strips)
			ig_log_warn(
				"%s: the folder's tokenizer makes a token of the spaces that a text ends in; "
				"readers of the GGUF file strip them",
				ig_checkpoint_label(m->g));
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return refuse(m, "its unigram model cuts or replaces in another way than SentencePiece");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* SentencePiece's own file has the scores, which tokenizer.json lacks. */
static int find_but_json(void *ctx, const char *name, const char **data, size_t *len,
			 struct ig_error *err)
{
	return strcmp(name, "tokenizer.json") ? ig_checkpoint_sibling(ctx, name, data, len, err) :
						-ENOENT;
}

static int make_pairs(struct making *m, struct ig_tokenizer_keys *out)
{
	const struct ig_model_files files = { find_but_json, (void *)(uintptr_t)m->g };
	struct ig_tokenizer *pairs = m->t;
	struct ig_error ignored = { 0 };
	int rc = ig_tokenizer_open_files(&files, true, &m->t, &ignored);

	/* It gives the same ids except for peculiarities of the other library. */
	if (rc == 0 && m->t->model == IG_MODEL_SCORES) {
		rc = same_ids(pairs, m->t, probe, sizeof probe - 1, false);
		rc = rc > 0 ? make_scores(m, out) : rc < 0 ? rc : -ENOTSUP;
	} else if (rc == 0) {
		rc = -ENOTSUP;
	}
	if (m->t != pairs)
		ig_tokenizer_close(m->t);
	m->t = pairs;
	if (rc == 0 || rc == -ENOMEM)
		return rc;
	*m->err = (struct ig_error){ 0 };
	ig_strbuf_clear(&m->b);
	return make_scores(m, out);
}

int ig_tokenizer_keys_make(const struct ig_checkpoint *folder, struct ig_tokenizer_keys *out,
			   struct ig_error *err)
{
	const struct ig_model_files files = ig_model_files_of(folder);
	struct ig_error inside = { 0 };
	struct making m = { .g = folder, .err = &inside };
	struct ig_model_config config;
	int rc;

	*out = (struct ig_tokenizer_keys){ 0 };
	if ((rc = ig_tokenizer_open(folder, &m.t, err)))
		return rc;
	rc = ig_model_config_read(&files, &config, &inside);
	if (rc == 0) {
		m.config = &config;
		switch (m.t->model) {
		case IG_MODEL_BYTES: rc = make_bytes(&m, out); break;
		case IG_MODEL_PAIRS: rc = make_pairs(&m, out); break;
		case IG_MODEL_SCORES: rc = make_scores(&m, out); break;
		case IG_MODEL_WORDPIECE: rc = make_words(&m, out); break;
		case IG_MODEL_UNIGRAM: rc = make_unigram(&m, out); break;
		}
		ig_model_config_finish(&config);
	}
	if (rc == 0) {
		out->data = m.b.data; /* the file points into it */
		m.b = (struct ig_strbuf){ 0 };
	} else if (rc == -ENOMEM) {
		ig_fail(err, rc, "%s: out of memory for the tokenizer's keys",
			ig_checkpoint_label(folder));
	} else {
		ig_fail(err, rc, "%s: %s", ig_checkpoint_label(folder), inside.text);
	}
	ig_strbuf_finish(&m.b);
	ig_tokenizer_close(m.t);
	return rc;
}

void ig_tokenizer_keys_finish(struct ig_tokenizer_keys *k)
{
	ig_checkpoint_close(k->file);
	free(k->data);
	*k = (struct ig_tokenizer_keys){ 0 };
}
