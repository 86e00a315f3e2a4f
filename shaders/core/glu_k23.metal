// glu_k23.metal: gated linear units, in blocks of 256 with codes of 2 and 3 bits,
// multiplied in float16 (glu.h).
#include "glu.h"

GLU_WIDE("q2_k_f16", q2_k_f16)
GLU_WIDE("q3_k_f16", q3_k_f16)
