// moe_tiles_q5.metal: experts' products of weights in tiles: blocks of 32 with codes of 5 bits (moe_tiles.h).
#include "moe_tiles.h"

MOE_TILES("q5_0", BLOCK_Q5_0)
MOE_TILES("q5_1", BLOCK_Q5_1)
