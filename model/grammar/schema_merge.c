/*
 * schema_merge.c: resolves $ref; merges schemas that must hold together (allOf, keywords beside
 * $ref, anyOf and oneOf) into one; tests whether two schemas exclude each other (oneOf).  A merge
 * is exact or an error; schemas that are not proven disjoint count as overlapping.
 */
#include "model/grammar/schema_private.h"

#include "base/hex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLAT 32 /* nested references and allOf */

/* ---- references ------------------------------------------------------------------ */

/* A part of a pointer without its escapes (%XX, ~0, ~1), into out. */
static size_t unescape(const char *p, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = p[i];
		if (c == '%' && i + 2 < len && ig_hex_digit(p[i + 1]) >= 0 &&
		    ig_hex_digit(p[i + 2]) >= 0) {
			c = (char)(ig_hex_digit(p[i + 1]) << 4 | ig_hex_digit(p[i + 2]));
			i += 2;
		}
		out[n++] = c;
	}
	len = n;
	n = 0;
	for (size_t i = 0; i < len; i++) {
		if (out[i] == '~' && i + 1 < len && (out[i + 1] == '0' || out[i + 1] == '1'))
			out[n++] = out[++i] == '0' ? '~' : '/';
		else
			out[n++] = out[i];
	}
	out[n] = 0;
	return n;
}

const json_t *ig_schema_target(struct ig_schema *x, const json_t *ref)
{
	const char *text = json_string_value(ref), *p;
	const json_t *at = x->root;
	char part[256];

	if (!text || text[0] != '#' || (text[1] && text[1] != '/')) {
		ig_schema_fail(x, -EINVAL, "\"$ref\" must be a pointer into this schema (\"#/…\")");
		return NULL;
	}
	for (p = text + 1; *p == '/' && at;) {
		size_t len = strcspn(++p, "/");
		if (len >= sizeof part) {
			at = NULL;
			break;
		}
		unescape(p, len, part);
		if (json_is_array(at)) {
			char *end;
			unsigned long i = strtoul(part, &end, 10);
			at = part[0] >= '0' && part[0] <= '9' && !*end ? json_array_get(at, i) :
									 NULL;
		} else {
			at = json_object_get(at, part);
		}
		p += len;
	}
	if (!at)
		ig_schema_fail(x, -EINVAL, "\"$ref\": there is no \"%.100s\"", text);
	return at;
}

/* ---- merging --------------------------------------------------------------------- */

/* {"allOf": [a, b]}, for the parts of two schemas. */
static json_t *both(const json_t *a, const json_t *b)
{
	return json_pack("{s:[O, O]}", "allOf", (json_t *)a, (json_t *)b);
}

static int merge_types(struct ig_schema *x, json_t *out, const json_t *b)
{
	unsigned types = ig_schema_types(x, out) & ig_schema_types(x, b);
	json_t *list = json_array();
	int rc = list ? 0 : -1;

	/* "number" comes before "integer", which it includes. */
	for (const struct ig_schema_type *t = ig_schema_type_names; t->name && !rc; t++) {
		if ((types & t->type) != t->type)
			continue;
		types &= ~t->type;
		rc = json_array_append_new(list, json_string(t->name));
	}
	if (rc || !json_array_size(list)) {
		json_decref(list);
		return rc ? -1 : 1;
	}
	json_object_del(out, "nullable");
	return json_object_set_new(out, "type", list);
}

static int merge_required(json_t *out, const json_t *b)
{
	json_t *list = json_array(), *one, *had;
	size_t i, j;

	if (!list || json_array_extend(list, json_object_get(out, "required"))) {
		json_decref(list);
		return -1;
	}

	json_array_foreach(b, i, one)
	{
		bool seen = false;
		json_array_foreach(list, j, had) seen = seen || json_equal(had, one);
		if (!seen && json_array_append(list, one)) {
			json_decref(list);
			return -1;
		}
	}
	return json_object_set_new(out, "required", list);
}

/* The schema for members that are not in "properties"; NULL: any. */
static const json_t *of_others(const json_t *schema)
{
	const json_t *v = json_object_get(schema, "additionalProperties");

	return json_is_true(v) ? NULL : v;
}

