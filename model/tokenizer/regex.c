/*
 * regex.c: regular expressions of pre-tokenizers and normalizers: translation from Oniguruma's
 * syntax (tokenizer.json) to PCRE2's; compilation; matching under limits.  The translation accepts
 * only what means the same to both libraries; the rest is an error that names it.  PCRE2 keeps its
 * frames on the heap (and its compiled code on 32 KB of stack), so long texts can't exhaust the
 * stack.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/strbuf.h"
#include "model/tokenizer/tokenizer_private.h"
#include "base/utf8.h"
#include "base/hex.h"
#include "model/common.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_PATTERN 16384
#define MAX_REPEAT 1000
/* Steps of one match; a run of n characters takes about n. */
#define MATCH_LIMIT_BASE 100000
#define MATCH_LIMIT_PER_BYTE 8
#define HEAP_LIMIT_KIB 4096
#define DEPTH_LIMIT 10000

struct ig_regex {
	pcre2_code *code;
};

struct ig_regex_work {
	pcre2_match_context *match;
	pcre2_match_data *data;
};

/* ---- Oniguruma's syntax ----------------------------------------------------------- */

struct reader {
	const char *p, *end;
	struct ig_strbuf *out;
	struct ig_error *err;
	unsigned caseless_depth; /* depth of the outermost (?i: … ); 0: not in one */
	unsigned depth;
};

static int unknown_part(const struct reader *r, const char *from, const char *what)
{
	size_t n = (size_t)(r->end - from);

	return ig_fail(r->err, -ENOTSUP, "the regular expression has %s at '%.*s'", what,
		       (int)(n < 24 ? n : 24), from);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* \xHH, \x{H…} and \uHHHH; p is after the letter. */
static int put_code_point(struct reader *r, const char *from, char letter)
{
	uint32_t v = 0;
	unsigned n = 0, want = letter == 'u' ? 4 : 2;
	bool braces = letter == 'x' && r->p < r->end && *r->p == '{';

	if (braces) {
		r->p++;
		want = 6;
	}
	while (n < want && r->p < r->end && ig_hex_digit(*r->p) >= 0) {
		v = v << 4 | (uint32_t)ig_hex_digit(*r->p++);
		n++;
	}
	if (braces ? !n || r->p == r->end || *r->p++ != '}' : n != want)
		return unknown_part(r, from, "an invalid code point");
	/* \x80 to \xff are bytes to Oniguruma. */
	if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000) || (letter == 'x' && !braces && v >= 0x80))
		return unknown_part(r, from, "an invalid character");
	ig_strbuf_printf(r->out, "\\x{%x}", (unsigned)v);
	return 0;
}

static bool is_category(const char *s, size_t n)
{
	static const char *const second[] = {
		"Ccfnos", "Llmotu", "Mcen", "Ndlo", "Pcdefios", "Sckmo", "Zlps",
	};

	for (size_t i = 0; i < sizeof second / sizeof second[0]; i++)
		if (s[0] == second[i][0])
			return n == 1 || (n == 2 && strchr(second[i] + 1, s[1]));
	return false;
}

/* \p{…}: general categories by one or two letters, else scripts. */
static int put_property(struct reader *r, const char *from, char letter)
{
	const char *name, *stop;
	bool not = letter == 'P';
	size_t n;

	if (r->p == r->end || *r->p++ != '{')
		return unknown_part(r, from, "a property without braces");
	stop = memchr(r->p, '}', (size_t)(r->end - r->p));
	if (!stop)
		return unknown_part(r, from, "a property without an end");
	if (*r->p == '^') {
		not = !not;
		r->p++;
	}
	name = r->p;
	n = (size_t)(stop - name);
	r->p = stop + 1;
	for (size_t i = 0; i < n; i++)
		if (!((name[i] | 32) >= 'a' && (name[i] | 32) <= 'z') && name[i] != '_')
			return unknown_part(r, from, "an unknown property");
	if (n == 0 || (n <= 2 && !is_category(name, n)))
		return unknown_part(r, from, "an unknown property");
	/* Without sc: PCRE2 would include a script's extensions. */
	ig_strbuf_printf(r->out, "\\%c{%s%.*s}", not? 'P' : 'p', n > 2 ? "sc:" : "", (int)n, name);
	return 0;
}

