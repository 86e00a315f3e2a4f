/*
 * fetch.h: one file over https into FILE.part, resumed where an earlier attempt
 * ended, and judged by its size and SHA-256.
 */
#pragma once

#include <ingot/error.h>

struct ig_fetch {
	const char *url;  /* https, or http to a loopback address */
	const char *part; /* the file to write; kept when the transfer ends early */
	uint64_t n_bytes; /* what the whole must have */
	const char *sha256;
	int64_t stall_s;     /* give an attempt up after so long with next to nothing */
	int64_t retries;     /* further attempts after one that brought nothing new */
	double retry_wait_s; /* before the first of them; doubles each time */
};

/*
 * On 0 part is whole and its hash right.  Otherwise part holds what came (the next
 * call goes on from there), or is gone when its bytes were wrong:
 * -EBADMSG  the bytes are not the expected ones, or the server's file has another size
 * -ENOENT   the server does not have it;  -ETIMEDOUT, -ECONNRESET  attempts used up
 * -EINTR    ig_interrupted;  -ENOSPC, -EACCES …  the file can't be written
 * -EBUSY    another process is fetching it
 */
int ig_fetch_file(const struct ig_fetch *f, struct ig_error *err);
