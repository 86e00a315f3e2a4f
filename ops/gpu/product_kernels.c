/*
 * product_kernels.c: which kernels multiply by given weights on a device: for each range of rows the
 * tiles (shaders/core/shapes.h), and for all of them the number of shares of k (split-K), which
 * depends only on the weights' shape and the device.
 */
#include "ops/gpu/product_private.h"
#include "ops/gpu/unpack.h"

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
/* From here on weights in tiles are unpacked to float16, which costs some 3 bytes of traffic a weight
 * and lets products run at float16's speed.  Of more than NV_WIDE_WEIGHTS values that is traffic of device memory: on an
 * H200 512 rows of Devstral's 8 layers took 13.7 ms so and 12.6 in tiles, TinyLlama's 6.5 and 8.1. */
#define NV_UNPACKED_ROWS 257
#define NV_UNPACKED_ROWS_LARGE 513
/* Weights in tiles of at most so many values are a warpgroup's from nine rows on, larger ones from seventeen: on an H200
 * TinyLlama's shape takes 1.08 ms for 24 rows where kernels of sixteen rows take 1.27 for 16, Devstral's 1.85 and 1.60. */
#define NV_WIDE_WEIGHTS ((uint64_t)1 << 26)

#define FEW IG_GPU_FEW_ROWS
#define MANY (FEW + 1)

static const struct ig_product_variants
	metal = { {
			  { "few8", { SHAPE_METAL_FEW8 }, 1, 8, SHARES },
			  { "few16", { SHAPE_METAL_FEW16 }, 9, FEW, SHARES },
			  { "tile", { SHAPE_METAL_TILE }, MANY, UINT32_MAX, TILE },
		  },
		  3 },
	metal_tensor = { {
				 { "tensor_few", { SHAPE_METAL_TENSOR_FEW }, 1, FEW, SHARES },
				 { "tensor_tile",
				   { SHAPE_METAL_TENSOR_TILE },
				   MANY,
				   UINT32_MAX,
				   TILE },
			 },
			 2 },
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
		   2 },
	nv_f32_narrow = { {
				  { "few_8", { SHAPE_NV_FEW_F32_8 }, 1, FEW, SHARES },
				  { "tile", { SHAPE_NV_TILE_F32 }, MANY, UINT32_MAX, TILE },
			  },
			  2 };

bool ig_product_is_odd(uint32_t dtype, int64_t k)
{
	return dtype == IG_F32 ? k % 4 != 0 : (dtype == IG_F16 || dtype == IG_BF16) && k % 8 != 0;
}

/* ---- shares and sizes ---------------------------------------------------------------- */

/* The stages of the loop over k, later the sums; for each share if shares run in parallel.  With a
 * copy engine: both, and barriers. */
uint64_t ig_product_threadgroup_bytes(const struct ig_product_variant *v, uint32_t element,
				      uint32_t shares)
{
	const struct ig_product_tile *s = &v->shape;
	uint64_t size = ig_gpu_element_bytes(element), stride = s->bk + (s->wide ? 0 : 16 / size);
	uint64_t walk = s->stages * (s->bm + s->bn) * stride * size;
	uint64_t sums = (uint64_t)s->bm * (s->bn + 8) * 4;

	switch (v->kind) {
	case RUSH: return walk + s->stages * 16;
	case STREAM: return ig_gpu_stream_bytes(s->bm, s->bn, s->bk, s->stages, (uint32_t)size);
	case SHARES: return (walk > sums ? walk : sums) * shares;
	default: return walk > sums ? walk : sums;
	}
}

/* Float16 or bfloat16 with aligned rows: all kernels exist for it, and it has one share. */
static bool is_large(const struct ig_product *p)
{
	return (p->dtype == IG_F16 || p->dtype == IG_BF16) && !ig_product_is_odd(p->dtype, p->k);
}

