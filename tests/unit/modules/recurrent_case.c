/* recurrent_case.c: see recurrent_case.h. */
#include "recurrent_case.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 128
#define LAYERS 2
#define LAYER 1 /* the one that is tested */
#define MAX_SEGMENTS 128
#define GUARD 16 /* floats behind each part */

static const int lens[N_SEQS] = { 1, 9, 70, 4 };
static const bool fresh[N_SEQS] = { false, true, false, true }; /* they begin without a state */

const struct division recurrent_whole = { .rows = 100, .segment = 100 };
const struct division recurrent_others[] = {
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
const size_t n_recurrent_others = sizeof recurrent_others / sizeof *recurrent_others;

static uint64_t seed;

static uint32_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32);
}

static float uniform(void) { return (float)(rnd() >> 8) * 0x1p-23f - 1; }

const struct ig_op *recurrent_op(const char *name)
{
	static const struct ig_module *module;

	if (!module) {
		void *so = dlopen(RECURRENT_MODULE, RTLD_NOW | RTLD_LOCAL);
		if (!so)
			fail_msg("%s", dlerror());
		module = dlsym(so, "ingot_module");
		assert_non_null(module);
	}
	for (const struct ig_op *const *o = module->ops; *o; o++)
		if (!strcmp((*o)->name, name))
			return *o;
	fail_msg("the module has no op %s", name);
	return NULL;
}

/* ---- a case ---------------------------------------------------------------------------------- */

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

/* ---- the table --------------------------------------------------------------------------------- */

static const struct conv1d_shape {
	int64_t width;
	uint32_t n_taps, act, gated;
	bool bias;
	uint32_t first, rest;
} conv1d_shapes[] = {
	{ 64, 3, IG_ACT_NONE, 1, false, 0, 0 }, { 200, 4, IG_ACT_SILU, 0, false, 0, 0 },
	{ 96, 4, IG_ACT_SILU, 0, true, 0, 0 },	{ 8, 2, IG_ACT_NONE, 0, true, 0, 0 },
	{ 130, 8, IG_ACT_SILU, 1, true, 0, 0 }, { 72, 4, IG_ACT_SILU, 0, true, 40, 5 },
	{ 33, 5, IG_ACT_NONE, 0, false, 0, 1 }, { 16, 6, IG_ACT_SILU, 1, false, 0, 0 },
	{ 129, 7, IG_ACT_NONE, 0, true, 3, 0 },
};

static void fill_conv1d(struct recurrent_case *t, size_t i)
{
	static struct ig_conv1d_params p;
	const struct conv1d_shape *s = &conv1d_shapes[i];

	p = (struct ig_conv1d_params){ sizeof p, s->n_taps, s->act,   s->gated,
				       0,	 LAYER,	    s->first, s->rest };
	*t = (struct recurrent_case){ .op = recurrent_op("conv1d"),
				      .params = &p,
				      .tolerance = 1e-6,
				      .n_in = 1,
				      .n_weights = s->bias ? 2 : 1,
				      .n_parts = 1,
				      .part_floats = (p.n_taps - 1) * (uint32_t)s->width };
	t->in[0] = random_matrix(first_row(N_SEQS), (p.gated ? 3 : 1) * s->width + p.first + p.rest,
				 2, 0);
	t->weight[0] = random_matrix(s->width, p.n_taps, 1, 0);
	if (s->bias)
		t->weight[1] = random_matrix(1, s->width, 1, 0);
}

static const struct ig_gated_delta_params delta_shapes[] = {
	{ sizeof *delta_shapes, 2, 6, 16, 32, 1, 3, 1e-6f, 0, LAYER, 0 },
	{ sizeof *delta_shapes, 2, 6, 24, 16, 0, 2, 1e-6f, 0, LAYER, 0 },
	{ sizeof *delta_shapes, 1, 1, 128, 128, 1, 1, 1e-6f, 0, LAYER, 0 },
	{ sizeof *delta_shapes, 2, 2, 8, 80, 0, 1, 1e-3f, 0, LAYER, 0 },
	{ sizeof *delta_shapes, 2, 6, 16, 16, 0, 6, 1e-6f, 0, LAYER, .by_key = 1 },
	{ sizeof *delta_shapes, 1, 2, 200, 48, 0, 1, 1e-6f, 0, LAYER, 0 },
	{ sizeof *delta_shapes, 1, 2, 50, 16, 0, 2, 1e-6f, 0, LAYER, 0 },
};

