/*
 * utf8.h: UTF-8 as table 3-7 of the Unicode standard has it: no overlong forms, no
 * surrogates, nothing above U+10FFFF.  Broken bytes end as the standard's "maximal
 * subparts" do, so that each such part becomes one U+FFFD.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of a character that begins with this byte, 1 to 4, and the bounds of its second
 * byte; 0: no character begins with it. */
static inline int ig_utf8_lead(unsigned char first, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (first < 0x80)
		return 1;
	if (first < 0xe0)
		return first < 0xc2 ? 0 : 2;
	if (first < 0xf0) {
		if (first == 0xe0)
			*low = 0xa0; /* shorter ones are overlong */
		else if (first == 0xed)
			*high = 0x9f; /* beyond are surrogates */
		return 3;
	}
	if (first == 0xf0)
		*low = 0x90;
	else if (first == 0xf4)
		*high = 0x8f; /* beyond is above U+10FFFF */
	return first < 0xf5 ? 4 : 0;
}

static inline bool ig_utf8_continues(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* Of the n > 0 bytes at p: the length of the whole character they begin with
 * (1 to 4); 0 when they are the beginning of one and more bytes are needed; or
 * -k when the first k bytes are broken, whatever follows. */
static inline int ig_utf8_check(const unsigned char *p, size_t n)
{
	unsigned char low, high;
	int len;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] < 0xe0) /* most of what is not ASCII in vocabularies */
		return n == 1 ? 0 : (p[1] & 0xc0) == 0x80 ? 2 : -1;
	len = ig_utf8_lead(p[0], &low, &high);
	for (int i = 1; i < len; i++) {
		if ((size_t)i == n)
			return 0;
		if (p[i] < low || p[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return len ? len : -1;
}

/* The whole character at p; n is what ig_utf8_check said of it. */
static inline uint32_t ig_utf8_char(const unsigned char *p, int n)
{
	switch (n) {
	case 1: return p[0];
	case 2: return (p[0] & 31u) << 6 | (p[1] & 63u);
	case 3: return (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
	default: return (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
	}
}

/* Write the character c, at most 0x10ffff, to out[4]; its bytes, 1 to 4. */
size_t ig_utf8_put(char *out, uint32_t c);

struct ig_utf8 {		 /* a check over pieces; begins with zeros */
	uint8_t need;		 /* continuation bytes still to come */
	unsigned char low, high; /* bounds of the next of them */
};
/* False once the bytes so far can't be UTF-8. */
bool ig_utf8_feed(struct ig_utf8 *u, const void *data, size_t len);
static inline bool ig_utf8_whole(const struct ig_utf8 *u) { return !u->need; }

bool ig_utf8_valid(const void *data, size_t len);
/* Characters, of what is UTF-8. */
size_t ig_utf8_count(const char *s, size_t len);
/* How many of the first n < len bytes may be taken so that no character is cut. */
size_t ig_utf8_cut(const char *s, size_t len, size_t n);

/* Copy what fits, whole characters only; bytes that are not UTF-8 become '?'. */
void ig_utf8_copy(char *out, size_t cap, const char *s);
