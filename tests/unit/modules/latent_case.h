/*
 * latent_case.h: cases of the op rope_latent, for its kernels on the CPU and on GPUs: rows of three sequences
 * in a world whose cache has no V (attention_world.h).
 */
#pragma once

#include "attention_world.h"

struct latent_shape {
	uint32_t n_heads, head_dim, n_latent, n_pairs, mode, dtype;
};

extern const struct latent_shape latent_shapes[];
extern const size_t n_latent_shapes;

#define LATENT_ROWS 8
extern const struct latent_row {
	int32_t seq, pos;
} latent_rows[LATENT_ROWS];

struct latent_case {
	const struct latent_shape *s;
	struct world w;
	struct ig_rope_latent_params p;
	int32_t positions[LATENT_ROWS], row_seq[LATENT_ROWS];
	uint32_t dim; /* of a key */
	struct guarded q, kv, table, norm;
};

void latent_open(struct latent_case *c, const struct latent_shape *s);
void latent_close(struct latent_case *c);
/* The call for rows first … first + n - 1, whose results go to the same rows of out. */
void latent_launch(struct latent_case *c, int32_t first, int32_t n, struct guarded *out,
		   struct ig_step *step, struct ig_op_launch *launch);
/* The rows' keys in the world's slabs, as floats in keys [LATENT_ROWS, dim]; then their slots are wiped, and
 * nothing else may be other than it was. */
void latent_take(const struct latent_case *c, const struct world *w, struct guarded *keys);
