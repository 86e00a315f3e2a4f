/*
 * machines.c: see machines.h.  A step is cut into parts by rows (wire.h).  While a rank computes a part the one before
 * computes the next part.  All that workers must do goes to them as commands, in the order in which the engine and the
 * loader ask for it; a worker that loads a model computes no step meanwhile.
 */
#include "runtime/machines/machines.h"
#include "base/array.h"
#include "base/clock.h"
#include "model/formats/checkpoint.h"
#include "runtime/driver_private.h"
#include "runtime/machines/part.h"
#include "runtime/machines/parts.h"
#include "runtime/stages.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 1000u

struct known {
	const char *base;
	uint64_t n_bytes;
	uint32_t slab;
};

struct machines {
	struct ig_driver base; /* first */
	struct ig_driver_class class;
	struct ig_driver *own;
	struct ig_link *link;
	uint32_t n, strict;
	char text[200];
	pthread_mutex_t lock; /* of taken */
	bool taken[IG_WIRE_MAX_PROGRAMS];
	/* The engine's thread: */
	struct ig_part_slabs slabs;
	struct known *known; /* [n_known], sorted by address */
	uint32_t n_known, cap_known;
};

struct program {
	struct ig_program base; /* first */
	struct machines *driver;
	struct ig_part *part;
	struct ig_parts parts; /* of its steps */
	uint32_t number, next;
};

/* ---- messages ---------------------------------------------------------------------------- */

static int send_all(struct machines *t, uint32_t kind, const void *data, size_t n_bytes,
		    struct ig_error *err)
{
	int rc = 0;

	for (uint32_t r = 1; r < t->n && !rc; r++) {
		struct ig_message *m = ig_message_create(kind, n_bytes);
		if (m && n_bytes)
			memcpy(m->data, data, n_bytes);
		rc = ig_link_send(t->link, r, IG_CHANNEL_COMMANDS, m, err);
	}
	return rc;
}

/* The next message; the ranks may take their time as long as they are heard. */
static int next(struct machines *t, enum ig_channel channel, struct ig_message **m,
		struct ig_error *err)
{
	int rc;

	while ((rc = ig_link_receive(t->link, channel, WAIT_MS, m, err)) == -ETIMEDOUT)
		atomic_fetch_add_explicit(&t->base.pulse, 1, memory_order_relaxed);
	return rc;
}

/* A failure after which the ranks do not agree on what is done. */
static int give_up(struct machines *t, uint32_t rank, const char *why, struct ig_error *err)
{
	ig_link_fail(t->link, "rank %u: %.400s", rank, why);
	return ig_fail(err, -ENODEV, "rank %u: %.400s", rank, why);
}

/* ---- the driver's memory ------------------------------------------------------------------- */

static void close_machines(struct ig_driver *base)
{
	struct machines *t = (struct machines *)base;

	send_all(t, IG_WIRE_END, NULL, 0, NULL);
	ig_part_unmap_all(&t->slabs);
	ig_link_close(t->link);
	if (t->own)
		ig_driver_close(t->own);
	pthread_mutex_destroy(&t->lock);
	free(t->known);
	free(t);
}

static const char *describe(const struct ig_driver *d)
{
	return ((const struct machines *)d)->text;
}

static uint64_t memory_of(const struct ig_driver *d)
{
	return ig_driver_memory(((const struct machines *)d)->own);
}

static bool is_unified(const struct ig_driver *d)
{
	return ig_driver_is_unified(((const struct machines *)d)->own);
}

static uint64_t release(struct ig_driver *d, uint64_t n_bytes)
{
	return ig_driver_release(((struct machines *)d)->own, n_bytes);
}

static void watch_memory(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	ig_driver_watch_memory(((struct machines *)d)->own, fn, ctx);
}

/* ---- slabs --------------------------------------------------------------------------------- */

/* Index of the first slab with a higher address. */
static uint32_t after(const struct machines *t, const void *at)
{
	uint32_t first = 0, last = t->n_known;

	while (first < last) {
		const uint32_t middle = first + (last - first) / 2;
		if ((uintptr_t)t->known[middle].base <= (uintptr_t)at)
			first = middle + 1;
		else
			last = middle;
	}
	return first;
}

/* The slab with this address in it, or NULL. */
static const struct known *find(const struct machines *t, const void *at)
{
	const uint32_t i = after(t, at);

	if (!i || (uintptr_t)at - (uintptr_t)t->known[i - 1].base >= t->known[i - 1].n_bytes)
		return NULL;
	return &t->known[i - 1];
}

