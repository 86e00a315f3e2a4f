// repack.metal: the blocks of a file to tiles (tiles.h), once, when a weight is loaded.  A thread
// makes a word of a tile at a time.
#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "tiles.h"
#include "step.h"

using namespace metal;

// Rows of blocks, `there` of them, from a tile's first output and k on.
struct repack_source {
	device const uchar *rows;
	uint there, row_bytes, k, limit;
	uint format;
};

// Codes of pair i (tiles.h) of fragment e of a piece, in the lower bytes of the word's halves.
METAL_FUNC uint repack_pair(thread const repack_source &s, uint part, uint piece, uint e, uint i)
{
	const uint row = part / 4 + i % 2 * 8, at = part % 4 * 2;
	block_raw r;
	if (row >= s.there)
		return 0;
	block_load(r, s.format, s.rows + ulong(row) * s.row_bytes,
		   s.k + piece * TILE_PIECE + e * 16, s.limit);
	const uint2 codes = block_codes(s.format, r, int(i / 2));
	const uint two = (at < 4 ? codes.x : codes.y) >> (at % 4 * 8) & 0xffff;
	return (two | two << 8) & 0x00ff00ff;
}

// The word-th word of the low bits, of the high bits.
METAL_FUNC uint repack_low(thread const repack_source &s, uint word)
{
	const uint low = tile_low(s.format), mask = (1u << low) - 1;
	const uint words = TILE_ROWS * TILE_PIECE / 32 * low, piece = word / words;
	uint v = 0;
	word %= words;
	if (low == 8) {
		const uint part = word % 128 / 4, e = word / 128 * 2 + word % 4 / 2, g = word % 2;
		return repack_pair(s, part, piece, e, g) | repack_pair(s, part, piece, e, g + 2)
								   << 8;
	}
	for (uint i = 0; i < 4; i++) {
		if (low == 4)
			v |= (repack_pair(s, word / 4, piece, word % 4, i) & mask * 0x10001)
			     << (i * 4);
		else
			for (uint e = 0; e < 2; e++)
				v |= (repack_pair(s, word / 2, piece, word % 2 * 2 + e, i) &
				      mask * 0x10001)
				     << (i * 2 + e * 8);
	}
	return v;
}

METAL_FUNC uint repack_high(thread const repack_source &s, uint word)
{
	const uint low = tile_low(s.format), high = tile_high(s.format);
	const uint words = TILE_ROWS * TILE_PIECE / 32 * high, piece = word / words;
	uint v = 0;
	word %= words;
	for (uint i = 0; i < 4; i++) {
		if (high == 2)
			for (uint e = 0; e < 2; e++)
				v |= (repack_pair(s, word / 2, piece, word % 2 * 2 + e, i) >> low &
				      0x00030003)
				     << (i * 2 + e * 8);
		else
			for (uint e = 0; e < 4; e++)
				v |= (repack_pair(s, word, piece, e, i) >> low & 0x00010001)
				     << (i + e * 4);
	}
	return v;
}

// The byte-th byte of the heads of all outputs, which are in two tables.
METAL_FUNC uint repack_head(thread const repack_source &s, uint byte)
{
	const uint format = s.format, first = TILE_ROWS * tile_head(format);
	const bool more = byte >= first;
	const uint each = more ? tile_more(format) : tile_head(format);
	const uint row = (more ? byte - first : byte) / each,
		   at = (more ? byte - first : byte) % each;
	const uint head = tile_block_head(format);
	device const uchar *p = s.rows + ulong(row) * s.row_bytes;
	if (row >= s.there)
		return 0;
	if (head == 0) {
		p += ulong(s.k / 256) * block_bytes(format);
		return p[(more ? tile_more_from(format) : tile_head_from(format)) + at];
	}
	if (s.k + at / head * 32 >= s.limit)
		return 0;
	return p[ulong(s.k / 32 + at / head) * block_bytes(format) + at % head];
}

//   from     [n_rows] rows of blocks
//   to       [(n_rows + 15) / 16][n_tiles] tiles
kernel void repack(constant repack_args &args [[buffer(0)]],
		   device const step_head *step [[buffer(1)]],
		   device const uchar *from [[buffer(2)]], device uint *to [[buffer(3)]],
		   uint thread_at [[thread_position_in_grid]])
{
	const uint format = args.format, words = tile_bytes(format) / 4;
	for (uint at = thread_at; at < args.n_words; at += args.n_threads) {
		const uint tile = at / words, word = at % words;
		const uint row = tile / args.n_tiles * TILE_ROWS;
		const uint high = tile_high_at(format) / 4, head = tile_head_at(format) / 4;
		repack_source s;
		s.rows = from + ulong(row) * args.row_bytes;
		s.there = min(args.n_rows - row, TILE_ROWS);
		s.row_bytes = args.row_bytes;
		s.k = tile % args.n_tiles * tile_k(format);
		s.limit = args.k;
		s.format = format;
		uint v = 0;
		if (word < high)
			v = repack_low(s, word);
		else if (word < head)
			v = repack_high(s, word - high);
		else
			for (uint b = 0; b < 4; b++)
				v |= repack_head(s, (word - head) * 4 + b) << (b * 8);
		to[at] = v;
	}
}
