/* fuzz_frames.c: frames from any bytes: read at once and in pieces they are the same messages, or
 * refused at the same place. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
	size_t n_frames, n_messages, n_control, n_bytes;
	uint64_t sum;
	size_t bad;
};

static void add(struct result *r, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		r->sum = r->sum * 31 + (unsigned char)data[i];
}

static void decode(const uint8_t *bytes, size_t n, size_t piece, struct result *r)
{
	struct ig_frames f = { 0 };
	enum ig_frames_rc rc;
	char *copy = malloc(n + 1);

	*r = (struct result){ 0 };
	if (!copy)
		return;
	memcpy(copy, bytes, n);
	for (size_t at = 0; at < n && !r->bad; at += piece) {
		char *in = copy + at, *data;
		size_t left = n - at < piece ? n - at : piece, len;
		while (!r->bad &&
		       (rc = ig_frames_feed(&f, &in, &left, &data, &len)) != IG_FRAMES_MORE) {
			r->n_frames += rc == IG_FRAMES_BEGIN;
			r->n_messages += rc == IG_FRAMES_END;
			r->n_control += rc == IG_FRAMES_CONTROL;
			r->bad = rc == IG_FRAMES_BAD;
			if (rc == IG_FRAMES_DATA) {
				if (!len || data < copy || data + len > copy + n)
					abort();
				r->n_bytes += len;
				add(r, data, len);
			}
			if (rc == IG_FRAMES_CONTROL)
				add(r, f.control, f.n_control);
		}
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result whole, some;

	decode(data, size, size ? size : 1, &whole);
	for (size_t piece = 1; piece < 8; piece += 3) {
		decode(data, size, piece, &some);
		if (memcmp(&whole, &some, sizeof some))
			abort();
	}
	return 0;
}
