/*
 * split.c: see split.h.  The nodes of the whole plan are visited once, in order.  Of each value is known
 * how the ranks have it: whole, divided by columns, or as a sum that is not added up yet; an op that reads
 * it otherwise has it joined first, so a sum is added once for all of its readers.  Whether the outputs of a
 * product are divided is decided by the op that reads them.  A residual belongs to a sum's first part, or,
 * if it is such a sum itself, to each part its own.
 */
#include "runtime/split_private.h"

#include "base/dtype.h"
#include "ops/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int refuse(struct ig_split *s, const struct ig_plan_node *n, const char *why)
{
	return ig_fail(s->err, -ENOTSUP, "op %s can't be divided over %u devices: %s", n->op->name,
		       s->n, why);
}

/* ---- shares ------------------------------------------------------------------------------ */

/* A rank's part of n columns that are divided in units. */
static bool divide_by(int64_t n, int64_t unit, uint32_t n_ranks, uint32_t rank,
		      struct ig_split_range *out)
{
	const int64_t units = n / unit, first = units * rank / n_ranks;

	if (n % unit || units < n_ranks)
		return false;
	out->first = first * unit;
	out->n = (units * (rank + 1) / n_ranks - first) * unit;
	return true;
}

/* The same for columns by which rows of this type are divided: equal parts if blocks and vectors allow it. */
static bool divide(int64_t n, uint32_t dtype, uint32_t n_ranks, uint32_t rank,
		   struct ig_split_range *out)
{
	static const int64_t units[] = { 64, 32, 8 };
	const struct ig_quant_type *q = ig_quant_type(dtype);
	const int64_t block = q ? q->values : 1, vector = block < 32 ? 32 : block;

	if (n % n_ranks == 0 && n / n_ranks % vector == 0)
		return divide_by(n, n / n_ranks, n_ranks, rank, out);
	if (block > 1)
		return divide_by(n, block, n_ranks, rank, out);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (divide_by(n, units[i], n_ranks, rank, out))
			return true;
	return false;
}

/* A rank's heads, and those of keys and values that they read. */
struct heads {
	uint32_t first, n, first_kv, n_kv;
};

static int heads_of(struct ig_split *s, const struct ig_plan_node *n, uint32_t n_heads,
		    uint32_t n_kv_heads, uint32_t rank, struct heads *out)
{
	char why[96];

	if (n_heads % s->n || !n_kv_heads || (n_kv_heads % s->n && s->n % n_kv_heads)) {
		snprintf(why, sizeof why, "it has %u heads, and %u of keys and values", n_heads,
			 n_kv_heads);
		return refuse(s, n, why);
	}
	out->n = n_heads / s->n;
	out->first = out->n * rank;
	out->n_kv = n_kv_heads < s->n ? 1 : n_kv_heads / s->n;
	out->first_kv = (uint32_t)((uint64_t)n_kv_heads * rank / s->n);
	return 0;
}

static void add_range(struct ig_split_share *to, int64_t first, int64_t n)
{
	if (n)
		to->range[to->n++] = (struct ig_split_range){ first, n };
}

/* q | k | v | rest, as rope_kv reads them. */
static int share_of_rope(struct ig_split *s, const struct ig_plan_node *n, uint32_t rank,
			 struct ig_split_share *out)
{
	const struct ig_rope_kv_params *p = n->params;
	const int64_t dim = p->head_dim, q = p->q_stride ? p->q_stride : dim;
	const bool has_k = !(p->flags & IG_ROPE_KV_Q_ONLY),
		   has_v = has_k && !(p->flags & IG_ROPE_KV_NO_V);
	int64_t at = q * p->n_heads;
	struct heads h = { 0 };
	int rc = heads_of(s, n, p->n_heads, p->n_kv_heads, rank, &h);

	if (rc)
		return rc;
	if (p->n_rest % p->n_heads)
		return refuse(s, n, "columns behind q, k and v that are not of heads");
	*out = (struct ig_split_share){ 0 };
	add_range(out, h.first * q, h.n * q);
	for (int i = 0; i < has_k + has_v; i++, at += dim * p->n_kv_heads)
		add_range(out, at + h.first_kv * dim, h.n_kv * dim);
	const int64_t rest = p->n_rest / p->n_heads;
	add_range(out, at + h.first * rest, h.n * rest);
	return 0;
}

