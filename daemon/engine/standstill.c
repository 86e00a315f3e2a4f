/* standstill.c: see standstill_private.h. */
#include "daemon/engine/standstill_private.h"

#include "base/log.h"
#include "daemon/engine/scheduler_state_private.h"

#include <unistd.h>

#define PAUSE_US 1000
#define MOST_SHOWN 32 /* requests in the log */

void ig_sched_note_move(struct ig_sched *sch) { sch->n_moves++; }

static const char *what_it_waits_for(const struct ig_sched *sch, const struct ig_seq *s)
{
	if (s->list == &sch->ended)
		return "its client, who has text to read";
	if (ig_seq_is_paused(s))
		return s->stuck ? "its client, who reads slowly" : "a place";
	if (s->restore)
		return "blocks of kvcache.disk";
	if (s->list == &sch->waiting)
		return sch->kv_blocked ? "a place, while the cache has no free blocks" : "a place";
	if (s->held)
		return "requests that come first";
	return ig_seq_n_left(s) > 1 ? "a step with rows of its prompt" : "a step";
}

/* The engine's thread alone takes requests out of the list. */
static void say_what_waits(struct ig_sched *sch)
{
	const struct ig_seq *s;
	int n = 0;

	ig_log_warn(
		"the engine's loop went round %d times and moved nothing: %u requests wait, %u run, %u are "
		"paused, %u hold blocks; please report this",
		IG_STILL_TURNS, sch->n_waiting, sch->n_running, sch->n_paused, sch->n_holding);
	pthread_mutex_lock(&sch->lock);
	TAILQ_FOREACH(s, &sch->all, all) {
		if (!s->list || s->list == &sch->inbox || n++ == MOST_SHOWN)
			continue;
		ig_log_warn("request %s of %s, %d of %d tokens computed, waits for %s", s->id,
			    s->shown->name, s->n_done, s->n_tokens, what_it_waits_for(sch, s));
	}
	pthread_mutex_unlock(&sch->lock);
}

void ig_sched_watch_turn(struct ig_sched *sch, bool slept)
{
	if (slept || sch->n_moves != sch->seen_moves) {
		sch->seen_moves = sch->n_moves;
		sch->n_still = 0;
		return;
	}
	if (sch->n_still < IG_STILL_TURNS && ++sch->n_still < IG_STILL_TURNS)
		return;
	if (sch->n_still == IG_STILL_TURNS) {
		sch->n_still++;
		ig_metrics_add(sch->b->metrics, IG_COUNTER_STANDSTILLS, 1);
		say_what_waits(sch);
	}
	usleep(PAUSE_US);
}
