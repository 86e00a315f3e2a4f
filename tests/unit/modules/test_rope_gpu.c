/*
 * test_rope_gpu.c: the ops rope_table and rope_kv and the copy between cache blocks on
 * a GPU, against references.
 */
#include "attention_world.h"
#include "modules/attention/cache_row.h"
#include "shaders/args.h"
#include "tests/ops/gpu_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_lab *lab;

/* ---- rope_table ------------------------------------------------------------------------ */

struct table_case {
	uint32_t n_pairs;
	float freq_base, freq_scale;
	int factors;
	float magnitude;
	uint32_t sections[IG_ROPE_AXES], interleaved;
	int turned; /* rows have positions of their own along each axis */
};

static const struct table_case tables[] = {
	{ 32, 10000, 1, 0 },
	{ 64, 10000, 1, 0 },
	{ 64, 1e6f, 1, 0 },
	{ 128, 5e5f, 1, 1 },
	{ 9, 10000, 0.25f, 0 },
	{ 1, 10000, 1, 1 },
	{ 40, 1e6f, 0.5f, 1 },
	{ 64, 1, 1, 0 },
	{ 32, 10000, 1, 0, 0.75f },
	/* pairs of several axes, of rows that have them and of a text's; axes that no pair has */
	{ 32, 1e6f, 1, 0, 0, { 11, 11, 10 }, 1, 1 },
	{ 64, 5e5f, 1, 1, 0, { 16, 24, 24 }, 0, 1 },
	{ 9, 10000, 0.25f, 0, 2, { 4, 3, 2 }, 0, 0 },
	{ 40, 1e6f, 1, 0, 0, { 0, 0, 0 }, 0, 1 },
};

/* The start, edges of powers of two, every large position's neighbourhood. */
static int32_t table_position(int32_t row)
{
	static const int32_t some[] = { 0,    1,     2,	    3,	   100,	  1023,	  4095,	  4096,
					8191, 32767, 32768, 65535, 65536, 100000, 131070, 131071 };
	const int32_t n = (int32_t)(sizeof some / sizeof some[0]);

	return row < n ? some[row] : (int32_t)((uint32_t)row * 2654435761u % 131072);
}

/* Of a row that is no token's: up to 2^24, and other ones along each axis. */
static int32_t turned_position(int32_t row, int32_t axis)
{
	if (row % 50 == 49)
		return (1 << 24) - axis;
	return table_position(row + axis) + 131072 * axis;
}

#define TABLE_ROWS 300

static void run_table(const struct table_case *c, const float *factors, int32_t first, int32_t n,
		      struct guarded *out, struct guarded *truth)
{
	const struct ig_rope_table_params p = { sizeof p,
						c->n_pairs,
						c->freq_base,
						c->freq_scale,
						.magnitude = c->magnitude,
						.sections = { c->sections[0], c->sections[1],
							      c->sections[2] },
						.interleaved = c->interleaved };
	int32_t positions[TABLE_ROWS], row_seq[TABLE_ROWS] = { 0 };
	int32_t turned[TABLE_ROWS][IG_ROPE_AXES];
	const struct ig_step step = { .struct_size = sizeof step,
				      .n_rows = n,
				      .n_seqs = 1,
				      .positions = positions,
				      .rope_positions = c->turned ? turned[0] : NULL,
				      .row_seq = row_seq };
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.n_weights = factors ? 1 : 0,
		.n_out = 1,
		.params = &p,
		.weight = { { (void *)(uintptr_t)factors, 1, c->n_pairs, c->n_pairs * 4, IG_F32,
			      IG_LAYOUT_ROWS } },
		.out = { out->t },
		.step = &step,
	};
	const struct ig_gpu_case g = { .op = world_op("rope_table"), .launch = &launch };
	struct ig_error err = { 0 };

	for (int32_t r = 0; r < n; r++)
		positions[r] = table_position(first + r);
	for (int32_t i = 0; i < n * IG_ROPE_AXES; i++)
		turned[i / IG_ROPE_AXES][i % IG_ROPE_AXES] =
			turned_position(first + i / IG_ROPE_AXES, i % IG_ROPE_AXES);
	launch.out[0].data = guarded_row(out, first);
	launch.out[0].n_rows = n;
	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
	if (truth) {
		launch.out[0] = truth->t;
		world_op("rope_table")->reference(&launch);
	}
}

