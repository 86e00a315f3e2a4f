/* json_scan.c: see json_scan.h. */
#include "base/json_scan.h"

#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536
#define FEW_DIGITS 64 /* a double has 24 */

struct ig_json_chunk {
	struct ig_json_chunk *next;
	size_t used, cap;
	char bytes[];
};

void ig_json_scan_init(struct ig_json_scan *s, const char *name, const char *data, size_t len,
		       struct ig_error *err)
{
	*s = (struct ig_json_scan){
		.name = name, .begin = data, .p = data, .end = data + len, .err = err
	};
}

void ig_json_scan_finish(struct ig_json_scan *s)
{
	while (s->chunks) {
		struct ig_json_chunk *next = s->chunks->next;
		free(s->chunks);
		s->chunks = next;
	}
}

int ig_json_scan_bad(struct ig_json_scan *s, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return s->name ? ig_fail(s->err, -EINVAL, "%s: byte %zu: %s", s->name,
				 (size_t)(s->p - s->begin), what) :
			 ig_fail(s->err, -EINVAL, "%s", what);
}

int ig_json_scan_no_memory(struct ig_json_scan *s)
{
	return ig_fail(s->err, -ENOMEM, "%s%sout of memory", s->name ? s->name : "",
		       s->name ? ": " : "");
}

char ig_json_scan_peek(struct ig_json_scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
		s->p++;
	return s->p < s->end ? *s->p : 0;
}

static bool take(struct ig_json_scan *s, char c)
{
	if (ig_json_scan_peek(s) != c || s->p == s->end)
		return false;
	s->p++;
	return true;
}

int ig_json_scan_object(struct ig_json_scan *s,
			int (*each)(void *ctx, struct ig_json_scan *s, const char *key, size_t len),
			void *ctx)
{
	const char *key;
	size_t len;
	int rc;

	if (!take(s, '{'))
		return ig_json_scan_bad(s, "no object");
	if (take(s, '}'))
		return 0;
	do {
		if ((rc = ig_json_scan_string(s, &key, &len)))
			return rc;
		if (!take(s, ':'))
			return ig_json_scan_bad(s, "no ':'");
		if ((rc = each(ctx, s, key, len)))
			return rc;
	} while (take(s, ','));
	return take(s, '}') ? 0 : ig_json_scan_bad(s, "neither ',' nor '}'");
}

int ig_json_scan_array(struct ig_json_scan *s,
		       int (*each)(void *ctx, struct ig_json_scan *s, uint64_t i), void *ctx)
{
	uint64_t i = 0;
	int rc;

	if (!take(s, '['))
		return ig_json_scan_bad(s, "no list");
	if (take(s, ']'))
		return 0;
	do {
		if ((rc = each(ctx, s, i++)))
			return rc;
	} while (take(s, ','));
	return take(s, ']') ? 0 : ig_json_scan_bad(s, "neither ',' nor ']'");
}

/* ---- strings -------------------------------------------------------------------------- */

static int hex4(const char *p, const char *end)
{
	int v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int digit = c >= '0' && c <= '9' ? c - '0' :
			    c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			    c >= 'A' && c <= 'F' ? c - 'A' + 10 :
						   -1;
		if (digit < 0)
			return -1;
		v = v << 4 | digit;
	}
	return v;
}

/* Space for n bytes at an address that does not change. */
static char *keep(struct ig_json_scan *s, size_t n)
{
	struct ig_json_chunk *c = s->chunks;

	if (!c || c->cap - c->used < n) {
		size_t cap = n > CHUNK_BYTES ? n : CHUNK_BYTES;
		c = malloc(sizeof *c + cap);
		if (!c)
			return NULL;
		*c = (struct ig_json_chunk){ .next = s->chunks, .cap = cap };
		s->chunks = c;
	}
	return c->bytes + c->used;
}

