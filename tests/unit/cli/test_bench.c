/* `ingot bench` without a server: arrivals and prompts as functions of the seed, traces, percentiles
 * and what counts as good, JSON and SVG of known samples. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "cli/bench/load.h"
#include "cli/bench/plot.h"
#include "cli/bench/summary.h"

static struct ig_bench_load make(enum ig_bench_arrivals a, double rate, size_t n, size_t n_burst,
				 uint64_t seed)
{
	struct ig_bench_load l;
	struct ig_error err;

	assert_int_equal(ig_bench_load_make(a, rate, n, n_burst, 100, 10, seed, &l, &err), 0);
	assert_int_equal(l.n, n);
	assert_true(l.requests[0].at_s == 0);
	for (size_t i = 1; i < n; i++)
		assert_true(l.requests[i].at_s >= l.requests[i - 1].at_s);
	return l;
}

/* ---- arrivals ------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The greatest distance of the gaps' distribution from the exponential one (Kolmogorov). */
static double distance(const struct ig_bench_load *l, double rate)
{
	size_t n = l->n - 1;
	double *gaps = calloc(n, sizeof *gaps), most = 0;

	assert_non_null(gaps);
	for (size_t i = 0; i < n; i++)
		gaps[i] = l->requests[i + 1].at_s - l->requests[i].at_s;
	qsort(gaps, n, sizeof *gaps, compare);
	for (size_t i = 0; i < n; i++) {
		double expected = 1 - exp(-gaps[i] * rate);
		most = fmax(most, fabs(expected - ((double)i + 0.5) / (double)n));
	}
	free(gaps);
	return most;
}

static void test_poisson(void **state)
{
	enum { N = 10000 };

	for (uint64_t seed = 0; seed < 5; seed++) {
		struct ig_bench_load l = make(IG_BENCH_POISSON, 8, N, 1, seed);
		/* 1.95 / sqrt(n): exceeded by one true sample in a thousand */
		assert_true(distance(&l, 8) < 1.95 / 100);
		assert_true(distance(&l, 9) > 1.95 / 100);
		/* all gaps together are n / rate; the last one lies after the last arrival */
		assert_true(l.requests[N - 1].at_s < N / 8.0);
		assert_true(fabs(ig_bench_load_rate(&l) - 8) < 0.02);
		ig_bench_load_finish(&l);
	}
}

static void test_arrivals_follow_the_seed(void **state)
{
	for (enum ig_bench_arrivals a = 0; a < IG_N_BENCH_ARRIVALS; a++) {
		struct ig_bench_load x = make(a, 3, 50, 4, 7), y = make(a, 3, 50, 4, 7),
				     z = make(a, 3, 50, 4, 8);
		size_t same = 0;
		for (size_t i = 0; i < 50; i++) {
			assert_true(x.requests[i].at_s == y.requests[i].at_s);
			same += x.requests[i].at_s == z.requests[i].at_s;
		}
		assert_int_equal(same, a == IG_BENCH_EVEN ? 50 : a == IG_BENCH_BURSTS ? 4 : 1);
		ig_bench_load_finish(&x);
		ig_bench_load_finish(&y);
		ig_bench_load_finish(&z);
	}
}

static void test_even(void **state)
{
	struct ig_bench_load l = make(IG_BENCH_EVEN, 4, 9, 1, 1);

	for (size_t i = 0; i < 9; i++)
		assert_true(fabs(l.requests[i].at_s - (double)i / 4) < 1e-12);
	assert_true(fabs(ig_bench_load_rate(&l) - 4) < 1e-12);
	ig_bench_load_finish(&l);
}

static void test_bursts(void **state)
{
	struct ig_bench_load l = make(IG_BENCH_BURSTS, 10, 4000, 8, 1);

	for (size_t i = 0; i < 4000; i++)
		assert_true((i % 8 != 0) == (i && l.requests[i].at_s == l.requests[i - 1].at_s));
	/* the groups are Poisson, an eighth as often */
	for (size_t i = 0; i < 500; i++)
		l.requests[i] = l.requests[8 * i];
	l.n = 500;
	assert_true(distance(&l, 10.0 / 8) < 1.95 / sqrt(500));
	ig_bench_load_finish(&l);
}