static void test_table(void **state)
{
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
		const struct table_case *c = &tables[i];
		struct guarded out, other, truth;
		float factors[128];
		double worst = 0;

		world_seed(i + 1);
		for (uint32_t j = 0; j < c->n_pairs; j++)
			factors[j] = j % 3 ? 1 + 3.5f * fabsf(world_uniform()) : 1;
		guarded_create(&out, TABLE_ROWS, 2 * (int64_t)c->n_pairs);
		guarded_create(&other, TABLE_ROWS, 2 * (int64_t)c->n_pairs);
		guarded_create(&truth, TABLE_ROWS, 2 * (int64_t)c->n_pairs);
		run_table(c, c->factors ? factors : NULL, 0, TABLE_ROWS, &out, &truth);
		guarded_check(&out);
		for (int32_t r = 0; r < TABLE_ROWS; r++)
			for (uint32_t j = 0; j < 2 * c->n_pairs; j++) {
				double e = fabs((double)guarded_row(&out, r)[j] -
						(double)guarded_row(&truth, r)[j]);

				if (!(e <= 2e-7))
					fail_msg("table %zu, position %d, column %u: %.9g, "
						 "expected %.9g",
						 i, table_position(r), j,
						 (double)guarded_row(&out, r)[j],
						 (double)guarded_row(&truth, r)[j]);
				worst = e > worst ? e : worst;
			}
		for (int32_t r = 0; r < TABLE_ROWS; r += 23) {
			run_table(c, c->factors ? factors : NULL, r, 1, &other, NULL);
			assert_memory_equal(guarded_row(&out, r), guarded_row(&other, r),
					    (size_t)c->n_pairs * 8);
		}
		if (getenv("VERBOSE"))
			print_message("# table %zu: %.2g\n", i, worst);
		guarded_destroy(&out);
		guarded_destroy(&other);
		guarded_destroy(&truth);
	}
}

/* ---- rope_kv --------------------------------------------------------------------------- */

struct rope_case {
	uint32_t n_heads, n_kv_heads, head_dim, n_pairs, mode, dtype;
	uint32_t norm; /* 1: of each head, 2: of all heads of q, and of k, together */
	uint32_t table;
	uint32_t flags, gap, rest; /* IG_ROPE_KV_…; columns between heads of q, and after v */
};

static const struct rope_case cases[] = {
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F16, 1, 1, 0, 64, 0 },
	{ 3, 3, 32, 8, IG_ROPE_HALVES, IG_F32, 0, 1, 0, 4, 7 },
	{ 4, 2, 32, 16, IG_ROPE_HALVES, IG_F16, 1, 1, IG_ROPE_KV_V_NORM, 0, 0 },
	{ 4, 2, 32, 16, IG_ROPE_HALVES, IG_F32, 1, 1, IG_ROPE_KV_NO_V, 0, 16 },
	{ 4, 1, 64, 16, IG_ROPE_HALVES, IG_Q8_0, 1, 1, IG_ROPE_KV_NO_V | IG_ROPE_KV_V_NORM, 0, 0 },
	{ 4, 1, 40, 20, IG_ROPE_HALVES, IG_F16, 1, 1, IG_ROPE_KV_Q_ONLY, 0, 0 },
	{ 4, 1, 40, 20, IG_ROPE_HALVES, IG_F16, 0, 1, IG_ROPE_KV_Q_ONLY, 8, 3 },
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F16, 0, 1 },
	{ 9, 3, 64, 32, IG_ROPE_HALVES, IG_F32, 0, 1 },
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F32, 1, 1 },
	{ 4, 4, 32, 16, IG_ROPE_HALVES, IG_F16, 0, 1 },
	{ 4, 1, 40, 20, IG_ROPE_PAIRS, IG_F16, 0, 1 },
	{ 6, 2, 80, 40, IG_ROPE_HALVES, IG_F16, 1, 1 },
	{ 8, 1, 128, 64, IG_ROPE_HALVES, IG_F32, 1, 1 },
	{ 2, 1, 256, 128, IG_ROPE_PAIRS, IG_F16, 1, 1 },
	{ 7, 7, 96, 48, IG_ROPE_HALVES, IG_F16, 1, 1 },
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F32, 2, 1 },
	{ 16, 16, 128, 64, IG_ROPE_HALVES, IG_F16, 2, 1 },
	/* 8 bits */
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_Q8_0, 0, 1 },
	{ 8, 1, 128, 64, IG_ROPE_HALVES, IG_Q8_0, 1, 1 },
	{ 4, 2, 32, 16, IG_ROPE_PAIRS, KEYS_VALUES(IG_F16, IG_Q8_0), 0, 1 },
	{ 2, 1, 96, 40, IG_ROPE_HALVES, KEYS_VALUES(IG_Q8_0, IG_F16), 2, 1 },
	/* a part of the head rotates */
	{ 2, 2, 64, 16, IG_ROPE_PAIRS, IG_F16, 0, 1 },
	{ 2, 2, 64, 9, IG_ROPE_HALVES, IG_F32, 0, 1 },
	{ 2, 2, 72, 1, IG_ROPE_HALVES, IG_F16, 1, 1 },
	{ 2, 2, 80, 16, IG_ROPE_PAIRS, IG_F16, 1, 1 },
	/* nothing rotates */
	{ 4, 2, 64, 0, IG_ROPE_PAIRS, IG_F16, 0, 0 },
	{ 4, 2, 8, 0, IG_ROPE_PAIRS, IG_F32, 1, 0 },
};

