/* test_request.c: each parameter at a value that is taken and at one that is refused. */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/ollama/ollama_private.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/tokens/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row {
	const char *json;		 /* what stands besides the required members */
	const char *param, *code, *text; /* NULL code: accepted */
};

#define UNSUPPORTED "unsupported_parameter"
#define ONLY(name, what) "Unsupported parameter: '" name "' is accepted only as " what "."

#define TOOL(name)                                                                                 \
	"{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":"              \
	"\"d\",\"parameters\":{\"type\":\"object\"},\"strict\":false}}"

static const struct row chat_rows[] = {
	{ "\"x\":null" }, /* null is absent, whatever the name */
	{ "\"model\":\"m\"" },
	{ "\"model\":3", "model", "invalid_type", "expected a string, got an integer" },
	{ "\"temperature\":0" },
	{ "\"temperature\":2.0" },
	{ "\"temperature\":2.1", "temperature", "invalid_value", "at most 2, got 2.1" },
	{ "\"temperature\":-0.1", "temperature", "invalid_value", "at least 0" },
	{ "\"temperature\":\"hot\"", "temperature", "invalid_type",
	  "expected a number, got a string" },
	{ "\"temperature\":true", "temperature", "invalid_type", "got a boolean" },
	{ "\"top_p\":1" },
	{ "\"top_p\":0", "top_p", "invalid_value", "above 0" },
	{ "\"top_p\":1.5", "top_p", "invalid_value", "at most 1" },
	{ "\"top_k\":40" },
	{ "\"top_k\":-1", "top_k", "invalid_value", "from 0 to" },
	{ "\"top_k\":1.5", "top_k", "invalid_type", "expected an integer, got a number" },
	{ "\"min_p\":0.1" },
	{ "\"min_p\":1.01", "min_p", "invalid_value", "at most 1" },
	{ "\"frequency_penalty\":-2" },
	{ "\"frequency_penalty\":2.5", "frequency_penalty", "invalid_value", "at most 2" },
	{ "\"presence_penalty\":2" },
	{ "\"presence_penalty\":\"x\"", "presence_penalty", "invalid_type", "expected a number" },
	{ "\"repetition_penalty\":1.3" },
	{ "\"repetition_penalty\":0", "repetition_penalty", "invalid_value", "above 0" },
	{ "\"logit_bias\":{}" },
	{ "\"logit_bias\":{\"0\":-100,\"17\":1.5}" },
	{ "\"logit_bias\":{\"17\":101}", "logit_bias.17", "invalid_value", "at most 100" },
	{ "\"logit_bias\":{\"17\":\"a\"}", "logit_bias.17", "invalid_type", "expected a number" },
	{ "\"logit_bias\":{\"017\":1}", "logit_bias", "invalid_value", "token ids" },
	{ "\"logit_bias\":{\"-1\":1}", "logit_bias", "invalid_value", "token ids" },
	{ "\"logit_bias\":{\"\":1}", "logit_bias", "invalid_value", "token ids" },
	{ "\"logit_bias\":[1]", "logit_bias", "invalid_type", "expected an object" },
	{ "\"seed\":-7" },
	{ "\"seed\":1.0", "seed", "invalid_type", "expected an integer" },
	{ "\"seed\":99999999999999999999", "", "invalid_json", "too big integer" },
	{ "\"max_tokens\":1" },
	{ "\"max_tokens\":0", "max_tokens", "invalid_value", "from 1 to" },
	{ "\"max_tokens\":4294967296", "max_tokens", "invalid_value", "got 4294967296" },
	{ "\"max_completion_tokens\":5" },
	{ "\"max_tokens\":5,\"max_completion_tokens\":5" },
	{ "\"max_tokens\":5,\"max_completion_tokens\":6", "max_completion_tokens", "invalid_value",
	  "differ" },
	{ "\"stop\":\"x\"" },
	{ "\"stop\":[]" },
	{ "\"stop\":[\"a\",\"b\",\"c\",\"d\"]" },
	{ "\"stop\":\"\"", "stop", "invalid_value", "must not be empty" },
	{ "\"stop\":[\"a\",\"\"]", "stop[1]", "invalid_value", "must not be empty" },
	{ "\"stop\":[1]", "stop[0]", "invalid_type", "expected a string" },
	{ "\"stop\":7", "stop", "invalid_type", "a string or a list of strings" },
	{ "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\","
	  "\"14\",\"15\",\"16\",\"17\"]",
	  "stop", "invalid_value", "at most 16" },
	{ "\"stream\":true" },
	{ "\"stream\":1", "stream", "invalid_type", "expected a boolean" },
	{ "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}" },
	{ "\"stream_options\":{\"include_usage\":true}", "stream_options", "invalid_value",
	  "only allowed when 'stream' is true" },
	{ "\"stream\":true,\"stream_options\":{\"x\":1}", "stream_options.x", UNSUPPORTED, "" },
	{ "\"metadata\":{\"a\":\"b\"}" },
	{ "\"metadata\":{\"a\":1}", "metadata.a", "invalid_type", "expected a string" },
	{ "\"metadata\":[]", "metadata", "invalid_type", "an object of strings" },
	{ "\"store\":false" },
	{ "\"store\":true", "store", UNSUPPORTED, ONLY("store", "false") },
	{ "\"user\":\"u\"" },
	{ "\"user\":1", "user", "invalid_type", "expected a string" },
	{ "\"service_tier\":\"auto\"" },
	{ "\"service_tier\":\"flex\"", "service_tier", UNSUPPORTED,
	  ONLY("service_tier", "\"auto\" or \"default\"") },
	{ "\"n\":1" },
	{ "\"n\":128" },
	{ "\"n\":0", "n", "invalid_value", "from 1 to 128" },
	{ "\"n\":129", "n", "invalid_value", "from 1 to 128" },
	{ "\"logprobs\":false" },
	{ "\"logprobs\":true,\"top_logprobs\":20" },
	{ "\"logprobs\":5", "logprobs", "invalid_type", "expected a boolean" },
	{ "\"top_logprobs\":0" },
	{ "\"top_logprobs\":3", "top_logprobs", "invalid_value", "when 'logprobs' is true" },
	{ "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "invalid_value",
	  "from 0 to 20" },
	{ "\"ignore_eos\":true" },
	{ "\"ignore_eos\":true,\"response_format\":{\"type\":\"json_object\"}", "ignore_eos",
	  "invalid_value", "not with a response format" },
	{ "\"chat_template_kwargs\":{\"enable_thinking\":false}" },
	{ "\"chat_template_kwargs\":[]", "chat_template_kwargs", "invalid_type", "an object" },
	{ "\"frequency_penalty\":0.0" },
	{ "\"presence_penalty\":0" },
	{ "\"response_format\":{\"type\":\"text\"}" },
	{ "\"response_format\":{\"type\":\"json_object\"}" },
	{ "\"modalities\":[\"text\"]" },
	{ "\"modalities\":[\"text\",\"audio\"]", "modalities", UNSUPPORTED, "" },
	{ "\"tools\":[]" },
	{ "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":"
	  "{\"type\":\"object\"},\"strict\":true}}" },
	{ "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}",
	  "response_format.json_schema.schema", "missing_required_parameter", "" },
	{ "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"x\":1}}",
	  "response_format.json_schema.x", UNSUPPORTED, "" },
	{ "\"response_format\":{\"type\":\"regex\",\"regex\":\"a+\"}" },
	{ "\"response_format\":{\"type\":\"regex\"}", "response_format.regex",
	  "missing_required_parameter", "" },
	{ "\"response_format\":{\"type\":\"xml\"}", "response_format.type", "invalid_value",
	  "\"json_schema\"" },
	{ "\"tools\":[" TOOL("f") "," TOOL(
		"g") "],\"tool_choice\":{\"type\":\"function\",\"function\":"
		     "{\"name\":\"g\"}}" },
	{ "\"tools\":[" TOOL("f") "],\"tool_choice\":\"required\",\"parallel_tool_calls\":false" },
	{ "\"tools\":[" TOOL("f") "," TOOL("f") "]", "tools[1]", "invalid_value",
	  "another tool has the same name" },
	{ "\"tools\":[" TOOL("f g") "]", "tools[0].function.name", "invalid_value", "A-Z" },
	{ "\"tools\":[{\"type\":\"function\"}]", "tools[0].function", "missing_required_parameter",
	  "" },
	{ "\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type", UNSUPPORTED, "" },
	{ "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
	  "tools[0].function.parameters", "invalid_type", "an object" },
	{ "\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
				  "\"h\"}}",
	  "tool_choice", "invalid_value", "there is no tool 'h'" },
	{ "\"tools\":[" TOOL("f") "],\"tool_choice\":\"required\",\"response_format\":{\"type\":"
				  "\"json_object\"}",
	  "tool_choice", "invalid_value", "so is a response format" },
	{ "\"tools\":[{}]", "tools[0].type", "missing_required_parameter", "" },
	{ "\"tool_choice\":\"none\"" },
	{ "\"tool_choice\":\"required\"", "tool_choice", "invalid_value", "there are no tools" },
	{ "\"parallel_tool_calls\":true" },
	{ "\"functions\":[{}]", "functions", UNSUPPORTED, "" },
	{ "\"reasoning_effort\":\"low\"" },
	{ "\"reasoning_effort\":7", "reasoning_effort", "invalid_type", "a string" },
	{ "\"zap\":1", "zap", UNSUPPORTED,
	  "Unsupported parameter: 'zap' is not supported by this server." },
	{ "\"temperature\":1,\"temperature\":1", "", "invalid_json", "duplicate" },
};

