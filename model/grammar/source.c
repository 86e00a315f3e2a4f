/*
 * source.c: writes a source as one automaton: the choices with the texts around them, or free text
 * with any number of choices in it.  Free text is all text without a marker, so that a choice is
 * held from its marker on.  It is one automaton with a state for each prefix of a marker, and their
 * masks are cached like any other.
 */
#include "base/strbuf.h"
#include "model/grammar/grammar_private.h"
#include "model/grammar/regex_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LISTED 1024 /* control tokens with an edge each */
#define MAX_SPACE 4	/* characters between reasoning and an answer that is held */

/* Exactly these bytes; where they contain a control token's name, that token is allowed too. */
static uint32_t build_text(struct ig_compiling *c, uint32_t from, const char *text, size_t len)
{
	struct ig_nfa *a = &c->nfa;
	uint32_t first = ig_nfa_node(a), end;

	ig_nfa_join(a, from, first);
	for (end = first; len && end < first + len && !a->rc;) /* nodes in a row */
		end = ig_nfa_byte(a, end, (unsigned char)text[end - first]);
	for (uint32_t k = 0; k < c->vocab->n_controls && !a->rc; k++) {
		int32_t id = c->vocab->controls[k];
		size_t n;
		bool special;
		const char *name = ig_tokenizer_token(c->vocab->tokenizer, id, &n, &special);
		for (size_t i = 0; i + n <= len; i++)
			if (text[i] == name[0] && !memcmp(text + i, name, n))
				ig_nfa_add(a, first + (uint32_t)i, first + (uint32_t)(i + n),
					   IG_NFA_SYMBOL, 0, 0, IG_SYMBOL_TOKEN | (uint32_t)id);
	}
	return end;
}

static int insert(struct ig_compiling *c, struct ig_dfa *d, uint32_t *at)
{
	*at = ig_nfa_insert(&c->nfa, *at, d);
	ig_dfa_finish(d);
	return 0;
}

static int build_part(struct ig_compiling *c, const struct ig_grammar_part *part, uint32_t *at)
{
	struct ig_dfa d;
	int rc;

	switch (part->kind) {
	case IG_GRAMMAR_TEXT: *at = build_text(c, *at, part->text, part->len); return 0;
	case IG_GRAMMAR_REGEX:
		rc = ig_regex_to_dfa(part->text, part->len, 0, &c->budget, &d, c->err);
		return rc ? rc : insert(c, &d, at);
	case IG_GRAMMAR_SCHEMA: return ig_schema_build(c, part->schema, *at, at);
	case IG_GRAMMAR_OBJECT: return ig_schema_build(c, NULL, *at, at);
	case IG_GRAMMAR_MEMBERS:
		return ig_schema_build_members(c, part->schema, part->members, *at, at);
	case IG_GRAMMAR_UNTIL:
		rc = ig_text_without(part->text, part->len, &c->budget, &d);
		return rc ? rc : insert(c, &d, at);
	case IG_GRAMMAR_FORMAT:
		rc = ig_schema_format_dfa(c, part->schema, false, &d, c->err);
		return rc ? rc : insert(c, &d, at);
	}
	return ig_fail(c->err, -EINVAL, "a part of unknown kind %d", (int)part->kind);
}

static int build_choice(struct ig_compiling *c, const struct ig_grammar_choice *choice,
			uint32_t from, uint32_t end)
{
	uint32_t at = ig_nfa_node(&c->nfa);
	int rc = 0;

	ig_nfa_join(&c->nfa, from, at);
	for (size_t i = 0; i < choice->n_parts && !rc; i++)
		rc = build_part(c, &choice->parts[i], &at);
	ig_nfa_join(&c->nfa, at, end);
	return rc;
}

int ig_source_build_choices(struct ig_compiling *c, uint32_t from, uint32_t *end)
{
	int rc = 0;

	*end = ig_nfa_node(&c->nfa);
	for (size_t i = 0; i < c->source->n_choices && !rc; i++)
		rc = build_choice(c, &c->source->choices[i], from, *end);
	return rc;
}

