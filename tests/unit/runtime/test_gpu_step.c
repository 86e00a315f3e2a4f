/*
 * test_gpu_step.c: the step as kernels read it: what is packed where, which sequences
 * are split, and that nothing a kernel would follow blindly gets through.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h> /* before cmocka.h, which has a uintptr_t of its own otherwise */

#include <cmocka.h>

#include "shaders/step.h"
#include "tests/unit/runtime/fake_gpu.h"

#include <ingot/kvcache.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64
#define SEQS 4
#define LOGITS 4
#define CONTEXT 2048
#define VOCAB 70
#define PARTIALS 40
#define SLABS 8
#define SLAB_BYTES 65536u
#define BLOCKS (CONTEXT / IG_BLOCK_TOKENS)
#define HEADS 2
#define HEAD 16
#define LAYERS 2
#define GUARD 64

struct world {
	struct ig_gpu_device *device;
	struct ig_gpu_slabs slabs;
	struct ig_gpu_step_shape shape;
	void *bases[SLABS];
	uint8_t *area;
	/* the step */
	struct ig_kv_layout layout;
	struct ig_step_kv kv[2];
	uint32_t tables[SEQS][BLOCKS];
	struct ig_step step;
	int32_t ids[ROWS], from[ROWS], positions[ROWS], row_seq[ROWS], lens[SEQS],
		logit_rows[LOGITS];
	struct ig_sample_params sample[LOGITS];
	struct ig_logit_adjust adjusts[8];
	uint32_t masks[LOGITS][(VOCAB + 31) / 32];
	struct ig_gpu_submission out;
};

static const struct ig_model_info info = {
	.struct_size = sizeof info,
	.n_vocab = VOCAB,
	.n_context = CONTEXT,
	.n_groups = 1,
	.groups = { { sizeof(struct ig_cache_group), LAYERS, HEADS, HEAD, 0 } },
};
static const struct ig_program_limits limits = {
	ROWS, SEQS, LOGITS, CONTEXT, IG_F16, IG_F16, SLABS
};

