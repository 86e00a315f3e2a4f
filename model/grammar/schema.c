/*
 * schema.c: compiles JSON schemas (draft 2020-12, as far as an automaton can express it) to rules:
 * keywords, alternatives and literals; the rest is in schema_*.c.  A schema is expanded in place,
 * copy by copy, so that masks do not depend on the stack; where it contains itself, or is large and
 * needed again, it becomes a call of a rule.  What is not supported is an error that names the
 * place.
 */
#include "model/grammar/schema_private.h"

#include "base/array.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define LARGE 400     /* nodes; a larger schema is not expanded a second time */
#define DEEP 24	      /* nested schemas; a deeper one is a rule of its own */
#define CROWDED 3000  /* nodes of a rule; above, every schema with parts is a rule of its own */
#define MAX_INDENT 32 /* spaces after a newline: eight levels of four */

/* ---- errors and places ----------------------------------------------------------- */

void ig_schema_fail(struct ig_schema *x, int code, const char *fmt, ...)
{
	char text[384];
	va_list ap;

	if (x->rc)
		return;
	x->rc = code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	ig_fail(x->c->err, code, "%.100s: %s", x->path.len ? x->path.data : "$", text);
}

size_t ig_schema_enter(struct ig_schema *x, const char *name, const char *key, int64_t index)
{
	size_t len = x->path.len;

	ig_strbuf_printf(&x->path, ".%s", name);
	if (key)
		ig_strbuf_printf(&x->path, ".%s", key);
	if (index >= 0)
		ig_strbuf_printf(&x->path, "[%lld]", (long long)index);
	if (!ig_strbuf_ok(&x->path))
		ig_schema_fail(x, -ENOMEM, "out of memory");
	return len;
}

void ig_schema_exit(struct ig_schema *x, size_t len)
{
	if (x->path.data && x->path.len > len) {
		x->path.len = len;
		x->path.data[len] = 0;
	}
}

json_t *ig_schema_own(struct ig_schema *x, json_t *made)
{
	if (!x->c->kept)
		x->c->kept = json_array();
	if (made && x->c->kept && !json_array_append_new(x->c->kept, made))
		return made;
	if (made && !x->c->kept)
		json_decref(made);
	ig_schema_fail(x, -ENOMEM, "out of memory");
	return NULL;
}

json_t *ig_schema_copy(struct ig_schema *x, const json_t *schema)
{
	json_t *copy = ig_schema_own(x, ig_json_copy(schema));

	/* jansson skips members that it has no memory for. */
	if (copy && json_object_size(copy) != json_object_size(schema)) {
		ig_schema_fail(x, -ENOMEM, "out of memory");
		return NULL;
	}
	return copy;
}

/* ---- keywords -------------------------------------------------------------------- */

static const char *const annotations[] = {
	"$anchor",
	"$comment",
	"$defs",
	"$id",
	"$schema",
	"contentEncoding",
	"contentMediaType",
	"default",
	"definitions",
	"deprecated",
	"description",
	"discriminator",
	"example",
	"examples",
	"externalDocs",
	"id",
	"readOnly",
	"title",
	"writeOnly",
	"xml",
};

static const struct {
	const char *name;
	unsigned types; /* that it applies to */
} keywords[] = {
	{ "$ref", 0 },
	{ "additionalProperties", IG_TYPE_OBJECT },
	{ "allOf", 0 },
	{ "anyOf", 0 },
	{ "const", 0 },
	{ "enum", 0 },
	{ "exclusiveMaximum", IG_TYPE_NUMBER },
	{ "exclusiveMinimum", IG_TYPE_NUMBER },
	{ "format", IG_TYPE_STRING },
	{ "items", IG_TYPE_ARRAY },
	{ "maxItems", IG_TYPE_ARRAY },
	{ "maxLength", IG_TYPE_STRING },
	{ "maxProperties", IG_TYPE_OBJECT },
	{ "maximum", IG_TYPE_NUMBER },
	{ "minItems", IG_TYPE_ARRAY },
	{ "minLength", IG_TYPE_STRING },
	{ "minProperties", IG_TYPE_OBJECT },
	{ "minimum", IG_TYPE_NUMBER },
	{ "multipleOf", IG_TYPE_NUMBER },
	{ "nullable", 0 },
	{ "oneOf", 0 },
	{ "pattern", IG_TYPE_STRING },
	{ "patternProperties", IG_TYPE_OBJECT },
	{ "prefixItems", IG_TYPE_ARRAY },
	{ "properties", IG_TYPE_OBJECT },
	{ "required", IG_TYPE_OBJECT },
	{ "type", 0 },
	{ "uniqueItems", IG_TYPE_ARRAY },
	{ "x-ingot-grammar", IG_TYPE_STRING },
};

