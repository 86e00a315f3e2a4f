/*
 * test_attention_gpu.c: the op attention on a GPU: both kernels against the reference,
 * and a row's bits whatever kernel takes it and whatever runs beside it.
 */
#include "attention_world.h"
#include "tests/brief.h"
#include "tests/ops/gpu_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one sequence: positions from … to - 1 of it. */
struct span {
	int32_t seq, from, to;
};

struct attention_case {
	uint32_t n_heads, n_kv_heads, head_dim, dtype, window;
	float scale;		      /* 0: 4 / sqrt(head_dim), for a spread that matters */
	int32_t lens[WORLD_MAX_SEQS]; /* of the sequences, up to the first 0 */
	struct span spans[8];	      /* up to the first with to 0 */
	uint32_t sinks;		      /* 1: there are some */
	uint32_t gate, gate_dim;      /* IG_GATE_…, values a head */
	uint32_t v_dim;		      /* values are so much of the keys */
	struct span images[3];	      /* rows that see each other, up to the first with to 0 */
};

static const struct attention_case cases[] = {
	/* lengths around blocks and ranges, one row at the end: decode */
	{ 9,
	  3,
	  64,
	  IG_F16,
	  0,
	  0,
	  { 1, 15, 16, 17, 255, 256, 257, 700 },
	  { { 0, 0, 1 },
	    { 1, 14, 15 },
	    { 2, 15, 16 },
	    { 3, 16, 17 },
	    { 4, 254, 255 },
	    { 5, 255, 256 },
	    { 6, 256, 257 },
	    { 7, 699, 700 } } },
	{ 9,
	  3,
	  64,
	  IG_F32,
	  0,
	  0,
	  { 1, 15, 16, 17, 255, 256, 257, 700 },
	  { { 0, 0, 1 },
	    { 1, 14, 15 },
	    { 2, 15, 16 },
	    { 3, 16, 17 },
	    { 4, 254, 255 },
	    { 5, 255, 256 },
	    { 6, 256, 257 },
	    { 7, 699, 700 } } },
	{ 2, 1, 64, IG_F16, 0, 0, { 1500 }, { { 0, 1499, 1500 } } },
	/* whole prefills, and chunks across the edge of a range */
	{ 3, 1, 64, IG_F16, 0, 0, { 80 }, { { 0, 0, 80 } } },
	{ 3, 1, 64, IG_F32, 0, 0, { 40 }, { { 0, 0, 40 } } },
	{ 9, 3, 64, IG_F16, 0, 0, { 700, 40 }, { { 0, 250, 262 }, { 1, 0, 40 } } },
	{ 2, 2, 64, IG_F16, 0, 0, { 320 }, { { 0, 240, 304 } } },
	/* more rows than 16: split, since the sequence is long */
	{ 6, 2, 64, IG_F16, 0, 0, { 1100, 20 }, { { 0, 1060, 1100 }, { 1, 19, 20 } } },
	/* prefill and decode of several sequences in one step */
	{ 6,
	  2,
	  64,
	  IG_F16,
	  0,
	  0,
	  { 33, 270, 17, 24 },
	  { { 0, 32, 33 }, { 1, 250, 270 }, { 2, 16, 17 }, { 3, 0, 24 } } },
	/* head sizes, the kernels' own and others */
	{ 4, 4, 32, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 4, 1, 40, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 6, 2, 80, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 6, 2, 96, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 8, 1, 128, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 2, 1, 256, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 2, 1, 512, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 4, 1, 384, IG_F16, 9, 0, { 270 }, { { 0, 260, 263 } } },
	{ 2, 1, 136, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 2, 2, 8, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 4, 4, 32, IG_F32, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 4, 1, 40, IG_F32, 0, 0, { 270 }, { { 0, 254, 258 } } },
	{ 6, 2, 80, IG_F32, 0, 0, { 270 }, { { 0, 254, 258 } } },
	{ 6, 2, 96, IG_F32, 0, 0, { 270 }, { { 0, 254, 258 } } },
	{ 8, 1, 128, IG_F32, 0, 0, { 270 }, { { 0, 254, 258 } } },
	{ 2, 1, 256, IG_F32, 0, 0, { 270 }, { { 0, 254, 258 } } },
	/* heads that share a KV head: 1, 3, 4, 7, 16, and more than a tile takes */
	{ 3, 3, 64, IG_F16, 0, 0, { 290 }, { { 0, 250, 267 } } },
	{ 8, 2, 64, IG_F16, 0, 0, { 290 }, { { 0, 250, 267 } } },
	{ 14, 2, 64, IG_F16, 0, 0, { 290 }, { { 0, 250, 267 } } },
	{ 16, 1, 64, IG_F16, 0, 0, { 290 }, { { 0, 254, 260 } } },
	{ 71, 1, 64, IG_F16, 0, 0, { 40 }, { { 0, 34, 40 } } },
	/* windows: within a block, over blocks, over ranges, longer than all */
	{ 6, 2, 64, IG_F16, 1, 0, { 300 }, { { 0, 250, 262 } } },
	{ 6, 2, 64, IG_F16, 5, 0, { 300 }, { { 0, 0, 20 }, { 0, 250, 267 } } },
	{ 6, 2, 64, IG_F16, 100, 0, { 400 }, { { 0, 350, 370 } } },
	{ 4, 4, 64, IG_F32, 256, 0, { 600 }, { { 0, 508, 516 } } },
	{ 4, 4, 40, IG_F16, 300, 0, { 600 }, { { 0, 550, 567 } } },
	{ 6, 2, 64, IG_F16, 5000, 0, { 300 }, { { 0, 290, 300 } } },
	/* scores so far apart that most weights vanish */
	{ 3, 1, 64, IG_F16, 0, 20, { 600 }, { { 0, 590, 600 } } },
	/* and so close that the output is nearly a mean */
	{ 3, 1, 64, IG_F16, 0, 1e-3f, { 600 }, { { 0, 590, 600 } } },
	/* sinks, and gates by element and by head */
	{ 6, 2, 64, IG_F16, 0, 0, { 300, 3 }, { { 0, 250, 262 }, { 1, 0, 3 } }, .sinks = 1 },
	{ 6, 2, 64, IG_F32, 20, 0, { 600 }, { { 0, 512, 516 } }, .sinks = 1 },
	{ 3, 1, 64, IG_Q8_0, 0, 20, { 300 }, { { 0, 294, 300 } }, .sinks = 1 },
	{ 6, 2, 72, IG_F16, 0, 0, { 300 }, { { 0, 254, 260 } }, 0, IG_GATE_SIGMOID, 72 },
	{ 4, 1, 8, IG_F32, 0, 0, { 300 }, { { 0, 296, 300 } }, 0, IG_GATE_SIGMOID, 8 },
	{ 6, 2, 64, IG_F32, 0, 0, { 300 }, { { 0, 254, 258 } }, 1, IG_GATE_SOFTPLUS, 64 },
	{ 6, 2, 64, IG_F16, 0, 0, { 300 }, { { 0, 254, 258 } }, 1, IG_GATE_SOFTPLUS, 1 },
	{ 6, 2, 64, IG_F16, 9, 0, { 300 }, { { 0, 250, 262 } }, 0, IG_GATE_SIGMOID, 1 },
	/* values that are a part of the keys */
	{ 4, 1, 96, IG_F16, 0, 0, { 270 }, { { 0, 250, 267 } }, .v_dim = 64 },
	{ 20, 1, 576, IG_F16, 0, 0, { 270 }, { { 0, 254, 258 } }, .v_dim = 512 },
	{ 6, 2, 40, IG_F32, 9, 0, { 270 }, { { 0, 254, 258 } }, 1, IG_GATE_SIGMOID, 24, 24 },
	/* images: over the edge of a range, with few rows and many; in a long sequence; over tiles; with windows */
	{ 6, 2, 64, IG_F16, 0, 0, { 300 }, { { 0, 250, 262 } }, .images = { { 0, 252, 260 } } },
	{ 6, 2, 64, IG_F32, 0, 0, { 300 }, { { 0, 240, 280 } }, .images = { { 0, 244, 275 } } },
	{ 6,
	  2,
	  64,
	  IG_F16,
	  0,
	  0,
	  { 1100, 20, 300 },
	  { { 0, 1010, 1050 }, { 1, 4, 9 }, { 2, 270, 271 } },
	  .images = { { 0, 1012, 1031 }, { 1, 5, 8 } } },
	{ 1, 1, 32, IG_F16, 0, 0, { 300 }, { { 0, 200, 300 } }, .images = { { 0, 205, 290 } } },
	{ 4,
	  2,
	  32,
	  IG_F16,
	  9,
	  0,
	  { 300 },
	  { { 0, 230, 290 } },
	  .images = { { 0, 235, 250 }, { 0, 251, 270 } } },
	{ 4, 1, 40, IG_F32, 5, 0, { 300 }, { { 0, 250, 262 } }, .images = { { 0, 252, 260 } } },
	{ 6, 2, 64, IG_Q8_0, 0, 0, { 300 }, { { 0, 240, 280 } }, .images = { { 0, 244, 275 } } },
	{ 2, 1, 256, IG_Q8_0, 7, 0, { 270 }, { { 0, 250, 267 } }, .images = { { 0, 251, 266 } } },
	/* 8 bits: lengths; chunks; more rows than 16 */
	{ 9,
	  3,
	  64,
	  IG_Q8_0,
	  0,
	  0,
	  { 1, 15, 16, 17, 255, 256, 257, 700 },
	  { { 0, 0, 1 },
	    { 1, 14, 15 },
	    { 2, 15, 16 },
	    { 3, 16, 17 },
	    { 4, 254, 255 },
	    { 5, 255, 256 },
	    { 6, 256, 257 },
	    { 7, 699, 700 } } },
	{ 9, 3, 64, IG_Q8_0, 0, 0, { 700, 40 }, { { 0, 250, 262 }, { 1, 0, 40 } } },
	{ 6, 2, 64, IG_Q8_0, 0, 0, { 1100, 20 }, { { 0, 1060, 1100 }, { 1, 19, 20 } } },
	/* head sizes; more queries than a tile takes */
	{ 4, 4, 32, IG_Q8_0, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 6, 2, 96, IG_Q8_0, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 8, 1, 128, IG_Q8_0, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 2, 1, 256, IG_Q8_0, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 2, 1, 512, IG_Q8_0, 0, 0, { 270 }, { { 0, 262, 267 } } },
	{ 2, 1, 160, IG_Q8_0, 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 71, 1, 64, IG_Q8_0, 0, 0, { 40 }, { { 0, 34, 40 } } },
	/* windows; scores far apart */
	{ 6, 2, 64, IG_Q8_0, 5, 0, { 300 }, { { 0, 0, 20 }, { 0, 250, 267 } } },
	{ 6, 2, 128, IG_Q8_0, 100, 0, { 400 }, { { 0, 350, 370 } } },
	{ 3, 1, 64, IG_Q8_0, 0, 20, { 600 }, { { 0, 590, 600 } } },
	/* keys or values alone */
	{ 4, 4, 32, KEYS_VALUES(IG_Q8_0, IG_F16), 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 4, 4, 32, KEYS_VALUES(IG_F16, IG_Q8_0), 0, 0, { 270 }, { { 0, 250, 267 } } },
	{ 9, 3, 64, KEYS_VALUES(IG_Q8_0, IG_F16), 7, 0, { 300 }, { { 0, 250, 267 } } },
	{ 9, 3, 64, KEYS_VALUES(IG_F16, IG_Q8_0), 7, 0, { 300 }, { { 0, 250, 267 } } },
	{ 2, 1, 256, KEYS_VALUES(IG_Q8_0, IG_F16), 0, 0, { 270 }, { { 0, 254, 258 } } },
	{ 2, 1, 256, KEYS_VALUES(IG_F16, IG_Q8_0), 0, 0, { 270 }, { { 0, 254, 258 } } },
};

