// codes.h: products with keys and values that the cache has as Q8_0, of a tile of queries (TILE: attention_tile).
#pragma once

#include "pages.h"
#include "fragments.h"
#include "sizes.h"

#if COPIES_ASYNC
// On NVIDIA products load codes from where they were copied to.  Sixteen bytes are sixteen tokens of a
// column of K, or columns of a token of V; a right operand takes either the even or the odd
// ones of them, so codes_load has each pair of k in one register.

// Of K a simdgroup has a block of 16 tokens and as many tiles of queries as `blocks`; of one
// tile of queries it has half of the block's tokens.
template <typename TILE> METAL_FUNC constexpr bool codes_halved() { return TILE::queries == 16; }
template <typename TILE> METAL_FUNC uint code_block(thread TILE &o)
{
	return codes_halved<TILE>() ? o.sg / 2 : o.sg % 2;
}
template <typename TILE> METAL_FUNC uint code_tile(thread TILE &o)
{
	return codes_halved<TILE>() ? 0 : o.sg / 2 * TILE::blocks;
}

template <typename TILE>
METAL_FUNC void dot_codes(thread TILE &o, thread fragment_sum (&x)[TILE::blocks], uint stage)
{
	threadgroup const uchar *from = (threadgroup const uchar *)o.operand(false, stage) +
					code_block(o) * PAGES_Q8_BYTES(TILE::width);
	threadgroup const uint *scales =
		(threadgroup const uint *)(from + pages_scales(o.head_dim)) + o.lane / 4;
	threadgroup const half *rows =
		(threadgroup const half *)o.q + code_tile(o) * 16 * TILE::q_stride;
	UNROLL
	for (int i = 0; i < TILE::width / PAGES_GROUP; i++) {
		if (i * PAGES_GROUP >= int(o.head_dim))
			continue;
		uint r[4];
		codes_load(r, from + (i * PAGES_GROUP + o.lane) * 16);
		const half2 by = as_type<half2>(scales[i * 8]);
		UNROLL
		for (int k = 0; k < 2; k++) {
			fragment<half> a, b;
			UNROLL
			for (int j = 0; j < (codes_halved<TILE>() ? 2 : 4); j++) {
				const uint odd = codes_halved<TILE>() ? o.sg % 2 : j / 2;
				b.r[j] = scaled_codes(r[2 * k + j % 2], odd,
						      half2(odd ? by.y : by.x));
			}
			UNROLL
			for (int n = 0; n < TILE::blocks; n++) {
				fragment_load(a,
					      rows + n * 16 * TILE::q_stride + i * PAGES_GROUP +
						      k * 16,
					      TILE::q_stride, o.lane);
				if (codes_halved<TILE>())
					nv_mma_16x8x16<half>(x[n].r, a.r, b.r);
				else
					fragment_mma(x[n], a, b, o.lane);
			}
		}
	}
}

template <typename TILE>
METAL_FUNC void put_code_scores(thread TILE &o, thread fragment_sum (&x)[TILE::blocks])
{
	UNROLL
	for (int n = 0; n < TILE::blocks; n++)
		UNROLL
	for (int i = 0; i < 2; i++) {
		threadgroup float *to =
			o.s + ((code_tile(o) + n) * 16 + fragment_row(i, o.lane)) * TILE::s_stride +
			code_block(o) * 16 + o.lane % 4 * 4;
		thread const float *r = x[n].r + 2 * i;
		if (codes_halved<TILE>()) {
			to[o.sg % 2] = r[0];
			to[o.sg % 2 + 2] = r[1];
		} else {
			*(threadgroup float4 *)to = float4(r[0], r[4], r[1], r[5]);
		}
	}
}

// The halves of two tokens' scales that are not zero: of tokens that no query attends to,
// they may have any contents.
template <typename TILE> METAL_FUNC uint kept(thread TILE &o, uint t)
{
	return (t >= o.lowest && t <= o.highest ? 0xffffu : 0u) |
	       (t + 1 >= o.lowest && t + 1 <= o.highest ? 0xffff0000u : 0u);
}

// The codes of the sub-step's tokens and the nth sixteen columns.
template <typename TILE>
METAL_FUNC void load_values(thread TILE &o, thread uint (&r)[4], threadgroup const uchar *from,
			    uint nth)
{
	if (nth < uint(TILE::chunk / 16))
		codes_load(r, from + o.lane / 16 * PAGES_Q8_BYTES(TILE::width) +
				      code_place(o.lane % 16 * (o.head_dim / 16) + nth) * 16);
}

