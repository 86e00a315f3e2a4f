/*
 * gated_delta_row.h: the kernel of gated_delta, compiled for each instruction set.  A unit is a run and a
 * head of values.  Its rows are computed a few at a time: first their normalised keys and queries, then
 * all of these rows for a tile of the state's columns, which stays in the cache meanwhile.  A
 * column is a lane; what is summed over the rows of the state ascends in k.
 */
#pragma once

#include "state.h"

#include "ops/float.h"

#define DELTA_LANES 16
#define DELTA_TILE 4  /* vectors of lanes */
#define DELTA_ROWS 16 /* at a time */
#define DELTA_MAX_DIM IG_GATED_DELTA_MAX_DIM

typedef float delta_lanes __attribute__((vector_size(4 * DELTA_LANES), aligned(4)));

/* What the rows of a chunk have in common for all columns. */
struct delta_rows {
	int n;
	float k[DELTA_ROWS][DELTA_MAX_DIM], q[DELTA_ROWS][DELTA_MAX_DIM];
	float decay[DELTA_ROWS], beta[DELTA_ROWS];
	const float *v[DELTA_ROWS];
	float *o[DELTA_ROWS];
};

static inline uint32_t delta_key_head(const struct ig_gated_delta_params *p, uint32_t head)
{
	return p->tiled ? head % p->n_k_heads : head / (p->n_v_heads / p->n_k_heads);
}

/* x / |x| * scale: sixteen sums, each over every sixteenth value, then a tree. */
static inline void delta_normalise(const float *x, uint32_t n, float eps, float scale, float *y)
{
	float sum[DELTA_LANES] = { 0 };

	for (uint32_t i = 0; i < n; i++)
		sum[i % DELTA_LANES] += x[i] * x[i];
	for (int half = DELTA_LANES / 2; half; half /= 2)
		for (int i = 0; i < half; i++)
			sum[i] += sum[i + half];
	sum[0] = 1.0f / sqrtf(sum[0] + eps);
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] * sum[0] * scale;
}

/* N vectors of columns of the state, rows by rows. */
__attribute__((always_inline)) static inline void
delta_columns(const struct ig_gated_delta_params *p, const struct delta_rows *r, float *s,
	      uint32_t column, const int n_vectors)
{
	const uint32_t stride = p->v_dim;

	for (int row = 0; row < r->n; row++) {
		const float *k = r->k[row], *q = r->q[row];
		delta_lanes read[DELTA_TILE], d[DELTA_TILE], out[DELTA_TILE];
		for (int j = 0; j < n_vectors; j++)
			read[j] = out[j] = (delta_lanes){ 0 };
		for (uint32_t i = 0; i < p->k_dim; i++)
			for (int j = 0; j < n_vectors; j++) {
				delta_lanes *at = (delta_lanes *)(s + i * stride) + j;
				delta_lanes x = *at * r->decay[row];
				*at = x;
				read[j] += x * k[i];
			}
		for (int j = 0; j < n_vectors; j++) {
			const delta_lanes *v = (const delta_lanes *)(r->v[row] + column) + j;
			d[j] = (*v - read[j]) * r->beta[row];
		}
		for (uint32_t i = 0; i < p->k_dim; i++)
			for (int j = 0; j < n_vectors; j++) {
				delta_lanes *at = (delta_lanes *)(s + i * stride) + j;
				delta_lanes x = *at + d[j] * k[i];
				*at = x;
				out[j] += x * q[i];
			}
		for (int j = 0; j < n_vectors; j++)
			((delta_lanes *)(r->o[row] + column))[j] = out[j];
	}
}

/* The state [k_dim, v_dim] of one head passes these rows. */
static inline void delta_pass(const struct ig_gated_delta_params *p, const struct delta_rows *r,
			      float *s)
{
	uint32_t column = 0;

	for (; column + DELTA_TILE * DELTA_LANES <= p->v_dim; column += DELTA_TILE * DELTA_LANES)
		delta_columns(p, r, s + column, column, DELTA_TILE);
	for (; column < p->v_dim; column += DELTA_LANES)
		delta_columns(p, r, s + column, column, 1);
}

/* Rows `row` … of a head. */
static inline void delta_load(const struct ig_op_launch *c, uint32_t head, int64_t row, int n,
			      struct delta_rows *r)
{
	const struct ig_gated_delta_params *p = c->params;
	const uint32_t keys = p->n_k_heads * p->k_dim, from = delta_key_head(p, head) * p->k_dim;
	const uint32_t group = p->n_v_heads / p->n_k_heads;
	const uint32_t beta = p->by_key ? head / group * 2 * group + head % group : head;
	const uint32_t alpha = beta + (p->by_key ? group : p->n_v_heads);
	const float *dt = c->weight[0].data, *a = c->weight[1].data;

	r->n = n;
	for (int i = 0; i < n; i++) {
		const float *x = tensor_row(&c->in[0], row + i),
			    *ba = tensor_row(&c->in[1], row + i);
		delta_normalise(x + from, p->k_dim, p->norm_eps, 1.0f / sqrtf((float)p->k_dim),
				r->q[i]);
		delta_normalise(x + keys + from, p->k_dim, p->norm_eps, 1, r->k[i]);
		r->v[i] = x + 2 * keys + head * p->v_dim;
		r->o[i] = tensor_row(&c->out[0], row + i) + head * p->v_dim;
		r->beta[i] = 1.0f / (1.0f + expf(-ba[beta]));
		r->decay[i] = expf(a[head] * softplus(ba[alpha] + dt[head]));
	}
}

static inline float *delta_state(const struct ig_op_launch *c, uint32_t head, int32_t state)
{
	const struct ig_gated_delta_params *p = c->params;
	float *part = state_part(c->step, p->group, p->layer, head / p->part_heads, state);

	return part ? part + (size_t)(head % p->part_heads) * p->k_dim * p->v_dim : NULL;
}

static inline void delta_unit(const struct ig_op_launch *c, struct run run, uint32_t head)
{
	const struct ig_gated_delta_params *p = c->params;
	const size_t bytes = (size_t)p->k_dim * p->v_dim * sizeof(float);
	struct delta_rows r;

	for (const struct ig_step_segment *s = run.first; s < run.end; s++) {
		const float *from = delta_state(c, head, s->from);
		float *to = delta_state(c, head, s->to);
		if (!from)
			memset(to, 0, bytes);
		else if (from != to)
			memcpy(to, from, bytes);
		for (int i = 0; i < s->n_rows; i += DELTA_ROWS) {
			int n = s->n_rows - i < DELTA_ROWS ? s->n_rows - i : DELTA_ROWS;
			delta_load(c, head, s->first_row + i, n, &r);
			delta_pass(p, &r, to);
		}
	}
}

static inline void delta_units(const struct ig_op_launch *c, int64_t first, int64_t last)
{
	const uint32_t n_heads = ((const struct ig_gated_delta_params *)c->params)->n_v_heads;

	for (int64_t i = first; i < last; i++)
		delta_unit(c, run_at(c->step, i / n_heads), (uint32_t)(i % n_heads));
}
