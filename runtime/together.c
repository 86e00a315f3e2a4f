/*
 * together.c: a driver over several devices of a class: a GPU driver for each, its rank, with that rank's part of
 * every plan and of the cache.  A slab is one on each device, known by its address on the first; blocks
 * have the same numbers in all, so the cache's bookkeeping is one.  A step is submitted to all; all sample the
 * same tokens, and the first one's are the results.
 */
#include "base/array.h"
#include "runtime/gpu/gpu.h"
#include "runtime/split.h"

#include <errno.h>
#include <ingot/kvcache.h>
#include <stdlib.h>
#include <string.h>

struct slab {
	uint64_t n_bytes;
	void *base[IG_MAX_RANKS];
};

struct together {
	struct ig_driver base; /* first */
	struct ig_driver_class class;
	const struct ig_gpu_device_class *device;
	uint32_t n;
	struct ig_driver *ranks[IG_MAX_RANKS];
	char text[160];
	/* Engine's thread: */
	struct slab *slabs; /* [n_slabs], sorted by the first address */
	uint32_t n_slabs, cap_slabs;
};

/* A step as one rank gets it. */
struct rank_step {
	struct ig_step step;
	void **slab_bases; /* [max_slabs] */
	int32_t *ids;	   /* [max_logit_rows] */
};

struct program {
	struct ig_program base; /* first */
	struct together *driver;
	struct ig_plan *plans[IG_MAX_RANKS];
	struct ig_program *ranks[IG_MAX_RANKS];
	struct rank_step steps[IG_MAX_RANKS][IG_STEPS_IN_FLIGHT];
	uint32_t *slabs_seen; /* [max_slabs] */
	uint32_t max_slabs, next;
};

/* ---- opening ------------------------------------------------------------------------------- */

static void close_together(struct ig_driver *base)
{
	struct together *t = (struct together *)base;

	for (uint32_t r = 0; r < t->n; r++)
		if (t->ranks[r])
			ig_driver_close(t->ranks[r]);
	free(t->slabs);
	free(t);
}

static const char *describe(const struct ig_driver *d)
{
	return ((const struct together *)d)->text;
}

static uint64_t memory_of(const struct ig_driver *base)
{
	const struct together *t = (const struct together *)base;
	uint64_t least = UINT64_MAX;

	for (uint32_t r = 0; r < t->n; r++) {
		uint64_t n = ig_driver_memory(t->ranks[r]);
		least = n < least ? n : least;
	}
	return least;
}

static uint64_t release(struct ig_driver *base, uint64_t n_bytes)
{
	struct together *t = (struct together *)base;
	uint64_t most = 0;

	for (uint32_t r = 0; r < t->n; r++) {
		uint64_t n = ig_driver_release(t->ranks[r], n_bytes);
		most = n > most ? n : most;
	}
	return most;
}

/* ---- slabs --------------------------------------------------------------------------------- */

/* Index of the first slab whose address on the first device is higher. */
static uint32_t after(const struct together *t, const void *at)
{
	uint32_t first = 0, last = t->n_slabs;

	while (first < last) {
		uint32_t middle = first + (last - first) / 2;
		if ((uintptr_t)t->slabs[middle].base[0] <= (uintptr_t)at)
			first = middle + 1;
		else
			last = middle;
	}
	return first;
}

/* The slab with this address of the first device in it, or NULL. */
static const struct slab *find(const struct together *t, const void *at)
{
	uint32_t i = after(t, at);

	if (!i || (uintptr_t)at - (uintptr_t)t->slabs[i - 1].base[0] >= t->slabs[i - 1].n_bytes)
		return NULL;
	return &t->slabs[i - 1];
}

static void *map_slab(struct ig_driver *base, uint64_t n_bytes)
{
	struct together *t = (struct together *)base;
	struct slab slab = { .n_bytes = n_bytes };
	uint32_t r = 0;

	if (!ig_array_grow(t->slabs, &t->cap_slabs, t->n_slabs))
		return NULL;
	while (r < t->n && (slab.base[r] = ig_driver_map_slab(t->ranks[r], n_bytes)))
		r++;
	if (r < t->n) {
		while (r-- > 0)
			ig_driver_unmap_slab(t->ranks[r], slab.base[r], n_bytes);
		return NULL;
	}
	uint32_t i = after(t, slab.base[0]);
	memmove(t->slabs + i + 1, t->slabs + i, (t->n_slabs - i) * sizeof *t->slabs);
	t->slabs[i] = slab;
	t->n_slabs++;
	return slab.base[0];
}

