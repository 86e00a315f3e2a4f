/*
 * scheduler.c: the engine's thread: which sequence computes what in which step.
 *
 * The loop:  boundary -> build and submit step n+1 -> text of step n -> wait n+1
 *            -> bookkeeping by id (append, ends, limits) -> boundary …
 * so that detokenizing, stop strings and streams cost the device nothing.  Only at a
 * boundary do sequences join, leave, are cancelled or preempted.  A stop string is
 * found one step late; what that step drew for the sequence is thrown away.
 *
 * Where a device computes by itself, step n+2 is built and submitted before n+1 was
 * waited for (max_flights is 2): its rows begin with tokens that n+1 is still to
 * draw, and what it draws for a sequence that ends with n+1 is thrown away as well.
 * Who is in a step under way keeps its blocks until that step has landed.  A step
 * never runs ahead where it would have to preempt, past a sequence's last token, or
 * for rows whose draw depends on the tokens so far (penalties, a grammar's mask).
 *
 * A step brings a copy of its logits only if one of its rows is to be told the log
 * probability of its token.  They are read as soon as the step has landed, while the
 * next one may be under way, so there are as many copies as steps at once.
 *
 * One step is of one model; models with work take turns.  A step has one row for
 * each sequence that decodes, then, oldest first, rows of prompts, up to
 * prefill_chunk each and max_batch_tokens in all.  Blocks for all tokens that are
 * known are taken when a sequence is admitted, of groups with a window as many as it
 * will ever have at once; when one needs another and there is none, the youngest that
 * holds blocks gives them all up and is read again later.  Since a sequence gives way to
 * older ones only, the oldest always gets on.
 */
#include "daemon/engine/sequence_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for so many tokens more is wanted before a sequence is let in, so that one
 * which was preempted does not come back only to be preempted by its next block. */
#define ADMIT_MARGIN IG_BLOCK_TOKENS
/* So long, and a portion more, a boundary may take for what a model leaves in the cache. */
#define TRIM_NS 1000000
#define TRIM_BLOCKS 8

static bool is_paused(const struct ig_seq *s)
{
	return atomic_load_explicit(&s->paused, memory_order_relaxed);
}

/* What it will have, and what will be done, when the steps under way have landed. */
static int32_t tokens_then(const struct ig_seq *s)
{
	return s->n_tokens + (s->n_flights && s->logit_index >= 0);
}

static int32_t done_then(const struct ig_seq *s)
{
	return s->n_done + (s->n_flights ? s->n_rows : 0);
}

static int32_t n_left(const struct ig_seq *s)
{
	return tokens_then(s) - done_then(s);
}

/* ---- lists ------------------------------------------------------------------------ */

static void list_remove(struct ig_engine *e, struct ig_seq *s)
{
	if (!s->list)
		return;
	TAILQ_REMOVE(s->list, s, link);
	if (s->list == &e->waiting)
		e->n_waiting--;
	if (s->list == &e->running)
		e->n_edits -= s->max_edits;
	if (s->list == &e->running && !is_paused(s))
		e->n_running--;
	s->list = NULL;
}

/* Into waiting, running or ended, by age. */
static void list_insert(struct ig_engine *e, struct ig_seq *s, struct ig_seq_list *list)
{
	struct ig_seq *at;

	list_remove(e, s);
	at = TAILQ_LAST(list, ig_seq_list);
	while (at && at->number > s->number)
		at = TAILQ_PREV(at, ig_seq_list, link);
	if (at)
		TAILQ_INSERT_AFTER(list, at, s, link);
	else
		TAILQ_INSERT_HEAD(list, s, link);
	s->list = list;
	if (list == &e->waiting)
		e->n_waiting++;
	if (list == &e->running)
		e->n_edits += s->max_edits;
	if (list == &e->running && !is_paused(s))
		e->n_running++;
}

static void show_later(struct ig_engine *e, struct ig_seq *s)
{
	if (s->on_show)
		return;
	TAILQ_INSERT_TAIL(&e->show, s, show_link);
	s->on_show = true;
}

static void note_state(struct ig_engine *e, struct ig_seq *s)
{
	int state = IG_SEQ_WAITING;

	if (is_paused(s))
		state = IG_SEQ_PAUSED;
	else if (s->list == &e->running || s->list == &e->ended)
		state = n_left(s) > 1 && s->n_tokens == s->n_prompt ? IG_SEQ_PREFILL :
								      IG_SEQ_DECODE;
	atomic_store_explicit(&s->state, state, memory_order_relaxed);
	atomic_store_explicit(&s->n_prefilled, s->n_done < s->n_prompt ? s->n_done : s->n_prompt,
			      memory_order_relaxed);
	atomic_store_explicit(&s->n_output, s->n_tokens - s->n_prompt, memory_order_relaxed);
}

