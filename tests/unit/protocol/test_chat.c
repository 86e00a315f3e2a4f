/*
 * test_chat.c: exchanges over the fake engine: chat completions whole and as a stream,
 * refusals, and what lies at which path.
 */
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"

/* ---- chat ------------------------------------------------------------------------ */

static void test_chat_whole(void **state)
{
	static const char *const pieces[] = { "Hel", "lo", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	struct ig_exchange *x =
		post(w, CHAT,
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"seed\":5,"
		     "\"stop\":[\"END\"],\"top_k\":4,\"min_p\":0.25,"
		     "\"frequency_penalty\":0.5,\"presence_penalty\":-1,"
		     "\"repetition_penalty\":1.5,\"logit_bias\":{\"3\":-2.5}}",
		     &h);
	assert_int_equal(h.status, 200);
	assert_string_equal(h.content_type, "application/json");
	char *body = body_of(w, x);
	assert_int_equal(h.length, strlen(body));
	match_text(
		"body", body,
		"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion\",\"created\":\"*\","
		"\"model\":\"fake\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
		"\"content\":\"Hello\",\"refusal\":null,\"annotations\":[]},\"logprobs\":null,"
		"\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
		"\"total_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":3},"
		"\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
	free(body);
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_true(s.seed == 5 && s.top_k == 4 && s.temperature == 1 && s.min_p == 0.25f &&
		    s.frequency_penalty == 0.5f && s.presence_penalty == -1.0f &&
		    s.repetition_penalty == 1.5f && s.n_biases == 1 && s.bias.id == 3 &&
		    s.bias.bias == -2.5f);
	assert_string_equal(s.stops[0], "END");
}

#define CHUNK(delta, finish)                                                                       \
	"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion.chunk\","                             \
	"\"created\":\"*\",\"model\":\"fake\",\"choices\":[{\"index\":0,\"delta\":" delta ","      \
	"\"logprobs\":null,\"finish_reason\":" finish "}]"

static void test_chat_stream(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	static const char *const plain[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") "}",
		CHUNK("{\"content\":\"a\"}", "null") "}",
		CHUNK("{}", "\"length\"") "}",
		"data: [DONE]",
		NULL,
	};
	static const char *const usage[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") ",\"usage\":null}",
		CHUNK("{\"content\":\"a\"}", "null") ",\"usage\":null}",
		CHUNK("{}", "\"length\"") ",\"usage\":null}",
		"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion.chunk\",\"created\":\"*\","
		"\"model\":\"fake\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,"
		"\"total_tokens\":8,\"prompt_tokens_details\":{\"cached_tokens\":3},"
		"\"completion_tokens_details\":{\"reasoning_tokens\":0}}}",
		"data: [DONE]",
		NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	struct ig_exchange *x = post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}",
				     &h);
	assert_int_equal(h.status, 200);
	assert_int_equal(h.length, -1);
	assert_string_equal(h.content_type, "text/event-stream; charset=utf-8");
	check_frames(body_of(w, x), plain);
	x = post(w, CHAT,
		 "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true,"
		 "\"stream_options\":{\"include_usage\":true}}",
		 &h);
	check_frames(body_of(w, x), usage);
}

static void test_chat_stream_error(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	static const char *const want[] = {
		CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") "}",
		CHUNK("{\"content\":\"a\"}", "null") "}",
		"{\"error\":{\"message\":\"it broke\",\"type\":\"server_error\",\"param\":null,"
		"\"code\":\"server_error\"}}",
		NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .finish = IG_FINISH_ERROR,
							     .error = "it broke" });
	check_frames(body_of(w, post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}",
				     &h)),
		     want);
	/* whole: a status */
	char *body = body_of(
		w, post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", &h));
	assert_int_equal(h.status, 500);
	match_text("body", body, want[2]);
	free(body);
}