/* After a backslash, which is at from. */
static int put_escape(struct reader *r, const char *from, bool in_class)
{
	char c;

	if (r->p == r->end)
		return unknown_part(r, from, "a backslash at its end");
	c = *r->p++;
	switch (c) {
	case 's': ig_strbuf_printf(r->out, in_class ? "%s" : "[%s]", IG_REGEX_SPACE); return 0;
	case 'S':
		if (in_class)
			return unknown_part(r, from, "\\S in a class");
		ig_strbuf_printf(r->out, "[^%s]", IG_REGEX_SPACE);
		return 0;
	case 'd': ig_strbuf_puts(r->out, "\\p{Nd}"); return 0;
	case 'D': ig_strbuf_puts(r->out, "\\P{Nd}"); return 0;
	case 'n': ig_strbuf_puts(r->out, "\\x{a}"); return 0;
	case 'r': ig_strbuf_puts(r->out, "\\x{d}"); return 0;
	case 't': ig_strbuf_puts(r->out, "\\x{9}"); return 0;
	case 'f': ig_strbuf_puts(r->out, "\\x{c}"); return 0;
	case 'v': ig_strbuf_puts(r->out, "\\x{b}"); return 0;
	case 'x':
	case 'u': return put_code_point(r, from, c);
	case 'p':
	case 'P': return put_property(r, from, c);
	}
	if ((unsigned char)c >= 0x80 || (unsigned char)c < 0x20 || is_digit(c) ||
	    ((c | 32) >= 'a' && (c | 32) <= 'z'))
		return unknown_part(r, from, "an unknown escape");
	ig_strbuf_printf(r->out, "\\x{%x}", (unsigned)c);
	return 0;
}

/* A literal character. */
static int put_char(struct reader *r)
{
	int n = ig_utf8_check((const unsigned char *)r->p, (size_t)(r->end - r->p));

	if (n <= 0)
		return unknown_part(r, r->p, "invalid UTF-8");
	if (n == 1)
		ig_strbuf_printf(r->out, "\\x{%x}", (unsigned)*r->p);
	else
		ig_strbuf_add(r->out, r->p, (size_t)n);
	r->p += n;
	return 0;
}

static int put_class(struct reader *r)
{
	const char *from = r->p++;
	bool first = true;
	int rc = 0;

	ig_strbuf_puts(r->out, "[");
	if (r->p < r->end && *r->p == '^') {
		ig_strbuf_puts(r->out, "^");
		r->p++;
	}
	for (; r->p < r->end && (*r->p != ']' || first) && !rc; first = false) {
		const char *at = r->p;
		if (*at == ']' || *at == '[')
			return unknown_part(r, at, "a class in a class");
		if (*at == '&' && r->end - at >= 2 && at[1] == '&')
			return unknown_part(r, at, "an intersection of classes");
		if (*at == '\\') {
			r->p++;
			rc = put_escape(r, at, true);
		} else if (*at == '-') { /* a range; at the ends the character itself */
			bool end = first || (r->end - at >= 2 && at[1] == ']');
			ig_strbuf_puts(r->out, end ? "\\x{2d}" : "-");
			r->p++;
		} else {
			rc = put_char(r);
		}
	}
	if (rc)
		return rc;
	if (r->p == r->end)
		return unknown_part(r, from, "a class without an end");
	r->p++;
	ig_strbuf_puts(r->out, "]");
	return 0;
}

/* Where one character folds to several, Oniguruma matches it for those several; PCRE2 does not.
 * Such sequences begin with these letters. */
