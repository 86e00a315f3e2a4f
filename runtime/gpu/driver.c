/*
 * driver.c: the driver for GPUs, for any device class.  A program has two slots, used alternately:
 * a staging area on the host, and the sampled ids on the device.  Copies between cache blocks are
 * queued until the next submit, which submits them first, as a step that only has copies; if they
 * fail, the step after them fails.
 */
#include "model/formats/checkpoint.h"
#include "runtime/gpu/gpu_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A step without progress for this long hangs: the slowest dispatch takes far less than 1 s. */
#define WAIT_MS 30000u

/* ---- opening ---------------------------------------------------------------------- */

static int make_copy_program(struct ig_gpu_driver *d, struct ig_error *err)
{
	const struct ig_gpu_device_class *class = d->device->class;
	/* A tape of copies binds no buffers, but the pointer must be valid. */
	static const struct ig_gpu_place none;
	int rc = ig_gpu_tape_create(class->facts(d->device), 0, &d->copy_tape);

	if (rc)
		return ig_fail(err, rc, "no memory for the tape of copies");
	ig_gpu_emit_copies(d->copy_tape);
	rc = ig_gpu_tape_close(d->copy_tape, err);
	return rc ? rc :
		    class->program_create(d->device, d->copy_tape, &none, IG_GPU_COPY_AREA_BYTES,
					  &d->copy_program, err);
}

int ig_gpu_driver_open(const struct ig_gpu_device_class *device,
		       const struct ig_driver_class *class, const struct ig_driver_options *o,
		       struct ig_driver **out, struct ig_error *err)
{
	struct ig_gpu_driver *d = calloc(1, sizeof *d);
	int rc;

	if (!d)
		return ig_fail(err, -ENOMEM, "%s driver: no memory", class->name);
	d->base.class = class;
	d->strict = o->strict;
	if (o->activations && !strcmp(o->activations, "f32")) {
		d->f32 = true;
	} else if (o->activations && strcmp(o->activations, "auto")) {
		rc = ig_fail(err, -ENOTSUP, "activations \"%s\" are unknown; known: auto, f32",
			     o->activations);
		goto fail;
	}
	if (o->repack && strcmp(o->repack, "auto") && strcmp(o->repack, "always") &&
	    strcmp(o->repack, "never")) {
		rc = ig_fail(err, -ENOTSUP, "repack \"%s\" is unknown; known: auto, always, never",
			     o->repack);
		goto fail;
	}
	if (o->tensor_units && strcmp(o->tensor_units, "auto") &&
	    strcmp(o->tensor_units, "never")) {
		rc = ig_fail(err, -ENOTSUP, "tensor_units \"%s\" are unknown; known: auto, never",
			     o->tensor_units);
		goto fail;
	}
	if (o->tensor_units && strcmp(o->tensor_units, "auto") && strcmp(class->name, "metal")) {
		rc = ig_fail(err, -ENOTSUP,
			     "tensor_units \"%s\" are not supported by the driver %s; auto is",
			     o->tensor_units, class->name);
		goto fail;
	}
	/* metal reads all weights from the mapped file; cuda copies them to the device. */
	if (o->experts && strcmp(o->experts, "packed") && strcmp(class->name, "metal")) {
		rc = ig_fail(err, -ENOTSUP,
			     "experts \"%s\" are not supported by the driver %s; packed is",
			     o->experts, class->name);
		goto fail;
	}
	if ((rc = device->open(o, &d->device, err)))
		goto fail;
	d->slabs.device = d->device;
	if ((rc = make_copy_program(d, err)))
		goto fail;
	snprintf(d->text, sizeof d->text, "%s, %s, activations %s%s%s%s", class->name,
		 device->facts(d->device)->name, d->f32 ? "f32" : "auto",
		 !o->repack || !strcmp(o->repack, "auto") ? "" :
		 device->facts(d->device)->tiles	  ? ", weights repacked" :
							    ", weights not repacked",
		 device->facts(d->device)->tensor_units ? ", tensor units" : "",
		 d->strict ? ", strict" : "");
	*out = &d->base;
	return 0;
fail:
	ig_gpu_driver_close(&d->base);
	return rc;
}

void ig_gpu_driver_close(struct ig_driver *base)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;

	if (d->device) {
		d->device->class->program_destroy(d->copy_program);
		ig_gpu_slabs_finish(&d->slabs);
		d->device->class->close(d->device);
	}
	ig_gpu_tape_destroy(d->copy_tape);
	free(d);
}

