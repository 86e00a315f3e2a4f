/*
 * rope.c: the ops rope_table and rope_kv: parameters, shapes, references, and the kernels in plain
 * C.  rope_table computes cosines and sines of the step's positions, once per step; rope_kv applies
 * QK norm and RoPE in one layer and writes k and v to the cache.  The vector kernels of rope_kv are
 * in rope_avx2.c, rope_avx512.c and rope_neon.c.
 */
#include "cache_row.h"
#include "kernels_private.h"
#include "pages.h"

#include <errno.h>
#include <math.h>

static inline void store_f16(uint16_t *dst, const float *src, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		dst[i] = f32_to_f16(src[i]);
}

#include "rope_row.h"

/* ---- rope_table ---------------------------------------------------------------- */

static int check_table(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_rope_table_params *p = s->params;
	const int has_factors = s->n_weights > 0 && s->weight[0].n_rows != 0;

	if (s->n_in != 0 || s->n_weights > 1 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "rope_table: %u inputs, %u weights, %u outputs; takes "
			       "none, at most one, and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->n_pairs < 1 || p->n_pairs > MAX_HEAD_DIM / 2)
		return ig_fail(err, -EINVAL, "rope_table: n_pairs is %u, not in 1 … %d", p->n_pairs,
			       MAX_HEAD_DIM / 2);
	if (!(p->freq_base >= 1 && isfinite(p->freq_base)))
		return ig_fail(err, -EINVAL, "rope_table: freq_base is %g, not a number from 1 on",
			       (double)p->freq_base);
	if (!(p->freq_scale > 0 && isfinite(p->freq_scale)))
		return ig_fail(err, -EINVAL, "rope_table: freq_scale is %g, not above 0",
			       (double)p->freq_scale);
	if (!(p->ramp_first >= 0 && p->ramp_last >= 0 && isfinite(p->ramp_last)) ||
	    (p->ramp_last > 0 && !(p->ramp_last > p->ramp_first)))
		return ig_fail(err, -EINVAL, "rope_table: a ramp from pair %g to %g",
			       (double)p->ramp_first, (double)p->ramp_last);
	if (!(p->magnitude >= 0 && isfinite(p->magnitude)))
		return ig_fail(err, -EINVAL, "rope_table: magnitude is %g, not from 0 on",
			       (double)p->magnitude);
	if (ig_rope_has_sections(p) || p->interleaved) {
		const uint64_t n = (uint64_t)p->sections[0] + p->sections[1] + p->sections[2];
		if (n != p->n_pairs || p->interleaved > 1)
			return ig_fail(
				err, -EINVAL,
				"rope_table: sections of %u, %u and %u pairs, together not %u",
				p->sections[0], p->sections[1], p->sections[2], p->n_pairs);
	}
	if (has_factors && (s->weight[0].n_rows != 1 || s->weight[0].n_cols != p->n_pairs ||
			    s->weight[0].dtype != IG_F32))
		return ig_fail(err, -EINVAL,
			       "rope_table: factors are [%lld, %lld] of type %u, "
			       "expected [1, %u] of F32",
			       (long long)s->weight[0].n_rows, (long long)s->weight[0].n_cols,
			       s->weight[0].dtype, p->n_pairs);
	s->out[0] = (struct ig_shape){ .n_cols = 2 * (int64_t)p->n_pairs,
				       .dtype = IG_F32,
				       .row_class = IG_ROWS_TOKENS };
	return 0;
}

uint32_t ig_rope_axis(const struct ig_rope_table_params *p, uint32_t pair)
{
	const uint32_t *n = p->sections, axis = pair % 3;

	if (!ig_rope_has_sections(p))
		return 0;
	if (p->interleaved)
		return axis && pair < 3 * n[axis] ? axis : 0;
	return pair < n[0] ? 0 : pair < n[0] + n[1] ? 1 : 2;
}

/* Every intermediate is rounded to float, as in the models' own code; pow is computed in double,
 * so that the rounded power is the nearest float. */
void ig_rope_inverse_frequencies(const struct ig_rope_table_params *p, float *inv)
{
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		float exponent = (float)(2 * i) / (float)(2 * p->n_pairs);
		float power = (float)pow((double)p->freq_base, (double)exponent);
		inv[i] = 1.0f / power;
		if (p->ramp_last > 0) {
			float share = ((float)i - p->ramp_first) / (p->ramp_last - p->ramp_first);
			share = share < 0 ? 0 : share > 1 ? 1 : share;
			inv[i] = inv[i] * p->freq_scale * share + inv[i] * (1 - share);
		}
	}
}

float ig_rope_position_scale(const struct ig_rope_table_params *p)
{
	return p->ramp_last > 0 ? 1 : p->freq_scale;
}

