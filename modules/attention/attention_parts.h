/*
 * attention_parts.h: units of attention that have one range each (units.h), and the merge of their partial results;
 * a part of attention_tile.h, compiled with it for each instruction set.
 */
#pragma once

/* Keep the range's partial result for merge_rows. */
static void store_parts(const struct unit *u, const struct ig_op_launch *launch,
			const struct split *split, int64_t range)
{
	const int32_t per_kv = per_kv_head(u);

	for (int32_t q = 0; q < u->n; q++) {
		const uint32_t head = u->kv_head * (uint32_t)per_kv + (uint32_t)(q % per_kv);
		float *part = part_of(launch, split, u->rows.first + q / per_kv, range, head);
		part[PART_SEES] = u->lo[q] < u->hi[q];
		part[PART_MAX] = u->max[q];
		part[PART_SUM] = u->sum[q];
		memcpy(part + PART_OUT, u->o + q * u->dim16, (size_t)u->dim16 * sizeof *part);
	}
}

static void run_ranges(const struct ig_op_launch *launch, const struct split *split, int64_t first,
		       int64_t last, void *scratch)
{
	const struct ig_attention_params *p = launch->params;
	struct unit u = make_unit(launch, scratch);
	int64_t before = 0; /* units of earlier groups */

	for (int64_t row = 0; row < launch->step->n_rows && before < last;) {
		const struct row_span rows = row_span(p, launch->step, row);
		const int64_t n = n_ranges(p, rows) * p->n_kv_heads;
		for (int64_t i = first > before ? first - before : 0; i < n && before + i < last;
		     i++) {
			const int64_t range = i / p->n_kv_heads;
			begin_unit(&u, launch, rows, (uint32_t)(i % p->n_kv_heads));
			run_range(&u, (first_range(p, rows) + range) * RANGE);
			store_parts(&u, launch, split, range);
		}
		before += n;
		row += rows.n;
	}
}

/* Merge a row's ranges as run_unit does: `then` of this kernel. */
static void merge_row(struct unit *u, const struct ig_op_launch *launch, const struct split *split,
		      struct row_span group, int64_t row)
{
	const struct row_span one = { row, 1, group.position + row - group.first, group.last };
	const int32_t per_kv = per_kv_head(u);

	for (uint32_t kv_head = 0; kv_head < u->p->n_kv_heads; kv_head++) {
		begin_unit(u, launch, one, kv_head);
		for (int64_t i = 0; i < n_ranges(u->p, group); i++) {
			for (int32_t q = 0; q < per_kv; q++) {
				const float *part =
					part_of(launch, split, row, i,
						kv_head * (uint32_t)per_kv + (uint32_t)q);
				u->lo[q] = 0;
				u->hi[q] = part[PART_SEES] != 0;
				u->max[q] = part[PART_MAX];
				u->sum[q] = part[PART_SUM];
				memcpy(u->o + q * u->dim16, part + PART_OUT,
				       (size_t)u->dim16 * sizeof *part);
			}
			merge_range(u);
		}
		end_unit(u, launch);
	}
}

static void merge_rows(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch)
{
	const struct ig_attention_params *p = launch->params;
	const struct split split = split_of(launch);
	struct unit u = make_unit(launch, scratch);

	for (int64_t row = 0; row < last;) {
		const struct row_span rows = row_span(p, launch->step, row);
		for (int64_t i = row; i < row + rows.n; i++)
			if (i >= first && i < last)
				merge_row(&u, launch, &split, rows, i);
		row += rows.n;
	}
}
