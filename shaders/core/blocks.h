// blocks.h: dequantises block formats, sixteen consecutive values of a row at a time: `load` loads
// the needed part of their block to registers, `eight` converts half of them to float.
//
// A value is d s v (+ m n): d and m are halves, s and n small integers, v an integer from a code's
// bits or a table.  Products of d, s and v and subtracting an offset of v are exact in float; only
// adding a minimum rounds.  As halves, values of Q4_K and Q5_K are d (s v) - h, rounded once, where h is
// m n, rounded to half, and s v is exact.  FORMAT is an enum ig_dtype: a constant in kernels for one
// format, otherwise known at run time.
//
// Blocks are aligned as far as their bytes allow: rows begin at multiples of their length.
#pragma once

#include <metal_stdlib>
#include "portable.h"
using namespace metal;

#define BLOCK_Q4_0 2u
#define BLOCK_Q4_1 3u
#define BLOCK_Q5_0 6u
#define BLOCK_Q5_1 7u
#define BLOCK_Q8_0 8u
#define BLOCK_Q2_K 10u
#define BLOCK_Q3_K 11u
#define BLOCK_Q4_K 12u
#define BLOCK_Q5_K 13u
#define BLOCK_Q6_K 14u
#define BLOCK_IQ4_NL 20u
#define BLOCK_IQ4_XS 23u
#define BLOCK_MXFP4 39u
#define BLOCK_Q8_M 1000u

struct block_raw {
	uint4 q; // bytes with the codes, or with their low bits
	uint4 h; // bytes with their high bits
	uint4 s; // scales
	uint at; // index of the first of the sixteen in the block
	uint format;
};

// -- loading ----------------------------------------------------------------------------

METAL_FUNC uint two_bytes(device const uchar *p) { return *(device const ushort *)p; }

// Four bytes, aligned to 2; sixteen, aligned to 1, 2, 4, 8.
METAL_FUNC uint two_halves(device const ushort *p) { return uint(p[0]) | uint(p[1]) << 16; }

METAL_FUNC uint four_bytes(device const uchar *p)
{
	return uint(p[0]) | uint(p[1]) << 8 | uint(p[2]) << 16 | uint(p[3]) << 24;
}

METAL_FUNC uint4 sixteen_by_1(device const uchar *p)
{
	return uint4(four_bytes(p), four_bytes(p + 4), four_bytes(p + 8), four_bytes(p + 12));
}

METAL_FUNC uint4 sixteen_by_2(device const uchar *from)
{
	device const ushort *p = (device const ushort *)from;
	return uint4(two_halves(p), two_halves(p + 2), two_halves(p + 4), two_halves(p + 6));
}

METAL_FUNC uint4 sixteen_by_4(device const uchar *from)
{
	device const uint *p = (device const uint *)from;
	return uint4(p[0], p[1], p[2], p[3]);
}

METAL_FUNC uint4 sixteen_by_8(device const uchar *from)
{
	device const uint2 *p = (device const uint2 *)from;
	return uint4(p[0], p[1]);
}

