/*
 * kv_disk.c: when computed blocks are saved (kv_save.c) and restored (kv_restore.c), and for how long at each
 * boundary; the ends of both.  See kv_disk_private.h.
 */
#include "daemon/engine/kv_job_private.h"

#include "base/clock.h"

#include <errno.h>
#include <unistd.h>

/* Parts of the time between two boundaries while sequences run, and the most at once while none does; a
 * block each is always done. */
#define SAVE_PART 50
#define RESTORE_PART 5
#define IDLE_NS ((int64_t)5 * 1000000)
#define LEAVE_NS ((int64_t)3 * 1000000000)
#define FINISH_NS ((int64_t)2 * 1000000000)

int ig_kv_disk_init(struct ig_kv_disk *d, const struct ig_backend *b)
{
	*d = (struct ig_kv_disk){ 0 };
	TAILQ_INIT(&d->saves);
	TAILQ_INIT(&d->restores);
	if (!b->disk)
		return 0;
	d->namer = ig_kv_namer_create();
	return d->namer ? 0 : -ENOMEM;
}

bool ig_kv_disk_keeps(const struct ig_sched *sch, const struct ig_model *m)
{
	return sch->disk.namer && sch->b->prefix_cache && !m->whole_texts;
}

void ig_kv_disk_work(struct ig_sched *sch)
{
	struct ig_kv_disk *d = &sch->disk;
	int64_t now, since;

	if (TAILQ_EMPTY(&d->saves) && TAILQ_EMPTY(&d->restores))
		return;
	now = ig_now_ns();
	since = now - d->worked_ns;
	bool busy = sch->n_running;
	ig_kv_disk_restore_until(sch, now + (busy ? since / RESTORE_PART : IDLE_NS));
	bool room = TAILQ_EMPTY(&d->saves) ||
		    ig_kv_disk_save_until(sch, ig_now_ns() + (busy ? since / SAVE_PART : IDLE_NS));
	d->worked_ns = ig_now_ns();
	/* What waits for the files' thread is woken by it. */
	if ((room && !TAILQ_EMPTY(&d->saves)) || ig_kv_disk_has_blocks(sch))
		sch->moved = true;
}

bool ig_kv_disk_give_back(struct ig_sched *sch)
{
	struct ig_kv_job *j;
	bool any = false;

	TAILQ_FOREACH(j, &sch->disk.saves, link) {
		any = any || j->kv;
		ig_kv_job_hold_nothing(sch, j);
	}
	while (!any && (j = TAILQ_LAST(&sch->disk.restores, ig_kv_job_list))) {
		ig_kv_disk_end_restore(sch, j);
		any = true;
	}
	return any;
}

bool ig_kv_disk_leave(struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_kv_disk *d = &sch->disk;
	struct ig_kv_job *j, *next;

	for (j = TAILQ_FIRST(&d->restores); j; j = next) {
		next = TAILQ_NEXT(j, link);
		if (j->model == m)
			ig_kv_disk_end_restore(sch, j);
	}
	if (!ig_kv_disk_has_saves(sch, m)) {
		d->leave_ns = 0;
		return true;
	}
	if (!d->leave_ns)
		d->leave_ns = ig_now_ns() + LEAVE_NS;
	if (ig_now_ns() < d->leave_ns)
		return false;
	d->leave_ns = 0;
	ig_kv_disk_drop_saves(sch, m);
	return true;
}

void ig_kv_disk_finish(struct ig_sched *sch)
{
	int64_t end = ig_now_ns() + FINISH_NS;
	struct ig_kv_job *j;

	while ((j = TAILQ_FIRST(&sch->disk.restores)))
		ig_kv_disk_end_restore(sch, j);
	while (!TAILQ_EMPTY(&sch->disk.saves) && ig_now_ns() < end)
		if (!ig_kv_disk_save_until(sch, end))
			usleep(1000);
	ig_kv_disk_drop_saves(sch, NULL);
	ig_kv_namer_destroy(sch->disk.namer);
	sch->disk.namer = NULL;
}
