/*
 * loop.c: the engine's thread, and the functions by which other threads reach it.
 *
 * The loop:  boundary -> build and submit step n+1 -> text of step n -> wait n+1
 *            -> process its token ids (append, ends, limits) -> boundary …
 * so that the device does not wait for detokenizing, stop strings and streams.  Sequences are
 * admitted, cancelled and preempted only at a boundary.  A stop string is found one step
 * late; the token that this step sampled for the sequence is discarded.  How requests come in and
 * are found by their numbers: queue.c.
 */
#include "daemon/engine/scheduler_private.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/prefix_report_private.h"
#include "daemon/engine/queue_private.h"
#include "daemon/engine/step_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A boundary frees cached blocks of a removed model for at most this time, TRIM_BLOCKS at a time. */
#define TRIM_NS 1000000
#define TRIM_BLOCKS 8

/* ---- completion -------------------------------------------------------------------------- */

/* How many sequences could be admitted at the next boundary. */
static uint32_t n_free(const struct ig_sched *sch)
{
	return sch->kv_blocked || sch->n_running > sch->b->max_seqs ?
		       0 :
		       sch->b->max_seqs - sch->n_running;
}

/* All text is in the stream: record the request and finish the stream.  The memory is
 * freed at once, or, if a step in flight includes it, after that step. */
static void complete(struct ig_sched *sch, struct ig_seq *s)
{
	struct ig_ledger_row row;

	s->result.n_output = ig_seq_n_output(s);
	ig_prefix_report_end(sch, s);
	ig_kv_disk_forget(sch, s);
	ig_sched_set_paused(sch, s, false);
	ig_sched_remove(sch, s);
	if (s->on_show) {
		TAILQ_REMOVE(&sch->show, s, show_link);
		s->on_show = false;
	}
	if (!s->n_flights)
		ig_sched_drop_kv(sch, s);
	if (s->admitted_ns && s->first_ns) {
		s->result.prefill_ns = s->first_ns - s->admitted_ns;
		s->result.decode_ns = s->last_ns - s->first_ns;
	}
	ig_seq_row(s, ig_now_ns(), &row);
	ig_backend_record(sch->b, &row);
	pthread_mutex_lock(&sch->lock);
	ig_sched_forget(sch, s);
	sch->n_free = n_free(sch); /* a reader that sees the end may submit the next at once */
	pthread_mutex_unlock(&sch->lock);
	ig_stream_finish(s->stream, &s->result);
	s->completed = true;
	sch->moved = true;
	sch->kv_freed = true; /* also if it only blocked waiting ones */
	if (!s->n_flights)
		ig_seq_destroy(s);
}

static void cancel_seq(struct ig_sched *sch, struct ig_seq *s, const char *reason)
{
	s->result.finish = IG_FINISH_CANCELLED;
	snprintf(s->result.cancel_reason, sizeof s->result.cancel_reason, "%s", reason);
	ig_seq_drop_text(s);
	complete(sch, s);
}

/* ---- text out ---------------------------------------------------------------------------- */

/* Write its text to the stream; s is freed when that was all. */
static void show_seq(struct ig_sched *sch, struct ig_seq *s)
{
	ig_seq_show(s);
	if (s->result.finish != IG_FINISH_NONE && ig_seq_is_shown(s)) {
		complete(sch, s);
		return;
	}
	if (s->result.finish != IG_FINISH_NONE && s->list != &sch->ended)
		ig_sched_end(sch, s, s->result.finish); /* a stop string, found now */
	ig_sched_set_paused(sch, s, s->stuck);
}

static void show_all(struct ig_sched *sch)
{
	struct ig_seq_list list = TAILQ_HEAD_INITIALIZER(list);
	struct ig_seq *s;

	/* show_seq may put a sequence on the list again; that waits for the next boundary */
	TAILQ_CONCAT(&list, &sch->show, show_link);
	while ((s = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, s, show_link);
		s->on_show = false;
		show_seq(sch, s);
	}
}