static uint32_t slab_of(void *ctx, const void *base)
{
	const struct known *k = find(ctx, base);

	return k ? k->slab : UINT32_MAX;
}

/* A failure of the link is found by the next step. */
static void *map_slab(struct ig_driver *base, uint64_t n_bytes)
{
	struct machines *t = (struct machines *)base;
	struct ig_wire_slab_bytes s = { .n_bytes = n_bytes };

	while (s.slab < t->slabs.cap && t->slabs.at[s.slab].base)
		s.slab++;
	if (!ig_array_grow(t->known, &t->cap_known, t->n_known) ||
	    ig_part_map(&t->slabs, s.slab, n_bytes, NULL))
		return NULL;
	void *at = t->slabs.at[s.slab].base;
	const uint32_t i = after(t, at);
	memmove(t->known + i + 1, t->known + i, (t->n_known - i) * sizeof *t->known);
	t->known[i] = (struct known){ at, n_bytes, s.slab };
	t->n_known++;
	send_all(t, IG_WIRE_MAP, &s, sizeof s, NULL);
	return at;
}

static void unmap_slab(struct ig_driver *base, void *at, uint64_t n_bytes)
{
	struct machines *t = (struct machines *)base;
	const struct known *k = find(t, at);

	if (!k || k->base != at)
		return;
	const struct ig_wire_slab_bytes s = { .slab = k->slab, .n_bytes = n_bytes };
	const uint32_t i = (uint32_t)(k - t->known);
	ig_part_unmap(&t->slabs, s.slab, NULL);
	t->n_known--;
	memmove(t->known + i, t->known + i + 1, (t->n_known - i) * sizeof *t->known);
	send_all(t, IG_WIRE_UNMAP, &s, sizeof s, NULL);
}

static void copy(struct ig_driver *base, void *dst, const void *src, uint64_t n_bytes)
{
	struct machines *t = (struct machines *)base;
	const struct known *to = find(t, dst), *from = find(t, src);

	if (!to || !from)
		return;
	const struct ig_wire_copy c = { to->slab, from->slab,
					(uint64_t)((const char *)dst - to->base),
					(uint64_t)((const char *)src - from->base), n_bytes };
	if (!ig_part_copy(&t->slabs, &c, NULL))
		send_all(t, IG_WIRE_COPY, &c, sizeof c, NULL);
}

static int no_blocks(struct ig_error *err)
{
	return ig_fail(err, -ENOTSUP, "blocks that are divided over machines can't be copied");
}

static int read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n,
		     struct ig_error *err)
{
	return no_blocks(err);
}

static int write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n,
		      struct ig_error *err)
{
	return no_blocks(err);
}

/* ---- programs ------------------------------------------------------------------------------ */

static int model_info(const struct ig_driver *d, const struct ig_plan *plan,
		      struct ig_model_info *out, struct ig_error *err)
{
	struct ig_plan *stage = NULL;
	int rc = ig_plan_cut(plan, ((const struct machines *)d)->n, 0, &stage, err);

	if (!rc)
		*out = stage->info;
	ig_plan_destroy(stage);
	return rc;
}

/* The answers of all ranks, of which the first error counts; memory: NULL, or [n] by rank. */
static int take_replies(struct machines *t, uint32_t program, struct ig_program_memory *memory,
			struct ig_error *err)
{
	int first = 0;

	for (uint32_t i = 1; i < t->n; i++) {
		struct ig_wire_reply r = { 0 };
		struct ig_message *m;
		int rc = next(t, IG_CHANNEL_REPLIES, &m, err);
		if (rc)
			return rc;
		const uint32_t rank = m->from;
		bool ok = m->kind == IG_WIRE_REPLY && m->n_bytes == sizeof r;
		if (ok)
			memcpy(&r, m->data, sizeof r);
		free(m);
		if (!ok || r.program != program || r.code > 0 || !memchr(r.text, 0, sizeof r.text))
			return give_up(t, rank, "an answer that is none", err);
		if (r.code && !first)
			first = ig_fail(err, r.code, "rank %u: %s", rank, r.text);
		if (memory)
			memory[rank] = r.memory;
	}
	return first;
}

