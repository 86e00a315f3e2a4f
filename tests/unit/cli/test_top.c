/* `ingot top`: what it makes of the daemon's events, on windows of all sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../fuzz/top_screen.h"

static void take(struct ig_top_data *d, const char *text)
{
	struct ig_error err = { 0 };

	assert_int_equal(ig_top_event(d, text, strlen(text), &err), 0);
}

#define STATUS                                                                                     \
	"{\"type\":\"status\",\"data\":{\"version\":\"1.2.3\",\"device\":\"cpu, 2 threads\","      \
	"\"models\":[{\"name\":\"m\",\"weight_bytes\":104857600}],\"memory\":{\"budget_bytes\":"   \
	"1073741824,\"weight_bytes\":104857600,\"scratch_bytes\":10485760,\"arena_bytes\":"        \
	"536870912},\"kvcache\":{\"used_bytes\":268435456,\"cached_bytes\":134217728},"            \
	"\"requests\":{\"running\":2,\"waiting\":1,\"paused\":0}}}"
#define MODELS                                                                                     \
	"{\"type\":\"models\",\"data\":{\"data\":[{\"id\":\"away\",\"state\":\"unloaded\"},"       \
	"{\"id\":\"m\",\"state\":\"ready\",\"fits\":\"yes\",\"pinned\":true,"                      \
	"\"active_requests\":2}]}}"

static char *request(char *buf, size_t size, const char *id, int tokens, double age)
{
	snprintf(buf, size,
		 "{\"id\":\"%s\",\"model\":\"m\",\"endpoint\":\"e\",\"client\":\"c\",\"key\":\"k\","
		 "\"state\":\"decode\",\"prompt_tokens\":100,\"prefilled_tokens\":100,"
		 "\"cached_tokens\":25,\"output_tokens\":%d,\"age_s\":%.3f}",
		 id, tokens, age);
	return buf;
}

static void requests(struct ig_top_data *d, int a, int b, double age)
{
	char text[1200], one[400], two[400];

	snprintf(text, sizeof text,
		 "{\"type\":\"requests\",\"data\":{\"total\":2,\"data\":[%s,%s]}}",
		 request(one, sizeof one, "aaa", a, age), request(two, sizeof two, "bbb", b, age));
	take(d, text);
}

static char *drawn(struct ig_top_view *v)
{
	struct ig_strbuf out = { 0 };

	ig_top_draw(v, &out);
	assert_true(ig_strbuf_ok(&out));
	check_top(v, ig_strbuf_text(&out));
	return ig_strbuf_steal(&out);
}

static void test_speed(void **state)
{
	struct ig_top_data d = { 0 };

	requests(&d, 10, 0, 1);
	assert_true(ig_top_speed(&d) == 0); /* not known from one look */
	requests(&d, 30, 5, 2);
	assert_true(ig_top_speed(&d) == 25);
	ig_top_tick(&d);
	requests(&d, 40, 5, 3); /* smoothed: 15 and 2.5 */
	assert_true(ig_top_speed(&d) == 17.5);
	ig_top_tick(&d);
	assert_int_equal(d.n_history, 2);
	assert_true(d.history[0] == 25 && d.history[1] == 17.5);
	for (int i = 0; i < 400; i++)
		ig_top_tick(&d);
	assert_int_equal(d.n_history, IG_TOP_HISTORY);
	ig_top_data_finish(&d);
}

static void test_plain(void **state)
{
	struct ig_top_data d = { 0 };
	struct ig_top_view v = {
		.data = &d, .url = "http://x", .trouble = "", .message = "", .columns = 100
	};
	char *text;

	take(&d, STATUS);
	take(&d, MODELS);
	requests(&d, 10, 0, 1);
	requests(&d, 30, 5, 2);
	text = drawn(&v);
	assert_non_null(strstr(text, "ingot top  http://x  1.2.3  cpu, 2 threads\n"));
	assert_non_null(strstr(text, "running 2   queue 1   paused 0   tokens/s 25.0\n"));
	assert_non_null(strstr(text, "Memory 622 MiB of 1.0 GiB [#####"));
	assert_non_null(
		strstr(text, "# weights 100 MiB   % scratch 10.0 MiB   = cache in use 256 MiB"));
	assert_non_null(strstr(text, "- cache idle 128 MiB"));
	assert_non_null(strstr(text, "free 402 MiB"));
	assert_non_null(
		strstr(text, "\nm      ready     100 MiB         2  yes   yes\naway   unloaded"));
	assert_non_null(
		strstr(text, "\naaa      m      decode      30   20.0     100    25 %  2.0 s"));
	assert_true(strstr(text, "aaa") < strstr(text, "bbb"));
	free(text);
	v.sort = IG_TOP_BY_TOKENS;
	requests(&d, 30, 50, 3);
	text = drawn(&v);
	assert_true(strstr(text, "bbb") < strstr(text, "aaa"));
	free(text);
	ig_top_data_finish(&d);
}

