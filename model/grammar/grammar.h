/*
 * grammar.h: which tokens may come next, so that an answer has a form: a JSON
 * schema, a regular expression, a model's way of writing calls.
 *
 * A grammar is compiled once (prep's thread, within bounds) from a source, shared
 * by requests and kept in a cache; a matcher is one request's place in it, and the
 * engine's thread asks it for a mask before each draw.  What a schema asks for and
 * Ingot can't hold is refused by name, never ignored.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct json_t; /* jansson's */

struct ig_grammar;	   /* immutable, counted; any thread */
struct ig_grammar_matcher; /* one thread at a time */
struct ig_grammar_cache;   /* any thread */

/* ---- what is to be held ------------------------------------------------------- */

enum ig_grammar_part_kind {
	/* Exactly these bytes; where they hold the text of a control token ("[TOOL_CALLS]["),
	 * that token will do for it. */
	IG_GRAMMAR_TEXT,
	IG_GRAMMAR_SCHEMA, /* a JSON value that the schema allows */
	IG_GRAMMAR_OBJECT, /* any JSON object */
	IG_GRAMMAR_REGEX,  /* bytes that the whole expression matches */
};

struct ig_grammar_part {
	enum ig_grammar_part_kind kind;
	const char *text; /* of TEXT and REGEX */
	size_t len;
	const struct json_t *schema; /* of SCHEMA */
};

/* before, then one of the choices, or up to max_repeats of them with between in
 * between, then after, then an end token of the model. */
struct ig_grammar_source {
	const char *before, *between, *after; /* TEXT; NULL: nothing */
	const struct ig_grammar_choice {
		const struct ig_grammar_part *parts;
		size_t n_parts;
	} *choices;
	size_t n_choices;     /* at least 1 */
	uint32_t max_repeats; /* 1: exactly one */
};

/* ---- compiling (off the engine's thread) ---------------------------------------- */

/* -EINVAL: what is wrong or not supported, with its place in the schema ("$.properties.x:
 * \"minContains\" is not supported") or expression; -E2BIG: larger than the bounds;
 * -ENOMEM.  t outlives the grammar. */
int ig_grammar_compile(const struct ig_tokenizer *t, const struct ig_grammar_source *source,
		       struct ig_grammar **out, struct ig_error *err);
struct ig_grammar *ig_grammar_ref(struct ig_grammar *g);
void ig_grammar_unref(struct ig_grammar *g); /* NULL is fine */

/* Grammars by (tokenizer, source), the least recently used go beyond max_bytes. */
int ig_grammar_cache_create(uint64_t max_bytes, struct ig_grammar_cache **out);
void ig_grammar_cache_destroy(struct ig_grammar_cache *c); /* NULL is fine */
/* As compile; *out is the caller's reference. */
int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *source, struct ig_grammar **out,
			 struct ig_error *err);
/* Forget what belongs to a tokenizer that is to be closed. */
void ig_grammar_cache_drop(struct ig_grammar_cache *c, const struct ig_tokenizer *t);

/* ---- matching (the engine's thread; no allocation after create) --------------------- */

/* Takes its own reference of g; NULL without memory. */
struct ig_grammar_matcher *ig_grammar_matcher_create(struct ig_grammar *g);
void ig_grammar_matcher_destroy(struct ig_grammar_matcher *m); /* NULL is fine */
/* Set the bits of the tokens that may come next, clear all others; end tokens where the
 * text may end.  mask holds (n_vocab + 31) / 32 words.  At least one bit is set. */
void ig_grammar_matcher_mask(struct ig_grammar_matcher *m, uint32_t *mask);
/* The token that was drawn.  -EINVAL when the mask did not allow it. */
int ig_grammar_matcher_accept(struct ig_grammar_matcher *m, int32_t id);
/* The text so far is whole and nothing but an end token can follow. */
bool ig_grammar_matcher_is_done(const struct ig_grammar_matcher *m);
