// fragments.h: 16x16 fragments of a matrix product, each in one simdgroup, and what fills the
// threadgroup memory that they are loaded from.
//
//   fragment<T>     an operand
//   fragment_sum    a float accumulator: a lane has four pairs of adjacent elements of a row
//
// Like tile.h, this file differs between machines: simdgroup matrices on Metal and
// the software device; on NVIDIA tensor cores for half, and for float fused multiply-adds
// out of threadgroup memory, k ascending.  A row of a product does not depend on which
// row of the fragment it is, nor on the other rows, and a product with a row of zeros
// leaves its sums unchanged.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
using namespace metal;

#ifdef MSL_NV

template <typename T> struct fragment;
template <> struct fragment<half> {
	uint r[4];
};
template <> struct fragment<float> {
	threadgroup const float *p;
	uint row, k; // from a row, and from a k, to the next
};
struct fragment_sum {
	float r[8];
};

METAL_FUNC uint fragment_row(int i, uint lane) { return lane / 4 + i % 2 * 8; }
METAL_FUNC uint fragment_column(int i, uint lane) { return lane % 4 * 2 + i / 2 * 8; }

METAL_FUNC float2 fragment_pair(thread fragment_sum &c, int i)
{
	return float2(c.r[2 * i], c.r[2 * i + 1]);
}
METAL_FUNC void fragment_set(thread fragment_sum &c, int i, float2 v)
{
	c.r[2 * i] = v.x;
	c.r[2 * i + 1] = v.y;
}

