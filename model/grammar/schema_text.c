/*
 * schema_text.c: values as texts: literals, and the members of an object in a format that is not
 * JSON (struct ig_grammar_members), whose strings may be without quotes.  A string without quotes
 * does not contain the text that ends it.
 */
#include "model/grammar/schema_private.h"

#include <errno.h>
#include <string.h>

/* ---- strings without quotes -------------------------------------------------------------------- */

static int any_text(struct ig_budget *budget, const char *within, size_t len, struct ig_dfa *out)
{
	struct ig_nfa a;
	uint32_t first, last;
	int rc;

	ig_nfa_init(&a, budget);
	first = last = ig_nfa_node(&a);
	ig_nfa_chars(&a, first, first, 1, 0x10ffff);
	if (len) {
		last = ig_nfa_text(&a, first, within, len);
		ig_nfa_chars(&a, last, last, 1, 0x10ffff);
	}
	rc = ig_dfa_of(&a, first, last, out);
	ig_nfa_finish(&a);
	return rc;
}

int ig_text_without(const char *text, size_t len, struct ig_budget *budget, struct ig_dfa *out)
{
	struct ig_dfa with;
	int rc = any_text(budget, NULL, 0, out);

	if (rc)
		return rc;
	if (!(rc = any_text(budget, text, len, &with))) {
		rc = ig_dfa_combine(out, &with, true, budget);
		ig_dfa_finish(&with);
	}
	if (!rc)
		rc = ig_dfa_minimise(out, budget);
	if (rc)
		ig_dfa_finish(out);
	return rc;
}

uint32_t ig_schema_raw_string(struct ig_schema *x, const struct ig_dfa *among, uint32_t from)
{
	struct ig_dfa d;
	int rc = ig_text_without(x->stop, strlen(x->stop), &x->c->budget, &d);

	if (!rc && among && (rc = ig_dfa_combine(&d, among, false, &x->c->budget)))
		ig_dfa_finish(&d);
	if (rc) {
		ig_schema_fail(x, rc,
			       rc == -ENOMEM ? "out of memory" :
					       "the string needs too large an automaton");
		return from;
	}
	from = ig_nfa_insert(x->a, from, &d);
	ig_dfa_finish(&d);
	return from;
}

/* No edge leads to a literal that contains what ends it. */
static uint32_t raw_literal(struct ig_schema *x, const json_t *value, uint32_t from)
{
	const char *s = json_string_value(value);
	size_t len = json_string_length(value);

	if (memmem(s, len, x->stop, strlen(x->stop)))
		return ig_nfa_node(x->a);
	return ig_nfa_text(x->a, from, s, len);
}

/* ---- literals ---------------------------------------------------------------------------------- */

uint32_t ig_schema_literal(struct ig_schema *x, const json_t *value, uint32_t from)
{
	struct ig_nfa *a = x->a;
	const char *stop = x->stop, *key;
	json_t *member;
	bool first = true;

	if (++x->n_open > IG_SCHEMA_MAX_DEPTH) {
		x->n_open--;
		ig_schema_fail(x, -E2BIG, "a value is nested more than %d deep",
			       IG_SCHEMA_MAX_DEPTH);
		return from;
	}
	x->open[x->n_open - 1] = value;
	if (json_is_array(value) || json_is_object(value))
		x->stop = NULL; /* strings within have quotes */
	switch (json_typeof(value)) {
	case JSON_NULL: from = ig_nfa_text(a, from, "null", 4); break;
	case JSON_TRUE: from = ig_nfa_text(a, from, "true", 4); break;
	case JSON_FALSE: from = ig_nfa_text(a, from, "false", 5); break;
	case JSON_INTEGER:
	case JSON_REAL: from = ig_schema_number_literal(x, value, from); break;
	case JSON_STRING:
		from = x->stop ? raw_literal(x, value, from) :
				 ig_schema_name(x, json_string_value(value),
						json_string_length(value), from);
		break;
	case JSON_ARRAY:
		from = ig_schema_space(x, ig_nfa_byte(a, from, '['));
		for (size_t i = 0; i < json_array_size(value) && !x->rc; i++) {
			if (i)
				from = ig_schema_space(x, ig_nfa_byte(a, from, ','));
			from = ig_schema_literal(x, json_array_get(value, i), from);
			first = false;
		}
		from = ig_nfa_byte(a, first ? from : ig_schema_space(x, from), ']');
		break;
	case JSON_OBJECT:
		from = ig_schema_space(x, ig_nfa_byte(a, from, '{'));
		json_object_foreach((json_t *)value, key, member)
		{
			if (!first)
				from = ig_schema_space(x, ig_nfa_byte(a, from, ','));
			from = ig_schema_colon(x, ig_schema_name(x, key, strlen(key), from));
			from = ig_schema_literal(x, member, from);
			first = false;
		}
		from = ig_nfa_byte(a, first ? from : ig_schema_space(x, from), '}');
	}
	x->stop = stop;
	x->n_open--;
	return from;
}

/* ---- members ----------------------------------------------------------------------------------- */

static uint32_t text(struct ig_schema *x, const char *s, uint32_t from)
{
	return s ? ig_nfa_text(x->a, from, s, strlen(s)) : from;
}

static uint32_t typed(struct ig_schema *x, const json_t *schema, unsigned types, uint32_t from)
{
	x->only = types;
	from = ig_schema_value(x, schema, from);
	x->only = 0;
	return from;
}

/* name: NULL: any word. */
uint32_t ig_schema_member(struct ig_schema *x, const struct ig_grammar_members *m, const char *name,
			  const json_t *schema, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t end = ig_nfa_node(a), at;
	size_t len = ig_schema_enter(x, name ? "properties" : "additionalProperties", name, -1);

	from = text(x, name, text(x, m->before, from));
	if (!name) {
		uint32_t loop = ig_nfa_node(a);
		ig_nfa_bytes(a, from, loop, 'a', 'z');
		ig_nfa_bytes(a, from, loop, 'A', 'Z');
		for (const char *p = "azAZ09__"; *p; p += 2)
			ig_nfa_bytes(a, loop, loop, (unsigned char)p[0], (unsigned char)p[1]);
		from = loop;
	}
	/* The values that are not strings, then those that are: each text before it may differ. */
	if (!m->raw || strcmp(m->raw, m->json)) {
		at = text(x, m->json, from);
		at = m->raw ? typed(x, schema, IG_TYPE_ALL & ~(unsigned)IG_TYPE_STRING, at) :
			      ig_schema_again(x, schema, at);
		ig_nfa_join(a, text(x, m->after, at), end);
	}
	if (m->raw) {
		at = text(x, m->raw, from);
		x->stop = m->stop;
		at = strcmp(m->raw, m->json) ? typed(x, schema, IG_TYPE_STRING, at) :
					       ig_schema_value(x, schema, at);
		x->stop = NULL;
		ig_nfa_join(a, text(x, m->after, at), end);
	}
	ig_schema_exit(x, len);
	return end;
}
