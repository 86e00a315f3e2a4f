/* cases.c: see cases.h. */
#include "tests/ops/cases.h"

#include "base/dtype.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"
#include "ops/float.h"
#include "ops/ops.h"
#include "runtime/cpu/isa.h"

#include <stdlib.h>

#define PRODUCT(op, dtype, n, k, rows, ...) { op, dtype, n, k, rows, __VA_ARGS__ }

/* Odd sizes: outputs that do not fill a tile, inner lengths of one block and of
 * many, rows on both sides of the groups that kernels take at once. */
#define SHAPES(op, dtype, ...)                                                                     \
	PRODUCT(op, dtype, 16, 32, 1, __VA_ARGS__), PRODUCT(op, dtype, 1, 32, 2, __VA_ARGS__),     \
		PRODUCT(op, dtype, 40, 96, 3, __VA_ARGS__),                                        \
		PRODUCT(op, dtype, 33, 576, 7, __VA_ARGS__),                                       \
		PRODUCT(op, dtype, 48, 1536, 8, __VA_ARGS__),                                      \
		PRODUCT(op, dtype, 17, 64, 9, __VA_ARGS__),                                        \
		PRODUCT(op, dtype, 64, 160, 70, __VA_ARGS__),                                      \
		PRODUCT(op, dtype, 31, 224, 5, __VA_ARGS__)

/* The same for formats with blocks of 256 values. */
#define SHAPES_256(op, dtype, ...)                                                                 \
	PRODUCT(op, dtype, 16, 256, 1, __VA_ARGS__), PRODUCT(op, dtype, 1, 256, 2, __VA_ARGS__),   \
		PRODUCT(op, dtype, 40, 512, 3, __VA_ARGS__),                                       \
		PRODUCT(op, dtype, 33, 768, 7, __VA_ARGS__),                                       \
		PRODUCT(op, dtype, 48, 1536, 8, __VA_ARGS__),                                      \
		PRODUCT(op, dtype, 17, 256, 9, __VA_ARGS__),                                       \
		PRODUCT(op, dtype, 64, 512, 70, __VA_ARGS__),                                      \
		PRODUCT(op, dtype, 31, 1024, 5, __VA_ARGS__)

#define FORMATS_32(X)                                                                              \
	X(IG_Q8_0) X(IG_Q4_0) X(IG_Q4_1) X(IG_Q5_0) X(IG_Q5_1) X(IG_IQ4_NL) X(IG_MXFP4) X(IG_Q8_M)
#define FORMATS(X) X(IG_F32) X(IG_F16) X(IG_BF16) FORMATS_32(X)
#define FORMATS_256(X) X(IG_Q2_K) X(IG_Q3_K) X(IG_Q4_K) X(IG_Q5_K) X(IG_Q6_K) X(IG_IQ4_XS)

/* Activations that only linear has. */
#define LINEAR_ACTS(t)                                                                             \
	PRODUCT("linear", t, 40, 96, 3, .bias = true, .act = IG_ACT_GELU_ERF),                     \
		PRODUCT("linear", t, 33, 576, 7, .act = IG_ACT_TANH),

#define LINEAR(t)                                                                                  \
	SHAPES("linear", t, 0), SHAPES("linear", t, .residual = true),                             \
		SHAPES("linear", t, .bias = true, .act = IG_ACT_GELU, .residual = true),           \
		SHAPES("linear", t, .act = IG_ACT_SILU), LINEAR_ACTS(t)
#define GLU(t)                                                                                     \
	SHAPES("glu", t, .act = IG_ACT_SILU), SHAPES("glu", t, .act = IG_ACT_GELU),                \
		SHAPES("glu", t, .act = IG_ACT_NONE),
#define LOGITS(t) SHAPES("logits", t, 0),

#define LINEAR_256(t)                                                                              \
	SHAPES_256("linear", t, 0),                                                                \
		SHAPES_256("linear", t, .bias = true, .act = IG_ACT_GELU, .residual = true),
#define GLU_256(t) SHAPES_256("glu", t, .act = IG_ACT_SILU),
#define LOGITS_256(t) SHAPES_256("logits", t, 0),
#define EMBED_256(t) { "embed", t, 50, 768, 9 },

