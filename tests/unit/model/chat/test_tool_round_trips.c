/*
 * test_tool_round_trips.c: random calls, with quotes, newlines, other scripts and nested values in
 * their arguments, written in each format as its templates write them, and read again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tool_events.h"

/* ---- random calls ---------------------------------------------------------------------------- */

static json_t *random_string(void)
{
	static const char *const parts[] = { "a",    "Z", "\"", "'",	"\\",	 "\n",
					     "\t",   " ", "{",	"}",	"[",	 "]",
					     "<",    ">", "</", "|",	":",	 ",",
					     "=",    "é", "東", "😀",	"\\n",	 "\\\"",
					     "null", "1", "`",	"\x01", "</tool" };
	struct ig_strbuf b = { 0 };
	json_t *v;

	for (size_t n = draw(12); n; n--)
		ig_strbuf_puts(&b, parts[draw(sizeof parts / sizeof parts[0])]);
	v = json_string(ig_strbuf_text(&b));
	ig_strbuf_finish(&b);
	return v;
}

static json_t *random_value(unsigned depth)
{
	static const char *const keys[] = { "k", "key_2", "é", "x-y" };
	json_t *v;

	switch (draw(depth ? 8 : 6)) {
	case 0: return json_integer((json_int_t)draw(2000) - 1000);
	case 1: return json_real(((double)draw(2000) - 1000) / 8);
	case 2: return json_true();
	case 3: return json_null();
	case 6:
		v = json_object();
		for (size_t n = draw(3); n; n--)
			json_object_set_new(v, keys[draw(4)], random_value(depth - 1));
		return v;
	case 7:
		v = json_array();
		for (size_t n = draw(3); n; n--)
			json_array_append_new(v, random_value(depth - 1));
		return v;
	default: return random_string();
	}
}

/* The parameters of f, each of its type. */
static json_t *random_arguments(void)
{
	json_t *o = json_object();

	if (draw(3))
		json_object_set_new(o, "s", random_string());
	if (draw(2))
		json_object_set_new(o, "n", json_integer((json_int_t)draw(1000)));
	if (draw(2))
		json_object_set_new(o, "r", random_string());
	if (draw(2))
		json_object_set_new(o, "b", draw(2) ? json_false() : json_null());
	if (draw(2)) {
		json_t *v = random_value(3);
		while (!json_is_object(v)) {
			json_decref(v);
			v = random_value(3);
		}
		json_object_set_new(o, "o", v);
	}
	return o;
}

static void put_json(struct ig_strbuf *b, const json_t *v)
{
	struct ig_json_writer w = { .out = b, .spaced = true };

	ig_json_put_value(&w, NULL, v);
}

static void put_raw(struct ig_strbuf *b, const json_t *v)
{
	if (json_is_string(v))
		ig_strbuf_puts(b, json_string_value(v));
	else
		put_json(b, v);
}

/* Python's repr. */
static void put_python(struct ig_strbuf *b, const json_t *v)
{
	const char *key;
	json_t *one;
	size_t i;

	if (json_is_object(v)) {
		const char *comma = "";
		ig_strbuf_puts(b, "{");
		json_object_foreach((json_t *)v, key, one)
		{
			ig_strbuf_printf(b, "%s'%s': ", comma, key);
			put_python(b, one);
			comma = ", ";
		}
		ig_strbuf_puts(b, "}");
	} else if (json_is_array(v)) {
		ig_strbuf_puts(b, "[");
		json_array_foreach(v, i, one)
		{
			ig_strbuf_puts(b, i ? ", " : "");
			put_python(b, one);
		}
		ig_strbuf_puts(b, "]");
	} else if (json_is_string(v)) {
		ig_strbuf_puts(b, "'");
		for (const char *s = json_string_value(v); *s; s++)
			if (*s == '\n')
				ig_strbuf_puts(b, "\\n");
			else if ((unsigned char)*s < ' ')
				ig_strbuf_printf(b, "\\x%02x", *s);
			else
				ig_strbuf_printf(b, *s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
		ig_strbuf_puts(b, "'");
	} else if (json_is_boolean(v)) {
		ig_strbuf_puts(b, json_is_true(v) ? "True" : "False");
	} else if (json_is_null(v)) {
		ig_strbuf_puts(b, "None");
	} else {
		put_json(b, v);
	}
}

static void put_gemma(struct ig_strbuf *b, const json_t *v)
{
	const char *key, *comma = "";
	json_t *one;
	size_t i;

	if (json_is_object(v)) {
		ig_strbuf_puts(b, "{");
		json_object_foreach((json_t *)v, key, one)
		{
			ig_strbuf_printf(b, "%s%s:", comma, key);
			put_gemma(b, one);
			comma = ",";
		}
		ig_strbuf_puts(b, "}");
	} else if (json_is_array(v)) {
		ig_strbuf_puts(b, "[");
		json_array_foreach(v, i, one)
		{
			ig_strbuf_puts(b, i ? "," : "");
			put_gemma(b, one);
		}
		ig_strbuf_puts(b, "]");
	} else if (json_is_string(v)) {
		ig_strbuf_printf(b, "<|\"|>%s<|\"|>", json_string_value(v));
	} else {
		put_json(b, v);
	}
}

/* Parameters: the texts before a key, between it and its value (a string, or not), and after. */
static void put_tags(struct ig_strbuf *b, const json_t *arguments, const char *before,
		     const char *string, const char *other, const char *after)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)arguments, key, v)
	{
		ig_strbuf_printf(b, "%s%s%s", before, key, json_is_string(v) ? string : other);
		put_raw(b, v);
		ig_strbuf_puts(b, after);
	}
}

