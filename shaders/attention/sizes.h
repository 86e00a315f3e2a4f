/*
 * sizes.h: tile sizes of the attention kernels and the threadgroup memory that they need, for the
 * kernels and for the host.
 *
 *   e    bytes of a cache element, 2 or 4
 *   d    columns that the kernel is built for: head_dim rounded up to one of these
 *   m    tiles of 16 queries in a threadgroup
 *   nv   1: NVIDIA, K and V of the next tokens are copied asynchronously;
 *        0: one buffer, refilled for every chunk of K and of V
 *   q    1: K, V or both are Q8_0 (and e is 2)
 *
 * A tile of K from codes is [column][token], as the cache has them.  On NVIDIA codes are copied as they are,
 * to the buffers that a cache of 16 bits has.
 */
#pragma once

#define ATTENTION_THREADS 128
#define ATTENTION_SGS 4
/* Tokens of a sub-step: part of the order of sums, so the same in every kernel. */
#define ATTENTION_TOKENS(e) ((e) == 2 ? 32 : 16)
/* Columns of K or V that one buffer holds. */
#define ATTENTION_CHUNK(d, nv) ((nv) || (d) <= 128 ? (d) : (d) <= 256 ? 128 : 64)
#define ATTENTION_BUFFERS(nv) ((nv) ? 4 : 1)
/* Row stride in elements: 16 bytes of padding, so that eight rows are in different banks. */
#define ATTENTION_STRIDE(e, d) ((d) + 16 / (e))
#define ATTENTION_SCORE_STRIDE(e) (ATTENTION_TOKENS(e) + 4)
/* Values per query that simdgroups exchange. */
#define ATTENTION_NOTES 3

/* The most ranges that attention_whole merges in a cluster. */
#define ATTENTION_WHOLE_RANGES 8

/* attention_group_split and attention_group_whole, on NVIDIA for heads of up to so many columns in 16 bits or codes.  Bytes
 * of a row of halves, with padding as above; of K or V of a sub-step, in halves and in codes; and of all: K of a group and V
 * of one or two (halves: 1, unless both are codes), weights, and what simdgroups tell each other. */
#define GROUP_MOST_DIM 128
#define GROUP_TOKENS 128
#define GROUP_ROW(d) (((d) + 8) * 2)
#define GROUP_HALVES(d) (32 * GROUP_ROW(d))
#define GROUP_CODES(d) (34 * (d))
#define GROUP_VALUES(d) ((d) <= 64 ? 2 : 1)
#define GROUP_BYTES(d, halves)                                                                     \
	(4 * (1 + GROUP_VALUES(d)) * ((halves) ? GROUP_HALVES(d) : GROUP_CODES(d)) +               \
	 GROUP_TOKENS * 16 * 2 + 3 * 4 * 16 * 4)

/* attention_stream: heads of up to so many columns, in a kernel of 64 or of 128. */
#define STREAM_MOST_DIM 128
#define STREAM_GROUP 128u /* threads of a warpgroup */
/* Warpgroups with queries, as many as there are registers for; one more loads K and V. */
#define STREAM_GROUPS(d) ((d) <= 64 ? 3u : 2u)
#define STREAM_THREADS(d) ((STREAM_GROUPS(d) + 1) * STREAM_GROUP)
#define STREAM_GROUP_QUERIES 64u
#define STREAM_QUERIES(d) (STREAM_GROUPS(d) * STREAM_GROUP_QUERIES)
#define STREAM_TILES(d) (STREAM_QUERIES(d) / 16)
#define STREAM_TOKENS 64u /* of a stage: two sub-steps */
#define STREAM_STAGES 3u
#define STREAM_BYTES(d)                                                                            \
	(STREAM_QUERIES(d) * (d) * 2 + STREAM_STAGES * (2 * STREAM_TOKENS * (d) * 2 + 2 * 8))

#define ATTENTION_MAX(a, b) ((a) > (b) ? (a) : (b))
#define ATTENTION_BUFFER_ELEMENTS(e, d, nv)                                                        \
	(ATTENTION_TOKENS(e) * ATTENTION_STRIDE(e, ATTENTION_CHUNK(d, nv)))
/* With q, in halves: a tile of K from codes. */
#define ATTENTION_K_TILE_ELEMENTS(d)                                                               \
	(ATTENTION_CHUNK(d, 0) * ATTENTION_STRIDE(2, ATTENTION_TOKENS(2)))
/* All buffers of K and V. */
#define ATTENTION_KV_ELEMENTS(e, d, nv, q)                                                         \
	((nv) || !(q) ?                                                                            \
		 ATTENTION_BUFFERS(nv) * ATTENTION_BUFFER_ELEMENTS(e, d, nv) :                     \
		 ATTENTION_MAX(ATTENTION_BUFFER_ELEMENTS(2, d, 0), ATTENTION_K_TILE_ELEMENTS(d)))
#define ATTENTION_BYTES(e, d, m, nv, q)                                                            \
	(16 * (m) * ATTENTION_STRIDE(e, d) * (e) + ATTENTION_KV_ELEMENTS(e, d, nv, q) * (e) +      \
	 16 * (m) * (ATTENTION_SCORE_STRIDE(e) + ATTENTION_NOTES) * 4)

/* Tiles of queries if a sequence loops: as many as fit into threadgroup memory (32 KB on Metal,
 * 99 KB on smaller NVIDIA GPUs) and registers. */
#define ATTENTION_LOOP_TILES(e, d, nv)                                                             \
	((e) == 2 ? ((nv) ? ((d) <= 128 ? 4 :                                                      \
			     (d) <= 256 ? 2 :                                                      \
					  1) :                                                     \
			    ((d) <= 128 ? 2 : 1)) :                                                \
		    ((nv) && (d) <= 128 ? 2 : 1))
