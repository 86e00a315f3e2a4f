/*
 * mamba2.h: the mixer of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), which several architectures have in
 * place of attention: In(h) = z | x | b | c | dt, of which x | b | c pass a short convolution and SiLU; the
 * selective scan keeps a matrix for each head; its output is gated by z, then normalised by groups.
 */
#pragma once

#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct mamba2 {
	struct ig_selective_scan_params scan;
	uint32_t n_taps;
	uint32_t conv_state; /* the cache group of the convolutions */
	uint32_t conv_bias;  /* 1: they have biases */
};

/* Its tensors in folders, in `block`. */
#define MAMBA2_TENSORS(block)                                                                      \
	{ "layers.%u." block ".in_proj", "blk.%u.ssm_in", 0 },                                     \
		{ "layers.%u." block ".conv1d", "blk.%u.ssm_conv1d",                               \
		  IG_TENSOR_CONV | IG_TENSOR_BIAS },                                               \
		{ "layers.%u." block ".dt_bias", "blk.%u.ssm_dt.bias", IG_TENSOR_NAMED },          \
		{ "layers.%u." block ".A_log", "blk.%u.ssm_a",                                     \
		  IG_TENSOR_NAMED | IG_TENSOR_NEGATIVE_EXP },                                      \
		{ "layers.%u." block ".D", "blk.%u.ssm_d", IG_TENSOR_NAMED },                      \
		{ "layers.%u." block ".norm", "blk.%u.ssm_norm", 0 },                              \
		{ "layers.%u." block ".out_proj", "blk.%u.ssm_out", 0 }

/* first: a layer with this mixer. */
static inline int mamba2_read(const struct ig_hparam_source *s, uint32_t first, struct mamba2 *m)
{
	struct ig_selective_scan_params *p = &m->scan;
	uint32_t inner;
	int rc;

	*p = (struct ig_selective_scan_params){ .struct_size = sizeof *p };
	if ((rc = ig_hparam_u32(s, "ssm.conv_kernel", 2, IG_CONV1D_MAX_TAPS, NULL, &m->n_taps)) ||
	    (rc = ig_hparam_u32(s, "ssm.state_size", 1, IG_SELECTIVE_SCAN_MAX_DIM, NULL,
				&p->state_dim)) ||
	    (rc = ig_hparam_u32(s, "ssm.group_count", 1, IG_SELECTIVE_SCAN_MAX_HEADS, NULL,
				&p->n_groups)) ||
	    (rc = ig_hparam_u32(s, "ssm.time_step_rank", 1, IG_SELECTIVE_SCAN_MAX_HEADS, NULL,
				&p->n_heads)) ||
	    (rc = ig_hparam_u32(s, "ssm.inner_size", 1, 1u << 20, NULL, &inner)))
		return rc;
	if (p->n_heads % p->n_groups || inner % p->n_heads)
		return ig_fail(s->err, -EINVAL,
			       "%s.ssm: %u heads, %u groups and %u values do not fit", s->arch,
			       p->n_heads, p->n_groups, inner);
	p->head_dim = inner / p->n_heads;
	p->part_heads = ig_hparams_part_heads(p->n_heads, p->state_dim * p->head_dim);
	p->dt_first = 2 * inner + 2 * p->n_groups * p->state_dim;
	m->conv_bias = ig_meta_layer_has(s->host, s->meta, "blk.%u.ssm_conv1d.bias", first);
	return 0;
}

/* Add the cache groups of n_layers layers. */
static inline void mamba2_groups(struct mamba2 *m, uint32_t n_layers, struct ig_model_info *info)
{
	struct ig_selective_scan_params *p = &m->scan;

	p->group = ig_hparams_state(info, n_layers, p->n_heads / p->part_heads,
				    p->part_heads * p->state_dim * p->head_dim);
	m->conv_state = ig_hparams_state(
		info, n_layers, 1,
		(m->n_taps - 1) * (p->n_heads * p->head_dim + 2 * p->n_groups * p->state_dim));
}

/* A weight of n values: [1, n], or [n / n_cols, n_cols] as llama.cpp's converter has it. */
__attribute__((format(printf, 3, 0))) static inline ig_weight
mamba2_vector(struct ig_rec *r, const struct ig_meta *meta, const char *name, uint32_t layer,
	      int64_t n, int64_t n_cols)
{
	int64_t rows, cols;
	char buf[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(buf, sizeof buf, name, layer);
#pragma GCC diagnostic pop
	return !r->host->meta_tensor(meta, buf, &rows, &cols) && rows != 1 && cols == n_cols ?
		       ig_rec_weight(r, n / n_cols, n_cols, buf) :
		       ig_rec_weight(r, 1, n, buf);
}

/* Out(mixer(h)) + residual; index: the layer's among those with this mixer. */
static inline ig_value mamba2_mixer(struct ig_rec *r, const struct ig_meta *meta,
				    const struct ig_hparams *p, const struct mamba2 *m,
				    uint32_t layer, uint32_t index, ig_value h, ig_value residual)
{
	struct ig_selective_scan_params scan = m->scan;
	const uint32_t n_heads = scan.n_heads, inner = n_heads * scan.head_dim;
	const uint32_t width = inner + 2 * scan.n_groups * scan.state_dim;
	const struct ig_conv1d_params conv = {
		.struct_size = sizeof conv,
		.n_taps = m->n_taps,
		.act = IG_ACT_SILU,
		.group = m->conv_state,
		.layer = index,
		.first = inner,
		.rest = n_heads,
	};
	const struct ig_norm_gated_params norm = { .struct_size = sizeof norm,
						   .n_groups = scan.n_groups,
						   .eps = p->norm_eps,
						   .gate_first = 1,
						   .rest = width + n_heads };
	const ig_weight in = ig_rec_layer_weight(r, inner + width + n_heads, p->width,
						 "blk.%u.ssm_in.weight", layer);
	const ig_weight taps =
		ig_rec_layer_weight(r, width, m->n_taps, "blk.%u.ssm_conv1d.weight", layer);
	const ig_weight bias =
		m->conv_bias ? ig_rec_layer_weight(r, 1, width, "blk.%u.ssm_conv1d.bias", layer) :
			       IG_NONE;
	const ig_weight steps[3] = {
		mamba2_vector(r, meta, "blk.%u.ssm_dt.bias", layer, n_heads, 1),
		mamba2_vector(r, meta, "blk.%u.ssm_a", layer, n_heads, 1),
		mamba2_vector(r, meta, "blk.%u.ssm_d", layer, n_heads, 1),
	};
	const ig_weight w = mamba2_vector(r, meta, "blk.%u.ssm_norm.weight", layer, inner,
					  inner / scan.n_groups);
	const ig_weight out =
		ig_rec_layer_weight(r, p->width, inner, "blk.%u.ssm_out.weight", layer);
	ig_value v[2];

	scan.layer = index;
	v[1] = ig_rec_linear(r, h, &in, 1, IG_NONE); /* z | x | b | c | dt */
	v[0] = ig_rec_conv1d(r, &conv, v[1], taps, bias);
	v[0] = ig_rec_op(r, "selective_scan", &scan, v, 2, steps, 3); /* [n_tokens, inner] */
	v[0] = ig_rec_op(r, "norm_gated", &norm, v, 2, &w, 1);
	return ig_rec_linear(r, v[0], &out, 1, residual);
}