/* The kernel for few rows on NVIDIA: the narrowest whose threadgroups all run concurrently. */
static struct ig_product_variant nv_few(const struct ig_product *p, int64_t outputs, bool shared)
{
	static const struct ig_product_variant narrow[] = {
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
	const struct ig_product_variant *v = p->pair ? pairs : narrow;
	size_t n = p->pair ? sizeof pairs / sizeof *pairs : sizeof narrow / sizeof *narrow;

	if (shared)
		return few_shares;
	if (!is_large(p))
		return p->pair ? few_pair : few;
	for (size_t i = 0; i < n; i++)
		if ((outputs + v[i].shape.bn - 1) / v[i].shape.bn <= ig_gpu_cores(f) &&
		    ig_product_threadgroup_bytes(&v[i], p->element, 1) <= f->max_threadgroup_bytes)
			return v[i];
	return few_64;
}

/* The number of tiles of `width` columns. */
int64_t ig_product_tiles_across(const struct ig_product *p, int64_t width)
{
	int64_t across = 0;
	for (uint32_t i = 0; i < (p->pair ? 1 : p->n); i++)
		across += (p->weight[i]->n_rows + width - 1) / width;
	return across;
}

uint64_t ig_product_dots_bytes(const struct ig_product *p, uint32_t rows, uint32_t shares)
{
	return ((DOTS_COLUMNS + rows) * ((uint64_t)p->k + 4) +
		(uint64_t)shares * rows * DOTS_COLUMNS) *
	       4;
}

uint32_t ig_product_dots_rows(const struct ig_product *p, uint32_t shares)
{
	uint32_t rows = DOTS_ROWS;

	while (rows &&
	       ig_product_dots_bytes(p, rows, shares) > p->launch->facts->max_threadgroup_bytes)
		rows--;
	return rows;
}

/* Kernels for NVIDIA in float32: narrow ones as long as all their threadgroups run concurrently.  Of weights in
 * float32 few rows are dot products, if they have room. */
static struct ig_product_variants nv_float(const struct ig_product *p, uint32_t shares)
{
	struct ig_product_variants r = nv_f32_narrow;

	if (p->pair || ig_product_tiles_across(p, 8) > ig_gpu_cores(p->launch->facts))
		return nv_f32;
	if (p->dtype != IG_F32 || ig_product_is_odd(p->dtype, p->k) || p->n_heads)
		return r;
	if (ig_product_dots_rows(p, shares))
		r.v[0] = (struct ig_product_variant){ "dots", { SHAPE_NV_DOTS }, 1, FEW, DOTS };
	return r;
}

/* The kernel for few rows with a copy engine: the narrowest whose threadgroups all run
 * concurrently, two or one per multiprocessor.  It is also used for more rows as long as they
 * do. */
static struct ig_product_variant nv_rush(const struct ig_product *p, int64_t outputs)
{
	static const struct ig_product_variant
		rush_24 = { "rush_24", { SHAPE_NV_RUSH_24 }, 1, FEW, RUSH },
		rush_96 = { "rush_96", { SHAPE_NV_RUSH_96 }, 1, FEW, RUSH },
		rush_64 = { "rush_64", { SHAPE_NV_RUSH_64 }, 1, FEW, RUSH },
		rush_pair = { "rush_48", { SHAPE_NV_RUSH_48_PAIR }, 1, FEW, RUSH };
	const int64_t cores = ig_gpu_cores(p->launch->facts);

	if (outputs > 96 * cores)
		return rush_64;
	if (outputs > 48 * cores)
		return rush_96;
	struct ig_product_variant v = p->pair ? rush_pair : rush_24;
	int64_t down = (p->pair ? 1 : 2) * cores / ig_product_tiles_across(p, 24);

