/* detokenizer.h: decodes a stream of ids to text, in whole UTF-8 characters.  One for each request,
 * in the caller's memory; never allocates. */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct ig_detokenizer {
	const struct ig_tokenizer *tokenizer;
	unsigned char held[4]; /* the first bytes of an incomplete character */
	unsigned n_held;
	const int32_t *shown; /* [n_shown] control tokens that are text */
	unsigned n_shown;
	bool at_start; /* of a text: drop the space that the tokenizer adds */
};

void ig_detokenizer_init(struct ig_detokenizer *d, const struct ig_tokenizer *t);
/* The next ids are the start of a text (call it again after a control token): the space that
 * encode adds is dropped, so that the original text results.  Without this call the ids continue
 * a prompt, and a leading space is the model's own. */
void ig_detokenizer_begin(struct ig_detokenizer *d);
/* From now on the text of these control tokens is emitted; ids must outlive d. */
void ig_detokenizer_show(struct ig_detokenizer *d, const int32_t *ids, unsigned n);
/* Write the text that id completes to buf, which holds ig_detokenizer_max(t) bytes; returns its
 * length (0: nothing yet).  Bytes that can't become UTF-8 are written as U+FFFD.  Control tokens
 * that are not shown have no text. */
size_t ig_detokenizer_put(struct ig_detokenizer *d, int32_t id, char *buf);
/* At the end: held bytes as U+FFFD; up to 12 bytes. */
size_t ig_detokenizer_flush(struct ig_detokenizer *d, char *buf);
/* Forget held bytes: what follows is a new character. */
static inline void ig_detokenizer_drop(struct ig_detokenizer *d) { d->n_held = 0; }
/* The largest number of bytes that one put writes. */
size_t ig_detokenizer_max(const struct ig_tokenizer *t);
