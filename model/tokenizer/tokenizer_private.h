/*
 * tokenizer_private.h: what the parts of a tokenizer share: special tokens (special.c), the
 * normalizer (normalize.c), the splitter (split.c, with the expressions of regex.c), merges of
 * bytes (bpe.c) or of characters (pairs.c), SentencePiece's two models (spm.c).  build.c puts their
 * tables together, with a reader for each file format.  All parts work on plain bytes: a file's
 * byte alphabet ("Ġ" for a space), or SentencePiece's U+2581 for a space and "<0x0A>" for a byte,
 * is decoded once, when the file is opened.
 */
#pragma once

#include "base/hash.h"
#include "model/tokenizer/tokenizer.h"

#include <string.h>

/* ---- regular expressions --------------------------------------------------------- */

/* White space by Unicode's property, as the inside of a class.  PCRE2's own \\s also includes
 * U+180E, which lost the property in Unicode 6.3; the vocabularies were trained without it. */
#define IG_REGEX_SPACE                                                                             \
	"\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                     \
	"\\x{202f}\\x{205f}\\x{3000}"

struct ig_strbuf;

/* Translate an expression of tokenizer.json (Oniguruma's syntax) to PCRE2's, appended to out.
 * -ENOTSUP names a part that is not known to mean the same there. */
int ig_regex_translate(const char *s, size_t len, struct ig_strbuf *out, struct ig_error *err);
/* An expression for exactly these characters, appended to out. */
void ig_regex_literal(const char *s, size_t len, struct ig_strbuf *out);

/* A compiled expression in PCRE2's syntax; it never matches the empty text. */
struct ig_regex;
int ig_regex_compile(const char *pattern, bool jit, struct ig_regex **out, struct ig_error *err);
void ig_regex_destroy(struct ig_regex *x);

struct ig_regex_work; /* of one thread */
/* For texts of up to len bytes.  NULL: out of memory. */
struct ig_regex_work *ig_regex_work_create(size_t len);
void ig_regex_work_destroy(struct ig_regex_work *w);
/* The first match in text, which is UTF-8, from position at on: 1, 0, or -ENOMEM, also when a
 * match reaches a limit of work. */
int ig_regex_find(const struct ig_regex *x, struct ig_regex_work *w, const char *text, size_t len,
		  size_t at, size_t *from, size_t *to);

/* The number of bytes at p that are all whole characters (*valid), or all invalid; n > 0. */
size_t ig_utf8_same_kind(const char *p, size_t n, bool *valid);

/* U+2581, which SentencePiece writes for a space. */
static inline bool ig_is_space_mark(const char *p, size_t n)
{
	return n >= 3 && !memcmp(p, "\xe2\x96\x81", 3);
}
/* Whether a token has a space after another character: then words can't be merged separately. */
static inline bool ig_crosses_words(const char *p, size_t len)
{
	for (size_t i = 1; i < len; i++)
		if (p[i] == ' ' && p[i - 1] != ' ')
			return true;
	return false;
}

/* Bytes of the white space character that text begins or ends with; 0: none. */
size_t ig_space_at(const char *text, size_t len);
size_t ig_space_before(const char *text, size_t len);

/* ---- the splitter --------------------------------------------------------------- */

struct ig_splitter;

enum ig_split_behavior { /* what happens to a match; tokenizer.json's names */
			 IG_SPLIT_ISOLATED,
			 IG_SPLIT_REMOVED,
			 IG_SPLIT_MERGED_WITH_PREVIOUS,
			 IG_SPLIT_MERGED_WITH_NEXT,
			 IG_SPLIT_CONTIGUOUS,
};

/* Without stages a text is one piece. */
int ig_splitter_create(struct ig_splitter **out);
/* Add a stage; pattern in PCRE2's syntax; with invert the text between matches counts as the
 * match.  -ENOTSUP when there are too many or the pattern matches the empty text. */
int ig_splitter_add(struct ig_splitter *s, const char *pattern, enum ig_split_behavior behavior,
		    bool invert, bool jit, struct ig_error *err);

/* Properties that a name in tokenizer.ggml.pre implies. */
struct ig_pre_traits {
	bool ignore_merges, add_bos, nfc;
};
/* -ENOTSUP: an unknown name. */
int ig_splitter_open(const char *pre, size_t len, bool jit, struct ig_splitter **out,
		     struct ig_pre_traits *traits, struct ig_error *err);
