// glu_f32.metal: gated linear units, multiplied in float (glu.h).
#include "glu.h"

GLU_F32("f32_f32", f32_f32)
GLU_F32("f32_f32_odd", f32_f32_odd)
GLU_F32("f16_f32", f16_f32)
GLU_F32("f16_f32_odd", f16_f32_odd)
GLU_F32("bf16_f32", bf16_f32)
GLU_F32("bf16_f32_odd", bf16_f32_odd)
GLU_F32("blocks_f32", blocks_f32)