static void set_paused(struct ig_engine *e, struct ig_seq *s, bool paused)
{
	int delta = paused ? 1 : -1;

	if (is_paused(s) == paused)
		return;
	atomic_store_explicit(&s->paused, paused, memory_order_relaxed);
	e->n_paused += (uint32_t)delta;
	if (s->list == &e->running)
		e->n_running -= (uint32_t)delta;
	if (paused)
		s->paused_ns = ig_now_ns();
	/* Paused: the reader may have made room just before it could see the flag, so look at the
	 * ring once more, under the lock's order, before sleeping.  Not any more: it can join a
	 * step, and if that was found after the steps were built, nobody else will say so. */
	e->moved = true;
	note_state(e, s);
}

/* ---- ends ---------------------------------------------------------------------------- */

static void drop_kv(struct ig_engine *e, struct ig_seq *s)
{
	if (!s->kv)
		return;
	e->kv->seq_destroy(s->kv);
	s->kv = NULL;
	e->n_holding--;
	e->kv_freed = true;
}

/* The end is known; its text may still have to be shown. */
static void end_seq(struct ig_engine *e, struct ig_seq *s, enum ig_finish finish)
{
	if (s->result.finish == IG_FINISH_NONE)
		s->result.finish = finish;
	if (!s->n_flights)
		drop_kv(e, s);
	list_insert(e, s, &e->ended);
	show_later(e, s);
	e->moved = true;
}

__attribute__((format(printf, 4, 5))) static void fail_seq(struct ig_engine *e, struct ig_seq *s,
							   int code, const char *fmt, ...)
{
	va_list ap;

	if (s->result.finish == IG_FINISH_NONE) {
		s->result.error.code = code;
		va_start(ap, fmt);
		vsnprintf(s->result.error.text, sizeof s->result.error.text, fmt, ap);
		va_end(ap);
		ig_log_error("request %s: %s", s->id, s->result.error.text);
	}
	end_seq(e, s, IG_FINISH_ERROR);
}

/* How many could join at the next boundary. */
static uint32_t n_slots(const struct ig_engine *e)
{
	return e->kv_blocked || e->n_running > e->max_seqs ? 0 : e->max_seqs - e->n_running;
}

/* Everything is in the stream: tell the ledger, the metrics and the reader.  The
 * memory goes at once, or, if a step still computes for it, after that step. */
static void complete(struct ig_engine *e, struct ig_seq *s)
{
	struct ig_ledger_row row;

	s->result.n_output = ig_seq_n_output(s);
	set_paused(e, s, false);
	list_remove(e, s);
	if (s->on_show) {
		TAILQ_REMOVE(&e->show, s, show_link);
		s->on_show = false;
	}
	if (!s->n_flights)
		drop_kv(e, s);
	ig_seq_row(s, ig_now_ns(), &row);
	ig_engine_note(e, &row);
	pthread_mutex_lock(&e->lock);
	TAILQ_REMOVE(&e->all, s, all);
	e->n_all--;
	e->n_slots = n_slots(e); /* who reads the end may submit the next at once */
	pthread_mutex_unlock(&e->lock);
	ig_stream_finish(s->stream, &s->result);
	s->completed = true;
	e->moved = true;
	e->kv_freed = true; /* also if it only stood in the way of others that wait */
	if (!s->n_flights)
		ig_seq_destroy(s);
}

static void cancel_seq(struct ig_engine *e, struct ig_seq *s, const char *reason)
{
	s->result.finish = IG_FINISH_CANCELLED;
	snprintf(s->result.cancel_reason, sizeof s->result.cancel_reason, "%s", reason);
	ig_seq_drop_text(s);
	complete(e, s);
}

/* ---- text out ------------------------------------------------------------------------ */

/* Pass on what the sequence has; it is gone afterwards if that was the end. */
static void show_seq(struct ig_engine *e, struct ig_seq *s)
{
	if (s->n_noted < s->n_prompt && s->list != &e->waiting) {
		/* tokens of output mean that all of the prompt was read, preempted or not */
		int32_t n = s->n_tokens > s->n_prompt || s->n_done > s->n_prompt ? s->n_prompt :
										   s->n_done;

		if (n > s->n_noted) {
			s->n_noted = n;
			ig_stream_set_prefill(s->stream, n, s->n_prompt, s->result.n_cached);
		}
	}
	ig_seq_show(s);
	if (s->result.finish != IG_FINISH_NONE && ig_seq_is_shown(s)) {
		complete(e, s);
		return;
	}
	if (s->result.finish != IG_FINISH_NONE && s->list != &e->ended)
		end_seq(e, s, s->result.finish); /* a stop string, found now */
	set_paused(e, s, s->stuck);
}