static void test_choices(void **state)
{
	static const char *const pieces[] = { "a", "b", NULL };
	struct world *w = *state;
	struct ig_http_head h;
	int n_roles = 0, n_texts = 0, n_ends = 0;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	char *body = body_of(w, post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"n\":3,\"seed\":7}",
				     &h));
	json_t *v = json_loads(body, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(v, "choices")), 3);
	for (int i = 0; i < 3; i++) {
		json_t *c = json_array_get(json_object_get(v, "choices"), (size_t)i);
		assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
		assert_string_equal(str(json_object_get(c, "message"), "content"), "ab");
	}
	/* the prompt counts once, the choices three times */
	json_t *u = json_object_get(v, "usage");
	assert_int_equal(json_integer_value(json_object_get(u, "prompt_tokens")), 7);
	assert_int_equal(json_integer_value(json_object_get(u, "completion_tokens")), 6);
	json_decref(v);
	free(body);
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_int_equal(seen.n_submitted, 3);
	assert_int_equal(seen.seed, 9); /* each choice has its own */
	/* a stream: all roles first, in order; then the first choice before the others */
	body = body_of(w, post(w, CHAT,
			       "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"n\":3,"
			       "\"stream\":true}",
			       &h));
	char *save = NULL;
	for (char *p = strtok_r(body, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		if (!strcmp(p, "data: [DONE]"))
			continue;
		v = json_loads(p + 6, 0, NULL);
		json_t *c = json_array_get(json_object_get(v, "choices"), 0),
		       *delta = json_object_get(c, "delta");
		json_int_t index = json_integer_value(json_object_get(c, "index"));
		if (json_object_get(delta, "role"))
			assert_int_equal(index, n_roles++);
		else if (json_object_get(delta, "content"))
			n_texts += (int)json_string_length(json_object_get(delta, "content"));
		else
			n_ends += !strcmp(str(c, "finish_reason"), "stop");
		assert_true(n_roles == 3 || !n_texts);
		json_decref(v);
	}
	assert_true(n_roles == 3 && n_texts == 6 && n_ends == 3);
	free(body);
}

#define LP(token, byte, lp) "\"token\":\"" token "\",\"logprob\":" lp ",\"bytes\":[" byte "]"
#define TOP "\"top_logprobs\":[{" LP("z", "122", "-0.25") "}]"

