/*
 * attention_rows.c: the ops of models without a cache.  rope_rows: QK norm and RoPE of q | k | v, in
 * rows.  attention_rows: attention among the rows of one text in this step, in both directions or
 * only back, within a window or not; the step has all rows of the text (runtime/driver.c checks it).
 */
#include "rows.h"
#include "units.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Nothing is stored here. */
static inline void store_f16(uint16_t *dst, const float *src, uint32_t n) {}

#include "rope_row.h"

/* ---- rope_rows ------------------------------------------------------------------------ */

static int check_rope_rows(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_rope_kv_params *p = s->params;
	struct ig_error why = { 0 };
	int rc = ig_rope_check(s, &why);

	if (rc)
		return ig_fail(err, rc, "rope_rows, as %s", why.text);
	if (p->group || p->layer || p->flags || p->q_stride || p->n_rest || p->q_scale_length)
		return ig_fail(err, -EINVAL,
			       "rope_rows: group %u, layer %u, flags %u, q_stride %u, n_rest %u, a "
			       "scale of q by position: it has none of these",
			       p->group, p->layer, p->flags, p->q_stride, p->n_rest);
	s->out[0].n_cols = s->in[0].n_cols;
	return 0;
}

/* The norms of q and of k in one row, and where the row's values come from and go to. */
static void rope_row(const struct ig_op_launch *launch, int64_t row)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_tensor *in = &launch->in[0], *table = &launch->in[1];
	const bool has_table = launch->n_in > 1 && table->data;
	const size_t dim = p->head_dim, n_q = p->n_heads * dim, n_k = p->n_kv_heads * dim;
	const float *x = (const float *)((const char *)in->data + row * in->row_stride);
	float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
	const struct head_norm norms[2] = { norm_of(launch, 0, x), norm_of(launch, 1, x + n_q) };
	struct rotation rot;

	if (has_table)
		spread_rotation(
			&rot, p,
			(const float *)((const char *)table->data + row * table->row_stride));
	for (uint32_t h = 0; h < p->n_heads + p->n_kv_heads; h++) {
		const bool is_q = h < p->n_heads;
		head_of(y + h * dim, x + h * dim, is_q ? h : h - p->n_heads, &norms[!is_q], p,
			has_table ? &rot : NULL);
	}
	memcpy(y + n_q + n_k, x + n_q + n_k, n_k * sizeof *y);
}

static void run_rope_rows(const struct ig_op_launch *launch, int64_t first, int64_t last,
			  void *scratch)
{
	for (int64_t row = first; row < last; row++)
		rope_row(launch, row);
}

static void reference_rope_rows(const struct ig_op_launch *launch)
{
	const struct ig_rope_kv_params *p = launch->params;
	const int64_t dim = p->head_dim, n_heads = p->n_heads + p->n_kv_heads;
	const bool has_norm = launch->n_weights > 1 && launch->weight[0].data;

	for (int64_t row = 0; row < launch->step->n_rows; row++) {
		const float *x = (const float *)((const char *)launch->in[0].data +
						 row * launch->in[0].row_stride);
		float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
		const float *w = NULL;
		double inv = 0;
		for (int64_t h = 0; h < n_heads; h++, x += dim, y += dim) {
			const struct ig_tensor *norm = &launch->weight[h >= p->n_heads];
			if (has_norm && (h == 0 || h == p->n_heads)) {
				w = norm->data;
				inv = norm->n_cols == dim ?
					      0 :
					      ig_rope_reference_inverse(x, norm->n_cols,
									(double)p->norm_eps);
			}
			ig_rope_reference_head(launch, row, x, w, inv, y);
			if (inv != 0)
				w += dim;
		}
		memcpy(y, x, (size_t)(p->n_kv_heads * dim) * sizeof *y);
	}
}

static int64_t n_rows_of_step(const struct ig_op_launch *launch) { return launch->step->n_rows; }

static const struct ig_cpu_kernel rope_rows_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, n_rows_of_step, NULL, run_rope_rows),
};

const struct ig_op ig_op_rope_rows = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_rope_kv_params),
	.name = "rope_rows",
	.version = 1,
	.check = check_rope_rows,
	.reference = reference_rope_rows,
	.cpu_kernels = rope_rows_kernels,
	.n_cpu_kernels = sizeof rope_rows_kernels / sizeof rope_rows_kernels[0],
	.gpu = &ig_gpu_rope_rows,
};