static void show_all(struct ig_engine *e)
{
	struct ig_seq_list list = TAILQ_HEAD_INITIALIZER(list);
	struct ig_seq *s;

	/* show_seq may put a sequence on the list again: take turns, do not spin */
	TAILQ_CONCAT(&list, &e->show, show_link);
	while ((s = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, s, show_link);
		s->on_show = false;
		show_seq(e, s);
	}
}

/* Those whose ring was full: is there room, or is their time up? */
static void visit_paused(struct ig_engine *e, struct ig_seq_list *list, int64_t now)
{
	struct ig_seq *s, *next;

	for (s = TAILQ_FIRST(list); s && e->n_paused; s = next) {
		int64_t since;

		next = TAILQ_NEXT(s, link);
		if (!is_paused(s))
			continue;
		if (ig_seq_has_room(s)) {
			/* Back among those that run only if a slot is free. */
			if (list != &e->running || e->n_running < e->max_seqs)
				show_seq(e, s);
			continue;
		}
		since = ig_stream_last_take_ns(s->stream);
		if (since < s->paused_ns)
			since = s->paused_ns;
		if (now - since >= e->now.slow_client_timeout_ns)
			cancel_seq(e, s, "slow_client");
	}
}

/* When the first of the paused sequences runs out of time; INT64_MAX: none. */
static int64_t paused_deadline(const struct ig_engine *e)
{
	const struct ig_seq_list *lists[] = { &e->waiting, &e->running, &e->ended };
	int64_t first = INT64_MAX;
	struct ig_seq *s;

	for (size_t i = 0; e->n_paused && i < 3; i++) {
		TAILQ_FOREACH(s, lists[i], link) {
			int64_t since = ig_stream_last_take_ns(s->stream);

			if (!is_paused(s))
				continue;
			if (since < s->paused_ns)
				since = s->paused_ns;
			if (since + e->now.slow_client_timeout_ns < first)
				first = since + e->now.slow_client_timeout_ns;
		}
	}
	return first;
}

/* ---- blocks ---------------------------------------------------------------------------- */

/* The most tokens that it will ever have in the cache. */
static uint32_t max_kv_tokens(const struct ig_seq *s)
{
	return (uint32_t)s->n_prompt + (uint32_t)s->max_output;
}

static void preempt(struct ig_engine *e, struct ig_seq *s)
{
	ig_log_debug("request %s: preempted with %d tokens", s->id, s->n_tokens);
	drop_kv(e, s);
	s->n_done = 0;
	list_insert(e, s, &e->waiting);
	note_state(e, s);
	e->moved = true;
	ig_metrics_add(e->metrics, IG_COUNTER_PREEMPTIONS, 1);
}

/* The youngest running sequence that is younger than s: of its own model if there
 * is one, for only their blocks are sure to be of use to it. */
static struct ig_seq *find_victim(struct ig_engine *e, const struct ig_seq *s)
{
	struct ig_seq *v, *other = NULL;

	TAILQ_FOREACH_REVERSE(v, &e->running, ig_seq_list, link)
	{
		if (v->number <= s->number)
			break;
		if (v->model == s->model)
			return v;
		if (!other)
			other = v;
	}
	return other;
}

static void no_room_alone(struct ig_engine *e, struct ig_seq *s)
{
	if (s->n_tokens > s->n_prompt)
		end_seq(e, s, IG_FINISH_LENGTH);
	else
		fail_seq(e, s, -ENOSPC,
			 "the cache has no room for the prompt's %d tokens, even with "
			 "nothing else in it",
			 s->n_prompt);
}

/* Blocks for all tokens that s will have, of groups with a window for *n rows more.  False:
 * s is in the running list no more, or somebody would have to be preempted while a step is
 * under way (wants_room).  Where s has the cache for itself and that is too small, *n
 * becomes smaller. */
static bool make_room(struct ig_engine *e, struct ig_seq *s, int32_t *n)
{
	while (e->kv->seq_reserve(s->kv, (uint32_t)tokens_then(s), (uint32_t)(done_then(s) + *n)) <
	       0) {
		struct ig_seq *v = find_victim(e, s);

		if (e->n_flights) {
			e->wants_room = true;
			return false;
		}
		if (e->kv->compact(e->cache))
			continue;
		if (v) {
			preempt(e, v);
		} else if (e->n_holding > 1) {
			preempt(e, s);
			return false;
		} else if (*n > 1) {
			*n /= 2;
		} else {
			no_room_alone(e, s);
			return false;
		}
	}
	return true;
}

