/*
 * attention_range.h: one range of a unit: its scores, their weights and P V, and the merge of this partial result with
 * the ranges before it; a part of attention_tile.h, compiled with it for each instruction set.
 */
#pragma once

static int32_t at_least(int32_t a, int32_t b) { return a > b ? a : b; }

static int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }

/* Scores of two vectors of tokens, from t and from t2 on, with K in Q8_0. */
INLINE void scores_q8(const int nq, const struct unit *u, char *const *blocks, int32_t t,
		      int32_t t2)
{
	const int32_t at[2] = { t, t2 };
	const int8_t *code[2];
	const uint16_t *scale[2];
	vec acc[TILE_Q][2], by[2], k[2];

	UNROLL for (int j = 0; j < 2; j++)
	{
		const char *block = blocks[at[j] / IG_BLOCK_TOKENS];
		code[j] = (const int8_t *)block + at[j] % IG_BLOCK_TOKENS;
		scale[j] = scales_of(u, block) + at[j] % IG_BLOCK_TOKENS;
	}
	UNROLL for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = vec_zero();
	for (int32_t d = 0; d < u->dim;) {
		UNROLL for (int j = 0; j < 2; j++) by[j] =
			vec_load_f16(scale[j] + d / IG_KV_GROUP * IG_BLOCK_TOKENS);
		for (const int32_t end = d + IG_KV_GROUP; d < end; d++) {
			UNROLL for (int j = 0; j < 2; j++) k[j] =
				vec_mul(vec_load_i8(code[j] + d * IG_BLOCK_TOKENS), by[j]);
			UNROLL for (int i = 0; i < nq; i++)
			{
				vec x = vec_set1(u->q[i][d]);

				UNROLL for (int j = 0; j < 2; j++) acc[i][j] =
					vec_fma(x, k[j], acc[i][j]);
			}
		}
	}
	UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < 2; j++)
		vec_store(u->s + i * S_STRIDE + at[j], acc[i][j]);
}

static void range_scores_q8(const struct unit *u, char *const *blocks, int32_t first_block,
			    int32_t end_block)
{
	const int32_t ahead = VL < IG_BLOCK_TOKENS ? 1 : 2; /* blocks of two vectors */
	const int32_t end = end_block * IG_BLOCK_TOKENS;

	for (int32_t t = first_block * IG_BLOCK_TOKENS; t < end; t += 2 * VL) {
		const int32_t t2 = t + VL < end ? t + VL : t; /* the same once more: equal scores */
		for (int32_t b = t / IG_BLOCK_TOKENS;
		     t % IG_BLOCK_TOKENS == 0 &&
		     b < at_most(t / IG_BLOCK_TOKENS + ahead, end_block);
		     b++) {
			prefetch_v(u, blocks[b]);
			if (b + ahead < end_block)
				prefetch_k(u, blocks[b + ahead]);
		}
		switch (u->n) {
		case 1: scores_q8(1, u, blocks, t, t2); break;
		case 2: scores_q8(2, u, blocks, t, t2); break;
		case 3: scores_q8(3, u, blocks, t, t2); break;
		case 4: scores_q8(4, u, blocks, t, t2); break;
		case 5: scores_q8(5, u, blocks, t, t2); break;
		default: scores_q8(6, u, blocks, t, t2); break;
		}
	}
}

/* Scores of blocks first_block … end_block - 1 of the range without a transposed copy of K;
 * returns 0 if the query vectors are too many or the format is unsupported. */
static int range_scores_in_place(struct unit *u, char *const *blocks, int32_t first_block,
				 int32_t end_block)
{
	if (u->layout->k_dtype == IG_F32 || u->n > TILE_Q)
		return 0;
	if (u->layout->k_dtype == IG_Q8_0) {
		range_scores_q8(u, blocks, first_block, end_block);
		return 1;
	}
	for (int32_t b = first_block; b < end_block; b++) {
		prefetch_v(u, blocks[b]);
		if (b + 1 < end_block)
			prefetch_k(u, blocks[b + 1]);
		if (!scores_in_place(u, u->n, blocks[b], u->s + b * IG_BLOCK_TOKENS))
			return 0;
	}
	return 1;
}

