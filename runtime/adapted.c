/*
 * adapted.c: records products whose weights have adapters (ops/adapt.h).  `linear` is followed by
 * adapt_down and adapt_up, which change only the rows that have an adapter; `glu` becomes a `linear` of
 * both its weights, those two ops, and glu_join, with the same bits where a row has none.  Other ops
 * can't have adapters: a part for one of their weights is never used, and refused.
 */
#include "base/array.h"
#include "model/formats/adapter.h"
#include "ops/adapt.h"
#include "runtime/plan_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ig_adapted_init(struct ig_adapted *d, const struct ig_plan_adapter *adapters, uint32_t n)
{
	*d = (struct ig_adapted){ .adapters = adapters, .n = n };
	d->used = calloc(n + 1, sizeof *d->used);
	for (uint32_t a = 0; d->used && a < n; a++) {
		d->used[a] = calloc(adapters[a].adapter->n_parts + 1, sizeof **d->used);
		if (!d->used[a])
			return -ENOMEM;
	}
	return d->used ? 0 : -ENOMEM;
}

void ig_adapted_finish(struct ig_adapted *d)
{
	for (uint32_t a = 0; d->used && a < d->n; a++)
		free(d->used[a]);
	free(d->used);
	*d = (struct ig_adapted){ 0 };
}

int ig_adapted_check(const struct ig_adapted *d, struct ig_error *err)
{
	for (uint32_t a = 0; a < d->n; a++)
		for (uint32_t i = 0; i < d->adapters[a].adapter->n_parts; i++)
			if (!d->used[a][i])
				return ig_fail(err, -ENOTSUP,
					       "adapter %s: adapters of \"%s\" are not supported",
					       d->adapters[a].name,
					       d->adapters[a].adapter->parts[i].weight);
	return 0;
}

/* The part for this weight of the plan; NULL: none. */
static const struct ig_adapter_part *part_of(struct ig_graph *g, uint32_t a, ig_weight w)
{
	const struct ig_adapter *d = ig_graph_adapted(g)->adapters[a].adapter;
	const struct ig_plan *p = ig_graph_plan(g);

	if (w < 0 || (uint32_t)w >= p->n_weights)
		return NULL;
	for (uint32_t i = 0; i < d->n_parts; i++)
		if (!strcmp(d->parts[i].weight, p->weights[w].name))
			return &d->parts[i];
	return NULL;
}

bool ig_adapted_has(struct ig_graph *g, const ig_weight *weights, uint32_t n)
{
	for (uint32_t a = 0; a < ig_graph_adapted(g)->n; a++)
		for (uint32_t i = 0; i < n; i++)
			if (part_of(g, a, weights[i]))
				return true;
	return false;
}

/* The matrices of all adapters of one weight behind each other: A, or B transposed. */
static ig_weight stack(struct ig_graph *g, ig_weight w, int64_t n_rows, bool up)
{
	const struct ig_shape shape = ig_graph_plan(g)->weights[w].shape;
	int64_t n_cols = up ? shape.n_rows : shape.n_cols;
	float *data, *at;
	char name[96];

	if (!n_rows)
		return IG_NONE;
	at = data = malloc((size_t)(n_rows * n_cols) * sizeof *data);
	if (!data) {
		ig_fail(ig_graph_error(g), -ENOMEM, "no memory for adapters");
		return IG_NONE;
	}
	for (uint32_t a = 0; a < ig_graph_adapted(g)->n; a++) {
		const struct ig_adapter_part *part = part_of(g, a, w);
		size_t n = part ? (size_t)(part->rank * n_cols) : 0;
		if (n)
			memcpy(at, up ? part->b : part->a, n * sizeof *at);
		at += n;
	}
	snprintf(name, sizeof name, "%.80s lora_%c", ig_graph_plan(g)->weights[w].name,
		 up ? 'b' : 'a');
	return ig_graph_own_weight(g, name, n_rows, n_cols, data);
}

/* The parameters for these weights; marks the parts as used. */
static void describe(struct ig_graph *g, const ig_weight *weights, uint32_t n,
		     struct ig_adapt_params *p)
{
	struct ig_adapted *d = ig_graph_adapted(g);

	*p = (struct ig_adapt_params){ .struct_size = sizeof *p,
				       .n_weights = n,
				       .n_adapters = d->n };
	for (uint32_t i = 0; i < n; i++) {
		int32_t most = 0;
		p->n_rows[i] = (int32_t)ig_graph_plan(g)->weights[weights[i]].shape.n_rows;
		for (uint32_t a = 0; a < d->n; a++) {
			const struct ig_adapter_part *part = part_of(g, a, weights[i]);
			int32_t rank = part ? (int32_t)part->rank : 0;
			p->first[i][a + 1] = p->first[i][a] + rank;
			p->scale[i][a] = part ? part->scale : 0;
			most = rank > most ? rank : most;
			if (part)
				d->used[a][part - d->adapters[a].adapter->parts] = true;
		}
		p->column[i + 1] = p->column[i] + most;
	}
}

/* y, the product of x with n weights, with the adapters' part. */
static int add_adapters(struct ig_graph *g, ig_value x, const ig_weight *weights, uint32_t n,
			ig_value *y)
{
	struct ig_adapt_params p;
	ig_weight a[IG_ADAPT_WEIGHTS], b[IG_ADAPT_WEIGHTS];
	ig_value h, in[2];
	int rc;

	describe(g, weights, n, &p);
	p.gathered = ig_graph_plan(g)->values[x].shape.row_class == IG_ROWS_LOGITS;
	for (uint32_t i = 0; i < n; i++) {
		a[i] = stack(g, weights[i], p.first[i][p.n_adapters], false);
		b[i] = stack(g, weights[i], p.first[i][p.n_adapters], true);
	}
	rc = ig_graph_record_plain(g, "adapt_down", &p, &x, 1, a, n, &h, 1);
	in[0] = h;
	in[1] = *y;
	return rc ? rc : ig_graph_record_plain(g, "adapt_up", &p, in, 2, b, n, y, 1);
}

static int record_glu(struct ig_graph *g, const struct ig_glu_params *glu, ig_value x,
		      const ig_weight *weights, ig_value *out)
{
	const struct ig_linear_params linear = { sizeof linear, 2, IG_ACT_NONE, 0 };
	const struct ig_glu_join_params join = { sizeof join, glu->act };
	ig_value y;
	int rc = ig_graph_record_plain(g, "linear", &linear, &x, 1, weights, 2, &y, 1);

	if (!rc)
		rc = add_adapters(g, x, weights, 2, &y);
	return rc ? rc : ig_graph_record_plain(g, "glu_join", &join, &y, 1, NULL, 0, out, 1);
}

int ig_adapted_record(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		      uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		      uint32_t n_out)
{
	const struct ig_linear_params *linear = params;
	int rc;

	if (!strcmp(op, "glu") && n_in == 1 && n_weights == 2 && n_out == 1)
		return record_glu(g, params, in[0], weights, out);
	rc = ig_graph_record_plain(g, op, params, in, n_in, weights, n_weights, out, n_out);
	/* Behind an activation it is too late: the parts stay unused, and are refused. */
	if (rc || strcmp(op, "linear") || linear->act != IG_ACT_NONE || n_out != 1)
		return rc;
	return add_adapters(g, in[0], weights, linear->n_weights, &out[0]);
}
