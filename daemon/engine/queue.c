/*
 * queue.c: requests as other threads see them: in, cancelled, resumed, listed.  When the queue is
 * full, its places are shared like those of sequences that run: a client that has less of it than
 * another takes one from it (clients_private.h).
 */
#include "daemon/engine/queue_private.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

/* Under the lock. */
static struct ig_seq **place_of(struct ig_sched *sch, uint64_t number)
{
	struct ig_seq **at = &sch->numbered[number % IG_SEQ_TABLE];

	while (*at && (*at)->number != number)
		at = &(*at)->next_numbered;
	return at;
}

void ig_sched_forget(struct ig_sched *sch, struct ig_seq *s)
{
	TAILQ_REMOVE(&sch->all, s, all);
	*place_of(sch, s->number) = s->next_numbered;
	if (s->on_end)
		TAILQ_REMOVE(&sch->to_end, s, to_end);
	sch->figures.n_all--;
}

void ig_sched_end_soon(struct ig_sched *sch, struct ig_seq *s)
{
	if (!s->on_end)
		TAILQ_INSERT_TAIL(&sch->to_end, s, to_end);
	s->on_end = true;
}

/* Under the lock: whether s may wait, or run at once.  When the queue is full, the client that has
 * the most of it gives a place, its newest one that has the largest priority number and no output. */
static int find_place(struct ig_sched *sch, struct ig_seq *s, struct ig_error *err)
{
	/* Requests that the engine has not seen yet may run at once. */
	uint32_t n_waiting = sch->figures.n_waiting + sch->n_inbox;
	uint32_t most = sch->options.max_queue;
	const struct ig_client *giver;
	struct ig_seq *v, *last = NULL;

	n_waiting -= sch->n_displaced < n_waiting ? sch->n_displaced : n_waiting;
	if (n_waiting < most || n_waiting - most < sch->n_free)
		return 0;
	giver = ig_client_gives_queue(&sch->clients, s);
	for (v = giver ? TAILQ_LAST(&sch->all, ig_seq_list) : NULL; v;
	     v = TAILQ_PREV(v, ig_seq_list, all))
		if (v->client == giver && v->queued && v->priority >= s->priority &&
		    !atomic_load_explicit(&v->n_output, memory_order_relaxed) &&
		    (!last || v->priority > last->priority))
			last = v;
	if (!last)
		return ig_fail(err, -EAGAIN, "the queue is full: %u requests wait", n_waiting);
	ig_client_count_queued(last, false);
	sch->n_displaced++;
	ig_sched_end_soon(sch, last);
	return 0;
}

int ig_sched_submit(struct ig_sched *sch, const struct ig_gen_spec *spec, uint64_t *gen,
		    struct ig_error *err)
{
	struct ig_sched_options options;
	struct ig_seq *s = NULL;
	int rc;

	pthread_mutex_lock(&sch->lock);
	options = sch->options;
	pthread_mutex_unlock(&sch->lock);
	rc = ig_seq_create(spec, options.max_output_tokens, options.looks_up, &s, err);
	if (rc < 0)
		return rc;

	pthread_mutex_lock(&sch->lock);
	if (sch->draining) {
		rc = ig_fail(err, -ESHUTDOWN, "the server is shutting down");
	} else {
		ig_client_join(&sch->clients, s);
		rc = find_place(sch, s, err);
	}
	if (rc == 0) {
		ig_seq_adopt(s, spec);
		s->number = *gen = ++sch->last_number;
		s->next_numbered = sch->numbered[s->number % IG_SEQ_TABLE];
		sch->numbered[s->number % IG_SEQ_TABLE] = s;
		ig_client_count_queued(s, true);
		TAILQ_INSERT_TAIL(&sch->all, s, all);
		TAILQ_INSERT_TAIL(&sch->inbox, s, link);
		sch->figures.n_all++;
		sch->n_inbox++;
		ig_sched_wake_locked(sch);
	}
	pthread_mutex_unlock(&sch->lock);
	if (rc < 0)
		ig_seq_destroy(s);
	return rc;
}

void ig_sched_cancel(struct ig_sched *sch, uint64_t gen, const char *reason)
{
	struct ig_seq *s;

	pthread_mutex_lock(&sch->lock);
	s = *place_of(sch, gen);
	if (s && !s->cancel_wanted) {
		s->cancel_wanted = true;
		snprintf(s->cancel_reason, sizeof s->cancel_reason, "%s", reason);
		ig_sched_end_soon(sch, s);
		ig_sched_wake_locked(sch);
	}
	pthread_mutex_unlock(&sch->lock);
}

void ig_sched_resume(struct ig_sched *sch, uint64_t gen)
{
	struct ig_seq *s;

	pthread_mutex_lock(&sch->lock);
	s = *place_of(sch, gen);
	if (s && ig_seq_is_paused(s))
		ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
}

size_t ig_sched_list(struct ig_sched *sch, struct ig_gen_info *out, size_t cap)
{
	static const char *const states[] = { "waiting", "prefill", "decode", "paused" };
	int64_t now = ig_now_ns();
	struct ig_seq *s;
	size_t n = 0;

	pthread_mutex_lock(&sch->lock);
	TAILQ_FOREACH(s, &sch->all, all) {
		struct ig_gen_info *i;
		if (n++ >= cap)
			continue;
		i = &out[n - 1];
		*i = (struct ig_gen_info){
			.n_prompt = s->n_prompt,
			.n_prefilled = atomic_load_explicit(&s->n_prefilled, memory_order_relaxed),
			.n_output = atomic_load_explicit(&s->n_output, memory_order_relaxed),
			.n_drafted = atomic_load_explicit(&s->n_drafted, memory_order_relaxed),
			.n_accepted = atomic_load_explicit(&s->n_accepted, memory_order_relaxed),
			.priority = s->priority,
			.n_cached = ig_stream_n_cached(s->stream),
			.report = ig_stream_report(s->stream),
			.age_s = (double)(now - s->origin->received_ns) * 1e-9,
		};
		memcpy(i->id, s->id, sizeof i->id);
		memcpy(i->endpoint, s->origin->endpoint, sizeof i->endpoint);
		memcpy(i->client, s->origin->client, sizeof i->client);
		memcpy(i->key, s->origin->who.key, sizeof i->key);
		snprintf(i->model, sizeof i->model, "%s", s->shown->name);
		snprintf(i->state, sizeof i->state, "%s",
			 states[atomic_load_explicit(&s->state, memory_order_relaxed)]);
	}
	pthread_mutex_unlock(&sch->lock);
	return n;
}