bool ig_schema_is_annotation(const char *key)
{
	for (unsigned i = 0; i < sizeof annotations / sizeof annotations[0]; i++)
		if (!strcmp(annotations[i], key))
			return true;
	return false;
}

/* Refuse unknown keywords; returns the types that the others apply to. */
static unsigned check_keywords(struct ig_schema *x, const json_t *schema)
{
	unsigned types = 0;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)schema, key, value)
	{
		bool known = ig_schema_is_annotation(key);
		for (unsigned i = 0; i < sizeof keywords / sizeof keywords[0] && !known; i++) {
			if (!strcmp(keywords[i].name, key)) {
				known = true;
				types |= keywords[i].types;
			}
		}
		if (!known)
			ig_schema_fail(x, -EINVAL, "\"%.60s\" is not supported", key);
	}
	return types;
}

/* Whether there is a keyword other than this one that isn't an annotation. */
static bool has_others(const json_t *schema, const char *but)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)schema, key, value)
	{
		if (strcmp(key, but) && !ig_schema_is_annotation(key))
			return true;
	}
	return false;
}

uint64_t ig_schema_count(struct ig_schema *x, const json_t *schema, const char *key, uint64_t unset)
{
	const json_t *v = json_object_get(schema, key);
	double d = json_number_value(v);

	if (!v)
		return unset;
	if (json_is_number(v) && d >= 0 && d <= 1e15 && d == (double)(uint64_t)d)
		return (uint64_t)d;
	ig_schema_fail(x, -EINVAL, "\"%s\" must be a count", key);
	return unset;
}

const struct ig_schema_type ig_schema_type_names[] = {
	{ "null", IG_TYPE_NULL },	{ "boolean", IG_TYPE_BOOLEAN },
	{ "object", IG_TYPE_OBJECT },	{ "array", IG_TYPE_ARRAY },
	{ "string", IG_TYPE_STRING },	{ "number", IG_TYPE_NUMBER },
	{ "integer", IG_TYPE_INTEGER }, { NULL, 0 },
};

static unsigned type_named(struct ig_schema *x, const json_t *name)
{
	const char *s = json_string_value(name);

	for (const struct ig_schema_type *t = ig_schema_type_names; s && t->name; t++)
		if (!strcmp(t->name, s))
			return t->type;
	if (s)
		ig_schema_fail(x, -EINVAL, "\"type\": \"%.60s\" is unknown", s);
	else
		ig_schema_fail(x, -EINVAL, "\"type\" must be a name or a list of names");
	return 0;
}

unsigned ig_schema_types(struct ig_schema *x, const json_t *schema)
{
	const json_t *type = json_object_get(schema, "type"), *one;
	const json_t *nullable = json_object_get(schema, "nullable");
	unsigned types = 0;
	size_t i;

	if (nullable && !json_is_boolean(nullable))
		ig_schema_fail(x, -EINVAL, "\"nullable\" must be true or false");
	if (!type)
		return 0;
	if (json_is_array(type)) {
		if (!json_array_size(type))
			ig_schema_fail(x, -EINVAL, "\"type\" is an empty list");
		json_array_foreach(type, i, one) types |= type_named(x, one);
	} else {
		types = type_named(x, type);
	}
	return types | (json_is_true(nullable) ? IG_TYPE_NULL : 0);
}

