/* clock.h: the two clocks, in nanoseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

/* Since some fixed moment; for durations. */
static inline int64_t ig_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Since 1970, for people and the ledger. */
static inline int64_t ig_wall_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
