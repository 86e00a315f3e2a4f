/*
 * stages.c: see stages.h.  A cut may be before the first node that reads weights of a layer, by their names
 * (blk.N.).  Which values pass there follows from who reads them; what only depends on the step, as RoPE's table,
 * each stage computes by itself.
 */
#include "runtime/stages.h"
#include "ops/ops.h"
#include "runtime/split_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a stage may begin. */
struct cut {
	uint32_t node;
	uint64_t n_bytes; /* of the weights of all nodes before */
};

struct stages {
	const struct ig_plan *whole;
	uint32_t n;
	struct cut *cuts; /* [n_cuts] those that are possible */
	uint32_t n_cuts;
	uint64_t n_bytes;		   /* of all nodes' weights */
	uint32_t first[IG_MAX_STAGES + 1]; /* node of each stage; the last one: n_nodes */
	char why[160];			   /* the last cut that is not possible */
	struct ig_error *err;
};

/* ---- the layers of the cache ------------------------------------------------------------- */

/* The ops with a layer of a cache group; the layer's number follows the group's. */
static const struct {
	const char *op;
	size_t group;
} cached[] = {
	{ "rope_kv", offsetof(struct ig_rope_kv_params, group) },
	{ "rope_latent", offsetof(struct ig_rope_latent_params, group) },
	{ "attention", offsetof(struct ig_attention_params, group) },
	{ "conv1d", offsetof(struct ig_conv1d_params, group) },
	{ "gated_delta", offsetof(struct ig_gated_delta_params, group) },
	{ "selective_scan", offsetof(struct ig_selective_scan_params, group) },
};

/* Where the op's parameters have the group, then the layer; 0: it has none. */
static size_t cache_of(const struct ig_op *op)
{
	for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
		if (!strcmp(op->name, cached[i].op))
			return cached[i].group;
	return 0;
}

struct layer {
	uint32_t group, number;
};

static bool layer_of(const struct ig_plan_node *n, struct layer *out)
{
	const size_t at = cache_of(n->op);

	if (at)
		memcpy(out, (const char *)n->params + at, sizeof *out);
	return at != 0;
}

/* Whether one of the nodes first … last - 1 has this layer. */
static bool has_layer(const struct ig_plan *p, uint32_t first, uint32_t last, struct layer l)
{
	struct layer other;

	for (uint32_t i = first; i < last; i++)
		if (layer_of(&p->nodes[i], &other) && other.group == l.group &&
		    other.number == l.number)
			return true;
	return false;
}

/* How many layers of the group nodes first … last - 1 have, of those that come before the node `until`. */
static uint32_t count_layers(const struct ig_plan *p, uint32_t first, uint32_t until,
			     uint32_t group)
{
	struct layer l;
	uint32_t n = 0;

	for (uint32_t i = first; i < until; i++)
		n += layer_of(&p->nodes[i], &l) && l.group == group && !has_layer(p, first, i, l);
	return n;
}

/* Every layer of the cache must be known by its ops. */
static int check_layers(struct stages *s)
{
	const struct ig_plan *p = s->whole;

	for (uint32_t i = 0; i < p->n_nodes; i++) {
		const struct ig_op *op = p->nodes[i].op;
		if (op->flags & (IG_OP_READS_KV | IG_OP_WRITES_KV) && !cache_of(op))
			return ig_fail(s->err, -ENOTSUP,
				       "it can't be cut between layers: which layer's cache the "
				       "op %s has is not known",
				       op->name);
	}
	for (uint32_t g = 0; g < p->info.n_groups; g++) {
		uint32_t n = count_layers(p, 0, p->n_nodes, g);
		if (n != p->info.groups[g].n_layers)
			return ig_fail(s->err, -ENOTSUP,
				       "it can't be cut between layers: its cache group %u has "
				       "%u layers, of which ops use %u",
				       g, p->info.groups[g].n_layers, n);
	}
	return 0;
}

/* ---- where it can be cut ----------------------------------------------------------------- */

