/*
 * draft_model_private.h: guesses at sequences' next tokens by a small model with the same vocabulary
 * (models[].draft): the draft model of Leviathan, Kalman and Matias, "Fast inference from transformers
 * via speculative decoding", 2023.  speculate.c decides who gets how many, and has steps verify them.
 *
 * The draft model has a cache of its own for each sequence, in the same arena and with the same prefix
 * index.  It first reads the sequence's text, as far as that is not cached; then each of its steps
 * guesses one token more of every sequence that is to have a draft.  Its steps run while a round is
 * planned and no other step is in flight.  It samples with the sequence's own parameters, seed and
 * position, so where both models agree on the probabilities they agree on the token.
 *
 * The engine's thread.
 */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Tokens that a sequence's draft may lag behind its text and still be made at once. */
#define IG_DRAFT_LAG 16

/* What a step of m's draft model takes, and each of its rows; where none was measured, by its size and by
 * what a step of m takes. */
void ig_draft_cost(const struct ig_model *m, double quiet_ns, double *step, double *row);
/* The chance that a token of s that its draft model guesses is right if those before it are. */
double ig_draft_chance(const struct ig_seq *s);
/* Whether s may have drafts of its draft model: the option, memory, and its context. */
bool ig_draft_may(const struct ig_sched *sch, const struct ig_seq *s);
/* How many of its tokens the draft model must read before it can guess the next one. */
static inline int32_t ig_draft_lag(const struct ig_seq *s) { return s->n_tokens - s->draft.n_done; }

/* A round of n_streams begins: s may spend some more time on reading. */
void ig_draft_earn(struct ig_seq *s, double quiet_ns, uint32_t n_streams);
/* Read on in the texts of sequences of m with draft_wanted, for at most so long together. */
void ig_draft_read(struct ig_sched *sch, struct ig_model *m, double most_ns);
/* Make the drafts of m's sequences whose n_draft is theirs and not 0 yet; afterwards n_draft is how many
 * tokens stand behind their own. */
void ig_draft_make(struct ig_sched *sch, struct ig_model *m);
/* Of n tokens of its draft so many were right. */
void ig_draft_learn(struct ig_sched *sch, struct ig_seq *s, int32_t n, int32_t n_right);

/* Free its blocks; NULL cache is fine. */
void ig_draft_drop(struct ig_sched *sch, struct ig_seq *s);
/* Somebody needs blocks: the youngest sequence that has some there gives them back, for good.  False:
 * none has. */
bool ig_draft_give_back(struct ig_sched *sch);
