/*
 * test_no_memory.c: each allocation of a request fails once, from its parsing to the last
 * byte of its response: the client gets an error or loses its connection, nothing leaks
 * (under AddressSanitizer) or hangs, and the next request is answered.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/messages/messages.h"
#include "daemon/protocol/ollama/ollama_private.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/tokens/tokens.h"
#include "tests/unit/no_memory.h"
#include "tests/unit/protocol/world.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef WRAP_MALLOC

char *__real_strdup(const char *s); /* that does not fail */

static const struct {
	const char *path, *body;
	const struct ig_request_format *format;
} requests[] = {
	{ "/v1/chat/completions",
	  "{\"model\":\"fake\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: a=b;\"}]},"
	  "{\"role\":\"user\",\"content\":\"q\",\"name\":\"n\"},{\"role\":\"assistant\",\"content\":null,"
	  "\"reasoning_content\":\"r\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
	  "\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
	  "\"content\":\"r\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
	  "\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{"
	  "\"name\":\"f\"}},\"n\":2,\"stop\":[\"a\",\"b\"],\"logprobs\":true,\"top_logprobs\":1,"
	  "\"logit_bias\":{\"1\":2},\"metadata\":{\"k\":\"v\"},\"stream\":true,\"chat_template_kwargs\":{}}",
	  &ig_chat_request },
	{ "/v1/chat/completions",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"response_format\":{\"type\":\"json_schema\","
	  "\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\"}}}}",
	  &ig_chat_request },
	{ "/v1/completions",
	  "{\"prompt\":[\"ab\",[99,100]],\"n\":2,\"echo\":true,\"response_format\":{\"type\":\"regex\","
	  "\"regex\":\"a+\"}}",
	  &ig_completion_request },
	{ "/v1/messages",
	  "{\"max_tokens\":9,\"system\":\"x-anthropic-billing-header: cch=1;\\nnow 2026-11-23 17:11\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\","
	  "\"content\":\"b\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},"
	  "{\"type\":\"text\",\"text\":\"u\"},{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}]},"
	  "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"r\","
	  "\"is_error\":true},{\"type\":\"text\",\"text\":\"v\"}]}],\"tools\":[{\"name\":\"f\",\"input_schema\":"
	  "{}}],\"thinking\":{\"type\":\"enabled\"},\"stop_sequences\":[\"x\"],\"stream\":true}",
	  &ig_messages_request },
	{ "/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	  &ig_count_request },
#define RESPONSES                                                                                             \
	"{\"model\":\"fake\",\"instructions\":\"i\",\"input\":[{\"role\":\"developer\","                      \
	"\"content\":\"d\"},{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},"      \
	"{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]}," \
	"{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]},"                   \
	"{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"                 \
	"{\"type\":\"custom_tool_call\",\"call_id\":\"d\",\"name\":\"g\",\"input\":\"x\"},"                   \
	"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\","          \
	"\"text\":\"r\"}]},{\"type\":\"custom_tool_call_output\",\"call_id\":\"d\",\"output\":\"s\"}],"       \
	"\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}},{\"type\":\"custom\",\"name\":"  \
	"\"g\"}],\"tool_choice\":\"auto\",\"include\":[\"message.output_text.logprobs\"],"                    \
	"\"top_logprobs\":1,\"text\":{\"verbosity\":\"low\"},\"reasoning\":{\"effort\":\"none\"},"            \
	"\"metadata\":{\"k\":\"v\"},\"stop\":\"z\",\"user\":\"u\""
	{ "/v1/responses", RESPONSES "}", &ig_create_request },
	{ "/v1/responses", RESPONSES ",\"stream\":true}", &ig_create_request },
	{ "/v1/responses/input_tokens", "{\"input\":\"a\"}", &ig_input_tokens_request },
	{ "/v1/tokenize", "{\"prompt\":\"ab\",\"return_token_strs\":true}", &ig_tokenize_request },
	{ "/api/chat",
	  "{\"model\":\"fake\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"assistant\","
	  "\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},"
	  "{\"role\":\"tool\",\"content\":\"r\",\"tool_name\":\"f\"}],\"tools\":[{\"type\":\"function\","
	  "\"function\":{\"name\":\"f\"}}],\"format\":{\"type\":\"object\"},\"options\":{\"stop\":[\"a\"]},"
	  "\"stream\":true,\"logprobs\":true}",
	  &ig_ollama_chat_request },
	{ "/api/generate",
	  "{\"model\":\"fake\",\"prompt\":\"p\",\"system\":\"s\",\"stream\":false,\"keep_alive\":0}",
	  &ig_ollama_generate_request },
	{ "/api/generate", "{\"model\":\"fake\",\"prompt\":\"p\",\"raw\":true}",
	  &ig_ollama_generate_request },
	{ "/v1/detokenize", "{\"tokens\":[97,98]}", &ig_detokenize_request },
};
#define N_REQUESTS (sizeof requests / sizeof requests[0])
#define MANY 4000   /* allocations that no request makes */
#define LONG 100000 /* little waits, 20 s */

static void test_parse(void **state)
{
	struct ig_request r;
	struct ig_api_error e;

	for (size_t i = 0; i < N_REQUESTS; i++) {
		int k = 1;
		for (; k < MANY; k++) {
			no_memory_at(k - 1);
			int rc = ig_request_read(requests[i].format, requests[i].body,
						 strlen(requests[i].body), true, &r, &e);
			bool reached = no_memory_failed();
			ig_request_finish(&r);
			if (!reached) {
				assert_int_equal(rc, 0);
				break;
			}
			if (!rc || e.status != 500)
				fail_msg("%s, allocation %d: %d, %d %s", requests[i].path, k, rc,
					 e.status, e.message);
		}
		assert_true(k < MANY && k > 5);
	}
}

/* One exchange; false when the connection was lost, else its status. */
static bool exchange(struct world *w, size_t i, int *status)
{
	struct ig_http_request r = { .method = "POST",
				     .path = requests[i].path,
				     .client = "::1",
				     .body = __real_strdup(requests[i].body),
				     .body_len = strlen(requests[i].body) };
	struct ig_http_head h = { 0 };
	struct ig_strbuf out = { 0 };
	enum ig_fill f = IG_FILL_WAIT;

	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	if (!x)
		return false;
	head_of(w, x, &h);
	while (!out.failed && (f = ig_exchange_fill(x, &out)) != IG_FILL_END)
		if (f == IG_FILL_WAIT && !out.failed)
			wait_news(w);
	bool whole = ig_strbuf_ok(&out);
	ig_exchange_end(x);
	ig_strbuf_finish(&out);
	*status = h.status;
	return whole;
}

/* The same, of a request that waits for its model and is given a keep-alive meanwhile. */
static bool waiting_exchange(struct world *w, size_t i, int *status)
{
	struct ig_http_request r = { .method = "POST",
				     .path = requests[i].path,
				     .client = "::1",
				     .body = __real_strdup(requests[i].body),
				     .body_len = strlen(requests[i].body) };
	struct ig_http_head h = { 0 };
	struct ig_strbuf out = { 0 };
	enum ig_fill f = IG_FILL_WAIT;

	int n_before = fake_engine_seen(w->engine).n_callbacks;
	fake_engine_model(w->engine, -EINPROGRESS);
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);
	if (!x)
		return false;
	for (int j = 0;
	     !ig_exchange_head(x, &h) && fake_engine_seen(w->engine).n_callbacks == n_before; j++) {
		assert_true(j < LONG);
		wait_a_little(w);
	}
	ig_api_tick(w->api, ig_now_ns() + 6000000000);
	ig_exchange_fill(x, &out);
	fake_engine_load_ends(w->engine, 0);
	head_of(w, x, &h);
	while (!out.failed && (f = ig_exchange_fill(x, &out)) != IG_FILL_END)
		if (f == IG_FILL_WAIT && !out.failed)
			wait_news(w);
	/* An error in a stream is its last event. */
	bool whole = ig_strbuf_ok(&out) && !(h.length < 0 && strstr(out.data, "out of memory"));
	ig_exchange_end(x);
	ig_strbuf_finish(&out);
	*status = h.status;
	return whole;
}

