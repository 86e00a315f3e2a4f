/*
 * program.m: a tape prepared for a device, and its steps.  A command buffer can be used once, so
 * every step encodes the tape again; pipelines, buffers and offsets were resolved when the program
 * was created.  Dispatches between the tape's barriers run concurrently.  A step is split into
 * several command buffers if it might occupy the GPU too long; a fence orders all encoders, and
 * each command buffer increments an event when it has finished.
 *
 * A failed command buffer signals nothing, so a wait also checks their states.  The program's steps
 * after a failed one fail with it, because they read its results.
 */
#include "runtime/metal/metal_private.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ARGS 0 /* indices of a kernel's buffers; see gpu.h */
#define STEP 1
#define OPERANDS 2
#define MAX_BOUND (OPERANDS + IG_GPU_MAX_BINDS)

/* The longest estimated time of a command buffer, in picoseconds.  The system aborts one after
 * about 5 s, or sooner if it blocks a display.  Estimated for an M1, the smallest GPU: 68 GB/s of
 * weights, or 1.3 TFLOP/s (half of its peak) at 4 operations per byte of a 4-bit weight and row.
 * A larger GPU needs less time; an unnecessary split costs about 20 µs. */
#define CUT_PS 250e9 /* 0.25 s */
#define BYTE_PS 15.0
#define BYTE_ROW_PS 3.0
/* Attention of a long prompt reads no weights: 512 rows over 32k positions with 32 heads take
 * 0.3 s per layer on an M1.  At most four layers per command buffer. */
#define LOOP_PS (CUT_PS / 4)

#define DESTROY_TIMEOUT_MS 30000

/* A dispatch of the tape, resolved for encoding. */
struct ready {
	id<MTLComputePipelineState> state;
	id<MTLBuffer> buffer[IG_GPU_MAX_BINDS]; /* nil: the step's own logits */
	uint64_t offset[IG_GPU_MAX_BINDS];
	uint32_t n_buffers;
	double weight_bytes;
	bool loops; /* over all positions of a sequence */
};

/* One command buffer of a step. */
struct cut {
	id<MTLCommandBuffer> buffer;
	uint32_t first, last; /* dispatches */
};

struct slot {
	struct ig_gpu_buffer *staging, *logits;
	struct cut cuts[METAL_MAX_CUTS];
	uint32_t n_cuts;
	uint64_t signal; /* the event's value after the last one */
	bool busy;
	bool want_logits;
	int rc; /* the step has failed, but is still in flight */
	struct ig_error error;
};

struct program {
	struct ig_gpu_program base;
	struct metal_device *d;
	const struct ig_gpu_tape *tape;
	uint64_t step_bytes;
	struct ready *ready; /* [tape->n_dispatches] */
	struct slot slots[IG_STEPS_IN_FLIGHT];
	const int32_t *ids; /* [IG_STEPS_IN_FLIGHT, 2, max_logit_rows], or NULL */
};

/* ---- creation ------------------------------------------------------------------------ */

static int resolve(struct program *p, const struct ig_gpu_place *places, uint32_t i,
		   struct ig_error *err)
{
	const struct ig_gpu_dispatch *q = &p->tape->dispatches[i].d;
	struct ready *r = &p->ready[i];

	for (uint32_t k = 0; k < q->n_binds; k++) {
		const struct ig_gpu_ref *ref = &q->bind[k].ref;
		uint32_t at = r->n_buffers;
		if (q->bind[k].access & IG_GPU_TOUCH)
			continue;
		r->n_buffers++;
		if (ref->buffer < 0) {
			/* Every buffer parameter of a kernel must be bound, even if unused. */
			r->buffer[at] = p->d->nothing;
			continue;
		}
		const struct ig_gpu_tape_buffer *b = &p->tape->buffers[ref->buffer];
		if (b->kind == IG_GPU_BUFFER_LOGITS) {
			r->offset[at] = ref->offset;
			continue;
		}
		const struct ig_gpu_place *place = &places[ref->buffer];
		if (!place->buffer)
			return ig_fail(err, -EINVAL, "metal: kernel %s: operand %u has no memory",
				       q->kernel, k);
		if (place->offset > place->buffer->n_bytes ||
		    b->n_bytes > place->buffer->n_bytes - place->offset)
			return ig_fail(err, -EINVAL,
				       "metal: kernel %s: operand %u: %" PRIu64 " bytes at %" PRIu64
				       " of a buffer of %" PRIu64,
				       q->kernel, k, b->n_bytes, place->offset,
				       place->buffer->n_bytes);
		r->buffer[at] = place->buffer->mtl;
		r->offset[at] = place->offset + ref->offset;
		if (r->offset[at] % 4)
			return ig_fail(err, -EINVAL,
				       "metal: kernel %s: operand %u at byte %" PRIu64
				       " of its buffer, not a multiple of 4",
				       q->kernel, k, r->offset[at]);
		if (b->kind == IG_GPU_BUFFER_WEIGHTS)
			r->weight_bytes += (double)q->bind[k].n_bytes;
	}
	for (uint32_t axis = 0; axis < 3; axis++)
		r->loops |= q->grid[axis].live == IG_LIVE_LOOP_ROWS;
	r->loops |= q->when_live == IG_LIVE_LOOP_ROWS && q->when_min > 0;
	return ig_metal_pipeline_get(p->d, q, &r->state, err);
}

