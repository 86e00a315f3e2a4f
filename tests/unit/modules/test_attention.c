/*
 * test_attention.c: the op attention: every kernel that this machine can run
 * against the reference, and a row's bits whatever runs beside it.
 */
#include "attention_world.h"
#include "tests/emulated.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t isas[] = { IG_ISA_GENERIC, IG_ISA_AVX2, IG_ISA_AVX512, IG_ISA_NEON };

/* Rows of one sequence: positions from … to - 1 of it. */
struct span {
	int32_t seq, from, to;
};

struct attention_case {
	uint32_t n_heads, n_kv_heads, head_dim, dtype, window;
	float scale;		      /* 0: 1 / sqrt(head_dim), times 4 for a spread that matters */
	int32_t lens[WORLD_MAX_SEQS]; /* of the sequences, up to the first 0 */
	struct span spans[8];	      /* up to the first with to 0 */
	uint32_t sinks;		      /* 1: there are some */
	uint32_t gate, gate_dim;      /* IG_GATE_…, values a head */
	uint32_t v_dim;		      /* values are so much of the keys */
	uint32_t ahead; /* rows see to the end of their span, if it has as many of them */
};

/* Scores are about 3 wide, so a wrong weight moves the output far more than this;
 * the roundings of float32 move it by 1e-6.  They grow with the scores. */
