// portable.h: what Apple's compiler and clang's OpenCL mode write differently.  Every
// shader includes it after <metal_stdlib>; shaders write these idioms and no other
// #ifdef (tile.h, which has two machines behind it, is the exception).
#pragma once

// instantiate_kernel("name", function, template arguments...): gives one instance of a
// kernel template the name under which the host finds it.  Stands at file scope; it may
// come out of a macro, and the name may be several literals in a row.
#if defined(__METAL_VERSION__)
#define instantiate_kernel(name, function, ...)                                                    \
	template [[host_name(                                                                      \
		name)]] [[kernel]] decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;
#elif defined(MSL_SCAN) // tools/msl/entry.py reads the line itself
#elif defined(MSL_STRICT)
#define instantiate_kernel(name, function, ...)                                                    \
	template decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;
#else
#define instantiate_kernel(name, function, ...)
#endif

// begins_early(function): on NVIDIA this kernel begins while the one before it is running; it calls
// nv_wait_for_previous() before it reads what that one writes, or writes what it reads.  All others
// begin with that.
#ifndef MSL_SCAN
#define begins_early(function)
#endif

// to<vec<T, 4>>(x): converts a vector or scalar where the target type depends on a
// template argument.  Where it does not, write float4(x).
#if defined(__METAL_VERSION__)
template <typename To, typename From> METAL_FUNC To to(From from) { return To(from); }
#elif !defined(MSL_SCAN)
template <typename To, typename From> METAL_FUNC To to(From from)
{
	return metal::msl_make<To>(from);
}
#endif

// tensor_product<M, N, K>: a simdgroup's product of M rows by N on the GPU's tensor units (Metal 4), whose right operand
// has a row for each of the N columns, and which adds to its destination.
#ifdef TILE_TENSOR
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#if defined(__METAL_VERSION__)
template <int M, int N, int K>
using tensor_product = mpp::tensor_ops::matmul2d<
	mpp::tensor_ops::matmul2d_descriptor(
		M, N, K, false, true, false,
		mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate),
	metal::execution_simdgroup>;
#elif !defined(MSL_SCAN)
template <int M, int N, int K>
using tensor_product = metal::msl_matmul2d<M, N, K, metal::execution_simdgroup>;
#endif
#endif

// UNROLL before a loop over registers: arrays that such loops index must not end up in
// memory, which compilers do without a word.  On the software device all lies in memory, and
// unrolled loops make its code four times as large.
#ifdef MSL_SOFT
#define UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif
