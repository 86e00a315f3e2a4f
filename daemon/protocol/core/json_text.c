/* json_text.c: see json_text.h. */
#include "daemon/protocol/core/json_text.h"

#include <stdlib.h>
#include <string.h>

const char *ig_json_type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	default:
		return "null";
	}
}

void ig_json_text(struct ig_strbuf *out, const char *s)
{
	if (s)
		ig_strbuf_json(out, s, strlen(s));
	else
		ig_strbuf_puts(out, "null");
}

void ig_json_value(struct ig_strbuf *out, const json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);

	if (text)
		ig_strbuf_puts(out, text);
	else
		out->failed = true;
	free(text);
}
