// attention_q8.metal: attention over a cache with K, V or both in Q8_0, and the other in float16.
// Which one is known when a kernel runs: instances of their own would be three times as many.
#include <metal_stdlib>
#include "../portable.h"
#include "attention_split.h"
#include "attention_stream.h"
#include "attention_whole.h"
#include "group_kernels.h"

using namespace metal;

ATTENTION_SMALL("q8_d32", 32, true)
ATTENTION_SMALL("q8_d64", 64, true)
ATTENTION_SMALL("q8_d96", 96, true)
ATTENTION_SMALL("q8_d128", 128, true)
ATTENTION_INSTANCES("q8_d256", half, 256, true)
ATTENTION_INSTANCES("q8_d512", half, 512, true)
ATTENTION_STREAM("q8_d64", 64, true)
ATTENTION_STREAM("q8_d128", 128, true)
