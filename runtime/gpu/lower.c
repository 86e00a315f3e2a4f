/*
 * lower.c: lowers a plan to a tape.  First the element type of every value is chosen: the type that
 * all readers require, if they agree and the producer can write any type; else float32, with a
 * conversion before the first reader of each other type.  Then each op emits its dispatches.
 */
#include "model/formats/checkpoint.h"
#include "runtime/gpu/gpu_private.h"
#include "shaders/step.h"

#include <ingot/gpu_lower.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Scratch memory for partial results of attention.  For 32 heads of 128 the least has 4,039 (row,
 * range) pairs: 16 sequences of 64,000 tokens, or one of a million.  One sequence of the longest context
 * is always split. */
#define PARTIAL_SHARE 512 /* this part of the device's memory, between the two: */
#define PARTIAL_LEAST ((uint64_t)64 << 20)
#define PARTIAL_MOST ((uint64_t)256 << 20)

enum { WANT_F16, WANT_BF16, N_WANTS };
enum { WANTS_F16 = 1 << WANT_F16, WANTS_BF16 = 1 << WANT_BF16, WANTS_F32 = 1 << N_WANTS };

struct lowering {
	struct ig_gpu_lowered *p;
	const struct ig_plan *plan;
	const struct ig_gpu_facts *facts;
	uint32_t max_partials;
	uint32_t *dtype; /* [n_values] required by the last reader; IG_DTYPE_NONE: not read */
	uint8_t *wants;	 /* [n_values] a bit for each type that a reader requires: WANTS_… */
	struct ig_gpu_tensor *value;		    /* [n_values] */
	struct ig_gpu_tensor (*converted)[N_WANTS]; /* [n_values] */
	struct ig_gpu_norm
		*norm; /* [n_values] of a norm's result; max_rows 0: it is always computed */
	struct ig_error *err;
};

/* Whether readers require several types of it. */
static bool is_mixed(const struct lowering *l, ig_value v)
{
	return (l->wants[v] & (l->wants[v] - 1)) != 0;
}

static int no_memory(struct lowering *l)
{
	return ig_fail(l->err, -ENOMEM, "no memory for the lowered plan");
}

/* ---- splitting attention ---------------------------------------------------------- */

static uint32_t choose_max_partials(const struct ig_plan *plan,
				    const struct ig_program_limits *limits,
				    const struct ig_gpu_facts *facts)
{
	uint64_t room = facts->working_set_bytes / PARTIAL_SHARE;
	uint64_t ranges =
		((uint64_t)limits->max_context + IG_ATTENTION_RANGE - 1) / IG_ATTENTION_RANGE;
	uint64_t rows = (uint64_t)limits->max_seqs * STEP_SPLIT_ROWS, bytes = 1;

	rows = rows < limits->max_rows ? rows : limits->max_rows;
	/* A partial result: a sum of values, a maximum and a sum of weights, per head. */
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_attention_params *a = plan->nodes[i].params;
		if (strcmp(plan->nodes[i].op->name, "attention"))
			continue;
		uint64_t n = (uint64_t)a->n_heads * ((uint64_t)a->head_dim + 2) * 4;
		bytes = n > bytes ? n : bytes;
	}
	room = room < PARTIAL_LEAST ? PARTIAL_LEAST : room > PARTIAL_MOST ? PARTIAL_MOST : room;
	uint64_t most = ranges * rows, n = room / bytes;
	n = n > ranges ? n : ranges;
	n = n < most ? n : most;
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* ---- operands --------------------------------------------------------------------- */

static const struct ig_gpu_tensor nothing = { .ref.buffer = -1, .dtype = IG_DTYPE_NONE };

