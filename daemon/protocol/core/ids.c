/* ids.c: see ids.h. */
#include "daemon/protocol/core/ids.h"

#include "base/log.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void random_bytes(void *out, size_t n)
{
	int rc = ig_random_bytes(out, n);

	if (!rc)
		return;
	ig_log_error("no random numbers: %s", strerror(-rc));
	abort(); /* ids that repeat would mix up clients */
}

void ig_random_id(char *out, size_t cap, const char *prefix)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
	unsigned char raw[32];
	char text[33];

	random_bytes(raw, sizeof raw);
	for (size_t i = 0; i < sizeof raw; i++)
		text[i] = digits[raw[i] & 31];
	text[32] = 0;
	snprintf(out, cap, "%s%s", prefix, text);
}

uint64_t ig_random_seed(void)
{
	uint64_t v;

	random_bytes(&v, sizeof v);
	return v;
}
