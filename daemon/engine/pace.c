/* pace.c: see pace_private.h. */
#include "daemon/engine/pace_private.h"

#include <math.h>
#include <stddef.h>

/* A step's rows of long prompts may take so many times what the streams alone take: with the
 * streams' own part a gap of 2.25 times that of a quiet engine. */
#define LIMIT 1.25
/* Where long prompts outnumber streams, nearly all steps have some of their rows: these take about what the
 * streams alone take, and with drafts at most so much more.  Drafts beside any prompt have a part of that. */
#define MANY_LIMIT 1.0
#define MOST_MORE 1.75
#define DRAFTS_PART 0.25
/* Rows as few as that bound allows are worth a step if they are at least such a part of what they add; if not
 * the bound is so much higher. */
#define LEAST_PART 0.1
#define HIGHER 1.6
/* GPUs compute 16 rows nearly in the time of one, and more by other kernels: such rows of prompts, and what of the
 * streams' time a step with them may add to call them free. */
#define FEW_ROWS 15
#define FREE 0.2
#define TRIALS 6 /* of more rows, before they are compared with few */
/* Rows while it is not known what streams alone take; while it is not known what a row takes; and the fewest
 * ever: with less, a step costs more than its rows are worth. */
#define UNKNOWN_ROWS 16
#define FIRST_ROWS 8
#define MIN_ROWS 4
#define GROWTH 2 /* of the rows from one such step to the next, at most */
/* The same where several prompts take turns: one behind few tokens and one behind many make the line wrong. */
#define MANY_GROWTH 1.25
/* So many steps with rows of prompts, then one without, which measures what streams take. */
#define MIXED_STEPS 32
/* Plans that wait for a measurement; streams beside prompts that are never held back give none. */
#define UNKNOWN_PLANS 4
/* A new measurement's weight; one that is far off, because the machine did something else, counts
 * as one that is twice as large. */
#define WEIGHT 0.25
#define OUTLIER 2.0
/* What a step counts after the next one; and of rows' counts the least spread that shows a line. */
#define KEPT 0.92
#define LEAST_SPREAD 0.005
#define LEAST_ROW 0.02	 /* of a row's whole cost: what a row adds at least */
#define LEAST_COST 0.001 /* of a step: what its rows of prompts cost at least */
#define SMALLER 0.67
/* A whole chunk instead of few rows: where these cost so many times what its rows do; it takes at most so
 * long; and the prompt has so many chunks left.  One such plan of so many has few rows, to measure them. */
#define FEW_COST 1.25
#define MOST_CHUNK_NS 1e8
#define CHUNKS_LEFT 8
#define FEW_PLANS 16
#define CHUNK_PART 0.75 /* of a chunk is nearly one */
#define WHOLE_KEPT 0.9995
/* What a draft's row adds until it is known, in parts of a step of one stream; and how fast that is forgotten. */
#define FIRST_DRAFT 0.25
#define DRAFTS_KEPT 0.998
#define FIRST_DRAFT_ROWS 4
/* The account is kept between a limit and a debt of so many, or of so many steps as they usually are: what
 * was long ago, or took long for another reason, is forgotten. */
#define MOST_DEBT 4.0

static size_t size_of(uint32_t n)
{
	size_t i = 0;

	while (i + 1 < IG_PACE_SIZES && n >> (i + 1))
		i++;
	return i;
}

static void measure(double *estimate, double ns)
{
	if (*estimate <= 0) {
		*estimate = ns;
		return;
	}
	if (ns > OUTLIER * *estimate)
		ns = OUTLIER * *estimate;
	*estimate += WEIGHT * (ns - *estimate);
}

double ig_pace_quiet_ns(const struct ig_pace *p, uint32_t n)
{
	return n ? p->quiet_ns[size_of(n)] : 0;
}

uint32_t ig_pace_most_streams(const struct ig_pace *p, uint32_t n, uint32_t n_all, double times)
{
	double limit = times * ig_pace_quiet_ns(p, n);

	for (size_t i = size_of(n_all); i > size_of(n); i--) {
		uint32_t most = (2u << i) - 1;
		if (p->quiet_ns[i] > 0 && p->quiet_ns[i] <= limit)
			return most < n_all ? most : n_all;
	}
	return n;
}