/* Inner lengths that are no multiple of 32, or odd, where the format allows them. */
#define ODD(t)                                                                                     \
	PRODUCT("linear", t, 20, 37, 6, 0), PRODUCT("linear", t, 5, 1, 1, 0),                      \
		PRODUCT("glu", t, 35, 99, 4, .act = IG_ACT_SILU),

/* Sums as large as they can be; few of them, since their errors add up. */
#define EXTREME_32(t) PRODUCT("linear", t, 24, 64, 5, .extreme = true),
#define EXTREME_256(t) PRODUCT("linear", t, 24, 256, 5, .extreme = true),

#define NORM(k, rows, ...) { "norm", IG_F32, k, k, rows, __VA_ARGS__ }
#define NORMS(...)                                                                                 \
	NORM(576, 1, __VA_ARGS__), NORM(64, 5, __VA_ARGS__), NORM(17, 3, __VA_ARGS__),             \
		NORM(5120, 2, __VA_ARGS__), NORM(1, 1, __VA_ARGS__)

#define BENCH(op, t, rows) { op, t, 1536, 576, rows, .act = IG_ACT_SILU, .bench = true },
/* What both kinds of formats can be measured on. */
#define BENCHES_256(t)                                                                             \
	{ "linear", t, 2048, 2048, 1, .bench = true },                                             \
		{ "linear", t, 2048, 2048, 4, .bench = true },                                     \
		{ "linear", t, 2048, 2048, 512, .bench = true },
#define BENCHES(t)                                                                                 \
	BENCH("glu", t, 1)                                                                         \
	BENCH("glu", t, 16)                                                                        \
	BENCH("glu", t, 512)                                                                       \
	{ "linear", t, 576, 1536, 1, .residual = true, .bench = true },                            \
		{ "linear", t, 576, 1536, 512, .residual = true, .bench = true },                  \
		{ "logits", t, 49152, 576, 1, .bench = true },

const struct ig_case ig_cases[] = {
	FORMATS(LINEAR) FORMATS(GLU) FORMATS(LOGITS) ODD(IG_F32) ODD(IG_F16) ODD(IG_BF16)
		NORMS(.kind = IG_NORM_RMS),
	NORMS(.kind = IG_NORM_LAYER, .bias = true),
	NORMS(.kind = IG_NORM_LAYER),
	NORMS(.kind = IG_NORM_RMS, .residual = true),
	NORMS(.kind = IG_NORM_RMS, .gather = true),
	NORMS(.residual = true, .gather = true),
	{ "embed", IG_F32, 50, 40, 9 },
	{ "embed", IG_F16, 50, 40, 9 },
	{ "embed", IG_BF16, 51, 41, 9 },
	{ "embed", IG_Q8_0, 50, 64, 9 },
	{ "embed", IG_Q4_0, 50, 96, 9 },
	{ "embed", IG_Q4_1, 33, 64, 9 },
	{ "embed", IG_Q5_0, 50, 96, 9 },
	{ "embed", IG_Q5_1, 33, 64, 9 },
	{ "embed", IG_IQ4_NL, 50, 96, 9 },
	{ "embed", IG_MXFP4, 33, 64, 9 },
	{ "embed", IG_Q8_M, 33, 96, 9 },
	FORMATS_256(LINEAR_256) FORMATS_256(GLU_256) FORMATS_256(LOGITS_256) FORMATS_256(EMBED_256)
		FORMATS(BENCHES) FORMATS(BENCHES_256) FORMATS_256(BENCHES_256)
			FORMATS_32(EXTREME_32) FORMATS_256(EXTREME_256)
};
const size_t ig_n_cases = sizeof ig_cases / sizeof *ig_cases;

bool ig_case_is_large(const struct ig_case *c) { return (int64_t)c->rows * c->n * c->k > 500000; }

bool ig_case_repeats(const struct ig_case *c)
{
	const bool all_or_nothing = c->bias == c->residual && c->bias == (c->act != IG_ACT_NONE);

	return ig_case_is_large(c) &&
	       (!strcmp(c->op, "glu") ? c->act != IG_ACT_SILU : !all_or_nothing);
}