/* When the reader took something last, or the sequence was paused. */
static int64_t stalled_since(const struct ig_seq *s)
{
	int64_t taken_ns = ig_stream_last_take_ns(s->stream);

	return taken_ns < s->paused_ns ? s->paused_ns : taken_ns;
}

/* Sequences whose ring was full: resume those whose ring has space, cancel those whose client
 * was slow for too long. */
static void visit_paused(struct ig_sched *sch)
{
	int64_t now = sch->n_paused ? ig_now_ns() : 0;
	struct ig_seq *s, *next;

	for (s = TAILQ_FIRST(&sch->paused); s; s = next) {
		next = TAILQ_NEXT(s, paused_link);
		if (ig_seq_has_capacity(s)) {
			/* It runs again only below the limit of running sequences. */
			if (s->list != &sch->running || sch->n_running < sch->b->max_seqs)
				show_seq(sch, s);
			continue;
		}
		if (now - stalled_since(s) >= sch->now.slow_client_timeout_ns)
			cancel_seq(sch, s, "slow_client");
	}
}

static bool is_late(const struct ig_seq *s, int64_t now)
{
	return s->deadline_ns && now >= s->deadline_ns && s->result.finish == IG_FINISH_NONE;
}

static void note_deadline(struct ig_sched *sch, const struct ig_seq *s)
{
	if (s->deadline_ns && s->deadline_ns < sch->first_deadline_ns)
		sch->first_deadline_ns = s->deadline_ns;
}

/* End the sequences whose deadline is over. */
static void end_late_of(struct ig_sched *sch, struct ig_seq_list *list, int64_t now)
{
	struct ig_seq *s, *next;

	for (s = TAILQ_FIRST(list); s; s = next) {
		next = TAILQ_NEXT(s, link);
		if (is_late(s, now))
			ig_sched_fail(sch, s, -ETIME,
				      "the request's deadline passed after %d of at most %d tokens",
				      s->n_tokens - s->n_prompt, s->max_output);
		else
			note_deadline(sch, s);
	}
}

/* All are visited only when the first deadline is over. */
static void end_late(struct ig_sched *sch)
{
	int64_t now = sch->first_deadline_ns < INT64_MAX ? ig_now_ns() : 0;

	if (now < sch->first_deadline_ns)
		return;
	sch->first_deadline_ns = INT64_MAX;
	end_late_of(sch, &sch->waiting, now);
	end_late_of(sch, &sch->running, now);
}

