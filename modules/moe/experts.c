/*
 * experts.c: the ops moe_glu and moe_combine: products of a step's rows with the matrices of their
 * experts.  Each kernel for tiles of the core ops glu and linear is the inner kernel of two here:
 * one for packed experts, one for experts in the mapped file, whose tiles are packed in scratch
 * memory.  Both give the same bits.  The code here gathers the rows of one expert, GROUP at a time,
 * and scatters the results.  A row's sums do not depend on other rows; the results of its experts
 * are added in ascending order of experts.  What both ops accept and mean: experts_reference.c.
 */
#include "experts_private.h"

#include <errno.h>
#include <ingot/build_id.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 64 /* rows gathered at a time; they fit into the L2 cache */
#define BLOCK 16 /* tiles whose results for a group are in scratch memory: 64 KiB */
#define MAX_KERNELS 512

const struct ig_kernel_host *ig_moe_host;

/* ---- both kernels ---------------------------------------------------------------------- */

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t round64(int64_t n) { return (n + 63) & ~(int64_t)63; }

/* A worker's scratch memory. */
struct workspace {
	uint8_t *rows;	   /* [GROUP] gathered rows in the input's layout */
	int64_t row_bytes; /* of each */
	float *results;	   /* [GROUP, BLOCK * TILE] */
	uint8_t *tiles;	   /* one of each weight, if experts are mapped */
};

/* Lay out the scratch memory at `base`; n_products: matrices that a product is made of.  Returns its
 * size in bytes. */
static uint64_t lay_out(const struct ig_op_launch *launch, int64_t row_bytes, uint32_t n_products,
			void *base, struct workspace *ws)
{
	const struct ig_tensor *w = &launch->weight[0];
	const uint64_t rows = (uint64_t)(GROUP * row_bytes);
	const uint64_t results = GROUP * BLOCK * TILE * sizeof(float);
	const uint64_t tiles = w->layout == IG_LAYOUT_ROWS ?
				       n_products * ig_moe_host->tile_bytes(w->dtype, w->n_cols) :
				       0;

	if (base)
		*ws = (struct workspace){ base, row_bytes, (float *)((char *)base + rows),
					  (uint8_t *)base + rows + results };
	return rows + results + tiles;
}

/* The number of tiles per call of the inner kernel. */
static int64_t block_of(const struct ig_op_launch *launch)
{
	return launch->weight[0].layout == IG_LAYOUT_ROWS ? 1 : BLOCK;
}

/* Matrix i of the inner kernel: n tiles of w; n <= block_of(call), or any n if they are packed. */
static struct ig_tensor tiles_of(const struct ig_tensor *w, uint32_t i, int64_t tile, int64_t n,
				 const struct workspace *ws)
{
	const uint64_t bytes = ig_moe_host->tile_bytes(w->dtype, w->n_cols);
	struct ig_tensor t = { NULL, n * TILE, w->n_cols, 0, w->dtype, IG_LAYOUT_TILE16 };

	if (w->layout == IG_LAYOUT_TILE16) {
		t.data = (uint8_t *)w->data + (uint64_t)tile * bytes;
	} else {
		t.data = ws->tiles + i * bytes;
		ig_moe_host->tile_pack(w->dtype,
				       (const char *)w->data + tile * TILE * w->row_stride,
				       w->n_cols, t.data);
	}
	return t;
}

/* The assignments of one expert, a run; false: there is no such run. */
static int run_of(const struct route *r, uint32_t run, uint32_t *begin, uint32_t *end)
{
	if (run >= r->n)
		return 0;
	*begin = *route_word(r, IG_ROUTE_RUNS, run);
	*end = run + 1 < r->n ? *route_word(r, IG_ROUTE_RUNS, run + 1) : r->n;
	return *begin < r->n;
}

/* The parameters of an inner kernel of moe_glu. */
union glu_or_linear {
	struct ig_glu_params glu;
	struct ig_linear_params linear;
};

/* The inner kernel and what it multiplies with: of one or two matrices, tile `first` is the
 * expert's, and so is bias [its rows], if there are any. */