#define CALL                                                                                       \
	"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":"         \
	"\"function\",\"function\":"

static const struct row message_rows[] = {
	{ "[{\"role\":\"user\",\"content\":\"a\"}]" },
	{ "[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]" },
	{ "[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"tool_calls\":[],"
	  "\"annotations\":[],\"audio\":null}]" },
	{ "[]", "messages", "invalid_value", "at least one message" },
	{ "{}", "messages", "invalid_type", "expected a list, got an object" },
	{ "[1]", "messages[0]", "invalid_type", "expected an object" },
	{ "[{\"content\":\"a\"}]", "messages[0].role", "missing_required_parameter", "" },
	{ "[{\"role\":\"function\",\"content\":\"a\"}]", "messages[0].role", "invalid_value",
	  "expected system, developer, user" },
	{ "[{\"role\":\"tool\",\"content\":\"a\"}]", "messages[0].tool_call_id",
	  "missing_required_parameter", "" },
	{ "[{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":\"x\"}]",
	  "messages[0].tool_call_id", "invalid_value", "no call before it" },
	{ "[" CALL
	  "{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
	  "\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]" },
	{ "[" CALL "{\"name\":\"f\",\"arguments\":1}}]}]",
	  "messages[0].tool_calls[0].function.arguments", "invalid_type", "a string of JSON" },
	{ "[" CALL "{\"arguments\":\"{}\"}}]}]", "messages[0].tool_calls[0].function.name",
	  "missing_required_parameter", "" },
	{ "[{\"role\":\"user\"}]", "messages[0].content", "missing_required_parameter", "" },
	{ "[{\"role\":\"assistant\",\"content\":null}]", "messages[0].content", "invalid_type",
	  "got null" },
	{ "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
	  "\"image_url\",\"image_url\":{}}]}]",
	  "messages[1].content[0].type", UNSUPPORTED, "only text" },
	{ "[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]", "messages[0].content[0].type",
	  "missing_required_parameter", "" },
	{ "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0].text",
	  "missing_required_parameter", "" },
	{ "[{\"role\":\"user\",\"content\":\"a\",\"name\":\"bob\"}]" },
	{ "[{\"role\":\"user\",\"content\":\"a\",\"name\":1}]", "messages[0].name", "invalid_type",
	  "" },
	{ "[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[]}]", "messages[0].tool_calls",
	  UNSUPPORTED, "" },
	{ "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]",
	  "messages[0].tool_calls[0].function.name", "missing_required_parameter", "" },
};

