/* parts.c: see parts.h. */
#include "runtime/machines/parts.h"

#include <stdbool.h>
#include <stddef.h>

/* Until anything is known: so many rows at least, and at most so many parts a rank. */
#define FIRST_ROWS 8u
#define FIRST_PARTS 2u
/* At most, a rank: more gain less than a tenth. */
#define MOST_PARTS 8u
/* One of so many steps tries another number, if a part of that size was hardly measured, or not for STALE steps. */
#define TRY 16u
#define STALE 512u
#define SURE 8u /* measurements: the first are those of a cold start */
/* Of a new measurement.  One of less than half is believed at once: the other was of a first time. */
#define WEIGHT 0.125

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t size_of(uint32_t n_rows)
{
	uint32_t i = 0;

	while (i + 1 < IG_PARTS_SIZES && n_rows > 1u << i)
		i++;
	return i;
}

static uint32_t rows_of(uint32_t n_rows, uint32_t n_parts)
{
	return (n_rows + n_parts - 1) / n_parts;
}

/* Between what is known on a line; fewer rows than that take as long, more so many times as long. 0: nothing is known. */
static double time_of(const struct ig_parts *p, uint32_t n_rows)
{
	const struct ig_part_time *below = NULL, *above = NULL;

	for (uint32_t i = 0; i < IG_PARTS_SIZES; i++) {
		const struct ig_part_time *t = &p->sizes[i];
		if (t->ns > 0 && t->rows <= n_rows)
			below = t;
		else if (t->ns > 0 && !above)
			above = t;
	}
	if (!below || !above)
		return above ? above->ns : below ? below->ns * n_rows / below->rows : 0;
	return below->ns +
	       (above->ns - below->ns) * (n_rows - below->rows) / (above->rows - below->rows);
}

static uint32_t best(const struct ig_parts *p, uint32_t n_rows, uint32_t n_ranks)
{
	uint32_t n = 1;
	double ns = n_ranks * time_of(p, n_rows);

	if (ns <= 0) {
		n = least(n_rows / FIRST_ROWS, FIRST_PARTS * n_ranks);
		return n ? n : 1;
	}
	for (uint32_t i = 2; i <= least(n_rows, MOST_PARTS * n_ranks); i++) {
		const double other = (i + n_ranks - 1) * time_of(p, rows_of(n_rows, i));
		if (other < ns) {
			ns = other;
			n = i;
		}
	}
	return n;
}

static bool is_stale(const struct ig_parts *p, uint32_t n_rows)
{
	const struct ig_part_time *t = &p->sizes[size_of(n_rows)];

	return t->n < SURE || p->n_steps - t->step > STALE;
}

uint32_t ig_parts_choose(struct ig_parts *p, uint32_t n_rows, uint32_t n_ranks)
{
	const uint32_t n = best(p, n_rows, n_ranks), turn = (uint32_t)(p->n_steps++ % (2 * TRY));
	uint32_t other = n;

	if (turn == TRY - 1)
		other = least(2 * n, least(n_rows, MOST_PARTS * n_ranks));
	else if (turn == 2 * TRY - 1 && n > 1)
		other = n / 2;
	return rows_of(n_rows, is_stale(p, rows_of(n_rows, other)) ? other : n);
}

void ig_parts_measure(struct ig_parts *p, uint32_t n_rows, double ns)
{
	struct ig_part_time *t = &p->sizes[size_of(n_rows)];
	const double weight = t->ns <= 0 || ns < t->ns / 2 ? 1 : WEIGHT;

	t->rows += weight * (n_rows - t->rows);
	t->ns += weight * (ns - t->ns);
	t->step = p->n_steps;
	t->n++;
}
