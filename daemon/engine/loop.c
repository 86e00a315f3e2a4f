/*
 * loop.c: the engine's thread, and the functions by which other threads reach it.
 *
 * The loop:  boundary -> build and submit step n+1 -> text of step n -> wait n+1
 *            -> process its token ids (append, ends, limits) -> boundary …
 * so that the device does not wait for detokenizing, stop strings and streams.  Sequences are
 * admitted, cancelled and preempted only at a boundary.  A stop string is found one step
 * late; the token that this step sampled for the sequence is discarded.  How requests come in and
 * are found by their numbers: queue.c; how they end: endings.c; models and memory: changes.c.
 */
#include "daemon/engine/scheduler_private.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/changes_private.h"
#include "daemon/engine/endings_private.h"
#include "daemon/engine/prefix_report_private.h"
#include "daemon/engine/queue_private.h"
#include "daemon/engine/standstill_private.h"
#include "daemon/engine/step_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	sch->n_free = ig_sched_n_free(sch);
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
		ig_sched_make_change(sch, change);
	if (pressed)
		ig_sched_start_to_free(sch, n_pressed);
	if (sch->to_free || sch->unmapped)
		ig_sched_free_idle(sch);
	while ((s = TAILQ_FIRST(&arrived))) {
		TAILQ_REMOVE(&arrived, s, link);
		ig_client_arrive(s);
		ig_sched_insert(sch, s, &sch->waiting);
		ig_sched_note_deadline(sch, s);
		if (TAILQ_FIRST(&s->client->waiting) == s)
			sch->kv_freed = true; /* others may have to give it blocks */
		ig_sched_note_move(sch);
		n_arrived++;
	}
	while ((s = ending)) {
		ending = s->next_ending;
		if (s->is_cancelled)
			ig_sched_end_cancelled(sch, s, s->cancel_reason);
		else
			displace(sch, s);
	}
	ig_sched_visit_paused(sch);
	ig_sched_end_late(sch);
	ig_kv_disk_work(sch);
	ig_sched_admit(sch);
	publish(sch, n_arrived, n_displaced);
	return !stopping;
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Whether it has slept at all. */
static bool sleep_until_event(struct ig_sched *sch)
{
	int64_t deadline = ig_sched_next_timeout(sch);
	bool slept = false;

	pthread_mutex_lock(&sch->lock);
	while (!sch->events && (deadline == INT64_MAX || deadline > ig_now_ns())) {
		ig_wait_until(&sch->wake, &sch->lock, deadline);
		slept = true;
	}
	pthread_mutex_unlock(&sch->lock);
	return slept;
}

bool ig_sched_turn(struct ig_sched *sch, bool *rests)
{
	if (!boundary(sch))
		return false;
	while (sch->n_flights < sch->b->max_flights && ig_sched_submit_step(sch))
		;
	ig_sched_show_all(sch);
	*rests = !sch->n_flights && TAILQ_EMPTY(&sch->show) && !sch->moved;
	if (sch->n_flights)
		ig_sched_wait_step(sch);
	return true;
}

static void *loop_main(void *arg)
{
	struct ig_sched *sch = arg;
	bool rests;

	ig_name_thread("engine");
	while (ig_sched_turn(sch, &rests))
		ig_sched_watch_turn(sch, rests && sleep_until_event(sch));
	while (sch->n_flights)
		ig_sched_wait_step(sch);
	ig_kv_disk_finish(sch);
	return NULL;
}

/* ---- life -------------------------------------------------------------------------------- */

static void read_options(struct ig_sched *sch, const struct ig_config *c)
{
	sch->options = (struct ig_sched_options){
		.prefill_chunk = ig_backend_chunk(sch->b, c),
		.prompt_share = c->scheduler.prompt_share * 0.01,
		.max_queue = c->scheduler.max_queue,
		.max_output_tokens = c->scheduler.max_output_tokens,
		.looks_up = ig_config_guesses_by(c, "lookup"),
		.drafts = ig_config_guesses_by(c, "draft"),
		.guesses = ig_config_guesses_by(c, "mtp"),
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

struct ig_sched_figures ig_sched_figures(struct ig_sched *sch)
{
	struct ig_sched_figures f;

	pthread_mutex_lock(&sch->lock);
	f = sch->figures;
	f.draining = sch->draining;
	pthread_mutex_unlock(&sch->lock);
	return f;
}
