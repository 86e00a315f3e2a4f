/* pace.c: see pace_private.h. */
#include "daemon/engine/pace_private.h"

#include <math.h>
#include <stddef.h>

/* Rows of long prompts, with drafts, add so many times what the streams alone take: a gap between two tokens is
 * 2.4 times as long as a quiet engine's, which leaves a fifth for noise below three times. */
#define LIMIT 1.4
/* That may be so many times as much where a step has so many times the rows, and prompts become so much faster: where
 * a GPU's kernels for more than 16 rows cost much once. */
#define LONGER 1.25
#define TRIAL 1.4 /* as much again, by the size below, where a larger one is tried */
#define MORE 1.8
#define FASTER 1.15
/* Drafts beside prompts have a part of the limit. */
#define DRAFTS_PART 0.2
/* The fewest rows ever, and the first: with less, a step costs more than its rows are worth.  Where these add so many
 * times the limit, longer steps are better. */
#define MIN_ROWS 4
#define HOPELESS 2
/* A prompt of so many chunks gets whole ones if they are faster, and take at most so long. */
#define LONG_CHUNKS 8
#define MOST_CHUNK_NS 1e8
/* One of so many plans measures what is not chosen: steps within the limit; or longer ones, where what is chosen adds
 * at most such a part of the streams' own time. */
#define OTHER_PLANS 16
#define FREE 0.2
/* So many steps with rows of prompts, then one without, which measures what streams take; and plans that wait
 * for that: streams beside prompts that are never held back give none. */
#define MIXED_STEPS 32
#define UNKNOWN_PLANS 4
/* A new measurement's weight.  One that is more than twice as large as usual counts as twice, since the machine
 * did something else.  What was last measured more than FRESH steps ago, behind more or less of a prefix, is
 * replaced; and a size of steps that was not for STALE steps is tried again. */
#define WEIGHT 0.125
#define OUTLIER 2.0
#define FRESH 16
#define STALE 128
#define LEAST_COST 0.001 /* of a step: what its rows of prompts add at least */
/* Lines: what a step counts after the next one; of rows' counts the least spread that shows one; what a row adds
 * at least, in parts of its whole cost. */
#define KEPT 0.92
#define LEAST_SPREAD 0.005
#define LEAST_ROW 0.02
/* What a draft's row, and a guess of the model's head, add until it is known, in parts of a step of one stream; how
 * fast that is forgotten; rows at first, and besides so many times as many as usual. */
#define FIRST_DRAFT 0.25
#define FIRST_GUESS 0.1
#define DRAFTS_KEPT 0.998
#define FIRST_DRAFT_ROWS 4
#define GROWTH 2
/* The account is kept between a limit and a debt of so many, or of so many steps as they usually are: what
 * was long ago, or took long for another reason, is forgotten. */
#define MOST_DEBT 2.0

static size_t size_of(uint32_t n)
{
	size_t i = 0;

	while (i + 1 < IG_PACE_SIZES && n >> (i + 1))
		i++;
	return i;
}

/* Rows of a step of size i at most: powers of two, beyond which devices have other kernels, and one between. */
static uint32_t largest_step(size_t i) { return i % 2 ? 181u << i / 2 >> 7 : 1u << i / 2; }

/* The least size of a step of n rows. */
static size_t size_of_step(uint32_t n)
{
	size_t i = 0;

	while (i + 1 < IG_PACE_STEPS && n > largest_step(i))
		i++;
	return i;
}