/* When the first paused sequence reaches its timeout, or any its deadline; INT64_MAX: none will. */
static int64_t next_timeout(const struct ig_sched *sch)
{
	int64_t first = sch->first_deadline_ns;
	const struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->paused, paused_link) {
		int64_t end = stalled_since(s) + sch->now.slow_client_timeout_ns;
		if (end < first)
			first = end;
	}
	return first;
}

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
		if (m->n_groups && sch->b->kv->trim(sch->b->cache, m->kv_groups[0], TRIM_BLOCKS))
			return true;
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
static void make_change(struct ig_sched *sch, struct ig_change *c)
{
	if (c->remove && c->remove->in_rotation &&
	    (!ig_kv_disk_leave(sch, c->remove) || !trim(sch, c->remove))) {
		sch->kv_freed = true;
		sch->moved = true; /* continue at the next boundary */
		return;
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
static void reclaim(struct ig_sched *sch)
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

static void start_to_reclaim(struct ig_sched *sch, uint64_t n_bytes)
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

/* ---- a step's boundary ------------------------------------------------------------------- */

static void publish(struct ig_sched *sch, uint32_t n_arrived, uint32_t n_displaced)
{
	struct ig_sched_figures f = { .n_waiting = sch->n_waiting,
				      .n_running = sch->n_running,
				      .n_paused = sch->n_paused };
	struct ig_metrics *metrics = sch->b->metrics;

	sch->b->kv->stats(sch->b->cache, &f.kv);
	pthread_mutex_lock(&sch->lock);
	f.n_all = sch->figures.n_all;
	sch->figures = f;
	sch->n_inbox -= n_arrived;
	sch->n_displaced -= n_displaced;
	sch->n_free = n_free(sch);
	pthread_mutex_unlock(&sch->lock);
	ig_metrics_set(metrics, IG_GAUGE_REQUESTS_RUNNING, f.n_running);
	ig_metrics_set(metrics, IG_GAUGE_REQUESTS_WAITING, f.n_waiting);
	ig_metrics_set(metrics, IG_GAUGE_REQUESTS_PAUSED, f.n_paused);
	ig_metrics_set(metrics, IG_GAUGE_KV_COMMITTED_BYTES, (double)f.kv.committed_bytes);
	ig_metrics_set(metrics, IG_GAUGE_KV_USED_BYTES, (double)f.kv.used_bytes);
	ig_metrics_set(metrics, IG_GAUGE_KV_BLOCKS_USED, (double)f.kv.n_blocks_used);
	ig_metrics_set(metrics, IG_GAUGE_KV_CACHED_BYTES, (double)f.kv.cached_bytes);
	if (sch->b->disk) {
		struct ig_kv_files_stats disk;
		ig_kv_files_stats(sch->b->disk, &disk);
		ig_metrics_set(metrics, IG_GAUGE_KV_DISK_BYTES, (double)disk.n_bytes);
	}
}

/* Under the lock. */
static void cancel_all(struct ig_sched *sch)
{
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->all, all) {
		if (!s->cancel_wanted)
			snprintf(s->cancel_reason, sizeof s->cancel_reason, "shutdown");
		s->cancel_wanted = true;
		ig_sched_end_soon(sch, s);
	}
}

/* Under the lock: the sequences that other threads end. */
static struct ig_seq *take_ending(struct ig_sched *sch)
{
	struct ig_seq *s, *ending = NULL;

	while ((s = TAILQ_FIRST(&sch->to_end))) {
		TAILQ_REMOVE(&sch->to_end, s, to_end);
		s->on_end = false;
		s->is_cancelled = s->cancel_wanted;
		s->next_ending = ending;
		ending = s;
	}
	return ending;
}

/* Another client has its place in the queue, unless it has left it meanwhile. */
static void displace(struct ig_sched *sch, struct ig_seq *s)
{
	if (s->list != &sch->waiting || s->n_tokens > s->n_prompt)
		return;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_REFUSED, 1);
	ig_sched_fail(sch, s, -EAGAIN,
		      "the queue is full: %u requests wait, and this client has more of them than "
		      "others",
		      sch->n_waiting);
}