static const struct row create_rows[] = {
	{ "\"model\":\"m\",\"instructions\":\"i\",\"temperature\":1,\"top_p\":0.5,\"top_k\":3,\"seed\":4,"
	  "\"max_output_tokens\":5,\"stop\":[\"s\"],\"stream\":true,\"metadata\":{},\"store\":false,"
	  "\"previous_response_id\":null,\"stream_id\":\"a.B-3_\",\"client_metadata\":{\"a\":\"b\"},"
	  "\"prompt_cache_key\":\"k\",\"service_tier\":\"auto\",\"include\":[],"
	  "\"parallel_tool_calls\":false,\"tool_choice\":\"auto\",\"tools\":[],"
	  "\"text\":{\"format\":{\"type\":\"text\"}},\"reasoning\":null,\"truncation\":\"disabled\","
	  "\"user\":\"u\",\"safety_identifier\":\"s\",\"background\":false" },
	{ "\"previous_response_id\":\"resp_1\",\"generate\":false,\"service_tier\":\"priority\","
	  "\"include\":[\"reasoning.encrypted_content\",\"message.output_text.logprobs\"],"
	  "\"top_logprobs\":20,\"text\":{\"verbosity\":\"low\",\"format\":null},"
	  "\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"},\"max_tool_calls\":3,"
	  "\"stream_options\":{\"include_obfuscation\":false},\"ignore_eos\":true,"
	  "\"prompt_cache_retention\":\"in_memory\",\"chat_template_kwargs\":{\"a\":1}" },
	{ "\"previous_response_id\":7", "previous_response_id", "invalid_type", "a string" },
	{ "\"generate\":0", "generate", "invalid_type", "a boolean" },
	{ "\"top_logprobs\":1", "top_logprobs", "invalid_value", "message.output_text.logprobs" },
	{ "\"top_logprobs\":21", "top_logprobs", "invalid_value", "0 to 20" },
	{ "\"max_tool_calls\":0", "max_tool_calls", "invalid_value", "from 1" },
	{ "\"prompt_cache_retention\":\"24h\"", "prompt_cache_retention", UNSUPPORTED, "" },
	{ "\"service_tier\":\"gold\"", "service_tier", UNSUPPORTED, "" },
	{ "\"prompt\":{\"id\":\"p\"}", "prompt", UNSUPPORTED, "" },
	{ "\"stream\":false", "stream", UNSUPPORTED, "" },
	{ "\"include\":[\"reasoning.encrypted_content\",\"file_search_call.results\"]",
	  "include[1]", UNSUPPORTED, "" },
	{ "\"include\":\"x\"", "include", "invalid_type", "a list" },
	{ "\"reasoning\":{\"effort\":\"huge\",\"summary\":\"none\"}" },
	{ "\"reasoning\":{\"effort\":7}", "reasoning.effort", "invalid_type", "a string" },
	{ "\"reasoning\":{\"depth\":\"low\"}", "reasoning.depth", UNSUPPORTED, "" },
	{ "\"reasoning\":\"low\"", "reasoning", "invalid_type", "an object" },
	{ "\"truncation\":\"auto\"", "truncation", UNSUPPORTED, "" },
	{ "\"text\":{\"format\":{\"type\":\"json_schema\"}}", "text.format.schema",
	  "missing_required_parameter", "" },
	{ "\"text\":{\"verbosity\":\"shrill\"}", "text.verbosity", "invalid_value", "" },
	{ "\"text\":{\"colour\":\"red\"}", "text.colour", UNSUPPORTED, "" },
	{ "\"client_metadata\":{\"a\":1}", "client_metadata", "invalid_type", "" },
	{ "\"stream_id\":\"\"", "stream_id", "invalid_stream_id", "" },
	{ "\"stream_id\":\"a b\"", "stream_id", "invalid_stream_id", "" },
	{ "\"stream_id\":5", "stream_id", "invalid_stream_id", "" },
	{ "\"max_tokens\":5", "max_tokens", UNSUPPORTED, "" },
	{ "\"instructions\":[]", "instructions", "invalid_type", "expected a string" },
	{ "\"conversation\":\"c\"", "conversation", UNSUPPORTED, "" },
};

