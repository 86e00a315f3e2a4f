// route.h: a route as kernels read it: rows of words in four parts of top_k, of which ids
// and weights are of their row, order and runs lists of the whole step (ingot/arch.h).
#pragma once

#include <metal_stdlib>
#include "portable.h"
using namespace metal;

#define ROUTE_IDS 0u // as IG_ROUTE_…
#define ROUTE_WEIGHTS 1u
#define ROUTE_ORDER 2u
#define ROUTE_RUNS 3u

// Where entry i of a part lies.
METAL_FUNC ulong route_word(uint stride, uint top_k, uint part, uint i)
{
	return ulong(i / top_k) * stride + part * top_k + i % top_k;
}
