/*
 * overhead.h: what the engine does for a step outside the driver, timed over the fake runtime, whose
 * driver computes nothing: for bench/overhead.c and for a test.  A thread reads the streams like the
 * daemon's loop does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct overhead_case {
	uint32_t n_streams; /* that run */
	uint32_t n_waiting;
	uint32_t n_clients; /* of those that wait; with several each stream has one of its own */
	bool priorities, deadlines;	   /* of those that wait: many different ones */
	bool grammar, logprobs, penalties; /* of those that run */
	int32_t n_prompt;		   /* tokens, of all */
};

/* Microseconds of the engine's thread per step: of the processor, and by the clock. */
struct overhead {
	double cpu_us, wall_us;
};

/* A new engine with these requests, once all of its streams decode.  One at a time. */
void overhead_begin(const struct overhead_case *c);
/* The mean of n steps; in all at most OVERHEAD_STEPS. */
struct overhead overhead_measure(int n);
void overhead_end(void);

#define OVERHEAD_STEPS 2000