	if (down > 1)
		v.max_rows = down < NV_NARROW_ROWS / 16 ? (uint32_t)down * 16 : NV_NARROW_ROWS;
	return v;
}

/* The columns that a stream's threadgroup computes one after the other, for `down` tiles of rows;
 * proportional to the time. */
static int64_t stream_columns(const struct ig_product *p, int64_t bn, int64_t down)
{
	const int64_t clusters = ig_gpu_cores(p->launch->facts) / PRODUCT_STREAM_CLUSTER;
	const int64_t across = ig_product_tiles_across(p, bn);
	return (down / 2 * across + down % 2 * (across + 1) / 2 + clusters - 1) / clusters * bn;
}

/* Whether tiles of 160 columns occupy the GPU so much better that they take 1/8 less time; for
 * very many rows, on average. */
static bool stream_wider(const struct ig_product *p, int64_t down)
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
static void add_streams(const struct ig_product *p, uint32_t done, struct ig_product_variants *r)
{
	static const struct ig_product_variant
		wide = { "stream_160", { SHAPE_NV_STREAM_160 }, 0, 0, STREAM },
		narrow = { "stream_128", { SHAPE_NV_STREAM_128 }, 0, 0, STREAM };

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
static struct ig_product_variants nv_large(const struct ig_product *p, int64_t outputs)
{
	const int64_t cores = ig_gpu_cores(p->launch->facts);
	struct ig_product_variants r = { .v = { nv_rush(p, outputs) }, .n = 1 };
	uint32_t done = r.v[0].max_rows;
	int64_t down =
		p->pair || outputs > 48 * cores ? 0 : 2 * cores / ig_product_tiles_across(p, 64);

	if (down > 8)
		down = 8;
	if (down * 16 > done) {
		uint32_t most = (uint32_t)down * 16;
		r.v[r.n++] = (struct ig_product_variant){
			"rush_64", { SHAPE_NV_RUSH_64 }, done + 1, most, RUSH
		};
		done = most;
	}
	down = cores * 6 / 5 / ((outputs + 63) / 64);
	if (down < 1)
		down = 1;
	if (down * 64 > done) {
		uint32_t most = (uint32_t)down * 64;
		r.v[r.n++] = (struct ig_product_variant){
			"wide_64", { SHAPE_NV_WIDE_64 }, done + 1, most, TILE
		};
		done = most;
	}
	add_streams(p, done, &r);
	return r;
}

/* Kernels for NVIDIA, elements of 2 bytes: one for few rows; for many rows the tile grows with
 * their number, as long as there are enough tiles for the GPU. */
static struct ig_product_variants nv_variants(const struct ig_product *p, int64_t outputs,
					      bool shared)
{
	const struct ig_gpu_facts *f = p->launch->facts;

	if (f->arch == 90 && is_large(p) && p->n_heads) /* a head is no tensor map */
		return (struct ig_product_variants){
			{ { "wide_64", { SHAPE_NV_WIDE_64 }, 1, UINT32_MAX, TILE } }, 1
		};
	if (f->arch == 90 && is_large(p)) /* only this capability has wgmma and such tensor maps */
		return nv_large(p, outputs);

	struct ig_product_variants r = { .v = { nv_few(p, outputs, shared) }, .n = 1 };
	uint32_t many = r.v[0].max_rows + 1;

	if (f->arch != 90 || ig_product_is_odd(p->dtype, p->k)) {
		r.v[r.n++] = (struct ig_product_variant){
			"tile", { SHAPE_NV_TILE }, many, UINT32_MAX, TILE
		};
		return r;
	}
	/* Small tiles as long as all run concurrently. */
	int64_t down = (int64_t)ig_gpu_cores(f) * 13 / 10 / ((outputs + 63) / 64);
	uint32_t most_64 = down > 1 ? (uint32_t)down * 64 : 64;

	r.v[r.n++] =
		(struct ig_product_variant){ "wide_64", { SHAPE_NV_WIDE_64 }, many, most_64, TILE };
	r.v[r.n++] = (struct ig_product_variant){
		"wide_128", { SHAPE_NV_WIDE_128 }, most_64 + 1, UINT32_MAX, TILE
	};
	return r;
}

/* ---- weights in tiles ---------------------------------------------------------------- */

bool ig_product_is_tiled(const struct ig_product *p)
{
	return p->weight[0]->layout == IG_GPU_TILES;
}

/* The simdgroups of a threadgroup that compute the same outputs. */
uint32_t ig_product_team(const struct ig_product *p, const struct ig_product_variant *v,
			 uint32_t shares)
{
	if (v->cluster)
		shares /= v->cluster;
	return p->pair ? 2 * shares : shares;
}

/* Threadgroup memory of the kernel for few rows: sums (on NVIDIA twice), and the rows of x. */
uint64_t ig_product_tiles_bytes(const struct ig_product *p, const struct ig_product_variant *v,
				uint32_t teams, uint32_t shares)
{
	const uint64_t tile = ig_gpu_tile_k(p->dtype), k = (uint64_t)p->k;
	uint64_t sums = (uint64_t)teams * ig_product_team(p, v, shares) * 64 * v->shape.bm;
	uint64_t tiles = (k + tile - 1) / tile;

	if (p->launch->facts->kind != IG_GPU_CUDA)
		return sums;
	if (v->cluster) { /* each threadgroup has some shares, and adds all of some teams */
		tiles = (tiles + shares - 1) / shares * (shares / v->cluster);
		sums = ((uint64_t)teams + v->cluster - 1) / v->cluster * shares *
		       (p->pair ? 2 : 1) * 64 * v->shape.bm;
	}
	return TILES_BARRIERS + v->max_rows * (tiles * tile + 8) * 2 + 2 * sums;
}

/* Stages of x, their barriers, and of each eight rows all shares in the threadgroup that adds them. */
uint64_t ig_product_wide_bytes(uint32_t rows, uint32_t shares)
{
	return WIDE_STAGES * ((uint64_t)rows * 256 + 16) +
	       (uint64_t)((rows / 8 + shares - 1) / shares) * shares * 8 * 512;
}

/* What the kernel for few rows takes with threadgroups of `width` teams, estimated, in microseconds but for a
 * constant: the turns of its teams, times what a share takes a scheduler of a multiprocessor, of which there
 * are four (one with several simdgroups computes while others wait); then the rows of x that every
 * threadgroup fetches first, and the barriers of a cluster.  Measured on an H200 with Q4_K and Q8_0, all
 * cuts of twelve shapes for 1, 8 and 16 rows (docs/gpu.md). */
static double tiles_time(const struct ig_product *p, const struct ig_product_variant *v,
			 uint32_t shares, uint32_t width, uint32_t rows)
{
	static const double of_tile[] = { 0.0, 1.6, 2 * 1.19, 3 * 1.04, 4.0 };
	const uint32_t cluster = v->cluster ? v->cluster : 1, tile = ig_gpu_tile_k(p->dtype);
	const int64_t at_once = (int64_t)width * ig_gpu_clusters(p->launch->facts, cluster);
	const int64_t turns = (ig_product_tiles_across(p, 16) + at_once - 1) / at_once;
	const uint32_t simdgroups = (width * ig_product_team(p, v, shares) + 3) / 4;
	const double tiles = (double)p->k / tile / shares;
	const double x_bytes = (double)p->k / cluster * 2 * rows;

	return (double)turns * of_tile[simdgroups < 4 ? simdgroups : 4] * tiles *
		       (tile == 256 ? 0.36 : 0.26) +
	       x_bytes / 72e3 + (cluster > 1 ? 0.8 : 0.0);
}

/* The number of teams of a threadgroup with the least time; the most, if several have that. */
uint32_t ig_product_tiles_width(const struct ig_product *p, const struct ig_product_variant *v,
				uint32_t shares)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	uint32_t most = TILES_THREADS / 32 / ig_product_team(p, v, shares), best = 1;

	if (f->kind != IG_GPU_CUDA)
		return 1;
	while (most > 1 && ig_product_tiles_bytes(p, v, most, shares) > f->max_threadgroup_bytes)
		most--;
	for (uint32_t width = 2; width <= most; width++)
		if (tiles_time(p, v, shares, width, 1) <= tiles_time(p, v, shares, best, 1))
			best = width;
	return best;
}

/* The kernel for up to `rows` rows, 8 or 16, from done + 1 on: the one with the least time, of one row or of
 * sixteen.  The threadgroups of a cluster have some of the shares each, and that part of x.  false: none
 * fits. */
static bool tiles_few(const struct ig_product *p, uint32_t shares, uint32_t rows, uint32_t done,
		      struct ig_product_variant *best)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const uint32_t largest = f->kind == IG_GPU_CUDA ? TILES_MAX_SHARES : 1;
	const char *const whole = rows == 8 ? "8" : "16", *const divided = rows == 8 ? "8_cluster" :
										       "16_cluster";
	double least = 0.0;