void ig_splitter_close(struct ig_splitter *s);
/* GPT-2's expression. */
extern const char ig_splitter_gpt2[];

/* Call each for the pieces of text in order; together they are the text without what a stage
 * removes.  Bytes that are not UTF-8 are separate pieces.  A result of each other than 0 ends the
 * walk and is returned.  -ENOMEM as ig_regex_find. */
int ig_splitter_run(const struct ig_splitter *s, const char *text, size_t len,
		    int (*each)(void *ctx, const char *piece, size_t len), void *ctx);

/* ---- the normalizer ------------------------------------------------------------- */

struct ig_normalizer; /* steps that change a text before it is split */
struct ig_tokenizer;

enum ig_normal_form { IG_NFC, IG_NFD, IG_NFKC, IG_NFKD };

int ig_normalizer_create(struct ig_normalizer **out);
void ig_normalizer_destroy(struct ig_normalizer *n);
/* Each adds a step.  No step changes bytes that are not UTF-8.  -ENOTSUP for too many steps. */
int ig_normalizer_add_form(struct ig_normalizer *n, enum ig_normal_form form, struct ig_error *err);
/* SentencePiece's replacements of the longest prefix; the map is copied. */
int ig_normalizer_add_charsmap(struct ig_normalizer *n, const void *map, size_t len,
			       struct ig_error *err);
/* The bytes of the first such table as they were given, appended to out; none: nothing. */
void ig_normalizer_put_charsmap(const struct ig_normalizer *n, struct ig_strbuf *out);
int ig_normalizer_add_replace_text(struct ig_normalizer *n, const char *from, size_t n_from,
				   const char *to, size_t n_to, struct ig_error *err);
/* from is an expression in PCRE2's syntax. */
int ig_normalizer_add_replace(struct ig_normalizer *n, const char *from, const char *to, size_t len,
			      bool jit, struct ig_error *err);
int ig_normalizer_add_prepend(struct ig_normalizer *n, const char *s, size_t len,
			      struct ig_error *err);
int ig_normalizer_add_strip(struct ig_normalizer *n, bool left, bool right, struct ig_error *err);
bool ig_normalizer_strips_left(const struct ig_normalizer *n);

struct ig_normal_work { /* of one thread; init with zeros */
	char *text[2];
	size_t cap[2];
};
void ig_normal_work_finish(struct ig_normal_work *w);
/* *out [*n] points into text or the work memory.  A charsmap does not change t's user-defined
 * tokens.  0, -ENOMEM, or -E2BIG for a text that grows too much. */
int ig_normalizer_run(const struct ig_normalizer *n, const struct ig_tokenizer *t, const char *text,
		      size_t len, struct ig_normal_work *w, const char **out, size_t *n_out);

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

/* Capacity for n merges.  0 or -ENOMEM. */
int ig_merges_init(struct ig_merges *m, uint32_t n);
void ig_merges_finish(struct ig_merges *m);
/* Add a merge with the next rank; a pair that exists already keeps its rank. */
void ig_merges_add(struct ig_merges *m, int32_t left, int32_t right, int32_t result);

struct ig_merge_work { /* of one encode; init with zeros */
	int32_t *ids, *prev, *next;
	uint64_t *heap;
	size_t cap;
};
void ig_merge_work_finish(struct ig_merge_work *w);

/* Merge the bytes of one piece: *ids [*n] point into the work memory.  0 or -ENOMEM. */
int ig_merges_apply(const struct ig_merges *m, struct ig_merge_work *w, const char *piece,
		    size_t len, const int32_t **ids, size_t *n);
/* The same for n ids that the caller writes into w->ids, after reserving them. */
int ig_merges_reserve(struct ig_merge_work *w, size_t n);
size_t ig_merges_run(const struct ig_merges *m, struct ig_merge_work *w, size_t n);

/* ---- SentencePiece -------------------------------------------------------------- */

struct ig_spm; /* its tables, over the tokens of a tokenizer */

/* Settings of the file. */
struct ig_spm_options {
	bool unigram;	/* the best path; else merges, the highest score first */
	bool add_space; /* before a text */
	bool trim;	/* strip spaces at the ends, merge several in a row to one */
	/* Hugging Face's unigram: sums in double, user-defined tokens by their own scores. */
	bool wide;
	int32_t unknown; /* replaces a character without token or byte tokens; -1: dropped */
};

