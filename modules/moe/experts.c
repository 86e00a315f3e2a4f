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
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE 16
#define GROUP 64 /* rows gathered at a time; they fit into the L2 cache */
#define BLOCK 16 /* tiles whose results for a group are in scratch memory: 64 KiB */
#define MAX_KERNELS 512

static const struct ig_kernel_host *host; /* ig_moe_init */

/* ---- checks ---------------------------------------------------------------------------- */

/* Biases from weight `first` on: [n_experts, n]. */
static int check_biases(const struct ig_op_shape *s, const char *op, uint32_t first,
			uint32_t n_experts, int64_t n, struct ig_error *err)
{
	for (uint32_t i = first; i < s->n_weights; i++)
		if (s->weight[i].n_rows != n_experts || s->weight[i].n_cols != n ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL, "%s: bias %u must be [%u, %lld] of F32", op,
				       i - first, n_experts, (long long)n);
	return 0;
}

/* Check the route and the experts' matrices.  shared: the words of the route for a shared expert.
 * *n: rows of one expert's matrix. */
static int check_experts(const struct ig_op_shape *s, const char *op, uint32_t n_experts,
			 uint32_t top_k, int64_t shared, int64_t *n, struct ig_error *err)
{
	const struct ig_shape *route = &s->in[1], *w = &s->weight[0];

	if (n_experts < 1 || n_experts > IG_MOE_MAX_EXPERTS)
		return ig_fail(err, -EINVAL, "%s: %u experts, not in 1 … %d", op, n_experts,
			       IG_MOE_MAX_EXPERTS);
	if (top_k < 1 || top_k > n_experts || top_k > IG_MOE_MAX_TOP_K)
		return ig_fail(err, -EINVAL, "%s: top_k is %u, not in 1 … %u", op, top_k,
			       n_experts < IG_MOE_MAX_TOP_K ? n_experts : IG_MOE_MAX_TOP_K);
	if (route->dtype != IG_I32 || route->n_cols - 4 * (int64_t)top_k != shared ||
	    route->row_class != s->in[0].row_class)
		return ig_fail(err, -EINVAL,
			       "%s: the route has %lld columns of type %u, expected "
			       "%lld of moe_route",
			       op, (long long)route->n_cols, route->dtype,
			       (long long)(4 * top_k + shared));
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

static uint32_t glu_matrices(const void *params)
{
	const struct ig_moe_glu_params *p = params;
	return p->form == IG_MOE_PAIR ? 2 : 1;
}

static int check_glu(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_glu_params *p = s->params;
	const struct ig_shape *g = &s->weight[0], *u = &s->weight[p->form == IG_MOE_PAIR];
	const uint32_t n_matrices = glu_matrices(p);
	int64_t f;
	int rc;

	if (p->form > IG_MOE_UP || p->bias > 1 || (p->bias && p->form == IG_MOE_FUSED))
		return ig_fail(err, -EINVAL, "moe_glu: form is %u, bias %u", p->form, p->bias);
	if (p->act > IG_ACT_CLAMPED ||
	    p->act == (p->form == IG_MOE_UP ? IG_ACT_CLAMPED : IG_ACT_RELU2) ||
	    (p->act == IG_ACT_CLAMPED && !(p->limit > 0 && isfinite(p->limit))))
		return ig_fail(err, -EINVAL, "moe_glu: activation %u with limit %g", p->act,
			       (double)p->limit);
	if (s->n_in != 2 || s->n_weights != n_matrices * (1 + p->bias) || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "moe_glu: %u inputs, %u weights, %u outputs; takes two, %u and one",
			       s->n_in, s->n_weights, s->n_out, n_matrices * (1 + p->bias));
	/* moe_combine checks whether there is the weight of a shared expert. */
	if ((rc = check_experts(s, "moe_glu", p->n_experts, p->top_k,
				s->in[1].n_cols == 4 * (int64_t)p->top_k + 1, &f, err)))
		return rc;
	if (g->n_cols != s->in[0].n_cols || u->n_cols != g->n_cols || u->n_rows != g->n_rows)
		return ig_fail(err, -EINVAL,
			       "moe_glu: gate [%lld, %lld] and up [%lld, %lld] do not fit %lld",
			       (long long)g->n_rows, (long long)g->n_cols, (long long)u->n_rows,
			       (long long)u->n_cols, (long long)s->in[0].n_cols);
	if (g->dtype != u->dtype)
		return ig_fail(err, -ENOTSUP, "moe_glu: gate and up have different weight formats");
	if (p->form == IG_MOE_FUSED && f % (2 * TILE))
		return ig_fail(
			err, -ENOTSUP,
			"moe_glu: %lld rows of gate and up for each expert; a multiple of %d "
			"is needed",
			(long long)f, 2 * TILE);
	f = p->form == IG_MOE_FUSED ? f / 2 : f;
	if ((rc = check_biases(s, "moe_glu", n_matrices, p->n_experts, f, err)))
		return rc;
	s->out[0] = (struct ig_shape){ .n_cols = f * p->top_k,
				       .dtype = IG_F32,
				       .row_class = s->in[0].row_class };
	return 0;
}

static uint32_t one_matrix(const void *params) { return 1; }

static int check_combine(struct ig_op_shape *s, struct ig_error *err)
{
	static const char *const names[] = { "residual", "shared expert's result" };
	const struct ig_moe_combine_params *p = s->params;
	const struct ig_shape *d = &s->weight[0];
	int64_t width;
	int rc;

	if (p->shared > 1)
		return ig_fail(err, -EINVAL, "moe_combine: shared is %u", p->shared);
	if (s->n_in < (p->shared ? 4 : 2) || s->n_in > 3 + p->shared || p->bias > 1 ||
	    s->n_weights != 1 + p->bias || s->n_out != 1)
		return ig_fail(
			err, -EINVAL,
			"moe_combine: %u inputs, %u weights, %u outputs; takes "
			"two or three, with a shared expert four, one, with a bias two, and one",
			s->n_in, s->n_weights, s->n_out);
	if ((rc = check_experts(s, "moe_combine", p->n_experts, p->top_k, p->shared, &width, err)))
		return rc;
	if (d->n_cols % TILE || d->n_cols * p->top_k != s->in[0].n_cols)
		return ig_fail(err, d->n_cols % TILE ? -ENOTSUP : -EINVAL,
			       "moe_combine: down has rows of %lld values, a multiple of %d is "
			       "needed; the input has %u slots in %lld",
			       (long long)d->n_cols, TILE, p->top_k, (long long)s->in[0].n_cols);
	for (uint32_t i = 2; i < s->n_in; i++)
		if (s->in[i].n_cols != width || s->in[i].dtype != IG_F32 ||
		    s->in[i].row_class != s->in[0].row_class)
			return ig_fail(err, -EINVAL,
				       "moe_combine: the %s has %lld columns of type "
				       "%u, expected %lld of F32",
				       names[i - 2], (long long)s->in[i].n_cols, s->in[i].dtype,
				       (long long)width);
	if ((rc = check_biases(s, "moe_combine", 1, p->n_experts, width, err)))
		return rc;
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

/* Of a weight of vectors, the expert's; or no tensor. */
static struct ig_tensor expert_bias(const struct ig_op_launch *launch, uint32_t i, uint32_t expert)
{
	struct ig_tensor b = launch->weight[i];

	b.data = (char *)b.data + expert * b.row_stride;
	b.n_rows = 1;
	return b;
}

static void reference_glu(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct ig_glu_params glu = { sizeof glu, p->act, p->limit, p->bias };
	const struct ig_linear_params up = { sizeof up, 1, p->act, p->bias };
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t f = launch->out[0].n_cols / p->top_k;
	const uint32_t n = glu_matrices(p);

	for (uint32_t a = 0; a < r.n; a++) {
		const uint32_t expert = *route_word(&r, IG_ROUTE_IDS, a);
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .n_in = 1,
					  .n_weights = 2 * (1 + p->bias),
					  .n_out = 1,
					  .params = &glu };

		c.in[0] = one_row(row_of(&launch->in[0], a / p->top_k), launch->in[0].n_cols);
		if (p->form == IG_MOE_FUSED) {
			c.weight[0] = expert_rows(launch, 0, 2 * expert, f);
			c.weight[1] = expert_rows(launch, 0, 2 * expert + 1, f);
		}
		for (uint32_t i = 0; i < n && p->form != IG_MOE_FUSED; i++) {
			c.weight[i] = expert_rows(launch, i, expert, f);
			if (p->bias)
				c.weight[n + i] = expert_bias(launch, n + i, expert);
		}
		c.out[0] = one_row(row_of(&launch->out[0], a / p->top_k) + a % p->top_k * f, f);
		if (p->form == IG_MOE_UP) {
			c.params = &up;
			c.n_weights = 1 + p->bias;
		}
		host->core_op(p->form == IG_MOE_UP ? "linear" : "glu")->reference(&c);
	}
}

static void reference_combine(const struct ig_op_launch *launch)
{
	const struct ig_moe_combine_params *p = launch->params;
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, p->bias };
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
						  .n_weights = 1 + p->bias,
						  .n_out = 1,
						  .params = &linear };

			c.in[0] = one_row(row_of(&launch->in[0], row) + j * f, f);
			if (p->bias)
				c.weight[1] =
					expert_bias(launch, 1, *route_word(&r, IG_ROUTE_IDS, a));
			c.weight[0] =
				expert_rows(launch, 0, *route_word(&r, IG_ROUTE_IDS, a), width);
			c.out[0] = one_row(y, width);
			host->core_op("linear")->reference(&c);
			for (int64_t i = 0; i < width; i++)
				sum[i] += (double)*route_weight(&r, a) * (double)y[i];
		}
		for (int64_t i = 0; i < width && p->shared; i++)
			sum[i] += (double)*route_shared(&r, (uint32_t)row) *
				  (double)row_of(&launch->in[3], row)[i];
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