const char *ig_gpu_driver_describe(const struct ig_driver *d)
{
	return ((const struct ig_gpu_driver *)d)->text;
}

uint64_t ig_gpu_memory(const struct ig_driver *base)
{
	const struct ig_gpu_driver *d = (const struct ig_gpu_driver *)base;
	return d->device->class->facts(d->device)->working_set_bytes;
}

bool ig_gpu_is_unified(const struct ig_driver *base)
{
	const struct ig_gpu_driver *d = (const struct ig_gpu_driver *)base;
	return d->device->class->facts(d->device)->kind == IG_GPU_METAL; /* Apple silicon only */
}

void ig_gpu_watch_memory(struct ig_driver *base, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	struct ig_gpu_device *device = ((struct ig_gpu_driver *)base)->device;

	if (device->class->watch_memory)
		device->class->watch_memory(device, fn, ctx);
}

uint64_t ig_gpu_release(struct ig_driver *base, uint64_t n_bytes)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	return ig_gpu_slabs_release(&d->slabs, n_bytes, d->done);
}

/* ---- lowering and loading --------------------------------------------------------- */

static uint64_t at_least_one(uint64_t n) { return n ? n : 1; }

static uint64_t ids_bytes(const struct ig_gpu_tape *t)
{
	return ig_gpu_tape_slot_ids(t) * 4 * IG_STEPS_IN_FLIGHT;
}

int ig_gpu_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
			const struct ig_program_limits *limits, struct ig_program **out,
			struct ig_program_memory *memory, struct ig_error *err)
{
	struct ig_gpu_lowered *p = calloc(1, sizeof *p);

	if (!p)
		return ig_fail(err, -ENOMEM, "%s driver: no memory for the lowered plan",
			       d->class->name);
	p->base.class = d->class;
	p->base.limits = *limits;
	p->driver = (struct ig_gpu_driver *)d;
	p->base.strict = p->driver->strict;
	p->prev_slot = IG_STEPS_IN_FLIGHT - 1;
	int rc = ig_gpu_lower_plan(p, plan, err);
	if (!rc)
		rc = ig_gpu_outside_init(&p->outside, p->driver->device,
					 ig_plan_outside_width(plan), limits->max_rows, err);
	if (rc) {
		ig_gpu_program_destroy(&p->base);
		return rc;
	}
	/* Results and the step exist once on the device and once per slot for the host. */
	*memory = (struct ig_program_memory){
		.weight_bytes = p->weights.n_bytes,
		.scratch_bytes = p->tape->scratch_bytes + p->tape->n_constant_bytes +
				 (IG_STEPS_IN_FLIGHT + 1) *
					 (p->shape.area_bytes + ig_gpu_tape_logits_bytes(p->tape)) +
				 2 * ids_bytes(p->tape),
	};
	*out = &p->base;
	return 0;
}

/* Set the memory of each buffer of the tape. */
static void set_places(struct ig_gpu_lowered *p)
{
	const struct ig_gpu_tape *t = p->tape;

	for (uint32_t i = 0; i < t->n_buffers; i++) {
		const struct ig_gpu_tape_buffer *b = &t->buffers[i];
		struct ig_gpu_place *to = &p->places[i];
		to->offset = b->offset;
		switch (b->kind) {
		case IG_GPU_BUFFER_SCRATCH: to->buffer = p->scratch; break;
		case IG_GPU_BUFFER_CONSTANT: to->buffer = p->constants; break;
		case IG_GPU_BUFFER_IDS: to->buffer = p->ids; break;
		case IG_GPU_BUFFER_LOGITS: to->buffer = p->logits; break;
		default: break; /* weights below; the cache is never bound */
		}
	}
	for (uint32_t i = 0; i < p->weights.plan->n_weights; i++) {
		const struct ig_gpu_weight *w = &p->weights.weights[i];
		if (w->buffer >= 0)
			p->places[w->buffer] =
				(struct ig_gpu_place){ p->weights.views[w->view].buffer,
						       w->offset };
	}
}

/* Before the first step, so that none waits for it.  If it fails, a step tries again and says why. */
static void prepare_usual(struct ig_gpu_lowered *p)
{
	const struct ig_gpu_device_class *class = p->driver->device->class;
	uint32_t live[IG_N_LIVE];
	struct ig_error err = { 0 };

	for (uint32_t i = 0; class->prepare && !err.code; i++) {
		if (!ig_gpu_step_usual(&p->shape, p->tape->first_head_node > 0, i, live))
			return;
		class->prepare(p->program, live, &err);
	}
}

