/*
 * tokenizer-private.h: what tokenizer.c (opening, special tokens), the splitter
 * (tokenizer_split.c: text to pieces, by regular expression) and the merger
 * (tokenizer_bpe.c: a piece to ids) share.
 *
 * All of it works on plain bytes: the file's byte alphabet ("Ġ" for a space) is
 * undone once, when the file is opened.
 */
#ifndef INGOT_MODEL_TOKENIZER_PRIVATE_H
#define INGOT_MODEL_TOKENIZER_PRIVATE_H

#include "model/hash-private.h"
#include "model/tokenizer.h"

/* ---- the splitter --------------------------------------------------------------- */

struct ig_splitter;

/* By the name in tokenizer.ggml.pre.  -ENOTSUP names one that is not known.
 * *ignore_merges and *add_bos are what the name implies. */
int ig_splitter_open(const char *pre, size_t len, bool jit, struct ig_splitter **out,
		     bool *ignore_merges, bool *add_bos, struct ig_error *err);
void ig_splitter_close(struct ig_splitter *s);

/* Call each for the pieces of text in order; together they are the text.  Bytes
 * that are not UTF-8 are pieces of their own.  What each returns ends the walk
 * unless it is 0.  -ENOMEM also when a limit of the expressions is reached,
 * which none of ours can. */
int ig_splitter_run(const struct ig_splitter *s, const char *text, size_t len,
		    int (*each)(void *ctx, const char *piece, size_t len), void *ctx);

/* ---- the merger ----------------------------------------------------------------- */

struct ig_merge {
	int32_t left, right, result; /* token ids; the merge's rank is its index */
};

struct ig_merges {
	struct ig_merge *list; /* [n] by rank */
	uint32_t n;
	uint32_t *slots; /* open addressing by (left, right): rank + 1; 0: free */
	uint32_t mask;
	struct ig_hash_key hash_key;
	int32_t byte_ids[256]; /* the token of one byte; -1: none */
};

/* Room for n merges.  0 or -ENOMEM. */
int ig_merges_init(struct ig_merges *m, uint32_t n);
void ig_merges_finish(struct ig_merges *m);
/* The next rank; a pair that is there already keeps its rank. */
void ig_merges_add(struct ig_merges *m, int32_t left, int32_t right, int32_t result);

struct ig_merge_work { /* of one call of encode; init with zeros */
	int32_t *ids, *prev, *next;
	uint64_t *heap;
	size_t cap;
};
void ig_merge_work_finish(struct ig_merge_work *w);

/* Merge the bytes of one piece: *ids [*n] lie in the work memory.  0 or -ENOMEM. */
int ig_merges_apply(const struct ig_merges *m, struct ig_merge_work *w, const char *piece,
		    size_t len, const int32_t **ids, size_t *n);

/* ---- the tokenizer -------------------------------------------------------------- */

/* As ig_tokenizer_open; tests turn the compiler of regular expressions off. */
int ig_tokenizer_open_with(const struct ig_gguf *g, bool jit, struct ig_tokenizer **out,
			   struct ig_error *err);

/* As ig_tokenizer_encode with special, but a control token is only seen where none of
 * its bytes is a client's: client[i] says so of text[i]; NULL: none is. */
int ig_tokenizer_encode_marked(const struct ig_tokenizer *t, const char *text,
			       const uint8_t *client, size_t len, size_t max_ids,
			       struct ig_ids *out);

/* Append n ids.  0, -ENOMEM, or -E2BIG past max_ids in all. */
int ig_ids_add(struct ig_ids *l, const int32_t *ids, size_t n, size_t max_ids);

#endif
