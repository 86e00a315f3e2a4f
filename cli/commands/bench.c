/* bench.c: `ingot bench`: open-loop load at one or several rates, and what latencies and goodput the
 * server has at each.  Arrivals do not wait for answers, and latencies count from the arrival that
 * the load names. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "cli/bench/client.h"
#include "cli/bench/load.h"
#include "cli/bench/plot.h"
#include "cli/bench/summary.h"
#include "cli/commands/command.h"
#include "cli/download/files.h"
#include "cli/net/endpoint.h"
#include "cli/net/served_models.h"
#include "cli/options.h"
#include "cli/term/text.h"

#define MAX_RATES 64
#define MAX_RATE 100000.0
#define MAX_TRACE (1u << 30)	 /* bytes */
#define MAX_PROMPTS (1ull << 30) /* bytes of all prompts of a run */
#define WORD_BYTES 5
#define ALONE_S 60 /* for a request that is no part of the load */

struct bench {
	struct ig_where where;
	const char *rate_list, *arrivals_name, *trace, *model, *over, *svg;
	bool json, has_requests, has_duration, has_burst, has_input, has_output, has_seed;
	int64_t n_requests, duration_s, n_burst, n_input, n_output, n_shared, n_warmup, timeout_s;
	uint64_t seed;
	struct ig_bench_slo slo;

	double rates[MAX_RATES]; /* 0: as in the trace */
	size_t n_rates;
	enum ig_bench_arrivals arrivals;
	const struct ig_bench_transport *transport;
	struct ig_endpoint e;
	struct ig_bench_wire *wire;
	struct ig_bench_scale scale;
	struct ig_strbuf trace_text;
	char model_name[160];
	struct ig_bench_summary runs[MAX_RATES];
	size_t n_runs;
};

static bool read_rates(struct bench *b)
{
	const char *p = b->rate_list;

	do {
		char *end;
		double x = strtod(p, &end);
		if (end == p || (*end && *end != ',') || !(x > 0 && x <= MAX_RATE) ||
		    b->n_rates == MAX_RATES)
			return false;
		b->rates[b->n_rates++] = x;
		p = end + 1;
		if (!*end)
			return true;
	} while (true);
}

/* Options that say nothing together.  -1: none of them are given; otherwise the exit status. */
static int check_options(struct bench *b)
{
	static const struct ig_bench_transport *const transports[] = { &ig_bench_http,
								       &ig_bench_websocket };

	for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
		if (!strcmp(b->over, transports[i]->name))
			b->transport = transports[i];
	if (!b->transport)
		return ig_wrong_usage("bench", "--over %.40s: http or websocket", b->over);
	if (b->trace && (b->arrivals_name || b->has_burst || b->has_input || b->has_output))
		return ig_wrong_usage("bench",
				      "a trace says when requests arrive and how long they "
				      "are: no --arrivals, --burst, --input-tokens or "
				      "--output-tokens with --trace");
	while (b->arrivals_name && b->arrivals < IG_N_BENCH_ARRIVALS &&
	       strcmp(b->arrivals_name, ig_bench_arrivals_name(b->arrivals)))
		b->arrivals++;
	if (b->arrivals == IG_N_BENCH_ARRIVALS)
		return ig_wrong_usage("bench", "--arrivals %.40s: poisson, even or bursts",
				      b->arrivals_name);
	if (b->has_burst && b->arrivals != IG_BENCH_BURSTS)
		return ig_wrong_usage("bench", "--burst is the size of --arrivals bursts");
	if (b->has_requests && b->has_duration)
		return ig_wrong_usage("bench", "--requests and --duration exclude each other");
	if (!b->rate_list && b->trace)
		b->n_rates = 1;
	else if (!b->rate_list)
		b->rates[b->n_rates++] = 1;
	else if (!read_rates(b))
		return ig_wrong_usage("bench",
				      "--rate %.60s: at most %d numbers above 0, up to %.0f, "
				      "with commas between them",
				      b->rate_list, MAX_RATES, MAX_RATE);
	return -1;
}

/* ---- a run --------------------------------------------------------------------------- */

/* One request after another, not measured: n_words words, or the length of r.  --timeout is the load's. */
static int ask_alone(struct bench *b, uint64_t sequence, size_t n_words, uint32_t n_output,
		     struct ig_bench_sample *out, struct ig_error *err)
{
	struct ig_strbuf prompt = { 0 }, body = { 0 };
	struct ig_bench_sample s = { 0 };
	const int64_t timeout_s = b->timeout_s < ALONE_S ? ALONE_S : b->timeout_s;
	int rc = 0;

