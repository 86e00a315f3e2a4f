/* tokenizer.h: text to ids and ids to bytes, by the model's own file.  Immutable once opened; any
 * thread may use it. */
#pragma once

#include "model/formats/checkpoint.h"

struct ig_tokenizer;

/* From tokenizer.ggml.* keys, or the files beside the weights.  -ENOTSUP with the name of an
 * unsupported tokenizer model or pre-tokenizer. */
int ig_tokenizer_open(const struct ig_checkpoint *g, struct ig_tokenizer **out,
		      struct ig_error *err);
void ig_tokenizer_close(struct ig_tokenizer *t);

struct ig_ids { /* a growing list; init with zeros, finish with ig_ids_finish */
	int32_t *ids;
	size_t n, cap;
};
void ig_ids_finish(struct ig_ids *l);

/* Append the ids of text.  With special, the texts of control tokens become their ids; without,
 * they are plain text (what users send).  Invalid UTF-8 is encoded byte by byte; a byte without a
 * token (control characters, in some vocabularies) is dropped, as in the reference.  User-defined
 * tokens are always recognised.  0, -ENOMEM, or -E2BIG above max_ids in total. */
int ig_tokenizer_encode(const struct ig_tokenizer *t, const char *text, size_t len, bool special,
			size_t max_ids, struct ig_ids *out);

/* The bytes of one token, owned by the tokenizer; *special: it is a control token (its bytes are
 * its name).  NULL for an id out of range. */
const char *ig_tokenizer_token(const struct ig_tokenizer *t, int32_t id, size_t *len,
			       bool *special);

int32_t ig_tokenizer_n_vocab(const struct ig_tokenizer *t);
/* The length in bytes of the longest token. */
size_t ig_tokenizer_longest(const struct ig_tokenizer *t);
/* Whether encoding adds a space before a text (SentencePiece), and whether it strips spaces at the
 * text's ends. */
bool ig_tokenizer_adds_space(const struct ig_tokenizer *t);
bool ig_tokenizer_trims(const struct ig_tokenizer *t);
int32_t ig_tokenizer_bos(const struct ig_tokenizer *t); /* -1: none */
bool ig_tokenizer_add_bos(const struct ig_tokenizer *t);
/* What a model of embeddings expects after a text; -1: nothing.  And between a query and a text:
 * [*n], *n up to 2. */
int32_t ig_tokenizer_suffix(const struct ig_tokenizer *t);
const int32_t *ig_tokenizer_separators(const struct ig_tokenizer *t, unsigned *n);
/* Whether id ends a turn (eos, eot, <|im_end|> …). */
bool ig_tokenizer_is_end(const struct ig_tokenizer *t, int32_t id);
/* The id of exactly this control token, or -1. */
int32_t ig_tokenizer_find_special(const struct ig_tokenizer *t, const char *text);
