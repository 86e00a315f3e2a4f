// glu_q5.metal: gated linear units, in blocks of 32 with codes of 5 bits,
// multiplied in float16 (glu.h).
#include "glu.h"

GLU_WIDE("q5_0_f16", q5_0_f16)
GLU_WIDE("q5_1_f16", q5_1_f16)
