/*
 * products.c: GPU lowerings of linear, linear_heads, glu and logits: dispatches of the kernels in
 * shaders/core/linear.h and glu.h, with variants for different numbers of rows, of which a step
 * runs one.  Chosen here: the element type of the product, the tiles (shaders/core/shapes.h), and
 * the number of shares of k (split-K), which depends only on the weights' shape and the device.
 */
#include "ops/op_private.h"
#include "shaders/args.h"
#include "shaders/core/shapes.h"

#include <ingot/gpu_lower.h>

extern const struct ig_shader ig_shader_linear, ig_shader_linear_bf16, ig_shader_linear_q,
	ig_shader_linear_q5, ig_shader_linear_k, ig_shader_linear_k23, ig_shader_linear_table,
	ig_shader_linear_f32;
extern const struct ig_shader ig_shader_tiles_q, ig_shader_tiles_q5, ig_shader_tiles_k,
	ig_shader_tiles_k23, ig_shader_tiles_table;
extern const struct ig_shader ig_shader_elementwise;
extern const struct ig_shader ig_shader_glu, ig_shader_glu_bf16, ig_shader_glu_q, ig_shader_glu_q5,
	ig_shader_glu_k, ig_shader_glu_k23, ig_shader_glu_table, ig_shader_glu_f32;

_Static_assert(PRODUCT_ACT_NONE == IG_ACT_NONE && PRODUCT_ACT_SILU == IG_ACT_SILU &&
		       PRODUCT_ACT_GELU == IG_ACT_GELU && PRODUCT_ACT_RELU2 == IG_ACT_RELU2 &&
		       PRODUCT_ACT_CLAMPED == IG_ACT_CLAMPED,
	       "the shaders' activations are the ops'");

#define SHARE_STEP 64 /* PRODUCT_STEP of product.h */
#define MAX_SHARES 4
/* On NVIDIA, weights with at most this many outputs have their k split into shares, except float16
 * and bfloat16 multiplied as such: with one share many rows are a third faster, because sums need
 * no second set of registers, and few rows occupy the GPU anyway (2048 x 2048 on an H200: 16 rows
 * in 6.3 µs with or without shares; 4096 rows in 54 µs, with shares 79 µs). */
#define NV_SHARED_OUTPUTS 4096
/* 32 rows of 2048 x 2048: 7.7 µs with a few-row kernel, 12.3 µs with a tile. */
#define NV_NARROW_ROWS 48
/* Up to this many tiles of 128 rows, a stream's columns are chosen per number of tiles. */
#define NV_STREAM_TILES 16

struct shape {
	uint32_t bm, bn, bk, sm, sn, stages, wide;
};

enum kind {
	TILE = 0, /* one tile per threadgroup, shares one after the other */
	SHARES,	  /* few rows; a group of simdgroups per share */
	RUSH,	  /* few rows; operands copied in boxes; one share */
	STREAM,	  /* persistent threadgroups; operands copied in boxes; one share */
	TILES,	  /* few rows of weights in tiles; a simdgroup per share (product_tiles.h) */
};

/* A kernel, and the number of rows for which it is used. */
struct variant {
	const char *suffix;
	struct shape shape;
	uint32_t min_rows, max_rows;
	enum kind kind;
	uint32_t cluster; /* TILES: threadgroups that divide the shares; 0: one has all */
};

#define MAX_VARIANTS 8
#define MAX_TILE_SHARES 8
struct variants {
	struct variant v[MAX_VARIANTS];
	uint32_t n;
};

#define FEW IG_GPU_FEW_ROWS
#define MANY (FEW + 1)

static const struct variants
	metal = { {
			  { "few8", { SHAPE_METAL_FEW8 }, 1, 8, SHARES },
			  { "few16", { SHAPE_METAL_FEW16 }, 9, FEW, SHARES },
			  { "tile", { SHAPE_METAL_TILE }, MANY, UINT32_MAX, TILE },
		  },
		  3 },
	metal_f32 = { {
			      { "few8", { SHAPE_METAL_FEW8_F32 }, 1, 8, SHARES },
			      { "few16", { SHAPE_METAL_FEW16_F32 }, 9, FEW, SHARES },
			      { "tile", { SHAPE_METAL_TILE_F32 }, MANY, UINT32_MAX, TILE },
		      },
		      3 },
	nv_f32 = { {
			   { "few", { SHAPE_NV_FEW_F32 }, 1, FEW, SHARES },
			   { "tile", { SHAPE_NV_TILE_F32 }, MANY, UINT32_MAX, TILE },
		   },
		   2 };