/* The columns that attention reads as its gate. */
static int share_of_gate(struct ig_split *s, const struct ig_plan_node *n, uint32_t rank,
			 struct ig_split_share *out)
{
	const struct ig_attention_params *p = n->params;
	struct heads h = { 0 };
	int rc = heads_of(s, n, p->n_heads, p->n_kv_heads, rank, &h);

	*out = (struct ig_split_share){ 0 };
	if (!rc)
		add_range(out, p->gate_first + (int64_t)h.first * p->gate_stride,
			  (int64_t)h.n * p->gate_stride);
	return rc;
}

/* Which columns of this value a rank is to compute, by who reads it; n 0: all of them. */
static int wanted(struct ig_split *s, ig_value v, uint32_t rank, struct ig_split_share *out)
{
	const struct ig_plan *p = s->whole;
	const struct ig_plan_node *product = NULL, *gate = NULL;
	uint32_t n_readers = 0;

	*out = (struct ig_split_share){ 0 };
	for (int32_t i = p->values[v].first_node + 1; i <= p->values[v].last_node; i++) {
		const struct ig_plan_node *n = &p->nodes[i];
		for (uint32_t j = 0; j < n->n_in; j++) {
			if (n->in[j] != v)
				continue;
			n_readers++;
			if (n->op->split == IG_SPLIT_ROPE && j == 0)
				return share_of_rope(s, n, rank, out);
			if (n->op->split == IG_SPLIT_HEADS && j == 1)
				gate = n;
			if ((n->op->split == IG_SPLIT_PRODUCT ||
			     n->op->split == IG_SPLIT_EXPERTS_SUM) &&
			    j == 0)
				product = n;
		}
	}
	if (gate)
		return share_of_gate(s, gate, rank, out);
	if (n_readers != 1 || !product)
		return 0;
	const struct ig_shape *w = &p->weights[product->weight[0]].shape;
	if (divide(w->n_cols, w->dtype, s->n, rank, &out->range[0]))
		out->n = 1;
	return 0;
}

/* ---- joining ----------------------------------------------------------------------------- */

static int join(struct ig_split *s, const struct ig_op *op, const ig_value *parts, ig_value *out)
{
	const struct ig_sum_params params = { .struct_size =
						      sizeof params }; /* concat has none, too */
	ig_value results[IG_MAX_OUT], in[IG_MAX_IN];
	uint32_t next = 0, n_in;

	for (in[0] = parts[next++]; next < s->n; in[0] = results[0]) {
		for (n_in = 1; n_in < IG_MAX_IN && next < s->n; n_in++)
			in[n_in] = parts[next++];
		int rc = ig_split_node(s, IG_ALL_RANKS, op, &params, in, n_in, NULL, 0, results);
		if (rc)
			return rc;
	}
	*out = in[0];
	return 0;
}

/* Have the value whole on all ranks. */
static int make_whole(struct ig_split *s, const struct ig_plan_node *n, ig_value v, ig_value *out)
{
	struct ig_split_value *value = &s->values[v];
	ig_value whole;
	int rc;

	if (value->kind != IG_SPLIT_WHOLE) {
		for (uint32_t r = 0; value->kind == IG_SPLIT_DIVIDED && r < s->n; r++)
			if (value->share[r].n != 1)
				return refuse(s, n, "it reads columns that are divided by heads");
		rc = join(s, value->kind == IG_SPLIT_SUMMED ? &ig_op_sum : &ig_op_concat,
			  value->value, &whole);
		if (rc)
			return rc;
		value->kind = IG_SPLIT_WHOLE;
		value->value[0] = whole;
	}
	*out = value->value[0];
	return 0;
}

/* ---- ops --------------------------------------------------------------------------------- */

static void set_whole(struct ig_split *s, ig_value v, ig_value to)
{
	s->values[v].kind = IG_SPLIT_WHOLE;
	s->values[v].value[0] = to;
}

