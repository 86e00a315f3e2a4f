/* utf8.c: see utf8.h. */
#include "base/utf8.h"

#include <string.h>

size_t ig_utf8_put(char *out, uint32_t c)
{
	size_t n = 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
	static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n; --i; c >>= 6)
		out[i] = (char)(0x80 | (c & 63));
	out[0] = (char)(marks[n] | c);
	return n;
}

bool ig_utf8_feed(struct ig_utf8 *u, const void *data, size_t len)
{
	const unsigned char *p = data, *end = p + len;

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
		if (p < end) {
			int n = ig_utf8_lead(*p++, &u->low, &u->high);
			if (!n)
				return false;
			u->need = (uint8_t)(n - 1);
		}
	}
	return true;
}

bool ig_utf8_valid(const void *data, size_t len)
{
	struct ig_utf8 u = { 0 };

	return ig_utf8_feed(&u, data, len) && ig_utf8_whole(&u);
}

size_t ig_utf8_count(const char *s, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += !ig_utf8_continues(s[i]);
	return n;
}

size_t ig_utf8_cut(const char *s, size_t len, size_t n)
{
	if (n >= len)
		return len;
	while (n && ig_utf8_continues(s[n]))
		n--;
	return n;
}

void ig_utf8_copy(char *out, size_t cap, const char *s)
{
	size_t len = strlen(s), n = 0;

	if (!cap)
		return;
	for (size_t i = 0; i < len;) {
		int k = ig_utf8_check((const unsigned char *)s + i, len - i);
		size_t used = k > 0 ? (size_t)k : 1;
		if (n + used >= cap)
			break;
		if (k > 0)
			memcpy(out + n, s + i, used);
		else
			out[n] = '?';
		n += used;
		i += used;
	}
	out[n] = 0;
}
