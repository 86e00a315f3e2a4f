/* plan.c: see plan.h.  The graph stores the first error of a recording; everything after it
 * fails. */
#include "runtime/plan.h"
#include "base/array.h"
#include "model/formats/checkpoint.h"
#include "runtime/modules/modules.h"
#include "runtime/plan_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limits what a hostile file can make us record; far beyond any model. */
#define MAX_NODES 65536
#define MAX_PARAMS 4096 /* bytes of an op's parameters */

struct ig_graph {
	struct ig_plan *plan;
	const struct ig_modules *modules;
	uint32_t cap_nodes, cap_values, cap_weights;
	struct ig_adapted adapted;
	struct ig_error error;
};

/* Ensure capacity for one more element; false: the graph's error is set. */
static bool grow(struct ig_graph *g, void *array, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < MAX_NODES && ig_array_grow_u32(array, cap, n, size))
		return true;
	ig_fail(&g->error, -ENOMEM, "no memory for a plan of %u entries", n);
	return false;
}

ig_weight ig_graph_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols)
{
	struct ig_plan *p = g->plan;

	if (g->error.code)
		return IG_NONE;
	for (uint32_t i = 0; i < p->n_weights; i++)
		if (!strcmp(p->weights[i].name, name)) {
			if (p->weights[i].shape.n_rows == n_rows &&
			    p->weights[i].shape.n_cols == n_cols)
				return (ig_weight)i;
			ig_fail(&g->error, -EINVAL, "tensor \"%s\" is declared with two shapes",
				name);
			return IG_NONE;
		}
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(p->file, name);
	if (!t) {
		ig_fail(&g->error, -ENOENT, "tensor \"%.90s\" is missing", name);
		return IG_NONE;
	}
	if (t->n_rows != n_rows || t->n_cols != n_cols) {
		ig_fail(&g->error, -EINVAL,
			"tensor \"%.90s\" has shape [%lld, %lld], expected [%lld, %lld]", name,
			(long long)t->n_rows, (long long)t->n_cols, (long long)n_rows,
			(long long)n_cols);
		return IG_NONE;
	}
	if (!grow(g, &p->weights, p->n_weights, &g->cap_weights, sizeof *p->weights))
		return IG_NONE;
	struct ig_plan_weight *w = &p->weights[p->n_weights];
	*w = (struct ig_plan_weight){ .shape = { n_rows, n_cols, t->dtype, 0 },
				      .tensor = t,
				      .n_bytes = t->n_bytes };
	if (strlen(name) >= sizeof w->name) {
		ig_fail(&g->error, -EINVAL, "tensor name \"%.80s…\" is too long", name);
		return IG_NONE;
	}
	strcpy(w->name, name);
	return (ig_weight)p->n_weights++;
}

static int fail_op(struct ig_graph *g, const char *op, const char *what)
{
	return ig_fail(&g->error, -EINVAL, "op %s, node %u: %s", op, g->plan->n_nodes, what);
}

/* A copy of the parameters in the op's own size.  Members that the caller's struct lacks are
 * zero; members that the op does not know must be zero. */
static int copy_params(struct ig_graph *g, const struct ig_op *op, const void *params, void **out)
{
	const unsigned char *from = params;
	uint32_t size = 0;
	char what[96];

	if (params)
		memcpy(&size, params, sizeof size);
	if (size < sizeof size || size > MAX_PARAMS)
		return fail_op(g, op->name, "its parameters do not begin with their size");
	for (uint32_t i = op->params_size; i < size; i++)
		if (from[i]) {
			snprintf(what, sizeof what, "%u bytes of parameters, of which it knows %u",
				 size, op->params_size);
			return fail_op(g, op->name, what);
		}
	*out = calloc(1, op->params_size);
	if (!*out)
		return ig_fail(&g->error, -ENOMEM, "no memory for a plan");
	memcpy(*out, params, size < op->params_size ? size : op->params_size);
	memcpy(*out, &op->params_size, sizeof op->params_size);
	return 0;
}

