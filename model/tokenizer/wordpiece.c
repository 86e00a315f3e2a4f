/*
 * wordpiece.c: BERT's tokenizer.  A text is cleaned, put into lower case without accents where the
 * model has no others, and cut into words at white space and around punctuation and Chinese
 * characters; a word becomes the longest tokens from its beginning on (Wu et al. 2016), or one
 * unknown token.  In the table of tokens those that begin a word begin with a space; others do
 * not.
 */
#include "model/tokenizer/tokenizer_private.h"

#include "base/array.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

struct ig_wordpiece_work {
	const struct ig_tokenizer *t;
	struct ig_ids *out;
	size_t max_ids;
	char *word; /* a space, then the word so far */
	size_t cap, len;
	uint32_t n_chars;
};

static bool is_space(int32_t c)
{
	if ((c >= '\t' && c <= '\r') || c == ' ' || c == 0x85)
		return true;
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_ZS:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP: return true;
	default: return false;
	}
}

/* What cleaning removes: control characters, formats, private use. */
static bool is_removed(int32_t c)
{
	if (c == '\t' || c == '\n' || c == '\r')
		return false;
	if (c == 0xfffd)
		return true;
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CS: return true;
	default: return false;
	}
}

static bool is_punctuation(int32_t c)
{
	if (c < 0x80)
		return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
		       (c >= '{' && c <= '~');
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_PC:
	case UTF8PROC_CATEGORY_PD:
	case UTF8PROC_CATEGORY_PS:
	case UTF8PROC_CATEGORY_PE:
	case UTF8PROC_CATEGORY_PI:
	case UTF8PROC_CATEGORY_PF:
	case UTF8PROC_CATEGORY_PO: return true;
	default: return false;
	}
}

/* The blocks of CJK ideographs that BERT's authors list. */
static bool is_chinese(int32_t c)
{
	return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
	       (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
	       (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
	       (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* The id of the longest token that the word has at byte `at`, and its end; -1: there is none. */
static int32_t longest_at(const struct ig_wordpiece_work *w, size_t at, size_t *end)
{
	size_t n = w->len - at, most = w->t->longest;

	for (n = n < most ? n : most; n; n--) {
		int32_t id;
		if (at + n < w->len && ig_utf8_continues(w->word[at + n]))
			continue;
		id = ig_tokenizer_lookup(w->t, w->word + at, n);
		if (id >= 0) {
			*end = at + n;
			return id;
		}
	}
	return -1;
}

static int end_word(struct ig_wordpiece_work *w)
{
	const struct ig_wordpiece *p = &w->t->wordpiece;
	const size_t n_before = w->out->n;
	int rc = 0;

	if (!w->n_chars)
		return 0;
	for (size_t at = 0; at < w->len && !rc;) {
		int32_t id = w->n_chars > p->max_chars ? -1 : longest_at(w, at, &at);
		if (id < 0) { /* a part that is unknown makes the word unknown */
			w->out->n = n_before;
			id = p->unknown;
			at = w->len;
		}
		rc = id < 0 ? 0 : ig_ids_add(w->out, &id, 1, w->max_ids);
	}
	w->len = 1;
	w->n_chars = 0;
	return rc;
}

static int put(struct ig_wordpiece_work *w, int32_t c)
{
	if (w->n_chars > w->t->wordpiece.max_chars) /* it is unknown already */
		return 0;
	if (!ig_array_grow(w->word, &w->cap, w->len + 4))
		return -ENOMEM;
	w->len += ig_utf8_put(w->word + w->len, (uint32_t)c);
	w->n_chars++;
	return 0;
}

/* One normalized character. */
static int take(struct ig_wordpiece_work *w, int32_t c)
{
	int rc;

	if (is_space(c))
		return end_word(w);
	if (!is_punctuation(c))
		return put(w, c);
	if ((rc = end_word(w)) || (rc = put(w, c)))
		return rc;
	return end_word(w);
}

/* Decompose, drop accents, lower. */
static int normalize(struct ig_wordpiece_work *w, int32_t c)
{
	const struct ig_wordpiece *p = &w->t->wordpiece;
	int32_t parts[32] = { c };
	int n = 1, boundary = 0, rc = 0;

	if (c >= 0x80 && p->strip_accents) {
		n = (int)utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
		if (n < 1 || n > 32) {
			parts[0] = c;
			n = 1;
		}
	}
	for (int i = 0; i < n && !rc; i++) {
		if (p->strip_accents && parts[i] >= 0x80 &&
		    utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN)
			continue;
		if (p->lowercase && parts[i] == 0x130) { /* the only one that becomes two */
			rc = take(w, 'i');
			if (!rc)
				rc = take(w, 0x307);
			continue;
		}
		rc = take(w, p->lowercase ? utf8proc_tolower(parts[i]) : parts[i]);
	}
	return rc;
}

int ig_wordpiece_encode(const struct ig_tokenizer *t, const char *text, size_t len, size_t max_ids,
			struct ig_ids *out)
{
	const struct ig_wordpiece *p = &t->wordpiece;
	struct ig_wordpiece_work w = { .t = t, .out = out, .max_ids = max_ids };
	const unsigned char *s = (const unsigned char *)text;
	int rc = ig_array_grow(w.word, &w.cap, 64) ? 0 : -ENOMEM;

	if (!rc) {
		w.word[0] = ' ';
		w.len = 1;
	}
	for (size_t i = 0; i < len && !rc;) {
		int n = ig_utf8_check(s + i, len - i);
		int32_t c = n > 0 ? (int32_t)ig_utf8_char(s + i, n) : 0xfffd;
		i += n > 0 ? (size_t)n : n < 0 ? (size_t)-n : len - i;
		if (n <= 0 || (p->clean && is_removed(c)))
			continue;
		if (p->clean && is_space(c))
			c = ' ';
		bool alone = p->chinese && is_chinese(c);
		if (alone)
			rc = end_word(&w);
		if (!rc)
			rc = normalize(&w, c);
		if (!rc && alone)
			rc = end_word(&w);
	}
	if (!rc)
		rc = end_word(&w);
	free(w.word);
	return rc;
}