static double tolerance(const struct attention_case *c)
{
	double wide = (double)c->scale * sqrt(c->head_dim) / 4;

	return 3e-6 * (wide > 1 ? wide : 1) *
	       (c->gate == IG_GATE_SOFTPLUS ? 1.5 : 1); /* of values up to 1 */
}

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
	/* whole prefills, and chunks across the edge of a range */
	{ 3, 1, 64, IG_F16, 0, 0, { 300 }, { { 0, 0, 300 } } },
	{ 3, 1, 64, IG_F32, 0, 0, { 300 }, { { 0, 0, 300 } } },
	{ 9, 3, 64, IG_F16, 0, 0, { 700, 40 }, { { 0, 240, 290 }, { 1, 0, 40 } } },
	/* prefill and decode of several sequences in one step */
	{ 6,
	  2,
	  64,
	  IG_F16,
	  0,
	  0,
	  { 33, 270, 17, 64 },
	  { { 0, 32, 33 }, { 1, 200, 270 }, { 2, 16, 17 }, { 3, 0, 64 } } },
	/* rows of one sequence that do not follow each other */
	{ 4, 2, 64, IG_F16, 0, 0, { 100 }, { { 0, 3, 9 }, { 0, 50, 58 }, { 0, 20, 23 } } },
	/* head sizes */
	{ 4, 4, 32, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 4, 1, 40, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 6, 2, 80, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 8, 1, 128, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 2, 1, 256, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 2, 1, 512, IG_F16, 0, 0, { 270 }, { { 0, 262, 270 } } },
	{ 8, 1, 512, IG_Q8_0, 0, 0, { 270 }, { { 0, 262, 270 } } },
	{ 2, 2, 8, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 3, 1, 120, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 4, 4, 32, IG_F32, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 4, 1, 40, IG_F32, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 6, 2, 80, IG_F32, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 8, 1, 128, IG_F32, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 2, 1, 256, IG_F32, 0, 0, { 270 }, { { 0, 230, 270 } } },
	/* heads that share a KV head: 1, 4, 8, and more than a tile or a unit takes */
	{ 3, 3, 64, IG_F16, 0, 0, { 290 }, { { 0, 220, 290 } } },
	{ 8, 2, 64, IG_F16, 0, 0, { 290 }, { { 0, 220, 290 } } },
	{ 16, 2, 64, IG_F16, 0, 0, { 290 }, { { 0, 220, 290 } } },
	{ 71, 1, 64, IG_F16, 0, 0, { 90 }, { { 0, 80, 90 } } },
	/* windows: within a block, over blocks, over ranges, longer than all */
	{ 6, 2, 64, IG_F16, 1, 0, { 300 }, { { 0, 250, 262 } } },
	{ 6, 2, 64, IG_F16, 5, 0, { 300 }, { { 0, 0, 40 }, { 0, 250, 300 } } },
	{ 6, 2, 64, IG_F16, 100, 0, { 400 }, { { 0, 60, 130 }, { 0, 300, 400 } } },
	{ 4, 4, 64, IG_F32, 256, 0, { 600 }, { { 0, 230, 290 }, { 0, 500, 540 } } },
	{ 4, 4, 40, IG_F16, 300, 0, { 600 }, { { 0, 550, 600 } } },
	{ 6, 2, 64, IG_F16, 5000, 0, { 300 }, { { 0, 250, 300 } } },
	/* Q8_0 as above, and K and V in types of their own */
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
	{ 3, 1, 64, IG_Q8_0, 0, 0, { 300 }, { { 0, 0, 300 } } },
	{ 6,
	  2,
	  64,
	  IG_Q8_0,
	  0,
	  0,
	  { 33, 270, 17, 64 },
	  { { 0, 32, 33 }, { 1, 200, 270 }, { 2, 16, 17 }, { 3, 0, 64 } } },
	{ 4, 4, 32, IG_Q8_0, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 6, 2, 96, IG_Q8_0, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 8, 1, 128, IG_Q8_0, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 2, 1, 256, IG_Q8_0, 0, 0, { 270 }, { { 0, 230, 270 } } },
	{ 71, 1, 64, IG_Q8_0, 0, 0, { 90 }, { { 0, 80, 90 } } },
	{ 6, 2, 64, IG_Q8_0, 5, 0, { 300 }, { { 0, 0, 40 }, { 0, 250, 300 } } },
	{ 6, 2, 64, IG_Q8_0, 100, 0, { 400 }, { { 0, 60, 130 }, { 0, 300, 400 } } },
	{ 9, 3, 64, KEYS_VALUES(IG_Q8_0, IG_F16), 0, 0, { 300 }, { { 0, 230, 290 } } },
	{ 9, 3, 64, KEYS_VALUES(IG_F16, IG_Q8_0), 0, 0, { 300 }, { { 0, 230, 290 } } },
	{ 4, 2, 32, KEYS_VALUES(IG_F32, IG_Q8_0), 0, 0, { 300 }, { { 0, 230, 290 } } },
	{ 4, 2, 96, KEYS_VALUES(IG_Q8_0, IG_F32), 7, 0, { 300 }, { { 0, 230, 290 } } },
	{ 4, 2, 40, KEYS_VALUES(IG_F32, IG_F16), 0, 0, { 300 }, { { 0, 230, 290 } } },
	/* scores so far apart that most weights vanish */
	{ 3, 1, 64, IG_F16, 0, 20, { 600 }, { { 0, 560, 600 } } },
	/* and so close that the output is nearly a mean */
	{ 3, 1, 64, IG_F16, 0, 1e-3f, { 600 }, { { 0, 590, 600 } } },
	/* values that are a part of the keys */
	{ 4, 1, 96, IG_F16, 0, 0, { 270 }, { { 0, 230, 270 } }, .v_dim = 64 },
	{ 20, 1, 576, IG_F16, 0, 0, { 270 }, { { 0, 262, 270 } }, .v_dim = 512 },
	{ 3, 1, 40, IG_F16, 0, 0, { 270 }, { { 0, 262, 270 } }, .v_dim = 24 },
	{ 6, 2, 40, IG_F32, 9, 0, { 270 }, { { 0, 230, 270 } }, 1, IG_GATE_SIGMOID, 24, 24 },
	{ 4, 2, 96, IG_Q8_0, 0, 0, { 270 }, { { 0, 262, 270 } }, .v_dim = 64 },
	{ 4, 2, 96, KEYS_VALUES(IG_Q8_0, IG_F16), 0, 0, { 90 }, { { 0, 60, 90 } }, .v_dim = 32 },
	/* sinks, and gates by element and by head */
	{ 6, 2, 64, IG_F16, 0, 0, { 300, 3 }, { { 0, 250, 262 }, { 1, 0, 3 } }, .sinks = 1 },
	{ 6, 2, 64, IG_F32, 20, 0, { 600 }, { { 0, 508, 516 } }, .sinks = 1 },
	{ 3, 1, 64, IG_Q8_0, 0, 20, { 300 }, { { 0, 290, 300 } }, .sinks = 1 },
	{ 6, 2, 72, IG_F16, 0, 0, { 300 }, { { 0, 250, 267 } }, 0, IG_GATE_SIGMOID, 72 },
	{ 4, 1, 8, IG_F32, 0, 0, { 300 }, { { 0, 290, 300 } }, 0, IG_GATE_SIGMOID, 8 },
	{ 6, 2, 64, IG_F32, 0, 0, { 300 }, { { 0, 250, 262 } }, 1, IG_GATE_SOFTPLUS, 64 },
	{ 6, 2, 64, IG_F16, 0, 0, { 300 }, { { 0, 250, 262 } }, 1, IG_GATE_SOFTPLUS, 1 },
	{ 6, 2, 64, IG_F16, 9, 0, { 300 }, { { 0, 250, 262 } }, 0, IG_GATE_SIGMOID, 1 },
	/* rows that see ahead, beside others that do not: over ranges, with a window, all of a sequence */
	{ 6,
	  2,
	  64,
	  IG_F16,
	  0,
	  0,
	  { 300, 33 },
	  { { 0, 240, 244 }, { 0, 244, 290 }, { 0, 290, 293 }, { 1, 32, 33 } },
	  .ahead = 10 },
	{ 9, 3, 64, IG_F32, 0, 0, { 530 }, { { 0, 250, 266 } }, .ahead = 2 },
	{ 4, 4, 40, IG_F16, 30, 0, { 300 }, { { 0, 200, 250 }, { 0, 250, 300 } }, .ahead = 2 },
	{ 4, 2, 32, IG_Q8_0, 0, 0, { 90 }, { { 0, 0, 90 } }, 1, .ahead = 2 },
};