static void fill_delta(struct recurrent_case *t, size_t i)
{
	const struct ig_gated_delta_params *p = &delta_shapes[i];
	const int rows = first_row(N_SEQS);

	*t = (struct recurrent_case){ .op = recurrent_op("gated_delta"),
				      .params = p,
				      .tolerance = 5e-6,
				      .n_in = 2,
				      .n_weights = 2,
				      .n_parts = p->n_v_heads / p->part_heads,
				      .part_floats = p->part_heads * p->k_dim * p->v_dim };
	t->in[0] = random_matrix(rows, 2 * p->n_k_heads * p->k_dim + p->n_v_heads * p->v_dim, 1, 0);
	t->in[1] = random_matrix(rows, 2 * p->n_v_heads, 3, 0);
	t->in[1].data[p->n_v_heads] = 30; /* softplus is the value itself */
	t->weight[0] = random_matrix(1, p->n_v_heads, 1, 0);
	t->weight[1] = random_matrix(1, p->n_v_heads, 0.5f, -0.6f);
}

static const struct ig_selective_scan_params scan_shapes[] = {
	{ sizeof *scan_shapes, 6, 16, 2, 24, 3, 0, 0, LAYER },
	{ sizeof *scan_shapes, 4, 64, 1, 128, 1, 7, 0, LAYER },
	{ sizeof *scan_shapes, 2, 80, 2, 8, 2, 64, 0, LAYER },
	{ sizeof *scan_shapes, 2, 16, 1, 256, 2, 0, 0, LAYER },
	{ sizeof *scan_shapes, 1, 32, 1, 61, 1, 0, 0, LAYER },
};

static void fill_scan(struct recurrent_case *t, size_t i)
{
	const struct ig_selective_scan_params *p = &scan_shapes[i];
	const int rows = first_row(N_SEQS);

	*t = (struct recurrent_case){ .op = recurrent_op("selective_scan"),
				      .params = p,
				      .tolerance = 5e-6,
				      .n_in = 2,
				      .n_weights = 3,
				      .n_parts = p->n_heads / p->part_heads,
				      .part_floats = p->part_heads * p->state_dim * p->head_dim };
	t->in[0] = random_matrix(rows, p->n_heads * p->head_dim + 2 * p->n_groups * p->state_dim, 1,
				 0);
	t->in[1] = random_matrix(rows, p->dt_first + p->n_heads, 3, 0);
	t->in[1].data[p->dt_first] = 30; /* softplus is the value itself */
	t->weight[0] = random_matrix(1, p->n_heads, 1, 0);
	t->weight[1] = random_matrix(i ? 1 : p->n_heads, i ? p->n_heads : 1, 0.5f, -0.6f);
	t->weight[2] = random_matrix(1, p->n_heads, 1, 0);
}

/* What a recurrence leads to may be larger than a half is; its norm makes it small. */
#define BEYOND_HALF 3e5f

static const struct norm_shape {
	int64_t width, weight;
	struct ig_norm_gated_params p;
	int64_t weight_rows; /* 0: 1 */
	float size;	     /* of x; 0: 2 */
} norm_shapes[] = {
	{ 96, 16, { sizeof norm_shapes->p, 6, 1e-6f, 0, 0 }, 0, 0 },
	{ 96, 96, { sizeof norm_shapes->p, 2, 1e-5f, 1, 0 }, 0, 0 },
	{ 130, 130, { sizeof norm_shapes->p, 1, 1e-5f, 1, 0 }, 0, 0 },
	{ 84, 21, { sizeof norm_shapes->p, 4, 1e-6f, 0, 0 }, 0, 0 },
	{ 96, 24, { sizeof norm_shapes->p, 4, 1e-5f, 1, 13 }, 4, 0 },
	{ 1200, 600, { sizeof norm_shapes->p, 2, 1e-5f, 0, 0 }, 0, 0 },
	{ 1026, 513, { sizeof norm_shapes->p, 2, 1e-5f, 1, 7 }, 2, 0 },
	{ 96, 16, { sizeof norm_shapes->p, 6, 1e-6f, 0, 0 }, 0, BEYOND_HALF },
	{ 1200, 600, { sizeof norm_shapes->p, 2, 1e-5f, 1, 0 }, 0, BEYOND_HALF },
};

static void fill_norm(struct recurrent_case *t, size_t i)
{
	const struct norm_shape *s = &norm_shapes[i];

	*t = (struct recurrent_case){ .op = recurrent_op("norm_gated"),
				      .params = &s->p,
				      .tolerance = 1e-6,
				      .n_in = 2,
				      .n_weights = 1 };
	t->in[0] = random_matrix(first_row(N_SEQS), s->width, s->size > 0 ? s->size : 2, 0);
	t->in[1] = random_matrix(first_row(N_SEQS), s->width + s->p.rest, 3, 0);
	t->weight[0] = random_matrix(s->weight_rows ? s->weight_rows : 1, s->weight, 1, 1);
}