struct inner {
	const struct ig_cpu_kernel *kernel;
	const void *params;
	uint32_t n_matrices, has_bias;
	struct ig_tensor matrix[2], bias[2];
	int64_t first[2];
};

/* The inner kernel on rows x [n, k] and some of the expert's tiles: out [n, tiles * TILE]. */
static void run_inner(const struct ig_op_launch *launch, const struct inner *inner, const void *x,
		      int64_t x_stride, int64_t k, int64_t n, int64_t tile, int64_t n_tiles,
		      float *out, int64_t out_stride, const struct workspace *ws)
{
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = 1,
				  .n_weights = inner->n_matrices * (1 + inner->has_bias),
				  .n_out = 1,
				  .params = inner->params,
				  .step = launch->step,
				  .kernel = inner->kernel };

	c.in[0] = (struct ig_tensor){ (void *)x, n, k, x_stride, IG_F32, launch->in[0].layout };
	for (uint32_t i = 0; i < inner->n_matrices; i++) {
		struct ig_tensor *bias = &c.weight[inner->n_matrices + i];

		c.weight[i] = tiles_of(&inner->matrix[i], i, inner->first[i] + tile, n_tiles, ws);
		if (inner->has_bias) {
			*bias = inner->bias[i];
			bias->data = (float *)bias->data + tile * TILE;
			bias->n_cols = n_tiles * TILE;
		}
	}
	c.out[0] = (struct ig_tensor){ out, n, n_tiles * TILE, out_stride, IG_F32, IG_LAYOUT_ROWS };
	c.kernel->run(&c, 0, n_tiles, NULL);
}

/* ---- moe_glu; a unit is a tile of one active expert ------------------------------------ */

static int64_t tiles_of_expert(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	return launch->out[0].n_cols / p->top_k / TILE;
}

/* The number of runs; the unused entries of RUNS are the last ones. */
static int64_t count_runs(const struct route *r, uint32_t n_experts)
{
	uint32_t low = 0, high = r->n < n_experts ? r->n : n_experts;

	while (low < high) {
		const uint32_t middle = (low + high) / 2;
		if (*route_word(r, IG_ROUTE_RUNS, middle) < r->n)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int64_t glu_units(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct route r = route_of(&launch->in[1], p->top_k);
	return count_runs(&r, p->n_experts) * tiles_of_expert(launch);
}

static uint64_t glu_scratch(const struct ig_op_launch *launch)
{
	return lay_out(launch, launch->in[0].row_stride, 2, NULL, NULL);
}

/* The kernels' inner kernels for IG_MOE_UP, which are linear's: by index in glu_kernels. */
static const struct ig_cpu_kernel *up_inner[MAX_KERNELS];
static struct ig_cpu_kernel glu_kernels[MAX_KERNELS], combine_kernels[MAX_KERNELS];

/* params is memory for the inner kernel's. */
static struct inner glu_inner(const struct ig_op_launch *launch, uint32_t expert,
			      union glu_or_linear *params)
{
	const struct ig_moe_glu_params *p = launch->params;
	const int64_t n_tiles = tiles_of_expert(launch);
	const uint32_t n = ig_moe_glu_matrices(p);
	struct inner inner = { .kernel = launch->kernel->inner,
			       .params = params,
			       .n_matrices = p->form == IG_MOE_UP ? 1 : 2,
			       .has_bias = p->bias };

	params->glu = (struct ig_glu_params){ sizeof params->glu, p->act, p->limit, p->bias };
	if (p->form == IG_MOE_UP) {
		inner.kernel = up_inner[launch->kernel - glu_kernels];
		params->linear =
			(struct ig_linear_params){ sizeof params->linear, 1, p->act, p->bias };
	}
	for (uint32_t i = 0; i < inner.n_matrices; i++) {
		const int64_t at = p->form == IG_MOE_FUSED ? 2 * (int64_t)expert + i : expert;

		inner.matrix[i] = launch->weight[i < n ? i : 0];
		inner.first[i] = at * n_tiles;
		if (p->bias)
			inner.bias[i] = ig_moe_bias(launch, n + i, expert);
	}
	return inner;
}

/* Tiles first … last - 1 of an expert for n rows of its run, from assignment i of order on. */
static void glu_group(const struct ig_op_launch *launch, const struct route *r, uint32_t i,
		      int64_t n, int64_t first, int64_t last, const struct workspace *ws)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct ig_tensor *in = &launch->in[0], *out = &launch->out[0];
	const int64_t f = out->n_cols / p->top_k;
	const uint32_t a0 = *route_word(r, IG_ROUTE_ORDER, i);
	union glu_or_linear params;
	const struct inner inner = glu_inner(launch, *route_word(r, IG_ROUTE_IDS, a0), &params);
	int64_t block = block_of(launch);
	const void *x = ws->rows;

	if (n == 1) { /* neither gathered nor scattered */
		x = (const char *)in->data + a0 / p->top_k * in->row_stride;
		block = block > 1 ? last - first : 1;
	}
	for (int64_t j = 0; n > 1 && j < n; j++)
		memcpy(ws->rows + j * ws->row_bytes,
		       (const char *)in->data + *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j) /
							p->top_k * in->row_stride,
		       (size_t)in->row_stride);
	for (int64_t t = first; t < last; t += block) {
		const int64_t n_cols = at_most(block, last - t) * TILE;
		float *to = n == 1 ? ig_moe_row(out, a0 / p->top_k) + a0 % p->top_k * f + t * TILE :
				     ws->results;
		run_inner(launch, &inner, x, ws->row_bytes, in->n_cols, n, t, n_cols / TILE, to,
			  n_cols * (int64_t)sizeof *to, ws);
		for (int64_t j = 0; n > 1 && j < n; j++) {
			const uint32_t a = *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j);
			memcpy(ig_moe_row(out, a / p->top_k) + a % p->top_k * f + t * TILE,
			       to + j * n_cols, (size_t)n_cols * sizeof *to);
		}
	}
}

