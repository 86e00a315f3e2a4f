/*
 * experts.c: the ops moe_glu and moe_combine: products of a step's rows with the matrices of their
 * experts.  Each kernel for tiles of the core ops glu and linear is the inner kernel of two here:
 * one for packed experts, one for experts in the mapped file, whose tiles are packed in scratch
 * memory.  Both give the same bits.  The code here gathers the rows of one expert, GROUP at a time,
 * and scatters the results.  A row's sums do not depend on other rows; the results of its experts
 * are added in ascending order of experts.
 */
#include "moe_private.h"

#include <errno.h>
#include <ingot/build_id.h>
#include <stdlib.h>
#include <string.h>

#define TILE 16
#define GROUP 64 /* rows gathered at a time; they fit into the L2 cache */
#define BLOCK 16 /* tiles whose results for a group are in scratch memory: 64 KiB */
#define MAX_KERNELS 512

static const struct ig_kernel_host *host; /* ig_moe_init */

/* ---- checks ---------------------------------------------------------------------------- */

/* Check the route and the experts' matrices.  *n: rows of one expert's matrix. */
static int check_experts(const struct ig_op_shape *s, const char *op, uint32_t n_experts,
			 uint32_t top_k, int64_t *n, struct ig_error *err)
{
	const struct ig_shape *route = &s->in[1], *w = &s->weight[0];

	if (n_experts < 1 || n_experts > IG_MOE_MAX_EXPERTS)
		return ig_fail(err, -EINVAL, "%s: %u experts, not in 1 … %d", op, n_experts,
			       IG_MOE_MAX_EXPERTS);
	if (top_k < 1 || top_k > n_experts || top_k > IG_MOE_MAX_TOP_K)
		return ig_fail(err, -EINVAL, "%s: top_k is %u, not in 1 … %u", op, top_k,
			       n_experts < IG_MOE_MAX_TOP_K ? n_experts : IG_MOE_MAX_TOP_K);
	if (route->dtype != IG_I32 || route->n_cols != 4 * (int64_t)top_k ||
	    route->row_class != s->in[0].row_class)
		return ig_fail(err, -EINVAL,
			       "%s: the route has %lld columns of type %u, expected "
			       "%u of moe_route",
			       op, (long long)route->n_cols, route->dtype, 4 * top_k);
	if (s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL, "%s: the input is of type %u, expected F32", op,
			       s->in[0].dtype);
	if (w->n_rows % n_experts || w->n_rows / n_experts % TILE || !w->n_rows)
		return ig_fail(err, -ENOTSUP,
			       "%s: %lld rows of weights for %u experts; each must "
			       "have a multiple of %d",
			       op, (long long)w->n_rows, n_experts, TILE);
	*n = w->n_rows / n_experts;
	return 0;
}

static int check_glu(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_glu_params *p = s->params;
	const struct ig_shape *g = &s->weight[0], *u = &s->weight[1];
	int64_t f;
	int rc;

	if (s->n_in != 2 || s->n_weights != 2 || s->n_out != 1 || p->act > IG_ACT_GELU)
		return ig_fail(err, -EINVAL,
			       "moe_glu: %u inputs, %u weights, %u outputs, "
			       "activation %u; takes two, two, one and a known one",
			       s->n_in, s->n_weights, s->n_out, p->act);
	if ((rc = check_experts(s, "moe_glu", p->n_experts, p->top_k, &f, err)))
		return rc;
	if (g->n_cols != s->in[0].n_cols || u->n_cols != g->n_cols || u->n_rows != g->n_rows)
		return ig_fail(err, -EINVAL,
			       "moe_glu: gate [%lld, %lld] and up [%lld, %lld] do not fit %lld",
			       (long long)g->n_rows, (long long)g->n_cols, (long long)u->n_rows,
			       (long long)u->n_cols, (long long)s->in[0].n_cols);
	if (g->dtype != u->dtype)
		return ig_fail(err, -ENOTSUP, "moe_glu: gate and up have different weight formats");
	s->out[0] = (struct ig_shape){ .n_cols = f * p->top_k,
				       .dtype = IG_F32,
				       .row_class = s->in[0].row_class };
	return 0;
}

