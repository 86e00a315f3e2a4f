// moe_k23.metal: experts' products, in blocks of 256 with codes of 2 and 3 bits, in float16 (moe.h).
#include "moe.h"

MOE("q2_k_f16", q2_k_f16)
MOE("q3_k_f16", q3_k_f16)
