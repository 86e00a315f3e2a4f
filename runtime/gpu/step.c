/*
 * step.c: packs a struct ig_step into the step buffer of kernels (shaders/step.h).  Everything that
 * kernels use unchecked is checked here: block words against the mapped slabs, layouts against the
 * plan, ids against the vocabulary, indices of penalties and masks; ig_program_submit has checked
 * the rest.  A row of the block tables has as many entries as the longest sequence of this step has
 * blocks.  Nothing is allocated: the area fits the largest step that the limits allow.
 */
#include "runtime/gpu/gpu_private.h"
#include "shaders/step.h"

#include <ingot/kvcache.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(STEP_MAX_GROUPS == IG_MAX_CACHE_GROUPS, "cache groups");
_Static_assert(STEP_BLOCK_TOKENS == IG_BLOCK_TOKENS && STEP_BLOCK_BITS == IG_BLOCK_BITS, "blocks");
_Static_assert(STEP_RANGE == IG_ATTENTION_RANGE, "ranges");
_Static_assert(sizeof(struct step_adjust) == sizeof(struct ig_logit_adjust), "adjusts are copied");
_Static_assert(IG_GPU_COPY_AREA_BYTES >= (sizeof(struct step_head) + 15) / 16 * 16 +
						 IG_GPU_MAX_COPIES * sizeof(struct step_copy),
	       "a step of copies");

#define MAX_COUNT 65535		   /* layers, heads, dimensions of a head of a cache group */
#define MAX_PART_FLOATS (1u << 28) /* of a state's part */