int ig_gpu_program_load(struct ig_program *base, struct ig_error *err)
{
	struct ig_gpu_lowered *p = (struct ig_gpu_lowered *)base;
	struct ig_gpu_device *d = p->driver->device;
	const struct ig_gpu_device_class *class = d->class;
	const struct ig_gpu_tape *t = p->tape;
	const struct {
		struct ig_gpu_buffer **to;
		uint64_t n_bytes;
	} parts[] = {
		{ &p->scratch, at_least_one(t->scratch_bytes) },
		{ &p->constants, t->n_constant_bytes },
		{ &p->ids, t->ids < 0 ? 0 : ids_bytes(t) },
		{ &p->logits, t->logits < 0 ? 0 : ig_gpu_tape_logits_bytes(t) },
	};
	int rc = 0;

	p->places = calloc(t->n_buffers + 1, sizeof *p->places);
	if (!p->places)
		return ig_fail(err, -ENOMEM, "no memory for a table of %u buffers", t->n_buffers);
	for (size_t i = 0; i < sizeof parts / sizeof *parts && !rc; i++)
		if (parts[i].n_bytes)
			rc = class->alloc(d, parts[i].n_bytes, IG_GPU_MEMORY_PRIVATE, parts[i].to,
					  err);
	if (!rc && t->n_constant_bytes)
		rc = class->write(d, p->constants, 0, t->constants, t->n_constant_bytes, err);
	if (rc || (rc = ig_gpu_weights_load(&p->weights, d, err)))
		goto fail;
	set_places(p);
	rc = class->program_create(d, t, p->places, p->shape.area_bytes, &p->program, err);
	if (!rc) {
		prepare_usual(p);
		return 0;
	}
fail:
	/* Undo everything, so that a later load may succeed. */
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		class->free(d, *parts[i].to);
		*parts[i].to = NULL;
	}
	for (uint32_t i = 0; i < p->weights.n_views; i++) {
		class->free(d, p->weights.views[i].buffer);
		p->weights.views[i].buffer = NULL;
	}
	free(p->places);
	p->places = NULL;
	return rc;
}

void ig_gpu_program_destroy(struct ig_program *base)
{
	struct ig_gpu_lowered *p = (struct ig_gpu_lowered *)base;

	if (!p)
		return;
	struct ig_gpu_device *d = p->driver->device;
	d->class->program_destroy(p->program);
	d->class->free(d, p->scratch);
	d->class->free(d, p->constants);
	d->class->free(d, p->ids);
	d->class->free(d, p->logits);
	ig_gpu_outside_finish(&p->outside);
	ig_gpu_weights_finish(&p->weights, d);
	ig_gpu_step_finish(&p->shape);
	ig_gpu_tape_destroy(p->tape);
	free(p->places);
	free(p);
}

/* ---- waiting ---------------------------------------------------------------------- */

/* Remember that the device is lost: every later submit fails with this error. */
static void remember_loss(struct ig_gpu_driver *d, int rc, const struct ig_error *why)
{
	if (rc != -ENODEV || d->lost)
		return;
	d->lost = true;
	d->error = *why;
}

/* Wait for a slot.  After a timeout it stays busy. */
static int finish_flight(struct ig_gpu_driver *d, struct ig_gpu_program *program,
			 struct ig_gpu_flight *f, uint32_t slot, uint32_t timeout_ms,
			 const int32_t **ids, const float **logits, struct ig_error *err)
{
	if (!f->busy)
		return 0;
	int rc = d->device->class->wait(program, slot, timeout_ms, ids, logits, err);
	if (rc == -ETIMEDOUT) {
		if (err && !err->text[0])
			ig_fail(err, rc, "%s: a step made no progress for %u s",
				d->base.class->name, timeout_ms / 1000);
		return rc;
	}
	f->busy = false;
	if (d->done < f->number)
		d->done = f->number; /* steps finish in order */
	remember_loss(d, rc, err);
	return rc;
}

/* Wait for slots that are in flight after an error: 0 when all have finished or failed. */
static int settle(struct ig_gpu_driver *d, struct ig_gpu_program *program,
		  struct ig_gpu_flight *flights, uint32_t timeout_ms, struct ig_error *err)
{
	const int32_t *ids;
	const float *logits;

	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		struct ig_error why = { 0 };
		if (finish_flight(d, program, &flights[i], i, timeout_ms, &ids, &logits, &why) ==
		    -ETIMEDOUT)
			return ig_fail(err, -ETIMEDOUT, "%s: an earlier step has not finished",
				       d->base.class->name);
	}
	return 0;
}

