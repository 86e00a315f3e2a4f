/*
 * attention.c: the op attention: parameters, shape, reference, and the kernel in
 * plain C.  The vector kernels are attention_tile.h, compiled by
 * attention_avx2.c, attention_avx512.c and attention_neon.c.
 *
 * Order of sums of the plain kernel, for one row and one query head, independent of other rows:
 *   positions in ranges of IG_ATTENTION_RANGE, at absolute multiples of it;
 *   q . k: 8 partial sums (dimension modulo 8, ascending), one tree;
 *   sum of p, and p v: positions ascending;
 *   ranges are merged in ascending order, then the sink.
 */
#include "cache_row.h"
#include "kernels_private.h"
#include "pages.h"
#include "units.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int check_gate(const struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_attention_params *p = s->params;
	const int64_t end =
		(int64_t)p->gate_first + (p->n_heads - 1) * (int64_t)p->gate_stride + p->gate_dim;

	if (p->gate > IG_GATE_SOFTPLUS)
		return ig_fail(err, -EINVAL, "attention: gate %u is unknown", p->gate);
	if (p->gate_dim != 1 && p->gate_dim != value_dim(p))
		return ig_fail(err, -EINVAL,
			       "attention: the gate has %u values a head, expected 1 or %u",
			       p->gate_dim, value_dim(p));
	if (s->in[1].dtype != IG_F32 || s->in[1].row_class != IG_ROWS_TOKENS ||
	    s->in[1].n_cols < end)
		return ig_fail(err, -EINVAL,
			       "attention: the gate's input has %lld columns of type %u, expected "
			       "%lld of F32 or more, one row a token",
			       (long long)s->in[1].n_cols, s->in[1].dtype, (long long)end);
	return 0;
}

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_attention_params *p = s->params;
	int64_t n_cols;

	if (s->n_in != (p->gate ? 2 : 1) || s->n_weights > 1 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "attention: %u inputs, %u weights, %u outputs; takes "
			       "one or, with a gate, two, at most one, and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->head_dim < 8 || p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(err, -EINVAL,
			       "attention: head_dim is %u, not a multiple of 8 up to %d",
			       p->head_dim, MAX_HEAD_DIM);
	if (p->v_dim % 8 || p->v_dim > p->head_dim)
		return ig_fail(err, -EINVAL, "attention: v_dim is %u, not a multiple of 8 up to %u",
			       p->v_dim, p->head_dim);
	if (p->n_heads < 1 || p->n_heads > MAX_HEADS || p->n_kv_heads < 1 ||
	    p->n_heads % p->n_kv_heads)
		return ig_fail(err, -EINVAL,
			       "attention: %u heads do not share %u KV heads evenly (at most %d)",
			       p->n_heads, p->n_kv_heads, MAX_HEADS);
	if (p->group >= IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "attention: cache group %u, expected less than %d",
			       p->group, IG_MAX_CACHE_GROUPS);
	if (!(p->scale > 0 && isfinite(p->scale)))
		return ig_fail(err, -EINVAL, "attention: scale is %g, not above 0",
			       (double)p->scale);
	if (p->spans > 1)
		return ig_fail(err, -EINVAL, "attention: spans is not 0 or 1");
	if (p->window > INT32_MAX)
		return ig_fail(err, -EINVAL, "attention: window is %u, not in 0 … %d", p->window,
			       INT32_MAX);
	n_cols = (int64_t)p->n_heads * p->head_dim;
	if (s->in[0].n_cols != n_cols || s->in[0].dtype != IG_F32 ||
	    s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL,
			       "attention: q has %lld columns of type %u, expected "
			       "%lld of F32, one row a token",
			       (long long)s->in[0].n_cols, s->in[0].dtype, (long long)n_cols);
	if (p->gate && check_gate(s, err))
		return -EINVAL;
	if (s->n_weights > 0 && s->weight[0].n_rows != 0 &&
	    (s->weight[0].n_rows != 1 || s->weight[0].n_cols != p->n_heads ||
	     s->weight[0].dtype != IG_F32))
		return ig_fail(err, -EINVAL,
			       "attention: sinks are [%lld, %lld] of type %u, expected [1, %u] of "
			       "F32",
			       (long long)s->weight[0].n_rows, (long long)s->weight[0].n_cols,
			       s->weight[0].dtype, p->n_heads);
	s->out[0] = (struct ig_shape){ .n_cols = (int64_t)p->n_heads * value_dim(p),
				       .dtype = IG_F32,
				       .row_class = IG_ROWS_TOKENS };
	return 0;
}

/* The first position that a row at pos attends to. */
static int64_t first_seen(const struct ig_attention_params *p, int64_t pos)
{
	return p->window && pos >= p->window ? pos + 1 - p->window : 0;
}

