/*
 * tile_q8_avx2.h: products of a tile with rows of 8-bit activations, with AVX2.
 *
 * Codes are unpacked to unsigned bytes of at most 63, whose products with activations are added as pairs in 16 bits,
 * several of them before they are widened; for many rows those of some blocks once for all rows.  There, bytes that
 * need all eight bits become two of four bits.  Up to four rows have them as magnitudes of at most 128, with their
 * signs moved to the activations (at most 127): 2 * 128 * 127 < 32768.  Sums inside a block are integers and exact,
 * and what follows is the same, so a row has the same bits with few rows and with many.
 */
#pragma once

#include "ops/cpu/tile_avx2.h"
#include "ops/cpu/tile_column.h"
#include "ops/cpu/tile_quants.h"

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

#define SOME_HALVES(o) for (int o = from; o < to; o++)

#define IS_IQ4(dtype) ((dtype) == IG_IQ4_NL || (dtype) == IG_IQ4_XS)

ALWAYS_INLINE __m256i shifted(__m256i v, int left)
{
	return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

/* The values of IQ4; those of MXFP4 plus their offset. */
ALWAYS_INLINE __m256i table_of(uint32_t dtype)
{
	const int8_t *t = dtype == IG_MXFP4 ? fp4_values : iq4_values;
	__m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t));
	int offset = IS_IQ4(dtype) ? 0 : column_format(dtype).offset;
	return _mm256_add_epi8(v, _mm256_set1_epi8((char)offset));
}

/* u (IQ4: v) of the values 16 half + 4 g … + 3 of a block, of outputs 8 o …; its planes
 * are q and h. */
ALWAYS_INLINE __m256i codes(uint32_t dtype, const uint8_t *q, const uint8_t *h, int o, int half,
			    int g, __m256i table)
{
	const struct tile_format f = column_format(dtype);
	__m256i c;

	if (f.low_bits == 8)
		return bytes(q + (4 * half + g) * 64, o);
	if (f.low_bits == 4)
		c = _mm256_and_si256(shifted(bytes(q + g * 64, o), -4 * half),
				     _mm256_set1_epi8(15));
	else
		c = _mm256_and_si256(shifted(bytes(q + half * 64, o), -2 * g), _mm256_set1_epi8(3));
	if (f.high_bits == 1)
		c = _mm256_or_si256(
			c, _mm256_and_si256(shifted(bytes(h, o), f.low_bits - (4 * half + g)),
					    _mm256_set1_epi8((char)(1 << f.low_bits))));
	else if (f.high_bits == 2)
		c = _mm256_or_si256(c, _mm256_and_si256(shifted(bytes(h + half * 64, o), 4 - 2 * g),
							_mm256_set1_epi8(0x30)));
	return IS_IQ4(dtype) || dtype == IG_MXFP4 ? _mm256_shuffle_epi8(table, c) : c;
}

ALWAYS_INLINE __m256i unsigned_bytes(const uint8_t *p, int o)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + o * 8)));
}

ALWAYS_INLINE __m256i signed_bytes(const uint8_t *p, int o)
{
	return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + o * 8)));
}

/* Block b without its codes: d, m, and scales and minima of both halves; if it has one scale or minimum for all, d
 * and m have it in them. */
struct scales {
	__m256 d, m, s[2], n[2];
};

ALWAYS_INLINE struct scales scales_of_block(uint32_t dtype, const uint8_t *tile, int64_t kb,
					    int64_t b, int o)
{
	const struct tile_format f = column_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);
	const uint8_t *at = tile + p.scale + b * f.n_scales * IG_TILE;
	struct scales t;

	t.d = t.m = t.s[0] = t.s[1] = t.n[0] = t.n[1] = _mm256_setzero_ps();
	if (dtype == IG_MXFP4) {
		__m256i e = unsigned_bytes(at, o);
		__m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
		__m256i large = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
		__m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
		t.d = _mm256_castsi256_ps(_mm256_blendv_epi8(large, small, is_small));
		return t;
	}
	t.d = halves(tile + p.d + b / f.d_blocks * 32, o);
	if (f.has_m)
		t.m = halves(tile + p.m + b / f.d_blocks * 32, o);
	for (int i = 0; i < f.n_scales; i++) {
		__m256i s = dtype == IG_Q2_K ? _mm256_and_si256(unsigned_bytes(at + i * IG_TILE, o),
								_mm256_set1_epi32(15)) :
					       signed_bytes(at + i * IG_TILE, o);
		t.s[i] = _mm256_cvtepi32_ps(s);
		if (dtype == IG_Q2_K)
			t.n[i] = _mm256_cvtepi32_ps(
				_mm256_srli_epi32(unsigned_bytes(at + i * IG_TILE, o), 4));
	}
	if (f.n_scales == 1)
		t.d = _mm256_mul_ps(t.d, t.s[0]);
	if (f.n_mins)
		t.m = _mm256_mul_ps(
			t.m, _mm256_cvtepi32_ps(unsigned_bytes(tile + p.min + b * IG_TILE, o)));
	return t;
}

