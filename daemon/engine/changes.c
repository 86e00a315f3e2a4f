/*
 * changes.c: what a boundary changes besides sequences: models are added to the rotation and removed
 * from it, with their groups of the cache, and idle cache is given back to a system short of memory.
 * Both take slices of time, so that streams go on.
 */
#include "daemon/engine/changes_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/queue_private.h"
#include "daemon/engine/standstill_private.h"

/* A boundary frees cached blocks of a removed model for at most this time, TRIM_BLOCKS at a time. */
#define TRIM_NS 1000000
#define TRIM_BLOCKS 8

/* ---- adding and removing models ----------------------------------------------------------- */

static void remove_groups(struct ig_sched *sch, struct ig_model *m)
{
	if (m->draft)
		remove_groups(sch, m->draft);
	while (m->n_groups_added)
		sch->b->kv->remove_group(sch->b->cache, m->kv_groups[--m->n_groups_added]);
}

static int add_groups(struct ig_sched *sch, struct ig_model *m, struct ig_error *err)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		int rc = sch->b->kv->add_group(sch->b->cache, &m->layouts[g],
					       m->plan->info.groups[g].window, &m->kv_groups[g],
					       err);

		if (rc < 0) {
			remove_groups(sch, m);
			return rc;
		}
		m->n_groups_added++;
	}
	int rc = m->draft ? add_groups(sch, m->draft, err) : 0;
	if (rc < 0)
		remove_groups(sch, m);
	return rc;
}

static void apply(struct ig_sched *sch, struct ig_change *c)
{
	if (c->remove && c->remove->in_rotation) {
		TAILQ_REMOVE(&sch->rotation, c->remove, rotation);
		c->remove->in_rotation = false;
		remove_groups(sch, c->remove);
		sch->kv_freed = true;
	}
	if (c->add) {
		c->rc = add_groups(sch, c->add, &c->err);
		if (c->rc < 0)
			return;
		TAILQ_INSERT_TAIL(&sch->rotation, c->add, rotation);
		c->add->in_rotation = true;
	}
	for (uint32_t i = 0; c->swaps_logits && i < IG_STEPS_IN_FLIGHT; i++) {
		float *now = sch->logits[i];
		sch->logits[i] = c->logits[i];
		c->logits[i] = now;
	}
}

/* Evict some cached blocks of a model, or of its draft model.  False: there are none. */
static bool trim_some(struct ig_sched *sch, const struct ig_model *m)
{
	for (; m; m = m->draft)
		if (m->n_groups && sch->b->kv->trim(sch->b->cache, m->kv_groups[0], TRIM_BLOCKS)) {
			ig_sched_note_move(sch);
			return true;
		}
	return false;
}

/* Returning a model's cached blocks to the system can take a second: it is done in slices, one
 * at each boundary.  True: nothing is left. */
static bool trim(struct ig_sched *sch, const struct ig_model *m)
{
	int64_t end = ig_now_ns() + TRIM_NS;

	while (trim_some(sch, m))
		if (ig_now_ns() >= end)
			return false;
	return true;
}

/* A change that swaps the copies of logits waits until no step is in flight, and no new one
 * starts before. */
void ig_sched_make_change(struct ig_sched *sch, struct ig_change *c)
{
	if (c->remove && c->remove->in_rotation) {
		if (!ig_kv_disk_leave(sch, c->remove))
			return; /* when something has been saved, or it was long enough */
		if (!trim(sch, c->remove)) {
			sch->kv_freed = true;
			sch->moved = true; /* continue at the next boundary */
			return;
		}
	}
	sch->holds_back = c->swaps_logits && sch->n_flights;
	if (sch->holds_back)
		return;
	apply(sch, c);
	pthread_mutex_lock(&sch->lock);
	sch->change = NULL;
	c->done = true;
	pthread_cond_broadcast(&sch->changed);
	pthread_mutex_unlock(&sch->lock);
}

/* ---- memory pressure ---------------------------------------------------------------------- */

/* Evict idle blocks until to_free bytes of slabs are unmapped, or for a short time: those of models
 * that nobody uses first.  False: no idle block is left. */
static bool evict_idle(struct ig_sched *sch, uint64_t committed)
{
	int64_t end = ig_now_ns() + TRIM_NS;
	struct ig_kv_stats kv = { .committed_bytes = committed };

	for (int in_use = 0; in_use < 2; in_use++) {
		const struct ig_model *m;
		TAILQ_FOREACH(m, &sch->rotation, rotation) {
			if ((atomic_load(&m->n_active) > 0) != in_use)
				continue;
			while (trim_some(sch, m)) {
				sch->b->kv->stats(sch->b->cache, &kv);
				if (committed - kv.committed_bytes >= sch->to_free ||
				    ig_now_ns() >= end)
					return true;
			}
		}
	}
	return false;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* The system is short of memory: free first what the driver keeps, then, a slice at each boundary,
 * idle blocks of the cache; the rest is up to the loader, which unloads idle models. */
void ig_sched_free_idle(struct ig_sched *sch)
{
	struct ig_kv_stats before, after;
	bool any_left = true;

	sch->b->kv->stats(sch->b->cache, &before);
	if (sch->to_free) {
		any_left = evict_idle(sch, before.committed_bytes);
		sch->kv_freed = true;
	}
	sch->b->kv->stats(sch->b->cache, &after);
	uint64_t n = before.committed_bytes - after.committed_bytes;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_RECLAIMED_BYTES, n);
	sch->to_free = less(sch->to_free, n);
	sch->unmapped += n;
	/* What a step in flight may use is freed after it. */
	n = ig_driver_release(sch->b->driver, sch->unmapped);
	sch->unmapped = sch->n_flights ? less(sch->unmapped, n) : 0;
	if (sch->to_free && any_left) {
		sch->moved = true; /* continue at the next boundary */
	} else if (sch->to_free) {
		if (sch->on_short)
			sch->on_short(sch->short_ctx, sch->to_free);
		sch->to_free = 0;
	}
}

void ig_sched_start_to_free(struct ig_sched *sch, uint64_t n_bytes)
{
	sch->to_free = n_bytes;
	if (!n_bytes) {
		if (sch->on_short)
			sch->on_short(sch->short_ctx, 0);
		return;
	}
	ig_log_warn("the system is short of memory: freeing %.1f MiB of idle cache and models",
		    (double)n_bytes / (1 << 20));
	ig_metrics_add(sch->b->metrics, IG_COUNTER_MEMORY_PRESSURE, 1);
	uint64_t n = ig_driver_release(sch->b->driver, n_bytes);
	ig_metrics_add(sch->b->metrics, IG_COUNTER_RECLAIMED_BYTES, n);
	sch->to_free = less(n_bytes, n);
}

/* ---- other threads ------------------------------------------------------------------------ */

void ig_sched_change(void *sched, struct ig_change *c)
{
	struct ig_sched *sch = sched;

	if (!sch->has_thread) {
		apply(sch, c);
		return;
	}
	pthread_mutex_lock(&sch->lock);
	sch->change = c;
	ig_sched_wake_locked(sch);
	while (!c->done)
		pthread_cond_wait(&sch->changed, &sch->lock);
	pthread_mutex_unlock(&sch->lock);
}

void ig_sched_on_short(struct ig_sched *sch, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	sch->on_short = fn;
	sch->short_ctx = ctx;
}

void ig_sched_reclaim(void *sched, uint64_t n_bytes)
{
	struct ig_sched *sch = sched;

	pthread_mutex_lock(&sch->lock);
	sch->pressed = true;
	sch->n_pressed = n_bytes;
	ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
}
