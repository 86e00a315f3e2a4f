/*
 * units.h: the units of the vector kernels of attention.  A unit is one KV head and a group of up
 * to unit_rows rows of one sequence at consecutive positions.  Units are numbered from the last
 * group to the first, KV head by KV head: in a prefill later rows attend to more positions and take
 * longer, and threads finish at about the same time if the expensive units come first.
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