struct setup {
	struct world w;
	struct ig_attention_params p;
	int32_t n_rows;
	int32_t *positions, *row_seq, *sees_to;
	int32_t n_seqs;
	const int32_t *lens;
	struct guarded q, gate, sinks;
	int64_t out_cols;
	int has_sinks;
	int splits; /* not 0: units may share memory; one more after each launch that did */
};

static void setup_create(struct setup *s, const struct attention_case *c)
{
	memset(s, 0, sizeof *s);
	while (s->n_seqs < WORLD_MAX_SEQS && c->lens[s->n_seqs])
		s->n_seqs++;
	s->lens = c->lens;
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
					     .window = c->window };
	for (const struct span *x = c->spans; x < c->spans + 8 && x->to; x++)
		s->n_rows += x->to - x->from;
	s->positions = malloc((size_t)s->n_rows * sizeof *s->positions);
	s->row_seq = malloc((size_t)s->n_rows * sizeof *s->row_seq);
	s->sees_to = malloc((size_t)s->n_rows * sizeof *s->sees_to);
	assert_true(s->positions && s->row_seq && s->sees_to);
	s->p.spans = c->ahead != 0;
	s->n_rows = 0;
	for (const struct span *x = c->spans; x < c->spans + 8 && x->to; x++)
		for (int32_t t = x->from; t < x->to; t++, s->n_rows++) {
			s->positions[s->n_rows] = t;
			s->row_seq[s->n_rows] = x->seq;
			s->sees_to[s->n_rows] =
				c->ahead && x->to - x->from >= (int32_t)c->ahead ? x->to - 1 : t;
		}
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

/* The kernel with memory that its units share, and the one that ends the launch. */
static void run_split(struct setup *s, const struct ig_cpu_kernel *k, struct ig_op_launch launch,
		      int order)
{
	struct ig_step widest = *launch.step;
	int32_t longest = 0;
	unsigned char *shared;

	for (int32_t i = 0; i < s->n_seqs; i++)
		longest = s->lens[i] > longest ? s->lens[i] : longest;
	widest.seq_lens = &longest;
	launch.step = &widest;
	launch.shared_bytes = k->shared_bytes ? k->shared_bytes(&launch) : 0;
	shared = malloc(launch.shared_bytes + 16);
	assert_non_null(shared);
	memset(shared, 0xff, launch.shared_bytes + 16);
	launch.shared = shared;
	world_run(k, &launch, order);
	if (k->then && k->then->n_units(&launch)) {
		assert_int_equal(k->then->unit_kind, IG_UNITS_ROWS);
		assert_int_equal(k->then->n_units(&launch), launch.step->n_rows);
		world_run(k->then, &launch, order);
		s->splits++;
	}
	for (int i = 0; i < 16; i++)
		assert_int_equal(shared[launch.shared_bytes + (uint64_t)i], 0xff);
	free(shared);
}

