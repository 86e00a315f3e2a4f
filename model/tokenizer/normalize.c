/*
 * normalize.c: what changes a text before it is cut: Unicode's normal forms,
 * SentencePiece's table of replacements, replacements by an expression, a text before,
 * white space stripped.  Steps run one after the other, each over the whole text.
 *
 * Bytes that are not UTF-8 stay as they are and where they are, whatever the step.  Owns
 * the steps; the two buffers that texts go through are the caller's.
 */
#include "model/tokenizer/tokenizer_private.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

#define MAX_STEPS 16
/* Bytes that a text may become: compatibility forms make eleven of one. */
#define MAX_GROWTH 16
#define GROWTH_BASE 4096
#define MAX_CHARSMAP (16u << 20)
#define MAX_REPLACEMENT 1024 /* bytes of one entry of such a table */
#define MAX_PREFIX 256	     /* bytes of what a table replaces */
#define BMP 0x10000

enum kind { FORM, CHARSMAP, REPLACE, PREPEND, STRIP };

struct form {
	bool compose, compat;
	uint8_t may_change[BMP / 8]; /* alone, or beside another character */
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
};

static int put(struct output *o, const char *s, size_t n)
{
	if (n == 0)
		return 0;
	if (n > o->max - o->len)
		return -E2BIG;
	if (n > *o->cap - o->len) {
		size_t cap = *o->cap + *o->cap / 2 + n + 256;
		char *p = realloc(*o->text, cap);
		if (!p)
			return -ENOMEM;
		*o->text = p;
		*o->cap = cap;
	}
	memcpy(*o->text + o->len, s, n);
	o->len += n;
	return 0;
}

/* ---- normal forms --------------------------------------------------------------------- */

/* utf8proc keeps out[0] if a character has no decomposition. */
static int decompose(const struct form *f, int32_t c, int32_t *out, int room)
{
	int boundary = 0;
	utf8proc_option_t options =
		f->compat ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;

	return (int)utf8proc_decompose_char(c, out, room, options, &boundary);
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

	/* Vowels and finals of Hangul go together with what stands before. */
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
	struct step *s = &n->steps[n->n_steps];
	struct form *f;

	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	*s = (struct step){ .kind = FORM, .form = calloc(1, sizeof *s->form) };
	f = s->form;
	if (!f)
		return ig_fail(err, -ENOMEM, "out of memory for the normalizer");
	f->compose = form == IG_NFC || form == IG_NFKC;
	f->compat = form == IG_NFKC || form == IG_NFKD;
	for (int32_t c = 0x80; c < BMP; c++) {
		if (c == 0x3400) /* Han characters have none, and private ones */
			c = 0xa000;
		if (c == 0xd7a4)
			c = 0xf900;
		if (changes(f, c))
			f->may_change[c >> 3] |= (uint8_t)(1u << (c & 7));
	}
	n->n_steps++;
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

/* Marks in the order of their classes, those of one class as they came.  work [n]. */
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

/* A span that nothing outside of it goes together with. */
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
		if (k <= 0 || k > 32) { /* not that there were such */
			d->chars[n] = c;
			k = 1;
		}
		n += (size_t)k;
	}
	put_in_order(d->chars, n, d->work);
	if (f->compose)
		n = (size_t)utf8proc_normalize_utf32(d->chars, (utf8proc_ssize_t)n,
						     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	for (size_t i = 0; i < n && !rc; i++) {
		char bytes[4];
		rc = put(o, bytes, ig_utf8_put(bytes, (uint32_t)d->chars[i]));
	}
	return rc;
}

/* Characters that can't change begin and end spans. */
static int run_form(const struct form *f, const char *text, size_t len, struct output *o)
{
	struct decomposed d = { .cap = sizeof d.few / sizeof d.few[0] };
	size_t done = 0, last = 0, used;
	int rc = 0;

	d.chars = d.few;
	d.work = d.few_work;
	for (size_t i = 0; i < len && !rc; i += used) {
		if ((unsigned char)text[i] < 0x80) {
			last = i;
			used = 1;
			continue;
		}
		int32_t c = read_char(text + i, len - i, &used);
		if (c < 0 || !may_change(f, c)) {
			last = c < 0 ? i + 1 : i; /* nothing composes with what is no character */
			continue;
		}
		size_t stop = i + used;
		while (stop < len) {
			c = read_char(text + stop, len - stop, &used);
			if (c < 0 || !may_change(f, c))
				break;
			stop += used;
		}
		rc = put(o, text + done, last - done);
		if (!rc)
			rc = put_span(f, o, &d, text + last, stop - last);
		done = last = stop;
		used = stop - i;
	}
	if (d.chars != d.few) {
		free(d.chars);
		free(d.work);
	}
	return rc ? rc : put(o, text + done, len - done);
}

