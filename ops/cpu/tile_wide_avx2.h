/*
 * tile_wide_avx2.h: products of a tile with many rows, with AVX2.
 *
 * Codes of some blocks are unpacked once for all rows: to unsigned bytes of at most 63, whose products with
 * activations are added as pairs in 16 bits, several of them before they are widened.  Bytes that need all eight
 * bits become two of four bits.  Sums inside a block are integers and exact, and what follows is what a
 * product of few rows does, so a row has the same bits in both.
 */
#pragma once

#include "ops/cpu/tile_avx2.h"
#include "ops/cpu/tile_column.h"
#include "ops/cpu/tile_quants.h"

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

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

/* n * offset, of unsigned codes. */
ALWAYS_INLINE __m256i taken_off(uint32_t dtype, __m256i n)
{
	const int offset = dtype == IG_Q8_0 ? 128 : column_format(dtype).offset;

	return _mm256_mullo_epi32(n, _mm256_set1_epi32(offset));
}

/* What the sum of a block, or of a half of it, begins with. */
ALWAYS_INLINE __m256i begun(uint32_t dtype, int half, const uint8_t *x, int64_t stride, int r,
			    int64_t k, int64_t b)
{
	__m256i n = neg_of(x, stride, r, k, b);

	if (column_format(dtype).n_scales == 2) {
		__m256i first = neg_half_of(x, stride, r, k, b);
		n = half ? _mm256_sub_epi32(n, first) : first;
	}
	return taken_off(dtype, n);
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

/* ---- many rows ---- */

#define WIDE_BLOCKS 8

/* Some blocks of eight outputs.  u[b][g] is that of values 4 g …; if split, its lower and upper half. */
struct unpacked {
	__m256i u[WIDE_BLOCKS][8], upper[WIDE_BLOCKS][8];
	struct scales t[WIDE_BLOCKS];
};

ALWAYS_INLINE bool is_split(uint32_t dtype)
{
	return IS_IQ4(dtype) || dtype == IG_Q8_0 || dtype == IG_Q8_M;
}

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
			  int o, struct unpacked *to)
{
	const struct tile_format f = column_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);
	const __m256i table = table_of(dtype), low = _mm256_set1_epi8(15);
	const __m256i flip = _mm256_set1_epi8((char)(dtype == IG_Q8_M ? 0 : 0x80));

	for (int i = 0; i < n; i++) {
		const int64_t b = first + i;
		const uint8_t *q = tile + b * f.low_bits * 64;
		const uint8_t *h = tile + p.high + b * f.high_bits * 64;
		if (o == 0)
			fetch_ahead(dtype, tile, kb * 32, b);
		to->t[i] = scales_of_block(dtype, tile, kb, b, o);
		for (int g = 0; g < 8; g++) {
			__m256i u = codes(dtype, q, h, o, g / 4, g % 4, table);
			if (is_split(dtype)) {
				u = _mm256_xor_si256(u, flip);
				to->upper[i][g] = _mm256_and_si256(_mm256_srli_epi16(u, 4), low);
				u = _mm256_and_si256(u, low);
			}
			to->u[i][g] = u;
		}
	}
}

/* Sums of groups first … first + n - 1 of a block times the rows'. */
ALWAYS_INLINE void dots(uint32_t dtype, const struct unpacked *w, int i, int first, int n,
			const uint8_t *x, int64_t stride, int64_t b, __m256i *dot, const int n_rows)
{
	const __m256i sixteen = _mm256_set1_epi16(16);
	const int depth = depth_of(dtype);
	__m256i pairs[4], upper[4];

	/* else gcc leaves a loop over eight, with its sums in memory */
	_Pragma("GCC unroll 8") for (int g = 0; g < n; g++)
	{
		__m256i u = w->u[i][first + g], v = is_split(dtype) ? w->upper[i][first + g] : u;
		ROWS(r) {
			__m256i y = four_of(x, stride, r, b * 32 + (first + g) * 4);
			pairs[r] = pairs_of(g % depth == 0, pairs[r], u, y);
			if (is_split(dtype))
				upper[r] = pairs_of(g == 0, upper[r], v, y);
		}
		if ((g + 1) % depth)
			continue;
		ROWS(r)
			dot[r] = g < depth ? _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)) :
					     add_pairs(dot[r], pairs[r]);
	}
	if (is_split(dtype))
		ROWS(r)
			dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(upper[r], sixteen));
}

/* Add n blocks, from b on, to the products of some rows. */
ALWAYS_INLINE void wide_rows(uint32_t dtype, const struct unpacked *w, int64_t b, int n, int64_t k,
			     const uint8_t *x, int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = column_format(dtype);
	__m256 acc[4], sum[4];
	__m256i dot[4];

	ROWS(r)
		acc[r] = _mm256_loadu_ps(out + r * IG_TILE);
	for (int i = 0; i < n; i++, b++) {
		const struct scales *t = &w->t[i];
		if (f.n_scales == 2) {
			dots(dtype, w, i, 0, 4, x, stride, b, dot, n_rows);
			ROWS(r)
				sum[r] = _mm256_mul_ps(
					_mm256_cvtepi32_ps(_mm256_add_epi32(
						dot[r], begun(dtype, 0, x, stride, r, k, b))),
					t->s[0]);
			dots(dtype, w, i, 4, 4, x, stride, b, dot, n_rows);
			ROWS(r)
				sum[r] = _mm256_fmadd_ps(
					_mm256_cvtepi32_ps(_mm256_add_epi32(
						dot[r], begun(dtype, 1, x, stride, r, k, b))),
					t->s[1], sum[r]);
		} else {
			dots(dtype, w, i, 0, 8, x, stride, b, dot, n_rows);
			ROWS(r)
				sum[r] = _mm256_cvtepi32_ps(_mm256_add_epi32(
					dot[r], begun(dtype, 0, x, stride, r, k, b)));
		}
		ROWS(r)
			acc[r] = add_block(dtype, t, sum[r], acc[r], x, stride, r, k, b);
	}
	ROWS(r)
		_mm256_storeu_ps(out + r * IG_TILE, acc[r]);
}

/* A product of a tile with any number of rows: out [n_rows][16]. */
ALWAYS_INLINE void wide(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			int64_t stride, float *out, int n_rows)
{
	const int64_t kb = k / 32;
	struct unpacked w;

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b += WIDE_BLOCKS)
		HALVES(o) {
			const int n = kb - b < WIDE_BLOCKS ? (int)(kb - b) : WIDE_BLOCKS;
			unpack(dtype, tile, kb, b, n, o, &w);
			for (int r = 0; r < n_rows; r += 4) {
				const uint8_t *rows = x + r * stride;
				float *at = out + r * IG_TILE + o * 8;
#ifdef IG_KEEP_LOOPS
				wide_rows(dtype, &w, b, n, k, rows, stride, at,
					  n_rows - r < 4 ? n_rows - r : 4);
#else
				switch (n_rows - r) {
				case 1: wide_rows(dtype, &w, b, n, k, rows, stride, at, 1); break;
				case 2: wide_rows(dtype, &w, b, n, k, rows, stride, at, 2); break;
				case 3: wide_rows(dtype, &w, b, n, k, rows, stride, at, 3); break;
				default: wide_rows(dtype, &w, b, n, k, rows, stride, at, 4);
				}
#endif
			}
		}
}

/* The kernels of weights of that dtype: of up to four rows by NAME_rows, of more by wide. */
#define WIDE(name, dtype)                                                                          \
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