static void run_glu(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t n_tiles = tiles_of_expert(launch);
	struct workspace ws;
	uint32_t begin, end;

	lay_out(launch, launch->in[0].row_stride, 2, scratch, &ws);
	while (first < last && run_of(&r, (uint32_t)(first / n_tiles), &begin, &end)) {
		const int64_t t = first % n_tiles, t_end = at_most(n_tiles, t + last - first);
		for (uint32_t i = begin; i < end; i += GROUP)
			glu_group(launch, &r, i, at_most(GROUP, end - i), t, t_end, &ws);
		first += t_end - t;
	}
}

/* ---- moe_combine; a unit is some tiles of the result ----------------------------------- */

/* Rows are gathered again for every range of units: with many rows units are larger; with few
 * rows units are small, so that all threads get some. */
static int64_t tiles_of_unit(const struct ig_op_launch *launch)
{
	const struct ig_moe_combine_params *p = launch->params;
	return launch->out[0].n_rows * p->top_k <= GROUP ? 1 : 4;
}

static int64_t combine_units(const struct ig_op_launch *launch)
{
	const int64_t n = tiles_of_unit(launch);
	return (launch->out[0].n_cols / TILE + n - 1) / n;
}

/* Bytes of one expert's part of a row, in the input's layout. */
static int64_t slot_bytes(const struct ig_op_launch *launch)
{
	const int64_t f = launch->weight[0].n_cols;
	switch (launch->in[0].layout) {
	case IG_LAYOUT_Q8: return round64(f + f / 32 * 24);
	case IG_LAYOUT_BF16: return round64(f * 2);
	default: return round64(f * 4);
	}
}

static uint64_t combine_scratch(const struct ig_op_launch *launch)
{
	return lay_out(launch, slot_bytes(launch), 1, NULL, NULL);
}