/* Weights of one dispatch. */
struct product {
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

/* ---- element types ------------------------------------------------------------------- */

/* Weights that require different types are multiplied in float32. */
static uint32_t wanted(const struct ig_gpu_launch *c, uint32_t n_weights)
{
	uint32_t type = ig_gpu_element_of(c->weight[0].dtype);
	for (uint32_t i = 1; i < n_weights; i++)
		if (ig_gpu_element_of(c->weight[i].dtype) != type)
			return IG_F32;
	return c->f32 || type == IG_DTYPE_NONE ? IG_F32 : type;
}

static uint32_t linear_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, ((const struct ig_linear_params *)c->params)->n_weights);
}

static uint32_t glu_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 2);
}

/* What is passed on is not rounded to bfloat16. */
static uint32_t heads_in(const struct ig_gpu_launch *c, uint32_t i)
{
	const uint32_t type = wanted(c, 1);
	return i && type == IG_BF16 ? IG_F32 : type;
}

static uint32_t logits_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 1);
}

/* In float32 one kernel handles all block formats. */
static const char *format_name(uint32_t dtype, uint32_t element)
{
	return element == IG_F32 && ig_gpu_is_blocks(dtype) ? "blocks" : ig_gpu_format_name(dtype);
}

/* Rows of the weight or of x that are not multiples of 16 bytes are copied element by element.
 * Rows of block formats always are. */
static bool is_odd(uint32_t dtype, int64_t k)
{
	return dtype == IG_F32 ? k % 4 != 0 : (dtype == IG_F16 || dtype == IG_BF16) && k % 8 != 0;
}

/* ---- shares and sizes ---------------------------------------------------------------- */

/* The stages of the loop over k, later the sums; for each share if shares run in parallel.  With a
 * copy engine: both, and barriers. */
static uint64_t threadgroup_bytes(const struct variant *v, uint32_t element, uint32_t shares)
{
	const struct shape *s = &v->shape;
	uint64_t size = ig_gpu_element_bytes(element), stride = s->bk + (s->wide ? 0 : 16 / size);
	uint64_t walk = s->stages * (s->bm + s->bn) * stride * size;
	uint64_t sums = (uint64_t)s->bm * (s->bn + 8) * 4;

	switch (v->kind) {
	case RUSH: return walk + s->stages * 16;
	case STREAM: return walk + 2 * 64 * PRODUCT_STREAM_CHUNK(s->bn) * 4 + s->stages * 16 + 16;
	case SHARES: return (walk > sums ? walk : sums) * shares;
	default: return walk > sums ? walk : sums;
	}
}

/* Float16 or bfloat16 with aligned rows: all kernels exist for it, and it has one share. */
static bool is_large(const struct product *p)
{
	return (p->dtype == IG_F16 || p->dtype == IG_BF16) && !is_odd(p->dtype, p->k);
}

static int64_t n_cores(const struct ig_gpu_facts *f) { return f->n_cores ? f->n_cores : 132; }

/* The kernel for few rows on NVIDIA: the narrowest whose threadgroups all run concurrently. */
static struct variant nv_few(const struct product *p, int64_t outputs, bool shared)
{
	static const struct variant narrow[] = {
		{ "few_16", { SHAPE_NV_FEW_16 }, 1, NV_NARROW_ROWS, SHARES },
		{ "few_24", { SHAPE_NV_FEW_24 }, 1, NV_NARROW_ROWS, SHARES },
		{ "few_32", { SHAPE_NV_FEW_32 }, 1, NV_NARROW_ROWS, SHARES },
		{ "few_48", { SHAPE_NV_FEW_48 }, 1, FEW, SHARES },
		{ "few", { SHAPE_NV_FEW }, 1, FEW, SHARES },
		{ "few_96", { SHAPE_NV_FEW_96 }, 1, FEW, SHARES },
	}, pairs[] = {
		{ "few_48", { SHAPE_NV_FEW_48_PAIR }, 1, FEW, SHARES },
		{ "few", { SHAPE_NV_FEW_PAIR }, 1, FEW, SHARES },
		{ "few_96", { SHAPE_NV_FEW_96 }, 1, FEW, SHARES },
	}, few = { "few", { SHAPE_NV_FEW }, 1, FEW, SHARES },
	few_pair = { "few", { SHAPE_NV_FEW_PAIR }, 1, FEW, SHARES },
	few_shares = { "few_shares", { SHAPE_NV_FEW_SHARES }, 1, NV_NARROW_ROWS, SHARES },
	few_64 = { "few_64", { SHAPE_NV_FEW_64 }, 1, FEW, SHARES };
	const struct ig_gpu_facts *f = p->launch->facts;
	const struct variant *v = p->pair ? pairs : narrow;
	size_t n = p->pair ? sizeof pairs / sizeof *pairs : sizeof narrow / sizeof *narrow;

	if (shared)
		return few_shares;
	if (!is_large(p))
		return p->pair ? few_pair : few;
	for (size_t i = 0; i < n; i++)
		if ((outputs + v[i].shape.bn - 1) / v[i].shape.bn <= n_cores(f) &&
		    threadgroup_bytes(&v[i], p->element, 1) <= f->max_threadgroup_bytes)
			return v[i];
	return few_64;
}

