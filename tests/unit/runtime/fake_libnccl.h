/* fake_libnccl.h: what a test sets and reads of the double of libnccl (fake_libnccl.c). */
#pragma once

#include "runtime/cuda/nccl.h"

#include <stdbool.h>

#define FAKE_NCCL_CALLS 256

enum fake_nccl_kind { FAKE_NCCL_SUM, FAKE_NCCL_BROADCAST };

struct fake_nccl_call {
	enum fake_nccl_kind kind;
	int rank, root;
	const void *from;
	void *to;
	size_t n;
	bool grouped;
};

struct fake_nccl {
	const char *fail; /* the function that fails */
	int depth;	  /* of groups */
	int n_comms;	  /* alive */
	int n_aborts;
	int devices[8];
	int n_calls;
	struct fake_nccl_call calls[FAKE_NCCL_CALLS];
};