static int build_held(struct ig_compiling *c, uint32_t from, uint32_t *end)
{
	const struct ig_grammar_source *s = c->source;
	uint32_t at = from, choice, last;
	int rc;

	if (s->before)
		at = build_text(c, at, s->before, strlen(s->before));
	if (s->open)
		at = build_text(c, at, s->open, strlen(s->open));
	if (s->max_repeats == 1) {
		if ((rc = ig_source_build_choices(c, at, &last)))
			return rc;
	} else {
		if ((rc = ig_compiling_rule(c, IG_RULE_CHOICE, NULL, NULL, NULL, &choice)))
			return rc;
		last = ig_nfa_node(&c->nfa);
		for (uint32_t i = 0; i < s->max_repeats; i++) {
			if (i && s->between)
				at = build_text(c, at, s->between, strlen(s->between));
			at = ig_nfa_call(&c->nfa, at, choice);
			ig_nfa_join(&c->nfa, at, last);
		}
	}
	if (s->after)
		last = build_text(c, last, s->after, strlen(s->after));
	*end = last;
	return 0;
}

/* ---- free text ------------------------------------------------------------------- */

/* All texts that have none of these in them. */
static int text_without(struct ig_compiling *c, const char *const *markers, size_t n,
			struct ig_dfa *out)
{
	struct ig_dfa other;
	int rc = ig_text_without(markers[0], strlen(markers[0]), &c->budget, out);

	for (size_t i = 1; i < n && !rc; i++) {
		rc = ig_text_without(markers[i], strlen(markers[i]), &c->budget, &other);
		if (!rc) {
			rc = ig_dfa_combine(out, &other, false, &c->budget);
			ig_dfa_finish(&other);
		}
		if (rc)
			ig_dfa_finish(out);
	}
	return rc;
}

static bool has(const char *text, size_t len, const char *name, size_t n)
{
	return text && len >= n && memmem(text, len, name, n);
}

/* Whether a text of the source has the name of a control token in it. */
static bool is_named(const struct ig_grammar_source *s, const char *name, size_t n)
{
	const char *const texts[] = { s->open, s->between, s->after, s->free->think,
				      s->free->think_end };

	for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i] && has(texts[i], strlen(texts[i]), name, n))
			return true;
	for (size_t i = 0; i < s->n_choices; i++)
		for (size_t k = 0; k < s->choices[i].n_parts; k++)
			if (s->choices[i].parts[k].kind == IG_GRAMMAR_TEXT &&
			    has(s->choices[i].parts[k].text, s->choices[i].parts[k].len, name, n))
				return true;
	return false;
}

/* Whether the text that follows free text begins with the name of a control token. */
static bool is_next(const struct ig_grammar_source *s, bool thought, const char *name, size_t n)
{
	const struct ig_grammar_part *p = s->choices[0].n_parts ? s->choices[0].parts : NULL;
	const char *text = thought			   ? s->free->think_end :
			   s->open			   ? s->open :
			   p && p->kind == IG_GRAMMAR_TEXT ? p->text :
							     "";

	return strlen(text) >= n && !memcmp(text, name, n);
}

/* Text that d reads, and control tokens, but those whose names are in one of the markers.  Tokens
 * with edges elsewhere need edges here: states of text and of choices may be one state. */
static int insert_text(struct ig_compiling *c, uint32_t from, const struct ig_dfa *d,
		       const char *const *markers, size_t n_markers, bool thought, uint32_t *end)
{
	const struct ig_vocab *v = c->vocab;
	int32_t *tokens = malloc((v->n_controls + 1) * sizeof *tokens);
	uint32_t n_named = 0, n_tokens = 0, n;
	bool others = true;

	if (!tokens)
		return -ENOMEM;
	/* The named ones at the beginning, the rest at the end. */
	for (uint32_t i = 0; i < v->n_controls; i++) {
		size_t len;
		bool special, marks = false;
		const char *name = ig_tokenizer_token(v->tokenizer, v->controls[i], &len, &special);
		for (size_t k = 0; k < n_markers; k++)
			marks = marks || has(markers[k], strlen(markers[k]), name, len);
		if (marks)
			others = others && is_next(c->source, thought, name, len);
		else if (is_named(c->source, name, len))
			tokens[n_named++] = v->controls[i];
		else
			tokens[v->n_controls - ++n_tokens] = v->controls[i];
	}
	/* A marker without an edge of its own must not count as another token. */
	n = n_named;
	if (!others && n_tokens <= MAX_LISTED) {
		memmove(tokens + n, tokens + v->n_controls - n_tokens, n_tokens * sizeof *tokens);
		n += n_tokens;
	}
	*end = ig_nfa_insert_free(&c->nfa, from, d, tokens, n, others);
	free(tokens);
	return 0;
}

