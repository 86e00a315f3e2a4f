// linear_q5.metal: products with weights side by side, in blocks of 32 with codes of 5 bits,
// multiplied in float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("q5_0_f16", q5_0_f16)
LINEAR_WIDE("q5_1_f16", q5_1_f16)