	best->max_rows = 0;
	for (uint32_t cluster = 1; cluster <= largest && shares % cluster == 0; cluster *= 2) {
		struct ig_product_variant v = { .suffix = cluster > 1 ? divided : whole,
						.shape.bm = rows,
						.min_rows = done + 1,
						.max_rows = rows,
						.kind = TILES,
						.cluster = cluster > 1 ? cluster : 0 };
		while (v.max_rows > done &&
		       ig_product_tiles_bytes(p, &v, 1, shares) > f->max_threadgroup_bytes)
			v.max_rows--;
		if (v.max_rows <= done)
			continue;
		const uint32_t width = ig_product_tiles_width(p, &v, shares);
		const double time = tiles_time(p, &v, shares, width, rows == 8 ? 1 : rows);
		if (best->max_rows && time >= least)
			continue;
		least = time;
		*best = v;
	}
	return best->max_rows > 0;
}

/* The kernels of a warpgroup for rows done + 1 to last: of 32, 64 or 128 rows, which go over the weights once for each 128. */
static void add_wide(uint32_t shares, uint32_t done, uint32_t last, struct ig_product_variants *r)
{
	static const char *const names[] = { "wide_32", "wide_64", "wide_128" };

	for (uint32_t i = 0, rows = 32; rows <= 128; i++, rows *= 2) {
		if (rows <= done)
			continue;
		r->v[r->n] = (struct ig_product_variant){ .suffix = names[i],
							  .shape.bm = rows,
							  .min_rows = done + 1,
							  .max_rows = rows == 128 ? last : rows,
							  .kind = WIDE,
							  .cluster = shares > 1 ? shares : 0 };
		done = r->v[r->n++].max_rows;
	}
}

