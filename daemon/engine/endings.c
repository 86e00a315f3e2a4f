/*
 * endings.c: the ends of sequences, and their text on the way to the streams: those that are
 * complete, cancelled, too late, or whose client reads too slowly.
 */
#include "daemon/engine/endings_private.h"

#include "base/clock.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/prefix_report_private.h"
#include "daemon/engine/queue_private.h"
#include "daemon/engine/standstill_private.h"

#include <errno.h>
#include <stdio.h>

/* ---- completion -------------------------------------------------------------------------- */

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
	sch->n_free =
		ig_sched_n_free(sch); /* a reader that sees the end may submit the next at once */
	pthread_mutex_unlock(&sch->lock);
	ig_stream_finish(s->stream, &s->result);
	s->completed = true;
	ig_sched_note_move(sch);
	sch->moved = true;
	sch->kv_freed = true; /* also if it only blocked waiting ones */
	if (!s->n_flights)
		ig_seq_destroy(s);
}

void ig_sched_end_cancelled(struct ig_sched *sch, struct ig_seq *s, const char *reason)
{
	s->result.finish = IG_FINISH_CANCELLED;
	snprintf(s->result.cancel_reason, sizeof s->result.cancel_reason, "%s", reason);
	ig_seq_drop_text(s);
	complete(sch, s);
}

/* ---- text out ---------------------------------------------------------------------------- */

/* Whether s has a place, if it was paused: one is free, or somebody gives it one. */
static bool has_place(struct ig_sched *sch, const struct ig_seq *s)
{
	return !ig_seq_is_paused(s) || s->list != &sch->running ||
	       sch->n_running < sch->b->max_seqs || ig_sched_take_place(sch, s);
}

/* Write its text to the stream; s is freed when that was all.  One that was paused goes on when it has a place. */
static void show_seq(struct ig_sched *sch, struct ig_seq *s)
{
	uint64_t text_at = s->text_at;

	ig_seq_show(s);
	if (s->text_at != text_at)
		ig_sched_note_move(sch);
	if (s->result.finish != IG_FINISH_NONE && ig_seq_is_shown(s)) {
		complete(sch, s);
		return;
	}
	if (s->result.finish != IG_FINISH_NONE && s->list != &sch->ended)
		ig_sched_end(sch, s, s->result.finish); /* a stop string, found now */
	ig_sched_set_paused(sch, s, s->stuck || !has_place(sch, s));
}

void ig_sched_show_all(struct ig_sched *sch)
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

/* Sequences whose ring was full: those whose ring has space get more of their text, and go on when that was
 * all; those whose client was slow for too long are cancelled. */
void ig_sched_visit_paused(struct ig_sched *sch)
{
	int64_t now = sch->n_paused ? ig_now_ns() : 0;
	struct ig_seq *s, *next;

	for (s = TAILQ_FIRST(&sch->paused); s; s = next) {
		next = TAILQ_NEXT(s, paused_link);
		if (ig_seq_has_capacity(s))
			show_seq(sch, s);
		else if (now - stalled_since(s) >= sch->now.slow_client_timeout_ns)
			ig_sched_end_cancelled(sch, s, "slow_client");
	}
}

static bool is_late(const struct ig_seq *s, int64_t now)
{
	return s->deadline_ns && now >= s->deadline_ns && s->result.finish == IG_FINISH_NONE;
}

void ig_sched_note_deadline(struct ig_sched *sch, const struct ig_seq *s)
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
			ig_sched_note_deadline(sch, s);
	}
}

/* All are visited only when the first deadline is over. */
void ig_sched_end_late(struct ig_sched *sch)
{
	int64_t now = sch->first_deadline_ns < INT64_MAX ? ig_now_ns() : 0;

	if (now < sch->first_deadline_ns)
		return;
	sch->first_deadline_ns = INT64_MAX;
	end_late_of(sch, &sch->waiting, now);
	end_late_of(sch, &sch->running, now);
}

/* When the first paused sequence reaches its timeout, or any its deadline; INT64_MAX: none will. */
int64_t ig_sched_next_timeout(const struct ig_sched *sch)
{
	int64_t first = sch->first_deadline_ns, leave = sch->disk.leave_ns;
	const struct ig_seq *s;

	if (leave && leave < first)
		first = leave;

	TAILQ_FOREACH(s, &sch->paused, paused_link) {
		int64_t end = stalled_since(s) + sch->now.slow_client_timeout_ns;
		if (s->stuck && end < first) /* others wait for a place */
			first = end;
	}
	return first;
}