/* ---- SentencePiece's table -------------------------------------------------------------- */

/* The table: bytes of the double array, the array, texts.  A unit of the array has in it
 * where its children begin, its own label, and whether a value hangs on it. */
int ig_normalizer_add_charsmap(struct ig_normalizer *n, const void *map, size_t len,
			       struct ig_error *err)
{
	struct step *s = &n->steps[n->n_steps];
	const unsigned char *p = map;
	size_t n_trie, run = 0;

	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	n_trie = len >= 4 ? p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24 : 0;
	if (len > MAX_CHARSMAP || len < 8 || n_trie == 0 || n_trie % 4 || n_trie > len - 4)
		return ig_fail(err, -EINVAL,
			       "a precompiled_charsmap of %zu bytes whose trie has %zu", len,
			       n_trie);
	for (size_t i = 4 + n_trie; i < len; i++) {
		run = p[i] ? run + 1 : 0;
		if (run > MAX_REPLACEMENT)
			return ig_fail(err, -EINVAL,
				       "precompiled_charsmap: a replacement is longer "
				       "than %d bytes",
				       MAX_REPLACEMENT);
	}
	if (len > 4 + n_trie && p[len - 1])
		return ig_fail(err, -EINVAL,
			       "precompiled_charsmap: its last replacement has no end");
	*s = (struct step){ .kind = CHARSMAP, .map = malloc(len - 4) };
	if (!s->map)
		return ig_fail(err, -ENOMEM, "out of memory for the normalizer");
	for (size_t i = 0; i < n_trie; i += 4) /* little-endian */
		((uint32_t *)s->map)[i / 4] = p[4 + i] | (uint32_t)p[5 + i] << 8 |
					      (uint32_t)p[6 + i] << 16 | (uint32_t)p[7 + i] << 24;
	memcpy((char *)s->map + n_trie, p + 4 + n_trie, len - 4 - n_trie);
	s->charsmap = (struct charsmap){ s->map, (uint32_t)(n_trie / 4), (char *)s->map + n_trie,
					 len - 4 - n_trie };
	n->n_steps++;
	return 0;
}

