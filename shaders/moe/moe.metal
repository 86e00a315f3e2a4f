// moe.metal: experts' products, float16 and bfloat16 (moe.h).
#include "moe.h"

MOE("f16_f16", f16_f16)
MOE("bf16_bf16", bf16_bf16)