static void describe_weight(const struct lowering *l, ig_weight w, struct ig_gpu_tensor *out)
{
	const struct ig_shape *s = &l->plan->weights[w].shape;
	const struct ig_gpu_weight *gw = &l->p->weights.weights[w];

	*out = (struct ig_gpu_tensor){ .ref.buffer = gw->buffer,
				       .n_rows = s->n_rows,
				       .n_cols = s->n_cols,
				       .dtype = s->dtype,
				       .layout = gw->layout };
	if (gw->layout == IG_GPU_TILES) {
		int64_t k = ig_gpu_tile_k(s->dtype);
		out->row_stride =
			(uint64_t)((s->n_cols + k - 1) / k) * ig_dtype_row_bytes(s->dtype, k);
	} else {
		out->row_stride = ig_dtype_row_bytes(s->dtype, s->n_cols);
	}
}

static int use_weight(struct lowering *l, ig_weight w, struct ig_gpu_tensor *out)
{
	struct ig_gpu_weight *gw = &l->p->weights.weights[w];

	describe_weight(l, w, out);
	if (gw->buffer >= 0)
		return 0;
	if (gw->layout == IG_GPU_TILES)
		gw->n_bytes = ig_gpu_weight_bytes(out);
	int rc = ig_gpu_tape_weight(l->p->tape, gw->n_bytes, &out->ref);
	gw->buffer = out->ref.buffer;
	return rc;
}

/* A call without types and buffers. */
static void begin_plain_launch(struct lowering *l, const struct ig_plan_node *n,
			       struct ig_gpu_launch *c)
{
	const struct ig_program_limits *limits = &l->p->shape.limits;

	*c = (struct ig_gpu_launch){
		.struct_size = sizeof *c,
		.n_in = n->n_in,
		.n_weights = n->n_weights,
		.n_out = n->n_out,
		.params = n->params,
		.facts = l->facts,
		.max_rows = limits->max_rows,
		.max_seqs = limits->max_seqs,
		.max_logit_rows = limits->max_logit_rows,
		.max_context = limits->max_context,
		.k_dtype = limits->k_dtype,
		.v_dtype = limits->v_dtype,
		.f32 = l->p->driver->f32,
		.max_partials = l->max_partials,
	};
	for (uint32_t i = 0; i < IG_MAX_IN; i++)
		c->in[i] = nothing;
	for (uint32_t i = 0; i < IG_MAX_OUT; i++)
		c->out[i] = nothing;
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		c->weight[i] = nothing;
	c->also = nothing;
	for (uint32_t i = 0; i < n->n_in; i++) {
		if (n->in[i] == IG_NONE)
			continue;
		const struct ig_shape *s = &l->plan->values[n->in[i]].shape;
		c->in[i].ref.buffer = 0; /* present; the buffer is set later, with the type */
		c->in[i].n_cols = s->n_cols;
		c->in[i].row_class = s->row_class;
	}
	for (uint32_t i = 0; i < n->n_weights; i++)
		if (n->weight[i] != IG_NONE)
			describe_weight(l, n->weight[i], &c->weight[i]);
}

/* A call without the values' types and buffers. */
static int begin_launch(struct lowering *l, const struct ig_plan_node *n, struct ig_gpu_launch *c)
{
	int rc = 0;

	begin_plain_launch(l, n, c);
	for (uint32_t i = 0; i < n->n_weights && !rc; i++)
		if (n->weight[i] != IG_NONE)
			rc = use_weight(l, n->weight[i], &c->weight[i]);
	return rc;
}

static uint32_t wanted(const struct ig_plan_node *n, const struct ig_gpu_launch *c, uint32_t i)
{
	return n->op->gpu->in_dtype ? n->op->gpu->in_dtype(c, i) : IG_F32;
}

/* "op linear, tensor blk.0.attn_q.weight (Q4_1)" */
static void name_node(const struct lowering *l, const struct ig_plan_node *n, char *buf,
		      size_t size)
{
	const struct ig_plan_weight *w =
		n->n_weights && n->weight[0] != IG_NONE ? &l->plan->weights[n->weight[0]] : NULL;

	if (w)
		snprintf(buf, size, "op %s, tensor \"%s\" (%s)", n->op->name, w->name,
			 ig_dtype_name(w->shape.dtype));
	else
		snprintf(buf, size, "op %s", n->op->name);
}

