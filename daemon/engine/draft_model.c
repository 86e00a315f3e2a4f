/* draft_model.c: see draft_model_private.h. */
#include "daemon/engine/draft_model_private.h"

#include "base/log.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/step_rows_private.h"

#include <errno.h>
#include <string.h>

/* A row of the draft model in parts of its step, until that is measured; and its smallest step in parts of
 * one of the model. */
#define FIRST_ROW 0.1
#define LEAST_STEP 0.02
/* Time for reading a text: so many steps at first, then a part of each; and at most so many. */
#define FIRST_CREDIT 4.0
#define CREDIT_SHARE 0.0625
#define MOST_CREDIT 64.0
#define LEAST_READ 16 /* rows that are worth a step */

static int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- what it is worth ------------------------------------------------------------------- */

void ig_draft_cost(const struct ig_model *m, double quiet_ns, double *step, double *row)
{
	double part = (double)m->draft->memory.weight_bytes / (double)(m->memory.weight_bytes + 1);

	if (ig_pace_guess_cost(&m->pace, step, row))
		return;
	*step = quiet_ns * (part > LEAST_STEP ? part : LEAST_STEP);
	*row = *step * FIRST_ROW;
}

double ig_draft_chance(const struct ig_seq *s)
{
	return ig_guess_chance(&s->draft.count, &s->model->record.count);
}

/* Of what was computed ahead its last token then and n_right behind it are right; not all of `most` tokens
 * are to be computed.  Recurrent layers go back to a state that knows of no other tokens. */
static void settle(struct ig_sched *sch, struct ig_seq *s, int32_t n_right, int32_t most)
{
	int32_t done = s->draft.n_done + min(n_right + 1, s->draft.n_ahead);

	done = min(done, most);
	if (s->draft.kv && s->model->draft->has_state)
		done = (int32_t)sch->b->kv->seq_rewind(s->draft.kv, (uint32_t)done);
	s->draft.n_done = done;
	s->draft.n_ahead = 0;
}

void ig_draft_learn(struct ig_sched *sch, struct ig_seq *s, int32_t n, int32_t n_right)
{
	struct ig_draft_record *all = &s->model->record;

	settle(sch, s, n_right, s->n_tokens + n_right);
	if (n_right == n)
		all->probe_after = 0; /* it is worth trying soon */
	for (int32_t i = 0; i < n && i <= n_right; i++)
		ig_guess_learn(&s->draft.count, &all->count, i < n_right);
}

bool ig_draft_may(const struct ig_sched *sch, const struct ig_seq *s)
{
	const struct ig_model *d = s->model->draft;

	/* its last guess stands at most at the end of both contexts */
	return d && sch->now.drafts && !s->draft.off &&
	       s->n_tokens + 1 < (int32_t)d->limits.max_context;
}

void ig_draft_earn(struct ig_seq *s, double quiet_ns, uint32_t n_streams)
{
	double each = quiet_ns / n_streams;

	s->draft.credit_ns += each * (s->draft.earns ? CREDIT_SHARE : FIRST_CREDIT);
	s->draft.earns = true;
	if (s->draft.credit_ns > MOST_CREDIT * each)
		s->draft.credit_ns = MOST_CREDIT * each;
}

/* ---- blocks ----------------------------------------------------------------------------- */

void ig_draft_drop(struct ig_sched *sch, struct ig_seq *s)
{
	if (!s->draft.kv)
		return;
	sch->b->kv->seq_destroy(s->draft.kv);
	s->draft.kv = NULL;
	s->draft.n_done = s->draft.n_ahead = 0;
	sch->kv_freed = true;
}

static void give_up(struct ig_sched *sch, struct ig_seq *s)
{
	ig_draft_drop(sch, s);
	s->draft.off = true;
}

bool ig_draft_give_back(struct ig_sched *sch)
{
	struct ig_seq *s;

	TAILQ_FOREACH_REVERSE(s, &sch->running, ig_seq_list, link)
	{
		if (!s->draft.kv)
			continue;
		give_up(sch, s);
		return true;
	}
	return false;
}

