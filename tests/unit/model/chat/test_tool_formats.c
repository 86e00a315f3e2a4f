/*
 * test_tool_formats.c: each format of tool calls, from the text of a completion to events, cut at
 * every byte; and any mixture of markers, of which no byte may be lost.
 *
 * Events are printed as in test_completion_parser.c: T{…} text, R{…} reasoning, C{…} a tool call's
 * name, A{…} its arguments, E its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tool_events.h"

#define NO_THINK(f) { .calls = IG_TOOL_CALLS_##f }
#define Q NO_THINK(QWEN)
#define H NO_THINK(HARMONY)
#define G NO_THINK(GLM)
#define K NO_THINK(KIMI)
#define D3 NO_THINK(DEEPSEEK)
#define D31 NO_THINK(DEEPSEEK31)
#define DS NO_THINK(DSML)
#define D4 NO_THINK(DSML4)
#define MM NO_THINK(MINIMAX)
#define GE NO_THINK(GEMMA)
#define GR NO_THINK(GRANITE)
#define LF NO_THINK(LFM2)
#define PY NO_THINK(PYTHON)
#define GET { .calls = IG_TOOL_CALLS_GEMMA, .reasoning = true, .think = IG_THINK_CHANNEL }
#define MT { .calls = IG_TOOL_CALLS_MISTRAL_ARGS, .reasoning = true, .think = IG_THINK_BRACKET }

#define Q1(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
#define QP(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"
#define MI(args) "<minimax:tool_call>\n<invoke name=\"f\">\n" args "</invoke>\n</minimax:tool_call>"
#define HC "<|start|>assistant<|channel|>"

static const struct sample {
	struct ig_completion_style style;
	const char *text, *want;
	const char *problem; /* NULL: none */
} samples[] = {
	/* ---- Qwen 3 Coder: types by the schema */
	{ Q, Q1(QP("s", "Paris") QP("n", "2")), "C{f}A{{\"s\": \"Paris\", \"n\": 2}}E", NULL },
	{ Q, Q1(QP("s", "5") QP("r", "true") QP("u", "5") QP("b", "True") QP("e", "2")),
	  "C{f}A{{\"s\": \"5\", \"r\": \"true\", \"u\": \"5\", \"b\": true, \"e\": \"2\"}}E",
	  NULL },
	{ Q, Q1(QP("u", "null") QP("b", "None") QP("n", "many") QP("x", "[1, 2]") QP("y", "[1, 2")),
	  "C{f}A{{\"u\": null, \"b\": null, \"n\": \"many\", \"x\": [1, 2], \"y\": \"[1, 2\"}}E",
	  NULL },
	{ Q, Q1(QP("s", "\n a\n\n\"\\\tb \n")), "C{f}A{{\"s\": \"\\n a\\n\\n\\\"\\\\\\tb \\n\"}}E",
	  NULL },
	{ Q, Q1(QP("s", "")), "C{f}A{{\"s\": \"\"}}E", NULL },
	{ Q, Q1("<parameter=s>a</parameter>"), "C{f}A{{\"s\": \"a\"}}E", NULL },
	{ Q, Q1(""), "C{f}A{{}}E", NULL },
	{ Q, "Look.\n" Q1(QP("o", "{\"a\": {}}")) "\n" Q1("") "\n",
	  "T{Look.}C{f}A{{\"o\": {\"a\": {}}}}EC{f}A{{}}E", NULL },
	/* A string may contain what ends one. */
	{ Q, Q1(QP("s", "<parameter=s>\nx\n</parameter>\ny")),
	  "C{f}A{{\"s\": \"<parameter=s>\\nx\\n</parameter>\\ny\"}}E", NULL },
	{ Q, Q1(QP("s", "</parameter>\n</par</parameter>")),
	  "C{f}A{{\"s\": \"</parameter>\\n</par</parameter>\"}}E", NULL },
	/* The first tag may be missing if it is a tool's name; the last one, too. */
	{ Q, "<function=f>\n" QP("n", "1") "</function>", "C{f}A{{\"n\": 1}}E", NULL },
	{ Q, "Use <function=foo> here.", "T{Use <function=foo> here.}",
	  "qwen3-coder: expected a name at byte 18" },
	{ Q, "<tool_call>\n<function=f>\n" QP("n", "1") "</tool_call>x", "C{f}A{{\"n\": 1}}ET{x}",
	  "qwen3-coder: expected </function> at byte 66" },
	/* What breaks off, or is something else. */
	{ Q, "<tool_call>\n<function=f>\n<parameter=s>\nPar", "C{f}A{{\"s\": \"Par}E",
	  "qwen3-coder: expected more of the call's arguments at byte 42" },
	{ Q, "<tool_call>\n<function=f>\n" QP("n", "1"), "C{f}A{{\"n\": 1}}E",
	  "qwen3-coder: expected more of the call's arguments at byte 54" },
	{ Q, "<tool_call>\n<function=f>\nHello", "C{f}A{{}}ET{Hello}",
	  "qwen3-coder: expected a parameter or the end of the call at byte 26" },
	{ Q, "<tool_call>\n{\"name\": \"f\"}", "T{<tool_call>\n{\"name\": \"f\"}}",
	  "qwen3-coder: expected <function= at byte 13" },
	{ Q, "a < b <tool_cal", "T{a < b <tool_cal}", NULL },

	/* ---- Harmony */
	{ H, "<|channel|>analysis<|message|>Hm.<|end|>" HC "final<|message|>Hi <|x|>.<|return|>",
	  "R{Hm.}T{Hi <|x|>.}", NULL },
	{ H,
	  "<|channel|>analysis<|message|>Hm.<|end|>" HC
	  "commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"}<|\"}<|call|>",
	  "R{Hm.}C{f}A{{\"s\": \"}<|\"}}E", NULL },
	{ H, " to=functions.f<|channel|>commentary json<|message|>{\"n\": 2}", "C{f}A{{\"n\": 2}}E",
	  NULL },
	{ H,
	  "<|channel|>commentary<|message|>I look.<|end|>" HC
	  "commentary to=functions.f<|message|> {} <|call|>",
	  "T{I look.}C{f}A{{}}E", NULL },
	{ H,
	  "<|channel|>commentary to=functions.f<|message|>{}<|call|>" HC
	  "commentary to=functions.g<|message|>{}<|call|>",
	  "C{f}A{{}}EC{g}A{{}}E", NULL },
	{ H, "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
	  "C{python}A{print(1)}E", NULL },
	{ H, "<|channel|>commentary to=functions.f<|message|><|call|>", "C{f}A{{}}E", NULL },
	{ H, "Plain text.\n", "T{Plain text.\n}", NULL },
	{ H, "<|channel|>final", "", "harmony: expected <|message|> at byte 16" },
	{ H, "<|channel|>final<|message|>a<|end|><|start|>assistant", "T{a}",
	  "harmony: expected <|message|> at byte 53" },
	{ H, " to=functions.f", "T{ to=functions.f}", "harmony: expected <|message|> at byte 15" },
	{ H, "<|channel|>final\nHi", "T{<|channel|>final\nHi}",
	  "harmony: expected <|message|> at byte 18" },
	{ H, "<|channel|>final\n<|message|>Hi", "T{Hi}", NULL },
	/* openai-harmony reads these in the same way. */
	{ H, "<|channel|>commentary to=all<|message|>Hi", "T{Hi}", NULL },
	{ H, "<|channel|>commentary to=assistant<|message|>Hi", "T{Hi}", NULL },
	{ H, "<|channel|>commentary to= <|message|>Hi", "T{Hi}", NULL },
	{ H, "<|constrain|>json<|message|>Hi", "T{Hi}", NULL },
	{ H, "<|channel|>commentary to=functions.f<|message|> \n x\n<|call|>", "C{f}A{ \n x\n}E",
	  NULL },
	{ H, "<|channel|>commentary to=functions.f<|message|> <|x<|call|>", "C{f}A{ <|x}E", NULL },
	{ H, "<|channel|>commentary to=functions.f<|message|>", "C{f}E",
	  "harmony: expected arguments at byte 47" },
	{ H, "<|channel|>final<|message|>a <|en", "T{a <|en}", NULL },
	{ H, "<|channel|>commentary to=functions.f<|message|>{\"a", "C{f}A{{\"a}E",
	  "harmony: expected more of the call's arguments at byte 50" },
	{ H, "<|channel|>commentary to=functions.f<|message|>{} and", "C{f}A{{}}ET{ and}", NULL },

	/* ---- GLM */
	{ G,
	  "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>n</arg_key>"
	  "\n<arg_value>2</arg_value>\n</tool_call>",
	  "C{f}A{{\"s\": \"Paris\", \"n\": 2}}E", NULL },
	{ G,
	  "<tool_call>f<arg_key>s</arg_key><arg_value> 2\n</arg_value></tool_call>\n"
	  "<tool_call>g</tool_call>",
	  "C{f}A{{\"s\": \" 2\\n\"}}EC{g}A{{}}E", NULL },
	{ G, "The <tool_call> tag", "T{The <tool_call> tag}",
	  "glm: expected the rest of a call at byte 19" },
	{ G,
	  "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value></arg_value> x</arg_value>\n"
	  "</tool_call>",
	  "C{f}A{{\"s\": \"</arg_value> x\"}}E", NULL },

	/* ---- Kimi */
	{ K, "Ok." KB KC("functions.f:0", "{\"n\": 2}") KC("functions.g:1", "{}") KE,
	  "T{Ok.}C{f}A{{\"n\": 2}}EC{g}A{{}}E", NULL },
	{ K, KB KC("f", "{}"), "C{f}A{{}}E", NULL },
	{ K, KB KC("functions.f:0", "") KE "x", "C{f}A{{}}ET{x}", NULL },
	{ K, KB KE, "T{" KB KE "}", "kimi: expected <|tool_call_begin|> at byte 54" },
	{ K, KB "<|tool_call_begin|>f<|tool_call_end|>",
	  "T{" KB "<|tool_call_begin|>f<|tool_call_end|>}",
	  "kimi: expected <|tool_call_argument_begin|> at byte 61" },

	/* ---- DeepSeek */
	{ D3,
	  DB DC "function" DSEP "f\n```json\n{\"n\": 2}\n```" DCE "\n" DC "function" DSEP
		"g\n```json\n{}\n```" DCE DE,
	  "C{f}A{{\"n\": 2}}EC{g}A{{}}E", NULL },
	{ D31, DB DC "f" DSEP "{\"n\": 2}" DCE DC "g" DSEP "{}" DCE DE,
	  "C{f}A{{\"n\": 2}}EC{g}A{{}}E", NULL },
	{ D31, "Hm. " DB "no", "T{Hm. " DB "no}",
	  "deepseek-v3.1: expected <｜tool▁call▁begin｜> at byte 33" },
	{ DS,
	  "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
	  "string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"s\" string=\"false\">5"
	  "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
	  "C{f}A{{\"s\": \"5\", \"s\": 5}}E", NULL },
	{ D4,
	  "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
	  "<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
	  "C{g}A{{}}EC{f}A{{}}E", NULL },

	/* ---- MiniMax */
	{ MM, MI("<parameter name=\"s\">5</parameter>\n<parameter name=\"n\">5</parameter>\n"),
	  "C{f}A{{\"s\": \"5\", \"n\": 5}}E", NULL },
	{ MM, "<minimax:tool_call>\n</minimax:tool_call>",
	  "T{<minimax:tool_call>\n</minimax:tool_call>}",
	  "minimax: expected <invoke name=\" at byte 40" },

	/* ---- Gemma */
	{ GE,
	  "<|tool_call>call:f{s:<|\"|>a \"b\" <|\n<|\"|>,n:2,o:{k:[1,<|\"|>x<|\"|>,true]},b:null}"
	  "<tool_call|>",
	  "C{f}A{{\"s\": \"a \\\"b\\\" <|\\n\", \"n\": 2, \"o\": {\"k\": [1, \"x\", true]}, \"b\": "
	  "null}}E",
	  NULL },
	{ GE, "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{\"a\": \"b\\n\"}<tool_call|>",
	  "C{f}A{{}}EC{g}A{{\"a\": \"b\\n\"}}E", NULL },
	{ GE, "<|tool_call>call:f{s:Paris}", "C{f}A{{\"s\": \"Paris\"}}E", NULL },
	{ GE, "<|tool_call>f{}", "T{<|tool_call>f{}}", "gemma: expected call: at byte 13" },
	{ GE, "<|tool_call>call:f{s:<|\"|>a", "C{f}A{{\"s\": \"a}E",
	  "gemma: expected more of the call's arguments at byte 27" },
	{ GET, "<|channel>thought\nHm.\n<channel|>Hi", "R{Hm.}T{Hi}", NULL },

	/* ---- Granite, LFM2, Python */
	{ GR,
	  "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 2}}, {\"name\": \"g\", "
	  "\"arguments\": {}}]",
	  "C{f}A{{\"n\": 2}}EC{g}A{{}}E", NULL },
	{ LF, "<|tool_call_start|>[f(s=\"Pa\\\"ris\", n=2), g()]<|tool_call_end|>Done",
	  "C{f}A{{\"s\": \"Pa\\\"ris\", \"n\": 2}}EC{g}A{{}}ET{Done}", NULL },
	{ LF,
	  "<|tool_call_start|>[f(s='a\\'\\x41\\u00e9', b=True, o={'k': [1, (2, None), -3.5], "
	  "'': {}}, x=abc)]<|tool_call_end|>",
	  "C{f}A{{\"s\": \"a'A\xc3\xa9\", \"b\": true, \"o\": {\"k\": [1, [2, null], -3.5], \"\": {}}, "
	  "\"x\": \"abc\"}}E",
	  NULL },
	{ LF, "<|tool_call_start|>f(n=1)<|tool_call_end|>", "C{f}A{{\"n\": 1}}E", NULL },
	{ LF, "<|tool_call_start|>[f(s=\"a\" n=1)]", "C{f}A{{\"s\": \"a\"}}ET{n=1)]}",
	  "lfm2: expected a comma or the end of the arguments at byte 29" },
	{ PY, "[f(s=\"a\"), g()]", "C{f}A{{\"s\": \"a\"}}EC{g}A{{}}E", NULL },
	{ PY, "<|python_start|>[f()]<|python_end|>", "C{f}A{{}}E", NULL },
	{ PY, "[link](x) and [h(a=1)]", "T{[link](x) and [h(a=1)]}", NULL },
	{ PY, "[h(a=1)]", "T{[h(a=1)]}", NULL }, /* no tool */
	{ PY, "[1, 2]", "T{[1, 2]}", NULL },

	{ MT, "[THINK]Hm.[/THINK][TOOL_CALLS]f[ARGS]{}", "R{Hm.}C{f}A{{}}E", NULL },
};