ALWAYS_INLINE bool is_split(uint32_t dtype)
{
	return IS_IQ4(dtype) || dtype == IG_Q8_0 || dtype == IG_Q8_M;
}

/* What is too much in u, times the sum of the activations of a block, or of a half of it. */
ALWAYS_INLINE __m256i taken_off(uint32_t dtype, int offset, int half, const uint8_t *x,
				int64_t stride, int r, int64_t k, int64_t b)
{
	__m256i n = neg_of(x, stride, r, k, b);

	if (column_format(dtype).n_scales == 2) {
		__m256i first = neg_half_of(x, stride, r, k, b);
		n = half ? _mm256_sub_epi32(n, first) : first;
	}
	return _mm256_mullo_epi32(n, _mm256_set1_epi32(offset));
}

/* acc += a block: its sum i, or by_half that of its halves times their scales, and its minima. */
ALWAYS_INLINE __m256 add_block(uint32_t dtype, const struct scales *t, __m256 i, __m256 acc,
			       const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	const struct tile_format f = column_format(dtype);
	__m256 s = scale_of(x, stride, r, k, b);

	acc = _mm256_fmadd_ps(i, _mm256_mul_ps(t->d, s), acc);
	if (f.has_m && f.n_scales == 2) {
		__m256i first = neg_half_of(x, stride, r, k, b);
		__m256i second = _mm256_sub_epi32(neg_of(x, stride, r, k, b), first);
		__m256 n = _mm256_mul_ps(t->n[0], _mm256_cvtepi32_ps(first));
		n = _mm256_fmadd_ps(t->n[1], _mm256_cvtepi32_ps(second), n);
		return _mm256_fmadd_ps(n, _mm256_mul_ps(t->m, s), acc);
	}
	s = sum_of(x, stride, r, k, b);
	if (f.has_m && f.n_mins)
		return _mm256_fnmadd_ps(t->m, s, acc);
	return f.has_m ? _mm256_fmadd_ps(t->m, s, acc) : acc;
}

/* ---- codes ---- */

#define WIDE_BLOCKS 8

/* Some blocks of a tile, by eight outputs.  u[b][o][g] is that of values 4 g …; if split, its lower and upper half. */
struct unpacked {
	__m256i u[WIDE_BLOCKS][2][8], upper[WIDE_BLOCKS][2][8];
	struct scales t[WIDE_BLOCKS][2];
};

/* How many pairs of u times activations 16 bits can hold: 2 * depth * u * 127 < 32768. */
ALWAYS_INLINE int depth_of(uint32_t dtype)
{
	const struct tile_format f = column_format(dtype);

	if (dtype == IG_MXFP4)
		return 4; /* u to 24 */
	if (f.low_bits + f.high_bits > 4 && !is_split(dtype))
		return f.high_bits == 1 && f.low_bits == 4 ? 4 : 2;
	return f.n_scales == 2 ? 4 : 8;
}

ALWAYS_INLINE void unpack(uint32_t dtype, const uint8_t *tile, int64_t kb, int64_t first, int n,
			  struct unpacked *into, const int from, const int to)
{
	const struct tile_format f = column_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);
	const __m256i table = table_of(dtype), low = _mm256_set1_epi8(15);
	const __m256i flip = _mm256_set1_epi8((char)(dtype == IG_Q8_M ? 0 : 0x80));

	for (int i = 0; i < n; i++) {
		const int64_t b = first + i;
		const uint8_t *q = tile + b * f.low_bits * 64;
		const uint8_t *h = tile + p.high + b * f.high_bits * 64;
		if (from == 0)
			fetch_ahead(dtype, tile, kb * 32, b);
		SOME_HALVES(o) {
			into->t[i][o] = scales_of_block(dtype, tile, kb, b, o);
			for (int g = 0; g < 8; g++) {
				__m256i u = codes(dtype, q, h, o, g / 4, g % 4, table);
				if (is_split(dtype)) {
					u = _mm256_xor_si256(u, flip);
					into->upper[i][o][g] =
						_mm256_and_si256(_mm256_srli_epi16(u, 4), low);
					u = _mm256_and_si256(u, low);
				}
				into->u[i][o][g] = u;
			}
		}
	}
}

/* ---- a block ---- */

/* A block: unpacked, or the planes of its codes; and its scales. */
struct block {
	const __m256i (*u)[8], (*upper)[8];
	const uint8_t *q, *h;
	__m256i table;
	const struct scales *t;
};

