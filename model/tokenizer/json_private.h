/*
 * json_private.h: what is known of a tokenizer.json while it is read: shared by json.c, which reads
 * the file, and json_tokens.c, which makes its tokens.
 */
#pragma once

#include "base/json.h"
#include "base/json_scan.h"
#include "model/tokenizer/tokenizer_private.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry {
	const char *text;
	uint32_t len;
	int32_t id;
	double score;
};

struct text { /* of one id */
	const char *s;
	uint32_t len;
	uint8_t type; /* IG_TYPE_…; 0: no token with this id */
};

struct added {
	struct text text;
	int32_t id;
	uint8_t flags;
	bool special, normalized;
};

struct reading {
	struct ig_builder *b;
	const char *name; /* of the file */
	struct ig_error *err;
	bool jit;
	json_t *added_json, *normalizer, *pre_tokenizer, *post_processor, *decoder, *options;
	struct ig_json_scan vocab, merges; /* NULL begin: not there */
	bool has_model, has_vocab, has_merges;
	bool words; /* WordPiece */
	struct entry *entries;
	size_t n_entries, cap_entries;
	struct added *added;
	size_t n_added;
	struct text *texts; /* [n_ids] */
	size_t n_ids;
	int64_t unknown_id; /* Unigram's; -1: none */
	uint64_t n_merges;
};

/* A piece with its score, or the two sides of a merge, while its list is read. */
struct pair {
	struct reading *r;
	const char *text[2];
	size_t len[2];
	double score;
	uint64_t n;
};

static inline int fail(struct reading *r, int rc, const char *what)
{
	return ig_fail(r->err, rc, "%s: %s", r->name, what);
}

/* Whether an option of the model is there and true. */
static inline bool flag(const struct reading *r, const char *name)
{
	return json_is_true(json_object_get(r->options, name));
}

/* Readers of the vocabulary's entries (base/json_scan.h); ctx is the struct reading. */
int ig_json_tokens_take(void *ctx, struct ig_json_scan *s, const char *key, size_t len);
int ig_json_tokens_take_piece(void *ctx, struct ig_json_scan *s, uint64_t i);
/* From the list of added tokens. */
int ig_json_tokens_read_added(struct reading *r);
/* Texts by their ids, with their types; pieces: byte and unknown tokens are among the entries. */
int ig_json_tokens_place(struct reading *r, bool pieces);
/* The builder's tokens, of these texts. */
int ig_json_tokens_build(struct reading *r, enum ig_token_model model);
/* The tokenizer's special tokens, of the added ones. */
int ig_json_tokens_set_specials(struct reading *r);
