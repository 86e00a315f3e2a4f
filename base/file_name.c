/* file_name.c: see file_name.h. */
#include "base/file_name.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TAIL_BYTES 20 /* -00001-of-00003.gguf */

bool ig_has_ending(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcasecmp(s + n - m, end);
}

bool ig_split_name(const char *name, unsigned *i, unsigned *n, size_t *len)
{
	static const char digits[] = "0123456789";
	size_t size = strlen(name);

	if (size <= TAIL_BYTES || !ig_has_ending(name, ".gguf"))
		return false;
	const char *s = name + size - TAIL_BYTES;
	if (s[0] != '-' || strncmp(s + 6, "-of-", 4) || strspn(s + 1, digits) != 5 ||
	    strspn(s + 10, digits) != 5)
		return false;
	*i = (unsigned)strtoul(s + 1, NULL, 10);
	*n = (unsigned)strtoul(s + 10, NULL, 10);
	*len = size - TAIL_BYTES;
	return true;
}
