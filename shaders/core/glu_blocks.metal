// glu_blocks.metal: gated linear units, in blocks of any format, multiplied in
// float16 (glu.h).
#include "glu.h"

GLU_WIDE("blocks_f16", blocks_f16)
