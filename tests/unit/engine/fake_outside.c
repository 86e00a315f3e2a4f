/* fake_outside.c: see fake_outside.h. */
#include "fake_outside.h"

int32_t fake_row_token(const struct ig_step *s, int32_t r)
{
	return ig_step_outside(s, r) ? (int32_t)s->outside[r][0] : ig_step_token(s, r);
}

/* Row r is in the place of its span that it says, and the rows beside it are the others. */
static void check_span(const struct ig_step *s, int32_t r, fake_breach *breach)
{
	const float *x = s->outside[r];
	const int32_t at = (int32_t)x[1], n = (int32_t)x[2], first = r - at;

	if (first < 0 || first + n > s->n_rows || s->row_seq[first] != s->row_seq[r] ||
	    s->row_seq[first + n - 1] != s->row_seq[r])
		breach("row %d is the one at %d of %d, and the step cuts them", r, at, n);
	else if (!s->outside[first] || !s->outside[first + n - 1] || s->outside[first][1] != 0.0f ||
		 (int32_t)s->outside[first + n - 1][1] != n - 1)
		breach("row %d is the one at %d of %d, and the others are not there", r, at, n);
	else if (s->sees_to[r] != s->positions[fake_sees_ahead(x) ? first + n - 1 : r])
		breach("row %d at %d sees up to %d", r, s->positions[r], s->sees_to[r]);
	if (s->rope_positions[r * IG_ROPE_AXES + 1] != (int32_t)x[3])
		breach("row %d is turned by %d, not %d", r, s->rope_positions[r * IG_ROPE_AXES + 1],
		       (int32_t)x[3]);
}

void fake_check_outside(const struct ig_step *s, fake_breach *breach)
{
	if (!s->outside != !s->rope_positions || !s->outside != !s->sees_to)
		breach("a step with a part of what rows from outside need");
	for (int32_t r = 0; s->outside && r < s->n_rows; r++) {
		const int32_t *turned = s->rope_positions + r * IG_ROPE_AXES;
		bool first = !r || s->row_seq[r] != s->row_seq[r - 1];

		if (s->outside[r]) {
			if (ig_step_token(s, r) != FAKE_OUTSIDE_ID)
				breach("row %d has token %d in place of its id", r,
				       ig_step_token(s, r));
			check_span(s, r, breach);
		} else if (turned[0] != turned[1] || turned[0] != turned[2] ||
			   s->sees_to[r] != s->positions[r] ||
			   (!first && !s->outside[r - 1] &&
			    turned[0] != turned[-IG_ROPE_AXES] + 1)) {
			breach("row %d of a text at %d is turned by %d, %d and %d and sees up to %d",
			       r, s->positions[r], turned[0], turned[1], turned[2], s->sees_to[r]);
		}
	}
}
