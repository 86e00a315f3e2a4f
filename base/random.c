/* random.c: see random.h. */
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/random.h>
#endif

int ig_random_bytes(void *out, size_t n)
{
#ifdef __linux__
	for (size_t at = 0; at < n;) {
		ssize_t got = getrandom((char *)out + at, n - at, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		at += (size_t)got;
	}
#else
	arc4random_buf(out, n);
#endif
	return 0;
}
