// glu_table.metal: gated linear units, with codes that index a table of values,
// multiplied in float16 (glu.h).
#include "glu.h"

GLU_WIDE("iq4_nl_f16", iq4_nl_f16)
GLU_WIDE("iq4_xs_f16", iq4_xs_f16)
GLU_WIDE("mxfp4_f16", mxfp4_f16)