float ig_rope_magnitude(const struct ig_rope_table_params *p)
{
	return p->magnitude != 0 ? p->magnitude : 1;
}

float ig_rope_q_scale(const struct ig_rope_kv_params *p, int32_t i)
{
	return (float)(1 + (double)p->q_scale * log(1 + (double)i));
}

/* 1 / base^(i / n_pairs) / factor[i] */
static void inverse_frequencies(const struct ig_op_launch *launch, float *inv)
{
	const struct ig_rope_table_params *p = launch->params;
	const float *factors =
		launch->n_weights > 0 ? launch->weight[0].data : NULL; /* [n_pairs] */
	ig_rope_inverse_frequencies(p, inv);
	for (uint32_t i = 0; factors && i < p->n_pairs; i++)
		inv[i] /= factors[i];
}

/* A row's positions, one for each axis, scaled. */
static void row_positions(const struct ig_op_launch *launch, int64_t row, float *to)
{
	for (uint32_t axis = 0; axis < IG_ROPE_AXES; axis++)
		to[axis] = (float)ig_step_rope_position(launch->step, row, axis) *
			   ig_rope_position_scale(launch->params);
}

static int64_t n_rows_of_step(const struct ig_op_launch *launch) { return launch->step->n_rows; }

static void table_rows(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch)
{
	const struct ig_rope_table_params *p = launch->params;
	const struct ig_tensor *out = &launch->out[0];
	const float magnitude = ig_rope_magnitude(p);
	float inv[MAX_HEAD_DIM / 2];
	uint8_t axis[MAX_HEAD_DIM / 2];

	(void)scratch;
	inverse_frequencies(launch, inv);
	for (uint32_t i = 0; i < p->n_pairs; i++)
		axis[i] = (uint8_t)ig_rope_axis(p, i);
	for (int64_t row = first; row < last; row++) {
		float *c = (float *)((char *)out->data + row * out->row_stride);
		float *s = c + p->n_pairs;
		float position[IG_ROPE_AXES];
		row_positions(launch, row, position);
		for (uint32_t i = 0; i < p->n_pairs; i++) {
			float angle = position[axis[i]] * inv[i];
			c[i] = cosf(angle) * magnitude;
			s[i] = sinf(angle) * magnitude;
		}
	}
}

/* The angle is a float here too, as in the models' own code. */
static void reference_table(const struct ig_op_launch *launch)
{
	const struct ig_rope_table_params *p = launch->params;
	const struct ig_tensor *out = &launch->out[0];
	const double by = (double)ig_rope_magnitude(p);
	float inv[MAX_HEAD_DIM / 2];

	inverse_frequencies(launch, inv);
	for (int64_t row = 0; row < launch->step->n_rows; row++) {
		float *y = (float *)((char *)out->data + row * out->row_stride);
		for (uint32_t i = 0; i < p->n_pairs; i++) {
			float position[IG_ROPE_AXES];
			row_positions(launch, row, position);
			float angle = position[ig_rope_axis(p, i)] * inv[i];
			y[i] = (float)(cos((double)angle) * by);
			y[p->n_pairs + i] = (float)(sin((double)angle) * by);
		}
	}
}

static const struct ig_cpu_kernel table_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, n_rows_of_step, NULL, table_rows),
};

const struct ig_op ig_op_rope_table = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_rope_table_params),
	.name = "rope_table",
	.version = 1,
	.check = check_table,
	.reference = reference_table,
	.cpu_kernels = table_kernels,
	.n_cpu_kernels = sizeof table_kernels / sizeof table_kernels[0],
	.split = IG_SPLIT_COPY,
	.gpu = &ig_gpu_rope_table,
};

/* ---- rope_kv ------------------------------------------------------------------- */

#define ALL_FLAGS (IG_ROPE_KV_Q_ONLY | IG_ROPE_KV_NO_V | IG_ROPE_KV_V_NORM)