static int make_slot(struct program *p, struct slot *s, struct ig_error *err)
{
	const struct ig_gpu_tape *t = p->tape;
	int rc =
		ig_metal_alloc(&p->d->base, p->step_bytes, IG_GPU_MEMORY_PRIVATE, &s->staging, err);

	if (rc || t->logits < 0)
		return rc;
	return ig_metal_alloc(&p->d->base, t->buffers[t->logits].n_bytes, IG_GPU_MEMORY_PRIVATE,
			      &s->logits, err);
}

static void free_program(struct program *p)
{
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		ig_metal_free(&p->d->base, p->slots[i].staging);
		ig_metal_free(&p->d->base, p->slots[i].logits);
	}
	free(p->ready);
	free(p);
}

static int make_program(struct program *p, const struct ig_gpu_place *places, struct ig_error *err)
{
	const struct ig_gpu_tape *t = p->tape;

	p->ready = calloc(t->n_dispatches ? t->n_dispatches : 1, sizeof *p->ready);
	if (!p->ready)
		return ig_fail(err, -ENOMEM, "metal: no memory for %u dispatches", t->n_dispatches);
	for (uint32_t i = 0; i < t->n_dispatches; i++) {
		int rc = resolve(p, places, i, err);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		int rc = make_slot(p, &p->slots[i], err);
		if (rc)
			return rc;
	}
	if (t->ids >= 0) {
		const struct ig_gpu_place *place = &places[t->ids];
		uint64_t n_bytes = t->buffers[t->ids].n_bytes;
		if (!place->buffer || place->offset % 4 || place->offset > place->buffer->n_bytes ||
		    n_bytes > place->buffer->n_bytes - place->offset)
			return ig_fail(err, -EINVAL,
				       "metal: the sampled ids have no memory, or too little");
		p->ids = (const int32_t *)(const void *)((const char *)
								 [place->buffer->mtl contents] +
							 place->offset);
	}
	return 0;
}

int ig_metal_program_create(struct ig_gpu_device *device, const struct ig_gpu_tape *tape,
			    const struct ig_gpu_place *places, uint64_t step_bytes,
			    struct ig_gpu_program **out, struct ig_error *err)
{
	struct metal_device *d = (struct metal_device *)device;
	struct program *p;

	*out = NULL;
	if (__atomic_load_n(&d->gone, __ATOMIC_SEQ_CST))
		return ig_metal_fail_lost(d, err);
	if (!tape->closed || tape->status)
		return ig_fail(err, -EINVAL, "metal: the tape is not closed");
	p = calloc(1, sizeof *p);
	if (!p)
		return ig_fail(err, -ENOMEM, "metal: no memory for a program");
	p->base.class = &ig_gpu_metal;
	p->d = d;
	p->tape = tape;
	p->step_bytes = step_bytes;
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	int rc = make_program(p, places, err);
	if (rc)
		free_program(p);
	else
		*out = &p->base;
	[pool release];
	return rc;
}

void *ig_metal_program_staging(struct ig_gpu_program *program, uint32_t slot)
{
	struct program *p = (struct program *)program;
	return slot < IG_STEPS_IN_FLIGHT ? [p->slots[slot].staging->mtl contents] : NULL;
}

/* ---- encoding ------------------------------------------------------------------------- */