/* A call over rows first … first + n - 1 of the setup, into the same rows of out. */
static void run_rows(struct setup *s, const struct ig_cpu_kernel *k, struct guarded *out,
		     int32_t first, int32_t n, int order)
{
	const struct ig_step step = {
		.struct_size = sizeof step,
		.n_rows = n,
		.n_seqs = s->n_seqs,
		.positions = s->positions + first,
		.row_seq = s->row_seq + first,
		.sees_to = s->sees_to + first, /* read with spans only */
		.seq_lens = s->lens,
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

	launch.in[0].data = guarded_row(&s->q, first);
	launch.in[1].data = guarded_row(&s->gate, first);
	launch.out[0].data = guarded_row(out, first);
	launch.in[0].n_rows = launch.in[1].n_rows = launch.out[0].n_rows = n;
	if (k && s->splits)
		run_split(s, k, launch, order);
	else if (k)
		world_run(k, &launch, order);
	else
		world_op("attention")->reference(&launch);
}

static void assert_same(const struct guarded *a, const struct guarded *b, const char *what,
			size_t i_case, uint32_t isa)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		if (memcmp(guarded_row(a, r), guarded_row(b, r), (size_t)a->t.n_cols * 4))
			fail_msg("case %zu, %s: row %lld has other bits %s", i_case,
				 world_isa_name(isa), (long long)r, what);
}

static void test_reference(void **state)
{
	/* an emulator needs minutes for all rows' references; 7 meets each place in a block */
	const int32_t apart = is_emulated() ? 7 : 1;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct setup s;
		struct guarded truth, out;

		world_seed(i + 1);
		setup_create(&s, &cases[i]);
		guarded_create(&truth, s.n_rows, s.out_cols);
		guarded_create(&out, s.n_rows, s.out_cols);
		world_snapshot(&s.w);
		for (int32_t r = 0; r < s.n_rows; r += apart)
			run_rows(&s, NULL, &truth, r, 1, 0);
		guarded_check(&truth);
		for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
			const struct ig_cpu_kernel *k =
				world_kernel(world_op("attention"), isas[j]);
			double worst = 0;

			if (!k)
				continue;
			run_rows(&s, k, &out, 0, s.n_rows, 0);
			guarded_check(&out);
			for (int64_t r = 0; r < s.n_rows; r += apart)
				for (int64_t c = 0; c < s.out_cols; c++) {
					double e = fabs((double)guarded_row(&out, r)[c] -
							(double)guarded_row(&truth, r)[c]);

					if (!(e <= tolerance(&cases[i])))
						fail_msg("case %zu, %s: row %lld, column %lld: %g, "
							 "expected %g",
							 i, world_isa_name(isas[j]), (long long)r,
							 (long long)c,
							 (double)guarded_row(&out, r)[c],
							 (double)guarded_row(&truth, r)[c]);
					worst = e > worst ? e : worst;
				}
			if (getenv("VERBOSE"))
				print_message("# case %zu, %s: %.2g\n", i, world_isa_name(isas[j]),
					      worst);
		}
		assert_int_equal(world_changed(&s.w), 0);
		guarded_destroy(&truth);
		guarded_destroy(&out);
		setup_destroy(&s);
	}
}

/* A row's bits: in the batch, alone (prefill as decode), in chunks of 7, and with
 * the units one by one in another order. */