static void begin(struct world *w, const struct ig_model_info *i)
{
	struct ig_error err = { 0 };

	memset(w, 0, sizeof *w);
	assert_int_equal(ig_gpu_fake.open(NULL, &w->device, &err), 0);
	w->slabs.device = w->device;
	assert_int_equal(ig_gpu_step_init(&w->shape, i, &limits, PARTIALS, &err), 0);
	for (int s = 0; s < SLABS; s += 2) { /* 0, 2, 4, 6 */
		w->bases[s] = (void *)(uintptr_t)ig_gpu_slabs_map(&w->slabs, SLAB_BYTES, 0);
		assert_non_null(w->bases[s]);
	}
	w->area = malloc(w->shape.area_bytes + GUARD);
	assert_non_null(w->area);
	memset(w->area + w->shape.area_bytes, 0x5a, GUARD);
	const uint64_t token = HEAD * 2, head = token * IG_BLOCK_TOKENS, v = head * HEADS;
	w->layout = (struct ig_kv_layout){ .k_dtype = IG_F16,
					   .v_dtype = IG_F16,
					   .n_layers = LAYERS,
					   .n_kv_heads = HEADS,
					   .head_dim = HEAD,
					   .block_bytes = 2 * v * LAYERS,
					   .layer_stride = 2 * v,
					   .v_offset = v,
					   .head_stride = head,
					   .k_token_stride = token,
					   .v_token_stride = token };
	w->kv[0] = w->kv[1] = (struct ig_step_kv){ &w->layout, &w->tables[0][0], BLOCKS };
	for (int q = 0; q < SEQS; q++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			w->tables[q][b] = IG_BLOCK_WORD(b % 3 * 2, (b + (uint32_t)q) % 8);
	w->step = (struct ig_step){
		.struct_size = sizeof w->step,
		.token_ids = w->ids,
		.positions = w->positions,
		.row_seq = w->row_seq,
		.seq_lens = w->lens,
		.logit_rows = w->logit_rows,
		.sample = w->sample,
		.slab_bases = w->bases,
		.kv = w->kv,
		.n_groups = 1,
	};
}

static void end(struct world *w)
{
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(w->area[w->shape.area_bytes + (uint64_t)i], 0x5a);
	free(w->area);
	ig_gpu_step_finish(&w->shape);
	ig_gpu_slabs_finish(&w->slabs);
	ig_gpu_fake.close(w->device);
	fake_gpu_reset();
}

/* n more rows of a new sequence, from position `first` on. */
static void add(struct world *w, int32_t first, int32_t n, bool logits)
{
	int32_t q = w->step.n_seqs++;

	for (int32_t i = 0; i < n; i++) {
		int32_t r = w->step.n_rows++;
		w->ids[r] = (r * 7 + 1) % VOCAB;
		w->positions[r] = first + i;
		w->row_seq[r] = q;
	}
	w->lens[q] = first + n;
	if (logits)
		w->logit_rows[w->step.n_logit_rows++] = w->step.n_rows - 1;
}

static int pack(struct world *w, struct ig_error *err)
{
	memset(w->area, 0xee, w->shape.area_bytes);
	w->out = (struct ig_gpu_submission){ .slot = 1 };
	return ig_gpu_step_pack(&w->shape, &w->step, 0, &w->slabs, w->area, &w->out, err);
}

static const struct step_head *head(const struct world *w)
{
	return (const struct step_head *)(const void *)w->area;
}

static const void *at(const struct world *w, uint32_t place)
{
	assert_int_equal(place % 16, 0);
	assert_true(place >= sizeof(struct step_head) && place <= w->out.step_bytes);
	return w->area + place;
}

static void test_packed(void **state)
{
	struct world w;
	struct ig_error err = { 0 };
	float logits[1];

	begin(&w, &info);
	add(&w, 300, 1, true);
	add(&w, 0, 20, false);
	add(&w, 90, 3, true);
	w.sample[0] = (struct ig_sample_params){
		0.0f, 0.5f, 0.1f, 7, 1.5f, 0.25f, 0.75f, -9, 0, 0, 301, 0, 0x1122334455667788u
	};
	w.sample[1] =
		(struct ig_sample_params){ 1.0f, 1.0f, 0.0f, 0, 1.0f, 0, 0, 1, 1, 2, 93, 0, 5 };
	for (int i = 0; i < 3; i++)
		w.adjusts[i] = (struct ig_logit_adjust){ i + 3, 2, 1, 0.5f };
	w.masks[1][2] = 77;
	w.step.adjusts = w.adjusts;
	w.step.n_adjusts = 3;
	w.step.masks = &w.masks[0][0];
	w.step.n_masks = 2;
	memset(w.from, 0xff, sizeof w.from);
	w.from[0] = 2;
	w.ids[0] = 1 << 30; /* not looked at: the token comes from the step before */
	w.step.token_from = w.from;
	w.step.logits = logits;
	assert_int_equal(pack(&w, &err), 0);

	const struct step_head *h = head(&w);
	assert_int_equal(h->n_rows, 24);
	assert_int_equal(h->n_seqs, 3);
	assert_int_equal(h->n_logit_rows, 2);
	assert_int_equal(h->n_copies, 0);
	assert_int_equal(h->ids, 1);
	assert_int_equal(h->prev_ids, 0);
	assert_int_equal(h->want_logits, 1);
	assert_int_equal(h->mask_words, 3);
	const int32_t *ids = at(&w, h->token_ids), *from = at(&w, h->token_from);
	assert_int_equal(from[0], 2);
	assert_int_equal(from[1], -1);
	assert_int_equal(ids[0], 0);
	assert_memory_equal(ids + 1, w.ids + 1, 23 * 4);
	assert_memory_equal(at(&w, h->positions), w.positions, 24 * 4);
	assert_memory_equal(at(&w, h->row_seq), w.row_seq, 24 * 4);
	assert_memory_equal(at(&w, h->seq_lens), w.lens, 3 * 4);
	static const int32_t first[] = { 0, 1, 21, 24 };
	assert_memory_equal(at(&w, h->seq_rows), first, sizeof first);
	assert_memory_equal(at(&w, h->logit_rows), w.logit_rows, 2 * 4);
	/* 300 is in range 1: two partials; 20 rows are too many; 90 … 92 are in range 0. */
	const uint32_t *partials = at(&w, h->partials);
	assert_int_equal(partials[0], 0);
	for (int r = 1; r < 21; r++)
		assert_int_equal(partials[r], STEP_NONE);
	assert_int_equal(partials[21], 2);
	assert_int_equal(partials[22], 3);
	assert_int_equal(partials[23], 4);
	const struct step_sample *s = at(&w, h->sample);
	assert_int_equal(s[0].seed_low, 0x55667788);
	assert_int_equal(s[0].seed_high, 0x11223344);
	assert_int_equal(s[0].mask, -1);
	assert_true(s[0].temperature == 0.0f && s[0].top_p == 0.5f && s[0].min_p == 0.1f &&
		    s[0].top_k == 7 && s[0].repetition_penalty == 1.5f &&
		    s[0].frequency_penalty == 0.25f && s[0].presence_penalty == 0.75f &&
		    s[0].position == 301);
	assert_true(s[1].mask == 1 && s[1].first_adjust == 1 && s[1].n_adjusts == 2);
	const struct step_adjust *e = at(&w, h->adjusts);
	assert_true(e[2].id == 5 && e[2].n_sampled == 2 && e[2].seen == 1 && e[2].bias == 0.5f);
	const uint32_t *masks = at(&w, h->masks);
	assert_int_equal(masks[5], 77);
	/* Tables as long as 301 tokens need, and nothing behind a sequence's blocks. */
	assert_int_equal(h->kv[0].max_blocks, 19);
	assert_int_equal(h->kv[0].block_bytes, w.layout.block_bytes);
	assert_int_equal(h->kv[0].layer_stride, w.layout.layer_stride);
	assert_int_equal(h->kv[0].v_offset, w.layout.v_offset);
	assert_int_equal(h->kv[0].head_stride, w.layout.head_stride);
	assert_int_equal(h->kv[0].token_stride, w.layout.k_token_stride);
	const uint32_t *tables = at(&w, h->kv[0].tables);
	static const uint32_t n_blocks[] = { 19, 2, 6 };
	for (uint32_t q = 0; q < 3; q++)
		for (uint32_t b = 0; b < 19; b++)
			assert_int_equal(tables[q * 19 + b],
					 b < n_blocks[q] ? w.tables[q][b] : STEP_NONE);
	const uint64_t *slabs = at(&w, h->slabs);
	for (uint32_t i = 0; i < 5; i++) /* 4 is the highest that is used */
		assert_true(slabs[i] == (i % 2 ? 0 : (uint64_t)(uintptr_t)w.bases[i]));
	assert_int_equal(w.out.step_bytes, h->slabs + 48); /* five, to a multiple of 16 */
	static const uint32_t live[IG_N_LIVE] = { 1, 24, 2, 3, 3, 2, 20, 0, 1, 2 };
	assert_memory_equal(w.out.live, live, sizeof live);

	/* No draw, nothing wanted. */
	w.sample[1].temperature = 0;
	w.step.logits = NULL;
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.live[IG_LIVE_RANDOM_ROWS], 0);
	assert_int_equal(w.out.live[IG_LIVE_WANT_LOGITS], 0);
	end(&w);
}