static int whole_weights(struct ig_split *s, const struct ig_plan_node *n, uint32_t n_weights,
			 ig_weight *out)
{
	int rc = 0;

	for (uint32_t i = 0; i < n_weights && !rc; i++) {
		out[i] = IG_NONE;
		if (n->weight[i] != IG_NONE)
			rc = ig_split_weight(s, n->weight[i], &out[i]);
	}
	return rc;
}

static int copy_op(struct ig_split *s, const struct ig_plan_node *n)
{
	ig_value in[IG_MAX_IN], out[IG_MAX_OUT];
	ig_weight w[IG_MAX_WEIGHTS];
	int rc = whole_weights(s, n, n->n_weights, w);

	for (uint32_t i = 0; i < n->n_in && !rc; i++)
		rc = make_whole(s, n, n->in[i], &in[i]);
	if (!rc)
		rc = ig_split_node(s, IG_ALL_RANKS, n->op, n->params, in, n->n_in, w, n->n_weights,
				   out);
	for (uint32_t i = 0; i < n->n_out && !rc; i++)
		set_whole(s, n->out[i], out[i]);
	return rc;
}

/* The weights that compute a share of the outputs of weights side by side, then their biases. */
static int slice_outputs(struct ig_split *s, const struct ig_plan_node *n, uint32_t n_weights,
			 bool bias, uint32_t rank, const struct ig_split_share *share, ig_weight *w)
{
	for (uint32_t i = 0; i < share->n; i++) {
		struct ig_split_range r = share->range[i];
		uint32_t j = 0;
		for (; j < n_weights && r.first >= s->whole->weights[n->weight[j]].shape.n_rows;
		     j++)
			r.first -= s->whole->weights[n->weight[j]].shape.n_rows;
		if (j == n_weights || r.first + r.n > s->whole->weights[n->weight[j]].shape.n_rows)
			return refuse(s, n, "a part of its columns is of two tensors");
		const struct ig_shape *shape = &s->whole->weights[n->weight[j]].shape;
		int rc = ig_split_slice(s, n->weight[j], rank, r, 0,
					(struct ig_split_range){ 0, shape->n_cols }, &w[i]);
		if (!rc && bias)
			rc = ig_split_slice(s, n->weight[n_weights + j], rank,
					    (struct ig_split_range){ 0, 1 }, 0, r,
					    &w[share->n + i]);
		if (rc)
			return rc;
	}
	return 0;
}

static int divide_outputs(struct ig_split *s, const struct ig_plan_node *n)
{
	struct ig_split_value *to = &s->values[n->out[0]];
	struct ig_linear_params p;
	ig_value in, out[IG_MAX_OUT];
	int rc = make_whole(s, n, n->in[0], &in);

	memcpy(&p, n->params, sizeof p);
	to->kind = IG_SPLIT_DIVIDED;
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		struct ig_linear_params own = p;
		ig_weight w[IG_MAX_WEIGHTS];
		if ((rc = wanted(s, n->out[0], r, &to->share[r])) ||
		    (rc = slice_outputs(s, n, p.n_weights, p.bias, r, &to->share[r], w)))
			break;
		own.n_weights = to->share[r].n;
		rc = ig_split_node(s, r, n->op, &own, &in, 1, w, own.n_weights * (1 + own.bias),
				   out);
		to->value[r] = out[0];
	}
	return rc;
}

/* The residual of a sum's part: the sum's own part, if it is one itself, or, of the first, the whole. */
static int residual_of(struct ig_split *s, const struct ig_plan_node *n, ig_value v, uint32_t rank,
		       ig_value *out)
{
	*out = IG_NONE;
	if (s->values[v].kind == IG_SPLIT_SUMMED)
		*out = s->values[v].value[rank];
	else if (rank == 0)
		return make_whole(s, n, v, out);
	return 0;
}

