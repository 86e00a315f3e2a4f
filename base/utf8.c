/* utf8.c: see utf8.h.  The table of well-formed byte sequences is Unicode's 3-7. */
#include "base/utf8.h"

#include <string.h>

static bool lead(struct ig_utf8 *u, uint8_t b)
{
	u->low = 0x80;
	u->high = 0xbf;
	if (b < 0x80) {
		u->need = 0;
	} else if (b >= 0xc2 && b <= 0xdf) {
		u->need = 1;
	} else if (b >= 0xe0 && b <= 0xef) {
		u->need = 2;
		if (b == 0xe0)
			u->low = 0xa0;
		else if (b == 0xed)
			u->high = 0x9f;
	} else if (b >= 0xf0 && b <= 0xf4) {
		u->need = 3;
		if (b == 0xf0)
			u->low = 0x90;
		else if (b == 0xf4)
			u->high = 0x8f;
	} else {
		return false;
	}
	return true;
}

bool ig_utf8_feed(struct ig_utf8 *u, const void *data, size_t len)
{
	const uint8_t *p = data, *end = p + len;

	while (p < end) {
		if (u->need) {
			if (*p < u->low || *p > u->high)
				return false;
			u->low = 0x80;
			u->high = 0xbf;
			u->need--;
			p++;
			continue;
		}
		/* Mostly ASCII: eight at a time. */
		uint64_t w;
		while (end - p >= 8 && (memcpy(&w, p, 8), !(w & 0x8080808080808080u)))
			p += 8;
		if (p < end && !lead(u, *p++))
			return false;
	}
	return true;
}

/* Bytes of the character at s, or 0. */
static size_t char_len(const char *s, size_t len)
{
	for (size_t n = 1; n <= 4 && n <= len; n++) {
		struct ig_utf8 u = { 0 };
		if (!ig_utf8_feed(&u, s, n))
			return 0;
		if (ig_utf8_whole(&u))
			return n;
	}
	return 0;
}

void ig_utf8_copy(char *out, size_t cap, const char *s)
{
	size_t len = strlen(s), n = 0;

	if (!cap)
		return;
	for (size_t i = 0; i < len;) {
		size_t k = char_len(s + i, len - i);
		if (n + (k ? k : 1) >= cap)
			break;
		if (k)
			memcpy(out + n, s + i, k);
		else
			out[n] = '?';
		n += k ? k : 1;
		i += k ? k : 1;
	}
	out[n] = 0;
}