static uint64_t blocks_of(uint64_t n_tokens)
{
	return (n_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
}

static uint32_t mask_words(uint32_t n_vocab) { return n_vocab / 32 + (n_vocab % 32 != 0); }

/* ---- the area --------------------------------------------------------------------- */

/* Add an array, padded to a multiple of 16 bytes; false: the sum overflows. */
static bool add_array(uint64_t *total, uint64_t n, uint64_t size)
{
	uint64_t bytes;
	return !__builtin_mul_overflow(n, size, &bytes) && bytes <= UINT64_MAX - 15 &&
	       !__builtin_add_overflow(*total, (bytes + 15) & ~(uint64_t)15, total);
}

/* Whether a group's counts are so small that no product of them overflows. */
static bool fits_counts(const struct ig_cache_group *c)
{
	const bool is_state = c->kind == IG_CACHE_STATE;

	return c->n_layers && c->n_kv_heads && c->head_dim && c->n_layers <= MAX_COUNT &&
	       c->n_kv_heads <= MAX_COUNT &&
	       c->head_dim <= (is_state ? MAX_PART_FLOATS : MAX_COUNT) &&
	       (!is_state || c->n_kv_heads <= MAX_COUNT / c->n_layers);
}

static uint64_t parts_of(const struct ig_cache_group *c)
{
	return (uint64_t)c->n_layers * c->n_kv_heads;
}

/* Add the tables of a group, and of the first one of state the segments. */
static bool add_tables(uint64_t *total, const struct ig_gpu_step_shape *s, uint32_t g)
{
	const struct ig_cache_group *c = &s->info.groups[g];
	const uint64_t seqs = s->limits.max_seqs;

	if (c->kind != IG_CACHE_STATE)
		return add_array(total, seqs * blocks_of(s->limits.max_context), 4);
	return add_array(total, (seqs + s->max_segments) * parts_of(c), 4) &&
	       ((g && s->info.groups[g - 1].kind == IG_CACHE_STATE) ||
		(add_array(total, seqs + 1, 4) && add_array(total, s->max_segments, 4)));
}

int ig_gpu_step_init(struct ig_gpu_step_shape *s, const struct ig_model_info *info,
		     const struct ig_program_limits *limits, uint32_t max_partials,
		     struct ig_error *err)
{
	uint64_t bytes = 0, adjusts;
	bool fits;

	memset(s, 0, sizeof *s);
	s->limits = *limits;
	s->info = *info;
	s->max_partials = max_partials;
	s->max_segments = (uint64_t)limits->max_seqs * IG_KV_MAX_SEGMENTS < limits->max_rows ?
				  limits->max_seqs * IG_KV_MAX_SEGMENTS :
				  limits->max_rows;
	if (info->n_groups > STEP_MAX_GROUPS)
		return ig_fail(err, -ENOTSUP, "%u cache groups", info->n_groups);
	if (!s->limits.max_slabs || s->limits.max_slabs > 1u << (32 - IG_BLOCK_BITS))
		s->limits.max_slabs = 1u << (32 - IG_BLOCK_BITS);
	adjusts = (uint64_t)info->n_vocab * limits->max_logit_rows; /* each id once per row */
	s->max_adjusts = adjusts < IG_MAX_STEP_ADJUSTS ? (uint32_t)adjusts : IG_MAX_STEP_ADJUSTS;
	s->max_masks = limits->max_logit_rows;
	if (info->result != IG_RESULT_TOKENS) /* nothing is sampled */
		s->max_adjusts = s->max_masks = 0;

	for (uint32_t g = 0; g < info->n_groups; g++) {
		const struct ig_cache_group *c = &info->groups[g];
		if (!fits_counts(c))
			return ig_fail(err, -ENOTSUP, "cache group %u: %u layers of %u heads of %u",
				       g, c->n_layers, c->n_kv_heads, c->head_dim);
	}
	fits = add_array(&bytes, 1, sizeof(struct step_head));
	/* ids, origins, positions, sequences, partials, adapters, types, the last positions seen, the next ids */
	for (int i = 0; i < 9; i++)
		fits = fits && add_array(&bytes, limits->max_rows, 4);
	fits = fits && add_array(&bytes, limits->max_rows, IG_ROPE_AXES * 4);
	fits = fits && add_array(&bytes, limits->max_rows, 8); /* addresses of embeddings */
	fits = fits && add_array(&bytes, limits->max_seqs, 4);
	fits = fits && add_array(&bytes, (uint64_t)limits->max_seqs + 1, 4);
	for (int i = 0; i < 2; i++) /* rows of tokens, rows of guesses */
		fits = fits && add_array(&bytes, limits->max_logit_rows, 4);
	fits = fits && add_array(&bytes, limits->max_logit_rows, sizeof(struct step_sample));
	fits = fits && add_array(&bytes, s->max_adjusts, sizeof(struct step_adjust));
	fits = fits && add_array(&bytes, (uint64_t)s->max_masks * mask_words(info->n_vocab), 4);
	for (uint32_t g = 0; g < info->n_groups; g++)
		fits = fits && add_tables(&bytes, s, g);
	fits = fits && add_array(&bytes, s->limits.max_slabs, 8);
	if (!fits || bytes > UINT32_MAX)
		return ig_fail(err, -ENOTSUP,
			       "%u sequences of %u tokens make a step too large for a GPU; "
			       "allow fewer or shorter ones",
			       limits->max_seqs, limits->max_context);
	s->area_bytes = bytes;
	s->slab_bytes = calloc(s->limits.max_slabs, sizeof *s->slab_bytes);
	s->slabs_seen = malloc(s->limits.max_slabs * sizeof *s->slabs_seen);
	if (!s->slab_bytes || !s->slabs_seen) {
		ig_gpu_step_finish(s);
		return ig_fail(err, -ENOMEM, "no memory for a table of %u slabs",
			       limits->max_slabs);
	}
	return 0;
}

void ig_gpu_step_finish(struct ig_gpu_step_shape *s)
{
	free(s->slab_bytes);
	free(s->slabs_seen);
	s->slab_bytes = NULL;
	s->slabs_seen = NULL;
}

/* ---- packing ---------------------------------------------------------------------- */

struct packing {
	struct ig_gpu_step_shape *shape;
	const struct ig_step *step;
	const struct ig_gpu_slabs *slabs;
	uint8_t *area;
	uint64_t used;
	struct step_head head;
	struct ig_gpu_submission *out;
	struct ig_error *err;
};

/* Space for an array; *place is its offset.  Cannot fail: the area fits the largest step. */
static void *put(struct packing *k, uint64_t n_bytes, uint32_t *place)
{
	void *p = k->area + k->used;
	*place = (uint32_t)k->used;
	k->used += (n_bytes + 15) & ~(uint64_t)15;
	return p;
}

static void put_copy(struct packing *k, const void *src, uint64_t n_bytes, uint32_t *place)
{
	void *to = put(k, n_bytes, place);
	if (n_bytes)
		memcpy(to, src, n_bytes);
}

static int pack_rows(struct packing *k)
{
	const struct ig_step *s = k->step;
	uint64_t bytes = (uint64_t)s->n_rows * 4;
	int32_t n_vocab = (int32_t)k->shape->info.n_vocab;

	int32_t *ids = put(k, bytes, &k->head.token_ids);
	int32_t *from = put(k, bytes, &k->head.token_from);
	for (int32_t r = 0; r < s->n_rows; r++) {
		from[r] = s->token_from && s->token_from[r] >= 0 ? s->token_from[r] : -1;
		ids[r] = from[r] < 0 ? s->token_ids[r] : 0;
		if (ids[r] < 0 || ids[r] >= n_vocab)
			return ig_fail(k->err, -EINVAL, "row %d has token %d of %d", r, ids[r],
				       n_vocab);
	}
	put_copy(k, s->positions, bytes, &k->head.positions);
	put_copy(k, s->row_seq, bytes, &k->head.row_seq);
	put_copy(k, s->seq_lens, (uint64_t)s->n_seqs * 4, &k->head.seq_lens);
	put_copy(k, s->logit_rows, (uint64_t)s->n_logit_rows * 4, &k->head.logit_rows);
	return 0;
}

/* Only in a step in which a row has one; ig_program_submit has checked them. */
static void pack_adapters(struct packing *k)
{
	const struct ig_step *s = k->step;
	bool any = false;

	for (int32_t r = 0; s->row_adapter && r < s->n_rows; r++)
		any |= s->row_adapter[r] >= 0;
	if (!any)
		return;
	put_copy(k, s->row_adapter, (uint64_t)s->n_rows * 4, &k->head.row_adapter);
	k->out->live[IG_LIVE_ADAPTED_ROWS] = (uint32_t)s->n_rows;
}

/* Only in a step in which a row's type is not 0; kernels take one that the model does not have as 0. */
static void pack_types(struct packing *k)
{
	const struct ig_step *s = k->step;
	int32_t any = 0;

	for (int32_t r = 0; s->row_types && r < s->n_rows; r++)
		any |= s->row_types[r];
	if (any)
		put_copy(k, s->row_types, (uint64_t)s->n_rows * 4, &k->head.row_types);
}

/* Only what the step has; ig_program_submit has checked it. */
static void pack_outside(struct packing *k)
{
	const struct ig_step *s = k->step;
	const uint64_t n = (uint64_t)s->n_rows;

	k->head.sees_to = k->head.positions;
	if (s->sees_to)
		put_copy(k, s->sees_to, n * 4, &k->head.sees_to);
	if (s->rope_positions)
		put_copy(k, s->rope_positions, n * IG_ROPE_AXES * 4, &k->head.rope_positions);
	if (k->shape->outside)
		put_copy(k, k->shape->outside, n * 8, &k->head.outside);
}

/* Only in a step with the head that guesses; ig_program_submit has checked all but the vocabulary. */
static int pack_guesses(struct packing *k)
{
	const struct ig_step *s = k->step;

	if (!s->next_ids)
		return 0;
	for (int32_t r = 0; r < s->n_rows; r++)
		if (s->next_ids[r] >= (int32_t)k->shape->info.n_vocab)
			return ig_fail(k->err, -EINVAL, "row %d is before token %d of %u", r,
				       s->next_ids[r], k->shape->info.n_vocab);
	put_copy(k, s->next_ids, (uint64_t)s->n_rows * 4, &k->head.next_ids);
	put_copy(k, s->guess_rows, (uint64_t)s->n_guesses * 4, &k->head.guess_rows);
	k->head.n_guess_rows = (uint32_t)s->n_guesses;
	k->out->live[IG_LIVE_HEAD] = 1;
	k->out->live[IG_LIVE_GUESS_ROWS] = k->head.n_guess_rows;
	return 0;
}

static uint32_t ranges_of(const struct ig_step *s, int32_t row)
{
	return (uint32_t)ig_step_sees_to(s, 1, row) / STEP_RANGE + 1;
}

/* First rows, and how each sequence's attention runs: split over ranges if they are few
 * (STEP_SPLITS) and their partial results fit, else looping over its ranges.  Without a cache all loop. */
static void pack_sequences(struct packing *k)
{
	const struct ig_step *s = k->step;
	uint32_t *live = k->out->live, used = 0;
	int32_t row = 0;

	int32_t *first = put(k, ((uint64_t)s->n_seqs + 1) * 4, &k->head.seq_rows);
	uint32_t *partials = put(k, (uint64_t)s->n_rows * 4, &k->head.partials);
	for (int32_t q = 0; q < s->n_seqs; q++) {
		uint64_t need = 0;
		uint32_t ranges = 0;
		first[q] = row;
		while (row < s->n_rows && s->row_seq[row] == q) {
			const uint32_t n = ranges_of(s, row++);
			ranges = n > ranges ? n : ranges;
			need += n;
		}
		uint32_t n = (uint32_t)(row - first[q]);
		if (!k->shape->info.n_groups || !STEP_SPLITS(n, ranges) ||
		    need > k->shape->max_partials - used) {
			for (int32_t r = first[q]; r < row; r++)
				partials[r] = STEP_NONE;
			if (live[IG_LIVE_LOOP_ROWS] < n)
				live[IG_LIVE_LOOP_ROWS] = n;
			continue;
		}
		for (int32_t r = first[q]; r < row; r++) {
			partials[r] = used;
			used += ranges_of(s, r);
		}
		if (live[IG_LIVE_SPLIT_ROWS] < n)
			live[IG_LIVE_SPLIT_ROWS] = n;
		if (live[IG_LIVE_SPLIT_RANGES] < ranges)
			live[IG_LIVE_SPLIT_RANGES] = ranges;
	}
	first[s->n_seqs] = row;
}

static int pack_samples(struct packing *k)
{
	const struct ig_step *s = k->step;
	uint32_t n_vocab = k->shape->info.n_vocab;

	if (s->n_adjusts > k->shape->max_adjusts || (s->n_adjusts && !s->adjusts))
		return ig_fail(k->err, -EINVAL, "%u penalties and biases, at most %u fit a step",
			       s->n_adjusts, k->shape->max_adjusts);
	if (s->n_masks > k->shape->max_masks || (s->n_masks && !s->masks))
		return ig_fail(k->err, -EINVAL, "%u masks, at most %u fit a step", s->n_masks,
			       k->shape->max_masks);
	for (uint32_t i = 0; i < s->n_adjusts; i++)
		if (s->adjusts[i].id < 0 || (uint32_t)s->adjusts[i].id >= n_vocab)
			return ig_fail(k->err, -EINVAL, "penalty or bias %u is of token %d of %u",
				       i, s->adjusts[i].id, n_vocab);
	struct step_sample *to = put(k, (uint64_t)s->n_logit_rows * sizeof *to, &k->head.sample);
	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		const struct ig_sample_params *p = &s->sample[i];
		to[i] = (struct step_sample){
			.temperature = p->temperature,
			.top_p = p->top_p,
			.min_p = p->min_p,
			.top_k = p->top_k,
			.repetition_penalty = p->repetition_penalty,
			.frequency_penalty = p->frequency_penalty,
			.presence_penalty = p->presence_penalty,
			.mask = p->mask < 0 ? -1 : p->mask,
			.first_adjust = p->first_adjust,
			.n_adjusts = p->n_adjusts,
			.position = p->position,
			.seed_low = (uint32_t)p->seed,
			.seed_high = (uint32_t)(p->seed >> 32),
		};
		if (p->temperature > 0)
			k->out->live[IG_LIVE_RANDOM_ROWS] = (uint32_t)s->n_logit_rows;
	}
	put_copy(k, s->adjusts, (uint64_t)s->n_adjusts * sizeof *s->adjusts, &k->head.adjusts);
	k->head.mask_words = mask_words(n_vocab);
	put_copy(k, s->masks, (uint64_t)s->n_masks * k->head.mask_words * 4, &k->head.masks);
	return 0;
}