	if (ig_bench_words(b->seed, sequence, n_words, &prompt))
		b->transport->write(b->model_name, prompt.data, prompt.len, n_output, &body);
	if (!ig_strbuf_ok(&prompt) || !ig_strbuf_ok(&body))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	if (!rc)
		rc = ig_bench_drive(b->transport, b->wire, &body, &s, 1, timeout_s * 1000, err);
	free(s.gaps_ms);
	if (!rc && s.outcome == IG_BENCH_CANCELLED)
		rc = -EINTR;
	else if (!rc && s.outcome != IG_BENCH_OK)
		rc = ig_fail(err, -EIO, "a request alone was not answered: %s", s.error);
	ig_strbuf_finish(&prompt);
	ig_strbuf_finish(&body);
	*out = s;
	return rc;
}

/* How many tokens the server counts for a word, and for a prompt without any; by prompts that are no
 * longer than `longest`, unless that has few tokens. */
static int measure_words(struct bench *b, uint32_t longest, struct ig_error *err)
{
	enum { FEW = 4, LEAST = 16, MOST = 136 };
	/* at most WORD_BYTES tokens a word */
	size_t n = longest / (WORD_BYTES + 1), many_words = n < LEAST ? LEAST : n > MOST ? MOST : n;
	struct ig_bench_sample few, many;
	int rc = ask_alone(b, 0, FEW, 1, &few, err);

	if (!rc)
		rc = ask_alone(b, 1, many_words, 1, &many, err);
	if (rc)
		return rc;
	if (few.n_input < 0 || many.n_input <= few.n_input)
		return ig_fail(err, -EPROTO,
			       "the server does not say how many tokens a prompt has (usage)");
	b->scale.per_word = (double)(many.n_input - few.n_input) / (double)(many_words - FEW);
	b->scale.fixed = (double)few.n_input - FEW * b->scale.per_word;
	return 0;
}

static int warm_up(struct bench *b, size_t run, const struct ig_bench_load *l, struct ig_error *err)
{
	const struct ig_bench_request *r = &l->requests[0];
	double words = (r->n_input - b->scale.fixed) / b->scale.per_word;
	struct ig_bench_sample s;
	int rc = 0;

	for (int64_t i = 0; !rc && i < b->n_warmup; i++)
		rc = ask_alone(b, 1000 * (run + 1) + (uint64_t)i, words > 1 ? (size_t)words : 1,
			       r->n_output, &s, err);
	return rc;
}

/* The load of a run.  Each run has prompts of its own, which no earlier one has left in the cache. */
static int make_load(struct bench *b, size_t run, struct ig_bench_load *l, struct ig_error *err)
{
	double rate = b->rates[run], n = b->has_requests || !b->has_duration ?
						 (double)b->n_requests :
						 round(rate * (double)b->duration_s);
	uint64_t seed = b->seed + run;
	uint64_t bytes = 0;
	int rc;

	if (b->trace)
		rc = ig_bench_load_read(b->trace, ig_strbuf_text(&b->trace_text), b->trace_text.len,
					rate, b->has_requests ? (size_t)b->n_requests : 0, seed, l,
					err);
	else if (n > IG_BENCH_MAX_REQUESTS)
		return ig_fail(err, -EINVAL, "--duration: more than %d requests",
			       IG_BENCH_MAX_REQUESTS);
	else
		rc = ig_bench_load_make(b->arrivals, rate, n < 1 ? 1 : (size_t)n,
					(size_t)b->n_burst, (uint32_t)b->n_input,
					(uint32_t)b->n_output, seed, l, err);
	if (rc)
		return rc;
	while (b->trace && b->has_duration && l->n > 1 &&
	       l->requests[l->n - 1].at_s >= (double)b->duration_s)
		l->n--;
	l->n_shared = (uint32_t)b->n_shared;
	for (size_t i = 0; i < l->n; i++)
		bytes += (uint64_t)(l->requests[i].n_input / b->scale.per_word * WORD_BYTES);
	if (bytes > MAX_PROMPTS) {
		rc = ig_fail(
			err, -E2BIG,
			"the prompts of a run take %.1f GiB; at most 1: ask for fewer requests "
			"or shorter prompts",
			(double)bytes / (1 << 30));
		ig_bench_load_finish(l);
	}
	return rc;
}

