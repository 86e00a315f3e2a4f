/* cpu.c: the cpu driver: opening it, memory, and running a lowered plan. */
#include "runtime/cpu/cpu_private.h"
#include "base/machine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A thread takes a half of its share of the units that are left: large slices first, which cost little to take, and
 * small ones at the end, so that all threads finish at about the same time. */
#define SLICES_OF_REST 2
/* No slice is smaller than this part of a thread's share of the whole phase. */
#define MAX_SLICES 32

static int cpu_open(const struct ig_driver_options *o, struct ig_driver **out, struct ig_error *err)
{
	struct cpu_driver *d = calloc(1, sizeof *d);
	int rc;

	if (!d)
		return ig_fail(err, -ENOMEM, "cpu driver: no memory");
	d->base.class = &ig_driver_cpu;
	d->strict = o->strict;
	if ((rc = ig_isa_parse(o->isa ? o->isa : "auto", &d->isa, err)))
		goto fail;
	if (!o->activations || !strcmp(o->activations, "auto")) {
		d->f32 = false;
	} else if (!strcmp(o->activations, "f32")) {
		d->f32 = true;
	} else {
		rc = ig_fail(err, -ENOTSUP, "activations \"%s\" are unknown; known: auto, f32",
			     o->activations);
		goto fail;
	}
	if (o->experts && !strcmp(o->experts, "mapped")) {
		d->mapped_experts = true;
	} else if (o->experts && strcmp(o->experts, "packed")) {
		rc = ig_fail(err, -ENOTSUP, "experts \"%s\" are unknown; known: packed, mapped",
			     o->experts);
		goto fail;
	}
	if (o->repack && strcmp(o->repack, "auto") && strcmp(o->repack, "always")) {
		rc = ig_fail(
			err, -ENOTSUP,
			"repack \"%s\" is not supported by the driver cpu, which packs all weights "
			"for its kernels",
			o->repack);
		goto fail;
	}
	if (o->tensor_units && strcmp(o->tensor_units, "auto")) {
		rc = ig_fail(
			err, -ENOTSUP,
			"tensor_units \"%s\" are not supported by the driver cpu, which has none",
			o->tensor_units);
		goto fail;
	}
	uint32_t n = o->n_threads;
	if (!n) {
		n = ig_machine_cpus();
		n = n > 256 ? 256 : n;
	}
	rc = ig_pool_create(n, &d->pool);
	if (rc) {
		rc = ig_fail(err, rc, "cpu driver: %u threads cannot be started: %s", n,
			     strerror(-rc));
		goto fail;
	}
	snprintf(d->text, sizeof d->text, "cpu, %s, %u thread%s, activations %s%s%s",
		 ig_isa_name(d->isa), n, n == 1 ? "" : "s", d->f32 ? "f32" : "auto",
		 d->mapped_experts ? ", experts mapped" : "", d->strict ? ", strict" : "");
	*out = &d->base;
	return 0;
fail:
	free(d);
	return rc;
}

static void cpu_close(struct ig_driver *base)
{
	struct cpu_driver *d = (struct cpu_driver *)base;
	ig_pool_destroy(d->pool);
	free(d);
}

static const char *cpu_describe(const struct ig_driver *base)
{
	return ((const struct cpu_driver *)base)->text;
}

void *ig_cpu_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
#ifdef MADV_HUGEPAGE
	madvise(p, bytes, MADV_HUGEPAGE); /* fewer TLB misses; failure is harmless */
#endif
	return p;
}

void ig_cpu_unmap(void *p, uint64_t bytes)
{
	if (p)
		munmap(p, bytes);
}

static void *map_slab(struct ig_driver *d, uint64_t bytes) { return ig_cpu_map(bytes); }

static void unmap_slab(struct ig_driver *d, void *base, uint64_t bytes)
{
	ig_cpu_unmap(base, bytes);
}

/* Steps are computed inside wait, so none is running. */
static void copy(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes)
{
	memcpy(dst, src, n_bytes);
}

static int copy_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
		     struct ig_error *err)
{
	memcpy(dst, src, n_bytes);
	return 0;
}

/* ---- a step ------------------------------------------------------------------------ */

static int32_t rows_of(const struct ig_step *s, uint32_t row_class)
{
	return row_class == IG_ROWS_TOKENS ? s->n_rows :
	       row_class == IG_ROWS_LOGITS ? s->n_logit_rows :
					     s->n_guesses;
}

static void set_rows(const struct cpu_program *p, const struct ig_step *step,
		     const struct cpu_operand *o, struct ig_tensor *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (o[i].buffer >= 0)
			t[i].n_rows = rows_of(step, p->buffers[o[i].buffer].row_class);
}

/* Set the numbers of rows, before the threads start. */
static void prepare(struct cpu_program *p, const struct ig_step *step)
{
	for (uint32_t i = 0; i < p->n_launches; i++) {
		struct cpu_launch *c = &p->launches[i];
		c->launch.step = step;
		set_rows(p, step, c->in, c->launch.in, c->launch.n_in);
		set_rows(p, step, c->out, c->launch.out, c->launch.n_out);
	}
	for (uint32_t i = 0; i < p->n_phases; i++) {
		atomic_store_explicit(&p->counters[i].taken, 0, memory_order_relaxed);
		atomic_store_explicit(&p->counters[i].finished, 0, memory_order_relaxed);
	}
}

