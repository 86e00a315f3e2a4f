/*
 * test_rope.c: the ops rope_table and rope_kv: tables against their formula, every
 * kernel against the reference, what lands in the pages and what does not.
 */
#include "attention_world.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t isas[] = { IG_ISA_GENERIC, IG_ISA_AVX2, IG_ISA_AVX512, IG_ISA_NEON };

/* ---- rope_table ------------------------------------------------------------------------ */

static void run_table(const struct ig_cpu_kernel *k, const struct ig_rope_table_params *p,
		      const float *factors, const int32_t *positions, int32_t first, int32_t n,
		      struct guarded *out)
{
	const struct ig_step step = {
		.struct_size = sizeof step, .n_rows = n, .n_seqs = 1, .positions = positions + first
	};
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .n_weights = factors ? 1 : 0,
				       .n_out = 1,
				       .params = p,
				       .out = { out->t },
				       .step = &step };

	launch.out[0].data = guarded_row(out, first);
	launch.weight[0] = (struct ig_tensor){ .data = (void *)(uintptr_t)factors,
					       .n_rows = 1,
					       .n_cols = p->n_pairs,
					       .dtype = IG_F32 };
	if (k)
		world_run(k, &launch, 1);
	else
		world_op("rope_table")->reference(&launch);
}

static void test_table(void **state)
{
	static const struct {
		uint32_t n_pairs;
		float base, scale;
		int factors;
		float first, last; /* of a ramp */
		float magnitude;
	} tables[] = {
		{ 32, 10000, 1, 0 },
		{ 32, 100000, 1, 0 },
		{ 64, 500000, 1, 1 },
		{ 4, 10000, 0.25f, 0 },
		{ 128, 10000, 1, 0 },
		{ 20, 10000, 1, 0 },
		{ 32, 10000, 0.25f, 0, 8, 19 },
		{ 32, 10000, 0.25f, 1, 0, 0.001f },
		{ 32, 150000, 0.03125f, 0, 8.093f, 17.398f, 1.3466f },
	};
	static const int32_t positions[] = { 0, 1, 2, 17, 255, 256, 8191, 131071 };
	const int32_t n = sizeof positions / sizeof positions[0];

	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
		const struct ig_rope_table_params p = { sizeof p,	    tables[i].n_pairs,
							tables[i].base,	    tables[i].scale,
							tables[i].first,    tables[i].last,
							tables[i].magnitude };
		const double by = p.magnitude != 0 ? (double)p.magnitude : 1;
		const float scale = p.ramp_last > 0 ? 1 : p.freq_scale;
		float factors[128];
		struct guarded out, alone;

		for (int j = 0; j < 128; j++)
			factors[j] = 1 + (float)j / 16;
		guarded_create(&out, n, 2 * p.n_pairs);
		guarded_create(&alone, n, 2 * p.n_pairs);
		for (int is_kernel = 0; is_kernel < 2; is_kernel++) {
			const struct ig_cpu_kernel *k =
				is_kernel ? world_kernel(world_op("rope_table"), IG_ISA_GENERIC) :
					    NULL;

			run_table(k, &p, tables[i].factors ? factors : NULL, positions, 0, n, &out);
			guarded_check(&out);
			for (int32_t r = 0; r < n; r++)
				for (uint32_t j = 0; j < p.n_pairs; j++) {
					/* the models' own code: float32 after every step */
					float e = (float)(2 * j) / (float)(2 * p.n_pairs);
					float inv =
						1.0f / (float)pow((double)p.freq_base, (double)e);
					float angle;

					/* YaRN: fast pairs as they are, slow ones slowed down */
					if (p.ramp_last > 0) {
						float t = fminf(
							fmaxf(((float)j - p.ramp_first) /
								      (p.ramp_last - p.ramp_first),
							      0),
							1);

						inv = inv * p.freq_scale * t + inv * (1 - t);
					}
					if (tables[i].factors)
						inv /= factors[j];
					angle = (float)positions[r] * scale * inv;
					assert_true(fabs(cos((double)angle) * by -
							 (double)guarded_row(&out, r)[j]) <
						    1.2e-7 * by);
					assert_true(
						fabs(sin((double)angle) * by -
						     (double)guarded_row(&out, r)[p.n_pairs + j]) <
						1.2e-7 * by);
				}
		}
		for (int32_t r = 0; r < n; r++)
			run_table(world_kernel(world_op("rope_table"), IG_ISA_GENERIC), &p,
				  tables[i].factors ? factors : NULL, positions, r, 1, &alone);
		assert_memory_equal(out.bytes, alone.bytes, out.n_bytes);
		guarded_destroy(&out);
		guarded_destroy(&alone);
	}
}