int ig_rope_check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_rope_kv_params *p = s->params;
	const int has_table = s->n_in > 1 && s->in[1].n_cols != 0;
	const int has_norm = s->n_weights > 0 && s->weight[0].n_rows != 0;
	const uint32_t n_sides = p->flags & IG_ROPE_KV_Q_ONLY ? 1 : 2;
	int64_t n_cols;

	if (s->n_in < 1 || s->n_in > 2 || (s->n_weights != 0 && s->n_weights != n_sides) ||
	    s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "rope_kv: %u inputs, %u weights, %u outputs; takes one "
			       "or two, none or %u, and one",
			       s->n_in, s->n_weights, s->n_out, n_sides);
	if (p->head_dim < 8 || p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(err, -EINVAL,
			       "rope_kv: head_dim is %u, not a multiple of 8 up to %d", p->head_dim,
			       MAX_HEAD_DIM);
	if (p->n_heads < 1 || p->n_heads > MAX_HEADS || p->n_kv_heads < 1 ||
	    p->n_kv_heads > MAX_HEADS)
		return ig_fail(err, -EINVAL, "rope_kv: %u heads and %u KV heads, not in 1 … %d",
			       p->n_heads, p->n_kv_heads, MAX_HEADS);
	if (p->mode != IG_ROPE_PAIRS && p->mode != IG_ROPE_HALVES)
		return ig_fail(err, -EINVAL, "rope_kv: mode %u is unknown", p->mode);
	if (p->group >= IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "rope_kv: cache group %u, expected less than %d",
			       p->group, IG_MAX_CACHE_GROUPS);
	if (p->flags & ~(uint32_t)ALL_FLAGS ||
	    (p->flags & IG_ROPE_KV_Q_ONLY && p->flags != IG_ROPE_KV_Q_ONLY))
		return ig_fail(err, -EINVAL, "rope_kv: flags %#x are unknown or contradict",
			       p->flags);
	if (ig_rope_q_stride(p) < p->head_dim)
		return ig_fail(err, -EINVAL, "rope_kv: heads of %u columns of q are %u apart",
			       p->head_dim, p->q_stride);
	n_cols = (int64_t)p->n_heads * ig_rope_q_stride(p) +
		 (int64_t)n_kv_parts(p) * p->n_kv_heads * p->head_dim + p->n_rest;
	if (s->in[0].n_cols != n_cols || s->in[0].dtype != IG_F32 ||
	    s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL,
			       "rope_kv: q | k | v has %lld columns of type %u, "
			       "expected %lld of F32, one row a token",
			       (long long)s->in[0].n_cols, s->in[0].dtype, (long long)n_cols);
	if (has_table && (p->n_pairs < 1 || p->n_pairs > p->head_dim / 2))
		return ig_fail(err, -EINVAL, "rope_kv: n_pairs is %u, not in 1 … %u", p->n_pairs,
			       p->head_dim / 2);
	if (has_table && (s->in[1].n_cols != 2 * (int64_t)p->n_pairs || s->in[1].dtype != IG_F32 ||
			  s->in[1].row_class != IG_ROWS_TOKENS))
		return ig_fail(err, -EINVAL,
			       "rope_kv: the table has %lld columns of type %u, "
			       "expected %u of F32, one row a token",
			       (long long)s->in[1].n_cols, s->in[1].dtype, 2 * p->n_pairs);
	for (uint32_t i = 0; has_norm && i < n_sides; i++) {
		/* heads that lie apart are not normalised together */
		const int64_t whole =
			i == 0 && ig_rope_q_stride(p) != p->head_dim ?
				p->head_dim :
				(int64_t)(i ? p->n_kv_heads : p->n_heads) * p->head_dim;
		if (s->weight[i].n_rows != 1 || s->weight[i].dtype != IG_F32 ||
		    (s->weight[i].n_cols != p->head_dim && s->weight[i].n_cols != whole))
			return ig_fail(err, -EINVAL,
				       "rope_kv: %s_norm is [%lld, %lld] of type %u, "
				       "expected [1, %u] or [1, %lld] of F32",
				       i ? "k" : "q", (long long)s->weight[i].n_rows,
				       (long long)s->weight[i].n_cols, s->weight[i].dtype,
				       p->head_dim, (long long)whole);
	}
	if ((has_norm || p->flags & IG_ROPE_KV_V_NORM) &&
	    !(p->norm_eps >= 0 && isfinite(p->norm_eps)))
		return ig_fail(err, -EINVAL, "rope_kv: norm_eps is %g", (double)p->norm_eps);
	if (p->q_scale_length && (p->q_scale_length < 16 || p->q_scale_length > INT32_MAX ||
				  !(p->q_scale >= 0 && isfinite(p->q_scale))))
		return ig_fail(err, -EINVAL, "rope_kv: q is scaled by %g every %u positions",
			       (double)p->q_scale, p->q_scale_length);
	s->out[0] = (struct ig_shape){ .n_cols = (int64_t)p->n_heads * p->head_dim,
				       .dtype = IG_F32,
				       .row_class = IG_ROWS_TOKENS };
	return 0;
}

static void rope_kv_generic(const struct ig_op_launch *launch, int64_t first, int64_t last,
			    void *scratch)
{
	(void)scratch;
	rope_kv_rows(launch, first, last);
}

/* 1 / rms(x[n]) */
double ig_rope_reference_inverse(const float *x, int64_t n, double eps)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return 1 / sqrt(sum / (double)n + eps);
}