static const struct row input_rows[] = {
	{ "\"hello\"" },
	{ "[{\"role\":\"user\",\"content\":\"a\"}]" },
	{ "[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},"
	  "{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\","
	  "\"content\":[{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[],\"logprobs\":[]}]}]" },
	{ "[]", "input", "invalid_value", "at least one item" },
	{ "7", "input", "invalid_type", "a string or a list of items" },
	{ "[{\"type\":\"item_reference\",\"id\":\"msg_1\"}]", "input[0].type", UNSUPPORTED,
	  "the type of an item itself" },
	{ "[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]",
	  "input[0].content[0].type", UNSUPPORTED, "only text" },
	{ "[{\"role\":\"assistant\",\"content\":[{\"type\":\"input_text\",\"text\":\"\"}]}]",
	  "input[0].content[0].type", UNSUPPORTED, "only text" },
	{ "[{\"role\":\"user\",\"content\":\"a\",\"phase\":7}]", "input[0].phase", "invalid_type",
	  "" },
	{ "[{\"role\":\"user\",\"content\":\"a\",\"hue\":\"x\"}]", "input[0].hue", UNSUPPORTED,
	  "" },
};

/* What is not known is left out and named, but for what changes the meaning of the response. */
static const struct {
	const struct ig_request_format *format;
	const char *json, *ignored; /* NULL: refused */
} unknown_rows[] = {
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define PART(type) "{\"type\":\"" type "\",\"text\":\"" type "\"}"
	{ &ig_chat_request, "{" USER "}", "" },
	{ &ig_chat_request, "{" USER ",\"zap\":1,\"zip\":{},\"nil\":null}", "zap, zip" },
	{ &ig_chat_request, "{" USER ",\"a,b c\\u00e9\\r\":1}", "a?b?c???" },
	{ &ig_chat_request, "{" USER ",\"store\":true,\"service_tier\":\"flex\"}",
	  "store, service_tier" },
	{ &ig_chat_request, "{" USER ",\"store\":\"yes\"}", NULL },
	{ &ig_chat_request, "{" USER ",\"tools\":[{\"type\":\"web_search\"}]}", NULL },
	{ &ig_chat_request, "{" USER ",\"functions\":[{}]}", NULL },
	{ &ig_chat_request, "{" USER ",\"response_format\":{\"type\":\"xml\"}}", NULL },
	{ &ig_chat_request, "{\"messages\":[{\"role\":\"wizard\",\"content\":\"a\"}]}", NULL },
	{ &ig_chat_request,
	  "{\"messages\":[{\"role\":\"user\",\"content\":[" PART("text") "," PART(
		  "image_url") "," PART("image_url") "," PART("audio") "]}]}",
	  "messages[0].content[1].type=image_url, messages[0].content[3].type=audio" },
	{ &ig_create_request,
	  "{\"input\":[{\"role\":\"user\",\"content\":[" PART("input_text") "," PART(
		  "input_image") "]},{\"type\":\"mcp_list_tools\"}]}",
	  "input[0].content[1].type=input_image, input[1].type=mcp_list_tools" },
	{ &ig_create_request, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", NULL },
	{ &ig_create_request,
	  "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"hue\":1},"
	  "{\"type\":\"web_search\"},{\"type\":\"mcp\"}],\"client_metadata\":{}}",
	  "tools[0].hue, tools[1].type=web_search, tools[2].type=mcp" },
	{ &ig_create_request,
	  "{\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"}],\"tool_choice\":\"required\"}", NULL },
	{ &ig_create_request, "{\"input\":\"a\",\"truncation\":\"auto\",\"stream_id\":\"s\"}",
	  "truncation, stream_id" },
	{ &ig_create_request, "{\"input\":\"a\",\"truncation\":1}", NULL },
	{ &ig_create_request, "{\"input\":\"a\",\"include\":[\"file_search_call.results\"]}",
	  "include[0]=file_search_call.results" },
	{ &ig_create_request, "{\"input\":\"a\",\"conversation\":\"c\"}", NULL },
	{ &ig_create_request, "{\"input\":\"a\",\"reasoning\":{\"budget\":3}}",
	  "reasoning.budget" },
};

