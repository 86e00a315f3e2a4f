/*
 * pace_private.h: what long prompts get of a step's time while streams decode.  What a step of the
 * streams alone takes is measured, and so is what rows of prompts add to it.  Rows of long
 * prompts are added to so many steps that they have their share of the time, and to each step only
 * so many that no gap between two tokens of a stream becomes long.  Where prompts outnumber streams, and
 * therefore nearly every step has rows of them, that is a bound, also with drafts.  But where few rows cost much more
 * each than a whole chunk's, as on a GPU behind a long prefix, a prompt that still has many gets whole
 * chunks in fewer steps, while one takes less than a tenth of a second.  Short prompts are not held
 * back.  Rows never depend on the steps that they are in, so only times change.
 *
 * The engine's thread.  Times are in nanoseconds, shares parts of 1.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IG_PACE_SIZES 14
#define IG_PACE_STEPS 28
#define IG_PACE_NO_LIMIT INT32_MAX

/* What rows take: a line through the steps of late, by their sums. */
struct ig_pace_line {
	double n, rows, ns, rows2, rows_ns;
};

/* What was measured of a model; zeros: nothing yet. */
struct ig_pace {
	/* [i]: a step of 2^i streams (less than twice as many) and no prompts; 0: unknown */
	double quiet_ns[IG_PACE_SIZES];
	/* [i]: what each row of long prompts adds to a step of at most 2^i rows in all; 0: unknown */
	double row_ns[IG_PACE_STEPS];
	double rows[IG_PACE_STEPS]; /* that such steps have of late */
	uint32_t last[IG_PACE_STEPS],
		n_steps;	     /* which of them was the last one of this size; all of them */
	struct ig_pace_line line;    /* all steps with such rows */
	struct ig_pace_line drafts;  /* what their rows add to a step of streams alone */
	struct ig_pace_line guesses; /* steps of its draft model, by their rows */
	struct ig_pace_line heads; /* what guesses of its own head add to a step of streams alone */
};

/* Of all models together. */
struct ig_pace_account {
	double credit_ns;   /* time that long prompts may take before streams have had theirs */
	double share;	    /* of long prompts, at the time of the last step that was planned */
	double limit_ns;    /* of what they add to one step */
	uint32_t n_others;  /* rows of streams and drafts in the last plan */
	uint32_t n_mixed;   /* steps with rows of long prompts since one without */
	uint32_t n_planned; /* plans with rows of long prompts */
	uint32_t n_unknown; /* plans in a row that waited for a measurement */
};

/* What is to be planned for one model. */
struct ig_pace_plan {
	uint32_t n_streams;	/* that decode, of this model */
	double quiet_ns;	/* of one step of each model with streams; 0: not known yet */
	double share;		/* scheduler.prompt_share */
	uint32_t n_all_streams; /* of all models, without extra ones; 0: nothing is limited */
	uint32_t n_prompts;	/* long ones, of all models */
	uint32_t n_drafts;	/* rows of drafts that are planned already */
	int32_t chunk;		/* rows at most */
	int32_t n_rows; /* that the longest of this model's prompts has in all, read or not */
};

/* What a step was. */
struct ig_pace_step {
	uint32_t n_decode, n_prefill,
		n_long;	    /* rows; n_long: of long prompts, a part of n_prefill */
	uint32_t n_drafts;  /* rows of drafts (speculate.c), not counted above */
	uint32_t n_guesses; /* of the model's own head behind rows of streams */
	bool limited;	    /* streams were there when it was planned */
	double ns;
	double draft_ns; /* that the draft model took before it */
};

/* What a step of n streams takes; 0: not known. */
double ig_pace_quiet_ns(const struct ig_pace *p, uint32_t n);
/* Of n_all streams, of which n are in the step anyway, the most with which a step takes at most
 * `times` as long, as far as that is known; at least n. */
uint32_t ig_pace_most_streams(const struct ig_pace *p, uint32_t n, uint32_t n_all, double times);
/* What rows of drafts add to a step of n streams: *step once, and *row for each.  False: it is not
 * known what the streams alone take. */
bool ig_pace_draft_cost(const struct ig_pace *p, uint32_t n, double *step, double *row);
/* Rows of drafts in one step at most: a line through steps with few tells little about many. */
int32_t ig_pace_draft_rows(const struct ig_pace *p);
/* The same of a step of the draft model.  False: none was measured. */
bool ig_pace_guess_cost(const struct ig_pace *p, double *step, double *row);
/* What guesses of the model's own head add to a step that alone takes quiet_ns: *step once, and *row for each; a guess
 * where no step with some was measured. */
void ig_pace_head_cost(const struct ig_pace *p, double quiet_ns, double *step, double *row);
/* A step of the draft model with n_rows took ns.  expected_ns: what it was thought to take; the first one may have been
 * disturbed, so it counts as twice that at most. */
void ig_pace_learn_guess(struct ig_pace *p, uint32_t n_rows, double ns, double expected_ns);
/* No draft seemed worth its cost: what was measured of that is forgotten slowly, in case it was
 * measured while the machine did something else. */
void ig_pace_forget_drafts(struct ig_pace *p);
/* Rows of drafts in the next round of steps at most, so that long prompts can have some too. */
int32_t ig_pace_most_drafts(const struct ig_pace_account *a, const struct ig_pace *p,
			    const struct ig_pace_plan *plan);
/* Most rows of long prompts in the next round of steps; 0: none; IG_PACE_NO_LIMIT. */
int32_t ig_pace_rows(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_plan *plan);
/* No stream has had the round that prompts were held back for: they are not, in the next one. */
void ig_pace_forgive(struct ig_pace_account *a);
/* A step is done. */
void ig_pace_learn(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_step *step);