/* Rows of three sequences, runs across the edges of blocks. */
static const int32_t lens[] = { 40, 3, 17 };
static const struct {
	int32_t seq, pos;
} rows[] = {
	{ 0, 14 }, { 0, 15 }, { 0, 16 }, { 0, 39 }, { 1, 0 }, { 1, 1 }, { 2, 0 }, { 2, 16 },
};
#define N_ROWS ((int32_t)(sizeof rows / sizeof rows[0]))

struct rope_setup {
	struct world w;
	void *after[256]; /* slabs as the GPU left them */
	struct ig_rope_kv_params p;
	int32_t positions[N_ROWS], row_seq[N_ROWS];
	struct guarded x, table, norm;
	const struct rope_case *c;
};

static void rope_create(struct rope_setup *s, const struct rope_case *c)
{
	memset(s, 0, sizeof *s);
	s->c = c;
	s->p = (struct ig_rope_kv_params){ .struct_size = sizeof s->p,
					   .n_heads = c->n_heads,
					   .n_kv_heads = c->n_kv_heads,
					   .head_dim = c->head_dim,
					   .mode = c->mode,
					   .n_pairs = c->n_pairs,
					   .group = 0,
					   .layer = 1,
					   .norm_eps = 1e-5f,
					   .flags = c->flags,
					   .q_stride = c->gap ? c->head_dim + c->gap : 0,
					   .n_rest = c->rest,
					   .q_scale = 0.3f,
					   .q_scale_length = c->norm ? 16 : 0 };
	world_create(&s->w, c->dtype, c->n_kv_heads, c->head_dim, lens, 3);
	for (uint32_t i = 0; i < s->w.n_slabs; i++) {
		s->after[i] = malloc(s->w.slab_bytes);
		assert_non_null(s->after[i]);
	}
	guarded_create(&s->x, N_ROWS,
		       c->n_heads * (int64_t)(c->head_dim + c->gap) +
			       (c->flags & IG_ROPE_KV_Q_ONLY ? 0 :
				c->flags & IG_ROPE_KV_NO_V   ? 1 :
							       2) *
				       (int64_t)(c->n_kv_heads * c->head_dim) +
			       c->rest);
	guarded_create(&s->table, N_ROWS, c->table ? 2 * (int64_t)c->n_pairs : 2);
	const uint32_t n_norm = c->head_dim * (c->norm == 2 ? c->n_heads : 1);
	guarded_create(&s->norm, 2, n_norm);
	for (int32_t r = 0; r < N_ROWS; r++) {
		s->positions[r] = rows[r].pos;
		s->row_seq[r] = rows[r].seq;
		for (int64_t i = 0; i < s->x.t.n_cols; i++)
			guarded_row(&s->x, r)[i] = world_uniform() * 3;
		for (uint32_t i = 0; c->table && i < c->n_pairs; i++) {
			float angle = world_uniform() * 3;

			guarded_row(&s->table, r)[i] = cosf(angle);
			guarded_row(&s->table, r)[c->n_pairs + i] = sinf(angle);
		}
	}
	for (uint32_t i = 0; i < 2 * n_norm; i++)
		guarded_row(&s->norm, i / n_norm)[i % n_norm] = 1 + world_uniform() / 2;
}