/* The head that guesses: only in steps that have it. */
static void test_guesses(void **state)
{
	static const int32_t next[] = { 7, 8, -1, 9, -2 }, guess_rows[] = { 1 };
	static const int32_t bad[] = { 7, 8, -1, VOCAB, -2 };
	struct world w;
	struct ig_error err = { 0 };

	begin(&w, &info);
	add(&w, 40, 3, true);
	add(&w, 90, 2, true);
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.live[IG_LIVE_HEAD], 0);
	assert_int_equal(head(&w)->n_guess_rows, 0);
	w.step.next_ids = next;
	w.step.guess_rows = guess_rows;
	w.step.n_guesses = 1;
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.live[IG_LIVE_HEAD], 1);
	assert_int_equal(w.out.live[IG_LIVE_GUESS_ROWS], 1);
	assert_int_equal(head(&w)->n_guess_rows, 1);
	assert_memory_equal(at(&w, head(&w)->next_ids), next, sizeof next);
	assert_memory_equal(at(&w, head(&w)->guess_rows), guess_rows, sizeof guess_rows);
	w.step.n_guesses = 0; /* its layers are computed all the same */
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.live[IG_LIVE_HEAD], 1);
	assert_int_equal(w.out.live[IG_LIVE_GUESS_ROWS], 0);
	w.step.next_ids = bad;
	assert_int_equal(pack(&w, &err), -EINVAL);
	assert_non_null(strstr(err.text, "row 3 is before token"));
	end(&w);
}

/* Usual steps are within the limits, and there is one of each size and kind. */
static void test_usual(void **state)
{
	uint32_t live[IG_N_LIVE], i, largest = 0, n_loops = 0, n_long = 0;
	struct world w;

	begin(&w, &info);
	for (i = 0; ig_gpu_step_usual(&w.shape, i % 3 == 0, i, live); i++) {
		assert_int_equal(live[IG_LIVE_ONE], 1);
		assert_in_range(live[IG_LIVE_ROWS], 1, ROWS);
		assert_in_range(live[IG_LIVE_SEQS], 1, SEQS + 1);
		assert_true(live[IG_LIVE_LOGIT_ROWS] <= LOGITS);
		assert_true(live[IG_LIVE_LOGIT_ROWS] <= live[IG_LIVE_ROWS]);
		assert_true(live[IG_LIVE_RANDOM_ROWS] <= live[IG_LIVE_LOGIT_ROWS]);
		assert_int_equal(live[IG_LIVE_HEAD], i % 3 == 0);
		assert_true(live[IG_LIVE_SPLIT_ROWS] || live[IG_LIVE_LOOP_ROWS]);
		assert_int_equal(live[IG_LIVE_SPLIT_ROWS] > 0, live[IG_LIVE_SPLIT_RANGES] > 0);
		largest = live[IG_LIVE_ROWS] > largest ? live[IG_LIVE_ROWS] : largest;
		n_loops += live[IG_LIVE_LOOP_ROWS] > 0;
		n_long += live[IG_LIVE_SPLIT_RANGES] > 8;
	}
	assert_true(2 * largest > ROWS && n_loops > 0 && n_long > 0);
	end(&w);
}

/* Rows and partials up to the limits: the rest loops, wherever it stands. */
static void test_split(void **state)
{
	struct world w;
	struct ig_error err = { 0 };

	begin(&w, &info);
	add(&w, 0, 16, false);	 /* 16 partials */
	add(&w, 0, 17, false);	 /* too many rows */
	add(&w, 1500, 5, false); /* 30 partials of 24 that are left */
	add(&w, 1000, 6, false); /* 24: just fits */
	assert_int_equal(pack(&w, &err), 0);
	const uint32_t *partials = at(&w, head(&w)->partials);
	assert_int_equal(partials[15], 15);
	assert_int_equal(partials[16], STEP_NONE);
	assert_int_equal(partials[33], STEP_NONE);
	assert_int_equal(partials[38], 16);
	assert_int_equal(partials[43], 36);
	assert_int_equal(w.out.live[IG_LIVE_SPLIT_ROWS], 16);
	assert_int_equal(w.out.live[IG_LIVE_SPLIT_RANGES], 4);
	assert_int_equal(w.out.live[IG_LIVE_LOOP_ROWS], 17);
	end(&w);
}