/* Send the load's requests, and sum up. */
static int drive(struct bench *b, const struct ig_bench_load *l, struct ig_bench_summary *out,
		 struct ig_error *err)
{
	struct ig_strbuf *bodies = calloc(l->n, sizeof *bodies), prompt = { 0 };
	struct ig_bench_sample *samples = calloc(l->n, sizeof *samples);
	int rc = bodies && samples ? 0 : -ENOMEM;

	for (size_t i = 0; !rc && i < l->n; i++) {
		ig_strbuf_clear(&prompt);
		if (ig_bench_prompt(l, &l->requests[i], &b->scale, &prompt))
			b->transport->write(b->model_name, prompt.data, prompt.len,
					    l->requests[i].n_output, &bodies[i]);
		samples[i].at_s = l->requests[i].at_s;
		if (!ig_strbuf_ok(&prompt) || !ig_strbuf_ok(&bodies[i]))
			rc = -ENOMEM;
	}
	if (rc)
		ig_fail(err, rc, "out of memory");
	if (!rc)
		rc = ig_bench_drive(b->transport, b->wire, bodies, samples, l->n,
				    b->timeout_s * 1000, err);
	if (!rc)
		rc = ig_bench_summarize(samples, l->n, &b->slo, out, err);
	for (size_t i = 0; bodies && i < l->n; i++)
		ig_strbuf_finish(&bodies[i]);
	free(bodies);
	ig_strbuf_finish(&prompt);
	ig_bench_samples_free(samples, l->n);
	return rc;
}

static int run(struct bench *b, size_t i, struct ig_error *err)
{
	struct ig_bench_load l;
	int rc = make_load(b, i, &l, err);

	if (rc)
		return rc;
	rc = warm_up(b, i, &l, err);
	if (!rc && isatty(STDERR_FILENO))
		fprintf(stderr, "run %zu of %zu: %zu requests in %.1f s\n", i + 1, b->n_rates, l.n,
			l.requests[l.n - 1].at_s);
	if (!rc)
		rc = drive(b, &l, &b->runs[b->n_runs], err);
	if (!rc) {
		b->runs[b->n_runs].asked = b->rates[i] > 0 ? b->rates[i] : NAN;
		/* a single request, or all at once, has no rate of its own */
		double rate = ig_bench_load_rate(&l);
		b->runs[b->n_runs++].offered = isfinite(rate) ? rate : b->rates[i];
	}
	ig_bench_load_finish(&l);
	return rc;
}

/* ---- the report ---------------------------------------------------------------------- */

static const char *arrivals_of(const struct bench *b)
{
	return b->trace ? "recorded" : ig_bench_arrivals_name(b->arrivals);
}

static bool write_json(const struct bench *b, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, "url", b->e.url);
	ig_json_put_text(&w, "model", b->model_name);
	ig_json_put_text(&w, "over", b->transport->name);
	ig_json_put_text(&w, "arrivals", arrivals_of(b));
	ig_json_put_uint(&w, "seed", b->seed);
	ig_json_putf(&w, "'slo': {'ttft_ms': %.6g, 'inter_token_ms': %.6g}",
		     b->slo.first_ms > 0 ? b->slo.first_ms : NAN,
		     b->slo.token_ms > 0 ? b->slo.token_ms : NAN);
	ig_json_open_array(&w, "runs");
	for (size_t i = 0; i < b->n_runs; i++)
		ig_bench_summary_json(&b->runs[i], &w);
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	ig_strbuf_puts(out, "\n");
	return ig_strbuf_ok(out);
}

static void write_notes(const struct bench *b, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, "%s over %s, %s arrivals, seed %llu\n", b->model_name,
			 b->transport->name, arrivals_of(b), (unsigned long long)b->seed);
	for (size_t i = 0; i < b->n_runs; i++) {
		const struct ig_bench_summary *s = &b->runs[i];
		ig_strbuf_printf(out, "%.2f/s: ", s->offered);
		if (s->n_of[IG_BENCH_OK])
			ig_strbuf_printf(out,
					 "prompts of %.1f tokens (%.1f cached), outputs of %.1f\n",
					 s->n_input, s->n_cached, s->n_output);
		else
			ig_strbuf_puts(out, "no request was answered\n");
		if (s->error[0])
			ig_strbuf_printf(out, "  %zu of %zu not answered; the first: %s\n",
					 s->n - s->n_of[IG_BENCH_OK], s->n, s->error);
		if (s->late_ms > 5)
			ig_strbuf_printf(out,
					 "  1 %% of the requests were sent more than %.1f ms late, "
					 "which their latencies include: this client is too slow\n",
					 s->late_ms);
	}
}