static void rope_destroy(struct rope_setup *s)
{
	for (uint32_t i = 0; i < s->w.n_slabs; i++)
		free(s->after[i]);
	world_destroy(&s->w);
	guarded_destroy(&s->x);
	guarded_destroy(&s->table);
	guarded_destroy(&s->norm);
}

/* Rows first … first + n - 1: on the GPU into `after`, or the reference into the world. */
static void rope_run(struct rope_setup *s, int reference, uint32_t out_dtype, struct guarded *out,
		     int32_t first, int32_t n)
{
	const struct ig_step step = {
		.struct_size = sizeof step,
		.n_rows = n,
		.n_seqs = 3,
		.positions = s->positions + first,
		.row_seq = s->row_seq + first,
		.seq_lens = lens,
		.slab_bases = s->w.slabs,
		.kv = &s->w.kv,
		.n_groups = 1,
	};
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .n_in = s->c->table ? 2 : 1,
				       .n_weights = !s->c->norm			   ? 0 :
						    s->p.flags & IG_ROPE_KV_Q_ONLY ? 1 :
										     2,
				       .n_out = 1,
				       .params = &s->p,
				       .in = { s->x.t, s->table.t },
				       .out = { out->t },
				       .step = &step };
	const struct ig_gpu_case g = {
		.op = world_op("rope_kv"),
		.launch = &launch,
		.out_dtype = out_dtype,
		.n_slabs = s->w.n_slabs,
		.slab_bytes = s->w.slab_bytes,
		.slabs_after = s->after,
	};
	struct ig_error err = { 0 };

	launch.in[0].data = guarded_row(&s->x, first);
	launch.in[1].data = guarded_row(&s->table, first);
	launch.out[0].data = guarded_row(out, first);
	launch.in[0].n_rows = launch.in[1].n_rows = launch.out[0].n_rows = n;
	for (int i = 0; i < 2; i++) {
		launch.weight[i] = s->norm.t;
		launch.weight[i].data = guarded_row(&s->norm, i);
		launch.weight[i].n_rows = 1;
		if (i && s->c->norm == 2)
			launch.weight[i].n_cols = (int64_t)s->c->n_kv_heads * s->c->head_dim;
	}
	if (reference)
		world_op("rope_kv")->reference(&launch);
	else if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
}

/* The world as it looks in `after`. */
static struct world world_after(const struct rope_setup *s)
{
	struct world w = s->w;

	memcpy(w.slabs, s->after, sizeof w.slabs);
	return w;
}

/* K and V of the rows, as floats; then their slots are wiped, and nothing else may be
 * other than it was. */
static void take_pages(const struct rope_setup *s, const struct world *w, struct guarded *kv)
{
	const uint32_t dim = s->p.head_dim;

	for (int32_t r = 0; r < N_ROWS; r++)
		for (uint32_t i = 0; i < 2 * s->p.n_kv_heads; i++) {
			const uint32_t seq = (uint32_t)rows[r].seq;
			for (uint32_t d = 0; d < dim; d++)
				guarded_row(kv, r)[i * dim + d] =
					world_element(w, seq, rows[r].pos, 1, i / 2, i % 2, d);
			world_wipe(w, seq, rows[r].pos, 1, i / 2, i % 2);
		}
	for (uint32_t i = 0; i < w->n_slabs; i++)
		for (uint64_t b = 0; b < w->slab_bytes; b++)
			if (((unsigned char *)w->slabs[i])[b] != 0xff)
				fail_msg("byte %llu of slab %u was written", (unsigned long long)b,
					 i);
}

