// weights.h: the formats of weights in files, and their conversion to elements of a product.  A
// format divides a row into units of 8 or 16 elements: `load` loads one to registers, `put` writes
// 8 of its elements, dequantised, to threadgroup memory.
// `place` is the first element of a run, counted from the tile's first.
//
// Dequantising rounds once, from float or as blocks.h says of halves, so that every kernel has the
// same elements.
#pragma once

#include <metal_stdlib>
#include "blocks.h"
#include "portable.h"
using namespace metal;

// Eight elements, in one chunk of 16 bytes or in two.
METAL_FUNC void put_eight(threadgroup half *to, threadgroup half *, float4 a, float4 b)
{
	*(threadgroup uint4 *)to = uint4(as_type<uint2>(half4(a)), as_type<uint2>(half4(b)));
}
METAL_FUNC void put_eight(threadgroup bfloat *to, threadgroup bfloat *, float4 a, float4 b)
{
	*(threadgroup uint4 *)to = uint4(as_type<uint2>(bfloat4(a)), as_type<uint2>(bfloat4(b)));
}
METAL_FUNC void put_eight(threadgroup float *to, threadgroup float *more, float4 a, float4 b)
{
	*(threadgroup float4 *)to = a;
	*(threadgroup float4 *)more = b;
}

// -- F16, BF16, F32 -----------------------------------------------------------------

// Eight elements of 2 bytes from element k on, zeros from `limit` on.  Rows are multiples
// of 16 bytes, or (ODD) begin anywhere.
template <bool ODD> METAL_FUNC uint4 load_eight(device const uchar *row, uint k, uint limit)
{
	uint4 v = uint4(0);
	if (!ODD) {
		if (k < limit)
			v = *(device const uint4 *)(row + ulong(k) * 2);
		return v;
	}
	device const ushort *p = (device const ushort *)row + k;
	UNROLL
	for (uint i = 0; i < 4; i++) {
		const uint low = k + 2 * i < limit ? p[2 * i] : 0u;
		const uint high = k + 2 * i + 1 < limit ? p[2 * i + 1] : 0u;
		v[i] = low | high << 16;
	}
	return v;
}

// PLAIN: rows can be copied unchanged, in chunks of 16 bytes.
template <bool PLAIN, bool ODD> struct weights_f16 {
	static constexpr constant bool plain = PLAIN && !ODD;
	static constexpr constant int unit = 8;
	struct raw {
		uint4 v;
	};

	static METAL_FUNC uint place(uint c, int) { return c * 8; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		r.v = load_eight<ODD>(row, k + c * 8, limit);
	}
	static METAL_FUNC void put(thread raw &r, int, threadgroup half *to, threadgroup half *)
	{
		*(threadgroup uint4 *)to = r.v;
	}
	static METAL_FUNC void put(thread raw &r, int, threadgroup float *to,
				   threadgroup float *more)
	{
		put_eight(to, more, float4(as_type<half4>(r.v.xy)), float4(as_type<half4>(r.v.zw)));
	}
};

template <bool PLAIN, bool ODD> struct weights_bf16 {
	static constexpr constant bool plain = PLAIN && !ODD;
	static constexpr constant int unit = 8;
	struct raw {
		uint4 v;
	};

	static METAL_FUNC uint place(uint c, int) { return c * 8; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		r.v = load_eight<ODD>(row, k + c * 8, limit);
	}
	static METAL_FUNC void put(thread raw &r, int, threadgroup bfloat *to, threadgroup bfloat *)
	{
		*(threadgroup uint4 *)to = r.v;
	}
	static METAL_FUNC void put(thread raw &r, int, threadgroup float *to,
				   threadgroup float *more)
	{
		const uint4 low = r.v << 16, high = r.v & 0xffff0000u;
		put_eight(to, more, as_type<float4>(uint4(low.x, high.x, low.y, high.y)),
			  as_type<float4>(uint4(low.z, high.z, low.w, high.w)));
	}
};

template <bool ODD> struct weights_f32 {
	static constexpr constant bool plain = !ODD;
	static constexpr constant int unit = 8;
	struct raw {
		float4 a, b;
	};

	static METAL_FUNC uint place(uint c, int) { return c * 8; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		device const float *p = (device const float *)row + k + c * 8;
		const uint left = limit > k + c * 8 ? limit - k - c * 8 : 0;
		r.a = float4(0.0f);
		r.b = float4(0.0f);
		if (!ODD) { // k is a multiple of 4
			if (left > 0)
				r.a = *(device const float4 *)p;
			if (left > 4)
				r.b = *(device const float4 *)(p + 4);
			return;
		}
		UNROLL
		for (uint i = 0; i < 4; i++) {
			if (i < left)
				r.a[i] = p[i];
			if (i + 4 < left)
				r.b[i] = p[i + 4];
		}
	}
	static METAL_FUNC void put(thread raw &r, int, threadgroup float *to,
				   threadgroup float *more)
	{
		put_eight(to, more, r.a, r.b);
	}
};

// -- blocks of 32 --------------------------------------------------------------------
//
// A unit is half a block's bytes.

// The c-th unit's block from the tile's first element k on.
METAL_FUNC uint unit_block(uint k, uint c) { return k / 32 + c / 2; }

