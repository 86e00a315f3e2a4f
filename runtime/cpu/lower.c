/*
 * lower.c: lowers a plan to the cpu driver's phases.  Chooses a kernel for every node, adds
 * conversions of values to the layouts that kernels require (once per value and layout), chains
 * kernels on rows, and places scratch memory so that buffers with disjoint lifetimes share it.
 */
#include "runtime/cpu/cpu_private.h"
#include "base/array.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lowering {
	struct cpu_program *p;
	int32_t *value_buffer;	/* [n_values] */
	int32_t *layout_buffer; /* [n_values, N_LAYOUTS] */
	bool of_mtp;		/* the node that is being lowered */
	struct ig_error *err;
};

#define N_LAYOUTS 4
/* Rows of a step for each thread from which on a larger step has no more of them per second:
 * docs/performance.md. */
#define SPLIT_ROWS 32

static int no_memory(struct lowering *l)
{
	return ig_fail(l->err, -ENOMEM, "cpu driver: no memory for the lowered plan");
}

/* ---- kernels ---------------------------------------------------------------------- */

/* The best kernel for a weight format: of the highest instruction set that the driver may use,
 * with quantized activations unless float32 is required.  experts_layout: the layout of experts'
 * weights; IG_LAYOUT_ANY for other ops. */
#define IG_LAYOUT_ANY UINT32_MAX
static const struct ig_cpu_kernel *choose(const struct cpu_driver *d, const struct ig_cpu_kernel *k,
					  uint32_t n, uint32_t dtype, uint32_t experts_layout)
{
	const struct ig_cpu_kernel *best = NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (!ig_isa_includes(d->isa, k[i].isa) ||
		    (experts_layout != IG_LAYOUT_ANY && k[i].weight_layout != experts_layout) ||
		    (k[i].weight_dtype != IG_DTYPE_NONE && k[i].weight_dtype != dtype) ||
		    (d->f32 && k[i].in_layout != IG_LAYOUT_ROWS))
			continue;
		if (!best || k[i].isa > best->isa ||
		    (k[i].isa == best->isa && best->in_layout == IG_LAYOUT_ROWS))
			best = &k[i];
	}
	return best;
}

static const struct ig_cpu_kernel *choose_for(const struct cpu_driver *d, const struct ig_op *op,
					      uint32_t dtype)
{
	uint32_t layout = !(op->flags & IG_OP_EXPERTS) ? IG_LAYOUT_ANY :
			  d->mapped_experts	       ? IG_LAYOUT_ROWS :
							 IG_LAYOUT_TILE16;
	return choose(d, op->cpu_kernels, op->n_cpu_kernels, dtype, layout);
}

/* Kernels that convert rows of float to another layout. */
#define PACK_ENTRY(name, isa) IG_CPU_KERNEL(isa, IG_UNITS_ROWS, pack_units, NULL, PACK_FN(name)),

static int64_t pack_units(const struct ig_op_launch *c) { return c->out[0].n_rows; }

#define PACK_FN(name) ig_pack_q8_##name
static const struct ig_cpu_kernel pack_q8[] = { ROWS_LIST(PACK_ENTRY) };
#undef PACK_FN
#define PACK_FN(name) ig_pack_bf16_##name
static const struct ig_cpu_kernel pack_bf16[] = { ROWS_LIST(PACK_ENTRY) };
#define N_PACKS (sizeof pack_q8 / sizeof *pack_q8)

/* ---- buffers, calls, phases ---------------------------------------------------------- */

static int32_t add_buffer(struct lowering *l, uint64_t row_bytes, uint32_t row_class)
{
	struct cpu_program *p = l->p;

	if (!ig_array_grow(p->buffers, &p->cap_buffers, p->n_buffers))
		return -1;
	p->buffers[p->n_buffers] = (struct cpu_buffer){
		.row_bytes = ig_round_up(row_bytes, 64),
		.row_class = row_class,
		.first_phase = UINT32_MAX,
	};
	return (int32_t)p->n_buffers++;
}