/* Copy one expert's part of a row of h: a part of each array of the layout. */
static void gather_slot(const struct ig_op_launch *launch, uint32_t row, uint32_t slot, uint8_t *to)
{
	const struct ig_tensor *in = &launch->in[0];
	const size_t f = (size_t)launch->weight[0].n_cols, n = (size_t)in->n_cols;
	const uint8_t *from = (const uint8_t *)in->data + row * in->row_stride;

	if (in->layout != IG_LAYOUT_Q8) {
		const size_t bytes = f * (in->layout == IG_LAYOUT_BF16 ? 2 : 4);
		memcpy(to, from + slot * bytes, bytes);
		return;
	}
	memcpy(to, from + slot * f, f);
	for (size_t i = 0; i < 6; i++) /* d, s, n, h, x, t: a word each for 32 values */
		memcpy(to + f + i * (f / 8), from + n + i * (n / 8) + slot * (f / 8), f / 8);
}

/* Add n_cols columns, from tile t on, of one expert's result to its row. */
static void add_slot(const struct ig_op_launch *launch, const struct route *r, uint32_t a,
		     int64_t t, int64_t n_cols, const float *y)
{
	const struct ig_moe_combine_params *p = launch->params;
	const uint32_t row = a / r->top_k, slot = a % r->top_k;
	const float w = *route_weight(r, a);
	float *to = ig_moe_row(&launch->out[0], row) + t * TILE;

	if (slot == 0)
		for (int64_t c = 0; c < n_cols; c++)
			to[c] = w * y[c];
	else
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += w * y[c];
	if (slot == r->top_k - 1 && launch->in[3].data) {
		const float w_s = *route_shared(r, row);
		const float *shared = ig_moe_row(&launch->in[3], row) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += w_s * shared[c];
	}
	if (slot == r->top_k - 1 && p->bias == IG_MOE_BIAS_SUM) {
		const float *bias = ig_moe_row(&launch->weight[1], 0) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += bias[c];
	}
	if (slot == r->top_k - 1 && launch->in[2].data) {
		const float *residual = ig_moe_row(&launch->in[2], row) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += residual[c];
	}
}

static void combine_group(const struct ig_op_launch *launch, const struct route *r, uint32_t i,
			  int64_t n, int64_t first, int64_t last, const struct workspace *ws)
{
	const struct ig_moe_combine_params *p = launch->params;
	const uint32_t each = p->bias == IG_MOE_BIAS_EACH;
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, each };
	const uint32_t expert = *route_word(r, IG_ROUTE_IDS, *route_word(r, IG_ROUTE_ORDER, i));
	const int64_t block = block_of(launch);
	struct inner inner = { .kernel = launch->kernel->inner,
			       .params = &linear,
			       .n_matrices = 1,
			       .has_bias = each,
			       .matrix = { launch->weight[0] },
			       .first = { expert * (launch->out[0].n_cols / TILE) } };

	if (each)
		inner.bias[0] = ig_moe_bias(launch, 1, expert);

	for (int64_t j = 0; j < n; j++) {
		const uint32_t a = *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j);
		gather_slot(launch, a / r->top_k, a % r->top_k, ws->rows + j * ws->row_bytes);
	}
	for (int64_t t = first; t < last; t += block) {
		const int64_t n_cols = at_most(block, last - t) * TILE;
		run_inner(launch, &inner, ws->rows, ws->row_bytes, launch->weight[0].n_cols, n, t,
			  n_cols / TILE, ws->results, n_cols * (int64_t)sizeof *ws->results, ws);
		for (int64_t j = 0; j < n; j++)
			add_slot(launch, r, *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j), t,
				 n_cols, ws->results + j * n_cols);
	}
}

static void run_combine(const struct ig_op_launch *launch, int64_t first, int64_t last,
			void *scratch)
{
	const struct ig_moe_combine_params *p = launch->params;
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t n = tiles_of_unit(launch), n_tiles = launch->out[0].n_cols / TILE;
	struct workspace ws;
	uint32_t begin, end;

	lay_out(launch, slot_bytes(launch), 1, scratch, &ws);
	for (uint32_t run = 0; first < last && run_of(&r, run, &begin, &end); run++)
		for (uint32_t i = begin; i < end; i += GROUP)
			combine_group(launch, &r, i, at_most(GROUP, end - i), first * n,
				      at_most(last * n, n_tiles), &ws);
}