#define GUARD 64
#define GUARD_BYTE 0xa5

struct ig_case_data {
	const struct ig_case *c;
	const struct ig_op *op;
	union {
		struct ig_linear_params linear;
		struct ig_glu_params glu;
		struct ig_norm_params norm;
		struct ig_logits_params logits;
		struct ig_embed_params embed;
	} params;
	uint32_t n_matrices, n_weights, n_in;
	void *rows_form[3]; /* weights as files have them */
	void *tiled[3];
	uint64_t row_bytes;		 /* of a weight's row */
	float *x, *residual, *vector[2]; /* inputs; 1-D weights */
	int32_t *ids, *gathered;
	int32_t out_rows;
	int64_t out_cols;
	uint32_t n_out;
	/* made once a kernel */
	uint8_t *packed;
	uint8_t *out[2]; /* guarded results */
	int64_t stride;
};

uint64_t ig_random_u64(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * 0x2545f4914f6cdd1du;
}

float ig_random_normalish(uint64_t *s)
{
	float sum = 0.0f;
	for (int i = 0; i < 4; i++)
		sum += (float)(ig_random_u64(s) >> 40) * 0x1p-24f - 0.5f;
	return sum;
}

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void *make(size_t bytes)
{
	void *p = must(aligned_alloc(64, (bytes + 127) & ~(size_t)63));
	memset(p, GUARD_BYTE, (bytes + 127) & ~(size_t)63);
	return p;
}

static float *random_floats(int64_t n, uint64_t *s, float scale, float offset)
{
	float *p = make((size_t)n * sizeof *p);
	for (int64_t i = 0; i < n; i++)
		p[i] = ig_random_normalish(s) * scale + offset;
	return p;
}

static uint16_t half(float f)
{
	/* Cut off, not rounded, and zero for what is too small for a normal half. */
	uint32_t u = ig_bits_from_f32(f);
	if (fabsf(f) < 0x1p-14f)
		return 0;
	return (uint16_t)((u >> 16 & 0x8000) | (((u & 0x7fffffff) - 0x38000000) >> 13));
}

/* Where the halves of a block are, and of what size values come out near 0.25. */
static const struct blocks {
	size_t n, at[2];
	float scale, min; /* the minimum is so many times the scale */
} q8_m = { 2, { 0, 2 }, 0x1p-9f, -127 }, blocks[] = {
	[IG_Q4_0] = { 1, { 0 }, 0x1p-5f, 0 },	   [IG_Q4_1] = { 2, { 0, 2 }, 0x1p-5f, -7 },
	[IG_Q5_0] = { 1, { 0 }, 0x1p-6f, 0 },	   [IG_Q5_1] = { 2, { 0, 2 }, 0x1p-6f, -15 },
	[IG_Q8_0] = { 1, { 0 }, 0x1p-9f, 0 },	   [IG_Q2_K] = { 2, { 80, 82 }, 0x1p-7f, 1.5f },
	[IG_Q3_K] = { 1, { 108 }, 0x1p-8f, 0 },	   [IG_Q4_K] = { 2, { 0, 2 }, 0x1p-10f, 7 },
	[IG_Q5_K] = { 2, { 0, 2 }, 0x1p-11f, 15 }, [IG_Q6_K] = { 1, { 208 }, 0x1p-13f, 0 },
	[IG_IQ4_NL] = { 1, { 0 }, 0x1p-9f, 0 },	   [IG_IQ4_XS] = { 1, { 0 }, 0x1p-13f, 0 },
	[IG_MXFP4] = { 0, { 0 }, 0, 0 },
};