/* scores [n_vocab]: finite; ownership is taken, also on errors.  t's table has its tokens, and its
 * special tokens are sorted. */
int ig_spm_create(const struct ig_tokenizer *t, const struct ig_spm_options *o, double *scores,
		  struct ig_spm **out);
void ig_spm_destroy(struct ig_spm *s);
/* Its options and scores, for writing it to a file. */
const struct ig_spm_options *ig_spm_made_of(const struct ig_spm *s, const double **scores);

struct ig_spm_work; /* of one thread, made on first use */
void ig_spm_work_destroy(struct ig_spm_work *w);
/* Append the ids of a text without control tokens.  As ig_tokenizer_encode, but after an error out
 * may have more ids. */
int ig_spm_encode(const struct ig_spm *s, struct ig_spm_work **work, const char *text, size_t len,
		  size_t max_ids, struct ig_ids *out);

/* ---- merges between characters ---------------------------------------------------- */

/* BPE of tokenizer.json with tokens of characters, not bytes. */
struct ig_pairs {
	int32_t unknown;   /* replaces a character without token or byte tokens; -1: dropped */
	bool fuse_unknown; /* several in a row are one */
	bool cut_words;	   /* no merge's result has a space after anything else */
};
/* Append the ids of one piece, U+2581 as a space. */
int ig_pairs_encode(const struct ig_tokenizer *t, struct ig_merge_work *w, const char *text,
		    size_t len, size_t max_ids, struct ig_ids *out);

/* ---- BERT's -------------------------------------------------------------------------- */

struct ig_wordpiece {
	bool clean, chinese, strip_accents, lowercase; /* tokenizer.json's BertNormalizer */
	uint32_t max_chars;			       /* a longer word is unknown */
	int32_t unknown;			       /* -1: dropped */
};
/* As ig_tokenizer_encode, of a text without special tokens. */
int ig_wordpiece_encode(const struct ig_tokenizer *t, const char *text, size_t len, size_t max_ids,
			struct ig_ids *out);

/* ---- the tokenizer -------------------------------------------------------------- */

enum {			 /* the kinds of tokens */
       IG_TOKEN_PLAIN,	 /* reached by merges */
       IG_TOKEN_USER,	 /* cut out of any text */
       IG_TOKEN_CONTROL, /* cut out only where the caller allows it */
       IG_TOKEN_UNUSED,	 /* SentencePiece's: plain, but text becomes its parts */
};

enum { /* of a special token: it includes white space on this side */
       IG_SPECIAL_LSTRIP = 1,
       IG_SPECIAL_RSTRIP = 2,
};

struct ig_special {
	const char *bytes; /* of the tokenizer, or of its patterns */
	uint32_t len;
	int32_t id;
	uint8_t flags;
};

struct ig_special_set { /* USER and CONTROL tokens, sorted by their bytes */
	struct ig_special *list;
	uint32_t n;
	bool has_user;
	struct {
		uint32_t first, last;
	} by_byte[256]; /* of list, by the first byte */
};

/* Tokens that text can become, by their bytes.  A slot holds 8 bits of the hash in its high bits
 * and id + 1 below: few other strings are compared, and the table of a common vocabulary fits a
 * processor's cache. */
#define IG_ENTRY_ID 0x00ffffffu
struct ig_token_table {
	uint32_t *slots;
	uint64_t mask;
	struct ig_hash_key key;
};

#define IG_MAX_ENDS 8

enum ig_token_model {
	IG_MODEL_BYTES,	 /* byte-level BPE */
	IG_MODEL_PAIRS,	 /* merges between characters, by rank */
	IG_MODEL_SCORES, /* SentencePiece's BPE */
	IG_MODEL_UNIGRAM,
	IG_MODEL_WORDPIECE,
};

enum ig_prefix { /* a space before a text that begins with none (Metaspace) */
		 IG_PREFIX_NEVER,
		 IG_PREFIX_ALWAYS,
		 IG_PREFIX_FIRST,
};

