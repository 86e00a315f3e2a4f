// linear_k23.metal: products with weights side by side, in blocks of 256 with codes of 2 and 3 bits,
// multiplied in float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("q2_k_f16", q2_k_f16)
LINEAR_WIDE("q3_k_f16", q3_k_f16)
