/* completion_samples.h: completions and the events that they are, for test_completion_parser.c. */
#pragma once

#include "model/chat/completion.h"

#define H { .calls = IG_TOOL_CALLS_HERMES }
#define HR { .calls = IG_TOOL_CALLS_HERMES, .reasoning = true }
#define HO { .calls = IG_TOOL_CALLS_HERMES, .reasoning = true, .opens_reasoning = true }
#define L { .calls = IG_TOOL_CALLS_LLAMA3 }
#define LR { .calls = IG_TOOL_CALLS_LLAMA3, .reasoning = true }
#define M { .calls = IG_TOOL_CALLS_MISTRAL_ARGS }
#define N { .calls = IG_TOOL_CALLS_NONE }
#define NR { .calls = IG_TOOL_CALLS_NONE, .reasoning = true }
#define NO { .calls = IG_TOOL_CALLS_NONE, .reasoning = true, .opens_reasoning = true }

static const struct sample {
	struct ig_completion_style style;
	const char *text, *want;
} samples[] = {
	/* ---- plain text */
	{ H, "", "" },
	{ H, "Hello, w\xc3\xb6rld \xf0\x9f\x98\x80!", "T{Hello, w\xc3\xb6rld \xf0\x9f\x98\x80!}" },
	{ H, "\n\n  Hi \n there \n\n", "T{\n\n  Hi \n there \n\n}" },
	{ H, " \n\t", "T{ \n\t}" },
	{ H, "a < b, <tool_cal>, <tool_call, <<tool_call",
	  "T{a < b, <tool_cal>, <tool_call, <<tool_call}" },
	{ H, "</tool_call> <tool_call> <tool_call>x", "T{</tool_call> <tool_call> <tool_call>x}" },
	{ H, "Write `<tool_call>` to call.", "T{Write `<tool_call>` to call.}" },
	{ L, "Hello { \"name\": \"f\", \"parameters\": {} }",
	  "T{Hello { \"name\": \"f\", \"parameters\": {} }}" },
	{ M, "[TOOL_CALL] [TOOL_CALLS", "T{[TOOL_CALL] [TOOL_CALLS}" },
	{ N, "<think>x</think> <tool_call>{}</tool_call> [TOOL_CALLS] <|python_tag|>",
	  "T{<think>x</think> <tool_call>{}</tool_call> [TOOL_CALLS] <|python_tag|>}" },
	{ H, "<think>x</think>", "T{<think>x</think>}" },

	/* ---- Hermes */
	{ H, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
	  "C{f}A{{\"a\": 1}}E" },
	{ H, "\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n", "C{f}A{{}}E" },
	{ H,
	  "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
	  "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"b\": [{}, \"}\"]}}\n</tool_call>",
	  "T{Let me look.}C{f}A{{}}EC{g}A{{\"b\": [{}, \"}\"]}}E" },
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"}{\\\\\", \"\xc3\xa9\": "
	  "\"</tool_call>\"}}"
	  "</tool_call>",
	  "C{f}A{{\"a\": \"\\\"}{\\\\\", \"\xc3\xa9\": \"</tool_call>\"}}E" },
	/* The arguments come first, or are called parameters; other keys are left out. */
	{ H, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
	  "C{f}A{{\"a\": 1}}E" },
	{ H,
	  "<tool_call>{\"id\": 7, \"x\": [1, {\"name\": \"no\"}, \"]\"], \"y\": \"\\\"\", "
	  "\"z\": -1.5e3, "
	  "\"name\": \"f\", \"parameters\": {}, \"more\": {\"a\": null}, \"name\": 3}"
	  "</tool_call>",
	  "C{f}A{{}}E" },
	/* No arguments, or none to speak of. */
	{ H, "<tool_call>{\"name\": \"f\"}</tool_call>", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"arguments\": null , \"name\": \"f\"}</tool_call>", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"arguments\": \" \", \"name\": \"f\"}</tool_call>", "C{f}A{{}}E" },
	/* Arguments in a string. */
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\ud83d\\ude00"
	  "\\\\n\\/\\\"}\"}</tool_call>",
	  "C{f}A{{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80\\n/\"}}E" },
	{ H, "<tool_call>{\"arguments\": \" {\\n}\", \"name\": \"f\"}</tool_call>",
	  "C{f}A{ {\n}}E" },
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\ud83d \\ude00 \\ud83d\\u0041 "
	  "\\uzz \\q \\u12\"}",
	  "C{f}A{{\xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd"
	  "A \xef\xbf\xbdzz \\q \xef\xbf\xbd}E" },
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": "
	  "\"{\\u007f\\u0080\\u07FF\\u0800\\uffff\\ud800\\udc00"
	  "\\udbff\\udfff\\ud7ff\\ud800\\ue000\\udc00x\\udfff\\ud800\\ud800\\udc00\"}",
	  "C{f}A{{\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"
	  "\xed\x9f\xbf"
	  "\xef\xbf\xbd\xee\x80\x80\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd\xf0\x90\x80\x80}E" },
	/* Names with escapes. */
	{ H, "<tool_call>{\"n\\u0061me\": \"f\\u00fc\\/\", \"arguments\": {}}</tool_call>",
	  "C{f\xc3\xbc/}A{{}}E" },
	/* No calls. */
	{ H, "<tool_call>{\"foo\": 1}</tool_call> x", "T{<tool_call>{\"foo\": 1}</tool_call> x}" },
	{ H, "<tool_call>[]</tool_call>", "T{<tool_call>[]</tool_call>}" },
	{ H, "<tool_call>\n{}\n</tool_call>\n", "T{<tool_call>\n{}\n</tool_call>\n}" },
	{ H, "<tool_call>{\"name\": \"\", \"arguments\": {}}",
	  "T{<tool_call>{\"name\": \"\", \"arguments\": {}}}" },
	{ H, "<tool_call>{\"name\": 5, \"arguments\": {}}",
	  "T{<tool_call>{\"name\": 5, \"arguments\": {}}}" },
	{ H, "<tool_call>{\"name\": \"a\\u0000\", \"arguments\": {}}",
	  "T{<tool_call>{\"name\": \"a\\u0000\", \"arguments\": {}}}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}",
	  "T{<tool_call>{\"name\": \"f\", \"arguments\": [1]}}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": \"Rome\"}",
	  "T{<tool_call>{\"name\": \"f\", \"arguments\": \"Rome\"}}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": nil}",
	  "T{<tool_call>{\"name\": \"f\", \"arguments\": nil}}" },
	{ H, "<tool_call>{\"name\": \"f\", \"x\": }", "T{<tool_call>{\"name\": \"f\", \"x\": }}" },
	{ H, "<tool_call>{\"name\" \"f\"}", "T{<tool_call>{\"name\" \"f\"}}" },
	{ H, "<tool_call>{\"name\": \"f\" \"x\"}", "T{<tool_call>{\"name\": \"f\" \"x\"}}" },
	{ H, "<tool_call>{\"name\": \"f\", }", "T{<tool_call>{\"name\": \"f\", }}" },
	{ H, "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
	  "T{<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>}" },
	/* One that is none is no reason to miss the next. */
	{ H, "<tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
	  "T{<tool_call>}C{f}A{{}}E" },
	{ H, "<tool_call>{\"x\": <tool_call>{\"name\": \"f\"}</tool_call>",
	  "T{<tool_call>{\"x\":}C{f}A{{}}E" },
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": nil} <tool_call>{\"x\": 1, \"name\": "
	  "\"g\"}",
	  "T{<tool_call>{\"name\": \"f\", \"arguments\": nil}}C{g}A{{}}E" },
	{ H,
	  "<tool_call>{\"arguments\": {\"a\": 1}}<tool_call>{\"name\": \"g\", \"arguments\": "
	  "{}}",
	  "T{<tool_call>{\"arguments\": {\"a\": 1}}}C{g}A{{}}E" },
	/* What breaks off. */
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "C{f}A{{\"a\": \"b}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {}", "C{f}A{{\"a\": {}}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\u00", "C{f}A{{\"a}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"argum", "T{<tool_call>{\"name\": \"f\", \"argum}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_ca", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_ca",
	  "C{f}A{{}}ET{<tool_ca}" },
	/* Braces that are missing, or too many. */
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>\nx",
	  "C{f}A{{\"a\": 1}}ET{x}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>",
	  "C{f}A{{\"a\": 1}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {}}}\n</tool_call>", "C{f}A{{}}E" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {}}} x", "C{f}A{{}}ET{} x}" },
	{ H, "<tool_call>{\"name\": \"f\"} x </tool_call>", "C{f}A{{}}ET{x </tool_call>}" },
	{ H, "<tool_call>{\"name\": \"f\"}</tool_call></tool_call>", "C{f}A{{}}ET{</tool_call>}" },
	{ H, "<tool_call>{\"name\": \"f\"}\n<tool_c", "C{f}A{{}}ET{<tool_c}" },
	/* The closing tag is forgotten. */
	{ H,
	  "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", "
	  "\"arguments\": {}}",
	  "C{f}A{{}}EC{g}A{{}}E" },
	/* Text after a tool call. */
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n\nDone.\n",
	  "C{f}A{{}}ET{Done.\n}" },
	{ H,
	  "A \n<tool_call>{\"name\": \"f\", \"arguments\": {}}"
	  "</tool_call>\n\nB\n<tool_call>{\"name\": \"g\"}</tool_call>",
	  "T{A}C{f}A{{}}ET{\n\nB}C{g}A{{}}E" },

	/* ---- reasoning */
	{ HR, "<think>\nHm, hm.\n\nSo.\n</think>\n\nHi", "R{Hm, hm.\n\nSo.}T{Hi}" },
	{ HR, "\n<think>\n\n</think>\n\n  Hi \n", "T{  Hi \n}" },
	{ HR, "<think>a</think> b", "R{a}T{ b}" },
	{ HR, "<think>a</think>\n", "R{a}" },
	{ HR, "<think>a </th", "R{a </th}" },
	{ HR, "<think>a < b </thin </think>c", "R{a < b </thin}T{c}" },
	{ HR, "<thin", "T{<thin}" },
	{ HR, "\n Hi <think>x</think>", "T{\n Hi <think>x</think>}" },
	{ HR, "</think>x", "T{</think>x}" },
	{ HR,
	  "<think>a <tool_call>{\"name\": \"f\"}</tool_call></think><tool_call>{\"name\": "
	  "\"g\"}</tool_call>",
	  "R{a <tool_call>{\"name\": \"f\"}</tool_call>}C{g}A{{}}E" },
	{ HR,
	  "<think>a</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}"
	  "\n</tool_call>",
	  "R{a}C{f}A{{}}E" },
	{ HR, "<think>a</think>\n\n<tool_call>x", "R{a}T{<tool_call>x}" },
	{ HR, "<think><think>a", "R{<think>a}" },
	{ HO, "Hm.\n</think>\n\nHi", "R{Hm.}T{Hi}" },
	{ HO, "\n<think>\nHm.\n</think>\n\nHi", "R{Hm.}T{Hi}" },
	{ HO, "</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>", "C{f}A{{}}E" },
	{ HO, "Hm <think> \xf0\x9f\x98\x80 ", "R{Hm <think> \xf0\x9f\x98\x80 }" },
	{ HO, "<thi", "R{<thi}" },
	{ HO, "<thi\nx", "R{<thi\nx}" },
	{ NO, "a</think>\nb </think> <think>", "R{a}T{b </think> <think>}" },
	{ NR, " <think>a</think>\n b ", "R{a}T{ b }" },
	{ LR, "<think>a</think>\n{\"name\": \"f\", \"parameters\": {}}", "R{a}C{f}A{{}}E" },

	/* ---- Llama 3 */
	{ L, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "C{f}A{{\"a\": \"b\"}}E" },
	{ L, "\n {\"name\": \"f\", \"parameters\": {}}\n", "C{f}A{{}}E" },
	{ L, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "C{f}A{{}}E" },
	{ L, "<|python_tag|>{\"name\": \"f\"}", "C{f}A{{}}E" },
	{ L, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "C{f}A{{}}E" },
	{ L, "{\"parameters\": {\"a\": 1}, \"name\": \"f\"}", "C{f}A{{\"a\": 1}}E" },
	{ L, "{\"name\": \"f\", \"arguments\": {}}", "C{f}A{{}}E" },
	{ L, "{\"name\": \"f\", \"parameters\": null}", "C{f}A{{}}E" },
	{ L, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
	  "C{f}A{{}}EC{g}A{{}}E" },
	{ L, "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}};\n",
	  "C{f}A{{}}EC{g}A{{}}E" },
	{ L,
	  "<|python_tag|>{\"name\": \"f\", \"parameters\": {}};<|python_tag|>{\"name\": \"g\","
	  " \"parameters\": {}}",
	  "C{f}A{{}}EC{g}A{{}}E" },
	{ L, "I call.<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "T{I call.}C{f}A{{}}E" },
	{ L, "{\"name\": \"f\", \"parameters\": {}} That's it; {", "C{f}A{{}}ET{That's it; {}" },
	{ L, "{\"name\": \"f\", \"parameters\": {}}; {\"x\": 1}", "C{f}A{{}}ET{; {\"x\": 1}}" },
	{ L, "<|python_tag|>{\"name\": \"f\"};{\"name\": \"g\"}",
	  "C{f}A{{}}ET{;{\"name\": \"g\"}}" },
	{ L, "{\"name\": \"f\", \"parameters\": {}, \"x\": 1}", "C{f}A{{}}E" },
	{ L, "{\"name\": \"Ada\", \"age\": 36}\n", "T{{\"name\": \"Ada\", \"age\": 36}\n}" },
	{ L, "{\"name\": \"Ada\"}", "T{{\"name\": \"Ada\"}}" },
	{ L, "{\"name\": \"Ada\", \"parameters\": [1]}",
	  "T{{\"name\": \"Ada\", \"parameters\": [1]}}" },
	{ L, "{\"name\": {\"first\": \"Ada\"}}", "T{{\"name\": {\"first\": \"Ada\"}}}" },
	{ L, "{\"type\": \"function\", \"parameters\": {}}",
	  "T{{\"type\": \"function\", \"parameters\": {}}}" },
	{ L, " {}", "T{ {}}" },
	{ L, "{x | x > 0}", "T{{x | x > 0}}" },
	{ L, "{{\"name\": \"f\", \"parameters\": {}}}",
	  "T{{{\"name\": \"f\", \"parameters\": {}}}}" },
	{ L, "{", "T{{}" },
	{ L, "<|python_tag|>print(\"hi\")\n", "T{<|python_tag|>print(\"hi\")\n}" },
	{ L, "<|python_tag|>brave_search.call(query=\"x\")",
	  "T{<|python_tag|>brave_search.call(query=\"x\")}" },
	{ L, "```json\n{\"name\": \"f\", \"parameters\": {}}\n```",
	  "T{```json\n{\"name\": \"f\", \"parameters\": {}}\n```}" },

	/* ---- Mistral */
	{ M, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "C{f}A{{\"a\": 1}}E" },
	{ M,
	  "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}, "
	  "{\"id\": \"x\", \"name\": \"g\", \"arguments\": {\"]\": \"]\"}}]\n",
	  "C{f}A{{}}EC{g}A{{\"]\": \"]\"}}E" },
	{ M, "Yes. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] Done.",
	  "T{Yes.}C{f}A{{}}ET{ Done.}" },
	{ M, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "C{f}A{{}}E" },
	{ M, "[TOOL_CALLS][1] [TOOL_CALLS]{\"name\": \"f\"}]", "T{[TOOL_CALLS][1]}C{f}A{{}}ET{]}" },
	{ M,
	  "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, 1}, {\"name\": \"g\", "
	  "\"arguments\": {}}]",
	  "C{f}A{{}}ET{1}, {\"name\": \"g\", \"arguments\": {}}]}" },
	{ M, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS][", "C{f}A{{}}ET{[TOOL_CALLS][}" },
	{ M, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]{\"name\": \"g\", \"arguments\": {}}x",
	  "C{f}A{{}}EC{g}A{{}}ET{x}" },
	{ M, "[TOOL_CALLS][]", "T{[TOOL_CALLS][]}" },
	{ M, "[TOOL_CALLS][1]", "T{[TOOL_CALLS][1]}" },
	{ M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 2]", "C{f}A{{}}ET{, 2]}" },
	{ M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, ", "C{f}A{{}}E" },
	{ M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"na", "C{f}A{{}}ET{, {\"na}" },
	{ M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}} x]", "C{f}A{{}}ET{x]}" },
	{ M, "[TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS]}\"}", "C{f}A{{\"a\": \"[ARGS]}\"}}E" },
	{ M, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g.h-2[ARGS] {\"a\": {}}",
	  "C{f}A{{}}EC{g.h-2}A{{\"a\": {}}}E" },
	{ M, "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}\n", "C{f}A{{}}E" },
	{ M, "Ok[TOOL_CALLS] f [ARGS]{\"a\": 1", "T{Ok}C{f}A{{\"a\": 1}E" },
	{ M, "[TOOL_CALLS]f{\"a\": 1}", "C{f}A{{\"a\": 1}}E" },
	{ M, "[TOOL_CALLS]f", "T{[TOOL_CALLS]f}" },
	{ M, "[TOOL_CALLS]f[ARG", "T{[TOOL_CALLS]f[ARG}" },
	{ M, "[TOOL_CALLS]f[ARGS]", "T{[TOOL_CALLS]f[ARGS]}" },
	{ M, "[TOOL_CALLS]f[ARGS]x", "T{[TOOL_CALLS]f[ARGS]x}" },
	{ M, "[TOOL_CALLS]f[ARX]{}", "T{[TOOL_CALLS]f[ARX]{}}" },
	{ M, "[TOOL_CALLS]f[[TOOL_CALLS]g[ARGS]{}", "T{[TOOL_CALLS]f[}C{g}A{{}}E" },
	{ M, "[TOOL_CALLS][ARGS]{}", "T{[TOOL_CALLS][ARGS]{}}" },
	{ M, "The [TOOL_CALLS] marker is", "T{The [TOOL_CALLS] marker is}" },
	{ M, "[TOOL_CALLS]f[CALL_ID]\"[ARGS]{}", "T{[TOOL_CALLS]f[CALL_ID]\"[ARGS]{}}" },
	{ M, "[TOOL_CALLS]f g[ARGS]{}", "T{[TOOL_CALLS]f g[ARGS]{}}" },

	/* ---- broken characters */
	{ H,
	  "a\xff"
	  "b\xc3(\xe2\x82",
	  "T{a\xef\xbf\xbd"
	  "b\xef\xbf\xbd(\xef\xbf\xbd}" },
	{ H, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xc3\"}}</tool_call>",
	  "C{f}A{{\"a\": \"\xef\xbf\xbd\"}}E" },
};
