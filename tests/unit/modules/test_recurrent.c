/*
 * test_recurrent.c: the ops of the module recurrent: against their references, and with equal bits
 * however rows are divided into steps, segments and units, alone or beside other sequences, in place
 * or from one state to another.  States lie in shuffled blocks with guards between them.
 */
#include <ingot/arch.h>
#include <ingot/op.h>

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_SEQS 4
#define MAX_ROWS 128
#define LAYERS 2
#define LAYER 1 /* the one that is tested */
#define MAX_SEGMENTS 128
#define GUARD 16 /* floats behind each part */

static const int lens[N_SEQS] = { 1, 9, 70, 4 };
static const bool fresh[N_SEQS] = { false, true, false, true }; /* they begin without a state */

static const struct ig_module *module;
static uint64_t seed;

static uint32_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32);
}

static float uniform(void) { return (float)(rnd() >> 8) * 0x1p-23f - 1; }

static const struct ig_op *op_of(const char *name)
{
	for (const struct ig_op *const *o = module->ops; *o; o++)
		if (!strcmp((*o)->name, name))
			return *o;
	fail_msg("the module has no op %s", name);
	return NULL;
}

static bool runs_here(uint32_t isa)
{
#if defined(__x86_64__)
	if (isa == IG_ISA_AVX2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (isa == IG_ISA_AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#elif defined(__aarch64__)
	if (isa == IG_ISA_NEON)
		return true;
#endif
	return isa == IG_ISA_GENERIC;
}

/* ---- a case ---------------------------------------------------------------------------------- */

struct matrix {
	int64_t n_rows, n_cols;
	float *data;
};

struct test_case {
	const struct ig_op *op;
	const void *params;
	uint32_t n_in, n_weights, n_parts, part_floats;
	struct matrix in[IG_MAX_IN], weight[IG_MAX_WEIGHTS], out;
	float *states; /* [N_SEQS, n_parts, part_floats] of the tested layer */
};

static struct matrix random_matrix(int64_t n_rows, int64_t n_cols, float scale, float shift)
{
	struct matrix m = { n_rows, n_cols, malloc((size_t)(n_rows * n_cols) * sizeof(float)) };

	assert_non_null(m.data);
	for (int64_t i = 0; i < n_rows * n_cols; i++)
		m.data[i] = scale * uniform() + shift;
	return m;
}

static int first_row(int seq)
{
	int row = 0;

	for (int i = 0; i < seq; i++)
		row += lens[i];
	return row;
}

static void open_case(struct test_case *t)
{
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = t->n_in,
				 .n_weights = t->n_weights,
				 .n_out = 1,
				 .params = t->params };
	struct ig_error err = { 0 };

	for (uint32_t i = 0; i < t->n_in; i++)
		s.in[i] = (struct ig_shape){ 0, t->in[i].n_cols, IG_F32, IG_ROWS_TOKENS };
	for (uint32_t i = 0; i < t->n_weights; i++)
		s.weight[i] =
			(struct ig_shape){ t->weight[i].n_rows, t->weight[i].n_cols, IG_F32, 0 };
	if (t->op->check(&s, &err))
		fail_msg("%s", err.text);
	t->out = random_matrix(first_row(N_SEQS), s.out[0].n_cols, 1, 0);
	t->states = random_matrix(N_SEQS, (int64_t)t->n_parts * t->part_floats, 0.5f, 0).data;
}

static void close_case(struct test_case *t)
{
	for (uint32_t i = 0; i < t->n_in; i++)
		free(t->in[i].data);
	for (uint32_t i = 0; i < t->n_weights; i++)
		free(t->weight[i].data);
	free(t->out.data);
	free(t->states);
}

/* ---- a run of it --------------------------------------------------------------------------------- */

/* How the work is divided. */
struct division {
	bool by_units;	   /* each unit by itself, the last one first */
	bool alone;	   /* each sequence in steps of its own */
	int rows, segment; /* rows of one sequence in a step, and of a segment, at most */
	bool moves;	   /* each segment from one state to another one */
};

struct result {
	float *out, *states;
};

struct memory {
	struct ig_kv_layout layout;
	struct ig_step_kv kv[1];
	uint32_t *words; /* [2 * N_SEQS, LAYERS * n_parts] */
	float *slab;
	size_t n_floats;
	void *bases[2];
};

static float *part_at(const struct memory *m, const struct test_case *t, int state, uint32_t layer,
		      uint32_t part)
{
	uint32_t word = m->words[(uint32_t)state * LAYERS * t->n_parts + layer * t->n_parts + part];

	return (float *)((char *)m->slab + IG_BLOCK_INDEX(word) * m->layout.block_bytes);
}

static void make_memory(struct memory *m, const struct test_case *t)
{
	uint32_t n = 2 * N_SEQS * LAYERS * t->n_parts;

	m->layout = (struct ig_kv_layout){
		.k_dtype = IG_F32,
		.v_dtype = IG_F32,
		.n_layers = LAYERS,
		.n_kv_heads = t->n_parts,
		.head_dim = t->part_floats,
		.kind = IG_CACHE_STATE,
		.block_bytes = ((uint64_t)t->part_floats + GUARD) * 4,
	};
	m->words = malloc(n * sizeof *m->words);
	m->n_floats = (size_t)n * (t->part_floats + GUARD);
	m->slab = malloc(m->n_floats * sizeof *m->slab + 1);
	assert_non_null(m->words);
	assert_non_null(m->slab);
	memset(m->slab, 0xff, m->n_floats * sizeof *m->slab); /* NaN */
	for (uint32_t i = 0; i < n; i++)
		m->words[i] = IG_BLOCK_WORD(1, i);
	for (uint32_t i = n; i-- > 1;) {
		uint32_t k = rnd() % (i + 1), w = m->words[i];
		m->words[i] = m->words[k];
		m->words[k] = w;
	}
	m->bases[0] = NULL;
	m->bases[1] = m->slab;
	m->kv[0] = (struct ig_step_kv){ &m->layout, m->words, LAYERS * (int64_t)t->n_parts };
	for (int seq = 0; seq < N_SEQS; seq++)
		for (uint32_t p = 0; p < t->n_parts && !fresh[seq]; p++)
			memcpy(part_at(m, t, 2 * seq, LAYER, p),
			       t->states + ((size_t)seq * t->n_parts + p) * t->part_floats,
			       t->part_floats * sizeof(float));
}

/* The guards, and the layer that is not tested. */
static void check_memory(const struct memory *m, const struct test_case *t)
{
	static const unsigned char untouched[4] = { 0xff, 0xff, 0xff, 0xff };

	for (int state = 0; state < 2 * N_SEQS; state++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			for (uint32_t p = 0; p < t->n_parts; p++) {
				const float *at = part_at(m, t, state, layer, p);
				uint32_t i = layer == LAYER ? t->part_floats : 0;
				for (; i < t->part_floats + GUARD; i++)
					assert_memory_equal(at + i, untouched, 4);
			}
}

/* One step: rows `done` … of each of these sequences. */
static void run_step(const struct test_case *t, const struct ig_cpu_kernel *k, struct memory *m,
		     const struct division *d, int first_seq, int end_seq, int *done, int *live,
		     struct result *r)
{
	struct ig_step_segment segments[MAX_SEGMENTS];
	int32_t row_seq[MAX_ROWS], positions[MAX_ROWS], from_row[MAX_ROWS];
	struct ig_step step = { .struct_size = sizeof step,
				.row_seq = row_seq,
				.positions = positions,
				.slab_bases = m->bases,
				.kv = m->kv,
				.n_groups = 1,
				.segments = segments,
				.n_states = 2 * N_SEQS };
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = t->n_in,
				  .n_weights = t->n_weights,
				  .n_out = 1,
				  .params = t->params,
				  .step = &step,
				  .kernel = k };
	struct matrix in[IG_MAX_IN], out;

	for (int seq = first_seq; seq < end_seq; seq++) {
		int n = lens[seq] - done[seq] < d->rows ? lens[seq] - done[seq] : d->rows;
		for (int i = 0; i < n; i++) {
			row_seq[step.n_rows + i] = step.n_seqs;
			positions[step.n_rows + i] = done[seq] + i + (fresh[seq] ? 0 : 100);
			from_row[step.n_rows + i] = first_row(seq) + done[seq] + i;
		}
		for (int i = 0; i < n; i += d->segment) {
			int rows = n - i < d->segment ? n - i : d->segment;
			int to = live[seq] < 0 ? 0 : d->moves ? 1 - live[seq] : live[seq];
			segments[step.n_segments++] =
				(struct ig_step_segment){ step.n_rows + i, rows,
							  live[seq] < 0 ? -1 : 2 * seq + live[seq],
							  2 * seq + to };
			live[seq] = to;
		}
		done[seq] += n;
		step.n_rows += n;
		step.n_seqs += n > 0;
	}
	for (uint32_t i = 0; i < t->n_in; i++) {
		in[i] = random_matrix(step.n_rows, t->in[i].n_cols, 1, 0);
		for (int row = 0; row < step.n_rows; row++)
			memcpy(in[i].data + row * in[i].n_cols,
			       t->in[i].data + from_row[row] * in[i].n_cols,
			       (size_t)in[i].n_cols * sizeof(float));
		c.in[i] = (struct ig_tensor){ in[i].data,	step.n_rows, in[i].n_cols,
					      in[i].n_cols * 4, IG_F32,	     IG_LAYOUT_ROWS };
	}
	for (uint32_t i = 0; i < t->n_weights; i++)
		c.weight[i] = (struct ig_tensor){ t->weight[i].data,
						  t->weight[i].n_rows,
						  t->weight[i].n_cols,
						  t->weight[i].n_cols * 4,
						  IG_F32,
						  IG_LAYOUT_ROWS };
	out = random_matrix(step.n_rows, t->out.n_cols, 1, 0);
	c.out[0] = (struct ig_tensor){ out.data,       step.n_rows, out.n_cols,
				       out.n_cols * 4, IG_F32,	    IG_LAYOUT_ROWS };
	if (!k) {
		t->op->reference(&c);
	} else {
		int64_t n = k->n_units(&c);
		void *scratch = malloc(k->scratch_bytes ? k->scratch_bytes(&c) : 1);
		for (int64_t i = n; d->by_units && i-- > 0;)
			k->run(&c, i, i + 1, scratch);
		if (!d->by_units)
			k->run(&c, 0, n, scratch);
		free(scratch);
	}
	for (int row = 0; row < step.n_rows; row++)
		memcpy(r->out + from_row[row] * out.n_cols, out.data + row * out.n_cols,
		       (size_t)out.n_cols * sizeof(float));
	free(out.data);
	for (uint32_t i = 0; i < t->n_in; i++)
		free(in[i].data);
}

/* k NULL: the reference. */
static struct result run(const struct test_case *t, const struct ig_cpu_kernel *k,
			 struct division d)
{
	const size_t state = (size_t)t->n_parts * t->part_floats;
	struct result r = { malloc((size_t)(t->out.n_rows * t->out.n_cols) * sizeof(float)),
			    malloc(N_SEQS * state * sizeof(float) + 1) };
	int done[N_SEQS] = { 0 }, live[N_SEQS];
	struct memory m;

	for (int i = 0; i < N_SEQS; i++)
		live[i] = fresh[i] ? -1 : 0;
	make_memory(&m, t);
	for (int i = 0; i < N_SEQS; i++) {
		int end = d.alone ? i + 1 : N_SEQS;
		for (int most = 0; most < lens[2]; most += d.rows)
			if (done[i] < lens[i] || !d.alone)
				run_step(t, k, &m, &d, i, end, done, live, &r);
		if (!d.alone)
			break;
	}
	check_memory(&m, t);
	for (int seq = 0; seq < N_SEQS; seq++)
		for (uint32_t p = 0; p < t->n_parts; p++)
			memcpy(r.states + ((size_t)seq * t->n_parts + p) * t->part_floats,
			       part_at(&m, t, 2 * seq + live[seq], LAYER, p),
			       t->part_floats * sizeof(float));
	free(m.words);
	free(m.slab);
	return r;
}

static void free_result(struct result *r)
{
	free(r->out);
	free(r->states);
}

static double worst(const float *a, const float *b, size_t n)
{
	double size = 0, most = 0;

	for (size_t i = 0; i < n; i++)
		size += (double)b[i] * (double)b[i];
	size = (n ? sqrt(size / (double)n) : 0) + 1e-3;
	for (size_t i = 0; i < n; i++) {
		double e = fabs((double)a[i] - (double)b[i]) / (size + fabs((double)b[i]));
		if (!(e <= most))
			most = e; /* NaN too */
	}
	return most;
}

static void check_case(struct test_case *t, const char *name, double tolerance)
{
	static const struct division whole = { .rows = 100, .segment = 100 };
	static const struct division others[] = {
		{ .rows = 100, .segment = 100, .by_units = true },
		{ .rows = 100, .segment = 100, .alone = true },
		{ .rows = 100, .segment = 100, .moves = true },
		{ .rows = 100, .segment = 7, .moves = true },
		{ .rows = 100, .segment = 16, .by_units = true },
		{ .rows = 1, .segment = 1, .alone = true },
		{ .rows = 1, .segment = 1, .moves = true },
		{ .rows = 33, .segment = 5, .moves = true },
		{ .rows = 64, .segment = 64 },
	};
	const size_t n_states = N_SEQS * (size_t)t->n_parts * t->part_floats;
	struct result want;
	size_t n_out;

	open_case(t);
	n_out = (size_t)(t->out.n_rows * t->out.n_cols);
	assert_true(n_out > 0);
	want = run(t, NULL, whole);
	for (uint32_t i = 0; i < t->op->n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &t->op->cpu_kernels[i];
		struct result r;
		double e;
		if (!runs_here(k->isa))
			continue;
		r = run(t, k, whole);
		e = fmax(worst(r.out, want.out, n_out), worst(r.states, want.states, n_states));
		printf("# %s, instruction set %u: worst error %.1e\n", name, k->isa, e);
		assert_true(e <= tolerance);
		for (size_t d = 0; d < sizeof others / sizeof *others; d++) {
			struct result other = run(t, k, others[d]);
			if (memcmp(other.out, r.out, n_out * sizeof(float)) ||
			    memcmp(other.states, r.states, n_states * sizeof(float)))
				fail_msg("%s, instruction set %u, division %zu: other bits", name,
					 k->isa, d);
			free_result(&other);
		}
		free_result(&r);
	}
	free_result(&want);
	close_case(t);
}

/* ---- conv1d --------------------------------------------------------------------------------------- */

static void test_conv1d(void **state)
{
	static const struct {
		int64_t width;
		uint32_t n_taps, act, gated;
		bool bias;
		uint32_t first, rest;
	} shapes[] = {
		{ 64, 3, IG_ACT_NONE, 1, false }, { 200, 4, IG_ACT_SILU, 0, false },
		{ 96, 4, IG_ACT_SILU, 0, true },  { 8, 2, IG_ACT_NONE, 0, true },
		{ 130, 8, IG_ACT_SILU, 1, true }, { 72, 4, IG_ACT_SILU, 0, true, 40, 5 },
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const int64_t width = shapes[i].width;
		const struct ig_conv1d_params p = {
			sizeof p, shapes[i].n_taps, shapes[i].act, shapes[i].gated, 0,
			LAYER,	  shapes[i].first,  shapes[i].rest
		};
		struct test_case t = { .op = op_of("conv1d"),
				       .params = &p,
				       .n_in = 1,
				       .n_weights = shapes[i].bias ? 2 : 1,
				       .n_parts = 1,
				       .part_floats = (p.n_taps - 1) * (uint32_t)width };
		t.in[0] = random_matrix(first_row(N_SEQS),
					(p.gated ? 3 : 1) * width + p.first + p.rest, 2, 0);
		t.weight[0] = random_matrix(width, p.n_taps, 1, 0);
		if (shapes[i].bias)
			t.weight[1] = random_matrix(1, width, 1, 0);
		check_case(&t, "conv1d", 1e-6);
	}
}

static void refuses(const struct ig_op *op, const struct ig_op_shape *s, const char *text)
{
	struct ig_op_shape copy = *s;
	struct ig_error err = { 0 };

	assert_int_equal(op->check(&copy, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" instead of \"%s\"", err.text, text);
}

static void test_conv1d_shapes(void **state)
{
	const struct ig_op *op = op_of("conv1d");
	struct ig_conv1d_params p = { sizeof p, 4, IG_ACT_SILU, 0, 1, 0 };
	const struct ig_op_shape good = { .struct_size = sizeof good,
					  .n_in = 1,
					  .n_weights = 2,
					  .n_out = 1,
					  .params = &p,
					  .in = { { 0, 64, IG_F32, IG_ROWS_TOKENS } },
					  .weight = { { 64, 4, IG_F32, 0 },
						      { 1, 64, IG_F32, 0 } } };
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 64);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_conv1d_params before = p;                                                \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("taps, not 2", p.n_taps = 1);
	BAD("taps, not 2", p.n_taps = 9);
	BAD("gated 2", p.gated = 2);
	BAD("act 2", p.act = IG_ACT_GELU);
	BAD("group 4", p.group = 4);
	BAD("taps of [64, 3]", s.weight[0].n_cols = 3);
	BAD("taps of [64, 4] of type 1", s.weight[0].dtype = IG_F16);
	BAD("the bias must be [1, 64]", s.weight[1].n_cols = 63);
	BAD("has 63 columns", s.in[0].n_cols = 63);
	BAD("expected 192", p.gated = 1);
	BAD("expected 67", p.first = 2; p.rest = 1);
	BAD("columns from 2 on", p.gated = 1; p.first = 2);
	BAD("one row a token", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("0 inputs", s.n_in = 0);
#undef BAD
}

/* ---- gated_delta ------------------------------------------------------------------------------- */

static void test_gated_delta(void **state)
{
	static const struct ig_gated_delta_params shapes[] = {
		{ sizeof *shapes, 2, 6, 16, 32, 1, 3, 1e-6f, 0, LAYER },
		{ sizeof *shapes, 2, 6, 24, 16, 0, 2, 1e-6f, 0, LAYER },
		{ sizeof *shapes, 1, 1, 128, 128, 1, 1, 1e-6f, 0, LAYER },
		{ sizeof *shapes, 2, 2, 8, 80, 0, 1, 1e-3f, 0, LAYER },
		{ sizeof *shapes, 2, 6, 16, 16, 0, 6, 1e-6f, 0, LAYER, .by_key = 1 },
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const struct ig_gated_delta_params *p = &shapes[i];
		const int rows = first_row(N_SEQS);
		struct test_case t = { .op = op_of("gated_delta"),
				       .params = p,
				       .n_in = 2,
				       .n_weights = 2,
				       .n_parts = p->n_v_heads / p->part_heads,
				       .part_floats = p->part_heads * p->k_dim * p->v_dim };
		t.in[0] = random_matrix(rows, 2 * p->n_k_heads * p->k_dim + p->n_v_heads * p->v_dim,
					1, 0);
		t.in[1] = random_matrix(rows, 2 * p->n_v_heads, 3, 0);
		t.in[1].data[p->n_v_heads] = 30; /* softplus is the value itself */
		t.weight[0] = random_matrix(1, p->n_v_heads, 1, 0);
		t.weight[1] = random_matrix(1, p->n_v_heads, 0.5f, -0.6f);
		check_case(&t, "gated_delta", 5e-6);
	}
}

static void test_gated_delta_shapes(void **state)
{
	const struct ig_op *op = op_of("gated_delta");
	struct ig_gated_delta_params p = { sizeof p, 2, 6, 16, 32, 1, 3, 1e-6f, 1, 0 };
	const struct ig_op_shape good = { .struct_size = sizeof good,
					  .n_in = 2,
					  .n_weights = 2,
					  .n_out = 1,
					  .params = &p,
					  .in = { { 0, 256, IG_F32, IG_ROWS_TOKENS },
						  { 0, 12, IG_F32, IG_ROWS_TOKENS } },
					  .weight = { { 1, 6, IG_F32, 0 }, { 1, 6, IG_F32, 0 } } };
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 192);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_gated_delta_params before = p;                                           \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("4 heads of keys and 6 of values", p.n_k_heads = 4);
	BAD("0 heads of keys", p.n_k_heads = 0);
	BAD("values of 24", p.v_dim = 24);
	BAD("keys of 257", p.k_dim = 257);
	BAD("parts of 4 heads of 6", p.part_heads = 4);
	BAD("parts of 0 heads", p.part_heads = 0);
	BAD("group 4", p.group = 4);
	BAD("by_key 2", p.by_key = 2; p.tiled = 0);
	BAD("tiled 1, by_key 1", p.by_key = 1);
	BAD("inputs of 255", s.in[0].n_cols = 255);
	BAD("and 13 columns", s.in[1].n_cols = 13);
	BAD("operands 1", s.weight[1].n_cols = 5);
	BAD("operands 0", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("1 weights", s.n_weights = 1);
#undef BAD
}

/* ---- selective_scan ---------------------------------------------------------------------------- */

static void test_selective_scan(void **state)
{
	static const struct ig_selective_scan_params shapes[] = {
		{ sizeof *shapes, 6, 16, 2, 24, 3, 0, 0, LAYER },
		{ sizeof *shapes, 4, 64, 1, 128, 1, 7, 0, LAYER },
		{ sizeof *shapes, 2, 80, 2, 8, 2, 64, 0, LAYER },
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const struct ig_selective_scan_params *p = &shapes[i];
		const int rows = first_row(N_SEQS);
		struct test_case t = { .op = op_of("selective_scan"),
				       .params = p,
				       .n_in = 2,
				       .n_weights = 3,
				       .n_parts = p->n_heads / p->part_heads,
				       .part_floats = p->part_heads * p->state_dim * p->head_dim };
		t.in[0] = random_matrix(
			rows, p->n_heads * p->head_dim + 2 * p->n_groups * p->state_dim, 1, 0);
		t.in[1] = random_matrix(rows, p->dt_first + p->n_heads, 3, 0);
		t.in[1].data[p->dt_first] = 30; /* softplus is the value itself */
		t.weight[0] = random_matrix(1, p->n_heads, 1, 0);
		t.weight[1] = random_matrix(i ? 1 : p->n_heads, i ? p->n_heads : 1, 0.5f, -0.6f);
		t.weight[2] = random_matrix(1, p->n_heads, 1, 0);
		check_case(&t, "selective_scan", 5e-6);
	}
}

static void test_selective_scan_shapes(void **state)
{
	const struct ig_op *op = op_of("selective_scan");
	struct ig_selective_scan_params p = { sizeof p, 6, 16, 2, 24, 3, 5, 1, 0 };
	const struct ig_op_shape good = {
		.struct_size = sizeof good,
		.n_in = 2,
		.n_weights = 3,
		.n_out = 1,
		.params = &p,
		.in = { { 0, 192, IG_F32, IG_ROWS_TOKENS }, { 0, 11, IG_F32, IG_ROWS_TOKENS } },
		.weight = { { 1, 6, IG_F32, 0 }, { 6, 1, IG_F32, 0 }, { 1, 6, IG_F32, 0 } }
	};
	struct ig_op_shape s = good;
	struct ig_error err;

	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 96);
#define BAD(text, change)                                                                          \
	do {                                                                                       \
		struct ig_selective_scan_params before = p;                                        \
		s = good;                                                                          \
		change;                                                                            \
		refuses(op, &s, text);                                                             \
		p = before;                                                                        \
	} while (0)
	BAD("6 heads in 4 groups", p.n_groups = 4);
	BAD("6 heads in 0 groups", p.n_groups = 0);
	BAD("0 heads in 2 groups", p.n_heads = 0);
	BAD("for heads of 24", p.head_dim = 24);
	BAD("states of 257", p.state_dim = 257);
	BAD("states of 0", p.state_dim = 0);
	BAD("parts of 4 heads of 6", p.part_heads = 4);
	BAD("parts of 0 heads", p.part_heads = 0);
	BAD("group 4", p.group = 4);
	BAD("input 0 has 191 columns", s.in[0].n_cols = 191);
	BAD("input 1 has 11 columns, expected 12", p.dt_first = 6);
	BAD("input 0 has 192 columns", s.in[0].row_class = IG_ROWS_LOGITS);
	BAD("weight 1 must be", s.weight[1].n_rows = 5);
	BAD("weight 2 must be", s.weight[2].dtype = IG_F16);
	BAD("weight 0 must be", s.weight[0] = ((struct ig_shape){ 2, 3, IG_F32, 0 }));
	BAD("2 weights", s.n_weights = 2);
#undef BAD
}

/* ---- norm_gated -------------------------------------------------------------------------------- */

static void test_norm_gated(void **state)
{
	static const struct {
		int64_t width, weight;
		struct ig_norm_gated_params p;
		int64_t weight_rows; /* 0: 1 */
	} shapes[] = {
		{ 96, 16, { sizeof shapes[0].p, 6, 1e-6f, 0 } },
		{ 96, 96, { sizeof shapes[0].p, 2, 1e-5f, 1 } },
		{ 130, 130, { sizeof shapes[0].p, 1, 1e-5f, 1 } },
		{ 84, 21, { sizeof shapes[0].p, 4, 1e-6f, 0 } },
		{ 96, 24, { sizeof shapes[0].p, 4, 1e-5f, 1, 13 }, 4 },
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct test_case t = {
			.op = op_of("norm_gated"), .params = &shapes[i].p, .n_in = 2, .n_weights = 1
		};
		t.in[0] = random_matrix(first_row(N_SEQS), shapes[i].width, 2, 0);
		t.in[1] =
			random_matrix(first_row(N_SEQS), shapes[i].width + shapes[i].p.rest, 3, 0);
		t.weight[0] = random_matrix(shapes[i].weight_rows ? shapes[i].weight_rows : 1,
					    shapes[i].weight, 1, 1);
		check_case(&t, "norm_gated", 1e-6);
	}
}

static int load(void **state)
{
	void *so = dlopen(RECURRENT_MODULE, RTLD_NOW | RTLD_LOCAL);

	if (!so)
		fail_msg("%s", dlerror());
	module = dlsym(so, "ingot_module");
	assert_non_null(module);
	seed = 0x9e3779b97f4a7c15u;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conv1d),
		cmocka_unit_test(test_conv1d_shapes),
		cmocka_unit_test(test_gated_delta),
		cmocka_unit_test(test_gated_delta_shapes),
		cmocka_unit_test(test_norm_gated),
		cmocka_unit_test(test_selective_scan),
		cmocka_unit_test(test_selective_scan_shapes),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