/* ---- the kernels' tables --------------------------------------------------------------- */

static uint32_t one_matrix(const void *params) { return 1; }

struct ig_op ig_op_moe_glu = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_moe_glu_params),
	.name = "moe_glu",
	.version = 1,
	.check = ig_moe_check_glu,
	.reference = ig_moe_reference_glu,
	.cpu_kernels = glu_kernels,
	.flags = IG_OP_EXPERTS,
	.split = IG_SPLIT_EXPERTS,
	.gpu = &ig_gpu_moe_glu,
	.n_matrices = ig_moe_glu_matrices,
};

struct ig_op ig_op_moe_combine = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_moe_combine_params),
	.name = "moe_combine",
	.version = 1,
	.check = ig_moe_check_combine,
	.reference = ig_moe_reference_combine,
	.cpu_kernels = combine_kernels,
	.flags = IG_OP_EXPERTS,
	.split = IG_SPLIT_EXPERTS_SUM,
	.gpu = &ig_gpu_moe_combine,
	.n_matrices = one_matrix,
};

/* Two kernels for each kernel of the inner op that reads tiles: copies of `like` with the inner
 * kernel's properties. */
static int make_kernels(const char *inner, const struct ig_cpu_kernel *like, struct ig_op *op,
			struct ig_cpu_kernel *kernels)
{
	const struct ig_op *of = ig_moe_host->core_op(inner);
	uint32_t n = 0;

	for (uint32_t i = 0; of && i < of->n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &of->cpu_kernels[i];
		if (k->weight_layout != IG_LAYOUT_TILE16 || k->scratch_bytes)
			continue;
		for (int mapped = 0; mapped < 2; mapped++) {
			if (n == MAX_KERNELS)
				return -ENOSPC;
			kernels[n] = *like;
			kernels[n].isa = k->isa;
			kernels[n].weight_dtype = k->weight_dtype;
			kernels[n].weight_layout = mapped ? IG_LAYOUT_ROWS : IG_LAYOUT_TILE16;
			kernels[n].in_layout = k->in_layout;
			kernels[n++].inner = k;
		}
	}
	op->n_cpu_kernels = n;
	return n ? 0 : -ENOENT;
}

/* Find the kernel of linear for each kernel of moe_glu. */
static int find_up_inner(void)
{
	const struct ig_op *linear = ig_moe_host->core_op("linear");

	for (uint32_t i = 0; i < ig_op_moe_glu.n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *of = glu_kernels[i].inner;
		for (uint32_t j = 0; j < linear->n_cpu_kernels && !up_inner[i]; j++) {
			const struct ig_cpu_kernel *k = &linear->cpu_kernels[j];
			if (k->isa == of->isa && k->weight_dtype == of->weight_dtype &&
			    k->weight_layout == of->weight_layout && k->in_layout == of->in_layout)
				up_inner[i] = k;
		}
		if (!up_inner[i])
			return -ENOENT;
	}
	return 0;
}

int ig_moe_init(const struct ig_host *h)
{
	static const struct ig_cpu_kernel glu = {
		.struct_size = sizeof glu, .unit_kind = IG_UNITS_OTHER, .n_units = glu_units,
		.scratch_bytes = glu_scratch, .run = run_glu,
	}, combine = {
		.struct_size = sizeof combine, .unit_kind = IG_UNITS_OTHER,
		.n_units = combine_units, .scratch_bytes = combine_scratch, .run = run_combine,
	};
	int rc;

	ig_moe_host = h->kernels(IG_BUILD_ID);
	if (!ig_moe_host)
		return -ENOTSUP;
	if ((rc = make_kernels("glu", &glu, &ig_op_moe_glu, glu_kernels)) ||
	    (rc = make_kernels("linear", &combine, &ig_op_moe_combine, combine_kernels)))
		return rc;
	return find_up_inner();
}