/* The operands' shapes, for the op's check. */
static int find_shapes(struct ig_graph *g, const char *name, const ig_value *in,
		       const ig_weight *weights, struct ig_op_shape *s)
{
	const struct ig_plan *p = g->plan;

	if (s->n_in > IG_MAX_IN || s->n_weights > IG_MAX_WEIGHTS || s->n_out > IG_MAX_OUT)
		return fail_op(g, name, "too many operands");
	for (uint32_t i = 0; i < s->n_in; i++) {
		if (in[i] < 0 || (uint32_t)in[i] >= p->n_values)
			return fail_op(g, name, "an input is not a value");
		s->in[i] = p->values[in[i]].shape;
	}
	for (uint32_t i = 0; i < s->n_weights; i++) {
		if (weights[i] == IG_NONE)
			continue;
		if (weights[i] < 0 || (uint32_t)weights[i] >= p->n_weights)
			return fail_op(g, name, "a weight is not a weight of the plan");
		s->weight[i] = p->weights[weights[i]].shape;
	}
	return 0;
}

/* Append the node; the plan takes ownership of params. */
static int add_node(struct ig_graph *g, const struct ig_op *op, void *params, const ig_value *in,
		    const ig_weight *weights, const struct ig_op_shape *s, ig_value *out,
		    uint32_t n_out)
{
	struct ig_plan *p = g->plan;
	const int32_t number = (int32_t)p->n_nodes;

	if (!grow(g, &p->nodes, p->n_nodes, &g->cap_nodes, sizeof *p->nodes)) {
		free(params);
		return g->error.code;
	}
	struct ig_plan_node *node = &p->nodes[p->n_nodes++];
	*node = (struct ig_plan_node){ .op = op,
				       .params = params,
				       .n_in = s->n_in,
				       .n_weights = s->n_weights,
				       .n_out = s->n_out };
	for (uint32_t i = 0; i < IG_MAX_IN; i++) {
		node->in[i] = i < s->n_in ? in[i] : IG_NONE;
		if (i < s->n_in)
			p->values[in[i]].last_node = number;
	}
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		node->weight[i] = i < s->n_weights ? weights[i] : IG_NONE;
	for (uint32_t i = 0; i < IG_MAX_OUT; i++) {
		node->out[i] = IG_NONE;
		if (i >= s->n_out)
			continue;
		if (!grow(g, &p->values, p->n_values, &g->cap_values, sizeof *p->values))
			return g->error.code;
		p->values[p->n_values] = (struct ig_plan_value){ .shape = s->out[i],
								 .first_node = number,
								 .last_node = number };
		node->out[i] = (ig_value)p->n_values++;
		if (i < n_out)
			out[i] = node->out[i];
	}
	return 0;
}

struct ig_plan *ig_graph_plan(struct ig_graph *g) { return g->plan; }
struct ig_adapted *ig_graph_adapted(struct ig_graph *g) { return &g->adapted; }
struct ig_error *ig_graph_error(struct ig_graph *g) { return &g->error; }

ig_weight ig_graph_own_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols,
			      float *data)
{
	struct ig_plan *p = g->plan;
	struct ig_checkpoint_tensor *t = malloc(sizeof *t);
	uint64_t n_bytes = (uint64_t)(n_rows * n_cols) * sizeof *data;
	void **mem = t ? realloc(p->adapter_mem, (p->n_adapter_mem + 2) * sizeof *mem) : NULL;

	if (mem)
		p->adapter_mem = mem;
	if (!mem || !grow(g, &p->weights, p->n_weights, &g->cap_weights, sizeof *p->weights)) {
		free(t);
		free(data);
		ig_fail(&g->error, -ENOMEM, "no memory for a plan");
		return IG_NONE;
	}
	mem[p->n_adapter_mem++] = t;
	mem[p->n_adapter_mem++] = data;
	p->adapter_bytes += n_bytes;
	*t = (struct ig_checkpoint_tensor){ .dtype = IG_F32,
					    .n_dims = 2,
					    .n_rows = n_rows,
					    .n_cols = n_cols,
					    .dims = { n_cols, n_rows, 1, 1 },
					    .data = data,
					    .n_bytes = n_bytes };
	struct ig_plan_weight *w = &p->weights[p->n_weights];
	*w = (struct ig_plan_weight){ .shape = { n_rows, n_cols, IG_F32, 0 },
				      .tensor = t,
				      .n_bytes = n_bytes,
				      .of_adapters = true };
	snprintf(w->name, sizeof w->name, "%s", name);
	t->name = ""; /* the plan's weights may move */
	return (ig_weight)p->n_weights++;
}

