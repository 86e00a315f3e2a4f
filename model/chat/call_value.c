/*
 * call_value.c: what the parsers of tool calls share: the events of a call, strings and their
 * escapes, and values that are not written as JSON.  Such a value becomes JSON by the schema of its
 * parameter: where that allows only strings, the value is one, and is streamed; any other is held
 * until it ends, and is JSON if it can be read as that.
 */
#include "model/chat/completion_private.h"

#include "base/json.h"
#include "base/utf8.h"
#include "base/hex.h"

#include <errno.h>
#include <string.h>

#define MAX_REFERENCES 16 /* nested, of a parameter's schema */

/* ---- strings ---------------------------------------------------------------------------- */

static size_t put_unit(struct unescape *u, uint32_t unit, char *out)
{
	size_t n = 0;

	if (u->high && unit >= 0xdc00 && unit < 0xe000) {
		unit = 0x10000 + ((u->high - 0xd800) << 10) + (unit - 0xdc00);
		u->high = 0;
		return ig_utf8_put(out, unit);
	}
	if (u->high) /* half a pair */
		n = ig_utf8_put(out, 0xfffd);
	u->high = 0;
	if (unit >= 0xd800 && unit < 0xdc00)
		u->high = unit;
	else if (unit >= 0xdc00 && unit < 0xe000)
		n += ig_utf8_put(out + n, 0xfffd);
	else
		n += ig_utf8_put(out + n, unit);
	return n;
}

int ig_unescape(struct unescape *u, char c, char quote, char *out, size_t *n)
{
	static const char from[] = "\"\\/bfnrt'", to[] = "\"\\/\b\f\n\r\t'";
	const char *e;

	*n = 0;
	if (u->n_hex) {
		int digit = ig_hex_digit(c);
		if (digit >= 0) {
			u->hex = u->hex << 4 | (uint32_t)digit;
			if (--u->n_hex == 0)
				*n = put_unit(u, u->hex <= 0x10ffff ? u->hex : 0xfffd, out);
			return 0;
		}
		u->n_hex = 0;
		*n = put_unit(u, 0xfffd, out); /* and c is itself */
	}
	if (u->escaped) {
		u->escaped = false;
		if (c == 'u' || (u->python && (c == 'x' || c == 'U'))) {
			u->n_hex = c == 'u' ? 4 : c == 'x' ? 2 : 8;
			u->hex = 0;
			return 0;
		}
		e = c ? strchr(from, c) : NULL;
		if (e) {
			*n = put_unit(u, (unsigned char)to[e - from], out);
			return 0;
		}
		*n = put_unit(u, '\\', out);
		out[(*n)++] = c;
		return 0;
	}
	if (c == '\\') {
		u->escaped = true;
		return 0;
	}
	if (u->high) {
		*n += ig_utf8_put(out + *n, 0xfffd);
		u->high = 0;
	}
	if (c == quote)
		return -1;
	out[(*n)++] = c;
	return 0;
}

/* ---- a call ------------------------------------------------------------------------------- */

void ig_call_begin(struct ig_completion_parser *p)
{
	p->announced = p->has_arguments = p->args_ended = p->has_name = p->name_ended = false;
	p->bare = p->is_null = p->is_string = p->newline = p->has_members = false;
	p->n_stack = 0;
	p->tool = NULL;
	ig_completion_clear(p, &p->name);
	ig_completion_clear(p, &p->args);
	ig_completion_clear(p, &p->param);
	ig_completion_clear(p, &p->value);
	ig_completion_clear(p, &p->tail);
}

void ig_call_announce(struct ig_completion_parser *p)
{
	ig_completion_drop_held(p);
	ig_completion_send(p, IG_COMPLETION_TOOL_CALL, p->name.data, p->name.len);
	p->announced = true;
	p->n_marker = 0;
	if (p->args.len)
		ig_completion_append(p, IG_COMPLETION_ARGUMENTS, p->args.data, p->args.len);
	ig_completion_clear(p, &p->args);
	if (p->args_ended)
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
}