static int divide_inputs(struct ig_split *s, const struct ig_plan_node *n)
{
	const struct ig_split_value *x = &s->values[n->in[0]];
	struct ig_split_value *to = &s->values[n->out[0]];
	struct ig_linear_params p;
	int rc = 0;

	memcpy(&p, n->params, sizeof p);
	if (p.act != IG_ACT_NONE)
		return refuse(s, n, "it has an activation behind its sum");
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		const struct ig_split_range cols = x->share[r].range[0];
		ig_value in[2] = { x->value[r], IG_NONE }, out[IG_MAX_OUT];
		struct ig_linear_params own = p;
		ig_weight w[IG_MAX_WEIGHTS];
		if (x->share[r].n != 1)
			return refuse(s, n, "it reads columns that are divided by heads");
		for (uint32_t i = 0; i < p.n_weights && !rc; i++)
			rc = ig_split_slice(
				s, n->weight[i], r,
				(struct ig_split_range){
					0, s->whole->weights[n->weight[i]].shape.n_rows },
				0, cols, &w[i]);
		for (uint32_t i = 0; p.bias && r == 0 && i < p.n_weights && !rc; i++)
			rc = ig_split_weight(s, n->weight[p.n_weights + i], &w[p.n_weights + i]);
		if (!rc && n->n_in > 1)
			rc = residual_of(s, n, n->in[1], r, &in[1]);
		if (rc)
			break;
		own.bias = r == 0 && p.bias;
		rc = ig_split_node(s, r, n->op, &own, in, in[1] == IG_NONE ? 1 : 2, w,
				   own.n_weights * (1 + own.bias), out);
		to->value[r] = out[0];
	}
	to->kind = IG_SPLIT_SUMMED;
	return rc;
}

static int divide_product(struct ig_split *s, const struct ig_plan_node *n)
{
	struct ig_split_share share;

	if (s->values[n->in[0]].kind == IG_SPLIT_DIVIDED)
		return divide_inputs(s, n);
	int rc = wanted(s, n->out[0], 0, &share);
	if (rc)
		return rc;
	return share.n && n->n_in == 1 ? divide_outputs(s, n) : copy_op(s, n);
}

/* Gates and their partners, whose results a product reads. */
static int divide_pairs(struct ig_split *s, const struct ig_plan_node *n)
{
	struct ig_split_value *to = &s->values[n->out[0]];
	const struct ig_shape *shape = &s->whole->weights[n->weight[0]].shape;
	ig_value in, out[IG_MAX_OUT];
	int rc = make_whole(s, n, n->in[0], &in);

	for (uint32_t r = 0; r < s->n && !rc; r++) {
		ig_weight w[IG_MAX_WEIGHTS];
		if ((rc = wanted(s, n->out[0], r, &to->share[r])))
			break;
		if (!to->share[r].n)
			return r ? refuse(s, n, "some would have no part of its columns") :
				   copy_op(s, n);
		for (uint32_t i = 0; i < n->n_weights && !rc; i++)
			rc = i < 2 ? ig_split_slice(s, n->weight[i], r, to->share[r].range[0], 0,
						    (struct ig_split_range){ 0, shape->n_cols },
						    &w[i]) :
				     ig_split_slice(s, n->weight[i], r,
						    (struct ig_split_range){ 0, 1 }, 0,
						    to->share[r].range[0], &w[i]);
		if (!rc)
			rc = ig_split_node(s, r, n->op, n->params, &in, 1, w, n->n_weights, out);
		to->value[r] = out[0];
	}
	to->kind = IG_SPLIT_DIVIDED;
	return rc;
}

static int divide_logits(struct ig_split *s, const struct ig_plan_node *n)
{
	struct ig_split_value *to = &s->values[n->out[0]];
	const struct ig_shape *shape = &s->whole->weights[n->weight[0]].shape;
	ig_value in, out[IG_MAX_OUT];
	int rc = make_whole(s, n, n->in[0], &in);

	for (uint32_t r = 0; r < s->n && !rc; r++) {
		struct ig_split_range *rows = &to->share[r].range[0];
		ig_weight w;
		to->share[r].n = 1;
		if (!divide_by(shape->n_rows, 32, s->n, r, rows) &&
		    !divide_by(shape->n_rows, 1, s->n, r, rows))
			return refuse(s, n, "there are fewer tokens than devices");
		rc = ig_split_slice(s, n->weight[0], r, *rows, 0,
				    (struct ig_split_range){ 0, shape->n_cols }, &w);
		if (!rc)
			rc = ig_split_node(s, r, n->op, n->params, &in, 1, &w, 1, out);
		to->value[r] = out[0];
	}
	to->kind = IG_SPLIT_DIVIDED;
	return rc;
}