/* The open encoder, and what is bound in it. */
struct encoding {
	struct program *p;
	struct slot *s;
	id<MTLComputeCommandEncoder> encoder; /* nil: none is open */
	id<MTLComputePipelineState> state;
	id<MTLBuffer> buffer[MAX_BOUND];
	uint64_t offset[MAX_BOUND];
	const void *args;
	uint32_t n_arg_bytes;
	uint32_t threadgroup_bytes;
	double ps; /* estimate of the cut so far */
};

static void bind_buffer(struct encoding *e, uint32_t index, id<MTLBuffer> buffer, uint64_t offset)
{
	if (e->buffer[index] != buffer)
		[e->encoder setBuffer:buffer offset:offset atIndex:index];
	else if (e->offset[index] != offset)
		[e->encoder setBufferOffset:offset atIndex:index];
	e->buffer[index] = buffer;
	e->offset[index] = offset;
}

static int begin_cut(struct encoding *e, uint32_t first, struct ig_error *err)
{
	struct program *p = e->p;
	struct slot *s = e->s;
	struct metal_device *d = p->d;
	/* All resources outlive the command buffer: it need not retain them. */
	id<MTLCommandBuffer> buffer = [d->queue commandBufferWithUnretainedReferences];
	id<MTLComputeCommandEncoder> encoder =
		[buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];

	if (!encoder)
		return ig_fail(err, -ENOMEM, "metal: GPU '%s' takes no more commands",
			       d->facts.name);
	*e = (struct encoding){ .p = p, .s = s, .encoder = encoder };
	s->cuts[s->n_cuts++] =
		(struct cut){ .buffer = [buffer retain], .first = first, .last = first };
	[encoder waitForFence:d->fence];
	ig_metal_residency_use(&d->residency, encoder);
	bind_buffer(e, STEP, s->staging->mtl, 0);
	return 0;
}

static void end_cut(struct encoding *e)
{
	struct metal_device *d = e->p->d;
	id<MTLCommandBuffer> buffer = e->s->cuts[e->s->n_cuts - 1].buffer;

	[e->encoder updateFence:d->fence];
	[e->encoder endEncoding];
	e->encoder = nil;
	e->s->signal = ++d->n_signals;
	[buffer encodeSignalEvent:d->event value:e->s->signal];
	[buffer commit];
}

/* Estimated picoseconds on an M1. */
static double estimate(const struct ready *r, const struct ig_gpu_dispatch *q,
		       const uint32_t live[IG_N_LIVE])
{
	double rows = live[q->when_live];
	for (uint32_t axis = 0; axis < 3; axis++)
		if (rows < live[q->grid[axis].live])
			rows = live[q->grid[axis].live];
	double per_byte = rows * BYTE_ROW_PS > BYTE_PS ? rows * BYTE_ROW_PS : BYTE_PS;
	return r->weight_bytes * per_byte + (r->loops ? LOOP_PS : 0);
}

static void encode(struct encoding *e, const struct ready *r, const struct ig_gpu_dispatch *q,
		   const uint32_t grid[3])
{
	id<MTLComputeCommandEncoder> encoder = e->encoder;

	if (e->state != r->state) {
		[encoder setComputePipelineState:r->state];
		e->state = r->state;
	}
	if (e->n_arg_bytes != q->n_arg_bytes || memcmp(e->args, q->args, q->n_arg_bytes)) {
		[encoder setBytes:q->args length:q->n_arg_bytes atIndex:ARGS];
		e->args = q->args;
		e->n_arg_bytes = q->n_arg_bytes;
	}
	for (uint32_t i = 0; i < r->n_buffers; i++) {
		id<MTLBuffer> buffer = r->buffer[i] ? r->buffer[i] : e->s->logits->mtl;
		bind_buffer(e, OPERANDS + i, buffer, r->offset[i]);
	}
	/* Too much would reduce the kernel's occupancy; whether a length of 0 is allowed is not
	 * documented. */
	uint32_t bytes = q->threadgroup_bytes || !e->threadgroup_bytes ? q->threadgroup_bytes : 16;
	if (bytes != e->threadgroup_bytes) {
		[encoder setThreadgroupMemoryLength:bytes atIndex:0];
		e->threadgroup_bytes = bytes;
	}
	[encoder dispatchThreadgroups:MTLSizeMake(grid[0], grid[1], grid[2])
		threadsPerThreadgroup:MTLSizeMake(q->threads, 1, 1)];
}

