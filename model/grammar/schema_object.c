/*
 * schema_object.c: objects and arrays.  Members come in the order of "properties", so an object is
 * a chain: after each member comes the next one, or a later one if those between are optional.
 * Members with other names come last.
 */
#include "model/grammar/schema_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/regex_private.h"

#define MAX_PROPERTIES 1000

struct member { /* one that the schema names */
	const char *name;
	size_t len;
	const json_t *schema; /* NULL: anything */
	bool required;
};

struct extra {		      /* members with names that a pattern, or no pattern, matches */
	struct ig_dfa names;  /* no states: any name */
	const json_t *schema; /* NULL: anything */
	const char *pattern;  /* NULL: additionalProperties */
};

struct object {
	struct member *members;
	size_t n_members;
	struct extra *extras;
	size_t n_extras;
	uint64_t max; /* maxProperties */
};

static bool is_required(const json_t *schema, const char *name)
{
	const json_t *list = json_object_get(schema, "required"), *one;
	size_t i;

	json_array_foreach(list, i, one) if (json_is_string(one) &&
					     !strcmp(json_string_value(one), name)) return true;
	return false;
}

/* The members that have names: those of "properties", then those only in "required". */
static void find_members(struct ig_schema *x, const json_t *schema, struct object *o)
{
	const json_t *properties = json_object_get(schema, "properties"), *one;
	const json_t *required = json_object_get(schema, "required");
	const json_t *others = json_object_get(schema, "additionalProperties");
	const char *name;
	json_t *value;
	size_t i;

	if (properties && !json_is_object(properties))
		ig_schema_fail(x, -EINVAL, "\"properties\" must be an object");
	if (required && !json_is_array(required))
		ig_schema_fail(x, -EINVAL, "\"required\" must be a list of names");
	if (json_object_size(properties) + json_array_size(required) > MAX_PROPERTIES)
		ig_schema_fail(x, -E2BIG, "more than %d properties", MAX_PROPERTIES);
	if (x->rc)
		return;
	o->members = calloc(json_object_size(properties) + json_array_size(required) + 1,
			    sizeof *o->members);
	if (!o->members) {
		ig_schema_fail(x, -ENOMEM, "out of memory");
		return;
	}
	json_object_foreach((json_t *)properties, name, value)
	{
		o->members[o->n_members++] =
			(struct member){ name, strlen(name), value, is_required(schema, name) };
	}
	json_array_foreach(required, i, one)
	{
		bool known = false;
		name = json_string_value(one);
		for (size_t j = 0; j < o->n_members && name; j++)
			known = known || !strcmp(o->members[j].name, name);
		if (!name) {
			ig_schema_fail(x, -EINVAL, "\"required\" must be a list of names");
		} else if (!known && json_object_get(schema, "patternProperties")) {
			ig_schema_fail(x, -EINVAL,
				       "\"required\" names \"%.60s\", which is not in "
				       "\"properties\", beside \"patternProperties\"",
				       name);
		} else if (!known && json_is_false(others)) {
			ig_schema_fail(x, -EINVAL,
				       "\"required\" names \"%.60s\", which "
				       "\"additionalProperties\" forbids",
				       name);
		} else if (!known) {
			o->members[o->n_members++] =
				(struct member){ name, strlen(name), others, true };
		}
	}
}

/* ---- names that are not in properties -------------------------------------------- */

/* Any text, or the known names. */
static int names_of(struct ig_schema *x, const struct object *o, bool known, struct ig_dfa *out)
{
	struct ig_nfa a;
	uint32_t first, last;
	int rc;

	ig_nfa_init(&a, &x->c->budget);
	first = ig_nfa_node(&a);
	last = known ? ig_nfa_node(&a) : first;
	for (size_t i = 0; i < o->n_members && known; i++)
		ig_nfa_join(&a, ig_nfa_text(&a, first, o->members[i].name, o->members[i].len),
			    last);
	if (!known)
		ig_nfa_chars(&a, first, first, 1, 0x10ffff);
	rc = ig_dfa_of(&a, first, last, out);
	ig_nfa_finish(&a);
	return rc;
}

