// tile_tensor.h: tile_product (tile.h) on the tensor units of Apple's GPUs from the M5 on, in Metal 4's
// language.  Each simdgroup multiplies its own part of the tile, of operands in threadgroup memory
// without padding, into a cooperative tensor: where its lanes' elements are is the system's business.
//
// The order of the sums over k is the unit's.  Few rows and many are multiplied by the same instruction,
// BK of k at a time, so that a row has the same bits alone as among others; whether the unit keeps that
// promise for products of different heights is what the driver asks it before it uses any of this
// (metal/tensor_probe.metal).
#pragma once

#include "tile.h"

#ifdef TILE_TENSOR
template <typename T, int BM, int BN, int BK, int SM, int SN, bool PAIR>
struct tile_product<T, BM, BN, BK, SM, SN, PAIR, true> {
	static constexpr constant int height = BM / SM, width = BN / SN; // a simdgroup's
	static constexpr constant int parts = 1, lag = 0;
	static constexpr constant bool tensor_units = true;
	static_assert(height * SM == BM && width * SN == BN, "tile");

	typedef tensor<threadgroup T, extents<int, BK, height>, tensor_inline> rows_of_x;
	typedef tensor<threadgroup T, extents<int, BK, width>, tensor_inline> rows_of_w;
	typedef tensor_product<height, width, BK> unit;
	typedef decltype(unit().template get_destination_cooperative_tensor<rows_of_x, rows_of_w,
									    float>()) sums;

	sums acc;

	METAL_FUNC void clear() thread
	{
		UNROLL
		for (ushort i = 0; i < acc.get_capacity(); i++)
			if (acc.is_valid_element(i))
				acc[i] = 0.0f;
	}

	// All BK of k: there is one part.
	METAL_FUNC void mma(threadgroup const T *a, threadgroup const T *b, int, uint, uint sg,
			    uint) thread
	{
		rows_of_x x((threadgroup T *)(a + sg / SN * height * BK),
			    extents<int, BK, height>());
		rows_of_w w((threadgroup T *)(b + sg % SN * width * BK), extents<int, BK, width>());
		unit u;
		u.run(x, w, acc);
	}

	// Adds p's sums, or takes them.
	METAL_FUNC void add(thread tile_product &p, bool first) thread
	{
		UNROLL
		for (ushort i = 0; i < acc.get_capacity(); i++)
			if (acc.is_valid_element(i))
				acc[i] = first ? p.acc[i] : acc[i] + p.acc[i];
	}

	// Row r and column c of the tile are at place(r, c): each simdgroup's part is in one piece.
	static METAL_FUNC uint place(uint r, uint c)
	{
		return (r / height * SN + c / width) * (height * width) + r % height * width +
		       c % width;
	}
	METAL_FUNC void keep(threadgroup float *at, uint sg) thread
	{
		tensor<threadgroup float, extents<int, width, height>, tensor_inline> to(
			at + sg * (height * width), extents<int, width, height>());
		acc.store(to);
	}

	METAL_FUNC void arrive() thread {}
	METAL_FUNC void begin() thread {}
	METAL_FUNC void commit() thread {}
	template <int LAG> METAL_FUNC void await() thread {}
};
#endif
