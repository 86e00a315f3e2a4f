/*
 * test_cache_report.c: prompt_cache_diagnostics: what a request asks the engine for, and what the
 * response says for each of the engine's reasons, to whom.
 */
#include "tests/unit/protocol/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"

static const char *const pieces[] = { "a", NULL };

/* The member of the whole response to a request. */
static json_t *diagnostics(struct world *w, const struct ig_prefix_report *report, const char *path,
			   const char *request)
{
	struct ig_http_head h;
	json_t *v, *out;

	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .finish = IG_FINISH_STOP,
							     .report = *report });
	struct ig_exchange *x = post(w, path, request, &h);
	char *body = body_of(w, x);
	if (h.status != 200)
		fail_msg("%d: %s", h.status, body);
	v = json_loads(body, 0, NULL);
	free(body);
	out = json_incref(json_object_get(v, "prompt_cache_diagnostics"));
	json_decref(v);
	return out;
}

static const struct ig_prefix_report diverged = { .reason = IG_PREFIX_DIVERGED,
						  .n_same = 5,
						  .compared = "resp_1",
						  .same = "s",
						  .earlier = "e",
						  .now = "n" };
#define OWN "\"prompt_tokens\":7,\"cached_tokens\":3,"
#define DIVERGED                                                                                   \
	"{\"type\":\"cache_miss\",\"reason\":\"input_changed\",\"cache_missed_tokens\":2,"         \
	"\"comparison_reusable_tokens\":5,\"ingot\":{\"reason\":\"diverged\"," OWN                 \
	"\"same_tokens\":5,\"compared_with\":\"resp_1\",\"same\":\"s\",\"earlier\":\"e\","         \
	"\"now\":\"n\"}}"

static void expect_report(struct world *w, const struct ig_prefix_report *report, const char *want)
{
	json_t *v = diagnostics(w, report, CHAT, ASK "\"prompt_cache_diagnostics\":true}");
	char *text = json_dumps(v, JSON_COMPACT);

	match_text("prompt_cache_diagnostics", text, want);
	free(text);
	json_decref(v);
}

#define NOTHING "\"compared_with\":null,\"same\":null,\"earlier\":null,\"now\":null"

static void test_reasons(void **state)
{
	struct world *w = *state;
	struct ig_prefix_report r = diverged;

	expect_report(w, &r, DIVERGED);
	r.n_other_key = 6; /* not this client's business */
	expect_report(w, &r, DIVERGED);
	r.not_found = true;
	expect_report(
		w, &r,
		"{\"type\":\"comparison_response_not_found\",\"ingot\":{\"reason\":\"diverged\"," OWN
		"\"same_tokens\":5,\"compared_with\":\"resp_1\",\"same\":\"s\","
		"\"earlier\":\"e\",\"now\":\"n\"}}");
	r = (struct ig_prefix_report){ .reason = IG_PREFIX_OTHER_MODEL,
				       .n_same = 4,
				       .compared = "resp_1" };
	expect_report(
		w, &r,
		"{\"type\":\"cache_miss\",\"reason\":\"model_changed\",\"cache_missed_tokens\":3,"
		"\"comparison_reusable_tokens\":4,\"ingot\":{\"reason\":\"other_model\"," OWN
		"\"same_tokens\":4,\"compared_with\":\"resp_1\",\"same\":\"\","
		"\"earlier\":\"\",\"now\":\"\"}}");
	r = (struct ig_prefix_report){ .n_same = -1 };
	expect_report(w, &r, "{\"type\":\"unavailable\"}");
	for (r.reason = IG_PREFIX_FULL; r.reason < IG_N_PREFIX_REASONS; r.reason++) {
		bool hit = r.reason == IG_PREFIX_FULL || r.reason == IG_PREFIX_EXTENDED;
		char want[300];
		if (r.reason == IG_PREFIX_DIVERGED || r.reason == IG_PREFIX_OTHER_MODEL)
			continue;
		snprintf(want, sizeof want,
			 "{\"type\":\"%s\",\"ingot\":{\"reason\":\"%s\"," OWN
			 "\"same_tokens\":null," NOTHING "}}",
			 hit ? "cache_hit" : "unavailable", ig_prefix_reason_name(r.reason));
		expect_report(w, &r, want);
	}
}