static int refuse(struct lowering *l, const struct ig_plan_node *n, int rc, const char *why)
{
	char name[160];
	name_node(l, n, name, sizeof name);
	return ig_fail(l->err, rc, "%s: %.300s", name, why);
}

/* ---- layouts ---------------------------------------------------------------------- */

/* A weight is in tiles if all of its readers can read them. */
static void choose_layouts(struct lowering *l)
{
	struct ig_gpu_weight *weights = l->p->weights.weights;

	for (uint32_t pass = 0; pass < 2 && l->facts->tiles; pass++)
		for (uint32_t i = 0; i < l->plan->n_nodes; i++) {
			const struct ig_plan_node *n = &l->plan->nodes[i];
			struct ig_gpu_launch c;
			if (!n->op->gpu)
				continue;
			begin_plain_launch(l, n, &c);
			for (uint32_t j = 0; j < n->n_weights; j++) {
				if (n->weight[j] == IG_NONE)
					continue;
				bool may = n->op->gpu->tiles && n->op->gpu->tiles(&c, j);
				if (pass == 0 && may)
					weights[n->weight[j]].layout = IG_GPU_TILES;
				if (pass == 1 && !may)
					weights[n->weight[j]].layout = IG_GPU_ROWS;
			}
		}
}

/* ---- element types ---------------------------------------------------------------- */

static int choose_types(struct lowering *l)
{
	for (uint32_t i = 0; i < l->plan->n_nodes; i++) {
		const struct ig_plan_node *n = &l->plan->nodes[i];
		struct ig_gpu_launch c;
		if (!n->op->gpu || !n->op->gpu->lower)
			return refuse(l, n, -ENOTSUP, "no GPU runs it");
		l->p->tape->node = i;
		int rc = begin_launch(l, n, &c);
		if (rc)
			return ig_fail(l->err, rc, "%s", l->p->tape->error.text);
		for (uint32_t j = 0; j < n->n_in; j++) {
			if (n->in[j] == IG_NONE)
				continue;
			uint32_t *dtype = &l->dtype[n->in[j]], want = wanted(n, &c, j);
			if (want != IG_F32 && want != IG_F16 && want != IG_BF16)
				return refuse(l, n, -ENOTSUP,
					      "it requires an input of an element type that "
					      "values cannot have");
			l->wants[n->in[j]] |= want == IG_F16  ? WANTS_F16 :
					      want == IG_BF16 ? WANTS_BF16 :
								WANTS_F32;
			*dtype = want;
		}
	}
	return 0;
}

/* ---- norms that their readers compute ------------------------------------------------ */

/* Whether it is an RMS norm of whole rows by its weights, and nothing else. */
static bool is_plain_norm(const struct ig_plan_node *n)
{
	const struct ig_norm_params *p = n->params;

	return !strcmp(n->op->name, "norm") && p->kind == IG_NORM_RMS && !p->gather && !p->after &&
	       !p->group && (p->scale == 0 || p->scale == 1) && n->n_in == 1 && n->n_weights == 1 &&
	       n->weight[0] != IG_NONE && n->out[0] != IG_NONE;
}

/* The most rows for which node `reader` computes the norm that is its in[0]. */
static uint32_t norm_rows(struct lowering *l, const struct ig_plan_node *reader)
{
	struct ig_gpu_launch c;

	if (!reader->op->gpu->norm_rows)
		return 0;
	begin_plain_launch(l, reader, &c);
	c.in[0].dtype = wanted(reader, &c, 0);
	return reader->op->gpu->norm_rows(&c);
}

/* The most rows for which all readers of the norm of node `number` compute it themselves.  Until the last of
 * them its input must stay as it is. */