/* Take a waiting sequence in.  False: no blocks now. */
static bool admit_seq(struct ig_engine *e, struct ig_seq *s)
{
	uint32_t most = max_kv_tokens(s), want = (uint32_t)s->n_tokens + 1 + ADMIT_MARGIN;
	uint64_t soon;
	int rc = e->kv->seq_create(e->cache, s->model->kv_groups, s->model->n_groups, most, 0,
				   &s->kv);

	if (rc < 0) {
		s->kv = NULL;
		fail_seq(e, s, rc, "out of memory for the block table of %u tokens", most);
		return true;
	}
	e->n_holding++;
	if (e->prefix_cache) {
		uint32_t n_cached;

		/* the last token is computed in any case: its logits are wanted */
		e->kv->seq_match(s->kv, s->tokens, (uint32_t)s->n_tokens - 1, &n_cached);
		s->n_done = (int32_t)n_cached;
		if (!s->admitted_ns)
			s->result.n_cached = s->n_done;
	}
	if (want > most)
		want = most;
	/* Of groups with a window, the most that it will have of them at once: from then on it
	 * lets go of as much as it takes. */
	soon = (uint64_t)s->n_done + s->model->window + e->now.prefill_chunk;
	rc = e->kv->seq_reserve(s->kv, want, soon < want ? (uint32_t)soon : want);
	if (rc < 0 && e->n_holding == 1) {
		/* nobody to wait for: what is there must do */
		rc = e->kv->seq_reserve(s->kv, (uint32_t)s->n_tokens, (uint32_t)s->n_done);
		if (rc < 0) {
			no_room_alone(e, s);
			return true;
		}
	}
	if (rc < 0) {
		e->kv->seq_destroy(s->kv);
		s->kv = NULL;
		s->n_done = 0;
		if (!s->admitted_ns)
			s->result.n_cached = 0;
		e->n_holding--;
		return false;
	}
	list_insert(e, s, &e->running);
	if (!s->admitted_ns)
		s->admitted_ns = ig_now_ns();
	note_state(e, s);
	show_later(e, s); /* the stream learns that it is not queued any more */
	return true;
}

static void admit(struct ig_engine *e)
{
	struct ig_seq *s, *next;

	if (e->kv_blocked && !e->kv_freed)
		return;
	e->kv_blocked = false;
	for (s = TAILQ_FIRST(&e->waiting); s && e->n_running < e->max_seqs; s = next) {
		next = TAILQ_NEXT(s, link);
		if (is_paused(s))
			continue;
		if (s->max_edits > IG_MAX_STEP_EDITS - e->n_edits || !admit_seq(e, s)) {
			/* the ones behind it wait too, or a long prompt would wait for ever */
			e->kv_blocked = true;
			break;
		}
	}
	e->kv_freed = false;
}

/* ---- a step's boundary ------------------------------------------------------------------- */

static void publish(struct ig_engine *e, uint32_t n_arrived)
{
	struct ig_kv_stats st = { 0 };
	uint32_t n_paused, n_running, n_waiting;

	e->kv->stats(e->cache, &st);
	pthread_mutex_lock(&e->lock);
	e->kv_stats = st;
	e->n_waiting_shown = n_waiting = e->n_waiting;
	e->n_running_shown = n_running = e->n_running;
	e->n_paused_shown = n_paused = e->n_paused;
	e->n_inbox -= n_arrived;
	e->n_slots = n_slots(e);
	pthread_mutex_unlock(&e->lock);
	ig_metrics_set(e->metrics, IG_GAUGE_REQUESTS_RUNNING, n_running);
	ig_metrics_set(e->metrics, IG_GAUGE_REQUESTS_WAITING, n_waiting);
	ig_metrics_set(e->metrics, IG_GAUGE_REQUESTS_PAUSED, n_paused);
	ig_metrics_set(e->metrics, IG_GAUGE_KV_COMMITTED_BYTES, (double)st.committed_bytes);
	ig_metrics_set(e->metrics, IG_GAUGE_KV_USED_BYTES, (double)st.used_bytes);
	ig_metrics_set(e->metrics, IG_GAUGE_KV_BLOCKS_USED, (double)st.n_blocks_used);
	ig_metrics_set(e->metrics, IG_GAUGE_KV_CACHED_BYTES, (double)st.cached_bytes);
}