static void test_unknown(void **state)
{
	struct ig_strbuf many = { 0 };
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof unknown_rows / sizeof unknown_rows[0]; i++) {
		const char *json = unknown_rows[i].json, *want = unknown_rows[i].ignored;
		int rc = ig_request_read(unknown_rows[i].format, json, strlen(json), false, &r, &e);
		if (rc ? want || e.status != 400 : !want || strcmp(r.ignored, want))
			fail_msg("%s: %d '%s' '%s'", json, rc, r.ignored, e.message);
		ig_request_finish(&r);
	}
	/* a list that is too long says so, once */
	ig_strbuf_puts(&many, "{" USER);
	for (int i = 0; i < 100; i++)
		ig_strbuf_printf(&many, ",\"name%d\":1", i);
	ig_strbuf_puts(&many, "}");
	assert_int_equal(ig_request_read(&ig_chat_request, many.data, many.len, false, &r, &e), 0);
	const char *more = strstr(r.ignored, ", ...");
	assert_true(more && !more[5] && strlen(r.ignored) > sizeof r.ignored / 2);
	ig_request_finish(&r);
	ig_strbuf_finish(&many);
}

/* A member of the i-th message. */
static const char *member(const struct ig_request *r, size_t i, const char *name)
{
	return json_string_value(json_object_get(json_array_get(r->messages, i), name));
}

static void check(const struct ig_request_format *format, const char *json, const struct row *want)
{
	struct ig_request r;
	struct ig_api_error e;
	int rc = ig_request_read(format, json, strlen(json), true, &r, &e);

	if (!want->code) {
		if (rc)
			fail_msg("%s: refused: %s", json, e.message);
	} else {
		if (!rc)
			fail_msg("%s: accepted", json);
		if (!e.code || strcmp(e.code, want->code) || strcmp(e.param, want->param) ||
		    !strstr(e.message, want->text) || e.status != 400 ||
		    strcmp(e.type, "invalid_request_error"))
			fail_msg("%s: %d %s %s '%s'", json, e.status, e.code, e.param, e.message);
	}
	ig_request_finish(&r);
}

#define EACH(rows, format, fmt)                                                                    \
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {                                \
		char json[4096];                                                                   \
		snprintf(json, sizeof json, fmt, rows[i].json);                                    \
		check(format, json, &rows[i]);                                                     \
	}

static void test_chat(void **state)
{
	EACH(chat_rows, &ig_chat_request,
	     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}");
}

static const struct row completion_rows[] = {
	{ "\"prompt\":\"a\"" },
	{ "\"prompt\":[1,2,3]" },
	{ "\"prompt\":[\"a\",\"b\"],\"n\":64" },
	{ "\"prompt\":[[1],[2,3]],\"logprobs\":5,\"max_tokens\":1,\"best_of\":1,\"suffix\":\"\"" },
	{ "\"prompt\":[\"a\",[2,3]],\"echo\":true" },
	{ "\"n\":1", "prompt", "missing_required_parameter", "" },
	{ "\"prompt\":[]", "prompt", "invalid_value", "at least one prompt" },
	{ "\"prompt\":[[]]", "prompt[0]", "invalid_value", "at least one token" },
	{ "\"prompt\":[1,\"a\"]", "prompt[1]", "invalid_type", "expected an integer" },
	{ "\"prompt\":[-1]", "prompt[0]", "invalid_value", "from 0 to" },
	{ "\"prompt\":{}", "prompt", "invalid_type", "a list of tokens" },
	{ "\"prompt\":[{}]", "prompt[0]", "invalid_type", "" },
	{ "\"prompt\":[\"a\",\"b\"],\"n\":65", "n", "invalid_value", "at most 128 choices" },
	{ "\"prompt\":\"a\",\"logprobs\":true", "logprobs", "invalid_type", "" },
	{ "\"prompt\":\"a\",\"logprobs\":1,\"echo\":true", "echo", "invalid_value",
	  "not with logprobs" },
	{ "\"prompt\":\"a\",\"suffix\":\"b\"", "suffix", UNSUPPORTED, "" },
	{ "\"prompt\":\"a\",\"best_of\":2", "best_of", UNSUPPORTED, "" },
	{ "\"prompt\":\"a\",\"messages\":[]", "messages", UNSUPPORTED, "" },
};