/* The kernels of weights in tiles.  k is split into tiles: few outputs need several shares of them
 * to occupy a GPU; a long k in one chain of matrix instructions would take longer than its bytes. */
static uint32_t choose_tiles(const struct ig_product *p, int64_t outputs,
			     struct ig_product_variants *r)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const bool is_nv = f->kind == IG_GPU_CUDA;
	const int64_t k = p->k, tile = ig_gpu_tile_k(p->dtype);
	const int64_t tiles = (k + tile - 1) / tile;
	uint32_t shares = outputs <= 4096 || k > 8192 ? TILES_MAX_SHARES :
			  outputs <= 8192	      ? 4 :
			  outputs <= 16384	      ? 2 :
							1;
	uint32_t done = 0;

	if (shares > tiles)
		shares = (uint32_t)tiles;
	r->n = 0;
	const uint32_t few = is_nv && (uint64_t)outputs * (uint64_t)k <= NV_WIDE_WEIGHTS ? 8 : FEW;
	for (uint32_t rows = 8; rows <= few; rows *= 2)
		while (done < rows && tiles_few(p, shares, rows, done, &r->v[r->n]))
			done = r->v[r->n++].max_rows;
	if (!is_nv) {
		r->v[r->n++] = (struct ig_product_variant){
			"many", { SHAPE_METAL_TILES }, done + 1, UINT32_MAX, TILE
		};
		return shares;
	}
	const uint32_t unpacks = ig_product_unpacks_from(p);
	add_wide(shares, done, unpacks ? unpacks - 1 : UINT32_MAX, r);
	return shares;
}

uint32_t ig_product_unpacks_from(const struct ig_product *p)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	uint64_t n_values = 0;

	if (!ig_product_is_tiled(p) || f->kind != IG_GPU_CUDA || f->arch != 90 || p->n_heads)
		return 0;
	for (uint32_t i = 0; i < p->n; i++)
		n_values += (uint64_t)p->weight[i]->n_rows * (uint64_t)p->k;
	return n_values <= NV_WIDE_WEIGHTS ? NV_UNPACKED_ROWS : NV_UNPACKED_ROWS_LARGE;
}

void ig_product_streams(const struct ig_product *p, uint32_t min_rows, uint32_t shares,
			struct ig_product_variants *r)
{
	if (shares == 1) {
		add_streams(p, min_rows - 1, r);
		return;
	}
	r->v[r->n++] = (struct ig_product_variant){
		"shares_128", { SHAPE_NV_STREAM_128 }, min_rows, UINT32_MAX, STREAM
	};
}

uint32_t ig_product_norm_rows(const struct ig_product *p)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	struct ig_product_variants r;

	if (!ig_product_is_tiled(p) || f->kind != IG_GPU_CUDA || f->arch != 90 || p->n_heads)
		return 0;
	ig_product_choose(p, &r);
	return r.n && r.v[0].kind == TILES && r.v[0].shape.bm == 8 && !r.v[0].cluster ?
		       r.v[0].max_rows :
		       0;
}

/* The kernels, and the number of shares of k, each of at least four steps. */
uint32_t ig_product_choose(const struct ig_product *p, struct ig_product_variants *variants)
{
	const struct ig_gpu_launch *c = p->launch;
	int64_t steps = (p->k + SHARE_STEP - 1) / SHARE_STEP, outputs = 0;
	bool f32 = p->element == IG_F32, is_nv = c->facts->kind == IG_GPU_CUDA;
	uint32_t shares = steps < 8		 ? 1 :
			  steps / 4 < MAX_SHARES ? (uint32_t)(steps / 4) :
						   MAX_SHARES;

	for (uint32_t i = 0; i < p->n; i++)
		outputs += p->weight[i]->n_rows;
	if (ig_product_is_tiled(p))
		return choose_tiles(p, outputs, variants);
	if (is_nv && (outputs > NV_SHARED_OUTPUTS || (!f32 && is_large(p))))
		shares = 1;
	if (f32)
		*variants = is_nv ? nv_float(p, shares) : metal_f32;
	else
		*variants = is_nv		   ? nv_variants(p, outputs, shares > 1) :
			    c->facts->tensor_units ? metal_tensor :
						     metal;
	for (uint32_t i = 0; i < variants->n; i++)
		while (shares > 1 && variants->v[i].kind != DOTS &&
		       ig_product_threadgroup_bytes(&variants->v[i], p->element, shares) >
			       c->facts->max_threadgroup_bytes)
			shares--;
	return shares;
}
