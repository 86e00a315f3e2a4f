/* tile16.c: see tile16.h. */
#include "ops/cpu/tile16.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/tile_quants.h"
#include "ops/float.h"

static uint64_t round64(uint64_t n) { return (n + 63) & ~(uint64_t)63; }

uint64_t ig_tile16_tile_bytes(uint32_t dtype, int64_t k)
{
	uint64_t u = (uint64_t)k;

	if (k <= 0 || k > INT32_MAX)
		return 0;
	switch (dtype) {
	case IG_F32: return u * 64;
	case IG_F16: return round64(u * 32);
	case IG_BF16: return (u + 1) / 2 * 64;
	case IG_Q8_0: return u % 32 ? 0 : round64(u / 32 * (512 + 32));
	case IG_Q4_0: return u % 32 ? 0 : round64(u / 32 * (256 + 32));
	case IG_Q4_1: return u % 32 ? 0 : u / 32 * (256 + 64);
	case IG_Q8_M: return u % 32 ? 0 : u / 32 * (512 + 64);
	default: return ig_tile_quants_bytes(dtype, k);
	}
}

/* One row's blocks of `block` bytes: the scales first, then n_words words. */
static void pack_blocks(const uint8_t *src, uint8_t *tile, int64_t kb, int lane, int n_scales,
			int n_words)
{
	size_t block = (size_t)n_scales * 2 + (size_t)n_words * 4;
	uint8_t *scales = tile + (size_t)kb * (size_t)n_words * 64;

	for (int64_t b = 0; b < kb; b++, src += block) {
		for (int i = 0; i < n_scales; i++)
			memcpy(scales + ((size_t)i * (size_t)kb + (size_t)b) * 32 +
				       (size_t)lane * 2,
			       src + i * 2, 2);
		uint8_t *q = tile + (size_t)b * (size_t)n_words * 64 + (size_t)lane * 4;
		for (int j = 0; j < n_words; j++)
			memcpy(q + (size_t)j * 64, src + n_scales * 2 + j * 4, 4);
	}
}

static void pack_row(uint32_t dtype, const uint8_t *src, uint8_t *tile, int64_t k, int lane)
{
	switch (dtype) {
	case IG_F32:
		for (int64_t i = 0; i < k; i++)
			memcpy(tile + i * 64 + lane * 4, src + i * 4, 4);
		break;
	case IG_F16:
		for (int64_t i = 0; i < k; i++)
			memcpy(tile + i * 32 + lane * 2, src + i * 2, 2);
		break;
	case IG_BF16:
		for (int64_t i = 0; i < k; i++)
			memcpy(tile + i / 2 * 64 + lane * 4 + i % 2 * 2, src + i * 2, 2);
		break;
	case IG_Q8_0: pack_blocks(src, tile, k / 32, lane, 1, 8); break;
	case IG_Q4_0: pack_blocks(src, tile, k / 32, lane, 1, 4); break;
	case IG_Q4_1: pack_blocks(src, tile, k / 32, lane, 2, 4); break;
	case IG_Q8_M: pack_blocks(src, tile, k / 32, lane, 2, 8); break;
	default: ig_tile_quants_pack_row(dtype, src, tile, k, lane);
	}
}

void ig_tile16_pack(uint32_t dtype, const void *src, int64_t n, int64_t k, void *dst, int64_t first,
		    int64_t last)
{
	uint64_t tile_bytes = ig_tile16_tile_bytes(dtype, k), stride = ig_dtype_row_bytes(dtype, k);

	for (int64_t t = first; t < last; t++) {
		uint8_t *tile = (uint8_t *)dst + (uint64_t)t * tile_bytes;
		int64_t rows = n - t * IG_TILE < IG_TILE ? n - t * IG_TILE : IG_TILE;
		if (rows < IG_TILE || (dtype == IG_BF16 && k % 2))
			memset(tile, 0, tile_bytes);
		for (int64_t o = 0; o < rows; o++)
			pack_row(dtype, (const uint8_t *)src + (uint64_t)(t * IG_TILE + o) * stride,
				 tile, k, (int)o);
	}
}

static float half_at(const uint8_t *p)
{
	uint16_t h;
	memcpy(&h, p, 2);
	return ig_f32_from_f16(h);
}

void ig_tile16_row_to_f32(uint32_t dtype, const void *packed, int64_t k, int64_t row, float *dst)
{
	const uint8_t *tile = (const uint8_t *)packed +
			      (uint64_t)(row / IG_TILE) * ig_tile16_tile_bytes(dtype, k);
	int64_t o = row % IG_TILE, kb = k / 32;
	uint16_t h;

	switch (dtype) {
	case IG_F32:
		for (int64_t i = 0; i < k; i++)
			memcpy(&dst[i], tile + i * 64 + o * 4, 4);
		break;
	case IG_F16:
		for (int64_t i = 0; i < k; i++)
			dst[i] = half_at(tile + i * 32 + o * 2);
		break;
	case IG_BF16:
		for (int64_t i = 0; i < k; i++) {
			memcpy(&h, tile + i / 2 * 64 + o * 4 + i % 2 * 2, 2);
			dst[i] = ig_f32_from_bf16(h);
		}
		break;
	case IG_Q8_0:
		for (int64_t b = 0; b < kb; b++) {
			float d = half_at(tile + kb * 512 + b * 32 + o * 2);
			for (int i = 0; i < 32; i++)
				dst[b * 32 + i] =
					d *
					(float)(int8_t)tile[b * 512 + i / 4 * 64 + o * 4 + i % 4];
		}
		break;
	case IG_Q8_M:
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *scales = tile + kb * 512 + b * 32 + o * 2;
			float d = half_at(scales), m = half_at(scales + kb * 32);
			for (int i = 0; i < 32; i++)
				dst[b * 32 + i] =
					d * (float)tile[b * 512 + i / 4 * 64 + o * 4 + i % 4] + m;
		}
		break;
	case IG_Q4_0:
	case IG_Q4_1:
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *scales = tile + kb * 256 + b * 32 + o * 2;
			float d = half_at(scales);
			float m = dtype == IG_Q4_1 ? half_at(scales + kb * 32) : 0.0f;
			int bias = dtype == IG_Q4_1 ? 0 : 8;
			for (int i = 0; i < 16; i++) {
				uint8_t q = tile[b * 256 + i / 4 * 64 + o * 4 + i % 4];
				dst[b * 32 + i] = d * (float)((q & 15) - bias) + m;
				dst[b * 32 + 16 + i] = d * (float)((q >> 4) - bias) + m;
			}
		}
		break;
	default: ig_tile_quants_row_to_f32(dtype, tile, k, (int)o, dst);
	}
}