/* A pair has the angle of its axis: the bits are those of a table whose rows have that as their position. */
static void check_sections(const uint32_t sections[3], uint32_t interleaved, const char *axes)
{
	enum { PAIRS = 10, N = 3 };
	static const int32_t positions[N] = { 40, 41, 42 };
	static const int32_t turned[N][IG_ROPE_AXES] = { { 7, 7, 7 },
							 { 8, 500, 3 },
							 { 8, 3, 70000 } };
	struct ig_rope_table_params p = { sizeof p, PAIRS, 1e7f, 0.5f };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = N,
				.n_seqs = 1,
				.positions = positions,
				.rope_positions = turned[0] };
	struct guarded out, of_axis[IG_ROPE_AXES];
	struct ig_op_launch launch = {
		.struct_size = sizeof launch, .n_out = 1, .params = &p, .step = &step
	};

	guarded_create(&out, N, 2 * PAIRS);
	for (int axis = 0; axis < IG_ROPE_AXES; axis++)
		guarded_create(&of_axis[axis], N, 2 * PAIRS);
	for (int is_kernel = 0; is_kernel < 2; is_kernel++) {
		for (int axis = 0; axis < IG_ROPE_AXES; axis++) {
			int32_t alone[N];
			for (int r = 0; r < N; r++)
				alone[r] = turned[r][axis];
			run_table(is_kernel ? world_kernel(world_op("rope_table"), IG_ISA_GENERIC) :
					      NULL,
				  &p, NULL, alone, 0, N, &of_axis[axis]);
		}
		memcpy(p.sections, sections, sizeof p.sections);
		p.interleaved = interleaved;
		launch.out[0] = out.t;
		if (is_kernel)
			world_run(world_kernel(world_op("rope_table"), IG_ISA_GENERIC), &launch, 1);
		else
			world_op("rope_table")->reference(&launch);
		guarded_check(&out);
		for (int32_t r = 0; r < N; r++)
			for (int i = 0; i < 2 * PAIRS; i++) {
				const struct guarded *want = &of_axis[axes[i % PAIRS] - '0'];
				assert_memory_equal(&guarded_row(&out, r)[i],
						    &guarded_row(want, r)[i], sizeof(float));
			}
		memset(p.sections, 0, sizeof p.sections);
		p.interleaved = 0;
	}
	guarded_destroy(&out);
	for (int axis = 0; axis < IG_ROPE_AXES; axis++)
		guarded_destroy(&of_axis[axis]);
}

static void test_sections(void **state)
{
	check_sections((const uint32_t[]){ 0, 0, 0 }, 0, "0000000000");
	check_sections((const uint32_t[]){ 10, 0, 0 }, 0, "0000000000");
	check_sections((const uint32_t[]){ 4, 3, 3 }, 0, "0000111222");
	check_sections((const uint32_t[]){ 5, 3, 2 }, 1, "0120120100");
	check_sections((const uint32_t[]){ 4, 3, 3 }, 1, "0120120120");
}