/* y[dim]: K or V of a position. */
static void load_position(float *y, const struct pages *pages, struct cache_side side, int64_t pos,
			  uint32_t dim)
{
	load_row(y, pages_block(pages, pos / IG_BLOCK_TOKENS), side,
		 (uint32_t)(pos % IG_BLOCK_TOKENS), dim);
}

/* The value of a position.  One that is a part of the key is read as that. */
static void load_value(float *y, const struct ig_attention_params *p, const struct pages *pages,
		       int64_t pos)
{
	load_position(y, pages, value_side(p, pages->layout), pos, p->head_dim);
}

/* ---- the reference ----------------------------------------------------------------- */

static double reference_score(const struct ig_attention_params *p, const struct pages *pages,
			      const float *q, int64_t t)
{
	float k[MAX_HEAD_DIM];
	double sum = 0;
	load_position(k, pages, k_side(pages->layout), t, p->head_dim);
	for (uint32_t d = 0; d < p->head_dim; d++)
		sum += (double)q[d] * (double)k[d];
	return sum * (double)p->scale;
}

static double reference_gate(const struct ig_op_launch *launch, int64_t row, uint32_t head,
			     uint32_t d)
{
	const struct ig_attention_params *p = launch->params;
	double x;

	if (!p->gate)
		return 1;
	x = (double)gate_of_head(launch, row, head)[p->gate_dim == 1 ? 0 : d];
	return p->gate == IG_GATE_SIGMOID ? 1 / (1 + exp(-x)) : fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* Two passes over the scores, in double: the largest, then the weighted sum.  A sink is the score
 * of a position without a value. */
static void reference(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const uint32_t per_kv = p->n_heads / p->n_kv_heads;
	const uint32_t v_dim = value_dim(p);
	const float *sinks = sinks_of(launch);
	float v[MAX_HEAD_DIM];

	for (int64_t row = 0; row < step->n_rows; row++) {
		const float *q = (const float *)((const char *)launch->in[0].data +
						 row * launch->in[0].row_stride);
		float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
		const int64_t pos = ig_step_sees_to(step, p->spans, row);
		const int64_t lo = first_seen(p, step->positions[row]);
		for (uint32_t h = 0; h < p->n_heads; h++, q += p->head_dim, y += v_dim) {
			struct pages pages =
				pages_of(step, p->group, p->layer, step->row_seq[row], h / per_kv);
			double max = sinks ? (double)sinks[h] : -INFINITY, sum = 0;
			double o[MAX_HEAD_DIM] = { 0 };
			for (int64_t t = lo; t <= pos; t++)
				max = fmax(max, reference_score(p, &pages, q, t));
			if (sinks)
				sum = exp((double)sinks[h] - max);
			for (int64_t t = lo; t <= pos; t++) {
				double w = exp(reference_score(p, &pages, q, t) - max);
				load_value(v, p, &pages, t);
				sum += w;
				for (uint32_t d = 0; d < v_dim; d++)
					o[d] += w * (double)v[d];
			}
			for (uint32_t d = 0; d < v_dim; d++)
				y[d] = (float)(o[d] / sum * reference_gate(launch, row, h, d));
		}
	}
}

/* ---- the plain kernel; a unit is one row and one KV head ---------------------------- */

static int64_t n_units_generic(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	return (int64_t)launch->step->n_rows * p->n_kv_heads;
}

/* Per query head: a range's scores, output, maximum and sum, and the merged three. */
static uint64_t scratch_generic(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	uint64_t per_kv = p->n_heads / p->n_kv_heads;
	return per_kv * (IG_ATTENTION_RANGE + 2 * p->head_dim + 4) * sizeof(float);
}

/* Positions that are processed together, so that a head's q, or its output, is read once for
 * all of them. */
#define GROUP 4

typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));

/* The dot products of q with GROUP heads of K. */
static void dots(const float *q, float (*k)[MAX_HEAD_DIM], uint32_t n, float *out)
{
	vec4 even[GROUP], odd[GROUP]; /* dimensions 0 … 3 and 4 … 7 modulo 8 */

	memset(even, 0, sizeof even);
	memset(odd, 0, sizeof odd);
	for (uint32_t d = 0; d < n; d += 8) {
		const vec4 a = *(const vec4 *)(q + d), b = *(const vec4 *)(q + d + 4);
		for (int j = 0; j < GROUP; j++) {
			even[j] += a * *(const vec4 *)(k[j] + d);
			odd[j] += b * *(const vec4 *)(k[j] + d + 4);
		}
	}
	for (int j = 0; j < GROUP; j++) {
		const vec4 x = even[j] + odd[j];
		out[j] = (x[0] + x[2]) + (x[1] + x[3]);
	}
}