/* ---- models that come and go ----------------------------------------------------------------- */

static void remove_groups(struct ig_engine *e, struct ig_model *m)
{
	while (m->n_groups_added)
		e->kv->remove_group(e->cache, m->kv_groups[--m->n_groups_added]);
}

static int add_groups(struct ig_engine *e, struct ig_model *m, struct ig_error *err)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		int rc = e->kv->add_group(e->cache, &m->layouts[g], m->plan->info.groups[g].window,
					  &m->kv_groups[g], err);

		if (rc < 0) {
			remove_groups(e, m);
			return rc;
		}
		m->n_groups_added++;
	}
	return 0;
}

void ig_scheduler_change(struct ig_engine *e, struct ig_change *c)
{
	if (c->remove && c->remove->takes_turns) {
		TAILQ_REMOVE(&e->turns, c->remove, turn);
		c->remove->takes_turns = false;
		remove_groups(e, c->remove);
		e->kv_freed = true;
	}
	if (c->add) {
		c->rc = add_groups(e, c->add, &c->err);
		if (c->rc < 0)
			return;
		TAILQ_INSERT_TAIL(&e->turns, c->add, turn);
		c->add->takes_turns = true;
	}
	for (uint32_t i = 0; c->swaps_logits && i < IG_STEPS_IN_FLIGHT; i++) {
		float *now = e->logits[i];

		e->logits[i] = c->logits[i];
		c->logits[i] = now;
	}
}

/* What a model leaves in the cache can take a second to be given back to the system:
 * that is done in portions, at one boundary after another.  True: nothing is left. */
static bool trim(struct ig_engine *e, const struct ig_model *m)
{
	int64_t end = ig_now_ns() + TRIM_NS;

	while (e->kv->trim(e->cache, m->kv_groups[0], TRIM_BLOCKS))
		if (ig_now_ns() >= end)
			return false;
	return true;
}

/* Copies of logits are not taken from under a step; until those under way have landed, no
 * other begins. */
