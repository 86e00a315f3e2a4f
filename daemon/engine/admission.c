/*
 * admission.c: which sequences run: the lists that a sequence is in, pausing, its end, and its
 * blocks.  A sequence is admitted with blocks for all its tokens so far; clients_private.h says who
 * comes first.  When it needs another block and none is free, the youngest sequence of the client
 * that has the most is preempted: it loses them all and is prefilled again later.  Among clients
 * with as many only older sequences preempt, so the oldest of each always makes progress.
 */
#include "daemon/engine/admission_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/draft_model_private.h"
#include "daemon/engine/prefix_report_private.h"
#include "daemon/engine/spans_private.h"

#include <errno.h>
#include <stdarg.h>

/* A sequence is admitted only with blocks for so many more tokens, so that a preempted one is
 * not preempted again by its next block. */
#define ADMIT_MARGIN IG_BLOCK_TOKENS
/* Where a step is under way, its tokens wait for the admission of others no longer than so, and for one more: a GPU's memory for
 * the blocks of sixteen prompts takes some 10 ms. */
#define MOST_ADMISSION_NS 500000
/* Rows of a prompt that is not held back, where the driver does not say how many are efficient. */
#define SHORT_ROWS 64

/* ---- lists ------------------------------------------------------------------------------- */

static void count_running(struct ig_sched *sch, struct ig_seq *s, int n)
{
	sch->n_running += (uint32_t)n;
	ig_client_count_running(s->client, n);
}

void ig_sched_remove(struct ig_sched *sch, struct ig_seq *s)
{
	if (!s->list)
		return;
	TAILQ_REMOVE(s->list, s, link);
	if (s->list == &sch->waiting) {
		sch->n_waiting--;
		ig_client_remove_waiting(s);
	}
	if (s->list == &sch->running)
		sch->n_adjusts -= s->max_adjusts;
	if (s->list == &sch->running && !ig_seq_is_paused(s))
		count_running(sch, s, -1);
	s->list = NULL;
}

void ig_sched_insert(struct ig_sched *sch, struct ig_seq *s, struct ig_seq_list *list)
{
	struct ig_seq *at;

	ig_sched_remove(sch, s);
	at = TAILQ_LAST(list, ig_seq_list);
	while (at && at->number > s->number)
		at = TAILQ_PREV(at, ig_seq_list, link);
	if (at)
		TAILQ_INSERT_AFTER(list, at, s, link);
	else
		TAILQ_INSERT_HEAD(list, s, link);
	s->list = list;
	if (list == &sch->waiting) {
		sch->n_waiting++;
		ig_client_add_waiting(s);
	}
	if (list == &sch->running)
		sch->n_adjusts += s->max_adjusts;
	if (list == &sch->running && !ig_seq_is_paused(s))
		count_running(sch, s, 1);
}

void ig_sched_show_later(struct ig_sched *sch, struct ig_seq *s)
{
	if (s->on_show)
		return;
	TAILQ_INSERT_TAIL(&sch->show, s, show_link);
	s->on_show = true;
}

void ig_sched_publish_state(struct ig_sched *sch, struct ig_seq *s)
{
	int state = IG_SEQ_WAITING;

	if (ig_seq_is_paused(s))
		state = IG_SEQ_PAUSED;
	else if (s->list == &sch->running || s->list == &sch->ended)
		state = ig_seq_n_left(s) > 1 && s->n_tokens == s->n_prompt ? IG_SEQ_PREFILL :
									     IG_SEQ_DECODE;
	atomic_store_explicit(&s->state, state, memory_order_relaxed);
	atomic_store_explicit(&s->n_prefilled, s->n_done < s->n_prompt ? s->n_done : s->n_prompt,
			      memory_order_relaxed);
	atomic_store_explicit(&s->n_output, s->n_tokens - s->n_prompt, memory_order_relaxed);
	atomic_store_explicit(&s->n_drafted, s->result.n_drafted, memory_order_relaxed);
	atomic_store_explicit(&s->n_accepted, s->result.n_accepted, memory_order_relaxed);
}