/* The number of tiles of `width` columns. */
static int64_t tiles_across(const struct product *p, int64_t width)
{
	int64_t across = 0;
	for (uint32_t i = 0; i < (p->pair ? 1 : p->n); i++)
		across += (p->weight[i]->n_rows + width - 1) / width;
	return across;
}

/* The kernel for few rows with a copy engine: the narrowest whose threadgroups all run
 * concurrently, two or one per multiprocessor.  It is also used for more rows as long as they
 * do. */
static struct variant nv_rush(const struct product *p, int64_t outputs)
{
	static const struct variant rush_24 = { "rush_24", { SHAPE_NV_RUSH_24 }, 1, FEW, RUSH },
				    rush_96 = { "rush_96", { SHAPE_NV_RUSH_96 }, 1, FEW, RUSH },
				    rush_64 = { "rush_64", { SHAPE_NV_RUSH_64 }, 1, FEW, RUSH },
				    rush_pair = {
					    "rush_48", { SHAPE_NV_RUSH_48_PAIR }, 1, FEW, RUSH
				    };
	const int64_t cores = n_cores(p->launch->facts);

	if (outputs > 96 * cores)
		return rush_64;
	if (outputs > 48 * cores)
		return rush_96;
	struct variant v = p->pair ? rush_pair : rush_24;
	int64_t down = (p->pair ? 1 : 2) * cores / tiles_across(p, 24);

	if (down > 1)
		v.max_rows = down < NV_NARROW_ROWS / 16 ? (uint32_t)down * 16 : NV_NARROW_ROWS;
	return v;
}

/* The columns that a stream's threadgroup computes one after the other, for `down` tiles of rows;
 * proportional to the time. */
static int64_t stream_columns(const struct product *p, int64_t bn, int64_t down)
{
	const int64_t clusters = n_cores(p->launch->facts) / PRODUCT_STREAM_CLUSTER;
	const int64_t across = tiles_across(p, bn);
	return (down / 2 * across + down % 2 * (across + 1) / 2 + clusters - 1) / clusters * bn;
}

/* Whether tiles of 160 columns occupy the GPU so much better that they take 1/8 less time; for
 * very many rows, on average. */
static bool stream_wider(const struct product *p, int64_t down)
{
	int64_t wide = 0, narrow = 0, last = down > NV_STREAM_TILES ? 2 * NV_STREAM_TILES : down;

	if (p->pair)
		return false;
	for (; down <= last; down++) {
		wide += stream_columns(p, 160, down);
		narrow += stream_columns(p, 128, down);
	}
	return wide * 8 <= narrow * 7;
}

/* Streams for all rows after `done`, in ranges of tiles of rows. */
static void add_streams(const struct product *p, uint32_t done, struct variants *r)
{
	static const struct variant wide = { "stream_160", { SHAPE_NV_STREAM_160 }, 0, 0, STREAM },
				    narrow = {
					    "stream_128", { SHAPE_NV_STREAM_128 }, 0, 0, STREAM
				    };

	for (uint32_t down = done / 128 + 1; done < UINT32_MAX; down++) {
		bool wider = stream_wider(p, down);
		if (r->n < MAX_VARIANTS - 1 && down <= NV_STREAM_TILES &&
		    stream_wider(p, down + 1) == wider)
			continue;
		r->v[r->n] = wider ? wide : narrow;
		r->v[r->n].min_rows = done + 1;
		done = r->n == MAX_VARIANTS - 1 || down > NV_STREAM_TILES ? UINT32_MAX : down * 128;
		r->v[r->n++].max_rows = done;
	}
}

/* Kernels of sm_90a for large weights: one or two for few rows, tiles of 64 x 64 as long as all
 * run concurrently, then streams. */
static struct variants nv_large(const struct product *p, int64_t outputs)
{
	const int64_t cores = n_cores(p->launch->facts);
	struct variants r = { .v = { nv_rush(p, outputs) }, .n = 1 };
	uint32_t done = r.v[0].max_rows;
	int64_t down = p->pair || outputs > 48 * cores ? 0 : 2 * cores / tiles_across(p, 64);

	if (down > 8)
		down = 8;
	if (down * 16 > done) {
		uint32_t most = (uint32_t)down * 16;
		r.v[r.n++] =
			(struct variant){ "rush_64", { SHAPE_NV_RUSH_64 }, done + 1, most, RUSH };
		done = most;
	}
	down = cores * 6 / 5 / ((outputs + 63) / 64);
	if (down < 1)
		down = 1;
	if (down * 64 > done) {
		uint32_t most = (uint32_t)down * 64;
		r.v[r.n++] =
			(struct variant){ "wide_64", { SHAPE_NV_WIDE_64 }, done + 1, most, TILE };
		done = most;
	}
	add_streams(p, done, &r);
	return r;
}