#define COUNT(shapes) (sizeof shapes / sizeof *shapes)
static const struct {
	void (*fill)(struct recurrent_case *t, size_t i);
	size_t n;
} table[] = {
	{ fill_conv1d, COUNT(conv1d_shapes) },
	{ fill_delta, COUNT(delta_shapes) },
	{ fill_scan, COUNT(scan_shapes) },
	{ fill_norm, COUNT(norm_shapes) },
};
const size_t n_recurrent_cases =
	COUNT(conv1d_shapes) + COUNT(delta_shapes) + COUNT(scan_shapes) + COUNT(norm_shapes);

void recurrent_open(struct recurrent_case *t, size_t number)
{
	size_t op = 0;

	seed = 0x9e3779b97f4a7c15u + number;
	for (; number >= table[op].n; op++)
		number -= table[op].n;
	table[op].fill(t, number);

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

void recurrent_close(struct recurrent_case *t)
{
	for (uint32_t i = 0; i < t->n_in; i++)
		free(t->in[i].data);
	for (uint32_t i = 0; i < t->n_weights; i++)
		free(t->weight[i].data);
	free(t->out.data);
	free(t->states);
}

/* ---- a run of it --------------------------------------------------------------------------------- */

struct memory {
	struct ig_kv_layout layout;
	struct ig_step_kv kv[1];
	uint32_t *words; /* [2 * N_SEQS, LAYERS * n_parts] */
	uint64_t slab_bytes;
	void *slabs[N_SLABS];
};

static float *part_at(const struct memory *m, const struct recurrent_case *t, int state,
		      uint32_t layer, uint32_t part)
{
	uint32_t word = m->words[(uint32_t)state * LAYERS * t->n_parts + layer * t->n_parts + part];

	return (float *)((char *)m->slabs[IG_BLOCK_SLAB(word)] +
			 IG_BLOCK_INDEX(word) * m->layout.block_bytes);
}

static void make_slabs(struct memory *m, uint32_t n_blocks)
{
	m->slab_bytes = (n_blocks + N_SLABS - 1) / N_SLABS * m->layout.block_bytes;
	for (int i = 0; i < N_SLABS; i++) {
		m->slabs[i] = malloc(m->slab_bytes + 1);
		assert_non_null(m->slabs[i]);
		memset(m->slabs[i], 0xff, m->slab_bytes); /* NaN */
	}
}

static void make_memory(struct memory *m, const struct recurrent_case *t)
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
	m->words = malloc(n * sizeof *m->words + 1);
	assert_non_null(m->words);
	make_slabs(m, n);
	for (uint32_t i = 0; i < n; i++)
		m->words[i] = IG_BLOCK_WORD(i % N_SLABS, i / N_SLABS);
	for (uint32_t i = n; i-- > 1;) {
		uint32_t k = rnd() % (i + 1), w = m->words[i];
		m->words[i] = m->words[k];
		m->words[k] = w;
	}
	m->kv[0] = (struct ig_step_kv){ &m->layout, m->words, LAYERS * (int64_t)t->n_parts };
	for (int seq = 0; seq < N_SEQS; seq++)
		for (uint32_t p = 0; p < t->n_parts && !fresh[seq]; p++)
			memcpy(part_at(m, t, 2 * seq, LAYER, p),
			       t->states + ((size_t)seq * t->n_parts + p) * t->part_floats,
			       t->part_floats * sizeof(float));
}

/* The guards, and the layer that is not tested. */
static void check_memory(const struct memory *m, const struct recurrent_case *t)
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

/* A step that is put together, and what it points at. */
struct work {
	struct ig_step step;
	struct ig_step_segment segments[MAX_SEGMENTS];
	int32_t row_seq[MAX_ROWS], positions[MAX_ROWS], from_row[MAX_ROWS];
};

/* Rows done[seq] … of a sequence, which has its state in live[seq]; -1: it has none. */
static void add_rows(struct work *w, const struct division *d, int seq, int *done, int *live)
{
	struct ig_step *step = &w->step;
	int n = lens[seq] - done[seq] < d->rows ? lens[seq] - done[seq] : d->rows;

	for (int i = 0; i < n; i++) {
		w->row_seq[step->n_rows + i] = step->n_seqs;
		w->positions[step->n_rows + i] = done[seq] + i + (fresh[seq] ? 0 : 100);
		w->from_row[step->n_rows + i] = first_row(seq) + done[seq] + i;
	}
	for (int i = 0; i < n; i += d->segment) {
		int rows = n - i < d->segment ? n - i : d->segment;
		int to = live[seq] < 0 ? 0 : d->moves ? 1 - live[seq] : live[seq];
		w->segments[step->n_segments++] =
			(struct ig_step_segment){ step->n_rows + i, rows,
						  live[seq] < 0 ? -1 : 2 * seq + live[seq],
						  2 * seq + to };
		live[seq] = to;
	}
	done[seq] += n;
	step->n_rows += n;
	step->n_seqs += n > 0;
}