static void same(const struct ig_completion_style *style, const char *text, size_t len, size_t step,
		 size_t cut, const char *want, const char *problem)
{
	struct seen s;
	char got[160];

	parse(style, text, len, step, cut, &s, got);
	if (want && strcmp(ig_strbuf_text(&s.text), want))
		fail_msg("%.*s\n  wanted %s\n  got    %s", (int)len, text, want,
			 ig_strbuf_text(&s.text));
	if (problem && strcmp(got, problem))
		fail_msg("%.*s\n  wanted %s\n  got    %s", (int)len, text, problem, got);
	if (s.whole.len != len || (len && memcmp(s.whole.data, text, len)))
		fail_msg("lost: %.*s\n  came out as %s", (int)len, text, ig_strbuf_text(&s.whole));
	finish(&s);
}

/* ---- tests ------------------------------------------------------------------------------------- */

static void formats(void **state)
{
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		const struct sample *x = &samples[i];
		size_t len = strlen(x->text);
		const char *problem = x->problem ? x->problem : "";
		for (size_t cut = 0; cut <= len; cut++)
			same(&x->style, x->text, len, 0, cut, x->want, problem);
		for (size_t step = 1; step < 6; step++)
			same(&x->style, x->text, len, step, 0, x->want, problem);
		/* every prefix: whole, and byte by byte */
		for (size_t n = 0; n < len; n++) {
			struct seen s;
			char got[160];
			/* a character that is cut becomes U+FFFD, which is a byte longer or more */
			if (!ig_utf8_valid(x->text, n))
				continue;
			parse(&x->style, x->text, n, 0, 0, &s, got);
			same(&x->style, x->text, n, 1, 0, ig_strbuf_text(&s.text), got);
			finish(&s);
		}
	}
}