/* Weights are rounded as the cache's elements are: by 2^-11 each, of values below 1.
 * In float32 scores are about 3 wide, or more with their scale.  Values of Q8_0 are rounded to half
 * on the way: V by 2^-12 of values below 1, and a score by what that makes of K. */
static double tolerance(const struct attention_case *c)
{
	double wide = (double)c->scale * sqrt(c->head_dim) / 4;

	wide = wide > 1 ? wide : 1;
	wide *= c->gate == IG_GATE_SOFTPLUS ? 1.5 : 1; /* of values up to 1 */
	return c->dtype == IG_F32 ? 4e-6 * wide :
	       c->dtype == IG_F16 ? 4e-4 * (c->gate ? wide : 1) :
				    8e-4 * wide;
}

struct setup {
	struct world w;
	struct ig_attention_params p;
	const struct attention_case *c;
	int32_t n_rows;
	int32_t *positions, *row_seq, *sees_to;
	int32_t n_seqs;
	struct guarded q, gate, sinks;
	int64_t out_cols;
	int has_sinks;
};

static struct ig_gpu_lab *lab;

/* The first of a sequence's blocks that its rows see. */
static int32_t first_block(const struct setup *s, int32_t seq)
{
	int32_t b = 0;

	while (b < s->w.kv.max_blocks &&
	       s->w.block_tables[seq * s->w.kv.max_blocks + b] == IG_BLOCK_NONE)
		b++;
	return b;
}