static void make_change(struct ig_engine *e, struct ig_change *c)
{
	if (c->remove && c->remove->takes_turns && !trim(e, c->remove)) {
		e->kv_freed = true;
		e->moved = true; /* go on at the next boundary */
		return;
	}
	e->holds_back = c->swaps_logits && e->n_flights;
	if (e->holds_back)
		return;
	ig_scheduler_change(e, c);
	pthread_mutex_lock(&e->lock);
	e->change = NULL;
	c->done = true;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

/* False: the engine is to stop, and all sequences are gone. */
static bool boundary(struct ig_engine *e)
{
	struct ig_change *change;
	struct ig_seq *s, *cancelled = NULL;
	struct ig_seq_list arrived = TAILQ_HEAD_INITIALIZER(arrived);
	uint32_t n_arrived = 0;
	bool stopping;

	pthread_mutex_lock(&e->lock);
	e->events = false;
	change = e->change;
	stopping = e->stopping;
	e->now = e->options;
	TAILQ_CONCAT(&arrived, &e->inbox, link);
	if (e->cancels || stopping) {
		TAILQ_FOREACH(s, &e->all, all) {
			if (!s->cancel_wanted && !stopping)
				continue;
			if (!s->cancel_wanted)
				snprintf(s->cancel_reason, sizeof s->cancel_reason, "shutdown");
			s->next_cancelled = cancelled;
			cancelled = s;
		}
		e->cancels = false;
	}
	pthread_mutex_unlock(&e->lock);

	e->moved = false;
	if (change)
		make_change(e, change);
	while ((s = TAILQ_FIRST(&arrived))) {
		TAILQ_REMOVE(&arrived, s, link);
		list_insert(e, s, &e->waiting);
		n_arrived++;
	}
	while ((s = cancelled)) {
		cancelled = s->next_cancelled;
		cancel_seq(e, s, s->cancel_reason);
	}
	if (e->n_paused) {
		int64_t now = ig_now_ns();

		visit_paused(e, &e->running, now);
		visit_paused(e, &e->ended, now);
		visit_paused(e, &e->waiting, now);
	}
	admit(e);
	publish(e, n_arrived);
	return !stopping;
}

/* ---- a step ------------------------------------------------------------------------------- */

/* Whether s can be in the next step of m, whatever is still under way. */
static bool can_join(const struct ig_model *m, const struct ig_seq *s)
{
	if (s->model != m || is_paused(s) || n_left(s) < 1)
		return false;
	if (!s->n_flights || s->logit_index < 0)
		return true;
	/* Its next token is being drawn: is there one after it, that needs no look at it? */
	return s->n_tokens + 1 - s->n_prompt < s->max_output && !s->penalties && !s->matcher;
}

/* How the token at position is drawn from the row of logits i, and what else is wanted
 * of that. */
static void add_draw(struct ig_engine *e, struct ig_flight *f, struct ig_seq *s, int32_t i,
		     int32_t position)
{
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	struct ig_sample_params *p = &b->sample[i];

	*p = s->sample;
	p->position = position;
	p->first_edit = step->n_edits;
	if (p->n_edits)
		memcpy(b->edits + step->n_edits, s->edits, p->n_edits * sizeof *s->edits);
	step->n_edits += p->n_edits;
	if (s->matcher) {
		/* words beyond the tokenizer's tokens, if there are any, stay zero */
		p->mask = (int32_t)step->n_masks++;
		ig_grammar_matcher_mask(s->matcher,
					b->masks + (size_t)p->mask * f->model->mask_words);
	}
	if (s->n_top >= 0)
		step->logits = e->logits[e->n_submitted % e->max_flights];
}

static void add_rows(struct ig_engine *e, struct ig_flight *f, struct ig_seq *s, int32_t n)
{
	struct ig_model *m = f->model;
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	int32_t seq = step->n_seqs++;
	int32_t first = step->n_rows, done = done_then(s), n_tokens = tokens_then(s);
	uint32_t n_blocks = ((uint32_t)(done + n) + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	bool decodes = n == 1 && done + 1 == n_tokens && done >= s->n_prompt;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t n_have;
		const uint32_t *blocks = e->kv->seq_blocks(s->kv, g, &n_have);

		memcpy(b->block_tables[g] + (size_t)seq * m->max_blocks, blocks,
		       n_blocks * sizeof *blocks);
	}
	for (int32_t i = 0; i < n; i++) {
		bool known = done + i < s->n_tokens;

		b->token_ids[first + i] = known ? s->tokens[done + i] : 0;
		b->token_from[first + i] = known ? -1 : s->logit_index;
		if (!known) {
			step->token_from = b->token_from;
			step->prev_ids = e->flights[e->n_flights - 1].buffer->sampled_ids;
		}
		b->positions[first + i] = done + i;
		b->row_seq[first + i] = seq;
	}
	b->seq_lens[seq] = done + n;
	step->n_rows += n;
	s->n_rows = n;
	s->logit_index = -1;
	if (done + n == n_tokens && !s->prefill_only) {
		int32_t i = step->n_logit_rows++;

		b->logit_rows[i] = first + n - 1;
		add_draw(e, f, s, i, n_tokens);
		s->logit_index = i;
	}
	if (decodes)
		f->n_decode++;
	else
		f->n_prefill += (uint32_t)n;
	f->seqs[f->n_seqs++] = (struct ig_flight_seq){ s, n, s->logit_index };
	s->step = e->step;
}

/* Who is in the next step of m, with how many rows, and blocks for these: who would have to
 * go waits until nothing is under way.  False: then; or nobody has work. */
static bool plan_rows(struct ig_engine *e, struct ig_model *m)
{
	int32_t left = (int32_t)e->max_rows;
	uint32_t n_seqs = 0;
	struct ig_seq *s, *next;

	for (s = TAILQ_FIRST(&e->running); s && n_seqs < e->max_seqs; s = next) {
		int32_t n = 1;

		if (!can_join(m, s) || n_left(s) != 1) {
			next = TAILQ_NEXT(s, link);
			continue;
		}
		/* Victims are younger, so they come later in the list; if s itself had to
		 * go, nothing younger was left. */
		if (!make_room(e, s, &n))
			break;
		s->planned = e->step;
		s->n_planned = 1;
		n_seqs++;
		left--;
		next = TAILQ_NEXT(s, link);
	}
	/* A victim may have been planned: it is in the list no more. */
	for (s = TAILQ_FIRST(&e->running); s && !e->wants_room; s = next) {
		int32_t n = n_left(s);

		if (s->planned == e->step || !can_join(m, s)) {
			next = TAILQ_NEXT(s, link);
			continue;
		}
		if (n > (int32_t)e->now.prefill_chunk)
			n = (int32_t)e->now.prefill_chunk;
		if (n > left)
			n = left;
		if (n <= 0 || n_seqs == e->max_seqs || !make_room(e, s, &n))
			break;
		s->planned = e->step;
		s->n_planned = n;
		n_seqs++;
		left -= n;
		next = TAILQ_NEXT(s, link);
	}
	return !e->wants_room;
}

/* Fill in f for m.  Nothing of a sequence changes but its blocks, n_rows and
 * logit_index. */
static bool build_step(struct ig_engine *e, struct ig_model *m, struct ig_flight *f)
{
	struct ig_step *step = &m->steps[m->next_step].step;
	uint32_t n_slabs;
	struct ig_seq *s;

	e->step++;
	if (!plan_rows(e, m))
		return false;
	f->model = m;
	f->buffer = &m->steps[m->next_step];
	f->n_seqs = f->n_prefill = f->n_decode = 0;
	step->n_rows = step->n_seqs = step->n_logit_rows = 0;
	step->n_edits = step->n_masks = 0;
	step->logits = NULL;
	step->token_from = step->prev_ids = NULL;
	/* those that decode first */
	TAILQ_FOREACH(s, &e->running, link)
		if (s->planned == e->step && n_left(s) == 1)
			add_rows(e, f, s, 1);
	TAILQ_FOREACH(s, &e->running, link)
		if (s->planned == e->step && s->step != e->step)
			add_rows(e, f, s, s->n_planned);
	step->slab_bases = e->kv->slab_bases(e->cache, &n_slabs);
	return step->n_rows > 0;
}

/* One of the steps that computed for s is over. */
static void land(struct ig_engine *e, struct ig_seq *s)
{
	if (--s->n_flights)
		return;
	if (s->result.finish != IG_FINISH_NONE)
		drop_kv(e, s); /* its end was found while the step ran */
	if (s->completed)
		ig_seq_destroy(s);
}

/* All that f computes for end with the driver's error. */
static void fail_flight(struct ig_engine *e, struct ig_flight *f, const char *what, int rc)
{
	const char *text = ig_program_error(f->model->program)->text;

	if (rc == -ENODEV && e->device_lost) {
		ig_log_error("the device is lost: %s", text);
		e->device_lost(e->device_lost_ctx);
		e->device_lost = NULL;
	}

	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_seq *s = f->seqs[i].seq;
		bool over = s->result.finish != IG_FINISH_NONE;

		land(e, s);
		if (!over)
			fail_seq(e, s, rc, "the driver failed to %s a step: %s", what,
				 *text ? text : strerror(-rc));
	}
	f->n_seqs = 0;
}