static void test_logprobs(void **state)
{
	static const char *const pieces[] = { "a", "b", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	char *body = body_of(w, post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"logprobs\":true,\"top_logprobs\":1}",
				     &h));
	json_t *v = json_loads(body, 0, NULL),
	       *want = json_loads("{\"content\":[{" LP("a", "97", "-0.5") "," TOP "},{" LP(
					  "b", "98", "-1") "," TOP "}],\"refusal\":null}",
				  0, NULL);
	match("logprobs",
	      json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs"), want);
	json_decref(v);
	json_decref(want);
	free(body);
	assert_int_equal(fake_engine_seen(w->engine).n_top, 1);
	/* in a stream each token's stands beside its text */
	body = body_of(w, post(w, CHAT,
			       "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
			       "\"logprobs\":true,\"stream\":true}",
			       &h));
	char *save = NULL;
	size_t n_text = 0, n_tokens = 0;
	for (char *p = strtok_r(body, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		if (!strcmp(p, "data: [DONE]"))
			continue;
		v = json_loads(p + 6, 0, NULL);
		json_t *c = json_array_get(json_object_get(v, "choices"), 0);
		n_text +=
			json_string_length(json_object_get(json_object_get(c, "delta"), "content"));
		n_tokens +=
			json_array_size(json_object_get(json_object_get(c, "logprobs"), "content"));
		assert_int_equal(n_text, n_tokens);
		json_decref(v);
	}
	assert_int_equal(n_tokens, 2);
	free(body);
	/* without them the engine gets no request */
	free(body_of(w,
		     post(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", &h)));
	assert_int_equal(fake_engine_seen(w->engine).n_top, -1);
}

#define ASK                                                                                        \
	"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[{\"type\":\"function\"," \
	"\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]"

static void test_tools(void **state)
{
	static const char *const pieces[] = {
		"Look. <tool_",
		"call>{\"name\": \"f\", \"arguments\": {\"x\"",
		": \"é\"}}</tool_call>",
		NULL,
	};
	static const char *const plain[] = { "{\"a\": 1}", NULL };
	struct world *w = *state;
	struct ig_http_head h;
	struct ig_strbuf text = { 0 }, arguments = { 0 };

	fake_engine_style(&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	char *body = body_of(w, post(w, CHAT, ASK "}", &h));
	match_text(
		"body", body,
		"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion\",\"created\":\"*\","
		"\"model\":\"fake\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
		"\"content\":\"Look.\",\"tool_calls\":[{\"id\":\"#call_\",\"type\":\"function\","
		"\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": \\\"é\\\"}\"}}],"
		"\"refusal\":null,\"annotations\":[]},\"logprobs\":null,"
		"\"finish_reason\":\"tool_calls\"}],\"usage\":\"*\"}");
	free(body);
	/* the tools are in the prompt, and nothing is forced */
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_non_null(strstr(seen.prompt, "tools:[{\"type\":\"function\""));
	assert_false(seen.has_grammar);
	/* a stream */
	body = body_of(w, post(w, CHAT, ASK ",\"stream\":true}", &h));
	char *save = NULL;
	const char *last = NULL, *call_id = NULL, *name = NULL;
	json_t *frames = json_array();
	for (char *p = strtok_r(body, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		if (!strcmp(p, "data: [DONE]"))
			continue;
		json_t *v = json_loads(p + 6, 0, NULL);
		json_array_append_new(frames, v);
		json_t *c = json_array_get(json_object_get(v, "choices"), 0),
		       *d = json_object_get(c, "delta"),
		       *call = json_array_get(json_object_get(d, "tool_calls"), 0);
		last = str(c, "finish_reason");
		if (json_object_get(d, "content"))
			ig_strbuf_puts(&text, str(d, "content"));
		if (!call)
			continue;
		assert_int_equal(json_integer_value(json_object_get(call, "index")), 0);
		if (json_object_get(call, "id")) {
			assert_null(call_id); /* once */
			call_id = str(call, "id");
			name = str(json_object_get(call, "function"), "name");
		}
		assert_non_null(call_id);
		ig_strbuf_puts(&arguments, str(json_object_get(call, "function"), "arguments"));
	}
	assert_string_equal(text.data, "Look.");
	assert_string_equal(arguments.data, "{\"x\": \"é\"}");
	assert_string_equal(name, "f");
	assert_string_equal(last, "tool_calls");
	json_decref(frames);
	free(body);
	ig_strbuf_finish(&text);
	ig_strbuf_finish(&arguments);
	/* forced: a grammar, which is released in the end */
	free(body_of(w, post(w, CHAT, ASK ",\"tool_choice\":\"required\"}", &h)));
	assert_true(fake_engine_seen(w->engine).has_grammar);
	assert_int_equal(fake_grammar_refs(), 0);
	/* a strict tool is held without being forced */
	free(body_of(
		w,
		post(w, CHAT,
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[{\"type\":"
		     "\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]}",
		     &h)));
	assert_true(fake_engine_seen(w->engine).has_grammar);
	assert_int_equal(fake_grammar_refs(), 0);
	body = body_of(
		w,
		post(w, CHAT,
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[{\"type\":"
		     "\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}],"
		     "\"ignore_eos\":true}",
		     &h));
	assert_int_equal(h.status, 400);
	assert_non_null(strstr(body, "strict tools"));
	free(body);
	/* none: neither in the prompt nor parsed from the text */
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = plain, .finish = IG_FINISH_STOP });
	body = body_of(w, post(w, CHAT, ASK ",\"tool_choice\":\"none\"}", &h));
	assert_non_null(strstr(body, "\"content\":\"{\\\"a\\\": 1}\""));
	assert_null(strstr(fake_engine_seen(w->engine).prompt, "tools:"));
	free(body);
	/* a model without tools: they are described, earlier calls and results are texts */
	fake_engine_style(&(struct ig_completion_style){ 0 });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	body = body_of(
		w,
		post(w, CHAT,
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
		     "\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":"
		     "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]},{\"role\":\"tool\","
		     "\"tool_call_id\":\"c\",\"content\":\"r\"}],\"tools\":[{\"type\":\"function\","
		     "\"function\":{\"name\":\"f\"}}]}",
		     &h));
	assert_int_equal(h.status, 200);
	assert_string_equal(h.tool_format, "hermes-fallback");
	assert_non_null(strstr(body, "\"tool_calls\""));
	free(body);
	seen = fake_engine_seen(w->engine);
	assert_null(strstr(seen.prompt, "tools:["));
	assert_memory_equal(seen.prompt, "system:# Tools\n", 15);
	/* of a call that can't be read the ledger and the log have a note */
	static const char *const broken[] = { "<tool_call>{\"name\": 3}", NULL };
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = broken, .finish = IG_FINISH_STOP });
	body = body_of(w, post(w, CHAT, ASK "}", &h));
	assert_int_equal(h.status, 200);
	assert_non_null(strstr(body, "\"content\":\"<tool_call>{\\\"name\\\": 3}\""));
	free(body);
	assert_int_equal(fake_engine_seen(w->engine).n_notes, 1);
	assert_non_null(strstr(fake_engine_seen(w->engine).note,
			       "hermes: expected a string as the name at byte 21"));
	/* or refused */
	struct ig_api_options o = w->options;
	o.refuse_tools = true;
	ig_api_set_options(w->api, &o);
	body = body_of(w, post(w, CHAT, ASK "}", &h));
	assert_int_equal(h.status, 400);
	assert_null(h.tool_format);
	assert_non_null(strstr(body, "does not support tools"));
	free(body);
	ig_api_set_options(w->api, &w->options);
}

static void test_forms(void **state)
{
	static const char *const pieces[] = { "{}", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	free(body_of(w, post(w, CHAT,
			     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
			     "\"response_format\":{\"type\":\"json_object\"}}",
			     &h)));
	assert_int_equal(h.status, 200);
	assert_true(fake_engine_seen(w->engine).has_grammar);
	assert_int_equal(fake_grammar_refs(), 0);
	char *body = body_of(w, post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"response_format\":{\"type\":\"regex\",\"regex\":\"*\"}}",
				     &h));
	assert_int_equal(h.status, 400);
	match_text(
		"body", body,
		"{\"error\":{\"message\":\"nothing to repeat\",\"type\":"
		"\"invalid_request_error\",\"param\":\"response_format\",\"code\":\"invalid_value\"}}");
	free(body);
}

static void test_completions(void **state)
{
	static const char *const pieces[] = { "x", "y", NULL };
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_LENGTH });
	char *body = body_of(w, post(w, "/v1/completions",
				     "{\"prompt\":[\"ab\",[99,100,101]],\"n\":2,"
				     "\"echo\":true}",
				     &h));
	json_t *v = json_loads(body, 0, NULL), *choices = json_object_get(v, "choices");
	assert_int_equal(json_array_size(choices), 4);
	for (size_t i = 0; i < 4; i++) {
		json_t *c = json_array_get(choices, i);
		assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
		assert_string_equal(str(c, "text"), i < 2 ? "abxy" : "cdexy");
		assert_string_equal(str(c, "finish_reason"), "length");
	}
	json_t *u = json_object_get(v, "usage");
	assert_int_equal(json_integer_value(json_object_get(u, "prompt_tokens")), 5);
	assert_int_equal(json_integer_value(json_object_get(u, "completion_tokens")), 8);
	json_decref(v);
	free(body);
	assert_int_equal(fake_engine_seen(w->engine).max_tokens, 16);
	/* log probabilities, and a stream with them */
	body = body_of(w, post(w, "/v1/completions", "{\"prompt\":\"q\",\"logprobs\":1}", &h));
	v = json_loads(body, 0, NULL);
	json_t *lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
	char *text = json_dumps(lp, JSON_COMPACT);
	assert_string_equal(
		text, "{\"tokens\":[\"x\",\"y\"],\"token_logprobs\":[-0.5,-1],"
		      "\"top_logprobs\":[{\"z\":-0.25},{\"z\":-0.25}],\"text_offset\":[0,1]}");
	free(text);
	json_decref(v);
	free(body);
	body = body_of(w, post(w, "/v1/completions",
			       "{\"prompt\":\"q\",\"stream\":true,\"echo\":true,"
			       "\"stream_options\":{\"include_usage\":true}}",
			       &h));
	struct ig_strbuf all = { 0 };
	char *save = NULL, *last = NULL;
	int n_usage = 0;
	for (char *p = strtok_r(body, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		last = p;
		if (!strcmp(p, "data: [DONE]"))
			continue;
		v = json_loads(p + 6, 0, NULL);
		assert_string_equal(str(v, "object"), "text_completion");
		json_t *c = json_array_get(json_object_get(v, "choices"), 0);
		if (c)
			ig_strbuf_puts(&all, str(c, "text"));
		n_usage += json_is_object(json_object_get(v, "usage"));
		json_decref(v);
	}
	assert_string_equal(last, "data: [DONE]");
	assert_string_equal(all.data, "qxy");
	assert_int_equal(n_usage, 1);
	ig_strbuf_finish(&all);
	free(body);
}

static void test_tokens(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	char *body = body_of(
		w, post(w, "/v1/tokenize", "{\"prompt\":\"ab\",\"return_token_strs\":true}", &h));
	assert_int_equal(h.status, 200);
	match_text("body", body,
		   "{\"count\":2,\"max_model_len\":\"*\",\"tokens\":[97,98],"
		   "\"token_strs\":[\"a\",\"b\"]}");
	free(body);
	body = body_of(w, post(w, "/v1/tokenize",
			       "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &h));
	match_text("body", body, "{\"count\":7,\"max_model_len\":\"*\",\"tokens\":\"*\"}");
	free(body);
	body = body_of(w, post(w, "/v1/detokenize", "{\"tokens\":[195,169,97]}", &h));
	match_text("body", body, "{\"prompt\":\"éa\"}");
	free(body);
	body = body_of(w, post(w, "/v1/detokenize", "{\"tokens\":[]}", &h));
	match_text("body", body, "{\"prompt\":\"\"}");
	free(body);
	body = body_of(w, post(w, "/v1/detokenize", "{\"tokens\":[256]}", &h));
	assert_int_equal(h.status, 400);
	assert_non_null(strstr(body, "tokens 0 to 255"));
	free(body);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 0);
}

static void test_chat_refused(void **state)
{
	static const struct {
		int submit_rc, prep_rc, status;
		const char *body, *code;
		bool retry;
		int refused;
	} rows[] = {
		{ 0, 0, 400, "{", "invalid_json", false, 1 },
		{ 0, 0, 400,
		  "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"functions\":[1]}",
		  "unsupported_parameter", false, 1 },
		{ 0, 0, 404,
		  "{\"model\":\"nix\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "model_not_found", false, 1 },
		{ -11, 0, 503, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "server_busy", true, 0 },
		{ 0, -11, 503, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "server_busy", true, 1 },
		{ -7, 0, 400, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
		  "context_length_exceeded", false, 0 },
	};
	struct world *w = *state;
	struct ig_http_head h;
	int n_refused = 0;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		fake_engine_script(w->engine, &(struct fake_script){ .submit_rc = rows[i].submit_rc,
								     .prep_rc = rows[i].prep_rc });
		char *body = body_of(w, post(w, CHAT, rows[i].body, &h));
		json_t *v = json_loads(body, 0, NULL);
		assert_int_equal(h.status, rows[i].status);
		assert_string_equal(str(json_object_get(v, "error"), "code"), rows[i].code);
		assert_int_equal(h.retry_after_s, rows[i].retry ? 2 : 0);
		n_refused += rows[i].refused;
		assert_int_equal(fake_engine_seen(w->engine).n_refused, n_refused);
		json_decref(v);
		free(body);
	}
	assert_string_equal(fake_engine_seen(w->engine).refused.endpoint,
			    "POST /v1/chat/completions");
}

static void test_chat_gone(void **state)
{
	struct world *w = *state;
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	struct ig_exchange *x = post(w, CHAT,
				     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
				     "\"stream\":true}",
				     &h);
	/* the wall clock's comment */
	struct ig_strbuf b = { 0 };
	ig_exchange_fill(x, &b);
	ig_strbuf_clear(&b);
	ig_api_tick(w->api, ig_now_ns() + 6000000000);
	ig_exchange_fill(x, &b);
	assert_string_equal(b.data, ": keep-alive\n\n");
	ig_strbuf_finish(&b);
	ig_exchange_end(x);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
}

/* Choices that wait for the first are not begun once all is cancelled. */
static void test_choices_cancelled(void **state)
{
	struct world *w = *state;
	struct ig_http_request r = {
		.method = "POST",
		.path = CHAT,
		.client = "::1",
		.body = strdup("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
			       "\"n\":3}")
	};
	struct ig_http_head h;

	fake_engine_script(w->engine, &(struct fake_script){ .hold = true });
	r.body_len = strlen(r.body);
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	while (!fake_engine_seen(w->engine).n_submitted)
		wait_news(w);
	ig_exchange_cancel(x, "slow_client");
	head_of(w, x, &h);
	assert_int_equal(h.status, 500);
	assert_int_equal(fake_engine_seen(w->engine).n_submitted, 1);
	ig_exchange_end(x);
}

/* A client that leaves while prep still has its request: the ledger has its row. */
static void test_chat_gone_early(void **state)
{
	struct world *w = *state;
	struct ig_http_request r = {
		.method = "POST",
		.path = CHAT,
		.client = "::1",
		.who = { .key = "k2", .identity = 2 },
		.body = strdup("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}")
	};

	r.body_len = strlen(r.body);
	ig_exchange_end(ig_exchange_begin(w->api, &r, w));
	while (!fake_engine_seen(w->engine).n_refused)
		wait_news(w);
	struct fake_seen s = fake_engine_seen(w->engine);
	assert_int_equal(s.n_submitted, 0);
	assert_int_equal(s.refused.status, 499);
	assert_string_equal(s.refused.error, "cancelled before it ran (client_gone)");
	assert_string_equal(s.refused.client, "::1");
	assert_string_equal(s.refused.key, "k2");
}

#define MODEL                                                                                      \
	"{\"id\":\"fake\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"ingot\","     \
	"\"type\":\"model\",\"display_name\":\"fake\",\"created_at\":\"2023-11-14T22:13:20Z\","    \
	"\"lifecycle\":\"active\",\"max_input_tokens\":2000,\"state\":\"ready\",\"default\":true," \
	"\"task\":null}"

static void test_routes(void **state)
{
	static const struct {
		const char *method, *path;
		int status;
		const char *allow, *body;
	} rows[] = {
		{ "GET", "/healthz", 200, NULL, "{\"status\":\"ok\"}" },
		{ "GET", "/metrics", 200, NULL, NULL },
		{ "GET", "/v1/models", 200, NULL,
		  "{\"object\":\"list\",\"data\":[" MODEL ",\"*\"],\"has_more\":"
		  "false,\"first_id\":\"fake\",\"last_id\":\"spare\",\"models\":\"*\"}" },
		{ "GET", "/v1/models/fake", 200, NULL, MODEL },
		{ "GET", "/v1/models/none", 404, NULL,
		  "{\"error\":{\"message\":\"No model is named 'none'; "
		  "known: fake, spare.\",\"type\":\"invalid_request_error\",\"param\":\"model\","
		  "\"code\":\"model_not_found\"}}" },
		{ "GET", "/v1/models/", 404, NULL, NULL },
		{ "POST", "/v1/models", 405, "GET", NULL },
		{ "GET", "/v1/chat/completions", 405, "POST", NULL },
		{ "DELETE", "/v1/responses", 405, "GET, POST", NULL },
		{ "GET", "/v1/responses", 426, NULL, NULL },
		{ "GET", "/v1/ingot/requests", 200, NULL,
		  "{\"object\":\"list\",\"total\":0,\"data\":[]}" },
		{ "GET", "/v1/ingot/status", 200, NULL,
		  "{\"fake\":true,\"responses\":{\"stored\":0,\"bytes\":0,\"persist\":false,"
		  "\"failing\":false,\"error\":null}}" },
		{ "GET", "/nothing", 404, NULL,
		  "{\"error\":{\"message\":\"Nothing is at GET /nothing.\","
		  "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"not_found\"}}" },
		{ "DELETE", "/healthz", 405, "GET", NULL },
		{ "GET", "/v1/ingot/models/load", 405, "POST", NULL },
	};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_http_request r = { .method = rows[i].method,
					     .path = rows[i].path,
					     .client = "c" };
		struct ig_http_head h;
		struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
		assert_true(ig_exchange_head(x, &h));
		if (h.status != rows[i].status)
			fail_msg("%s %s: %d", rows[i].method, rows[i].path, h.status);
		assert_true(rows[i].allow ? !strcmp(h.allow, rows[i].allow) : !h.allow);
		assert_int_equal(h.upgrade, h.status == 426);
		char *body = body_of(w, x);
		if (rows[i].body)
			match_text(rows[i].path, body, rows[i].body);
		free(body);
	}
	ig_api_drain(w->api);
	struct ig_http_request r = { .method = "GET", .path = "/healthz", .client = "c" };
	struct ig_http_head h;
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	assert_true(ig_exchange_head(x, &h));
	assert_int_equal(h.status, 503);
	free(body_of(w, x));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_chat_whole),
		TEST(test_chat_stream),
		TEST(test_chat_stream_error),
		TEST(test_chat_refused),
		TEST(test_choices),
		TEST(test_logprobs),
		TEST(test_tools),
		TEST(test_forms),
		TEST(test_completions),
		TEST(test_tokens),
		TEST(test_chat_gone),
		TEST(test_chat_gone_early),
		TEST(test_choices_cancelled),
		TEST(test_routes),
	};
	return cmocka_run_group_tests_name("chat completions", tests, NULL, NULL);
}