void ig_sched_set_paused(struct ig_sched *sch, struct ig_seq *s, bool paused)
{
	int delta = paused ? 1 : -1;

	if (ig_seq_is_paused(s) == paused)
		return;
	atomic_store_explicit(&s->paused, paused, memory_order_relaxed);
	sch->n_paused += (uint32_t)delta;
	if (paused)
		TAILQ_INSERT_TAIL(&sch->paused, s, paused_link);
	else
		TAILQ_REMOVE(&sch->paused, s, paused_link);
	if (s->list == &sch->running)
		count_running(sch, s, -delta);
	if (paused)
		s->paused_ns = ig_now_ns();
	/* Paused: the reader may have taken text just before it could see the flag, so the ring must
	 * be checked once more before sleeping.  Resumed: it can be in a step, which nothing else
	 * signals if the steps were built before. */
	sch->moved = true;
	ig_sched_publish_state(sch, s);
}

/* ---- ends -------------------------------------------------------------------------------- */

void ig_sched_drop_kv(struct ig_sched *sch, struct ig_seq *s)
{
	ig_draft_drop(sch, s);
	s->n_again = 0;
	if (!s->kv)
		return;
	ig_kv_disk_save(sch, s);
	sch->b->kv->seq_destroy(s->kv);
	s->kv = NULL;
	sch->n_holding--;
	sch->kv_freed = true;
}

void ig_sched_end(struct ig_sched *sch, struct ig_seq *s, enum ig_finish finish)
{
	if (s->result.finish == IG_FINISH_NONE)
		s->result.finish = finish;
	if (!s->n_flights)
		ig_sched_drop_kv(sch, s);
	ig_sched_insert(sch, s, &sch->ended);
	ig_sched_show_later(sch, s);
	sch->moved = true;
}

void ig_sched_fail(struct ig_sched *sch, struct ig_seq *s, int code, const char *fmt, ...)
{
	va_list ap;

	if (s->result.finish == IG_FINISH_NONE) {
		s->result.error.code = code;
		va_start(ap, fmt);
		vsnprintf(s->result.error.text, sizeof s->result.error.text, fmt, ap);
		va_end(ap);
		if (code == -ETIME || code == -EAGAIN) /* its client, or others, wanted that */
			ig_log_info("request %s: %s", s->id, s->result.error.text);
		else
			ig_log_error("request %s (x-request-id %s): %s", s->id,
				     s->origin->request_id, s->result.error.text);
	}
	ig_sched_end(sch, s, IG_FINISH_ERROR);
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* Maximum tokens that it will have in the cache. */
static uint32_t max_kv_tokens(const struct ig_seq *s)
{
	return (uint32_t)s->n_prompt + (uint32_t)s->max_output;
}

static void preempt(struct ig_sched *sch, struct ig_seq *s)
{
	ig_log_debug("request %s: preempted with %d tokens", s->id, s->n_tokens);
	ig_sched_drop_kv(sch, s);
	if (!s->model->whole_texts) /* what is done of its texts stays */
		s->n_done = 0;
	s->n_planned = s->n_draft = 0;
	s->restore_over = false;
	ig_sched_insert(sch, s, &sch->waiting);
	ig_sched_publish_state(sch, s);
	sch->moved = true;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_PREEMPTIONS, 1);
}

/* Of its own model if there is one, since only those blocks are certain to fit it. */
static struct ig_seq *find_victim(const struct ig_sched *sch, const struct ig_seq *s)
{
	struct ig_seq *v = ig_client_find_victim(&sch->running, s, s->model);

	return v ? v : ig_client_find_victim(&sch->running, s, NULL);
}

static void fail_alone(struct ig_sched *sch, struct ig_seq *s)
{
	if (s->n_tokens > s->n_prompt)
		ig_sched_end(sch, s, IG_FINISH_LENGTH);
	else
		ig_sched_fail(sch, s, -ENOSPC,
			      "the cache has no space for the prompt's %d tokens, even with "
			      "nothing else in it",
			      s->n_prompt);
}

bool ig_sched_ensure_capacity(struct ig_sched *sch, struct ig_seq *s, int32_t *n)
{
	while (sch->b->kv->seq_reserve(s->kv, (uint32_t)ig_seq_tokens_then(s),
				       (uint32_t)(ig_seq_done_then(s) + *n)) < 0) {
		struct ig_seq *v;
		if (ig_draft_give_back(sch) || ig_kv_disk_give_back(sch))
			continue;
		v = find_victim(sch, s);
		if (sch->n_flights) {
			sch->must_preempt = true;
			return false;
		}
		if (sch->b->kv->compact(sch->b->cache))
			continue;
		if (v) {
			preempt(sch, v);
		} else if (sch->n_holding > 1) {
			preempt(sch, s);
			return false;
		} else if (ig_spans_whole_rows(s, *n / 2, *n / 2) > 0) {
			*n = ig_spans_whole_rows(s, *n / 2, *n / 2);
		} else {
			fail_alone(sch, s);
			return false;
		}
	}
	return true;
}