/* ---- prompts ------------------------------------------------------------------------- */

static const struct ig_bench_scale plain = { 0, 1 };

static char *prompt(const struct ig_bench_load *l, size_t i, const struct ig_bench_scale *scale)
{
	struct ig_strbuf b = { 0 };

	assert_true(ig_bench_prompt(l, &l->requests[i], scale, &b));
	return ig_strbuf_steal(&b);
}

static size_t n_words(const char *s)
{
	size_t n = 1;

	while ((s = strchr(s, ' '))) {
		s++;
		n++;
	}
	return n;
}

/* Words with which both begin. */
static size_t n_same(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return (n + 1) / 5;
}

static void test_prompts(void **state)
{
	struct ig_bench_load l = make(IG_BENCH_EVEN, 1, 3, 1, 5);
	const struct ig_bench_scale bytes = { 20, 2.5 };
	char *a = prompt(&l, 0, &plain), *b = prompt(&l, 1, &plain), *c = prompt(&l, 0, &plain);

	assert_int_equal(n_words(a), 100);
	assert_int_equal(strlen(a), 100 * 5 - 1);
	assert_string_equal(a, c);
	assert_true(n_same(a, b) < 5);
	free(b);
	b = prompt(&l, 0, &bytes);
	assert_int_equal(n_words(b), 32); /* (100 - 20) / 2.5 */
	free(b);
	free(c);
	l.n_shared = 60;
	b = prompt(&l, 0, &plain);
	c = prompt(&l, 1, &plain);
	assert_true(n_same(b, c) >= 60 && n_same(b, c) < 65);
	assert_true(n_same(a, b) < 5);
	free(b);
	l.n_shared = 0;
	l.seed = 6;
	b = prompt(&l, 0, &plain);
	assert_true(n_same(a, b) < 5);
	free(a);
	free(b);
	free(c);
	ig_bench_load_finish(&l);
}

/* ---- traces -------------------------------------------------------------------------- */

static int read_trace(const char *text, double rate, size_t most, struct ig_bench_load *l,
		      struct ig_error *err)
{
	*err = (struct ig_error){ 0 };
	return ig_bench_load_read("trace.jsonl", text, strlen(text), rate, most, 1, l, err);
}

static const char mooncake[] =
	"{\"timestamp\": 2000, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [4, 5]}\n"
	"\n"
	"{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 8, \"hash_ids\": [4, 6, 7]}\n"
	"{\"timestamp\": 6000, \"input_length\": 30, \"output_length\": 9, \"session\": \"a\"}\n"
	"{\"timestamp\": 6000, \"input_length\": 50, \"output_length\": 9, \"session\": \"a\"}";

static void test_a_trace(void **state)
{
	struct ig_bench_load l;
	struct ig_error err;

	assert_int_equal(read_trace(mooncake, 0, 0, &l, &err), 0);
	assert_int_equal(l.n, 4);
	assert_true(l.requests[0].at_s == 0 && l.requests[1].at_s == 1 && l.requests[3].at_s == 4);
	assert_int_equal(l.requests[1].n_input, 1100);
	assert_int_equal(l.requests[1].n_output, 8);
	char *p[4];
	for (size_t i = 0; i < 4; i++)
		p[i] = prompt(&l, i, &plain);
	/* blocks of the same id have the same words */
	assert_true(n_same(p[0], p[1]) >= 512 && n_same(p[0], p[1]) < 517);
	/* a session's prompts continue each other */
	assert_int_equal(n_same(p[2], p[3]), 30);
	for (size_t i = 0; i < 4; i++)
		free(p[i]);
	ig_bench_load_finish(&l);
	assert_int_equal(read_trace(mooncake, 3, 0, &l, &err), 0);
	assert_true(fabs(ig_bench_load_rate(&l) - 3) < 1e-9);
	assert_true(fabs(l.requests[1].at_s * 4 - l.requests[3].at_s) < 1e-9);
	ig_bench_load_finish(&l);
	assert_int_equal(read_trace(mooncake, 0, 2, &l, &err), 0);
	assert_int_equal(l.n, 2);
	ig_bench_load_finish(&l);
}

