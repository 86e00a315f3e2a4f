// moe_blocks.metal: experts' products, in blocks of any other format, multiplied in float16 (moe.h).
#include "moe.h"

MOE("blocks_f16", blocks_f16)