static void test_same_bits(void **state)
{
	/* as there: the rows between have their bits of the batch already */
	const int32_t apart = is_emulated() ? 7 : 1;
	bool has_vectors = false;
	int n_splits = 0;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct setup s;
		struct guarded batch, other;

		world_seed(i + 101);
		setup_create(&s, &cases[i]);
		guarded_create(&batch, s.n_rows, s.out_cols);
		guarded_create(&other, s.n_rows, s.out_cols);
		for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
			const struct ig_cpu_kernel *k =
				world_kernel(world_op("attention"), isas[j]);

			if (!k || !cuts_are_tested(k))
				continue;
			run_rows(&s, k, &batch, 0, s.n_rows, 0);
			run_rows(&s, k, &other, 0, s.n_rows, 1);
			assert_same(&batch, &other, "unit by unit", i, isas[j]);
			for (int32_t r = 0; r < s.n_rows; r += apart)
				run_rows(&s, k, &other, r, 1, 0);
			assert_same(&batch, &other, "alone", i, isas[j]);
			for (int32_t r = 0; r < s.n_rows; r += 7)
				run_rows(&s, k, &other, r, s.n_rows - r < 7 ? s.n_rows - r : 7, 0);
			assert_same(&batch, &other, "in chunks of 7", i, isas[j]);
			s.splits = 1;
			for (int32_t r = 0; r < s.n_rows; r += 7)
				run_rows(&s, k, &other, r, s.n_rows - r < 7 ? s.n_rows - r : 7, 1);
			assert_same(&batch, &other, "range by range", i, isas[j]);
			for (int32_t r = 0; r < s.n_rows; r += apart)
				run_rows(&s, k, &other, r, 1, 0);
			assert_same(&batch, &other, "range by range, alone", i, isas[j]);
			n_splits += s.splits - 1;
			has_vectors |= k->then != NULL;
			s.splits = 0;
			guarded_check(&other);
		}
		guarded_destroy(&batch);
		guarded_destroy(&other);
		setup_destroy(&s);
	}
	assert_true(n_splits > 0 || !has_vectors);
}

/* Rows that see up to their own position have the bits of an op without spans; those that see further do
 * not. */
static void test_spans(void **state)
{
	static const struct attention_case c = { 6,	    2, 64,	IG_F16,
						 0,	    0, { 300 }, { { 0, 240, 270 } },
						 .ahead = 2 };
	struct setup s;
	struct guarded causal, out;

	world_seed(9);
	setup_create(&s, &c);
	guarded_create(&causal, s.n_rows, s.out_cols);
	guarded_create(&out, s.n_rows, s.out_cols);
	for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
		const struct ig_cpu_kernel *k = world_kernel(world_op("attention"), isas[j]);

		if (!k)
			continue;
		s.p.spans = 0;
		run_rows(&s, k, &causal, 0, s.n_rows, 0);
		s.p.spans = 1;
		run_rows(&s, k, &out, 0, s.n_rows, 0);
		for (int32_t r = 0; r < s.n_rows; r++)
			assert_int_equal(memcmp(guarded_row(&causal, r), guarded_row(&out, r),
						(size_t)s.out_cols * 4) != 0,
					 r + 1 < s.n_rows);
		memcpy(s.sees_to, s.positions, (size_t)s.n_rows * sizeof *s.sees_to);
		run_rows(&s, k, &out, 0, s.n_rows, 0);
		assert_same(&causal, &out, "with spans of a row", 0, isas[j]);
		for (int32_t r = 0; r < s.n_rows; r++)
			s.sees_to[r] = s.positions[s.n_rows - 1];
	}
	guarded_destroy(&causal);
	guarded_destroy(&out);
	setup_destroy(&s);
}

/* What units share is enough for a row of the longest sequence, is bounded, and is nothing where there is
 * one range. */
