/*
 * soft_device.c: the software device as a GPU of the runtime, for tests: a tape runs
 * dispatch by dispatch while it is submitted.
 *
 * It holds a tape to what Metal would: kernels exist and take just the operands and
 * argument sizes that they are handed, nothing is written that was bound to be read.
 * Dispatches between two barriers run in reverse order, so that a missing hazard shows.
 * A value is bound up to its last live row: a kernel that reads a row too many is
 * stopped where the shaders are checked ones.
 */
#include "runtime/gpu/device.h"
#include "tests/metal/soft/soft.h"

#include <errno.h>
#include <ingot/gpu_lower.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_gpu_device_class ig_gpu_soft;

#define N_WORKERS 2

struct ig_gpu_buffer {
	uint8_t *data;
	uint64_t n_bytes;
	bool registered;
};

struct soft_device {
	struct ig_gpu_device base; /* first */
	struct ig_gpu_facts facts;
};

struct slot {
	uint8_t *staging;
	int32_t *ids;
	float *logits;
	bool under_way, has_logits;
	struct ig_error error; /* code 0: the step is done */
};

struct soft_program {
	struct ig_gpu_program base; /* first */
	const struct ig_gpu_tape *tape;
	const struct ig_gpu_place *places;
	const struct soft_kernel **kernels; /* [n_dispatches] */
	uint64_t step_bytes;
	struct slot slots[IG_STEPS_IN_FLIGHT];
};

/* ---- the device --------------------------------------------------------------------- */

static int start_rc;

static void start(void) { start_rc = soft_start(N_WORKERS); }

static int open_device(const struct ig_driver_options *o, struct ig_gpu_device **out,
		       struct ig_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct soft_device *d;

	*out = NULL;
	pthread_once(&once, start);
	if (start_rc)
		return ig_fail(err, -ENOTSUP, "soft: the software device cannot run here (%d)",
			       start_rc);
	d = calloc(1, sizeof *d);
	if (!d)
		return ig_fail(err, -ENOMEM, "soft: no memory");
	d->base.class = &ig_gpu_soft;
	d->facts = (struct ig_gpu_facts){
		.struct_size = sizeof d->facts,
		.kind = IG_GPU_METAL,
		.arch = 7,
		.n_cores = 8,
		.max_threadgroup_bytes = SOFT_MAX_THREADGROUP_BYTES,
		.max_threads = SOFT_MAX_THREADS,
		.max_buffer_bytes = (uint64_t)1 << 32,
		.working_set_bytes = (uint64_t)1 << 34,
		.name = "software device",
		/* "always": for tests, as the driver metal finds out what a GPU has */
		.tensor_units = o->tensor_units && !strcmp(o->tensor_units, "always"),
	};
	*out = &d->base;
	return 0;
}

static void close_device(struct ig_gpu_device *d) { free(d); }

static const struct ig_gpu_facts *facts(const struct ig_gpu_device *d)
{
	return &((const struct soft_device *)d)->facts;
}

/* ---- memory ---------------------------------------------------------------------------- */

static void free_buffer(struct ig_gpu_device *d, struct ig_gpu_buffer *b)
{
	if (!b)
		return;
	if (b->registered)
		soft_unregister_range(b->data);
	free(b->data);
	free(b);
}

static int alloc_buffer(struct ig_gpu_device *d, uint64_t n_bytes, uint32_t memory,
			struct ig_gpu_buffer **out, struct ig_error *err)
{
	struct ig_gpu_buffer *b = NULL;
	int rc;

	*out = NULL;
	if (!n_bytes || n_bytes > (uint64_t)1 << 40)
		return ig_fail(err, -EINVAL, "soft: a buffer of %llu bytes",
			       (unsigned long long)n_bytes);
	b = calloc(1, sizeof *b);
	if (b)
		b->data = aligned_alloc(256, (n_bytes + 255) / 256 * 256);
	if (!b || !b->data) {
		free(b);
		return ig_fail(err, -ENOMEM, "soft: no memory for %llu bytes",
			       (unsigned long long)n_bytes);
	}
	b->n_bytes = n_bytes;
	memset(b->data, 0xff, n_bytes); /* NaN until something is written */
	if (memory == IG_GPU_MEMORY_SLAB) {
		rc = soft_register_range(b->data, n_bytes);
		if (rc) {
			free_buffer(d, b);
			return ig_fail(err, rc, "soft: a range of memory was refused");
		}
		b->registered = true;
	}
	*out = b;
	return 0;
}

