// msl.h: the part of Metal's standard library that Ingot's shaders may use, for clang's
// "C++ for OpenCL 2021" mode, whose address spaces are Metal's.  It has nothing that
// the Metal Shading Language 3.1 lacks, so Apple's compiler knows every name that passes here.
// Names that begin with msl_, nv_ or soft_ are ours and not for shaders.
//
// One of these is defined:
//   MSL_SCAN     only the preprocessor runs: entry.py searches for kernels
//   MSL_STRICT   the front end's check (strict.py)
//   MSL_SOFT     the software Metal device, tests/metal/soft; SOFT_CHECKED with it
//   MSL_NV       PTX; NV_WGMMA with it where the target has warpgroup products
#ifndef MSL_H
#define MSL_H
#ifdef MSL_SCAN

#define METAL_FUNC

#else

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

/* On the software device clang decides what to inline: its code is smaller by a third, is compiled in two thirds of the time,
 * and is as fast. */
#ifdef MSL_SOFT
#define METAL_FUNC inline
#else
#define METAL_FUNC inline __attribute__((__always_inline__))
#endif

#ifdef MSL_STRICT
#define kernel
#else
#define kernel METAL_FUNC // inlined into the entry point that entry.py writes
#endif
#define device __global
#define threadgroup __local
#define thread __private
#ifdef MSL_STRICT
#define constant __constant
#else
#define constant const // argument structs are in parameters, tables in plain memory
#endif

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_2_PI_F 0.63661977236758134308f
#define M_LN2_F 0.69314718055994530942f
#define M_LOG2E_F 1.44269504088896340736f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

#include "msl_types.h"

namespace metal
{

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
METAL_FUNC mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }

#if defined(MSL_NV)
#include "msl_nv.h"
#elif defined(MSL_SOFT)
#include "msl_soft.h"
#elif defined(MSL_STRICT)
#include "msl_strict.h"
#else
#error "define MSL_SCAN, MSL_STRICT, MSL_SOFT or MSL_NV: use tools/msl/msl"
#endif

#include "msl_math.h"
#include "msl_simd.h"
#ifndef MSL_NV // tile.h uses tensor cores directly
#include "msl_matrix.h"
#endif

// A kernel's position arguments, for the entry points that entry.py writes.
template <typename T> METAL_FUNC T msl_place(uint x, uint y, uint z)
{
	typedef typename msl_shape<T>::element element;
	T v;
	if constexpr (msl_shape<T>::size == 1) {
		v = (T)x;
	} else {
		v[0] = (element)x;
		v[1] = (element)y;
		if constexpr (msl_shape<T>::size == 3)
			v[2] = (element)z;
	}
	return v;
}

} // namespace metal

#define atomic_uint metal::atomic<uint> // macros, because OpenCL's names are built in
#define atomic_int metal::atomic<int>
#define atomic_float metal::atomic<float>

#endif
#endif