static void unmap_slab(struct ig_driver *base, void *at, uint64_t n_bytes)
{
	struct together *t = (struct together *)base;
	const struct slab *s = find(t, at);

	if (!s || s->base[0] != at)
		return;
	for (uint32_t r = 0; r < t->n; r++)
		ig_driver_unmap_slab(t->ranks[r], s->base[r], n_bytes);
	uint32_t i = (uint32_t)(s - t->slabs);
	t->n_slabs--;
	memmove(t->slabs + i, t->slabs + i + 1, (t->n_slabs - i) * sizeof *t->slabs);
}

static void copy(struct ig_driver *base, void *dst, const void *src, uint64_t n_bytes)
{
	struct together *t = (struct together *)base;
	const struct slab *to = find(t, dst), *from = find(t, src);

	/* The drivers report addresses that are not in slabs. */
	for (uint32_t r = 0; r < t->n; r++)
		ig_driver_copy(t->ranks[r],
			       to ? (char *)to->base[r] + ((char *)dst - (char *)to->base[0]) : dst,
			       from ? (const char *)from->base[r] +
					       ((const char *)src - (const char *)from->base[0]) :
				      src,
			       n_bytes);
}

static int no_blocks(struct ig_driver *d, struct ig_error *err)
{
	return ig_fail(err, -ENOTSUP, "%s: blocks that are divided over devices can't be copied",
		       d->class->name);
}

static int read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n,
		     struct ig_error *err)
{
	return no_blocks(d, err);
}

static int write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n,
		      struct ig_error *err)
{
	return no_blocks(d, err);
}

/* ---- programs ------------------------------------------------------------------------------ */

static void destroy(struct ig_program *base)
{
	struct program *p = (struct program *)base;

	if (!p)
		return;
	for (uint32_t r = 0; r < p->driver->n; r++) {
		ig_program_destroy(p->ranks[r]);
		ig_plan_destroy(p->plans[r]);
		for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
			free(p->steps[r][i].slab_bases);
			free(p->steps[r][i].ids);
		}
	}
	free(p->slabs_seen);
	free(p);
}

static int make_steps(struct program *p, const struct ig_program_limits *l, struct ig_error *err)
{
	p->max_slabs = l->max_slabs ? l->max_slabs : 1u << (32 - IG_BLOCK_BITS);
	p->slabs_seen = malloc(p->max_slabs * sizeof *p->slabs_seen);
	bool ok = p->slabs_seen != NULL;
	for (uint32_t r = 0; r < p->driver->n; r++)
		for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
			struct rank_step *s = &p->steps[r][i];
			s->slab_bases = calloc(p->max_slabs, sizeof *s->slab_bases);
			s->ids = malloc(l->max_logit_rows * sizeof *s->ids);
			ok = ok && s->slab_bases && s->ids;
		}
	return ok ? 0 : ig_fail(err, -ENOMEM, "no memory for steps of several devices");
}

static int lower(struct ig_driver *d, const struct ig_plan *plan,
		 const struct ig_program_limits *limits, struct ig_program **out,
		 struct ig_program_memory *memory, struct ig_error *err)
{
	struct together *t = (struct together *)d;
	struct program *p = calloc(1, sizeof *p);

	if (!p)
		return ig_fail(err, -ENOMEM, "no memory for the lowered plan");
	p->base.class = d->class;
	p->base.limits = *limits;
	p->driver = t;
	int rc = make_steps(p, limits, err);
	if (!rc)
		rc = ig_program_set_ranks(&p->base, t->n, err);
	for (uint32_t r = 0; r < t->n && !rc; r++) {
		rc = ig_plan_split(plan, t->n, r, &p->plans[r], err);
		if (!rc)
			rc = ig_driver_lower(t->ranks[r], p->plans[r], limits, &p->ranks[r],
					     &p->base.rank_memory[r], err);
	}
	if (rc) {
		ig_program_destroy(&p->base);
		return rc;
	}
	*memory = ig_program_most(&p->base);
	p->base.strict = p->ranks[0]->strict;
	*out = &p->base;
	return 0;
}

