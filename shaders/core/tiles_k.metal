// tiles_k.metal: products of weights in tiles: blocks of 256 with codes of 4 to 6 bits
// (linear_tiles.h).
#include "linear_tiles.h"

TILES("q4_k", BLOCK_Q4_K)
TILES("q5_k", BLOCK_Q5_K)
TILES("q6_k", BLOCK_Q6_K)