// The left operand, p's rows its rows.
METAL_FUNC void fragment_load(thread fragment<half> &t, threadgroup const half *p, uint stride,
			      uint lane)
{
	nv_ldmatrix4(t.r, p + lane % 16 * stride + lane / 16 * 8);
}
// The right operand, p's rows its columns.
METAL_FUNC void fragment_load_columns(thread fragment<half> &t, threadgroup const half *p,
				      uint stride, uint lane)
{
	nv_ldmatrix4(t.r, p + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
}
// The right operand, p's rows its k.
METAL_FUNC void fragment_load_inner(thread fragment<half> &t, threadgroup const half *p,
				    uint stride, uint lane)
{
	nv_ldmatrix4_transposed(t.r, p + (lane % 8 + lane / 8 % 2 * 8) * stride + lane / 16 * 8);
}
METAL_FUNC void fragment_mma(thread fragment_sum &c, thread fragment<half> &a,
			     thread fragment<half> &b, uint)
{
	nv_mma_16x8x16<half>(c.r, a.r, b.r);
	nv_mma_16x8x16<half>(c.r + 4, a.r, b.r + 2);
}

METAL_FUNC void fragment_load(thread fragment<float> &t, threadgroup const float *p, uint stride,
			      uint)
{
	t.p = p;
	t.row = stride;
	t.k = 1;
}
METAL_FUNC void fragment_load_columns(thread fragment<float> &t, threadgroup const float *p,
				      uint stride, uint)
{
	t.p = p;
	t.row = stride;
	t.k = 1;
}
METAL_FUNC void fragment_load_inner(thread fragment<float> &t, threadgroup const float *p,
				    uint stride, uint)
{
	t.p = p;
	t.row = 1;
	t.k = stride;
}
METAL_FUNC void fragment_mma(thread fragment_sum &c, thread fragment<float> &a,
			     thread fragment<float> &b, uint lane)
{
	threadgroup const float *pa = a.p + lane / 4 * a.row;
	threadgroup const float *pb = b.p + lane % 4 * 2 * b.row;
	for (uint k = 0; k < 16; k++, pa += a.k, pb += b.k) {
		UNROLL
		for (int e = 0; e < 8; e++)
			c.r[e] = fma(pa[e / 2 % 2 * 8 * a.row], pb[(e / 4 * 8 + e % 2) * b.row],
				     c.r[e]);
	}
}

#else

template <typename T> struct fragment {
	simdgroup_matrix<T, 8, 8> m[2][2];
};
struct fragment_sum {
	simdgroup_matrix<float, 8, 8> m[2][2];
};

METAL_FUNC uint fragment_row(int i, uint lane) { return i / 2 * 8 + (lane / 4 & 4) + lane / 2 % 4; }
METAL_FUNC uint fragment_column(int i, uint lane)
{
	return i % 2 * 8 + (lane / 4 & 2) * 2 + lane % 2 * 2;
}

METAL_FUNC float2 fragment_pair(thread fragment_sum &c, int i)
{
	return float2(c.m[i / 2][i % 2].thread_elements()[0],
		      c.m[i / 2][i % 2].thread_elements()[1]);
}
METAL_FUNC void fragment_set(thread fragment_sum &c, int i, float2 v)
{
	c.m[i / 2][i % 2].thread_elements()[0] = v.x;
	c.m[i / 2][i % 2].thread_elements()[1] = v.y;
}

template <typename T>
METAL_FUNC void fragment_load(thread fragment<T> &t, threadgroup const T *p, uint stride, uint)
{
	UNROLL
	for (int i = 0; i < 4; i++)
		simdgroup_load(t.m[i / 2][i % 2], p + i / 2 * 8 * stride + i % 2 * 8, stride);
}
template <typename T>
METAL_FUNC void fragment_load_columns(thread fragment<T> &t, threadgroup const T *p, uint stride,
				      uint)
{
	UNROLL
	for (int i = 0; i < 4; i++)
		simdgroup_load(t.m[i / 2][i % 2], p + i % 2 * 8 * stride + i / 2 * 8, stride,
			       ulong2(0), true);
}
template <typename T>
METAL_FUNC void fragment_load_inner(thread fragment<T> &t, threadgroup const T *p, uint stride,
				    uint lane)
{
	fragment_load(t, p, stride, lane);
}
template <typename T>
METAL_FUNC void fragment_mma(thread fragment_sum &c, thread fragment<T> &a, thread fragment<T> &b,
			     uint)
{
	UNROLL
	for (int i = 0; i < 4; i++)
		UNROLL
	for (int k = 0; k < 2; k++)
		simdgroup_multiply_accumulate(c.m[i / 2][i % 2], a.m[i / 2][k], b.m[k][i % 2],
					      c.m[i / 2][i % 2]);
}

#endif

METAL_FUNC void fragment_clear(thread fragment_sum &c)
{
#ifdef MSL_NV
	UNROLL
	for (int i = 0; i < 8; i++)
		c.r[i] = 0.0f;
#else
	UNROLL
	for (int i = 0; i < 4; i++)
		c.m[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#endif
}

// 2 to the x, for a weight that is rounded to T: a half is zero below 2 ^ -25, so that denormal floats need not be right,
// which takes a third of the instructions on NVIDIA.
template <typename T> METAL_FUNC float weight_of(float x) { return exp2(x); }
#ifdef MSL_NV
template <> METAL_FUNC float weight_of<half>(float x) { return nv_exp2_flushed(x); }
#endif

// -- copies -------------------------------------------------------------------------

// Copy 16 bytes, or zeros if !there; `from` must be readable in any case.  On NVIDIA the copy is
// asynchronous until its group was awaited.
METAL_FUNC void copy_16(threadgroup uchar *to, device const uchar *from, bool there)
{
#ifdef MSL_NV
	nv_cp_async_16(to, from, there ? 16 : 0);
#else
	*(threadgroup uint4 *)to = there ? *(device const uint4 *)from : uint4(0);
#endif
}
// Ends a group of copies.
METAL_FUNC void copy_commit()
{
#ifdef MSL_NV
	nv_cp_async_commit();
#endif
}
// Wait until all but the last N groups have arrived; a barrier must follow.
template <int N> METAL_FUNC void copy_await()
{
#ifdef MSL_NV
	nv_cp_async_wait<N>();
#endif
}

// Whether copies are asynchronous.
#ifdef MSL_NV
#define COPIES_ASYNC 1
#else
#define COPIES_ASYNC 0
#endif

// -- codes of 8 bits ------------------------------------------------------------------

#ifdef MSL_NV

// Sixteen bytes from each of 32 rows; from: lane i's are row i's.  r[j] has of row 8 * j + lane % 4 * 2
// the bytes lane / 4 * 2 and the next one, and then those of the next row.
METAL_FUNC void codes_load(thread uint (&r)[4], threadgroup const uchar *from)
{
	nv_ldmatrix4_transposed(r, from);
}

// Where 16 codes are kept so that codes_load reads eight tokens' of V from different banks.
METAL_FUNC uint code_place(uint piece) { return piece ^ ((piece >> 3 ^ piece >> 6) & 7); }

// Two of four codes times their scales, as halves, rounded once.  from: nibbles 4 a 4 b, of the b-th code and of the a-th.
METAL_FUNC uint scaled_pair(uint four, uint from, half2 by)
{
	// 1152 + code is 1024 + (code ^ 0x80), whose half has that byte below 0x64.
	const uint pair = nv_bytes(four ^ 0x80808080u, 0x64646464u, from);
	return as_type<uint>((as_type<half2>(pair) - half2(half(1152.0f))) * by);
}

// Two rows' first (odd: 0) or second codes times their scales.
METAL_FUNC uint scaled_codes(uint four, uint odd, half2 by)
{
	return scaled_pair(four, 0x4240u + odd * 0x0101u, by);
}

#else

// Four codes as halves, which is exact.
METAL_FUNC half4 half_codes(uint four) { return half4(as_type<char4>(four)); }

// Eight codes times their scales, rounded to half.
METAL_FUNC void decode_8(threadgroup half *to, uint2 codes, half4 low, half4 high)
{
	*(threadgroup uint4 *)to = uint4(as_type<uint2>(half_codes(codes.x) * low),
					 as_type<uint2>(half_codes(codes.y) * high));
}

#endif
