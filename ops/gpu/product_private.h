/*
 * product_private.h: what the files of linear, linear_heads, glu and logits on GPUs share: the ops
 * (products.c), the choice of kernels (product_kernels.c), dispatches (product_dispatch.c), and weights
 * that are unpacked before (product_unpack.c).
 */
#pragma once

#include "ops/op_private.h"
#include "shaders/args.h"
#include "shaders/core/shapes.h"

#include <ingot/gpu_lower.h>

#define SHARE_STEP 64 /* PRODUCT_STEP of product.h */

struct ig_product_tile {
	uint32_t bm, bn, bk, sm, sn, stages, wide;
};

enum ig_product_kind {
	TILE = 0, /* one tile per threadgroup, shares one after the other */
	SHARES,	  /* few rows; a group of simdgroups per share */
	RUSH,	  /* few rows; operands copied in boxes; one share */
	STREAM,	  /* persistent threadgroups; operands copied in boxes */
	TILES,	  /* few rows of weights in tiles; a simdgroup per share (product_tiles.h) */
	WIDE, /* some dozens of rows of weights in tiles; a warpgroup per share (product_wide.h) */
	DOTS, /* few rows by few outputs in float; a thread per output and share (linear_dots.h) */
};

/* A kernel, and the number of rows for which it is used. */
struct ig_product_variant {
	const char *suffix;
	struct ig_product_tile shape;
	uint32_t min_rows, max_rows;
	enum ig_product_kind kind;
	uint32_t cluster; /* TILES: threadgroups that divide the shares; 0: one has all */
	bool norm;	  /* TILES: x is launch->norm's input, whose norm the kernel computes */
};

#define MAX_VARIANTS 8

struct ig_product_variants {
	struct ig_product_variant v[MAX_VARIANTS];
	uint32_t n;
};

/* Weights of one dispatch. */
struct ig_product {
	const struct ig_gpu_launch *launch;
	const char *op; /* also the prefix of kernel names */
	const struct ig_shader *shader;
	const struct ig_gpu_tensor *weight[4], *bias[4];
	uint32_t n;
	uint32_t dtype;	  /* of the weights */
	uint32_t element; /* type in which it is multiplied: IG_F16, IG_BF16, IG_F32 */
	uint32_t pair;	  /* glu */
	uint32_t act;
	float limit;
	int64_t column; /* of the output: the first one of the first weight */
	int64_t k;	/* inner length */
	/* linear_heads: 0, or the number of heads, which divide rows of the weight, and the columns of a
	 * head that are passed on */
	uint32_t n_heads, n_rest;
};

/* ---- product_kernels.c ------------------------------------------------------------------ */

/* The kernels, and the number of shares of k, each of at least four steps. */
uint32_t ig_product_choose(const struct ig_product *p, struct ig_product_variants *variants);
/* The most rows for which a kernel computes the norm that made x; 0: none. */
uint32_t ig_product_norm_rows(const struct ig_product *p);
/* Weights in tiles. */
bool ig_product_is_tiled(const struct ig_product *p);
/* Rows of the weight or of x that are not multiples of 16 bytes are copied element by element.
 * Rows of block formats always are. */
bool ig_product_is_odd(uint32_t dtype, int64_t k);
/* The number of tiles of `width` columns. */
int64_t ig_product_tiles_across(const struct ig_product *p, int64_t width);
/* Threadgroup memory of any kernel but DOTS, TILES and WIDE. */
uint64_t ig_product_threadgroup_bytes(const struct ig_product_variant *v, uint32_t element,
				      uint32_t shares);
/* The rows of a threadgroup of DOTS; 0: not one has room. */
uint32_t ig_product_dots_rows(const struct ig_product *p, uint32_t shares);
/* Of DOTS, for so many rows in a threadgroup. */
uint64_t ig_product_dots_bytes(const struct ig_product *p, uint32_t rows, uint32_t shares);
/* Of TILES: the number of teams of a threadgroup, the simdgroups of a team, threadgroup memory. */
uint32_t ig_product_tiles_width(const struct ig_product *p, const struct ig_product_variant *v,
				uint32_t shares);
uint32_t ig_product_team(const struct ig_product *p, const struct ig_product_variant *v,
			 uint32_t shares);
uint64_t ig_product_tiles_bytes(const struct ig_product *p, const struct ig_product_variant *v,
				uint32_t teams, uint32_t shares);

/* Threadgroup memory of WIDE. */
uint64_t ig_product_wide_bytes(uint32_t rows, uint32_t shares);
/* The first number of rows for which weights in tiles are unpacked; 0: none. */
uint32_t ig_product_unpacks_from(const struct ig_product *p);
/* Streams for min_rows rows and more of weights in rows of float16, with the shares of k that they
 * had in tiles. */
void ig_product_streams(const struct ig_product *p, uint32_t min_rows, uint32_t shares,
			struct ig_product_variants *r);

/* ---- product_unpack.c ------------------------------------------------------------------- */

/* The dispatches for min_rows rows and more.  args: the product's, with its shares. */
int ig_product_lower_unpacked(const struct ig_product *p, uint32_t min_rows,
			      const struct linear_args *args, const struct ig_gpu_host *h,
			      struct ig_gpu_tape *t);

/* ---- product_dispatch.c ----------------------------------------------------------------- */

/* Check the shapes, and record a dispatch of each kernel, of which a step runs one. */
int ig_product_lower(const struct ig_product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		     struct ig_error *err);
/* The dispatch of one kernel; none if the launch never has so many rows. */
int ig_product_emit(const struct ig_product *p, const struct ig_product_variant *v,
		    const struct linear_args *common, const struct ig_gpu_host *h,
		    struct ig_gpu_tape *t);