static int64_t phase_units(const struct cpu_program *p, const struct cpu_phase *ph)
{
	const struct cpu_launch *c = &p->launches[ph->first_launch];
	int64_t n = 0;

	if (rows_of(c->launch.step, c->row_class) == 0 || (ph->of_mtp && !c->launch.step->next_ids))
		return 0;
	for (uint32_t i = 0; i < ph->n_launches; i++) {
		const int64_t of = c[i].kernel->n_units(&c[i].launch);
		n = !ph->rows ? n + of : of > n ? of : n; /* a kernel of rows may have none */
	}
	return n;
}

static void run_units(const struct cpu_program *p, const struct cpu_phase *ph, int64_t first,
		      int64_t last, void *scratch)
{
	const struct cpu_launch *c = &p->launches[ph->first_launch];

	if (ph->rows) {
		for (uint32_t i = 0; i < ph->n_launches; i++)
			if (c[i].kernel->n_units(&c[i].launch))
				c[i].kernel->run(&c[i].launch, first, last, scratch);
		return;
	}
	/* The units of the kernels are numbered consecutively. */
	for (uint32_t i = 0; i < ph->n_launches && first < last; i++) {
		int64_t n = c[i].kernel->n_units(&c[i].launch);
		if (first < n)
			c[i].kernel->run(&c[i].launch, first, last < n ? last : n, scratch);
		first = first > n ? first - n : 0;
		last -= n;
	}
}

static void *scratch_of(const struct cpu_program *p, uint32_t thread)
{
	return p->scratch_mem + p->worker_offset + thread * p->worker_bytes;
}

/* Let threads take units of phase i, when all before it is done.  A phase of one unit has nothing to share, so the
 * thread that is here does it at once, without a barrier; with one row these are all phases of rows. */
static void open_phase(struct cpu_program *p, uint32_t i, void *scratch)
{
	for (; i < p->n_phases; i++) {
		int64_t n = phase_units(p, &p->phases[i]);
		p->counters[i].n_units = n;
		if (n > 1)
			break;
		if (n == 1)
			run_units(p, &p->phases[i], 0, 1, scratch);
	}
	atomic_fetch_add_explicit(&p->driver->base.pulse, 1, memory_order_relaxed);
	atomic_store_explicit(p->open, i, memory_order_release);
}

/* Take units of a phase; false: none are left. */
static bool take_units(struct cpu_counter *c, int64_t n_threads, int64_t *first, int64_t *last)
{
	const int64_t n = c->n_units, slices = SLICES_OF_REST * n_threads;
	const int64_t least = (n + MAX_SLICES * n_threads - 1) / (MAX_SLICES * n_threads);
	int_fast64_t at = atomic_load_explicit(&c->taken, memory_order_relaxed);

	do {
		int64_t k = n_threads == 1 ? n : (n - at + slices - 1) / slices;
		k = k < least ? least : k;
		*first = at;
		*last = at + k < n ? at + k : n;
		if (at >= n)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&c->taken, &at, *last, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

/* The units of an open phase, as many as this thread gets.  Who finishes the last one opens the next phase.
 * A thread that was preempted and comes when others are ahead gets none. */
static void run_phase(struct cpu_program *p, uint32_t i, void *scratch)
{
	struct cpu_counter *c = &p->counters[i];
	const int64_t n_threads = ig_pool_n_threads(p->driver->pool);
	int64_t first, last;

	while (take_units(c, n_threads, &first, &last)) {
		run_units(p, &p->phases[i], first, last, scratch);
		int64_t before =
			atomic_fetch_add_explicit(&c->finished, last - first, memory_order_acq_rel);
		if (before + last - first == c->n_units)
			open_phase(p, i + 1, scratch);
	}
}

static void run_program(void *ctx, uint32_t thread)
{
	struct cpu_program *p = ctx;
	void *scratch = scratch_of(p, thread);
	const uint32_t patience = ig_pool_patience(p->driver->pool);
	uint32_t i = atomic_load_explicit(p->open, memory_order_acquire);

	while (i < p->n_phases) {
		uint32_t done = i;
		run_phase(p, i, scratch);
		for (uint32_t spins = 0;
		     (i = atomic_load_explicit(p->open, memory_order_acquire)) == done; spins++) {
			ig_pool_relax();
			if (spins > patience)
				sched_yield(); /* the thread with the last units was preempted */
		}
	}
}

static int cpu_submit(struct ig_program *p, const struct ig_step *step)
{
	/* The caller computes too, so a step starts in wait, when the tokens of the step before
	 * are sampled. */
	return 0;
}

static int cpu_wait(struct ig_program *base)
{
	struct cpu_program *p = (struct cpu_program *)base;
	prepare(p, base->in_flight[0]);
	open_phase(p, 0, scratch_of(p, 0));
	ig_pool_run(p->driver->pool, run_program, p);
	return 0;
}

const struct ig_driver_class ig_driver_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.describe = cpu_describe,
	.lower = ig_cpu_lower,
	.load = ig_cpu_load,
	.packed_layout = ig_cpu_packed_layout,
	.destroy = ig_cpu_destroy,
	.submit = cpu_submit,
	.wait = cpu_wait,
	.map_slab = map_slab,
	.unmap_slab = unmap_slab,
	.copy = copy,
	.read_slab = copy_slab,
	.write_slab = copy_slab,
	.steps_in_flight = 1,
	.takes_mtp = true,
	.takes_outside = true,
};