/* The layer of a rank in its own cache, or in that of all ranks. */
static uint32_t layer_of(const struct ig_split *s, uint32_t layer, uint32_t rank)
{
	return s->rank == IG_ALL_RANKS ? layer * s->n + rank : layer;
}

static int divide_rope(struct ig_split *s, const struct ig_plan_node *n)
{
	const struct ig_split_value *x = &s->values[n->in[0]];
	struct ig_split_value *to = &s->values[n->out[0]];
	struct ig_rope_kv_params p;
	ig_value in[IG_MAX_IN], out[IG_MAX_OUT];
	ig_weight w[IG_MAX_WEIGHTS];
	int rc = whole_weights(s, n, n->n_weights, w);

	memcpy(&p, n->params, sizeof p);
	for (uint32_t i = 0; i < n->n_weights; i++)
		if (n->weight[i] != IG_NONE &&
		    s->whole->weights[n->weight[i]].shape.n_cols != p.head_dim)
			return refuse(s, n, "it has a norm over all heads");
	if (x->kind != IG_SPLIT_DIVIDED)
		return refuse(s, n, "what it reads is not divided by heads");
	for (uint32_t i = 1; i < n->n_in && !rc; i++)
		rc = make_whole(s, n, n->in[i], &in[i]);
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		struct ig_rope_kv_params own = p;
		struct heads h = { 0 };
		if ((rc = heads_of(s, n, p.n_heads, p.n_kv_heads, r, &h)))
			break;
		in[0] = x->value[r];
		own.n_heads = h.n;
		own.n_kv_heads = h.n_kv;
		own.n_rest = p.n_rest / p.n_heads * h.n;
		own.layer = layer_of(s, p.layer, r);
		rc = ig_split_node(s, r, n->op, &own, in, n->n_in, w, n->n_weights, out);
		to->value[r] = out[0];
		to->share[r] = (struct ig_split_share){ 0 };
		add_range(&to->share[r], (int64_t)h.first * p.head_dim, (int64_t)h.n * p.head_dim);
	}
	to->kind = IG_SPLIT_DIVIDED;
	return rc;
}

/* Where a rank has a column of the whole value. */
static uint32_t local_column(const struct ig_split_share *s, int64_t column)
{
	int64_t at = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		if (column >= s->range[i].first && column < s->range[i].first + s->range[i].n)
			return (uint32_t)(at + column - s->range[i].first);
		at += s->range[i].n;
	}
	return UINT32_MAX; /* refused by the op's check */
}

static int divide_heads(struct ig_split *s, const struct ig_plan_node *n)
{
	struct ig_split_value *to = &s->values[n->out[0]];
	struct ig_attention_params p;
	int rc = 0;

	memcpy(&p, n->params, sizeof p);
	for (uint32_t i = 0; i < n->n_in; i++)
		if (s->values[n->in[i]].kind != IG_SPLIT_DIVIDED)
			return refuse(s, n, "what it reads is not divided by heads");
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		const int64_t dim = p.v_dim ? p.v_dim : p.head_dim;
		struct ig_attention_params own = p;
		ig_value in[IG_MAX_IN], out[IG_MAX_OUT];
		ig_weight w = IG_NONE;
		struct heads h = { 0 };
		if ((rc = heads_of(s, n, p.n_heads, p.n_kv_heads, r, &h)))
			break;
		for (uint32_t i = 0; i < n->n_in; i++)
			in[i] = s->values[n->in[i]].value[r];
		own.n_heads = h.n;
		own.n_kv_heads = h.n_kv;
		own.layer = layer_of(s, p.layer, r);
		if (n->n_in > 1)
			own.gate_first =
				local_column(&s->values[n->in[1]].share[r],
					     p.gate_first + (int64_t)h.first * p.gate_stride);
		if (n->n_weights && n->weight[0] != IG_NONE)
			rc = ig_split_slice(s, n->weight[0], r, (struct ig_split_range){ 0, 1 }, 0,
					    (struct ig_split_range){ h.first, h.n }, &w);
		if (!rc)
			rc = ig_split_node(s, r, n->op, &own, in, n->n_in, &w, n->n_weights, out);
		to->value[r] = out[0];
		to->share[r] = (struct ig_split_share){ 0 };
		add_range(&to->share[r], h.first * dim, h.n * dim);
	}
	to->kind = IG_SPLIT_DIVIDED;
	return rc;
}