/* Rows that see ahead have partials up to what they see; what they are turned by, and where their embeddings are. */
static void test_outside(void **state)
{
	struct world w;
	struct ig_error err = { 0 };
	int32_t sees_to[ROWS], turned[ROWS][IG_ROPE_AXES];
	uint64_t outside[ROWS] = { 0, 0, 0x123456789abcull };

	begin(&w, &info);
	add(&w, 250, 10, false); /* an image from 252 to 257 */
	add(&w, 0, 2, false);
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(head(&w)->sees_to, head(&w)->positions);
	assert_int_equal(head(&w)->rope_positions, 0);
	assert_int_equal(head(&w)->outside, 0);
	for (int r = 0; r < 12; r++) {
		sees_to[r] = r >= 2 && r <= 7 ? 257 : w.positions[r];
		for (int i = 0; i < IG_ROPE_AXES; i++)
			turned[r][i] = 10 * r + i;
	}
	w.step.sees_to = sees_to;
	w.step.rope_positions = turned[0];
	w.shape.outside = outside;
	assert_int_equal(pack(&w, &err), 0);
	static const uint32_t want[] = { 0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19 };
	assert_memory_equal(at(&w, head(&w)->partials), want, sizeof want);
	assert_int_equal(w.out.live[IG_LIVE_SPLIT_RANGES], 2);
	assert_memory_equal(at(&w, head(&w)->positions), w.positions, 12 * 4);
	assert_memory_equal(at(&w, head(&w)->sees_to), sees_to, 12 * 4);
	assert_memory_equal(at(&w, head(&w)->rope_positions), turned, 12 * sizeof turned[0]);
	assert_memory_equal(at(&w, head(&w)->outside), outside, 12 * 8);
	/* a sequence whose last row sees no further range than the first one */
	w.step.n_rows = w.positions[11] = 0;
	w.step.n_seqs = 0;
	w.step.sees_to = NULL;
	add(&w, 250, 5, false);
	w.lens[0] = 300;
	for (int r = 0; r < 5; r++)
		sees_to[r] = r == 1 ? 299 : w.positions[r];
	w.step.sees_to = sees_to;
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.live[IG_LIVE_SPLIT_RANGES], 2);
	end(&w);
}

/* What the limits allow at most fits the area. */
static void test_largest(void **state)
{
	struct world w;
	struct ig_error err = { 0 };

	begin(&w, &info);
	for (int q = 0; q < SEQS; q++)
		add(&w, CONTEXT - ROWS / SEQS, ROWS / SEQS, true);
	for (int q = 0; q < SEQS; q++)
		w.tables[q][0] = IG_BLOCK_WORD(6, 1);
	w.bases[SLABS - 1] = w.bases[6];
	w.tables[0][1] = IG_BLOCK_WORD(SLABS - 1, 0);
	uint32_t n = w.shape.max_adjusts;
	assert_int_equal(n, VOCAB * LOGITS);
	struct ig_logit_adjust *adjusts = calloc(n, sizeof *adjusts);
	assert_non_null(adjusts);
	w.step.adjusts = adjusts;
	w.step.n_adjusts = n;
	w.step.masks = &w.masks[0][0];
	w.step.n_masks = LOGITS;
	int32_t adapters[ROWS] = { 0 }, types[ROWS] = { 1 };
	w.step.row_adapter = adapters;
	w.step.row_types = types;
	const int32_t turned[ROWS][IG_ROPE_AXES] = { { 0 } };
	const uint64_t outside[ROWS] = { 0 };
	w.step.next_ids = w.ids;
	w.step.guess_rows = w.logit_rows;
	w.step.n_guesses = w.step.n_logit_rows;
	w.step.sees_to = w.positions;
	w.step.rope_positions = turned[0];
	w.shape.outside = outside;
	assert_int_equal(pack(&w, &err), 0);
	assert_int_equal(w.out.step_bytes, w.shape.area_bytes);
	free(adjusts);
	end(&w);
}

