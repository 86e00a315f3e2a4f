/* adapt.c: the ops of adapters, see adapt.h: adapt_down, adapt_up, and glu_join, which with a `linear`
 * gives the bits of `glu` where gate and up have adapters. */
#include "ops/adapt.h"
#include "ops/op_private.h"

/* Units of adapt_up: a row's columns, so many at a time. */
#define UP_COLUMNS 512

static int check_params(const struct ig_op_shape *s, const char *op, struct ig_error *err)
{
	const struct ig_adapt_params *p = s->params;

	if (p->n_weights < 1 || p->n_weights > IG_ADAPT_WEIGHTS || p->n_adapters < 1 ||
	    p->n_adapters > IG_MAX_ADAPTERS || p->gathered > 1 || s->n_weights != p->n_weights)
		return ig_fail(err, -EINVAL, "%s: parameters out of range", op);
	for (uint32_t i = 0; i < p->n_weights; i++) {
		int32_t most = 0;
		for (uint32_t a = 0; a < p->n_adapters; a++) {
			int32_t rank = p->first[i][a + 1] - p->first[i][a];
			if (rank < 0)
				return ig_fail(err, -EINVAL, "%s: a rank of %d", op, rank);
			most = rank > most ? rank : most;
		}
		if (p->first[i][0] || p->first[i][p->n_adapters] != s->weight[i].n_rows ||
		    p->column[i + 1] - p->column[i] != most ||
		    (s->weight[i].n_rows && s->weight[i].dtype != IG_F32))
			return ig_fail(err, -EINVAL, "%s: the matrices of weight %u do not fit", op,
				       i);
	}
	return p->column[0] ? ig_fail(err, -EINVAL, "%s: column 0 is missing", op) : 0;
}

static int check_down(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_adapt_params *p = s->params;
	int rc = check_params(s, "adapt_down", err);

	if (rc)
		return rc;
	if (s->n_in != 1 || p->gathered != (s->in[0].row_class == IG_ROWS_LOGITS))
		return ig_fail(err, -EINVAL, "adapt_down: takes one input of its rows");
	for (uint32_t i = 0; i < p->n_weights; i++)
		if (s->weight[i].n_rows && s->weight[i].n_cols != s->in[0].n_cols)
			return ig_fail(err, -EINVAL, "adapt_down: weight %u has another width", i);
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, p->column[p->n_weights], IG_F32, s->in[0].row_class };
	return 0;
}

static int check_up(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_adapt_params *p = s->params;
	int64_t cols = 0;
	int rc = check_params(s, "adapt_up", err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->n_weights; i++) {
		cols += p->n_rows[i];
		if (s->weight[i].n_rows && s->weight[i].n_cols != p->n_rows[i])
			return ig_fail(err, -EINVAL, "adapt_up: weight %u has another width", i);
	}
	if (s->n_in != 2 || s->in[0].n_cols != p->column[p->n_weights] || s->in[1].n_cols != cols ||
	    s->in[0].row_class != s->in[1].row_class)
		return ig_fail(err, -EINVAL, "adapt_up: its inputs do not fit");
	s->n_out = 1;
	s->out[0] = s->in[1];
	return 0;
}

static int check_join(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_glu_join_params *p = s->params;

	if (s->n_in != 1 || s->n_weights || p->act > IG_ACT_GELU || s->in[0].n_cols % 2)
		return ig_fail(err, -EINVAL,
			       "glu_join: takes one input of two halves; activation %u", p->act);
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, s->in[0].n_cols / 2, IG_F32, s->in[0].row_class };
	return 0;
}

/* The adapter of the launch's row r; negative: none. */
static int32_t adapter_of(const struct ig_op_launch *c, int64_t r)
{
	const struct ig_adapt_params *p = c->params;

	if (!c->step->row_adapter)
		return -1;
	return c->step->row_adapter[p->gathered ? c->step->logit_rows[r] : r];
}