static void assert_close(const struct guarded *a, const struct guarded *b, double relative,
			 size_t i_case, const char *what)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t c = 0; c < a->t.n_cols; c++) {
			double x = (double)guarded_row(a, r)[c], y = (double)guarded_row(b, r)[c];

			if (!(fabs(x - y) <= relative * (fabs(y) + 1)))
				fail_msg("case %zu: %s, row %lld, column %lld: %g, expected %g",
					 i_case, what, (long long)r, (long long)c, x, y);
		}
}

/* Nothing was written: 0xff is NaN in every type. */
static void assert_untouched(const struct guarded *kv)
{
	for (int64_t r = 0; r < kv->t.n_rows; r++)
		for (int64_t c = 0; c < kv->t.n_cols; c++)
			assert_true(isnan(guarded_row(kv, r)[c]));
}

static void test_rope_kv(void **state)
{
	static const uint32_t types[] = { IG_F16, IG_BF16 };

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct rope_setup s;
		struct guarded q_ref, kv_ref, q, kv, other, kv_other;
		struct world after;
		int64_t q_cols, kv_cols;

		world_seed(i + 11);
		rope_create(&s, &cases[i]);
		q_cols = (int64_t)s.p.n_heads * s.p.head_dim;
		kv_cols = 2 * (int64_t)s.p.n_kv_heads * s.p.head_dim;
		guarded_create(&q_ref, N_ROWS, q_cols);
		guarded_create(&kv_ref, N_ROWS, kv_cols);
		guarded_create(&q, N_ROWS, q_cols);
		guarded_create(&kv, N_ROWS, kv_cols);
		guarded_create(&other, N_ROWS, q_cols);
		guarded_create(&kv_other, N_ROWS, kv_cols);
		rope_run(&s, 0, IG_F32, &q, 0, N_ROWS);
		guarded_check(&q);
		after = world_after(&s);
		take_pages(&s, &after, &kv);
		rope_run(&s, 1, IG_F32, &q_ref, 0, N_ROWS);
		take_pages(&s, &s.w, &kv_ref);
		assert_close(&q, &q_ref, 1e-6, i, "q");
		/* a half may round to its neighbour, a scale of Q8_0 too */
		if (s.p.flags & IG_ROPE_KV_Q_ONLY)
			assert_untouched(&kv);
		else
			assert_close(&kv, &kv_ref, cases[i].dtype == IG_F32 ? 1e-6 : 1e-3, i,
				     "k and v");

		/* row by row, each from the pages that the one before left: the same bits */
		for (int32_t r = N_ROWS - 1; r >= 0; r--) {
			rope_run(&s, 0, IG_F32, &other, r, 1);
			for (uint32_t j = 0; j < s.w.n_slabs; j++)
				memcpy(s.w.slabs[j], s.after[j], s.w.slab_bytes);
		}
		assert_memory_equal(q.bytes, other.bytes, q.n_bytes);
		take_pages(&s, &s.w, &kv_other);
		assert_memory_equal(kv.bytes, kv_other.bytes, kv.n_bytes);
		for (size_t j = 0; j < sizeof types / sizeof types[0]; j++) {
			rope_run(&s, 0, types[j], &other, 0, N_ROWS);
			for (int32_t r = 0; r < N_ROWS; r++)
				for (int64_t c = 0; c < q_cols; c++)
					if (guarded_row(&other, r)[c] !=
					    ig_gpu_case_round(types[j], guarded_row(&q, r)[c]))
						fail_msg("case %zu, type %u: row %d, column %lld: "
							 "%a of %a",
							 i, types[j], r, (long long)c,
							 (double)guarded_row(&other, r)[c],
							 (double)guarded_row(&q, r)[c]);
		}
		guarded_destroy(&q_ref);
		guarded_destroy(&kv_ref);
		guarded_destroy(&q);
		guarded_destroy(&kv);
		guarded_destroy(&other);
		guarded_destroy(&kv_other);
		rope_destroy(&s);
	}
}

