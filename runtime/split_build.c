/* split_build.c: adds weights, values and nodes to the plan that split.c makes. */
#include "runtime/split_private.h"
#include "base/array.h"
#include "model/formats/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ig_split_no_memory(struct ig_split *s)
{
	return ig_fail(s->err, -ENOMEM, "no memory for a divided plan");
}

/* Memory that the plan frees. */
static void *keep(struct ig_split *s, size_t n_bytes)
{
	struct ig_plan *p = s->to;

	if (!ig_array_grow(p->adapter_mem, &s->cap_mem, p->n_adapter_mem))
		return NULL;
	void *mem = calloc(1, n_bytes);
	if (mem)
		p->adapter_mem[p->n_adapter_mem++] = mem;
	return mem;
}

int ig_split_weight(struct ig_split *s, ig_weight w, ig_weight *out)
{
	struct ig_plan *p = s->to;

	if (s->weights[w] == IG_NONE) {
		if (!ig_array_grow(p->weights, &s->cap_weights, p->n_weights))
			return ig_split_no_memory(s);
		p->weights[p->n_weights] = s->whole->weights[w];
		s->weights[w] = (ig_weight)p->n_weights++;
	}
	*out = s->weights[w];
	return 0;
}

/* Where a slice lies in the map, if it is in one piece there. */
static const void *data_of(const struct ig_checkpoint_slice *s, int64_t n_rows, int64_t n_cols)
{
	const struct ig_checkpoint_tensor *of = s->of;
	const bool rows = n_cols == of->n_cols && n_rows == s->n;

	if (!of->data || (!rows && n_rows > 1))
		return NULL;
	return (const uint8_t *)of->data +
	       (uint64_t)s->first_row * ig_dtype_row_bytes(of->dtype, of->n_cols) +
	       ig_dtype_row_bytes(of->dtype, s->first_col);
}

static int check_columns(struct ig_split *s, const struct ig_plan_weight *w, uint32_t rank,
			 struct ig_split_range cols)
{
	if (cols.n == w->shape.n_cols)
		return 0;
	if (!ig_dtype_row_bytes(w->shape.dtype, cols.n) ||
	    (cols.first && !ig_dtype_row_bytes(w->shape.dtype, cols.first)))
		return ig_fail(s->err, -ENOTSUP,
			       "tensor \"%s\" (%s) can't be divided over %u devices: the part of "
			       "device %u, columns %lld to %lld, is not of whole blocks",
			       w->name, ig_dtype_name(w->shape.dtype), s->n, rank,
			       (long long)cols.first, (long long)(cols.first + cols.n));
	if (!w->tensor->data)
		return ig_fail(s->err, -ENOTSUP,
			       "tensor \"%s\" can't be divided over %u devices: its columns are "
			       "converted while it is read; a GGUF file of the model can be",
			       w->name, s->n);
	return 0;
}

int ig_split_slice(struct ig_split *s, ig_weight w, uint32_t rank, struct ig_split_range rows,
		   int64_t period, struct ig_split_range cols, ig_weight *out)
{
	const struct ig_plan_weight *from = &s->whole->weights[w];
	const int64_t n_rows = period ? from->shape.n_rows / period * rows.n : rows.n;
	int rc = check_columns(s, from, rank, cols);

	if (rc)
		return rc;
	struct ig_checkpoint_slice *slice = keep(s, sizeof *slice);
	struct ig_checkpoint_tensor *t = slice ? keep(s, sizeof *t) : NULL;
	if (!t || !ig_array_grow(s->to->weights, &s->cap_weights, s->to->n_weights))
		return ig_split_no_memory(s);
	*slice = (struct ig_checkpoint_slice){ from->tensor, rows.first, rows.n,
					       period ? period : from->shape.n_rows, cols.first };
	*t = (struct ig_checkpoint_tensor){
		.name = from->tensor->name,
		.dtype = from->shape.dtype,
		.n_dims = 2,
		.n_rows = n_rows,
		.n_cols = cols.n,
		.dims = { cols.n, n_rows, 1, 1 },
		.data = data_of(slice, n_rows, cols.n),
		.n_bytes = (uint64_t)n_rows * ig_dtype_row_bytes(from->shape.dtype, cols.n),
		.slice = slice,
	};
	struct ig_plan_weight *to = &s->to->weights[s->to->n_weights];
	*to = (struct ig_plan_weight){ .shape = { n_rows, cols.n, from->shape.dtype, 0 },
				       .tensor = t,
				       .n_bytes = t->n_bytes };
	snprintf(to->name, sizeof to->name, "%.70s, part %u of %u", from->name, rank + 1, s->n);
	*out = (ig_weight)s->to->n_weights++;
	return 0;
}