static void find_patterns(struct ig_schema *x, const json_t *schema, struct object *o)
{
	const json_t *patterns = json_object_get(schema, "patternProperties");
	struct ig_dfa both;
	const char *pattern;
	json_t *schema_of;

	json_object_foreach((json_t *)patterns, pattern, schema_of)
	{
		struct extra *e = &o->extras[o->n_extras];
		struct ig_error err;
		int rc = ig_regex_to_dfa(pattern, strlen(pattern), IG_REGEX_SEARCH, &x->c->budget,
					 &e->names, &err);
		if (rc) {
			ig_schema_fail(x, rc, "\"patternProperties\", \"%.60s\": %.200s", pattern,
				       err.text);
			return;
		}
		e->schema = schema_of;
		e->pattern = pattern;
		o->n_extras++;
		for (size_t i = 0; i < o->n_members; i++) {
			int64_t s = 0;
			for (size_t j = 0; j < o->members[i].len && s >= 0; j++)
				s = ig_dfa_step(&e->names, (uint32_t)s,
						(unsigned char)o->members[i].name[j]);
			if (s >= 0 && e->names.accepts[s])
				ig_schema_fail(x, -EINVAL,
					       "\"patternProperties\", \"%.60s\" matches the "
					       "property \"%.60s\"; that is not supported",
					       pattern, o->members[i].name);
		}
		for (size_t i = 0; i + 1 < o->n_extras && !x->rc; i++) {
			rc = ig_dfa_product(&o->extras[i].names, &e->names, false, &x->c->budget,
					    &both);
			if (rc)
				ig_schema_fail(x, rc, "\"patternProperties\" is too large");
			else if (!ig_dfa_is_empty(&both))
				ig_schema_fail(
					x, -EINVAL,
					"\"patternProperties\", \"%.60s\" and "
					"\"%.60s\" match the same names; that is not supported",
					o->extras[i].pattern, pattern);
			if (!rc)
				ig_dfa_finish(&both);
		}
		if (x->rc)
			return;
	}
}

static void find_extras(struct ig_schema *x, const json_t *schema, struct object *o)
{
	const json_t *others = json_object_get(schema, "additionalProperties");
	const json_t *patterns = json_object_get(schema, "patternProperties");
	struct extra *e;
	struct ig_dfa d;
	int rc = 0;

	if (patterns && !json_is_object(patterns))
		ig_schema_fail(x, -EINVAL, "\"patternProperties\" must be an object");
	if (x->rc)
		return;
	o->extras = calloc(json_object_size(patterns) + 1, sizeof *o->extras);
	if (!o->extras) {
		ig_schema_fail(x, -ENOMEM, "out of memory");
		return;
	}
	find_patterns(x, schema, o);
	if (x->rc || json_is_false(others))
		return;
	e = &o->extras[o->n_extras];
	if (o->n_members || o->n_extras) {
		if ((rc = names_of(x, o, false, &e->names)) || (rc = names_of(x, o, true, &d)))
			goto out;
		rc = ig_dfa_combine(&e->names, &d, true, &x->c->budget);
		ig_dfa_finish(&d);
		for (size_t i = 0; i < o->n_extras && !rc; i++)
			rc = ig_dfa_combine(&e->names, &o->extras[i].names, true, &x->c->budget);
	}
out:
	e->schema = others;
	o->n_extras++; /* also after a failure, so that it is freed */
	if (rc)
		ig_schema_fail(x, rc, "the names of other properties need too large an automaton");
}

/* ---- objects --------------------------------------------------------------------- */

/* "name": value */
static uint32_t member(struct ig_schema *x, const struct member *m, uint32_t from)
{
	size_t len = ig_schema_enter(x, "properties", m->name, -1);

	from = ig_schema_colon(x, ig_schema_name(x, m->name, m->len, from));
	from = ig_schema_again(x, m->schema, from);
	ig_schema_exit(x, len);
	return from;
}

static uint32_t extra(struct ig_schema *x, const struct extra *e, uint32_t from)
{
	struct ig_nfa *a = x->a;
	size_t len;

	if (json_is_false(e->schema))
		return ig_nfa_node(a);
	from = ig_nfa_byte(a, from, '"');
	from = e->names.n_states ? ig_nfa_byte(a, ig_nfa_insert_json(a, from, &e->names), '"') :
				   ig_schema_any_string(x, from);
	len = e->pattern ? ig_schema_enter(x, "patternProperties", e->pattern, -1) :
			   ig_schema_enter(x, "additionalProperties", NULL, -1);
	from = ig_schema_again(x, e->schema, ig_schema_colon(x, from));
	ig_schema_exit(x, len);
	return from;
}