/* v goes through as it is, rounded to the nearest half; what is too large becomes the
 * largest half, so that no weight of 0 meets an infinity. */
static void test_halves(void **state)
{
	static const float edges[] = {
		0,
		-0.0f,
		1,
		-1,
		0x1p-24f,
		0x1p-25f,
		0x1.8p-25f,
		0x1.000002p-25f,
		0x1.8p-24f,
		0x1p-14f,
		0x1.ffcp-15f,
		0x1.ffep-15f,
		0x1.fffp-15f,
		65504,
		65519.996f,
		65520,
		65536,
		-65520,
		1e30f,
		INFINITY,
		-INFINITY,
		0x1.002p0f,
		0x1.006p0f,
		0x1.0020002p0f,
		0x1.001ffep0f,
		3.14159274f,
	};
	const struct rope_case c = { 1, 2, 256, 0, IG_ROPE_PAIRS, IG_F16, 0, 0 };
	struct rope_setup s;
	struct guarded q;
	struct world after;

	world_seed(5);
	rope_create(&s, &c);
	guarded_create(&q, N_ROWS, 256);
	for (int32_t r = 0; r < N_ROWS; r++)
		for (uint32_t i = 0; i < 512; i++)
			guarded_row(&s.x, r)[768 + i] =
				r == 0 && i < sizeof edges / sizeof edges[0] ?
					edges[i] :
					ldexpf(world_uniform(), (int)(world_random() % 44) - 27);
	rope_run(&s, 0, IG_F32, &q, 0, N_ROWS);
	after = world_after(&s);
	for (int32_t r = 0; r < N_ROWS; r++)
		for (uint32_t i = 0; i < 512; i++) {
			float x = guarded_row(&s.x, r)[768 + i];
			float y = ig_gpu_case_round(IG_F16, x), z;

			z = world_element(&after, (uint32_t)rows[r].seq, rows[r].pos, 1, i / 256, 1,
					  i % 256);
			if (memcmp(&y, &z, sizeof y) != 0)
				fail_msg("%a became %a, expected %a", (double)x, (double)z,
					 (double)y);
		}
	guarded_destroy(&q);
	rope_destroy(&s);
}

/* A token whose v has a NaN: its v is zeros, its k NaN, so that it reaches nobody who does
 * not see it.  An infinity becomes the largest number. */
static void test_not_finite(void **state)
{
	static const uint32_t dtypes[] = { IG_F16, IG_F32 };

	for (int i = 0; i < 2; i++) {
		const struct rope_case c = { 4, 2, 64, 32, IG_ROPE_HALVES, dtypes[i], 1, 1 };
		struct rope_setup s;
		struct guarded q, before, after;
		struct world w;
		float *v;

		world_seed(6);
		rope_create(&s, &c);
		guarded_create(&q, N_ROWS, 256);
		guarded_create(&before, N_ROWS, 256);
		guarded_create(&after, N_ROWS, 256);
		rope_run(&s, 0, IG_F32, &q, 0, N_ROWS);
		w = world_after(&s);
		take_pages(&s, &w, &before);
		v = guarded_row(&s.x, 2) + (4 + 2 + 1) * 64; /* v of KV head 1 */
		v[33] = -NAN;
		v[34] = INFINITY;
		v[35] = -1;
		rope_run(&s, 0, IG_F32, &q, 0, N_ROWS);
		w = world_after(&s);
		take_pages(&s, &w, &after);
		for (int32_t r = 0; r < N_ROWS; r++)
			for (int j = 0; j < 256; j++) {
				float x = guarded_row(&after, r)[j];
				float y = guarded_row(&before, r)[j];

				if (r == 2 && j / 64 == 2) /* k */
					assert_true(isnan(x));
				else if (r == 2 && j == 192 + 33)
					assert_true(x == 0);
				else if (r == 2 && j == 192 + 34)
					assert_true(x == (i ? 3.40282347e+38f : 65504));
				else if (r == 2 && j == 192 + 35)
					assert_true(x == -1);
				else
					assert_memory_equal(&x, &y, sizeof x);
			}
		guarded_destroy(&q);
		guarded_destroy(&before);
		guarded_destroy(&after);
		rope_destroy(&s);
	}
}