int ig_graph_record(struct ig_graph *g, const char *name, const void *params, const ig_value *in,
		    uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		    uint32_t n_out)
{
	if (!g->error.code && ig_adapted_has(g, weights, n_weights))
		return ig_adapted_record(g, name, params, in, n_in, weights, n_weights, out, n_out);
	return ig_graph_record_plain(g, name, params, in, n_in, weights, n_weights, out, n_out);
}

int ig_graph_record_plain(struct ig_graph *g, const char *name, const void *params,
			  const ig_value *in, uint32_t n_in, const ig_weight *weights,
			  uint32_t n_weights, ig_value *out, uint32_t n_out)
{
	struct ig_op_shape s = {
		.struct_size = sizeof s, .n_in = n_in, .n_weights = n_weights, .n_out = n_out
	};
	struct ig_error err = { 0 };
	void *copy = NULL;

	for (uint32_t i = 0; i < n_out; i++)
		out[i] = IG_NONE;
	if (g->error.code)
		return g->error.code;
	const struct ig_op *op = ig_modules_op(g->modules, name);
	if (!op)
		return fail_op(g, name, "no module provides it");
	int rc = find_shapes(g, name, in, weights, &s);
	if (rc || (rc = copy_params(g, op, params, &copy)))
		return rc;
	s.params = copy;
	rc = op->check(&s, &err);
	if (rc)
		ig_fail(&g->error, rc, "node %u: %s", g->plan->n_nodes, err.text);
	else if (s.n_out > IG_MAX_OUT || s.n_out < n_out)
		rc = fail_op(g, name, "another number of results is expected");
	if (rc) {
		free(copy);
		return rc;
	}
	return add_node(g, op, copy, in, weights, &s, out, n_out);
}

int ig_graph_status(const struct ig_graph *g) { return g->error.code; }

/* What the last norm of the model reads: its rows are gathered behind it.  IG_NONE: there is none. */
static ig_value hidden_of(const struct ig_plan *p)
{
	for (uint32_t i = p->n_nodes; i--;) {
		const struct ig_plan_node *n = &p->nodes[i];
		const struct ig_norm_params *norm = n->params;
		if (!strcmp(n->op->name, "norm") && norm->gather)
			return n->n_in == 1 ? n->in[0] : IG_NONE;
	}
	return IG_NONE;
}

static const struct ig_plan_node *last_node(const struct ig_plan *p)
{
	return p->n_nodes ? &p->nodes[p->n_nodes - 1] : NULL;
}

/* Behind the model, which samples, its head. */
static int record_mtp(struct ig_graph *g, const struct ig_host *host, const struct ig_meta *meta,
		      const void *params, struct ig_error *err)
{
	struct ig_plan *p = g->plan;
	const ig_value x = hidden_of(p);
	int rc;

	p->first_mtp_node = p->n_nodes;
	rc = x == IG_NONE ? -ENOTSUP : p->arch->record_mtp(host, g, meta, params, x);
	if (rc || g->error.code)
		return ig_fail(err, g->error.code ? g->error.code : rc,
			       "architecture %s: the head that guesses: %s", p->arch->name,
			       g->error.code ? g->error.text : "recording failed");
	const struct ig_plan_node *last = last_node(p);
	const struct ig_sample_op_params *sample = last->params;
	if (strcmp(last->op->name, "sample") || !sample->guess)
		return ig_fail(err, -EINVAL, "architecture %s: the head does not end with a guess",
			       p->arch->name);
	return 0;
}

static int record_plan(const struct ig_modules *m, const struct ig_checkpoint *file,
		       const struct ig_plan_adapter *adapters, uint32_t n_adapters, bool with_mtp,
		       struct ig_plan **out, struct ig_error *err)
{
	struct ig_graph g = { .modules = m };
	struct ig_error e = { 0 };
	const struct ig_meta *meta = (const struct ig_meta *)file;
	const struct ig_arch *arch;
	const char *name;
	size_t len;
	void *params = NULL;
	int rc;