template <typename TILE> METAL_FUNC void add_codes(thread TILE &o, uint t, uint stage)
{
	threadgroup const half *p = (threadgroup const half *)o.s;
	threadgroup const uchar *from = (threadgroup const uchar *)o.operand(true, stage);
	// large heads load twice, as there are not enough registers to keep all
	constexpr bool kept_all = TILE::columns <= 4;
	uint r[kept_all ? TILE::columns : 1][4];
	if (kept_all)
		UNROLL
	for (int n = 0; n < TILE::columns; n++)
		load_values(o, r[kept_all ? n : 0], from, o.sg * TILE::columns + n);
	UNROLL
	for (int k = 0; k < TILE::token_blocks; k++) {
		threadgroup const uint *scales =
			(threadgroup const uint *)(from + k * PAGES_Q8_BYTES(TILE::width) +
						   pages_scales(o.head_dim)) +
			o.lane % 4;
		const uint first = t + k * 16 + o.lane % 4 * 2;
		const uint keep = kept(o, first), keep_next = kept(o, first + 8);
		fragment<half> a[TILE::queries / 16], b;
		UNROLL
		for (int m = 0; m < TILE::queries / 16; m++)
			fragment_load(a[m], p + m * 16 * TILE::p_stride + k * 16, TILE::p_stride,
				      o.lane);
		UNROLL
		for (int n = 0; n < TILE::columns; n++) {
			const uint nth = o.sg * TILE::columns + n;
			if (nth >= uint(TILE::chunk / 16))
				continue;
			thread uint(&four)[4] = r[kept_all ? n : 0];
			if (!kept_all)
				load_values(o, four, from, nth);
			const half2 low = as_type<half2>(scales[nth / 2 * 8] & keep),
				    high = as_type<half2>(scales[nth / 2 * 8 + 4] & keep_next);
			UNROLL
			for (int odd = 0; odd < 2; odd++) {
				b.r[2 * odd] = scaled_codes(four[2 * k], odd, low);
				b.r[2 * odd + 1] = scaled_codes(four[2 * k + 1], odd, high);
			}
			UNROLL
			for (int m = 0; m < TILE::queries / 16; m++)
				fragment_mma(o.acc[0][m][n], a[m], b, o.lane);
		}
	}
}
#else
// A chunk of K of the sub-step at t, [column][token]: 16 tokens at a time.
template <typename TILE> METAL_FUNC void decode_k(thread TILE &o, uint t, uint column0)
{
	constexpr int units = TILE::token_blocks * TILE::chunk;
	_Pragma("clang loop unroll(disable)") for (int n = 0; n < (units + ATTENTION_THREADS - 1) /
									  ATTENTION_THREADS;
						   n++)
	{
		const uint i = o.tid + n * ATTENTION_THREADS;
		if (units % ATTENTION_THREADS != 0 && i >= uint(units))
			continue;
		const uint b = i / TILE::chunk, at = i % TILE::chunk, column = column0 + at;
		threadgroup half *tile = (threadgroup half *)o.kv + at * TILE::k_stride + b * 16;
		uint4 x = uint4(0), low = uint4(0), high = uint4(0);
		if (o.seen(t + b * 16) && column < o.head_dim) {
			device const uchar *from = o.block_of(b);
			device const uchar *scales =
				from + pages_scales(o.head_dim) + column / PAGES_GROUP * 32;
			x = *(device const uint4 *)(from + column * 16);
			low = *(device const uint4 *)scales;
			high = *(device const uint4 *)(scales + 16);
		}
		decode_8(tile, x.xy, as_type<half4>(low.xy), as_type<half4>(low.zw));
		decode_8(tile + 8, x.zw, as_type<half4>(high.xy), as_type<half4>(high.zw));
	}
}

// A chunk of V of the sub-step at t, eight columns of a token at a time; zeros for tokens
// that no query attends to.
template <typename TILE> METAL_FUNC void decode_v(thread TILE &o, uint t, uint column0)
{
	constexpr int per_row = TILE::chunk / 8, units = TILE::tokens * per_row;
	_Pragma("clang loop unroll(disable)") for (int n = 0; n < (units + ATTENTION_THREADS - 1) /
									  ATTENTION_THREADS;
						   n++)
	{
		const uint i = o.tid + n * ATTENTION_THREADS;
		if (units % ATTENTION_THREADS != 0 && i >= uint(units))
			continue;
		const uint token = i / per_row, at = i % per_row * 8, column = column0 + at;
		uint2 x = uint2(0);
		half scale_of = half(0.0f);
		if (t + token >= o.lowest && t + token <= o.highest && column < o.head_dim) {
			device const uchar *from = o.block_of(token / 16) + o.cache.v_offset;
			device const uchar *scales =
				from + pages_scales(o.head_dim) + column / PAGES_GROUP * 32;
			x = *(device const uint2 *)(from + token % 16 * o.head_dim + column);
			scale_of = ((device const half *)scales)[token % 16];
		}
		decode_8((threadgroup half *)o.kv + token * TILE::kv_stride + at, x,
			 half4(scale_of), half4(scale_of));
	}
}

#endif