// Elements i … i + 15 of a row; i is a multiple of 16, and from `limit` on all is zero.
METAL_FUNC void block_load(thread block_raw &r, uint format, device const uchar *row, uint i,
			   uint limit)
{
	r.q = r.h = r.s = uint4(0);
	r.format = format;
	const bool small = format == BLOCK_Q4_0 || format == BLOCK_Q4_1 || format == BLOCK_Q5_0 ||
			   format == BLOCK_Q5_1 || format == BLOCK_Q8_0 || format == BLOCK_Q8_M ||
			   format == BLOCK_IQ4_NL || format == BLOCK_MXFP4;
	r.at = i % (small ? 32u : 256u);
	if (i >= limit)
		return;
	const ulong block = i / (small ? 32u : 256u);
	const uint at = r.at;
	device const uchar *p = row;
	switch (format) {
	case BLOCK_Q4_0:
	case BLOCK_IQ4_NL:
		p += block * 18;
		r.s.x = two_bytes(p);
		r.q = sixteen_by_2(p + 2);
		break;
	case BLOCK_Q4_1:
		p += block * 20;
		r.s.x = *(device const uint *)p;
		r.q = sixteen_by_4(p + 4);
		break;
	case BLOCK_Q5_0:
		p += block * 22;
		r.s.x = two_bytes(p);
		r.h.x = two_halves((device const ushort *)p + 1);
		r.q = sixteen_by_2(p + 6);
		break;
	case BLOCK_Q5_1:
		p += block * 24;
		r.s.x = *(device const uint *)p;
		r.h.x = *((device const uint *)p + 1);
		r.q = sixteen_by_8(p + 8);
		break;
	case BLOCK_Q8_0:
		p += block * 34;
		r.s.x = two_bytes(p);
		r.q = sixteen_by_2(p + 2 + at);
		break;
	case BLOCK_Q8_M:
		p += block * 36;
		r.s.x = *(device const uint *)p;
		r.q = sixteen_by_4(p + 4 + at);
		break;
	case BLOCK_Q2_K:
		p += block * 84;
		r.s.x = *((device const uint *)p + 20);
		r.s.y = p[at / 16];
		r.q = sixteen_by_4(p + 16 + at / 128 * 32 + at % 32);
		break;
	case BLOCK_Q3_K:
		p += block * 110;
		r.s.x = two_bytes(p + 108);
		r.s.y = p[96 + at / 16 % 8];
		r.s.z = p[104 + at / 16 % 4];
		r.h = sixteen_by_2(p + at % 32);
		r.q = sixteen_by_2(p + 32 + at / 128 * 32 + at % 32);
		break;
	case BLOCK_Q4_K:
		p += block * 144;
		r.s = *(device const uint4 *)p;
		r.q = *(device const uint4 *)(p + 16 + at / 64 * 32 + at % 32);
		break;
	case BLOCK_Q5_K:
		p += block * 176;
		r.s = *(device const uint4 *)p;
		r.h = *(device const uint4 *)(p + 16 + at % 32);
		r.q = *(device const uint4 *)(p + 48 + at / 64 * 32 + at % 32);
		break;
	case BLOCK_Q6_K:
		p += block * 210;
		r.s.x = two_bytes(p + 208);
		r.s.y = p[192 + at / 16];
		r.h = sixteen_by_2(p + 128 + at / 128 * 32 + at % 32);
		r.q = sixteen_by_2(p + at / 128 * 64 + at % 64);
		break;
	case BLOCK_IQ4_XS:
		p += block * 136;
		r.s.xy = *(device const uint2 *)p;
		r.q = sixteen_by_8(p + 8 + at / 32 * 16);
		break;
	default: // MXFP4
		p += block * 17;
		r.s.x = p[0];
		r.q = sixteen_by_1(p + 1);
		break;
	}
}

// -- values -----------------------------------------------------------------------------

METAL_FUNC float half_of(uint bits) { return float(as_type<half>(ushort(bits))); }

// Eight bytes, masked.
METAL_FUNC uint2 nibbles_of(uint2 q, uint shift) { return q >> shift & 0x0f0f0f0fu; }

// Bits 0 to 3, each into bit 0 of a byte.
METAL_FUNC uint spread_bits(uint four) { return (four & 15) * 0x00204081u & 0x01010101u; }

METAL_FUNC float4 bytes_of(uint four) { return float4(as_type<uchar4>(four)); }

// The table of IQ4_NL and IQ4_XS: a signed byte for each of 16 codes.
METAL_FUNC float iq4_value(uint code)
{
	const uint low = (code & 4) != 0 ? 0xf6eaddcfu : 0xbfad9881u;
	const uint high = (code & 4) != 0 ? 0x71594535u : 0x26190d01u;
	const uint four = (code & 8) != 0 ? high : low;
	return float(int(four << (24 - code % 4 * 8)) >> 24);
}

// Twice a float of two bits of exponent and one of mantissa: 0, 1, 2, 3, 4, 6, 8, 12.
METAL_FUNC float fp4_value(uint code)
{
	const float v = float(0xc8643210u >> code % 8 * 4 & 15);
	return (code & 8) != 0 ? -v : v;
}

METAL_FUNC float4 table_values(uint format, uint four)
{
	const uint a = four & 15, b = four >> 8 & 15, c = four >> 16 & 15, d = four >> 24 & 15;
	if (format == BLOCK_MXFP4)
		return float4(fp4_value(a), fp4_value(b), fp4_value(c), fp4_value(d));
	return float4(iq4_value(a), iq4_value(b), iq4_value(c), iq4_value(d));
}

// s and n of Q4_K and Q5_K: 8 scales, 8 minima of 6 bits: 4 of each whole, then the others' lower 4
// bits.
METAL_FUNC uint2 block_six_bits(thread const block_raw &r)
{
	const uint j = r.at / 32, shift = j % 4 * 8;
	const uint a = r.s.y >> shift, b = r.s.z >> shift, c = r.s.w >> shift;
	return j < 4 ? uint2(a & 63, b & 63) :
		       uint2((c & 15) | (a >> 2 & 48), (c >> 4 & 15) | (b >> 2 & 48));
}

