/*
 * slabs.c: memory for the cache's slabs, which the engine identifies by their device addresses.  An
 * unmapped slab is kept here for reuse, because allocating and freeing device memory is slow and
 * disturbs the system's residency.  It is freed when the device reports memory pressure, or to
 * allocate one of another size, but not while a step in flight may use it.
 */
#include "runtime/gpu/gpu_private.h"
#include "base/array.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Index of the first mapped slab whose address is not lower. */
static uint32_t lower_bound(const struct ig_gpu_slabs *s, uint64_t address)
{
	uint32_t first = 0, last = s->n_mapped;

	while (first < last) {
		uint32_t middle = first + (last - first) / 2;
		if (s->mapped[middle].address < address)
			first = middle + 1;
		else
			last = middle;
	}
	return first;
}

const struct ig_gpu_slab *ig_gpu_slabs_find(const struct ig_gpu_slabs *s, uint64_t address,
					    uint64_t n_bytes)
{
	uint32_t i = lower_bound(s, address);

	if (i == s->n_mapped || s->mapped[i].address != address) {
		if (i == 0)
			return NULL;
		i--;
	}
	const struct ig_gpu_slab *m = &s->mapped[i];
	uint64_t offset = address - m->address;
	return offset < m->n_bytes && n_bytes <= m->n_bytes - offset ? m : NULL;
}

/* Ensure capacity for one more slab in both arrays, so that unmapping cannot fail. */
static bool grow(struct ig_gpu_slabs *s)
{
	uint32_t n = s->n_mapped + s->n_idle, cap = s->cap;

	return ig_array_grow(s->mapped, &cap, n) && ig_array_grow(s->idle, &s->cap, n);
}

static int make(struct ig_gpu_slabs *s, uint64_t n_bytes, struct ig_gpu_slab *out,
		struct ig_error *err)
{
	const struct ig_gpu_device_class *class = s->device->class;

	*out = (struct ig_gpu_slab){ .n_bytes = n_bytes };
	int rc = class->alloc(s->device, n_bytes, IG_GPU_MEMORY_SLAB, &out->buffer, err);
	if (rc)
		return rc;
	out->address = class->address(out->buffer);
	if (out->address && out->address % 16 == 0)
		return 0;
	class->free(s->device, out->buffer);
	return ig_fail(err, -EIO, "a slab at address %#llx", (unsigned long long)out->address);
}

uint64_t ig_gpu_slabs_map(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done)
{
	struct ig_gpu_slab slab;
	struct ig_error err = { 0 };
	uint32_t i = s->n_idle;

	while (i > 0 && s->idle[i - 1].n_bytes != n_bytes)
		i--;
	if (i > 0) {
		slab = s->idle[i - 1];
		s->idle[i - 1] = s->idle[--s->n_idle];
	} else {
		if (!grow(s))
			return 0;
		int rc = make(s, n_bytes, &slab, &err);
		if (rc && s->n_idle) { /* all idle slabs have another size */
			ig_gpu_slabs_release(s, UINT64_MAX, done);
			rc = make(s, n_bytes, &slab, &err);
		}
		if (rc) {
			ig_log_debug("no slab of %llu bytes: %s", (unsigned long long)n_bytes,
				     err.text);
			return 0;
		}
	}
	i = lower_bound(s, slab.address);
	memmove(s->mapped + i + 1, s->mapped + i, (s->n_mapped - i) * sizeof *s->mapped);
	s->mapped[i] = slab;
	s->n_mapped++;
	return slab.address;
}

void ig_gpu_slabs_unmap(struct ig_gpu_slabs *s, uint64_t address, uint64_t submitted)
{
	uint32_t i = lower_bound(s, address);

	if (i == s->n_mapped || s->mapped[i].address != address)
		return;
	s->idle[s->n_idle] = s->mapped[i];
	s->idle[s->n_idle++].retired = submitted;
	s->n_mapped--;
	memmove(s->mapped + i, s->mapped + i + 1, (s->n_mapped - i) * sizeof *s->mapped);
}

uint64_t ig_gpu_slabs_release(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done)
{
	uint64_t n_freed = 0;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->n_idle; i++) {
		struct ig_gpu_slab *idle = &s->idle[i];
		if (!n_bytes || idle->retired > done) {
			s->idle[kept++] = *idle;
			continue;
		}
		n_bytes -= n_bytes < idle->n_bytes ? n_bytes : idle->n_bytes;
		n_freed += idle->n_bytes;
		s->device->class->free(s->device, idle->buffer);
	}
	s->n_idle = kept;
	return n_freed;
}

void ig_gpu_slabs_finish(struct ig_gpu_slabs *s)
{
	for (uint32_t i = 0; i < s->n_mapped; i++)
		s->device->class->free(s->device, s->mapped[i].buffer);
	for (uint32_t i = 0; i < s->n_idle; i++)
		s->device->class->free(s->device, s->idle[i].buffer);
	free(s->mapped);
	free(s->idle);
	memset(s, 0, sizeof *s);
}