struct ig_tokenizer {
	enum ig_token_model model;
	uint32_t n_vocab;
	char *bytes;			/* all tokens', one after the other */
	uint32_t *starts;		/* [n_vocab + 1] into bytes */
	uint8_t *kinds;			/* [n_vocab] IG_TOKEN_… */
	struct ig_special_set specials; /* cut out of the original text */
	struct ig_special_set normal;	/* cut out of a normalized text; USER tokens only */
	char *patterns; /* texts of special tokens other than their bytes; NULL: none */
	struct ig_normalizer *normalizer; /* NULL: none */
	struct ig_splitter *splitter;	  /* NULL: a text is one piece */
	bool metaspace; /* pieces get the prefix, and split_words cuts them before spaces */
	bool split_words;
	enum ig_prefix prefix;	       /* also of byte-level BPE: before every text */
	struct ig_spm *spm;	       /* of SCORES and UNIGRAM */
	struct ig_pairs pairs;	       /* of PAIRS */
	struct ig_wordpiece wordpiece; /* of WORDPIECE */
	struct ig_merges merges;       /* of BYTES and PAIRS; byte_ids of all models */
	struct ig_token_table table;   /* of BYTES only with ignore_merges */
	bool ignore_merges;	       /* a piece that is a token is not merged */
	bool cuts_user;		       /* USER tokens end a text, as CONTROL ones do */
	bool adds_space, trims;	       /* see ig_tokenizer_adds_space */
	bool add_bos;
	int32_t bos;
	int32_t suffix;	       /* see ig_tokenizer_suffix */
	int32_t separators[2]; /* the same; [n_separators] */
	unsigned n_separators;
	int32_t ends[IG_MAX_ENDS];
	unsigned n_ends;
	size_t longest;
};

static inline size_t ig_tokenizer_len(const struct ig_tokenizer *t, int32_t id)
{
	return t->starts[id + 1] - t->starts[id];
}

/* The slot of these bytes, or the free one for them, with its tag. */
static inline uint32_t *ig_tokenizer_entry(const struct ig_tokenizer *t, const char *s, size_t len,
					   uint32_t *tag)
{
	uint64_t h = ig_hash_bytes(&t->table.key, s, len);

	*tag = (uint32_t)(h >> 32) & ~IG_ENTRY_ID;
	for (uint64_t i = h;; i++) {
		uint32_t *slot = &t->table.slots[i & t->table.mask];
		if (*slot == 0)
			return slot;
		if ((*slot & ~IG_ENTRY_ID) != *tag)
			continue;
		int32_t id = (int32_t)(*slot & IG_ENTRY_ID) - 1;
		if (ig_tokenizer_len(t, id) == len && !memcmp(t->bytes + t->starts[id], s, len))
			return slot;
	}
}

/* The token of exactly these bytes that text can become, or -1. */
static inline int32_t ig_tokenizer_lookup(const struct ig_tokenizer *t, const char *s, size_t len)
{
	uint32_t tag;

	return (int32_t)(*ig_tokenizer_entry(t, s, len, &tag) & IG_ENTRY_ID) - 1;
}

/* Sort a list and fill in by_byte. */
void ig_specials_sort(struct ig_special_set *set, const uint8_t *kinds);
/* All CONTROL and USER tokens of t by their own bytes.  0 or -ENOMEM. */
int ig_tokenizer_collect_specials(struct ig_tokenizer *t);
/* Whether these bytes are exactly a control token. */
bool ig_tokenizer_is_control(const struct ig_tokenizer *t, const char *s, size_t len);

/* The longest special token of the set that text begins with, or NULL; a control token only with
 * control and where no byte is a client's (NULL: none is). */
const struct ig_special *ig_tokenizer_match(const struct ig_tokenizer *t,
					    const struct ig_special_set *set, const char *text,
					    const uint8_t *client, size_t len, bool control);

/* ---- building -------------------------------------------------------------------- */

enum { /* types of tokens in files: GGUF's and SentencePiece's, and three internal ones */
       IG_TYPE_NORMAL = 1,
       IG_TYPE_UNKNOWN = 2,
       IG_TYPE_CONTROL = 3,
       IG_TYPE_USER = 4,
       IG_TYPE_UNUSED = 5,
       IG_TYPE_BYTE = 6,
       IG_TYPE_MAX = 6,
       IG_TYPE_ADDED,	   /* user-defined, and no merge makes it */
       IG_TYPE_USER_PIECE, /* user-defined, in the spelling of other tokens */
       IG_TYPE_RAW,	   /* of byte-level BPE: its text is its bytes */
};