/* One head in double: y = RoPE(norm(x)).  w: the head's weights or NULL; inv: 1 / rms of all
 * heads together, or 0. */
void ig_rope_reference_head(const struct ig_op_launch *launch, int64_t row, const float *x,
			    const float *w, double inv, float *y)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_tensor *table = &launch->in[1];
	const float *cs;
	double n[MAX_HEAD_DIM];

	if (!w)
		inv = 1;
	else if (inv == 0)
		inv = ig_rope_reference_inverse(x, p->head_dim, (double)p->norm_eps);
	for (uint32_t i = 0; i < p->head_dim; i++) {
		n[i] = (double)x[i] * inv * (w ? (double)w[i] : 1);
		y[i] = (float)n[i];
	}
	if (launch->n_in < 2 || !table->data)
		return;
	cs = (const float *)((const char *)table->data + row * table->row_stride);
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		uint32_t a = p->mode == IG_ROPE_PAIRS ? 2 * i : i;
		uint32_t b = p->mode == IG_ROPE_PAIRS ? 2 * i + 1 : i + p->n_pairs;
		double c = (double)cs[i], s = (double)cs[p->n_pairs + i];
		y[a] = (float)(n[a] * c - n[b] * s);
		y[b] = (float)(n[b] * c + n[a] * s);
	}
}

static void reference_rope_kv(const struct ig_op_launch *launch)
{
	const struct ig_rope_kv_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const float *q_norm = launch->n_weights > 0 ? launch->weight[0].data : NULL;
	const float *k_norm = launch->n_weights > 1 ? launch->weight[1].data : NULL;
	const int64_t dim = p->head_dim, q_n = launch->weight[0].n_cols,
		      k_n = launch->weight[1].n_cols;
	const double eps = (double)p->norm_eps;
	float k[MAX_HEAD_DIM], v[MAX_HEAD_DIM];

	for (int64_t row = 0; row < step->n_rows; row++) {
		const float *x = (const float *)((const char *)launch->in[0].data +
						 row * launch->in[0].row_stride);
		float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
		const float *w = q_norm;
		double inv = w && q_n != dim ? ig_rope_reference_inverse(x, q_n, eps) : 0;
		for (uint32_t h = 0; h < p->n_heads; h++, x += ig_rope_q_stride(p), y += dim) {
			ig_rope_reference_head(launch, row, x, w, inv, y);
			for (uint32_t i = 0; p->q_scale_length && i < p->head_dim; i++)
				y[i] *= ig_rope_q_scale(p, step->positions[row] /
								   (int32_t)p->q_scale_length);
			if (inv != 0)
				w += dim;
		}
		if (p->flags & IG_ROPE_KV_Q_ONLY)
			continue;
		w = k_norm;
		inv = w && k_n != dim ? ig_rope_reference_inverse(x, k_n, eps) : 0;
		for (uint32_t h = 0; h < p->n_kv_heads; h++, x += p->head_dim) {
			const float *from = x + (n_kv_parts(p) - 1) * p->n_kv_heads * dim;
			const double v_inv = p->flags & IG_ROPE_KV_V_NORM ?
						     ig_rope_reference_inverse(from, dim, eps) :
						     1;
			ig_rope_reference_head(launch, row, x, w, inv, k);
			for (int64_t i = 0; i < dim; i++)
				v[i] = (float)((double)from[i] * v_inv);
			if (inv != 0)
				w += dim;
			store_cache(launch, row, h, k, v);
		}
	}
}

#define KERNEL(isa, run) IG_CPU_KERNEL(isa, IG_UNITS_ROWS, n_rows_of_step, NULL, run)

static const struct ig_cpu_kernel rope_kv_kernels[] = {
	KERNEL(IG_ISA_GENERIC, rope_kv_generic),
#if defined(__x86_64__)
	KERNEL(IG_ISA_AVX2, ig_rope_kv_avx2),
	KERNEL(IG_ISA_AVX512, ig_rope_kv_avx512),
#elif defined(__aarch64__)
	KERNEL(IG_ISA_NEON, ig_rope_kv_neon),
#endif
};

const struct ig_op ig_op_rope_kv = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_rope_kv_params),
	.name = "rope_kv",
	.version = 1,
	.check = ig_rope_check,
	.reference = reference_rope_kv,
	.cpu_kernels = rope_kv_kernels,
	.n_cpu_kernels = sizeof rope_kv_kernels / sizeof rope_kv_kernels[0],
	.flags = IG_OP_WRITES_KV,
	.split = IG_SPLIT_ROPE,
	.gpu = &ig_gpu_rope_kv,
};