static void reference_down(const struct ig_op_launch *c)
{
	const struct ig_adapt_params *p = c->params;

	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		const float *x = ig_row(&c->in[0], r);
		int32_t a = adapter_of(c, r);
		for (uint32_t i = 0; a >= 0 && i < p->n_weights; i++)
			for (int32_t k = p->first[i][a]; k < p->first[i][a + 1]; k++) {
				const float *w = ig_row(&c->weight[i], k);
				double sum = 0;
				for (int64_t j = 0; j < c->in[0].n_cols; j++)
					sum += (double)w[j] * (double)x[j];
				ig_row(&c->out[0], r)[p->column[i] + k - p->first[i][a]] =
					(float)(sum * (double)p->scale[i][a]);
			}
	}
}

static void reference_up(const struct ig_op_launch *c)
{
	const struct ig_adapt_params *p = c->params;

	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		const float *h = ig_row(&c->in[0], r), *y = ig_row(&c->in[1], r);
		float *out = ig_row(&c->out[0], r);
		int32_t a = adapter_of(c, r);
		for (uint32_t i = 0; i < p->n_weights; i++) {
			for (int64_t o = 0; o < p->n_rows[i]; o++) {
				double sum = (double)y[o];
				for (int32_t k = 0;
				     a >= 0 && k < p->first[i][a + 1] - p->first[i][a]; k++)
					sum += (double)h[p->column[i] + k] *
					       (double)ig_row(&c->weight[i], p->first[i][a] + k)[o];
				out[o] = (float)sum;
			}
			y += p->n_rows[i];
			out += p->n_rows[i];
		}
	}
}

static void reference_join(const struct ig_op_launch *c)
{
	const struct ig_glu_join_params *p = c->params;
	int64_t n = c->out[0].n_cols;

	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		const float *x = ig_row(&c->in[0], r);
		for (int64_t o = 0; o < n; o++)
			ig_row(&c->out[0], r)[o] = ig_act(p->act, x[o]) * x[n + o];
	}
}

/* No row has an adapter: there is nothing to do. */
static int64_t units_down(const struct ig_op_launch *c)
{
	return c->step->row_adapter ? c->out[0].n_rows * c->out[0].n_cols : 0;
}

static int64_t units_up(const struct ig_op_launch *c)
{
	return c->step->row_adapter ?
		       c->out[0].n_rows * ((c->out[0].n_cols + UP_COLUMNS - 1) / UP_COLUMNS) :
		       0;
}

#define DOWN(name, isa) IG_CPU_KERNEL(isa, IG_UNITS_OTHER, units_down, NULL, ig_adapt_down_##name),
#define UP(name, isa) IG_CPU_KERNEL(isa, IG_UNITS_OTHER, units_up, NULL, ig_adapt_up_##name),
#define JOIN(name, isa) IG_CPU_KERNEL(isa, IG_UNITS_ROWS, ig_units_rows, NULL, ig_glu_join_##name),
static const struct ig_cpu_kernel down_kernels[] = { ROWS_LIST(DOWN) };
static const struct ig_cpu_kernel up_kernels[] = { ROWS_LIST(UP) };
static const struct ig_cpu_kernel join_kernels[] = { ROWS_LIST(JOIN) };

#define ADAPT_OP(op, params, check_, reference_, kernels_, op_flags)                               \
	const struct ig_op ig_op_##op = {                                                          \
		.struct_size = sizeof(struct ig_op),                                               \
		.params_size = sizeof(params),                                                     \
		.name = #op,                                                                       \
		.version = 1,                                                                      \
		.check = check_,                                                                   \
		.reference = reference_,                                                           \
		.cpu_kernels = kernels_,                                                           \
		.n_cpu_kernels = sizeof kernels_ / sizeof *kernels_,                               \
		.flags = op_flags,                                                                 \
		.gpu = &ig_gpu_##op,                                                               \
	}
ADAPT_OP(adapt_down, struct ig_adapt_params, check_down, reference_down, down_kernels, 0);
ADAPT_OP(adapt_up, struct ig_adapt_params, check_up, reference_up, up_kernels, IG_OP_IN_PLACE);
ADAPT_OP(glu_join, struct ig_glu_join_params, check_join, reference_join, join_kernels, 0);
