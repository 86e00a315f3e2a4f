// linear_k.metal: products with weights side by side, in blocks of 256 with codes of 4 to 6 bits,
// multiplied in float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("q4_k_f16", q4_k_f16)
LINEAR_WIDE("q5_k_f16", q5_k_f16)
LINEAR_WIDE("q6_k_f16", q6_k_f16)