static int check_combine(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_combine_params *p = s->params;
	const struct ig_shape *d = &s->weight[0];
	int64_t width;
	int rc;

	if (s->n_in < 2 || s->n_in > 3 || s->n_weights != 1 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "moe_combine: %u inputs, %u weights, %u outputs; takes "
			       "two or three, one and one",
			       s->n_in, s->n_weights, s->n_out);
	if ((rc = check_experts(s, "moe_combine", p->n_experts, p->top_k, &width, err)))
		return rc;
	if (d->n_cols % TILE || d->n_cols * p->top_k != s->in[0].n_cols)
		return ig_fail(err, d->n_cols % TILE ? -ENOTSUP : -EINVAL,
			       "moe_combine: down has rows of %lld values, a multiple of %d is "
			       "needed; the input has %u slots in %lld",
			       (long long)d->n_cols, TILE, p->top_k, (long long)s->in[0].n_cols);
	if (s->n_in > 2 && (s->in[2].n_cols != width || s->in[2].dtype != IG_F32 ||
			    s->in[2].row_class != s->in[0].row_class))
		return ig_fail(err, -EINVAL,
			       "moe_combine: the residual has %lld columns of type "
			       "%u, expected %lld of F32",
			       (long long)s->in[2].n_cols, s->in[2].dtype, (long long)width);
	s->out[0] = (struct ig_shape){ .n_cols = width,
				       .dtype = IG_F32,
				       .row_class = s->in[0].row_class };
	return 0;
}

/* ---- references ------------------------------------------------------------------------ */

static float *row_of(const struct ig_tensor *t, int64_t row)
{
	return (float *)((char *)t->data + row * t->row_stride);
}

/* Weight i's rows of one expert, in file layout. */
static struct ig_tensor expert_rows(const struct ig_op_launch *launch, uint32_t i, uint32_t expert,
				    int64_t n)
{
	struct ig_tensor w = launch->weight[i];
	w.data = (char *)w.data + expert * n * w.row_stride;
	w.n_rows = n;
	return w;
}

static struct ig_tensor one_row(float *data, int64_t n_cols)
{
	return (struct ig_tensor){ data,	  1, n_cols, n_cols * (int64_t)sizeof *data, IG_F32,
				   IG_LAYOUT_ROWS };
}

static void reference_glu(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct ig_glu_params glu = { sizeof glu, p->act };
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t f = launch->out[0].n_cols / p->top_k;

	for (uint32_t a = 0; a < r.n; a++) {
		const uint32_t expert = *route_word(&r, IG_ROUTE_IDS, a);
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .n_in = 1,
					  .n_weights = 2,
					  .n_out = 1,
					  .params = &glu };

		c.in[0] = one_row(row_of(&launch->in[0], a / p->top_k), launch->in[0].n_cols);
		c.weight[0] = expert_rows(launch, 0, expert, f);
		c.weight[1] = expert_rows(launch, 1, expert, f);
		c.out[0] = one_row(row_of(&launch->out[0], a / p->top_k) + a % p->top_k * f, f);
		host->core_op("glu")->reference(&c);
	}
}

static void reference_combine(const struct ig_op_launch *launch)
{
	const struct ig_moe_combine_params *p = launch->params;
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, 0 };
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t width = launch->out[0].n_cols, f = launch->weight[0].n_cols;
	float *y = malloc((size_t)width * sizeof *y);
	double *sum = malloc((size_t)width * sizeof *sum);

	if (!y || !sum)
		abort(); /* a reference runs in tests */
	for (int64_t row = 0; row < launch->out[0].n_rows; row++) {
		memset(sum, 0, (size_t)width * sizeof *sum);
		for (uint32_t j = 0; j < p->top_k; j++) {
			const uint32_t a = (uint32_t)row * p->top_k + j;
			struct ig_op_launch c = { .struct_size = sizeof c,
						  .n_in = 1,
						  .n_weights = 1,
						  .n_out = 1,
						  .params = &linear };

			c.in[0] = one_row(row_of(&launch->in[0], row) + j * f, f);
			c.weight[0] =
				expert_rows(launch, 0, *route_word(&r, IG_ROUTE_IDS, a), width);
			c.out[0] = one_row(y, width);
			host->core_op("linear")->reference(&c);
			for (int64_t i = 0; i < width; i++)
				sum[i] += (double)*route_weight(&r, a) * (double)y[i];
		}
		for (int64_t i = 0; i < width; i++)
			row_of(&launch->out[0], row)[i] =
				(float)(sum[i] + (launch->in[2].data ?
							  (double)row_of(&launch->in[2], row)[i] :
							  0));
	}
	free(y);
	free(sum);
}

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

