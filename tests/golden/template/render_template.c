/*
 * render_template.c: renders templates for golden.py.  A JSON list of cases on standard
 * input, each {"template": text, "vars": {…}, "now": Unix seconds}; on standard output a
 * line for each, {"text": …, "client": [[first, end] …]} or {"error": …}.
 */
#include "base/strbuf.h"
#include "model/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VARS 64

static json_t *spans(const struct ig_jinja_output *o)
{
	json_t *list = json_array();

	for (size_t i = 0; o->client && i < o->len;) {
		size_t first = i;
		if (!o->client[i++])
			continue;
		while (i < o->len && o->client[i])
			i++;
		json_array_append_new(list, json_pack("[I, I]", (json_int_t)first, (json_int_t)i));
	}
	return list;
}

static json_t *render(json_t *one)
{
	static const char *const roles[] = { "system", "user", "assistant", "tool", NULL };
	const char *text = json_string_value(json_object_get(one, "template")), *key;
	struct ig_jinja_var vars[MAX_VARS];
	struct ig_jinja_input in = { .vars = vars, .trusted_key = "role", .trusted_words = roles };
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	struct ig_jinja *j;
	json_t *value, *result;

	in.now_s = json_integer_value(json_object_get(one, "now"));
	json_object_foreach(json_object_get(one, "vars"), key, value) if (in.n_vars < MAX_VARS)
		vars[in.n_vars++] = (struct ig_jinja_var){
			key,
			value,
			strcmp(key, "messages") && strcmp(key, "tools"),
		};
	if (!text || ig_jinja_compile(text, strlen(text), NULL, &j, &err))
		return json_pack("{s:s}", "error", text ? err.text : "a case without a template");
	if (ig_jinja_render(j, &in, NULL, &out, &err)) {
		result = json_pack("{s:s}", "error", err.text);
	} else {
		result = json_pack("{s:s%, s:o}", "text", out.text, out.len, "client", spans(&out));
		ig_jinja_output_finish(&out);
	}
	ig_jinja_destroy(j);
	return result;
}

int main(void)
{
	json_error_t err;
	json_t *cases = json_loadf(stdin, JSON_ALLOW_NUL, &err), *one;
	size_t i;

	if (!cases) {
		fprintf(stderr, "render_template: line %d: %s\n", err.line, err.text);
		return 2;
	}
	json_array_foreach(cases, i, one)
	{
		json_t *result = render(one);
		if (!result || json_dumpf(result, stdout, JSON_COMPACT))
			return 2;
		putchar('\n');
		json_decref(result);
	}
	json_decref(cases);
	return 0;
}
