/* bugs_args.h: what the kernels of the soft device's tests are told, for C and Metal. */
#ifndef BUGS_ARGS_H
#define BUGS_ARGS_H

#include "shared_types.h"

struct bug_args {
	uint n; /* threads, and elements of x and y */
	uint rounds;
};
SHARED_SIZE(bug_args, 8);

#endif
