// moe_f32.metal: experts' products, multiplied in float (moe.h).
#include "moe.h"

MOE_F32("f32_f32", f32_f32)
MOE_F32("f16_f32", f16_f32)
MOE_F32("bf16_f32", bf16_f32)
MOE_F32("blocks_f32", blocks_f32)
