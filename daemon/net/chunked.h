/* chunked.h: the chunked coding of a request's body, taken apart as it comes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Zero is the start. */
struct ig_chunked {
	int state;
	uint64_t left;		    /* of the chunk */
	uint32_t n_digits, n_extra; /* of the size; bytes of extensions and trailers */
};

enum ig_chunked_rc {
	IG_CHUNKED_MORE, /* all of the input is used */
	IG_CHUNKED_DATA, /* a piece of the body; call again for what follows */
	IG_CHUNKED_END,	 /* the body is whole; what is left of the input is none of it */
	IG_CHUNKED_BAD,	 /* not this coding */
};

/* Take from *in, *n bytes, and move both on; of IG_CHUNKED_DATA, data and len are the
 * piece, within the input.  Not to be called again after END or BAD. */
enum ig_chunked_rc ig_chunked_feed(struct ig_chunked *c, const char **in, size_t *n,
				   const char **data, size_t *len);