/* Append the character of the escape at s->p to *out. */
static int unescape(struct ig_json_scan *s, char **out)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	char name = s->end - s->p >= 2 ? s->p[1] : 0;
	const char *at = name && name != 'u' ? strchr(names, name) : NULL;
	int high, low;

	if (at) {
		*(*out)++ = values[at - names];
		s->p += 2;
		return 0;
	}
	if (s->end - s->p < 6 || name != 'u' || (high = hex4(s->p + 2, s->end)) < 0)
		return ig_json_scan_bad(s, "an unknown escape");
	if (high >= 0xd800 && high < 0xdc00 && s->end - s->p >= 12 && s->p[6] == '\\' &&
	    s->p[7] == 'u' && (low = hex4(s->p + 8, s->end)) >= 0xdc00 && low < 0xe000) {
		*out += ig_utf8_put(*out, 0x10000u + ((uint32_t)(high - 0xd800) << 10) +
						  (uint32_t)(low - 0xdc00));
		s->p += 12;
		return 0;
	}
	if (high >= 0xd800 && high < 0xe000)
		return ig_json_scan_bad(s, "invalid Unicode: half of a surrogate pair");
	*out += ig_utf8_put(*out, (uint32_t)high);
	s->p += 6;
	return 0;
}

/* Advance s->p to the next quotation mark or backslash. */
static int plain_run(struct ig_json_scan *s)
{
	while (s->p < s->end) {
		unsigned char c = (unsigned char)*s->p;
		if (c == '"' || c == '\\')
			return 0;
		if (c < 0x20)
			return ig_json_scan_bad(s, "a control character in a string");
		if (c < 0x80) {
			s->p++;
			continue;
		}
		int n = ig_utf8_check((const unsigned char *)s->p, (size_t)(s->end - s->p));
		if (n <= 0)
			return ig_json_scan_bad(s, "can't decode byte 0x%02x as UTF-8", c);
		s->p += n;
	}
	return ig_json_scan_bad(s, "a string without an end");
}

