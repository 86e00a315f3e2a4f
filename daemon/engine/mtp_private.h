/*
 * mtp_private.h: guesses at a sequence's next token but one by a head of its model (multi-token prediction:
 * struct ig_arch, record_mtp).  A step that samples a token guesses the one behind it; the next step
 * may verify that as a draft of one token.  Whether a guess was right is seen when the token comes, whatever
 * it was sampled with.  speculate.c decides which guesses steps verify.
 *
 * A guess costs its row's logits, so a sequence asks for none where it would not pay, and tries
 * again now and then.  One whose guesses are nearly always wrong has no use for the head at all, and a
 * step of such sequences leaves it out.
 *
 * The engine's thread.
 */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Whether s has any use for its model's head: the option, and its guesses so far. */
bool ig_mtp_may(const struct ig_sched *sch, const struct ig_seq *s);
/* Whether there is a guess at the token behind its last one. */
bool ig_mtp_has_guess(const struct ig_seq *s);
double ig_mtp_chance(const struct ig_seq *s);

/* Rows of s are put in a step, of which the last have logits: whether they should have guesses. */
bool ig_mtp_asks(struct ig_sched *sch, struct ig_seq *s, bool decodes);
/* A round of s begins: it asks for a guess if that pays, or to try it again.  may_ask: the round has guesses. */
void ig_mtp_plan(struct ig_seq *s, bool pays, bool may_ask);
/* The token behind its last one is id: was that guessed? */
void ig_mtp_take(struct ig_seq *s, int32_t id);
/* The step that sampled its last token guesses that this follows. */
void ig_mtp_guess(struct ig_seq *s, int32_t id);
