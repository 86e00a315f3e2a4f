// tiles.h: quantised weights in tiles: the blocks of a file, repacked (repack.metal) into the order in
// which a matrix instruction takes them (after Marlin, Frantar et al. 2024).  tile_direct.h multiplies
// them from registers, tile.h by way of threadgroup memory.
//
// A tile has 16 outputs and tile_k() of k, 256 or 128, and exactly as many bytes as the file's blocks
// had.  Tiles of the same outputs follow one another in k.  Outputs and k that are missing at the
// ends have scales of zero.  A tile consists of pieces of 64 of k, each of four fragments of 16 of k:
//
//   low bits     piece by piece: each of 32 parts has its own 16 bytes (codes of 8 bits: twice 16,
//                of 2 bits: 8) for one wide load
//   high bits    piece by piece, 4 or 8 bytes a part, where codes have 3, 5 or 6 bits
//   heads        what is not a code, by output: scales, minima
//
// A part (g, t) = g * 4 + t, g below 8, t below 4, has of outputs g and g + 8 and of each fragment
// elements 2 t, 2 t + 1, 2 t + 8, 2 t + 9: pair i is of output g + i % 2 * 8, elements
// 2 t + i / 2 * 8 and the next.
//
// Dequantising gives the bits of core/weights.h: it rounds once to float16, or as blocks.h defines
// halves.
#pragma once

#include <metal_stdlib>
#include "blocks.h"
#include "portable.h"
using namespace metal;

#define TILE_ROWS 16u
#define TILE_PIECE 64u // of k

METAL_FUNC constexpr bool tile_is_8_bit(uint format)
{
	return format == BLOCK_Q8_0 || format == BLOCK_Q8_M;
}
METAL_FUNC constexpr uint tile_k(uint format)
{
	return tile_is_8_bit(format) || format == BLOCK_Q4_1 || format == BLOCK_Q5_1 ? 128u : 256u;
}
// Bits of a code that are stored first, and those that follow.
METAL_FUNC constexpr uint tile_low(uint format)
{
	return tile_is_8_bit(format) ? 8u : format == BLOCK_Q2_K || format == BLOCK_Q3_K ? 2u : 4u;
}
METAL_FUNC constexpr uint tile_high(uint format)
{
	return format == BLOCK_Q6_K ? 2u :
	       format == BLOCK_Q5_0 || format == BLOCK_Q5_1 || format == BLOCK_Q5_K ||
			       format == BLOCK_Q3_K ?
				      1u :
				      0u;
}
// Bytes of the heads, for each output: in a first and in a second table.
METAL_FUNC constexpr uint tile_head(uint format)
{
	return format == BLOCK_Q3_K						       ? 12u :
	       format == BLOCK_Q8_0 || format == BLOCK_IQ4_XS || format == BLOCK_MXFP4 ? 8u :
											 16u;
}
METAL_FUNC constexpr uint tile_more(uint format)
{
	return format == BLOCK_Q2_K ? 4u : format == BLOCK_Q3_K || format == BLOCK_Q6_K ? 2u : 0u;
}
// Where high bits and heads begin, and the size of all.
METAL_FUNC constexpr uint tile_high_at(uint format)
{
	return TILE_ROWS * tile_k(format) / 8 * tile_low(format);
}
METAL_FUNC constexpr uint tile_head_at(uint format)
{
	return tile_high_at(format) + TILE_ROWS * tile_k(format) / 8 * tile_high(format);
}
METAL_FUNC constexpr uint tile_more_at(uint format)
{
	return tile_head_at(format) + TILE_ROWS * tile_head(format);
}
METAL_FUNC constexpr uint tile_bytes(uint format)
{
	return tile_more_at(format) + TILE_ROWS * tile_more(format);
}
// Bytes at the beginning of a block of 32 that are no codes; 0: blocks of 256.
METAL_FUNC constexpr uint tile_block_head(uint format)
{
	return format == BLOCK_Q4_0 || format == BLOCK_Q5_0 || format == BLOCK_Q8_0 ||
			       format == BLOCK_IQ4_NL ?
		       2u :
	       format == BLOCK_Q4_1 || format == BLOCK_Q5_1 || format == BLOCK_Q8_M ? 4u :
	       format == BLOCK_MXFP4						    ? 1u :
										      0u;
}