/* Codes are loaded anew: else gcc loads those of both halves of a block at once, and spills them. */
ALWAYS_INLINE void reread(struct block *w) { __asm__("" : "+r"(w->q), "+r"(w->h)); }

/* u = v + offset, where bytes that need eight bits are split, or else signed. */
ALWAYS_INLINE int offset_of(uint32_t dtype, bool split)
{
	if (!is_split(dtype))
		return column_format(dtype).offset;
	return (split ? 128 : 0) - (dtype == IG_Q8_M ? 128 : 0);
}

/* dot += groups first … first + n - 1 of a block times the rows', of the halves from … to - 1 of the tile. */
ALWAYS_INLINE void dots(uint32_t dtype, const struct block *w, int first, int n, const uint8_t *x,
			int64_t stride, int64_t b, __m256i (*dot)[2], const int n_rows,
			const int from, const int to)
{
	const __m256i sixteen = _mm256_set1_epi16(16);
	const int depth = depth_of(dtype);
	__m256i pairs[4][2], upper[4][2];

	/* else gcc leaves a loop over eight, with its sums in memory */
	_Pragma("GCC unroll 8") for (int g = 0; g < n; g++)
	{
		const int all = first + g;
		__m256i u[2];
		SOME_HALVES(o)
			u[o] = w->u ? w->u[o][all] :
				      codes(dtype, w->q, w->h, o, all / 4, all % 4, w->table);
		ROWS(r) {
			__m256i y = four_of(x, stride, r, b * 32 + all * 4);
			SOME_HALVES(o) {
				pairs[r][o] = pairs_of(g % depth == 0, pairs[r][o], u[o], y);
				if (is_split(dtype))
					upper[r][o] =
						pairs_of(g == 0, upper[r][o], w->upper[o][all], y);
			}
		}
		if ((g + 1) % depth)
			continue;
		ROWS(r)
			SOME_HALVES(o)
				dot[r][o] = add_pairs(dot[r][o], pairs[r][o]);
	}
	if (is_split(dtype))
		ROWS(r)
			SOME_HALVES(o)
				dot[r][o] = _mm256_add_epi32(
					dot[r][o], _mm256_madd_epi16(upper[r][o], sixteen));
}

/* The same of all groups of codes that need eight bits and are not split. */
ALWAYS_INLINE void signed_dots(uint32_t dtype, struct block w, const uint8_t *x, int64_t stride,
			       int64_t b, __m256i (*dot)[2], const int n_rows)
{
	const __m256i flip = _mm256_set1_epi8((char)(dtype == IG_Q8_M ? 0x80 : 0));

	for (int g = 0; g < 8; g++) {
		__m256i u[2], mag[2];
		if (g == 4)
			reread(&w);
		HALVES(o) {
			u[o] = codes(dtype, w.q, w.h, o, g / 4, g % 4, w.table);
			u[o] = _mm256_xor_si256(u[o], flip);
			mag[o] = _mm256_abs_epi8(u[o]);
		}
		ROWS(r) {
			__m256i y = four_of(x, stride, r, b * 32 + g * 4);
			HALVES(o)
				dot[r][o] = dot4(dot[r][o], mag[o], _mm256_sign_epi8(y, u[o]));
		}
	}
}

/* acc += block b times the rows. */
ALWAYS_INLINE void add_products(uint32_t dtype, struct block w, const uint8_t *x, int64_t stride,
				int64_t k, int64_t b, __m256 (*acc)[2], const int n_rows,
				const int from, const int to)
{
	const struct tile_format f = column_format(dtype);
	const int parts = f.n_scales == 2 ? 2 : 1, n = 8 / parts;
	const int offset = offset_of(dtype, w.u != NULL);
	__m256 sum[4][2];
	__m256i dot[4][2];

	for (int half = 0; half < parts; half++) {
		if (parts == 2 && n_rows > 1)
			reread(&w);
		ROWS(r)
			SOME_HALVES(o)
				dot[r][o] = _mm256_setzero_si256();
		if (is_split(dtype) && !w.u)
			signed_dots(dtype, w, x, stride, b, dot, n_rows);
		else
			dots(dtype, &w, half * n, n, x, stride, b, dot, n_rows, from, to);
		ROWS(r) {
			const __m256i off = taken_off(dtype, offset, half, x, stride, r, k, b);
			SOME_HALVES(o) {
				__m256 v = _mm256_cvtepi32_ps(_mm256_add_epi32(dot[r][o], off));
				sum[r][o] = parts == 1 ? v :
					    half ? _mm256_fmadd_ps(v, w.t[o].s[1], sum[r][o]) :
						   _mm256_mul_ps(v, w.t[o].s[0]);
			}
		}
	}
	ROWS(r)
		SOME_HALVES(o)
			acc[r][o] =
				add_block(dtype, &w.t[o], sum[r][o], acc[r][o], x, stride, r, k, b);
}

