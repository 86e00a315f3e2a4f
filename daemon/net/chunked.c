/*
 * chunked.c: see chunked.h.  Strict, since lenient readers disagree about where a body ends: a line
 * ends in CR LF, a size is hexadecimal digits alone, an extension or a trailer has no control
 * characters.  Extensions and trailers are dropped, and bounded together.
 */
#include "daemon/net/chunked.h"

#include "base/hex.h"

#include <stdbool.h>

#define MAX_DIGITS 15 /* less than 2^60: sums do not overflow */
#define MAX_EXTRA 8192

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, TRAILER, TRAILER_LF, LAST_LF };

static bool is_text(unsigned char b) { return b == '\t' || (b >= ' ' && b != 0x7f); }

/* Expect this byte, then continue in that state. */
static bool step(struct ig_chunked *c, unsigned char b, unsigned char expected, int state)
{
	c->state = state;
	return b == expected;
}

/* A byte of the framing; false: it is invalid here. */
static bool framing(struct ig_chunked *c, unsigned char b)
{
	switch (c->state) {
	case SIZE:
		if (ig_hex_digit((char)b) >= 0) {
			c->left = c->left * 16 + (unsigned)ig_hex_digit((char)b);
			return ++c->n_digits <= MAX_DIGITS;
		}
		if (!c->n_digits)
			return false;
		c->state = b == '\r' ? SIZE_LF : EXTENSION;
		return b == '\r' || b == ';';
	case EXTENSION:
		if (b != '\r')
			return is_text(b) && ++c->n_extra <= MAX_EXTRA;
		c->state = SIZE_LF;
		return true;
	case SIZE_LF: return step(c, b, '\n', c->left ? DATA : LINE);
	case DATA_CR: return step(c, b, '\r', DATA_LF);
	case DATA_LF: c->n_digits = 0; return step(c, b, '\n', SIZE);
	case LINE:
		if (b == '\r') {
			c->state = LAST_LF;
			return true;
		}
		c->state = TRAILER;
		return is_text(b) && b != ' ' && b != '\t' && ++c->n_extra <= MAX_EXTRA;
	case TRAILER:
		if (b != '\r')
			return is_text(b) && ++c->n_extra <= MAX_EXTRA;
		c->state = TRAILER_LF;
		return true;
	case TRAILER_LF: return step(c, b, '\n', LINE);
	default: return false;
	}
}

enum ig_chunked_rc ig_chunked_feed(struct ig_chunked *c, const char **in, size_t *n,
				   const char **data, size_t *len)
{
	while (*n) {
		if (c->state == DATA) {
			*data = *in;
			*len = c->left < *n ? (size_t)c->left : *n;
			*in += *len;
			*n -= *len;
			c->left -= *len;
			if (!c->left)
				c->state = DATA_CR;
			return IG_CHUNKED_DATA;
		}
		unsigned char b = (unsigned char)**in;
		++*in;
		--*n;
		if (c->state == LAST_LF)
			return b == '\n' ? IG_CHUNKED_END : IG_CHUNKED_BAD;
		if (!framing(c, b))
			return IG_CHUNKED_BAD;
	}
	return IG_CHUNKED_MORE;
}