static uint64_t address(const struct ig_gpu_buffer *b) { return (uint64_t)(uintptr_t)b->data; }

static int check_range(const struct ig_gpu_buffer *b, uint64_t offset, uint64_t n_bytes,
		       struct ig_error *err)
{
	if (offset > b->n_bytes || n_bytes > b->n_bytes - offset)
		return ig_fail(err, -EINVAL, "soft: %llu bytes at %llu of a buffer of %llu",
			       (unsigned long long)n_bytes, (unsigned long long)offset,
			       (unsigned long long)b->n_bytes);
	return 0;
}

static int write_buffer(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset,
			const void *src, uint64_t n_bytes, struct ig_error *err)
{
	int rc = check_range(b, offset, n_bytes, err);

	if (!rc)
		memcpy(b->data + offset, src, n_bytes);
	return rc;
}

static int read_buffer(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset, void *dst,
		       uint64_t n_bytes, struct ig_error *err)
{
	int rc = check_range(b, offset, n_bytes, err);

	if (!rc)
		memcpy(dst, b->data + offset, n_bytes);
	return rc;
}

/* ---- programs ------------------------------------------------------------------------------ */

static const struct soft_argument *argument(const struct soft_kernel *k, uint32_t index)
{
	for (uint32_t i = 0; i < k->n_arguments; i++)
		if (k->arguments[i].kind != SOFT_THREADGROUP && k->arguments[i].index == index)
			return &k->arguments[i];
	return NULL;
}

/* Whether the kernel takes what the dispatch hands it. */
static int check_kernel(const struct soft_program *p, const struct ig_gpu_dispatch *d,
			const struct soft_kernel *k, struct ig_error *err)
{
	const struct soft_argument *a = argument(k, 0);
	uint32_t n = 2;

	if (!a || a->kind != SOFT_CONSTANTS || a->size != d->n_arg_bytes)
		return ig_fail(err, -EINVAL, "soft: kernel %s takes %u bytes of arguments, not %u",
			       d->kernel, a ? a->size : 0, d->n_arg_bytes);
	for (uint32_t i = 0; i < d->n_binds; i++) {
		const struct ig_gpu_bind *b = &d->bind[i];

		if (b->access & IG_GPU_TOUCH)
			continue;
		a = argument(k, n++);
		if (!a)
			return ig_fail(err, -EINVAL, "soft: kernel %s has no buffer %u", d->kernel,
				       n - 1);
		if (b->ref.buffer < 0)
			continue;
		if ((a->access & SOFT_WRITE) && !(b->access & IG_GPU_WRITE))
			return ig_fail(err, -EINVAL,
				       "soft: kernel %s writes buffer %u, which is bound "
				       "to be read",
				       d->kernel, n - 1);
		if (!p->places[b->ref.buffer].buffer)
			return ig_fail(err, -EINVAL, "soft: kernel %s: buffer %u lies nowhere",
				       d->kernel, n - 1);
	}
	if (argument(k, n))
		return ig_fail(err, -EINVAL, "soft: kernel %s: nothing is bound to buffer %u",
			       d->kernel, n);
	return 0;
}

static void program_destroy(struct ig_gpu_program *base)
{
	struct soft_program *p = (struct soft_program *)base;

	if (!p)
		return;
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		free(p->slots[i].staging);
		free(p->slots[i].ids);
		free(p->slots[i].logits);
	}
	free(p->kernels);
	free(p);
}

/* The code of a shader, for tensor units if it has kernels for them and the device has them. */
static const struct soft_shader *find_shader(const struct ig_shader *s, bool tensor)
{
	char name[80];

	snprintf(name, sizeof name, "%s%s", s->name, tensor && s->tensor ? "_tensor" : "");
	return soft_find_shader(name);
}

static int program_create(struct ig_gpu_device *d, const struct ig_gpu_tape *tape,
			  const struct ig_gpu_place *places, uint64_t step_bytes,
			  struct ig_gpu_program **out, struct ig_error *err)
{
	struct soft_program *p = calloc(1, sizeof *p);
	int rc = 0;