/* Lay out the scratch memory at `base`; returns its size in bytes. */
static uint64_t lay_out(const struct ig_op_launch *launch, int64_t row_bytes, void *base,
			struct workspace *ws)
{
	const uint64_t rows = (uint64_t)(GROUP * row_bytes);
	const uint64_t results = GROUP * BLOCK * TILE * sizeof(float);
	uint64_t tiles = 0;

	for (uint32_t i = 0; i < launch->n_weights && launch->weight[i].layout == IG_LAYOUT_ROWS;
	     i++)
		tiles += host->tile_bytes(launch->weight[i].dtype, launch->weight[i].n_cols);
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

/* n tiles of weight i for the inner kernel; n <= block_of(call), or any n if they are packed. */
static struct ig_tensor tiles_of(const struct ig_op_launch *launch, uint32_t i, int64_t tile,
				 int64_t n, const struct workspace *ws)
{
	const struct ig_tensor *w = &launch->weight[i];
	const uint64_t bytes = host->tile_bytes(w->dtype, w->n_cols);
	struct ig_tensor t = { NULL, n * TILE, w->n_cols, 0, w->dtype, IG_LAYOUT_TILE16 };

	if (w->layout == IG_LAYOUT_TILE16) {
		t.data = (uint8_t *)w->data + (uint64_t)tile * bytes;
	} else {
		t.data = ws->tiles + i * bytes;
		host->tile_pack(w->dtype, (const char *)w->data + tile * TILE * w->row_stride,
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

/* The inner kernel on rows x [n, k] and some tiles: out [n, tiles * TILE]. */
static void run_inner(const struct ig_op_launch *launch, const void *params, const void *x,
		      int64_t x_stride, int64_t k, int64_t n, int64_t tile, int64_t n_tiles,
		      float *out, int64_t out_stride, const struct workspace *ws)
{
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = 1,
				  .n_weights = launch->n_weights,
				  .n_out = 1,
				  .params = params,
				  .step = launch->step,
				  .kernel = launch->kernel->inner };

	c.in[0] = (struct ig_tensor){ (void *)x, n, k, x_stride, IG_F32, launch->in[0].layout };
	for (uint32_t i = 0; i < c.n_weights; i++)
		c.weight[i] = tiles_of(launch, i, tile, n_tiles, ws);
	c.out[0] = (struct ig_tensor){ out, n, n_tiles * TILE, out_stride, IG_F32, IG_LAYOUT_ROWS };
	c.kernel->run(&c, 0, n_tiles, NULL);
}

/* ---- moe_glu; a unit is a tile of one active expert ------------------------------------ */

static int64_t tiles_of_expert(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	return launch->weight[0].n_rows / p->n_experts / TILE;
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
	return lay_out(launch, launch->in[0].row_stride, NULL, NULL);
}

/* Tiles first … last - 1 of an expert for n rows of its run, from assignment i of order on. */
static void glu_group(const struct ig_op_launch *launch, const struct route *r, uint32_t i,
		      int64_t n, int64_t first, int64_t last, const struct workspace *ws)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct ig_glu_params glu = { sizeof glu, p->act };
	const struct ig_tensor *in = &launch->in[0], *out = &launch->out[0];
	const int64_t f = out->n_cols / p->top_k, n_tiles = f / TILE;
	const uint32_t a0 = *route_word(r, IG_ROUTE_ORDER, i);
	const int64_t base = *route_word(r, IG_ROUTE_IDS, a0) * n_tiles;
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
		float *to = n == 1 ? row_of(out, a0 / p->top_k) + a0 % p->top_k * f + t * TILE :
				     ws->results;
		run_inner(launch, &glu, x, ws->row_bytes, in->n_cols, n, base + t, n_cols / TILE,
			  to, n_cols * (int64_t)sizeof *to, ws);
		for (int64_t j = 0; n > 1 && j < n; j++) {
			const uint32_t a = *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j);
			memcpy(row_of(out, a / p->top_k) + a % p->top_k * f + t * TILE,
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

	lay_out(launch, launch->in[0].row_stride, scratch, &ws);
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
	return lay_out(launch, slot_bytes(launch), NULL, NULL);
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
	const uint32_t row = a / r->top_k, slot = a % r->top_k;
	const float w = *route_weight(r, a);
	float *to = row_of(&launch->out[0], row) + t * TILE;

	if (slot == 0)
		for (int64_t c = 0; c < n_cols; c++)
			to[c] = w * y[c];
	else
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += w * y[c];
	if (slot == r->top_k - 1 && launch->in[2].data) {
		const float *residual = row_of(&launch->in[2], row) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += residual[c];
	}
}

static void combine_group(const struct ig_op_launch *launch, const struct route *r, uint32_t i,
			  int64_t n, int64_t first, int64_t last, const struct workspace *ws)
{
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, 0 };
	const uint32_t expert = *route_word(r, IG_ROUTE_IDS, *route_word(r, IG_ROUTE_ORDER, i));
	const int64_t base = expert * (launch->out[0].n_cols / TILE), block = block_of(launch);

	for (int64_t j = 0; j < n; j++) {
		const uint32_t a = *route_word(r, IG_ROUTE_ORDER, i + (uint32_t)j);
		gather_slot(launch, a / r->top_k, a % r->top_k, ws->rows + j * ws->row_bytes);
	}
	for (int64_t t = first; t < last; t += block) {
		const int64_t n_cols = at_most(block, last - t) * TILE;
		run_inner(launch, &linear, ws->rows, ws->row_bytes, launch->weight[0].n_cols, n,
			  base + t, n_cols / TILE, ws->results,
			  n_cols * (int64_t)sizeof *ws->results, ws);
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

	lay_out(launch, slot_bytes(launch), scratch, &ws);
	for (uint32_t run = 0; first < last && run_of(&r, run, &begin, &end); run++)
		for (uint32_t i = begin; i < end; i += GROUP)
			combine_group(launch, &r, i, at_most(GROUP, end - i), first * n,
				      at_most(last * n, n_tiles), &ws);
}

/* ---- the kernels' tables --------------------------------------------------------------- */

static struct ig_cpu_kernel glu_kernels[MAX_KERNELS], combine_kernels[MAX_KERNELS];

struct ig_op ig_op_moe_glu = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_moe_glu_params),
	.name = "moe_glu",
	.version = 1,
	.check = check_glu,
	.reference = reference_glu,
	.cpu_kernels = glu_kernels,
	.flags = IG_OP_EXPERTS,
	.gpu = &ig_gpu_moe_glu,
};

struct ig_op ig_op_moe_combine = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_moe_combine_params),
	.name = "moe_combine",
	.version = 1,
	.check = check_combine,
	.reference = reference_combine,
	.cpu_kernels = combine_kernels,
	.flags = IG_OP_EXPERTS,
	.gpu = &ig_gpu_moe_combine,
};

/* Two kernels for each kernel of the inner op that reads tiles: copies of `like` with the inner
 * kernel's properties. */
static int make_kernels(const char *inner, const struct ig_cpu_kernel *like, struct ig_op *op,
			struct ig_cpu_kernel *kernels)
{
	const struct ig_op *of = host->core_op(inner);
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

	host = h->kernels(IG_BUILD_ID);
	if (!host)
		return -ENOTSUP;
	rc = make_kernels("glu", &glu, &ig_op_moe_glu, glu_kernels);
	return rc ? rc : make_kernels("linear", &combine, &ig_op_moe_combine, combine_kernels);
}