void ig_sched_advance_kv(struct ig_sched *sch, const struct ig_model *m, struct ig_kv_seq *kv,
			 int32_t n_before, int32_t n_done)
{
	if (!m->window && !m->has_state)
		return;
	sch->b->kv->seq_advance(kv, (uint32_t)n_done);
	/* in these groups nothing is freed within a block, but what its next step takes again */
	if (n_before / IG_BLOCK_TOKENS < n_done / IG_BLOCK_TOKENS)
		sch->kv_freed = true;
}

/* ---- prefixes that are being computed ---------------------------------------------------- */

/* Whether sequences of both may share blocks. */
static bool may_share(const struct ig_sched *sch, const struct ig_seq *a, const struct ig_seq *b)
{
	return a->shown == b->shown &&
	       (sch->b->share_all || a->origin->who.identity == b->origin->who.identity);
}

/* The tokens with which both begin and which s will find when v has computed them: at least a
 * block; of s not the last, which is always computed, and of v only those in blocks that it fills.
 * *n_computed: v's tokens up to the end of the last of these blocks.  Many may wait for v, and ask
 * at each boundary, so s remembers it. */
static int32_t common_prefix(struct ig_seq *s, const struct ig_seq *v, int32_t *n_computed)
{
	int32_t n = 0, most = s->n_tokens - 1 < v->n_tokens ? s->n_tokens - 1 : v->n_tokens;

	*n_computed = s->prefix.n_computed;
	if (s->prefix.number == v->number && s->prefix.of_tokens == v->n_tokens)
		return s->prefix.n;
	while (n < most && s->tokens[n] == v->tokens[n])
		n++;
	*n_computed = (n + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS * IG_BLOCK_TOKENS;
	/* a state is one after whole blocks */
	if (*n_computed > v->n_tokens || n < IG_BLOCK_TOKENS || s->model->has_state)
		n = *n_computed = n - n % IG_BLOCK_TOKENS;
	s->prefix.number = v->number;
	s->prefix.of_tokens = v->n_tokens;
	s->prefix.n = n;
	s->prefix.n_computed = *n_computed;
	return n;
}

/* Whether s should wait for a prompt that computes the prefix of both, instead of computing it
 * once more: at least half a block, or smaller steps would cost more than it saves.  Only if it
 * does not wait longer for that: the other one comes before it anyway, or half of what it waits for
 * is computed for both. */
static bool waits_for_prefix(const struct ig_sched *sch, struct ig_seq *s)
{
	const struct ig_seq *v;

	if (!sch->b->prefix_cache || s->model->whole_texts)
		return false;
	for (v = sch->prompts_first; v; v = v->next_prompt) {
		int32_t left = v->n_tokens - v->n_done, chunk = (int32_t)sch->now.prefill_chunk;
		int32_t n, n_computed;
		if (v->list != &sch->running || left < 2 || ig_seq_is_paused(v) || v->held ||
		    !may_share(sch, s, v))
			continue;
		n = common_prefix(s, v, &n_computed) - v->n_done;
		n_computed -= v->n_done;
		if (n < IG_BLOCK_TOKENS / 2)
			continue;
		if (s->model->has_state) /* where they part, s begins with v's state */
			sch->b->kv->seq_keep(v->kv, (uint32_t)(n + v->n_done));
		if (left <= s->n_tokens)
			return true;
		/* it computes whole chunks */
		if (left > (n_computed + chunk - 1) / chunk * chunk)
			left = (n_computed + chunk - 1) / chunk * chunk;
		if (left <= 2 * n)
			return true;
	}
	return false;
}

/* Once: one that was preempted for others may be admitted again in the same admission. */
static void add_prompt(struct ig_sched *sch, struct ig_seq *s)
{
	if (s->listed_in == sch->clients.n_admissions)
		return;
	s->listed_in = sch->clients.n_admissions;
	s->next_prompt = sch->prompts_first;
	sch->prompts_first = s;
}

/* ---- admission ----------------------------------------------------------------------------- */

/* Whether its prompt has more rows to compute than a step needs to be efficient. */
static bool is_long(const struct ig_seq *s)
{
	uint32_t rows = s->model->split_rows;

	/* where the driver does not say, or all of its rows are more than that */
	if (rows > SHORT_ROWS && rows == s->model->backend->max_rows)
		rows = SHORT_ROWS;
	return s->n_tokens - s->n_done > (int32_t)rows;
}

/* What is left of a long prompt's chunk is planned again, so that a new sequence need not wait for it. */
static void end_round(const struct ig_sched *sch, struct ig_model *m)
{
	const struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (s->is_long && s->model == m && s->round == m->round && s->n_planned) {
			m->round++;
			return;
		}
	}
}