static void test_shared_bytes(void **state)
{
	struct ig_attention_params p = { sizeof p, 9, 3, 64, 0, 0, 0.125f, 0 };
	int32_t longest = 256;
	const struct ig_step step = { .struct_size = sizeof step,
				      .n_rows = 512,
				      .seq_lens = &longest };
	const struct ig_op_launch launch = { .params = &p, .step = &step };
	const uint64_t range = 9 * (16 + 64) * 4; /* of a row */

	for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
		const struct ig_cpu_kernel *k = world_kernel(world_op("attention"), isas[j]);
		if (!k || !k->shared_bytes)
			continue;
		longest = 256;
		p.window = 0;
		assert_int_equal(k->shared_bytes(&launch), 0);
		longest = 257;
		assert_int_equal(k->shared_bytes(&launch), 16 * 2 * range);
		longest = 32768;
		assert_int_equal(k->shared_bytes(&launch), 4 << 20);
		longest = 1 << 20; /* a row of it takes more */
		assert_int_equal(k->shared_bytes(&launch), 4096 * range);
		longest = 1 << 21;
		assert_int_equal(k->shared_bytes(&launch), 16 << 20);
		p.window = 100;
		assert_int_equal(k->shared_bytes(&launch), 16 * 3 * range);
	}
}

/* A row never sees what comes after it: NaN in later positions changes nothing, in a
 * prefill that has them in the same tile neither. */
static void check_causal(uint32_t dtype)
{
	const struct attention_case c = { 6, 2, 64, dtype, 0, 0, { 300 }, { { 0, 240, 300 } } };
	struct setup s;
	struct guarded before, after;

	world_seed(7);
	setup_create(&s, &c);
	guarded_create(&before, s.n_rows, s.out_cols);
	guarded_create(&after, s.n_rows, s.out_cols);
	for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
		const struct ig_cpu_kernel *k = world_kernel(world_op("attention"), isas[j]);

		if (!k)
			continue;
		run_rows(&s, k, &before, 0, s.n_rows, 0);
		for (int32_t t = 270; t < 300; t++)
			for (uint32_t h = 0; h < 2; h++)
				for (int v = 0; v < 2; v++)
					world_wipe(&s.w, 0, t, 1, h, v);
		run_rows(&s, k, &after, 0, s.n_rows, 0);
		for (int64_t r = 0; r < 30; r++)
			assert_memory_equal(guarded_row(&before, r), guarded_row(&after, r),
					    (size_t)s.out_cols * 4);
		assert_true(isnan(guarded_row(&after, 30)[0]));
		world_fill(&s.w, 1, s.lens);
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

/* A cache in Q8_0 is one of floats with the same values: equal bits. */
static void test_q8_is_floats(void **state)
{
	const struct attention_case q8 = { 9, 3, 64, IG_Q8_0, 0, 0, { 300 }, { { 0, 225, 300 } } };
	struct attention_case f32 = q8;
	struct setup a, b;
	struct guarded out_a, out_b;

	world_seed(8);
	setup_create(&a, &q8);
	f32.dtype = IG_F32;
	setup_create(&b, &f32);
	for (int32_t t = 0; t < 300; t++)
		for (uint32_t i = 0; i < 6; i++)
			for (uint32_t d = 0; d < 64; d++)
				((float *)world_slot(&b.w, 0, t, 1, i / 2, i % 2))[d] =
					world_element(&a.w, 0, t, 1, i / 2, i % 2, d);
	guarded_create(&out_a, a.n_rows, a.q.t.n_cols);
	guarded_create(&out_b, a.n_rows, a.q.t.n_cols);
	memcpy(b.q.bytes, a.q.bytes, a.q.n_bytes);
	for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
		const struct ig_cpu_kernel *k = world_kernel(world_op("attention"), isas[j]);

		if (!k)
			continue;
		for (int32_t n = 1; n <= a.n_rows; n += a.n_rows - 1) { /* decode, prefill */
			run_rows(&a, k, &out_a, a.n_rows - n, n, 0);
			run_rows(&b, k, &out_b, a.n_rows - n, n, 0);
			for (int64_t r = a.n_rows - n; r < a.n_rows; r++)
				assert_memory_equal(guarded_row(&out_a, r), guarded_row(&out_b, r),
						    (size_t)a.q.t.n_cols * 4);
		}
	}
	guarded_destroy(&out_a);
	guarded_destroy(&out_b);
	setup_destroy(&a);
	setup_destroy(&b);
}

