// tiles_table.metal: products of weights in tiles: codes that are an index (linear_tiles.h).
#include "linear_tiles.h"

TILES("iq4_nl", BLOCK_IQ4_NL)
TILES("iq4_xs", BLOCK_IQ4_XS)
TILES("mxfp4", BLOCK_MXFP4)
