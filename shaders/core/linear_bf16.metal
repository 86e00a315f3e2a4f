// linear_bf16.metal: products with weights side by side, bfloat16 (linear.h).
#include "linear_large.h"

LINEAR_LARGE("bf16_bf16", bf16_bf16)
LINEAR("bf16_bf16_odd", bf16_bf16_odd)