/* Append the call: in a new phase, or in the last one if it can be chained or `join` is set. */
static int add_launch(struct lowering *l, const struct cpu_launch *c, bool chain, bool join)
{
	struct cpu_program *p = l->p;

	if (!ig_array_grow(p->launches, &p->cap_launches, p->n_launches) ||
	    !ig_array_grow(p->phases, &p->cap_phases, p->n_phases))
		return no_memory(l);
	p->launches[p->n_launches++] = *c;
	struct cpu_phase *last = p->n_phases ? &p->phases[p->n_phases - 1] : NULL;
	bool rows = c->kernel->unit_kind == IG_UNITS_ROWS;
	if (join || (chain && last && last->rows && rows && last->of_mtp == l->of_mtp &&
		     p->launches[last->first_launch].row_class == c->row_class))
		last->n_launches++;
	else
		p->phases[p->n_phases++] =
			(struct cpu_phase){ p->n_launches - 1, 1, rows, l->of_mtp };
	for (uint32_t i = 0; i <= IG_MAX_IN + IG_MAX_OUT; i++) {
		int32_t b = i < IG_MAX_IN	       ? c->in[i].buffer :
			    i < IG_MAX_IN + IG_MAX_OUT ? c->out[i - IG_MAX_IN].buffer :
							 c->shared;
		if (b < 0)
			continue;
		uint32_t phase = p->n_phases - 1;
		if (p->buffers[b].first_phase > phase)
			p->buffers[b].first_phase = phase;
		p->buffers[b].last_phase = phase;
	}
	return 0;
}

static struct cpu_launch empty_launch(const struct ig_cpu_kernel *k, uint32_t row_class)
{
	struct cpu_launch c = { .kernel = k, .row_class = row_class, .shared = -1 };

	c.launch.struct_size = sizeof c.launch;
	c.launch.kernel = k;
	for (uint32_t i = 0; i < IG_MAX_IN; i++)
		c.in[i].buffer = -1;
	for (uint32_t i = 0; i < IG_MAX_OUT; i++)
		c.out[i].buffer = -1;
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		c.weight[i] = -1;
	return c;
}

static uint64_t max_rows(const struct cpu_program *p, uint32_t row_class)
{
	return row_class == IG_ROWS_TOKENS ? p->base.limits.max_rows :
					     p->base.limits.max_logit_rows;
}

/* The bytes that a kernel asks for by `ask`, for the largest step. */
static uint64_t widest_bytes(const struct cpu_program *p, const struct cpu_launch *of,
			     uint64_t (*ask)(const struct ig_op_launch *launch))
{
	const struct ig_program_limits *lim = &p->base.limits;
	const int32_t longest = (int32_t)lim->max_context;
	const struct ig_step widest = { .struct_size = sizeof widest,
					.n_rows = (int32_t)lim->max_rows,
					.n_seqs = (int32_t)lim->max_seqs,
					.n_logit_rows = (int32_t)lim->max_logit_rows,
					.seq_lens = &longest };
	struct ig_op_launch c = of->launch;

	if (!ask)
		return 0;
	c.step = &widest;
	for (uint32_t j = 0; j < c.n_in; j++)
		c.in[j].n_rows = lim->max_rows;
	for (uint32_t j = 0; j < c.n_out; j++)
		c.out[j].n_rows = lim->max_rows;
	return ask(&c);
}

/* A buffer as an operand in this layout. */
static struct ig_tensor rows_in(const struct cpu_program *p, int32_t buffer, uint32_t layout,
				int64_t n_cols)
{
	return (struct ig_tensor){ .n_cols = n_cols,
				   .dtype = IG_F32,
				   .layout = layout,
				   .row_stride = (int64_t)p->buffers[buffer].row_bytes };
}

/* The value in this layout; adds the conversion if it is the first use. */
static int value_in_layout(struct lowering *l, ig_value v, uint32_t layout, int32_t *buffer)
{
	struct cpu_program *p = l->p;
	const struct ig_shape *s = &p->plan->values[v].shape;
	int32_t *known = &l->layout_buffer[(uint32_t)v * N_LAYOUTS + layout];

	if (layout == IG_LAYOUT_ROWS) {
		*buffer = l->value_buffer[v];
		return 0;
	}
	if (*known >= 0) {
		*buffer = *known;
		return 0;
	}
	const struct ig_cpu_kernel *k =
		choose(p->driver, layout == IG_LAYOUT_Q8 ? pack_q8 : pack_bf16, N_PACKS, IG_F32,
		       IG_LAYOUT_ANY);
	/* `choose` also fits here if float32 is required: the input of a conversion is float. */
	int32_t b = add_buffer(l, ig_layout_row_bytes(layout, s->n_cols), s->row_class);
	if (b < 0)
		return no_memory(l);
	struct cpu_launch c = empty_launch(k, s->row_class);
	c.launch.n_in = c.launch.n_out = 1;
	c.in[0].buffer = l->value_buffer[v];
	c.launch.in[0] = rows_in(p, c.in[0].buffer, IG_LAYOUT_ROWS, s->n_cols);
	c.out[0].buffer = b;
	c.launch.out[0] = rows_in(p, b, layout, s->n_cols);
	*known = *buffer = b;
	return add_launch(l, &c, true, false);
}

