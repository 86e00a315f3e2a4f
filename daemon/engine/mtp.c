/* mtp.c: see mtp_private.h. */
#include "daemon/engine/mtp_private.h"

/* Where guesses do not pay: after so many tokens so many are asked for, then after twice as many, up to a
 * limit. */
#define PROBE 8
#define FIRST_PROBE 64
#define LAST_PROBE 4096
/* Guesses of so small a chance are of no use, once so many were seen; of a model's new sequences one of so many
 * finds out whether that has changed. */
#define HOPELESS 0.05
#define SEEN 64
#define TRIED 16

double ig_mtp_chance(const struct ig_seq *s)
{
	return ig_guess_chance(&s->mtp.count, &s->model->mtp.count);
}

bool ig_mtp_may(const struct ig_sched *sch, const struct ig_seq *s)
{
	return s->model->has_mtp && sch->now.guesses && !s->mtp.off;
}

bool ig_mtp_has_guess(const struct ig_seq *s)
{
	return s->mtp.at == s->n_tokens && s->mtp.id >= 0 &&
	       s->mtp.id < ig_tokenizer_n_vocab(s->model->tokenizer);
}

/* Its first rows: where the guesses of all others are hopeless, few new ones have any. */
static void begin(struct ig_seq *s)
{
	struct ig_mtp_record *all = &s->model->mtp;
	const struct ig_guess_count none = { 0 };

	s->mtp.begun = true;
	if (all->n_seen >= SEEN && ig_guess_chance(&none, &all->count) < HOPELESS)
		s->mtp.off = ++all->n_passed % TRIED != 0;
}

bool ig_mtp_asks(struct ig_sched *sch, struct ig_seq *s, bool decodes)
{
	if (!s->mtp.begun)
		begin(s);
	/* behind a prompt nothing is planned; its first guess is one of many rows */
	return ig_mtp_may(sch, s) && (!decodes || s->mtp.asks);
}

void ig_mtp_plan(struct ig_seq *s, bool pays, bool may_ask)
{
	if (pays) {
		s->mtp.n_idle = s->mtp.n_probe = 0;
		s->mtp.probe_after = FIRST_PROBE;
	} else if (!s->mtp.n_probe && ++s->mtp.n_idle >= s->mtp.probe_after) {
		s->mtp.n_idle = 0;
		s->mtp.n_probe = s->mtp.probe_after ? PROBE : 0;
		s->mtp.probe_after = !s->mtp.probe_after	     ? FIRST_PROBE :
				     s->mtp.probe_after < LAST_PROBE ? 2 * s->mtp.probe_after :
								       LAST_PROBE;
	}
	s->mtp.asks = may_ask && (pays || s->mtp.n_probe);
	if (s->mtp.asks && s->mtp.n_probe)
		s->mtp.n_probe--;
}

void ig_mtp_take(struct ig_seq *s, int32_t id)
{
	if (!ig_mtp_has_guess(s))
		return;
	s->model->mtp.n_seen++;
	ig_guess_learn(&s->mtp.count, &s->model->mtp.count, s->mtp.id == id);
	if (++s->mtp.n_seen >= SEEN && ig_mtp_chance(s) < HOPELESS)
		s->mtp.off = true;
}

void ig_mtp_guess(struct ig_seq *s, int32_t id)
{
	s->mtp.id = id;
	s->mtp.at = s->n_tokens;
}
