/* utf8.h: is it UTF-8?  As Unicode defines it: no overlong forms, no surrogates. */
#ifndef INGOT_BASE_UTF8_H
#define INGOT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ig_utf8 {	   /* a check over pieces; begins with zeros */
	uint8_t need;	   /* continuation bytes still to come */
	uint8_t low, high; /* bounds of the next of them */
};
/* False once the bytes so far can't be UTF-8. */
bool ig_utf8_feed(struct ig_utf8 *u, const void *data, size_t len);
static inline bool ig_utf8_whole(const struct ig_utf8 *u)
{
	return !u->need;
}

/* Copy what fits, whole characters only; bytes that are not UTF-8 become '?'. */
void ig_utf8_copy(char *out, size_t cap, const char *s);

#endif