// d s and m n, which the sixteen share: a value is v times the first plus the second.
METAL_FUNC float2 block_scales(uint format, thread const block_raw &r)
{
	const float d = half_of(r.s.x), m = half_of(r.s.x >> 16);
	switch (format) {
	case BLOCK_Q4_0: return float2(d, -8.0f * d);
	case BLOCK_Q4_1: return float2(d, m);
	case BLOCK_Q5_0: return float2(d, -16.0f * d);
	case BLOCK_Q5_1: return float2(d, m);
	case BLOCK_Q8_0: return float2(d, -128.0f * d);
	case BLOCK_Q8_M: return float2(d, m);
	case BLOCK_Q2_K: return float2(d * float(r.s.y & 15), -m * float(r.s.y >> 4));
	case BLOCK_Q3_K: {
		const uint low = r.s.y >> (r.at / 128 * 4) & 15,
			   high = r.s.z >> (r.at / 64 * 2) & 3;
		const float s = d * float(int(low | high << 4) - 32);
		return float2(s, -4.0f * s);
	}
	case BLOCK_Q4_K:
	case BLOCK_Q5_K: {
		const uint2 sn = block_six_bits(r);
		return float2(d * float(sn.x), -m * float(sn.y));
	}
	case BLOCK_Q6_K: {
		const float s = d * float(int(r.s.y << 24) >> 24);
		return float2(s, -32.0f * s);
	}
	case BLOCK_IQ4_NL: return float2(d, 0.0f);
	case BLOCK_IQ4_XS: {
		const uint j = r.at / 32, low = r.s.y >> (j * 4) & 15,
			   high = r.s.x >> (16 + 2 * j) & 3;
		return float2(d * float(int(low | high << 4) - 32), 0.0f);
	}
	default: { // 2^(e - 128); the two smallest are subnormal
		const uint e = r.s.x;
		return float2(as_type<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f);
	}
	}
}

// The run-th eight codes, a byte each.
METAL_FUNC uint2 block_codes(uint format, thread const block_raw &r, int run)
{
	const uint2 q = run == 0 ? r.q.xy : r.q.zw, h = run == 0 ? r.h.xy : r.h.zw;
	switch (format) {
	case BLOCK_Q8_0: return q ^ 0x80808080u;
	case BLOCK_Q8_M: return q;
	case BLOCK_Q5_0:
	case BLOCK_Q5_1: {
		const uint bits = r.h.x >> (r.at + uint(run) * 8);
		return nibbles_of(q, r.at / 4) | uint2(spread_bits(bits), spread_bits(bits >> 4))
							 << 4;
	}
	case BLOCK_Q2_K: return q >> (r.at / 32 % 4 * 2) & 0x03030303u;
	case BLOCK_Q3_K:
		return (q >> (r.at / 32 % 4 * 2) & 0x03030303u) | (h >> (r.at / 32) & 0x01010101u)
									  << 2;
	case BLOCK_Q4_K: return nibbles_of(q, r.at / 32 % 2 * 4);
	case BLOCK_Q5_K:
		return nibbles_of(q, r.at / 32 % 2 * 4) | (h >> (r.at / 32) & 0x01010101u) << 4;
	case BLOCK_Q6_K:
		return nibbles_of(q, r.at / 64 % 2 * 4) | (h >> (r.at / 32 % 4 * 2) & 0x03030303u)
								  << 4;
	default: return nibbles_of(q, r.at / 16 % 2 * 4);
	}
}

// Eight values: their codes, a byte each, and what block_scales returned.
METAL_FUNC void block_values(uint format, float2 dm, uint2 codes, thread float4 &a,
			     thread float4 &b)
{
	const bool table =
		format == BLOCK_IQ4_NL || format == BLOCK_IQ4_XS || format == BLOCK_MXFP4;
	a = table ? table_values(format, codes.x) : bytes_of(codes.x);
	b = table ? table_values(format, codes.y) : bytes_of(codes.y);
	a = fma(a, float4(dm.x), float4(dm.y));
	b = fma(b, float4(dm.x), float4(dm.y));
}

// The run-th eight of the sixteen.
METAL_FUNC void block_eight(uint format, thread const block_raw &r, int run, thread float4 &a,
			    thread float4 &b)
{
	block_values(format, block_scales(format, r), block_codes(format, r, run), a, b);
}

// Whether a format's values have a definition of their own as halves.
METAL_FUNC constexpr bool block_has_halves(uint format)
{
	return format == BLOCK_Q4_K || format == BLOCK_Q5_K;
}

// The run-th eight of the sixteen as halves, of such a format.
METAL_FUNC void block_eight_halves(uint format, thread const block_raw &r, int run, thread half4 &a,
				   thread half4 &b)
{
	const uint2 codes = block_codes(format, r, run), sn = block_six_bits(r);
	const half4 d = half4(as_type<half>(ushort(r.s.x))), s = half4(half(float(sn.x)));
	const half4 h = half4(half(half_of(r.s.x >> 16) * -float(sn.y)));
	a = fma(d, half4(bytes_of(codes.x)) * s, h);
	b = fma(d, half4(bytes_of(codes.y)) * s, h);
}
