/*
 * tool_format.c: the formats of tool calls, one entry each: how a template shows it, the markers of a
 * call, its parser, and the texts of its grammar.  A template is recognised by its source: the first
 * entry in the order below that it shows.  A new format is an entry here, and a parser if none of
 * those that exist can read it.
 */
#include "model/chat/completion_private.h"

#include <string.h>

const struct ig_think_texts ig_think_texts[] = {
	[IG_THINK_TAG] = { "<think>", "</think>" },
	[IG_THINK_BRACKET] = { "[THINK]", "[/THINK]" },
	[IG_THINK_CHANNEL] = { "<|channel>thought", "<channel|>" },
};

static const char *find(const char *s, size_t len, const char *what)
{
	return memmem(s, len, what, strlen(what));
}

/* What a template may have between two pieces of its output: white space (also escaped), ends of
 * strings and tags, operators. */
static size_t skip_glue(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len) {
		if (s[i] == '\\' && i + 1 < len && (s[i + 1] == 'n' || s[i + 1] == 't'))
			i += 2;
		else if (strchr(" \t\r\n'\"}{+~-%", s[i]) && s[i])
			i++;
		else
			break;
	}
	return i;
}

/* <tool_call> followed by an object with a name, not by another tag. */
static bool is_hermes(const char *s, size_t len)
{
	static const char tag[] = "<tool_call>";
	const char *end = s + len;

	while ((s = find(s, (size_t)(end - s), tag))) {
		size_t n;
		s += sizeof tag - 1;
		n = skip_glue(s, (size_t)(end - s));
		if (!memchr(s, '{', n))
			continue;
		s += n;
		if (s < end && *s == '\\') /* \"name\" */
			s++;
		if (s < end && *s == '"')
			s++;
		if (end - s > 4 && !memcmp(s, "name", 4) && (s[4] == '"' || s[4] == '\\'))
			return true;
	}
	return false;
}

/* An object with name and parameters, and Llama 3's headers. */
static bool is_llama3(const char *s, size_t len)
{
	return find(s, len, "<|start_header_id|>") && find(s, len, "{\"name\": ") &&
	       find(s, len, "\"parameters\": ") && !find(s, len, "<function=");
}

static bool is_python(const char *s, size_t len)
{
	return find(s, len, "<|python_start|>") || find(s, len, "[func_name1(");
}

/* V3 writes a word before the name, and a fence. */
static bool is_deepseek31(const char *s, size_t len)
{
	return find(s, len, "<｜tool▁calls▁begin｜>") && !find(s, len, "```");
}

/* ---- layouts --------------------------------------------------------------------------------- */

static const struct ig_xml_layout qwen_xml = {
	.call = "<function=",
	.name_end = ">",
	.key = "<parameter=",
	.key_end = { ">" },
	.value_end = "</parameter>",
	.call_end = { "</function>", "</tool_call>" },
	.trims = true,
};
static const struct ig_xml_layout glm_xml = {
	.key = "<arg_key>",
	.key_end = { "</arg_key>" },
	.value = "<arg_value>",
	.value_end = "</arg_value>",
	.call_end = { "</tool_call>" },
};
static const struct ig_xml_layout minimax_xml = {
	.list_end = "</minimax:tool_call>",
	.call = "<invoke name=\"",
	.name_end = "\">",
	.key = "<parameter name=\"",
	.key_end = { "\">" },
	.value_end = "</parameter>",
	.call_end = { "</invoke>" },
};
#define DSML_LAYOUT(list)                                                                          \
	{ .list_end = "</｜DSML｜" list ">",                                                       \
	  .call = "<｜DSML｜invoke name=\"",                                                       \
	  .name_end = "\">",                                                                       \
	  .key = "<｜DSML｜parameter name=\"",                                                     \
	  .key_end = { "\" string=\"true\">", "\" string=\"false\">", "\">" },                     \
	  .value_end = "</｜DSML｜parameter>",                                                     \
	  .call_end = { "</｜DSML｜invoke>" } }
static const struct ig_xml_layout dsml_xml = DSML_LAYOUT("function_calls");
static const struct ig_xml_layout dsml4_xml = DSML_LAYOUT("tool_calls");