/* The larger of two: the option, and what all but one of the long prompts would have if each of them
 * and each stream had the same.  One prompt never takes more than the option says. */
static double share_of(const struct ig_pace_plan *plan)
{
	double others = plan->n_prompts > 1 ? plan->n_prompts - 1 : 0;
	double equal = others / (others + plan->n_all_streams);

	return equal > plan->share ? equal : plan->share;
}

static bool are_many(const struct ig_pace_plan *plan) { return share_of(plan) > plan->share; }

/* So many times what streams alone take, or what the share needs. */
static double limit_of(const struct ig_pace_plan *plan, double times)
{
	double least = LIMIT * plan->share / (1 - plan->share);

	/* with a large share some steps must still be the streams' alone */
	return plan->quiet_ns * (least > times ? least : times);
}

/* A step with n rows of long prompts costs *step + n * *row.  False: not known. */
static bool costs(const struct ig_pace_line *l, double *step, double *row)
{
	double spread = l->n * l->rows2 - l->rows * l->rows;
	double all = l->rows > 0 ? l->ns / l->rows : 0;

	if (all <= 0)
		return false;
	*row = spread > LEAST_SPREAD * l->rows * l->rows ?
		       (l->n * l->rows_ns - l->rows * l->ns) / spread :
		       all;
	if (*row > all)
		*row = all;
	if (*row < LEAST_ROW * all)
		*row = LEAST_ROW * all;
	*step = (l->ns - *row * l->rows) / l->n;
	return true;
}

static void add_cost(struct ig_pace_line *l, double rows, double ns)
{
	double step, row;

	if (costs(l, &step, &row) && ns > OUTLIER * (step + row * rows))
		ns = OUTLIER * (step + row * rows);
	l->n = KEPT * l->n + 1;
	l->rows = KEPT * l->rows + rows;
	l->ns = KEPT * l->ns + ns;
	l->rows2 = KEPT * l->rows2 + rows * rows;
	l->rows_ns = KEPT * l->rows_ns + rows * ns;
}

bool ig_pace_draft_cost(const struct ig_pace *p, uint32_t n, double *step, double *row)
{
	double quiet = ig_pace_quiet_ns(p, n);

	if (quiet <= 0)
		return false;
	if (costs(&p->drafts, step, row))
		return true;
	/* a step of n streams is about one of one stream and n - 1 rows more */
	*step = 0;
	*row = quiet * FIRST_DRAFT / (1 + FIRST_DRAFT * (n - 1));
	return true;
}

int32_t ig_pace_draft_rows(const struct ig_pace *p)
{
	const struct ig_pace_line *l = &p->drafts;
	double usual = l->n > 0 ? l->rows / l->n : 0;

	return (int32_t)(FIRST_DRAFT_ROWS + GROWTH * usual);
}

bool ig_pace_guess_cost(const struct ig_pace *p, double *step, double *row)
{
	return costs(&p->guesses, step, row);
}

void ig_pace_learn_guess(struct ig_pace *p, uint32_t n_rows, double ns, double expected_ns)
{
	double step, row;

	if (!costs(&p->guesses, &step, &row) && ns > OUTLIER * expected_ns)
		ns = OUTLIER * expected_ns;
	add_cost(&p->guesses, n_rows, ns);
}

void ig_pace_forget_drafts(struct ig_pace *p)
{
	p->drafts.ns *= DRAFTS_KEPT;
	p->drafts.rows_ns *= DRAFTS_KEPT;
}

/* A step with drafts took so much more than its streams alone; returns what they usually take. */
static double learn_drafts(struct ig_pace *p, const struct ig_pace_step *step, double quiet)
{
	double own, row, least = 1e-3 * quiet;

	if (!step->n_prefill && quiet > 0)
		add_cost(&p->drafts, step->n_drafts,
			 step->ns - quiet > least ? step->ns - quiet : least);
	return ig_pace_draft_cost(p, step->n_decode, &own, &row) ? own + row * step->n_drafts : 0;
}