static void put_python_call(struct ig_strbuf *b, const char *name, const json_t *arguments)
{
	const char *key, *comma = "";
	json_t *v;

	ig_strbuf_printf(b, "%s(", name);
	json_object_foreach((json_t *)arguments, key, v)
	{
		ig_strbuf_printf(b, "%s%s=", comma, key);
		put_python(b, v);
		comma = ", ";
	}
	ig_strbuf_puts(b, ")");
}

static void put_named(struct ig_strbuf *b, const char *name, const char *key,
		      const json_t *arguments)
{
	ig_strbuf_printf(b, "{\"name\": \"%s\", \"%s\": ", name, key);
	put_json(b, arguments);
	ig_strbuf_puts(b, "}");
}

/* The call with this number as the format's templates write it. */
static void put_call(struct ig_strbuf *b, enum ig_tool_call_format f, bool compact, size_t number,
		     const char *name, const json_t *args)
{
	const char *comma = number ? ", " : "";

	switch (f) {
	case IG_TOOL_CALLS_HERMES:
		ig_strbuf_puts(b, number ? "\n<tool_call>\n" : "<tool_call>\n");
		put_named(b, name, "arguments", args);
		ig_strbuf_puts(b, "\n</tool_call>");
		break;
	case IG_TOOL_CALLS_QWEN:
		ig_strbuf_printf(b, "%s<tool_call>\n<function=%s>\n", number ? "\n" : "", name);
		put_tags(b, args, "<parameter=", ">\n", ">\n", "\n</parameter>\n");
		ig_strbuf_puts(b, "</function>\n</tool_call>");
		break;
	case IG_TOOL_CALLS_HARMONY:
		ig_strbuf_printf(
			b, "%s<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
			number ? "<|start|>assistant" : "", name);
		put_json(b, args);
		ig_strbuf_puts(b, "<|call|>");
		break;
	case IG_TOOL_CALLS_GLM:
		ig_strbuf_printf(b, compact ? "<tool_call>%s" : "\n<tool_call>%s\n", name);
		if (compact)
			put_tags(b, args, "<arg_key>", "</arg_key><arg_value>",
				 "</arg_key><arg_value>", "</arg_value>");
		else
			put_tags(b, args, "<arg_key>", "</arg_key>\n<arg_value>",
				 "</arg_key>\n<arg_value>", "</arg_value>\n");
		ig_strbuf_puts(b, "</tool_call>");
		break;
	case IG_TOOL_CALLS_KIMI:
		ig_strbuf_printf(b,
				 "<|tool_call_begin|>functions.%s:%zu<|tool_call_argument_begin|>",
				 name, number);
		put_json(b, args);
		ig_strbuf_puts(b, "<|tool_call_end|>");
		break;
	case IG_TOOL_CALLS_DEEPSEEK:
		ig_strbuf_printf(b, "%s" DC "function" DSEP "%s\n```json\n", number ? "\n" : "",
				 name);
		put_json(b, args);
		ig_strbuf_puts(b, "\n```" DCE);
		break;
	case IG_TOOL_CALLS_DEEPSEEK31:
		ig_strbuf_printf(b, DC "%s" DSEP, name);
		put_json(b, args);
		ig_strbuf_puts(b, DCE);
		break;
	case IG_TOOL_CALLS_DSML:
	case IG_TOOL_CALLS_DSML4:
		ig_strbuf_printf(b, "<｜DSML｜invoke name=\"%s\">\n", name);
		put_tags(b, args, "<｜DSML｜parameter name=\"", "\" string=\"true\">",
			 "\" string=\"false\">", "</｜DSML｜parameter>\n");
		ig_strbuf_puts(b, "</｜DSML｜invoke>\n");
		break;
	case IG_TOOL_CALLS_MINIMAX:
		ig_strbuf_printf(b, "<invoke name=\"%s\">\n", name);
		put_tags(b, args, "<parameter name=\"", "\">", "\">", "</parameter>\n");
		ig_strbuf_puts(b, "</invoke>\n");
		break;
	case IG_TOOL_CALLS_GEMMA:
		ig_strbuf_printf(b, "<|tool_call>call:%s", name);
		put_gemma(b, args);
		ig_strbuf_puts(b, "<tool_call|>");
		break;
	case IG_TOOL_CALLS_LFM2:
	case IG_TOOL_CALLS_PYTHON:
		ig_strbuf_puts(b, comma);
		put_python_call(b, name, args);
		break;
	case IG_TOOL_CALLS_GRANITE:
	case IG_TOOL_CALLS_MISTRAL:
		ig_strbuf_puts(b, comma);
		put_named(b, name, "arguments", args);
		break;
	case IG_TOOL_CALLS_MISTRAL_ARGS:
		ig_strbuf_printf(b, "[TOOL_CALLS]%s[ARGS]", name);
		put_json(b, args);
		break;
	default: ig_strbuf_puts(b, number ? "; " : ""); put_named(b, name, "parameters", args);
	}
}