static void expect_text(const struct ig_op *op, struct ig_op_shape *s, const char *text)
{
	struct ig_error err = { 0 };

	assert_int_equal(op->check(s, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_check_table(void **state)
{
	const struct ig_op *op = world_op("rope_table");
	struct ig_rope_table_params p = { sizeof p, 32, 10000, 1 };
	struct ig_op_shape s = { .struct_size = sizeof s, .n_out = 1, .params = &p };
	struct ig_error err;

	assert_int_equal(op->params_size, sizeof p);
	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 64);
	s.n_weights = 1;
	s.weight[0] = (struct ig_shape){ .n_rows = 1, .n_cols = 32, .dtype = IG_F32 };
	assert_int_equal(op->check(&s, &err), 0);
	s.weight[0].n_cols = 31;
	expect_text(op, &s, "factors are [1, 31]");
	s.weight[0] = (struct ig_shape){ .n_rows = 1, .n_cols = 32, .dtype = IG_F16 };
	expect_text(op, &s, "expected [1, 32] of F32");
	s.n_weights = 0;
	s.n_in = 1;
	expect_text(op, &s, "1 inputs");
	s.n_in = 0;
	p.n_pairs = 0;
	expect_text(op, &s, "n_pairs is 0");
	p.n_pairs = 289;
	expect_text(op, &s, "n_pairs is 289");
	p.n_pairs = 32;
	p.freq_base = 0.5f;
	expect_text(op, &s, "freq_base is 0.5");
	p.freq_base = NAN;
	expect_text(op, &s, "freq_base is");
	p.freq_base = 10000;
	p.freq_scale = 0;
	expect_text(op, &s, "freq_scale is 0");
	p.freq_scale = 1;
	p.magnitude = -1;
	expect_text(op, &s, "magnitude is -1");
	p.magnitude = 0;
	p.ramp_first = -1;
	expect_text(op, &s, "a ramp from pair -1");
	p.ramp_first = 3;
	p.ramp_last = 3;
	expect_text(op, &s, "a ramp from pair 3 to 3");
	p.ramp_last = INFINITY;
	expect_text(op, &s, "a ramp from pair 3 to inf");
	p.ramp_last = 4;
	assert_int_equal(op->check(&s, &err), 0);
	p.interleaved = 1;
	expect_text(op, &s, "sections of 0, 0 and 0 pairs, together not 32");
	p.sections[0] = 11;
	p.sections[1] = 11;
	p.sections[2] = 9;
	expect_text(op, &s, "sections of 11, 11 and 9 pairs, together not 32");
	p.sections[2] = 10;
	assert_int_equal(op->check(&s, &err), 0);
	p.interleaved = 2;
	expect_text(op, &s, "sections of");
}

/* ---- rope_kv ----------------------------------------------------------------------------- */

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
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_F32, 0, 1 },
	{ 4, 4, 32, 16, IG_ROPE_HALVES, IG_F16, 0, 1 },
	{ 4, 1, 40, 20, IG_ROPE_PAIRS, IG_F16, 0, 1 },
	{ 6, 2, 80, 40, IG_ROPE_HALVES, IG_F16, 1, 1 },
	{ 8, 1, 128, 64, IG_ROPE_HALVES, IG_F32, 1, 1 },
	{ 2, 1, 256, 128, IG_ROPE_PAIRS, IG_F16, 1, 1 },
	/* a part of the head rotates */
	{ 2, 2, 64, 16, IG_ROPE_PAIRS, IG_F16, 0, 1 },
	{ 2, 2, 64, 9, IG_ROPE_HALVES, IG_F32, 0, 1 },
	{ 2, 2, 72, 1, IG_ROPE_HALVES, IG_F16, 1, 1 },
	/* nothing rotates */
	{ 4, 2, 64, 0, IG_ROPE_PAIRS, IG_F16, 0, 0 },
	{ 4, 2, 8, 0, IG_ROPE_PAIRS, IG_F32, 1, 0 },
	/* one norm over all heads */
	{ 4, 4, 32, 16, IG_ROPE_HALVES, IG_F16, 2, 1 },
	{ 6, 1, 40, 20, IG_ROPE_PAIRS, IG_F32, 2, 1 },
	{ 3, 3, 24, 0, IG_ROPE_PAIRS, IG_F16, 2, 0 },
	/* Q8_0, and K and V in types of their own */
	{ 9, 3, 64, 32, IG_ROPE_PAIRS, IG_Q8_0, 0, 1 },
	{ 8, 1, 128, 64, IG_ROPE_HALVES, IG_Q8_0, 1, 1 },
	{ 2, 1, 96, 40, IG_ROPE_HALVES, IG_Q8_0, 2, 1 },
	{ 4, 2, 32, 16, IG_ROPE_PAIRS, KEYS_VALUES(IG_F16, IG_Q8_0), 0, 1 },
	{ 4, 2, 256, 0, IG_ROPE_PAIRS, KEYS_VALUES(IG_Q8_0, IG_F32), 0, 0 },
};

