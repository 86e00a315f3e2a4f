/*
 * tokenizer.c: opens a tokenizer, and encodes texts.  Special tokens (special.c) are cut out; the
 * text between them is normalized (normalize.c) and split into pieces (split.c); each piece becomes
 * ids (bpe.c, pairs.c, spm.c); BERT's does all of it itself (wordpiece.c).  Not every tokenizer has every step.
 */
#include "model/tokenizer/tokenizer.h"

#include "base/array.h"
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LONG_PIECE 4096 /* bytes: words are far shorter */

/* ---- open and close ------------------------------------------------------------- */

void ig_tokenizer_close(struct ig_tokenizer *t)
{
	if (!t)
		return;
	ig_spm_destroy(t->spm);
	ig_splitter_close(t->splitter);
	ig_normalizer_destroy(t->normalizer);
	ig_merges_finish(&t->merges);
	free(t->table.slots);
	free(t->specials.list);
	free(t->normal.list);
	free(t->patterns);
	free(t->kinds);
	free(t->starts);
	free(t->bytes);
	free(t);
}

static int find_sibling(void *ctx, const char *name, const char **data, size_t *len,
			struct ig_error *err)
{
	return ig_checkpoint_sibling(ctx, name, data, len, err);
}

struct ig_model_files ig_model_files_of(const struct ig_checkpoint *g)
{
	return (struct ig_model_files){ find_sibling, (void *)(uintptr_t)g };
}

static bool has_keys(const struct ig_checkpoint *g)
{
	const char *s;
	size_t len;

	return ig_checkpoint_str(g, "tokenizer.ggml.model", &s, &len, NULL) != -ENOENT;
}

int ig_tokenizer_open_with(const struct ig_checkpoint *g, bool jit, struct ig_tokenizer **out,
			   struct ig_error *err)
{
	struct ig_model_files files = ig_model_files_of(g);
	const char *label = ig_checkpoint_label(g);
	struct ig_error inside = { 0 };
	struct ig_builder b = { .err = &inside };
	int rc;

	*out = NULL;
	if (!has_keys(g)) {
		rc = ig_tokenizer_open_files(&files, jit, out, &inside);
		if (rc == -ENOENT)
			rc = ig_fail(&inside, rc,
				     "no tokenizer.ggml.model, and no tokenizer.json, "
				     "tokenizer.model or tekken.json beside it");
	} else {
		rc = ig_tokenizer_read_gguf(&b, g, jit);
		if (!rc)
			ig_builder_finish(&b, out);
		ig_builder_cancel(&b);
	}
	if (rc == -ENOMEM)
		ig_fail(err, rc, "out of memory for the tokenizer");
	else if (rc && !strncmp(inside.text, label, strlen(label)))
		ig_fail(err, rc, "%s", inside.text); /* its reader names the file */
	else if (rc)
		ig_fail(err, rc, "%s: %s", label, inside.text);
	return rc;
}

int ig_tokenizer_open(const struct ig_checkpoint *g, struct ig_tokenizer **out,
		      struct ig_error *err)
{
	return ig_tokenizer_open_with(g, true, out, err);
}

/* ---- accessors -------------------------------------------------------------- */

const char *ig_tokenizer_token(const struct ig_tokenizer *t, int32_t id, size_t *len, bool *special)
{
	if (id < 0 || (uint32_t)id >= t->n_vocab)
		return NULL;
	*len = ig_tokenizer_len(t, id);
	*special = t->kinds[id] == IG_TOKEN_CONTROL;
	return t->bytes + t->starts[id];
}

int32_t ig_tokenizer_n_vocab(const struct ig_tokenizer *t) { return (int32_t)t->n_vocab; }

int32_t ig_tokenizer_bos(const struct ig_tokenizer *t) { return t->bos; }

bool ig_tokenizer_add_bos(const struct ig_tokenizer *t) { return t->add_bos; }

int32_t ig_tokenizer_suffix(const struct ig_tokenizer *t) { return t->suffix; }

const int32_t *ig_tokenizer_separators(const struct ig_tokenizer *t, unsigned *n)
{
	*n = t->n_separators;
	return t->separators;
}

bool ig_tokenizer_is_end(const struct ig_tokenizer *t, int32_t id)
{
	for (unsigned i = 0; i < t->n_ends; i++)
		if (t->ends[i] == id)
			return true;
	return false;
}

size_t ig_tokenizer_longest(const struct ig_tokenizer *t) { return t->longest; }

bool ig_tokenizer_adds_space(const struct ig_tokenizer *t) { return t->adds_space; }