/* Lay out the scratch memory at `base`; n_products: matrices that a product is made of.  Returns its
 * size in bytes. */
static uint64_t lay_out(const struct ig_op_launch *launch, int64_t row_bytes, uint32_t n_products,
			void *base, struct workspace *ws)
{
	const struct ig_tensor *w = &launch->weight[0];
	const uint64_t rows = (uint64_t)(GROUP * row_bytes);
	const uint64_t results = GROUP * BLOCK * TILE * sizeof(float);
	const uint64_t tiles = w->layout == IG_LAYOUT_ROWS ?
				       n_products * host->tile_bytes(w->dtype, w->n_cols) :
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
	const uint32_t n = glu_matrices(p);
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
			inner.bias[i] = expert_bias(launch, n + i, expert);
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
		float *to = n == 1 ? row_of(out, a0 / p->top_k) + a0 % p->top_k * f + t * TILE :
				     ws->results;
		run_inner(launch, &inner, x, ws->row_bytes, in->n_cols, n, t, n_cols / TILE, to,
			  n_cols * (int64_t)sizeof *to, ws);
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
	const uint32_t row = a / r->top_k, slot = a % r->top_k;
	const float w = *route_weight(r, a);
	float *to = row_of(&launch->out[0], row) + t * TILE;

	if (slot == 0)
		for (int64_t c = 0; c < n_cols; c++)
			to[c] = w * y[c];
	else
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += w * y[c];
	if (slot == r->top_k - 1 && launch->in[3].data) {
		const float w_s = *route_shared(r, row);
		const float *shared = row_of(&launch->in[3], row) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += w_s * shared[c];
	}
	if (slot == r->top_k - 1 && launch->in[2].data) {
		const float *residual = row_of(&launch->in[2], row) + t * TILE;
		for (int64_t c = 0; c < n_cols; c++)
			to[c] += residual[c];
	}
}