static const struct row tokenize_rows[] = {
	{ "\"prompt\":\"a\",\"add_special_tokens\":false,\"return_token_strs\":true" },
	{ "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[" TOOL("f") "]" },
	{ "\"prompt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", "messages",
	  "invalid_value", "not with a prompt" },
	{ "\"prompt\":[1]", "prompt", "invalid_type", "expected a string" },
	{ "\"model\":\"m\"", "prompt", "missing_required_parameter", "" },
};

static const struct row detokenize_rows[] = {
	{ "\"tokens\":[1,2]" },
	{ "\"tokens\":[]" },
	{ "\"tokens\":[[1]]", "tokens", "invalid_type", "a list of tokens" },
	{ "\"tokens\":\"a\"", "tokens", "invalid_type", "a list of tokens" },
	{ "\"prompt\":\"a\"", "prompt", UNSUPPORTED, "" },
};

static void test_prompts(void **state)
{
	EACH(completion_rows, &ig_completion_request, "{%s}");
	EACH(tokenize_rows, &ig_tokenize_request, "{%s}");
	EACH(detokenize_rows, &ig_detokenize_request, "{%s}");
}

static void test_messages(void **state)
{
	EACH(message_rows, &ig_chat_request, "{\"messages\":%s}");
}

static void test_create(void **state)
{
	EACH(create_rows, &ig_ws_request, "{\"type\":\"response.create\",\"input\":\"a\",%s}");
}

static void test_input(void **state)
{
	EACH(input_rows, &ig_ws_request, "{\"type\":\"response.create\",\"input\":%s}");
}