/* A device that has no memory for a copy of f's logits computes without: whoever wanted
 * log probabilities fails, the others will be in the next step instead of this one. */
static void fail_probabilities(struct ig_engine *e, struct ig_flight *f)
{
	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_seq *s = f->seqs[i].seq;
		bool fails = s->n_top >= 0 && s->result.finish == IG_FINISH_NONE;

		land(e, s);
		if (fails)
			fail_seq(e, s, -ENOMEM, "the device has no memory for log probabilities");
	}
	f->n_seqs = 0; /* the step before it, if one is under way, lands before another is built */
}

/* Drop flight i from those under way; its arrays are used again. */
static void remove_flight(struct ig_engine *e, uint32_t i)
{
	struct ig_flight f = e->flights[i];

	e->n_flights--;
	for (; i < e->n_flights; i++)
		e->flights[i] = e->flights[i + 1];
	e->flights[e->n_flights] = f;
}

/* Submit one more step, of the next model in turn that has work. */
static bool submit_next(struct ig_engine *e)
{
	struct ig_flight *f = &e->flights[e->n_flights];
	struct ig_model *m, *next;

	if (!e->n_flights)
		e->wants_room = false;
	for (m = TAILQ_FIRST(&e->turns); m && !e->wants_room && !e->holds_back; m = next) {
		int rc;

		next = TAILQ_NEXT(m, turn);
		if (!build_step(e, m, f))
			continue;
		TAILQ_REMOVE(&e->turns, m, turn);
		TAILQ_INSERT_TAIL(&e->turns, m, turn);
		f->submit_ns = ig_now_ns();
		for (uint32_t k = 0; k < f->n_seqs; k++)
			f->seqs[k].seq->n_flights++;
		rc = ig_program_submit(m->program, &f->buffer->step);
		if (rc == -ENOMEM && f->buffer->step.logits) {
			fail_probabilities(e, f);
			return false;
		}
		if (rc < 0) {
			fail_flight(e, f, "begin", rc);
			return false;
		}
		m->next_step = (m->next_step + 1) % IG_STEPS_IN_FLIGHT;
		e->n_flights++;
		e->n_submitted++;
		return true;
	}
	return false;
}