/* ---- experts ----------------------------------------------------------------------------- */

/* Of every expert's matrices the outputs that the next product's part reads. */
static int divide_experts(struct ig_split *s, const struct ig_plan_node *n)
{
	const struct ig_moe_glu_params *p = n->params;
	struct ig_split_value *to = &s->values[n->out[0]];
	const uint32_t n_matrices = p->form == IG_MOE_PAIR ? 2 : 1;
	const int64_t f = s->whole->values[n->out[0]].shape.n_cols / p->top_k;
	ig_value in[2], out[IG_MAX_OUT];
	int rc = make_whole(s, n, n->in[0], &in[0]);

	if (!rc)
		rc = make_whole(s, n, n->in[1], &in[1]);
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		ig_weight w[IG_MAX_WEIGHTS];
		if ((rc = wanted(s, n->out[0], r, &to->share[r])))
			break;
		if (!to->share[r].n)
			return refuse(s, n, "its experts are too small");
		for (uint32_t i = 0; i < n->n_weights && !rc; i++) {
			const struct ig_shape *shape = &s->whole->weights[n->weight[i]].shape;
			rc = i < n_matrices ?
				     ig_split_slice(s, n->weight[i], r, to->share[r].range[0], f,
						    (struct ig_split_range){ 0, shape->n_cols },
						    &w[i]) :
				     ig_split_slice(s, n->weight[i], r,
						    (struct ig_split_range){ 0, shape->n_rows }, 0,
						    to->share[r].range[0], &w[i]);
		}
		if (!rc)
			rc = ig_split_node(s, r, n->op, p, in, 2, w, n->n_weights, out);
		to->value[r] = out[0];
	}
	to->kind = IG_SPLIT_DIVIDED;
	return rc;
}

static int divide_combine(struct ig_split *s, const struct ig_plan_node *n)
{
	const struct ig_split_value *x = &s->values[n->in[0]];
	struct ig_split_value *to = &s->values[n->out[0]];
	struct ig_moe_combine_params p;
	ig_value in[IG_MAX_IN], out[IG_MAX_OUT];
	int rc;

	memcpy(&p, n->params, sizeof p);
	if (p.shared)
		return refuse(s, n, "a shared expert has a weight of its own");
	if (x->kind != IG_SPLIT_DIVIDED)
		return refuse(s, n, "its experts are not divided");
	rc = make_whole(s, n, n->in[1], &in[1]);
	for (uint32_t r = 0; r < s->n && !rc; r++) {
		struct ig_moe_combine_params own = p;
		ig_weight w[2];
		in[0] = x->value[r];
		in[2] = IG_NONE;
		rc = ig_split_slice(
			s, n->weight[0], r,
			(struct ig_split_range){ 0, s->whole->weights[n->weight[0]].shape.n_rows },
			0, x->share[r].range[0], &w[0]);
		own.bias = r == 0 ? p.bias : 0;
		if (!rc && own.bias)
			rc = ig_split_weight(s, n->weight[1], &w[1]);
		if (!rc && n->n_in > 2)
			rc = residual_of(s, n, n->in[2], r, &in[2]);
		if (!rc)
			rc = ig_split_node(s, r, n->op, &own, in, in[2] == IG_NONE ? 2 : 3, w,
					   1 + (own.bias != 0), out);
		to->value[r] = out[0];
	}
	to->kind = IG_SPLIT_SUMMED;
	return rc;
}