/* Rows of three sequences, some of one in a run, some alone. */
static const int32_t lens[] = { 40, 3, 17 };
static const struct {
	int32_t seq, pos;
} rows[] = {
	{ 0, 14 }, { 0, 15 }, { 0, 16 }, { 0, 17 }, { 2, 16 }, { 1, 0 }, { 0, 39 }, { 2, 0 },
};
#define N_ROWS ((int32_t)(sizeof rows / sizeof rows[0]))

struct rope_setup {
	struct world w;
	struct ig_rope_kv_params p;
	int32_t positions[N_ROWS], row_seq[N_ROWS];
	struct guarded x, table, norm;
	int64_t norm_cols[2]; /* of q's and k's */
	int has_norm, has_table;
};

static void rope_create(struct rope_setup *s, const struct rope_case *c)
{
	memset(s, 0, sizeof *s);
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
	s->has_norm = c->norm != 0;
	s->norm_cols[0] = (int64_t)c->head_dim * (c->norm == 2 ? c->n_heads : 1);
	s->norm_cols[1] = (int64_t)c->head_dim * (c->norm == 2 ? c->n_kv_heads : 1);
	s->has_table = (int)c->table;
	world_create(&s->w, c->dtype, c->n_kv_heads, c->head_dim, lens, 3);
	guarded_create(&s->x, N_ROWS,
		       c->n_heads * (int64_t)(c->head_dim + c->gap) +
			       (c->flags & IG_ROPE_KV_Q_ONLY ? 0 :
				c->flags & IG_ROPE_KV_NO_V   ? 1 :
							       2) *
				       (int64_t)(c->n_kv_heads * c->head_dim) +
			       c->rest);
	guarded_create(&s->table, N_ROWS, c->table ? 2 * (int64_t)c->n_pairs : 2);
	guarded_create(&s->norm, 2, s->norm_cols[0]);
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
	for (int64_t i = 0; i < 2 * s->norm_cols[0]; i++)
		guarded_row(&s->norm, i / s->norm_cols[0])[i % s->norm_cols[0]] =
			1 + world_uniform() / 2;
}

static void rope_destroy(struct rope_setup *s)
{
	world_destroy(&s->w);
	guarded_destroy(&s->x);
	guarded_destroy(&s->table);
	guarded_destroy(&s->norm);
}