/* With a window the engine gives blocks back that no row sees any more: no kernel may
 * look at their words. */
static void forget_unseen(struct setup *s)
{
	int32_t lowest[WORLD_MAX_SEQS];

	for (int32_t i = 0; i < s->n_seqs; i++)
		lowest[i] = s->c->lens[i];
	for (int32_t r = 0; r < s->n_rows; r++) {
		int32_t *low = &lowest[s->row_seq[r]];
		int32_t from = s->positions[r] + 1 - (int32_t)s->c->window;

		from = from < 0 || !s->c->window ? 0 : from;
		*low = from < *low ? from : *low;
	}
	for (int32_t i = 0; i < s->n_seqs; i++)
		for (int32_t b = 0; b < lowest[i] / IG_BLOCK_TOKENS; b++)
			s->w.block_tables[i * s->w.kv.max_blocks + b] = IG_BLOCK_NONE;
}

static void setup_create(struct setup *s, const struct attention_case *c)
{
	memset(s, 0, sizeof *s);
	s->c = c;
	while (s->n_seqs < WORLD_MAX_SEQS && c->lens[s->n_seqs])
		s->n_seqs++;
	world_create(&s->w, c->dtype, c->n_kv_heads, c->head_dim, c->lens, (uint32_t)s->n_seqs);
	world_fill(&s->w, 1, c->lens); /* layer 0 stays NaN */
	s->p = (struct ig_attention_params){ .struct_size = sizeof s->p,
					     .n_heads = c->n_heads,
					     .n_kv_heads = c->n_kv_heads,
					     .head_dim = c->head_dim,
					     .group = 0,
					     .layer = 1,
					     .scale = c->scale != 0 ? c->scale :
								      4 / sqrtf((float)c->head_dim),
					     .window = c->window,
					     .spans = c->images[0].to != 0 };
	for (const struct span *x = c->spans; x < c->spans + 8 && x->to; x++)
		s->n_rows += x->to - x->from;
	s->positions = malloc((size_t)s->n_rows * sizeof *s->positions);
	s->row_seq = malloc((size_t)s->n_rows * sizeof *s->row_seq);
	s->sees_to = malloc((size_t)s->n_rows * sizeof *s->sees_to);
	assert_true(s->positions && s->row_seq && s->sees_to);
	s->n_rows = 0;
	for (const struct span *x = c->spans; x < c->spans + 8 && x->to; x++)
		for (int32_t t = x->from; t < x->to; t++, s->n_rows++) {
			s->positions[s->n_rows] = t;
			s->row_seq[s->n_rows] = x->seq;
			s->sees_to[s->n_rows] = t;
			for (const struct span *i = c->images; i < c->images + 3 && i->to; i++)
				if (i->seq == x->seq && t >= i->from && t < i->to)
					s->sees_to[s->n_rows] = i->to - 1;
		}
	forget_unseen(s);
	guarded_create(&s->q, s->n_rows, (int64_t)c->n_heads * c->head_dim);
	for (int32_t r = 0; r < s->n_rows; r++)
		for (int64_t i = 0; i < s->q.t.n_cols; i++)
			guarded_row(&s->q, r)[i] = world_uniform() * 2;
	/* the gate's columns lie among others */
	s->p.gate = c->gate;
	s->p.v_dim = c->v_dim;
	s->out_cols = c->n_heads * (int64_t)(c->v_dim ? c->v_dim : c->head_dim);
	s->p.gate_dim = c->gate_dim;
	s->p.gate_first = c->gate ? 3 : 0;
	s->p.gate_stride = c->gate ? c->gate_dim + 5 : 0;
	guarded_create(&s->gate, s->n_rows, c->n_heads * (int64_t)s->p.gate_stride + 9);
	for (int32_t r = 0; r < s->n_rows; r++)
		for (int64_t i = 0; i < s->gate.t.n_cols; i++)
			guarded_row(&s->gate, r)[i] =
				i % 7 ? world_uniform() :
					world_uniform() * 60 -
						(c->gate == IG_GATE_SOFTPLUS ? 60 : 0);
	s->has_sinks = c->sinks != 0;
	guarded_create(&s->sinks, 1, c->n_heads);
	for (uint32_t i = 0; i < c->n_heads; i++)
		guarded_row(&s->sinks, 0)[i] = world_uniform() * 5 + (i == 2 ? 60 :
								      i == 3 ? -200 :
									       0);
}

