/*
 * grammar.h: which tokens may come next, so that a completion follows a JSON schema, a regular
 * expression, or a model's format of tool calls.  A grammar is compiled once (a prep thread, within
 * limits) from a source and cached; requests share it.  A matcher is one request's position in it;
 * the engine's thread gets a mask from it before each token is sampled.  A keyword of a schema that
 * is not supported is an error with its name, never ignored.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct json_t; /* jansson's */

struct ig_grammar;	   /* immutable, counted; any thread */
struct ig_grammar_matcher; /* one thread at a time */
struct ig_grammar_cache;   /* any thread */

/* ---- sources ------------------------------------------------------- */

enum ig_grammar_part_kind {
	/* Exactly these bytes; where they contain the text of a control token ("[TOOL_CALLS]["),
	 * that token is allowed too. */
	IG_GRAMMAR_TEXT,
	IG_GRAMMAR_SCHEMA,  /* a JSON value that the schema allows */
	IG_GRAMMAR_OBJECT,  /* any JSON object */
	IG_GRAMMAR_REGEX,   /* bytes that the whole expression matches */
	IG_GRAMMAR_MEMBERS, /* the members of an object that the schema allows, as members has it */
	IG_GRAMMAR_UNTIL,   /* any text without this one */
	/* Text of the grammar {"syntax": "lark" or "regex", "definition"} (schema), as it is. */
	IG_GRAMMAR_FORMAT,
};

/* How the members of an object are written in a format that is not JSON: before, the name, json,
 * the value as JSON, after; between two members, between.  A string is written without quotes after
 * raw instead of json, and does not contain stop.  Names in additionalProperties are never used. */
struct ig_grammar_members {
	const char *before, *json, *after;
	const char *raw, *stop; /* NULL: strings are JSON, too */
	const char *between;	/* NULL: nothing */
};

struct ig_grammar_part {
	enum ig_grammar_part_kind kind;
	const char *text; /* of TEXT, REGEX and UNTIL */
	size_t len;
	const struct json_t *schema; /* of SCHEMA, MEMBERS and FORMAT */
	const struct ig_grammar_members *members;
};

struct ig_grammar_choice { /* its parts, one after the other */
	const struct ig_grammar_part *parts;
	size_t n_parts;
};

/* What may stand around and instead of the choices. */
struct ig_grammar_free {
	/* Free text contains none of these, with one of which the choices begin.  None: there is
	 * no free text. */
	const char *const *markers;
	size_t n_markers;
	/* Reasoning may come first, between these; NULL: none.  in_thought: it has begun. */
	const char *think, *think_end;
	bool in_thought;
	const struct ig_grammar_choice *alone; /* what may be the whole text; NULL: nothing */
};

/* before, then one to max_repeats choices with between in between, then after, then an end
 * token of the model.  With free: text with any number of these in it, or at most one, at its end,
 * if max_repeats is 1; without before. */
struct ig_grammar_source {
	const char *before, *between, *after; /* TEXT; NULL: nothing */
	const char *open;		      /* TEXT between before and the first choice */
	const struct ig_grammar_free *free;   /* NULL: only the choices */
	const struct ig_grammar_choice *choices;
	size_t n_choices;     /* at least 1 */
	uint32_t max_repeats; /* 1: exactly one */
};

/* ---- compiling (off the engine's thread) ---------------------------------------- */

/* -EINVAL: what is wrong or not supported, with its place in the schema ("$.properties.x:
 * \"minContains\" is not supported") or expression; -E2BIG: larger than the limits; -ENOMEM.
 * t must outlive the grammar. */
int ig_grammar_compile(const struct ig_tokenizer *t, const struct ig_grammar_source *source,
		       struct ig_grammar **out, struct ig_error *err);
struct ig_grammar *ig_grammar_ref(struct ig_grammar *g);
void ig_grammar_unref(struct ig_grammar *g); /* NULL is fine */

/* Grammars by (tokenizer, source); above max_bytes the least recently used are evicted. */
int ig_grammar_cache_create(uint64_t max_bytes, struct ig_grammar_cache **out);
void ig_grammar_cache_destroy(struct ig_grammar_cache *c); /* NULL is fine */
/* As compile; *out is the caller's reference. */
int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *source, struct ig_grammar **out,
			 struct ig_error *err);
/* Remove what belongs to a tokenizer, which may be closed afterwards. */
void ig_grammar_cache_drop(struct ig_grammar_cache *c, const struct ig_tokenizer *t);

/* ---- matching (the engine's thread; no allocation after create) --------------------- */

/* Takes its own reference of g; NULL without memory.  g NULL: a matcher that only copies are made to. */
struct ig_grammar_matcher *ig_grammar_matcher_create(struct ig_grammar *g);
void ig_grammar_matcher_destroy(struct ig_grammar_matcher *m); /* NULL is fine */
/* Make `to`, which was created without a grammar, a matcher at from's position.  It must not be used
 * once from's grammar may be gone. */
void ig_grammar_matcher_copy(struct ig_grammar_matcher *to, const struct ig_grammar_matcher *from);
/* Set the bits of the tokens that may come next, clear all others; end tokens where the text may
 * end.  mask: (n_vocab + 31) / 32 words.  At least one bit is set. */
void ig_grammar_matcher_mask(struct ig_grammar_matcher *m, uint32_t *mask);
/* Advance by the sampled token.  -EINVAL if the mask did not allow it. */
int ig_grammar_matcher_accept(struct ig_grammar_matcher *m, int32_t id);
/* Whether only an end token can follow. */
bool ig_grammar_matcher_is_done(const struct ig_grammar_matcher *m);