	*out = NULL;
	if (!p)
		return ig_fail(err, -ENOMEM, "soft: no memory");
	p->base.class = &ig_gpu_soft;
	p->tape = tape;
	p->places = places;
	p->step_bytes = step_bytes;
	const bool tensor = ((struct soft_device *)d)->facts.tensor_units;
	p->kernels =
		calloc(tape->n_dispatches ? tape->n_dispatches : 1, sizeof(struct soft_kernel *));
	if (!p->kernels)
		rc = ig_fail(err, -ENOMEM, "soft: no memory");
	for (uint32_t i = 0; !rc && i < IG_STEPS_IN_FLIGHT; i++) {
		struct slot *s = &p->slots[i];

		s->staging = aligned_alloc(256, (step_bytes + 255) / 256 * 256);
		s->ids = calloc(ig_gpu_tape_slot_ids(tape) + 1, sizeof *s->ids);
		s->logits = calloc(1, ig_gpu_tape_logits_bytes(tape) + 1);
		if (!s->staging || !s->ids || !s->logits)
			rc = ig_fail(err, -ENOMEM, "soft: no memory");
	}
	for (uint32_t i = 0; !rc && i < tape->n_dispatches; i++) {
		const struct ig_gpu_dispatch *t = &tape->dispatches[i].d;
		const struct soft_shader *s = find_shader(t->shader, tensor);

		p->kernels[i] = s ? soft_find_kernel(s, t->kernel) : NULL;
		if (!p->kernels[i])
			rc = ig_fail(err, -ENOTSUP, "soft: no kernel %s in shader %s", t->kernel,
				     t->shader->name);
		else
			rc = check_kernel(p, t, p->kernels[i], err);
	}
	if (rc) {
		program_destroy(&p->base);
		return rc;
	}
	*out = &p->base;
	return 0;
}

static void *staging(struct ig_gpu_program *p, uint32_t slot)
{
	return ((struct soft_program *)p)->slots[slot].staging;
}

/* The bytes of a bind from its beginning on; of a value, up to the last live row's end. */
static uint64_t bound_bytes(const struct soft_program *p, const struct ig_gpu_bind *b,
			    const uint32_t live[IG_N_LIVE])
{
	const struct ig_gpu_tape_buffer *t = &p->tape->buffers[b->ref.buffer];
	const struct ig_gpu_tensor value = { .row_class = t->row_class };
	uint64_t rows = live[ig_gpu_live_of(&value)];

	if (!t->row_bytes)
		return b->n_bytes;
	return rows ? (rows - 1) * t->row_bytes + b->n_bytes : 0;
}

static int run_one(struct soft_program *p, uint32_t i, const uint32_t grid[3],
		   const struct ig_gpu_submission *s, struct ig_error *err)
{
	const struct ig_gpu_dispatch *t = &p->tape->dispatches[i].d;
	struct soft_dispatch d = {
		.kernel = p->kernels[i],
		.groups = { grid[0], grid[1], grid[2] },
		.threads = { t->threads, 1, 1 },
		.threadgroup_bytes = t->threadgroup_bytes,
		.buffer = { { (void *)t->args, t->n_arg_bytes },
			    { p->slots[s->slot].staging, s->step_bytes } },
	};
	static uint8_t nothing[16]; /* an operand left out: not to be looked at */
	struct soft_report report;
	uint32_t n = 2;

	for (uint32_t b = 0; b < t->n_binds; b++) {
		const struct ig_gpu_bind *from = &t->bind[b];

		if (from->access & IG_GPU_TOUCH)
			continue;
		d.buffer[n++] =
			from->ref.buffer < 0 ?
				(struct soft_binding){ nothing, 0 } :
				(struct soft_binding){ p->places[from->ref.buffer].buffer->data +
							       p->places[from->ref.buffer].offset +
							       from->ref.offset,
						       bound_bytes(p, from, s->live) };
	}
	if (!soft_run(&d, &report))
		return 0;
	return ig_fail(err, -EIO, "soft: %.480s", report.text);
}

/* A phase's dispatches, last one first. */
struct phase {
	uint32_t n;
	struct {
		uint32_t dispatch, grid[3];
	} runs[256];
};