/* 1 + the number of the layer whose weights the node reads; 0: none. */
static uint32_t layer_by_name(const struct ig_plan *p, const struct ig_plan_node *n)
{
	uint32_t most = 0, number;

	for (uint32_t i = 0; i < n->n_weights; i++)
		if (n->weight[i] != IG_NONE &&
		    sscanf(p->weights[n->weight[i]].name, "blk.%u.", &number) == 1 &&
		    number < UINT32_MAX && number + 1 > most)
			most = number + 1;
	return most;
}

/* Whether the node's results depend on nothing but the step, and each stage can compute them: it reads no
 * value and no matrix. */
static bool is_of_step(const struct ig_plan *p, const struct ig_plan_node *n)
{
	bool is = n->n_in == 0;

	for (uint32_t i = 0; i < n->n_weights; i++)
		is = is && (n->weight[i] == IG_NONE || p->weights[n->weight[i]].shape.n_rows == 1);
	return is;
}

/* The values that nodes from `at` on read of those before; how many, or IG_MAX_STAGE_VALUES + 1. */
static uint32_t passing(const struct ig_plan *p, uint32_t at, ig_value out[IG_MAX_STAGE_VALUES])
{
	uint32_t n = 0;

	for (uint32_t v = 0; v < p->n_values && n <= IG_MAX_STAGE_VALUES; v++) {
		const struct ig_plan_value *value = &p->values[v];
		if (value->first_node >= (int32_t)at || value->last_node < (int32_t)at ||
		    is_of_step(p, &p->nodes[value->first_node]))
			continue;
		if (n < IG_MAX_STAGE_VALUES)
			out[n] = (ig_value)v;
		n++;
	}
	return n;
}

static bool can_cut(struct stages *s, uint32_t at)
{
	const struct ig_plan *p = s->whole;
	ig_value values[IG_MAX_STAGE_VALUES];
	const uint32_t n = passing(p, at, values);
	struct layer l;

	if (n > IG_MAX_STAGE_VALUES) {
		snprintf(s->why, sizeof s->why, "more than %d values pass there",
			 IG_MAX_STAGE_VALUES);
		return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct ig_shape *shape = &p->values[values[i]].shape;
		if (shape->row_class != IG_ROWS_TOKENS || shape->dtype != IG_F32) {
			snprintf(s->why, sizeof s->why, "not only rows of float32 pass there");
			return false;
		}
	}
	for (uint32_t i = at; i < p->n_nodes; i++)
		if (layer_of(&p->nodes[i], &l) && has_layer(p, 0, at, l)) {
			snprintf(s->why, sizeof s->why,
				 "later layers read the cache of layer %u of group %u", l.number,
				 l.group);
			return false;
		}
	return true;
}

/* The bytes of weights that a step reads for the node. */
static uint64_t bytes_of(const struct ig_plan *p, const struct ig_plan_node *n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n->n_weights && n->op != &ig_op_embed; i++)
		sum += n->weight[i] == IG_NONE ? 0 : p->weights[n->weight[i]].n_bytes;
	return sum;
}

static int find_cuts(struct stages *s)
{
	const struct ig_plan *p = s->whole;
	uint32_t layer = 0;

	s->cuts = calloc((size_t)p->n_nodes + 1, sizeof *s->cuts);
	if (!s->cuts)
		return ig_fail(s->err, -ENOMEM, "no memory for a plan that is cut");
	snprintf(s->why, sizeof s->why, "it has no more layers");
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		uint32_t of = layer_by_name(p, &p->nodes[i]);
		if (of > layer) {
			if (layer && can_cut(s, i))
				s->cuts[s->n_cuts++] = (struct cut){ i, s->n_bytes };
			layer = of;
		}
		s->n_bytes += bytes_of(p, &p->nodes[i]);
	}
	if (s->n_cuts + 1 < s->n)
		return ig_fail(s->err, -ENOTSUP,
			       "it can't be cut between layers into %u stages, only into %u: %s",
			       s->n, s->n_cuts + 1, s->why);
	return 0;
}

