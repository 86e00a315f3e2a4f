/* tile_generic.c: products of tiles in plain C, for any processor.  They define the
 * arithmetic of each weight format; the vector kernels compute the same. */
#include "ops/cpu/tile_kernels.h"

ALWAYS_INLINE float half_at(const uint8_t *p, int64_t i)
{
	uint16_t h;
	memcpy(&h, p + i * 2, 2);
	return ig_f32_from_f16(h);
}

/* acc[o] += w[o] * x */
#define FOR_LANES(o) for (int o = 0; o < IG_TILE; o++)

ALWAYS_INLINE void generic_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, int n_rows)
{
	const float *w = (const float *)tile;
	for (int r = 0; r < n_rows; r++, x += stride) {
		const float *xr = (const float *)x;
		float acc[IG_TILE] = { 0 };
		for (int64_t i = 0; i < k; i++)
			FOR_LANES(o)
				acc[o] += w[i * IG_TILE + o] * xr[i];
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS(generic_f32, ANY)

ALWAYS_INLINE void generic_f16_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, int n_rows)
{
	for (int r = 0; r < n_rows; r++, x += stride) {
		const float *xr = (const float *)x;
		float acc[IG_TILE] = { 0 };
		for (int64_t i = 0; i < k; i++)
			FOR_LANES(o)
				acc[o] += half_at(tile, i * IG_TILE + o) * xr[i];
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS(generic_f16, ANY)

ALWAYS_INLINE void generic_bf16_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				     int64_t stride, float *out, int n_rows)
{
	const uint16_t *w = (const uint16_t *)tile;
	for (int r = 0; r < n_rows; r++, x += stride) {
		const float *xr = (const float *)x;
		float acc[IG_TILE] = { 0 };
		for (int64_t i = 0; i < k; i++)
			FOR_LANES(o)
				acc[o] += ig_f32_from_bf16(w[i / 2 * 32 + o * 2 + i % 2]) * xr[i];
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS(generic_bf16, ANY)

/* A row in IG_LAYOUT_Q8. */
struct q8_row {
	const int8_t *q;
	const float *d, *s;
};

ALWAYS_INLINE struct q8_row q8_row(const uint8_t *x, int64_t k)
{
	struct q8_row r = { (const int8_t *)x, (const float *)(x + k), NULL };
	r.s = r.d + k / 32;
	return r;
}

ALWAYS_INLINE void generic_q8_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				     int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	for (int r = 0; r < n_rows; r++, x += stride) {
		struct q8_row xr = q8_row(x, k);
		float acc[IG_TILE] = { 0 };
		for (int64_t b = 0; b < kb; b++) {
			const int8_t *q = (const int8_t *)tile + b * 512;
			int32_t dot[IG_TILE] = { 0 };
			for (int g = 0; g < 8; g++)
				FOR_LANES(o)
					for (int i = 0; i < 4; i++)
						dot[o] += q[g * 64 + o * 4 + i] *
							  xr.q[b * 32 + g * 4 + i];
			FOR_LANES(o)
				acc[o] += (float)dot[o] *
					  (half_at(tile + kb * 512, b * 16 + o) * xr.d[b]);
		}
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS_Q8(generic_q8_0, ANY, IG_Q8_0)

/* The integer products of one block of nibbles. */
ALWAYS_INLINE void nibble_dots(const uint8_t *q, const int8_t *xq, int bias, int32_t *dot)
{
	FOR_LANES(o)
		dot[o] = 0;
	for (int g = 0; g < 4; g++)
		FOR_LANES(o)
			for (int i = 0; i < 4; i++) {
				uint8_t v = q[g * 64 + o * 4 + i];
				dot[o] += ((v & 15) - bias) * xq[g * 4 + i] +
					  ((v >> 4) - bias) * xq[16 + g * 4 + i];
			}
}

ALWAYS_INLINE void generic_q4_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				     int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	for (int r = 0; r < n_rows; r++, x += stride) {
		struct q8_row xr = q8_row(x, k);
		float acc[IG_TILE] = { 0 };
		int32_t dot[IG_TILE];
		for (int64_t b = 0; b < kb; b++) {
			nibble_dots(tile + b * 256, xr.q + b * 32, 8, dot);
			FOR_LANES(o)
				acc[o] += (float)dot[o] *
					  (half_at(tile + kb * 256, b * 16 + o) * xr.d[b]);
		}
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS_Q8(generic_q4_0, ANY, IG_Q4_0)

ALWAYS_INLINE void generic_q4_1_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				     int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	for (int r = 0; r < n_rows; r++, x += stride) {
		struct q8_row xr = q8_row(x, k);
		float acc[IG_TILE] = { 0 };
		int32_t dot[IG_TILE];
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *d = tile + kb * 256, *m = d + kb * 32;
			nibble_dots(tile + b * 256, xr.q + b * 32, 0, dot);
			FOR_LANES(o) {
				acc[o] += (float)dot[o] * (half_at(d, b * 16 + o) * xr.d[b]);
				acc[o] += half_at(m, b * 16 + o) * xr.s[b];
			}
		}
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS_Q8(generic_q4_1, ANY, IG_Q4_1)

ALWAYS_INLINE void generic_q8_m_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				     int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	const uint8_t *d = tile + kb * 512, *m = d + kb * 32;
	for (int r = 0; r < n_rows; r++, x += stride) {
		struct q8_row xr = q8_row(x, k);
		float acc[IG_TILE] = { 0 };
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * 512;
			int32_t dot[IG_TILE] = { 0 };
			for (int g = 0; g < 8; g++)
				FOR_LANES(o)
					for (int i = 0; i < 4; i++)
						dot[o] += q[g * 64 + o * 4 + i] *
							  xr.q[b * 32 + g * 4 + i];
			FOR_LANES(o) {
				acc[o] += (float)dot[o] * (half_at(d, b * 16 + o) * xr.d[b]);
				acc[o] += half_at(m, b * 16 + o) * xr.s[b];
			}
		}
		memcpy(out + r * IG_TILE, acc, sizeof acc);
	}
}
TILE_KERNELS_Q8(generic_q8_m, ANY, IG_Q8_M)

/* ---- the same weights with float activations: dequantise a block, multiply ---- */

ALWAYS_INLINE void add_block(float *acc, float (*w)[IG_TILE], const float *x)
{
	for (int i = 0; i < 32; i++)
		FOR_LANES(o)
			acc[o] += w[i][o] * x[i];
}

ALWAYS_INLINE void generic_q8_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					 int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	float w[32][IG_TILE];
	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b++) {
		for (int i = 0; i < 32; i++)
			FOR_LANES(o)
				w[i][o] = half_at(tile + kb * 512, b * 16 + o) *
					  (float)(int8_t)tile[b * 512 + i / 4 * 64 + o * 4 + i % 4];
		for (int r = 0; r < n_rows; r++)
			add_block(out + r * IG_TILE, w, (const float *)(x + r * stride) + b * 32);
	}
}
TILE_KERNELS(generic_q8_0_f32, ANY)

ALWAYS_INLINE void q4_f32(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			  float *out, int n_rows, bool has_min)
{
	int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	int bias = has_min ? 0 : 8;
	float w[32][IG_TILE];

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b++) {
		for (int i = 0; i < 16; i++)
			FOR_LANES(o) {
				uint8_t q = tile[b * 256 + i / 4 * 64 + o * 4 + i % 4];
				float d = half_at(scales, b * 16 + o);
				float m = has_min ? half_at(mins, b * 16 + o) : 0.0f;
				w[i][o] = d * (float)((q & 15) - bias) + m;
				w[16 + i][o] = d * (float)((q >> 4) - bias) + m;
			}
		for (int r = 0; r < n_rows; r++)
			add_block(out + r * IG_TILE, w, (const float *)(x + r * stride) + b * 32);
	}
}

ALWAYS_INLINE void generic_q4_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					 int64_t stride, float *out, int n_rows)
{
	q4_f32(tile, k, x, stride, out, n_rows, false);
}
TILE_KERNELS(generic_q4_0_f32, ANY)

ALWAYS_INLINE void generic_q4_1_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					 int64_t stride, float *out, int n_rows)
{
	q4_f32(tile, k, x, stride, out, n_rows, true);
}
TILE_KERNELS(generic_q4_1_f32, ANY)

ALWAYS_INLINE void generic_q8_m_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					 int64_t stride, float *out, int n_rows)
{
	int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	float w[32][IG_TILE];

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b++) {
		for (int i = 0; i < 32; i++)
			FOR_LANES(o)
				w[i][o] =
					half_at(scales, b * 16 + o) *
						(float)tile[b * 512 + i / 4 * 64 + o * 4 + i % 4] +
					half_at(mins, b * 16 + o);
		for (int r = 0; r < n_rows; r++)
			add_block(out + r * IG_TILE, w, (const float *)(x + r * stride) + b * 32);
	}
}
TILE_KERNELS(generic_q8_m_f32, ANY)