static uint32_t all_norm_rows(struct lowering *l, uint32_t number)
{
	const struct ig_plan_node *norm = &l->plan->nodes[number];
	const ig_value y = norm->out[0];
	uint32_t least = UINT32_MAX;
	bool overwritten = false;

	for (uint32_t i = number + 1; i < l->plan->n_nodes; i++) {
		const struct ig_plan_node *n = &l->plan->nodes[i];
		for (uint32_t j = 0; j < n->n_in; j++) {
			if (n->in[j] != y)
				continue;
			const uint32_t rows = j || overwritten ? 0 : norm_rows(l, n);
			least = rows < least ? rows : least;
		}
		if (n->op->flags & IG_OP_IN_PLACE && n->in[1] == norm->in[0])
			overwritten = true;
	}
	return least == UINT32_MAX ? 0 : least;
}

/* Sets norm[] of the results that need no dispatch in steps of few rows.  Ranks of a divided plan exchange
 * values; they compute all. */
static void choose_norms(struct lowering *l)
{
	for (uint32_t i = 0; i < l->plan->n_nodes && !l->plan->n_ranks; i++) {
		const struct ig_plan_node *n = &l->plan->nodes[i];
		if (!is_plain_norm(n) || is_mixed(l, n->out[0]))
			continue;
		l->norm[n->out[0]] = (struct ig_gpu_norm){
			.eps = ((const struct ig_norm_params *)n->params)->eps,
			.max_rows = all_norm_rows(l, i),
		};
	}
}

static uint32_t max_rows(const struct lowering *l, uint32_t row_class)
{
	return ig_gpu_rows_of(&l->p->shape.limits, row_class);
}

/* The value in the type that a reader requires. */
static int use_value(struct lowering *l, ig_value v, uint32_t dtype, struct ig_gpu_tensor *out)
{
	const struct ig_gpu_tensor *value = &l->value[v];

	if (value->dtype == dtype) {
		*out = *value;
		return 0;
	}
	struct ig_gpu_tensor *known = &l->converted[v][dtype == IG_F16 ? WANT_F16 : WANT_BF16];
	int rc = 0;
	if (known->ref.buffer < 0) {
		rc = ig_gpu_tape_value(l->p->tape, dtype, value->n_cols, value->row_class,
				       max_rows(l, value->row_class), known);
		if (!rc)
			rc = ig_gpu_emit_convert(l->p->tape, value, known);
	}
	*out = *known;
	return rc;
}

/* The value once more in the 16-bit type that other readers of it require, if its op can write both and they
 * agree. */
static int add_second(struct lowering *l, const struct ig_plan_node *n, struct ig_gpu_tensor *out)
{
	const ig_value v = n->out[0];
	const uint32_t second = l->wants[v] & (WANTS_F16 | WANTS_BF16);
	const uint32_t i = second == WANTS_F16 ? WANT_F16 : WANT_BF16;
	const struct ig_shape *s = &l->plan->values[v].shape;

	if (!(n->op->gpu->flags & IG_GPU_OUT_TWICE) || !is_mixed(l, v) ||
	    second == (WANTS_F16 | WANTS_BF16))
		return 0;
	const int rc =
		ig_gpu_tape_value(l->p->tape, i == WANT_F16 ? IG_F16 : IG_BF16, s->n_cols,
				  s->row_class, max_rows(l, s->row_class), &l->converted[v][i]);
	*out = l->converted[v][i];
	return rc;
}

/* ---- nodes ------------------------------------------------------------------------ */