void ig_case_weight_row(uint32_t dtype, uint8_t *dst, int64_t k, uint64_t *s)
{
	const uint64_t bytes = ig_dtype_row_bytes(dtype, k);

	if (dtype == IG_F32 || dtype == IG_F16 || dtype == IG_BF16) {
		for (int64_t i = 0; i < k; i++) {
			float v = ig_random_normalish(s) * 0.25f + 0.01f;
			uint16_t h = dtype == IG_F16 ? half(v) : ig_bf16_from_f32(v);
			if (dtype == IG_F32)
				memcpy(dst + i * 4, &v, 4);
			else
				memcpy(dst + i * 2, &h, 2);
		}
		return;
	}
	const struct blocks *f = dtype == IG_Q8_M ? &q8_m : &blocks[dtype];
	size_t block = ig_quant_type(dtype)->bytes;
	for (uint64_t at = 0; at < bytes; at += block) {
		for (size_t i = 0; i < block; i++)
			dst[at + i] = (uint8_t)(ig_random_u64(s) >> 33);
		for (size_t i = 0; i < f->n; i++) {
			float v = (1.0f + (float)(ig_random_u64(s) >> 56) / 256.0f) * f->scale;
			uint16_t h = half(i ? f->min * v : v);
			memcpy(dst + at + f->at[i], &h, 2);
		}
		if (dtype == IG_MXFP4) /* 2^-6 to 2^-3, and the two smallest */
			dst[at] =
				ig_random_u64(s) >> 60 ? (uint8_t)(121 + dst[at] % 4) : dst[at] % 2;
	}
}

/* Give a row of blocks codes that are all alike and, one row or the other, the largest or
 * smallest of its type: each byte is `fill`, but the halves and MXFP4's exponents stay. */
static void make_extreme(uint32_t dtype, uint8_t *row, int64_t k, uint8_t fill)
{
	const struct blocks *f = dtype == IG_Q8_M ? &q8_m : &blocks[dtype];
	const uint64_t bytes = ig_dtype_row_bytes(dtype, k);
	size_t block = ig_quant_type(dtype)->bytes;

	for (uint64_t at = 0; at < bytes; at += block) {
		for (size_t i = dtype == IG_MXFP4; i < block; i++) {
			bool is_half = false;
			for (size_t j = 0; j < f->n; j++)
				is_half |= i - f->at[j] < 2;
			if (!is_half)
				row[at + i] = fill;
		}
		if (dtype == IG_Q6_K) /* its scales: of 0 nothing would be left */
			memset(row + at + 192, 0x80, 16);
	}
}

struct ig_case_data *ig_case_open(const struct ig_case *c)
{
	static const uint8_t fills[] = { 0x00, 0xff, 0x80, 0x77 };
	struct ig_case_data *d = must(calloc(1, sizeof *d));
	uint64_t s =
		0x9e3779b97f4a7c15u ^ (uint64_t)(c->n * 131 + c->k * 7 + c->rows + c->dtype * 977);
	bool norm = !strcmp(c->op, "norm"), embed = !strcmp(c->op, "embed");