/* o += w[0] v[0] + w[1] v[1] + …, one after the other. */
static void add_values(float *restrict o, const float *w, float (*v)[MAX_HEAD_DIM], uint32_t n)
{
	for (uint32_t d = 0; d < n; d += 4) {
		vec4 x = *(const vec4 *)(o + d);
		for (int j = 0; j < GROUP; j++)
			x += w[j] * *(const vec4 *)(v[j] + d);
		*(vec4 *)(o + d) = x;
	}
}

/* K or V of n positions; positions from n to GROUP are zero. */
static void load_group(float (*y)[MAX_HEAD_DIM], const struct pages *pages, struct cache_side side,
		       int64_t pos, int64_t n, uint32_t dim)
{
	for (int64_t j = 0; j < GROUP; j++) {
		if (j < n)
			load_position(y[j], pages, side, pos + j, dim);
		else
			memset(y[j], 0, dim * sizeof y[j][0]);
	}
}

/* Dot products become weights p = exp(s - max), s = scale * dot, in place; returns the
 * largest score, *sum the sum of weights.  A last group's missing weights are 0. */
static float soft_max(float *s, int64_t n, float scale, float *sum)
{
	float max = -INFINITY;

	for (int64_t t = 0; t < n; t++) {
		s[t] *= scale;
		max = s[t] > max ? s[t] : max;
	}
	*sum = 0;
	for (int64_t t = 0; t < n; t++) {
		s[t] = expf(s[t] - max);
		*sum += s[t];
	}
	for (int64_t t = n; t % GROUP; t++)
		s[t] = 0;
	return max;
}

/* Add the partial result (max, sum, o) of a range to the merged one; both are scaled relative to
 * the larger maximum. */
static void merge(float *max_to, float *sum_to, float *o_to, float max, float sum, const float *o,
		  uint32_t n)
{
	float top = *max_to > max ? *max_to : max;
	float a = expf(*max_to - top), b = expf(max - top);
	*max_to = top;
	*sum_to = *sum_to * a + sum * b;
	for (uint32_t d = 0; d < n; d++)
		o_to[d] = o_to[d] * a + o[d] * b;
}

/* The sink is the last range: one score without a value. */
static void merge_sink(float *max, float *sum, float *o, float sink, uint32_t n)
{
	float top = *max > sink ? *max : sink;
	float a = expf(*max - top);
	*max = top;
	*sum = *sum * a + expf(sink - top);
	for (uint32_t d = 0; d < n; d++)
		o[d] *= a;
}

/* Multiply a head's output y[n] by its gate. */
static void apply_gate(const struct ig_op_launch *launch, int64_t row, uint32_t head, float *y,
		       uint32_t n)
{
	const struct ig_attention_params *p = launch->params;
	const float *x = gate_of_head(launch, row, head);
	float g = gate_value(p->gate, *x, expf(-fabsf(*x)));

	for (uint32_t d = 0; d < n; d++) {
		if (p->gate_dim != 1)
			g = gate_value(p->gate, x[d], expf(-fabsf(x[d])));
		y[d] *= g;
	}
}

