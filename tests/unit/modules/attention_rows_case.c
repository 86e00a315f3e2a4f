/* attention_rows_case.c: see attention_rows_case.h. */
#include "attention_rows_case.h"

#include <math.h>
#include <string.h>

#define ALL IG_ATTENTION_ALL
#define A(heads, kv_heads, dim, back, ahead)                                                       \
	{ sizeof(struct ig_attention_rows_params), heads, kv_heads, dim, 0, back, ahead }

/* Heads that share K and V or not, of sizes that kernels pad; both directions, one, windows within a range
 * of positions, beyond one, and of one position. */
static const struct ig_attention_rows_params attentions[] = {
	A(4, 4, 32, ALL, ALL), A(6, 2, 24, ALL, 0),   A(3, 1, 64, 9, 9),  A(2, 2, 8, 300, 0),
	A(1, 1, 256, 0, ALL),  A(5, 1, 40, 256, 256), A(2, 1, 128, 0, 0), A(2, 2, 80, 17, ALL - 1),
};
#define N_ATTENTIONS (sizeof attentions / sizeof *attentions)

static const int32_t attention_lens[ROWS_TEXTS] = { 1, 17, 530, 16, 257 };

/* Norms: 0 none, 1 by head, 2 of all heads together. */
static const struct {
	struct ig_rope_kv_params p;
	int norms, table;
} ropes[] = {
	{ { .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .mode = IG_ROPE_PAIRS, .n_pairs = 6 },
	  0,
	  1 },
	{ { .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .mode = IG_ROPE_HALVES, .n_pairs = 8 },
	  1,
	  1 },
	{ { .n_heads = 3, .n_kv_heads = 1, .head_dim = 40, .mode = IG_ROPE_HALVES, .n_pairs = 20 },
	  2,
	  1 },
	{ { .n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .mode = IG_ROPE_HALVES }, 1, 0 },
};
#define N_ROPES (sizeof ropes / sizeof *ropes)

static const int32_t rope_lens[2] = { 5, 40 };

const size_t n_rows_cases = N_ATTENTIONS + N_ROPES;

void rows_step_make(struct rows_step *r, const int32_t *lens, int32_t n)
{
	memset(r, 0, sizeof *r);
	r->step = (struct ig_step){ .struct_size = sizeof r->step,
				    .n_seqs = n,
				    .positions = r->positions,
				    .row_seq = r->seqs,
				    .seq_lens = r->lens };
	for (int32_t i = 0; i < n; i++) {
		r->lens[i] = lens[i];
		for (int32_t k = 0; k < lens[i]; k++, r->step.n_rows++) {
			assert_true(r->step.n_rows < ROWS_MAX);
			r->positions[r->step.n_rows] = k;
			r->seqs[r->step.n_rows] = i;
		}
	}
}

static void fill(struct guarded *g, int64_t n_rows, int64_t n_cols, float size)
{
	guarded_create(g, n_rows, n_cols);
	for (int64_t r = 0; r < n_rows; r++)
		for (int64_t i = 0; i < n_cols; i++)
			guarded_row(g, r)[i] = size * world_uniform();
}

static void open_attention(struct rows_case *c, size_t i)
{
	static struct ig_attention_rows_params p;

	p = attentions[i];
	p.scale = 1 / sqrtf((float)p.head_dim);
	c->op = world_op("attention_rows");
	c->params = &p;
	c->n_in = 1;
	c->n_cols = (int64_t)p.n_heads * p.head_dim;
	fill(&c->in[0], c->n_rows, c->n_cols + 2 * (int64_t)p.n_kv_heads * p.head_dim, 3);
}

static void open_rope(struct rows_case *c, size_t i)
{
	static struct ig_rope_kv_params p;

	p = ropes[i].p;
	p.struct_size = sizeof p;
	p.norm_eps = 1e-6f;
	c->op = world_op("rope_rows");
	c->params = &p;
	c->n_in = ropes[i].table ? 2 : 1;
	c->n_cols = (int64_t)(p.n_heads + 2 * p.n_kv_heads) * p.head_dim;
	fill(&c->in[0], c->n_rows, c->n_cols, 1);
	if (ropes[i].table)
		fill(&c->in[1], c->n_rows, 2 * (int64_t)p.n_pairs, 1);
	c->n_weights = ropes[i].norms ? 2 : 0;
	for (int k = 0; ropes[i].norms && k < 2; k++) {
		const uint32_t heads = k ? p.n_kv_heads : p.n_heads;
		c->norm_cols[k] = (int64_t)p.head_dim * (ropes[i].norms == 2 ? heads : 1);
		for (int64_t j = 0; j < c->norm_cols[k]; j++)
			c->norms[k][j] = 1 + world_uniform() / 2;
	}
}

void rows_case_open(struct rows_case *c, size_t i)
{
	memset(c, 0, sizeof *c);
	world_seed(i + 1);
	c->lens = i < N_ATTENTIONS ? attention_lens : rope_lens;
	c->n_texts = i < N_ATTENTIONS ? ROWS_TEXTS : 2;
	for (int32_t k = 0; k < c->n_texts; k++)
		c->n_rows += c->lens[k];
	if (i < N_ATTENTIONS)
		open_attention(c, i);
	else
		open_rope(c, i - N_ATTENTIONS);
}

void rows_case_close(struct rows_case *c)
{
	for (uint32_t i = 0; i < c->n_in; i++)
		guarded_destroy(&c->in[i]);
}

int32_t rows_case_first(const struct rows_case *c, int32_t i)
{
	int32_t row = 0;

	for (int32_t k = 0; k < i; k++)
		row += c->lens[k];
	return row;
}

void rows_case_launch(const struct rows_case *c, int32_t first, int32_t n, struct guarded *out,
		      struct rows_step *step, struct ig_op_launch *launch)
{
	const int32_t row = rows_case_first(c, first);

	rows_step_make(step, c->lens + first, n);
	*launch = (struct ig_op_launch){ .struct_size = sizeof *launch,
					 .n_in = c->n_in,
					 .n_weights = c->n_weights,
					 .n_out = 1,
					 .params = c->params,
					 .out = { out->t },
					 .step = &step->step };
	launch->out[0].n_rows = step->step.n_rows;
	for (uint32_t i = 0; i < c->n_in; i++) {
		launch->in[i] = c->in[i].t;
		launch->in[i].data = guarded_row(&c->in[i], row);
		launch->in[i].n_rows = step->step.n_rows;
	}
	for (uint32_t i = 0; i < c->n_weights; i++)
		launch->weight[i] = (struct ig_tensor){
			(void *)(uintptr_t)c->norms[i],		  1,	  c->norm_cols[i],
			c->norm_cols[i] * (int64_t)sizeof(float), IG_F32, IG_LAYOUT_ROWS
		};
}

double rows_difference(const struct guarded *a, const struct guarded *b)
{
	double most = 0;

	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t i = 0; i < a->t.n_cols; i++) {
			double d =
				fabs((double)guarded_row(a, r)[i] - (double)guarded_row(b, r)[i]);
			most = d > most || isnan(d) ? (isnan(d) ? INFINITY : d) : most;
		}
	return most;
}

void rows_expect_same(const struct guarded *a, int64_t from, const struct guarded *b, int64_t n)
{
	for (int64_t r = 0; r < n; r++)
		assert_memory_equal(guarded_row(a, from + r), guarded_row(b, r),
				    (size_t)a->t.n_cols * sizeof(float));
}
