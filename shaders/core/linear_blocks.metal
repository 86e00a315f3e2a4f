// linear_blocks.metal: products with weights side by side, in blocks of any format, multiplied in
// float16 (linear.h).
#include "linear.h"

LINEAR_WIDE("blocks_f16", blocks_f16)