static uint32_t children(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

/* The bytes of the longest prefix that is replaced, and by what; 0: none is. */
static size_t find_prefix(const struct charsmap *m, const char *text, size_t len, const char **to)
{
	uint32_t at = children(m->units[0]);
	size_t found = 0;

	for (size_t i = 0; i < len && i < MAX_PREFIX; i++) { /* whoever made it may go in circles */
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

static int run_charsmap(const struct charsmap *m, const struct ig_tokenizer *t, const char *text,
			size_t len, struct output *o)
{
	bool user = t->specials.has_user && !t->cuts_user;
	size_t done = 0;
	int rc = 0;

	for (size_t i = 0; i < len && !rc;) {
		const struct ig_special *x =
			user ? ig_tokenizer_match(t, &t->specials, text + i, NULL, len - i, false) :
			       NULL;
		const char *to;
		size_t used = x ? 0 : find_prefix(m, text + i, len - i, &to);

		if (used) {
			rc = put(o, text + done, i - done);
			if (!rc)
				rc = put(o, to, strlen(to));
			done = i + used;
		} else if (x) {
			used = x->len;
		} else { /* a whole character, or bytes that are none */
			int n = ig_utf8_check((const unsigned char *)text + i, len - i);
			used = n > 0 ? (size_t)n : n < 0 ? (size_t)-n : len - i;
		}
		i += used;
	}
	return rc ? rc : put(o, text + done, len - done);
}

/* ---- replacements, what stands before, white space ------------------------------------------ */

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
	struct step *s = &n->steps[n->n_steps];

	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	*s = (struct step){ .kind = REPLACE };
	n->n_steps++; /* destroy frees what there is */
	if (copy_text(&s->text, &s->n_text, from, n_from) || copy_text(&s->to, &s->n_to, to, n_to))
		return ig_fail(err, -ENOMEM, "out of memory for the normalizer");
	return 0;
}

int ig_normalizer_add_replace(struct ig_normalizer *n, const char *from, const char *to, size_t len,
			      bool jit, struct ig_error *err)
{
	struct step *s = &n->steps[n->n_steps];
	int rc;

	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	*s = (struct step){ .kind = REPLACE };
	rc = ig_regex_compile(from, jit, &s->from, err);
	if (rc)
		return rc;
	n->n_steps++; /* destroy frees what there is */
	return copy_text(&s->to, &s->n_to, to, len) ?
		       ig_fail(err, -ENOMEM, "out of memory for the normalizer") :
		       0;
}

static int run_replace_text(const struct step *s, const char *text, size_t len, struct output *o)
{
	size_t done = 0;
	int rc = 0;

	while (!rc) {
		const char *at = memmem(text + done, len - done, s->text, s->n_text);
		size_t from = at ? (size_t)(at - text) : len;
		rc = put(o, text + done, from - done);
		if (!at)
			break;
		if (!rc)
			rc = put(o, s->to, s->n_to);
		done = from + s->n_text;
	}
	return rc;
}

static int run_replace(const struct step *s, const char *text, size_t len, struct output *o)
{
	struct ig_regex_work *w = ig_regex_work_create(len);
	int rc = w ? 0 : -ENOMEM;

	for (size_t i = 0; i < len && !rc;) {
		bool valid;
		size_t n = ig_utf8_same_kind(text + i, len - i, &valid), done = 0;
		while (valid && done < n && !rc) {
			size_t from, to;
			int found = ig_regex_find(s->from, w, text + i, n, done, &from, &to);
			if (found < 0)
				rc = found;
			if (found <= 0)
				break;
			rc = put(o, text + i + done, from - done);
			if (!rc)
				rc = put(o, s->to, s->n_to);
			done = to;
		}
		if (!rc)
			rc = put(o, text + i + done, n - done);
		i += n;
	}
	ig_regex_work_destroy(w);
	return rc;
}

int ig_normalizer_add_prepend(struct ig_normalizer *n, const char *text, size_t len,
			      struct ig_error *err)
{
	struct step *s = &n->steps[n->n_steps];

	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	*s = (struct step){ .kind = PREPEND };
	if (copy_text(&s->to, &s->n_to, text, len))
		return ig_fail(err, -ENOMEM, "out of memory for the normalizer");
	n->n_steps++;
	return 0;
}

int ig_normalizer_add_strip(struct ig_normalizer *n, bool left, bool right, struct ig_error *err)
{
	if (n->n_steps == MAX_STEPS)
		return ig_fail(err, -ENOTSUP, "more than %d normalizers", MAX_STEPS);
	n->steps[n->n_steps++] = (struct step){ .kind = STRIP, .left = left, .right = right };
	return 0;
}

bool ig_normalizer_strips_left(const struct ig_normalizer *n)
{
	for (unsigned i = 0; i < n->n_steps; i++)
		if (n->steps[i].kind == STRIP && n->steps[i].left)
			return true;
	return false;
}

static int run_strip(const struct step *s, const char *text, size_t len, struct output *o)
{
	size_t n;

	while (s->left && (n = ig_space_at(text, len))) {
		text += n;
		len -= n;
	}
	while (s->right && (n = ig_space_before(text, len)))
		len -= n;
	return put(o, text, len);
}

/* ---- all steps --------------------------------------------------------------------------------
 */

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

/* Whether a form can't change a text: none of its bytes is of a character that it might. */
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
	unsigned free_one = 0; /* of the two buffers; the other has the text */
	int rc = 0;

	for (unsigned i = 0; i < n->n_steps && len && !rc; i++) {
		const struct step *s = &n->steps[i];
		struct output o = { &w->text[free_one], &w->cap[free_one], 0, max };

		switch (s->kind) {
		case FORM:
			if (is_plain(s->form, text, len))
				continue;
			rc = run_form(s->form, text, len, &o);
			break;
		case CHARSMAP: rc = run_charsmap(&s->charsmap, t, text, len, &o); break;
		case REPLACE:
			rc = s->from ? run_replace(s, text, len, &o) :
				       run_replace_text(s, text, len, &o);
			break;
		case PREPEND:
			rc = put(&o, s->to, s->n_to);
			if (!rc)
				rc = put(&o, text, len);
			break;
		case STRIP: rc = run_strip(s, text, len, &o); break;
		}
		text = o.len ? w->text[free_one] : "";
		len = o.len;
		free_one ^= 1;
	}
	*out = text;
	*n_out = len;
	return rc;
}