int ig_json_scan_string(struct ig_json_scan *s, const char **out, size_t *len)
{
	const char *from, *stop;
	char *text, *at;
	int rc;

	if (!take(s, '"'))
		return ig_json_scan_bad(s, "no string");
	from = s->p;
	if ((rc = plain_run(s)))
		return rc;
	if (*s->p == '"') {
		*out = from;
		*len = (size_t)(s->p++ - from);
		return 0;
	}
	/* the unescaped text is not longer than the source, which ends at stop */
	for (stop = s->p; stop < s->end && *stop != '"'; stop++)
		stop += *stop == '\\' && stop + 1 < s->end;
	text = at = keep(s, (size_t)(stop - from));
	if (!text)
		return ig_json_scan_no_memory(s);
	for (s->p = from;;) {
		const char *run = s->p;
		if ((rc = plain_run(s)))
			return rc;
		memcpy(at, run, (size_t)(s->p - run));
		at += s->p - run;
		if (*s->p == '"')
			break;
		if ((rc = unescape(s, &at)))
			return rc;
	}
	s->p++;
	*out = text;
	*len = (size_t)(at - text);
	s->chunks->used += *len;
	return 0;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static bool digits(const char **p, const char *end)
{
	const char *from = *p;

	while (*p < end && **p >= '0' && **p <= '9')
		++*p;
	return *p > from;
}

/* Advance over a number; *fraction: it has a fraction or an exponent. */
static bool number_text(struct ig_json_scan *s, const char **from, bool *fraction)
{
	const char *p;

	ig_json_scan_peek(s);
	*from = p = s->p;
	*fraction = false;
	if (p < s->end && *p == '-')
		p++;
	const char *first = p;
	if (!digits(&p, s->end) || (*first == '0' && p - first > 1))
		return false;
	if (p < s->end && *p == '.') {
		p++;
		*fraction = true;
		if (!digits(&p, s->end))
			return false;
	}
	if (p < s->end && (*p == 'e' || *p == 'E')) {
		p++;
		*fraction = true;
		if (p < s->end && (*p == '+' || *p == '-'))
			p++;
		if (!digits(&p, s->end))
			return false;
	}
	s->p = p;
	return true;
}

static int real(struct ig_json_scan *s, const char *from, double *out)
{
	size_t n = (size_t)(s->p - from);
	char few[FEW_DIGITS], *text = n < sizeof few ? few : malloc(n + 1);

	if (!text)
		return ig_json_scan_no_memory(s);
	memcpy(text, from, n);
	text[n] = 0;
	*out = strtod(text, NULL);
	if (text != few)
		free(text);
	return isfinite(*out) ? 0 : ig_json_scan_bad(s, "a number that is out of range");
}

static bool fits(const struct ig_json_scan *s, const char *from, int64_t *out)
{
	int sign = *from == '-' ? -1 : 1;

	*out = 0;
	for (const char *p = from + (sign < 0); p < s->p; p++)
		if (__builtin_mul_overflow(*out, 10, out) ||
		    __builtin_add_overflow(*out, sign * (*p - '0'), out))
			return false;
	return true;
}

static int integer(struct ig_json_scan *s, const char *from, int64_t *out)
{
	return fits(s, from, out) ? 0 : ig_json_scan_bad(s, "too big integer");
}

int ig_json_scan_number(struct ig_json_scan *s, double *out)
{
	const char *from;
	bool fraction;

	if (!number_text(s, &from, &fraction))
		return ig_json_scan_bad(s, "no number");
	return real(s, from, out);
}

int ig_json_scan_integer(struct ig_json_scan *s, int64_t *out)
{
	const char *from;
	bool fraction;

	if (!number_text(s, &from, &fraction) || fraction)
		return ig_json_scan_bad(s, "no whole number");
	return integer(s, from, out);
}

int ig_json_scan_numeral(struct ig_json_scan *s, bool round, bool *whole, int64_t *i, double *x)
{
	const char *from;
	bool fraction;

	if (!number_text(s, &from, &fraction))
		return ig_json_scan_bad(s, "no number");
	*whole = !fraction && !(round && !fits(s, from, i));
	return *whole ? integer(s, from, i) : real(s, from, x);
}

/* ---- values --------------------------------------------------------------------------------- */

static int skip_string(struct ig_json_scan *s)
{
	/* a quotation mark ends it unless an odd number of backslashes precedes it */
	for (const char *from = s->p + 1, *at = from;; at++) {
		const char *back;
		at = memchr(at, '"', (size_t)(s->end - at));
		if (!at) {
			s->p = s->end;
			return ig_json_scan_bad(s, "a string without an end");
		}
		for (back = at; back > from && back[-1] == '\\';)
			back--;
		if ((at - back) % 2 == 0) {
			s->p = at + 1;
			return 0;
		}
	}
}

/* Only counts brackets: a later scan of the value checks it. */
static int skip(struct ig_json_scan *s)
{
	uint64_t depth = 0;
	int rc;

	do {
		char c = ig_json_scan_peek(s);
		const char *at = s->p;
		switch (c) {
		case 0: return ig_json_scan_bad(s, "no value");
		case '"':
			if ((rc = skip_string(s)))
				return rc;
			break;
		case '{':
		case '[':
			depth++;
			s->p++;
			break;
		case '}':
		case ']':
			if (depth == 0)
				return ig_json_scan_bad(s, "no value");
			depth--;
			s->p++;
			break;
		case ',':
		case ':':
			if (depth == 0)
				return ig_json_scan_bad(s, "no value");
			s->p++;
			break;
		default: /* a number or a word, which a later scan checks */
			while (s->p < s->end && (((*s->p | 32) >= 'a' && (*s->p | 32) <= 'z') ||
						 (*s->p >= '0' && *s->p <= '9') || *s->p == '-' ||
						 *s->p == '+' || *s->p == '.'))
				s->p++;
			if (s->p == at)
				return ig_json_scan_bad(s, "no value");
		}
	} while (depth);
	return 0;
}

int ig_json_scan_skip(struct ig_json_scan *s, struct ig_json_scan *value)
{
	const char *from;
	int rc;

	ig_json_scan_peek(s);
	from = s->p;
	rc = skip(s);
	if (!rc && value)
		*value = (struct ig_json_scan){
			.name = s->name, .begin = s->begin, .p = from, .end = s->p, .err = s->err
		};
	return rc;
}

bool ig_json_scan_word(struct ig_json_scan *s, const char *word)
{
	size_t n = strlen(word);

	ig_json_scan_peek(s);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
		return false;
	s->p += n;
	return true;
}

int ig_json_scan_end(struct ig_json_scan *s)
{
	ig_json_scan_peek(s);
	return s->p == s->end ? 0 : ig_json_scan_bad(s, "end of file expected");
}
