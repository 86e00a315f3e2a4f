/* characters.c: strings as sequences of characters: length, white space, search. */
#include "model/jinja/jinja_private.h"
#include "base/utf8.h"
#include "model/common.h"

size_t utf8_one(const char *s, size_t len)
{
	int n = ig_utf8_check((const unsigned char *)s, len);

	return n > 0 ? (size_t)n : 1; /* a broken byte counts as a character */
}

int32_t utf8_decode(const char *s, size_t len, size_t *n)
{
	const unsigned char *p = (const unsigned char *)s;

	int k = ig_utf8_check(p, len);

	*n = k > 0 ? (size_t)k : 1;
	return k > 0 ? (int32_t)ig_utf8_char(p, k) : -1;
}

size_t utf8_offset(const char *s, size_t len, size_t n)
{
	size_t pos = 0;

	for (; n && pos < len; n--)
		pos += utf8_one(s + pos, len - pos);
	return pos;
}

size_t utf8_length(const char *s, size_t len)
{
	size_t n = 0;

	for (size_t pos = 0; pos < len; n++)
		pos += utf8_one(s + pos, len - pos);
	return n;
}

static bool is_space(int32_t c)
{
	return c >= 0 && (ig_is_white_space((uint32_t)c) || (c >= 0x1c && c <= 0x1f));
}

size_t space_at(const char *s, size_t len)
{
	size_t n;

	return len && is_space(utf8_decode(s, len, &n)) ? n : 0;
}

size_t space_before(const char *s, size_t len)
{
	/* No space has more than three bytes. */
	for (size_t k = 1; k <= 3 && k <= len; k++)
		if (!ig_utf8_continues(s[len - k]))
			return space_at(s + len - k, k) == k ? k : 0;
	return 0;
}

struct value str_strip(const struct value *s, bool left, bool right)
{
	size_t first = 0, end = s->len, n;

	while (left && first < end && (n = space_at(s->p + first, end - first)))
		first += n;
	while (right && end > first && (n = space_before(s->p + first, end - first)))
		end -= n;
	return str_slice(s, first, end - first);
}

size_t str_find(const struct value *s, size_t from, const struct value *what)
{
	const char *p;

	if (from > s->len)
		return SIZE_MAX;
	if (!what->len)
		return from;
	p = memmem(s->p + from, s->len - from, what->p, what->len);
	return p ? (size_t)(p - s->p) : SIZE_MAX;
}