static const struct {
	const char *open, *close;
} frames[IG_N_TOOL_CALLS] = {
	[IG_TOOL_CALLS_KIMI] = { KB, KE },
	[IG_TOOL_CALLS_DEEPSEEK] = { DB, DE },
	[IG_TOOL_CALLS_DEEPSEEK31] = { DB, DE },
	[IG_TOOL_CALLS_DSML] = { "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>" },
	[IG_TOOL_CALLS_DSML4] = { "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>" },
	[IG_TOOL_CALLS_MINIMAX] = { "<minimax:tool_call>\n", "</minimax:tool_call>" },
	[IG_TOOL_CALLS_GRANITE] = { "<|tool_call|>[", "]" },
	[IG_TOOL_CALLS_LFM2] = { "<|tool_call_start|>[", "]<|tool_call_end|>" },
	[IG_TOOL_CALLS_PYTHON] = { "[", "]" },
	[IG_TOOL_CALLS_MISTRAL] = { "[TOOL_CALLS][", "]" },
};

static void round_trip(enum ig_tool_call_format f)
{
	struct ig_completion_style style = { .calls = f, .compact = draw(2) };
	struct ig_strbuf b = { 0 };
	json_t *calls = json_array();
	struct seen s;
	char problem[160];

	ig_strbuf_puts(&b, frames[f].open ? frames[f].open : "");
	for (size_t n = 1 + draw(3), i = 0; i < n; i++) {
		json_t *args = random_arguments();
		put_call(&b, f, style.compact, i, "f", args);
		json_array_append_new(calls, json_pack("[s, o]", "f", args));
	}
	ig_strbuf_puts(&b, frames[f].close ? frames[f].close : "");
	parse(&style, b.data, b.len, 1 + draw(20), 0, &s, problem);
	if (json_array_size(s.calls) != json_array_size(calls) || problem[0])
		fail_msg("%s: %s\n  %s\n  %s", ig_tool_format_name(f), b.data,
			 ig_strbuf_text(&s.text), problem);
	for (size_t i = 0; i < json_array_size(calls); i++) {
		const char *got = json_string_value(json_array_get(json_array_get(s.calls, i), 1));
		json_t *v = json_loads(got, JSON_REJECT_DUPLICATES, NULL);
		if (!v || !json_equal(v, json_array_get(json_array_get(calls, i), 1)))
			fail_msg("%s: %s\n  %s", ig_tool_format_name(f), b.data, got);
		json_decref(v);
	}
	assert_int_equal(s.whole.len, b.len);
	assert_memory_equal(s.whole.data, b.data, b.len);
	finish(&s);
	json_decref(calls);
	ig_strbuf_finish(&b);
}

static void round_trips(void **state)
{
	for (int f = IG_TOOL_CALLS_HERMES; f < IG_N_TOOL_CALLS; f++)
		for (int i = 0; i < 2000; i++)
			round_trip((enum ig_tool_call_format)f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
