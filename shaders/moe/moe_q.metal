// moe_q.metal: experts' products, in blocks of 32 with codes of 4 and 8 bits, in float16 (moe.h).
#include "moe.h"

MOE("q8_0_f16", q8_0_f16)
MOE("q4_0_f16", q4_0_f16)
MOE("q4_1_f16", q4_1_f16)
MOE("q8_m_f16", q8_m_f16)