	d->c = c;
	for (size_t i = 0; ig_core_ops[i]; i++)
		if (!strcmp(ig_core_ops[i]->name, c->op))
			d->op = ig_core_ops[i];
	must((void *)d->op);
	if (norm)
		d->params.norm =
			(struct ig_norm_params){ sizeof d->params.norm, c->kind, 1e-5f, c->gather };
	else if (embed)
		d->params.embed = (struct ig_embed_params){ sizeof d->params.embed, 1.5f };
	else if (!strcmp(c->op, "glu"))
		d->params.glu = (struct ig_glu_params){ sizeof d->params.glu, c->act };
	else if (!strcmp(c->op, "logits"))
		d->params.logits = (struct ig_logits_params){ sizeof d->params.logits, 0 };
	else
		d->params.linear =
			(struct ig_linear_params){ sizeof d->params.linear, 1, c->act, c->bias };
	d->n_matrices = norm ? 0 : !strcmp(c->op, "glu") ? 2 : 1;
	d->n_weights = d->n_matrices + (norm ? 1 : 0) + (c->bias ? 1 : 0);
	d->n_out = norm && c->residual ? 2 : 1; /* the sum too */
	d->n_in = embed ? 0 : c->residual ? 2 : 1;
	d->out_cols = embed ? c->k : c->n;
	d->out_rows = c->gather ? (c->rows + 1) / 2 : c->rows;
	d->row_bytes = ig_dtype_row_bytes(c->dtype, c->k);
	for (uint32_t i = 0; i < d->n_matrices; i++) {
		d->rows_form[i] = make(d->row_bytes * (uint64_t)c->n);
		for (int64_t r = 0; r < c->n; r++) {
			uint8_t *row = (uint8_t *)d->rows_form[i] + d->row_bytes * (uint64_t)r;
			ig_case_weight_row(c->dtype, row, c->k, &s);
			if (c->extreme)
				make_extreme(c->dtype, row, c->k, fills[r % 4]);
		}
		d->tiled[i] = make(ig_tile16_tile_bytes(c->dtype, c->k) *
				   (uint64_t)ig_tile16_n_tiles(c->n));
		ig_tile16_pack(c->dtype, d->rows_form[i], c->n, c->k, d->tiled[i], 0,
			       ig_tile16_n_tiles(c->n));
	}
	d->vector[0] = random_floats(c->n, &s, 0.5f, 1.0f);
	d->vector[1] = random_floats(c->n, &s, 0.5f, 0.0f);
	d->x = random_floats(c->rows * c->k, &s, 1.0f, 0.1f);
	if (c->extreme) /* 127 or -127 of whatever scale */
		for (int64_t i = 0; i < c->rows * c->k; i++)
			d->x[i] = i / c->k % 2 ? -1.1f : 1.1f;
	else /* outliers, as in activations of real models */
		for (int64_t i = 17; i < (int64_t)c->rows * c->k; i += 53)
			d->x[i] *= 40.0f;
	d->residual = random_floats(c->rows * c->n, &s, 1.0f, 0.0f);
	d->ids = make((size_t)c->rows * sizeof *d->ids);
	d->gathered = make((size_t)c->rows * sizeof *d->gathered);
	for (int32_t r = 0; r < c->rows; r++) {
		d->ids[r] = (int32_t)(ig_random_u64(&s) % (uint64_t)c->n);
		d->gathered[r] = r * 2;
	}
	d->ids[0] = (int32_t)c->n - 1;
	d->stride = d->out_cols * (int64_t)sizeof(float) + GUARD;
	for (int i = 0; i < 2; i++)
		d->out[i] = make((size_t)(d->stride * c->rows + GUARD));
	d->packed = make(ig_layout_row_bytes(IG_LAYOUT_ROWS, c->k) * 2 * (uint64_t)c->rows);
	return d;
}

void ig_case_close(struct ig_case_data *d)
{
	for (int i = 0; i < 3; i++) {
		free(d->rows_form[i]);
		free(d->tiled[i]);
	}
	free(d->vector[0]);
	free(d->vector[1]);
	free(d->x);
	free(d->residual);
	free(d->ids);
	free(d->gathered);
	free(d->packed);
	free(d->out[0]);
	free(d->out[1]);
	free(d);
}

const struct ig_op *ig_case_op(const struct ig_case_data *d) { return d->op; }

int64_t ig_case_out_len(const struct ig_case_data *d)
{
	return d->n_out * d->out_rows * d->out_cols;
}

float ig_case_q8_value(const void *row, int64_t n, int64_t i)
{
	const int8_t *q = row;
	const float *d = (const float *)(q + n), *apart = d + 4 * (n / 32);
	const int32_t *next = (const int32_t *)(apart + n / 32);
	const int64_t b = i / 32;

	return next[b] == i % 32 ? apart[b] : d[b] * (float)q[i];
}

bool ig_case_fits(const struct ig_case *c, const struct ig_cpu_kernel *k)
{
	return ig_isa_includes(ig_isa_best(), k->isa) &&
	       (k->weight_dtype == IG_DTYPE_NONE || k->weight_dtype == c->dtype);
}

