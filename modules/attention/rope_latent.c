/*
 * rope_latent.c: the op rope_latent, keys of multi-head latent attention: parameters, shape, reference,
 * and the kernel in plain C.  The vector kernels are latent_row.h, compiled by rope_avx2.c, rope_avx512.c
 * and rope_neon.c.
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

#include "latent_row.h"

static int check_value(const struct ig_op_shape *s, uint32_t i, const char *what, int64_t n_cols,
		       struct ig_error *err)
{
	const struct ig_shape *v = &s->in[i];

	return v->n_cols == n_cols && v->dtype == IG_F32 && v->row_class == IG_ROWS_TOKENS ?
		       0 :
		       ig_fail(err, -EINVAL,
			       "rope_latent: %s has %lld columns of type %u, expected %lld of F32, one "
			       "row a token",
			       what, (long long)v->n_cols, v->dtype, (long long)n_cols);
}

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_rope_latent_params *p = s->params;
	const struct ig_shape *w = &s->weight[0];
	int rc;

	if (s->n_in != 3 || s->n_weights != 1 || s->n_out != 1)
		return ig_fail(
			err, -EINVAL,
			"rope_latent: %u inputs, %u weights, %u outputs; takes three, one and "
			"one",
			s->n_in, s->n_weights, s->n_out);
	if (p->n_heads < 1 || p->n_heads > MAX_HEADS || p->head_dim < 8 ||
	    p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(
			err, -EINVAL,
			"rope_latent: %u heads of %u; 1 … %d heads of a multiple of 8 up to %d "
			"are supported",
			p->n_heads, p->head_dim, MAX_HEADS, MAX_HEAD_DIM);
	if (p->n_pairs < 1 || p->n_pairs > p->head_dim / 2 || p->n_latent < 8 || p->n_latent % 8 ||
	    p->n_latent > MAX_HEAD_DIM || p->n_pairs % 4 ||
	    p->n_latent + 2 * p->n_pairs > MAX_HEAD_DIM)
		return ig_fail(
			err, -EINVAL,
			"rope_latent: keys of %u + %u dimensions, not multiples of 8 up to %d "
			"together, or more rotated ones than q's %u",
			p->n_latent, 2 * p->n_pairs, MAX_HEAD_DIM, p->head_dim);
	if (p->mode != IG_ROPE_PAIRS && p->mode != IG_ROPE_HALVES)
		return ig_fail(err, -EINVAL, "rope_latent: mode %u is unknown", p->mode);
	if (p->group >= IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "rope_latent: cache group %u, expected less than %d",
			       p->group, IG_MAX_CACHE_GROUPS);
	if (!(p->norm_eps >= 0 && isfinite(p->norm_eps)))
		return ig_fail(err, -EINVAL, "rope_latent: norm_eps is %g", (double)p->norm_eps);
	if ((rc = check_value(s, 0, "q", (int64_t)p->n_heads * p->head_dim, err)) ||
	    (rc = check_value(s, 1, "kv", p->n_latent + 2 * (int64_t)p->n_pairs, err)) ||
	    (rc = check_value(s, 2, "the table", 2 * (int64_t)p->n_pairs, err)))
		return rc;
	if (w->n_rows != 1 || w->n_cols != p->n_latent || w->dtype != IG_F32)
		return ig_fail(
			err, -EINVAL,
			"rope_latent: the norm is [%lld, %lld] of type %u, expected [1, %u] of "
			"F32",
			(long long)w->n_rows, (long long)w->n_cols, w->dtype, p->n_latent);
	s->out[0] = s->in[0];
	return 0;
}

static void reference(const struct ig_op_launch *launch)
{
	const struct ig_rope_latent_params *p = launch->params;
	const struct ig_rope_kv_params rope = latent_rotated(p);
	const struct ig_step *step = launch->step;
	const uint32_t n_plain = p->head_dim - 2 * p->n_pairs;
	const float *w = launch->weight[0].data;
	/* as rope_kv: its parts read in[1] as the table */
	struct ig_op_launch part = { .struct_size = sizeof part, .n_in = 2, .params = &rope };
	float k[MAX_HEAD_DIM];

	part.in[1] = launch->in[2];
	for (int64_t row = 0; row < step->n_rows; row++) {
		const float *q = (const float *)((const char *)launch->in[0].data +
						 row * launch->in[0].row_stride);
		const float *kv = (const float *)((const char *)launch->in[1].data +
						  row * launch->in[1].row_stride);
		float *y = (float *)((char *)launch->out[0].data + row * launch->out[0].row_stride);
		const double inv = ig_rope_reference_inverse(kv, p->n_latent, (double)p->norm_eps);
		const struct pages pages =
			pages_of(step, p->group, p->layer, step->row_seq[row], 0);
		const int64_t pos = step->positions[row];

		for (uint32_t h = 0; h < p->n_heads; h++, q += p->head_dim, y += p->head_dim) {
			memcpy(y, q, n_plain * sizeof *y);
			ig_rope_reference_head(&part, row, q + n_plain, NULL, 0, y + n_plain);
		}
		for (uint32_t i = 0; i < p->n_latent; i++)
			k[i] = (float)((double)kv[i] * inv * (double)w[i]);
		ig_rope_reference_head(&part, row, kv + p->n_latent, NULL, 0, k + p->n_latent);
		store_row(pages_block(&pages, pos / IG_BLOCK_TOKENS), k_side(pages.layout),
			  (uint32_t)(pos % IG_BLOCK_TOKENS), k, p->n_latent + 2 * p->n_pairs);
	}
}

static int64_t n_rows_of_step(const struct ig_op_launch *launch) { return launch->step->n_rows; }

static void rope_latent_generic(const struct ig_op_launch *launch, int64_t first, int64_t last,
				void *scratch)
{
	(void)scratch;
	rope_latent_rows(launch, first, last);
}

#define KERNEL(isa, run) IG_CPU_KERNEL(isa, IG_UNITS_ROWS, n_rows_of_step, NULL, run)

static const struct ig_cpu_kernel kernels[] = {
	KERNEL(IG_ISA_GENERIC, rope_latent_generic),
#if defined(__x86_64__)
	KERNEL(IG_ISA_AVX2, ig_rope_latent_avx2),
	KERNEL(IG_ISA_AVX512, ig_rope_latent_avx512),
#elif defined(__aarch64__)
	KERNEL(IG_ISA_NEON, ig_rope_latent_neon),
#endif
};

const struct ig_op ig_op_rope_latent = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_rope_latent_params),
	.name = "rope_latent",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.flags = IG_OP_WRITES_KV,
	.gpu = &ig_gpu_rope_latent,
};
