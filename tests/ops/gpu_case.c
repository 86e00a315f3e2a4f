/*
 * gpu_case.c: see gpu_case.h.
 *
 * Every buffer of the tape gets memory of its own here (a driver lets scratch share
 * one piece), so that a kernel that strays is seen at once.
 */
#include "tests/ops/gpu_case.h"

#include "base/dtype.h"
#include "ops/float.h"
#include "runtime/gpu/gpu_private.h"
#include "tests/ops/gpu_case_private.h"

#include <errno.h>
#include <ingot/gpu_lower.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_gpu_device_class ig_gpu_soft;

#define TIMEOUT_MS 120000u

/* ---- the device ------------------------------------------------------------------ */

int ig_gpu_lab_open(const char *name, struct ig_gpu_lab **out, struct ig_error *err)
{
	struct ig_driver_options o = { .isa = "auto", .activations = "auto", .strict = 1 };
	const struct ig_gpu_device_class *class = NULL;
	struct ig_gpu_lab *lab;
	int rc;

	*out = NULL;
	if (!name)
		name = getenv("INGOT_TEST_GPU");
#ifndef IG_NO_SOFT
	if (!name || !strcmp(name, "soft") || !strcmp(name, "soft-tensor"))
		class = &ig_gpu_soft;
	if (name && !strcmp(name, "soft-tensor"))
		o.tensor_units = "always";
#endif
#ifdef IG_HAVE_CUDA
	if (name && !strcmp(name, "cuda"))
		class = &ig_gpu_cuda;
#endif
	if (!class)
		return ig_fail(err, -ENOTSUP, "this program has no device '%s'",
			       name ? name : "soft");
	lab = calloc(1, sizeof *lab);
	if (!lab)
		return ig_fail(err, -ENOMEM, "no memory");
	lab->class = class;
	rc = class->open(&o, &lab->device, err);
	if (rc) {
		free(lab);
		return rc;
	}
	*out = lab;
	return 0;
}

void ig_gpu_lab_close(struct ig_gpu_lab *lab)
{
	if (!lab)
		return;
	lab->class->close(lab->device);
	free(lab);
}

const struct ig_gpu_facts *ig_gpu_lab_facts(const struct ig_gpu_lab *lab)
{
	return lab->class->facts(lab->device);
}

/* ---- element types ----------------------------------------------------------------- */