static bool write_text(const struct bench *b, struct ig_strbuf *out)
{
	struct ig_table t;

	ig_bench_table_init(&t);
	for (size_t i = 0; i < b->n_runs; i++)
		ig_bench_table_add(&t, &b->runs[i]);
	bool ok = ig_table_write(&t, out);
	ig_table_finish(&t);
	write_notes(b, out);
	return ok && ig_strbuf_ok(out);
}

static int write_svg(const struct bench *b, FILE *f)
{
	struct ig_strbuf out = { 0 }, title = { 0 };
	int rc = 0;

	ig_strbuf_printf(&title, "%s over %s, %s arrivals", b->model_name, b->transport->name,
			 arrivals_of(b));
	if (!ig_strbuf_ok(&title) ||
	    !ig_bench_plot(b->runs, b->n_runs, &b->slo, ig_strbuf_text(&title), &out))
		rc = ig_complain("out of memory");
	else if (fwrite(out.data, 1, out.len, f) != out.len || fflush(f))
		rc = ig_complain("--svg %.300s: %s", b->svg, strerror(errno));
	ig_strbuf_finish(&out);
	ig_strbuf_finish(&title);
	return rc;
}

/* The exit status. */
static int report(const struct bench *b, FILE *svg)
{
	struct ig_strbuf out = { 0 };
	int status = IG_EXIT_OK;

	if (!b->n_runs)
		return IG_EXIT_FAILED;
	if (!(b->json ? write_json(b, &out) : write_text(b, &out)))
		status = ig_complain("out of memory");
	else if (ig_print_text(out.data, out.len, true))
		status = IG_EXIT_FAILED;
	ig_strbuf_finish(&out);
	if (svg && write_svg(b, svg))
		status = IG_EXIT_FAILED;
	for (size_t i = 0; i < b->n_runs; i++)
		if (!b->runs[i].n_of[IG_BENCH_OK])
			status = IG_EXIT_FAILED;
	return status;
}

/* ---- start --------------------------------------------------------------------------- */

static int find_model(struct bench *b, struct ig_error *err)
{
	json_t *list = b->model ? NULL : ig_served_list(&b->e, err);
	const char *name = b->model;

	if (!b->model && !list)
		return err->code;
	for (size_t i = 0; !name && i < json_array_size(list); i++)
		if (ig_served_chats(json_array_get(list, i)))
			name = ig_served_name(list, i);
	if (name)
		snprintf(b->model_name, sizeof b->model_name, "%s", name);
	json_decref(list);
	return name ? 0 : ig_fail(err, -ENOENT, "it serves no model that generates text");
}

static int run_all(struct bench *b, struct ig_error *err)
{
	unsigned char random[4] = { 0 };
	struct ig_bench_load l;
	uint32_t longest = 0;
	int rc = 0;

	if (!b->has_seed) {
		rc = ig_random_bytes(random, sizeof random);
		b->seed = (uint64_t)random[0] | (uint64_t)random[1] << 8 |
			  (uint64_t)random[2] << 16 | (uint64_t)random[3] << 24;
	}
	if (!rc && b->trace)
		rc = ig_read_file(b->trace, MAX_TRACE, &b->trace_text, err);
	if (rc)
		return rc;
	b->scale = (struct ig_bench_scale){ 0, 1 }; /* until it is measured */
	rc = make_load(b, 0, &l, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < l.n; i++)
		longest = l.requests[i].n_input > longest ? l.requests[i].n_input : longest;
	ig_bench_load_finish(&l);
	rc = find_model(b, err);
	if (!rc)
		rc = b->transport->open(&b->e, &b->wire, err);
	if (!rc)
		rc = measure_words(b, longest, err);
	for (size_t i = 0; !rc && !ig_interrupted && i < b->n_rates; i++)
		rc = run(b, i, err);
	b->transport->close(b->wire);
	return rc;
}