	*out = NULL;
	if ((rc = ig_checkpoint_str(file, "general.architecture", &name, &len, err)) ||
	    (rc = ig_modules_arch_of(m, meta, name, len, &arch, err)))
		return rc;
	const struct ig_host *host = ig_modules_host(m, arch);
	g.plan = calloc(1, sizeof *g.plan);
	params = calloc(1, arch->params_size ? arch->params_size : 1);
	if (!g.plan || !params || ig_adapted_init(&g.adapted, adapters, n_adapters) < 0) {
		rc = ig_fail(err, -ENOMEM, "no memory for a plan");
		goto fail;
	}
	g.plan->n_adapters = n_adapters;
	g.plan->file = file;
	g.plan->arch = arch;
	g.plan->info.struct_size = sizeof g.plan->info;
	rc = arch->read_params(host, meta, params, &g.plan->info, &e);
	if (rc) {
		rc = ig_fail(err, rc, "architecture %s: %s", arch->name, e.text);
		goto fail;
	}
	struct ig_model_info *info = &g.plan->info;
	with_mtp = with_mtp && info->n_mtp_layers && arch->record_mtp;
	if (with_mtp)
		info->groups[0].n_layers += info->n_mtp_layers;
	bool samples = info->result == IG_RESULT_TOKENS;
	if (!info->n_vocab || !info->n_context || samples != (info->n_groups > 0) ||
	    info->n_groups > IG_MAX_CACHE_GROUPS || info->result > IG_RESULT_SCORE) {
		rc = ig_fail(err, -EINVAL, "architecture %s: incomplete model description",
			     arch->name);
		goto fail;
	}
	for (uint32_t i = 0; i < info->n_groups; i++) {
		if (info->groups[i].kind > IG_CACHE_K ||
		    (info->groups[i].kind == IG_CACHE_STATE ?
			     !i || info->groups[i].window :
			     i && info->groups[i - 1].kind == IG_CACHE_STATE)) {
			rc = ig_fail(err, -EINVAL,
				     "architecture %s: cache group %u: groups of tokens come "
				     "first, then those of state",
				     arch->name, i);
			goto fail;
		}
	}
	rc = arch->record(host, &g, meta, params);
	if (rc || g.error.code) {
		rc = ig_fail(err, g.error.code ? g.error.code : rc, "architecture %s: %s",
			     arch->name, g.error.code ? g.error.text : "recording failed");
		goto fail;
	}
	const char *end = samples ? "sample" : "output";
	const struct ig_plan_node *last = last_node(g.plan);
	if (!last || strcmp(last->op->name, end)) {
		rc = ig_fail(err, -EINVAL, "architecture %s: the plan does not end with %s",
			     arch->name, end);
		goto fail;
	}
	g.plan->n_results =
		samples ? info->n_vocab : (uint32_t)g.plan->values[last->in[0]].shape.n_cols;
	if (with_mtp && (rc = record_mtp(&g, host, meta, params, err)))
		goto fail;
	if ((rc = ig_adapted_check(&g.adapted, err)))
		goto fail;
	free(params);
	ig_adapted_finish(&g.adapted);
	*out = g.plan;
	return 0;
fail:
	free(params);
	ig_adapted_finish(&g.adapted);
	ig_plan_destroy(g.plan);
	return rc;
}

int ig_plan_record(const struct ig_modules *m, const struct ig_checkpoint *file,
		   struct ig_plan **out, struct ig_error *err)
{
	return record_plan(m, file, NULL, 0, false, out, err);
}

int ig_plan_record_adapted(const struct ig_modules *m, const struct ig_checkpoint *file,
			   const struct ig_plan_adapter *adapters, uint32_t n_adapters,
			   struct ig_plan **out, struct ig_error *err)
{
	return record_plan(m, file, adapters, n_adapters, false, out, err);
}

int ig_plan_record_mtp(const struct ig_modules *m, const struct ig_checkpoint *file,
		       struct ig_plan **out, struct ig_error *err)
{
	return record_plan(m, file, NULL, 0, true, out, err);
}

void ig_plan_destroy(struct ig_plan *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n_nodes; i++)
		free((void *)p->nodes[i].params);
	for (uint32_t i = 0; i < p->n_adapter_mem; i++)
		free(p->adapter_mem[i]);
	free(p->adapter_mem);
	free(p->nodes);
	free(p->values);
	free(p->weights);
	free(p);
}