/* Wait for the copies that were submitted before submission `number`. */
static int finish_copies(struct ig_gpu_driver *d, uint64_t number, struct ig_error *err)
{
	const int32_t *ids;
	const float *logits;
	int rc = 0;

	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT && !rc; i++)
		if (d->copy_flights[i].busy && d->copy_flights[i].number < number)
			rc = finish_flight(d, d->copy_program, &d->copy_flights[i], i, WAIT_MS,
					   &ids, &logits, err);
	return rc;
}

static int no_results(struct ig_gpu_lowered *p)
{
	return ig_fail(&p->base.error, -EIO, "%s: a step came back without its results",
		       p->base.class->name);
}

/* Rows of vectors or scores. */
static int take_output(struct ig_gpu_lowered *p, const struct ig_step *step, const float *logits)
{
	if (step->logits && !logits)
		return no_results(p);
	if (step->logits)
		memcpy(step->logits, logits,
		       (uint64_t)step->n_logit_rows * (uint64_t)p->tape->n_vocab * sizeof *logits);
	return 0;
}

static int check_ids(struct ig_gpu_lowered *p, const int32_t *ids, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= p->shape.info.n_vocab)
			return ig_fail(&p->base.error, -EIO,
				       "%s: row %" PRIu64 " was given token %d of %u",
				       p->base.class->name, i, ids[i], p->shape.info.n_vocab);
	return 0;
}

/* They are behind the ids and logits of as many rows as the limits allow. */
static int take_guesses(struct ig_gpu_lowered *p, const struct ig_step *step, const int32_t *ids,
			const float *logits)
{
	const uint64_t n = (uint64_t)step->n_guesses, most = p->tape->max_logit_rows;
	const uint64_t n_vocab = (uint64_t)p->tape->n_vocab;
	int rc = check_ids(p, ids + most, n);

	if (rc)
		return rc;
	memcpy(step->guessed_ids, ids + most, n * sizeof *ids);
	if (step->guess_logits && !logits)
		return no_results(p);
	if (step->guess_logits)
		memcpy(step->guess_logits, logits + most * n_vocab, n * n_vocab * sizeof *logits);
	return 0;
}

static int take_results(struct ig_gpu_lowered *p, const struct ig_step *step, const int32_t *ids,
			const float *logits)
{
	uint64_t n = (uint64_t)step->n_logit_rows;
	int rc;

	if (!n)
		return 0;
	if (p->shape.info.result != IG_RESULT_TOKENS)
		return take_output(p, step, logits);
	if (!ids)
		return no_results(p);
	if ((rc = check_ids(p, ids, n)))
		return rc;
	memcpy(step->sampled_ids, ids, n * sizeof *ids);
	rc = take_output(p, step, logits);
	return rc || !step->n_guesses ? rc : take_guesses(p, step, ids, logits);
}

int ig_gpu_program_wait(struct ig_program *base)
{
	struct ig_gpu_lowered *p = (struct ig_gpu_lowered *)base;
	uint32_t slot = p->oldest_slot;
	uint64_t number = p->flights[slot].number;
	const int32_t *ids = NULL;
	const float *logits = NULL;
	int rc;

	rc = finish_flight(p->driver, p->program, &p->flights[slot], slot, WAIT_MS, &ids, &logits,
			   &base->error);
	if (!rc)
		rc = finish_copies(p->driver, number, &base->error);
	if (!rc)
		rc = take_results(p, base->in_flight[0], ids, logits);
	if (!rc) {
		p->oldest_slot = (slot + 1) % IG_STEPS_IN_FLIGHT;
		return 0;
	}
	if (!base->error.text[0])
		ig_fail(&base->error, rc, "%s: the device failed: %s", base->class->name,
			strerror(-rc));
	/* Steps after a failed one have no results, but must finish before the caller changes what
	 * they read.  After a timeout more waiting is pointless. */
	if (rc != -ETIMEDOUT)
		settle(p->driver, p->program, p->flights, WAIT_MS, NULL);
	p->oldest_slot = p->next_slot;
	return rc;
}

/* ---- copies ----------------------------------------------------------------------- */