static void test_traces_that_are_wrong(void **state)
{
#define LINE(at, in, out)                                                                          \
	"{\"timestamp\": " at ", \"input_length\": " in ", \"output_length\": " out
	static const char *const wrong[][2] = {
		{ "", "has no request" },
		{ "\n \n", "has no request" },
		{ "{", "line 1: " },
		{ LINE("0", "1", "1") "}\n[]", "line 2: not an object" },
		{ "{\"input_length\": 1, \"output_length\": 1}", "line 1: timestamp is missing" },
		{ LINE("-1", "1", "1") "}", "timestamp is not a number from 0" },
		{ LINE("0", "0", "1") "}", "input_length is not a number from 1" },
		{ LINE("0", "1e300", "1") "}", "input_length is not a number" },
		{ LINE("0", "1", "\"x\"") "}", "output_length is not a number" },
		{ LINE("5", "1", "1") "}\n" LINE("4", "1", "1") "}",
		  "line 2: timestamp is smaller" },
		{ LINE("0", "1", "1") ", \"hash_ids\": 3}", "hash_ids is not a list" },
		{ LINE("0", "1", "1") ", \"hash_ids\": [1, 2.5]}", "hash_ids[1] is not a whole" },
		{ LINE("0", "1", "1") ", \"session\": 3}", "session is not a string" },
	};
	struct ig_bench_load l;
	struct ig_error err;

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(read_trace(wrong[i][0], 0, 0, &l, &err), -EINVAL);
		if (!strstr(err.text, wrong[i][1]) || !strstr(err.text, "trace.jsonl"))
			fail_msg("got \"%s\", expected \"%s\"", err.text, wrong[i][1]);
		assert_null(l.requests);
	}
}

/* ---- arithmetic ---------------------------------------------------------------------- */

static void test_percentiles(void **state)
{
	/* numpy.percentile([1, 2, 4, 8], [0, 50, 95, 100]) */
	const double v[] = { 1, 2, 4, 8 };

	assert_true(isnan(ig_bench_percentile(v, 0, 50)));
	assert_true(ig_bench_percentile(v, 1, 99) == 1);
	assert_true(ig_bench_percentile(v, 4, 0) == 1);
	assert_true(ig_bench_percentile(v, 4, 50) == 3);
	assert_true(fabs(ig_bench_percentile(v, 4, 95) - 7.4) < 1e-12);
	assert_true(ig_bench_percentile(v, 4, 100) == 8);
}

#define MS 1000000ll

/* Due at due_ms, first token ttft_ms later, then n - 1 gaps of gap_ms. */
static void fill(struct ig_bench_sample *s, int64_t due_ms, int64_t ttft_ms, int n, int64_t gap_ms)
{
	*s = (struct ig_bench_sample){ .due_ns = due_ms * MS,
				       .sent_ns = due_ms * MS + MS,
				       .n_input = 10,
				       .n_cached = 4,
				       .n_output = n };
	for (int i = 0; i < n; i++)
		ig_bench_token(s, (due_ms + ttft_ms + i * gap_ms) * MS);
	ig_bench_end(s, IG_BENCH_OK, NULL);
	s->ended_ns = s->last_ns;
}