/* Kernels for NVIDIA, elements of 2 bytes: one for few rows; for many rows the tile grows with
 * their number, as long as there are enough tiles for the GPU. */
static struct variants nv_variants(const struct product *p, int64_t outputs, bool shared)
{
	const struct ig_gpu_facts *f = p->launch->facts;

	if (f->arch == 90 && is_large(p) && p->n_heads) /* a head is no tensor map */
		return (struct variants){
			{ { "wide_64", { SHAPE_NV_WIDE_64 }, 1, UINT32_MAX, TILE } }, 1
		};
	if (f->arch == 90 && is_large(p)) /* only this capability has wgmma and such tensor maps */
		return nv_large(p, outputs);

	struct variants r = { .v = { nv_few(p, outputs, shared) }, .n = 1 };
	uint32_t many = r.v[0].max_rows + 1;

	if (f->arch != 90 || is_odd(p->dtype, p->k)) {
		r.v[r.n++] = (struct variant){ "tile", { SHAPE_NV_TILE }, many, UINT32_MAX, TILE };
		return r;
	}
	/* Small tiles as long as all run concurrently. */
	int64_t down = n_cores(f) * 13 / 10 / ((outputs + 63) / 64);
	uint32_t most_64 = down > 1 ? (uint32_t)down * 64 : 64;

	r.v[r.n++] = (struct variant){ "wide_64", { SHAPE_NV_WIDE_64 }, many, most_64, TILE };
	r.v[r.n++] = (struct variant){
		"wide_128", { SHAPE_NV_WIDE_128 }, most_64 + 1, UINT32_MAX, TILE
	};
	return r;
}

/* ---- weights in tiles ---------------------------------------------------------------- */

static bool is_tiled(const struct product *p) { return p->weight[0]->layout == IG_GPU_TILES; }

/* The simdgroups of a threadgroup that compute the same outputs. */
static uint32_t team_of(const struct product *p, const struct variant *v, uint32_t shares)
{
	if (v->cluster)
		shares /= v->cluster;
	return p->pair ? 2 * shares : shares;
}

/* Threadgroup memory of the kernel for few rows: sums (on NVIDIA twice), and the rows of x. */
static uint64_t tiles_bytes(const struct product *p, const struct variant *v, uint32_t teams,
			    uint32_t shares)
{
	const uint64_t tile = ig_gpu_tile_k(p->dtype), k = (uint64_t)p->k;
	uint64_t sums = (uint64_t)teams * team_of(p, v, shares) * 64 * v->shape.bm;
	uint64_t tiles = (k + tile - 1) / tile;

	if (p->launch->facts->kind != IG_GPU_CUDA)
		return sums;
	if (v->cluster)
		tiles = (tiles + shares - 1) / shares * (shares / v->cluster);
	return TILES_BARRIERS + v->max_rows * (tiles * tile + 8) * 2 + 2 * sums;
}

/* The number of teams of a threadgroup: such that a multiprocessor has few tiles (in turns, the last
 * of which leaves teams without one), and then as many as possible at once. */
static uint32_t tiles_width(const struct product *p, const struct variant *v, uint32_t shares)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const int64_t cores = n_cores(f) / (v->cluster ? v->cluster : 1),
		      across = tiles_across(p, 16);
	uint32_t most = TILES_THREADS / 32 / team_of(p, v, shares), width;

	if (f->kind != IG_GPU_CUDA)
		return 1;
	while (most > 1 && tiles_bytes(p, v, most, shares) > f->max_threadgroup_bytes)
		most--;
	int64_t least = INT64_MAX;
	uint32_t best = 1;
	for (width = 1; width <= most; width++) {
		int64_t tiles = (across + width * cores - 1) / (width * cores) * width;
		if (tiles <= least) {
			least = tiles;
			best = width;
		}
	}
	return best;
}

/* The kernels of weights in tiles.  k is split into tiles: few outputs need several shares of them
 * to occupy a GPU; a long k in one chain of matrix instructions would take longer than its bytes. */