/* ---- the cache -------------------------------------------------------------------- */

static bool aligned(uint64_t n) { return n % 16 == 0 && n <= UINT32_MAX; }

static uint64_t element_bytes(uint32_t dtype) { return dtype == IG_F32 ? 4 : 2; }

/* Bytes of K or V of a head: of the last token up to its end. */
static uint64_t half_bytes(const struct ig_kv_layout *l, uint32_t dtype, uint64_t token_stride)
{
	if (dtype == IG_Q8_0)
		return (uint64_t)IG_BLOCK_TOKENS * (l->head_dim + l->head_dim / IG_KV_GROUP * 2);
	return (IG_BLOCK_TOKENS - 1) * token_stride + l->head_dim * element_bytes(dtype);
}

static bool aligned_tokens(const struct ig_kv_layout *l, uint32_t dtype, uint64_t token_stride)
{
	if (dtype == IG_Q8_0)
		return token_stride == 0;
	return aligned(token_stride) && token_stride >= l->head_dim * element_bytes(dtype);
}

/* Check that the layout fits the plan's cache group. */
static int check_layout(struct packing *k, uint32_t g)
{
	const struct ig_kv_layout *l = k->step->kv[g].layout;
	const struct ig_cache_group *c = &k->shape->info.groups[g];
	const struct ig_program_limits *want = &k->shape->limits;
	const bool is_state = c->kind == IG_CACHE_STATE;
	const uint32_t k_dtype = is_state ? IG_F32 : want->k_dtype;
	const uint32_t v_dtype = is_state	       ? IG_F32 :
				 c->kind == IG_CACHE_K ? want->k_dtype :
							 want->v_dtype;

	if (l->k_dtype != k_dtype || l->v_dtype != v_dtype || l->kind != c->kind ||
	    l->n_layers != c->n_layers || l->n_kv_heads != c->n_kv_heads ||
	    l->head_dim != c->head_dim)
		return ig_fail(k->err, -EINVAL,
			       "cache group %u has %u layers of %u heads of %u, type %u and %u; "
			       "the program was lowered for %u of %u of %u, type %u and %u",
			       g, l->n_layers, l->n_kv_heads, l->head_dim, l->k_dtype, l->v_dtype,
			       c->n_layers, c->n_kv_heads, c->head_dim, k_dtype, v_dtype);
	if (is_state)
		return aligned(l->block_bytes) && l->block_bytes / sizeof(float) >= l->head_dim ?
			       0 :
			       ig_fail(k->err, -EINVAL,
				       "cache group %u: parts of %" PRIu64 " bytes for %u values",
				       g, l->block_bytes, l->head_dim);
	/* Kernels have one stride for both: it is that of the ones that need it. */
	if (!aligned(l->layer_stride) || !aligned(l->v_offset) || !aligned(l->head_stride) ||
	    !aligned(l->block_bytes) || !aligned_tokens(l, l->k_dtype, l->k_token_stride) ||
	    !aligned_tokens(l, l->v_dtype, l->v_token_stride) ||
	    (l->k_token_stride && l->v_token_stride && l->k_token_stride != l->v_token_stride))
		return ig_fail(k->err, -EINVAL,
			       "cache group %u: strides that are not multiples of 16, or too large",
			       g);
	/* Counts below 2^16, strides below 2^32: no overflow. */
	uint64_t head = (uint64_t)(l->n_layers - 1) * l->layer_stride +
			(uint64_t)(l->n_kv_heads - 1) * l->head_stride;
	if (head + half_bytes(l, l->k_dtype, l->k_token_stride) > l->block_bytes ||
	    head + l->v_offset + half_bytes(l, l->v_dtype, l->v_token_stride) > l->block_bytes)
		return ig_fail(k->err, -EINVAL,
			       "cache group %u: a block of %" PRIu64 " bytes is too small", g,
			       l->block_bytes);
	return 0;
}