static void test_a_summary(void **state)
{
	const struct ig_bench_slo slo = { .first_ms = 30, .token_ms = 10 };
	struct ig_bench_sample *s = calloc(6, sizeof *s);
	struct ig_bench_summary r;
	struct ig_error err;

	fill(&s[0], 1000, 20, 5, 10); /* good: 10 ms are not above 10 */
	fill(&s[1], 1500, 31, 5, 5);  /* its first token is late */
	fill(&s[2], 2000, 10, 5, 11); /* its tokens are */
	fill(&s[3], 2500, 30, 1, 0);  /* one token has no time between two */
	s[4] = (struct ig_bench_sample){ .due_ns = 2600 * MS, .sent_ns = 2600 * MS };
	ig_bench_end(&s[4], IG_BENCH_REFUSED, "HTTP %d", 503);
	s[4].ended_ns = 2601 * MS;
	s[5] = (struct ig_bench_sample){ .due_ns = 2700 * MS, .sent_ns = 2700 * MS };
	ig_bench_token(&s[5], 2800 * MS);
	ig_bench_token(&s[5], 2900 * MS);
	ig_bench_end(&s[5], IG_BENCH_FAILED, "broken");
	s[5].ended_ns = 3000 * MS;
	ig_bench_end(&s[5], IG_BENCH_OK, NULL); /* the first end counts */
	assert_int_equal(ig_bench_summarize(s, 6, &slo, &r, &err), 0);
	assert_int_equal(r.n_of[IG_BENCH_OK], 4);
	assert_int_equal(r.n_of[IG_BENCH_REFUSED], 1);
	assert_int_equal(r.n_of[IG_BENCH_FAILED], 1);
	assert_int_equal(r.n_good, 2);
	assert_true(fabs(r.seconds - 2) < 1e-9);
	assert_true(fabs(r.ok_per_s - 2) < 1e-9 && fabs(r.good_per_s - 1) < 1e-9);
	assert_true(fabs(r.tokens_per_s - 8) < 1e-9); /* 16 of complete answers */
	assert_true(r.n_input == 10 && r.n_cached == 4 && r.n_output == 4);
	assert_true(fabs(r.first.p50 - 25) < 1e-9 && fabs(r.first.mean - 22.75) < 1e-9);
	assert_true(fabs(r.gap.p50 - 10) < 1e-6 && fabs(r.gap.p99 - 11) < 1e-6);
	assert_true(fabs(r.token.p50 - 10) < 1e-9);
	assert_true(fabs(r.late_ms - 1) < 1e-9);
	assert_string_equal(r.error, "HTTP 503");
	/* without limits all that is answered is good */
	assert_int_equal(ig_bench_summarize(s, 6, &(struct ig_bench_slo){ 0 }, &r, &err), 0);
	assert_int_equal(r.n_good, 4);
	ig_bench_samples_free(s, 6);
}

static void test_pictures_and_json(void **state)
{
	struct ig_bench_summary runs[2] = {
		{ .asked = 1,
		  .offered = 1,
		  .ok_per_s = 1,
		  .good_per_s = 0.5,
		  .first = { 7, 8, 9, 10 } },
		{ .asked = 2, .offered = 2, .ok_per_s = 1.5, .good_per_s = NAN, .error = "a < b" },
	};
	const struct ig_bench_slo slo = { .first_ms = 5 };
	struct ig_strbuf b = { 0 };
	struct ig_json_error why;
	json_t *root;

	assert_true(ig_bench_plot(runs, 2, &slo, "a <model> & more", &b));
	assert_non_null(strstr(b.data, "a &#60;model&#62; &#38; more"));
	assert_null(strstr(b.data, "nan"));
	assert_non_null(strstr(b.data, "</svg>\n"));
	ig_strbuf_clear(&b);
	struct ig_json_writer w = { .out = &b };
	ig_bench_summary_json(&runs[1], &w);
	assert_int_equal(ig_json_read(b.data, b.len, NULL, &root, &why), 0);
	assert_true(json_is_null(json_object_get(root, "good_per_s")));
	assert_string_equal(ig_json_text(root, "first_error"), "a < b");
	json_decref(root);
	ig_strbuf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_poisson),
		cmocka_unit_test(test_arrivals_follow_the_seed),
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_bursts),
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_a_trace),
		cmocka_unit_test(test_traces_that_are_wrong),
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_a_summary),
		cmocka_unit_test(test_pictures_and_json),
	};

	return cmocka_run_group_tests_name("cli bench", tests, NULL, NULL);
}