#define IG_MAX_HOLES 65536	      /* ids that no token has */
#define IG_MAX_VOCAB ((1u << 24) - 1) /* fits a slot's low bits; real ones have up to 262,144 */

/* A tokenizer under construction; init with zeros. */
struct ig_builder {
	struct ig_tokenizer *t; /* the builder's until ig_builder_finish */
	struct ig_error *err;
	const char *tokens, *merges; /* their names in the file, for errors */
	uint64_t pad_to;	     /* rows of the model; ids without tokens are added up to it */
	int32_t unknown;	     /* the first token of that type; -1: none */
	int32_t twice;		     /* a token with the text of an earlier one; -1: none */
	uint16_t alphabet[0x144];    /* the byte that a character stands for */
	char *scratch;
	size_t longest_text;
	int32_t last_result; /* of the previous merge */
};

/* n tokens of n_bytes in total, the longest has longest bytes.  Then add tokens in the order of
 * their ids, sort the special tokens, and (BYTES, PAIRS) add merges in the order of their ranks. */
int ig_builder_begin(struct ig_builder *b, enum ig_token_model model, uint64_t n, uint64_t n_bytes,
		     size_t longest);
int ig_builder_token(struct ig_builder *b, uint64_t i, int32_t type, const char *s, size_t len);
void ig_builder_tokens_end(struct ig_builder *b);
int ig_builder_begin_merges(struct ig_builder *b, uint64_t n);
int ig_builder_merge(struct ig_builder *b, uint64_t i, const char *left, size_t n_left,
		     const char *right, size_t n_right);
/* Add a token that ends a turn; -1 and known ones are ignored. */
void ig_builder_end(struct ig_builder *b, int32_t id);
/* Add the end tokens that are known by their texts, free tables that are no longer needed, and
 * give the tokenizer to the caller. */
void ig_builder_finish(struct ig_builder *b, struct ig_tokenizer **out);
void ig_builder_cancel(struct ig_builder *b); /* fine after finish */
/* Whether a text begins or ends a turn: such tokens are always control tokens, whatever their type
 * in a file, since otherwise a client could write them. */
bool ig_is_turn_marker(const char *s, size_t len);
/* The byte that "<0x0A>" names, or -1. */
int ig_byte_of_name(const char *s, size_t len);

/* ---- readers --------------------------------------------------------------------- */

/* The files beside a model's weights. */
struct ig_model_files {
	/* 0, -ENOENT, or another error with text.  The bytes live as long as the model. */
	int (*find)(void *ctx, const char *name, const char **data, size_t *len,
		    struct ig_error *err);
	void *ctx;
};

/* The files beside g. */
struct ig_model_files ig_model_files_of(const struct ig_checkpoint *g);

int ig_tokenizer_read_gguf(struct ig_builder *b, const struct ig_checkpoint *g, bool jit);
int ig_tokenizer_read_json(struct ig_builder *b, const char *data, size_t len, bool jit);
struct ig_model_config; /* config_private.h; used for the tokens that it adds */
int ig_tokenizer_read_spm(struct ig_builder *b, const char *data, size_t len,
			  const struct ig_model_config *c);
int ig_tokenizer_read_tekken(struct ig_builder *b, const char *data, size_t len, bool jit);

/* From tokenizer.json, tokenizer.model or tekken.json, whichever is found first, with
 * tokenizer_config.json and similar files.  -ENOENT without any of the three. */
int ig_tokenizer_open_files(const struct ig_model_files *files, bool jit, struct ig_tokenizer **out,
			    struct ig_error *err);

/* As ig_tokenizer_open; without jit expressions are interpreted, for tests. */
int ig_tokenizer_open_with(const struct ig_checkpoint *g, bool jit, struct ig_tokenizer **out,
			   struct ig_error *err);

/* As ig_tokenizer_encode with special, but a control token is accepted only where none of its
 * bytes is a client's: client[i] is 1 if text[i] is; NULL: none is. */
int ig_tokenizer_encode_marked(const struct ig_tokenizer *t, const char *text,
			       const uint8_t *client, size_t len, size_t max_ids,
			       struct ig_ids *out);

/* Append n ids.  0, -ENOMEM, or -E2BIG past max_ids in all. */
int ig_ids_add(struct ig_ids *l, const int32_t *ids, size_t n, size_t max_ids);