static void test_json(void **state)
{
	static const struct row rows[] = {
		{ "", "", "invalid_json", "line 1" },
		{ "[]", "", "invalid_json", "Expected a JSON object, got a list" },
		{ "{", "", "invalid_json", "not valid JSON" },
		{ "{} {}", "", "invalid_json", "end of file expected" },
		{ "{\"messages\":\"\\ud800\"}", "", "invalid_json", "Unicode" },
		{ "{\"messages\":\"\\u0000\"}", "", "invalid_json", "\\u0000" },
		{ "{\"messages\":\"\xff\"}", "", "invalid_json", "decode byte 0xff" },
		{ "{\"messages\":\"\xed\xa0\x80\"}", "", "invalid_json", "decode byte 0xed" },
		{ "{}", "messages", "missing_required_parameter", "'messages'" },
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		check(&ig_chat_request, rows[i].json, &rows[i]);
	/* a raw NUL inside */
	assert_int_equal(ig_request_read(&ig_chat_request, "{\"a\":\"\0\"}", 9, true, &r, &e), -1);
	assert_string_equal(e.code, "invalid_json");
	ig_request_finish(&r);
	/* depth: 64 is fine for the reader, 65 is not */
	char deep[300];
	for (int n = 64; n <= 65; n++) {
		int k = snprintf(deep, sizeof deep, "{\"x\":");
		memset(deep + k, '[', (size_t)n - 1);
		memset(deep + k + n - 1, ']', (size_t)n - 1);
		snprintf(deep + k + 2 * (n - 1), 2, "}");
		assert_int_equal(
			ig_request_read(&ig_chat_request, deep, strlen(deep), true, &r, &e), -1);
		assert_string_equal(e.code, n == 64 ? UNSUPPORTED : "invalid_json");
		ig_request_finish(&r);
	}
	/* brackets within a string are no depth */
	memset(deep, '[', sizeof deep);
	memcpy(deep, "{\"x\":\"", 6);
	memcpy(deep + 200, "\"}", 3);
	assert_int_equal(ig_request_read(&ig_chat_request, deep, strlen(deep), true, &r, &e), -1);
	assert_string_equal(e.code, UNSUPPORTED);
	ig_request_finish(&r);
	/* more values than anyone sends */
	size_t n = 500000;
	char *many = malloc(n + 1);
	for (size_t i = 0; i < n; i++)
		many[i] = i % 2 ? ',' : '0';
	memcpy(many, "{\"x\":[", 6);
	many[n] = 0;
	assert_int_equal(ig_request_read(&ig_chat_request, many, n, true, &r, &e), -1);
	assert_non_null(strstr(e.message, "200000 values"));
	ig_request_finish(&r);
	free(many);
}

static void test_long_stop(void **state)
{
	static const struct row at_most = { NULL }, too_long = { "", "stop", "invalid_value",
								 "at most 4096 bytes, got 4097" };
	char json[IG_MAX_STOP_BYTES + 80];

	for (size_t n = IG_MAX_STOP_BYTES; n <= IG_MAX_STOP_BYTES + 1; n++) {
		int k = snprintf(
			json, sizeof json,
			"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stop\":\"");
		memset(json + k, 'x', n);
		snprintf(json + k + n, 3, "\"}");
		check(&ig_chat_request, json, n > IG_MAX_STOP_BYTES ? &too_long : &at_most);
	}
}

static void test_values(void **state)
{
	static const char json[] =
		"{\"type\":\"response.create\",\"input\":[{\"role\":\"developer\",\"content\":\"d\"},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
		"{\"type\":\"input_text\",\"text\":\"é\"}]}],\"instructions\":\"be kind\","
		"\"temperature\":0.25,\"top_p\":0.5,\"top_k\":7,\"seed\":-1,\"max_output_tokens\":9,"
		"\"stop\":[\"x\",\"y\"],\"metadata\":{\"k\":\"v\"},\"store\":true,\"model\":\"m\","
		"\"stream_id\":\"lane\",\"tool_choice\":\"none\",\"parallel_tool_calls\":false}";
	struct ig_request r;
	struct ig_api_error e;

	assert_int_equal(ig_request_read(&ig_ws_request, json, strlen(json), true, &r, &e), 0);
	assert_int_equal(r.notice, IG_WS_CREATE);
	assert_int_equal(json_array_size(r.messages), 2);
	assert_string_equal(member(&r, 0, "role"), "system");
	assert_string_equal(member(&r, 0, "content"), "d");
	assert_string_equal(member(&r, 1, "role"), "user");
	assert_string_equal(member(&r, 1, "content"), "aé");
	assert_string_equal(json_string_value(r.instructions), "be kind");
	assert_true(r.sampling.temperature == 0.25 && r.sampling.top_p == 0.5 &&
		    r.sampling.top_k == 7 && r.has_seed && r.sampling.seed == UINT64_MAX &&
		    r.sampling.max_tokens == 9 && r.store && r.tool_choice == IG_TOOLS_NONE &&
		    !r.parallel_tool_calls);
	assert_string_equal(r.sampling.stops[0], "x");
	assert_string_equal(r.sampling.stops[1], "y");
	assert_null(r.sampling.stops[2]);
	assert_string_equal(r.metadata, "{\"k\":\"v\"}");
	assert_string_equal(r.stream_id, "lane");
	assert_string_equal(r.model, "m");
	ig_request_finish(&r);
}

/* U+0000 is text like any other where it goes through, and an error in what becomes a C string. */
static void test_nul(void **state)
{
	static const struct {
		const struct ig_request_format *format;
		const char *json, *messages;
	} rows[] = {
		{ &ig_chat_request,
		  "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"},{\"role\":\"assistant\","
		  "\"content\":[{\"type\":\"text\",\"text\":\"\\u0000c\"}],\"reasoning_content\":\"\\u0000\"},"
		  "{\"role\":\"user\",\"content\":\"d\"}]}",
		  "[{\"role\":\"user\",\"content\":\"a\\u0000b\"},{\"role\":\"assistant\",\"content\":\"\\u0000c\","
		  "\"reasoning_content\":\"\\u0000\"},{\"role\":\"user\",\"content\":\"d\"}]" },
		/* arguments are JSON in a string, or what a model made of it */
		{ &ig_chat_request,
		  "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"i\",\"type\":"
		  "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":\\\"a\\\\u0000b\\\"}\"}},"
		  "{\"id\":\"j\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\u0000x\"}}]}]}",
		  "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\","
		  "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":\"a\\u0000b\"}}},{\"id\":\"j\",\"type\":"
		  "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\u0000x\"}}]}]" },
		{ &ig_ollama_chat_request,
		  "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"\\u0000\",\"tool_calls\":[{\"function\":"
		  "{\"name\":\"f\",\"arguments\":{\"x\":[\"\\u0000\"]}}}]}]}",
		  NULL },
	};
	static const char *const refused[] = {
		"{\"model\":\"m\\u0000\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
		"{\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"a\"}]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop\":\"a\\u0000\"}",
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"a\"}]}]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[" TOOL(
			"f\\u0000") "]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"metadata\":{\"k\":\"\\u0000\"}}",
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *json = rows[i].json;
		if (ig_request_read(rows[i].format, json, strlen(json), true, &r, &e))
			fail_msg("%s: %s", json, e.message);
		char *text = json_dumps(r.messages, JSON_COMPACT);
		if (rows[i].messages)
			assert_string_equal(text, rows[i].messages);
		free(text);
		ig_request_finish(&r);
	}
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		if (!ig_request_read(&ig_chat_request, refused[i], strlen(refused[i]), true, &r,
				     &e))
			fail_msg("accepted: %s", refused[i]);
		assert_string_equal(e.code, "invalid_json");
		assert_non_null(strstr(e.message, "\\u0000 is not allowed"));
		ig_request_finish(&r);
	}
	/* prompts, and instructions */
	static const char prompt[] = "{\"prompt\":[\"a\\u0000b\",\"c\"]}",
			  create[] = "{\"type\":\"response.create\",\"input\":\"\\u0000a\","
				     "\"instructions\":\"b\\u0000\"}";
	assert_int_equal(
		ig_request_read(&ig_completion_request, prompt, strlen(prompt), true, &r, &e), 0);
	assert_int_equal(r.prompts[0].len, 3);
	assert_memory_equal(r.prompts[0].text, "a\0b", 4);
	ig_request_finish(&r);
	assert_int_equal(ig_request_read(&ig_ws_request, create, strlen(create), true, &r, &e), 0);
	assert_int_equal(
		json_string_length(json_object_get(json_array_get(r.messages, 0), "content")), 2);
	assert_int_equal(json_string_length(r.instructions), 2);
	ig_request_finish(&r);
}

