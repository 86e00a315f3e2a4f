// attention_f32.metal: attention over a cache of float32.  A file of its own, because
// drivers compile all kernels of a file when they need one.
#include <metal_stdlib>
#include "../portable.h"
#include "attention_split.h"
#include "attention_whole.h"

using namespace metal;

ATTENTION_INSTANCES("f32_d32", float, 32, false)
ATTENTION_INSTANCES("f32_d64", float, 64, false)
ATTENTION_INSTANCES("f32_d80", float, 80, false)
ATTENTION_INSTANCES("f32_d96", float, 96, false)
ATTENTION_INSTANCES("f32_d128", float, 128, false)
ATTENTION_INSTANCES("f32_d256", float, 256, false)
ATTENTION_INSTANCES("f32_d512", float, 512, false)
ATTENTION_INSTANCES("f32_d576", float, 576, false)
