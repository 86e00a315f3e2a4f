/*
 * overhead.c: what a step costs beside its kernels: scheduling, sampling parameters, detokenizing,
 * streams, on the engine's thread, with a driver that computes nothing.
 *
 *   ingot-bench-overhead [--rounds N] [--prompt N] [--streams N[,N...]]
 *
 * For each number of streams: alone, with 1,000 requests that wait, of one client and of many, and with
 * grammars, logprobs and penalties; microseconds per step, the median of the rounds and the least and
 * the most of them, of the processor (which other programs do not count in) and by the clock.  The
 * grammar is a trivial one (ingot-bench-grammar times real ones); logprobs are of 4,000 logits a row.
 */
#include "overhead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_WAITING 1000
#define MAX_ROUNDS 19
#define STEPS (OVERHEAD_STEPS / MAX_ROUNDS)

static const struct {
	const char *name;
	struct overhead_case what;
} cases[] = {
	{ "streams alone", { 0 } },
	{ "1,000 wait, of one client", { .n_waiting = N_WAITING, .n_clients = 1 } },
	{ "1,000 wait, of 1,000 clients", { .n_waiting = N_WAITING, .n_clients = N_WAITING } },
	{ "the same with priorities",
	  { .n_waiting = N_WAITING, .n_clients = N_WAITING, .priorities = true } },
	{ "the same with deadlines",
	  { .n_waiting = N_WAITING, .n_clients = N_WAITING, .deadlines = true } },
	{ "one client, with priorities and deadlines",
	  { .n_waiting = N_WAITING, .n_clients = 1, .priorities = true, .deadlines = true } },
	{ "grammars", { .grammar = true } },
	{ "penalties", { .penalties = true } },
	{ "logprobs", { .logprobs = true } },
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, by_value);
	printf("  %8.1f (%6.1f – %6.1f)", values[n / 2], values[0], values[n - 1]);
}

static void run(const char *name, const struct overhead_case *c, int n_rounds)
{
	double cpu[MAX_ROUNDS], wall[MAX_ROUNDS];

	overhead_begin(c);
	for (int i = 0; i < n_rounds; i++) {
		struct overhead r = overhead_measure(STEPS);
		cpu[i] = r.cpu_us;
		wall[i] = r.wall_us;
	}
	overhead_end();
	printf("%7u  %-42s", c->n_streams, name);
	print(cpu, n_rounds);
	print(wall, n_rounds);
	printf("\n");
	fflush(stdout);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: ingot-bench-overhead [--rounds N] [--prompt N] [--streams N[,N...]]\n"
		"  rounds at most %d, prompt at most 100000 tokens, streams at most 2048\n",
		MAX_ROUNDS);
	return 2;
}

static bool read_number(const char **text, long most, long *out)
{
	char *end;

	*out = strtol(*text, &end, 10);
	if (end == *text || *out < 1 || *out > most)
		return false;
	*text = end;
	return true;
}

int main(int argc, char **argv)
{
	const char *streams = "1,16,64,256", *text;
	long n_rounds = 9, n_prompt = 1000, n;

	for (int i = 1; i < argc; i += 2) {
		text = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "--streams"))
			streams = text;
		else if (!(!strcmp(argv[i], "--rounds") &&
			   read_number(&text, MAX_ROUNDS, &n_rounds)) &&
			 !(!strcmp(argv[i], "--prompt") && read_number(&text, 100000, &n_prompt)))
			return usage();
	}
	printf("streams  %-42s  %-27s  %s\n", "", "processor, us per step", "clock, us per step");
	for (text = streams; *text; text += *text == ',') {
		if (!read_number(&text, 2048, &n) || (*text && *text != ','))
			return usage();
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			struct overhead_case c = cases[i].what;
			c.n_streams = (uint32_t)n;
			c.n_prompt = (int32_t)n_prompt;
			run(cases[i].name, &c, (int)n_rounds);
		}
	}
	return 0;
}