static void test_hostile(void **state)
{
	struct world w;
	struct ig_error err;

#define BAD(says, change)                                                                          \
	do {                                                                                       \
		err = (struct ig_error){ 0 };                                                      \
		begin(&w, &info);                                                                  \
		add(&w, 100, 2, true);                                                             \
		add(&w, 5, 1, true);                                                               \
		assert_int_equal(pack(&w, &err), 0);                                               \
		change;                                                                            \
		assert_int_equal(pack(&w, &err), -EINVAL);                                         \
		if (!strstr(err.text, says))                                                       \
			fail_msg("\"%s\" does not say \"%s\"", err.text, says);                    \
		end(&w);                                                                           \
	} while (0)
	BAD("row 1 has token -1", w.ids[1] = -1);
	BAD("row 2 has token 70 of 70", w.ids[2] = VOCAB);
	BAD("2 cache groups, the plan has 1", w.step.n_groups = 2);
	BAD("0 cache groups", w.step.n_groups = 0);
	BAD("block 0 of slab 1 is not mapped", w.tables[0][0] = IG_BLOCK_WORD(1, 0));
	BAD("sequence 1, cache group 0: block 0 of slab 8",
	    w.tables[1][0] = IG_BLOCK_WORD(SLABS, 0));
	BAD("is not mapped", w.tables[0][6] = IG_BLOCK_NONE);
	BAD("block 4095 of slab 2", w.tables[0][6] = IG_BLOCK_WORD(2, 4095));
	BAD("block 16 of slab 2", w.tables[0][6] = IG_BLOCK_WORD(2, SLAB_BYTES / 4096));
	BAD("is not mapped", w.bases[0] = (uint8_t *)w.bases[0] + 16);
	BAD("is not mapped", ig_gpu_slabs_unmap(&w.slabs, (uint64_t)(uintptr_t)w.bases[2], 0));
	BAD("type 0 and 1; the program was lowered for 2 of 2 of 16, type 1 and 1",
	    w.layout.k_dtype = IG_F32);
	BAD("3 layers", w.layout.n_layers = 3);
	BAD("layers of 1 heads", w.layout.n_kv_heads = 1);
	BAD("heads of 32", w.layout.head_dim = 32);
	BAD("cache group 0 has 2 layers", w.layout.kind = IG_CACHE_K);
	BAD("too small", w.layout.block_bytes -= 16);
	BAD("too small", w.layout.layer_stride += 16);
	BAD("strides", w.layout.k_token_stride = 16);
	BAD("strides", w.layout.head_stride += 8);
	BAD("strides", w.layout.v_offset += (uint64_t)1 << 40);
	BAD("strides", w.layout.block_bytes = (uint64_t)1 << 60);
	BAD("penalties and biases, at most", w.step.n_adjusts = w.shape.max_adjusts + 1);
	BAD("1 penalties and biases", w.step.n_adjusts = 1); /* and no list */
	BAD("penalty or bias 0 is of token 70",
	    (w.adjusts[0].id = VOCAB, w.step.adjusts = w.adjusts, w.step.n_adjusts = 1));
	BAD("penalty or bias 0 is of token -1",
	    (w.adjusts[0].id = -1, w.step.adjusts = w.adjusts, w.step.n_adjusts = 1));
	BAD("5 masks", (w.step.masks = &w.masks[0][0], w.step.n_masks = LOGITS + 1));
	BAD("1 masks", w.step.n_masks = 1);
#undef BAD
	/* Blocks that no position needs may be anything. */
	begin(&w, &info);
	add(&w, 100, 2, true);
	w.tables[0][7] = IG_BLOCK_NONE;
	assert_int_equal(pack(&w, &err), 0);
	/* After a refusal the next step is packed as ever. */
	w.tables[0][3] = IG_BLOCK_NONE;
	assert_int_equal(pack(&w, &err), -EINVAL);
	w.tables[0][3] = IG_BLOCK_WORD(2, 0);
	assert_int_equal(pack(&w, &err), 0);
	end(&w);
}

/* ---- states of recurrent layers ---- */

#define PARTS 3
#define N_STATES 5
#define PART 65536u /* values of a part: more than a head of pages may have */

static const struct ig_model_info with_states = {
	.struct_size = sizeof with_states,
	.n_vocab = VOCAB,
	.n_context = CONTEXT,
	.n_groups = 3,
	.groups = { { sizeof(struct ig_cache_group), LAYERS, HEADS, HEAD, 0, IG_CACHE_KV },
		    { sizeof(struct ig_cache_group), 2, PARTS, 32, 0, IG_CACHE_STATE },
		    { sizeof(struct ig_cache_group), 1, 1, PART, 0, IG_CACHE_STATE } },
};

struct states {
	struct ig_kv_layout layout[2];
	struct ig_step_kv kv[3];
	uint32_t tables[N_STATES][2 * PARTS], last[N_STATES][2]; /* longer than needed */
	struct ig_step_segment segments[SEQS * IG_KV_MAX_SEGMENTS + 1];
};

