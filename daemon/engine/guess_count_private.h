/* guess_count_private.h: how often guesses of late were right, of a sequence and of all of its model. */
#pragma once

#include <stdbool.h>

/* Trials that what is known of all sequences counts for one, and the chance that is assumed of all before
 * there were any, with their weight. */
#define IG_GUESS_PRIOR_TRIALS 8.0
#define IG_GUESS_FIRST_CHANCE 0.7
#define IG_GUESS_FIRST_TRIALS 8.0
/* What was counted keeps so much of its weight with the next trial: of a sequence, of all. */
#define IG_GUESS_KEPT 0.97
#define IG_GUESS_KEPT_OF_ALL 0.995

struct ig_guess_count {
	double hits, trials;
};

/* The chance that the sequence's next guess is right. */
static inline double ig_guess_chance(const struct ig_guess_count *own,
				     const struct ig_guess_count *all)
{
	double usual = (IG_GUESS_FIRST_TRIALS * IG_GUESS_FIRST_CHANCE + all->hits) /
		       (IG_GUESS_FIRST_TRIALS + all->trials);

	return (IG_GUESS_PRIOR_TRIALS * usual + own->hits) / (IG_GUESS_PRIOR_TRIALS + own->trials);
}

static inline void ig_guess_learn(struct ig_guess_count *own, struct ig_guess_count *all, bool hit)
{
	own->hits = IG_GUESS_KEPT * own->hits + hit;
	own->trials = IG_GUESS_KEPT * own->trials + 1;
	all->hits = IG_GUESS_KEPT_OF_ALL * all->hits + hit;
	all->trials = IG_GUESS_KEPT_OF_ALL * all->trials + 1;
}