unsigned ig_schema_type_of(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT: return IG_TYPE_OBJECT;
	case JSON_ARRAY: return IG_TYPE_ARRAY;
	case JSON_STRING: return IG_TYPE_STRING;
	case JSON_INTEGER: return IG_TYPE_INTEGER;
	case JSON_REAL: {
		double d = json_real_value(value);
		return d >= -1e15 && d <= 1e15 && d == (double)(int64_t)d ?
			       IG_TYPE_INTEGER :
			       IG_TYPE_NUMBER & ~IG_TYPE_INTEGER;
	}
	case JSON_TRUE:
	case JSON_FALSE: return IG_TYPE_BOOLEAN;
	case JSON_NULL: break;
	}
	return IG_TYPE_NULL;
}

/* ---- white space, names, literals ------------------------------------------------ */

uint32_t ig_schema_space(struct ig_schema *x, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t end = ig_nfa_node(a), at = ig_nfa_byte(a, from, '\n');

	ig_nfa_join(a, from, end);
	ig_nfa_bytes(a, from, end, ' ', ' ');
	for (unsigned i = 0; i < MAX_INDENT; i++) {
		ig_nfa_join(a, at, end);
		at = ig_nfa_byte(a, at, ' ');
	}
	ig_nfa_join(a, at, end);
	return end;
}

uint32_t ig_schema_colon(struct ig_schema *x, uint32_t from)
{
	uint32_t at = ig_nfa_byte(x->a, from, ':'), end = ig_nfa_node(x->a);

	ig_nfa_join(x->a, at, end);
	ig_nfa_bytes(x->a, at, end, ' ', ' ');
	return end;
}

uint32_t ig_schema_name(struct ig_schema *x, const char *s, size_t len, uint32_t from)
{
	struct ig_nfa one;
	struct ig_dfa d;
	uint32_t first, last, at;

	ig_nfa_init(&one, &x->c->budget);
	first = ig_nfa_node(&one);
	last = ig_nfa_text(&one, first, s, len);
	if (memchr(s, 0, len))
		ig_schema_fail(x, -EINVAL, "a string with U+0000 is not supported");
	if (!x->rc && (x->rc = ig_dfa_of(&one, first, last, &d)) == 0) {
		at = ig_nfa_byte(x->a, from, '"');
		at = ig_nfa_insert_json(x->a, at, &d);
		from = ig_nfa_byte(x->a, at, '"');
		ig_dfa_finish(&d);
	}
	ig_nfa_finish(&one);
	return from;
}

/* Whether the other keywords of the schema allow a value of "enum" or "const". */
static bool literal_fits(struct ig_schema *x, const json_t *schema, const json_t *value)
{
	unsigned types = ig_schema_types(x, schema), type = ig_schema_type_of(value);
	const json_t *other = json_object_get(schema, "const");

	if ((types && (types & type) != type) || (x->only && !(x->only & type)))
		return false;
	if (other && !json_equal((json_t *)other, (json_t *)value))
		return false;
	if (type & IG_TYPE_NUMBER && !ig_schema_number_fits(x, schema, value))
		return false;
	if (type == IG_TYPE_STRING) {
		uint64_t n = ig_utf8_count(json_string_value(value), json_string_length(value));
		if (n < ig_schema_count(x, schema, "minLength", 0) ||
		    n > ig_schema_count(x, schema, "maxLength", UINT64_MAX))
			return false;
		if (json_object_get(schema, "pattern") || json_object_get(schema, "format") ||
		    json_object_get(schema, "x-ingot-grammar"))
			ig_schema_fail(x, -EINVAL,
				       "\"enum\" beside \"pattern\", \"format\" or a grammar is "
				       "not supported");
	}
	if (type & (IG_TYPE_OBJECT | IG_TYPE_ARRAY))
		for (unsigned i = 0; i < sizeof keywords / sizeof keywords[0]; i++)
			if (keywords[i].types & type && json_object_get(schema, keywords[i].name))
				ig_schema_fail(x, -EINVAL,
					       "\"enum\" beside \"%s\" is not supported",
					       keywords[i].name);
	return !x->rc;
}