/* Sequences of 3, 1 and 2 rows; the first and the last one begin with a state. */
static void add_states(struct world *w, struct states *s)
{
	static const struct ig_step_segment segments[] = {
		{ 0, 2, 4, 0 }, { 2, 1, 0, 1 }, { 3, 1, -1, 2 }, { 4, 2, 3, 3 }
	};

	memset(s, 0, sizeof *s);
	add(w, 100, 3, true);
	add(w, 0, 1, true);
	add(w, 7, 2, false);
	s->layout[0] = (struct ig_kv_layout){ .k_dtype = IG_F32,
					      .v_dtype = IG_F32,
					      .n_layers = 2,
					      .n_kv_heads = PARTS,
					      .head_dim = 32,
					      .kind = IG_CACHE_STATE,
					      .block_bytes = 128 };
	s->layout[1] = s->layout[0];
	s->layout[1].n_layers = s->layout[1].n_kv_heads = 1;
	s->layout[1].head_dim = PART;
	s->layout[1].block_bytes = 4 * PART;
	for (uint32_t i = 0; i < N_STATES; i++) {
		for (uint32_t k = 0; k < 2 * PARTS; k++)
			s->tables[i][k] = IG_BLOCK_WORD(2, i * 7 + k);
		s->last[i][0] = IG_BLOCK_WORD(1, i);
		s->last[i][1] = IG_BLOCK_NONE; /* is of no part */
	}
	w->bases[1] = (void *)(uintptr_t)ig_gpu_slabs_map(&w->slabs, N_STATES * 4 * PART, 0);
	assert_non_null(w->bases[1]);
	s->kv[0] = w->kv[0];
	s->kv[1] = (struct ig_step_kv){ &s->layout[0], &s->tables[0][0], 2 * PARTS };
	s->kv[2] = (struct ig_step_kv){ &s->layout[1], &s->last[0][0], 2 };
	memcpy(s->segments, segments, sizeof segments);
	w->step.kv = s->kv;
	w->step.n_groups = 3;
	w->step.segments = s->segments;
	w->step.n_segments = 4;
	w->step.n_states = N_STATES;
}

/* The rows of a table: of each sequence what it begins with, then where segments lead to. */
static void test_states(void **state)
{
	static const uint32_t first[] = { 0, 2, 3, 4 }, ends[] = { 2, 3, 4, 6 };
	static const int32_t rows[] = { 4, -1, 3, 0, 1, 2, 3 };
	struct ig_error err = { 0 };
	struct states s;
	struct world w;

	begin(&w, &with_states);
	add_states(&w, &s);
	assert_int_equal(pack(&w, &err), 0);
	const struct step_head *h = head(&w);
	assert_memory_equal(at(&w, h->seq_segments), first, sizeof first);
	assert_memory_equal(at(&w, h->segment_ends), ends, sizeof ends);
	assert_int_equal(h->kv[1].block_bytes, 128);
	assert_int_equal(h->kv[1].max_blocks, 2 * PARTS);
	assert_int_equal(h->kv[1].layer_stride, PARTS);
	assert_int_equal(h->kv[2].max_blocks, 1);
	const uint32_t *parts = at(&w, h->kv[1].tables), *last = at(&w, h->kv[2].tables);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		for (uint32_t k = 0; k < 2 * PARTS; k++)
			assert_int_equal(parts[i * 2 * PARTS + k],
					 rows[i] < 0 ? STEP_NONE : s.tables[rows[i]][k]);
		assert_int_equal(last[i], rows[i] < 0 ? STEP_NONE : s.last[rows[i]][0]);
	}
	/* pages are packed beside them */
	assert_int_equal(((const uint32_t *)at(&w, h->kv[0].tables))[0], w.tables[0][0]);
	end(&w);
}

/* The area has room for as many segments as a step can have. */
static void test_most_segments(void **state)
{
	const uint32_t n = SEQS * IG_KV_MAX_SEGMENTS;
	struct ig_error err = { 0 };
	struct states s;
	struct world w;

	begin(&w, &with_states);
	add_states(&w, &s);
	w.step.n_rows = w.step.n_seqs = w.step.n_logit_rows = 0;
	for (int q = 0; q < SEQS; q++)
		add(&w, CONTEXT - IG_KV_MAX_SEGMENTS, IG_KV_MAX_SEGMENTS, true);
	for (uint32_t i = 0; i <= n; i++)
		s.segments[i] = (struct ig_step_segment){ (int32_t)i, 1, 0, 0 };
	w.step.n_segments = (int32_t)n;
	assert_int_equal(pack(&w, &err), 0);
	assert_true(w.out.step_bytes <= w.shape.area_bytes);
	w.step.n_segments++;
	assert_int_equal(pack(&w, &err), -EINVAL);
	assert_non_null(strstr(err.text, "33 segments, at most 32"));
	end(&w);
}

static void test_hostile_states(void **state)
{
	struct ig_error err;
	struct states s;
	struct world w;

#define BAD(says, change)                                                                          \
	do {                                                                                       \
		err = (struct ig_error){ 0 };                                                      \
		begin(&w, &with_states);                                                           \
		add_states(&w, &s);                                                                \
		change;                                                                            \
		assert_int_equal(pack(&w, &err), -EINVAL);                                         \
		if (!strstr(err.text, says))                                                       \
			fail_msg("\"%s\" does not say \"%s\"", err.text, says);                    \
		end(&w);                                                                           \
	} while (0)
	BAD("sequence 0, cache group 1: block 4095 of slab 3 is not mapped",
	    s.tables[1][5] = IG_BLOCK_WORD(3, 4095)); /* where a segment leads to */
	BAD("sequence 2, cache group 1", s.tables[3][0] = IG_BLOCK_NONE);
	BAD("sequence 0, cache group 2: block 5", s.last[4][0] = IG_BLOCK_WORD(1, N_STATES));
	BAD("type 1 and 0", s.layout[0].k_dtype = IG_F16);
	BAD("type 0 and 1", s.layout[0].v_dtype = IG_F16);
	BAD("1 layers of 3 heads", s.layout[0].n_layers = 1);
	BAD("2 layers of 2 heads", s.layout[0].n_kv_heads = 2);
	BAD("of 33", s.layout[0].head_dim = 33);
	BAD("cache group 1", s.layout[0].kind = IG_CACHE_KV);
	BAD("parts of 112 bytes for 32 values", s.layout[0].block_bytes = 112);
	BAD("parts of 136 bytes", s.layout[0].block_bytes = 136);
#undef BAD
	struct ig_gpu_step_shape shape;
	struct ig_model_info i = with_states;
	i.groups[2].head_dim = (1u << 28) + 1;
	assert_int_equal(ig_gpu_step_init(&shape, &i, &limits, 1, &err), -ENOTSUP);
	i = with_states;
	i.groups[1].n_layers = i.groups[1].n_kv_heads = 1000;
	assert_int_equal(ig_gpu_step_init(&shape, &i, &limits, 1, &err), -ENOTSUP);
}

