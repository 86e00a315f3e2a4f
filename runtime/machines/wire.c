/*
 * wire.c: see wire.h.  A message of a step is a header and arrays, each on a border of 8 bytes.  The writer and the
 * reader go over the same list of arrays (lay_out), so they can't differ in where one begins.
 */
#include "runtime/machines/wire.h"
#include "base/hash.h"
#include "model/formats/checkpoint.h"

#include <ingot/kvcache.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct head {
	uint32_t program, number;
	uint32_t n_rows, n_seqs, n_logit_rows, n_groups, n_adjusts, n_masks, n_segments, n_states;
	uint32_t n_slabs, wants_logits;
	uint32_t max_blocks[IG_MAX_CACHE_GROUPS];
};

struct arrays {
	int32_t *token_ids, *positions, *row_seq; /* [n_rows] */
	int32_t *seq_lens;			  /* [n_seqs] */
	int32_t *logit_rows;			  /* [n_logit_rows] */
	struct ig_sample_params *sample;	  /* [n_logit_rows] */
	struct ig_logit_adjust *adjusts;	  /* [n_adjusts] */
	uint32_t *masks;			  /* [n_masks, words] */
	struct ig_step_segment *segments;	  /* [n_segments] */
	struct ig_wire_slab *slabs;		  /* [n_slabs] */
	struct ig_kv_layout *layouts;		  /* [n_groups] */
	uint32_t *tables[IG_MAX_CACHE_GROUPS];	  /* [n_seqs or n_states, max_blocks] */
};

static size_t mask_words(const struct ig_wire_program *p) { return ((size_t)p->n_vocab + 31) / 32; }

static bool has_states(const struct ig_wire_program *p)
{
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (p->n_parts[g])
			return true;
	return false;
}

/* Where the arrays lie behind the header at `at`, and how many bytes there are in all.  The counts are within
 * limits, so no sum overflows.  at NULL: only the size. */
static size_t lay_out(const struct ig_wire_program *p, const struct head *h, uint8_t *at,
		      struct arrays *a)
{
	size_t n = sizeof *h;

#define ARRAY(member, count)                                                                       \
	do {                                                                                       \
		n = (n + 7) & ~(size_t)7;                                                          \
		a->member = at ? (void *)(at + n) : NULL;                                          \
		n += (size_t)(count) * sizeof *a->member;                                          \
	} while (0)
	ARRAY(token_ids, h->n_rows);
	ARRAY(positions, h->n_rows);
	ARRAY(row_seq, h->n_rows);
	ARRAY(seq_lens, h->n_seqs);
	ARRAY(logit_rows, h->n_logit_rows);
	ARRAY(sample, h->n_logit_rows);
	ARRAY(adjusts, h->n_adjusts);
	ARRAY(masks, h->n_masks * mask_words(p));
	ARRAY(segments, h->n_segments);
	ARRAY(slabs, h->n_slabs);
	ARRAY(layouts, h->n_groups);
	for (uint32_t g = 0; g < h->n_groups; g++)
		ARRAY(tables[g],
		      (size_t)(p->n_parts[g] ? h->n_states : h->n_seqs) * h->max_blocks[g]);
#undef ARRAY
	return n;
}

uint64_t ig_wire_model(const struct ig_checkpoint *file)
{
	const uint64_t n = ig_checkpoint_n_tensors(file);
	uint64_t h = ig_fnv1a(IG_FNV1A, &n, sizeof n);

	for (uint64_t i = 0; i < n; i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(file, i);
		h = ig_fnv1a(h, t->name, strlen(t->name));
		h = ig_fnv1a(h, &t->dtype, sizeof t->dtype);
		h = ig_fnv1a(h, t->dims, sizeof t->dims);
		if (t->data)
			h = ig_fnv1a(h, t->data, t->n_bytes < 64 ? (size_t)t->n_bytes : 64);
	}
	return h;
}

/* ---- writing ----------------------------------------------------------------------------- */

int ig_wire_check(const struct ig_step *s, struct ig_error *err)
{
	const char *what = s->row_adapter	       ? "adapters" :
			   s->row_types		       ? "types of tokens" :
			   s->next_ids || s->n_guesses ? "guesses" :
			   s->rope_positions || s->outside || s->sees_to ?
							 "rows that are no token's" :
			   s->stage_in || s->stage_out ? "rows of a stage" :
							 NULL;

	for (int32_t r = 0; s->token_from && r < s->n_rows; r++)
		if (s->token_from[r] >= 0)
			what = "tokens of the step before";
	return what ? ig_fail(err, -ENOTSUP, "a step over several machines can't have %s", what) :
		      0;
}