/* Properties, and additionalProperties, which applies to members that its own schema doesn't
 * name. */
static int merge_properties(struct ig_schema *x, json_t *out, const json_t *a, const json_t *b)
{
	const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
	const json_t *oa = of_others(a), *ob = of_others(b);
	json_t *properties = json_object(), *v;
	const char *key;
	int rc = properties ? 0 : -1;

	if ((pa && !json_is_object(pa)) || (pb && !json_is_object(pb)))
		ig_schema_fail(x, -EINVAL, "\"properties\" must be an object");
	if ((oa || ob) &&
	    (json_object_get(a, "patternProperties") || json_object_get(b, "patternProperties")))
		ig_schema_fail(x, -EINVAL,
			       "\"patternProperties\" and \"additionalProperties\" of "
			       "different schemas can't be merged");
	json_object_foreach((json_t *)pa, key, v)
	{
		json_t *other = json_object_get(pb, key);
		const json_t *with = other ? other : ob;
		if (!rc)
			rc = with && !json_equal(v, (json_t *)with) ?
				     json_object_set_new(properties, key, both(v, with)) :
				     json_object_set(properties, key, v);
	}
	json_object_foreach((json_t *)pb, key, v)
	{
		if (!rc && !json_object_get(pa, key))
			rc = oa ? json_object_set_new(properties, key, both(oa, v)) :
				  json_object_set(properties, key, v);
	}
	if (!rc && (pa || pb))
		rc = json_object_set(out, "properties", properties);
	json_decref(properties);
	if (!rc && oa && ob && !json_equal((json_t *)oa, (json_t *)ob))
		rc = json_object_set_new(out, "additionalProperties", both(oa, ob));
	else if (!rc && (oa || ob))
		rc = json_object_set(out, "additionalProperties", (json_t *)(oa ? oa : ob));
	return rc;
}

static int merge_bound(struct ig_schema *x, json_t *out, const char *key, json_t *a, json_t *b,
		       bool lower)
{
	if (!json_is_number(a) || !json_is_number(b)) {
		ig_schema_fail(x, -EINVAL, "\"%s\" must be a number", key);
		return 0;
	}
	return (json_number_value(b) > json_number_value(a)) == lower ?
		       json_object_set(out, key, b) :
		       0;
}

/* The values that are in both lists; 1: there is none. */
static int merge_enums(json_t *out, json_t *a, json_t *b)
{
	json_t *list = json_array(), *v, *w;
	size_t i, j;
	int rc = list ? 0 : -1;

	json_array_foreach(a, i, v)
	{
		json_array_foreach(b, j, w)
		{
			if (!rc && json_equal(v, w)) {
				rc = json_array_append(list, v);
				break;
			}
		}
	}
	if (!rc && !json_array_size(list))
		rc = 1;
	if (rc) {
		json_decref(list);
		return rc;
	}
	return json_object_set_new(out, "enum", list);
}

static bool is_one_of(const char *key, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(key, *list))
			return true;
	return false;
}

/* A keyword that both have, with different values. */
static int merge_keyword(struct ig_schema *x, json_t *out, const char *key, json_t *a, json_t *b,
			 const json_t *whole_b)
{
	static const char *const lower[] = {
		"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", NULL,
	};
	static const char *const upper[] = {
		"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", NULL,
	};

	if (!strcmp(key, "type"))
		return merge_types(x, out, whole_b);
	if (!strcmp(key, "required"))
		return merge_required(out, b);
	if (!strcmp(key, "enum"))
		return merge_enums(out, a, b);
	if (!strcmp(key, "const"))
		return 1;
	if (is_one_of(key, lower))
		return merge_bound(x, out, key, a, b, true);
	if (is_one_of(key, upper))
		return merge_bound(x, out, key, a, b, false);
	if (!strcmp(key, "items") && !json_object_get(out, "prefixItems") &&
	    !json_object_get(whole_b, "prefixItems"))
		return json_object_set_new(out, key, both(a, b));
	ig_schema_fail(x, -EINVAL, "two different \"%.60s\" that must both hold are not supported",
		       key);
	return 0;
}