/* Check that the block of a word is in a mapped slab. */
static int check_word(struct packing *k, uint32_t g, int32_t q, uint32_t word)
{
	const struct ig_step *s = k->step;
	uint32_t slab = IG_BLOCK_SLAB(word);
	uint64_t *bytes = &k->shape->slab_bytes[slab];

	if (word == IG_BLOCK_NONE || slab >= k->shape->limits.max_slabs)
		goto bad;
	if (!*bytes) {
		const struct ig_gpu_slab *found =
			ig_gpu_slabs_find(k->slabs, (uint64_t)(uintptr_t)s->slab_bases[slab], 1);
		if (!found || found->address != (uint64_t)(uintptr_t)s->slab_bases[slab])
			goto bad;
		*bytes = found->n_bytes;
		k->shape->slabs_seen[k->shape->n_slabs_seen++] = slab;
	}
	if ((IG_BLOCK_INDEX(word) + 1) * s->kv[g].layout->block_bytes <= *bytes)
		return 0;
bad:
	return ig_fail(k->err, -EINVAL,
		       "sequence %d, cache group %u: block %u of slab %u is not mapped", q, g,
		       IG_BLOCK_INDEX(word), slab);
}

/* The block table of one sequence; first_position: of its first row, -1 if it has no rows.
 * Entries that no kernel may read are STEP_NONE. */
