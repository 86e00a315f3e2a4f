// moe_tiles_unpack.metal: experts' weights in tiles to rows (core/tiles_unpack.h).
#include "../core/tiles_unpack.h"

instantiate_kernel("moe_tiles_unpack_q4_0", tiles_unpack, BLOCK_Q4_0)
instantiate_kernel("moe_tiles_unpack_q4_1", tiles_unpack, BLOCK_Q4_1)
instantiate_kernel("moe_tiles_unpack_q5_0", tiles_unpack, BLOCK_Q5_0)
instantiate_kernel("moe_tiles_unpack_q5_1", tiles_unpack, BLOCK_Q5_1)
instantiate_kernel("moe_tiles_unpack_q8_0", tiles_unpack, BLOCK_Q8_0)
instantiate_kernel("moe_tiles_unpack_q8_m", tiles_unpack, BLOCK_Q8_M)
instantiate_kernel("moe_tiles_unpack_q2_k", tiles_unpack, BLOCK_Q2_K)
instantiate_kernel("moe_tiles_unpack_q3_k", tiles_unpack, BLOCK_Q3_K)
instantiate_kernel("moe_tiles_unpack_q4_k", tiles_unpack, BLOCK_Q4_K)
instantiate_kernel("moe_tiles_unpack_q5_k", tiles_unpack, BLOCK_Q5_K)
instantiate_kernel("moe_tiles_unpack_q6_k", tiles_unpack, BLOCK_Q6_K)
instantiate_kernel("moe_tiles_unpack_iq4_nl", tiles_unpack, BLOCK_IQ4_NL)
instantiate_kernel("moe_tiles_unpack_iq4_xs", tiles_unpack, BLOCK_IQ4_XS)
instantiate_kernel("moe_tiles_unpack_mxfp4", tiles_unpack, BLOCK_MXFP4)