static bool is_matrix(const struct ig_op *op, const void *params, uint32_t i,
		      const struct ig_shape *shape)
{
	return op->n_matrices ? i < op->n_matrices(params) : !i || shape->n_rows > 1;
}

static int use_weight(struct lowering *l, const struct ig_op *op, struct cpu_launch *c, uint32_t i,
		      ig_weight w)
{
	struct cpu_program *p = l->p;
	const struct ig_plan_weight *pw = &p->plan->weights[w];
	struct cpu_weight *cw = &p->weights[w];
	const bool matrix = is_matrix(op, c->launch.params, i, &pw->shape);
	uint32_t layout = matrix ? c->kernel->weight_layout : IG_LAYOUT_ROWS;

	if (layout == IG_LAYOUT_TILE16 && !ig_tile16_tile_bytes(pw->shape.dtype, pw->shape.n_cols))
		return ig_fail(l->err, -ENOTSUP,
			       "tensor \"%s\": the cpu driver has no kernels for %s", pw->name,
			       ig_dtype_name(pw->shape.dtype));
	if (cw->used && cw->layout != layout)
		return ig_fail(l->err, -ENOTSUP, "tensor \"%s\" is needed in two layouts",
			       pw->name);
	/* Only kernels of experts and of adapters read matrices in rows from the file. */
	cw->mapped = pw->of_adapters || (op->flags & IG_OP_EXPERTS && matrix &&
					 layout == IG_LAYOUT_ROWS && pw->shape.n_rows > 1);
	if (cw->mapped && !pw->tensor->data)
		return ig_fail(l->err, -ENOTSUP,
			       "tensor \"%s\" is not in the file as it is used: "
			       "experts cannot stay mapped",
			       pw->name);
	cw->used = true;
	cw->layout = layout;
	c->weight[i] = w;
	c->launch.weight[i] = (struct ig_tensor){
		.n_rows = pw->shape.n_rows,
		.n_cols = pw->shape.n_cols,
		.dtype = pw->shape.dtype,
		.layout = layout,
		.row_stride =
			layout == IG_LAYOUT_ROWS ?
				(int64_t)ig_dtype_row_bytes(pw->shape.dtype, pw->shape.n_cols) :
				0,
	};
	if (c->launch.n_weights < i + 1)
		c->launch.n_weights = i + 1;
	return 0;
}

/* ---- nodes ---------------------------------------------------------------------------- */

static int refuse(struct lowering *l, const struct ig_plan_node *n, uint32_t dtype)
{
	return ig_fail(l->err, -ENOTSUP, "op %s: the cpu driver has no kernel for %s here%s",
		       n->op->name, dtype == IG_DTYPE_NONE ? "it" : ig_dtype_name(dtype),
		       n->weight[0] >= 0 ? "" : " (no weight)");
}

/* Inputs, outputs and the row class of a call for node n. */
static int operands(struct lowering *l, const struct ig_plan_node *n, struct cpu_launch *c,
		    bool *chain)
{
	struct cpu_program *p = l->p;
	const struct ig_plan_value *values = p->plan->values;

	for (uint32_t i = 0; i < n->n_in; i++) {
		int32_t b;
		uint32_t layout = i == 0 ? c->kernel->in_layout : IG_LAYOUT_ROWS;
		if (n->in[i] == IG_NONE)
			continue;
		int rc = value_in_layout(l, n->in[i], layout, &b);
		if (rc)
			return rc;
		c->launch.n_in = i + 1;
		c->in[i].buffer = b;
		c->launch.in[i] = rows_in(p, b, layout, values[n->in[i]].shape.n_cols);
		/* Gathering rows needs a barrier: they come from any unit. */
		if (values[n->in[i]].shape.row_class != c->row_class)
			*chain = false;
	}
	for (uint32_t i = 0; i < n->n_out; i++) {
		const struct ig_shape *s = &values[n->out[i]].shape;
		int32_t b = l->value_buffer[n->out[i]];
		if (i == 0 && n->op->flags & IG_OP_IN_PLACE)
			b = l->value_buffer[n->in[1]];
		if (b < 0)
			b = add_buffer(l, (uint64_t)s->n_cols * 4, s->row_class);
		if (b < 0)
			return no_memory(l);
		l->value_buffer[n->out[i]] = b;
		c->out[i].buffer = b;
		c->launch.out[i] = rows_in(p, b, IG_LAYOUT_ROWS, s->n_cols);
	}
	c->launch.n_out = n->n_out;
	return 0;
}

