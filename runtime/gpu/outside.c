/*
 * outside.c: the rows of a step that are no token's, in device memory.  Kernels reach them by addresses in the
 * packed step.  Each slot has memory of its own, so a step is written while the one before runs.  It is
 * allocated for the first step that has such rows, and grows: text alone needs none.
 */
#include "runtime/gpu/gpu_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define GROW_BYTES 65536u

int ig_gpu_outside_init(struct ig_gpu_outside *o, struct ig_gpu_device *d, uint32_t width,
			uint32_t max_rows, struct ig_error *err)
{
	*o = (struct ig_gpu_outside){ .device = d, .width = width };
	if (!width)
		return 0;
	o->addresses = calloc(max_rows, sizeof *o->addresses);
	return o->addresses ?
		       0 :
		       ig_fail(err, -ENOMEM, "no memory for the addresses of %u rows", max_rows);
}

void ig_gpu_outside_finish(struct ig_gpu_outside *o)
{
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		if (o->buffers[i])
			o->device->class->free(o->device, o->buffers[i]);
	free(o->addresses);
	*o = (struct ig_gpu_outside){ 0 };
}

static int ensure(struct ig_gpu_outside *o, uint32_t slot, uint64_t n_bytes, struct ig_error *err)
{
	const struct ig_gpu_device_class *class = o->device->class;
	const uint64_t n = (n_bytes + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;

	if (n_bytes <= o->n_bytes[slot])
		return 0;
	class->free(o->device, o->buffers[slot]);
	o->buffers[slot] = NULL;
	o->n_bytes[slot] = 0;
	int rc = class->alloc(o->device, n, IG_GPU_MEMORY_SLAB, &o->buffers[slot], err);
	if (!rc)
		o->n_bytes[slot] = n;
	return rc;
}

int ig_gpu_outside_write(struct ig_gpu_outside *o, const struct ig_step *s, uint32_t slot,
			 const uint64_t **addresses, struct ig_error *err)
{
	const uint64_t row_bytes = (uint64_t)o->width * sizeof(float);
	uint64_t n = 0;
	int rc = 0;

	*addresses = NULL;
	for (int32_t r = 0; o->width && r < s->n_rows; r++)
		n += ig_step_outside(s, r) != NULL;
	if (!n)
		return 0;
	if ((rc = ensure(o, slot, n * row_bytes, err)))
		return rc;
	const uint64_t base = o->device->class->address(o->buffers[slot]);
	uint64_t at = 0;
	/* Rows of an image follow each other in memory: one write for all of them. */
	for (int32_t r = 0, end; r < s->n_rows && !rc; r = end) {
		const float *x = ig_step_outside(s, r);
		end = r + 1;
		while (x && end < s->n_rows &&
		       ig_step_outside(s, end) == x + (end - r) * (int64_t)o->width)
			end++;
		for (int32_t i = r; i < end; i++)
			o->addresses[i] = x ? base + at + (uint64_t)(i - r) * row_bytes : 0;
		if (!x)
			continue;
		const uint64_t n_bytes = (uint64_t)(end - r) * row_bytes;
		rc = o->device->class->write(o->device, o->buffers[slot], at, x, n_bytes, err);
		at += n_bytes;
	}
	*addresses = o->addresses;
	return rc;
}