int ig_bench_main(int argc, char **argv)
{
	static struct bench b;
	b = (struct bench){ .over = "http",
			    .n_requests = 100,
			    .n_burst = 8,
			    .n_input = 256,
			    .n_output = 64,
			    .n_warmup = 2,
			    .timeout_s = 600 };
	const struct ig_option opts[] = {
		IG_TEXT("model", 'm', &b.model, "NAME", "the model (default: the first served)"),
		IG_TEXT("rate", 'r', &b.rate_list, "LIST",
			"requests a second, or several rates with commas: a run each (default 1; of "
			"a trace: its own)"),
		IG_OPTION("requests", 'n', IG_OPT_INT, &b.n_requests, &b.has_requests, "N",
			  "requests of a run (default 100; of a trace: all)", 1,
			  IG_BENCH_MAX_REQUESTS),
		IG_OPTION("duration", 0, IG_OPT_DURATION, &b.duration_s, &b.has_duration, "SPAN",
			  "instead: the time in which requests arrive, 30s or 5m"),
		IG_TEXT("arrivals", 0, &b.arrivals_name, "NAME",
			"poisson (default), even or bursts"),
		IG_OPTION("burst", 0, IG_OPT_INT, &b.n_burst, &b.has_burst, "N",
			  "requests that arrive together in bursts (default 8)", 1,
			  IG_BENCH_MAX_REQUESTS),
		IG_TEXT("trace", 0, &b.trace, "FILE",
			"requests from a trace, a JSON object a line as Mooncake's"),
		IG_OPTION("input-tokens", 0, IG_OPT_INT, &b.n_input, &b.has_input, "N",
			  "tokens of a prompt (default 256)", 1, IG_BENCH_MAX_TOKENS),
		IG_OPTION("output-tokens", 0, IG_OPT_INT, &b.n_output, &b.has_output, "N",
			  "tokens of an output (default 64)", 1, IG_BENCH_MAX_TOKENS),
		IG_OPTION("shared-tokens", 0, IG_OPT_INT, &b.n_shared, NULL, "N",
			  "tokens with which all prompts begin (default 0)", 0,
			  IG_BENCH_MAX_TOKENS),
		IG_OPTION("seed", 0, IG_OPT_U64, &b.seed, &b.has_seed, "S",
			  "of arrivals and prompts (default: another one each time)"),
		IG_OPTION("slo-ttft", 0, IG_OPT_NUMBER, &b.slo.first_ms, NULL, "MS",
			  "a good request has its first token after at most MS", 0, 1e9),
		IG_OPTION("slo-itl", 0, IG_OPT_NUMBER, &b.slo.token_ms, NULL, "MS",
			  "and on average at most MS between two tokens", 0, 1e9),
		IG_TEXT("over", 0, &b.over, "PROTOCOL",
			"http (chat completions, the default) or websocket (responses)"),
		IG_OPTION("warmup", 0, IG_OPT_INT, &b.n_warmup, NULL, "N",
			  "requests before each run that do not count (default 2)", 0, 1000),
		IG_OPTION("timeout", 0, IG_OPT_DURATION, &b.timeout_s, NULL, "SPAN",
			  "a request is cancelled, and counted, so long after its arrival (default "
			  "10m)"),
		IG_TEXT("svg", 0, &b.svg, "FILE", "draw goodput and latencies by load"),
		IG_FLAG("json", 0, &b.json, "print JSON"),
		IG_WHERE_OPTIONS(&b.where),
		{ 0 },
	};
	struct ig_error err = { 0 };
	FILE *svg = NULL;
	int status = ig_command_start(
		"bench [options]",
		"Send requests when they are due, whether or not earlier ones are answered, and "
		"print\nthroughput, goodput and latencies for each rate.",
		opts, argc, argv, NULL);

	if (status < 0)
		status = check_options(&b);
	if (status >= 0)
		return status;
	if (b.timeout_s == 0) /* "all" */
		b.timeout_s = INT32_MAX;
	ig_catch_interrupts();
	if (ig_endpoint_open(&b.where, &b.e, &err))
		return ig_complain("%s", err.text);
	if (b.svg && !(svg = fopen(b.svg, "we")))
		return ig_complain("--svg %.300s: %s", b.svg, strerror(errno));
	int rc = run_all(&b, &err);
	if (rc && rc != -EINTR)
		ig_complain("bench: %s", err.text);
	status = rc && !b.n_runs ? IG_EXIT_FAILED : report(&b, svg);
	if (svg)
		fclose(svg);
	ig_strbuf_finish(&b.trace_text);
	return ig_interrupted ? IG_EXIT_INTERRUPTED : rc ? IG_EXIT_FAILED : status;
}
