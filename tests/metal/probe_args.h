/* probe_args.h: what the kernels of probe.metal are told, for C and Metal. */
#ifndef PROBE_ARGS_H
#define PROBE_ARGS_H

#include "shared_types.h"

struct probe_args {
	uint n; /* elements */
	float a;
	uint slab;  /* far: which of the step's */
	uint flags; /* PROBE_… */
};
SHARED_SIZE(probe_args, 16);
#define PROBE_OUTSIDE 1u /* reads behind the end of x */

/* The probes' step: a number, then addresses. */
struct probe_step {
	uint value;
	uint slot;
	ulong slab[4];
};
SHARED_SIZE(probe_step, 40);

#endif