/* Of the possible cuts those next to equal parts. */
static void choose_cuts(struct stages *s)
{
	uint32_t at = 0;

	for (uint32_t stage = 1; stage < s->n; stage++) {
		const double want = (double)s->n_bytes * stage / s->n;
		uint32_t last = s->n_cuts - (s->n - stage); /* so many must be left for the rest */
		while (at < last &&
		       (double)s->cuts[at].n_bytes + (double)s->cuts[at + 1].n_bytes < 2 * want)
			at++;
		s->first[stage] = s->cuts[at++].node;
	}
	s->first[s->n] = s->whole->n_nodes;
}

/* ---- a stage's plan ---------------------------------------------------------------------- */

static uint32_t width_of(const struct ig_plan *p, uint32_t n, const ig_value *values)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += p->values[values[i]].shape.n_cols;
	return (uint32_t)sum;
}

static int add_inputs(struct ig_split *b, ig_value *map, uint32_t first)
{
	const struct ig_plan *p = b->whole;
	ig_value values[IG_MAX_STAGE_VALUES], out[IG_MAX_OUT];
	const uint32_t n = first ? passing(p, first, values) : 0;
	struct ig_stage_in_params own = { .struct_size = sizeof own };
	int rc = 0;

	own.width = b->to->width_in = width_of(p, n, values);
	for (uint32_t i = 0; i < n && !rc; i++, own.first += own.n) {
		own.n = (uint32_t)p->values[values[i]].shape.n_cols;
		rc = ig_split_node(b, IG_ALL_RANKS, &ig_op_stage_in, &own, NULL, 0, NULL, 0, out);
		map[values[i]] = out[0];
	}
	return rc;
}

static int add_outputs(struct ig_split *b, const ig_value *map, uint32_t last)
{
	const struct ig_plan *p = b->whole;
	ig_value values[IG_MAX_STAGE_VALUES], out[IG_MAX_OUT];
	const uint32_t n = last < p->n_nodes ? passing(p, last, values) : 0;
	struct ig_stage_out_params own = { .struct_size = sizeof own };
	int rc = 0;

	own.width = b->to->width_out = width_of(p, n, values);
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = ig_split_node(b, IG_ALL_RANKS, &ig_op_stage_out, &own, &map[values[i]], 1,
				   NULL, 0, out);
		own.first += (uint32_t)p->values[values[i]].shape.n_cols;
	}
	return rc;
}

/* A node as it is, but for the number of its layer in this stage's cache. */
static int copy_node(struct ig_split *b, ig_value *map, uint32_t first, uint32_t i)
{
	const struct ig_plan *p = b->whole;
	const struct ig_plan_node *n = &p->nodes[i];
	ig_weight weights[IG_MAX_WEIGHTS];
	ig_value in[IG_MAX_IN], out[IG_MAX_OUT];
	struct layer l;
	int rc = 0;

	for (uint32_t k = 0; k < n->n_in; k++)
		in[k] = map[n->in[k]];
	for (uint32_t k = 0; k < n->n_weights && !rc; k++) {
		weights[k] = IG_NONE;
		if (n->weight[k] != IG_NONE)
			rc = ig_split_weight(b, n->weight[k], &weights[k]);
	}
	void *params = rc ? NULL : malloc(n->op->params_size);
	if (!params)
		return rc ? rc : ig_split_no_memory(b);
	memcpy(params, n->params, n->op->params_size);
	if (layer_of(n, &l)) {
		uint32_t k = first;
		struct layer other;
		while (!layer_of(&p->nodes[k], &other) || other.group != l.group ||
		       other.number != l.number)
			k++; /* at most to this node */
		l.number = count_layers(p, first, k, l.group);
		memcpy((char *)params + cache_of(n->op), &l, sizeof l);
	}
	rc = ig_split_node(b, IG_ALL_RANKS, n->op, params, in, n->n_in, weights, n->n_weights, out);
	free(params);
	for (uint32_t k = 0; k < n->n_out && !rc; k++)
		map[n->out[k]] = out[k];
	return rc;
}

