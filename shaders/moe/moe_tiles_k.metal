// moe_tiles_k.metal: experts' products of weights in tiles: blocks of 256 with codes of 4 to 6 bits (moe_tiles.h).
#include "moe_tiles.h"

MOE_TILES("q4_k", BLOCK_Q4_K)
MOE_TILES("q5_k", BLOCK_Q5_K)
MOE_TILES("q6_k", BLOCK_Q6_K)