static void rope_run(struct rope_setup *s, const struct ig_cpu_kernel *k, struct guarded *out,
		     int32_t first, int32_t n, int order)
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
				       .n_in = 2,
				       .n_weights = !s->has_norm		   ? 0 :
						    s->p.flags & IG_ROPE_KV_Q_ONLY ? 1 :
										     2,
				       .n_out = 1,
				       .params = &s->p,
				       .in = { s->x.t, s->table.t },
				       .out = { out->t },
				       .step = &step };

	launch.in[0].data = guarded_row(&s->x, first);
	launch.in[1].data = s->has_table ? guarded_row(&s->table, first) : NULL;
	launch.out[0].data = guarded_row(out, first);
	for (int i = 0; i < 2; i++) {
		launch.weight[i] = s->norm.t;
		launch.weight[i].data = guarded_row(&s->norm, i);
		launch.weight[i].n_rows = 1;
		launch.weight[i].n_cols = s->norm_cols[i];
	}
	if (k)
		world_run(k, &launch, order);
	else
		world_op("rope_kv")->reference(&launch);
}

/* What a test reads of the pages: k and v of every row, as floats. */
static void read_pages(const struct rope_setup *s, struct guarded *kv)
{
	const uint32_t dim = s->p.head_dim;

	for (int32_t r = 0; r < N_ROWS; r++)
		for (uint32_t i = 0; i < 2 * s->p.n_kv_heads; i++) {
			for (uint32_t d = 0; d < dim; d++)
				guarded_row(kv, r)[i * dim + d] =
					world_element(&s->w, (uint32_t)rows[r].seq, rows[r].pos, 1,
						      i / 2, i % 2, d);
		}
}

/* Fill every slot that the rows own with 0xff again. */
static void wipe_slots(struct rope_setup *s)
{
	for (int32_t r = 0; r < N_ROWS; r++)
		for (uint32_t i = 0; i < 2 * s->p.n_kv_heads; i++)
			world_wipe(&s->w, (uint32_t)rows[r].seq, rows[r].pos, 1, i / 2, i % 2);
}

/* A half by its definition: the nearest multiple of the unit in the last place, the
 * even one of two. */
static float nearest_half(float f)
{
	double a = fabs((double)f), unit;
	int e;

	if (isnan(f) || isinf(f))
		return f;
	frexp(a, &e);
	unit = ldexp(1, (e < -13 ? -13 : e) - 11);
	a = rint(a / unit) * unit;
	if (a >= 65536)
		a = INFINITY;
	return (float)(signbit(f) ? -a : a);
}

/* Q8_0 by its definition: the scale is the nearest half of the largest value / 127, a code the
 * nearest integer of value / scale.  A group with a NaN or a scale beyond the halves is NaN. */
static void assert_quantised(const struct rope_setup *s, int32_t r, int v, uint32_t isa)
{
	const uint32_t n = s->p.head_dim, heads = s->p.n_heads, kv_heads = s->p.n_kv_heads;
	const float *x = guarded_row(&s->x, r) + (heads + (v ? kv_heads : 0)) * (size_t)n;
	const uint32_t seq = (uint32_t)rows[r].seq;
	const int32_t pos = rows[r].pos;

	for (uint32_t i = 0; i < kv_heads * n; i++) {
		const uint32_t first = i / 32 * 32, h = i / n, d = i % n;
		const float scale = world_half(*world_scale(&s->w, seq, pos, 1, h, v, d));
		const int code = *world_code(&s->w, seq, pos, 1, h, v, d);
		float top = 0;

		for (uint32_t j = first; j < first + 32; j++)
			top = isnan(x[j]) || fabsf(x[j]) > top ? fabsf(x[j]) : top;
		for (uint32_t j = first; j < first + 32; j++)
			top = isnan(x[j]) ? NAN : top;
		top = nearest_half(top / 127);
		if (isnan(top) || isinf(top)) {
			assert_true(isnan(scale) && code == 0);
			continue;
		}
		if (scale != top || code > 127 || code < -127)
			fail_msg("%s: scale %a, expected %a; code %d", world_isa_name(isa),
				 (double)scale, (double)top, code);
		/* but for scales that are subnormal or 0, 127 of them reach every value */
		if (!(fabs(code * (double)scale - (double)x[i]) <= 0.50001 * (double)scale) &&
		    !(abs(code) == 127 && scale < 0x1p-14f) && !(code == 0 && scale == 0))
			fail_msg("%s: %a became %d times %a", world_isa_name(isa), (double)x[i],
				 code, (double)scale);
	}
}