bool ig_tokenizer_trims(const struct ig_tokenizer *t) { return t->trims; }

/* ---- encode --------------------------------------------------------------------- */

struct encoding {
	const struct ig_tokenizer *t;
	struct ig_merge_work work;
	struct ig_spm_work *spm;
	struct ig_normal_work normal;
	char *piece; /* a copy with a space before it */
	size_t piece_cap;
	const char *first; /* the text's first piece; NULL: it came before */
	struct ig_ids *out;
	size_t max_ids;
};

void ig_ids_finish(struct ig_ids *l)
{
	free(l->ids);
	*l = (struct ig_ids){ 0 };
}

int ig_ids_add(struct ig_ids *l, const int32_t *ids, size_t n, size_t max_ids)
{
	if (n == 0) /* bytes without a token */
		return 0;
	if (l->n > max_ids || n > max_ids - l->n)
		return -E2BIG;
	if (!ig_array_grow(l->ids, &l->cap, l->n + n - 1))
		return -ENOMEM;
	memcpy(l->ids + l->n, ids, n * sizeof *ids);
	l->n += n;
	return 0;
}

/* Whether a piece has too many ids however it is merged: a hostile megabyte without a space is
 * refused early. */
static bool surely_too_long(const struct encoding *e, const char *piece, size_t len)
{
	size_t left = e->max_ids > e->out->n ? e->max_ids - e->out->n : 0, n = 0;

	if (len < LONG_PIECE || len / e->t->longest <= left)
		return false;
	for (size_t i = 0; i < len; i++)
		n += e->t->merges.byte_ids[(unsigned char)piece[i]] >= 0;
	return n / e->t->longest > left;
}

static int encode_piece(void *ctx, const char *piece, size_t len)
{
	struct encoding *e = ctx;
	const struct ig_tokenizer *t = e->t;
	const int32_t *ids;
	size_t n;
	int rc;

	if (len <= t->longest && t->ignore_merges) {
		int32_t id = ig_tokenizer_lookup(t, piece, len);
		if (id >= 0)
			return ig_ids_add(e->out, &id, 1, e->max_ids);
	}
	if (surely_too_long(e, piece, len))
		return -E2BIG;
	rc = ig_merges_apply(&t->merges, &e->work, piece, len, &ids, &n);
	return rc ? rc : ig_ids_add(e->out, ids, n, e->max_ids);
}

static int encode_word(struct encoding *e, const char *text, size_t len)
{
	const struct ig_tokenizer *t = e->t;

	return t->spm ? ig_spm_encode(t->spm, &e->spm, text, len, e->max_ids, e->out) :
			ig_pairs_encode(t, &e->work, text, len, e->max_ids, e->out);
}

static size_t space_len(const char *p, size_t n)
{
	return n && *p == ' ' ? 1 : ig_is_space_mark(p, n) ? 3 : 0;
}

/* Put a space before a piece. */
static int with_space(struct encoding *e, const char **piece, size_t *len)
{
	if (!ig_array_grow(e->piece, &e->piece_cap, *len))
		return -ENOMEM;
	e->piece[0] = ' ';
	memcpy(e->piece + 1, *piece, *len);
	*piece = e->piece;
	*len += 1;
	return 0;
}

/* Metaspace: a space before a piece that begins with none; optionally cut before each space. */
static int encode_unit(void *ctx, const char *piece, size_t len)
{
	struct encoding *e = ctx;
	const struct ig_tokenizer *t = e->t;
	bool first = piece == e->first;
	size_t from = 0;
	int rc = 0;

	if (!t->metaspace)
		return encode_word(e, piece, len);
	if (!space_len(piece, len) &&
	    (t->prefix == IG_PREFIX_ALWAYS || (t->prefix == IG_PREFIX_FIRST && first)))
		rc = with_space(e, &piece, &len);
	for (size_t i = 0; t->split_words && i < len && !rc;) {
		size_t n = space_len(piece + i, len - i);
		if (n && i > from) {
			rc = encode_word(e, piece + from, i - from);
			from = i;
		}
		i += n ? n : 1;
	}
	return rc ? rc : encode_word(e, piece + from, len - from);
}

