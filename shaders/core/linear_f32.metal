// linear_f32.metal: products with weights side by side, multiplied in float (linear.h, linear_dots.h).
#include "linear.h"
#include "linear_dots.h"

LINEAR_F32("f32_f32", f32_f32)
LINEAR_F32("f32_f32_odd", f32_f32_odd)
LINEAR_F32("f16_f32", f16_f32)
LINEAR_F32("f16_f32_odd", f16_f32_odd)
LINEAR_F32("bf16_f32", bf16_f32)
LINEAR_F32("bf16_f32_odd", bf16_f32_odd)
LINEAR_F32("blocks_f32", blocks_f32)