static int lower_node(struct lowering *l, uint32_t number)
{
	const struct ig_plan_node *n = &l->plan->nodes[number];
	struct ig_gpu_tape *t = l->p->tape;
	struct ig_error why = { 0 };
	struct ig_gpu_launch c, typeless;
	int rc;

	t->node = number;
	if (ig_gpu_adds_ranks(l->plan, n)) {
		rc = ig_gpu_emit_sum_of_ranks(t, l->plan, n, &l->p->shape.limits, l->value);
		return rc ? refuse(l, n, rc, t->error.text) : 0;
	}
	if ((rc = ig_gpu_fetch_parts(t, l->plan, n, &l->p->shape.limits, l->value)))
		return refuse(l, n, rc, t->error.text);
	rc = begin_launch(l, n, &c);
	typeless = c;
	for (uint32_t i = 0; i < n->n_in && !rc; i++)
		if (n->in[i] != IG_NONE)
			rc = use_value(l, n->in[i], wanted(n, &typeless, i), &c.in[i]);
	for (uint32_t i = 0; i < n->n_out && !rc; i++) {
		ig_value v = n->out[i];
		if (i == 0 && n->op->flags & IG_OP_IN_PLACE) {
			c.out[0] = l->value[v] = c.in[1];
			continue;
		}
		const struct ig_shape *s = &l->plan->values[v].shape;
		bool any = i == 0 && (n->op->gpu->flags & IG_GPU_OUT_ANY) && !is_mixed(l, v) &&
			   l->dtype[v] != IG_DTYPE_NONE;
		rc = ig_gpu_tape_value(t, any ? l->dtype[v] : IG_F32, s->n_cols, s->row_class,
				       max_rows(l, s->row_class), &l->value[v]);
		c.out[i] = l->value[v];
		if (i == 0 && !rc)
			rc = add_second(l, n, &c.also);
	}
	if (!rc && is_plain_norm(n)) {
		struct ig_gpu_norm *norm = &l->norm[n->out[0]];
		norm->x = c.in[0];
		norm->w = c.weight[0];
		c.unread_rows = norm->max_rows;
	} else if (!rc && n->n_in && n->in[0] != IG_NONE && l->norm[n->in[0]].max_rows) {
		c.norm = &l->norm[n->in[0]];
	}
	if (!rc) {
		rc = n->op->gpu->lower(&c, &ig_gpu_tape_host, t, &why);
		if (rc && !t->status)
			return refuse(l, n, rc, why.text[0] ? why.text : "its lowering failed");
	}
	/* The tape has the error even if the op ignored it. */
	if (t->status)
		return refuse(l, n, t->status, t->error.text);
	return rc;
}

int ig_gpu_lower_plan(struct ig_gpu_lowered *p, const struct ig_plan *plan, struct ig_error *err)
{
	struct lowering l = { .p = p,
			      .plan = plan,
			      .err = err,
			      .facts = p->driver->device->class->facts(p->driver->device) };
	size_t n = (size_t)plan->n_values + 1;
	int rc;

	l.max_partials = choose_max_partials(plan, &p->base.limits, l.facts);
	if ((rc = ig_gpu_step_init(&p->shape, &plan->info, &p->base.limits, l.max_partials, err)) ||
	    (rc = ig_gpu_weights_init(&p->weights, plan, err)))
		return rc;
	l.dtype = malloc(n * sizeof *l.dtype);
	l.wants = calloc(n, sizeof *l.wants);
	l.value = malloc(n * sizeof *l.value);
	l.converted = malloc(n * sizeof *l.converted);
	l.norm = calloc(n, sizeof *l.norm);
	if (!l.dtype || !l.wants || !l.value || !l.converted || !l.norm ||
	    ig_gpu_tape_create(l.facts, p->base.limits.max_logit_rows, &p->tape)) {
		rc = no_memory(&l);
		goto done;
	}
	for (size_t i = 0; i < n; i++) {
		l.dtype[i] = IG_DTYPE_NONE;
		l.value[i] = l.converted[i][WANT_F16] = l.converted[i][WANT_BF16] = nothing;
	}
	p->tape->first_head_node = plan->first_mtp_node;
	choose_layouts(&l);
	rc = choose_types(&l);
	if (!rc)
		choose_norms(&l);
	for (uint32_t i = 0; i < plan->n_nodes && !rc; i++)
		rc = lower_node(&l, i);
	if (!rc)
		rc = ig_gpu_tape_close(p->tape, err);
	if (!rc)
		rc = ig_gpu_weights_place(&p->weights, p->driver->device, err);
done:
	free(l.dtype);
	free(l.wants);
	free(l.value);
	free(l.converted);
	free(l.norm);
	return rc;
}
