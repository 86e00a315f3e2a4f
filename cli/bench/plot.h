/* plot.h: the runs of a benchmark as an SVG picture. */
#pragma once

#include "cli/bench/summary.h"

/* Goodput by offered load, time to first token and time between tokens (p50, p95, p99), one below
 * the other; title is a line of plain text.  False without memory. */
bool ig_bench_plot(const struct ig_bench_summary *runs, size_t n, const struct ig_bench_slo *slo,
		   const char *title, struct ig_strbuf *out);