/* ---- attention_rows ------------------------------------------------------------------- */

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_attention_rows_params *p = s->params;
	int64_t n_cols;

	if (s->n_in != 1 || s->n_weights != 0 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "attention_rows: %u inputs, %u weights, %u outputs; takes one, none "
			       "and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->head_dim < 8 || p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(err, -EINVAL,
			       "attention_rows: head_dim is %u, not a multiple of 8 up to %d",
			       p->head_dim, MAX_HEAD_DIM);
	if (p->n_heads < 1 || p->n_heads > MAX_HEADS || p->n_kv_heads < 1 ||
	    p->n_heads % p->n_kv_heads)
		return ig_fail(err, -EINVAL,
			       "attention_rows: %u heads do not share %u KV heads evenly (at most "
			       "%d)",
			       p->n_heads, p->n_kv_heads, MAX_HEADS);
	if (!(p->scale > 0 && isfinite(p->scale)))
		return ig_fail(err, -EINVAL, "attention_rows: scale is %g, not above 0",
			       (double)p->scale);
	n_cols = ((int64_t)p->n_heads + 2 * (int64_t)p->n_kv_heads) * p->head_dim;
	if (s->in[0].n_cols != n_cols || s->in[0].dtype != IG_F32 ||
	    s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL,
			       "attention_rows: q | k | v has %lld columns of type %u, expected "
			       "%lld of F32, one row a token",
			       (long long)s->in[0].n_cols, s->in[0].dtype, (long long)n_cols);
	s->out[0] = (struct ig_shape){ .n_cols = (int64_t)p->n_heads * p->head_dim,
				       .dtype = IG_F32,
				       .row_class = IG_ROWS_TOKENS };
	return 0;
}

static const float *row_at(const struct ig_tensor *t, int64_t row)
{
	return (const float *)((const char *)t->data + row * t->row_stride);
}

/* Two passes over the scores, in double: the largest, then the weighted sum. */
static void reference(const struct ig_op_launch *launch)
{
	const struct ig_attention_rows_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const uint32_t per_kv = p->n_heads / p->n_kv_heads, dim = p->head_dim;

	for (int64_t row = 0; row < step->n_rows; row++) {
		const int64_t i = step->positions[row], text = row - i;
		float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
		int64_t lo, hi;
		rows_seen(p, i, step->seq_lens[step->row_seq[row]], &lo, &hi);
		for (uint32_t h = 0; h < p->n_heads; h++, y += dim) {
			const float *q = row_at(&launch->in[0], row) + (size_t)h * dim;
			const size_t k_at = ((size_t)p->n_heads + h / per_kv) * dim;
			const size_t v_at = k_at + (size_t)p->n_kv_heads * dim;
			double max = -INFINITY, sum = 0, o[MAX_HEAD_DIM] = { 0 };
			for (int pass = 0; pass < 2; pass++)
				for (int64_t t = lo; t < hi; t++) {
					const float *x = row_at(&launch->in[0], text + t);
					double s = 0;
					for (uint32_t d = 0; d < dim; d++)
						s += (double)q[d] * (double)x[k_at + d];
					s *= (double)p->scale;
					if (pass == 0) {
						max = fmax(max, s);
						continue;
					}
					s = exp(s - max);
					sum += s;
					for (uint32_t d = 0; d < dim; d++)
						o[d] += s * (double)x[v_at + d];
				}
			for (uint32_t d = 0; d < dim; d++)
				y[d] = (float)(o[d] / sum);
		}
	}
}

static int64_t n_units(const struct ig_op_launch *launch)
{
	const struct ig_attention_rows_params *p = launch->params;

	return n_row_groups(launch->step, ROWS_UNIT) * p->n_kv_heads;
}

#define ENTRY(name, isa)                                                                           \
	IG_CPU_KERNEL(isa, IG_UNITS_OTHER, n_units, ig_attention_rows_scratch_##name,              \
		      ig_attention_rows_##name),
static const struct ig_cpu_kernel kernels[] = { ATTENTION_ROWS_LIST(ENTRY) };

const struct ig_op ig_op_attention_rows = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_attention_rows_params),
	.name = "attention_rows",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_attention_rows,
};