// Where in a block of 256 the two tables' bytes come from; bytes of a block.
METAL_FUNC constexpr uint tile_head_from(uint format)
{
	return format == BLOCK_Q6_K ? 192u : format == BLOCK_Q3_K ? 96u : 0u;
}
METAL_FUNC constexpr uint tile_more_from(uint format)
{
	return format == BLOCK_Q6_K ? 208u : format == BLOCK_Q3_K ? 108u : 80u;
}
METAL_FUNC constexpr uint block_bytes(uint format)
{
	return tile_bytes(format) / TILE_ROWS /
	       (tile_block_head(format) == 0 ? 1 : tile_k(format) / 32);
}

METAL_FUNC uint tile_word(uint4 v, uint i)
{
	const uint low = (i & 1) != 0 ? v.y : v.x, high = (i & 1) != 0 ? v.w : v.z;
	return (i & 2) != 0 ? high : low;
}
METAL_FUNC uint tile_and_or(uint x, uint mask, uint bits)
{
#ifdef MSL_NV
	return nv_and_or(x, mask, bits);
#else
	return (x & mask) | bits;
#endif
}
METAL_FUNC uint tile_byte(uint4 v, uint i) { return tile_word(v, i / 4) >> (i % 4 * 8) & 255; }

// Byte i of four, plus 2^23, as a float.
METAL_FUNC float tile_magic(uint four, uint i)
{
#ifdef MSL_NV
	return as_type<float>(nv_bytes(four, 0x4b000000, 0x7440 + i));
#else
	return as_type<float>((four >> (i * 8) & 255) | 0x4b000000);
#endif
}

// block_scales() of Q6_K with few instructions, where codes are multiplied by 1 / `by` (a power of
// two).  A byte times a half is exact, also as (2^23 + byte) x - 2^23 x.
METAL_FUNC float2 tile_scales_q6_k(uint4 head, uint more, uint at, float by)
{
	const uint four = tile_word(head, at / 64) ^ 0x80808080;
	const float s = (tile_magic(four, at / 16 % 4) - 8388736.0f) * (half_of(more) * by);
	return float2(s, s * (-32.0f / by));
}

// s and n of Q4_K and Q5_K (block_six_bits) as halves, from the heads of an output.
METAL_FUNC half2 tile_six_bits(uint4 head, uint at)
{
	const uint j = at / 32;
	const uint s =
		j < 4 ? head.y & 0x3f3f3f3f : (head.w & 0x0f0f0f0f) | (head.y >> 2 & 0x30303030);
	const uint n = j < 4 ? head.z & 0x3f3f3f3f :
			       (head.w >> 4 & 0x0f0f0f0f) | (head.z >> 2 & 0x30303030);
	const uint i = j % 4;
#ifdef MSL_NV // 1024 + a byte as a half is the byte behind 0x64
	const uint both = nv_bytes(s, n, i * 0x11 + (4 + i) * 0x1100);
	return as_type<half2>(nv_and_or(both, 0x00ff00ff, 0x64006400)) - half2(half(1024.0f));
#else
	return half2(half(float(s >> (i * 8) & 255)), half(float(n >> (i * 8) & 255)));
#endif
}

// Two values of Q4_K or Q5_K as blocks.h defines them: codes are 1024 + `times` code.
METAL_FUNC half2 tile_two_k(half2 codes, uint times, half2 sn, uint dm)
{
	const half by = half(1.0f / float(times));
	const half2 s = half2(sn.x), h = half2(-as_type<half>(ushort(dm >> 16)) * sn.y);
	// s code, exactly: 1024 s is below the largest half
	const half2 product = fma(codes, s * half2(by), s * half2(half(-1024.0f) * by));
	return fma(half2(as_type<half>(ushort(dm))), product, h);
}

// Two values of MXFP4.  The bits of a code are those of a half 2^-14 times as large, zeros and subnormals too;
// codes are `times` those.  The scale 2^(e - 127) times 2^14 comes as two factors that are halves, of which the first
// leaves every value exact: one rounding.  Below 2^-28 all values are zero; above 2^16, where all but zeros and halves
// overflow, a scale counts as 2^16.
METAL_FUNC uint2 tile_fp4_factors(uint e)
{
	const uint both = clamp(e, 99u, 143u) - 83; // of the exponents, each with its bias
	return uint2(both / 2, both - both / 2) * 0x04000400u;
}
METAL_FUNC half2 tile_two_fp4(uint codes, uint times, uint2 factors)
{
	const uint bits = times == 16 ? (codes & 0x00700070) << 5 | (codes & 0x00800080) << 8 :
					(codes & 0x00070007) << 9 | (codes & 0x00080008) << 12;
	return as_type<half2>(bits) * as_type<half2>(factors.x) * as_type<half2>(factors.y);
}