static uint32_t choose_tiles(const struct product *p, int64_t outputs, struct variants *r)
{
	static const struct variant few[] = { { "8", { .bm = 8 }, 1, 8, TILES, 0 },
					      { "8_cluster", { .bm = 8 }, 1, 8, TILES, 2 },
					      { "16", { .bm = 16 }, 9, FEW, TILES, 0 },
					      { "16_cluster", { .bm = 16 }, 9, FEW, TILES, 2 } };
	const struct ig_gpu_facts *f = p->launch->facts;
	const bool is_nv = f->kind == IG_GPU_CUDA;
	const int64_t k = p->k, tile = ig_gpu_tile_k(p->dtype);
	int64_t tiles = (k + tile - 1) / tile, down;
	uint32_t shares = outputs <= 4096 || k > 8192 ? MAX_TILE_SHARES :
			  outputs <= 8192	      ? 4 :
			  outputs <= 16384	      ? 2 :
							1;
	uint32_t done = 0;

	if (shares > tiles)
		shares = (uint32_t)tiles;
	r->n = 0;
	for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
		struct variant v = few[i];
		while (v.cluster && v.cluster * 2 <= MAX_TILE_SHARES &&
		       shares % (v.cluster * 2) == 0 &&
		       tiles_bytes(p, &v, 1, shares) > f->max_threadgroup_bytes)
			v.cluster *= 2;
		while (v.max_rows > done &&
		       tiles_bytes(p, &v, 1, shares) > f->max_threadgroup_bytes)
			v.max_rows--;
		if (v.max_rows <= done || done < few[i].min_rows - 1 ||
		    (v.cluster && (!is_nv || shares % v.cluster != 0)))
			continue;
		v.min_rows = done + 1;
		done = v.max_rows;
		r->v[r->n++] = v;
	}
	if (!is_nv) {
		r->v[r->n++] = (struct variant){
			"many", { SHAPE_METAL_TILES }, done + 1, UINT32_MAX, TILE
		};
		return shares;
	}
	down = n_cores(f) * 13 / 10 / ((outputs + 63) / 64);
	uint32_t most_64 = down > 1 ? (uint32_t)down * 64 : 64;
	r->v[r->n++] = (struct variant){ "64", { SHAPE_NV_WIDE_64 }, done + 1, most_64, TILE };
	r->v[r->n++] =
		(struct variant){ "128", { SHAPE_NV_WIDE_128 }, most_64 + 1, UINT32_MAX, TILE };
	return shares;
}

/* The kernels, and the number of shares of k, each of at least four steps. */
static uint32_t choose(const struct product *p, struct variants *variants)
{
	const struct ig_gpu_launch *c = p->launch;
	int64_t steps = (p->k + SHARE_STEP - 1) / SHARE_STEP, outputs = 0;
	bool f32 = p->element == IG_F32, is_nv = c->facts->kind == IG_GPU_CUDA;
	uint32_t shares = steps < 8		 ? 1 :
			  steps / 4 < MAX_SHARES ? (uint32_t)(steps / 4) :
						   MAX_SHARES;

	for (uint32_t i = 0; i < p->n; i++)
		outputs += p->weight[i]->n_rows;
	if (is_tiled(p))
		return choose_tiles(p, outputs, variants);
	if (is_nv && (outputs > NV_SHARED_OUTPUTS || (!f32 && is_large(p))))
		shares = 1;
	if (f32)
		*variants = is_nv ? nv_f32 : metal_f32;
	else
		*variants = is_nv ? nv_variants(p, outputs, shares > 1) : metal;
	for (uint32_t i = 0; i < variants->n; i++)
		while (shares > 1 && threadgroup_bytes(&variants->v[i], p->element, shares) >
					     c->facts->max_threadgroup_bytes)
			shares--;
	return shares;
}

/* ---- dispatches ------------------------------------------------------------------------ */

static struct ig_gpu_bind bind_columns(const struct ig_gpu_tensor *v, uint64_t first, uint64_t n,
				       uint32_t access)
{
	struct ig_gpu_bind b = ig_gpu_bind_ref(v->ref, n * ig_gpu_element_bytes(v->dtype), access);
	b.ref.offset += first * ig_gpu_element_bytes(v->dtype);
	return b;
}

/* Boxes for x and weights: n_rows of x; boxes of box_x rows of x and box_w rows of a weight. */
static void box_operands(const struct product *p, const struct linear_args *args, uint32_t n_rows,
			 uint32_t box_x, uint32_t box_w, struct ig_gpu_dispatch *d)
{
	d->box[d->n_boxes++] =
		(struct ig_gpu_box){ 0, box_x, n_rows, args->k, p->launch->in[0].row_stride };
	for (uint32_t i = 0; i < (p->pair ? 2 : 4); i++) {
		const struct ig_gpu_tensor *w = p->weight[i < p->n ? i : 0];
		d->box[d->n_boxes++] = (struct ig_gpu_box){ 1 + i, box_w, (uint32_t)w->n_rows,
							    args->k, w->row_stride };
	}
}

static void bind_operands(const struct product *p, const struct linear_args *args,
			  struct ig_gpu_dispatch *d)
{
	const struct ig_gpu_bind left_out = IG_GPU_NONE;
	const struct ig_gpu_launch *c = p->launch;
	/* Offsets of buffers are multiples of 4 bytes. */
	uint64_t first = (uint64_t)p->column - args->column, columns = args->column;