static uint16_t f16_from_f32(float f)
{
	uint32_t u = ig_bits_from_f32(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;

	if (mag > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (mag >= 0x477ff000) /* would round to 65536 */
		return (uint16_t)(sign | 0x7bff);
	if (mag < 0x38800000) /* below 2^-14: a multiple of 2^-24 */
		return (uint16_t)(sign | (uint32_t)nearbyintf(fabsf(f) * 0x1p24f));
	mag -= 0x38000000;
	return (uint16_t)(sign | ((mag + 0xfff + (mag >> 13 & 1)) >> 13));
}

float ig_gpu_case_round(uint32_t dtype, float x)
{
	if (dtype == IG_F16)
		return ig_f32_from_f16(f16_from_f32(x));
	if (dtype == IG_BF16)
		return ig_f32_from_bf16(ig_bf16_from_f32(x));
	return x;
}

static void store(uint32_t dtype, void *dst, float x)
{
	uint16_t h = dtype == IG_F16 ? f16_from_f32(x) : ig_bf16_from_f32(x);

	if (dtype == IG_F32)
		memcpy(dst, &x, sizeof x);
	else
		memcpy(dst, &h, sizeof h);
}

static float load(uint32_t dtype, const void *src)
{
	uint16_t h;
	float f;

	if (dtype == IG_F32) {
		memcpy(&f, src, sizeof f);
		return f;
	}
	memcpy(&h, src, sizeof h);
	return dtype == IG_F16 ? ig_f32_from_f16(h) : ig_f32_from_bf16(h);
}

static uint64_t dtype_bytes(uint32_t dtype) { return dtype == IG_F32 ? 4 : 2; }

/* ---- lowering ------------------------------------------------------------------------ */

static uint32_t at_least_one(uint32_t asked, int32_t used)
{
	return asked ? asked : used > 1 ? (uint32_t)used : 1;
}

/* The call without operands' places, as in_dtype sees it. */
static void begin_launch(const struct ig_gpu_lab *lab, const struct ig_gpu_case *c,
			 struct ig_gpu_launch *g)
{
	const struct ig_op_launch *launch = c->launch;
	const struct ig_step *s = launch->step;
	int32_t context = 1;

	for (int32_t i = 0; s->seq_lens && i < s->n_seqs; i++)
		context = s->seq_lens[i] > context ? s->seq_lens[i] : context;
	*g = (struct ig_gpu_launch){
		.struct_size = sizeof *g,
		.n_in = launch->n_in,
		.n_weights = launch->n_weights,
		.n_out = launch->n_out,
		.params = launch->params,
		.facts = lab->class->facts(lab->device),
		.max_rows = at_least_one(c->max_rows, s->n_rows),
		.max_seqs = at_least_one(c->max_seqs, s->n_seqs),
		.max_logit_rows = at_least_one(c->max_logit_rows, s->n_logit_rows),
		.max_context = at_least_one(c->max_context, context),
		.k_dtype = s->n_groups ? s->kv[0].layout->k_dtype : IG_F16,
		.v_dtype = s->n_groups ? s->kv[0].layout->v_dtype : IG_F16,
		.f32 = c->f32,
		.max_partials = c->max_partials,
	};
	for (uint32_t i = 0; i < launch->n_in; i++)
		g->in[i] = (struct ig_gpu_tensor){ .ref.buffer = launch->in[i].data ? 0 : -1,
						   .n_cols = launch->in[i].n_cols,
						   .row_class = c->in_class };
	for (uint32_t i = 0; i < launch->n_weights; i++) {
		const struct ig_tensor *w = &launch->weight[i];
		g->weight[i] = (struct ig_gpu_tensor){ .ref.buffer = w->data ? 0 : -1,
						       .n_rows = w->n_rows,
						       .n_cols = w->n_cols,
						       .row_stride = (uint64_t)w->row_stride,
						       .dtype = w->dtype };
	}
	g->also = (struct ig_gpu_tensor){ .ref.buffer = -1 };
	const struct ig_gpu_op *gpu = c->op->gpu;
	for (uint32_t i = 0; c->tiles && gpu && gpu->tiles && i < launch->n_weights; i++) {
		struct ig_gpu_tensor *w = &g->weight[i];
		const int64_t k = ig_gpu_tile_k(w->dtype);

		if (w->ref.buffer < 0 || !gpu->tiles(g, i))
			continue;
		w->layout = IG_GPU_TILES;
		w->row_stride =
			(uint64_t)((w->n_cols + k - 1) / k) * ig_dtype_row_bytes(w->dtype, k);
	}
}

uint32_t ig_gpu_case_in_dtype(struct ig_gpu_lab *lab, const struct ig_gpu_case *c, uint32_t i)
{
	struct ig_gpu_launch g;

	begin_launch(lab, c, &g);
	return c->op->gpu && c->op->gpu->in_dtype ? c->op->gpu->in_dtype(&g, i) : IG_F32;
}

/* Row classes of the outputs, from the op's own check. */
static int check_shapes(const struct ig_gpu_case *c, struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_op_launch *launch = c->launch;

	*s = (struct ig_op_shape){ .struct_size = sizeof *s,
				   .n_in = launch->n_in,
				   .n_weights = launch->n_weights,
				   .n_out = launch->n_out,
				   .params = launch->params };
	for (uint32_t i = 0; i < launch->n_in; i++)
		s->in[i] = (struct ig_shape){ .n_cols = launch->in[i].n_cols,
					      .dtype = launch->in[i].dtype,
					      .row_class = c->in_class };
	for (uint32_t i = 0; i < launch->n_weights; i++)
		if (launch->weight[i].data)
			s->weight[i] = (struct ig_shape){ .n_rows = launch->weight[i].n_rows,
							  .n_cols = launch->weight[i].n_cols,
							  .dtype = launch->weight[i].dtype };
	return c->op->check(s, err);
}

static uint32_t rows_of(const struct ig_gpu_case *c, uint32_t row_class)
{
	const struct ig_step *s = c->launch->step;

	return (uint32_t)(row_class == IG_ROWS_TOKENS ? s->n_rows :
			  row_class == IG_ROWS_LOGITS ? s->n_logit_rows :
							s->n_guesses);
}

static int make_value(struct run *r, uint32_t dtype, int64_t n_cols, uint32_t row_class,
		      struct ig_gpu_tensor *out, struct ig_error *err)
{
	int rc = ig_gpu_tape_value(
		r->tape, dtype, n_cols, row_class,
		row_class == IG_ROWS_TOKENS ? r->launch.max_rows : r->launch.max_logit_rows, out);

	return rc ? ig_fail(err, rc, "no memory for a value") : 0;
}

/* in[0] becomes a value that is never written, and its norm's input what the case has. */
static int make_norm(struct run *r, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const struct ig_gpu_op *gpu = c->op->gpu;
	const int64_t n = c->launch->in[0].n_cols;
	int rc;

	r->norm.eps = c->norm_eps;
	r->norm.max_rows = gpu->norm_rows ? gpu->norm_rows(&r->launch) : 0;
	if ((uint32_t)c->launch->step->n_rows > r->norm.max_rows)
		return ig_fail(err, -EINVAL, "%s: computes norms of %u rows", c->op->name,
			       r->norm.max_rows);
	rc = make_value(r, IG_F32, n, c->in_class, &r->norm.x, err);
	rc = rc ? rc : ig_gpu_tape_weight(r->tape, (uint64_t)n * 4, &r->norm.w.ref);
	r->norm.w.n_cols = n;
	r->norm.w.dtype = IG_F32;
	r->launch.norm = &r->norm;
	return rc;
}

static int lower(struct run *r, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const struct ig_op_launch *launch = c->launch;
	const struct ig_gpu_op *gpu = c->op->gpu;
	struct ig_op_shape shape;
	uint32_t wanted[IG_MAX_IN];
	int rc;

	if (!gpu)
		return ig_fail(err, -ENOTSUP, "%s: no GPU runs it", c->op->name);
	rc = check_shapes(c, &shape, err);
	if (rc)
		return rc;
	begin_launch(r->lab, c, &r->launch);
	for (uint32_t i = 0; i < launch->n_in; i++)
		wanted[i] = gpu->in_dtype ? gpu->in_dtype(&r->launch, i) : IG_F32;
	for (uint32_t i = 0; i < launch->n_in; i++) {
		if (!launch->in[i].data)
			continue;
		rc = make_value(r, wanted[i], launch->in[i].n_cols, c->in_class, &r->launch.in[i],
				err);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < launch->n_weights; i++) {
		const struct ig_tensor *w = &launch->weight[i];

		if (!w->data)
			continue;
		rc = ig_gpu_tape_weight(r->tape, ig_gpu_weight_bytes(&r->launch.weight[i]),
					&r->launch.weight[i].ref);
		if (rc)
			return ig_fail(err, rc, "no memory for a weight");
	}
	for (uint32_t i = 0; i < launch->n_out; i++) {
		if (i == 0 && c->op->flags & IG_OP_IN_PLACE) {
			r->launch.out[0] = r->launch.in[1];
			continue;
		}
		rc = make_value(r, i == 0 && c->out_dtype ? c->out_dtype : IG_F32,
				launch->out[i].n_cols, shape.out[i].row_class, &r->launch.out[i],
				err);
		if (rc)
			return rc;
	}
	if (c->norm && (rc = make_norm(r, err)))
		return rc;
	if (c->also && (rc = make_value(r, c->also_dtype, launch->out[0].n_cols,
					shape.out[0].row_class, &r->launch.also, err)))
		return rc;
	rc = gpu->lower(&r->launch, &ig_gpu_tape_host, r->tape, err);
	if (rc)
		return rc;
	return ig_gpu_tape_close(r->tape, err);
}

/* ---- memory -------------------------------------------------------------------------- */

static int upload(struct run *r, const void *image, uint64_t n_bytes, uint32_t memory,
		  struct ig_gpu_buffer **out, struct ig_error *err)
{
	const struct ig_gpu_device_class *class = r->lab->class;
	int rc = class->alloc(r->lab->device, n_bytes, memory, out, err);

	return rc ? rc : class->write(r->lab->device, *out, 0, image, n_bytes, err);
}

/* The rows of a float matrix as the device has them. */
static void fill_value(struct piece *p, const struct ig_gpu_tensor *to,
		       const struct ig_tensor *from, uint32_t n_rows)
{
	uint64_t size = dtype_bytes(to->dtype);

	for (uint32_t row = 0; row < n_rows; row++) {
		uint8_t *dst = p->image + GUARD + to->ref.offset + row * to->row_stride;
		const float *src = (const float *)(const void *)((const char *)from->data +
								 row * from->row_stride);

		for (int64_t i = 0; i < from->n_cols; i++)
			store(to->dtype, dst + (uint64_t)i * size, src[i]);
	}
}

/* A weight as the device repacks it, which must write all of it and nothing else. */
static int fill_tiles(struct run *r, struct piece *p, const struct ig_tensor *w,
		      struct ig_error *err)
{
	const struct ig_gpu_device_class *class = r->lab->class;
	const uint64_t n = p->n_bytes + 2 * GUARD;
	struct ig_gpu_buffer *from = NULL, *to = NULL;
	uint8_t *more = malloc(n);
	int rc = more ? 0 : ig_fail(err, -ENOMEM, "no memory");

	rc = rc ? rc :
		  upload(r, w->data, (uint64_t)w->row_stride * (uint64_t)w->n_rows,
			 IG_GPU_MEMORY_PRIVATE, &from, err);
	/* From two different beginnings the tiles are the same. */
	for (int pass = 0; pass < 2 && !rc; pass++) {
		uint8_t *image = pass ? more : p->image;

		memset(image + GUARD, pass ? GUARD_BYTE : UNSET_BYTE, p->n_bytes);
		memset(image, GUARD_BYTE, GUARD);
		memset(image + GUARD + p->n_bytes, GUARD_BYTE, GUARD);
		rc = upload(r, image, n, IG_GPU_MEMORY_PRIVATE, &to, err);
		rc = rc ? rc :
			  ig_gpu_repack(r->lab->device, w->dtype, w->n_rows, w->n_cols,
					(struct ig_gpu_place){ from, 0 },
					(struct ig_gpu_place){ to, GUARD }, err);
		rc = rc ? rc : class->read(r->lab->device, to, 0, image, n, err);
		class->free(r->lab->device, to);
		to = NULL;
	}
	for (uint64_t i = 0; i < GUARD && !rc; i++)
		if (p->image[i] != GUARD_BYTE || p->image[n - 1 - i] != GUARD_BYTE)
			rc = ig_fail(err, -EFAULT, "repack: a byte beside the tiles was written");
	if (!rc && memcmp(p->image, more, n))
		rc = ig_fail(err, -EFAULT, "repack: a byte of the tiles was not written");
	class->free(r->lab->device, from);
	free(more);
	return rc;
}

/* The i-th result: the last one is the first one's second type, if there is that. */
static const struct ig_gpu_tensor *result(const struct run *r, uint32_t i)
{
	return i < r->launch.n_out ? &r->launch.out[i] : &r->launch.also;
}

/* What buffer b holds before the run, and what of it may be written. */
static int fill_piece(struct run *r, uint32_t b, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const struct ig_gpu_tape_buffer *t = &r->tape->buffers[b];
	const struct ig_op_launch *launch = c->launch;
	struct piece *p = &r->pieces[b];

	memset(p->image, GUARD_BYTE, p->n_bytes + 2 * GUARD);
	if (c->norm && r->norm.x.ref.buffer == (int32_t)b) {
		fill_value(p, &r->norm.x, &launch->in[0], rows_of(c, c->in_class));
		return 0;
	}
	if (c->norm && r->norm.w.ref.buffer == (int32_t)b) {
		memcpy(p->image + GUARD, c->norm, p->n_bytes);
		return 0;
	}
	for (uint32_t i = c->norm ? 1 : 0; i < launch->n_in; i++)
		if (r->launch.in[i].ref.buffer == (int32_t)b) {
			const struct ig_gpu_tensor *in = &r->launch.in[i];
			fill_value(p, in, &launch->in[i], rows_of(c, c->in_class));
			if (i == 1 && c->op->flags & IG_OP_IN_PLACE) {
				p->n_rows = rows_of(c, c->in_class);
				p->row_bytes = (uint64_t)in->n_cols * dtype_bytes(in->dtype);
				p->stride = in->row_stride;
			}
			return 0;
		}
	for (uint32_t i = 0; i < launch->n_weights; i++)
		if (r->launch.weight[i].ref.buffer == (int32_t)b) {
			if (r->launch.weight[i].layout == IG_GPU_TILES)
				return fill_tiles(r, p, &launch->weight[i], err);
			memcpy(p->image + GUARD, launch->weight[i].data, p->n_bytes);
			return 0;
		}
	for (uint32_t i = 0; i <= launch->n_out; i++) {
		const struct ig_gpu_tensor *out = result(r, i);

		if (out->ref.buffer != (int32_t)b)
			continue;
		p->n_rows = rows_of(c, out->row_class);
		p->row_bytes = (uint64_t)out->n_cols * dtype_bytes(out->dtype);
		p->stride = out->row_stride;
		for (uint32_t row = 0; row < p->n_rows; row++)
			memset(p->image + GUARD + row * p->stride, UNSET_BYTE, p->row_bytes);
		return 0;
	}
	if (t->kind == IG_GPU_BUFFER_CONSTANT) {
		memcpy(p->image + GUARD, r->tape->constants + t->offset, t->n_bytes);
		return 0;
	}
	p->n_rows = UINT32_MAX;
	memset(p->image + GUARD, UNSET_BYTE, p->n_bytes);
	if (t->kind == IG_GPU_BUFFER_IDS && launch->step->prev_ids)
		memcpy(p->image + GUARD + (1 - SLOT) * ig_gpu_tape_slot_ids(r->tape) * 4,
		       launch->step->prev_ids, (uint64_t)r->launch.max_logit_rows * 4);
	if (t->kind == IG_GPU_BUFFER_IDS && launch->step->next_ids)
		memcpy(p->image + GUARD + SLOT * ig_gpu_tape_slot_ids(r->tape) * 4,
		       launch->step->sampled_ids, (uint64_t)launch->step->n_logit_rows * 4);
	return 0;
}

/* Rows of as many values as the result's have. */
static int make_outside(struct run *r, struct ig_error *err)
{
	const struct ig_op_launch *launch = r->c->launch;
	const struct ig_step *s = launch->step;
	const uint64_t row = (uint64_t)launch->out[0].n_cols * sizeof(float);

	if (!s->outside)
		return 0;
	r->outside_bytes = (uint64_t)s->n_rows * row + 2 * GUARD;
	r->outside_image = malloc(r->outside_bytes);
	if (!r->outside_image)
		return ig_fail(err, -ENOMEM, "no memory");
	memset(r->outside_image, GUARD_BYTE, r->outside_bytes);
	for (int32_t i = 0; i < s->n_rows; i++)
		if (s->outside[i])
			memcpy(r->outside_image + GUARD + (uint64_t)(s->n_rows - 1 - i) * row,
			       s->outside[i], row);
	return upload(r, r->outside_image, r->outside_bytes, IG_GPU_MEMORY_SLAB, &r->outside, err);
}

static int collect_outside(struct run *r, struct ig_error *err)
{
	uint8_t *now = malloc(r->outside_bytes);
	int rc;

	if (!now)
		return ig_fail(err, -ENOMEM, "no memory");
	rc = r->lab->class->read(r->lab->device, r->outside, 0, now, r->outside_bytes, err);
	if (!rc && memcmp(now, r->outside_image, r->outside_bytes))
		rc = ig_fail(err, -EFAULT, "%s: the rows from outside were written",
			     r->c->op->name);
	free(now);
	return rc;
}

static int make_memory(struct run *r, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const uint32_t n = r->tape->n_buffers;

	r->pieces = calloc(n ? n : 1, sizeof *r->pieces);
	r->places = calloc(n ? n : 1, sizeof *r->places);
	r->slabs = calloc(c->n_slabs ? c->n_slabs : 1, sizeof(struct ig_gpu_buffer *));
	if (!r->pieces || !r->places || !r->slabs)
		return ig_fail(err, -ENOMEM, "no memory");
	for (uint32_t b = 0; b < n; b++) {
		const struct ig_gpu_tape_buffer *t = &r->tape->buffers[b];
		struct piece *p = &r->pieces[b];
		int rc;

		if (t->kind == IG_GPU_BUFFER_KV)
			continue;
		p->n_bytes = t->n_bytes;
		p->image = malloc(p->n_bytes + 2 * GUARD);
		if (!p->image)
			return ig_fail(err, -ENOMEM, "no memory");
		rc = fill_piece(r, b, err);
		if (rc)
			return rc;
		rc = upload(r, p->image, p->n_bytes + 2 * GUARD, IG_GPU_MEMORY_PRIVATE, &p->buffer,
			    err);
		if (rc)
			return rc;
		r->places[b] = (struct ig_gpu_place){ p->buffer, GUARD };
	}
	int made = make_outside(r, err);
	if (made)
		return made;
	for (uint32_t i = 0; i < c->n_slabs; i++) {
		uint8_t *image = malloc(c->slab_bytes + 2 * GUARD);
		int rc;

		if (!image)
			return ig_fail(err, -ENOMEM, "no memory");
		memset(image, GUARD_BYTE, c->slab_bytes + 2 * GUARD);
		memcpy(image + GUARD, c->launch->step->slab_bases[i], c->slab_bytes);
		rc = upload(r, image, c->slab_bytes + 2 * GUARD, IG_GPU_MEMORY_SLAB, &r->slabs[i],
			    err);
		free(image);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- reading back ---------------------------------------------------------------------- */

static const char *name_of(const struct run *r, uint32_t b, char *buf, size_t n)
{
	static const char *const kinds[] = { "weights", "scratch", "constants",
					     "ids",	"logits",  "cache" };

	for (uint32_t i = 0; i < r->launch.n_in; i++)
		if (r->launch.in[i].ref.buffer == (int32_t)b)
			snprintf(buf, n, "in[%u]", i);
	for (uint32_t i = 0; i < r->launch.n_weights; i++)
		if (r->launch.weight[i].ref.buffer == (int32_t)b)
			snprintf(buf, n, "weight[%u]", i);
	for (uint32_t i = 0; i < r->launch.n_out; i++)
		if (r->launch.out[i].ref.buffer == (int32_t)b)
			snprintf(buf, n, "out[%u]", i);
	if (!buf[0])
		snprintf(buf, n, "buffer %u (%s)", b, kinds[r->tape->buffers[b].kind]);
	return buf;
}

/* Whether byte `at` of the piece was the op's to write. */
static bool is_free(const struct piece *p, uint64_t at)
{
	if (at < GUARD || at >= GUARD + p->n_bytes || !p->n_rows)
		return false;
	if (p->n_rows == UINT32_MAX)
		return true;
	return (at - GUARD) / p->stride < p->n_rows && (at - GUARD) % p->stride < p->row_bytes;
}

/* The outputs as floats, and a look at all that must be as it was. */
static int collect_piece(struct run *r, uint32_t b, struct ig_error *err)
{
	const struct ig_op_launch *launch = r->c->launch;
	struct piece *p = &r->pieces[b];
	const uint64_t n = p->n_bytes + 2 * GUARD;
	uint8_t *now = malloc(n);
	int rc;

	if (!now)
		return ig_fail(err, -ENOMEM, "no memory");
	rc = r->lab->class->read(r->lab->device, p->buffer, 0, now, n, err);
	for (uint64_t at = 0; !rc && at < n; at++) {
		char buf[48] = "";

		if (now[at] == p->image[at] || is_free(p, at))
			continue;
		rc = ig_fail(err, -EFAULT, "%s: byte %lld of %s (%llu bytes) was written",
			     r->c->op->name, (long long)at - GUARD, name_of(r, b, buf, sizeof buf),
			     (unsigned long long)p->n_bytes);
	}
	for (uint32_t i = 0; !rc && i <= launch->n_out; i++) {
		const struct ig_gpu_tensor *t = result(r, i);

		if (t->ref.buffer != (int32_t)b)
			continue;
		for (uint32_t row = 0; row < p->n_rows; row++) {
			float *dst = i == launch->n_out ?
					     r->c->also + (int64_t)row * t->n_cols :
					     (float *)(void *)((char *)launch->out[i].data +
							       row * launch->out[i].row_stride);
			const uint8_t *src = now + GUARD + row * p->stride;

			for (int64_t j = 0; j < t->n_cols; j++)
				dst[j] = load(t->dtype, src + (uint64_t)j * dtype_bytes(t->dtype));
		}
	}
	free(now);
	return rc;
}

static int collect_slab(struct run *r, uint32_t i, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const uint64_t n = c->slab_bytes + 2 * GUARD;
	uint8_t *now = malloc(n);
	int rc;

	if (!now)
		return ig_fail(err, -ENOMEM, "no memory");
	rc = r->lab->class->read(r->lab->device, r->slabs[i], 0, now, n, err);
	for (uint64_t at = 0; !rc && at < GUARD; at++)
		if (now[at] != GUARD_BYTE || now[n - 1 - at] != GUARD_BYTE)
			rc = ig_fail(err, -EFAULT, "%s: a byte beside slab %u was written",
				     c->op->name, i);
	if (!rc && c->slabs_after)
		memcpy(c->slabs_after[i], now + GUARD, c->slab_bytes);
	else if (!rc && memcmp(now + GUARD, c->launch->step->slab_bases[i], c->slab_bytes))
		rc = ig_fail(err, -EFAULT, "%s: slab %u was written", c->op->name, i);
	free(now);
	return rc;
}

static int execute(struct run *r, struct ig_error *err)
{
	const struct ig_gpu_device_class *class = r->lab->class;
	const struct ig_step *s = r->c->launch->step;
	struct ig_gpu_submission sub = { .slot = SLOT, .step_bytes = r->step_bytes };
	const size_t most = r->tape->max_logit_rows;
	const int32_t *ids = NULL;
	const float *logits = NULL;
	int rc;

	memcpy(sub.live, r->live, sizeof sub.live);
	rc = class->program_create(r->lab->device, r->tape, r->places, r->step_bytes, &r->program,
				   err);
	if (rc)
		return rc;
	memcpy(class->staging(r->program, SLOT), r->step, r->step_bytes);
	rc = class->submit(r->program, &sub, err);
	if (!rc)
		rc = class->wait(r->program, SLOT, TIMEOUT_MS, &ids, &logits, err);
	if (rc)
		return rc;
	if (s->sampled_ids && r->tape->ids >= 0)
		memcpy(s->sampled_ids, ids, (size_t)s->n_logit_rows * sizeof *ids);
	if (s->logits && r->tape->logits >= 0)
		memcpy(s->logits, logits,
		       (size_t)s->n_logit_rows * (size_t)r->tape->n_vocab * sizeof *logits);
	if (s->guessed_ids && r->tape->ids >= 0)
		memcpy(s->guessed_ids, ids + most, (size_t)s->n_guesses * sizeof *ids);
	if (s->guess_logits && r->tape->logits >= 0)
		memcpy(s->guess_logits, logits + most * (size_t)r->tape->n_vocab,
		       (size_t)s->n_guesses * (size_t)r->tape->n_vocab * sizeof *logits);
	return 0;
}

int ig_gpu_case_run(struct ig_gpu_lab *lab, const struct ig_gpu_case *c, struct ig_error *err)
{
	struct run r = { .lab = lab, .c = c };
	int32_t logit_rows = c->launch->step->n_logit_rows;
	int rc = ig_gpu_tape_create(ig_gpu_lab_facts(lab),
				    at_least_one(c->max_logit_rows, logit_rows), &r.tape);

	if (rc)
		return ig_fail(err, rc, "no memory for a tape");
	r.tape->first_head_node = c->launch->step->n_guesses > 0;
	rc = lower(&r, err);
	rc = rc ? rc : make_memory(&r, err);
	rc = rc ? rc : ig_gpu_case_pack(&r, err);
	rc = rc ? rc : execute(&r, err);
	for (uint32_t b = 0; !rc && b < r.tape->n_buffers; b++)
		if (r.pieces[b].buffer)
			rc = collect_piece(&r, b, err);
	for (uint32_t i = 0; !rc && i < c->n_slabs; i++)
		rc = collect_slab(&r, i, err);
	if (!rc && r.outside)
		rc = collect_outside(&r, err);
	if (r.program)
		lab->class->program_destroy(r.program);
	for (uint32_t b = 0; r.pieces && b < r.tape->n_buffers; b++) {
		lab->class->free(lab->device, r.pieces[b].buffer);
		free(r.pieces[b].image);
	}
	for (uint32_t i = 0; r.slabs && i < c->n_slabs; i++)
		lab->class->free(lab->device, r.slabs[i]);
	lab->class->free(lab->device, r.outside);
	free(r.outside_image);
	free(r.slabs);
	free(r.pieces);
	free(r.places);
	free(r.step);
	ig_gpu_tape_destroy(r.tape);
	return rc;
}

/* ---- the reference ---------------------------------------------------------------------- */

int ig_gpu_case_reference(struct ig_gpu_lab *lab, const struct ig_gpu_case *c, struct ig_error *err)
{
	struct ig_op_launch launch = *c->launch;
	float *copies[IG_MAX_IN] = { NULL };
	int rc = 0;

	for (uint32_t i = 0; i < launch.n_in; i++) {
		struct ig_tensor *t = &launch.in[i];
		uint32_t dtype = ig_gpu_case_in_dtype(lab, c, i);

		if (!t->data)
			continue;
		copies[i] = malloc((size_t)(t->n_rows * t->n_cols + 1) * sizeof(float));
		if (!copies[i]) {
			rc = ig_fail(err, -ENOMEM, "no memory");
			goto out;
		}
		for (int64_t row = 0; row < t->n_rows; row++) {
			const float *src = (const float *)(const void *)((const char *)t->data +
									 row * t->row_stride);
			for (int64_t j = 0; j < t->n_cols; j++)
				copies[i][row * t->n_cols + j] = ig_gpu_case_round(dtype, src[j]);
		}
		t->data = copies[i];
		t->row_stride = t->n_cols * (int64_t)sizeof(float);
	}
	c->op->reference(&launch);
out:
	for (uint32_t i = 0; i < IG_MAX_IN; i++)
		free(copies[i]);
	return rc;
}