/* ---- mixtures ---------------------------------------------------------------------------------- */

static const char *const words[] = {
	"<tool_call>",
	"</tool_call>",
	"<function=f>",
	"<function=",
	"</function>",
	"<parameter=s>",
	"<parameter=n>",
	"</parameter>",
	"<|channel|>",
	"<|message|>",
	"<|start|>",
	"<|end|>",
	"<|call|>",
	"<|return|>",
	"analysis",
	"commentary",
	"final",
	" to=functions.f",
	"<|constrain|>json",
	"<arg_key>",
	"</arg_key>",
	"<arg_value>",
	"</arg_value>",
	KB,
	KE,
	"<|tool_call_begin|>",
	"<|tool_call_argument_begin|>",
	"<|tool_call_end|>",
	"functions.f:0",
	DB,
	DC,
	DSEP,
	DCE,
	DE,
	"function",
	"```json\n",
	"```",
	"<｜DSML｜function_calls>",
	"</｜DSML｜function_calls>",
	"<｜DSML｜tool_calls>",
	"<｜DSML｜invoke name=\"f\">",
	"</｜DSML｜invoke>",
	"<｜DSML｜parameter name=\"s\" string=\"",
	"true\">",
	"false\">",
	"</｜DSML｜parameter>",
	"<minimax:tool_call>",
	"</minimax:tool_call>",
	"<invoke name=\"f\">",
	"</invoke>",
	"<parameter name=\"s\">",
	"<|tool_call>",
	"<tool_call|>",
	"call:f{",
	"s:",
	"<|\"|>",
	"<|tool_call|>",
	"<|tool_call_start|>",
	"<|tool_call_end|>",
	"<|python_start|>",
	"<|python_end|>",
	"[f(",
	"f(",
	"s=",
	")",
	"'",
	"True",
	"[TOOL_CALLS]",
	"[ARGS]",
	"[CALL_ID]",
	"<|python_tag|>",
	"<think>",
	"</think>",
	"[THINK]",
	"[/THINK]",
	"<|channel>thought",
	"<channel|>",
	"{\"name\": \"f\", \"arguments\": {",
	"{",
	"}",
	"[",
	"]",
	"\"",
	":",
	",",
	";",
	"\n",
	" ",
	"f",
	"s",
	"n",
	"1",
	"null",
	"\\",
	"<",
	"é",
	"😀",
	"x y",
};

