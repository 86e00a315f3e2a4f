// tiles_q.metal: products of weights in tiles: blocks of 32 with codes of 4 or 8 bits (linear_tiles.h).
#include "linear_tiles.h"

TILES("q4_0", BLOCK_Q4_0)
TILES("q4_1", BLOCK_Q4_1)
TILES("q8_0", BLOCK_Q8_0)
TILES("q8_m", BLOCK_Q8_M)