/* Up to n spaces and ends of lines. */
static uint32_t build_space(struct ig_nfa *a, uint32_t from, unsigned n)
{
	uint32_t end = ig_nfa_node(a), at = ig_nfa_node(a);

	ig_nfa_join(a, from, at);
	for (; n; n--) {
		uint32_t next = ig_nfa_node(a);
		ig_nfa_join(a, at, end);
		ig_nfa_bytes(a, at, next, ' ', ' ');
		ig_nfa_bytes(a, at, next, '\n', '\n');
		at = next;
	}
	ig_nfa_join(a, at, end);
	return end;
}

/* Reasoning, then start.  The completion may end within it if it may be text. */
static int build_thought(struct ig_compiling *c, uint32_t from, uint32_t start, uint32_t end)
{
	const struct ig_grammar_free *f = c->source->free;
	struct ig_nfa *a = &c->nfa;
	struct ig_dfa d;
	uint32_t at = ig_nfa_node(a);
	int rc = text_without(c, &f->think_end, 1, &d);

	if (rc)
		return rc;
	ig_nfa_join(a, from, at);
	if (!f->in_thought) {
		ig_nfa_join(a, from, start);
		at = build_text(c, build_space(a, at, MAX_SPACE), f->think, strlen(f->think));
	}
	rc = insert_text(c, at, &d, &f->think_end, 1, true, &at);
	ig_dfa_finish(&d);
	if (rc)
		return rc;
	if (f->n_markers)
		ig_nfa_join(a, at, end);
	at = build_text(c, at, f->think_end, strlen(f->think_end));
	ig_nfa_join(a, f->n_markers ? at : build_space(a, at, MAX_SPACE), start);
	return 0;
}

/* One choice or more, with open, between and after. */
static int build_calls(struct ig_compiling *c, uint32_t from, uint32_t *end)
{
	const struct ig_grammar_source *s = c->source;
	uint32_t first = ig_nfa_node(&c->nfa), at = from;
	int rc;

	if (s->open)
		at = build_text(c, at, s->open, strlen(s->open));
	ig_nfa_join(&c->nfa, at, first);
	if ((rc = ig_source_build_choices(c, first, &at)))
		return rc;
	if (s->max_repeats > 1)
		ig_nfa_join(&c->nfa,
			    s->between ? build_text(c, at, s->between, strlen(s->between)) : at,
			    first);
	*end = s->after ? build_text(c, at, s->after, strlen(s->after)) : at;
	return 0;
}

/* Text from loop on, and again after the calls, which end at last, if there may be more. */
static int build_around(struct ig_compiling *c, uint32_t loop, uint32_t calls, uint32_t last,
			uint32_t end)
{
	const struct ig_grammar_free *f = c->source->free;
	struct ig_nfa *a = &c->nfa;
	struct ig_dfa d;
	uint32_t at;
	int rc = text_without(c, f->markers, f->n_markers, &d);

	if (rc)
		return rc;
	if (!(rc = insert_text(c, loop, &d, f->markers, f->n_markers, false, &at))) {
		ig_nfa_join(a, at, end);
		ig_nfa_join(a, at, calls);
		ig_nfa_join(a, last, c->source->max_repeats > 1 ? loop : end);
	}
	ig_dfa_finish(&d);
	return rc;
}

static int build_free(struct ig_compiling *c, uint32_t from, uint32_t *end)
{
	const struct ig_grammar_free *f = c->source->free;
	struct ig_nfa *a = &c->nfa;
	uint32_t start = ig_nfa_node(a), calls = ig_nfa_node(a), loop, last;
	int rc = 0;

	*end = ig_nfa_node(a);
	if (f->think_end)
		rc = build_thought(c, from, start, *end);
	else
		ig_nfa_join(a, from, start);
	if (rc || (rc = build_calls(c, calls, &last)))
		return rc;
	if (!f->n_markers)
		ig_nfa_join(a, start, calls);
	if (f->n_markers) {
		loop = ig_nfa_node(a);
		ig_nfa_join(a, start, loop);
		rc = build_around(c, loop, calls, last, *end);
	} else {
		ig_nfa_join(a, last, *end);
	}
	return !rc && f->alone ? build_choice(c, f->alone, start, *end) : rc;
}

int ig_source_build(struct ig_compiling *c, uint32_t from, uint32_t *end)
{
	return c->source->free ? build_free(c, from, end) : build_held(c, from, end);
}