const json_t *ig_schema_merge(struct ig_schema *x, const json_t *a, const json_t *b)
{
	json_t *out, *v;
	const char *key;
	int rc = 0;

	if (json_is_false(a) || json_is_true(b))
		return a;
	if (json_is_false(b) || json_is_true(a))
		return b;
	if (!(out = ig_schema_copy(x, a)))
		return NULL;
	/* Without "type", "nullable" has no effect; with the other's type it would. */
	if (!json_object_get(a, "type") && json_object_get(b, "type"))
		json_object_del(out, "nullable");
	json_object_foreach((json_t *)b, key, v)
	{
		json_t *had = json_object_get(a, key);
		if (ig_schema_is_annotation(key) || !strcmp(key, "properties") ||
		    !strcmp(key, "additionalProperties"))
			continue;
		if (!strcmp(key, "nullable")) {
			if (!json_object_get(a, "type") && !rc)
				rc = json_object_set(out, key, v);
		} else if (!had) {
			if (!strcmp(key, "prefixItems") && json_object_get(a, "items"))
				ig_schema_fail(x, -EINVAL,
					       "\"items\" and \"prefixItems\" of different "
					       "schemas can't be merged");
			rc = json_object_set(out, key, v);
		} else if (!json_equal(had, v) || !strcmp(key, "type")) {
			rc = merge_keyword(x, out, key, had, v, b);
		}
		if (rc || x->rc)
			break;
	}
	if (!rc && !x->rc && (of_others(a) || of_others(b) || json_object_get(b, "properties")))
		rc = merge_properties(x, out, a, b);
	if (rc < 0)
		ig_schema_fail(x, -ENOMEM, "out of memory");
	if (x->rc)
		return NULL;
	return rc ? json_false() : out;
}

const json_t *ig_schema_flat(struct ig_schema *x, const json_t *schema, unsigned depth)
{
	const json_t *ref = json_object_get(schema, "$ref"), *all, *out, *one;
	json_t *rest;
	size_t i;

	if (json_is_boolean(schema))
		return schema;
	if (!json_is_object(schema)) {
		ig_schema_fail(x, -EINVAL, "a schema must be an object or a boolean");
		return NULL;
	}
	all = json_object_get(schema, "allOf");
	if (!ref && !all)
		return schema;
	if (depth > MAX_FLAT) {
		ig_schema_fail(x, -EINVAL, "\"$ref\" or \"allOf\" refers to itself");
		return NULL;
	}
	if (all && (!json_is_array(all) || !json_array_size(all))) {
		ig_schema_fail(x, -EINVAL, "\"allOf\" must be a list that is not empty");
		return NULL;
	}
	if (!(rest = ig_schema_copy(x, schema)))
		return NULL;
	json_object_del(rest, "$ref");
	json_object_del(rest, "allOf");
	out = rest;
	if (ref) {
		one = ig_schema_target(x, ref);
		one = one ? ig_schema_flat(x, one, depth + 1) : NULL;
		if (!one || !(out = ig_schema_merge(x, out, one)))
			return NULL;
	}
	json_array_foreach(all, i, one)
	{
		one = ig_schema_flat(x, one, depth + 1);
		if (!one || !(out = ig_schema_merge(x, out, one)))
			return NULL;
	}
	return out;
}

/* ---- disjoint ----------------------------------------------------------------------- */

/* Types that values of a flat schema can have. */
static unsigned possible(struct ig_schema *x, const json_t *s)
{
	const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
	unsigned types = ig_schema_types(x, s), literal = 0;
	size_t i;

	types = types ? types : IG_TYPE_ALL;
	if (one)
		return types & ig_schema_type_of(one);
	if (!list)
		return types;
	json_array_foreach(list, i, one) literal |= ig_schema_type_of(one);
	return types & literal;
}

/* The i-th of the values that "const" or "enum" names, or NULL. */
static const json_t *literal(const json_t *schema, size_t i)
{
	const json_t *one = json_object_get(schema, "const");

	if (one)
		return i ? NULL : one;
	return json_array_get(json_object_get(schema, "enum"), i);
}