static int take_number(struct machines *t, uint32_t *out, struct ig_error *err)
{
	uint32_t i = 0;

	pthread_mutex_lock(&t->lock);
	while (i < IG_WIRE_MAX_PROGRAMS && t->taken[i])
		i++;
	if (i < IG_WIRE_MAX_PROGRAMS)
		t->taken[i] = true;
	pthread_mutex_unlock(&t->lock);
	*out = i;
	return i < IG_WIRE_MAX_PROGRAMS ?
		       0 :
		       ig_fail(err, -ENOSPC, "more than %u models over several machines",
			       IG_WIRE_MAX_PROGRAMS);
}

static void destroy(struct ig_program *base)
{
	struct program *p = (struct program *)base;
	struct machines *t = p->driver;

	send_all(t, IG_WIRE_DESTROY, &p->number, sizeof p->number, NULL);
	ig_part_destroy(p->part);
	pthread_mutex_lock(&t->lock);
	t->taken[p->number] = false;
	pthread_mutex_unlock(&t->lock);
	free(p);
}

static int lower(struct ig_driver *d, const struct ig_plan *plan,
		 const struct ig_program_limits *limits, struct ig_program **out,
		 struct ig_program_memory *memory, struct ig_error *err)
{
	struct machines *t = (struct machines *)d;
	const char *path = ig_checkpoint_label(plan->file), *name = strrchr(path, '/');
	struct ig_wire_lower c = { .limits = *limits, .model = ig_wire_model(plan->file) };
	struct program *p = calloc(1, sizeof *p);
	int rc = p ? take_number(t, &c.program, err) :
		     ig_fail(err, -ENOMEM, "no memory for the lowered plan");

	if (rc) {
		free(p);
		return rc;
	}
	snprintf(c.name, sizeof c.name, "%s", name ? name + 1 : path);
	p->base.class = d->class;
	p->base.limits = *limits;
	p->base.strict = t->strict;
	p->driver = t;
	p->number = c.program;
	rc = ig_program_set_ranks(&p->base, t->n, err);
	if (!rc)
		rc = ig_part_lower(t->own, plan, t->n, 0, c.program, limits, NULL, NULL, &p->part,
				   &p->base.rank_memory[0], err);
	if (!rc)
		rc = send_all(t, IG_WIRE_LOWER, &c, sizeof c, err);
	if (!rc)
		rc = take_replies(t, c.program, p->base.rank_memory, err);
	if (rc) {
		ig_program_destroy(&p->base);
		return rc;
	}
	*memory = ig_program_most(&p->base);
	*out = &p->base;
	return 0;
}