static struct ig_tensor tensor_of(const struct matrix *m)
{
	return (struct ig_tensor){ m->data,	  m->n_rows, m->n_cols,
				   m->n_cols * 4, IG_F32,    IG_LAYOUT_ROWS };
}

static void run_work(const struct recurrent_case *t, const struct runner *k,
		     const struct division *d, struct memory *m, const struct work *w,
		     struct result *r)
{
	const int n_rows = w->step.n_rows;
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = t->n_in,
				  .n_weights = t->n_weights,
				  .n_out = 1,
				  .params = t->params,
				  .step = &w->step };
	struct matrix in[IG_MAX_IN], out = random_matrix(n_rows, t->out.n_cols, 1, 0);

	for (uint32_t i = 0; i < t->n_in; i++) {
		in[i] = random_matrix(n_rows, t->in[i].n_cols, 1, 0);
		for (int row = 0; row < n_rows; row++)
			memcpy(in[i].data + row * in[i].n_cols,
			       t->in[i].data + w->from_row[row] * in[i].n_cols,
			       (size_t)in[i].n_cols * sizeof(float));
		c.in[i] = tensor_of(&in[i]);
	}
	for (uint32_t i = 0; i < t->n_weights; i++)
		c.weight[i] = tensor_of(&t->weight[i]);
	c.out[0] = tensor_of(&out);
	k->run(k, t, d, &c, m->slabs, m->slab_bytes);
	for (int row = 0; row < n_rows; row++)
		memcpy(r->out + w->from_row[row] * out.n_cols, out.data + row * out.n_cols,
		       (size_t)out.n_cols * sizeof(float));
	free(out.data);
	for (uint32_t i = 0; i < t->n_in; i++)
		free(in[i].data);
}

/* One step: the next rows of each of these sequences. */
static void run_step(const struct recurrent_case *t, const struct runner *k,
		     const struct division *d, struct memory *m, int first_seq, int end_seq,
		     int *done, int *live, struct result *r)
{
	struct work w = { .step = { .struct_size = sizeof w.step,
				    .row_seq = w.row_seq,
				    .positions = w.positions,
				    .slab_bases = m->slabs,
				    .kv = m->kv,
				    .n_groups = 1,
				    .segments = w.segments,
				    .n_states = 2 * N_SEQS } };

	for (int seq = first_seq; seq < end_seq; seq++)
		add_rows(&w, d, seq, done, live);
	run_work(t, k, d, m, &w, r);
}

struct result recurrent_run(const struct recurrent_case *t, const struct runner *k,
			    struct division d)
{
	const size_t state = (size_t)t->n_parts * t->part_floats;
	struct result r = { malloc((size_t)(t->out.n_rows * t->out.n_cols) * sizeof(float)),
			    malloc(N_SEQS * state * sizeof(float) + 1) };
	int done[N_SEQS] = { 0 }, live[N_SEQS];
	struct memory m;

	assert_non_null(r.out);
	assert_non_null(r.states);
	for (int i = 0; i < N_SEQS; i++)
		live[i] = fresh[i] ? -1 : 0;
	make_memory(&m, t);
	for (int i = 0; i < N_SEQS; i++) {
		int end = d.alone ? i + 1 : N_SEQS;
		for (int most = 0; most < lens[2]; most += d.rows)
			if (done[i] < lens[i] || !d.alone)
				run_step(t, k, &d, &m, i, end, done, live, &r);
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
	for (int i = 0; i < N_SLABS; i++)
		free(m.slabs[i]);
	return r;
}

static void run_reference(const struct runner *r, const struct recurrent_case *t,
			  const struct division *d, const struct ig_op_launch *launch,
			  void *const slabs[N_SLABS], uint64_t slab_bytes)
{
	(void)r, (void)d, (void)slabs, (void)slab_bytes;
	t->op->reference(launch);
}

const struct runner recurrent_reference = { run_reference, NULL };

/* ---- results ------------------------------------------------------------------------------------- */

void recurrent_free(struct result *r)
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

static size_t n_out(const struct recurrent_case *t)
{
	return (size_t)(t->out.n_rows * t->out.n_cols);
}

static size_t n_states(const struct recurrent_case *t)
{
	return N_SEQS * (size_t)t->n_parts * t->part_floats;
}

double recurrent_error(const struct recurrent_case *t, const struct result *a,
		       const struct result *b)
{
	const double out = worst(a->out, b->out, n_out(t));
	const double states = worst(a->states, b->states, n_states(t));

	return out >= states || isnan(out) ? out : states;
}

bool recurrent_equal(const struct recurrent_case *t, const struct result *a, const struct result *b)
{
	return !memcmp(a->out, b->out, n_out(t) * sizeof(float)) &&
	       !memcmp(a->states, b->states, n_states(t) * sizeof(float));
}