static const struct ig_marked_layout kimi_marked = {
	"<|tool_call_begin|>",
	"<|tool_call_argument_begin|>",
	"<|tool_call_end|>",
	"<|tool_calls_section_end|>",
};
static const struct ig_marked_layout deepseek_marked = {
	"<｜tool▁call▁begin｜>",
	"<｜tool▁sep｜>",
	"<｜tool▁call▁end｜>",
	"<｜tool▁calls▁end｜>",
};

/* ---- how grammars write arguments -------------------------------------------------------------- */

static const struct ig_grammar_members qwen_members = {
	.before = "<parameter=",
	.raw = ">\n",
	.json = ">\n",
	.after = "\n</parameter>\n",
	.stop = "</parameter>",
};
static const struct ig_grammar_members glm_members = {
	.before = "<arg_key>",
	.raw = "</arg_key>\n<arg_value>",
	.json = "</arg_key>\n<arg_value>",
	.after = "</arg_value>\n",
	.stop = "</arg_value>",
};
static const struct ig_grammar_members glm_compact_members = {
	.before = "<arg_key>",
	.raw = "</arg_key><arg_value>",
	.json = "</arg_key><arg_value>",
	.after = "</arg_value>",
	.stop = "</arg_value>",
};
static const struct ig_grammar_members minimax_members = {
	.before = "<parameter name=\"",
	.raw = "\">",
	.json = "\">",
	.after = "</parameter>\n",
	.stop = "</parameter>",
};
static const struct ig_grammar_members dsml_members = {
	.before = "<｜DSML｜parameter name=\"",
	.raw = "\" string=\"true\">",
	.json = "\" string=\"false\">",
	.after = "</｜DSML｜parameter>\n",
	.stop = "</｜DSML｜parameter>",
};
static const struct ig_grammar_members python_members = {
	.before = "",
	.json = "=",
	.after = "",
	.between = ", ",
};

/* ---- the formats ----------------------------------------------------------------------------- */

#define DSML_ENTRY(list)                                                                           \
	.begins = { "<｜DSML｜" list ">" }, .open = "<｜DSML｜" list ">\n",                        \
	.head = "<｜DSML｜invoke name=\"", .neck = "\">\n", .tail = "</｜DSML｜invoke>\n",         \
	.close = "</｜DSML｜" list ">", .members = &dsml_members, .opened = ig_xml_open

