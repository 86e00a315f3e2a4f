/* nccl.c: see nccl.h. */
#include "runtime/cuda/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

const char *ig_nccl_name = "libnccl.so.2";

int ig_nccl_open(struct ig_nccl *n, struct ig_error *err)
{
	memset(n, 0, sizeof *n);
	n->handle = dlopen(ig_nccl_name, RTLD_NOW | RTLD_LOCAL);
	if (!n->handle) {
		const char *why = dlerror();
		return ig_fail(err, -ENOTSUP,
			       "cuda: several devices need NVIDIA's library NCCL (%s)",
			       why ? why : ig_nccl_name);
	}
	/* POSIX: a function's address is stored through an object pointer. */
#define FIND(type, field, name, args) *(void **)(&n->field) = dlsym(n->handle, #name);
	NCCL_FUNCTIONS(FIND)
#undef FIND
#define LACKS(type, field, name, args)                                                             \
	if (!n->field) {                                                                           \
		ig_nccl_close(n);                                                                  \
		return ig_fail(err, -ENOTSUP, "cuda: %s has no %s", ig_nccl_name, #name);          \
	}
	NCCL_FUNCTIONS(LACKS)
#undef LACKS
	return 0;
}

void ig_nccl_close(struct ig_nccl *n)
{
	if (n->handle)
		dlclose(n->handle);
	memset(n, 0, sizeof *n);
}