static void setup_destroy(struct setup *s)
{
	world_destroy(&s->w);
	guarded_destroy(&s->q);
	guarded_destroy(&s->gate);
	guarded_destroy(&s->sinks);
	free(s->positions);
	free(s->row_seq);
	free(s->sees_to);
}

/* How sequences of few rows are worked on. */
enum way { SPLIT, LOOP, REFERENCE };

/* Rows first … first + n - 1 of the setup as one step, into the same rows of out. */
static void run_rows(struct setup *s, enum way way, uint32_t out_dtype, struct guarded *out,
		     int32_t first, int32_t n)
{
	const struct ig_step step = {
		.struct_size = sizeof step,
		.n_rows = n,
		.n_seqs = s->n_seqs,
		.positions = s->positions + first,
		.row_seq = s->row_seq + first,
		.sees_to = s->c->images[0].to ? s->sees_to + first : NULL,
		.seq_lens = s->c->lens,
		.slab_bases = s->w.slabs,
		.kv = &s->w.kv,
		.n_groups = 1,
	};
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .n_in = s->p.gate ? 2 : 1,
				       .n_weights = s->has_sinks ? 1 : 0,
				       .n_out = 1,
				       .params = &s->p,
				       .in = { s->q.t, s->gate.t },
				       .weight = { s->sinks.t },
				       .out = { out->t },
				       .step = &step };
	const struct ig_gpu_case c = {
		.op = world_op("attention"),
		.launch = &launch,
		.out_dtype = out_dtype,
		.max_partials = way == SPLIT ? 250 : 0,
		.n_slabs = s->w.n_slabs,
		.slab_bytes = s->w.slab_bytes,
	};
	struct ig_error err = { 0 };
	int rc;

	launch.in[0].data = guarded_row(&s->q, first);
	launch.in[1].data = guarded_row(&s->gate, first);
	launch.out[0].data = guarded_row(out, first);
	launch.in[0].n_rows = launch.in[1].n_rows = launch.out[0].n_rows = n;
	rc = way == REFERENCE ? ig_gpu_case_reference(lab, &c, &err) :
				ig_gpu_case_run(lab, &c, &err);
	if (rc)
		fail_msg("%s", err.text);
}