const struct ig_tool_format ig_tool_formats[IG_N_TOOL_CALLS] = {
	[IG_TOOL_CALLS_NONE] = { .name = "none" },
	[IG_TOOL_CALLS_HERMES] = { .name = "hermes",
				   .is_shown = is_hermes,
				   .begins = { "<tool_call>" },
				   .closing = "</tool_call>",
				   .opened = ig_json_open,
				   .between = "\n",
				   .head = "<tool_call>\n",
				   .key = "arguments",
				   .tail = "}\n</tool_call>" },
	[IG_TOOL_CALLS_QWEN] = { .name = "qwen3-coder",
				 .needs = { "<function=", "<parameter=", "<tool_call>" },
				 .begins = { "<tool_call>", "<function=" },
				 .closing = "</tool_call>",
				 .xml = &qwen_xml,
				 .opened = ig_xml_open,
				 .between = "\n",
				 .head = "<tool_call>\n<function=",
				 .neck = ">\n",
				 .members = &qwen_members,
				 .tail = "</function>\n</tool_call>" },
	[IG_TOOL_CALLS_HARMONY] = { .name = "harmony",
				    .needs = { "<|channel|>", "<|message|>", "functions" },
				    .shown = { "<|channel|>", "<|message|>", "<|start|>", "<|end|>",
					       "<|constrain|>", "<|call|>", "<|return|>" },
				    .head = "<|channel|>commentary to=functions.",
				    .neck = " <|constrain|>json<|message|>",
				    .tail = "",
				    .free = " to=functions.",
				    .free_head = " to=functions.",
				    .single = true },
	[IG_TOOL_CALLS_GLM] = { .name = "glm",
				.needs = { "<arg_key>", "<arg_value>", "<tool_call>" },
				.begins = { "<tool_call>" },
				.shown = { "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
					   "</tool_call>" },
				.xml = &glm_xml,
				.opened = ig_xml_open,
				.between = "\n",
				.head = "<tool_call>",
				.neck = "\n",
				.members = &glm_members,
				.tail = "</tool_call>" },
	[IG_TOOL_CALLS_KIMI] = { .name = "kimi",
				 .needs = { "<|tool_call_argument_begin|>" },
				 .begins = { "<|tool_calls_section_begin|>",
					     "<|tool_call_begin|>" },
				 .shown = { "<|tool_call_argument_begin|>", "<|tool_call_end|>",
					    "<|tool_calls_section_end|>" },
				 .marked = &kimi_marked,
				 .opened = ig_marked_open,
				 .open = "<|tool_calls_section_begin|>",
				 .head = "<|tool_call_begin|>functions.",
				 .numbered = true,
				 .neck = "<|tool_call_argument_begin|>",
				 .tail = "<|tool_call_end|>",
				 .close = "<|tool_calls_section_end|>" },
	[IG_TOOL_CALLS_DEEPSEEK31] = { .name = "deepseek-v3.1",
				       .is_shown = is_deepseek31,
				       .begins = { "<｜tool▁calls▁begin｜>",
						   "<｜tool▁call▁begin｜>" },
				       .shown = { "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
						  "<｜tool▁calls▁end｜>" },
				       .marked = &deepseek_marked,
				       .opened = ig_marked_open,
				       .open = "<｜tool▁calls▁begin｜>",
				       .head = "<｜tool▁call▁begin｜>",
				       .neck = "<｜tool▁sep｜>",
				       .tail = "<｜tool▁call▁end｜>",
				       .close = "<｜tool▁calls▁end｜>" },
	[IG_TOOL_CALLS_DEEPSEEK] = { .name = "deepseek",
				     .needs = { "<｜tool▁calls▁begin｜>" },
				     .begins = { "<｜tool▁calls▁begin｜>",
						 "<｜tool▁call▁begin｜>" },
				     .shown = { "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
						"<｜tool▁calls▁end｜>" },
				     .marked = &deepseek_marked,
				     .opened = ig_marked_open,
				     .between = "\n",
				     .open = "<｜tool▁calls▁begin｜>",
				     .head = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
				     .neck = "\n```json\n",
				     .tail = "\n```<｜tool▁call▁end｜>",
				     .close = "<｜tool▁calls▁end｜>" },
	[IG_TOOL_CALLS_DSML] = { .name = "deepseek-v3.2",
				 .needs = { "｜DSML｜", "function_calls>" },
				 .xml = &dsml_xml,
				 DSML_ENTRY("function_calls") },
	[IG_TOOL_CALLS_DSML4] = { .name = "deepseek-v4",
				  .needs = { "｜DSML｜", "tool_calls>" },
				  .xml = &dsml4_xml,
				  DSML_ENTRY("tool_calls") },
	[IG_TOOL_CALLS_MINIMAX] = { .name = "minimax",
				    .needs = { "<minimax:tool_call>" },
				    .begins = { "<minimax:tool_call>" },
				    .shown = { "</minimax:tool_call>" },
				    .xml = &minimax_xml,
				    .opened = ig_xml_open,
				    .open = "<minimax:tool_call>\n",
				    .head = "<invoke name=\"",
				    .neck = "\">\n",
				    .members = &minimax_members,
				    .tail = "</invoke>\n",
				    .close = "</minimax:tool_call>" },
	[IG_TOOL_CALLS_GEMMA] = { .name = "gemma",
				  .needs = { "<|tool_call>call:" },
				  .begins = { "<|tool_call>" },
				  .shown = { "<tool_call|>", "<|\"|>" },
				  .closing = "<tool_call|>",
				  .opened = ig_gemma_open,
				  .head = "<|tool_call>call:",
				  .neck = "",
				  .tail = "<tool_call|>" },
	[IG_TOOL_CALLS_GRANITE] = { .name = "granite",
				    .needs = { "<|tool_call|>" },
				    .begins = { "<|tool_call|>" },
				    .opened = ig_json_open,
				    .open = "<|tool_call|>[",
				    .between = ", ",
				    .head = "",
				    .key = "arguments",
				    .tail = "}",
				    .close = "]" },
	[IG_TOOL_CALLS_LFM2] = { .name = "lfm2",
				 .needs = { "<|tool_call_start|>" },
				 .begins = { "<|tool_call_start|>" },
				 .shown = { "<|tool_call_end|>" },
				 .closing = "<|tool_call_end|>",
				 .opened = ig_python_open,
				 .open = "<|tool_call_start|>[",
				 .between = ", ",
				 .head = "",
				 .neck = "(",
				 .members = &python_members,
				 .tail = ")",
				 .close = "]<|tool_call_end|>" },
	[IG_TOOL_CALLS_PYTHON] = { .name = "python",
				   .is_shown = is_python,
				   .begins = { "<|python_start|>" },
				   .shown = { "<|python_end|>" },
				   .closing = "<|python_end|>",
				   .opened = ig_python_open,
				   .open_bare = ig_python_open_bare,
				   .open = "[",
				   .between = ", ",
				   .head = "",
				   .neck = "(",
				   .members = &python_members,
				   .tail = ")",
				   .close = "]",
				   .other = "[ \\t\\r\\n]*(?:[^ \\t\\r\\n\\[](?:.|\\n)*)?" },
	[IG_TOOL_CALLS_MISTRAL] = { .name = "mistral",
				    .needs = { "[TOOL_CALLS]" },
				    .begins = { "[TOOL_CALLS]" },
				    .shown = { "[ARGS]", "[CALL_ID]" },
				    .opened = ig_json_open,
				    .open = "[TOOL_CALLS][",
				    .between = ", ",
				    .head = "",
				    .key = "arguments",
				    .tail = "}",
				    .close = "]" },
	[IG_TOOL_CALLS_MISTRAL_ARGS] = { .name = "mistral-args",
					 .needs = { "[TOOL_CALLS]", "[ARGS]" },
					 .begins = { "[TOOL_CALLS]" },
					 .shown = { "[ARGS]", "[CALL_ID]" },
					 .opened = ig_json_open,
					 .head = "[TOOL_CALLS]",
					 .neck = "[ARGS]",
					 .tail = "" },
	[IG_TOOL_CALLS_LLAMA3] = { .name = "llama3",
				   .is_shown = is_llama3,
				   .begins = { "<|python_tag|>" },
				   .opened = ig_json_open,
				   .open_bare = ig_json_open_bare,
				   .between = "; ",
				   .head = "",
				   .key = "parameters",
				   .tail = "}",
				   .other = "[ \\t\\r\\n]*(?:[^ \\t\\r\\n{](?:.|\\n)*)?" },
};

