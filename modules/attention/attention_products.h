/*
 * attention_products.h: the matrix products of attention, scores and P V, in tiles whose sums are registers;
 * a part of attention_tile.h, compiled with it for each instruction set.
 */
#pragma once

/* ---- scores = Q K^T ----------------------------------------------------------------- */

/* nq query vectors from q[0] on, nv vectors of tokens from column on. */
INLINE void scores_tile(const int nq, const int nv, const struct unit *u, int32_t first,
			int32_t column, float *s)
{
	const float *kt = u->kt + column;
	const float *q[TILE_Q];
	vec acc[TILE_Q][TILE_V], k[TILE_V];

	UNROLL for (int i = 0; i < nq; i++)
	{
		q[i] = u->q[first + i];
		UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vec_zero();
	}
	for (int32_t d = 0; d < u->dim; d++, kt += KT_STRIDE) {
		UNROLL for (int j = 0; j < nv; j++) k[j] = vec_load(kt + j * VL);
		UNROLL for (int i = 0; i < nq; i++)
		{
			vec x = vec_set1(q[i][d]);

			UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vec_fma(x, k[j], acc[i][j]);
		}
	}
	UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < nv; j++)
		vec_store(s + i * S_STRIDE + j * VL, acc[i][j]);
}

/* ---- out += P V ---------------------------------------------------------------------- */

/* The range's V by blocks, from its start on: rows, stride bytes apart, of floats, halves or codes
 * with u->v_scale. */
struct values {
	const char *block[RANGE_BLOCKS];
	uint64_t stride;
	uint32_t dtype;
};

/* VL values at src, which are VL columns of a row; scale: of Q8_0. */
INLINE vec vec_load_values(const uint32_t dtype, const char *src, const float *scale)
{
	if (dtype == IG_Q8_0)
		return vec_mul(vec_load_i8((const int8_t *)src), vec_set1(*scale));
	if (dtype == IG_F16)
		return vec_load_f16((const uint16_t *)(const void *)src);
	return vec_load((const float *)(const void *)src);
}

/* nq vectors of weights, nv vectors of dimensions from column on, positions
 * from … to - 1 of the range. */
INLINE void weigh_tile(const int nq, const int nv, const uint32_t dtype, const struct unit *u,
		       const struct values *v, int32_t first, int32_t column, int32_t from,
		       int32_t to)
{
	const int bytes = dtype == IG_Q8_0 ? 1 : dtype == IG_F16 ? 2 : 4;
	float *o = u->o + first * u->dim16 + column;
	const float *p = u->s + first * S_STRIDE;
	const float *scale[TILE_V];
	vec acc[TILE_Q][TILE_V], x[TILE_V];

	UNROLL for (int j = 0; j < nv; j++) scale[j] =
		u->v_scale + (column + j * VL) / IG_KV_GROUP * RANGE;

	UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] =
		vec_load(o + i * u->dim16 + j * VL);
	for (int32_t t = from; t < to;) {
		const int32_t end =
			(t | (IG_BLOCK_TOKENS - 1)) + 1 < to ? (t | (IG_BLOCK_TOKENS - 1)) + 1 : to;
		const char *src = v->block[t / IG_BLOCK_TOKENS] +
				  (uint64_t)(t % IG_BLOCK_TOKENS) * v->stride +
				  (uint64_t)column * (unsigned)bytes;
		for (; t < end; t++, src += v->stride) {
			UNROLL for (int j = 0; j < nv; j++) x[j] =
				vec_load_values(dtype, src + j * VL * bytes, scale[j] + t);
			UNROLL for (int i = 0; i < nq; i++)
			{
				vec w = vec_set1(p[i * S_STRIDE + t]);

				UNROLL for (int j = 0; j < nv; j++) acc[i][j] =
					vec_fma(w, x[j], acc[i][j]);
			}
		}
	}
	UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < nv; j++)
		vec_store(o + i * u->dim16 + j * VL, acc[i][j]);
}

/* A case for every tile up to TILE_Q by TILE_V, so that its accumulators are registers. */
#if TILE_V == 4
#define EACH_NV(nq, launch)                                                                        \
	case (nq) * 8 + 1: launch(nq, 1); break;                                                   \
	case (nq) * 8 + 2: launch(nq, 2); break;                                                   \
	case (nq) * 8 + 3: launch(nq, 3); break;                                                   \
	case (nq) * 8 + 4: launch(nq, 4); break;
#elif TILE_V == 2
#define EACH_NV(nq, launch)                                                                        \
	case (nq) * 8 + 2: launch(nq, 2); break;
#endif
#ifdef IG_KEEP_LOOPS
#define EACH_TILE(launch)                                                                          \
	default: launch(nq, nv); break;
#else
#define EACH_TILE(launch)                                                                          \
	EACH_NV(1, launch)                                                                         \
	EACH_NV(2, launch)                                                                         \
	EACH_NV(3, launch) EACH_NV(4, launch) EACH_NV(5, launch) EACH_NV(6, launch)
#endif

static void scores(const struct unit *u, int nq, int nv, int32_t first, int32_t column, float *s)
{
#define CALL(a, b) scores_tile(a, b, u, first, column, s)
	switch (nq * 8 + nv) {
		EACH_TILE(CALL)
	}
#undef CALL
}

#define WEIGH(name, dtype)                                                                         \
	static void name(const struct unit *u, const struct values *v, int nq, int nv,             \
			 int32_t first, int32_t column, int32_t from, int32_t to)                  \
	{                                                                                          \
		switch (nq * 8 + nv) {                                                             \
			EACH_TILE(CALL_##dtype)                                                    \
		}                                                                                  \
	}
#define CALL_IG_F32(a, b) weigh_tile(a, b, IG_F32, u, v, first, column, from, to)
#define CALL_IG_F16(a, b) weigh_tile(a, b, IG_F16, u, v, first, column, from, to)
#define CALL_IG_Q8_0(a, b) weigh_tile(a, b, IG_Q8_0, u, v, first, column, from, to)
WEIGH(weigh_f32, IG_F32)
WEIGH(weigh_f16, IG_F16)
WEIGH(weigh_q8, IG_Q8_0)

/* All dimensions of nq query vectors. */
static void weigh(const struct unit *u, const struct values *v, int nq, int32_t first, int32_t from,
		  int32_t to)
{
	if (from >= to)
		return;
	for (int32_t column = 0; column < u->dim16; column += TILE_V * VL) {
		int nv = (u->dim16 - column) / VL;
		nv = nv < TILE_V ? nv : TILE_V;
		if (v->dtype == IG_Q8_0)
			weigh_q8(u, v, nq, nv, first, column, from, to);
		else if (v->dtype == IG_F16)
			weigh_f16(u, v, nq, nv, first, column, from, to);
		else
			weigh_f32(u, v, nq, nv, first, column, from, to);
	}
}
