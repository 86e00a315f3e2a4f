/* adapt_case.c: see adapt_case.h. */
#include "tests/ops/adapt_case.h"

#include "tests/ops/cases.h"

/* The middle weight has no adapter, and adapter 1 only the last one. */
static const int32_t ranks[N_WEIGHTS][N_ADAPTERS] = { { 7, 0, 2 }, { 0, 0, 0 }, { 1, 19, 5 } };
const int32_t adapt_columns[N_WEIGHTS] = { 40, 3, 700 };
static int32_t row_adapter[N_ROWS] = { 0, -1, 1, 2, -1, 0, 0, 2, -1 };
static int32_t logit_rows[] = { 1, 2, 5, 7 };

static float a[N_WEIGHTS][N_RANKS * K], b[N_WEIGHTS][N_RANKS * 700];
float adapt_x[N_ROWS * K], adapt_h[N_ROWS * N_H], adapt_y[N_ROWS * N_Y];
struct ig_adapt_params adapt_params;

static void fill(float *v, size_t n, uint64_t *s)
{
	for (size_t i = 0; i < n; i++)
		v[i] = ig_random_normalish(s);
}

int adapt_setup(void **state)
{
	uint64_t s = 77;

	adapt_params = (struct ig_adapt_params){ .struct_size = sizeof adapt_params,
						 .n_weights = N_WEIGHTS,
						 .n_adapters = N_ADAPTERS };
	for (int i = 0; i < N_WEIGHTS; i++) {
		int32_t most = 0;
		for (int d = 0; d < N_ADAPTERS; d++) {
			adapt_params.first[i][d + 1] = adapt_params.first[i][d] + ranks[i][d];
			adapt_params.scale[i][d] = 0.5f + (float)d;
			most = ranks[i][d] > most ? ranks[i][d] : most;
		}
		adapt_params.column[i + 1] = adapt_params.column[i] + most;
		adapt_params.n_rows[i] = adapt_columns[i];
		fill(a[i], sizeof a[i] / sizeof **a, &s);
		fill(b[i], sizeof b[i] / sizeof **b, &s);
	}
	fill(adapt_x, sizeof adapt_x / sizeof *adapt_x, &s);
	fill(adapt_h, sizeof adapt_h / sizeof *adapt_h, &s);
	fill(adapt_y, sizeof adapt_y / sizeof *adapt_y, &s);
	return 0;
}

struct ig_tensor adapt_rows_of(float *data, int64_t n_rows, int64_t n_cols)
{
	return (struct ig_tensor){ data, n_rows, n_cols, n_cols * 4, IG_F32, IG_LAYOUT_ROWS };
}

struct ig_step adapt_make_step(bool gathered)
{
	adapt_params.gathered = gathered;
	return (struct ig_step){ .struct_size = sizeof(struct ig_step),
				 .n_rows = N_ROWS,
				 .n_logit_rows = 4,
				 .logit_rows = logit_rows,
				 .row_adapter = row_adapter };
}

int64_t adapt_n_rows(const struct ig_step *s)
{
	return adapt_params.gathered ? s->n_logit_rows : s->n_rows;
}

struct ig_op_launch adapt_launch(const struct ig_step *step, bool up, float *out)
{
	int64_t n = adapt_n_rows(step);
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = up ? 2 : 1,
				  .n_weights = N_WEIGHTS,
				  .n_out = 1,
				  .params = &adapt_params,
				  .step = step };

	c.in[0] = up ? adapt_rows_of(adapt_h, n, N_H) : adapt_rows_of(adapt_x, n, K);
	c.out[0] = adapt_rows_of(out, n, up ? N_Y : N_H);
	c.in[1] = c.out[0];
	for (int i = 0; i < N_WEIGHTS; i++)
		if (adapt_params.first[i][N_ADAPTERS])
			c.weight[i] =
				adapt_rows_of(up ? b[i] : a[i], adapt_params.first[i][N_ADAPTERS],
					      up ? adapt_columns[i] : K);
	return c;
}

bool adapt_is_used(bool up, int64_t r, int64_t column)
{
	int32_t d = row_adapter[adapt_params.gathered ? logit_rows[r] : r];
	int64_t begin = 0;

	for (int i = 0; d >= 0 && i < N_WEIGHTS; i++) {
		int64_t n =
			up ? adapt_columns[i] : adapt_params.column[i + 1] - adapt_params.column[i];
		if (column < begin + n)
			return up ? ranks[i][d] > 0 : column - begin < ranks[i][d];
		begin += n;
	}
	return false;
}

void adapt_begin_with(float *out, bool up)
{
	for (int64_t i = 0; i < N_ROWS * (up ? N_Y : N_H); i++)
		out[i] = up ? adapt_y[i] : UNTOUCHED;
}
