/*
 * utf8_decode.h: where a UTF-8 character ends, where a broken one does, and how one is written.
 * Table 3-7 of the Unicode standard; the broken ones end as its "maximal
 * subparts" do, so that each becomes one U+FFFD.
 */
#ifndef INGOT_BASE_UTF8_DECODE_H
#define INGOT_BASE_UTF8_DECODE_H

#include <stddef.h>
#include <stdint.h>

/* Of the n > 0 bytes at p: the length of the whole character they begin with
 * (1 to 4); 0 when they are the beginning of one and more bytes are needed; or
 * -k when the first k bytes are broken, whatever follows. */
static inline int ig_utf8_check(const unsigned char *p, size_t n)
{
	unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
	int len;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return -1;
	if (p[0] < 0xe0) {
		len = 2;
	} else if (p[0] < 0xf0) {
		len = 3;
		if (p[0] == 0xe0)
			low = 0xa0; /* shorter ones are overlong */
		else if (p[0] == 0xed)
			high = 0x9f; /* beyond are surrogates */
	} else {
		len = 4;
		if (p[0] == 0xf0)
			low = 0x90;
		else if (p[0] == 0xf4)
			high = 0x8f; /* beyond is above U+10FFFF */
	}
	for (int i = 1; i < len; i++) {
		if ((size_t)i == n)
			return 0;
		if (p[i] < low || p[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return len;
}

/* Write the character c, at most 0x10ffff, to out[4]; its bytes, 1 to 4. */
static inline size_t ig_utf8_put(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

#endif
