// glu_q.metal: gated linear units, quantised, multiplied in float16 (glu.h).
#include "glu.h"

GLU_WIDE("q8_0_f16", q8_0_f16)
GLU_WIDE("q4_0_f16", q4_0_f16)
GLU_WIDE("q4_1_f16", q4_1_f16)
GLU_WIDE("q8_m_f16", q8_m_f16)