static int load(struct ig_program *base, struct ig_error *err)
{
	struct program *p = (struct program *)base;
	int rc = 0;

	for (uint32_t r = 0; r < p->driver->n && !rc; r++)
		if (!p->ranks[r]->loaded) /* by an attempt that failed later */
			rc = ig_program_load(p->ranks[r], err);
	return rc;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* For every rank the addresses of the slabs that the step's tables name; returns how many, whose numbers are in
 * slabs_seen. */
static uint32_t find_slabs(struct program *p, const struct ig_step *step, uint32_t slot)
{
	uint32_t n_seen = 0;

	for (uint32_t g = 0; g < step->n_groups; g++) {
		const struct ig_step_kv *kv = &step->kv[g];
		for (int32_t q = 0; q < step->n_seqs; q++) {
			const uint32_t *words = kv->block_tables + q * kv->max_blocks;
			const int64_t n =
				(step->seq_lens[q] + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
			for (int64_t i = 0; i < n && i < kv->max_blocks; i++) {
				const uint32_t k = IG_BLOCK_SLAB(words[i]);
				if (words[i] == IG_BLOCK_NONE || k >= p->max_slabs ||
				    p->steps[0][slot].slab_bases[k])
					continue;
				const struct slab *s = find(p->driver, step->slab_bases[k]);
				if (!s || s->base[0] != step->slab_bases[k])
					continue; /* the ranks' drivers report it */
				for (uint32_t r = 0; r < p->driver->n; r++)
					p->steps[r][slot].slab_bases[k] = s->base[r];
				p->slabs_seen[n_seen++] = k;
			}
		}
	}
	return n_seen;
}

static int submit_to_all(struct program *p, const struct ig_step *step, uint32_t slot)
{
	int rc = 0;

	for (uint32_t r = 0; r < p->driver->n && !rc; r++) {
		struct rank_step *to = &p->steps[r][slot];
		const struct rank_step *before = &p->steps[r][(slot + 1) % IG_STEPS_IN_FLIGHT];
		to->step = *step;
		to->step.slab_bases = to->slab_bases;
		if (r) {
			to->step.sampled_ids = to->ids;
			to->step.logits = NULL;
			if (step->prev_ids)
				to->step.prev_ids = before->step.sampled_ids;
		}
		rc = ig_program_submit(p->ranks[r], &to->step);
		p->base.prepare_ns += ig_program_prepare_ns(p->ranks[r]);
		if (rc)
			ig_fail(&p->base.error, rc, "device %u: %s", r,
				ig_program_error(p->ranks[r])->text);
	}
	return rc;
}

/* No rank may wait for one that has failed. */
static void give_up(struct program *p)
{
	struct together *t = p->driver;

	for (uint32_t r = 0; r < t->n; r++)
		t->device->abort(((struct ig_gpu_driver *)t->ranks[r])->device);
	for (uint32_t r = 0; r < t->n; r++)
		while (p->ranks[r]->n_in_flight)
			ig_program_wait(p->ranks[r]);
}

static int submit(struct ig_program *base, const struct ig_step *step)
{
	struct program *p = (struct program *)base;
	const uint32_t n_slabs = find_slabs(p, step, p->next);
	int rc = submit_to_all(p, step, p->next);

	/* Packing has read them. */
	for (uint32_t i = 0; i < n_slabs; i++)
		for (uint32_t r = 0; r < p->driver->n; r++)
			p->steps[r][p->next].slab_bases[p->slabs_seen[i]] = NULL;
	/* A step that only some have would leave them waiting for the others. */
	if (rc && p->ranks[0]->n_in_flight > base->n_in_flight) {
		give_up(p);
		return base->error.code = -ENODEV;
	}
	if (!rc)
		p->next = (p->next + 1) % IG_STEPS_IN_FLIGHT;
	return rc;
}

static int wait_step(struct ig_program *base)
{
	struct program *p = (struct program *)base;
	int rc = 0;

	for (uint32_t r = 0; r < p->driver->n; r++) {
		int own = ig_program_wait(p->ranks[r]);
		/* Those that wait for a lost device only take too long. */
		if (own && (!rc || own == -ENODEV))
			rc = ig_fail(&base->error, own, "device %u: %s", r,
				     ig_program_error(p->ranks[r])->text);
	}
	if (!rc)
		return 0;
	give_up(p);
	return base->error.code = -ENODEV;
}

/* ---- the driver ---------------------------------------------------------------------------- */

static const struct ig_driver_class together_class = {
	.close = close_together,
	.describe = describe,
	.lower = lower,
	.load = load,
	.destroy = destroy,
	.submit = submit,
	.wait = wait_step,
	.map_slab = map_slab,
	.unmap_slab = unmap_slab,
	.copy = copy,
	.read_slab = read_slab,
	.write_slab = write_slab,
	.memory = memory_of,
	.release = release,
	.n_ranks = 1, /* set for each driver */
	.steps_in_flight = 2,
	.takes_outside = true,
};

static int open_ranks(struct together *t, const struct ig_driver_class *class,
		      const struct ig_driver_options *o, struct ig_error *err)
{
	struct ig_gpu_device *devices[IG_MAX_RANKS];
	int rc = 0;

	for (uint32_t r = 0; r < t->n && !rc; r++) {
		struct ig_driver_options one = *o;
		one.devices = &o->devices[r];
		one.n_devices = 1;
		rc = ig_gpu_driver_open(t->device, class, &one, &t->ranks[r], err);
		if (!rc)
			devices[r] = ((struct ig_gpu_driver *)t->ranks[r])->device;
	}
	return rc ? rc : t->device->connect(devices, t->n, err);
}

static int check_devices(const struct ig_driver_options *o, struct ig_error *err)
{
	if (o->n_devices > IG_MAX_RANKS)
		return ig_fail(err, -ENOTSUP, "%u devices; at most %d are possible", o->n_devices,
			       IG_MAX_RANKS);
	for (uint32_t i = 0; i < o->n_devices; i++)
		for (uint32_t j = 0; j < i; j++)
			if (o->devices[i] == o->devices[j])
				return ig_fail(err, -EINVAL, "device %u is named twice",
					       o->devices[i]);
	return 0;
}

int ig_gpu_driver_open_all(const struct ig_gpu_device_class *device,
			   const struct ig_driver_class *class,
			   const struct ig_driver_options *options, struct ig_driver **out,
			   struct ig_error *err)
{
	struct ig_driver_options o = *options;
	uint32_t all[IG_MAX_RANKS];
	int rc;

	if ((o.n_devices || o.all_devices) && !device->connect)
		return ig_fail(err, -ENOTSUP, "the driver %s has no devices with numbers",
			       class->name);
	if (!o.n_devices && o.all_devices) {
		int n = device->count(err);
		if (n < 0)
			return n;
		for (int i = 0; i < n && i < IG_MAX_RANKS; i++)
			all[i] = (uint32_t)i;
		o.devices = all;
		o.n_devices = (uint32_t)n;
	}
	if (o.n_devices < 2)
		return ig_gpu_driver_open(device, class, &o, out, err);
	if ((rc = check_devices(&o, err)))
		return rc;
	struct together *t = calloc(1, sizeof *t);
	if (!t)
		return ig_fail(err, -ENOMEM, "%s driver: no memory", class->name);
	t->class = together_class;
	t->class.name = class->name;
	t->class.n_ranks = t->n = o.n_devices;
	t->base.class = &t->class;
	t->device = device;
	if ((rc = open_ranks(t, class, &o, err))) {
		close_together(&t->base);
		return rc;
	}
	snprintf(t->text, sizeof t->text, "%u devices: %.140s", t->n,
		 ig_driver_describe(t->ranks[0]));
	*out = &t->base;
	return 0;
}
