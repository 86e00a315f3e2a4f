/* libcuda.c: see libcuda.h. */
#include "runtime/cuda/libcuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

const char *ig_libcuda_name = "libcuda.so.1";

int ig_libcuda_open(struct ig_libcuda *cu, struct ig_error *err)
{
	memset(cu, 0, sizeof *cu);
	cu->handle = dlopen(ig_libcuda_name, RTLD_NOW | RTLD_LOCAL);
	if (!cu->handle) {
		const char *why = dlerror();
		return ig_fail(err, -ENOTSUP, "cuda: no NVIDIA driver here (%s)",
			       why ? why : ig_libcuda_name);
	}
	/* POSIX: a function's address is stored through an object pointer. */
#define FIND(field, name, args) *(void **)(&cu->field) = dlsym(cu->handle, #name);
	CUDA_FUNCTIONS(FIND)
	CUDA_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
#define LACKS(field, name, args)                                                                   \
	if (!cu->field) {                                                                          \
		ig_libcuda_close(cu);                                                              \
		return ig_fail(err, -ENOTSUP,                                                      \
			       "cuda: %s has no %s: the NVIDIA driver is older "                   \
			       "than CUDA 12",                                                     \
			       ig_libcuda_name, #name);                                            \
	}
	CUDA_FUNCTIONS(LACKS)
#undef LACKS
	return 0;
}

void ig_libcuda_close(struct ig_libcuda *cu)
{
	if (cu->handle)
		dlclose(cu->handle);
	memset(cu, 0, sizeof *cu);
}

/* Errors after which the context cannot be used any more. */
static int is_sticky(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_UNKNOWN: return 1;
	default: /* stack, instruction, alignment, address space, program counter, launch */
		return r >= CUDA_ERROR_HARDWARE_STACK_ERROR && r <= CUDA_ERROR_LAUNCH_FAILED;
	}
}

int ig_libcuda_check(const struct ig_libcuda *cu, CUresult r, const char *what,
		     struct ig_error *err)
{
	const char *name = NULL, *text = NULL;
	int code = -EIO;

	if (r == CUDA_SUCCESS)
		return 0;
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		code = -ENOMEM;
	else if (r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
		code = -ENOTSUP;
	else if (is_sticky(r))
		code = -ENODEV;
	if (cu->error_name(r, &name) || !name)
		name = "an error without a name";
	if (cu->error_string(r, &text) || !text)
		text = "no explanation";
	return ig_fail(err, code, "cuda: %s: %s (%d): %s", what, name, r, text);
}