/* A group with a window keeps no blocks before it. */
static void test_window(void **state)
{
	struct ig_model_info windowed = info;
	struct ig_error err = { 0 };
	struct world w;

	windowed.groups[0].window = 64;
	begin(&w, &windowed);
	add(&w, 100, 2, true); /* row at 100 sees 37 … 100: blocks from 2 on */
	w.tables[0][0] = w.tables[0][1] = IG_BLOCK_NONE;
	assert_int_equal(pack(&w, &err), 0);
	const uint32_t *t = at(&w, head(&w)->kv[0].tables);
	assert_int_equal(t[1], STEP_NONE);
	assert_int_equal(t[2], w.tables[0][2]);
	/* of a sequence without rows nothing is read */
	add(&w, 80, 0, false);
	for (uint32_t b = 0; b < BLOCKS; b++)
		w.tables[1][b] = IG_BLOCK_NONE;
	assert_int_equal(pack(&w, &err), 0);
	t = at(&w, head(&w)->kv[0].tables);
	for (uint32_t b = 0; b < head(&w)->kv[0].max_blocks; b++)
		assert_int_equal(t[head(&w)->kv[0].max_blocks + b], STEP_NONE);
	w.tables[0][2] = IG_BLOCK_NONE;
	assert_int_equal(pack(&w, &err), -EINVAL);
	end(&w);
}

static void test_limits(void **state)
{
	struct ig_gpu_step_shape s;
	struct ig_error err = { 0 };
	struct ig_program_limits l = limits;

	l.max_seqs = l.max_context = UINT32_MAX;
	assert_int_equal(ig_gpu_step_init(&s, &info, &l, 1, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "4294967295 sequences of 4294967295 tokens"));
	l = limits;
	l.max_slabs = 0;    /* as many as a block word can name */
	l.k_dtype = IG_F32; /* 0, and not "unset" */
	assert_int_equal(ig_gpu_step_init(&s, &info, &l, 1, &err), 0);
	assert_int_equal(s.limits.max_slabs, 1u << 20);
	assert_int_equal(s.limits.k_dtype, IG_F32);
	ig_gpu_step_finish(&s);
	struct ig_model_info i = info;
	i.groups[0].n_layers = 0;
	assert_int_equal(ig_gpu_step_init(&s, &i, &limits, 1, &err), -ENOTSUP);
	i = info;
	i.groups[0].head_dim = 1 << 20;
	assert_int_equal(ig_gpu_step_init(&s, &i, &limits, 1, &err), -ENOTSUP);
	i.n_groups = STEP_MAX_GROUPS + 1;
	assert_int_equal(ig_gpu_step_init(&s, &i, &limits, 1, &err), -ENOTSUP);
}