void ig_call_arguments(struct ig_completion_parser *p, const char *s, size_t len)
{
	if (p->announced)
		ig_completion_append(p, IG_COMPLETION_ARGUMENTS, s, len);
	else
		ig_strbuf_add(&p->args, s, len);
}

void ig_call_arguments_end(struct ig_completion_parser *p)
{
	p->args_ended = true;
	if (p->announced)
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
	else if (p->has_name)
		ig_call_announce(p);
}

void ig_call_end(struct ig_completion_parser *p)
{
	if (p->announced && !p->args_ended) {
		while (p->n_stack) /* of what is not written as JSON */
			ig_call_arguments(p, p->stack[--p->n_stack] == '{' ? "}" : "]", 1);
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
	}
	p->announced = false;
	p->place = AFTER_CALL;
	p->state = p->in_list ? p->list_state : OUTSIDE;
	p->in_tag = p->format->closing != NULL;
}

bool ig_call_is_known(const struct ig_completion_parser *p, const char *name, size_t len)
{
	const json_t *tool;
	size_t i;

	json_array_foreach((json_t *)p->tools, i, tool)
	{
		const json_t *n = json_object_get(json_object_get(tool, "function"), "name");
		if (json_is_string(n) && json_string_length(n) == len &&
		    !memcmp(json_string_value(n), name, len))
			return true;
	}
	return !p->tools;
}

void ig_call_open(struct ig_completion_parser *p)
{
	const json_t *tool;
	size_t i;

	p->has_name = true;
	ig_call_announce(p);
	json_array_foreach((json_t *)p->tools, i, tool)
	{
		const json_t *f = json_object_get(tool, "function"),
			     *n = json_object_get(f, "name");
		if (json_is_string(n) && json_string_length(n) == p->name.len &&
		    !memcmp(json_string_value(n), p->name.data, p->name.len))
			p->tool = json_object_get(f, "parameters");
	}
	ig_call_arguments(p, "{", 1);
	p->stack[0] = '{';
	p->n_stack = 1;
	p->has_members = false;
}

/* ---- the schema of a parameter ------------------------------------------------------------- */

static unsigned type_named(const char *s)
{
	static const struct {
		const char *name;
		unsigned type;
	} names[] = {
		{ "string", IG_TYPES_STRING },	{ "boolean", IG_TYPES_BOOLEAN },
		{ "null", IG_TYPES_NULL },	{ "number", IG_TYPES_NUMBER },
		{ "integer", IG_TYPES_NUMBER }, { "object", IG_TYPES_OBJECT },
		{ "array", IG_TYPES_ARRAY },
	};

	for (size_t i = 0; s && i < sizeof names / sizeof names[0]; i++)
		if (!strcmp(s, names[i].name))
			return names[i].type;
	return IG_TYPES_ANY;
}

static unsigned type_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_STRING: return IG_TYPES_STRING;
	case JSON_OBJECT: return IG_TYPES_OBJECT;
	case JSON_ARRAY: return IG_TYPES_ARRAY;
	case JSON_NULL: return IG_TYPES_NULL;
	case JSON_TRUE:
	case JSON_FALSE: return IG_TYPES_BOOLEAN;
	default: return IG_TYPES_NUMBER;
	}
}

/* What "#/$defs/x" names. */
static const json_t *target(const json_t *root, const char *ref)
{
	char name[128];

	if (*ref++ != '#')
		return NULL;
	while (root && *ref == '/') {
		size_t n = strcspn(++ref, "/");
		if (n >= sizeof name)
			return NULL;
		memcpy(name, ref, n);
		name[n] = 0;
		root = json_object_get(root, name);
		ref += n;
	}
	return root;
}

