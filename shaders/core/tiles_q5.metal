// tiles_q5.metal: products of weights in tiles: blocks of 32 with codes of 5 bits (linear_tiles.h).
#include "linear_tiles.h"

TILES("q5_0", BLOCK_Q5_0)
TILES("q5_1", BLOCK_Q5_1)
