/* speculate_private.h: drafts, the tokens that a step verifies ahead; see speculate.c.  The engine's
 * thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Give sequences that the new round of m decodes drafts, if they pay: s->n_draft tokens behind its
 * own, with their blocks.  Returns how many, of all sequences: at most `rows`, of which a step with rows of
 * prompts should have at most rows_beside (a draft that is only tried may have more). */
int32_t ig_sched_draft(struct ig_sched *sch, struct ig_model *m, int32_t rows, int32_t rows_beside);
/* Whether s, when its next token is being sampled, should wait for it to have a draft then. */
bool ig_sched_would_draft(const struct ig_sched *sch, const struct ig_seq *s);
/* The mask of the token after the first n of s's draft; for n ascending from 1. */
void ig_sched_draft_mask(struct ig_sched *sch, const struct ig_seq *s, int32_t n, uint32_t *mask);
/* Whether m's next step must wait for the one in flight, since a sequence is to have a draft of its draft
 * model then. */
bool ig_sched_awaits_draft(const struct ig_sched *sch, const struct ig_model *m);
/* f has taken ns: what its drafts cost. */
void ig_sched_price_drafts(struct ig_flight *f, double ns);
/* How many tokens of a draft were sampled: the first are those after the sequence's own tokens. */
int32_t ig_sched_verify_draft(struct ig_sched *sch, const struct ig_flight *f,
			      const struct ig_flight_seq *row, const int32_t *sampled);
