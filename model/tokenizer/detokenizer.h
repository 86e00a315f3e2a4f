/*
 * detokenizer.h: a stream of ids to a stream of text that is always whole UTF-8
 * characters.  One per request; memory of the caller; never allocates.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct ig_detokenizer {
	const struct ig_tokenizer *tokenizer;
	unsigned char held[4]; /* the start of a character that is not whole yet */
	unsigned n_held;
	const int32_t *shown; /* [n_shown] control tokens that are text */
	unsigned n_shown;
	bool at_start; /* of a text: the tokenizer's own space is left out */
};

void ig_detokenizer_init(struct ig_detokenizer *d, const struct ig_tokenizer *t);
/* The next ids are a text from its beginning (call it again after a control token): the
 * space that encode put before it is left out, so that the text comes back.  Without,
 * ids go on where a prompt ended, and a space that begins them is the model's own. */
void ig_detokenizer_begin(struct ig_detokenizer *d);
/* From now on these control tokens give their text; ids must outlive d. */
void ig_detokenizer_show(struct ig_detokenizer *d, const int32_t *ids, unsigned n);
/* Write the text that id completes into buf and return its length (0: nothing
 * yet).  Bytes that can't become UTF-8 come out as U+FFFD.  Control tokens that are
 * not shown give nothing.  buf must hold ig_detokenizer_max(t) bytes. */
size_t ig_detokenizer_put(struct ig_detokenizer *d, int32_t id, char *buf);
/* What is held at the end, as U+FFFD; up to 12 bytes. */
size_t ig_detokenizer_flush(struct ig_detokenizer *d, char *buf);
/* The most bytes that one put can write. */
size_t ig_detokenizer_max(const struct ig_tokenizer *t);
