// route.h: the layout of a route: rows of words in four parts of top_k.  ids and weights belong to
// their row; order and runs are lists of the whole step (modules/moe/moe_private.h).
#pragma once

#include <metal_stdlib>
#include "portable.h"
using namespace metal;

#define ROUTE_IDS 0u // as IG_ROUTE_…
#define ROUTE_WEIGHTS 1u
#define ROUTE_ORDER 2u
#define ROUTE_RUNS 3u

// The index of entry i of a part.
METAL_FUNC ulong route_word(uint stride, uint top_k, uint part, uint i)
{
	return ulong(i / top_k) * stride + part * top_k + i % top_k;
}
