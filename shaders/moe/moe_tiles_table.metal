// moe_tiles_table.metal: experts' products of weights in tiles: codes that are an index (moe_tiles.h).
#include "moe_tiles.h"

MOE_TILES("iq4_nl", BLOCK_IQ4_NL)
MOE_TILES("iq4_xs", BLOCK_IQ4_XS)
MOE_TILES("mxfp4", BLOCK_MXFP4)
