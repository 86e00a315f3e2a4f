/*
 * kernels.c: times every cpu kernel of the core ops on the large cases of the table of their tests
 * (tests/ops/cases.h): one thread, warm caches, the best of ROUNDS rounds.
 *
 *   ninja tests/ops/bench-kernels, then ./bench-kernels [part of a case's name]
 */
#include "base/clock.h"
#include "ops/ops.h"
#include "tests/ops/cases.h"

#include <string.h>

#define ROUNDS 5
#define ROUND_NS 20000000 /* long enough for the clock, short enough to escape other load */

/* Nanoseconds of one run, the minimum of all rounds. */
static double time_kernel(struct ig_case_data *d, const struct ig_cpu_kernel *k)
{
	double best = 1e30;
	int n = 1;

	for (int round = 0; round < ROUNDS;) {
		int64_t began = ig_now_ns();
		ig_case_time(d, k, n);
		int64_t took = ig_now_ns() - began;
		if (took < ROUND_NS && n < 1 << 20) {
			n *= 2;
			continue;
		}
		if ((double)took / n < best)
			best = (double)took / n;
		round++;
	}
	return best;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < ig_n_cases; i++) {
		const struct ig_case *c = &ig_cases[i];
		if (!c->bench)
			continue;
		struct ig_case_data *d = ig_case_open(c);
		const struct ig_op *op = ig_case_op(d);
		for (uint32_t j = 0; j < op->n_cpu_kernels; j++) {
			const struct ig_cpu_kernel *k = &op->cpu_kernels[j];
			const char *name = ig_case_name(c, k);
			if (!ig_case_fits(c, k) || (argc > 1 && !strstr(name, argv[1])))
				continue;
			double ns = time_kernel(d, k);
			printf("%-78s %10.1f us %8.1f GB/s %8.1f GMAC/s\n", name, ns / 1e3,
			       (double)ig_case_weight_bytes(c) / ns, (double)ig_case_macs(c) / ns);
		}
		ig_case_close(d);
	}
	return 0;
}