/* What takes less than half of what was thought was thought wrong: it is halved. */
static void measure(double *estimate, double ns, double weight)
{
	if (*estimate <= 0) {
		*estimate = ns;
		return;
	}
	if (ns < *estimate / OUTLIER) {
		*estimate /= OUTLIER;
		return;
	}
	if (ns > OUTLIER * *estimate)
		ns = OUTLIER * *estimate;
	*estimate += weight * (ns - *estimate);
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

/* What rows of prompts and drafts may add to a step. */
static double limit_of(const struct ig_pace_plan *plan)
{
	double large = plan->share / (1 - plan->share);

	/* with a large share some steps must still be the streams' alone */
	return plan->quiet_ns * LIMIT * (large > 1 ? large : 1);
}

/* n rows cost *step + n * *row.  False: not known. */
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

/* first: what it was thought to take where nothing is known.  At most twice of what was thought counts. */
static void add_cost(struct ig_pace_line *l, double rows, double ns, double first)
{
	double step, row;

	ns = fmin(ns, OUTLIER * (costs(l, &step, &row) ? step + row * rows : first));
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
	add_cost(&p->guesses, n_rows, ns, expected_ns);
}

void ig_pace_head_cost(const struct ig_pace *p, double quiet_ns, double *step, double *row)
{
	if (costs(&p->heads, step, row))
		return;
	*step = 0;
	*row = quiet_ns * FIRST_GUESS;
}

void ig_pace_forget_drafts(struct ig_pace *p)
{
	p->drafts.ns *= DRAFTS_KEPT;
	p->drafts.rows_ns *= DRAFTS_KEPT;
}

/* A step of streams that alone take so long had so many rows more, which were thought to take so long.  If the whole
 * step took less than half of what was thought, what the rows take is halved, as in measure().  Otherwise one step
 * that the machine disturbed is believed until many more were measured, and where rows seem to cost more than they
 * bring few are. */
static void learn_rows(struct ig_pace_line *l, double rows, double ns, double quiet, double thought)
{
	if (ns < (quiet + thought) / OUTLIER) {
		l->ns /= OUTLIER;
		l->rows_ns /= OUTLIER;
		return;
	}
	add_cost(l, rows, fmax(ns - quiet, 1e-3 * quiet), thought);
}

/* A step with drafts took so much more than its streams alone; returns what they usually take. */
static double learn_drafts(struct ig_pace *p, const struct ig_pace_step *step, double quiet)
{
	double own, row;

	if (!ig_pace_draft_cost(p, step->n_decode, &own, &row))
		return 0;
	if (!step->n_prefill)
		learn_rows(&p->drafts, step->n_drafts, step->ns, quiet, own + row * step->n_drafts);
	ig_pace_draft_cost(p, step->n_decode, &own, &row);
	return own + row * step->n_drafts;
}

/* The same of a step with guesses of the model's head. */
static double learn_heads(struct ig_pace *p, const struct ig_pace_step *step, double quiet)
{
	double own, row;

	if (quiet <= 0)
		return 0;
	ig_pace_head_cost(p, quiet, &own, &row);
	if (!step->n_prefill && !step->n_drafts)
		learn_rows(&p->heads, step->n_guesses, step->ns, quiet,
			   own + row * step->n_guesses);
	ig_pace_head_cost(p, quiet, &own, &row);
	return own + row * step->n_guesses;
}

/* Whether a round is the streams' alone: they have not had their time, or its cost must be measured. */
static bool is_quiet(const struct ig_pace_account *a, const struct ig_pace_plan *plan)
{
	return a->credit_ns < 0 || (plan->n_streams && a->n_mixed >= MIXED_STEPS);
}

int32_t ig_pace_most_drafts(const struct ig_pace_account *a, const struct ig_pace *p,
			    const struct ig_pace_plan *plan)
{
	double step, row, limit = limit_of(plan) * (is_quiet(a, plan) ? 1 : DRAFTS_PART);

	if (!plan->n_prompts || plan->quiet_ns <= 0 ||
	    !ig_pace_draft_cost(p, plan->n_streams, &step, &row))
		return IG_PACE_NO_LIMIT;
	return limit > step ? (int32_t)fmin((limit - step) / row, IG_PACE_NO_LIMIT) : 0;
}

/* What this plan's drafts add to a step. */
static double cost_of_drafts(const struct ig_pace *p, const struct ig_pace_plan *plan)
{
	double step, row;

	if (!plan->n_drafts || !ig_pace_draft_cost(p, plan->n_streams, &step, &row))
		return 0;
	return step + row * plan->n_drafts;
}

/* ---- rows of long prompts ----------------------------------------------------------------- */

/* Rows that a step may have, and what they add to it. */
struct choice {
	double rows, ns;
};

/* Rows of prompts in a step of size i at most; less than 1: its other rows alone are more. */
static double most_rows(const struct ig_pace_plan *plan, size_t i)
{
	double others = (double)plan->n_streams + plan->n_drafts;

	return fmin(largest_step(i) - others, plan->chunk);
}

/* How fast prompts are read: in every step if their share pays for that.  by_rows: as if the streams' own part
 * of a step were so long that rows are all that counts. */
static double speed(const struct ig_pace_plan *plan, struct choice c, bool by_rows)
{
	double every = c.rows / (plan->quiet_ns + c.ns);

	if (by_rows)
		return c.rows;
	return c.ns > 0 ? fmin(every, share_of(plan) * c.rows / c.ns) : every;
}

/* Whether steps of size i were measured or tried in the last n. */
static bool was_seen(const struct ig_pace *p, size_t i, uint32_t n)
{
	return p->last[i] && p->n_steps - p->last[i] < n;
}

/* Of a step of size i, with at most so many rows, what adds at most limit_ns: by the line to the size below,
 * and carefully for more rows than usual, as if each cost as much. */
static struct choice within(const struct ig_pace *p, size_t i, double most, double limit_ns)
{
	double usual = p->rows[i] * p->row_ns[i], row = p->row_ns[i];
	double few = i ? p->rows[i - 1] : 0, below = i ? few * p->row_ns[i - 1] : 0;

	if (limit_ns < usual && few > 0 && few < p->rows[i] && below < limit_ns)
		row = (usual - below) / (p->rows[i] - few);
	double rows = floor(fmin(most, p->rows[i] + (limit_ns - usual) / row));
	return (struct choice){ rows, fmax(usual + (rows - p->rows[i]) * row, below) };
}

/* The fastest choice that adds at most limit_ns, or the one with the most rows (speed).  A size that was not tried, or
 * not for long, is, with one row more than the size below can have, unless that might add more than trial_ns. */
static struct choice fastest(const struct ig_pace *p, const struct ig_pace_plan *plan,
			     double limit_ns, double trial_ns, bool by_rows)
{
	struct choice best = { 0 };
	double least = 0,
	       below = 0; /* the most rows of the size below, and what they add at most */

	for (size_t i = 0; i + 1 < IG_PACE_STEPS && least < plan->chunk; i++) {
		bool is_known = p->row_ns[i] > 0;
		double most = most_rows(plan, i);
		if (most < MIN_ROWS && most < plan->chunk)
			continue;
		if (!is_known && least <= 0)
			return (struct choice){ fmin(most, MIN_ROWS), 0 };
		struct choice c = is_known ? within(p, i, most, limit_ns) : (struct choice){ 0 };
		bool fits = c.rows > least && c.ns <= limit_ns;
		bool is_due = !was_seen(p, i, STALE) && (!is_known || best.rows == least);
		if (!fits && is_due && least > 0 && below <= trial_ns)
			return (struct choice){ least + 1, 0 };
		if (fits && speed(plan, c, by_rows) > speed(plan, best, by_rows))
			best = c;
		if (!fits && (!is_known || best.rows > 0))
			break;
		below = most * p->row_ns[i];
		least = most;
	}
	return best;
}

/* Whether more than half of what steps of size i add is their own, and not their rows', if those of size i + 1
 * are right. */
static bool adds_much(const struct ig_pace *p, size_t i)
{
	double few = p->rows[i], many = p->rows[i + 1];

	return 2 * many * p->row_ns[i + 1] < (few + many) * p->row_ns[i];
}

/* What the fewest rows add. */
static double least_ns(const struct ig_pace *p, const struct ig_pace_plan *plan)
{
	size_t i = size_of_step(MIN_ROWS + plan->n_streams + plan->n_drafts);

	return p->row_ns[i] * p->rows[i];
}

/* Where a step adds much more than the limit, whatever its rows: from the fewest on twice as many, and again, until
 * half of what it adds is theirs. */
static struct choice cheaper(const struct ig_pace *p, const struct ig_pace_plan *plan)
{
	size_t i = size_of_step(MIN_ROWS + plan->n_streams + plan->n_drafts);

	for (; i + 1 < IG_PACE_STEPS && most_rows(plan, i) < plan->chunk; i++) {
		bool is_tried = p->row_ns[i + 1] > 0;
		if (is_tried && !adds_much(p, i))
			break;
		if (!is_tried && p->row_ns[i] > 0) /* as if rows cost nothing */
			return (struct choice){ most_rows(plan, i + 1),
						most_rows(plan, i) * p->row_ns[i] };
	}
	return (struct choice){ most_rows(plan, i), most_rows(plan, i) * p->row_ns[i] };
}

/* If the prompt has many.  What a chunk takes may be known only by steps with fewer rows, which make it seem
 * too much. */
static struct choice whole_chunk(const struct ig_pace *p, const struct ig_pace_plan *plan)
{
	size_t i = size_of_step((uint32_t)plan->chunk + plan->n_streams + plan->n_drafts);
	double step, row, ns = p->row_ns[i] * plan->chunk;

	if (plan->n_rows / LONG_CHUNKS < plan->chunk)
		return (struct choice){ 0 };
	if (p->row_ns[i] <= 0 || !was_seen(p, i, 4 * STALE))
		ns = costs(&p->line, &step, &row) ? (step + row * plan->chunk) / 2 : HUGE_VAL;
	return (struct choice){ ns < MOST_CHUNK_NS ? plan->chunk : 0, ns };
}

/* b, if it is worth a longer step. */
static struct choice faster(const struct ig_pace_plan *plan, struct choice a, struct choice b)
{
	return b.rows > MORE * a.rows && speed(plan, b, false) > FASTER * speed(plan, a, false) ?
		       b :
		       a;
}

/* Rows of long prompts beside streams, if they are to have any.  other: not what is best, but something else, to know
 * what that takes now. */
static struct choice choose(const struct ig_pace *p, const struct ig_pace_plan *plan, bool other)
{
	double limit = fmax(limit_of(plan) - cost_of_drafts(p, plan), 0), trial = TRIAL * limit;
	struct choice c = fastest(p, plan, limit, trial, false);

	if (other)
		return c.ns < FREE * plan->quiet_ns ?
			       fastest(p, plan, LONGER * limit, trial, true) :
			       c;
	c = faster(plan, c, fastest(p, plan, LONGER * limit, trial, false));
	if (least_ns(p, plan) > HOPELESS * limit_of(plan))
		c = faster(plan, c, cheaper(p, plan));
	return faster(plan, c, whole_chunk(p, plan));
}

int32_t ig_pace_rows(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_plan *plan)
{
	if (!plan->n_all_streams) {
		/* what streams are owed stays owed: a reply is often followed by the next one */
		*a = (struct ig_pace_account){ .credit_ns = a->credit_ns < 0 ? a->credit_ns : 0 };
		return IG_PACE_NO_LIMIT;
	}
	if (plan->quiet_ns <= 0) {
		if (plan->n_streams && a->n_unknown++ < UNKNOWN_PLANS)
			return 0;
		a->n_unknown = 0;
		return MIN_ROWS;
	}
	a->n_unknown = 0;
	a->share = share_of(plan);
	a->limit_ns = limit_of(plan);
	a->n_others = plan->n_streams + plan->n_drafts;
	if (is_quiet(a, plan)) {
		a->n_mixed = 0;
		return 0;
	}
	double rows = fmax(choose(p, plan, ++a->n_planned % OTHER_PLANS == 0).rows, MIN_ROWS);
	size_t i = size_of_step((uint32_t)rows + plan->n_streams + plan->n_drafts);
	if (p->row_ns[i] <= 0) /* it may come in two steps, and show nothing */
		p->last[i] = p->n_steps ? p->n_steps : 1;
	return (int32_t)rows;
}

void ig_pace_forgive(struct ig_pace_account *a)
{
	a->credit_ns = fmax(a->credit_ns, 0);
	a->n_mixed = 0;
	a->n_unknown = UNKNOWN_PLANS;
}

void ig_pace_learn(struct ig_pace_account *a, struct ig_pace *p, const struct ig_pace_step *step)
{
	double quiet, cost = 0, usual = 0;

	if (step->n_decode && !step->n_prefill && !step->n_drafts && !step->n_guesses)
		measure(&p->quiet_ns[size_of(step->n_decode)], step->ns, WEIGHT);
	/* where there are no streams a step reads the weights as well; beside some it is the rest of a round, and
	 * all of it comes on top */
	quiet = ig_pace_quiet_ns(p, step->n_decode || step->limited ? step->n_decode : 1);
	if (step->n_guesses)
		quiet += learn_heads(p, step, quiet);
	if (step->n_drafts)
		quiet += learn_drafts(p, step, quiet);
	if (step->n_long) { /* rows that are free are measured, too */
		bool is_rest = !step->n_decode && step->limited; /* of a round */
		uint32_t others = is_rest ? a->n_others : step->n_decode + step->n_drafts;
		size_t i = size_of_step(others + step->n_prefill);
		double each = fmax(step->ns - quiet, LEAST_COST * step->ns) / step->n_prefill;
		cost = each * step->n_long;
		usual = p->row_ns[i] * step->n_long;
		/* what it was long ago, behind less of a prefix, says little */
		double weight = ++p->n_steps - p->last[i] > FRESH ? 1 : WEIGHT;
		p->last[i] = p->n_steps;
		measure(&p->row_ns[i], each, weight);
		add_cost(&p->line, step->n_long, cost, INFINITY);
		measure(&p->rows[i], step->n_long, weight);
	}
	if (!step->limited)
		return;
	a->n_mixed += step->n_long > 0;
	a->credit_ns += a->share * (step->ns + step->draft_ns) - cost;
	if (a->credit_ns > a->limit_ns)
		a->credit_ns = a->limit_ns;
	double most = -MOST_DEBT * fmax(usual, a->limit_ns);
	if (step->n_long && a->credit_ns < most)
		a->credit_ns = most;
}
