/* fake_libnccl.c: a double of libnccl that remembers what it is asked; see fake_libnccl.h. */
#include "fake_libnccl.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define FUNCTION(type, name, ...)                                                                  \
	EXPORT type name(__VA_ARGS__);                                                             \
	type name(__VA_ARGS__)

struct ncclComm {
	int rank;
};

EXPORT extern struct fake_nccl fake_nccl;
struct fake_nccl fake_nccl;
static struct ncclComm comms[8];

static ncclResult result(const char *name)
{
	return fake_nccl.fail && !strcmp(fake_nccl.fail, name) ? 5 : 0;
}

static ncclResult sent(const char *name, enum fake_nccl_kind kind, const void *from, void *to,
		       size_t n, int type, int root, ncclComm c)
{
	struct fake_nccl_call *call = &fake_nccl.calls[fake_nccl.n_calls++ % FAKE_NCCL_CALLS];

	*call = (struct fake_nccl_call){ kind, c->rank, root, from, to, n, fake_nccl.depth > 0 };
	return type == NCCL_FLOAT32 ? result(name) : 4;
}

FUNCTION(ncclResult, ncclGetVersion, int *version)
{
	*version = 22809;
	return result("ncclGetVersion");
}

FUNCTION(ncclResult, ncclCommInitAll, ncclComm *out, int n, const int *devices)
{
	if (result("ncclCommInitAll"))
		return result("ncclCommInitAll");
	for (int i = 0; i < n; i++) {
		comms[i].rank = i;
		out[i] = &comms[i];
		fake_nccl.devices[i] = devices[i];
	}
	fake_nccl.n_comms += n;
	return 0;
}

FUNCTION(ncclResult, ncclAllReduce, const void *from, void *to, size_t n, int type, int op,
	 ncclComm c, CUstream s)
{
	return sent("ncclAllReduce", FAKE_NCCL_SUM, from, to, n, type, op, c);
}

FUNCTION(ncclResult, ncclBroadcast, const void *from, void *to, size_t n, int type, int root,
	 ncclComm c, CUstream s)
{
	return sent("ncclBroadcast", FAKE_NCCL_BROADCAST, from, to, n, type, root, c);
}

FUNCTION(ncclResult, ncclGroupStart, void)
{
	fake_nccl.depth++;
	return 0;
}

FUNCTION(ncclResult, ncclGroupEnd, void)
{
	fake_nccl.depth--;
	return result("ncclGroupEnd");
}

FUNCTION(ncclResult, ncclCommAbort, ncclComm c)
{
	fake_nccl.n_comms--;
	fake_nccl.n_aborts++;
	return 0;
}

FUNCTION(ncclResult, ncclCommDestroy, ncclComm c)
{
	fake_nccl.n_comms--;
	return 0;
}

FUNCTION(const char *, ncclGetErrorString, ncclResult r)
{
	return r == 5 ? "invalid usage" : "another error";
}

FUNCTION(const char *, ncclGetLastError, ncclComm c)
{
	return "the fake was told to fail";
}
