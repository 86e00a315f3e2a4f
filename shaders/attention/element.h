// element.h: storing values as float32 or rounded to 16 bits.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
using namespace metal;

// A half must not become infinite: its product with a weight of 0 would be NaN.
METAL_FUNC float in_half(float x)
{
	return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

template <typename T> METAL_FUNC T element(float x);
template <> METAL_FUNC float element<float>(float x) { return x; }
template <> METAL_FUNC half element<half>(float x) { return half(in_half(x)); }

// Store element i of a row whose type is known at run time (ELEMENT_…).
METAL_FUNC void store_element(device uchar *row, uint i, float x, uint type)
{
	if (type == ELEMENT_F16)
		((device half *)row)[i] = half(in_half(x));
	else if (type == ELEMENT_BF16)
		((device bfloat *)row)[i] = bfloat(x);
	else
		((device float *)row)[i] = x;
}

METAL_FUNC uint element_bytes(uint type) { return type == ELEMENT_F32 ? 4 : 2; }