static int load(struct ig_program *base, struct ig_error *err)
{
	struct program *p = (struct program *)base;
	struct ig_error why = { 0 };
	int rc = send_all(p->driver, IG_WIRE_LOAD, &p->number, sizeof p->number, err);
	int own = rc ? rc : ig_part_load(p->part, err); /* meanwhile the others load */

	if (!rc)
		rc = take_replies(p->driver, p->number, NULL, own ? &why : err);
	return own ? own : rc;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int submit(struct ig_program *base, const struct ig_step *step)
{
	return ig_wire_check(step, &base->error);
}

/* The results of the oldest part whose results have not come, at row *at of the step's logits. */
static int take_results(struct program *p, const struct ig_step *s, uint32_t number, int32_t *at)
{
	struct machines *t = p->driver;
	struct ig_error *err = &p->base.error;
	struct ig_wire_part h = { 0 };
	struct ig_wire_reply r;
	struct ig_message *m;
	int rc = next(t, IG_CHANNEL_RESULTS, &m, err);

	if (rc)
		return rc;
	const uint32_t rank = m->from;
	const size_t n_vocab = ig_part_program(p->part)->n_vocab;
	if (m->kind == IG_WIRE_FAILED && m->n_bytes == sizeof r) {
		memcpy(&r, m->data, sizeof r);
		r.text[sizeof r.text - 1] = 0;
		free(m);
		return give_up(t, rank, r.text, err);
	}
	if (m->n_bytes >= sizeof h)
		memcpy(&h, m->data, sizeof h);
	const size_t n_ids = ig_wire_n_ids(h.n_rows);
	const size_t n_floats = s->logits ? h.n_rows * n_vocab : 0;
	bool ok = m->kind == IG_WIRE_IDS && rank == t->n - 1 && h.program == p->number &&
		  h.number == number && h.n_rows <= (uint32_t)(s->n_logit_rows - *at) &&
		  h.n_cols == (s->logits ? n_vocab : 0) &&
		  m->n_bytes == sizeof h + (n_ids + n_floats) * sizeof(float);
	const int32_t *ids = (const void *)(m->data + sizeof h);
	for (uint32_t i = 0; ok && i < h.n_rows; i++)
		ok = ids[i] >= 0 && (size_t)ids[i] < n_vocab;
	if (ok && h.n_rows) {
		memcpy(s->sampled_ids + *at, ids, h.n_rows * sizeof *ids);
		if (s->logits)
			memcpy(s->logits + (size_t)*at * n_vocab, ids + n_ids,
			       n_floats * sizeof(float));
		*at += (int32_t)h.n_rows;
	}
	free(m);
	return ok ? 0 : give_up(t, rank, "results that are none", err);
}

/* Rows first … end - 1: what each rank is to do, then rank 0's own share of it. */
static int run_part(struct program *p, const struct ig_step *s, uint32_t first, uint32_t end)
{
	struct machines *t = p->driver;
	struct ig_error *err = &p->base.error;
	struct ig_message *rows = NULL;
	struct ig_message *m =
		ig_wire_write_step(ig_part_program(p->part), p->next, s, first, end, slab_of, t);
	int rc = m ? 0 : ig_fail(err, -ENOMEM, "no memory for a step's message");

	if (!rc)
		rc = send_all(t, IG_WIRE_STEP, m->data, (size_t)m->n_bytes, err);
	const int64_t began = ig_now_ns();
	if (!rc)
		rc = ig_part_run(p->part, &t->slabs, m, NULL, &rows, err);
	if (!rc)
		ig_parts_measure(&p->parts, end - first, (double)(ig_now_ns() - began));
	free(m);
	if (!rc)
		rc = ig_link_send(t->link, 1, IG_CHANNEL_ROWS, rows, err);
	p->next++;
	atomic_fetch_add_explicit(&t->base.pulse, 1, memory_order_relaxed);
	return rc && rc != -ENODEV ? give_up(t, 0, p->base.error.text, err) : rc;
}

static int wait_step(struct ig_program *base)
{
	struct program *p = (struct program *)base;
	const struct ig_step *s = base->in_flight[0];
	const uint32_t n_rows = (uint32_t)s->n_rows;
	const uint32_t rows = ig_parts_choose(&p->parts, n_rows, p->driver->n);
	const uint32_t number = p->next;
	uint32_t n_parts = 0;
	int32_t at = 0;
	int rc = 0;

	for (uint32_t first = 0; first < n_rows && !rc; n_parts++) {
		const uint32_t end = ig_wire_part_end(ig_part_program(p->part), s, first, rows);
		rc = run_part(p, s, first, end);
		first = end;
	}
	for (uint32_t i = 0; i < n_parts && !rc; i++)
		rc = take_results(p, s, number + i, &at);
	if (!rc && at != s->n_logit_rows)
		rc = give_up(p->driver, p->driver->n - 1, "too few results", &base->error);
	return rc;
}

/* ---- opening ------------------------------------------------------------------------------- */

static const struct ig_driver_class machines_class = {
	.name = "machines",
	.close = close_machines,
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
	.is_unified = is_unified,
	.watch_memory = watch_memory,
	.release = release,
	.model_info = model_info,
	.n_ranks = 2, /* set for each driver */
	.steps_in_flight = 1,
};

int ig_machines_open(struct ig_driver *own, struct ig_link *link, uint32_t strict,
		     struct ig_driver **out, struct ig_error *err)
{
	const uint32_t n = ig_link_n_ranks(link);
	struct machines *t = calloc(1, sizeof *t);
	int rc = t ? 0 : ig_fail(err, -ENOMEM, "no memory for the driver");

	*out = NULL;
	if (!rc && (n < 2 || ig_link_rank(link) != 0))
		rc = ig_fail(
			err, -EINVAL,
			"this is rank %u of %u: a model on several machines needs two ranks, of "
			"which the first is the daemon and the others are workers",
			ig_link_rank(link), n);
	if (rc) {
		free(t);
		ig_link_close(link);
		ig_driver_close(own);
		return rc;
	}
	t->class = machines_class;
	t->class.n_ranks = t->n = n;
	t->base.class = &t->class;
	t->own = own;
	t->slabs.driver = own;
	t->link = link;
	t->strict = strict;
	pthread_mutex_init(&t->lock, NULL);
	snprintf(t->text, sizeof t->text, "%u machines, rank 0: %.150s", n,
		 ig_driver_describe(own));
	*out = &t->base;
	return 0;
}