static int run_phase(struct soft_program *p, struct phase *f, const struct ig_gpu_submission *s,
		     struct ig_error *err)
{
	int rc = 0;

	while (!rc && f->n) {
		f->n--;
		rc = run_one(p, f->runs[f->n].dispatch, f->runs[f->n].grid, s, err);
	}
	return rc;
}

static int run_tape(struct soft_program *p, const struct ig_gpu_submission *s, struct ig_error *err)
{
	struct phase f = { 0 };
	uint32_t at = 0, i, grid[3];
	bool barrier;
	int rc = 0;

	while (!rc && (i = ig_gpu_tape_next(p->tape, s->live, &at, grid, &barrier)) != UINT32_MAX) {
		if (barrier || f.n == sizeof f.runs / sizeof *f.runs)
			rc = run_phase(p, &f, s, err);
		f.runs[f.n].dispatch = i;
		memcpy(f.runs[f.n++].grid, grid, sizeof grid);
	}
	return rc ? rc : run_phase(p, &f, s, err);
}

static const void *results(const struct soft_program *p, int32_t buffer)
{
	return p->places[buffer].buffer->data + p->places[buffer].offset;
}

/* The results of n rows that begin at row `first` of the slot's. */
static void take_rows(struct soft_program *p, struct slot *slot, uint32_t number, size_t first,
		      size_t n)
{
	const struct ig_gpu_tape *t = p->tape;
	const size_t n_vocab = (size_t)t->n_vocab;

	if (n && t->ids >= 0)
		memcpy(slot->ids + first,
		       (const int32_t *)results(p, t->ids) + number * ig_gpu_tape_slot_ids(t) +
			       first,
		       n * sizeof *slot->ids);
	if (n && slot->has_logits)
		memcpy(slot->logits + first * n_vocab,
		       (const float *)results(p, t->logits) + first * n_vocab,
		       n * n_vocab * sizeof *slot->logits);
}

static int submit(struct ig_gpu_program *base, const struct ig_gpu_submission *s,
		  struct ig_error *err)
{
	struct soft_program *p = (struct soft_program *)base;
	const struct ig_gpu_tape *t = p->tape;
	struct slot *slot;
	size_t rows = s->live[IG_LIVE_LOGIT_ROWS];

	if (s->slot >= IG_STEPS_IN_FLIGHT || s->step_bytes > p->step_bytes ||
	    rows > t->max_logit_rows || p->slots[s->slot].under_way)
		return ig_fail(err, -EINVAL, "soft: a step that does not fit its program");
	slot = &p->slots[s->slot];
	memset(&slot->error, 0, sizeof slot->error);
	slot->under_way = true;
	slot->has_logits = t->logits >= 0 && s->live[IG_LIVE_WANT_LOGITS];
	if (run_tape(p, s, &slot->error))
		return 0; /* as a device does: wait tells */
	take_rows(p, slot, s->slot, 0, rows);
	take_rows(p, slot, s->slot, t->max_logit_rows, s->live[IG_LIVE_GUESS_ROWS]);
	return 0;
}

static int wait_for(struct ig_gpu_program *base, uint32_t number, uint32_t timeout_ms,
		    const int32_t **ids, const float **logits, struct ig_error *err)
{
	struct soft_program *p = (struct soft_program *)base;
	struct slot *slot;

	if (number >= IG_STEPS_IN_FLIGHT || !p->slots[number].under_way)
		return ig_fail(err, -EINVAL, "soft: no step is under way in slot %u", number);
	slot = &p->slots[number];
	slot->under_way = false;
	if (slot->error.code)
		return ig_fail(err, slot->error.code, "%s", slot->error.text);
	*ids = slot->ids;
	*logits = slot->has_logits ? slot->logits : NULL;
	return 0;
}

const struct ig_gpu_device_class ig_gpu_soft = {
	.name = "soft",
	.open = open_device,
	.close = close_device,
	.facts = facts,
	.alloc = alloc_buffer,
	.free = free_buffer,
	.address = address,
	.write = write_buffer,
	.read = read_buffer,
	.program_create = program_create,
	.program_destroy = program_destroy,
	.staging = staging,
	.submit = submit,
	.wait = wait_for,
};