static bool folds_together(const char *p, const char *end)
{
	char a = (char)(*p | 32), b = end - p >= 2 ? (char)(p[1] | 32) : 0;

	return (a == 's' && (b == 's' || b == 't')) ||
	       (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

static int put_group(struct reader *r)
{
	static const char *const openings[] = {
		"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"
	};
	const char *from = r->p;
	size_t left = (size_t)(r->end - r->p);

	r->depth++;
	if (left >= 2 && from[1] == '?') {
		for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
			size_t n = strlen(openings[i]);
			if (left < n || memcmp(from, openings[i], n))
				continue;
			r->p += n;
			ig_strbuf_puts(r->out, openings[i]);
			if (i == 6 && !r->caseless_depth)
				r->caseless_depth = r->depth;
			return 0;
		}
		return unknown_part(r, from, "an unknown group");
	}
	if (left >= 2 && from[1] == '*')
		return unknown_part(r, from, "an unknown group");
	r->p++;
	ig_strbuf_puts(r->out, "(?:"); /* there are no back references */
	return 0;
}

static bool read_number(struct reader *r, unsigned *v)
{
	bool any = false;

	for (*v = 0; r->p < r->end && is_digit(*r->p); r->p++) {
		if (*v <= MAX_REPEAT)
			*v = *v * 10 + (unsigned)(*r->p - '0');
		any = true;
	}
	return any;
}

/* {n}, {n,}, {n,m} and {,m} */
static int put_repeat(struct reader *r)
{
	const char *from = r->p++;
	unsigned low, high;
	bool any_low = read_number(r, &low), comma = r->p < r->end && *r->p == ',',
	     any_high = false;

	high = low;
	if (comma) {
		r->p++;
		any_high = read_number(r, &high);
	}
	if (r->p == r->end || *r->p != '}' || (!any_low && !any_high) || (!comma && !any_low))
		return unknown_part(r, from, "an unknown repetition");
	r->p++;
	if (low > MAX_REPEAT || (any_high && (high > MAX_REPEAT || high < low)))
		return unknown_part(r, from, "a repetition that is out of range");
	/* In Ruby's syntax "+" and "?" after it are separate repetitions. */
	if (r->p < r->end && (*r->p == '+' || *r->p == '?' || *r->p == '*' || *r->p == '{'))
		return unknown_part(r, from, "a repetition of a repetition");
	if (comma && !any_high)
		ig_strbuf_printf(r->out, "{%u,}", low);
	else
		ig_strbuf_printf(r->out, "{%u,%u}", low, high);
	return 0;
}

static int put_next(struct reader *r)
{
	const char *from = r->p;

	switch (*from) {
	case '\\': r->p++; return put_escape(r, from, false);
	case '[': return put_class(r);
	case '(': return put_group(r);
	case '{': return put_repeat(r);
	case ')':
		if (r->caseless_depth == r->depth)
			r->caseless_depth = 0;
		if (r->depth-- == 0)
			return unknown_part(r, from, "an unmatched )");
		ig_strbuf_puts(r->out, ")");
		r->p++;
		return 0;
	case '*':
	case '+':
	case '?':
		ig_strbuf_add(r->out, r->p++, 1);
		if (r->p < r->end && (*r->p == '+' || *r->p == '?')) /* possessive, lazy */
			ig_strbuf_add(r->out, r->p++, 1);
		if (r->p < r->end && (*r->p == '*' || *r->p == '+' || *r->p == '?' || *r->p == '{'))
			return unknown_part(r, from, "a repetition of a repetition");
		return 0;
	case '|':
		ig_strbuf_puts(r->out, "|");
		r->p++;
		return 0;
	case '.':
		ig_strbuf_puts(r->out, "[^\\x{a}]");
		r->p++;
		return 0;
	case '^':
	case '$':
	case ']':
	case '}': return unknown_part(r, from, "an unsupported character");
	}
	if (r->caseless_depth && ((unsigned char)*from >= 0x80 || folds_together(from, r->end)))
		return unknown_part(r, from, "letters that fold together");
	return put_char(r);
}

int ig_regex_translate(const char *s, size_t len, struct ig_strbuf *out, struct ig_error *err)
{
	struct reader r = { .p = s, .end = s + len, .out = out, .err = err };
	int rc = 0;

	if (len > MAX_PATTERN)
		return ig_fail(err, -ENOTSUP, "a regular expression of %zu bytes (at most %d)", len,
			       MAX_PATTERN);
	while (r.p < r.end && !rc)
		rc = put_next(&r);
	if (!rc && r.depth)
		rc = unknown_part(&r, s, "a group without an end");
	if (!rc && !ig_strbuf_ok(out))
		rc = ig_fail(err, -ENOMEM, "out of memory for a regular expression");
	return rc;
}

void ig_regex_literal(const char *s, size_t len, struct ig_strbuf *out)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < 0x80)
			ig_strbuf_printf(out, "\\x{%x}", (unsigned)s[i]);
		else
			ig_strbuf_add(out, s + i, 1);
}

