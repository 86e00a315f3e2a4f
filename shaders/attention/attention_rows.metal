// attention_rows.metal: attention among the rows of one text, all of which the step has: attention_loop, whose
// q | k | v is in rows, in the type in which they are multiplied.  Nothing is cached and no ranges are split.
#include <metal_stdlib>
#include "../portable.h"
#include "attention_loop.h"

using namespace metal;

#define ROWS_INSTANCE(name, T, D)                                                                  \
	instantiate_kernel("attention_rows_" name, attention_loop, T, D, false, true,              \
			   ATTENTION_LOOP_TILES(sizeof(T), D, COPIES_ASYNC))

ROWS_INSTANCE("f16_d32", half, 32)
ROWS_INSTANCE("f16_d64", half, 64)
ROWS_INSTANCE("f16_d96", half, 96)
ROWS_INSTANCE("f16_d128", half, 128)
ROWS_INSTANCE("f16_d256", half, 256)
ROWS_INSTANCE("f32_d32", float, 32)
ROWS_INSTANCE("f32_d64", float, 64)
ROWS_INSTANCE("f32_d96", float, 96)
ROWS_INSTANCE("f32_d128", float, 128)
ROWS_INSTANCE("f32_d256", float, 256)