/* A sink is the score of a position without a value: of one whose v is 0, here before a window. */
static void test_sink_is_position(void **state)
{
	const struct attention_case c = { 1, 1, 8, IG_F32, 0, 1, { 9 }, { { 0, 8, 9 } } };
	struct setup s;
	struct guarded with, without;

	setup_create(&s, &c);
	guarded_create(&with, 1, 8);
	guarded_create(&without, 1, 8);
	memset(world_slot(&s.w, 0, 0, 1, 0, 1), 0, 32);
	guarded_row(&s.sinks, 0)[0] = 0;
	for (uint32_t d = 0; d < 8; d++)
		guarded_row(&s.sinks, 0)[0] +=
			guarded_row(&s.q, 0)[d] * world_element(&s.w, 0, 0, 1, 0, 0, d);
	for (int j = -1; j < (int)(sizeof isas / sizeof isas[0]); j++) {
		const struct ig_cpu_kernel *k =
			j < 0 ? NULL : world_kernel(world_op("attention"), isas[j]);

		if (j >= 0 && !k)
			continue;
		s.has_sinks = 0;
		s.p.window = 0;
		run_rows(&s, k, &without, 0, 1, 0);
		s.has_sinks = 1;
		s.p.window = 8;
		run_rows(&s, k, &with, 0, 1, 0);
		for (int d = 0; d < 8; d++)
			assert_true(fabsf(guarded_row(&with, 0)[d] - guarded_row(&without, 0)[d]) <
				    1e-6f);
	}
	guarded_destroy(&with);
	guarded_destroy(&without);
	setup_destroy(&s);
}

/* The exponential by itself: of two positions with scores 0 and -x and values 0 and 1
 * the output is e / (1 + e), e = exp(-x).  Three roundings beside that of e. */
static void test_exponential(void **state)
{
	const struct attention_case c = { 1, 1, 8, IG_F32, 0, 1, { 2 }, { { 0, 1, 2 } } };
	struct setup s;
	struct guarded out;

	setup_create(&s, &c);
	guarded_create(&out, 1, 8);
	for (int t = 0; t < 2; t++)
		for (int v = 0; v < 2; v++)
			memset(world_slot(&s.w, 0, t, 1, 0, v), 0, 32);
	memset(guarded_row(&s.q, 0), 0, 32);
	guarded_row(&s.q, 0)[0] = 1;
	((float *)world_slot(&s.w, 0, 1, 1, 0, 1))[0] = 1;
	for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
		const struct ig_cpu_kernel *k = world_kernel(world_op("attention"), isas[j]);

		if (!k)
			continue;
		for (int i = 0; i <= 20000; i++) {
			float x = (float)i * (i % 2 ? 0.0043f : 0.0001f);
			double e = exp(-(double)x), y;

			((float *)world_slot(&s.w, 0, 1, 1, 0, 0))[0] = -x;
			run_rows(&s, k, &out, 0, 1, 0);
			y = (double)guarded_row(&out, 0)[0];
			if (!(fabs(y * (1 + e) / e - 1) < 2.2e-7))
				fail_msg("%s: exp(-%g) gives %g, expected %g",
					 world_isa_name(isas[j]), (double)x, y, e / (1 + e));
		}
		/* beyond float's normal range next to nothing is left */
		for (float x = 87; x < 1e30f; x *= 1.5f) {
			((float *)world_slot(&s.w, 0, 1, 1, 0, 0))[0] = -x;
			run_rows(&s, k, &out, 0, 1, 0);
			assert_true(guarded_row(&out, 0)[0] >= 0 &&
				    guarded_row(&out, 0)[0] < 2e-38f);
		}
	}
	guarded_destroy(&out);
	setup_destroy(&s);
}

