/* driver.c: drivers by name, and what all of them have in common: the contract
 * of submit and wait. */
#include "runtime/driver-private.h"

#include <errno.h>
#include <string.h>

/* In the order in which "auto" prefers them. */
static const struct ig_driver_class *const classes[] = { &ig_driver_cpu };
#define N_CLASSES (sizeof classes / sizeof *classes)

int ig_driver_open(const char *name, const struct ig_driver_options *o, struct ig_driver **out,
		   struct ig_error *err)
{
	char known[128] = "auto";

	*out = NULL;
	for (size_t i = 0; i < N_CLASSES; i++) {
		size_t n = strlen(known);
		if (!strcmp(name, "auto") || !strcmp(name, classes[i]->name))
			return classes[i]->open(o, out, err);
		snprintf(known + n, sizeof known - n, ", %s", classes[i]->name);
	}
	return ig_fail(err, -ENOTSUP, "driver \"%s\" is unknown; known: %s", name, known);
}

void ig_driver_close(struct ig_driver *d)
{
	if (d)
		d->class->close(d);
}

const char *ig_driver_describe(const struct ig_driver *d)
{
	return d->class->describe(d);
}

int ig_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
		    const struct ig_program_limits *limits, struct ig_program **out,
		    struct ig_program_memory *memory, struct ig_error *err)
{
	*out = NULL;
	if (!limits->max_rows || !limits->max_seqs || !limits->max_logit_rows || !limits->max_context)
		return ig_fail(err, -EINVAL, "a program's limits must not be zero");
	return d->class->lower(d, plan, limits, out, memory, err);
}

int ig_program_load(struct ig_program *p, struct ig_error *err)
{
	int rc = p->loaded ? ig_fail(err, -EALREADY, "the program is loaded") : p->class->load(p, err);
	if (!rc)
		p->loaded = 1;
	return rc;
}

void ig_program_destroy(struct ig_program *p)
{
	if (p)
		p->class->destroy(p);
}

/* Indices that a kernel follows without looking: check them once, here. */
static int check_step(const struct ig_program *p, const struct ig_step *s)
{
	const struct ig_program_limits *l = &p->limits;

	if (s->struct_size != sizeof *s || s->n_rows < 1 || (uint32_t)s->n_rows > l->max_rows ||
	    s->n_seqs < 1 || (uint32_t)s->n_seqs > l->max_seqs || s->n_logit_rows < 0 ||
	    (uint32_t)s->n_logit_rows > l->max_logit_rows || s->n_logit_rows > s->n_rows)
		return -EINVAL;
	for (int32_t r = 0; r < s->n_rows; r++)
		if (s->row_seq[r] < 0 || s->row_seq[r] >= s->n_seqs || s->positions[r] < 0 ||
		    s->positions[r] >= s->seq_lens[s->row_seq[r]])
			return -EINVAL;
	for (int32_t i = 0; i < s->n_seqs; i++) {
		if (s->seq_lens[i] < 1 || (uint32_t)s->seq_lens[i] > l->max_context)
			return -EINVAL;
		for (uint32_t g = 0; g < s->n_groups; g++)
			if ((s->seq_lens[i] - 1) / IG_BLOCK_TOKENS >= s->kv[g].max_blocks)
				return -EINVAL;
	}
	for (int32_t i = 0; i < s->n_logit_rows; i++)
		if (s->logit_rows[i] < 0 || s->logit_rows[i] >= s->n_rows)
			return -EINVAL;
	return 0;
}

int ig_program_submit(struct ig_program *p, const struct ig_step *step)
{
	if (!p->loaded)
		return -EINVAL;
	if (p->in_flight) {
		int rc = p->strict ? -EBUSY : ig_program_wait(p);
		if (rc)
			return rc;
	}
	int rc = check_step(p, step);
	if (!rc)
		rc = p->class->submit(p, step);
	if (!rc)
		p->in_flight = step;
	return rc;
}

int ig_program_wait(struct ig_program *p)
{
	if (!p->in_flight)
		return p->strict ? -EINVAL : 0;
	int rc = p->class->wait(p);
	p->in_flight = NULL;
	return rc;
}

void *ig_driver_map_slab(void *driver, uint64_t slab_bytes)
{
	struct ig_driver *d = driver;
	return d->class->map_slab(d, slab_bytes);
}

void ig_driver_unmap_slab(void *driver, void *base, uint64_t slab_bytes)
{
	struct ig_driver *d = driver;
	d->class->unmap_slab(d, base, slab_bytes);
}
