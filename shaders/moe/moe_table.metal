// moe_table.metal: experts' products, with codes that index a table of values, in float16 (moe.h).
#include "moe.h"

MOE("iq4_nl_f16", iq4_nl_f16)
MOE("iq4_xs_f16", iq4_xs_f16)
MOE("mxfp4_f16", mxfp4_f16)