/* Of a shape that is good but for its gate. */
static void check_gates(const struct ig_op *op, struct ig_op_shape *s, struct ig_attention_params p)
{
	struct ig_error err;

	p.gate = IG_GATE_SIGMOID;
	p.gate_dim = 64;
	p.gate_first = 64;
	p.gate_stride = 128;
	s->params = &p;
	assert_int_equal(op->check(s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 inputs"));
	s->n_in = 2;
	s->in[1] = (struct ig_shape){ .n_cols = 1152, .dtype = IG_F32 };
	assert_int_equal(op->check(s, &err), 0);
	s->in[1].n_cols = 1151;
	assert_int_equal(op->check(s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "expected 1152"));
	s->in[1].n_cols = 1152;
	p.gate_stride = 0xffffffff; /* the end does not wrap */
	assert_int_equal(op->check(s, &err), -EINVAL);
	p.gate_stride = 128;
	p.gate_dim = 32;
	assert_int_equal(op->check(s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "32 values a head"));
	p.gate_dim = 1;
	assert_int_equal(op->check(s, &err), 0);
	p.gate = 3;
	assert_int_equal(op->check(s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "gate 3"));
	s->n_in = 1;
}

static void test_check(void **state)
{
	const struct ig_attention_params good = { sizeof good, 9, 3, 64, 0, 0, 0.125f, 0 };
	const struct {
		struct ig_attention_params p;
		int64_t n_cols;
		const char *text;
	} bad[] = {
		{ { sizeof good, 9, 2, 64, 0, 0, 0.125f, 0 }, 576, "9 heads do not share 2" },
		{ { sizeof good, 9, 0, 64, 0, 0, 0.125f, 0 }, 576, "9 heads do not share 0" },
		{ { sizeof good, 0, 3, 64, 0, 0, 0.125f, 0 }, 576, "0 heads" },
		{ { sizeof good, 9, 3, 60, 0, 0, 0.125f, 0 }, 540, "head_dim is 60" },
		{ { sizeof good, 9, 3, 584, 0, 0, 0.125f, 0 }, 5256, "head_dim is 584" },
		{ { sizeof good, 9, 3, 0, 0, 0, 0.125f, 0 }, 0, "head_dim is 0" },
		{ { sizeof good, 9, 3, 64, 4, 0, 0.125f, 0 }, 576, "cache group 4" },
		{ { sizeof good, 9, 3, 64, 0, 0, 0, 0 }, 576, "scale is 0" },
		{ { sizeof good, 9, 3, 64, 0, 0, NAN, 0 }, 576, "scale is" },
		{ { sizeof good, 9, 3, 64, 0, 0, 0.125f, 0x80000000u }, 576, "window is" },
		{ { sizeof good, 9, 3, 64, 0, 0, 0.125f, 0 }, 575, "q has 575 columns" },
		{ { sizeof good, 9, 3, 64, 0, 0, 0.125f, .v_dim = 72 }, 576, "v_dim is 72" },
		{ { sizeof good, 9, 3, 64, 0, 0, 0.125f, .v_dim = 12 }, 576, "v_dim is 12" },
	};
	const struct ig_op *op = world_op("attention");
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .n_out = 1,
				 .params = &good,
				 .in = { { .n_cols = 576, .dtype = IG_F32 } } };
	struct ig_error err;

	assert_int_equal(op->params_size, sizeof good);
	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 576);
	assert_int_equal(s.out[0].dtype, IG_F32);
	assert_int_equal(s.out[0].row_class, IG_ROWS_TOKENS);
	s.in[0].row_class = IG_ROWS_LOGITS;
	assert_int_equal(op->check(&s, &err), -EINVAL);
	s.in[0].row_class = IG_ROWS_TOKENS;
	s.in[0].dtype = IG_F16;
	assert_int_equal(op->check(&s, &err), -EINVAL);
	s.in[0].dtype = IG_F32;
	s.n_in = 2;
	assert_int_equal(op->check(&s, &err), -EINVAL);
	s.n_in = 1;
	s.n_weights = 1;
	s.weight[0] = (struct ig_shape){ .n_rows = 1, .n_cols = 9, .dtype = IG_F32 };
	assert_int_equal(op->check(&s, &err), 0);
	s.weight[0].n_cols = 3;
	assert_int_equal(op->check(&s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "sinks are [1, 3]"));
	s.n_weights = 0;
	check_gates(op, &s, good);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		s.params = &bad[i].p;
		s.in[0].n_cols = bad[i].n_cols;
		assert_int_equal(op->check(&s, &err), -EINVAL);
		if (!strstr(err.text, bad[i].text))
			fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_shared_bytes),
		cmocka_unit_test(test_causal),
		cmocka_unit_test(test_q8_is_floats),
		cmocka_unit_test(test_exponential),
		cmocka_unit_test(test_sink_is_position),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