/* Whole texts of a model of vectors: no cache, nothing is split or sampled; types where a row has one. */
static void test_texts(void **state)
{
	static const struct ig_model_info vectors = { .struct_size = sizeof vectors,
						      .n_vocab = VOCAB,
						      .n_context = CONTEXT,
						      .result = IG_RESULT_EMBEDDING };
	int32_t types[ROWS] = { 0 };
	struct ig_error err = { 0 };
	struct world w;

	begin(&w, &vectors);
	w.step.n_groups = 0;
	w.step.row_types = types;
	add(&w, 0, 5, true);
	add(&w, 0, 20, true);
	assert_int_equal(pack(&w, &err), 0);
	const struct step_head *h = head(&w);
	assert_int_equal(h->row_types, 0); /* all are 0 */
	assert_int_equal(w.out.live[IG_LIVE_LOOP_ROWS], 20);
	assert_int_equal(w.out.live[IG_LIVE_SPLIT_ROWS], 0);
	for (int r = 0; r < 25; r++)
		assert_int_equal(((const uint32_t *)at(&w, h->partials))[r], STEP_NONE);
	types[24] = 1;
	assert_int_equal(pack(&w, &err), 0);
	h = head(&w);
	assert_memory_equal(at(&w, h->row_types), types, 25 * sizeof *types);
	w.step.n_masks = 1;
	w.step.masks = w.masks[0];
	assert_int_equal(pack(&w, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 masks, at most 0"));
	w.step.n_masks = 0;
	w.step.n_adjusts = 1;
	w.step.adjusts = w.adjusts;
	assert_int_equal(pack(&w, &err), -EINVAL);
	end(&w);
}

static void test_copies(void **state)
{
	static struct ig_gpu_copy copies[IG_GPU_MAX_COPIES];
	uint8_t *area = malloc(IG_GPU_COPY_AREA_BYTES + GUARD);
	struct ig_gpu_submission out = { .slot = 1 };

	assert_non_null(area);
	memset(area, 0x5a, IG_GPU_COPY_AREA_BYTES + GUARD);
	for (uint64_t i = 0; i < IG_GPU_MAX_COPIES; i++)
		copies[i] = (struct ig_gpu_copy){ i * 4096, i << 40, 16 * (i + 1) };
	ig_gpu_step_pack_copies(copies, IG_GPU_MAX_COPIES, area, &out);
	const struct step_head *h = (const struct step_head *)(const void *)area;
	const struct step_copy *c = (const struct step_copy *)(const void *)(area + h->copies);
	assert_int_equal(h->n_copies, IG_GPU_MAX_COPIES);
	assert_int_equal(h->n_rows, 0);
	for (uint64_t i = 0; i < IG_GPU_MAX_COPIES; i++)
		assert_true(c[i].dst == i * 4096 && c[i].src == i << 40 &&
			    c[i].n_bytes == 16 * (i + 1));
	static const uint32_t live[IG_N_LIVE] = { 1, 0, 0, 0, 0, 0, 0, IG_GPU_MAX_COPIES, 0, 0 };
	assert_memory_equal(out.live, live, sizeof live);
	assert_true(out.step_bytes <= IG_GPU_COPY_AREA_BYTES);
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(area[IG_GPU_COPY_AREA_BYTES + i], 0x5a);
	free(area);
}

/* ---- slabs ---- */

static void test_slabs(void **state)
{
	struct ig_gpu_slabs s = { 0 };
	struct ig_gpu_device *device;
	uint64_t a[200];

	assert_int_equal(ig_gpu_fake.open(NULL, &device, NULL), 0);
	s.device = device;
	for (int i = 0; i < 200; i++) {
		a[i] = ig_gpu_slabs_map(&s, 4096, 0);
		assert_true(a[i] != 0);
	}
	for (int i = 0; i < 200; i++) {
		const struct ig_gpu_slab *m = ig_gpu_slabs_find(&s, a[i] + 4000, 96);
		assert_true(m && m->address == a[i] && m->n_bytes == 4096);
		assert_null(ig_gpu_slabs_find(&s, a[i] + 4000, 97));
	}
	assert_null(ig_gpu_slabs_find(&s, 1, 1));
	assert_null(ig_gpu_slabs_find(&s, UINT64_MAX, 1));
	/* Given back: not found any more, and taken again before new memory is. */
	ig_gpu_slabs_unmap(&s, a[7], 1);
	ig_gpu_slabs_unmap(&s, a[7], 1); /* nothing happens */
	ig_gpu_slabs_unmap(&s, 12345, 1);
	assert_null(ig_gpu_slabs_find(&s, a[7], 1));
	int allocs = fake_gpu.n_allocs;
	assert_true(ig_gpu_slabs_map(&s, 4096, 0) == a[7]);
	assert_int_equal(fake_gpu.n_allocs, allocs);
	/* Freed under pressure, but for those that a step may still touch. */
	for (int i = 0; i < 10; i++)
		ig_gpu_slabs_unmap(&s, a[i], (uint64_t)i);
	int frees = fake_gpu.n_frees;
	ig_gpu_slabs_release(&s, 4097, 4);
	assert_int_equal(fake_gpu.n_frees, frees + 2);
	ig_gpu_slabs_release(&s, UINT64_MAX, 4);
	assert_int_equal(fake_gpu.n_frees, frees + 5);
	assert_int_equal(s.n_idle, 5);
	/* No memory: idle ones of another size are freed, if allowed. */
	fake_gpu.max_bytes = fake_gpu.n_bytes;
	assert_true(ig_gpu_slabs_map(&s, 8192, 5) == 0);
	assert_int_equal(s.n_idle, 4);
	assert_true(ig_gpu_slabs_map(&s, 8192, 9) != 0);
	assert_int_equal(s.n_idle, 0);
	fake_gpu.fail_at = 1;
	assert_true(ig_gpu_slabs_map(&s, 16, 9) == 0);
	ig_gpu_slabs_finish(&s);
	ig_gpu_fake.close(device);
	fake_gpu_reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packed),	       cmocka_unit_test(test_guesses),
		cmocka_unit_test(test_usual),	       cmocka_unit_test(test_split),
		cmocka_unit_test(test_outside),	       cmocka_unit_test(test_largest),
		cmocka_unit_test(test_hostile),	       cmocka_unit_test(test_window),
		cmocka_unit_test(test_limits),	       cmocka_unit_test(test_texts),
		cmocka_unit_test(test_states),	       cmocka_unit_test(test_most_segments),
		cmocka_unit_test(test_hostile_states), cmocka_unit_test(test_copies),
		cmocka_unit_test(test_slabs),
	};
	return cmocka_run_group_tests_name("the step on a GPU", tests, NULL, NULL);
}