	for (uint32_t i = 0; i < args->n_weights; i++)
		columns += args->n[i];
	if (p->n_heads)
		columns = (uint64_t)c->out[0].n_cols;
	d->bind[d->n_binds++] = ig_gpu_bind_value(&c->in[0], IG_GPU_READ);
	for (uint32_t i = 0; i < (p->pair ? 2 : 4); i++)
		d->bind[d->n_binds++] = i < p->n ? ig_gpu_bind_weight(p->weight[i]) : left_out;
	if (!p->pair) {
		for (uint32_t i = 0; i < 4; i++)
			d->bind[d->n_binds++] =
				i < p->n && p->bias[i] ?
					ig_gpu_bind_ref(p->bias[i]->ref, (uint64_t)args->n[i] * 4,
							IG_GPU_READ) :
					left_out;
		d->bind[d->n_binds++] =
			args->flags & LINEAR_RESIDUAL ?
				bind_columns(&c->in[1], first, columns, IG_GPU_READ) :
				left_out;
	}
	d->bind[d->n_binds++] = bind_columns(&c->out[0], first, columns, IG_GPU_WRITE);
}

/* The grid and the threads of a kernel for few rows of weights in tiles. */
static void size_tiles(const struct product *p, const struct variant *v, struct linear_args *args,
		       struct ig_gpu_dispatch *d)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	int64_t groups;

	args->width = tiles_width(p, v, args->shares);
	args->cluster = v->cluster ? v->cluster : 1;
	groups = (tiles_across(p, 16) + args->width - 1) / args->width;
	if (f->kind == IG_GPU_CUDA && groups > n_cores(f) / args->cluster)
		groups = n_cores(f) / args->cluster;
	groups *= args->cluster;
	d->cluster = v->cluster;
	d->threads = args->width * team_of(p, v, args->shares) * 32;
	d->threadgroup_bytes = (uint32_t)tiles_bytes(p, v, args->width, args->shares);
	d->grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)groups };
}

static int emit(const struct product *p, const struct variant *v, const struct linear_args *common,
		const struct ig_gpu_host *h, struct ig_gpu_tape *t)
{
	struct linear_args own = *common, *args = &own;
	const uint32_t max_rows = ig_gpu_max_rows(p->launch);
	const struct shape *s = &v->shape;
	uint32_t width = v->kind == TILES ? 16 : p->pair ? s->bn / 2 : s->bn;
	uint32_t groups = s->sm * s->sn * (v->kind == SHARES ? args->shares : 1);
	struct ig_gpu_dispatch d = { .struct_size = sizeof d };
	uint64_t tiles = 0;
	char name[64];

	if (v->min_rows > max_rows)
		return 0;
	for (uint32_t i = 0; i < args->n_weights; i++)
		tiles += ((uint64_t)args->n[i] + width - 1) / width;
	if (is_tiled(p))
		snprintf(name, sizeof name, "%s_tiles_%s_%s", p->pair ? "glu" : "linear",
			 ig_gpu_format_name(p->dtype), v->suffix);
	else
		snprintf(name, sizeof name, "%s_%s_%s%s_%s", p->pair ? "glu" : "linear",
			 format_name(p->dtype, p->element), ig_gpu_format_name(p->element),
			 is_odd(p->dtype, args->k) ? "_odd" : "", v->suffix);
	d.shader = p->shader;
	d.kernel = name;
	d.args = args;
	d.n_arg_bytes = sizeof *args;
	d.threads = groups * 32;
	d.threadgroup_bytes = (uint32_t)threadgroup_bytes(v, p->element, args->shares);
	d.when_live = ig_gpu_live_of(&p->launch->out[0]);
	d.when_min = v->min_rows;
	d.when_max = v->max_rows;
	if (v->kind == TILES)
		size_tiles(p, v, args, &d);
	else if (v->kind == STREAM) {
		d.cluster = PRODUCT_STREAM_CLUSTER;
		d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1,
						    (uint32_t)n_cores(p->launch->facts) /
							    d.cluster * d.cluster };
	} else if (v->max_rows <= s->bm)
		d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)tiles };
	else
		d.grid[0] = (struct ig_gpu_extent){ d.when_live, 1, s->bm, (uint32_t)tiles };
	d.grid[1] = d.grid[2] = (struct ig_gpu_extent)IG_GPU_ONE;
	if (p->n_heads)
		d.grid[1].times = p->n_heads;
	bind_operands(p, args, &d);
	if (v->kind == RUSH)
		box_operands(p, args, max_rows, 8, width, &d);
	else if (v->kind == STREAM)
		box_operands(p, args, max_rows, s->bm, s->bn / 2, &d);
	return h->dispatch(t, &d);
}