static uint32_t row_class_of(const struct lowering *l, const struct ig_plan_node *n)
{
	const struct ig_plan_value *values = l->p->plan->values;
	if (n->n_out)
		return values[n->out[0]].shape.row_class;
	return n->n_in ? values[n->in[0]].shape.row_class : IG_ROWS_TOKENS;
}

static uint32_t weight_dtype(const struct lowering *l, const struct ig_plan_node *n, uint32_t i)
{
	return n->weight[i] < 0 ? IG_DTYPE_NONE : l->p->plan->weights[n->weight[i]].shape.dtype;
}

/* An op with IG_OP_SPLIT_WEIGHTS: one call per weight, all in one phase.  Its weights are
 * W_0 … W_m-1 and, if there are twice as many, their biases. */
static int lower_split(struct lowering *l, const struct ig_plan_node *n, uint32_t m)
{
	uint64_t col = 0;
	int rc;

	/* Conversions first, so that the products can share a phase. */
	for (uint32_t i = 0; i < m; i++) {
		const struct ig_cpu_kernel *k =
			choose_for(l->p->driver, n->op, weight_dtype(l, n, i));
		int32_t b;
		if (!k)
			return refuse(l, n, weight_dtype(l, n, i));
		if ((rc = value_in_layout(l, n->in[0], k->in_layout, &b)))
			return rc;
	}
	for (uint32_t i = 0; i < m; i++) {
		const struct ig_cpu_kernel *k =
			choose_for(l->p->driver, n->op, weight_dtype(l, n, i));
		struct cpu_launch c = empty_launch(k, row_class_of(l, n));
		bool chain = false;
		c.launch.params = n->params;
		rc = operands(l, n, &c, &chain);
		if (!rc)
			rc = use_weight(l, n->op, &c, 0, n->weight[i]);
		if (!rc && n->n_weights == 2 * m)
			rc = use_weight(l, n->op, &c, 1, n->weight[m + i]);
		if (rc)
			return rc;
		c.out[0].col_offset = col;
		c.launch.out[0].n_cols = c.launch.weight[0].n_rows;
		if (c.in[1].buffer >= 0) {
			c.in[1].col_offset = col;
			c.launch.in[1].n_cols = c.launch.weight[0].n_rows;
		}
		col += (uint64_t)c.launch.weight[0].n_rows * 4;
		if ((rc = add_launch(l, &c, false, i > 0)))
			return rc;
	}
	return 0;
}

/* Memory for what the workers of a launch share. */
static int add_shared(struct lowering *l, struct cpu_launch *c)
{
	const uint64_t bytes = ig_round_up(widest_bytes(l->p, c, c->kernel->shared_bytes), 64);

	if (!bytes)
		return 0;
	c->shared = add_buffer(l, 0, IG_ROWS_TOKENS);
	if (c->shared < 0)
		return no_memory(l);
	l->p->buffers[c->shared].bytes = bytes;
	c->launch.shared_bytes = bytes;
	return 0;
}

static int lower_node(struct lowering *l, const struct ig_plan_node *n)
{
	uint32_t dtype = weight_dtype(l, n, 0);
	int rc;

	if (n->op->flags & IG_OP_SPLIT_WEIGHTS) {
		uint32_t m = ((const struct ig_linear_params *)n->params)->n_weights;
		return lower_split(l, n, m);
	}
	const struct ig_cpu_kernel *k = choose_for(l->p->driver, n->op, dtype);
	if (!k)
		return refuse(l, n, dtype);
	struct cpu_launch c = empty_launch(k, row_class_of(l, n));
	bool chain = true;
	c.launch.params = n->params;
	rc = operands(l, n, &c, &chain);
	for (uint32_t i = 0; !rc && i < n->n_weights; i++)
		if (n->weight[i] != IG_NONE)
			rc = use_weight(l, n->op, &c, i, n->weight[i]);
	if (!rc && k->shared_bytes)
		rc = add_shared(l, &c);
	if (!rc)
		rc = add_launch(l, &c, chain, false);
	if (rc || !k->then)
		return rc;
	c.kernel = c.launch.kernel = k->then;
	return add_launch(l, &c, false, false);
}

/* ---- memory ---------------------------------------------------------------------------- */

