/* gpu.c: GPU lowerings of the ops of recurrent layers: argument structs, grids and the choice of kernels,
 * which are in shaders/recurrent/. */
#include "recurrent_private.h"
#include "shaders/args.h"

#include <ingot/gpu_lower.h>

#include <math.h>
#include <stdio.h>

extern const struct ig_shader ig_shader_conv1d, ig_shader_gated_delta, ig_shader_selective_scan,
	ig_shader_norm_gated;

_Static_assert(ELEMENT_F32 == IG_F32 && ELEMENT_F16 == IG_F16 && ELEMENT_BF16 == IG_BF16,
	       "element types of kernels are enum ig_dtype");

#define ALWAYS .when_live = IG_LIVE_ONE, .when_max = UINT32_MAX

static uint32_t pieces(uint64_t n, uint32_t of) { return (uint32_t)((n + of - 1) / of); }

/* All of a weight, as its values lie behind each other; an omitted one stays omitted. */
static struct ig_gpu_bind bind_weight(const struct ig_gpu_launch *c, uint32_t i)
{
	const struct ig_gpu_bind none = IG_GPU_NONE;

	return i < c->n_weights && c->weight[i].ref.buffer >= 0 ?
		       ig_gpu_bind_weight(&c->weight[i]) :
		       none;
}

static int check_result(const struct ig_gpu_launch *c, const char *op, struct ig_error *err)
{
	const uint32_t t = c->out[0].dtype;

	if (!ig_gpu_is_value(t))
		return ig_fail(err, -ENOTSUP, "%s: no kernel writes elements of type %u", op, t);
	return 0;
}

/* The states of a group and layer, as a hazard: read and written. */
static int bind_states(const struct ig_gpu_host *h, struct ig_gpu_tape *t, const char *op,
		       uint32_t group, uint32_t layer, struct ig_gpu_bind *bind,
		       struct ig_error *err)
{
	struct ig_gpu_ref kv;
	int rc = h->kv(t, group, layer, &kv);

	if (rc)
		return ig_fail(err, rc, "%s: no states of group %u, layer %u", op, group, layer);
	*bind = ig_gpu_bind_ref(kv, 1, IG_GPU_READ | IG_GPU_WRITE | IG_GPU_TOUCH);
	return 0;
}

/* ---- conv1d -------------------------------------------------------------------- */

static int lower_conv1d(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_conv1d_params *p = c->params;
	const uint32_t width = (uint32_t)c->out[0].n_cols;
	const struct ig_gpu_bind bias = bind_weight(c, 1);
	const struct conv1d_args args = {
		.width = width,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.y_stride = ig_gpu_stride(&c->out[0]),
		.y_type = c->out[0].dtype,
		.group = p->group,
		.layer = p->layer,
		.first = p->first,
		.flags = (p->gated ? CONV1D_GATED : 0) | (bias.ref.buffer >= 0 ? CONV1D_BIAS : 0) |
			 (p->act == IG_ACT_SILU ? CONV1D_SILU : 0),
	};
	char kernel[16];
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 5,
		.shader = &ig_shader_conv1d,
		.kernel = kernel,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = CONV1D_THREADS,
		ALWAYS,
		.grid = { { IG_LIVE_ONE, 1, 1, pieces(width, CONV1D_THREADS) },
			  { IG_LIVE_SEQS, 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ), bind_weight(c, 0), bias,
			  ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE) },
	};
	int rc = check_result(c, "conv1d", err);

	if (!rc)
		rc = bind_states(h, t, "conv1d", p->group, p->layer, &d.bind[4], err);
	snprintf(kernel, sizeof kernel, "conv1d_%u", p->n_taps);
	return rc ? rc : h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_conv1d = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.lower = lower_conv1d,
};

/* ---- gated_delta, selective_scan ------------------------------------------------- */

/* Groups of four values that a lane has of a column of n: the kernels are built for some numbers. */
static uint32_t fours_of(uint32_t n)
{
	uint32_t fours = 2;

	while (STATE_DIM(fours) < n)
		fours *= 2;
	return fours;
}

_Static_assert(STATE_DIM(16) == IG_GATED_DELTA_MAX_DIM &&
		       STATE_DIM(16) == IG_SELECTIVE_SCAN_MAX_DIM,
	       "the largest kernels");

/* A dispatch over the columns of all heads' states, each of n values. */
static struct ig_gpu_dispatch columns(const struct ig_shader *shader, const char *op, uint32_t n,
				      uint32_t n_heads, uint32_t tiles, char kernel[32])
{
	const uint32_t fours = fours_of(n);

	snprintf(kernel, 32, "%s_%u", op, fours);
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = shader,
		.kernel = kernel,
		.threads = STATE_THREADS,
		.threadgroup_bytes = STATE_ROOM(fours) * (uint32_t)sizeof(float),
		ALWAYS,
		.grid = { { IG_LIVE_ONE, 1, 1, n_heads * tiles },
			  { IG_LIVE_SEQS, 1, 1, 1 },
			  IG_GPU_ONE },
	};
}