/* The results' values, and with `number` >= 0 that node's. */
static int add_values(struct ig_split *s, uint32_t rank, const struct ig_op_shape *shape,
		      int32_t number, ig_value out[IG_MAX_OUT])
{
	struct ig_plan *p = s->to;

	for (uint32_t i = 0; i < IG_MAX_OUT; i++) {
		out[i] = IG_NONE;
		if (i >= shape->n_out)
			continue;
		if (!ig_array_grow(p->values, &s->cap_values, p->n_values))
			return ig_split_no_memory(s);
		p->values[p->n_values] =
			(struct ig_plan_value){ .shape = shape->out[i],
						.first_node = number,
						.last_node = number,
						.part = rank == IG_ALL_RANKS ? 0 : rank + 1 };
		out[i] = (ig_value)p->n_values++;
	}
	return 0;
}

int ig_split_node(struct ig_split *s, uint32_t rank, const struct ig_op *op, const void *params,
		  const ig_value *in, uint32_t n_in, const ig_weight *weights, uint32_t n_weights,
		  ig_value out[IG_MAX_OUT])
{
	struct ig_plan *p = s->to;
	const bool own = rank == IG_ALL_RANKS || s->rank == IG_ALL_RANKS || s->rank == rank;
	const int32_t number = own ? (int32_t)p->n_nodes : -1;
	struct ig_op_shape shape = {
		.struct_size = sizeof shape,
		.n_in = n_in,
		.n_weights = n_weights,
		.n_out = 1, /* what no op that can be divided says otherwise than by its inputs */
		.params = params,
	};
	struct ig_error why = { 0 };

	for (uint32_t i = 0; i < n_in; i++)
		shape.in[i] = p->values[in[i]].shape;
	for (uint32_t i = 0; i < n_weights; i++)
		if (weights[i] != IG_NONE)
			shape.weight[i] = p->weights[weights[i]].shape;
	int rc = op->check(&shape, &why);
	if (rc)
		return ig_fail(s->err, -ENOTSUP, "it can't be divided over %u devices: %s", s->n,
			       why.text);
	if ((rc = add_values(s, rank, &shape, number, out)) || !own)
		return rc;
	void *copy = malloc(op->params_size);
	if (!copy || !ig_array_grow(p->nodes, &s->cap_nodes, p->n_nodes)) {
		free(copy);
		return ig_split_no_memory(s);
	}
	memcpy(copy, params, op->params_size);
	struct ig_plan_node *node = &p->nodes[p->n_nodes++];
	*node = (struct ig_plan_node){
		.op = op, .params = copy, .n_in = n_in, .n_weights = n_weights, .n_out = shape.n_out
	};
	for (uint32_t i = 0; i < IG_MAX_IN; i++) {
		node->in[i] = i < n_in ? in[i] : IG_NONE;
		if (i < n_in)
			p->values[in[i]].last_node = number;
	}
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		node->weight[i] = i < n_weights ? weights[i] : IG_NONE;
	for (uint32_t i = 0; i < IG_MAX_OUT; i++)
		node->out[i] = out[i];
	return 0;
}