static int lower(const struct product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		 struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	struct variants variants;
	uint64_t limit = INT32_MAX;
	struct linear_args args = { 0 };
	bool residual = !p->pair && !p->n_heads && c->n_in > 1 && c->in[1].ref.buffer >= 0;
	int rc = ig_gpu_check_product(p->op, p->dtype, p->element, y->dtype, err);

	if (rc)
		return rc;
	if (p->k < 1 || (uint64_t)x->n_cols > limit || p->weight[0]->row_stride > limit ||
	    x->row_stride > limit || y->row_stride > limit)
		return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long", p->op,
			       (long long)x->n_cols);
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->weight[i]->n_rows < 1 || (uint64_t)p->weight[i]->n_rows > limit)
			return ig_fail(err, -ENOTSUP, "%s: a weight of %lld rows", p->op,
				       (long long)p->weight[i]->n_rows);
		if (p->weight[i]->row_stride != p->weight[0]->row_stride ||
		    p->weight[i]->layout != p->weight[0]->layout)
			return ig_fail(err, -EINVAL, "%s: rows of one format differ in length",
				       p->op);
		if (!p->pair || i == 0)
			args.n[i] = (uint32_t)p->weight[i]->n_rows;
	}
	if (p->n_heads) {
		args.n[0] /= p->n_heads;
		args.x_head = (uint32_t)p->k + p->n_rest;
		args.y_head = args.n[0] + p->n_rest;
	}
	args.k = (uint32_t)p->k;
	args.n_weights = p->pair ? 1 : p->n;
	args.x_stride = ig_gpu_stride(x);
	args.y_stride = ig_gpu_stride(y);
	args.residual_stride = residual ? ig_gpu_stride(&c->in[1]) : 0;
	args.act = p->act;
	args.limit = p->limit;
	args.rows_live = y->row_class == IG_ROWS_LOGITS;
	args.w_row_bytes = (uint32_t)p->weight[0]->row_stride;
	args.shares = choose(p, &variants);
	args.share_step = is_tiled(p) ? ig_gpu_tile_k(p->dtype) : SHARE_STEP;
	args.column = (uint32_t)(p->column % 2);
	args.format = p->dtype;
	args.flags = (p->bias[0] ? LINEAR_BIAS : 0) | (residual ? LINEAR_RESIDUAL : 0) |
		     (y->dtype == IG_F16 ? LINEAR_OUT_F16 : 0) |
		     (y->dtype == IG_BF16 ? LINEAR_OUT_BF16 : 0);
	/* Columns in pairs: every weight starts at an even column, and so does every row. */
	bool even = args.column == 0 && args.y_stride % 2 == 0 && args.residual_stride % 2 == 0;
	for (uint32_t i = 0; i + 1 < args.n_weights; i++)
		even = even && args.n[i] % 2 == 0;
	if (even)
		args.flags |= LINEAR_PAIRS;
	for (uint32_t i = 0; i < variants.n; i++) {
		rc = emit(p, &variants.v[i], &args, h, t);
		if (rc)
			return ig_fail(err, rc,
				       "%s: a kernel for %lld columns of %u values could not be "
				       "recorded",
				       p->op, (long long)y->n_cols, args.k);
	}
	return 0;
}

static const struct ig_shader *shader_of(const struct product *p)
{
	const bool pair = p->pair, tiled = is_tiled(p);

	if (p->element == IG_F32)
		return pair ? &ig_shader_glu_f32 : &ig_shader_linear_f32;
	switch (p->dtype) {
	case IG_F16: return pair ? &ig_shader_glu : &ig_shader_linear;
	case IG_BF16: return pair ? &ig_shader_glu_bf16 : &ig_shader_linear_bf16;
	case IG_Q5_0:
	case IG_Q5_1:
		return tiled ? &ig_shader_tiles_q5 :
		       pair  ? &ig_shader_glu_q5 :
			       &ig_shader_linear_q5;
	case IG_Q2_K:
	case IG_Q3_K:
		return tiled ? &ig_shader_tiles_k23 :
		       pair  ? &ig_shader_glu_k23 :
			       &ig_shader_linear_k23;
	case IG_Q4_K:
	case IG_Q5_K:
	case IG_Q6_K:
		return tiled ? &ig_shader_tiles_k : pair ? &ig_shader_glu_k : &ig_shader_linear_k;
	case IG_IQ4_NL:
	case IG_IQ4_XS:
	case IG_MXFP4:
		return tiled ? &ig_shader_tiles_table :
		       pair  ? &ig_shader_glu_table :
			       &ig_shader_linear_table;
	default: return tiled ? &ig_shader_tiles_q : pair ? &ig_shader_glu_q : &ig_shader_linear_q;
	}
}

/* ---- the ops --------------------------------------------------------------------------- */

