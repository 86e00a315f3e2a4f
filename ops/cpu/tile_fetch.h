/*
 * tile_fetch.h: prefetching weights.
 *
 * With up to about eight rows a product waits for memory, and hardware prefetchers do not help: a
 * tile's planes are streams that end with the tile and continue after the other planes of the
 * next one, and prefetchers do not cross pages.  So a kernel prefetches at each block the one
 * that it reads FETCH_BYTES later, in this tile or the next.  A prefetch past the last tile is
 * harmless.
 */
#pragma once

#include "ops/cpu/tile_column.h"

#include <stdint.h>

/* The distance in bytes of codes. Measured on a Zen 4 from 1 to 24 KiB: 1 to 3 KiB were best. */
#define FETCH_BYTES 2048

/* Block `block` of n in a plane that begins `plane` bytes into a tile of tile_bytes. */
COLUMN void fetch_plane(const uint8_t *tile, int64_t tile_bytes, int64_t plane, int64_t block_bytes,
			int64_t n, int64_t block)
{
	uintptr_t at = (uintptr_t)tile + (uintptr_t)(plane + block * block_bytes);
	if (block >= n)
		at += (uintptr_t)(tile_bytes - n * block_bytes);
	for (int64_t i = 0; i < block_bytes; i += 64)
		__builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 3);
}

/* Called during the work on block b of a tile of rows of k values; dtype must have kernels for
 * 8-bit activations. */
COLUMN void fetch_ahead(uint32_t dtype, const uint8_t *tile, int64_t k, int64_t b)
{
	const struct tile_format f = column_format(dtype);
	const int64_t kb = k / 32, next = b + FETCH_BYTES / (f.low_bits * 64);
	const struct tile_planes p = tile_planes(f, kb);
	const int64_t bytes = (p.end + 63) & ~(int64_t)63;

	fetch_plane(tile, bytes, 0, f.low_bits * 64, kb, next);
	if (f.high_bits)
		fetch_plane(tile, bytes, p.high, f.high_bits * 64, kb, next);
	if (f.n_scales)
		fetch_plane(tile, bytes, p.scale, f.n_scales * IG_TILE, kb, next);
	if (f.n_mins)
		fetch_plane(tile, bytes, p.min, f.n_mins * IG_TILE, kb, next);
	if (f.d_blocks == 0 || next % f.d_blocks)
		return;
	fetch_plane(tile, bytes, p.d, 32, kb / f.d_blocks, next / f.d_blocks);
	if (f.has_m)
		fetch_plane(tile, bytes, p.m, 32, kb / f.d_blocks, next / f.d_blocks);
}
