// moe_k.metal: experts' products, in blocks of 256 with codes of 4 to 6 bits, in float16 (moe.h).
#include "moe.h"

MOE("q4_k_f16", q4_k_f16)
MOE("q5_k_f16", q5_k_f16)
MOE("q6_k_f16", q6_k_f16)