static int pack_table(struct packing *k, uint32_t g, int32_t q, uint32_t *to, uint32_t max_blocks,
		      int32_t first_position)
{
	const struct ig_step_kv *kv = &k->step->kv[g];
	const uint32_t *from = kv->block_tables + (uint64_t)q * (uint64_t)kv->max_blocks;
	uint32_t n = first_position < 0 ? 0 : (uint32_t)blocks_of((uint64_t)k->step->seq_lens[q]);
	uint32_t window = k->shape->info.groups[g].window, begin = 0;

	/* Blocks before the window of the first row are not cached. */
	if (n && window && (uint32_t)first_position >= window)
		begin = ((uint32_t)first_position - window + 1) / IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < begin; i++)
		to[i] = STEP_NONE;
	for (uint32_t i = begin; i < n; i++) {
		to[i] = from[i];
		int rc = check_word(k, g, q, from[i]);
		if (rc)
			return rc;
	}
	for (uint32_t i = n; i < max_blocks; i++)
		to[i] = STEP_NONE;
	return 0;
}

/* First segments and their ends, which all groups of state have in common. */
static int pack_segments(struct packing *k)
{
	const struct ig_step *s = k->step;
	int32_t i = 0;

	if ((uint32_t)s->n_segments > k->shape->max_segments)
		return ig_fail(k->err, -EINVAL, "a step of %d segments, at most %u fit",
			       s->n_segments, k->shape->max_segments);
	uint32_t *first = put(k, ((uint64_t)s->n_seqs + 1) * 4, &k->head.seq_segments);
	uint32_t *ends = put(k, (uint64_t)s->n_segments * 4, &k->head.segment_ends);
	for (int32_t q = 0; q < s->n_seqs; q++) {
		first[q] = (uint32_t)i;
		for (; i < s->n_segments && s->row_seq[s->segments[i].first_row] == q; i++)
			ends[i] = (uint32_t)(s->segments[i].first_row + s->segments[i].n_rows);
	}
	first[s->n_seqs] = (uint32_t)i;
	return 0;
}