/* Its blocks, with what is cached of its text. */
static bool begin(struct ig_sched *sch, struct ig_seq *s)
{
	const struct ig_model *d = s->model->draft;
	uint32_t most = (uint32_t)s->n_prompt + (uint32_t)s->max_output, n_cached = 0;

	if (s->draft.kv)
		return true;
	if (most > d->limits.max_context)
		most = d->limits.max_context;
	if (sch->b->kv->seq_create(sch->b->cache, d->kv_groups, d->n_groups, most,
				   sch->b->share_all ? 0 : s->origin->who.identity,
				   &s->draft.kv) < 0) {
		s->draft.kv = NULL;
		s->draft.off = true;
		return false;
	}
	if (sch->b->prefix_cache)
		sch->b->kv->seq_match(s->draft.kv, s->tokens, (uint32_t)s->n_tokens - 1, &n_cached);
	s->draft.n_done = (int32_t)n_cached;
	return true;
}

/* Blocks for n_tokens tokens, of which the next step writes the first n_written.  False: there are none;
 * nobody is preempted for a draft, and it has none any more. */
static bool reserve(struct ig_sched *sch, struct ig_seq *s, int32_t n_tokens, int32_t n_written)
{
	if (begin(sch, s) &&
	    sch->b->kv->seq_reserve(s->draft.kv, (uint32_t)n_tokens, (uint32_t)n_written) == 0)
		return true;
	give_up(sch, s);
	return false;
}

/* n more of its tokens are computed. */
static void advance(struct ig_sched *sch, struct ig_seq *s, int32_t n)
{
	int32_t before = s->draft.n_done;

	s->draft.n_done += n;
	if (sch->b->prefix_cache)
		sch->b->kv->seq_commit(s->draft.kv, s->tokens, (uint32_t)s->draft.n_done);
	ig_sched_advance_kv(sch, s->model->draft, s->draft.kv, before, s->draft.n_done);
}

/* ---- steps ------------------------------------------------------------------------------ */

static struct ig_step_buffer *begin_step(struct ig_sched *sch, struct ig_model *d)
{
	struct ig_step_buffer *b = &d->steps[0];
	struct ig_step *step = &b->step;
	uint32_t n_slabs;

	step->n_rows = step->n_seqs = step->n_logit_rows = 0;
	step->n_segments = step->n_states = 0;
	step->n_adjusts = step->n_masks = 0;
	step->logits = NULL;
	step->token_from = step->prev_ids = NULL;
	step->row_adapter = NULL;
	step->slab_bases = sch->b->kv->slab_bases(sch->b->cache, &n_slabs);
	return b;
}

/* Rows of the tokens from `first` on.  False: the draft model has no such token, or no state for them; nothing
 * is added. */
static bool add_rows(struct ig_sched *sch, struct ig_seq *s, int32_t first, int32_t n)
{
	struct ig_model *d = s->model->draft;
	struct ig_step_buffer *b = &d->steps[0];
	struct ig_step *step = &b->step;
	int32_t seq = step->n_seqs;

	for (int32_t i = 0; i < n; i++) {
		int32_t row = step->n_rows + i, id = s->tokens[first + i];
		if ((uint32_t)id >= d->n_logits)
			return false;
		b->token_ids[row] = id;
		b->positions[row] = first + i;
		b->row_seq[row] = seq;
	}
	if (!ig_sched_add_cache(sch, d, b, s->draft.kv, first, n))
		return false;
	b->seq_lens[seq] = first + n;
	step->n_seqs++;
	step->n_rows += n;
	return true;
}

/* Submit it and wait.  False: it failed; nobody in it has drafts any more. */
static bool run_step(struct ig_sched *sch, struct ig_model *m, uint32_t n)
{
	struct ig_model *d = m->draft;
	const struct ig_step *step = &d->steps[0].step;
	int rc = ig_program_submit(d->program, step);
	double ns, own, row;

	if (!rc)
		rc = ig_program_wait(d->program);
	if (rc < 0) {
		ig_log_error("model %s: its draft model failed: %s", m->name,
			     ig_program_error(d->program)->text);
		for (uint32_t i = 0; i < n; i++)
			give_up(sch, sch->drafting[i]);
		return false;
	}
	ns = (double)ig_driver_step_ns(sch->b->driver);
	if (!sch->n_flights) {
		ig_draft_cost(m, ig_pace_quiet_ns(&m->pace, 1), &own, &row);
		ig_pace_learn_guess(&m->pace, (uint32_t)step->n_rows, ns, own + row * step->n_rows);
	}
	/* neither this nor what is in flight shows what it takes alone */
	for (uint32_t i = 0; i < sch->n_flights; i++)
		sch->flights[i].disturbed = true;
	sch->draft_ns += ns;
	return true;
}