/* Submit the queued copies, before the next step.  After an error they stay queued. */
static int flush_copies(struct ig_gpu_driver *d, struct ig_error *err)
{
	struct ig_gpu_submission s = { .slot = d->copy_slot };
	struct ig_gpu_flight *f = &d->copy_flights[d->copy_slot];
	const struct ig_gpu_device_class *class = d->device->class;
	const int32_t *ids;
	const float *logits;

	if (d->copy_error.code) {
		*err = d->copy_error; /* reported once */
		d->copy_error.code = 0;
		return err->code;
	}
	if (!d->n_copies)
		return 0;
	/* Nearly always finished: the step after it was waited for. */
	int rc = finish_flight(d, d->copy_program, f, d->copy_slot, WAIT_MS, &ids, &logits, err);
	if (rc)
		return rc;
	ig_gpu_step_pack_copies(d->copies, d->n_copies, class->staging(d->copy_program, s.slot),
				&s);
	rc = class->submit(d->copy_program, &s, err);
	if (rc) {
		remember_loss(d, rc, err);
		return rc;
	}
	*f = (struct ig_gpu_flight){ true, ++d->submitted };
	d->copy_slot = (d->copy_slot + 1) % IG_STEPS_IN_FLIGHT;
	d->n_copies = 0;
	return 0;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static bool touches(const struct ig_gpu_copy *c, uint64_t at, uint64_t n_bytes)
{
	return overlap(c->dst, c->n_bytes, at, n_bytes) || overlap(c->src, c->n_bytes, at, n_bytes);
}

/* Copies of one step run concurrently and must be independent.  A copy from the destination of
 * a queued one reads that one's source instead; a copy to the destination of a queued one
 * replaces it; any other overlap needs a later step. */
static bool merge_copy(struct ig_gpu_driver *d, struct ig_gpu_copy *c)
{
	for (uint32_t i = 0; i < d->n_copies; i++)
		if (d->copies[i].dst == c->src && d->copies[i].n_bytes == c->n_bytes) {
			c->src = d->copies[i].src;
			break;
		}
	for (uint32_t i = 0; i < d->n_copies; i++) {
		struct ig_gpu_copy *o = &d->copies[i];
		if (o->dst == c->dst && o->n_bytes == c->n_bytes)
			continue; /* replaced below */
		if (overlap(o->dst, o->n_bytes, c->src, c->n_bytes) ||
		    overlap(o->dst, o->n_bytes, c->dst, c->n_bytes) ||
		    overlap(o->src, o->n_bytes, c->dst, c->n_bytes))
			return false;
	}
	for (uint32_t i = 0; i < d->n_copies; i++)
		if (d->copies[i].dst == c->dst && d->copies[i].n_bytes == c->n_bytes) {
			d->copies[i].src = c->src;
			return true;
		}
	if (d->n_copies == IG_GPU_MAX_COPIES)
		return false;
	d->copies[d->n_copies++] = *c;
	return true;
}

void ig_gpu_copy(struct ig_driver *base, void *dst, const void *src, uint64_t n_bytes)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	const struct ig_gpu_copy original = { (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src,
					      n_bytes };
	struct ig_gpu_copy c = original;

	if (!n_bytes || dst == src)
		return;
	if (n_bytes % 16 || n_bytes > UINT32_MAX || c.dst % 16 || c.src % 16 ||
	    overlap(c.dst, n_bytes, c.src, n_bytes) ||
	    !ig_gpu_slabs_find(&d->slabs, c.dst, n_bytes) ||
	    !ig_gpu_slabs_find(&d->slabs, c.src, n_bytes)) {
		ig_fail(&d->copy_error, -EINVAL,
			"a copy of %" PRIu64 " bytes from %p to %p, which is not between slabs",
			n_bytes, src, dst);
		return;
	}
	if (merge_copy(d, &c))
		return;
	c = original;
	struct ig_error err = { 0 };
	if (flush_copies(d, &err))
		d->copy_error = err;
	else
		merge_copy(d, &c); /* into an empty list */
}

/* ---- submitting ------------------------------------------------------------------- */

int ig_gpu_program_submit(struct ig_program *base, const struct ig_step *step)
{
	struct ig_gpu_lowered *p = (struct ig_gpu_lowered *)base;
	struct ig_gpu_driver *d = p->driver;
	const struct ig_gpu_device_class *class = d->device->class;
	struct ig_gpu_submission s = { .slot = p->next_slot };
	int rc;

	if (d->lost)
		return ig_fail(&base->error, -ENODEV, "%s", d->error.text);
	if ((step->logits || step->guess_logits) && p->tape->logits < 0)
		return ig_fail(&base->error, -EINVAL, "%s: this model's logits can't be read",
			       base->class->name);
	/* A step that timed out may still be in flight: wait 1 ms more. */
	if ((rc = base->n_in_flight ? 0 : settle(d, p->program, p->flights, 1, &base->error)))
		return rc;
	if (class->pressure) {
		uint64_t n_bytes = class->pressure(d->device);
		if (n_bytes)
			ig_gpu_slabs_release(&d->slabs, n_bytes, d->done);
	}
	if ((rc = flush_copies(d, &base->error)) ||
	    (rc = ig_gpu_outside_write(&p->outside, step, s.slot, &p->shape.outside,
				       &base->error)) ||
	    (rc = ig_gpu_step_pack(&p->shape, step, p->prev_slot, &d->slabs,
				   class->staging(p->program, s.slot), &s, &base->error)))
		return rc;
	const int64_t before = d->device->prepared_ns;
	rc = class->submit(p->program, &s, &base->error);
	base->prepare_ns = d->device->prepared_ns - before;
	if (rc) {
		remember_loss(d, rc, &base->error);
		return rc;
	}
	p->flights[s.slot] = (struct ig_gpu_flight){ true, ++d->submitted };
	if (!base->n_in_flight)
		p->oldest_slot = s.slot;
	p->prev_slot = s.slot;
	p->next_slot = (s.slot + 1) % IG_STEPS_IN_FLIGHT;
	return 0;
}

/* ---- slabs ------------------------------------------------------------------------ */

void *ig_gpu_map_slab(struct ig_driver *base, uint64_t slab_bytes)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	return (void *)(uintptr_t)ig_gpu_slabs_map(&d->slabs, slab_bytes, d->done);
}