static uint32_t literals(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	const json_t *list = json_object_get(schema, "enum"), *one;
	uint32_t end = ig_nfa_node(x->a);
	size_t i;

	if (list && (!json_is_array(list) || !json_array_size(list))) {
		ig_schema_fail(x, -EINVAL, "\"enum\" must be a list that is not empty");
		return end;
	}
	if (!list) {
		one = json_object_get(schema, "const");
		if (literal_fits(x, schema, one))
			ig_nfa_join(x->a, ig_schema_literal(x, one, from), end);
		return end;
	}
	json_array_foreach(list, i, one)
	{
		if (x->rc || x->a->rc)
			break;
		if (literal_fits(x, schema, one))
			ig_nfa_join(x->a, ig_schema_literal(x, one, from), end);
	}
	return end;
}

/* ---- any value ------------------------------------------------------------------- */

static uint32_t call(struct ig_schema *x, enum ig_rule_kind kind, const json_t *schema,
		     uint32_t from)
{
	uint32_t rule = 0;
	int rc = ig_compiling_rule(x->c, kind, schema, x->root,
				   schema && x->path.len ? x->path.data : NULL, &rule);

	if (rc && !x->rc)
		x->rc = rc;
	return rc ? from : ig_nfa_call(x->a, from, rule);
}

/* An object or an array of any values. */
static uint32_t any_items(struct ig_schema *x, bool is_object, uint32_t from)
{
	unsigned close = is_object ? '}' : ']';
	struct ig_nfa *a = x->a;
	uint32_t first = ig_schema_space(x, ig_nfa_byte(a, from, is_object ? '{' : '['));
	uint32_t item = ig_nfa_node(a), at = item, end = ig_nfa_byte(a, first, close);

	ig_nfa_join(a, first, item);
	if (is_object)
		at = ig_schema_colon(x, ig_schema_any_string(x, ig_nfa_byte(a, item, '"')));
	at = call(x, IG_RULE_VALUE, NULL, at);
	ig_nfa_join(a, ig_schema_space(x, ig_nfa_byte(a, at, ',')), item);
	ig_nfa_bytes(a, ig_schema_space(x, at), end, close, close);
	return end;
}

/* Values of these types, each with the schema's keywords for it; NULL: any. */
static uint32_t of_types(struct ig_schema *x, const json_t *schema, unsigned types, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t end = ig_nfa_node(a);
	const char *stop = x->stop;
	unsigned only = x->only;

	types &= only ? only : IG_TYPE_ALL;
	if (types & IG_TYPE_NULL)
		ig_nfa_join(a, ig_nfa_text(a, from, "null", 4), end);
	if (types & IG_TYPE_BOOLEAN) {
		ig_nfa_join(a, ig_nfa_text(a, from, "true", 4), end);
		ig_nfa_join(a, ig_nfa_text(a, from, "false", 5), end);
	}
	if (types & IG_TYPE_STRING)
		ig_nfa_join(a,
			    schema ? ig_schema_string(x, schema, from) :
				     ig_schema_any_string(x, ig_nfa_byte(a, from, '"')),
			    end);
	x->stop = NULL; /* strings within have quotes */
	x->only = 0;
	if (types & IG_TYPE_NUMBER)
		ig_nfa_join(a,
			    ig_schema_number(x, schema, (types & IG_TYPE_NUMBER) == IG_TYPE_INTEGER,
					     from),
			    end);
	if (types & IG_TYPE_OBJECT)
		ig_nfa_join(a,
			    schema ? ig_schema_object(x, schema, from) : any_items(x, true, from),
			    end);
	if (types & IG_TYPE_ARRAY)
		ig_nfa_join(a,
			    schema ? ig_schema_array(x, schema, from) : any_items(x, false, from),
			    end);
	x->stop = stop;
	x->only = only;
	return end;
}

static uint32_t any_value(struct ig_schema *x, uint32_t from)
{
	if (x->stop)
		return ig_schema_raw_string(x, NULL, from);
	return x->only ? of_types(x, NULL, x->only, from) : call(x, IG_RULE_VALUE, NULL, from);
}

/* ---- alternatives ---------------------------------------------------------------- */