/* A conversation goes on where its last prompt ended, or, if a template writes what begins a reply
 * in another way when the reply is there, a little before.  Another one begins as this one where
 * the first message, which has instructions and tools, ended. */
static void keep_states(const struct ig_sched *sch, const struct ig_seq *s)
{
	const struct ig_kvcache_service *kv = sch->b->kv;
	int32_t end = (s->n_tokens - 1) / IG_BLOCK_TOKENS * IG_BLOCK_TOKENS;
	int32_t first = ig_seq_first_message(s) / IG_BLOCK_TOKENS * IG_BLOCK_TOKENS;

	if (first > s->n_done && first < end)
		kv->seq_keep(s->kv, (uint32_t)first);
	for (int32_t n = end - IG_BLOCK_TOKENS; n <= end; n += IG_BLOCK_TOKENS)
		if (n > s->n_done)
			kv->seq_keep(s->kv, (uint32_t)n);
}

/* Of a model without a cache: only a place is needed. */
static void admit_texts(struct ig_sched *sch, struct ig_seq *s)
{
	ig_sched_insert(sch, s, &sch->running);
	if (!s->admitted_ns) {
		s->admitted_ns = ig_now_ns();
		s->result.report.reason = IG_PREFIX_DISABLED;
		ig_stream_begin(s->stream, 0, &s->result.report);
	}
	ig_sched_publish_state(sch, s);
}

static int create_kv(struct ig_sched *sch, struct ig_seq *s)
{
	int rc = sch->b->kv->seq_create(
		sch->b->cache, s->model->kv_groups, s->model->n_groups, max_kv_tokens(s),
		ig_model_salt(s->shown, sch->b->share_all ? 0 : s->origin->who.identity), &s->kv);

	if (rc < 0)
		s->kv = NULL;
	return rc;
}

/* Begin s with the cached blocks of its longest known prefix that ends in no span. */
static int match_prefix(struct ig_sched *sch, struct ig_seq *s)
{
	/* the last token is always computed, for its logits */
	uint32_t most = (uint32_t)s->n_tokens - 1, n_cached;
	int rc = 0;

	sch->b->kv->seq_match(s->kv, s->tokens, most, &n_cached);
	while (!rc && (most = (uint32_t)ig_spans_outside(s, (int32_t)n_cached)) < n_cached) {
		sch->b->kv->seq_destroy(s->kv);
		rc = create_kv(sch, s);
		if (!rc)
			sch->b->kv->seq_match(s->kv, s->tokens, most, &n_cached);
	}
	s->n_done = rc ? 0 : (int32_t)n_cached;
	return rc;
}