/* ---- reading ---------------------------------------------------------------------------- */

void ig_draft_read(struct ig_sched *sch, struct ig_model *m, double most_ns)
{
	const struct ig_step *step = &begin_step(sch, m->draft)->step;
	double ns, row, quiet = ig_pace_quiet_ns(&m->pace, 1);
	int32_t left;
	struct ig_seq *s;
	uint32_t n = 0;

	ig_draft_cost(m, quiet, &ns, &row);
	left = (int32_t)((most_ns - ns) / (row > 0 ? row : 1));
	left = min(left > LEAST_READ ? left : LEAST_READ, (int32_t)sch->b->max_rows);
	TAILQ_FOREACH(s, &sch->running, link) {
		if (s->model != m || !s->draft_wanted || !begin(sch, s))
			continue;
		settle(sch, s, 0, s->n_tokens - 1);
		/* the last token is read with the guess after it */
		int32_t rows = ig_draft_lag(s) - 1;
		double paid = (s->draft.credit_ns - ns) / (row > 0 ? row : 1);
		if (rows < 1 || left < 1 || n == sch->b->max_seqs)
			continue;
		rows = min(rows, left);
		if (paid < rows)
			rows = paid > 0 ? (int32_t)paid : 0;
		if (rows < min(LEAST_READ, ig_draft_lag(s) - 1))
			continue; /* later */
		if (!reserve(sch, s, s->n_tokens, s->draft.n_done + rows))
			continue;
		if (!add_rows(sch, s, s->draft.n_done, rows)) {
			give_up(sch, s);
			continue;
		}
		s->draft.credit_ns -= ns + row * rows;
		s->draft.n_ahead = rows;
		left -= rows;
		sch->drafting[n++] = s;
	}
	if (!step->n_rows || !run_step(sch, m, n))
		return;
	for (uint32_t i = 0; i < n; i++) {
		s = sch->drafting[i];
		advance(sch, s, s->draft.n_ahead);
		s->draft.n_ahead = 0;
	}
}

/* ---- guessing --------------------------------------------------------------------------- */

/* Have sch->ahead read the first n tokens of s's draft.  False: the grammar ends there, or refuses one. */
static bool read_ahead(struct ig_sched *sch, const struct ig_seq *s, int32_t n)
{
	ig_grammar_matcher_copy(sch->ahead, s->matcher);
	for (int32_t i = 0; i < n; i++)
		if (ig_grammar_matcher_accept(sch->ahead, s->tokens[s->n_tokens + i]) < 0 ||
		    ig_grammar_matcher_is_done(sch->ahead))
			return false;
	return true;
}

/* The mask of sch->ahead, for the draft model: of as many tokens as that has. */
static void put_mask(struct ig_sched *sch, const struct ig_model *m, struct ig_step_buffer *b)
{
	const struct ig_model *d = m->draft;
	/* no step is in flight, so this buffer is free */
	uint32_t *mask = m->steps[m->next_step].masks;
	uint32_t *out = b->masks + (size_t)b->step.n_masks * d->mask_words;
	uint32_t n = m->mask_words < d->mask_words ? m->mask_words : d->mask_words;

	ig_grammar_matcher_mask(sch->ahead, mask);
	memcpy(out, mask, n * sizeof *out);
	memset(out + n, 0, (d->mask_words - n) * sizeof *out);
	b->step.n_masks++;
}

/* Penalties and biases of tokens that the draft model has, after n tokens of the draft. */
static uint32_t put_adjusts(const struct ig_seq *s, int32_t n, struct ig_logit_adjust *out)
{
	uint32_t n_all = ig_seq_adjusts_then(s, n, out), n_kept = 0;

	for (uint32_t i = 0; i < n_all; i++)
		if ((uint32_t)out[i].id < s->model->draft->n_logits)
			out[n_kept++] = out[i];
	return n_kept;
}