/* ---- the plan ---------------------------------------------------------------------------- */

static int divide_node(struct ig_split *s, const struct ig_plan_node *n)
{
	switch (n->op->split) {
	case IG_SPLIT_COPY: return copy_op(s, n);
	case IG_SPLIT_PRODUCT: return divide_product(s, n);
	case IG_SPLIT_PAIRS: return divide_pairs(s, n);
	case IG_SPLIT_OUTPUTS: return divide_logits(s, n);
	case IG_SPLIT_ROPE: return divide_rope(s, n);
	case IG_SPLIT_HEADS: return divide_heads(s, n);
	case IG_SPLIT_EXPERTS: return divide_experts(s, n);
	case IG_SPLIT_EXPERTS_SUM: return divide_combine(s, n);
	default: return refuse(s, n, "it is not known how");
	}
}

int ig_split_info(const struct ig_model_info *whole, uint32_t n_ranks, uint32_t rank,
		  struct ig_model_info *out, struct ig_error *err)
{
	*out = *whole;
	for (uint32_t g = 0; g < out->n_groups && n_ranks > 1; g++) {
		struct ig_cache_group *c = &out->groups[g];
		if (c->kind != IG_CACHE_KV)
			return ig_fail(err, -ENOTSUP,
				       "a cache of latent keys or of states can't be divided over "
				       "%u devices",
				       n_ranks);
		if (c->n_kv_heads % n_ranks && n_ranks % c->n_kv_heads)
			return ig_fail(
				err, -ENOTSUP,
				"%u heads of keys and values can't be divided over %u devices",
				c->n_kv_heads, n_ranks);
		c->n_kv_heads = c->n_kv_heads < n_ranks ? 1 : c->n_kv_heads / n_ranks;
		if (rank == IG_ALL_RANKS)
			c->n_layers *= n_ranks;
	}
	return 0;
}

static int check(struct ig_split *s)
{
	const struct ig_plan *p = s->whole;

	if (s->n < 1 || s->n > IG_MAX_RANKS || (s->rank != IG_ALL_RANKS && s->rank >= s->n))
		return ig_fail(s->err, -EINVAL, "rank %u of %u; at most %d are possible", s->rank,
			       s->n, IG_MAX_RANKS);
	if (p->n_adapters)
		return ig_fail(s->err, -ENOTSUP,
			       "a model with adapters can't be divided over %u devices", s->n);
	if (p->info.result != IG_RESULT_TOKENS)
		return ig_fail(s->err, -ENOTSUP,
			       "a model of embeddings can't be divided over %u devices", s->n);
	return 0;
}

int ig_plan_split(const struct ig_plan *whole, uint32_t n_ranks, uint32_t rank,
		  struct ig_plan **out, struct ig_error *err)
{
	struct ig_split s = { .whole = whole, .n = n_ranks, .rank = rank, .err = err };
	int rc = check(&s);

	*out = NULL;
	if (rc)
		return rc;
	s.to = calloc(1, sizeof *s.to);
	s.values = calloc((size_t)whole->n_values + 1, sizeof *s.values);
	s.weights = malloc(((size_t)whole->n_weights + 1) * sizeof *s.weights);
	if (!s.to || !s.values || !s.weights) {
		rc = ig_split_no_memory(&s);
		goto done;
	}
	s.to->arch = whole->arch;
	s.to->file = whole->file;
	s.to->n_results = whole->n_results;
	s.to->n_ranks = n_ranks;
	s.to->rank = rank;
	for (uint32_t i = 0; i < whole->n_weights; i++)
		s.weights[i] = IG_NONE;
	rc = ig_split_info(&whole->info, n_ranks, rank, &s.to->info, err);
	for (uint32_t i = 0; i < whole->n_nodes && !rc; i++)
		rc = divide_node(&s, &whole->nodes[i]);
	if (!rc) {
		*out = s.to;
		s.to = NULL;
	}
done:
	ig_plan_destroy(s.to);
	free(s.values);
	free(s.weights);
	return rc;
}