/* First fit, in order of creation, among the buffers with overlapping lifetimes. */
static void place_buffers(struct cpu_program *p)
{
	for (uint32_t i = 0; i < p->n_buffers; i++) {
		struct cpu_buffer *b = &p->buffers[i];
		if (b->row_bytes)
			b->bytes = b->row_bytes * max_rows(p, b->row_class);
		b->offset = 0;
		for (bool moved = true; moved;) {
			moved = false;
			for (uint32_t j = 0; j < i; j++) {
				const struct cpu_buffer *o = &p->buffers[j];
				if (o->last_phase < b->first_phase ||
				    b->last_phase < o->first_phase ||
				    o->offset + o->bytes <= b->offset ||
				    b->offset + b->bytes <= o->offset)
					continue;
				b->offset = o->offset + o->bytes;
				moved = true;
			}
		}
		if (p->scratch_bytes < b->offset + b->bytes)
			p->scratch_bytes = b->offset + b->bytes;
	}
}

/* The most scratch memory that kernels need per thread. */
static void place_workers(struct cpu_program *p)
{
	for (uint32_t i = 0; i < p->n_launches; i++) {
		const struct cpu_launch *c = &p->launches[i];
		uint64_t bytes = ig_round_up(widest_bytes(p, c, c->kernel->scratch_bytes), 64);
		if (p->worker_bytes < bytes)
			p->worker_bytes = bytes;
	}
	p->worker_offset = p->scratch_bytes;
	p->scratch_bytes += p->worker_bytes * ig_pool_n_threads(p->driver->pool);
}

static void place_weights(struct cpu_program *p)
{
	for (uint32_t i = 0; i < p->plan->n_weights; i++) {
		const struct ig_plan_weight *pw = &p->plan->weights[i];
		struct cpu_weight *w = &p->weights[i];
		if (!w->used || w->mapped)
			continue;
		if (w->layout == IG_LAYOUT_TILE16)
			w->bytes = ig_tile16_tile_bytes(pw->shape.dtype, pw->shape.n_cols) *
				   (uint64_t)ig_tile16_n_tiles(pw->shape.n_rows);
		else
			w->bytes = ig_round_up(pw->n_bytes, 64);
		w->offset = p->weight_bytes;
		p->weight_bytes += w->bytes;
	}
}

/* With more threads each has fewer of a step's units.  Of experts it is not known: each has only a
 * share of the rows, and its weights are read for these few. */
static uint32_t split_rows(const struct cpu_program *p)
{
	for (uint32_t i = 0; i < p->plan->n_nodes; i++)
		if (p->plan->nodes[i].op->flags & IG_OP_EXPERTS)
			return 0;
	return SPLIT_ROWS * ig_pool_n_threads(p->driver->pool);
}

int ig_cpu_lower(struct ig_driver *d, const struct ig_plan *plan,
		 const struct ig_program_limits *limits, struct ig_program **out,
		 struct ig_program_memory *memory, struct ig_error *err)
{
	struct cpu_program *p = calloc(1, sizeof *p);
	struct lowering l = { .p = p, .err = err };
	int rc = -ENOMEM;

	if (!p)
		return ig_fail(err, -ENOMEM, "cpu driver: no memory for the lowered plan");
	p->base.class = &ig_driver_cpu;
	p->base.limits = *limits;
	p->driver = (struct cpu_driver *)d;
	p->base.strict = p->driver->strict;
	p->plan = plan;
	p->weights = calloc(plan->n_weights + 1, sizeof *p->weights);
	l.value_buffer = malloc((plan->n_values + 1) * sizeof *l.value_buffer);
	l.layout_buffer = malloc((plan->n_values + 1) * N_LAYOUTS * sizeof *l.layout_buffer);
	if (!p->weights || !l.value_buffer || !l.layout_buffer) {
		no_memory(&l);
		goto done;
	}
	memset(l.value_buffer, 0xff, (plan->n_values + 1) * sizeof *l.value_buffer);
	memset(l.layout_buffer, 0xff, (plan->n_values + 1) * N_LAYOUTS * sizeof *l.layout_buffer);
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		l.of_mtp = plan->first_mtp_node && i >= plan->first_mtp_node;
		if ((rc = lower_node(&l, &plan->nodes[i])))
			goto done;
	}
	p->counters = aligned_alloc(64, (p->n_phases + 1) * sizeof *p->counters);
	if (!p->counters) {
		rc = no_memory(&l);
		goto done;
	}
	p->open = (atomic_uint_fast32_t *)(void *)&p->counters[p->n_phases];
	place_buffers(p);
	place_workers(p);
	place_weights(p);
	p->base.split_rows = split_rows(p);
	/* adapters' matrices stay where the plan has them */
	*memory = (struct ig_program_memory){ p->weight_bytes + plan->adapter_bytes,
					      p->scratch_bytes };
done:
	free(l.value_buffer);
	free(l.layout_buffer);
	if (rc)
		ig_cpu_destroy(&p->base);
	else
		*out = &p->base;
	return rc;
}
