/*
 * nccl.h: the functions of NVIDIA's collectives library that Ingot calls, looked up in libnccl.so.2 when
 * several devices are opened.  Types and numbers are those of its stable binary interface.
 */
#pragma once

#include "runtime/cuda/libcuda.h"

typedef int ncclResult; /* 0: ok */
typedef struct ncclComm *ncclComm;

enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

/* X(return type, our name, the library's name, arguments) */
#define NCCL_FUNCTIONS(X)                                                                          \
	X(ncclResult, version, ncclGetVersion, (int *version))                                     \
	X(ncclResult, init_all, ncclCommInitAll, (ncclComm * comms, int n, const int *devices))    \
	X(ncclResult, all_reduce, ncclAllReduce,                                                   \
	  (const void *from, void *to, size_t n, int type, int op, ncclComm c, CUstream s))        \
	X(ncclResult, broadcast, ncclBroadcast,                                                    \
	  (const void *from, void *to, size_t n, int type, int root, ncclComm c, CUstream s))      \
	X(ncclResult, group_start, ncclGroupStart, (void))                                         \
	X(ncclResult, group_end, ncclGroupEnd, (void))                                             \
	X(ncclResult, abort, ncclCommAbort, (ncclComm c))                                          \
	X(ncclResult, destroy, ncclCommDestroy, (ncclComm c))                                      \
	X(const char *, error_string, ncclGetErrorString, (ncclResult r))                          \
	X(const char *, last_error, ncclGetLastError, (ncclComm c))

struct ig_nccl {
	void *handle;
#define NCCL_FIELD(type, field, name, args) type(*field) args;
	NCCL_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
};

/* The library to open, "libnccl.so.2"; tests set their own double. */
extern const char *ig_nccl_name;

/* -ENOTSUP with text if there is no library, or if it lacks a function. */
int ig_nccl_open(struct ig_nccl *n, struct ig_error *err);
void ig_nccl_close(struct ig_nccl *n); /* zeros are fine */
