/* speculate_private.h: drafts, the tokens that a step verifies ahead; see speculate.c.  The engine's
 * thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Give sequences that the new round of m decodes drafts, if they pay: s->n_draft tokens behind its
 * own, with their blocks.  Returns how many, of all sequences: at most `rows`. */
int32_t ig_sched_draft(struct ig_sched *sch, struct ig_model *m, int32_t rows);
/* Whether s, when its next token is being sampled, should wait for it to have a draft then. */
bool ig_sched_would_draft(const struct ig_sched *sch, const struct ig_seq *s);
/* The mask of the token after the first n of s's draft; for n ascending from 1. */
void ig_sched_draft_mask(struct ig_sched *sch, const struct ig_seq *s, int32_t n, uint32_t *mask);
/* How many of a draft of n tokens were sampled: the first are those after s's own tokens. */
int32_t ig_sched_verify_draft(struct ig_sched *sch, struct ig_seq *s, const int32_t *sampled,
			      int32_t n);