/* K without norm and rotation, and V, go to the cache as they are; there are values of every size. */
static void test_quantised(void **state)
{
	static const float edges[] = { NAN,  0x1p-149f, -0.0f,	  1e38f,	  -INFINITY,
				       8e6f, 0x1p-18f,	0x1p-17f, 65504 * 127.0f, 1e-30f };
	const struct rope_case c = { 1, 2, 64, 0, IG_ROPE_PAIRS, IG_Q8_0, 0, 0 };
	struct rope_setup s;
	struct guarded q;

	world_seed(6);
	rope_create(&s, &c);
	guarded_create(&q, N_ROWS, 64);
	for (int round = 0; round < 100; round++) {
		for (int32_t r = 0; r < N_ROWS; r++)
			for (uint32_t i = 0; i < 256; i++) {
				const uint32_t group = i / 32 + 8 * (uint32_t)r;
				float size =
					ldexpf(1, (int)(group * 7 + (uint32_t)round) % 44 - 27);
				guarded_row(&s.x, r)[64 + i] =
					round == 0 && i % 32 == 5 ?
						edges[group % (sizeof edges / sizeof *edges)] :
						world_uniform() * size;
			}
		for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
			const struct ig_cpu_kernel *k = world_kernel(world_op("rope_kv"), isas[j]);

			if (!k)
				continue;
			rope_run(&s, k, &q, 0, N_ROWS, 0);
			for (int32_t r = 0; r < N_ROWS; r++)
				for (int v = 0; v < 2; v++)
					assert_quantised(&s, r, v, isas[j]);
		}
	}
	guarded_destroy(&q);
	rope_destroy(&s);
}

static void assert_close(const struct guarded *a, const struct guarded *b, double relative,
			 size_t i_case, uint32_t isa, const char *what)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t c = 0; c < a->t.n_cols; c++) {
			double x = (double)guarded_row(a, r)[c], y = (double)guarded_row(b, r)[c];

			if (!(fabs(x - y) <= relative * (fabs(y) + 1)))
				fail_msg("case %zu, %s: %s, row %lld, column %lld: %g, expected %g",
					 i_case, world_isa_name(isa), what, (long long)r,
					 (long long)c, x, y);
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
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct rope_setup s;
		struct guarded q_ref, kv_ref, q, kv, q_first, kv_first;
		int64_t q_cols, kv_cols;
		int n_isas = 0;

		world_seed(i + 11);
		rope_create(&s, &cases[i]);
		q_cols = (int64_t)s.p.n_heads * s.p.head_dim;
		kv_cols = 2 * (int64_t)s.p.n_kv_heads * s.p.head_dim;
		guarded_create(&q_ref, N_ROWS, q_cols);
		guarded_create(&kv_ref, N_ROWS, kv_cols);
		guarded_create(&q, N_ROWS, q_cols);
		guarded_create(&kv, N_ROWS, kv_cols);
		guarded_create(&q_first, N_ROWS, q_cols);
		guarded_create(&kv_first, N_ROWS, kv_cols);
		world_snapshot(&s.w);
		rope_run(&s, NULL, &q_ref, 0, N_ROWS, 0);
		guarded_check(&q_ref);
		read_pages(&s, &kv_ref);
		wipe_slots(&s);
		assert_int_equal(world_changed(&s.w), 0); /* nothing else was written */
		for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
			const struct ig_cpu_kernel *k = world_kernel(world_op("rope_kv"), isas[j]);

			if (!k)
				continue;
			rope_run(&s, k, &q, 0, N_ROWS, 0);
			guarded_check(&q);
			read_pages(&s, &kv);
			assert_close(&q, &q_ref, 1e-6, i, isas[j], "q");
			/* a half may round to its neighbour, a scale of Q8_0 too */
			if (s.p.flags & IG_ROPE_KV_Q_ONLY)
				assert_untouched(&kv);
			else
				assert_close(&kv, &kv_ref, cases[i].dtype == IG_F32 ? 1e-6 : 1e-3,
					     i, isas[j], "k and v");
			wipe_slots(&s);
			assert_int_equal(world_changed(&s.w), 0);
			/* row by row, last first: the same bits */
			for (int32_t r = N_ROWS - 1; r >= 0; r--)
				rope_run(&s, k, &q_first, r, 1, 1);
			assert_memory_equal(q.bytes, q_first.bytes, q.n_bytes);
			if (n_isas++)
				assert_memory_equal(kv.bytes, kv_first.bytes, kv.n_bytes);
			read_pages(&s, &kv_first);
			assert_memory_equal(kv.bytes, kv_first.bytes, kv.n_bytes);
			wipe_slots(&s);
		}
		assert_true(n_isas > 0);
		guarded_destroy(&q_ref);
		guarded_destroy(&kv_ref);
		guarded_destroy(&q);
		guarded_destroy(&kv);
		guarded_destroy(&q_first);
		guarded_destroy(&kv_first);
		rope_destroy(&s);
	}
}

