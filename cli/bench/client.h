/* client.h: sends a load's requests when they are due, whether or not earlier ones are answered, and
 * writes down when what came.  One thread; the connections are those of a transport. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "cli/net/endpoint.h"

enum ig_bench_outcome {
	IG_BENCH_PENDING,
	IG_BENCH_OK,
	IG_BENCH_REFUSED,   /* 429 or 503: the server has no place for it */
	IG_BENCH_FAILED,    /* any other error, or a stream that broke off */
	IG_BENCH_TIMED_OUT, /* cancelled by us after timeout_ms */
	IG_BENCH_CANCELLED, /* Ctrl-C, also before it was sent */
	IG_N_BENCH_OUTCOMES,
};

struct ig_bench_sample {
	double at_s; /* when it is due, after the run's start */
	enum ig_bench_outcome outcome;
	int64_t due_ns, sent_ns;   /* ig_now_ns; 0: not yet */
	int64_t first_ns, last_ns; /* events with text */
	int64_t ended_ns;
	int64_t n_input, n_cached, n_output; /* the server's counts; -1: unknown */
	float *gaps_ms;			     /* between two events with text */
	size_t n_gaps, cap_gaps;
	char error[200];
};

/* An event with text came now. */
void ig_bench_token(struct ig_bench_sample *s, int64_t now_ns);
/* The request has ended; a format for error, which may be NULL.  Later calls do nothing. */
__attribute__((format(printf, 3, 4))) void
ig_bench_end(struct ig_bench_sample *s, enum ig_bench_outcome outcome, const char *fmt, ...);

struct ig_bench_wire; /* a transport's connections */

struct ig_bench_transport {
	const char *name; /* the option's value */
	int (*open)(const struct ig_endpoint *e, struct ig_bench_wire **out, struct ig_error *err);
	/* Append the body of a request. */
	void (*write)(const char *model, const char *prompt, size_t len, uint32_t n_output,
		      struct ig_strbuf *out);
	/* Send it; the sample is the request's until it has ended.  -ENOMEM with text. */
	int (*send)(struct ig_bench_wire *w, const struct ig_strbuf *body,
		    struct ig_bench_sample *s, struct ig_error *err);
	/* Process what has come; wait for more for at most timeout_ms. */
	int (*step)(struct ig_bench_wire *w, int timeout_ms, struct ig_error *err);
	/* End a request that runs. */
	void (*cancel)(struct ig_bench_wire *w, struct ig_bench_sample *s);
	void (*close)(struct ig_bench_wire *w); /* NULL is fine */
};

extern const struct ig_bench_transport ig_bench_http, ig_bench_websocket;

/* Send body i to n samples[i], at at_s after now; return when all have ended.  timeout_ms of a
 * request: from when it is due.  When ig_interrupted is set, all others are cancelled. */
int ig_bench_drive(const struct ig_bench_transport *t, struct ig_bench_wire *w,
		   const struct ig_strbuf *bodies, struct ig_bench_sample *samples, size_t n,
		   int64_t timeout_ms, struct ig_error *err);
void ig_bench_samples_free(struct ig_bench_sample *samples, size_t n);