/* Head h of K or V of row r in `w`: what the definition makes of its values in a cache of float32,
 * where those beyond 65468 are that, so that no code is infinite as a half. */
static void assert_rounded(const struct world *plain, const struct world *w, int32_t r, uint32_t h,
			   int v)
{
	const uint32_t seq = (uint32_t)rows[r].seq, n = w->layout.head_dim;
	const int32_t pos = rows[r].pos;
	float x[256];
	int8_t code[IG_KV_GROUP];
	uint16_t scale = 0;

	for (uint32_t d = 0; d < n; d++)
		x[d] = world_element(plain, seq, pos, 1, h, v, d);
	for (uint32_t d = 0; d < n; d++) {
		if (world_dtype(w, v) != IG_Q8_0) {
			const float y = ig_gpu_case_round(IG_F16, x[d]);
			const float z = world_element(w, seq, pos, 1, h, v, d);

			assert_true(isnan(x[d]) ? isnan(z) : z == y);
			continue;
		}
		for (uint32_t i = d; d % IG_KV_GROUP == 0 && i < d + IG_KV_GROUP; i++)
			x[i] = x[i] > 65468 ? 65468 : x[i] < -65468 ? -65468 : x[i];
		if (d % IG_KV_GROUP == 0)
			scale = quantize_group(code, x + d);
		if (*world_scale(w, seq, pos, 1, h, v, d) != scale ||
		    *world_code(w, seq, pos, 1, h, v, d) != code[d % IG_KV_GROUP])
			fail_msg("row %d, %s, head %u, %u: %a became %d times half %#x, "
				 "expected %d times %#x",
				 r, v ? "v" : "k", h, d, (double)x[d],
				 *world_code(w, seq, pos, 1, h, v, d),
				 *world_scale(w, seq, pos, 1, h, v, d), code[d % IG_KV_GROUP],
				 scale);
	}
}

/* Values of every size, and those at which something happens. */
static void put_sizes(const struct rope_setup *s)
{
	static const float edges[] = { NAN,    0x1p-149f, -0.0f,     1e38f,    -INFINITY,
				       65468,  0x1p-18f,  0x1p-17f,  65504,    1e-30f,
				       -65500, 8e6f,	  0x1p-100f, 65467.9f, INFINITY };
	const int64_t first = (int64_t)s->p.n_heads * s->p.head_dim;

	for (int32_t r = 0; r < N_ROWS; r++)
		for (int64_t i = first; i < s->x.t.n_cols; i++) {
			const int64_t group = i / 32 + 11 * r;

			guarded_row(&s->x, r)[i] =
				i % 32 == 5 && group % 3 == 0 ?
					edges[group / 3 % (int64_t)(sizeof edges / sizeof *edges)] :
					ldexpf(world_uniform(), (int)(group % 44) - 27);
		}
}

/* Codes and scales of Q8_0 are bit for bit those that the definition in cache_row.h gives for what a
 * cache of float32 has. */
static void test_codes(void **state)
{
	static const uint32_t types[] = { IG_Q8_0, KEYS_VALUES(IG_Q8_0, IG_F16),
					  KEYS_VALUES(IG_F16, IG_Q8_0) };
	static const struct rope_case shapes[] = {
		{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F32, 0, 1 },
		{ 4, 4, 32, 16, IG_ROPE_HALVES, IG_F32, 1, 1 },
		{ 6, 2, 96, 40, IG_ROPE_HALVES, IG_F32, 1, 1 },
		{ 8, 1, 128, 64, IG_ROPE_PAIRS, IG_F32, 2, 1 },
		{ 2, 1, 256, 0, IG_ROPE_PAIRS, IG_F32, 0, 0 },
		{ 4, 4, 128, 0, IG_ROPE_PAIRS, IG_F32, 0, 0 },
	};

	for (size_t i = 0; i < 3 * sizeof shapes / sizeof shapes[0]; i++) {
		struct rope_case c = shapes[i / 3];
		struct rope_setup plain, s;
		struct world floats, codes;
		struct guarded q;

		world_seed(i + 31);
		rope_create(&plain, &c);
		if (!c.table)
			put_sizes(&plain);
		c.dtype = types[i % 3];
		rope_create(&s, &c);
		memcpy(s.x.bytes, plain.x.bytes, s.x.n_bytes);
		memcpy(s.table.bytes, plain.table.bytes, s.table.n_bytes);
		memcpy(s.norm.bytes, plain.norm.bytes, s.norm.n_bytes);
		guarded_create(&q, N_ROWS, (int64_t)c.n_heads * c.head_dim);
		rope_run(&plain, 0, IG_F32, &q, 0, N_ROWS);
		rope_run(&s, 0, IG_F32, &q, 0, N_ROWS);
		floats = world_after(&plain);
		codes = world_after(&s);
		for (int32_t r = 0; r < N_ROWS; r++)
			for (uint32_t h = 0; h < 2 * c.n_kv_heads; h++)
				assert_rounded(&floats, &codes, r, h / 2, h % 2);
		guarded_destroy(&q);
		rope_destroy(&plain);
		rope_destroy(&s);
	}
}