/* The parts of a state; of none there are no words. */
static int pack_state(struct packing *k, uint32_t g, int32_t q, int32_t state, uint32_t *to,
		      uint32_t n_parts)
{
	const struct ig_step_kv *kv = &k->step->kv[g];

	for (uint32_t i = 0; i < n_parts; i++) {
		to[i] = state < 0 ? STEP_NONE : kv->block_tables[state * kv->max_blocks + i];
		int rc = state < 0 ? 0 : check_word(k, g, q, to[i]);
		if (rc)
			return rc;
	}
	return 0;
}

/* The states that sequences begin with, then those that segments lead to. */
static int pack_states(struct packing *k, uint32_t g)
{
	const struct ig_step *s = k->step;
	const struct ig_kv_layout *l = s->kv[g].layout;
	const uint32_t n = (uint32_t)parts_of(&k->shape->info.groups[g]);
	const uint64_t n_states = (uint64_t)s->n_seqs + (uint64_t)s->n_segments;
	int rc = 0;

	if (!k->head.segment_ends && (rc = pack_segments(k)))
		return rc;
	const uint32_t *first = (const uint32_t *)(const void *)(k->area + k->head.seq_segments);
	uint32_t *table = put(k, n_states * n * 4, &k->head.kv[g].tables);
	for (int32_t q = 0; q < s->n_seqs && !rc; q++) {
		const struct ig_step_segment *begin = &s->segments[first[q]];
		rc = pack_state(k, g, q, first[q] < first[q + 1] ? begin->from : -1,
				table + (uint64_t)q * n, n);
		for (uint32_t i = first[q]; i < first[q + 1] && !rc; i++)
			rc = pack_state(k, g, q, s->segments[i].to,
					table + ((uint64_t)s->n_seqs + i) * n, n);
	}
	k->head.kv[g].block_bytes = l->block_bytes;
	k->head.kv[g].max_blocks = n;
	k->head.kv[g].layer_stride = l->n_kv_heads;
	return rc;
}