// f16 d, 32 int8: d q
struct weights_q8_0 {
	static constexpr constant bool plain = false;
	static constexpr constant int unit = 16;
	struct raw {
		uint4 q;
		ushort d;
	};

	static METAL_FUNC uint place(uint c, int run) { return c * 16 + run * 8; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		r.q = uint4(0);
		r.d = 0;
		const uint block = unit_block(k, c);
		if (block * 32 < limit) {
			device const ushort *p = (device const ushort *)(row + ulong(block) * 34);
			device const ushort *q = p + 1 + c % 2 * 8;
			r.d = p[0];
			r.q = uint4(two_halves(q), two_halves(q + 2), two_halves(q + 4),
				    two_halves(q + 6));
		}
	}
	template <typename T>
	static METAL_FUNC void put(thread raw &r, int run, threadgroup T *to, threadgroup T *more)
	{
		const float d = float(as_type<half>(r.d));
		const uint2 q = run == 0 ? r.q.xy : r.q.zw;
		put_eight(to, more, d * float4(as_type<char4>(q.x)),
			  d * float4(as_type<char4>(q.y)));
	}
};

// Eight bytes' low (run 0) or high nibbles.
METAL_FUNC float4 nibbles(uint q, int run)
{
	return float4(as_type<uchar4>((run == 0 ? q : q >> 4) & 0x0f0f0f0fu));
}

// f16 d, 16 bytes, low nibbles first: d (q - 8)
struct weights_q4_0 {
	static constexpr constant bool plain = false;
	static constexpr constant int unit = 16;
	struct raw {
		uint2 q;
		ushort d;
	};

	static METAL_FUNC uint place(uint c, int run) { return c / 2 * 32 + c % 2 * 8 + run * 16; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		r.q = uint2(0);
		r.d = 0;
		const uint block = unit_block(k, c);
		if (block * 32 < limit) {
			device const ushort *p = (device const ushort *)(row + ulong(block) * 18);
			device const ushort *q = p + 1 + c % 2 * 4;
			r.d = p[0];
			r.q = uint2(two_halves(q), two_halves(q + 2));
		}
	}
	template <typename T>
	static METAL_FUNC void put(thread raw &r, int run, threadgroup T *to, threadgroup T *more)
	{
		const float d = float(as_type<half>(r.d));
		put_eight(to, more, d * (nibbles(r.q.x, run) - 8.0f),
			  d * (nibbles(r.q.y, run) - 8.0f));
	}
};

// f16 d, f16 m, 16 bytes: d q + m
struct weights_q4_1 {
	static constexpr constant bool plain = false;
	static constexpr constant int unit = 16;
	struct raw {
		uint2 q;
		ushort2 dm;
	};

	static METAL_FUNC uint place(uint c, int run) { return c / 2 * 32 + c % 2 * 8 + run * 16; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint)
	{
		r.q = uint2(0);
		r.dm = ushort2(0);
		const uint block = unit_block(k, c);
		if (block * 32 < limit) {
			device const ushort *p = (device const ushort *)(row + ulong(block) * 20);
			device const ushort *q = p + 2 + c % 2 * 4;
			r.dm = ushort2(p[0], p[1]);
			r.q = uint2(two_halves(q), two_halves(q + 2));
		}
	}
	template <typename T>
	static METAL_FUNC void put(thread raw &r, int run, threadgroup T *to, threadgroup T *more)
	{
		const float4 d = float4(float(as_type<half>(r.dm.x)));
		const float4 m = float4(float(as_type<half>(r.dm.y)));
		put_eight(to, more, fma(nibbles(r.q.x, run), d, m), fma(nibbles(r.q.y, run), d, m));
	}
};

// -- any blocks ----------------------------------------------------------------------
//
// A unit is sixteen neighbours.  FORMAT: a BLOCK_… of blocks.h, or BLOCK_ANY: the rows' format at
// run time, so that one kernel serves all formats.
#define BLOCK_ANY 0u

template <uint FORMAT> struct weights_blocks {
	static constexpr constant bool plain = false;
	static constexpr constant int unit = 16;
	typedef block_raw raw;

	static METAL_FUNC uint place(uint c, int run) { return c * 16 + run * 8; }
	static METAL_FUNC void load(thread raw &r, device const uchar *row, uint k, uint c,
				    uint limit, uint format)
	{
		block_load(r, FORMAT == BLOCK_ANY ? format : FORMAT, row, k + c * 16, limit);
	}
	static METAL_FUNC void put(thread raw &r, int run, threadgroup float *to,
				   threadgroup float *more)
	{
		float4 a, b;
		block_eight(FORMAT == BLOCK_ANY ? r.format : FORMAT, r, run, a, b);
		put_eight(to, more, a, b);
	}
	static METAL_FUNC void put(thread raw &r, int run, threadgroup half *to,
				   threadgroup half *more)
	{
		const uint format = FORMAT == BLOCK_ANY ? r.format : FORMAT;
		if (block_has_halves(format)) {
			half4 a, b;
			block_eight_halves(format, r, run, a, b);
			*(threadgroup uint4 *)to = uint4(as_type<uint2>(a), as_type<uint2>(b));
			return;
		}
		float4 a, b;
		block_eight(format, r, run, a, b);
		put_eight(to, more, a, b);
	}
};
