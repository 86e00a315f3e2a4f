/*
 * texts.c: steps of models without a cache, which make a vector or a score of each text.  A step has
 * whole texts, of one request or of several: those of the client whose turn it is first, then the
 * oldest's, until the step is efficient.  A request keeps its place until its last text is done; between
 * steps it can be cancelled, and others come first that are more urgent.
 */
#include "daemon/engine/texts_private.h"

#include "daemon/engine/admission_private.h"

#include <string.h>

/* Rows of a step, in those with which it is efficient, where nobody's stream waits for its end. */
#define QUIET_STEPS 4

static bool can_join(const struct ig_model *m, const struct ig_seq *s)
{
	return s->model == m && s->round != m->round && !s->held && !ig_seq_is_paused(s) &&
	       !s->n_flights && s->n_texts_done < s->n_texts;
}

static struct ig_seq *next_seq(const struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s, *best = NULL;

	TAILQ_FOREACH(s, &sch->running, link)
		if (can_join(m, s) && (!best || ig_client_turn(s) < ig_client_turn(best)))
			best = s;
	return best;
}

static void add_text(struct ig_flight *f, const struct ig_seq *s, int32_t at,
		     const struct ig_text *text)
{
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;

	for (int32_t i = 0; i < text->n_ids; i++) {
		int32_t row = step->n_rows++;
		b->token_ids[row] = s->tokens[at + i];
		b->positions[row] = i;
		b->row_seq[row] = step->n_seqs;
		b->row_types[row] = i >= text->second;
	}
	b->seq_lens[step->n_seqs++] = text->n_ids;
	b->sample[step->n_logit_rows] = (struct ig_sample_params){ .mask = -1 };
	b->logit_rows[step->n_logit_rows++] = step->n_rows - 1;
}

/* Further texts of s, until the step has enough rows, or no space for the next text. */
static void add_texts(struct ig_flight *f, struct ig_seq *s, int32_t enough)
{
	const struct ig_program_limits *l = &f->model->limits;
	struct ig_step *step = &f->buffer->step;
	struct ig_flight_seq *row = &f->seqs[f->n_seqs];
	int32_t at = s->n_done;

	*row = (struct ig_flight_seq){ .seq = s, .logit_index = step->n_logit_rows };
	s->round = f->model->round;
	while (s->n_texts_done + row->n_texts < s->n_texts && step->n_rows < enough) {
		const struct ig_text *text = &s->texts[s->n_texts_done + row->n_texts];
		if (text->n_ids > (int32_t)l->max_rows - step->n_rows ||
		    step->n_seqs == (int32_t)l->max_seqs)
			break;
		add_text(f, s, at, text);
		at += text->n_ids;
		row->n_texts++;
	}
	row->n_rows = at - s->n_done;
	if (!row->n_texts)
		return;
	s->n_rows = row->n_rows;
	s->logit_index = -1;
	f->n_prefill += (uint32_t)row->n_rows;
	f->n_seqs++;
	ig_client_serve(s, row->n_rows);
}

static bool any_stream(const struct ig_sched *sch)
{
	const struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link)
		if (s->max_output > 0)
			return true;
	return false;
}

bool ig_sched_build_texts(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f)
{
	const struct ig_step *step = &f->buffer->step;
	uint32_t enough = m->split_rows;
	struct ig_seq *s;

	if (!any_stream(sch))
		enough *= QUIET_STEPS;
	if (enough > m->limits.max_rows)
		enough = m->limits.max_rows;
	m->round++;
	ig_clients_choose(&sch->running, m);
	while (step->n_rows < (int32_t)enough && f->n_seqs < sch->b->max_seqs &&
	       (s = next_seq(sch, m)))
		add_texts(f, s, (int32_t)enough);
	return step->n_rows > 0;
}

void ig_sched_take_texts(struct ig_sched *sch, struct ig_seq *s, const struct ig_flight *f,
			 const struct ig_flight_seq *row, int64_t now)
{
	const size_t n = f->model->n_logits;

	memcpy(s->vectors->rows + (size_t)s->n_texts_done * n,
	       f->buffer->step.logits + (size_t)row->logit_index * n,
	       (size_t)row->n_texts * n * sizeof *s->vectors->rows);
	s->n_texts_done += row->n_texts;
	s->n_done += row->n_rows;
	if (s->n_texts_done < s->n_texts)
		return;
	s->read_ns = now;
	ig_sched_end(sch, s, IG_FINISH_STOP);
}