/* The operands of a call on rows first … first + n - 1 (of the result). */
static void fill(struct ig_case_data *d, struct ig_op_launch *launch, struct ig_step *step,
		 uint32_t layout, const void *x, int64_t x_stride, bool tiled, int32_t first,
		 int32_t n)
{
	const struct ig_case *c = d->c;
	int32_t in_first = c->gather ? 0 : first;

	*step = (struct ig_step){ .struct_size = sizeof *step,
				  .n_rows = c->rows,
				  .n_logit_rows = n,
				  .token_ids = d->ids + first,
				  .logit_rows = d->gathered + first };
	*launch = (struct ig_op_launch){ .struct_size = sizeof *launch,
					 .params = &d->params,
					 .step = step,
					 .n_in = d->n_in,
					 .n_weights = d->n_weights,
					 .n_out = d->n_out };
	if (d->n_in > 0)
		launch->in[0] = (struct ig_tensor){
			(char *)x + in_first * x_stride, n, c->k, x_stride, IG_F32, layout
		};
	if (d->n_in > 1)
		launch->in[1] = (struct ig_tensor){
			d->residual + in_first * c->n, n, c->n, c->n * 4, IG_F32, IG_LAYOUT_ROWS
		};
	for (uint32_t i = 0; i < d->n_matrices; i++)
		launch->weight[i] = (struct ig_tensor){ tiled ? d->tiled[i] : d->rows_form[i],
							c->n,
							c->k,
							tiled ? 0 : (int64_t)d->row_bytes,
							c->dtype,
							tiled ? IG_LAYOUT_TILE16 : IG_LAYOUT_ROWS };
	for (uint32_t i = d->n_matrices; i < d->n_weights; i++)
		launch->weight[i] = (struct ig_tensor){
			d->vector[i - d->n_matrices], 1, c->n, c->n * 4, IG_F32, IG_LAYOUT_ROWS
		};
	for (uint32_t i = 0; i < launch->n_out; i++)
		launch->out[i] = (struct ig_tensor){ d->out[i] + GUARD + first * d->stride,
						     n,
						     d->out_cols,
						     d->stride,
						     IG_F32,
						     IG_LAYOUT_ROWS };
}

void ig_case_call(struct ig_case_data *d, int32_t first, int32_t n, float *const out[IG_MAX_OUT],
		  struct ig_op_launch *launch, struct ig_step *step)
{
	const struct ig_case *c = d->c;

	fill(d, launch, step, IG_LAYOUT_ROWS, d->x, c->k * 4, false, first, n);
	if (!c->gather)
		step->n_rows = n;
	else
		launch->in[0].n_rows = launch->in[1].n_rows = c->rows;
	for (uint32_t i = 0; i < launch->n_out; i++) {
		launch->out[i].data = out[i];
		launch->out[i].row_stride = d->out_cols * (int64_t)sizeof(float);
	}
}

int32_t ig_case_out_rows(const struct ig_case_data *d) { return d->out_rows; }

int64_t ig_case_out_cols(const struct ig_case_data *d) { return d->out_cols; }