/* Members that the schema does not name; from: node before the first one; close: node where the
 * object may end. */
static void extras(struct ig_schema *x, const struct object *o, uint32_t from, uint64_t max,
		   uint32_t close)
{
	struct ig_nfa *a = x->a;
	uint64_t i = 0;

	do {
		uint32_t end = ig_nfa_node(a), next = max == UINT64_MAX ? from : ig_nfa_node(a);
		for (size_t j = 0; j < o->n_extras && !x->rc; j++)
			ig_nfa_join(a, extra(x, &o->extras[j], from), end);
		ig_nfa_join(a, end, close);
		if (max == UINT64_MAX || i + 1 < max)
			ig_nfa_join(a, ig_schema_space(x, ig_nfa_byte(a, end, ',')), next);
		from = next;
	} while (max != UINT64_MAX && ++i < max && !x->rc && !a->rc);
}

static uint32_t write_object(struct ig_schema *x, const struct object *o, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t close = ig_nfa_node(a), end, next;
	size_t last = 0; /* after the last required one */

	for (size_t i = 0; i < o->n_members; i++)
		if (o->members[i].required)
			last = i + 1;
	from = ig_schema_space(x, ig_nfa_byte(a, from, '{'));
	end = ig_nfa_byte(a, ig_schema_space(x, close), '}');
	if (!last)
		ig_nfa_bytes(a, from, end, '}', '}');
	next = ig_nfa_node(a);
	ig_nfa_join(a, from, next);
	for (size_t i = 0; i < o->n_members && !x->rc; i++) {
		uint32_t here = next, after = member(x, &o->members[i], here);
		bool more = i + 1 < o->n_members || (o->n_extras && o->max);
		next = ig_nfa_node(a);
		if (!o->members[i].required)
			ig_nfa_join(a, here, next);
		if (more)
			ig_nfa_join(a, ig_schema_space(x, ig_nfa_byte(a, after, ',')), next);
		if (i + 1 >= last)
			ig_nfa_join(a, after, close);
	}
	if (o->n_extras && o->max && !x->rc)
		extras(x, o, next, o->max, close);
	return end;
}

/* Members as x->members has it. */
static uint32_t write_members(struct ig_schema *x, const struct object *o, const json_t *others,
			      uint32_t from)
{
	const struct ig_grammar_members *m = x->members;
	uint32_t none = from, some = ig_nfa_node(x->a); /* none or some members came before */
	bool can_be_none = true;

	x->members = NULL;
	for (size_t i = 0; i < o->n_members + !o->n_members && !x->rc && !x->a->rc; i++) {
		const struct member *one = o->n_members ? &o->members[i] : NULL;
		uint32_t here = ig_nfa_node(x->a), next = ig_nfa_node(x->a);
		if (!one && json_is_false(others))
			break;
		if (can_be_none)
			ig_nfa_join(x->a, none, here);
		if (i || !one)
			ig_nfa_join(x->a,
				    m->between ? ig_nfa_text(x->a, some, m->between,
							     strlen(m->between)) :
						 some,
				    here);
		ig_nfa_join(x->a,
			    ig_schema_member(x, m, one ? one->name : NULL,
					     one ? one->schema : others, here),
			    one ? next : some);
		if (!one)
			break;
		if (one->required)
			can_be_none = false;
		else
			ig_nfa_join(x->a, some, next);
		some = next;
	}
	uint32_t end = ig_nfa_node(x->a);
	ig_nfa_join(x->a, some, end);
	if (can_be_none)
		ig_nfa_join(x->a, none, end);
	x->members = m;
	return end;
}

uint32_t ig_schema_object(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	struct object o = { 0 };
	uint64_t min = ig_schema_count(x, schema, "minProperties", 0), n_required = 0;

	o.max = ig_schema_count(x, schema, "maxProperties", UINT64_MAX);
	find_members(x, schema, &o);
	if (!x->rc)
		find_extras(x, schema, &o);
	for (size_t i = 0; i < o.n_members; i++)
		n_required += o.members[i].required;
	if (min > n_required)
		ig_schema_fail(x, -EINVAL,
			       "\"minProperties\" above the number of required properties "
			       "is not supported");
	if (o.max != UINT64_MAX && o.n_members) {
		if (o.max < o.n_members || o.n_extras)
			ig_schema_fail(x, -EINVAL,
				       "\"maxProperties\" beside \"properties\" is only "
				       "supported when it can't be reached");
		o.max = UINT64_MAX;
	}
	if (!x->rc)
		from = x->members ?
			       write_members(x, &o, json_object_get(schema, "additionalProperties"),
					     from) :
			       write_object(x, &o, from);
	for (size_t i = 0; i < o.n_extras; i++)
		ig_dfa_finish(&o.extras[i].names);
	free(o.extras);
	free(o.members);
	return from;
}