/* The keywords beside "anyOf" or "oneOf", merged with each schema of the list. */
static const json_t *with_each(struct ig_schema *x, const json_t *beside, const json_t *list,
			       const char *key)
{
	json_t *out = ig_schema_own(x, json_array()), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		size_t len = ig_schema_enter(x, key, NULL, (int64_t)i);
		const json_t *merged = ig_schema_flat(x, one, 0);
		if (merged)
			merged = ig_schema_merge(x, beside, merged);
		if (merged && json_array_append(out, (json_t *)merged))
			ig_schema_fail(x, -ENOMEM, "out of memory");
		ig_schema_exit(x, len);
		if (x->rc)
			return NULL;
	}
	return out;
}

static uint32_t alternatives(struct ig_schema *x, const json_t *schema, const char *key,
			     uint32_t from)
{
	const json_t *list = json_object_get(schema, key), *one;
	uint32_t end = ig_nfa_node(x->a);
	size_t i;

	if (!json_is_array(list) || !json_array_size(list)) {
		ig_schema_fail(x, -EINVAL, "\"%s\" must be a list that is not empty", key);
		return end;
	}
	if (has_others(schema, key)) {
		json_t *copy = ig_schema_copy(x, schema);
		if (!copy)
			return end;
		json_object_del(copy, key);
		if (!(list = with_each(x, copy, list, key)))
			return end;
	}
	if (!strcmp(key, "oneOf") && !ig_schema_check_disjoint(x, list))
		return end;
	json_array_foreach(list, i, one)
	{
		size_t len = ig_schema_enter(x, key, NULL, (int64_t)i);
		if (!x->rc && !x->a->rc)
			ig_nfa_join(x->a, ig_schema_value(x, one, from), end);
		ig_schema_exit(x, len);
		if (x->rc)
			break;
	}
	return end;
}

/* ---- one schema ------------------------------------------------------------------ */

static uint32_t plain(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	unsigned applies = check_keywords(x, schema), types;

	if (x->rc)
		return from;
	if (json_object_get(schema, "$ref") && !has_others(schema, "$ref")) {
		const json_t *target = ig_schema_target(x, json_object_get(schema, "$ref"));
		const char *name = json_string_value(json_object_get(schema, "$ref"));
		struct ig_strbuf path = x->path;
		if (!target)
			return from;
		x->path = (struct ig_strbuf){ 0 };
		ig_strbuf_puts(&x->path, "$");
		for (const char *p = name + 1; *p; p++)
			ig_strbuf_add(&x->path, *p == '/' ? "." : p, 1);
		if (!ig_strbuf_ok(&x->path))
			ig_schema_fail(x, -ENOMEM, "out of memory");
		from = x->stop || x->only ? ig_schema_value(x, target, from) :
					    ig_schema_again(x, target, from);
		ig_strbuf_finish(&x->path);
		x->path = path;
		return from;
	}
	if (json_object_get(schema, "$ref") || json_object_get(schema, "allOf")) {
		const json_t *flat = ig_schema_flat(x, schema, 0);
		return flat ? ig_schema_value(x, flat, from) : from;
	}
	if (json_object_get(schema, "anyOf"))
		return alternatives(x, schema, "anyOf", from);
	if (json_object_get(schema, "oneOf"))
		return alternatives(x, schema, "oneOf", from);
	if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
		return literals(x, schema, from);
	types = ig_schema_types(x, schema);
	if (!types && !applies)
		return any_value(x, from);
	/* Without "type": the types that the keywords apply to, which is what is meant. */
	return of_types(x, schema, types ? types : applies, from);
}

static struct ig_schema_cost *cost_of(struct ig_schema *x, const json_t *schema)
{
	for (uint32_t i = 0; i < x->c->n_costs; i++)
		if (x->c->costs[i].schema == schema)
			return &x->c->costs[i];
	return NULL;
}

static void record_cost(struct ig_schema *x, const json_t *schema, uint32_t n_nodes)
{
	struct ig_schema_cost *c = cost_of(x, schema);

	if (c && c->n_nodes < n_nodes)
		c->n_nodes = n_nodes;
	if (c)
		return;
	if (ig_array_grow(x->c->costs, &x->c->cap_costs, x->c->n_costs))
		x->c->costs[x->c->n_costs++] = (struct ig_schema_cost){ schema, n_nodes };
	else
		ig_schema_fail(x, -ENOMEM, "out of memory");
}

