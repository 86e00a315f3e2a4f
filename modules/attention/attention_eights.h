/*
 * attention_eights.h: scores of a block from two calls of scores_half (8 tokens each), for
 * AVX2 and NEON.  Included after scores_half.
 */
#pragma once

static int scores_in_place(const struct unit *u, int nq, const char *block, float *s)
{
	for (int t = 0; t < IG_BLOCK_TOKENS; t += 8, block += 8 * u->layout->k_token_stride, s += 8)
		switch (nq) {
		case 1: scores_half(1, u, block, s); break;
		case 2: scores_half(2, u, block, s); break;
		case 3: scores_half(3, u, block, s); break;
		case 4: scores_half(4, u, block, s); break;
		case 5: scores_half(5, u, block, s); break;
		case 6: scores_half(6, u, block, s); break;
		default: return 0;
		}
	return 1;
}