static int encode_step(struct encoding *e, const uint32_t live[IG_N_LIVE], struct ig_error *err)
{
	const struct ig_gpu_tape *t = e->p->tape;
	uint32_t at = 0, grid[3], i;
	bool barrier;

	while ((i = ig_gpu_tape_next(t, live, &at, grid, &barrier)) != UINT32_MAX) {
		const struct ready *r = &e->p->ready[i];
		const struct ig_gpu_dispatch *q = &t->dispatches[i].d;
		double ps = estimate(r, q, live);
		if (e->encoder && e->ps + ps > CUT_PS && e->s->n_cuts < METAL_MAX_CUTS)
			end_cut(e);
		if (!e->encoder) {
			int rc = begin_cut(e, i, err);
			if (rc)
				return rc;
		} else if (barrier) {
			[e->encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
		}
		encode(e, r, q, grid);
		e->ps += ps;
		e->s->cuts[e->s->n_cuts - 1].last = i;
	}
	/* A step without dispatches also needs a command buffer, which signals the event. */
	if (!e->encoder && !e->s->n_cuts) {
		int rc = begin_cut(e, 0, err);
		if (rc)
			return rc;
	}
	if (e->encoder)
		end_cut(e);
	return 0;
}

/* ---- steps ------------------------------------------------------------------------------ */

static void end_slot(struct program *p, struct slot *s)
{
	for (uint32_t i = 0; i < s->n_cuts; i++)
		[s->cuts[i].buffer release];
	s->n_cuts = 0;
	if (s->busy)
		__atomic_sub_fetch(&p->d->n_in_flight, 1, __ATOMIC_SEQ_CST);
	s->busy = false;
}

int ig_metal_program_submit(struct ig_gpu_program *program, const struct ig_gpu_submission *s,
			    struct ig_error *err)
{
	struct program *p = (struct program *)program;
	struct metal_device *d = p->d;
	int rc = 0;

	if (__atomic_load_n(&d->gone, __ATOMIC_SEQ_CST))
		return ig_metal_fail_lost(d, err);
	if (s->slot >= IG_STEPS_IN_FLIGHT)
		return ig_fail(err, -EINVAL, "metal: slot %u", s->slot);
	if (s->step_bytes > p->step_bytes)
		return ig_fail(err, -EINVAL,
			       "metal: a step of %" PRIu64 " bytes, at most %" PRIu64 " fit",
			       s->step_bytes, p->step_bytes);
	struct slot *slot = &p->slots[s->slot];
	if (slot->busy)
		return ig_fail(err, -EBUSY, "metal: slot %u is in flight", s->slot);
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	if (__atomic_load_n(&d->failed, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&d->n_in_flight, __ATOMIC_SEQ_CST)) {
		/* A failed encoder may not have updated the fence. */
		id<MTLFence> fence = [d->device newFence];
		if (fence) {
			[d->fence release];
			d->fence = fence;
			__atomic_store_n(&d->failed, false, __ATOMIC_SEQ_CST);
		} else {
			rc = ig_fail(err, -ENOMEM, "metal: GPU '%s' has no fence", d->facts.name);
		}
	}
	struct encoding e = { .p = p, .s = slot };
	slot->rc = 0;
	slot->want_logits = s->live[IG_LIVE_WANT_LOGITS] != 0;
	if (!rc) {
		ig_metal_residency_touch(&d->residency);
		rc = encode_step(&e, s->live, err);
	}
	if (!rc) {
		slot->busy = true;
		__atomic_add_fetch(&d->n_in_flight, 1, __ATOMIC_SEQ_CST);
	} else {
		/* Wait for the committed command buffers; then the slot is unused again. */
		for (uint32_t i = 0; i < slot->n_cuts; i++)
			[slot->cuts[i].buffer waitUntilCompleted];
		end_slot(p, slot);
	}
	[pool release];
	return rc;
}

/* Check the slot's command buffers and store the first failure; true: all have finished.  `value`
 * is the event's.  If it has reached s->signal, all have finished, and those whose state is not
 * updated yet are waited for.  If it equals s->signal, the last one has succeeded and needs no
 * wait; a larger value is that of a later step. */
static bool check_cuts(struct program *p, struct slot *s, uint64_t value)
{
	bool signalled = value >= s->signal, ended = true;

	for (uint32_t i = 0; i < s->n_cuts; i++) {
		id<MTLCommandBuffer> b = s->cuts[i].buffer;
		if (signalled && (i + 1 < s->n_cuts || value > s->signal))
			[b waitUntilCompleted];
		MTLCommandBufferStatus status = [b status];
		if (status == MTLCommandBufferStatusError) {
			const struct ig_gpu_tape_dispatch *q = p->tape->dispatches;
			char what[160] = "a step of nothing";
			if (s->rc)
				continue;
			if (p->tape->n_dispatches)
				snprintf(what, sizeof what,
					 "part %u of %u of a step (kernels %s to %s)", i + 1,
					 s->n_cuts, q[s->cuts[i].first].d.kernel,
					 q[s->cuts[i].last].d.kernel);
			s->rc = ig_metal_fail_buffer(p->d, b, what, &s->error);
		} else if (status != MTLCommandBufferStatusCompleted) {
			ended = ended && signalled;
		}
	}
	return ended;
}

/* Fail the steps of this program that were submitted after a failed one. */
static void fail_behind(struct program *p, const struct slot *s)
{
	__atomic_store_n(&p->d->failed, true, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		struct slot *o = &p->slots[i];
		if (o == s || !o->busy || o->rc || o->signal < s->signal)
			continue;
		o->rc = ig_fail(&o->error, s->rc, "the step before it failed: %.*s",
				(int)sizeof o->error.text - 40, s->error.text);
	}
}

/* Wait until the slot's command buffers have finished; false: no progress for timeout_ms. */
static bool await(struct program *p, struct slot *s, uint32_t timeout_ms)
{
	id<MTLSharedEvent> event = p->d->event;
	uint64_t seen = [event signaledValue];
	int64_t since = ig_now_ns();

	for (;;) {
		uint64_t now = [event signaledValue];
		if (check_cuts(p, s, now))
			return true;
		if (now != seen) {
			seen = now;
			since = ig_now_ns();
		}
		int64_t left_ms = timeout_ms - (ig_now_ns() - since) / 1000000;
		if (left_ms <= 0)
			return false;
		if (left_ms > METAL_LOOK_MS)
			left_ms = METAL_LOOK_MS;
		[event waitUntilSignaledValue:s->signal timeoutMS:(uint64_t)left_ms];
	}
}

int ig_metal_program_wait(struct ig_gpu_program *program, uint32_t slot, uint32_t timeout_ms,
			  const int32_t **ids, const float **logits, struct ig_error *err)
{
	struct program *p = (struct program *)program;
	int rc;

	*ids = NULL;
	*logits = NULL;
	if (slot >= IG_STEPS_IN_FLIGHT || !p->slots[slot].busy)
		return ig_fail(err, -EINVAL, "metal: slot %u is not in flight", slot);
	struct slot *s = &p->slots[slot];
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	if (!await(p, s, timeout_ms)) {
		rc = ig_fail(err, -ETIMEDOUT,
			     "metal: GPU '%s' made no progress with a step for %u ms",
			     p->d->facts.name, timeout_ms);
	} else {
		rc = s->rc;
		if (rc) {
			ig_fail(err, rc, "%s", s->error.text);
			fail_behind(p, s);
		} else {
			*ids = p->ids ? p->ids + slot * ig_gpu_tape_slot_ids(p->tape) : NULL;
			*logits = s->want_logits && s->logits ? [s->logits->mtl contents] : NULL;
		}
		end_slot(p, s);
	}
	[pool release];
	return rc;
}

void ig_metal_program_destroy(struct ig_gpu_program *program)
{
	struct program *p = (struct program *)program;
	bool ended = true;

	if (!p)
		return;
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		struct slot *s = &p->slots[i];
		if (!s->busy)
			continue;
		if (!await(p, s, DESTROY_TIMEOUT_MS)) {
			ended = false;
			continue;
		}
		if (s->rc)
			__atomic_store_n(&p->d->failed, true, __ATOMIC_SEQ_CST);
		end_slot(p, s);
	}
	if (ended)
		free_program(p);
	else
		/* The GPU may still write to the program's memory: it must not be freed. */
		ig_log_error("metal: GPU '%s' does not end a step; its memory is lost",
			     p->d->facts.name);
	[pool release];
}