static bool literals_apart(const json_t *a, const json_t *b)
{
	const json_t *v, *w;

	if (!literal(a, 0) || !literal(b, 0))
		return false;
	for (size_t i = 0; (v = literal(a, i)); i++) {
		for (size_t j = 0; (w = literal(b, j)); j++) {
			bool equal = json_equal((json_t *)v, (json_t *)w);
			/* 1 and 1.0 are the same value, also inside other values. */
			bool unsure = (ig_schema_type_of(v) & ig_schema_type_of(w) &
				       (IG_TYPE_OBJECT | IG_TYPE_ARRAY)) ||
				      (json_is_number(v) && json_is_number(w) &&
				       !(json_is_integer(v) && json_is_integer(w)));
			if (equal || unsure)
				return false;
		}
	}
	return true;
}

static bool is_required(const json_t *schema, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(schema, "required"), i,
			   one) if (json_is_string(one) &&
				    !strcmp(json_string_value(one), name)) return true;
	return false;
}

static bool disjoint(struct ig_schema *x, const json_t *a, const json_t *b, unsigned depth);

/* Whether a requires a member that b forbids, or whose schema in b is disjoint. */
static bool member_apart(struct ig_schema *x, const json_t *a, const json_t *b, unsigned depth)
{
	const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(a, "required"), i, one)
	{
		const char *name = json_string_value(one);
		const json_t *in_a = name ? json_object_get(pa, name) : NULL;
		const json_t *in_b = name ? json_object_get(pb, name) : NULL;
		if (!name)
			continue;
		if (!in_b && json_is_false(json_object_get(b, "additionalProperties")) &&
		    !json_object_get(b, "patternProperties"))
			return true;
		if (in_a && in_b && is_required(b, name) && disjoint(x, in_a, in_b, depth + 1))
			return true;
	}
	return false;
}

static bool numbers_apart(const json_t *a, const json_t *b)
{
	const json_t *high = json_object_get(a, "maximum"), *low = json_object_get(b, "minimum");
	const json_t *below = json_object_get(a, "exclusiveMaximum");
	const json_t *above = json_object_get(b, "exclusiveMinimum");

	if (json_is_number(high) && json_is_number(low) &&
	    json_number_value(high) < json_number_value(low))
		return true;
	if (json_is_number(below) && json_is_number(low) &&
	    json_number_value(below) <= json_number_value(low))
		return true;
	return json_is_number(high) && json_is_number(above) &&
	       json_number_value(high) <= json_number_value(above);
}

static bool disjoint(struct ig_schema *x, const json_t *a, const json_t *b, unsigned depth)
{
	unsigned types;

	if (depth > 8 || x->rc)
		return false;
	a = ig_schema_flat(x, a, 0);
	b = a ? ig_schema_flat(x, b, 0) : NULL;
	if (!b)
		return false;
	if (json_is_false(a) || json_is_false(b))
		return true;
	types = possible(x, a) & possible(x, b);
	if (!types || literals_apart(a, b))
		return true;
	if (!(types & ~(unsigned)IG_TYPE_NUMBER))
		return numbers_apart(a, b) || numbers_apart(b, a);
	return types == IG_TYPE_OBJECT &&
	       (member_apart(x, a, b, depth) || member_apart(x, b, a, depth));
}

bool ig_schema_check_disjoint(struct ig_schema *x, const json_t *list)
{
	size_t n = json_array_size(list);

	if (n > 64)
		ig_schema_fail(x, -E2BIG, "\"oneOf\" of more than 64 schemas");
	for (size_t i = 0; i < n && !x->rc; i++)
		for (size_t j = i + 1; j < n && !x->rc; j++)
			if (!disjoint(x, json_array_get(list, i), json_array_get(list, j), 0))
				ig_schema_fail(
					x, -EINVAL,
					"\"oneOf\": a value could be of both schema "
					"%zu and schema %zu; only schemas that plainly exclude "
					"each other are supported (or use \"anyOf\")",
					i, j);
	return !x->rc;
}
