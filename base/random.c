/* random.c: see random.h. */
#include "base/random.h"

#include <errno.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

int ig_random_bytes(void *out, size_t n) { return getentropy(out, n) < 0 ? -errno : 0; }
