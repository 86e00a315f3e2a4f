/* load.h: what a benchmark asks: when each request arrives, how long its prompt and its output are,
 * and the words of the prompt.  A load is a function of its options and seed.  Uses no socket. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

enum ig_bench_arrivals { IG_BENCH_POISSON, IG_BENCH_EVEN, IG_BENCH_BURSTS, IG_N_BENCH_ARRIVALS };
/* "poisson", "even", "bursts" */
const char *ig_bench_arrivals_name(enum ig_bench_arrivals a);

#define IG_BENCH_MAX_REQUESTS 1000000
#define IG_BENCH_MAX_TOKENS 10000000 /* of a prompt, and of an output */
/* Tokens of a prompt for each of hash_ids: Mooncake's traces are cut so. */
#define IG_BENCH_BLOCK 512

struct ig_bench_request {
	double at_s;		      /* after the run's start */
	uint32_t n_input, n_output;   /* tokens */
	uint64_t words;		      /* which sequence of words the prompt is a prefix of */
	size_t first_block, n_blocks; /* in the load's blocks: the sequences of its first blocks */
};

struct ig_bench_load {
	struct ig_bench_request *requests; /* ascending in at_s */
	size_t n;
	uint64_t *blocks;
	size_t n_blocks;
	uint64_t seed;
	uint32_t n_shared; /* tokens with which all prompts begin */
};

/* n requests in exactly n / rate seconds.  Poisson: gaps are exponential, scaled to that sum; even:
 * each gap is 1 / rate; bursts: groups of n_burst arrive together, and groups are Poisson.
 * -ENOMEM with text. */
int ig_bench_load_make(enum ig_bench_arrivals a, double rate, size_t n, size_t n_burst,
		       uint32_t n_input, uint32_t n_output, uint64_t seed,
		       struct ig_bench_load *out, struct ig_error *err);
/* From the lines of a trace (ingot(1), bench); name is for messages.  rate > 0 stretches it to that
 * average; max_requests 0: all.  -EINVAL with the line, or -ENOMEM. */
int ig_bench_load_read(const char *name, const char *text, size_t len, double rate,
		       size_t max_requests, uint64_t seed, struct ig_bench_load *out,
		       struct ig_error *err);
void ig_bench_load_finish(struct ig_bench_load *l);

/* Requests a second, from the first arrival to one average gap after the last. */
double ig_bench_load_rate(const struct ig_bench_load *l);

/* How a server counts: a prompt of w words has fixed + w * per_word tokens. */
struct ig_bench_scale {
	double fixed, per_word;
};
/* Append the prompt of a request.  False without memory. */
bool ig_bench_prompt(const struct ig_bench_load *l, const struct ig_bench_request *r,
		     const struct ig_bench_scale *scale, struct ig_strbuf *out);
/* Append n words of a sequence that no load has: warm-up and probes. */
bool ig_bench_words(uint64_t seed, uint64_t sequence, size_t n, struct ig_strbuf *out);
