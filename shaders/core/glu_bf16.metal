// glu_bf16.metal: gated linear units, bfloat16 (glu.h).
#include "glu_large.h"

GLU_LARGE("bf16_bf16", bf16_bf16)
GLU("bf16_bf16_odd", bf16_bf16_odd)