/* One layout for all stages. */
static void fill_info(const struct stages *s, struct ig_model_info *out)
{
	*out = s->whole->info;
	for (uint32_t g = 0; g < out->n_groups; g++) {
		uint32_t most = 1;
		for (uint32_t i = 0; i < s->n; i++) {
			uint32_t n = count_layers(s->whole, s->first[i], s->first[i + 1], g);
			most = n > most ? n : most;
		}
		out->groups[g].n_layers = most;
	}
}

static int build(struct stages *s, uint32_t stage, struct ig_plan *to)
{
	const struct ig_plan *p = s->whole;
	const uint32_t first = s->first[stage], last = s->first[stage + 1];
	struct ig_split b = {
		.whole = p, .to = to, .n = s->n, .rank = IG_ALL_RANKS, .err = s->err
	};
	ig_value *map = malloc(((size_t)p->n_values + 1) * sizeof *map);
	int rc = 0;

	b.weights = malloc(((size_t)p->n_weights + 1) * sizeof *b.weights);
	if (!map || !b.weights)
		rc = ig_split_no_memory(&b);
	for (uint32_t i = 0; i < p->n_values && !rc; i++)
		map[i] = IG_NONE;
	for (uint32_t i = 0; i < p->n_weights && !rc; i++)
		b.weights[i] = IG_NONE;
	if (!rc)
		rc = add_inputs(&b, map, first);
	for (uint32_t i = 0; i < first && !rc; i++) {
		const struct ig_plan_node *n = &p->nodes[i];
		bool read = false;
		for (uint32_t k = 0; k < n->n_out; k++)
			read = read || p->values[n->out[k]].last_node >= (int32_t)first;
		if (read && is_of_step(p, n))
			rc = copy_node(&b, map, first, i);
	}
	for (uint32_t i = first; i < last && !rc; i++)
		rc = copy_node(&b, map, first, i);
	if (!rc)
		rc = add_outputs(&b, map, last);
	free(map);
	free(b.weights);
	return rc;
}

static int check(const struct stages *s, uint32_t stage)
{
	const struct ig_plan *p = s->whole;

	if (s->n < 1 || s->n > IG_MAX_STAGES || stage >= s->n)
		return ig_fail(s->err, -EINVAL, "stage %u of %u; at most %u are possible", stage,
			       s->n, IG_MAX_STAGES);
	if (p->n_adapters)
		return ig_fail(s->err, -ENOTSUP,
			       "a model with adapters can't be cut between layers");
	if (p->first_mtp_node)
		return ig_fail(s->err, -ENOTSUP,
			       "a model with a head that guesses can't be cut between layers");
	if (p->info.result != IG_RESULT_TOKENS)
		return ig_fail(s->err, -ENOTSUP,
			       "a model of embeddings can't be cut between layers");
	if (p->n_ranks)
		return ig_fail(s->err, -ENOTSUP,
			       "a plan that is divided over devices can't be cut between layers");
	return 0;
}

int ig_plan_cut(const struct ig_plan *whole, uint32_t n_stages, uint32_t stage,
		struct ig_plan **out, struct ig_error *err)
{
	struct stages s = { .whole = whole, .n = n_stages, .err = err };
	struct ig_plan *to;
	int rc;

	*out = NULL;
	if ((rc = check(&s, stage)) || (rc = check_layers(&s)))
		return rc;
	to = calloc(1, sizeof *to);
	rc = to ? find_cuts(&s) : ig_fail(err, -ENOMEM, "no memory for a plan that is cut");
	if (!rc) {
		choose_cuts(&s);
		to->arch = whole->arch;
		to->file = whole->file;
		to->n_results = whole->n_results;
		fill_info(&s, &to->info);
		rc = build(&s, stage, to);
	}
	free(s.cuts);
	if (rc)
		ig_plan_destroy(to);
	else
		*out = to;
	return rc;
}
