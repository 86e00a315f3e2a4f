/*
 * tokenizer-private.h: what tokenizer.c (opening, special tokens), the splitter
 * (tokenizer_split.c: text to pieces, by regular expression), the merger
 * (tokenizer_bpe.c: a piece to ids) and SentencePiece's two ways (tokenizer_spm.c)
 * share.
 *
 * All of it works on plain bytes: the file's byte alphabet ("Ġ" for a space), or
 * SentencePiece's U+2581 for a space and "<0x0A>" for a byte, are undone once, when
 * the file is opened.
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

/* ---- SentencePiece -------------------------------------------------------------- */

struct ig_spm; /* its tables, over the tokens of a tokenizer */

/* What the file says of it. */
struct ig_spm_options {
	bool unigram; /* the best path of all; else merges, the highest score first */
	bool add_space; /* before a text */
	bool trim; /* spaces at the ends are left out, several in a row are one */
	int32_t unknown; /* what has neither a token nor bytes becomes this; -1: is left out */
};

/* scores [n_vocab] are finite; taken over, also on errors.  t's table has its tokens and
 * its special tokens are sorted. */
int ig_spm_create(const struct ig_tokenizer *t, const struct ig_spm_options *o, float *scores,
		  struct ig_spm **out);
void ig_spm_destroy(struct ig_spm *s);
/* Append the ids of a text that has no control tokens.  As ig_tokenizer_encode; on an
 * error out has more in it. */
int ig_spm_encode(const struct ig_spm *s, const char *text, size_t len, size_t max_ids,
		  struct ig_ids *out);
bool ig_spm_adds_space(const struct ig_spm *s);
bool ig_spm_trims(const struct ig_spm *s);

/* ---- the tokenizer -------------------------------------------------------------- */

enum { /* the kinds of tokens */
	IG_TOKEN_PLAIN, /* reached by merges */
	IG_TOKEN_USER, /* its text is cut out of any text */
	IG_TOKEN_CONTROL, /* its text is cut out where the caller says so */
	IG_TOKEN_UNUSED, /* SentencePiece's: plain, but text becomes what it is made of */
};

struct ig_special { /* USER and CONTROL tokens, sorted by their bytes */
	const char *bytes;
	uint32_t len;
	int32_t id;
};

/* Tokens by their bytes: those that text can become.  A slot holds 8 bits of the hash
 * above and id + 1 below: few other strings are looked at, and the table of a common
 * vocabulary stays in a processor's own cache. */
#define IG_SLOT_ID 0x00ffffffu
struct ig_token_table {
	uint32_t *slots;
	uint64_t mask;
	struct ig_hash_key key;
};

#define IG_MAX_ENDS 8

struct ig_tokenizer {
	uint32_t n_vocab;
	char *bytes; /* all tokens', one after the other */
	uint32_t *starts; /* [n_vocab + 1] into bytes */
	uint8_t *kinds; /* [n_vocab] IG_TOKEN_… */
	struct ig_special *specials;
	uint32_t n_specials;
	bool has_user; /* specials has USER tokens */
	struct { uint32_t first, last; } by_byte[256]; /* specials by their first byte */
	struct ig_spm *spm; /* NULL: byte-level BPE, with the next two */
	struct ig_splitter *splitter;
	struct ig_merges merges; /* byte_ids are SentencePiece's, too */
	struct ig_token_table table; /* kept for spm and when ignore_merges */
	bool ignore_merges; /* a piece that is a token is taken whole */
	bool add_bos;
	int32_t bos;
	int32_t ends[IG_MAX_ENDS];
	unsigned n_ends;
	size_t longest;
};

static inline size_t ig_tokenizer_len(const struct ig_tokenizer *t, int32_t id)
{
	return t->starts[id + 1] - t->starts[id];
}

/* The slot of these bytes, or the free one where they belong, with the tag for it. */
static inline uint32_t *ig_tokenizer_slot(const struct ig_tokenizer *t, const char *s, size_t len,
					  uint32_t *tag)
{
	uint64_t h = ig_hash_bytes(&t->table.key, s, len);

	*tag = (uint32_t)(h >> 32) & ~IG_SLOT_ID;
	for (uint64_t i = h;; i++) {
		uint32_t *slot = &t->table.slots[i & t->table.mask];
		if (*slot == 0)
			return slot;
		if ((*slot & ~IG_SLOT_ID) != *tag)
			continue;
		int32_t id = (int32_t)(*slot & IG_SLOT_ID) - 1;
		if (ig_tokenizer_len(t, id) == len && !memcmp(t->bytes + t->starts[id], s, len))
			return slot;
	}
}

/* The token of exactly these bytes that text can become, or -1. */
static inline int32_t ig_tokenizer_lookup(const struct ig_tokenizer *t, const char *s, size_t len)
{
	uint32_t tag;

	return (int32_t)(*ig_tokenizer_slot(t, s, len, &tag) & IG_SLOT_ID) - 1;
}

/* Once all tokens are read.  0 or -ENOMEM. */
int ig_tokenizer_sort_specials(struct ig_tokenizer *t);
/* Whether these bytes are exactly a control token. */
bool ig_tokenizer_is_control(const struct ig_tokenizer *t, const char *s, size_t len);

/* The longest special token that text begins with, or NULL; a control token only with
 * control and where no byte is a client's (NULL: none is). */
const struct ig_special *ig_tokenizer_match(const struct ig_tokenizer *t, const char *text,
					    const uint8_t *client, size_t len, bool control);


/* As ig_tokenizer_open; tests turn the compiler of regular expressions off. */
int ig_tokenizer_open_with(const struct ig_checkpoint *g, bool jit, struct ig_tokenizer **out,
			   struct ig_error *err);

/* As ig_tokenizer_encode with special, but a control token is only seen where none of
 * its bytes is a client's: client[i] says so of text[i]; NULL: none is. */
int ig_tokenizer_encode_marked(const struct ig_tokenizer *t, const char *text,
			       const uint8_t *client, size_t len, size_t max_ids,
			       struct ig_ids *out);

/* Append n ids.  0, -ENOMEM, or -E2BIG past max_ids in all. */
int ig_ids_add(struct ig_ids *l, const int32_t *ids, size_t n, size_t max_ids);

#endif