/* False: the engine must stop, and all sequences are cancelled. */
static bool boundary(struct ig_sched *sch)
{
	struct ig_change *change;
	struct ig_seq *s;
	struct ig_seq_list arrived = TAILQ_HEAD_INITIALIZER(arrived);
	struct ig_seq *ending;
	uint32_t n_arrived = 0, n_displaced;
	bool stopping, pressed;
	uint64_t n_pressed;

	pthread_mutex_lock(&sch->lock);
	sch->n_boundaries++;
	sch->events = false;
	change = sch->change;
	stopping = sch->stopping;
	pressed = sch->pressed;
	n_pressed = sch->n_pressed;
	sch->pressed = false;
	sch->now = sch->options;
	TAILQ_CONCAT(&arrived, &sch->inbox, link);
	if (stopping)
		cancel_all(sch);
	ending = take_ending(sch);
	n_displaced = sch->n_displaced;
	pthread_mutex_unlock(&sch->lock);

	sch->moved = false;
	if (change)
		make_change(sch, change);
	if (pressed)
		start_to_reclaim(sch, n_pressed);
	if (sch->to_free || sch->unmapped)
		reclaim(sch);
	while ((s = TAILQ_FIRST(&arrived))) {
		TAILQ_REMOVE(&arrived, s, link);
		ig_client_arrive(s);
		ig_sched_insert(sch, s, &sch->waiting);
		note_deadline(sch, s);
		if (TAILQ_FIRST(&s->client->waiting) == s)
			sch->kv_freed = true; /* others may have to give it blocks */
		n_arrived++;
	}
	while ((s = ending)) {
		ending = s->next_ending;
		if (s->is_cancelled)
			cancel_seq(sch, s, s->cancel_reason);
		else
			displace(sch, s);
	}
	visit_paused(sch);
	end_late(sch);
	ig_kv_disk_work(sch);
	ig_sched_admit(sch);
	publish(sch, n_arrived, n_displaced);
	return !stopping;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void sleep_until_event(struct ig_sched *sch)
{
	int64_t deadline = next_timeout(sch);

	pthread_mutex_lock(&sch->lock);
	while (!sch->events && (deadline == INT64_MAX || deadline > ig_now_ns()))
		ig_wait_until(&sch->wake, &sch->lock, deadline);
	pthread_mutex_unlock(&sch->lock);
}

static void *loop_main(void *arg)
{
	struct ig_sched *sch = arg;

	ig_name_thread("engine");
	while (boundary(sch)) {
		while (sch->n_flights < sch->b->max_flights && ig_sched_submit_step(sch))
			;
		show_all(sch);
		if (sch->n_flights)
			ig_sched_wait_step(sch);
		else if (TAILQ_EMPTY(&sch->show) && !sch->moved)
			sleep_until_event(sch);
	}
	while (sch->n_flights)
		ig_sched_wait_step(sch);
	ig_kv_disk_finish(sch);
	return NULL;
}

/* ---- life -------------------------------------------------------------------------------- */

static void read_options(struct ig_sched *sch, const struct ig_config *c)
{
	const char *how = c->scheduler.speculation;

	sch->options = (struct ig_sched_options){
		.prefill_chunk = ig_backend_chunk(sch->b, c),
		.prompt_share = c->scheduler.prompt_share * 0.01,
		.max_queue = c->scheduler.max_queue,
		.max_output_tokens = c->scheduler.max_output_tokens,
		.looks_up = !strcmp(how, "on") || !strcmp(how, "lookup"),
		.drafts = !strcmp(how, "on") || !strcmp(how, "draft"),
		.slow_client_timeout_ns = (int64_t)c->server.slow_client_timeout_ms * 1000000,
	};
}

int ig_sched_create(const struct ig_backend *b, const struct ig_config *config,
		    void (*device_lost)(void *ctx), void *ctx, struct ig_sched **out,
		    struct ig_error *err)
{
	struct ig_sched *sch = calloc(1, sizeof *sch);
	int rc;

	if (!sch)
		return ig_fail(err, -ENOMEM, "out of memory for the scheduler");
	rc = ig_lock_init(&sch->lock, &sch->wake);
	if (rc < 0) {
		free(sch);
		return ig_fail(err, rc, "the engine's lock can't be made: %s", strerror(-rc));
	}
	pthread_cond_init(&sch->changed, NULL);
	TAILQ_INIT(&sch->inbox);
	TAILQ_INIT(&sch->all);
	TAILQ_INIT(&sch->waiting);
	TAILQ_INIT(&sch->running);
	TAILQ_INIT(&sch->ended);
	TAILQ_INIT(&sch->show);
	TAILQ_INIT(&sch->rotation);
	TAILQ_INIT(&sch->paused);
	TAILQ_INIT(&sch->to_end);
	ig_client_list_init(&sch->clients, &sch->lock);
	sch->first_deadline_ns = INT64_MAX;
	ig_prompts_init(&sch->prompts, IG_PROMPTS_BYTES);
	sch->b = b;
	sch->device_lost = device_lost;
	sch->device_lost_ctx = ctx;
	read_options(sch, config);
	sch->n_free = b->max_seqs;
	sch->ahead = ig_grammar_matcher_create(NULL);
	sch->drafting = calloc(b->max_seqs, sizeof(struct ig_seq *));
	if (!sch->ahead || !sch->drafting) {
		ig_sched_destroy(sch);
		return ig_fail(err, -ENOMEM, "out of memory for the scheduler");
	}
	if (ig_kv_disk_init(&sch->disk, b) < 0) {
		ig_sched_destroy(sch);
		return ig_fail(err, -ENOMEM, "out of memory for kvcache.disk");
	}
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		sch->flights[i].seqs = calloc(b->max_seqs, sizeof *sch->flights[i].seqs);
		if (!sch->flights[i].seqs) {
			ig_sched_destroy(sch);
			return ig_fail(err, -ENOMEM, "out of memory for %u sequences", b->max_seqs);
		}
	}
	*out = sch;
	return 0;
}