/* v goes through as it is: every kernel rounds it to the nearest half. */
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
		1e-30f,
		0x1p-126f,
		0x1p-149f,
		NAN,
		3.14159274f,
	};
	const struct rope_case c = { 1, 2, 256, 0, IG_ROPE_PAIRS, IG_F16, 0, 0 };
	struct rope_setup s;
	struct guarded q;

	world_seed(5);
	rope_create(&s, &c);
	guarded_create(&q, N_ROWS, 256);
	for (int round = 0; round < 200; round++) {
		for (int32_t r = 0; r < N_ROWS; r++)
			for (uint32_t i = 0; i < 512; i++) {
				float f = ldexpf(world_uniform(), (int)(world_random() % 44) - 27);

				guarded_row(&s.x, r)[768 + i] =
					round == 0 && r == 0 && i < sizeof edges / sizeof edges[0] ?
						edges[i] :
						f;
			}
		for (size_t j = 0; j < sizeof isas / sizeof isas[0]; j++) {
			const struct ig_cpu_kernel *k = world_kernel(world_op("rope_kv"), isas[j]);

			if (!k)
				continue;
			rope_run(&s, k, &q, 0, N_ROWS, 0);
			for (int32_t r = 0; r < N_ROWS; r++)
				for (uint32_t i = 0; i < 512; i++) {
					float x = guarded_row(&s.x, r)[768 + i], y, z;

					y = nearest_half(x);
					z = world_element(&s.w, (uint32_t)rows[r].seq, rows[r].pos,
							  1, i / 256, 1, i % 256);
					if (isnan(y) ? !isnan(z) : memcmp(&y, &z, sizeof y) != 0)
						fail_msg("%s: %a became %a, expected %a",
							 world_isa_name(isas[j]), (double)x,
							 (double)z, (double)y);
				}
		}
	}
	guarded_destroy(&q);
	rope_destroy(&s);
}