static void mixtures(void **state)
{
	size_t n_calls = 0, n_problems = 0;

	for (int i = 0; i < 40000; i++) {
		struct ig_completion_style style = {
			.calls = (enum ig_tool_call_format)draw(IG_N_TOOL_CALLS),
			.reasoning = draw(2),
			.think = (enum ig_think_format)draw(IG_N_THINK),
		};
		struct ig_strbuf b = { 0 };
		struct seen s;
		char problem[160];
		style.opens_reasoning = style.reasoning && draw(4) == 0;
		if (draw(2)) { /* the first part of what is a call */
			const struct sample *x = &samples[draw(sizeof samples / sizeof samples[0])];
			size_t n = draw(strlen(x->text) + 1);
			while (!ig_utf8_valid(x->text, n))
				n--;
			style = x->style;
			ig_strbuf_add(&b, x->text, n);
		}
		for (size_t n = draw(20); n; n--)
			ig_strbuf_puts(&b, words[draw(sizeof words / sizeof words[0])]);
		parse(&style, b.data, b.len, 0, 0, &s, problem);
		n_calls += json_array_size(s.calls) > 0;
		n_problems += problem[0] != 0;
		assert_int_equal(s.whole.len, b.len);
		assert_true(!b.len || !memcmp(s.whole.data, b.data, b.len));
		same(&style, ig_strbuf_text(&b), b.len, 1 + draw(7), 0, ig_strbuf_text(&s.text),
		     problem);
		finish(&s);
		ig_strbuf_finish(&b);
	}
	assert_in_range(n_calls, 2000, 40000);
	assert_in_range(n_problems, 2000, 40000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats),
		cmocka_unit_test(mixtures),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
