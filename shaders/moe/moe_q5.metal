// moe_q5.metal: experts' products, in blocks of 32 with codes of 5 bits, in float16 (moe.h).
#include "moe.h"

MOE("q5_0_f16", q5_0_f16)
MOE("q5_1_f16", q5_1_f16)