static int lower_gated_delta(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gated_delta_params *p = c->params;
	const struct gated_delta_args args = {
		.n_k_heads = p->n_k_heads,
		.n_v_heads = p->n_v_heads,
		.k_dim = p->k_dim,
		.v_dim = p->v_dim,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.gates_stride = ig_gpu_stride(&c->in[1]),
		.y_stride = ig_gpu_stride(&c->out[0]),
		.tiled = p->tiled,
		.by_key = p->by_key,
		.part_heads = p->part_heads,
		.norm_eps = p->norm_eps,
		.q_scale = 1.0f / sqrtf((float)p->k_dim),
		.group = p->group,
		.layer = p->layer,
		.tiles = pieces(p->v_dim, STATE_COLUMNS),
	};
	char kernel[32];
	struct ig_gpu_dispatch d = columns(&ig_shader_gated_delta, "gated_delta", p->k_dim,
					   p->n_v_heads, args.tiles, kernel);
	int rc;

	d.args = &args;
	d.n_arg_bytes = sizeof args;
	d.n_binds = 6;
	d.bind[0] = ig_gpu_bind_value(&c->in[0], IG_GPU_READ);
	d.bind[1] = ig_gpu_bind_value(&c->in[1], IG_GPU_READ);
	d.bind[2] = bind_weight(c, 0);
	d.bind[3] = bind_weight(c, 1);
	d.bind[4] = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE);
	rc = bind_states(h, t, "gated_delta", p->group, p->layer, &d.bind[5], err);
	return rc ? rc : h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_gated_delta = {
	.struct_size = sizeof(struct ig_gpu_op),
	.lower = lower_gated_delta,
};

static int lower_selective_scan(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
				struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_selective_scan_params *p = c->params;
	const struct selective_scan_args args = {
		.n_heads = p->n_heads,
		.head_dim = p->head_dim,
		.n_groups = p->n_groups,
		.state_dim = p->state_dim,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.dt_stride = ig_gpu_stride(&c->in[1]),
		.y_stride = ig_gpu_stride(&c->out[0]),
		.part_heads = p->part_heads,
		.dt_first = p->dt_first,
		.group = p->group,
		.layer = p->layer,
		.tiles = pieces(p->head_dim, STATE_COLUMNS),
	};
	char kernel[32];
	struct ig_gpu_dispatch d = columns(&ig_shader_selective_scan, "selective_scan",
					   p->state_dim, p->n_heads, args.tiles, kernel);
	int rc;

	d.args = &args;
	d.n_arg_bytes = sizeof args;
	d.n_binds = 7;
	d.bind[0] = ig_gpu_bind_value(&c->in[0], IG_GPU_READ);
	d.bind[1] = ig_gpu_bind_value(&c->in[1], IG_GPU_READ);
	for (uint32_t i = 0; i < 3; i++)
		d.bind[2 + i] = bind_weight(c, i);
	d.bind[5] = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE);
	rc = bind_states(h, t, "selective_scan", p->group, p->layer, &d.bind[6], err);
	return rc ? rc : h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_selective_scan = {
	.struct_size = sizeof(struct ig_gpu_op),
	.lower = lower_selective_scan,
};

/* ---- norm_gated ------------------------------------------------------------------ */

static int lower_norm_gated(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			    struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_norm_gated_params *p = c->params;
	const uint32_t width = (uint32_t)c->out[0].n_cols, n = width / p->n_groups;
	const bool each = c->weight[0].n_rows * c->weight[0].n_cols == width;
	const bool wide = n >= NORM_GATED_WIDE;
	const uint32_t groups = wide ? p->n_groups : pieces(p->n_groups, NORM_GATED_THREADS / 32);
	const struct norm_gated_args args = {
		.n = n,
		.n_groups = p->n_groups,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.z_stride = ig_gpu_stride(&c->in[1]),
		.y_stride = ig_gpu_stride(&c->out[0]),
		.eps = p->eps,
		.gate_first = p->gate_first,
		.w_step = each ? n : 0,
		.y_type = c->out[0].dtype,
	};
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 4,
		.shader = &ig_shader_norm_gated,
		.kernel = wide ? "norm_gated_wide" : "norm_gated",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = NORM_GATED_THREADS,
		.threadgroup_bytes = wide ? NORM_GATED_THREADS / 32 * (uint32_t)sizeof(float) : 0,
		ALWAYS,
		.grid = { { IG_LIVE_ONE, 1, 1, groups }, { IG_LIVE_ROWS, 1, 1, 1 }, IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
			  ig_gpu_bind_value(&c->in[1], IG_GPU_READ), bind_weight(c, 0),
			  ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE) },
	};
	int rc = check_result(c, "norm_gated", err);

	return rc ? rc : h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_norm_gated = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.lower = lower_norm_gated,
};