/* Whether a round is the streams' alone: they have not had their time, or its cost must be measured. */
static bool is_quiet(const struct ig_pace_account *a, const struct ig_pace_plan *plan)
{
	return a->credit_ns < 0 || (plan->n_streams && a->n_mixed >= MIXED_STEPS);
}

int32_t ig_pace_most_drafts(const struct ig_pace_account *a, const struct ig_pace *p,
			    const struct ig_pace_plan *plan)
{
	double step, row, limit = DRAFTS_PART * limit_of(plan, MOST_MORE);

	if (!plan->n_prompts || plan->quiet_ns <= 0 || is_quiet(a, plan) ||
	    !ig_pace_draft_cost(p, plan->n_streams, &step, &row))
		return IG_PACE_NO_LIMIT;
	return limit > step ? (int32_t)fmin((limit - step) / row, IG_PACE_NO_LIMIT) : 0;
}

/* As many rows as cost limit_ns.  But a step has its own cost, too, which may be more than that: then
 * few large steps are better than many small ones, and half of what they cost should be their rows'; though
 * it costs no more than most_ns, if that leaves enough for rows. */
static double affordable(const struct ig_pace_line *l, double limit_ns, double most_ns)
{
	double step, row;

	if (!costs(l, &step, &row))
		return FIRST_ROWS;
	double rows = fmax((limit_ns - step) / row, step / row);
	if (step > (1 - LEAST_PART) * most_ns)
		most_ns *= HIGHER;
	return step > (1 - LEAST_PART) * most_ns ? rows : fmin(rows, (most_ns - step) / row);
}

/* What this plan's drafts add to a step. */
static double cost_of_drafts(const struct ig_pace *p, const struct ig_pace_plan *plan)
{
	double step, row;

	if (!plan->n_drafts || !ig_pace_draft_cost(p, plan->n_streams, &step, &row))
		return 0;
	return step + row * plan->n_drafts;
}

/* How many rows a step has for its time, which is quiet_ns without them. */
static double rate(const struct ig_pace_line *l, double rows, double quiet_ns)
{
	double step = 0, row = 0;

	costs(l, &step, &row);
	return rows / (quiet_ns + step + row * rows);
}

/* Whether few rows cost next to nothing, as on a GPU, so that a line through few and many means little. */
static bool are_free(const struct ig_pace *p, double quiet_ns)
{
	const struct ig_pace_line *few = &p->few;

	return few->n > 0 && few->ns < FREE * quiet_ns * few->n &&
	       2 * few->rows > FIRST_ROWS * few->n;
}

/* Rows of many prompts. */
static double rows_of_many(struct ig_pace *p, const struct ig_pace_plan *plan, double limit_ns,
			   double most_ns)
{
	if (!are_free(p, plan->quiet_ns))
		return affordable(&p->line, limit_ns, most_ns);
	if (p->more.n < TRIALS) /* little is known: up to the bound */
		return p->more.n > 0 ? fmax(affordable(&p->more, most_ns, most_ns), FEW_ROWS + 1) :
				       plan->chunk;
	double more = affordable(&p->more, limit_ns, most_ns);
	if (more > FEW_ROWS &&
	    rate(&p->more, more, plan->quiet_ns) > rate(&p->few, FEW_ROWS, plan->quiet_ns))
		return more;
	p->more.ns *= WHOLE_KEPT; /* it was long ago, behind less or more of a prefix */
	p->more.rows_ns *= WHOLE_KEPT;
	return FEW_ROWS;
}

/* Rows of long prompts beside streams, if they are to have any. */
static double rows_beside(struct ig_pace_account *a, struct ig_pace *p,
			  const struct ig_pace_plan *plan)
{
	/* a line through few steps may be far off where none of them was */
	double grown = a->last_rows > FIRST_ROWS / GROWTH ? GROWTH * a->last_rows : FIRST_ROWS;
	double rows;

	if (plan->n_prompts > 1 && a->last_rows > 0)
		grown = fmax(MANY_GROWTH * a->last_rows, MIN_ROWS + 1);
	if (are_many(plan)) {
		double most = limit_of(plan, MOST_MORE) - cost_of_drafts(p, plan);
		rows = rows_of_many(p, plan, fmin(a->limit_ns, most), most);
	} else {
		rows = affordable(&p->line, a->limit_ns, HUGE_VAL);
	}
	return fmin(fmin(rows, grown), plan->chunk);
}

