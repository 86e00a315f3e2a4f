// tiles_k23.metal: products of weights in tiles: blocks of 256 with codes of 2 or 3 bits
// (linear_tiles.h).
#include "linear_tiles.h"

TILES("q2_k", BLOCK_Q2_K)
TILES("q3_k", BLOCK_Q3_K)