uint32_t ig_wire_part_end(const struct ig_wire_program *p, const struct ig_step *s, uint32_t first,
			  uint32_t n_rows)
{
	const uint32_t all = (uint32_t)s->n_rows;
	uint32_t end = all - first > n_rows ? first + n_rows : all;

	while (has_states(p) && end < all && s->row_seq[end] == s->row_seq[end - 1])
		end++;
	return end;
}

/* What a part has, and where it begins in the step. */
struct cut {
	const struct ig_step *s;
	int32_t first, end; /* rows */
	int32_t first_seq, first_logit, first_segment;
};

/* The tokens of a sequence after the part's rows of it. */
static int32_t part_len(const struct cut *c, int32_t row) { return c->s->positions[row] + 1; }

static void count(const struct ig_wire_program *p, struct cut *c, struct head *h)
{
	const struct ig_step *s = c->s;

	h->n_rows = (uint32_t)(c->end - c->first);
	h->n_groups = s->n_groups;
	h->n_states = has_states(p) ? (uint32_t)s->n_states : 0;
	h->wants_logits = s->logits != NULL;
	c->first_seq = s->row_seq[c->first];
	h->n_seqs = (uint32_t)(s->row_seq[c->end - 1] - c->first_seq + 1);
	while (c->first_logit < s->n_logit_rows && s->logit_rows[c->first_logit] < c->first)
		c->first_logit++;
	for (int32_t i = c->first_logit; i < s->n_logit_rows && s->logit_rows[i] < c->end; i++) {
		h->n_logit_rows++;
		h->n_adjusts += s->sample[i].n_adjusts;
		h->n_masks += s->sample[i].mask >= 0;
	}
	for (int32_t i = 0; has_states(p) && i < s->n_segments; i++) {
		c->first_segment += s->segments[i].first_row < c->first;
		h->n_segments +=
			s->segments[i].first_row >= c->first && s->segments[i].first_row < c->end;
	}
	for (uint32_t g = 0; g < s->n_groups; g++)
		h->max_blocks[g] = p->n_parts[g];
	for (int32_t r = c->first; r < c->end; r++) {
		uint32_t n = (uint32_t)(part_len(c, r) + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
		for (uint32_t g = 0; g < s->n_groups; g++)
			if (!p->n_parts[g] && n > h->max_blocks[g])
				h->max_blocks[g] = n;
	}
}

static void write_rows(const struct cut *c, const struct head *h, struct arrays *a)
{
	const struct ig_step *s = c->s;

	memcpy(a->token_ids, s->token_ids + c->first, h->n_rows * sizeof *a->token_ids);
	memcpy(a->positions, s->positions + c->first, h->n_rows * sizeof *a->positions);
	for (uint32_t i = 0; i < h->n_seqs; i++)
		a->seq_lens[i] = 1; /* of a sequence without rows */
	for (int32_t r = c->first; r < c->end; r++) {
		a->row_seq[r - c->first] = s->row_seq[r] - c->first_seq;
		a->seq_lens[s->row_seq[r] - c->first_seq] = part_len(c, r);
	}
	for (uint32_t i = 0; i < h->n_segments; i++) {
		a->segments[i] = s->segments[c->first_segment + (int32_t)i];
		a->segments[i].first_row -= c->first;
	}
}

static void write_sampling(const struct ig_wire_program *p, const struct cut *c,
			   const struct head *h, struct arrays *a)
{
	const struct ig_step *s = c->s;
	const size_t words = mask_words(p);
	uint32_t n_adjusts = 0, n_masks = 0;

	for (uint32_t i = 0; i < h->n_logit_rows; i++) {
		struct ig_sample_params *to = &a->sample[i];
		const struct ig_sample_params *of = &s->sample[c->first_logit + (int32_t)i];
		a->logit_rows[i] = s->logit_rows[c->first_logit + (int32_t)i] - c->first;
		*to = *of;
		to->first_adjust = n_adjusts;
		if (of->n_adjusts)
			memcpy(a->adjusts + n_adjusts, s->adjusts + of->first_adjust,
			       of->n_adjusts * sizeof *a->adjusts);
		n_adjusts += of->n_adjusts;
		if (of->mask < 0)
			continue;
		to->mask = (int32_t)n_masks;
		memcpy(a->masks + n_masks++ * words, s->masks + (size_t)of->mask * words,
		       words * sizeof *a->masks);
	}
}

/* The part's words of a group's tables. */
static void write_tables(const struct ig_wire_program *p, const struct cut *c, const struct head *h,
			 struct arrays *a, uint32_t g)
{
	const struct ig_step_kv *kv = &c->s->kv[g];
	const uint32_t n = h->max_blocks[g];

	if (p->n_parts[g]) {
		for (uint32_t i = 0; i < h->n_states; i++)
			memcpy(a->tables[g] + i * n, kv->block_tables + i * kv->max_blocks,
			       n * sizeof(uint32_t));
		return;
	}
	for (uint32_t i = 0; i < h->n_seqs; i++) {
		const uint32_t *from = kv->block_tables + (c->first_seq + i) * kv->max_blocks;
		const uint32_t has =
			(uint32_t)(a->seq_lens[i] + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
		for (uint32_t k = 0; k < n; k++)
			a->tables[g][i * n + k] =
				k < has && k < kv->max_blocks ? from[k] : IG_BLOCK_NONE;
	}
}

static int by_number(const void *a, const void *b)
{
	const uint32_t l = *(const uint32_t *)a, r = *(const uint32_t *)b;

	return (l > r) - (l < r);
}

/* The numbers of the slabs that the part's tables name, ascending, each once; NULL: no memory. */
static uint32_t *find_slabs(const struct ig_wire_program *p, const struct head *h,
			    const struct arrays *a, uint32_t *n_slabs)
{
	size_t n = 0, n_words[IG_MAX_CACHE_GROUPS], most = 0;
	uint32_t *out, last = UINT32_MAX;

	for (uint32_t g = 0; g < h->n_groups; g++) {
		n_words[g] = (size_t)(p->n_parts[g] ? h->n_states : h->n_seqs) * h->max_blocks[g];
		most += n_words[g];
	}
	out = malloc((most + 1) * sizeof *out);
	for (uint32_t g = 0; out && g < h->n_groups; g++)
		for (size_t i = 0; i < n_words[g]; i++) {
			const uint32_t word = a->tables[g][i], slab = IG_BLOCK_SLAB(word);
			if (word != IG_BLOCK_NONE && slab != last)
				out[n++] = last = slab;
		}
	*n_slabs = 0;
	if (!out)
		return NULL;
	qsort(out, n, sizeof *out, by_number);
	for (size_t i = 0; i < n; i++)
		if (!i || out[i] != out[i - 1])
			out[(*n_slabs)++] = out[i];
	return out;
}

/* Into memory of the first lay-out, which has no slabs yet, then into a message. */
static struct ig_message *write_arrays(const struct ig_wire_program *p, const struct cut *c,
				       struct head *h, uint8_t *draft,
				       uint32_t (*slab_of)(void *ctx, const void *base), void *ctx)
{
	struct arrays a, to;
	uint32_t *slabs, n_slabs;

	lay_out(p, h, draft, &a);
	write_rows(c, h, &a);
	write_sampling(p, c, h, &a);
	for (uint32_t g = 0; g < h->n_groups; g++) {
		a.layouts[g] = *c->s->kv[g].layout;
		write_tables(p, c, h, &a, g);
	}
	slabs = find_slabs(p, h, &a, &n_slabs);
	if (!slabs)
		return NULL;
	/* All before the slabs lies where it did; what follows moves. */
	const size_t before = (size_t)((uint8_t *)a.slabs - draft);
	h->n_slabs = n_slabs;
	const size_t n = lay_out(p, h, NULL, &to);
	struct ig_message *m = ig_message_create(IG_WIRE_STEP, n);
	if (m) {
		memset(m->data, 0, n);
		memcpy(m->data, draft, before);
		memcpy(m->data, h, sizeof *h);
		lay_out(p, h, m->data, &to);
		for (uint32_t i = 0; i < n_slabs; i++)
			to.slabs[i] =
				(struct ig_wire_slab){ slabs[i],
						       slab_of(ctx, c->s->slab_bases[slabs[i]]) };
		memcpy(to.layouts, a.layouts, h->n_groups * sizeof *to.layouts);
		for (uint32_t g = 0; g < h->n_groups; g++)
			memcpy(to.tables[g], a.tables[g],
			       (size_t)(p->n_parts[g] ? h->n_states : h->n_seqs) *
				       h->max_blocks[g] * sizeof(uint32_t));
	}
	free(slabs);
	return m;
}

struct ig_message *ig_wire_write_step(const struct ig_wire_program *p, uint32_t number,
				      const struct ig_step *s, uint32_t first, uint32_t end,
				      uint32_t (*slab_of)(void *ctx, const void *base), void *ctx)
{
	struct head h = { .program = p->number, .number = number };
	struct cut c = { .s = s, .first = (int32_t)first, .end = (int32_t)end };
	struct ig_message *m = NULL;
	struct arrays none;

	count(p, &c, &h);
	uint8_t *draft = calloc(1, lay_out(p, &h, NULL, &none));
	if (draft)
		m = write_arrays(p, &c, &h, draft, slab_of, ctx);
	free(draft);
	return m;
}

/* ---- reading ----------------------------------------------------------------------------- */

uint32_t ig_wire_program_of(const struct ig_message *m)
{
	uint32_t program = UINT32_MAX;

	if (m->n_bytes >= sizeof program)
		memcpy(&program, m->data, sizeof program);
	return program;
}

static int check_head(const struct ig_wire_program *p, const struct head *h, struct ig_error *err)
{
	const struct ig_program_limits *l = &p->limits;
	const uint32_t n_blocks = l->max_context / IG_BLOCK_TOKENS + 1;
	bool ok = h->program == p->number && h->n_groups == p->n_groups && h->n_rows >= 1 &&
		  h->n_rows <= l->max_rows && h->n_seqs >= 1 && h->n_seqs <= l->max_seqs &&
		  h->n_logit_rows <= l->max_logit_rows && h->n_masks <= h->n_logit_rows &&
		  h->n_adjusts <= IG_LINK_MAX_BYTES / sizeof(struct ig_logit_adjust) &&
		  h->n_segments <= h->n_rows && h->n_slabs <= l->max_slabs && h->wants_logits <= 1;

	/* Of a step's sequences each has a state that it reads, and one for each of its segments. */
	ok = ok && (has_states(p) ? h->n_states <= l->max_seqs * (IG_KV_MAX_SEGMENTS + 1) :
				    !h->n_states && !h->n_segments);
	for (uint32_t g = 0; ok && g < IG_MAX_CACHE_GROUPS; g++)
		ok = g >= p->n_groups ? !h->max_blocks[g] :
		     p->n_parts[g]    ? h->max_blocks[g] == p->n_parts[g] :
					h->max_blocks[g] <= n_blocks;
	return ok ? 0 : ig_fail(err, -EPROTO, "a step's message has wrong counts");
}

static int check_sampling(const struct ig_wire_program *p, const struct head *h,
			  const struct arrays *a, struct ig_error *err)
{
	bool ok = true;

	for (uint32_t i = 0; i < h->n_logit_rows; i++) {
		const struct ig_sample_params *s = &a->sample[i];
		ok = ok && s->temperature >= 0 && isfinite(s->temperature) &&
		     (s->top_p > 0 || s->temperature == 0) && s->top_p <= 1 && s->min_p >= 0 &&
		     s->min_p <= 1 && s->top_k >= 0 && isfinite(s->repetition_penalty) &&
		     s->repetition_penalty > 0 && isfinite(s->frequency_penalty) &&
		     isfinite(s->presence_penalty) && s->mask >= -1;
	}
	for (uint32_t i = 0; i < h->n_adjusts; i++)
		ok = ok && a->adjusts[i].id >= 0 && (uint32_t)a->adjusts[i].id < p->n_vocab &&
		     !isnan(a->adjusts[i].bias);
	for (uint32_t r = 0; r < h->n_rows; r++)
		ok = ok && a->token_ids[r] >= 0 && (uint32_t)a->token_ids[r] < p->n_vocab;
	return ok ? 0 : ig_fail(err, -EPROTO, "a step's message has wrong tokens or sampling");
}

int ig_wire_read_step(const struct ig_wire_program *p, const struct ig_message *m,
		      struct ig_wire_step *out, struct ig_error *err)
{
	struct arrays a;
	struct head h;
	int rc;

	memset(out, 0, sizeof *out);
	if (m->kind != IG_WIRE_STEP || m->n_bytes < sizeof h)
		return ig_fail(err, -EPROTO, "a step's message is too short");
	memcpy(&h, m->data, sizeof h);
	if ((rc = check_head(p, &h, err)))
		return rc;
	if (lay_out(p, &h, NULL, &a) != m->n_bytes)
		return ig_fail(err, -EPROTO, "a step's message has another size than its counts");
	lay_out(p, &h, (uint8_t *)m->data, &a);
	if ((rc = check_sampling(p, &h, &a, err)))
		return rc;
	out->number = h.number;
	out->wants_logits = h.wants_logits;
	out->layouts = a.layouts;
	out->slabs = a.slabs;
	out->n_slabs = h.n_slabs;
	for (uint32_t g = 0; g < h.n_groups; g++)
		out->kv[g] = (struct ig_step_kv){ &a.layouts[g], a.tables[g], h.max_blocks[g] };
	out->step = (struct ig_step){ .struct_size = sizeof out->step,
				      .n_rows = (int32_t)h.n_rows,
				      .n_seqs = (int32_t)h.n_seqs,
				      .n_logit_rows = (int32_t)h.n_logit_rows,
				      .token_ids = a.token_ids,
				      .positions = a.positions,
				      .row_seq = a.row_seq,
				      .seq_lens = a.seq_lens,
				      .logit_rows = a.logit_rows,
				      .sample = a.sample,
				      .kv = out->kv,
				      .n_groups = h.n_groups,
				      .n_adjusts = h.n_adjusts,
				      .adjusts = a.adjusts,
				      .masks = a.masks,
				      .n_masks = h.n_masks,
				      .segments = h.n_segments ? a.segments : NULL,
				      .n_segments = (int32_t)h.n_segments,
				      .n_states = (int32_t)h.n_states };
	return 0;
}