static void unit_generic(const struct ig_op_launch *launch, int64_t row, uint32_t kv_head,
			 float *scratch)
{
	const struct ig_attention_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const uint32_t per_kv = p->n_heads / p->n_kv_heads, dim = p->head_dim;
	const uint32_t v_dim = value_dim(p);
	const float *sinks = sinks_of(launch);
	const float *q =
		(const float *)((const char *)launch->in[0].data + row * launch->in[0].row_stride) +
		(size_t)kv_head * per_kv * dim;
	float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride) +
		   (size_t)kv_head * per_kv * v_dim;
	const struct pages pages = pages_of(step, p->group, p->layer, step->row_seq[row], kv_head);
	const int64_t pos = ig_step_sees_to(step, p->spans, row);
	const int64_t lo = first_seen(p, step->positions[row]);
	float *s = scratch;				    /* [per_kv, IG_ATTENTION_RANGE] */
	float *o = s + (size_t)per_kv * IG_ATTENTION_RANGE; /* [per_kv, v_dim] */
	float *o_all = o + (size_t)per_kv * v_dim;	    /* [per_kv, v_dim] */
	float *max = o_all + (size_t)per_kv * v_dim, *sum = max + per_kv; /* [per_kv] */
	float *max_all = sum + per_kv, *sum_all = max_all + per_kv;	  /* [per_kv] */
	float kv[GROUP][MAX_HEAD_DIM];

	for (uint32_t g = 0; g < per_kv; g++) {
		max_all[g] = -INFINITY;
		sum_all[g] = 0;
	}
	memset(o_all, 0, (size_t)per_kv * v_dim * sizeof *o_all);
	for (int64_t base = lo - lo % IG_ATTENTION_RANGE; base <= pos; base += IG_ATTENTION_RANGE) {
		const int64_t from = lo > base ? lo : base;
		const int64_t end = base + IG_ATTENTION_RANGE;
		const int64_t n = (pos + 1 < end ? pos + 1 : end) - from;
		for (int64_t t = 0; t < n; t += GROUP) {
			load_group(kv, &pages, k_side(pages.layout), from + t, n - t, dim);
			for (uint32_t g = 0; g < per_kv; g++)
				dots(q + (size_t)g * dim, kv, dim,
				     s + (size_t)g * IG_ATTENTION_RANGE + (size_t)t);
		}
		for (uint32_t g = 0; g < per_kv; g++)
			max[g] = soft_max(s + (size_t)g * IG_ATTENTION_RANGE, n, p->scale, &sum[g]);
		memset(o, 0, (size_t)per_kv * v_dim * sizeof *o);
		for (int64_t t = 0; t < n; t += GROUP) {
			load_group(kv, &pages, value_side(p, pages.layout), from + t, n - t, dim);
			for (uint32_t g = 0; g < per_kv; g++)
				add_values(o + (size_t)g * v_dim,
					   s + (size_t)g * IG_ATTENTION_RANGE + (size_t)t, kv,
					   v_dim);
		}
		for (uint32_t g = 0; g < per_kv; g++)
			merge(&max_all[g], &sum_all[g], o_all + (size_t)g * v_dim, max[g], sum[g],
			      o + (size_t)g * v_dim, v_dim);
	}
	for (uint32_t g = 0; sinks && g < per_kv; g++)
		merge_sink(&max_all[g], &sum_all[g], o_all + (size_t)g * v_dim,
			   sinks[kv_head * per_kv + g], v_dim);
	for (uint32_t g = 0; g < per_kv; g++)
		for (uint32_t d = 0; d < v_dim; d++)
			y[(size_t)g * v_dim + d] = o_all[(size_t)g * v_dim + d] / sum_all[g];
	for (uint32_t g = 0; p->gate && g < per_kv; g++)
		apply_gate(launch, row, kv_head * per_kv + g, y + (size_t)g * v_dim, v_dim);
}

static void run_generic(const struct ig_op_launch *launch, int64_t first, int64_t last,
			void *scratch)
{
	const struct ig_attention_params *p = launch->params;
	for (int64_t unit = first; unit < last; unit++)
		unit_generic(launch, unit / p->n_kv_heads, (uint32_t)(unit % p->n_kv_heads),
			     scratch);
}

#if defined(__x86_64__) || defined(__aarch64__)
static int64_t n_units_vector(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	const struct split split = split_of(launch);
	return split.n_ranges ? split.n_units :
				n_row_groups(launch->step, unit_rows(p)) * p->n_kv_heads;
}

static int64_t n_units_merge(const struct ig_op_launch *launch)
{
	return split_of(launch).n_ranges ? launch->step->n_rows : 0;
}

#define MERGE(name, isa)                                                                           \
	static const struct ig_cpu_kernel merge_##name =                                           \
		IG_CPU_KERNEL(isa, IG_UNITS_ROWS, n_units_merge, ig_attention_scratch_##name,      \
			      ig_attention_merge_##name);
#define VECTOR_KERNEL(name, isa_)                                                                  \
	{ .struct_size = sizeof(struct ig_cpu_kernel),                                             \
	  .isa = isa_,                                                                             \
	  .weight_dtype = IG_DTYPE_NONE,                                                           \
	  .weight_layout = IG_LAYOUT_ROWS,                                                         \
	  .in_layout = IG_LAYOUT_ROWS,                                                             \
	  .unit_kind = IG_UNITS_OTHER,                                                             \
	  .n_units = n_units_vector,                                                               \
	  .scratch_bytes = ig_attention_scratch_##name,                                            \
	  .run = ig_attention_##name,                                                              \
	  .shared_bytes = split_bytes,                                                             \
	  .then = &merge_##name }
#endif
#if defined(__x86_64__)
MERGE(avx2, IG_ISA_AVX2)
MERGE(avx512, IG_ISA_AVX512)
#elif defined(__aarch64__)
MERGE(neon, IG_ISA_NEON)
#endif

/* ---- the table --------------------------------------------------------------------- */

static const struct ig_cpu_kernel kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_OTHER, n_units_generic, scratch_generic,
		      run_generic),
#if defined(__x86_64__)
	VECTOR_KERNEL(avx2, IG_ISA_AVX2),
	VECTOR_KERNEL(avx512, IG_ISA_AVX512),
#elif defined(__aarch64__)
	VECTOR_KERNEL(neon, IG_ISA_NEON),
#endif
};

const struct ig_op ig_op_attention = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_attention_params),
	.name = "attention",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.flags = IG_OP_READS_KV,
	.split = IG_SPLIT_HEADS,
	.gpu = &ig_gpu_attention,
};