static void test_selection(void **state)
{
	struct ig_top_data d = { 0 };
	struct ig_top_view v = { .data = &d };

	ig_top_move(&v, 1);
	assert_string_equal(v.selected, "");
	requests(&d, 10, 0, 1);
	ig_top_move(&v, 1);
	assert_string_equal(v.selected, "aaa");
	ig_top_move(&v, 5);
	assert_string_equal(v.selected, "bbb");
	ig_top_move(&v, -1);
	assert_string_equal(v.selected, "aaa");
	ig_top_data_finish(&d);
}

static void test_all_sizes(void **state)
{
	struct ig_top_data d = { 0 };
	struct ig_top_view v = { .data = &d,
				 .url = "http://x",
				 .trouble = "No connection",
				 .message = "",
				 .screen = true,
				 .colours = true };

	for (int full = 0; full < 2; full++) {
		for (unsigned columns = 1; columns < 310; columns += columns < 60 ? 1 : 7)
			for (unsigned rows = 1; rows < 40; rows += 3) {
				v.columns = columns;
				v.rows = rows;
				v.help = rows % 2;
				v.unicode = columns % 2;
				free(drawn(&v));
			}
		take(&d, STATUS);
		take(&d, MODELS);
		requests(&d, 10, 0, 1);
		requests(&d, 30, 5, 2);
		ig_top_tick(&d);
		ig_top_tick(&d);
		ig_top_move(&v, 1);
	}
	ig_top_data_finish(&d);
}

/* A model that is divided over devices or machines: what each has; many are not all named. */
static void test_ranks(void **state)
{
	struct ig_top_data d = { 0 };
	struct ig_top_view v = {
		.data = &d, .url = "u", .trouble = "", .message = "", .columns = 100
	};
	char status[1200], *text;

	take(&d, STATUS);
	text = drawn(&v);
	assert_null(strstr(text, "rank 0"));
	free(text);
	for (int n = 2; n <= 10; n += 8) {
		int at = snprintf(status, sizeof status,
				  "{\"type\":\"status\",\"data\":{\"memory\":{\"ranks\":[");
		for (int r = 0; r < n; r++)
			at += snprintf(status + at, sizeof status - (size_t)at,
				       "%s{\"weight_bytes\":%d,\"scratch_bytes\":%d}", r ? "," : "",
				       (r + 1) << 20, 512 << 10);
		snprintf(status + at, sizeof status - (size_t)at, "]}}}");
		take(&d, status);
		text = drawn(&v);
		assert_non_null(strstr(text, "rank 0 1.0 MiB weights, 512 KiB scratch   rank 1 2.0 "
					     "MiB weights, 512 KiB scratch"));
		assert_int_equal(!!strstr(text, "rank 7 8.0 MiB weights"), n == 10);
		assert_null(strstr(text, "rank 8"));
		assert_int_equal(!!strstr(text, "and 2 more"), n == 10);
		free(text);
	}
	ig_top_data_finish(&d);
}

/* A daemon, or a client whose names it passes on, that means no good. */
static void test_hostile(void **state)
{
	static const char *const wrong[] = {
		"",
		"[]",
		"{",
		"null",
		"{\"type\":\"status\"}",
		"{\"type\":1,\"data\":{}}",
		"{\"type\":\"requests\",\"data\":[]}",
	};
	static const char odd_requests[] =
		"{\"type\":\"requests\",\"data\":{\"data\":[{\"id\":\"a\\u001b[31m\\n\\u009b\","
		"\"model\":\"漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\",\"state\":\"prefill\","
		"\"age_s\":1e300,\"output_tokens\":-1e300,\"prompt_tokens\":\"x\"}]}}";
	static const char odd_status[] =
		"{\"type\":\"status\",\"data\":{\"memory\":{\"budget_bytes\":-1,\"arena_bytes\":1e308,"
		"\"weight_bytes\":1e308},\"kvcache\":[],\"models\":{}}}";
	const char *const odd[] = {
		"{\"type\":\"requests\",\"data\":{}}",
		"{\"type\":\"requests\",\"data\":{\"data\":[1,null,{},[],{\"id\":5}]}}",
		odd_requests,
		odd_status,
		"{\"type\":\"models\",\"data\":{\"data\":[[],{\"id\":\"\\u001b]0;x\\u0007\"}]}}",
		"{\"type\":\"other\",\"data\":{}}",
	};
	struct ig_top_data d = { 0 };
	struct ig_top_view v = { .data = &d,
				 .url = "u",
				 .trouble = "",
				 .message = "\033[31m",
				 .screen = true,
				 .colours = true,
				 .columns = 80,
				 .rows = 30 };

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct ig_error err = { 0 };
		assert_int_equal(ig_top_event(&d, wrong[i], strlen(wrong[i]), &err), -EBADMSG);
		assert_true(err.text[0]);
	}
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		take(&d, odd[i]);
		free(drawn(&v));
	}
	ig_top_data_finish(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_speed),	  cmocka_unit_test(test_plain),
		cmocka_unit_test(test_selection), cmocka_unit_test(test_all_sizes),
		cmocka_unit_test(test_ranks),	  cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