/* Formats whose texts contain those of a later one come first. */
static const enum ig_tool_call_format order[] = {
	IG_TOOL_CALLS_MISTRAL_ARGS, IG_TOOL_CALLS_MISTRAL, IG_TOOL_CALLS_HARMONY,
	IG_TOOL_CALLS_DSML,	    IG_TOOL_CALLS_DSML4,   IG_TOOL_CALLS_DEEPSEEK31,
	IG_TOOL_CALLS_DEEPSEEK,	    IG_TOOL_CALLS_KIMI,	   IG_TOOL_CALLS_MINIMAX,
	IG_TOOL_CALLS_GEMMA,	    IG_TOOL_CALLS_LFM2,	   IG_TOOL_CALLS_GRANITE,
	IG_TOOL_CALLS_GLM,	    IG_TOOL_CALLS_QWEN,	   IG_TOOL_CALLS_HERMES,
	IG_TOOL_CALLS_LLAMA3,	    IG_TOOL_CALLS_PYTHON,
};

enum ig_tool_call_format ig_tool_format_find(const char *s, size_t len)
{
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
		const struct ig_tool_format *f = &ig_tool_formats[order[i]];
		bool shown = f->is_shown ? f->is_shown(s, len) : true;
		for (size_t k = 0; k < 3 && f->needs[k]; k++)
			shown = shown && find(s, len, f->needs[k]);
		if (shown)
			return order[i];
	}
	return IG_TOOL_CALLS_NONE;
}

struct ig_tool_format ig_tool_format_of(const struct ig_completion_style *s)
{
	struct ig_tool_format f = ig_tool_formats[s->calls];

	if (s->calls == IG_TOOL_CALLS_GLM && s->compact) {
		f.neck = "";
		f.members = &glm_compact_members;
	}
	return f;
}

const char *ig_tool_format_name(enum ig_tool_call_format f) { return ig_tool_formats[f].name; }
