/*
 * pairs.c: byte-pair encoding with tokens of characters (tokenizer.json of Llama 2, Mistral and
 * Gemma): a piece becomes the tokens of its characters, or of their bytes, which are merged by rank
 * (bpe.c).  If no merge has a space after another character, words are merged one by one, which
 * keeps them short.
 */
#include "model/tokenizer/tokenizer_private.h"
#include "base/utf8.h"

#include <errno.h>

struct run {
	const struct ig_tokenizer *t;
	struct ig_merge_work *w;
	struct ig_ids *out;
	size_t max_ids;
	bool was_unknown;
};

/* The ids, at most len, of one character or of one invalid byte. */
static size_t char_ids(struct run *r, const char *p, size_t len, int32_t *ids)
{
	const struct ig_tokenizer *t = r->t;
	int32_t id = ig_tokenizer_lookup(t, p, len);
	bool all = true;

	if (id >= 0) {
		r->was_unknown = false;
		ids[0] = id;
		return 1;
	}
	for (size_t i = 0; i < len; i++) {
		ids[i] = t->merges.byte_ids[(unsigned char)p[i]];
		all = all && ids[i] >= 0;
	}
	if (all) {
		r->was_unknown = false;
		return len;
	}
	if (t->pairs.unknown < 0 || (r->was_unknown && t->pairs.fuse_unknown))
		return 0;
	r->was_unknown = true;
	ids[0] = t->pairs.unknown;
	return 1;
}

static int put_word(struct run *r, size_t n)
{
	n = ig_merges_run(&r->t->merges, r->w, n);
	return ig_ids_add(r->out, r->w->ids, n, r->max_ids);
}

int ig_pairs_encode(const struct ig_tokenizer *t, struct ig_merge_work *w, const char *text,
		    size_t len, size_t max_ids, struct ig_ids *out)
{
	struct run r = { .t = t, .w = w, .out = out, .max_ids = max_ids };
	size_t n = 0, left = max_ids > out->n ? max_ids - out->n : 0;
	bool after_space = true;
	int rc;

	/* Refuse early a text that has too many ids however it is merged.  A mark of three bytes
	 * is a space of one. */
	if (t->merges.byte_ids[0xff] >= 0 && len / 3 / t->longest > left)
		return -E2BIG;
	rc = ig_merges_reserve(w, len);
	for (size_t i = 0; i < len && !rc;) {
		const char *p = text + i;
		bool space = *p == ' ' || ig_is_space_mark(p, len - i);
		int c = space ? 1 : ig_utf8_check((const unsigned char *)p, len - i);
		size_t used = *p == ' ' ? 1 : space ? 3 : c > 0 ? (size_t)c : 1;

		if (space && !after_space && t->pairs.cut_words) {
			rc = put_word(&r, n);
			n = 0;
		}
		if (space)
			n += char_ids(&r, " ", 1, w->ids + n);
		else
			n += char_ids(&r, p, used, w->ids + n);
		after_space = space;
		i += used;
	}
	return rc ? rc : put_word(&r, n);
}