static void assert_close(const struct setup *s, const struct guarded *out,
			 const struct guarded *truth, double limit, size_t i_case, const char *what)
{
	double worst = 0;

	guarded_check(out);
	for (int64_t r = 0; r < s->n_rows; r++)
		for (int64_t c = 0; c < s->out_cols; c++) {
			double x = (double)guarded_row(out, r)[c];
			double y = (double)guarded_row(truth, r)[c];

			if (!(fabs(x - y) <= limit))
				fail_msg("case %zu, %s: row %lld, column %lld: %g, expected %g",
					 i_case, what, (long long)r, (long long)c, x, y);
			worst = fabs(x - y) > worst ? fabs(x - y) : worst;
		}
	if (getenv("VERBOSE"))
		print_message("# case %zu, %s: %.2g\n", i_case, what, worst);
}

static void assert_same(const struct guarded *a, const struct guarded *b, size_t i_case,
			const char *what)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		if (memcmp(guarded_row(a, r), guarded_row(b, r), (size_t)a->t.n_cols * 4))
			fail_msg("case %zu: row %lld has other bits %s", i_case, (long long)r,
				 what);
}

/* Against the reference; and a row's bits in the batch, in chunks of 7 and alone, by
 * either kernel. */
static void test_reference_and_bits(void **state)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct setup s;
		struct guarded truth, out, other;

		world_seed(i + 1);
		setup_create(&s, &cases[i]);
		guarded_create(&truth, s.n_rows, s.out_cols);
		guarded_create(&out, s.n_rows, s.out_cols);
		guarded_create(&other, s.n_rows, s.out_cols);
		run_rows(&s, REFERENCE, IG_F32, &truth, 0, s.n_rows);
		run_rows(&s, LOOP, IG_F32, &out, 0, s.n_rows);
		assert_close(&s, &out, &truth, tolerance(&cases[i]), i, "loop");
		run_rows(&s, SPLIT, IG_F32, &other, 0, s.n_rows);
		assert_same(&out, &other, i, "where few rows split");
		for (int32_t r = 0; r < s.n_rows; r += 7)
			run_rows(&s, SPLIT, IG_F32, &other, r, s.n_rows - r < 7 ? s.n_rows - r : 7);
		assert_same(&out, &other, i, "in chunks of 7");
		for (int32_t r = 0; r < s.n_rows; r += s.n_rows > 20 ? (ig_brief() ? 23 : 5) : 1) {
			run_rows(&s, SPLIT, IG_F32, &other, r, 1);
			assert_memory_equal(guarded_row(&out, r), guarded_row(&other, r),
					    (size_t)out.t.n_cols * 4);
		}
		for (int32_t r = s.n_rows - 1; r >= 0;
		     r -= s.n_rows > 20 ? (ig_brief() ? 61 : 9) : 4) {
			run_rows(&s, LOOP, IG_F32, &other, r, 1);
			assert_memory_equal(guarded_row(&out, r), guarded_row(&other, r),
					    (size_t)out.t.n_cols * 4);
		}
		guarded_destroy(&truth);
		guarded_destroy(&out);
		guarded_destroy(&other);
		setup_destroy(&s);
	}
}