#ifdef MSL_NV
// The table of IQ4_NL and IQ4_XS, plus 128, of four codes of four bits each: byte i that of the i-th.
METAL_FUNC uint tile_iq4_bytes(uint codes)
{
	const uint at = codes & 0x7777, which = 0x3210 | (codes & 0x8888) >> 1;
	return nv_bytes(nv_bytes(0x3f2d1801, 0x766a5d4f, at), nv_bytes(0xa6998d81, 0xf1d9c5b5, at),
			which);
}
#endif

// The scales of sixteen values from element `at` of a tile on, in block_raw's form, from its output's
// heads.
METAL_FUNC void tile_scales(thread block_raw &r, uint format, uint4 head, uint more, uint at)
{
	const uint block = at / 32;
	r.at = at;
	r.s = uint4(0);
	switch (format) {
	case BLOCK_Q4_0:
	case BLOCK_Q5_0:
	case BLOCK_Q8_0:
	case BLOCK_IQ4_NL: r.s.x = tile_word(head, block / 2) >> (block % 2 * 16); break;
	case BLOCK_Q4_1:
	case BLOCK_Q5_1:
	case BLOCK_Q8_M: r.s.x = tile_word(head, block); break;
	case BLOCK_MXFP4: r.s.x = tile_byte(head, block); break;
	case BLOCK_Q2_K:
		r.s.x = more;
		r.s.y = tile_byte(head, at / 16);
		break;
	case BLOCK_Q3_K:
		r.s.x = more;
		r.s.y = tile_byte(head, at / 16 % 8);
		r.s.z = tile_byte(head, 8 + at / 16 % 4);
		break;
	case BLOCK_Q6_K:
		r.s.x = more;
		r.s.y = tile_byte(head, at / 16);
		break;
	default: r.s = head; break; // Q4_K, Q5_K, IQ4_XS
	}
}

// -- one format -------------------------------------------------------------------------------

