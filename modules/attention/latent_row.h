/*
 * latent_row.h: the kernel of rope_latent over a range of rows, compiled once for each instruction set
 * that includes this file after rope_row.h, whose parts it is made of.
 *
 * Order of sums: the norm's squares as in rope_row.h; everything else is element by element.
 */
#pragma once

#include "rope_row.h"

/* rope_kv's parameters of the rotated columns of a head, which are a head here. */
static inline struct ig_rope_kv_params latent_rotated(const struct ig_rope_latent_params *p)
{
	return (struct ig_rope_kv_params){ .struct_size = sizeof(struct ig_rope_kv_params),
					   .head_dim = 2 * p->n_pairs,
					   .mode = p->mode,
					   .n_pairs = p->n_pairs };
}

/* The keys of a row, before they are normalised and rotated. */
static inline void write_latent(const struct ig_op_launch *launch, int64_t row, const float *kv,
				const struct ig_rope_kv_params *rope, const struct rotation *rot)
{
	const struct ig_rope_latent_params *p = launch->params;
	const struct ig_step *step = launch->step;
	const float *w = launch->weight[0].data;
	const float inv = inverse_rms(kv, p->n_latent, p->norm_eps);
	const struct pages pages = pages_of(step, p->group, p->layer, step->row_seq[row], 0);
	const int64_t pos = step->positions[row];
	float k[MAX_HEAD_DIM];

	for (uint32_t i = 0; i < p->n_latent; i++)
		k[i] = kv[i] * inv * w[i];
	rotate(k + p->n_latent, kv + p->n_latent, rope, rot);
	store_row(pages_block(&pages, pos / IG_BLOCK_TOKENS), k_side(pages.layout),
		  (uint32_t)(pos % IG_BLOCK_TOKENS), k, p->n_latent + 2 * p->n_pairs);
}

static inline void rope_latent_rows(const struct ig_op_launch *launch, int64_t first, int64_t last)
{
	const struct ig_rope_latent_params *p = launch->params;
	const struct ig_tensor *q = &launch->in[0], *kv = &launch->in[1], *table = &launch->in[2],
			       *out = &launch->out[0];
	const struct ig_rope_kv_params rope = latent_rotated(p);
	const uint32_t n_plain = p->head_dim - 2 * p->n_pairs;
	struct rotation rot;

	for (int64_t row = first; row < last; row++) {
		const float *x = (const float *)((const char *)q->data + row * q->row_stride);
		float *y = (float *)((char *)out->data + row * out->row_stride);

		spread_rotation(
			&rot, &rope,
			(const float *)((const char *)table->data + row * table->row_stride));
		for (uint32_t h = 0; h < p->n_heads; h++, x += p->head_dim, y += p->head_dim) {
			memcpy(y, x, n_plain * sizeof *y);
			rotate(y + n_plain, x + n_plain, &rope, &rot);
		}
		write_latent(launch, row,
			     (const float *)((const char *)kv->data + row * kv->row_stride), &rope,
			     &rot);
	}
}