/* A layer that lets no row see ahead does not read how far rows do, and one that does has the bits of a text
 * where none does. */
static void test_images_of_a_text(void **state)
{
	const struct attention_case c = { 6, 2, 64, IG_F16, 20, 0, { 300 }, { { 0, 240, 290 } } };
	struct attention_case with = c;
	struct setup s;
	struct guarded want, got;

	with.images[0] = (struct span){ 0, 244, 275 };
	for (int way = LOOP - 1; way <= LOOP; way++) {
		world_seed(9);
		setup_create(&s, &c);
		guarded_create(&want, s.n_rows, s.out_cols);
		guarded_create(&got, s.n_rows, s.out_cols);
		run_rows(&s, way, IG_F32, &want, 0, s.n_rows);
		s.p.spans = 1; /* and the step has no sees_to */
		run_rows(&s, way, IG_F32, &got, 0, s.n_rows);
		assert_same(&got, &want, 0, "with spans");
		s.c = &with; /* of which every row sees up to its own position */
		run_rows(&s, way, IG_F32, &got, 0, s.n_rows);
		assert_same(&got, &want, 0, "with rows that see ahead by nothing");
		setup_destroy(&s);
		world_seed(9);
		setup_create(&s, &with);
		s.p.spans = 0;
		run_rows(&s, way, IG_F32, &got, 0, s.n_rows);
		assert_same(&got, &want, 0, "in a layer without spans");
		s.p.spans = 1;
		run_rows(&s, way, IG_F32, &got, 0, s.n_rows);
		assert_memory_not_equal(guarded_row(&got, 10), guarded_row(&want, 10), 64);
		guarded_destroy(&want);
		guarded_destroy(&got);
		setup_destroy(&s);
	}
}

/* The setup with a cache of halves: each value of s, rounded to one. */
static void setup_halves(struct setup *to, const struct setup *s, struct attention_case *c)
{
	*c = *s->c;
	c->dtype = IG_F16;
	setup_create(to, c);
	for (int32_t seq = 0; seq < s->n_seqs; seq++)
		for (int32_t t = 0; t < c->lens[seq]; t++)
			for (uint32_t i = 0; i < 2 * c->n_kv_heads; i++)
				for (uint32_t d = 0; d < c->head_dim; d++)
					if (t / IG_BLOCK_TOKENS >= first_block(s, seq))
						world_set(&to->w, (uint32_t)seq, t, 1, i / 2, i % 2,
							  d,
							  world_element(&s->w, (uint32_t)seq, t, 1,
									i / 2, i % 2, d));
	memcpy(to->q.bytes, s->q.bytes, s->q.n_bytes);
}

