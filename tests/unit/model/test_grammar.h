/*
 * test_grammar.h: what the tests of grammars share: compiling from text, and asking a
 * grammar about a text byte by byte.
 */
#pragma once

#include "made_vocabulary.h"
#include "model/grammar/grammar.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A schema in which ' stands for ". */
static inline json_t *schema_of(const char *text)
{
	char *copy = strdup(text);
	json_t *out;

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	out = json_loads(copy, JSON_DECODE_ANY, NULL);
	free(copy);
	if (!out)
		fail_msg("the test's schema is no JSON: %s", text);
	return out;
}

static inline int compile_part(const struct ig_tokenizer *t, struct ig_grammar_part part,
			       struct ig_grammar **out, struct ig_error *err)
{
	const struct ig_grammar_choice choice = { &part, 1 };
	const struct ig_grammar_source source = { .choices = &choice,
						  .n_choices = 1,
						  .max_repeats = 1 };

	return ig_grammar_compile(t, &source, out, err);
}

static inline int compile_schema(const struct ig_tokenizer *t, const char *text,
				 struct ig_grammar **out, struct ig_error *err)
{
	json_t *schema = schema_of(text);
	int rc = compile_part(
		t, (struct ig_grammar_part){ .kind = IG_GRAMMAR_SCHEMA, .schema = schema }, out,
		err);

	json_decref(schema);
	return rc;
}

static inline int compile_regex(const struct ig_tokenizer *t, const char *text,
				struct ig_grammar **out, struct ig_error *err)
{
	return compile_part(t,
			    (struct ig_grammar_part){
				    .kind = IG_GRAMMAR_REGEX, .text = text, .len = strlen(text) },
			    out, err);
}

static inline bool has_bit(const uint32_t *mask, int32_t id)
{
	return mask[id / 32] >> id % 32 & 1;
}

static inline bool can_end(const struct ig_tokenizer *t, struct ig_grammar_matcher *m,
			   uint32_t *mask)
{
	ig_grammar_matcher_mask(m, mask);
	return has_bit(mask, MADE_END);
}

/* Whether a matcher takes these bytes, one token each. */
static inline bool takes_bytes(struct ig_grammar_matcher *m, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (ig_grammar_matcher_accept(m, MADE_BYTE + (unsigned char)s[i]))
			return false;
	return true;
}

/* Whether the whole text is of the grammar. */
static inline bool takes(const struct ig_tokenizer *t, struct ig_grammar *g, const char *s)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	uint32_t *mask = calloc((size_t)ig_tokenizer_n_vocab(t) / 32 + 1, sizeof *mask);
	bool ok = takes_bytes(m, s, strlen(s)) && can_end(t, m, mask);

	free(mask);
	ig_grammar_matcher_destroy(m);
	return ok;
}