/* Consecutive weights of one format share dispatches. */
static int lower_linear(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_linear_params *params = c->params;
	int64_t column = 0;

	if (params->act >= IG_ACT_GELU_ERF)
		return ig_fail(err, -ENOTSUP, "linear: activation %u has no kernel on GPUs yet",
			       params->act);
	for (uint32_t first = 0, next; first < params->n_weights; first = next) {
		struct product p = { .launch = c,
				     .op = "linear",
				     .dtype = c->weight[first].dtype,
				     .element = c->in[0].dtype,
				     .act = params->act,
				     .column = column,
				     .k = c->in[0].n_cols };
		for (next = first; next < params->n_weights && c->weight[next].dtype == p.dtype &&
				   c->weight[next].layout == c->weight[first].layout;
		     next++) {
			p.weight[p.n] = &c->weight[next];
			p.bias[p.n++] = params->bias ? &c->weight[params->n_weights + next] : NULL;
			column += c->weight[next].n_rows;
		}
		p.shader = shader_of(&p);
		int rc = lower(&p, h, t, err);
		if (rc)
			return rc;
	}
	return 0;
}

static int lower_glu(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_glu_params *params = c->params;
	struct product p = { .launch = c,
			     .op = "glu",
			     .dtype = c->weight[0].dtype,
			     .element = c->in[0].dtype,
			     .act = params->act,
			     .limit = params->limit,
			     .pair = 1,
			     .k = c->in[0].n_cols,
			     .n = 2,
			     .weight = { &c->weight[0], &c->weight[1] } };

	if (params->bias)
		return ig_fail(err, -ENOTSUP, "glu: no GPU kernel adds biases");
	p.shader = shader_of(&p);
	return lower(&p, h, t, err);
}

static int lower_logits(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	struct product p = { .launch = c,
			     .op = "logits",
			     .dtype = c->weight[0].dtype,
			     .element = c->in[0].dtype,
			     .k = c->in[0].n_cols,
			     .n = 1,
			     .weight = { &c->weight[0] } };

	p.shader = shader_of(&p);
	return lower(&p, h, t, err);
}

/* The last columns of each head of in[1], as they are. */
static int pass_on(const struct product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		   struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct ig_gpu_tensor *x = &c->in[1], *y = &c->out[0];
	const struct heads_args args = {
		.n = p->n_rest,
		.x_stride = ig_gpu_stride(x),
		.y_stride = ig_gpu_stride(y),
		.x_head = (uint32_t)(x->n_cols / p->n_heads),
		.y_head = (uint32_t)(y->n_cols / p->n_heads),
		.rows_live = y->row_class == IG_ROWS_LOGITS,
	};
	char name[64];
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = &ig_shader_elementwise,
		.kernel = name,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = HEADS_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, p->n_heads },
			  { ig_gpu_live_of(y), 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ), ig_gpu_bind_value(y, IG_GPU_WRITE) },
	};

	snprintf(name, sizeof name, "heads_rest_%s_%s", ig_gpu_format_name(x->dtype),
		 ig_gpu_format_name(y->dtype));
	int rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "linear_heads: %s could not be recorded", name) : 0;
}

static int lower_linear_heads(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_linear_heads_params *params = c->params;
	struct product p = { .launch = c,
			     .op = "linear_heads",
			     .dtype = c->weight[0].dtype,
			     .element = c->in[0].dtype,
			     .k = c->weight[0].n_cols,
			     .n_heads = params->n_heads,
			     .n_rest = params->n_rest,
			     .n = 1,
			     .weight = { &c->weight[0] } };
	int rc;

	p.shader = shader_of(&p);
	rc = lower(&p, h, t, err);
	return rc || !p.n_rest ? rc : pass_on(&p, h, t, err);
}

/* Blocks that are multiplied in float16 may be in tiles. */
static bool may_tile(const struct ig_gpu_launch *c, uint32_t i, uint32_t n_weights)
{
	return i < n_weights && wanted(c, n_weights) == IG_F16 &&
	       ig_gpu_is_blocks(c->weight[i].dtype);
}

static bool linear_tiles(const struct ig_gpu_launch *c, uint32_t i)
{
	return may_tile(c, i, ((const struct ig_linear_params *)c->params)->n_weights);
}

static bool glu_tiles(const struct ig_gpu_launch *c, uint32_t i) { return may_tile(c, i, 2); }

static bool logits_tiles(const struct ig_gpu_launch *c, uint32_t i) { return may_tile(c, i, 1); }

const struct ig_gpu_op ig_gpu_linear = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, linear_in,
					 lower_linear, linear_tiles },
		       ig_gpu_linear_heads = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, heads_in,
					       lower_linear_heads, NULL },
		       ig_gpu_glu = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, glu_in, lower_glu,
				      glu_tiles },
		       ig_gpu_logits = { sizeof(struct ig_gpu_op), 0, logits_in, lower_logits,
					 logits_tiles };
