// linear_q.metal: products with weights side by side, quantised, multiplied in float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("q8_0_f16", q8_0_f16)
LINEAR_WIDE("q4_0_f16", q4_0_f16)
LINEAR_WIDE("q4_1_f16", q4_1_f16)
LINEAR_WIDE("q8_m_f16", q8_m_f16)
