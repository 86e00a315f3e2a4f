/* fetch.h: downloads one file over https into FILE.part, resumes an earlier attempt, and verifies
 * size and SHA-256. */
#pragma once

#include <ingot/error.h>

struct ig_fetch {
	const char *url;  /* https, or http to a loopback address */
	const char *part; /* the file to write; kept when the transfer ends early */
	uint64_t n_bytes; /* of the whole file */
	const char *sha256;
	int64_t stall_s;     /* abort an attempt after so long below 256 bytes a second */
	int64_t retries;     /* further attempts after one without new bytes */
	double retry_wait_s; /* before the first of them; doubles each time */
	/* Called with the bytes of part so far, several times a second also where none come; NULL:
	 * progress is shown on standard error. */
	void (*progress)(void *ctx, uint64_t done);
	void *ctx;
};

/*
 * 0: part is complete and its hash is correct.  Otherwise part has the bytes received so far, which
 * the next call resumes; it is deleted when they are wrong:
 * -EBADMSG  wrong bytes, or the server's file has another size
 * -ENOENT   the server does not have the file;  -ETIMEDOUT  no attempts are left
 * -ECONNREFUSED  another HTTP error;  -ELOOP, -EPROTO  redirects, TLS or the URL are wrong
 * -EINTR    ig_interrupted;  -ENOSPC, -EACCES …  part cannot be written
 * -EBUSY    another process downloads it
 */
int ig_fetch_file(const struct ig_fetch *f, struct ig_error *err);