static unsigned types_of(const json_t *root, const json_t *s, unsigned depth)
{
	static const char *const lists[] = { "anyOf", "oneOf", "enum" };
	const json_t *type = json_object_get(s, "type"), *x;
	const char *ref = json_string_value(json_object_get(s, "$ref"));
	unsigned types = IG_TYPES_ANY, some;
	size_t i;

	if (!json_is_object(s) || depth > MAX_REFERENCES)
		return IG_TYPES_ANY;
	if (json_is_string(type))
		types = type_named(json_string_value(type));
	if (json_is_array(type)) {
		types = 0;
		json_array_foreach(type, i, x) types |= type_named(json_string_value(x));
	}
	if (json_is_true(json_object_get(s, "nullable")))
		types |= IG_TYPES_NULL;
	if (ref)
		types &= types_of(root, target(root, ref), depth + 1);
	json_array_foreach(json_object_get(s, "allOf"), i, x) types &= types_of(root, x, depth + 1);
	for (size_t k = 0; k < 3; k++) {
		some = 0;
		json_array_foreach(json_object_get(s, lists[k]), i, x) some |=
			k == 2 ? type_of(x) : types_of(root, x, depth + 1);
		types &= some ? some : IG_TYPES_ANY;
	}
	x = json_object_get(s, "const");
	return x ? types & type_of(x) : types;
}

void ig_call_find_types(struct ig_completion_parser *p)
{
	const json_t *s =
		json_object_get(json_object_get(p->tool, "properties"), ig_strbuf_text(&p->param));

	p->types = types_of(p->tool, s, 0);
	p->is_string = p->types == IG_TYPES_STRING;
}

/* ---- values -------------------------------------------------------------------------------- */

void ig_call_put_escaped(struct ig_completion_parser *p, const char *s, size_t len)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];
		const char *e = c ? strchr(from, c) : NULL;
		char out[6] = { '\\', 'u', '0', '0', digits[c >> 4], digits[c & 15] };
		if (e)
			out[1] = to[e - from];
		ig_call_arguments(p, e || c < ' ' ? out : (const char *)&c,
				  e	  ? 2 :
				  c < ' ' ? 6 :
					    1);
	}
}

void ig_call_put_comma(struct ig_completion_parser *p)
{
	if (p->has_members)
		ig_call_arguments(p, ", ", 2);
	p->has_members = true;
}

void ig_call_put_key(struct ig_completion_parser *p)
{
	ig_call_put_comma(p);
	ig_call_arguments(p, "\"", 1);
	ig_call_put_escaped(p, p->param.data, p->param.len);
	ig_call_arguments(p, "\": ", 3);
}

/* The type of a text that is JSON; 0: it is not. */
static unsigned json_type_of(struct ig_completion_parser *p, const char *s, size_t len)
{
	static const struct ig_json_limits limits = { .max_values = 1 << 20, .allow_nul = true };
	struct ig_json_error why;
	unsigned type = 0;
	json_t *v;
	int rc = len ? ig_json_read(s, len, &limits, &v, &why) : -EINVAL;

	if (!rc) {
		type = type_of(v);
		json_decref(v);
	}
	p->no_memory = p->no_memory || rc == -ENOMEM;
	return type;
}

/* Python's words, where the schema does not say string. */
static const char *as_json(const char *s, size_t len)
{
	static const char *const words[][2] = { { "True", "true" },
						{ "False", "false" },
						{ "None", "null" } };

	for (size_t i = 0; i < 3; i++)
		if (strlen(words[i][0]) == len && !memcmp(s, words[i][0], len))
			return words[i][1];
	return NULL;
}

void ig_call_put_value(struct ig_completion_parser *p)
{
	const char *whole = ig_strbuf_text(&p->value), *s = whole, *word;
	size_t n_whole = p->value.len, len = n_whole;
	unsigned type;

	while (len && ig_completion_is_space(*s))
		s++, len--;
	while (len && ig_completion_is_space(s[len - 1]))
		len--;
	type = json_type_of(p, s, len);
	word = type ? NULL : as_json(s, len);
	if (word)
		type = *word == 'n' ? IG_TYPES_NULL : IG_TYPES_BOOLEAN;
	/* Where a string is one of several types, it is still written without quotes. */
	if (type && ((p->types & type && !(type == IG_TYPES_STRING && p->types != IG_TYPES_ANY)) ||
		     !(p->types & IG_TYPES_STRING))) {
		ig_call_arguments(p, word ? word : s, word ? strlen(word) : len);
	} else {
		ig_call_arguments(p, "\"", 1);
		ig_call_put_escaped(p, whole, n_whole);
		ig_call_arguments(p, "\"", 1);
	}
	ig_completion_clear(p, &p->value);
}