void ig_gpu_unmap_slab(struct ig_driver *base, void *slab, uint64_t slab_bytes)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	uint64_t at = (uint64_t)(uintptr_t)slab;
	uint32_t kept = 0, touching = 0;

	/* Queued copies from the slab are still needed: submit them before it is unmapped. */
	for (uint32_t i = 0; i < d->n_copies; i++)
		touching += touches(&d->copies[i], at, slab_bytes);
	if (touching) {
		struct ig_error err = { 0 };
		if (flush_copies(d, &err))
			d->copy_error = err;
		for (uint32_t i = 0; i < d->n_copies; i++)
			if (!touches(&d->copies[i], at, slab_bytes))
				d->copies[kept++] = d->copies[i];
		d->n_copies = kept;
	}
	ig_gpu_slabs_unmap(&d->slabs, at, d->submitted);
}

/* The buffer of a slab and where these bytes are in it. */
static int find_bytes(const struct ig_gpu_driver *d, const void *at, uint64_t n_bytes,
		      struct ig_gpu_place *out, struct ig_error *err)
{
	const struct ig_gpu_slab *s =
		ig_gpu_slabs_find(&d->slabs, (uint64_t)(uintptr_t)at, n_bytes);

	if (!s)
		return ig_fail(err, -EINVAL, "%s: %" PRIu64 " bytes at %p are not in a slab",
			       d->base.class->name, n_bytes, at);
	*out = (struct ig_gpu_place){ s->buffer, (uint64_t)(uintptr_t)at - s->address };
	return 0;
}

int ig_gpu_read_slab(struct ig_driver *base, void *dst, const void *src, uint64_t n_bytes,
		     struct ig_error *err)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	struct ig_gpu_place place = { 0 };
	int rc = find_bytes(d, src, n_bytes, &place, err);

	return rc ? rc :
		    d->device->class->read(d->device, place.buffer, place.offset, dst, n_bytes,
					   err);
}

int ig_gpu_write_slab(struct ig_driver *base, void *dst, const void *src, uint64_t n_bytes,
		      struct ig_error *err)
{
	struct ig_gpu_driver *d = (struct ig_gpu_driver *)base;
	struct ig_gpu_place place = { 0 };
	int rc = find_bytes(d, dst, n_bytes, &place, err);

	/* The block may be the source of a copy that was queued when it had another owner. */
	if (rc || (rc = flush_copies(d, err)) || (rc = finish_copies(d, UINT64_MAX, err)))
		return rc;
	return d->device->class->write(d->device, place.buffer, place.offset, src, n_bytes, err);
}
