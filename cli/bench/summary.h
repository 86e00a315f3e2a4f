/* summary.h: what the samples of a run say: percentiles, throughput, goodput; as a table and JSON. */
#pragma once

#include "base/strbuf.h"
#include "cli/bench/client.h"
#include "cli/bench/load.h"
#include "cli/term/text.h"

/* Limits of a good request, in ms; 0: none.  token_ms: of its mean time between tokens. */
struct ig_bench_slo {
	double first_ms, token_ms;
};

struct ig_bench_spread {
	double mean, p50, p95, p99; /* ms; NaN without data */
};

struct ig_bench_summary {
	double asked;	/* rate, requests a second; NaN: as in the trace */
	double offered; /* that of the load */
	size_t n, n_of[IG_N_BENCH_OUTCOMES], n_good;
	double seconds;				   /* from the first arrival to the last answer */
	double ok_per_s, good_per_s, tokens_per_s; /* complete answers, good ones, their tokens */
	double n_input, n_cached, n_output;	   /* tokens, means of the complete answers */
	struct ig_bench_spread first;		   /* from a request's arrival to its first token */
	struct ig_bench_spread gap; /* between two events with text, of all requests together */
	struct ig_bench_spread
		token; /* a request's mean time between two tokens, as its usage counts them */
	struct ig_bench_spread whole; /* from its arrival to its end */
	double late_ms;		      /* 99 % of the requests were sent at most so much too late */
	char error[200];	      /* of the first request that was not answered; "": none */
};

/* Percentile p (0 … 100) of n ascending values, interpolated between the two nearest ranks, as
 * numpy does; NaN for none. */
double ig_bench_percentile(const double *ascending, size_t n, double p);

/* -ENOMEM with text. */
int ig_bench_summarize(const struct ig_bench_sample *samples, size_t n,
		       const struct ig_bench_slo *slo, struct ig_bench_summary *out,
		       struct ig_error *err);
/* Rows for a table with these headers. */
void ig_bench_table_init(struct ig_table *t);
void ig_bench_table_add(struct ig_table *t, const struct ig_bench_summary *s);
struct ig_json_writer;
/* One object. */
void ig_bench_summary_json(const struct ig_bench_summary *s, struct ig_json_writer *w);
