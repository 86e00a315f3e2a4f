/* latent_case.c: see latent_case.h. */
#include "latent_case.h"

#include <math.h>
#include <string.h>

const struct latent_shape latent_shapes[] = {
	{ 4, 24, 32, 4, IG_ROPE_PAIRS, IG_F32 },     { 4, 24, 32, 4, IG_ROPE_PAIRS, IG_F16 },
	{ 20, 256, 512, 32, IG_ROPE_PAIRS, IG_F16 }, { 3, 192, 512, 32, IG_ROPE_PAIRS, IG_Q8_0 },
	{ 5, 64, 96, 32, IG_ROPE_HALVES, IG_Q8_0 },  { 9, 8, 40, 4, IG_ROPE_HALVES, IG_F32 },
	{ 1, 64, 8, 16, IG_ROPE_HALVES, IG_F16 },
};
const size_t n_latent_shapes = sizeof latent_shapes / sizeof *latent_shapes;

static const int32_t lens[] = { 40, 3, 17 };
const struct latent_row latent_rows[LATENT_ROWS] = {
	{ 0, 14 }, { 0, 15 }, { 0, 16 }, { 0, 39 }, { 1, 0 }, { 1, 1 }, { 2, 0 }, { 2, 16 },
};

static void fill(struct guarded *g, float size, float offset)
{
	for (int64_t r = 0; r < g->t.n_rows; r++)
		for (int64_t i = 0; i < g->t.n_cols; i++)
			guarded_row(g, r)[i] = world_uniform() * size + offset;
}

void latent_open(struct latent_case *c, const struct latent_shape *s)
{
	memset(c, 0, sizeof *c);
	c->s = s;
	c->dim = s->n_latent + 2 * s->n_pairs;
	c->p = (struct ig_rope_latent_params){ .struct_size = sizeof c->p,
					       .n_heads = s->n_heads,
					       .head_dim = s->head_dim,
					       .n_latent = s->n_latent,
					       .n_pairs = s->n_pairs,
					       .mode = s->mode,
					       .layer = 1,
					       .norm_eps = 1e-2f };
	world_create(&c->w, s->dtype, 1, c->dim, lens, 3);
	c->w.layout.kind = IG_CACHE_K; /* with a gap where V would be, which nothing may touch */
	c->w.layout.v_offset = 0;
	c->w.layout.v_token_stride = c->w.layout.k_token_stride;
	guarded_create(&c->q, LATENT_ROWS, (int64_t)s->n_heads * s->head_dim);
	guarded_create(&c->kv, LATENT_ROWS, c->dim);
	guarded_create(&c->table, LATENT_ROWS, 2 * (int64_t)s->n_pairs);
	guarded_create(&c->norm, 1, s->n_latent);
	fill(&c->q, 3, 0);
	fill(&c->kv, 0.5f, 0.1f);
	fill(&c->norm, 0.5f, 1);
	for (int32_t r = 0; r < LATENT_ROWS; r++) {
		c->positions[r] = latent_rows[r].pos;
		c->row_seq[r] = latent_rows[r].seq;
		for (uint32_t i = 0; i < s->n_pairs; i++) {
			const float angle = world_uniform() * 3;
			guarded_row(&c->table, r)[i] = cosf(angle);
			guarded_row(&c->table, r)[s->n_pairs + i] = sinf(angle);
		}
	}
}

void latent_close(struct latent_case *c)
{
	world_destroy(&c->w);
	guarded_destroy(&c->q);
	guarded_destroy(&c->kv);
	guarded_destroy(&c->table);
	guarded_destroy(&c->norm);
}

void latent_launch(struct latent_case *c, int32_t first, int32_t n, struct guarded *out,
		   struct ig_step *step, struct ig_op_launch *launch)
{
	*step = (struct ig_step){
		.struct_size = sizeof *step,
		.n_rows = n,
		.n_seqs = 3,
		.positions = c->positions + first,
		.row_seq = c->row_seq + first,
		.seq_lens = lens,
		.slab_bases = c->w.slabs,
		.kv = &c->w.kv,
		.n_groups = 1,
	};
	*launch = (struct ig_op_launch){ .struct_size = sizeof *launch,
					 .n_in = 3,
					 .n_weights = 1,
					 .n_out = 1,
					 .params = &c->p,
					 .in = { c->q.t, c->kv.t, c->table.t },
					 .weight = { c->norm.t },
					 .out = { out->t },
					 .step = step };
	launch->in[0].data = guarded_row(&c->q, first);
	launch->in[1].data = guarded_row(&c->kv, first);
	launch->in[2].data = guarded_row(&c->table, first);
	launch->out[0].data = guarded_row(out, first);
	launch->in[0].n_rows = launch->in[1].n_rows = launch->in[2].n_rows = launch->out[0].n_rows =
		n;
}

void latent_take(const struct latent_case *c, const struct world *w, struct guarded *keys)
{
	for (int32_t r = 0; r < LATENT_ROWS; r++) {
		const uint32_t seq = (uint32_t)latent_rows[r].seq;
		for (uint32_t d = 0; d < c->dim; d++)
			guarded_row(keys, r)[d] =
				world_element(w, seq, latent_rows[r].pos, 1, 0, 0, d);
		world_wipe(w, seq, latent_rows[r].pos, 1, 0, 0);
	}
	for (uint32_t i = 0; i < w->n_slabs; i++)
		for (uint64_t b = 0; b < w->slab_bytes; b++)
			if (((unsigned char *)w->slabs[i])[b] != 0xff)
				fail_msg("byte %llu of slab %u was written", (unsigned long long)b,
					 i);
}