/* All rows of x in a form; the stride of the rows. */
static int64_t to_form(struct ig_case_data *d, uint32_t layout)
{
	int64_t stride = (int64_t)ig_layout_row_bytes(layout, d->c->k);
	struct ig_op_launch c = {
		.n_in = 1,
		.n_out = 1,
		.in = { { d->x, d->c->rows, d->c->k, d->c->k * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { d->packed, d->c->rows, d->c->k, stride, IG_F32, layout } },
	};
	if (layout == IG_LAYOUT_Q8)
		ig_pack_q8_generic(&c, 0, d->c->rows, NULL);
	else
		ig_pack_bf16_generic(&c, 0, d->c->rows, NULL);
	return stride;
}

/* Copy one result out and look at its guards: before, between and after the rows. */
static bool collect_one(const struct ig_case_data *d, const uint8_t *from, float *out)
{
	int64_t row = d->out_cols * (int64_t)sizeof(float);
	bool whole = true;

	for (int64_t i = 0; i < GUARD; i++)
		whole = whole && from[i] == GUARD_BYTE;
	for (int32_t r = 0; r < d->c->rows; r++) {
		const uint8_t *p = from + GUARD + r * d->stride;
		bool written = r < d->out_rows;
		if (written)
			memcpy(out + r * d->out_cols, p, (size_t)row);
		for (int64_t i = written ? row : 0; i < d->stride; i++)
			whole = whole && p[i] == GUARD_BYTE;
	}
	return whole;
}

static bool collect(const struct ig_case_data *d, float *out)
{
	bool whole = true;

	for (uint32_t i = 0; i < d->n_out; i++)
		whole = collect_one(d, d->out[i], out + i * d->out_rows * d->out_cols) && whole;
	return whole;
}

static void clear(struct ig_case_data *d)
{
	for (uint32_t i = 0; i < d->n_out; i++)
		memset(d->out[i], GUARD_BYTE, (size_t)(d->stride * d->c->rows + GUARD));
}

void ig_case_reference(struct ig_case_data *d, uint32_t layout, float *out)
{
	const struct ig_case *c = d->c;
	struct ig_op_launch launch;
	struct ig_step step;
	float *x = must(malloc((size_t)(c->rows * c->k) * sizeof *x));

	memcpy(x, d->x, (size_t)(c->rows * c->k) * sizeof *x);
	if (layout != IG_LAYOUT_ROWS && d->n_in) {
		int64_t stride = to_form(d, layout);
		for (int32_t r = 0; r < c->rows; r++) {
			const uint8_t *row = d->packed + r * stride;
			for (int64_t i = 0; i < c->k; i++)
				x[r * c->k + i] =
					layout == IG_LAYOUT_Q8 ?
						ig_case_q8_value(row, c->k, i) :
						ig_f32_from_bf16(((const uint16_t *)row)[i]);
		}
	}
	clear(d);
	fill(d, &launch, &step, IG_LAYOUT_ROWS, x, c->k * 4, false, 0, d->out_rows);
	d->op->reference(&launch);
	if (!collect(d, out))
		abort();
	free(x);
}

bool ig_case_kernel(struct ig_case_data *d, const struct ig_cpu_kernel *k, enum ig_case_cut cut,
		    float *out)
{
	struct ig_op_launch launch;
	struct ig_step step;
	const void *x = d->x;
	int64_t x_stride = d->c->k * 4;
	bool tiled = k->weight_layout == IG_LAYOUT_TILE16;

	if (k->in_layout != IG_LAYOUT_ROWS) {
		x_stride = to_form(d, k->in_layout);
		x = d->packed;
	}
	clear(d);
	for (int32_t r = 0; r < (cut == IG_CUT_ROWS ? d->out_rows : 1); r++) {
		fill(d, &launch, &step, k->in_layout, x, x_stride, tiled, r,
		     cut == IG_CUT_ROWS ? 1 : d->out_rows);
		int64_t n = k->n_units(&launch);
		if (cut == IG_CUT_UNITS)
			for (int64_t u = n - 1; u >= 0; u--)
				k->run(&launch, u, u + 1, NULL);
		else
			k->run(&launch, 0, n, NULL);
	}
	return collect(d, out);
}

void ig_case_time(struct ig_case_data *d, const struct ig_cpu_kernel *k, int n_times)
{
	struct ig_op_launch launch;
	struct ig_step step;
	int64_t stride = k->in_layout == IG_LAYOUT_ROWS ? d->c->k * 4 : to_form(d, k->in_layout);

	fill(d, &launch, &step, k->in_layout,
	     k->in_layout == IG_LAYOUT_ROWS ? (void *)d->x : d->packed, stride,
	     k->weight_layout == IG_LAYOUT_TILE16, 0, d->out_rows);
	for (int i = 0; i < n_times; i++)
		k->run(&launch, 0, k->n_units(&launch), NULL);
}

uint64_t ig_case_weight_bytes(const struct ig_case *c)
{
	uint64_t one = ig_dtype_row_bytes(c->dtype, c->k) * (uint64_t)c->n;
	return !strcmp(c->op, "glu") ? 2 * one : one;
}

uint64_t ig_case_macs(const struct ig_case *c)
{
	uint64_t one = (uint64_t)c->n * (uint64_t)c->k * (uint64_t)c->rows;
	return !strcmp(c->op, "glu") ? 2 * one : one;
}

const char *ig_case_name(const struct ig_case *c, const struct ig_cpu_kernel *k)
{
	static const char *const layouts[] = { "f32", "tile16", "q8", "bf16" };
	static char buf[160];

	snprintf(buf, sizeof buf, "%s %s [%lld, %lld] rows %d%s%s%s%s act %u, %s x %s", c->op,
		 ig_dtype_name(c->dtype), (long long)c->n, (long long)c->k, c->rows,
		 c->bias ? " bias" : "", c->residual ? " residual" : "", c->gather ? " gather" : "",
		 c->extreme ? " extreme" : "", c->act, ig_isa_name(k->isa), layouts[k->in_layout]);
	return buf;
}
