/* fake_states.c: see fake_states.h. */
#include "fake_states.h"
#include "fake_outside.h"

#include <string.h>

struct content {
	int32_t n_tokens;
	uint32_t part;
	uint64_t hash;
};

static const uint64_t no_tokens = 0x2545f4914f6cdd1du;

static uint64_t fold(uint64_t h, int32_t token)
{
	return (h ^ (uint32_t)token) * 0x100000001b3ull + 1;
}

static unsigned char *part_of(const struct ig_step *s, uint32_t g, int32_t state, int64_t part)
{
	uint32_t word = s->kv[g].block_tables[state * s->kv[g].max_blocks + part];

	return (unsigned char *)s->slab_bases[IG_BLOCK_SLAB(word)] +
	       IG_BLOCK_INDEX(word) * s->kv[g].layout->block_bytes;
}

/* All parts must have the same content, at both ends. */
static struct content read_state(const struct ig_step *s, int32_t state, fake_breach *breach)
{
	struct content first = { 0, 0, no_tokens };
	uint32_t n = 0;

	for (uint32_t g = 0; state >= 0 && g < s->n_groups; g++) {
		uint64_t size = s->kv[g].layout->block_bytes;
		for (int64_t i = 0; fake_is_state(s, g) && i < s->kv[g].max_blocks; i++, n++) {
			struct content a, b;
			memcpy(&a, part_of(s, g, state, i), sizeof a);
			memcpy(&b, part_of(s, g, state, i) + size - sizeof b, sizeof b);
			if (a.part != n || b.part != n)
				breach("part %u of a state is part %u", n, a.part);
			if (!n)
				first = a;
			if (a.n_tokens != first.n_tokens || a.hash != first.hash ||
			    b.n_tokens != first.n_tokens || b.hash != first.hash)
				breach("part %u of a state has %d tokens, the first %d", n,
				       a.n_tokens, first.n_tokens);
		}
	}
	return first;
}

static void write_state(const struct ig_step *s, int32_t state, struct content c)
{
	c.part = 0;
	for (uint32_t g = 0; g < s->n_groups; g++) {
		uint64_t size = s->kv[g].layout->block_bytes;
		for (int64_t i = 0; fake_is_state(s, g) && i < s->kv[g].max_blocks; i++, c.part++) {
			memcpy(part_of(s, g, state, i), &c, sizeof c);
			memcpy(part_of(s, g, state, i) + size - sizeof c, &c, sizeof c);
		}
	}
}

static uint32_t first_word(const struct ig_step *s, int32_t state)
{
	for (uint32_t g = 0; g < s->n_groups; g++)
		if (fake_is_state(s, g))
			return s->kv[g].block_tables[state * s->kv[g].max_blocks];
	return IG_BLOCK_NONE;
}

/* No other sequence's segment may write what this one reads or writes. */
static void check_alone(const struct ig_step *s, int32_t i, fake_breach *breach)
{
	const struct ig_step_segment *a = &s->segments[i];

	for (int32_t k = 0; k < s->n_segments; k++) {
		const struct ig_step_segment *b = &s->segments[k];
		if (s->row_seq[a->first_row] == s->row_seq[b->first_row])
			continue;
		if (first_word(s, a->to) == first_word(s, b->to) ||
		    (b->from >= 0 && first_word(s, a->to) == first_word(s, b->from)))
			breach("segment %d writes a state of segment %d", i, k);
	}
}

/* Of the step at hand: of the tokens up to each row. */
static uint64_t after[1 << 16];

void fake_step_states(const struct ig_step *s, fake_breach *breach)
{
	int32_t row = 0;

	for (int32_t i = 0; i < s->n_segments; i++) {
		const struct ig_step_segment *g = &s->segments[i];
		struct content c;
		if (g->first_row != row || g->n_rows < 1 || row + g->n_rows > s->n_rows ||
		    g->to < 0 || g->to >= s->n_states || g->from >= s->n_states ||
		    s->row_seq[row] != s->row_seq[row + g->n_rows - 1]) {
			breach("segment %d: %d rows from %d on, to state %d of %d", i, g->n_rows,
			       g->first_row, g->to, s->n_states);
			return;
		}
		check_alone(s, i, breach);
		c = read_state(s, g->from, breach);
		if (c.n_tokens != s->positions[row])
			breach("segment %d reads a state of %d tokens at position %d", i,
			       c.n_tokens, s->positions[row]);
		for (; row < g->first_row + g->n_rows &&
		       row < (int32_t)(sizeof after / sizeof *after);
		     row++)
			after[row] = c.hash = fold(c.hash, fake_row_token(s, row));
		c.n_tokens = s->positions[row - 1] + 1;
		write_state(s, g->to, c);
	}
	if (s->n_segments && row != s->n_rows)
		breach("segments of %d rows in a step of %d", row, s->n_rows);
}

void fake_check_state(const struct ig_step *s, int32_t row, const int32_t *tokens, int32_t n,
		      fake_breach *breach)
{
	uint64_t h = no_tokens;

	for (int32_t i = 0; i < n; i++)
		h = fold(h, tokens[i]);
	if (s->n_segments && after[row] != h)
		breach("row %d: its state is of other tokens than its %d", row, n);
}
