/*
 * shapes.h: tiles of the products, for the kernels (product.h) and for their lowering
 * (ops/gpu/product_kernels.c): BM, BN, BK, simdgroups along rows, along columns, stages, and
 * whether a warpgroup multiplies (sm_90a), or Metal 4's tensor units.
 *
 * BM x BN elements of y (BM x BN / 2 columns if two products are computed together), BK elements
 * of k per step.  few: one such tile per share, all for the same elements of y.  The figures in
 * comments are for an H200, float16, compared with cuBLAS in the same run.
 */
#pragma once

/* Metal: 32 KB of threadgroup memory.  A share of few rows is one simdgroup with its own memory,
 * so that it never waits for others; four of them fit. */
#define SHAPE_METAL_FEW8 8, 32, 32, 1, 1, 2, 0
#define SHAPE_METAL_FEW16 16, 32, 32, 1, 1, 2, 0
#define SHAPE_METAL_TILE 32, 64, 32, 2, 2, 2, 0
#define SHAPE_METAL_TILES 32, 64, 64, 2, 2, 2, 0
#define SHAPE_METAL_FEW8_F32 8, 16, 32, 1, 1, 2, 0
#define SHAPE_METAL_FEW16_F32 16, 16, 32, 1, 1, 2, 0
#define SHAPE_METAL_TILE_F32 32, 64, 32, 2, 2, 2, 0
/* Tensor units, from the M5 on: at least 16 rows an instruction. */
#define SHAPE_METAL_TENSOR_FEW 16, 32, 32, 1, 1, 2, 1
#define SHAPE_METAL_TENSOR_TILE 64, 64, 32, 2, 2, 2, 1

/* Few rows of small weights in blocks: k is split into shares, one simdgroup each. */
#define SHAPE_NV_FEW_SHARES 16, 32, 64, 1, 1, 4, 0
/* Few rows of larger weights, and of all weights on GPUs with too little threadgroup memory for
 * the shapes below.  GLU's have pairs of columns. */
#define SHAPE_NV_FEW 16, 48, 256, 1, 6, 3, 0
#define SHAPE_NV_FEW_PAIR 16, 48, 256, 1, 3, 3, 0
/* Few rows of float16 and bfloat16, in one share: the narrowest shape whose threadgroups all run
 * at once, otherwise that of 64 columns, with several threadgroups per multiprocessor. */
#define SHAPE_NV_FEW_16 16, 16, 256, 1, 2, 4, 0
#define SHAPE_NV_FEW_24 16, 24, 256, 1, 3, 4, 0
#define SHAPE_NV_FEW_32 16, 32, 256, 1, 4, 4, 0
#define SHAPE_NV_FEW_48 16, 48, 256, 1, 6, 4, 0
#define SHAPE_NV_FEW_48_PAIR 16, 48, 256, 1, 3, 4, 0
#define SHAPE_NV_FEW_96 16, 96, 128, 1, 6, 4, 0
#define SHAPE_NV_FEW_64 16, 64, 128, 1, 4, 4, 0
/* The same with a copy engine, which one of these simdgroups drives (tile_rush).  16 rows:
 * 24 columns, two threadgroups per multiprocessor: 2048 x 2048 98 %, 5632 x 2048 91 %, 5120 x
 * 5120 94 %; 96 columns, one: 11264 x 2048 93 %; 64 columns: 32000 x 2048 101 %.  More stages
 * took more time. */
#define SHAPE_NV_RUSH_24 16, 24, 256, 1, 4, 4, 1
#define SHAPE_NV_RUSH_48_PAIR 16, 48, 256, 1, 4, 4, 1
#define SHAPE_NV_RUSH_64 16, 64, 128, 1, 5, 5, 1
#define SHAPE_NV_RUSH_96 16, 96, 128, 1, 7, 4, 1
/* mma.sync, for GPUs and formats without wgmma. */
#define SHAPE_NV_TILE 64, 64, 64, 2, 2, 4, 0
/* 64 rows of 5120 x 5120 in 27 us (64 %), of 32768 x 5120 in 90 us (95 %). */
#define SHAPE_NV_WIDE_64 64, 64, 64, 4, 1, 6, 1
#define SHAPE_NV_WIDE_128 128, 128, 64, 8, 1, 6, 1
/* Streams of tiles (tile_stream): two warpgroups that multiply and one that copies.  4096 rows
 * by 128 columns: 2048 x 2048 in 53 us (90 %), 5120 x 5120 in 342 (97 %); by 160, where such
 * tiles occupy the GPU better: 5120 x 5120 in 332 (100 %), 512 rows in 46 (94 %) instead of 66. */
#define SHAPE_NV_STREAM_128 128, 128, 64, 12, 1, 6, 1
#define SHAPE_NV_STREAM_160 128, 160, 64, 12, 1, 5, 1
/* Threadgroups of a cluster, and columns of one epilogue chunk. */
#define PRODUCT_STREAM_CLUSTER 2
#define PRODUCT_STREAM_CHUNK(bn) ((bn) % 64 == 0 ? 64 : 32)
/* Experts' products of few rows, which need some threadgroup memory for an index. */
#define SHAPE_NV_FEW_MOE 16, 48, 128, 1, 6, 4, 0
#define SHAPE_NV_FEW_MOE_PAIR 16, 48, 128, 1, 3, 4, 0
#define SHAPE_NV_FEW_F32 16, 32, 64, 1, 2, 4, 0
/* The same of few outputs, as a router's: 128 x 2048 in 4 threadgroups of 32 take 20 us. */
#define SHAPE_NV_FEW_F32_8 16, 8, 64, 1, 1, 4, 0
/* Few rows by few outputs in float (linear_dots.h): threads, outputs and the most rows of a threadgroup.  16 rows
 * of 64 x 2048 in one took 17.6 us on an H200, one row 9.3. */
#define DOTS_THREADS 256
#define DOTS_COLUMNS 8
#define DOTS_ROWS 4
#define SHAPE_NV_DOTS 16, DOTS_COLUMNS, 64, DOTS_THREADS / 32, 1, 1, 0
#define SHAPE_NV_TILE_F32 64, 64, 32, 2, 2, 3, 0
/* Few rows of weights in tiles (product_tiles.h): the most threads of a threadgroup and shares of k, and
 * bytes of threadgroup memory before the rows of x. */
#define TILES_THREADS 512
#define TILES_MAX_SHARES 8
#define TILES_BARRIERS 528
/* Some dozens of rows (product_wide.h): threads, stages of x of 128 of k, and outputs of a threadgroup. */
#define WIDE_THREADS 256
#define WIDE_STAGES 4
#define WIDE_OUTPUTS 128