/* Codes are products of scales, rounded to half, as soon as they are read: the bits are those of a
 * cache of halves with these values. */
static void test_codes_as_halves(void **state)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct attention_case c;
		struct setup s, halves;
		struct guarded out, other;

		if (cases[i].dtype == IG_F16 || cases[i].dtype == IG_F32)
			continue;
		world_seed(i + 1);
		setup_create(&s, &cases[i]);
		setup_halves(&halves, &s, &c);
		guarded_create(&out, s.n_rows, s.out_cols);
		guarded_create(&other, s.n_rows, s.out_cols);
		run_rows(&s, SPLIT, IG_F32, &out, 0, s.n_rows);
		run_rows(&halves, SPLIT, IG_F32, &other, 0, s.n_rows);
		assert_same(&out, &other, i, "in 8 bits as in halves");
		guarded_destroy(&out);
		guarded_destroy(&other);
		setup_destroy(&s);
		setup_destroy(&halves);
	}
}

/* A row never sees what comes after it, in the same tile neither: a NaN (which rope_kv
 * leaves in k alone) changes no bit of the rows before it. */
static void check_causal(uint32_t dtype)
{
	const struct attention_case c = { 6, 2, 64, dtype, 0, 0, { 300 }, { { 0, 260, 290 } } };
	struct setup s;
	struct guarded before, after;

	world_seed(7);
	setup_create(&s, &c);
	guarded_create(&before, s.n_rows, s.out_cols);
	guarded_create(&after, s.n_rows, s.out_cols);
	run_rows(&s, LOOP, IG_F32, &before, 0, s.n_rows);
	for (uint32_t h = 0; h < 2; h++)
		world_wipe(&s.w, 0, 270, 1, h, 0);
	run_rows(&s, LOOP, IG_F32, &after, 0, s.n_rows);
	for (int64_t r = 0; r < s.n_rows; r++)
		for (int64_t j = 0; j < s.out_cols; j++) {
			if (r < 10)
				assert_memory_equal(&guarded_row(&before, r)[j],
						    &guarded_row(&after, r)[j], sizeof(float));
			else
				assert_true(isnan(guarded_row(&after, r)[j]));
		}
	guarded_destroy(&before);
	guarded_destroy(&after);
	setup_destroy(&s);
}

static void test_causal(void **state)
{
	check_causal(IG_F16);
	check_causal(IG_Q8_0);
}

/* The types that readers may want, by both kernels that write them: the same values,
 * rounded. */
static void test_result_types(void **state)
{
	static const uint32_t types[] = { IG_F16, IG_BF16 };
	const struct attention_case c = { 6, 2, 80,	     IG_F16,
					  0, 0, { 40, 280 }, { { 0, 0, 18 }, { 1, 270, 272 } } };
	struct setup s;
	struct guarded whole, out;

	world_seed(3);
	setup_create(&s, &c);
	guarded_create(&whole, s.n_rows, s.out_cols);
	guarded_create(&out, s.n_rows, s.out_cols);
	run_rows(&s, SPLIT, IG_F32, &whole, 0, s.n_rows);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		run_rows(&s, SPLIT, types[i], &out, 0, s.n_rows);
		for (int64_t r = 0; r < s.n_rows; r++)
			for (int64_t j = 0; j < s.out_cols; j++)
				if (guarded_row(&out, r)[j] !=
				    ig_gpu_case_round(types[i], guarded_row(&whole, r)[j]))
					fail_msg("type %u, row %lld, column %lld: %a of %a",
						 types[i], (long long)r, (long long)j,
						 (double)guarded_row(&out, r)[j],
						 (double)guarded_row(&whole, r)[j]);
	}
	guarded_destroy(&whole);
	guarded_destroy(&out);
	setup_destroy(&s);
}

