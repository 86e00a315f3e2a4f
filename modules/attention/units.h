/*
 * units.h: the units of the vector kernels of attention.  A unit is one KV head and a group of up
 * to unit_rows rows of one sequence at consecutive positions.  Units are numbered from the last
 * group to the first, KV head by KV head: in a prefill later rows attend to more positions and take
 * longer, and threads finish at about the same time if the expensive units come first.
 *
 * If the partial results of all ranges fit the memory that the workers share (a decode, mostly), a unit has
 * a single range, so that the KV heads of one row occupy any number of threads.  Such units are numbered group by
 * group, range by range, KV head by KV head.
 */
#pragma once

#include <ingot/record.h>
#include <ingot/op.h>

/* The most query vectors of a unit, unless a single row has more heads per KV head. */
#define UNIT_QUERIES 48
#define UNIT_ROWS 32

static inline uint32_t unit_rows(const struct ig_attention_params *p)
{
	uint32_t rows = UNIT_QUERIES / (p->n_heads / p->n_kv_heads);
	return rows < 1 ? 1 : rows > UNIT_ROWS ? UNIT_ROWS : rows;
}

/* The number of rows of the group that starts at row. */
static inline int64_t row_group(const struct ig_step *step, uint32_t max_rows, int64_t row)
{
	int64_t end = row + 1;
	while (end < step->n_rows && end - row < max_rows &&
	       step->row_seq[end] == step->row_seq[row] &&
	       step->positions[end] == step->positions[end - 1] + 1)
		end++;
	return end - row;
}

static inline int64_t n_row_groups(const struct ig_step *step, uint32_t max_rows)
{
	int64_t n = 0;
	for (int64_t row = 0; row < step->n_rows; n++)
		row += row_group(step, max_rows, row);
	return n;
}

/* The first row of the i-th group. */
static inline int64_t group_row(const struct ig_step *step, uint32_t max_rows, int64_t i)
{
	int64_t row = 0;
	while (i-- > 0)
		row += row_group(step, max_rows, row);
	return row;
}

/* Rows of a group. */
struct row_span {
	int64_t first, n;
	int64_t position; /* of the first */
	int64_t last;	  /* that one of them sees */
};

static inline struct row_span row_span(const struct ig_attention_params *p,
				       const struct ig_step *step, int64_t row)
{
	const int64_t n = row_group(step, unit_rows(p), row);
	struct row_span rows = { row, n, step->positions[row], step->positions[row] + n - 1 };

	for (int64_t i = row; step->sees_to && i < row + n; i++)
		if (ig_step_sees_to(step, p->spans, i) > rows.last)
			rows.last = ig_step_sees_to(step, p->spans, i);
	return rows;
}

/* The first range that a row of the group attends to, and the number of ranges up to the last one. */
static inline int64_t first_range(const struct ig_attention_params *p, struct row_span rows)
{
	return p->window && rows.position >= p->window ?
		       (rows.position + 1 - p->window) / IG_ATTENTION_RANGE :
		       0;
}

static inline int64_t n_ranges(const struct ig_attention_params *p, struct row_span rows)
{
	return rows.last / IG_ATTENTION_RANGE - first_range(p, rows) + 1;
}

/* ---- units of one range ---- */

/* A part of a head's result: what comes of one range. */
enum { PART_SEES, PART_MAX, PART_SUM, PART_OUT = 16 }; /* floats; then the output */

static inline uint64_t part_floats(const struct ig_attention_params *p)
{
	return PART_OUT + (value_dim(p) + 15) / 16 * 16;
}

/* Memory for the parts of SPLIT_ROWS rows of the longest sequence, at most SPLIT_BYTES; for one row at most
 * ROW_BYTES.  What does not fit is not split. */
#define SPLIT_ROWS 16
#define SPLIT_BYTES (4u << 20)
#define ROW_BYTES (16u << 20)

static inline uint64_t split_bytes(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	const int64_t longest = launch->step->seq_lens[0];
	/* what a group sees of a window, which begins and ends within ranges */
	const int64_t window = (int64_t)p->window + UNIT_ROWS + 2 * IG_ATTENTION_RANGE;
	const int64_t seen = p->window && window < longest ? window : longest;
	const uint64_t ranges = (uint64_t)(seen + IG_ATTENTION_RANGE - 1) / IG_ATTENTION_RANGE;
	const uint64_t row = ranges * p->n_heads * part_floats(p) * sizeof(float);
	uint64_t most = row > SPLIT_BYTES ? row : SPLIT_BYTES;

	if (ranges < 2)
		return 0;
	most = most < ROW_BYTES ? most : ROW_BYTES;
	return row * SPLIT_ROWS < most ? row * SPLIT_ROWS : most;
}

struct split {
	int64_t n_ranges; /* the most of a group; 0: units are not of one range */
	int64_t n_units;
};

static inline struct split split_of(const struct ig_op_launch *launch)
{
	const struct ig_attention_params *p = launch->params;
	const struct ig_step *step = launch->step;
	struct split s = { 0 };

	if (step->n_rows > SPLIT_ROWS)
		return s;
	for (int64_t row = 0; row < step->n_rows;) {
		const struct row_span rows = row_span(p, step, row);
		const int64_t n = n_ranges(p, rows);
		s.n_units += n * p->n_kv_heads;
		s.n_ranges = n > s.n_ranges ? n : s.n_ranges;
		row += rows.n;
	}
	if (s.n_ranges < 2 ||
	    (uint64_t)(step->n_rows * s.n_ranges) * p->n_heads * part_floats(p) * sizeof(float) >
		    launch->shared_bytes)
		return (struct split){ 0 };
	return s;
}

static inline float *part_of(const struct ig_op_launch *launch, const struct split *split,
			     int64_t row, int64_t range, uint32_t head)
{
	const struct ig_attention_params *p = launch->params;
	const uint64_t i = (uint64_t)(row * split->n_ranges + range) * p->n_heads + head;

	return (float *)launch->shared + i * part_floats(p);
}