template <uint FORMAT> struct tile_format {
	static constexpr constant uint k = tile_k(FORMAT), bytes = tile_bytes(FORMAT),
				       pieces = k / TILE_PIECE;
	static constexpr constant uint low = tile_low(FORMAT), high = tile_high(FORMAT);
	// A value is a half times a small integer (which is a half): one product, rounded once.
	static constexpr constant bool halves = FORMAT == BLOCK_Q4_0 || FORMAT == BLOCK_Q5_0 ||
						FORMAT == BLOCK_Q8_0 || FORMAT == BLOCK_IQ4_NL;

	struct codes { // a part's of a piece
		uint4 q[low == 8 ? 2 : 1];
		uint2 h;
	};
	struct heads { // of outputs g and g + 8
		uint4 first[2];
		uint more[2];
	};

	// Of a tile's piece; LOAD is how the machine reads what is read once.
	template <typename LOAD>
	static METAL_FUNC void load_codes(thread codes &c, device const uchar *tile, uint piece,
					  uint part)
	{
		device const uchar *p = tile + piece * (TILE_ROWS * TILE_PIECE / 8 * low);
		if (low == 2)
			c.q[0] = uint4(LOAD::two(p + part * 8), uint2(0));
		else
			c.q[0] = LOAD::four(p + part * 16);
		if (low == 8)
			c.q[low == 8 ? 1 : 0] = LOAD::four(p + 512 + part * 16);
		p = tile + tile_high_at(FORMAT) + piece * (TILE_ROWS * TILE_PIECE / 8 * high);
		if (high == 2)
			c.h = LOAD::two(p + part * 8);
		if (high == 1)
			c.h = uint2(LOAD::one(p + part * 4), 0u);
	}

	template <typename LOAD>
	static METAL_FUNC void load_heads(thread heads &h, device const uchar *tile, uint part)
	{
		UNROLL
		for (uint i = 0; i < 2; i++) {
			const uint row = part / 4 + i * 8;
			device const uchar *p =
				tile + tile_head_at(FORMAT) + row * tile_head(FORMAT);
			if (tile_head(FORMAT) == 16)
				h.first[i] = LOAD::four(p);
			if (tile_head(FORMAT) == 12)
				h.first[i] =
					uint4(LOAD::one(p), LOAD::one(p + 4), LOAD::one(p + 8), 0u);
			if (tile_head(FORMAT) == 8)
				h.first[i] = uint4(LOAD::two(p), uint2(0));
			p = tile + tile_more_at(FORMAT) + row * tile_more(FORMAT);
			if (tile_more(FORMAT) == 4)
				h.more[i] = LOAD::one(p);
			if (tile_more(FORMAT) == 2)
				h.more[i] = LOAD::half_of_one(p);
		}
	}

	static METAL_FUNC void clear(thread codes &c, thread heads &h)
	{
		UNROLL
		for (uint i = 0; i < (low == 8 ? 2 : 1); i++)
			c.q[i] = uint4(0);
		c.h = uint2(0);
		UNROLL
		for (uint i = 0; i < 2; i++) {
			h.first[i] = uint4(0);
			h.more[i] = 0;
		}
	}

	// Codes of pair i of fragment e, each in a half of the word, times times(i), or-ed with `bits`.
	static METAL_FUNC uint pair(thread const codes &c, uint e, uint i, uint bits)
	{
		const uint up = low + (times(i) == 16 ? 4 : 0);
		if (high == 2)
			bits |= ((e < 2 ? c.h.x : c.h.y) >> (i * 2 + e % 2 * 8) & 0x00030003) << up;
		if (high == 1)
			bits |= (c.h.x >> (i + e * 4) & 0x00010001) << up;
		if (low == 8)
			return tile_and_or(
				tile_word(c.q[low == 8 ? e / 2 : 0], e % 2 * 2 + i % 2) >>
					(i / 2 * 8),
				0x00ff00ff, bits);
		if (low == 4)
			return tile_and_or(tile_word(c.q[0], e) >> (i / 2 * 8),
					   0x000f000fu * times(i), bits);
		return tile_and_or(tile_word(c.q[0], e / 2) >> (i * 2 + e % 2 * 8), 0x00030003,
				   bits);
	}
	// Codes of 4 bits are not shifted: those of every second pair are sixteen times as large.
	static METAL_FUNC constexpr uint times(uint i) { return low == 4 && i % 2 == 1 ? 16u : 1u; }

	// Those of IQ4_NL and IQ4_XS, which the table has for the codes of pair i of fragment e.
	static METAL_FUNC half2 iq4_pair(thread const codes &c, uint e, uint i)
	{
#ifdef MSL_NV
		const uint eight =
			tile_word(c.q[0], e); // the first codes of all pairs, the second ones
		const uint two = nv_bytes(tile_iq4_bytes(eight), tile_iq4_bytes(eight >> 16),
					  i | (i + 4) << 8);
		return as_type<half2>(tile_and_or(two, 0x00ff00ff, 0x64006400)) -
		       half2(half(1152.0f)); // 1024 + 128
#else
		const uint v = pair(c, e, i, 0) / times(i);
		return half2(half(iq4_value(v & 15)), half(iq4_value(v >> 16)));
#endif
	}

	// The elements of pair i, for i below 4, of fragment e of a piece.
	static METAL_FUNC void fragment(thread const codes &c, thread const heads &h, uint piece,
					uint e, thread uint *to)
	{
		UNROLL
		for (uint i = 0; i < 4; i++) {
			block_raw r;
			tile_scales(r, FORMAT, h.first[i % 2], h.more[i % 2],
				    piece * TILE_PIECE + e * 16);
			if (halves) {
				const half d = as_type<half>(ushort(r.s.x));
				half2 q;
				if (FORMAT == BLOCK_IQ4_NL) {
					q = iq4_pair(c, e, i);
				} else { // 1024 + times code, exactly
					const float offset = FORMAT == BLOCK_Q4_0 ? 8.0f :
							     FORMAT == BLOCK_Q5_0 ? 16.0f :
										    128.0f;
					q = as_type<half2>(pair(c, e, i, 0x64006400));
					if (times(i) == 16)
						q = q * half2(half(0.0625f)) -
						    half2(half(64.0f + offset));
					else
						q = q - half2(half(1024.0f + offset));
				}
				to[i] = as_type<uint>(q * half2(d));
				continue;
			}
			if (block_has_halves(FORMAT)) {
				const uint4 head = h.first[i % 2];
				to[i] = as_type<uint>(tile_two_k(
					as_type<half2>(pair(c, e, i, 0x64006400)), times(i),
					tile_six_bits(head, piece * TILE_PIECE + e * 16), head.x));
				continue;
			}
			const uint v = pair(c, e, i, 0);
			if (FORMAT == BLOCK_MXFP4) {
				to[i] = as_type<uint>(
					tile_two_fp4(v, times(i), tile_fp4_factors(r.s.x)));
				continue;
			}
			const float by = times(i) == 16 ? 1048576.0f : 16777216.0f;
			float2 q, dm;
			float scale;
			if (FORMAT == BLOCK_Q6_K) {
				dm = tile_scales_q6_k(h.first[i % 2], h.more[i % 2],
						      piece * TILE_PIECE + e * 16, by);
				to[i] = as_type<uint>(half2(fma(float2(as_type<half2>(v)),
								float2(dm.x), float2(dm.y))));
				continue;
			}
			dm = block_scales(FORMAT, r);
			scale = dm.x;
			if (FORMAT == BLOCK_IQ4_XS) {
				q = float2(iq4_pair(c, e, i));
			} else { // a number as a subnormal half is the number times 2^-24
				q = float2(as_type<half2>(v));
				scale *= by;
			}
			to[i] = as_type<uint>(half2(fma(q, float2(scale), float2(dm.y))));
		}
	}
};