static void test_many_messages(void **state)
{
	size_t n = 1000, k = 0, cap = n * 40 + 100;
	char *json = malloc(cap);
	struct ig_request r;
	struct ig_api_error e;

	k += (size_t)snprintf(json + k, cap - k, "{\"messages\":[");
	for (size_t i = 0; i < n; i++)
		k += (size_t)snprintf(json + k, cap - k,
				      "%s{\"role\":\"user\",\"content\":\"%zu\"}", i ? "," : "", i);
	snprintf(json + k, cap - k, "]}");
	assert_int_equal(ig_request_read(&ig_chat_request, json, strlen(json), true, &r, &e), 0);
	assert_int_equal(json_array_size(r.messages), n);
	assert_string_equal(member(&r, 999, "content"), "999");
	ig_request_finish(&r);
	free(json);
}

static void test_other_messages(void **state)
{
	static const struct {
		const char *json;
		int rc;
		enum ig_ws_message kind;
	} rows[] = {
		{ "{\"type\":\"response.cancel\"}", 0, IG_WS_CANCEL },
		{ "{\"type\":\"response.cancel\",\"response_id\":\"r\",\"stream_id\":\"s\"}", 0,
		  IG_WS_CANCEL },
		{ "{\"type\":\"response.steer\",\"input\":[],\"previous_response_id\":\"x\"}", 0,
		  IG_WS_STEER },
		{ "{\"type\":\"response.processed\",\"response_id\":\"x\"}", 0, IG_WS_PROCESSED },
	};
	static const struct row bad[] = {
		{ "{}", "type", "missing_required_parameter", "" },
		{ "{\"type\":1}", "type", "invalid_type", "" },
		{ "{\"type\":\"response.append\"}", "type", "invalid_value",
		  "expected response.create" },
		{ "{\"type\":\"response.cancel\",\"x\":1}", "x", UNSUPPORTED, "" },
		{ "{\"type\":\"response.create\"}", "input", "missing_required_parameter", "" },
	};
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(ig_request_read(&ig_ws_request, rows[i].json, strlen(rows[i].json),
						 true, &r, &e),
				 rows[i].rc);
		assert_int_equal(r.notice, rows[i].kind);
		if (r.notice == IG_WS_STEER)
			assert_string_equal(r.steer,
					    "{\"previous_response_id\":\"x\",\"input\":[]}");
		ig_request_finish(&r);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		check(&ig_ws_request, bad[i].json, &bad[i]);
	/* an error names its lane */
	const char *json =
		"{\"type\":\"response.create\",\"zzz\":1,\"input\":\"a\",\"stream_id\":\"l\"}";
	assert_int_equal(ig_request_read(&ig_ws_request, json, strlen(json), true, &r, &e), -1);
	assert_string_equal(r.stream_id, "l");
	ig_request_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unknown),	      cmocka_unit_test(test_chat),
		cmocka_unit_test(test_messages),      cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_create),	      cmocka_unit_test(test_input),
		cmocka_unit_test(test_json),	      cmocka_unit_test(test_long_stop),
		cmocka_unit_test(test_nul),	      cmocka_unit_test(test_values),
		cmocka_unit_test(test_many_messages), cmocka_unit_test(test_other_messages),
	};
	return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