/* Whether a whole chunk is better than so few rows. */
static bool takes_chunk(const struct ig_pace_account *a, struct ig_pace *p,
			const struct ig_pace_plan *plan, double rows)
{
	double step = 0, row = 0, few;

	if (plan->n_left / CHUNKS_LEFT < plan->chunk || 2 * rows > plan->chunk ||
	    !costs(&p->line, &step, &row))
		return false;
	few = step / rows + row;
	if (p->whole_ns <= 0) /* a chunk should cost less than the line says, so it is tried */
		return step + row * plan->chunk < 2 * MOST_CHUNK_NS;
	if (p->whole_ns * FEW_COST < few)
		return p->whole_ns * plan->chunk < MOST_CHUNK_NS && a->n_planned % FEW_PLANS;
	p->whole_ns *= WHOLE_KEPT; /* it was long ago, behind less or more of a prefix */
	return false;
}

int32_t ig_pace_rows(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_plan *plan)
{
	a->chunk = plan->chunk;
	if (!plan->n_all_streams) {
		/* what streams are owed stays owed: a reply is often followed by the next one */
		*a = (struct ig_pace_account){ .credit_ns = a->credit_ns < 0 ? a->credit_ns : 0,
					       .chunk = plan->chunk };
		return IG_PACE_NO_LIMIT;
	}
	if (plan->quiet_ns <= 0) {
		if (plan->n_streams && a->n_unknown++ < UNKNOWN_PLANS)
			return 0;
		a->n_unknown = 0;
		return UNKNOWN_ROWS;
	}
	a->n_unknown = 0;
	a->share = share_of(plan);
	a->limit_ns = limit_of(plan, are_many(plan) ? MANY_LIMIT : LIMIT);
	if (is_quiet(a, plan)) {
		a->n_mixed = 0;
		return 0;
	}
	double rows = rows_beside(a, p, plan);
	a->last_rows = rows;
	if (takes_chunk(a, p, plan, rows)) {
		a->n_planned++;
		return plan->chunk;
	}
	/* every other step has a third less, or a step's own cost would never show */
	rows *= ++a->n_planned % 2 ? SMALLER : 1;
	return rows < MIN_ROWS ? MIN_ROWS : (int32_t)rows;
}

/* Rows of long prompts added cost_ns to a step; returns what they usually do, 0 if that is not known. */
static double learn_rows(const struct ig_pace_account *a, struct ig_pace *p, uint32_t n,
			 double cost_ns)
{
	double own, row, usual;

	/* a chunk beside plans of few rows, or alone */
	if (a->chunk > 0 && n >= CHUNK_PART * a->chunk && 2 * a->last_rows <= n) {
		measure(&p->whole_ns, cost_ns / n);
		return p->whole_ns * n;
	}
	usual = costs(&p->line, &own, &row) ? own + row * n : 0;
	add_cost(&p->line, n, cost_ns);
	add_cost(n > FEW_ROWS ? &p->more : &p->few, n, cost_ns);
	return usual;
}

void ig_pace_learn(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_step *step)
{
	double quiet, cost = 0, usual = 0;

	if (step->n_decode && !step->n_prefill && !step->n_drafts)
		measure(&p->quiet_ns[size_of(step->n_decode)], step->ns);
	quiet = ig_pace_quiet_ns(p, step->n_decode);
	if (step->n_drafts)
		quiet += learn_drafts(p, step, quiet);
	if (step->n_long) { /* rows that are free are measured, too */
		cost = fmax(step->ns - quiet, LEAST_COST * step->ns) * step->n_long /
		       step->n_prefill;
		usual = learn_rows(a, p, step->n_long, cost);
	}
	if (!step->limited)
		return;
	a->n_mixed += step->n_long > 0;
	a->credit_ns += a->share * (step->ns + step->draft_ns) - cost;
	if (a->credit_ns > a->limit_ns)
		a->credit_ns = a->limit_ns;
	double most = -MOST_DEBT * (usual > a->limit_ns ? usual : a->limit_ns);
	if (step->n_long && a->credit_ns < most)
		a->credit_ns = most;
}