/* What is asked for, and what the engine is told. */
static void test_requests(void **state)
{
	static const struct {
		const char *path, *request;
		bool wants;
		const char *compare_with;
	} rows[] = {
		{ CHAT, ASK "\"seed\":1}", false, "" },
		{ CHAT, ASK "\"prompt_cache_diagnostics\":false}", false, "" },
		{ CHAT, ASK "\"prompt_cache_diagnostics\":null}", false, "" },
		{ CHAT, ASK "\"prompt_cache_diagnostics\":true}", true, "" },
		{ CHAT, ASK "\"prompt_cache_options\":{\"mode\":\"implicit\"}}", false, "" },
		{ CHAT, ASK "\"prompt_cache_options\":{\"comparison_response_id\":\"chatcmpl-1\"}}",
		  true, "chatcmpl-1" },
		{ "/v1/completions", "{\"prompt\":\"q\",\"prompt_cache_diagnostics\":true}", true,
		  "" },
		{ "/v1/responses", "{\"input\":\"q\"}", false, "" },
		{ "/v1/responses", "{\"input\":\"q\",\"prompt_cache_diagnostics\":true}", true,
		  "" },
		{ "/v1/responses",
		  "{\"input\":\"q\",\"prompt_cache_options\":{\"comparison_response_id\":"
		  "\"resp_7\",\"mode\":\"implicit\",\"prewarm\":false}}",
		  true, "resp_7" },
	};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		json_t *v = diagnostics(w, &diverged, rows[i].path, rows[i].request);
		struct fake_seen seen = fake_engine_seen(w->engine);
		assert_int_equal(!!v, rows[i].wants);
		assert_int_equal(seen.wants_report, rows[i].wants);
		assert_string_equal(seen.compare_with, rows[i].compare_with);
		json_decref(v);
	}
}

static void test_refused(void **state)
{
	static const char *const rows[][2] = {
		{ "\"prompt_cache_diagnostics\":1}", "prompt_cache_diagnostics" },
		{ "\"prompt_cache_options\":[]}", "prompt_cache_options" },
		{ "\"prompt_cache_options\":{\"comparison_response_id\":7}}",
		  "prompt_cache_options.comparison_response_id" },
		{ "\"prompt_cache_options\":{\"mode\":7}}", "prompt_cache_options.mode" },
		{ "\"prompt_cache_options\":{\"prewarm\":7}}", "prompt_cache_options.prewarm" },
	};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_http_head h;
		char request[200];
		snprintf(request, sizeof request, ASK "%s", rows[i][0]);
		char *body = body_of(w, post(w, CHAT, request, &h));
		json_t *v = json_loads(body, 0, NULL);
		assert_int_equal(h.status, 400);
		assert_string_equal(str(json_object_get(v, "error"), "param"), rows[i][1]);
		json_decref(v);
		free(body);
	}
}

/* Of a stream the last chunk has it, with the usage or without. */
static void test_streams(void **state)
{
#define LAST                                                                                       \
	"{\"id\":\"#chatcmpl-\",\"object\":\"chat.completion.chunk\",\"created\":\"*\","           \
	"\"model\":\"fake\",\"choices\":[],"
	static const char *const plain[] = {
		"*",  "*", "*", LAST "\"prompt_cache_diagnostics\":" DIVERGED "}", "data: [DONE]",
		NULL,
	};
	static const char *const usage[] = {
		"*",
		"*",
		"*",
		LAST "\"usage\":\"*\",\"prompt_cache_diagnostics\":" DIVERGED "}",
		"data: [DONE]",
		NULL,
	};
	struct world *w = *state;
	struct ig_http_head h;

	for (int with_usage = 0; with_usage < 2; with_usage++) {
		fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
								     .finish = IG_FINISH_STOP,
								     .report = diverged });
		char *body = body_of(
			w,
			post(w, CHAT,
			     with_usage ? ASK "\"prompt_cache_diagnostics\":true,\"stream\":true,"
					      "\"stream_options\":{\"include_usage\":true}}" :
					  ASK "\"prompt_cache_diagnostics\":true,\"stream\":true}",
			     &h));
		const char *at = body;
		/* the last two frames */
		for (const char *next; (next = strstr(at + 6, "data: {")); at = next)
			;
		char *tail = strdup(at);
		free(body);
		check_frames(tail, with_usage ? usage + 3 : plain + 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define UNIT(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
		UNIT(test_reasons),
		UNIT(test_requests),
		UNIT(test_refused),
		UNIT(test_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