/* Larger limits than the step needs, as a driver has them, change nothing. */
static void test_limits(void **state)
{
	const struct attention_case c = { 4, 2, 64,	     IG_F16,
					  0, 0, { 30, 300 }, { { 0, 10, 30 }, { 1, 299, 300 } } };
	struct setup s;
	struct guarded out, other;
	struct ig_error err = { 0 };

	world_seed(4);
	setup_create(&s, &c);
	guarded_create(&out, s.n_rows, s.out_cols);
	guarded_create(&other, s.n_rows, s.out_cols);
	run_rows(&s, SPLIT, IG_F32, &out, 0, s.n_rows);
	{
		const struct ig_step step = {
			.struct_size = sizeof step,
			.n_rows = s.n_rows,
			.n_seqs = s.n_seqs,
			.positions = s.positions,
			.row_seq = s.row_seq,
			.seq_lens = c.lens,
			.slab_bases = s.w.slabs,
			.kv = &s.w.kv,
			.n_groups = 1,
		};
		const struct ig_op_launch launch = { .struct_size = sizeof launch,
						     .n_in = 1,
						     .n_out = 1,
						     .params = &s.p,
						     .in = { s.q.t },
						     .out = { other.t },
						     .step = &step };
		const struct ig_gpu_case g = {
			.op = world_op("attention"),
			.launch = &launch,
			.max_rows = 512,
			.max_seqs = 16,
			.max_logit_rows = 16,
			.max_context = 4096,
			.max_partials = 1000,
			.n_slabs = s.w.n_slabs,
			.slab_bytes = s.w.slab_bytes,
		};

		if (ig_gpu_case_run(lab, &g, &err))
			fail_msg("%s", err.text);
	}
	assert_same(&out, &other, 0, "with larger limits");
	guarded_destroy(&out);
	guarded_destroy(&other);
	setup_destroy(&s);
}

static void check_refused(uint32_t head_dim, uint32_t k_dtype, uint32_t v_dtype, const char *text)
{
	const struct attention_case c = { 2, 1, head_dim, IG_F16, 0, 0, { 1 }, { { 0, 0, 1 } } };
	struct setup s;
	struct guarded out;
	struct ig_error err = { 0 };

	setup_create(&s, &c);
	guarded_create(&out, 1, s.out_cols);
	s.w.layout.k_dtype = k_dtype;
	s.w.layout.v_dtype = v_dtype;
	{
		const struct ig_step step = { .struct_size = sizeof step,
					      .n_rows = 1,
					      .n_seqs = 1,
					      .positions = s.positions,
					      .row_seq = s.row_seq,
					      .seq_lens = c.lens,
					      .slab_bases = s.w.slabs,
					      .kv = &s.w.kv,
					      .n_groups = 1 };
		const struct ig_op_launch launch = { .struct_size = sizeof launch,
						     .n_in = 1,
						     .n_out = 1,
						     .params = &s.p,
						     .in = { s.q.t },
						     .out = { out.t },
						     .step = &step };
		const struct ig_gpu_case g = { .op = world_op("attention"),
					       .launch = &launch,
					       .n_slabs = s.w.n_slabs,
					       .slab_bytes = s.w.slab_bytes };

		assert_int_equal(ig_gpu_case_run(lab, &g, &err), -ENOTSUP);
		if (!strstr(err.text, text))
			fail_msg("%s, not %s", err.text, text);
	}
	guarded_destroy(&out);
	setup_destroy(&s);
}

/* A cache whose elements no kernel knows is refused by name. */
static void test_refused(void **state)
{
	check_refused(64, IG_F32, IG_Q8_0, "keys of type 0 beside values of type 8");
	check_refused(64, IG_F16, IG_F32, "keys of type 1 beside values of type 0");
	check_refused(64, IG_Q4_0, IG_Q4_0, "keys of type 2 beside values of type 2");
	check_refused(80, IG_Q8_0, IG_Q8_0,
		      "heads of a multiple of 32 values, this model's have 80");
	check_refused(576, IG_Q8_0, IG_Q8_0, "heads of 576 with values of 576 have no kernels");
}

static int open_lab(void **state)
{
	struct ig_error err = { 0 };

	if (ig_gpu_lab_open(NULL, &lab, &err)) {
		print_error("%s\n", err.text);
		return -1;
	}
	return 0;
}

static int close_lab(void **state)
{
	ig_gpu_lab_close(lab);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference_and_bits),
		cmocka_unit_test(test_images_of_a_text),
		cmocka_unit_test(test_codes_as_halves),
		cmocka_unit_test(test_causal),
		cmocka_unit_test(test_result_types),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, open_lab, close_lab);
}
