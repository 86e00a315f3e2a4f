// moe_tiles_q.metal: experts' products of weights in tiles: blocks of 32 with codes of 4 and 8 bits (moe_tiles.h).
#include "moe_tiles.h"

MOE_TILES("q4_0", BLOCK_Q4_0)
MOE_TILES("q4_1", BLOCK_Q4_1)
MOE_TILES("q8_0", BLOCK_Q8_0)
MOE_TILES("q8_m", BLOCK_Q8_M)