static void test_waiting(void **state)
{
	static const char *const pieces[] = { "a", NULL };
	struct world *w = *state;
	int status, n_streams = 0;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	for (size_t i = 0; i < N_REQUESTS; i++) {
		bool stream = strstr(requests[i].body, "\"stream\":true");
		int k = 1;
		if (!stream && strcmp(requests[i].path, "/v1/tokenize"))
			continue;
		n_streams += stream;
		/* A form needs a style that can call. */
		fake_engine_style(&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES });
		for (; k < MANY; k++) {
			no_memory_at(k - 1);
			bool whole = waiting_exchange(w, i, &status);
			bool reached = no_memory_failed();
			if (!reached) {
				assert_true(whole && status == 200);
				break;
			}
			if (whole && status != 200 && status != 500 && status != 503)
				fail_msg("%s, allocation %d: %d", requests[i].path, k, status);
			for (int j = 0; fake_model_holds(); j++) { /* prep may still have it */
				assert_true(j < LONG);
				wait_a_little(w);
			}
		}
		assert_true(k < MANY && k > 5);
	}
	assert_true(n_streams >= 3);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

static void test_exchanges(void **state)
{
	static const char *const pieces[] = {
		"<think>hm</think>a<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
		NULL,
	};
	struct world *w = *state;
	int status;

	fake_engine_style(
		&(struct ig_completion_style){ .calls = IG_TOOL_CALLS_HERMES, .reasoning = true });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	for (size_t i = 0; i < N_REQUESTS; i++) {
		int k = 1;
		for (; k < MANY; k++) {
			no_memory_at(k - 1);
			bool whole = exchange(w, i, &status);
			bool reached = no_memory_failed();
			if (!reached) {
				assert_true(whole && status == 200);
				break;
			}
			if (whole && status != 200 && status != 500)
				fail_msg("%s, allocation %d: %d", requests[i].path, k, status);
			if (fake_model_holds())
				fail_msg("%s, allocation %d: %d holds of the model",
					 requests[i].path, k, fake_model_holds());
			if (fake_grammar_refs())
				fail_msg("%s, allocation %d: %d grammars are held",
					 requests[i].path, k, fake_grammar_refs());
			/* the next one is fine */
			assert_true(exchange(w, i, &status) && status == 200);
		}
		assert_true(k < MANY && k > 5);
	}
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

/* Events up to a final one or an error, whose text is in out; false when the connection
 * was lost. */
static bool read_final(struct world *w, char *out, size_t cap)
{
	for (;;) {
		struct ig_strbuf b = { 0 };
		enum ig_fill f = ig_session_fill(w->session, &b);
		bool lost = f == IG_FILL_END || b.failed;
		snprintf(out, cap, "%s", b.len ? b.data : "");
		ig_strbuf_finish(&b);
		if (lost)
			return false;
		if (strstr(out, "\"type\":\"response.completed\"") ||
		    strstr(out, "\"type\":\"error\"") ||
		    strstr(out, "\"type\":\"response.failed\""))
			return true;
		if (f == IG_FILL_WAIT)
			wait_news(w);
	}
}

static void create(struct world *w, const char *text)
{
	ig_session_receive(w->session, __real_strdup(text), strlen(text));
}

/* A response that continues another: looked up, prepared, generated, stored. */
static void test_turns(void **state)
{
	static const char *const pieces[] = { "<think>hm</think>a", NULL };
	static char event[65536];
	struct world *w = *state;
	int k = 1, n_errors = 0, n_unkept = 0;

	fake_engine_style(&(struct ig_completion_style){ .reasoning = true });
	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	for (bool reached = true; reached && k < MANY; k++) {
		char id[64], text[400];
		ig_session_end(w->session);
		w->session =
			ig_session_open(w->api, "req_1", "c",
					&(struct ig_principal){ .key = "k1", .identity = 1 }, w);
		create(w, "{\"type\":\"response.create\",\"input\":\"1\"}");
		assert_true(read_final(w, event, sizeof event));
		const char *at = strstr(event, "\"id\":\"resp_");
		assert_non_null(at);
		snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
		snprintf(text, sizeof text,
			 "{\"type\":\"response.create\",\"input\":\"2\","
			 "\"previous_response_id\":\"%s\",\"stream_id\":\"l\"}",
			 id);
		no_memory_at(k - 1);
		create(w, text);
		bool told = read_final(w, event, sizeof event);
		reached = no_memory_failed();
		if (!told)
			continue;
		bool completed = strstr(event, "\"type\":\"response.completed\"");
		n_errors += !completed;
		n_unkept += completed && strstr(event, "\"store\":false");
		if (!reached)
			assert_true(completed && strstr(event, "\"store\":true"));
		else if (!completed && !strstr(event, "out of memory"))
			fail_msg("allocation %d: %s", k, event);
	}
	assert_true(k < MANY && n_errors > 5 && n_unkept > 0);
	fake_engine_style(&(struct ig_completion_style){ 0 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_turns, world_setup, world_teardown),
		cmocka_unit_test(test_parse),
		cmocka_unit_test_setup_teardown(test_exchanges, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_waiting, world_setup, world_teardown),
	};
	json_set_alloc_funcs(malloc, free); /* as the linker has them */
	return cmocka_run_group_tests_name("requests without memory", tests, NULL, NULL);
}

#else

int main(void)
{
	printf("1..0 # SKIP this linker has no --wrap\n");
	return 0;
}

#endif