static int pack_cache(struct packing *k)
{
	const struct ig_step *s = k->step;
	int32_t longest = 1;

	if (s->n_groups != k->shape->info.n_groups)
		return ig_fail(k->err, -EINVAL, "%u cache groups, the plan has %u", s->n_groups,
			       k->shape->info.n_groups);
	for (int32_t q = 0; q < s->n_seqs; q++)
		longest = s->seq_lens[q] > longest ? s->seq_lens[q] : longest;
	uint32_t max_blocks = (uint32_t)blocks_of((uint64_t)longest);
	const int32_t *first = (const int32_t *)(const void *)(k->area + k->head.seq_rows);
	for (uint32_t g = 0; g < s->n_groups; g++) {
		const struct ig_kv_layout *l = s->kv[g].layout;
		int rc = check_layout(k, g);
		const bool is_state = l->kind == IG_CACHE_STATE;
		if (!rc && is_state)
			rc = pack_states(k, g);
		if (rc)
			return rc;
		if (is_state)
			continue;
		uint32_t *tables =
			put(k, (uint64_t)s->n_seqs * max_blocks * 4, &k->head.kv[g].tables);
		for (int32_t q = 0; q < s->n_seqs; q++) {
			if ((rc = pack_table(k, g, q, tables + (uint64_t)q * max_blocks, max_blocks,
					     first[q] < first[q + 1] ? s->positions[first[q]] :
								       -1)))
				return rc;
		}
		k->head.kv[g] = (struct step_kv){
			.block_bytes = l->block_bytes,
			.tables = k->head.kv[g].tables,
			.max_blocks = max_blocks,
			.layer_stride = (uint32_t)l->layer_stride,
			.v_offset = (uint32_t)l->v_offset,
			.head_stride = (uint32_t)l->head_stride,
			.token_stride = (uint32_t)(l->k_token_stride ? l->k_token_stride :
								       l->v_token_stride),
		};
	}
	/* Last, so that its size depends on the highest slab in use. */
	uint32_t n_slabs = 0;
	for (uint32_t i = 0; i < k->shape->n_slabs_seen; i++)
		if (n_slabs <= k->shape->slabs_seen[i])
			n_slabs = k->shape->slabs_seen[i] + 1;
	uint64_t *addresses = put(k, (uint64_t)n_slabs * 8, &k->head.slabs);
	for (uint32_t i = 0; i < n_slabs; i++)
		addresses[i] = k->shape->slab_bytes[i] ? (uint64_t)(uintptr_t)s->slab_bases[i] : 0;
	return 0;
}

int ig_gpu_step_pack(struct ig_gpu_step_shape *shape, const struct ig_step *step, uint32_t prev,
		     const struct ig_gpu_slabs *slabs, void *area, struct ig_gpu_submission *out,
		     struct ig_error *err)
{
	struct packing k = {
		.shape = shape, .step = step, .slabs = slabs, .area = area, .out = out, .err = err
	};
	uint32_t head_place;
	int rc;

