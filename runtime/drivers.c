/*
 * drivers.c: the drivers of an executable.  The build compiles it with IG_HAVE_METAL, IG_HAVE_CUDA
 * or neither.  An executable with another table (a test with the software device) links its own
 * object of this file.
 */
#include "runtime/driver_private.h"

#if defined(IG_HAVE_METAL) || defined(IG_HAVE_CUDA)
#include "runtime/gpu/gpu.h"
#endif

#ifdef IG_HAVE_METAL
IG_GPU_DRIVER(metal);
#endif
#ifdef IG_HAVE_CUDA
IG_GPU_DRIVER(cuda);
#endif

const struct ig_driver_class *const ig_driver_classes[] = {
#ifdef IG_HAVE_METAL
	&ig_driver_metal,
#endif
#ifdef IG_HAVE_CUDA
	&ig_driver_cuda,
#endif
	&ig_driver_cpu,
	NULL,
};