static void combine_group(const struct ig_op_launch *launch, const struct route *r, uint32_t i,
			  int64_t n, int64_t first, int64_t last, const struct workspace *ws)
{
	const struct ig_moe_combine_params *p = launch->params;
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, p->bias };
	const uint32_t expert = *route_word(r, IG_ROUTE_IDS, *route_word(r, IG_ROUTE_ORDER, i));
	const int64_t block = block_of(launch);
	struct inner inner = { .kernel = launch->kernel->inner,
			       .params = &linear,
			       .n_matrices = 1,
			       .has_bias = p->bias,
			       .matrix = { launch->weight[0] },
			       .first = { expert * (launch->out[0].n_cols / TILE) } };

	if (p->bias)
		inner.bias[0] = expert_bias(launch, 1, expert);

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
	.n_matrices = glu_matrices,
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
	.n_matrices = one_matrix,
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

/* Find the kernel of linear for each kernel of moe_glu. */
static int find_up_inner(void)
{
	const struct ig_op *linear = host->core_op("linear");

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

	host = h->kernels(IG_BUILD_ID);
	if (!host)
		return -ENOTSUP;
	if ((rc = make_kernels("glu", &glu, &ig_op_moe_glu, glu_kernels)) ||
	    (rc = make_kernels("linear", &combine, &ig_op_moe_combine, combine_kernels)))
		return rc;
	return find_up_inner();
}
