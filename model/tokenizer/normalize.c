/*
 * normalize.c: changes a text before it is split: Unicode's normal forms, SentencePiece's table of
 * replacements, other replacements, a prefix, stripped white space; one step after the other, each
 * over the whole text.  No step changes bytes that are not UTF-8.  Owns the steps; the two work
 * buffers are the caller's.
 */
#include "model/tokenizer/tokenizer_private.h"
#include "base/array.h"
#include "base/strbuf.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

#define MAX_STEPS 16
/* Growth of a text in bytes: compatibility forms make up to eleven of one. */
#define MAX_GROWTH 16
#define GROWTH_BASE 4096
#define MAX_CHARSMAP (16u << 20)
#define MAX_REPLACEMENT 1024 /* bytes of one entry of such a table */
#define MAX_PREFIX 256	     /* bytes of a replaced text */
#define BMP 0x10000

enum kind { FORM, CHARSMAP, REPLACE, PREPEND, STRIP };

struct form {
	bool compose, compat;
	uint8_t may_change[BMP / 8]; /* alone, or next to another character */
};

struct charsmap {
	const uint32_t *units; /* a double array */
	uint32_t n_units;
	const char *texts; /* each ends in a NUL */
	size_t n_texts;
};

struct step {
	enum kind kind;
	struct form *form;
	void *map; /* that charsmap points into */
	struct charsmap charsmap;
	struct ig_regex *from; /* NULL: text */
	char *text;
	size_t n_text;
	char *to;
	size_t n_to;
	bool left, right;
};

struct ig_normalizer {
	struct step steps[MAX_STEPS];
	unsigned n_steps;
};

struct output {
	char **text;
	size_t *cap;
	size_t len, max;
	int rc; /* the first error; then put does nothing */
};

static void put(struct output *o, const char *s, size_t n)
{
	if (n == 0 || o->rc)
		return;
	if (n > o->max - o->len)
		o->rc = -E2BIG;
	else if (!ig_array_grow(*o->text, o->cap, o->len + n - 1))
		o->rc = -ENOMEM;
	if (o->rc)
		return;
	memcpy(*o->text + o->len, s, n);
	o->len += n;
}

/* The next step, NULL with an error when there are too many.  It counts from now on, so that
 * destroy frees it whatever follows. */
static struct step *add_step(struct ig_normalizer *n, enum kind kind, struct ig_error *err)
{
	if (n->n_steps == MAX_STEPS) {
		ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
		return NULL;
	}
	n->steps[n->n_steps] = (struct step){ .kind = kind };
	return &n->steps[n->n_steps++];
}

static int no_memory(struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "out of memory for the normalizer");
}

/* ---- normal forms --------------------------------------------------------------------- */

/* out[0] is c if it has no decomposition. */
static int decompose(const struct form *f, int32_t c, int32_t *out, int cap)
{
	int boundary = 0;
	utf8proc_option_t options =
		f->compat ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;

	return (int)utf8proc_decompose_char(c, out, cap, options, &boundary);
}

