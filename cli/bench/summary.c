/* summary.c: see summary.h. */
#include "cli/bench/summary.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

double ig_bench_percentile(const double *ascending, size_t n, double p)
{
	if (!n)
		return NAN;
	double at = p / 100 * (double)(n - 1);
	size_t low = (size_t)at;
	if (low >= n - 1)
		return ascending[n - 1];
	return ascending[low] + (at - (double)low) * (ascending[low + 1] - ascending[low]);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts v. */
static struct ig_bench_spread spread(double *v, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += v[i];
	qsort(v, n, sizeof *v, compare);
	return (struct ig_bench_spread){ .mean = n ? sum / (double)n : NAN,
					 .p50 = ig_bench_percentile(v, n, 50),
					 .p95 = ig_bench_percentile(v, n, 95),
					 .p99 = ig_bench_percentile(v, n, 99) };
}

static double ms(int64_t from, int64_t to) { return (double)(to - from) / 1e6; }

/* The server's count; where it has none, each event with text is a token. */
static int64_t n_tokens(const struct ig_bench_sample *s)
{
	return s->n_output >= 0 ? s->n_output : s->first_ns ? (int64_t)s->n_gaps + 1 : 0;
}

/* NaN: it has fewer than two. */
static double token_ms(const struct ig_bench_sample *s)
{
	int64_t n = n_tokens(s);

	return n > 1 && s->first_ns ? ms(s->first_ns, s->last_ns) / (double)(n - 1) : NAN;
}

static bool is_good(const struct ig_bench_sample *s, const struct ig_bench_slo *slo)
{
	double token = token_ms(s);

	if (s->outcome != IG_BENCH_OK)
		return false;
	if (slo->first_ms > 0 && (!s->first_ns || ms(s->due_ns, s->first_ns) > slo->first_ms))
		return false;
	return !(slo->token_ms > 0 && token > slo->token_ms);
}

/* A mean over the n samples that have a count. */
static double mean(double sum, size_t n) { return n ? sum / (double)n : NAN; }

int ig_bench_summarize(const struct ig_bench_sample *samples, size_t n,
		       const struct ig_bench_slo *slo, struct ig_bench_summary *out,
		       struct ig_error *err)
{
	struct ig_bench_summary r = { .n = n, .asked = NAN, .offered = NAN };
	size_t n_gaps = 0, n_first = 0, n_token = 0, n_whole = 0, k = 0, n_late = 0;
	size_t n_input = 0, n_cached = 0;
	double tokens = 0;
	int64_t start = INT64_MAX, end = 0;

	for (size_t i = 0; i < n; i++)
		n_gaps += samples[i].n_gaps;
	double *v = calloc(n * 4 + n_gaps + 1, sizeof *v);
	if (!v)
		return ig_fail(err, -ENOMEM, "out of memory");
	double *first = v, *token = v + n, *whole = v + 2 * n, *late = v + 3 * n, *gaps = v + 4 * n;
	for (size_t i = 0; i < n; i++) {
		const struct ig_bench_sample *s = &samples[i];
		r.n_of[s->outcome]++;
		r.n_good += is_good(s, slo);
		start = s->due_ns < start ? s->due_ns : start;
		end = s->ended_ns > end ? s->ended_ns : end;
		if (s->sent_ns)
			late[n_late++] = ms(s->due_ns, s->sent_ns);
		if (s->outcome != IG_BENCH_OK) {
			if (!r.error[0])
				memcpy(r.error, s->error, sizeof r.error);
			continue;
		}
		if (s->first_ns)
			first[n_first++] = ms(s->due_ns, s->first_ns);
		if (!isnan(token_ms(s)))
			token[n_token++] = token_ms(s);
		whole[n_whole++] = ms(s->due_ns, s->ended_ns);
		for (size_t j = 0; j < s->n_gaps; j++)
			gaps[k++] = (double)s->gaps_ms[j];
		tokens += (double)n_tokens(s);
		if (s->n_input >= 0) {
			r.n_input += (double)s->n_input;
			n_input++;
		}
		if (s->n_cached >= 0) {
			r.n_cached += (double)s->n_cached;
			n_cached++;
		}
	}
	r.seconds = end > start ? ms(start, end) / 1000 : NAN;
	r.ok_per_s = (double)r.n_of[IG_BENCH_OK] / r.seconds;
	r.good_per_s = (double)r.n_good / r.seconds;
	r.tokens_per_s = tokens / r.seconds;
	r.n_input = mean(r.n_input, n_input);
	r.n_cached = mean(r.n_cached, n_cached);
	r.n_output = mean(tokens, n_whole);
	r.first = spread(first, n_first);
	r.token = spread(token, n_token);
	r.whole = spread(whole, n_whole);
	r.gap = spread(gaps, k);
	spread(late, n_late);
	r.late_ms = ig_bench_percentile(late, n_late, 99);
	free(v);
	*out = r;
	return 0;
}

/* ---- text ---------------------------------------------------------------------------- */

void ig_bench_table_init(struct ig_table *t)
{
	static const char *const headers[] = {
		">OFFERED/S", ">OK",  ">REFUSED", ">ERRORS",	      ">OK/S", ">GOOD/S", ">TOK/S",
		">TTFT p50",  ">p95", ">p99",	  ">INTER-TOKEN p50", ">p95",  ">p99"
	};

	ig_table_init(t, headers, sizeof headers / sizeof headers[0]);
}

static void add_rate(struct ig_table *t, double x)
{
	if (isfinite(x))
		ig_table_addf(t, x < 10 ? "%.2f" : "%.1f", x);
	else
		ig_table_add(t, "-");
}

static void add_spread(struct ig_table *t, const struct ig_bench_spread *s)
{
	const double v[] = { s->p50, s->p95, s->p99 };
	char text[32];

	for (int i = 0; i < 3; i++)
		ig_table_add(t, ig_text_ms(text, sizeof text, v[i]));
}

void ig_bench_table_add(struct ig_table *t, const struct ig_bench_summary *s)
{
	add_rate(t, s->offered);
	ig_table_addf(t, "%zu", s->n_of[IG_BENCH_OK]);
	ig_table_addf(t, "%zu", s->n_of[IG_BENCH_REFUSED]);
	ig_table_addf(t, "%zu", s->n - s->n_of[IG_BENCH_OK] - s->n_of[IG_BENCH_REFUSED]);
	add_rate(t, s->ok_per_s);
	add_rate(t, s->good_per_s);
	add_rate(t, s->tokens_per_s);
	add_spread(t, &s->first);
	add_spread(t, &s->gap);
}

static void put_spread(struct ig_json_writer *w, const char *key, const struct ig_bench_spread *s)
{
	ig_json_open_object(w, key);
	ig_json_putf(w, "'mean': %.3f, 'p50': %.3f, 'p95': %.3f, 'p99': %.3f", s->mean, s->p50,
		     s->p95, s->p99);
	ig_json_close_object(w);
}

void ig_bench_summary_json(const struct ig_bench_summary *s, struct ig_json_writer *w)
{
	ig_json_open_object(w, NULL);
	ig_json_putf(w,
		     "'rate': %.6g, 'offered_per_s': %.6g, 'requests': %zu, 'ok': %zu, "
		     "'refused': %zu, 'failed': %zu, 'timed_out': %zu, 'cancelled': %zu, "
		     "'good': %zu, 'seconds': %.3f, 'ok_per_s': %.6g, 'good_per_s': %.6g, "
		     "'output_tokens_per_s': %.6g, 'input_tokens': %.2f, 'cached_tokens': %.2f, "
		     "'output_tokens': %.2f, 'late_p99_ms': %.3f",
		     s->asked, s->offered, s->n, s->n_of[IG_BENCH_OK], s->n_of[IG_BENCH_REFUSED],
		     s->n_of[IG_BENCH_FAILED], s->n_of[IG_BENCH_TIMED_OUT],
		     s->n_of[IG_BENCH_CANCELLED], s->n_good, s->seconds, s->ok_per_s, s->good_per_s,
		     s->tokens_per_s, s->n_input, s->n_cached, s->n_output, s->late_ms);
	put_spread(w, "ttft_ms", &s->first);
	put_spread(w, "inter_token_ms", &s->gap);
	put_spread(w, "time_per_output_token_ms", &s->token);
	put_spread(w, "total_ms", &s->whole);
	ig_json_put_text(w, "first_error", s->error[0] ? s->error : NULL);
	ig_json_close_object(w);
}
