// glu.metal: gated linear units, float16 (glu.h).
#include "glu_large.h"

GLU_LARGE("f16_f16", f16_f16)
GLU_SHARES("f16_f16", f16_f16)
GLU("f16_f16_odd", f16_f16_odd)