// -- any format ---------------------------------------------------------------------------------

// Eight codes, a byte each, of output `row` of a tile from its element `at` on.
METAL_FUNC uint2 tile_codes(uint format, device const uchar *tile, uint row, uint at)
{
	const uint piece = at / TILE_PIECE, e = at % TILE_PIECE / 16, i = row / 8 + at % 16 / 8 * 2;
	const uint low = tile_low(format), high = tile_high(format);
	device const uint *p =
		(device const uint *)(tile + piece * (TILE_ROWS * TILE_PIECE / 8 * low));
	device const uint *h = (device const uint *)(tile + tile_high_at(format) +
						     piece * (TILE_ROWS * TILE_PIECE / 8 * high));
	uint2 codes = uint2(0);
	UNROLL
	for (uint t = 0; t < 4; t++) {
		const uint part = row % 8 * 4 + t;
		uint v;
		if (low == 8)
			v = p[e / 2 * 128 + part * 4 + e % 2 * 2 + i % 2] >> (i / 2 * 8) &
			    0x00ff00ff;
		else if (low == 4)
			v = p[part * 4 + e] >> (i * 4) & 0x000f000f;
		else
			v = p[part * 2 + e / 2] >> (i * 2 + e % 2 * 8) & 0x00030003;
		if (high == 2)
			v |= (h[part * 2 + e / 2] >> (i * 2 + e % 2 * 8) & 0x00030003) << low;
		if (high == 1)
			v |= (h[part] >> (i + e * 4) & 0x00010001) << low;
		v = (v | v >> 8) & 0xffff;
		codes[t / 2] |= v << (t % 2 * 16);
	}
	return codes;
}

// Elements at ... at + 7 (`at` a multiple of 8) of an output's row; w: the row's tiles, the output
// being one of sixteen.
METAL_FUNC void tile_eight(uint format, device const uchar *w, uint row, uint at, thread float4 &a,
			   thread float4 &b)
{
	device const uchar *tile = w + ulong(at / tile_k(format)) * tile_bytes(format);
	device const uchar *p = tile + tile_head_at(format) + row * tile_head(format);
	block_raw r;
	uint4 head = uint4(0);
	uint more = 0;
	at %= tile_k(format);
	UNROLL
	for (uint i = 0; i < 4; i++)
		if (i * 4 < tile_head(format))
			head[i] = *((device const uint *)p + i);
	p = tile + tile_more_at(format) + row * tile_more(format);
	if (tile_more(format) >= 2)
		more = two_bytes(p);
	if (tile_more(format) == 4)
		more |= two_bytes(p + 2) << 16;
	tile_scales(r, format, head, more, at / 16 * 16);
	block_values(format, block_scales(format, r), tile_codes(format, tile, row, at), a, b);
}