/* Scores of blocks first_block … end_block - 1 of the range. */
static void range_scores(struct unit *u, char *const *blocks, int32_t first_block,
			 int32_t end_block)
{
	if (range_scores_in_place(u, blocks, first_block, end_block))
		return;
	for (int32_t b = first_block; b < end_block; b += SUB_BLOCKS) {
		const int32_t n = at_most(SUB_BLOCKS, end_block - b);
		const int32_t start = b * IG_BLOCK_TOKENS;

		/* Prefetch V of these blocks and K of the next ones during the work on this K. */
		for (int32_t i = 0; i < n; i++)
			prefetch_v(u, blocks[b + i]);
		for (int32_t i = b + n; i < at_most(b + n + SUB_BLOCKS, end_block); i++)
			prefetch_k(u, blocks[i]);
		load_k(u, blocks + b, n);
		for (int32_t q = 0; q < u->n; q += TILE_Q) {
			const int nq = at_most(TILE_Q, u->n - q);
			int32_t lo = RANGE, hi = 0;
			for (int i = 0; i < nq; i++) {
				lo = at_most(lo, u->lo[q + i]);
				hi = at_least(hi, u->hi[q + i]);
			}
			hi = at_most(hi, start + n * IG_BLOCK_TOKENS);
			if (lo >= hi)
				continue;
			/* whole blocks: scores beyond hi are never read */
			for (int32_t t = start; t < hi; t += TILE_V * VL) {
				int nv = (hi - t + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS *
					 BLOCK_VECS;
				scores(u, nq, at_most(nv, TILE_V), q, t - start,
				       u->s + q * S_STRIDE + t);
			}
		}
	}
}

/* Replace the unscaled scores s[lo … hi - 1] by exp(scale * s - max).  Vectors begin
 * at multiples of VL, so a position's lane is fixed. */
static void soft_max(float *s, int32_t lo, int32_t hi, float scale, float *max, float *sum)
{
	const vec none = vec_set1(-INFINITY), by = vec_set1(scale);
	const int32_t start = lo / VL * VL;
	vec top = none, total = vec_zero();

	for (int32_t t = start; t < hi; t += VL) {
		vec x = vec_mul(vec_load(s + t), by);

		if (t < lo || t + VL > hi)
			x = vec_keep(x, lo - t, hi - t, none);
		vec_store(s + t, x);
		top = vec_max(top, x);
	}
	*max = vec_hmax(top);
	top = vec_set1(-*max);
	for (int32_t t = start; t < hi; t += VL) {
		vec x = vec_exp(vec_add(vec_load(s + t), top));

		vec_store(s + t, x);
		total = vec_add(total, x);
	}
	*sum = vec_hsum(total);
}

/* Add P V of tokens from … to - 1 for query vectors first … first + nq - 1: tokens that all of
 * them attend to in one tile, the few tokens at either end one by one. */
static void weigh_queries(const struct unit *u, const struct values *v, int nq, int32_t first,
			  int32_t from, int32_t to)
{
	int32_t lo = from, hi = to;

	for (int i = 0; i < nq; i++) {
		lo = at_least(lo, u->lo[first + i]);
		hi = at_most(hi, u->hi[first + i]);
	}
	if (lo >= hi)
		lo = hi = to; /* no common tokens: all one by one */
	for (int i = 0; i < nq; i++)
		weigh(u, v, 1, first + i, at_least(from, u->lo[first + i]),
		      at_most(lo, u->hi[first + i]));
	weigh(u, v, nq, first, lo, hi);
	if (hi == to)
		return;
	for (int i = 0; i < nq; i++)
		weigh(u, v, 1, first + i, hi, at_most(to, u->hi[first + i]));
}

/* Scales of V in blocks first_block … end_block - 1 of the range, as floats. */
static void load_v_scales(struct unit *u, char *const *blocks, int32_t first_block,
			  int32_t end_block)
{
	for (int32_t b = first_block; b < end_block; b++) {
		const uint16_t *from = scales_of(u, blocks[b] + u->v_side.offset);
		float *to = u->v_scale + b * IG_BLOCK_TOKENS;
		for (int32_t g = 0; g < u->dim; g += IG_KV_GROUP, to += RANGE)
			for (int t = 0; t < IG_BLOCK_TOKENS; t += VL, from += VL)
				vec_store(to + t, vec_load_f16(from));
	}
}

/* P V of the range.  Few query vectors read V in place; many share its conversion. */
static void range_values(struct unit *u, char *const *blocks, int32_t lo, int32_t hi)
{
	const uint32_t dtype = u->v_side.dtype;
	const int in_place = u->v_dim == u->dim16 && (dtype == IG_F32 || u->n <= TILE_Q) &&
			     !(dtype == IG_Q8_0 && u->p->v_dim);
	struct values v = { .stride = (uint64_t)u->dim16 * sizeof(float) };

	if (in_place) {
		v.dtype = dtype;
		v.stride = dtype == IG_Q8_0 ? (uint64_t)u->dim : u->v_side.token_stride;
	}
	if (in_place && dtype == IG_Q8_0)
		load_v_scales(u, blocks, lo / IG_BLOCK_TOKENS,
			      (hi + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS);

	memset(u->o, 0, (size_t)u->n * (size_t)u->dim16 * sizeof *u->o);
	for (int32_t from = lo; from < hi;) {
		const int32_t first_block = from / IG_BLOCK_TOKENS;
		int32_t to = hi;
		if (in_place) {
			for (int32_t b = first_block; b * IG_BLOCK_TOKENS < hi; b++)
				v.block[b] = blocks[b] + u->v_side.offset;
		} else {
			to = at_most(hi, (first_block + SUB_BLOCKS) * IG_BLOCK_TOKENS);
			load_v(u, blocks + first_block, from - first_block * IG_BLOCK_TOKENS,
			       to - first_block * IG_BLOCK_TOKENS);
			for (int32_t b = 0; (first_block + b) * IG_BLOCK_TOKENS < to; b++)
				v.block[first_block + b] =
					(const char *)(u->v + b * IG_BLOCK_TOKENS * u->dim16);
		}
		for (int32_t q = 0; q < u->n; q += TILE_Q)
			weigh_queries(u, &v, at_most(TILE_Q, u->n - q), q, from, to);
		from = to;
	}
}

/* The weights of the merged part and of the part at u->max, each by the distance of its maximum
 * from the larger one. */
static void set_shares(struct unit *u)
{
	for (int32_t q = 0; q < u->n; q += VL) {
		vec top = vec_max(vec_load(u->max_all + q), vec_load(u->max + q));
		vec minus = vec_mul(top, vec_set1(-1));

		vec_store(u->old_share + q, vec_exp(vec_add(vec_load(u->max_all + q), minus)));
		vec_store(u->new_share + q, vec_exp(vec_add(vec_load(u->max + q), minus)));
	}
}

/* Merge the range's partial result.  A query that attends to nothing in the range does not change. */
static void merge_range(struct unit *u)
{
	set_shares(u);
	for (int32_t q = 0; q < u->n; q++) {
		const float a = u->old_share[q], b = u->new_share[q];
		const float *restrict o = u->o + q * u->dim16;
		float *restrict all = u->o_all + q * u->dim16;
		if (u->lo[q] >= u->hi[q])
			continue;
		u->max_all[q] = u->max[q] > u->max_all[q] ? u->max[q] : u->max_all[q];
		u->sum_all[q] = u->sum_all[q] * a + u->sum[q] * b;
		for (int32_t d = 0; d < u->dim16; d++)
			all[d] = all[d] * a + o[d] * b;
	}
}

/* The sinks are the last range: one score of each query without a value. */
static void merge_sinks(struct unit *u, const float *sinks, int32_t per_kv)
{
	for (int32_t q = 0; q < u->n; q++)
		u->max[q] = sinks[q % per_kv];
	set_shares(u);
	for (int32_t q = 0; q < u->n; q++) {
		float *all = u->o_all + q * u->dim16;
		u->sum_all[q] = u->sum_all[q] * u->old_share[q] + u->new_share[q];
		for (int32_t d = 0; d < u->dim16; d++)
			all[d] *= u->old_share[q];
	}
}