/* Admit a waiting sequence.  False: there are no blocks now. */
static bool admit_seq(struct ig_sched *sch, struct ig_seq *s)
{
	uint32_t most = max_kv_tokens(s), want = (uint32_t)s->n_tokens + 1 + ADMIT_MARGIN;
	uint32_t n_known = 0;
	uint64_t soon;
	int rc = create_kv(sch, s);

	if (!rc && sch->b->prefix_cache)
		rc = match_prefix(sch, s);
	if (rc < 0) {
		ig_sched_fail(sch, s, rc, "out of memory for the block table of %u tokens", most);
		return true;
	}
	sch->n_holding++;
	if (sch->b->prefix_cache) {
		if (s->model->has_state)
			keep_states(sch, s);
		if (!s->admitted_ns)
			s->result.n_cached = s->n_done;
		if (!s->admitted_ns && (s->model->window || s->model->has_state))
			n_known =
				sch->b->kv->seq_known(s->kv, s->tokens, (uint32_t)s->n_tokens - 1);
	}
	if (want > most)
		want = most;
	/* In groups with a window, as many as it will have at once: from then on it frees as many as
	 * it takes. */
	soon = (uint64_t)s->n_done + s->model->window + sch->now.prefill_chunk;
	do
		rc = sch->b->kv->seq_reserve(s->kv, want, soon < want ? (uint32_t)soon : want);
	while (rc < 0 && (ig_draft_give_back(sch) || ig_kv_disk_give_back(sch)));
	if (rc < 0 && sch->n_holding == 1) {
		/* it is alone: there is nothing to wait for */
		rc = sch->b->kv->seq_reserve(s->kv, (uint32_t)s->n_tokens, (uint32_t)s->n_done);
		if (rc < 0) {
			fail_alone(sch, s);
			return true;
		}
	}
	if (rc < 0) {
		sch->b->kv->seq_destroy(s->kv);
		s->kv = NULL;
		s->n_done = 0;
		if (!s->admitted_ns)
			s->result.n_cached = 0;
		sch->n_holding--;
		return false;
	}
	s->is_long = is_long(s);
	end_round(sch, s->model);
	ig_sched_insert(sch, s, &sch->running);
	add_prompt(sch, s);
	if (!s->admitted_ns) {
		s->admitted_ns = ig_now_ns();
		ig_prefix_report(sch, s, n_known);
		ig_stream_begin(s->stream, s->result.n_cached, &s->result.report);
	}
	ig_sched_publish_state(sch, s);
	return true;
}

/* Whether its turn can be now.  *room: there is a place for it, or somebody gives one. */
static bool may_begin(struct ig_sched *sch, struct ig_seq *s, bool *room)
{
	*room = sch->n_running < sch->b->max_seqs || ig_client_find_victim(&sch->running, s, NULL);
	return *room && !ig_seq_is_paused(s) && !waits_for_prefix(sch, s) &&
	       !ig_kv_disk_waits(sch, s);
}

/* The one that is admitted next, of those that were not passed over; NULL: none.  Where there is no
 * room for a client's first one, there is none for those behind it in the heap: they have no smaller
 * priority number and no smaller share (clients.c, yields). */
static struct ig_seq *next_waiting(struct ig_sched *sch)
{
	struct ig_seq *best = NULL, *first;
	struct ig_client *c;
	bool descend;

	for (c = sch->clients.first; c; c = ig_client_after(c, descend)) {
		bool room = true;
		first = TAILQ_FIRST(&c->waiting);
		descend = !best || ig_client_comes_before(first, best);
		if (!descend)
			continue;
		while (ig_client_next(c) && !may_begin(sch, c->next, &room)) {
			descend = room || c->next != first;
			c->next = room ? TAILQ_NEXT(c->next, turn) : NULL;
		}
		if (c->next && (!best || ig_client_comes_before(c->next, best)))
			best = c->next;
	}
	return best;
}

bool ig_sched_take_place(struct ig_sched *sch, const struct ig_seq *s)
{
	struct ig_seq *v = find_victim(sch, s);

	if (v && v->n_flights) {
		sch->must_preempt = sch->kv_freed = true; /* it is tried again then */
		return false;
	}
	if (v)
		preempt(sch, v);
	return v;
}

void ig_sched_admit(struct ig_sched *sch)
{
	const int64_t begin = ig_now_ns();
	struct ig_seq *s;

	if (sch->kv_blocked && !sch->kv_freed)
		return;
	sch->kv_blocked = sch->kv_freed = false;
	if (!sch->n_waiting)
		return;
	ig_client_begin_admission(&sch->clients);
	sch->prompts_first = NULL;
	TAILQ_FOREACH(s, &sch->running, link)
		if (s->n_tokens - s->n_done >= 2)
			add_prompt(sch, s);
	while ((s = next_waiting(sch))) {
		if (sch->n_flights && ig_now_ns() - begin > MOST_ADMISSION_NS)
			break; /* the others at the next boundary: whoever has that step waits for it */
		if (sch->n_running >= sch->b->max_seqs && !ig_sched_take_place(sch, s))
			break;
		if (s->model->whole_texts) {
			admit_texts(sch, s);
			continue;
		}
		bool fits = s->max_adjusts <= IG_MAX_STEP_ADJUSTS - sch->n_adjusts;
		if (fits && admit_seq(sch, s))
			continue;
		if (!ig_sched_take_place(sch, s)) {
			/* those after it wait too, or a long prompt would starve */
			sch->kv_blocked = true;
			break;
		}
	}
}