/* The text between special tokens that are cut out of a normalized text. */
static int encode_normal(struct encoding *e, const char *text, size_t len)
{
	const struct ig_tokenizer *t = e->t;
	int (*each)(void *ctx, const char *piece, size_t len) =
		t->model == IG_MODEL_BYTES ? encode_piece : encode_unit;
	int rc = 0;

	/* SentencePiece puts its space also before a text that a charsmap made empty. */
	if (len == 0)
		return t->spm && !t->cuts_user ? encode_word(e, text, 0) : 0;
	if (t->model == IG_MODEL_BYTES && t->prefix != IG_PREFIX_NEVER && *text != ' ')
		rc = with_space(e, &text, &len);
	if (!rc)
		rc = t->splitter ? ig_splitter_run(t->splitter, text, len, each, e) :
				   each(e, text, len);
	return rc;
}

/* Extend a special token by the white space that belongs to it. */
static void widen(const struct ig_special *x, const char *text, size_t len, size_t done,
		  size_t *from, size_t *to)
{
	size_t n;

	while ((x->flags & IG_SPECIAL_LSTRIP) && (n = ig_space_before(text + done, *from - done)))
		*from -= n;
	while ((x->flags & IG_SPECIAL_RSTRIP) && (n = ig_space_at(text + *to, len - *to)))
		*to += n;
}

/* The text between special tokens. */
static int encode_text(struct encoding *e, const char *text, size_t len, bool first)
{
	const struct ig_tokenizer *t = e->t;
	size_t done = 0;
	int rc = 0;

	if (len == 0)
		return 0;
	if (t->model == IG_MODEL_WORDPIECE)
		return ig_wordpiece_encode(t, text, len, e->max_ids, e->out);
	if (t->normalizer)
		rc = ig_normalizer_run(t->normalizer, t, text, len, &e->normal, &text, &len);
	e->first = first ? text : NULL;
	for (size_t i = 0; t->normal.n && i < len && !rc;) {
		const struct ig_special *x =
			ig_tokenizer_match(t, &t->normal, text + i, NULL, len - i, false);
		size_t from = i, to = i + (x ? x->len : 1);
		if (x) {
			widen(x, text, len, done, &from, &to);
			rc = encode_normal(e, text + done, from - done);
			if (!rc)
				rc = ig_ids_add(e->out, &x->id, 1, e->max_ids);
			done = to;
		}
		i = to;
	}
	return rc ? rc : encode_normal(e, text + done, len - done);
}

/* Whether a template wrote the space that SentencePiece adds after a control token: those of Mistral's
 * models do, and mistral-common has one there. */
static bool has_own_space(const struct ig_tokenizer *t, const char *text, const uint8_t *client,
			  size_t len, size_t at)
{
	return t->model == IG_MODEL_SCORES && t->adds_space && client && at && at < len &&
	       text[at] == ' ' && !client[at];
}

static int encode(const struct ig_tokenizer *t, const char *text, const uint8_t *client, size_t len,
		  bool special, size_t max_ids, struct ig_ids *out)
{
	struct encoding e = { .t = t, .out = out, .max_ids = max_ids };
	const struct ig_special_set *set = &t->specials;
	size_t n_before = out->n, done = 0;
	bool cut = special ? set->n > 0 : set->has_user && t->cuts_user;
	int rc = 0;

	for (size_t i = 0; cut && i < len && !rc;) {
		const struct ig_special *x = ig_tokenizer_match(
			t, set, text + i, client ? client + i : NULL, len - i, special);
		size_t from = i, to = i + (x ? x->len : 1);
		/* SentencePiece's user-defined tokens do not end a text. */
		if (x && (t->cuts_user || t->kinds[x->id] != IG_TOKEN_USER)) {
			widen(x, text, len, done, &from, &to);
			rc = encode_text(&e, text + done, from - done, done == 0);
			if (!rc)
				rc = ig_ids_add(out, &x->id, 1, max_ids);
			done = to + has_own_space(t, text, client, len, to);
			to = done;
		}
		i = to;
	}
	if (!rc)
		rc = encode_text(&e, text + done, len - done, done == 0);
	if (rc)
		out->n = n_before;
	free(e.piece);
	ig_normal_work_finish(&e.normal);
	ig_spm_work_destroy(e.spm);
	ig_merge_work_finish(&e.work);
	return rc;
}

int ig_tokenizer_encode(const struct ig_tokenizer *t, const char *text, size_t len, bool special,
			size_t max_ids, struct ig_ids *out)
{
	return encode(t, text, NULL, len, special, max_ids, out);
}

int ig_tokenizer_encode_marked(const struct ig_tokenizer *t, const char *text,
			       const uint8_t *client, size_t len, size_t max_ids,
			       struct ig_ids *out)
{
	return encode(t, text, client, len, true, max_ids, out);
}
