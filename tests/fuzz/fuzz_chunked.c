/* fuzz_chunked.c: a chunked body from any bytes: read at once and byte by byte it is the
 * same, or refused at the same place. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/chunked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
	enum ig_chunked_rc rc;
	size_t n_body, n_used;
	uint64_t sum; /* of the body */
};

static void decode(const char *text, size_t n, size_t piece, struct result *r)
{
	struct ig_chunked c = { 0 };

	*r = (struct result){ .rc = IG_CHUNKED_MORE };
	while (r->n_used < n && r->rc == IG_CHUNKED_MORE) {
		const char *in = text + r->n_used, *body;
		size_t len, now = n - r->n_used < piece ? n - r->n_used : piece, left = now;
		while ((r->rc = ig_chunked_feed(&c, &in, &left, &body, &len)) == IG_CHUNKED_DATA) {
			if (!len || body < text || body + len > text + n)
				abort();
			r->n_body += len;
			for (size_t i = 0; i < len; i++)
				r->sum = r->sum * 31 + (unsigned char)body[i];
		}
		r->n_used += now - left;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result whole, bytes, some;

	decode((const char *)data, size, size ? size : 1, &whole);
	decode((const char *)data, size, 1, &bytes);
	decode((const char *)data, size, 7, &some);
	if (whole.rc != bytes.rc || whole.n_body != bytes.n_body || whole.n_used != bytes.n_used ||
	    whole.sum != bytes.sum || some.rc != bytes.rc || some.n_body != bytes.n_body ||
	    some.sum != bytes.sum || some.n_used != bytes.n_used)
		abort();
	return 0;
}