/* The token that was drawn for s: time it, append it, judge it by its id and by what
 * the answer must be.  logits: its row of them, where they are wanted. */
static void take_token(struct ig_engine *e, struct ig_seq *s, int32_t id, const float *logits,
		       int64_t now)
{
	const struct ig_tokenizer *t = s->model->tokenizer;
	bool whole;

	if (id < 0 || id >= ig_tokenizer_n_vocab(t)) {
		fail_seq(e, s, -EIO, "the model drew token %d at position %d; it has %d tokens", id,
			 s->n_tokens, ig_tokenizer_n_vocab(t));
		return;
	}
	if (s->matcher && ig_grammar_matcher_accept(s->matcher, id) < 0) {
		fail_seq(e, s, -EIO,
			 "the model drew token %d at position %d, which the grammar does "
			 "not allow",
			 id, s->n_tokens);
		return;
	}
	if (!s->first_ns)
		s->first_ns = now;
	else {
		double seconds = (double)(now - s->last_ns) * 1e-9;

		s->itl[ig_itl_bucket(seconds * 1e3)]++;
		ig_metrics_inter_token(e->metrics, seconds);
	}
	s->last_ns = now;
	if (ig_tokenizer_is_end(t, id) && !s->ignore_end) {
		end_seq(e, s, IG_FINISH_STOP);
		return;
	}
	if (s->n_top >= 0 && (!logits || ig_seq_keep_note(s, id, logits) < 0)) {
		fail_seq(e, s, -EIO, "the log probability of token %d at position %d is missing",
			 id, s->n_tokens);
		return;
	}
	s->tokens[s->n_tokens++] = id;
	ig_seq_count(s, id);
	whole = s->matcher && ig_grammar_matcher_is_done(s->matcher);
	if (whole || s->n_tokens - s->n_prompt >= s->max_output)
		end_seq(e, s, whole ? IG_FINISH_STOP : IG_FINISH_LENGTH);
}

static void wait_step(struct ig_engine *e)
{
	struct ig_flight *f = &e->flights[0];
	const struct ig_step *step = &f->buffer->step;
	struct ig_model *m = f->model;
	int rc = ig_program_wait(m->program);
	int64_t now = ig_now_ns(), since = f->submit_ns;

	if (rc < 0) {
		/* no step of this program that was under way has results */
		for (uint32_t i = 0; i < e->n_flights;) {
			if (e->flights[i].model != m) {
				i++;
				continue;
			}
			fail_flight(e, &e->flights[i], "finish", rc);
			remove_flight(e, i);
		}
		return;
	}
	if (since < e->landed_ns)
		since = e->landed_ns; /* it stood behind another until then */
	e->landed_ns = now;
	ig_metrics_step(e->metrics, f->n_prefill, f->n_decode, (double)(now - since) * 1e-9);
	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_flight_seq *row = &f->seqs[i];
		struct ig_seq *s = row->seq;

		if (s->result.finish != IG_FINISH_NONE) {
			land(e, s);
			continue;
		}
		s->n_flights--;
		s->n_done += row->n_rows;
		if (e->prefix_cache)
			e->kv->seq_commit(s->kv, s->tokens, (uint32_t)s->n_done);
		if (m->window)
			e->kv->seq_advance(s->kv, (uint32_t)s->n_done);
		if (s->n_done >= s->n_prompt && !s->read_ns)
			s->read_ns = now;
		if (row->logit_index >= 0)
			take_token(e, s, step->sampled_ids[row->logit_index],
				   step->logits ?
					   step->logits + (size_t)row->logit_index * m->n_logits :
					   NULL,
				   now);
		else if (s->prefill_only && s->n_done == s->n_prompt)
			end_seq(e, s, IG_FINISH_STOP);
		note_state(e, s);
		show_later(e, s);
	}
	remove_flight(e, 0);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void sleep_until_event(struct ig_engine *e)
{
	int64_t deadline = paused_deadline(e);

	pthread_mutex_lock(&e->lock);
	while (!e->events && (deadline == INT64_MAX || deadline > ig_now_ns()))
		ig_wait_until(&e->wake, &e->lock, deadline);
	pthread_mutex_unlock(&e->lock);
}

void *ig_scheduler_main(void *arg)
{
	struct ig_engine *e = arg;

	while (boundary(e)) {
		while (e->n_flights < e->max_flights && submit_next(e))
			;
		show_all(e);
		if (e->n_flights)
			wait_step(e);
		else if (TAILQ_EMPTY(&e->show) && !e->moved)
			sleep_until_event(e);
	}
	while (e->n_flights)
		wait_step(e);
	return NULL;
}