/* The row that samples what follows the first n tokens of the draft of s: the last row so far. */
static void add_sampling(struct ig_sched *sch, struct ig_seq *s, int32_t n)
{
	struct ig_step_buffer *b = &s->model->draft->steps[0];
	struct ig_step *step = &b->step;
	struct ig_sample_params *p = &b->sample[step->n_logit_rows];

	*p = s->sample;
	p->position = s->n_tokens + n;
	p->first_adjust = step->n_adjusts;
	p->n_adjusts = put_adjusts(s, n, b->adjusts + step->n_adjusts);
	step->n_adjusts += p->n_adjusts;
	if (s->matcher) {
		p->mask = (int32_t)step->n_masks;
		put_mask(sch, s->model, b);
	}
	b->logit_rows[step->n_logit_rows++] = step->n_rows - 1;
}

/* Add s's rows for the guess after n tokens of its draft.  False: it can have no more. */
static bool add_guess(struct ig_sched *sch, struct ig_seq *s, int32_t n)
{
	const struct ig_model *d = s->model->draft;
	const struct ig_step *step = &d->steps[0].step;
	int32_t first = n ? s->n_tokens + n - 1 : s->draft.n_done;
	int32_t rows = s->n_tokens + n - first;

	if (n == s->n_draft || first + rows >= (int32_t)d->limits.max_context ||
	    step->n_rows + rows > (int32_t)d->limits.max_rows ||
	    step->n_adjusts + s->max_adjusts > IG_MAX_STEP_ADJUSTS)
		return false;
	if (s->matcher && !read_ahead(sch, s, n))
		return false;
	if (!add_rows(sch, s, first, rows))
		return false;
	add_sampling(sch, s, n);
	return true;
}

/* Blocks for s's draft, and for the state before its last token, to which it can go back; what it computed
 * for a draft that no step had counts no more.  False: there are none. */
static bool reserve_guesses(struct ig_sched *sch, struct ig_seq *s)
{
	const struct ig_kvcache_service *kv = sch->b->kv;
	int32_t n = s->n_tokens + s->n_draft;

	if (!begin(sch, s))
		return false;
	settle(sch, s, 0, s->n_tokens - 1);
	if (s->model->draft->has_state &&
	    kv->seq_checkpoint(s->draft.kv, (uint32_t)s->n_tokens - 1) < 0) {
		give_up(sch, s);
		return false;
	}
	return reserve(sch, s, n, n);
}

/* Who is to have one, with blocks for it. */
static uint32_t gather(struct ig_sched *sch, struct ig_model *m)
{
	struct ig_seq *s;
	uint32_t n = 0;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (s->model != m || !s->n_draft || s->draft_source != IG_DRAFT_MODEL)
			continue;
		/* no further than its context */
		s->n_draft = min(s->n_draft, (int32_t)m->draft->limits.max_context - s->n_tokens);
		if (!reserve_guesses(sch, s)) {
			s->n_draft = 0;
			continue;
		}
		sch->drafting[n++] = s;
	}
	return n;
}

void ig_draft_make(struct ig_sched *sch, struct ig_model *m)
{
	const struct ig_tokenizer *t = m->tokenizer;
	uint32_t n = gather(sch, m), n_going;

	for (int32_t depth = 0; n; depth++) {
		const struct ig_step *step = &begin_step(sch, m->draft)->step;
		n_going = 0;
		for (uint32_t i = 0; i < n; i++) {
			struct ig_seq *s = sch->drafting[i];
			if (add_guess(sch, s, depth))
				sch->drafting[n_going++] = s;
			else
				s->n_draft = depth;
		}
		n = n_going;
		if (!n)
			return;
		if (!run_step(sch, m, n)) {
			for (uint32_t i = 0; i < n; i++)
				sch->drafting[i]->n_draft = 0;
			return;
		}
		n_going = 0;
		for (uint32_t i = 0; i < n; i++) {
			struct ig_seq *s = sch->drafting[i];
			int32_t id = step->sampled_ids[i];
			if (!depth)
				advance(sch, s, s->n_tokens - 1 - s->draft.n_done);
			s->draft.n_ahead++;
			if (id < 0 || id >= ig_tokenizer_n_vocab(t) ||
			    (ig_tokenizer_is_end(t, id) && !s->ignore_end)) {
				s->n_draft = depth;
				continue;
			}
			s->tokens[s->n_tokens + depth] = id;
			sch->drafting[n_going++] = s;
		}
		n = n_going;
	}
}
