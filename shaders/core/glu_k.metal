// glu_k.metal: gated linear units, in blocks of 256 with codes of 4 to 6 bits,
// multiplied in float16 (glu.h).
#include "glu.h"

GLU_WIDE("q4_k_f16", q4_k_f16)
GLU_WIDE("q5_k_f16", q5_k_f16)
GLU_WIDE("q6_k_f16", q6_k_f16)