static void test_check_rope_kv(void **state)
{
	const struct ig_op *op = world_op("rope_kv");
	const struct ig_rope_kv_params good = { sizeof good, 9, 3, 64, IG_ROPE_PAIRS, 32, 0, 0, 0 };
	struct ig_rope_kv_params p = good;
	const struct ig_shape norm = { .n_rows = 1, .n_cols = 64, .dtype = IG_F32 };
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 2,
				 .n_out = 1,
				 .params = &p,
				 .in = { { .n_cols = 960, .dtype = IG_F32 },
					 { .n_cols = 64, .dtype = IG_F32 } } };
	struct ig_error err;

	assert_int_equal(op->params_size, sizeof p);
	assert_int_equal(op->check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 576);
	s.n_weights = 2;
	s.weight[0] = s.weight[1] = norm;
	assert_int_equal(op->check(&s, &err), 0);
	s.weight[1].n_cols = 32;
	expect_text(op, &s, "k_norm is [1, 32]");
	s.weight[1].n_cols = 192; /* all three KV heads */
	assert_int_equal(op->check(&s, &err), 0);
	s.weight[0].n_cols = 576;
	assert_int_equal(op->check(&s, &err), 0);
	s.weight[1].n_cols = 576;
	expect_text(op, &s, "k_norm is [1, 576] of type 0, expected [1, 64] or [1, 192]");
	s.weight[0] = s.weight[1] = norm;
	p.norm_eps = -1;
	expect_text(op, &s, "norm_eps is -1");
	p.norm_eps = 0;
	p.q_scale_length = 15;
	expect_text(op, &s, "every 15 positions");
	p.q_scale_length = 4096;
	p.q_scale = NAN;
	expect_text(op, &s, "q is scaled by nan");
	p.q_scale = 0;
	p.q_scale_length = 0;
	p.norm_eps = -1;
	s.n_weights = 1;
	expect_text(op, &s, "1 weights");
	s.n_weights = 0;
	p = good;
	p.q_stride = 60;
	expect_text(op, &s, "heads of 64 columns of q are 60 apart");
	p.q_stride = 128;
	p.n_rest = 5;
	s.in[0].n_cols = 960 + 576 + 5;
	assert_int_equal(op->check(&s, &err), 0);
	s.n_weights = 2;
	s.weight[0].n_cols = 576; /* heads that lie apart are not normalised together */
	expect_text(op, &s, "q_norm is [1, 576]");
	s.weight[0].n_cols = 64;
	p.flags = IG_ROPE_KV_NO_V;
	s.in[0].n_cols -= 192;
	assert_int_equal(op->check(&s, &err), 0);
	p.flags = IG_ROPE_KV_Q_ONLY;
	s.in[0].n_cols -= 192;
	expect_text(op, &s, "2 weights");
	s.n_weights = 1;
	assert_int_equal(op->check(&s, &err), 0);
	p.flags = IG_ROPE_KV_Q_ONLY | IG_ROPE_KV_V_NORM;
	expect_text(op, &s, "flags 0x5");
	p.flags = 1u << 31;
	s.n_weights = 0;
	expect_text(op, &s, "flags 0x80000000");
	s.in[0].n_cols = 960;
	p = good;
	s.in[1].n_cols = 62;
	expect_text(op, &s, "the table has 62 columns");
	s.in[1].n_cols = 0; /* left out */
	assert_int_equal(op->check(&s, &err), 0);
	s.in[1].n_cols = 64;
	s.in[0].n_cols = 961;
	expect_text(op, &s, "961 columns");
	s.in[0].n_cols = 960;
	s.in[0].row_class = IG_ROWS_LOGITS;
	expect_text(op, &s, "one row a token");
	s.in[0].row_class = IG_ROWS_TOKENS;
	p.n_pairs = 33;
	expect_text(op, &s, "n_pairs is 33");
	p = good;
	p.n_pairs = 0x80000001u; /* twice it is 2 */
	expect_text(op, &s, "n_pairs is 2147483649");
	p = good;
	p.mode = 2;
	expect_text(op, &s, "mode 2");
	p = good;
	p.head_dim = 68;
	expect_text(op, &s, "head_dim is 68");
	p = good;
	p.n_kv_heads = 0;
	expect_text(op, &s, "0 KV heads");
	p = good;
	p.group = 4;
	expect_text(op, &s, "cache group 4");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_table),   cmocka_unit_test(test_table),
		cmocka_unit_test(test_check_rope_kv), cmocka_unit_test(test_rope_kv),
		cmocka_unit_test(test_quantised),     cmocka_unit_test(test_halves),
		cmocka_unit_test(test_sections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
