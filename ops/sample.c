/* sample.c: from logits to token ids, by each row's own parameters. */
#include "ops/op-private.h"
#include "ops/sampling.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	int rc = ig_op_check_size(s, "sample", sizeof(struct ig_sample_op_params), err);
	if (rc)
		return rc;
	if (s->n_in != 1 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "sample: takes one input and no weight");
	if (s->in[0].row_class != IG_ROWS_LOGITS || s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL, "sample: the input is not logits");
	s->n_out = 0;
	return 0;
}

/* The same candidates by plain sorting: O(n k) and easy to believe. */
static int32_t draw(const float *x, int64_t n, const struct ig_sample_params *p)
{
	int32_t *order = malloc((size_t)n * sizeof *order);
	double *weight = malloc((size_t)n * sizeof *weight);
	int64_t kept = p->top_k > 0 && p->top_k < n ? p->top_k : n;
	int32_t id;

	if (!order || !weight)
		abort(); /* a reference runs in tests */
	for (int64_t i = 0; i < n; i++) {
		int64_t at = i;
		float v = x[i] != x[i] ? -INFINITY : x[i];
		for (; at > 0; at--) {
			float w = x[order[at - 1]] != x[order[at - 1]] ? -INFINITY : x[order[at - 1]];
			if (w >= v)
				break;
			order[at] = order[at - 1];
		}
		order[at] = (int32_t)i;
	}
	id = order[0];
	if (p->temperature > 0.0f && p->top_k != 1) {
		double total = 0.0, sum = 0.0;
		for (int64_t i = 0; i < kept; i++) {
			weight[i] = exp(((double)x[order[i]] - (double)x[order[0]]) /
					(double)p->temperature);
			total += weight[i];
		}
		if (p->top_p < 1.0f)
			for (int64_t i = 0; i < kept; i++) {
				sum += weight[i];
				if (sum >= (double)p->top_p * total) {
					kept = i + 1;
					total = sum;
				}
			}
		double want = ig_sample_uniform(p->seed, (uint64_t)p->position) * total;
		sum = 0.0;
		if (p->top_p >= 1.0f && kept == n) {
			/* nothing is cut: candidates in the order of their ids */
			for (int64_t i = 0; i < n && sum <= want; i++) {
				sum += exp(((double)x[i] - (double)x[order[0]]) / (double)p->temperature);
				id = (int32_t)i;
			}
		} else {
			for (int64_t i = 0; i < kept && sum <= want; i++) {
				sum += weight[i];
				id = order[i];
			}
		}
	}
	free(order);
	free(weight);
	return id;
}

static void reference(const struct ig_op_call *c)
{
	int64_t n = c->in[0].n_cols;
	for (int64_t r = 0; r < c->in[0].n_rows; r++) {
		c->step->sampled_ids[r] = draw(ig_row(&c->in[0], r), n, &c->step->sample[r]);
		if (c->step->logits)
			memcpy(c->step->logits + r * n, ig_row(&c->in[0], r), (size_t)n * sizeof(float));
	}
}

static int64_t units(const struct ig_op_call *c)
{
	return c->in[0].n_rows;
}

static uint64_t scratch_bytes(const struct ig_op_call *c)
{
	return ig_sample_draw_scratch(c->in[0].n_cols);
}

#define ENTRY(name, isa)                                                                           \
	{ sizeof(struct ig_cpu_kernel), isa, IG_DTYPE_NONE, IG_FORM_ROWS, IG_FORM_ROWS,            \
	  IG_UNITS_ROWS, units, scratch_bytes, ig_sample_##name },
static const struct ig_cpu_kernel kernels[] = { ROWS_LIST(ENTRY) };

const struct ig_op ig_op_sample = {
	sizeof(struct ig_op), sizeof(struct ig_sample_op_params), "sample", check, reference,
	kernels, sizeof kernels / sizeof *kernels, 0,
};