int ig_sched_start(struct ig_sched *sch, struct ig_error *err)
{
	struct ig_kv_stats *kv = &sch->figures.kv;
	int rc;

	sch->b->kv->stats(sch->b->cache, kv);
	ig_metrics_set(sch->b->metrics, IG_GAUGE_KV_ARENA_BYTES, (double)kv->arena_bytes);
	rc = pthread_create(&sch->thread, NULL, loop_main, sch);
	if (rc)
		return ig_fail(err, -rc, "the engine's thread can't be started: %s", strerror(rc));
	sch->has_thread = true;
	return 0;
}

void ig_sched_wake_locked(struct ig_sched *sch)
{
	sch->events = true;
	pthread_cond_signal(&sch->wake);
}

void ig_sched_wake(void *sched)
{
	struct ig_sched *sch = sched;

	pthread_mutex_lock(&sch->lock);
	ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
}

void ig_sched_drain(struct ig_sched *sch)
{
	pthread_mutex_lock(&sch->lock);
	sch->draining = true;
	pthread_mutex_unlock(&sch->lock);
}

void ig_sched_stop(struct ig_sched *sch)
{
	if (!sch->has_thread)
		return;
	pthread_mutex_lock(&sch->lock);
	sch->stopping = true;
	ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
	pthread_join(sch->thread, NULL);
	sch->has_thread = false;
}

void ig_sched_destroy(struct ig_sched *sch)
{
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		free(sch->logits[i]);
		free(sch->flights[i].seqs);
	}
	free(sch->drafting);
	ig_prompts_finish(&sch->prompts);
	ig_grammar_matcher_destroy(sch->ahead);
	ig_kv_namer_destroy(sch->disk.namer);
	pthread_cond_destroy(&sch->changed);
	pthread_cond_destroy(&sch->wake);
	pthread_mutex_destroy(&sch->lock);
	free(sch);
}

/* ---- other threads ------------------------------------------------------------------------ */

void ig_sched_reload(struct ig_sched *sch, const struct ig_config *config)
{
	pthread_mutex_lock(&sch->lock);
	read_options(sch, config);
	ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
}

bool ig_sched_is_alive(struct ig_sched *sch)
{
	uint64_t pulse;
	bool alive;

	pthread_mutex_lock(&sch->lock);
	pulse = sch->n_boundaries + ig_driver_pulse(sch->b->driver);
	alive = pulse != sch->seen_pulse;
	sch->seen_pulse = pulse;
	ig_sched_wake_locked(sch);
	pthread_mutex_unlock(&sch->lock);
	return alive;
}

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

struct ig_sched_figures ig_sched_figures(struct ig_sched *sch)
{
	struct ig_sched_figures f;

	pthread_mutex_lock(&sch->lock);
	f = sch->figures;
	f.draining = sch->draining;
	pthread_mutex_unlock(&sch->lock);
	return f;
}
