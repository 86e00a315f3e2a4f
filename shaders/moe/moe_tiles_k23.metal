// moe_tiles_k23.metal: experts' products of weights in tiles: blocks of 256 with codes of 2 or 3 bits
// (moe_tiles.h).
#include "moe_tiles.h"

MOE_TILES("q2_k", BLOCK_Q2_K)
MOE_TILES("q3_k", BLOCK_Q3_K)