/* ---- compiling and finding ---------------------------------------------------------- */

int ig_regex_compile(const char *pattern, bool jit, struct ig_regex **out, struct ig_error *err)
{
	struct ig_regex *x = calloc(1, sizeof *x);
	PCRE2_SIZE at;
	uint32_t nothing = 0;
	int code;

	*out = NULL;
	if (!x)
		return ig_fail(err, -ENOMEM, "out of memory for a regular expression");
	x->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
				&code, &at, NULL);
	if (!x->code) {
		PCRE2_UCHAR text[128] = "";
		pcre2_get_error_message(code, text, sizeof text);
		free(x);
		if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY)
			return ig_fail(err, -ENOMEM, "out of memory for a regular expression");
		return ig_fail(err, -ENOTSUP,
			       "the regular expression '%.100s' does not compile: %s", pattern,
			       (const char *)text);
	}
	pcre2_pattern_info(x->code, PCRE2_INFO_MATCHEMPTY, &nothing);
	if (nothing) {
		ig_regex_destroy(x);
		return ig_fail(err, -ENOTSUP,
			       "the regular expression '%.100s' can match the empty text", pattern);
	}
	/* If code can't be generated (a hardened service), matching is only slower. */
	if (jit)
		pcre2_jit_compile(x->code, PCRE2_JIT_COMPLETE);
	*out = x;
	return 0;
}

void ig_regex_destroy(struct ig_regex *x)
{
	if (!x)
		return;
	pcre2_code_free(x->code);
	free(x);
}

struct ig_regex_work *ig_regex_work_create(size_t len)
{
	uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)len * MATCH_LIMIT_PER_BYTE;
	struct ig_regex_work *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->match = pcre2_match_context_create(NULL);
	w->data = pcre2_match_data_create(1, NULL);
	if (!w->match || !w->data) {
		ig_regex_work_destroy(w);
		return NULL;
	}
	pcre2_set_match_limit(w->match, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
	pcre2_set_heap_limit(w->match, HEAP_LIMIT_KIB);
	pcre2_set_depth_limit(w->match, DEPTH_LIMIT);
	return w;
}

void ig_regex_work_destroy(struct ig_regex_work *w)
{
	if (!w)
		return;
	pcre2_match_data_free(w->data);
	pcre2_match_context_free(w->match);
	free(w);
}

int ig_regex_find(const struct ig_regex *x, struct ig_regex_work *w, const char *text, size_t len,
		  size_t at, size_t *from, size_t *to)
{
	PCRE2_SPTR subject = (PCRE2_SPTR)text;
	int n = pcre2_match(x->code, subject, len, at, PCRE2_NO_UTF_CHECK, w->data, w->match);

	if (n == PCRE2_ERROR_JIT_STACKLIMIT)
		n = pcre2_match(x->code, subject, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
				w->data, w->match);
	if (n == PCRE2_ERROR_NOMATCH)
		return 0;
	if (n < 0)
		return -ENOMEM;
	const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->data);
	*from = span[0];
	*to = span[1];
	/* Look-around alone may still match the empty text. */
	return *to > *from ? 1 : -ENOMEM;
}

size_t ig_utf8_same_kind(const char *text, size_t n, bool *valid)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t i = 0;

	*valid = ig_utf8_check(p, n) > 0;
	while (i < n) {
		int c = ig_utf8_check(p + i, n - i);
		if ((c > 0) != *valid)
			break;
		i += c > 0 ? (size_t)c : c < 0 ? (size_t)-c : n - i;
	}
	return i;
}

size_t ig_space_at(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	int n = len ? ig_utf8_check(p, len) : 0;

	return n > 0 && ig_is_white_space(ig_utf8_char(p, n)) ? (size_t)n : 0;
}

size_t ig_space_before(const char *text, size_t len)
{
	for (size_t n = 1; n <= 3 && n <= len; n++)
		if (ig_space_at(text + len - n, n) == n)
			return n;
	return 0;
}