uint32_t ig_schema_value(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	uint32_t n_nodes = x->a->n_nodes;

	if (x->rc || x->a->rc)
		return from;
	if (!schema || json_is_true(schema))
		return any_value(x, from);
	if (json_is_false(schema))
		return ig_nfa_node(x->a); /* no edge leads there */
	if (!json_is_object(schema)) {
		ig_schema_fail(x, -EINVAL, "a schema must be an object or a boolean");
		return from;
	}
	for (unsigned i = 0; i < x->n_open; i++)
		if (x->open[i] == schema) /* it contains itself */
			return call(x, IG_RULE_SCHEMA, schema, from);
	if (x->n_open == IG_SCHEMA_MAX_DEPTH) {
		ig_schema_fail(x, -E2BIG, "schemas are nested more than %d deep",
			       IG_SCHEMA_MAX_DEPTH);
		return from;
	}
	x->open[x->n_open++] = schema;
	from = plain(x, schema, from);
	x->n_open--;
	record_cost(x, schema, x->a->n_nodes - n_nodes);
	return from;
}

/* Whether a schema contains other schemas. */
static bool has_parts(const json_t *schema)
{
	static const char *const parts[] = {
		"additionalProperties", "allOf",       "anyOf",	     "items", "oneOf",
		"patternProperties",	"prefixItems", "properties",
	};

	for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (json_object_get(schema, parts[i]))
			return true;
	return false;
}

uint32_t ig_schema_again(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	const struct ig_schema_cost *c = json_is_object(schema) ? cost_of(x, schema) : NULL;

	if ((c && c->n_nodes > LARGE) ||
	    ((x->n_open > DEEP || x->a->n_nodes > CROWDED) && has_parts(schema)))
		return call(x, IG_RULE_SCHEMA, schema, from);
	return ig_schema_value(x, schema, from);
}

/* ---- rules ----------------------------------------------------------------------- */

static int run(struct ig_schema *x, const struct ig_rule *rule, uint32_t from, uint32_t *end)
{
	switch (rule->kind) {
	case IG_RULE_LONG_CHAR:
		*end = ig_nfa_node(x->a);
		ig_schema_char(x, from, *end, false);
		break;
	case IG_RULE_VALUE: *end = of_types(x, NULL, IG_TYPE_ALL, from); break;
	default: *end = ig_schema_value(x, rule->schema, from);
	}
	if (!ig_strbuf_ok(&x->path))
		ig_schema_fail(x, -ENOMEM, "out of memory");
	ig_strbuf_finish(&x->path);
	return x->rc;
}

int ig_schema_build_rule(struct ig_compiling *c, const struct ig_rule *rule, uint32_t from,
			 uint32_t *end)
{
	struct ig_schema x = { .c = c, .a = &c->nfa, .root = rule->root };

	ig_strbuf_puts(&x.path, rule->path ? rule->path : "$");
	return run(&x, rule, from, end);
}

int ig_schema_build_members(struct ig_compiling *c, const json_t *schema,
			    const struct ig_grammar_members *members, uint32_t from, uint32_t *end)
{
	struct ig_schema x = { .c = c, .a = &c->nfa, .root = schema, .members = members };
	struct ig_rule rule = { .kind = IG_RULE_SCHEMA, .schema = schema, .root = schema };

	ig_strbuf_puts(&x.path, "$");
	return run(&x, &rule, from, end);
}

int ig_schema_build(struct ig_compiling *c, const json_t *schema, uint32_t from, uint32_t *end)
{
	struct ig_schema x = { .c = c, .a = &c->nfa, .root = schema };
	struct ig_rule rule = { .kind = IG_RULE_SCHEMA, .schema = schema, .root = schema };

	ig_strbuf_puts(&x.path, "$");
	if (schema)
		return run(&x, &rule, from, end);
	*end = any_items(&x, true, from);
	ig_strbuf_finish(&x.path);
	return x.rc;
}