/* ---- arrays ---------------------------------------------------------------------- */

struct array {
	const json_t *prefix; /* a list, or NULL */
	const json_t *items;  /* NULL: anything */
	uint64_t min, max;
};

static uint32_t item(struct ig_schema *x, const struct array *r, uint64_t i, uint32_t from,
		     bool again)
{
	size_t n = json_array_size(r->prefix), len;

	if (i < n) {
		len = ig_schema_enter(x, "prefixItems", NULL, (int64_t)i);
		from = ig_schema_again(x, json_array_get(r->prefix, (size_t)i), from);
	} else {
		len = ig_schema_enter(x, "items", NULL, -1);
		from = again ? ig_schema_again(x, r->items, from) :
			       ig_schema_value(x, r->items, from);
	}
	ig_schema_exit(x, len);
	return from;
}

static uint32_t write_array(struct ig_schema *x, const struct array *r, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t close = ig_nfa_node(a), end, at, comma = 0;
	uint64_t n_prefix = json_array_size(r->prefix), i;
	uint64_t loop =
		r->max == UINT64_MAX ? (r->min > n_prefix ? r->min - 1 : n_prefix) : UINT64_MAX;

	if (loop != UINT64_MAX && loop < n_prefix)
		loop = n_prefix;
	at = ig_schema_space(x, ig_nfa_byte(a, from, '['));
	end = ig_nfa_byte(a, ig_schema_space(x, close), ']');
	if (!r->min)
		ig_nfa_bytes(a, at, end, ']', ']');
	for (i = 0; i < r->max && i <= loop && !x->rc && !a->rc; i++) {
		uint32_t start = ig_nfa_node(a), after;
		if (i)
			at = ig_schema_space(x, ig_nfa_byte(a, comma, ','));
		ig_nfa_join(a, at, start);
		after = item(x, r, i, start, i > 0);
		if (i + 1 >= r->min)
			ig_nfa_join(a, after, close);
		if (i == loop)
			ig_nfa_join(a, ig_schema_space(x, ig_nfa_byte(a, after, ',')), start);
		comma = after;
	}
	return end;
}

uint32_t ig_schema_array(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	struct array r = {
		.prefix = json_object_get(schema, "prefixItems"),
		.items = json_object_get(schema, "items"),
		.min = ig_schema_count(x, schema, "minItems", 0),
		.max = ig_schema_count(x, schema, "maxItems", UINT64_MAX),
	};
	const json_t *unique = json_object_get(schema, "uniqueItems");

	if (unique && !json_is_boolean(unique))
		ig_schema_fail(x, -EINVAL, "\"uniqueItems\" must be true or false");
	else if (json_is_true(unique) && r.max > 1)
		ig_schema_fail(x, -EINVAL, "\"uniqueItems\" is not supported");
	if (r.prefix && !json_is_array(r.prefix))
		ig_schema_fail(x, -EINVAL, "\"prefixItems\" must be a list");
	if (json_is_array(r.items))
		ig_schema_fail(x, -EINVAL,
			       "\"items\" as a list is not supported (use \"prefixItems\")");
	if (json_is_false(r.items) && r.max > json_array_size(r.prefix))
		r.max = json_array_size(r.prefix);
	if (r.min > r.max)
		ig_schema_fail(x, -EINVAL, "an array can't have %llu items and at most %llu",
			       (unsigned long long)r.min, (unsigned long long)r.max);
	if (r.max != UINT64_MAX && r.max > IG_DFA_MAX_STATES)
		ig_schema_fail(x, -E2BIG, "\"maxItems\" is above %u", IG_DFA_MAX_STATES);
	if (r.min > IG_DFA_MAX_STATES)
		ig_schema_fail(x, -E2BIG, "\"minItems\" is above %u", IG_DFA_MAX_STATES);
	return x->rc ? from : write_array(x, &r, from);
}