	memset(out->live, 0, sizeof out->live);
	k.head = (struct step_head){
		.n_rows = (uint32_t)step->n_rows,
		.n_seqs = (uint32_t)step->n_seqs,
		.n_logit_rows = (uint32_t)step->n_logit_rows,
		.ids = out->slot,
		.prev_ids = prev,
		.want_logits = step->logits || step->guess_logits,
	};
	put(&k, sizeof k.head, &head_place);
	rc = pack_rows(&k);
	if (!rc) {
		pack_adapters(&k);
		pack_types(&k);
		pack_outside(&k);
		pack_sequences(&k);
		rc = pack_guesses(&k);
	}
	if (!rc)
		rc = pack_samples(&k);
	if (!rc)
		rc = pack_cache(&k);
	while (shape->n_slabs_seen)
		shape->slab_bytes[shape->slabs_seen[--shape->n_slabs_seen]] = 0;
	if (rc)
		return rc;
	k.head.copies = k.head.slabs; /* none */
	memcpy(k.area, &k.head, sizeof k.head);
	out->live[IG_LIVE_ONE] = 1;
	out->live[IG_LIVE_ROWS] = k.head.n_rows;
	out->live[IG_LIVE_LOGIT_ROWS] = k.head.n_logit_rows;
	out->live[IG_LIVE_SEQS] = k.head.n_seqs;
	out->live[IG_LIVE_WANT_LOGITS] = k.head.want_logits;
	out->step_bytes = k.used;
	return 0;
}

/* ---- usual steps ------------------------------------------------------------------ */

#define LONG_RANGES 16 /* of a stream's cache: more than one kernel has at once */

enum { STREAMS, LONG_STREAMS, PROMPT, BESIDE, N_USUAL };

/* Streams of one row each, short or long; a prompt's chunk; and one beside a stream.  Rows are powers of two. */
bool ig_gpu_step_usual(const struct ig_gpu_step_shape *s, bool has_head, uint32_t i,
		       uint32_t live[IG_N_LIVE])
{
	const uint32_t kind = i % N_USUAL, bits = i / N_USUAL / 2,
		       rows = bits < 32 ? 1u << bits : 0;
	const bool random = i / N_USUAL % 2;

	if (!s->info.n_groups || !rows || rows > s->limits.max_rows)
		return false;
	memset(live, 0, IG_N_LIVE * sizeof *live);
	live[IG_LIVE_ONE] = 1;
	live[IG_LIVE_ROWS] = rows;
	live[IG_LIVE_HEAD] = has_head;
	uint32_t streams = kind == PROMPT ? 0 : kind == BESIDE ? 1 : rows;
	streams = streams < s->limits.max_seqs ? streams : s->limits.max_seqs;
	streams = streams < s->limits.max_logit_rows ? streams : s->limits.max_logit_rows;
	const uint32_t prompt = rows - streams;
	live[IG_LIVE_SEQS] = streams + (prompt > 0);
	live[IG_LIVE_LOGIT_ROWS] = streams;
	live[IG_LIVE_RANDOM_ROWS] = random ? streams : 0;
	live[IG_LIVE_GUESS_ROWS] = has_head ? streams : 0;
	if (streams) {
		live[IG_LIVE_SPLIT_ROWS] = 1;
		live[IG_LIVE_SPLIT_RANGES] = kind == LONG_STREAMS ? LONG_RANGES : 1;
	}
	if (prompt && STEP_SPLITS(prompt, 1)) {
		live[IG_LIVE_SPLIT_ROWS] = prompt;
		live[IG_LIVE_SPLIT_RANGES] = 1;
	} else {
		live[IG_LIVE_LOOP_ROWS] = prompt;
	}
	return true;
}

void ig_gpu_step_pack_copies(const struct ig_gpu_copy *copies, uint32_t n, void *area,
			     struct ig_gpu_submission *out)
{
	struct step_head head = { .n_copies = n };
	uint32_t place = (sizeof head + 15) / 16 * 16;
	struct step_copy *to = (struct step_copy *)(void *)((uint8_t *)area + place);

	head.copies = place;
	memcpy(area, &head, sizeof head);
	for (uint32_t i = 0; i < n; i++)
		to[i] = (struct step_copy){ copies[i].dst, copies[i].src,
					    (uint32_t)copies[i].n_bytes, 0 };
	memset(out->live, 0, sizeof out->live);
	out->live[IG_LIVE_ONE] = 1;
	out->live[IG_LIVE_COPIES] = n;
	out->step_bytes = place + n * sizeof *to;
}
