// linear_table.metal: products with weights side by side, with codes that index a table of values,
// multiplied in float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("iq4_nl_f16", iq4_nl_f16)
LINEAR_WIDE("iq4_xs_f16", iq4_xs_f16)
LINEAR_WIDE("mxfp4_f16", mxfp4_f16)