/* ---- copies ---------------------------------------------------------------------------- */

extern const struct ig_shader ig_shader_copy;

static int check_nothing(struct ig_op_shape *s, struct ig_error *err) { return 0; }

static int lower_copies(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct copy_args args = { .n_threads = 3 * 64 };
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_copy,
		.kernel = "kv_copy",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = 64,
		.when_live = IG_LIVE_COPIES,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, 3 },
			  { IG_LIVE_COPIES, 1, 1, 2 },
			  { IG_LIVE_ONE, 1, 1, 1 } },
	};

	return h->dispatch(t, &d);
}

/* Copies of many sizes between two slabs; the grid is twice as large as it must be. */
static void test_copy(void **state)
{
	static const struct ig_gpu_op gpu = { .struct_size = sizeof gpu, .lower = lower_copies };
	static const struct ig_op op = {
		.struct_size = sizeof op, .name = "copies", .check = check_nothing, .gpu = &gpu
	};
	enum { SLAB = 65536 };
	static const struct ig_gpu_case_copy copies[] = {
		{ 1, 0, 0, 32, 16 },
		{ 1, 0, 64, 48, 4096 },
		{ 0, 1, 0, 60000 / 16 * 16, 16 },
		{ 1, 0, 8192, 16384, 12352 },
		{ 0, 0, 32768, 1024, 3072 },
		{ 1, 1, 40000, 30000, 0 },
	};
	const struct ig_step step = { .struct_size = sizeof step, .n_seqs = 0 };
	unsigned char *before[2], *after[2], *expected[2];
	struct ig_step with = step;
	const struct ig_op_launch launch = { .struct_size = sizeof launch, .step = &with };
	struct ig_gpu_case g = { .op = &op,
				 .launch = &launch,
				 .n_slabs = 2,
				 .slab_bytes = SLAB,
				 .slabs_after = (void *const *)after,
				 .copies = copies,
				 .n_copies = sizeof copies / sizeof copies[0] };
	struct ig_error err = { 0 };

	for (int i = 0; i < 2; i++) {
		before[i] = malloc(SLAB);
		after[i] = malloc(SLAB);
		expected[i] = malloc(SLAB);
		assert_true(before[i] && after[i] && expected[i]);
		for (int b = 0; b < SLAB; b++)
			before[i][b] = (unsigned char)world_random();
		memcpy(expected[i], before[i], SLAB);
	}
	with.slab_bases = (void *const *)before;
	for (size_t i = 0; i < g.n_copies; i++)
		memcpy(expected[copies[i].dst_slab] + copies[i].dst_offset,
		       before[copies[i].src_slab] + copies[i].src_offset, copies[i].n_bytes);
	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
	for (int i = 0; i < 2; i++) {
		assert_memory_equal(after[i], expected[i], SLAB);
		free(before[i]);
		free(after[i]);
		free(expected[i]);
	}
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
		cmocka_unit_test(test_table),  cmocka_unit_test(test_rope_kv),
		cmocka_unit_test(test_halves), cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_codes),  cmocka_unit_test(test_copy),
	};

	return cmocka_run_group_tests(tests, open_lab, close_lab);
}
