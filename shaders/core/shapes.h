/*
 * shapes.h: tiles of the products, for the kernels (product.h) and for their lowering
 * (ops/gpu/products.c): BM, BN, BK, simdgroups along rows, along columns, stages, wide.
 *
 * BM x BN elements of y (of BM x BN / 2 columns where two products are made at once), BK of
 * k a step.  few: of a threadgroup, one such tile a share, all of the same elements.
 */
#ifndef INGOT_SHADERS_CORE_SHAPES_H
#define INGOT_SHADERS_CORE_SHAPES_H

/* Metal: 32 KB of threadgroup memory.  A share of few rows is one simdgroup with memory of
 * its own, so that it waits for nobody; four of them fit. */
#define SHAPE_METAL_FEW8 8, 32, 32, 1, 1, 2, 0
#define SHAPE_METAL_FEW16 16, 32, 32, 1, 1, 2, 0
#define SHAPE_METAL_TILE 32, 64, 32, 2, 2, 2, 0
#define SHAPE_METAL_FEW8_F32 8, 16, 32, 1, 1, 2, 0
#define SHAPE_METAL_FEW16_F32 16, 16, 32, 1, 1, 2, 0
#define SHAPE_METAL_TILE_F32 32, 64, 32, 2, 2, 2, 0

#define SHAPE_NV_FEW 16, 32, 128, 1, 2, 4, 0
#define SHAPE_NV_TILE 64, 64, 64, 2, 2, 4, 0
#define SHAPE_NV_FEW_F32 16, 32, 64, 1, 2, 4, 0
#define SHAPE_NV_TILE_F32 64, 64, 32, 2, 2, 3, 0

#endif
