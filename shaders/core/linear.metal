// linear.metal: products with weights side by side, float16 (linear.h).
#include "linear_large.h"

LINEAR_LARGE("f16_f16", f16_f16)
LINEAR_SHARES("f16_f16", f16_f16)
LINEAR("f16_f16_odd", f16_f16_odd)