/* ---- up to four rows ---- */

/* A product of a tile with the rows: out [n_rows][16]. */
ALWAYS_INLINE void few(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
		       int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = column_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	struct scales t[2];
	struct block w = { .table = table_of(dtype), .t = t };
	__m256 acc[4][2];

	zero_two(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		w.q = tile + b * f.low_bits * 64;
		w.h = tile + p.high + b * f.high_bits * 64;
		HALVES(o)
			t[o] = scales_of_block(dtype, tile, kb, b, o);
		fetch_ahead(dtype, tile, k, b);
		add_products(dtype, w, x, stride, k, b, acc, n_rows, 0, 2);
	}
	store_two(out, n_rows, acc);
}

/* ---- many rows ---- */

/* Add n blocks, from b on, to the products of some rows. */
ALWAYS_INLINE void wide_rows(uint32_t dtype, const struct unpacked *u, int64_t b, int n, int64_t k,
			     const uint8_t *x, int64_t stride, float *out, const int n_rows,
			     const int from, const int to)
{
	__m256 acc[4][2];

	ROWS(r)
		SOME_HALVES(o)
			acc[r][o] = _mm256_loadu_ps(out + r * IG_TILE + o * 8);
	for (int i = 0; i < n; i++, b++) {
		const struct block w = { .u = u->u[i], .upper = u->upper[i], .t = u->t[i] };
		add_products(dtype, w, x, stride, k, b, acc, n_rows, from, to);
	}
	ROWS(r)
		SOME_HALVES(o)
			_mm256_storeu_ps(out + r * IG_TILE + o * 8, acc[r][o]);
}

/* wide_rows of up to four rows; each number has a copy. */
ALWAYS_INLINE void some_rows(uint32_t dtype, const struct unpacked *w, int64_t b, int n, int64_t k,
			     const uint8_t *x, int64_t stride, float *out, int n_rows,
			     const int from, const int to)
{
#ifdef IG_KEEP_LOOPS
	wide_rows(dtype, w, b, n, k, x, stride, out, n_rows, from, to);
#else
	switch (n_rows) {
	case 1: wide_rows(dtype, w, b, n, k, x, stride, out, 1, from, to); break;
	case 2: wide_rows(dtype, w, b, n, k, x, stride, out, 2, from, to); break;
	case 3: wide_rows(dtype, w, b, n, k, x, stride, out, 3, from, to); break;
	default: wide_rows(dtype, w, b, n, k, x, stride, out, 4, from, to);
	}
#endif
}

/* Add n blocks of some halves, from b on, to the products of all rows. */
ALWAYS_INLINE void wide_blocks(uint32_t dtype, const uint8_t *tile, int64_t b, int n, int64_t k,
			       const uint8_t *x, int64_t stride, float *out, int n_rows,
			       const int from, const int to)
{
	struct unpacked w;

	unpack(dtype, tile, k / 32, b, n, &w, from, to);
	for (int r = 0; r < n_rows; r += 4)
		some_rows(dtype, &w, b, n, k, x + r * stride, stride, out + r * IG_TILE,
			  n_rows - r < 4 ? n_rows - r : 4, from, to);
}

/* A product of a tile with any number of rows: out [n_rows][16]. */
ALWAYS_INLINE void wide(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			int64_t stride, float *out, int n_rows)
{
	const int64_t kb = k / 32;

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b += WIDE_BLOCKS) {
		const int n = kb - b < WIDE_BLOCKS ? (int)(kb - b) : WIDE_BLOCKS;
		if (is_split(dtype)) {
			/* each has two sums in 16 bits: the registers are enough for one half */
			wide_blocks(dtype, tile, b, n, k, x, stride, out, n_rows, 0, 1);
			wide_blocks(dtype, tile, b, n, k, x, stride, out, n_rows, 1, 2);
		} else {
			wide_blocks(dtype, tile, b, n, k, x, stride, out, n_rows, 0, 2);
		}
	}
}

/* The kernels of weights of that dtype. */
#define FEW_AND_WIDE(name, dtype)                                                                  \
	TILE_QUANT_ROWS(name, few, dtype)                                                          \
	static void name##_few(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t x_stride, \
			       float *out, int n_rows)                                             \
	{                                                                                          \
		switch (n_rows) {                                                                  \
			TILE_ROWS_4(name)                                                          \
		}                                                                                  \
	}                                                                                          \
	static void name##_wide(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,  \
				float *out, int n_rows)                                            \
	{                                                                                          \
		wide(dtype, tile, k, x, stride, out, n_rows);                                      \
	}                                                                                          \
	TILE_KERNELS_Q8(name, WIDE, dtype)