static bool is_mark(int32_t c)
{
	utf8proc_category_t k = utf8proc_category(c);

	return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

static bool changes(const struct form *f, int32_t c)
{
	int32_t parts[32];
	int n;

	/* Vowels and finals of Hangul compose with the character before them. */
	if (is_mark(c) || (c >= 0x1160 && c <= 0x11ff) || (c >= 0x16d40 && c <= 0x16d7f))
		return true;
	if (c >= 0xac00 && c <= 0xd7a3) /* syllables: their parts compose to them */
		return !f->compose;
	n = decompose(f, c, parts, 32);
	if (n <= 0 || n > 32 || (n == 1 && parts[0] == c))
		return false;
	if (!f->compose)
		return true;
	return utf8proc_normalize_utf32(parts, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1 ||
	       parts[0] != c;
}

int ig_normalizer_add_form(struct ig_normalizer *n, enum ig_normal_form form, struct ig_error *err)
{
	struct step *s = add_step(n, FORM, err);
	struct form *f;

	if (!s)
		return -ENOTSUP;
	f = s->form = calloc(1, sizeof *f);
	if (!f)
		return no_memory(err);
	f->compose = form == IG_NFC || form == IG_NFKC;
	f->compat = form == IG_NFKC || form == IG_NFKD;
	for (int32_t c = 0x80; c < BMP; c++) {
		if (c == 0x3400) /* Han and private-use characters never change */
			c = 0xa000;
		if (c == 0xd7a4)
			c = 0xf900;
		if (changes(f, c))
			f->may_change[c >> 3] |= (uint8_t)(1u << (c & 7));
	}
	return 0;
}

static int32_t read_char(const char *text, size_t len, size_t *used)
{
	const unsigned char *p = (const unsigned char *)text;
	int n = ig_utf8_check(p, len);

	*used = n > 0 ? (size_t)n : 1;
	return n > 0 ? (int32_t)ig_utf8_char(p, n) : -1;
}

static bool may_change(const struct form *f, int32_t c)
{
	if (c < 0x80)
		return false;
	return c < BMP ? f->may_change[c >> 3] >> (c & 7) & 1 : changes(f, c);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Stable sort of marks by their combining classes.  work [n]. */
static void put_in_order(int32_t *c, size_t n, uint64_t *work)
{
	for (size_t i = 0; i < n;) {
		size_t k = i;
		bool ordered = true;
		for (; k < n; k++) {
			uint64_t class = (uint64_t)utf8proc_get_property(c[k])->combining_class;
			if (class == 0)
				break;
			work[k - i] = class << 56 | (uint64_t)(k - i) << 24 | (uint32_t)c[k];
			ordered = ordered && (k == i || class >= work[k - i - 1] >> 56);
		}
		if (!ordered) {
			qsort(work, k - i, sizeof *work, compare_u64);
			for (size_t m = i; m < k; m++)
				c[m] = (int32_t)(work[m - i] & 0xffffff);
		}
		i = k + 1;
	}
}

struct decomposed { /* one span's characters */
	int32_t *chars;
	uint64_t *work;
	size_t cap;
	int32_t few[64];
	uint64_t few_work[64];
};

static int grow_decomposed(struct decomposed *d, size_t n)
{
	size_t cap = n + n / 2;
	int32_t *chars = malloc(cap * sizeof *chars);
	uint64_t *work = malloc(cap * sizeof *work);

	if (!chars || !work) {
		free(chars);
		free(work);
		return -ENOMEM;
	}
	memcpy(chars, d->chars, d->cap * sizeof *chars);
	if (d->chars != d->few) {
		free(d->chars);
		free(d->work);
	}
	d->chars = chars;
	d->work = work;
	d->cap = cap;
	return 0;
}

/* A span whose characters compose with none outside of it. */
static int put_span(const struct form *f, struct output *o, struct decomposed *d, const char *text,
		    size_t len)
{
	size_t n = 0, used;
	int rc = 0;

	for (size_t i = 0; i < len; i += used) {
		int32_t c = read_char(text + i, len - i, &used);
		if (d->cap - n < 32 && (rc = grow_decomposed(d, d->cap + 32)))
			return rc;
		int k = decompose(f, c, d->chars + n, 32);
		if (k <= 0 || k > 32) { /* does not happen with utf8proc's tables */
			d->chars[n] = c;
			k = 1;
		}
		n += (size_t)k;
	}
	put_in_order(d->chars, n, d->work);
	if (f->compose)
		n = (size_t)utf8proc_normalize_utf32(d->chars, (utf8proc_ssize_t)n,
						     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	for (size_t i = 0; i < n; i++) {
		char bytes[4];
		put(o, bytes, ig_utf8_put(bytes, (uint32_t)d->chars[i]));
	}
	return 0;
}

/* Spans are delimited by characters that can't change. */
static int run_form(const struct form *f, const char *text, size_t len, struct output *o)
{
	struct decomposed d = { .cap = sizeof d.few / sizeof d.few[0] };
	size_t done = 0, last = 0, used;
	int rc = 0;

	d.chars = d.few;
	d.work = d.few_work;
	for (size_t i = 0; i < len && !rc && !o->rc; i += used) {
		if ((unsigned char)text[i] < 0x80) {
			last = i;
			used = 1;
			continue;
		}
		int32_t c = read_char(text + i, len - i, &used);
		if (c < 0 || !may_change(f, c)) {
			last = c < 0 ? i + 1 : i; /* nothing composes with an invalid byte */
			continue;
		}
		size_t stop = i + used;
		while (stop < len) {
			c = read_char(text + stop, len - stop, &used);
			if (c < 0 || !may_change(f, c))
				break;
			stop += used;
		}
		put(o, text + done, last - done);
		rc = put_span(f, o, &d, text + last, stop - last);
		done = last = stop;
		used = stop - i;
	}
	if (d.chars != d.few) {
		free(d.chars);
		free(d.work);
	}
	put(o, text + done, len - done);
	return rc;
}

/* ---- SentencePiece's table -------------------------------------------------------------- */

/* The table: the size in bytes of the double array, the array, texts.  A unit of the array holds
 * the offset of its children, its label, and whether it has a value. */
static int check_charsmap(const unsigned char *p, size_t len, size_t *n_trie, struct ig_error *err)
{
	size_t n =
		len >= 4 ? p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24 : 0;
	size_t run = 0;

	if (len > MAX_CHARSMAP || len < 8 || n == 0 || n % 4 || n > len - 4)
		return ig_fail(err, -EINVAL,
			       "a precompiled_charsmap of %zu bytes whose trie has %zu", len, n);
	for (size_t i = 4 + n; i < len; i++) {
		run = p[i] ? run + 1 : 0;
		if (run > MAX_REPLACEMENT)
			return ig_fail(err, -EINVAL,
				       "precompiled_charsmap: a replacement is longer "
				       "than %d bytes",
				       MAX_REPLACEMENT);
	}
	if (len > 4 + n && p[len - 1])
		return ig_fail(err, -EINVAL,
			       "precompiled_charsmap: its last replacement has no end");
	*n_trie = n;
	return 0;
}

int ig_normalizer_add_charsmap(struct ig_normalizer *n, const void *map, size_t len,
			       struct ig_error *err)
{
	const unsigned char *p = map;
	size_t n_trie = 0;
	int rc = n->n_steps < MAX_STEPS ? check_charsmap(p, len, &n_trie, err) : 0;
	struct step *s = rc ? NULL : add_step(n, CHARSMAP, err);

	if (!s)
		return rc ? rc : -ENOTSUP;
	s->map = malloc(len - 4);
	if (!s->map)
		return no_memory(err);
	for (size_t i = 0; i < n_trie; i += 4) /* little-endian */
		((uint32_t *)s->map)[i / 4] = p[4 + i] | (uint32_t)p[5 + i] << 8 |
					      (uint32_t)p[6 + i] << 16 | (uint32_t)p[7 + i] << 24;
	memcpy((char *)s->map + n_trie, p + 4 + n_trie, len - 4 - n_trie);
	s->charsmap = (struct charsmap){ s->map, (uint32_t)(n_trie / 4), (char *)s->map + n_trie,
					 len - 4 - n_trie };
	return 0;
}

void ig_normalizer_put_charsmap(const struct ig_normalizer *n, struct ig_strbuf *out)
{
	for (unsigned i = 0; n && i < n->n_steps; i++) {
		const struct charsmap *m = &n->steps[i].charsmap;
		const uint32_t n_bytes = m->n_units * 4;
		if (n->steps[i].kind != CHARSMAP)
			continue;
		for (uint32_t k = 0; k <= m->n_units; k++) { /* little-endian */
			const uint32_t unit = k ? m->units[k - 1] : n_bytes;
			const unsigned char b[4] = { (unsigned char)unit,
						     (unsigned char)(unit >> 8),
						     (unsigned char)(unit >> 16),
						     (unsigned char)(unit >> 24) };
			ig_strbuf_add(out, (const char *)b, sizeof b);
		}
		ig_strbuf_add(out, m->texts, m->n_texts);
		return;
	}
}

static uint32_t children(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

/* Bytes of the longest prefix that is replaced, and its replacement; 0: none. */
static size_t find_prefix(const struct charsmap *m, const char *text, size_t len, const char **to)
{
	uint32_t at = children(m->units[0]);
	size_t found = 0;

	for (size_t i = 0; i < len && i < MAX_PREFIX; i++) { /* the trie may have cycles */
		at ^= (unsigned char)text[i];
		if (at >= m->n_units)
			break;
		uint32_t unit = m->units[at];
		if ((unit & (1u << 31 | 0xff)) != (unsigned char)text[i])
			break;
		at ^= children(unit);
		if (at >= m->n_units)
			break;
		if (unit >> 8 & 1) {
			uint32_t value = m->units[at] & 0x7fffffffu;
			if (value < m->n_texts) {
				*to = m->texts + value;
				found = i + 1;
			}
		}
	}
	return found;
}

static void run_charsmap(const struct charsmap *m, const struct ig_tokenizer *t, const char *text,
			 size_t len, struct output *o)
{
	bool user = t->specials.has_user && !t->cuts_user;
	size_t done = 0;

	for (size_t i = 0; i < len && !o->rc;) {
		const struct ig_special *x =
			user ? ig_tokenizer_match(t, &t->specials, text + i, NULL, len - i, false) :
			       NULL;
		const char *to;
		size_t used = x ? 0 : find_prefix(m, text + i, len - i, &to);

		if (used) {
			put(o, text + done, i - done);
			put(o, to, strlen(to));
			done = i + used;
		} else if (x) {
			used = x->len;
		} else { /* a whole character, or invalid bytes */
			int n = ig_utf8_check((const unsigned char *)text + i, len - i);
			used = n > 0 ? (size_t)n : n < 0 ? (size_t)-n : len - i;
		}
		i += used;
	}
	put(o, text + done, len - done);
}

/* ---- replacements, a prefix, white space --------------------------------------------------- */

static int copy_text(char **to, size_t *n_to, const char *text, size_t len)
{
	*to = malloc(len + 1);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, text, len);
	*n_to = len;
	return 0;
}

int ig_normalizer_add_replace_text(struct ig_normalizer *n, const char *from, size_t n_from,
				   const char *to, size_t n_to, struct ig_error *err)
{
	struct step *s = add_step(n, REPLACE, err);

	if (!s)
		return -ENOTSUP;
	if (copy_text(&s->text, &s->n_text, from, n_from) || copy_text(&s->to, &s->n_to, to, n_to))
		return no_memory(err);
	return 0;
}

int ig_normalizer_add_replace(struct ig_normalizer *n, const char *from, const char *to, size_t len,
			      bool jit, struct ig_error *err)
{
	struct step *s = add_step(n, REPLACE, err);
	int rc = s ? ig_regex_compile(from, jit, &s->from, err) : -ENOTSUP;

	return rc ? rc : copy_text(&s->to, &s->n_to, to, len) ? no_memory(err) : 0;
}

static void run_replace_text(const struct step *s, const char *text, size_t len, struct output *o)
{
	size_t done = 0;

	while (!o->rc) {
		const char *at = memmem(text + done, len - done, s->text, s->n_text);
		size_t from = at ? (size_t)(at - text) : len;
		put(o, text + done, from - done);
		if (!at)
			break;
		put(o, s->to, s->n_to);
		done = from + s->n_text;
	}
}

static int run_replace(const struct step *s, const char *text, size_t len, struct output *o)
{
	struct ig_regex_work *w = ig_regex_work_create(len);
	int rc = w ? 0 : -ENOMEM;

	for (size_t i = 0; i < len && !rc && !o->rc;) {
		bool valid;
		size_t n = ig_utf8_same_kind(text + i, len - i, &valid), done = 0;
		while (valid && done < n && !o->rc) {
			size_t from, to;
			int found = ig_regex_find(s->from, w, text + i, n, done, &from, &to);
			if (found < 0)
				rc = found;
			if (found <= 0)
				break;
			put(o, text + i + done, from - done);
			put(o, s->to, s->n_to);
			done = to;
		}
		put(o, text + i + done, n - done);
		i += n;
	}
	ig_regex_work_destroy(w);
	return rc;
}

int ig_normalizer_add_prepend(struct ig_normalizer *n, const char *text, size_t len,
			      struct ig_error *err)
{
	struct step *s = add_step(n, PREPEND, err);

	if (!s)
		return -ENOTSUP;
	return copy_text(&s->to, &s->n_to, text, len) ? no_memory(err) : 0;
}

int ig_normalizer_add_strip(struct ig_normalizer *n, bool left, bool right, struct ig_error *err)
{
	struct step *s = add_step(n, STRIP, err);

	if (!s)
		return -ENOTSUP;
	s->left = left;
	s->right = right;
	return 0;
}

bool ig_normalizer_strips_left(const struct ig_normalizer *n)
{
	for (unsigned i = 0; i < n->n_steps; i++)
		if (n->steps[i].kind == STRIP && n->steps[i].left)
			return true;
	return false;
}

static void run_strip(const struct step *s, const char *text, size_t len, struct output *o)
{
	size_t n;

	while (s->left && (n = ig_space_at(text, len))) {
		text += n;
		len -= n;
	}
	while (s->right && (n = ig_space_before(text, len)))
		len -= n;
	put(o, text, len);
}

/* ---- all steps --------------------------------------------------------------------------- */

int ig_normalizer_create(struct ig_normalizer **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? 0 : -ENOMEM;
}

void ig_normalizer_destroy(struct ig_normalizer *n)
{
	if (!n)
		return;
	for (unsigned i = 0; i < n->n_steps; i++) {
		free(n->steps[i].form);
		free(n->steps[i].map);
		free(n->steps[i].text);
		free(n->steps[i].to);
		ig_regex_destroy(n->steps[i].from);
	}
	free(n);
}

void ig_normal_work_finish(struct ig_normal_work *w)
{
	free(w->text[0]);
	free(w->text[1]);
	*w = (struct ig_normal_work){ 0 };
}

/* Whether a form can't change a text, by its bytes alone. */
static bool is_plain(const struct form *f, const char *text, size_t len)
{
	/* Characters below U+0300 compose only with later ones. */
	unsigned char first = f->compose && !f->compat ? 0xcc : 0x80;

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] >= first)
			return false;
	return true;
}

int ig_normalizer_run(const struct ig_normalizer *n, const struct ig_tokenizer *t, const char *text,
		      size_t len, struct ig_normal_work *w, const char **out, size_t *n_out)
{
	size_t max = len > (SIZE_MAX - GROWTH_BASE) / MAX_GROWTH ? SIZE_MAX :
								   len * MAX_GROWTH + GROWTH_BASE;
	unsigned free_one = 0; /* index of the buffer that does not hold the text */
	int rc = 0;

	for (unsigned i = 0; i < n->n_steps && len && !rc; i++) {
		const struct step *s = &n->steps[i];
		struct output o = { &w->text[free_one], &w->cap[free_one], 0, max, 0 };

		switch (s->kind) {
		case FORM:
			if (is_plain(s->form, text, len))
				continue;
			rc = run_form(s->form, text, len, &o);
			break;
		case CHARSMAP: run_charsmap(&s->charsmap, t, text, len, &o); break;
		case REPLACE:
			if (s->from)
				rc = run_replace(s, text, len, &o);
			else
				run_replace_text(s, text, len, &o);
			break;
		case PREPEND:
			put(&o, s->to, s->n_to);
			put(&o, text, len);
			break;
		case STRIP: run_strip(s, text, len, &o); break;
		}
		rc = rc ? rc : o.rc;
		text = o.len ? w->text[free_one] : "";
		len = o.len;
		free_one ^= 1;
	}
	*out = text;
	*n_out = len;
	return rc;
}
