/*
 * test_kv_states.c: states of the service "paged": when a state is changed in place and when not, what
 * becomes a snapshot, what a match finds, what is evicted first, and that nothing is copied or leaks.
 * A state's parts hold the tokens that it stands for, as the steps of a naive model write them.
 */
#include <ingot/arch.h>
#include <ingot/kvcache.h>
#include <ingot/module.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct ig_module ingot_module;
static const struct ig_kvcache_service *kv;

#define SLAB 4096
#define PART 256 /* bytes */
#define N_PARTS 6
#define MAX_TOKENS 512

static int n_mapped, n_copies;

static void *map_slab(void *ctx, uint64_t bytes)
{
	n_mapped++;
	return malloc(bytes);
}

static void unmap_slab(void *ctx, void *base, uint64_t bytes)
{
	n_mapped--;
	free(base);
}

static void copy(void *ctx, void *dst, const void *src, uint64_t n_bytes)
{
	n_copies++;
	memcpy(dst, src, n_bytes);
}

static struct ig_kvcache *cache;
static uint32_t groups[2];
static struct ig_kv_layout layouts[2];

static void open_cache(uint32_t n_slabs)
{
	struct ig_kv_arena a = { .struct_size = sizeof a,
				 .arena_bytes = (uint64_t)n_slabs * SLAB,
				 .slab_bytes = SLAB,
				 .map_slab = map_slab,
				 .unmap_slab = unmap_slab,
				 .copy = copy };
	struct ig_error err;

	n_mapped = n_copies = 0;
	assert_int_equal(kv->create(&a, &cache, &err), 0);
	layouts[0] = (struct ig_kv_layout){
		.k_dtype = IG_F16, .v_dtype = IG_F16, .n_layers = 1, .n_kv_heads = 1, .head_dim = 8
	};
	layouts[1] = (struct ig_kv_layout){
		.n_layers = 3, .n_kv_heads = 2, .head_dim = PART / 4, .kind = IG_CACHE_STATE
	};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kv->layout(cache, &layouts[i], &err), 0);
		assert_int_equal(kv->add_group(cache, &layouts[i], 0, &groups[i], &err), 0);
	}
	assert_int_equal(layouts[1].block_bytes, PART);
}

static void close_cache(void)
{
	struct ig_kv_stats s;

	while (kv->trim(cache, groups[0], 64))
		;
	kv->stats(cache, &s);
	assert_int_equal(s.used_bytes, 0);
	assert_int_equal(s.cached_bytes, 0);
	assert_int_equal(s.n_blocks_used, 0);
	kv->remove_group(cache, groups[1]);
	kv->remove_group(cache, groups[0]);
	kv->destroy(cache);
	assert_int_equal(n_mapped, 0);
}

static uint64_t used(void)
{
	struct ig_kv_stats s;

	kv->stats(cache, &s);
	return s.used_bytes;
}

/* Bytes of states that only the index holds. */
static uint64_t cached(void)
{
	struct ig_kv_stats s;

	kv->stats(cache, &s);
	return s.cached_bytes;
}

/* ---- a naive model ------------------------------------------------------------------------- */

struct text {
	struct ig_kv_seq *kv;
	int32_t tokens[MAX_TOKENS];
	uint32_t n_done, n_moves; /* n_moves: segments that did not change a state in place */
};

static void write_text(struct text *t, uint32_t n_same, int32_t other)
{
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		t->tokens[i] = (int32_t)(i * 7 % 50) + (i < n_same ? 0 : other);
}

static uint64_t hash_of(const struct text *t, uint32_t n)
{
	uint64_t h = 1;

	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (uint64_t)t->tokens[i]) * 0x100000001b3ull + 1;
	return h;
}

static uint64_t *part_of(uint32_t word)
{
	uint32_t n_slabs;
	void *const *bases = kv->slab_bases(cache, &n_slabs);

	return (uint64_t *)((char *)bases[IG_BLOCK_SLAB(word)] + IG_BLOCK_INDEX(word) * PART);
}

static int begin(struct text *t)
{
	*t = (struct text){ .kv = t->kv, .n_done = t->n_done };
	t->n_done = 0;
	return kv->seq_create(cache, groups, 2, MAX_TOKENS, 0, &t->kv);
}

/* Compute up to n_to tokens.  Returns the number of segments. */
static int step(struct text *t, uint32_t n_to)
{
	struct ig_kv_segment s[IG_KV_MAX_SEGMENTS];
	uint32_t at = t->n_done;
	int rc = kv->seq_reserve(t->kv, n_to, n_to), n;

	if (rc)
		return rc;
	n = kv->seq_step(t->kv, t->n_done, n_to, s);
	assert_in_range(n, 1, IG_KV_MAX_SEGMENTS);
	for (int i = 0; i < n; i++) {
		assert_int_equal(s[i].from == NULL, at == 0);
		for (uint32_t p = 0; s[i].from && p < N_PARTS; p++)
			assert_int_equal(*part_of(s[i].from[p]), hash_of(t, at) + p);
		if (i)
			assert_ptr_equal(s[i].from, s[i - 1].to);
		t->n_moves += s[i].from != s[i].to;
		assert_true(s[i].n_tokens > at);
		at = s[i].n_tokens;
		for (uint32_t p = 0; p < N_PARTS; p++)
			*part_of(s[i].to[p]) = hash_of(t, at) + p;
	}
	assert_int_equal(at, n_to);
	t->n_done = n_to;
	return n;
}

/* The steps were waited for. */
static void land(struct text *t)
{
	kv->seq_commit(t->kv, t->tokens, t->n_done);
	kv->seq_advance(t->kv, t->n_done);
}

static uint32_t match(struct text *t, uint32_t n)
{
	kv->seq_match(t->kv, t->tokens, n, &t->n_done);
	return t->n_done;
}

static void end(struct text *t) { kv->seq_destroy(t->kv); }

/* ---- tests ------------------------------------------------------------------------------------ */

static void test_layout(void **state)
{
	struct ig_kv_layout l = {
		.n_layers = 1, .n_kv_heads = 1, .head_dim = 1025, .kind = IG_CACHE_STATE
	};
	struct ig_kv_seq *s;
	struct ig_error err = { 0 };
	uint32_t swapped[2];

	open_cache(8);
	assert_int_equal(kv->layout(cache, &l, &err), -EINVAL);
	assert_non_null(
		strstr(err.text, "a part of a state needs 4160 bytes, more than a slab of 4096"));
	l.head_dim = 5;
	assert_int_equal(kv->layout(cache, &l, &err), 0);
	assert_int_equal(l.block_bytes, 64);
	assert_int_equal(l.k_dtype, IG_F32);
	l.n_layers = 0;
	assert_int_equal(kv->layout(cache, &l, &err), -EINVAL);
	l.n_layers = 65536;
	l.n_kv_heads = 2;
	assert_int_equal(kv->layout(cache, &l, &err), -EINVAL);
	l.kind = 2;
	assert_int_equal(kv->layout(cache, &l, &err), -EINVAL);
	/* state comes last, and not alone */
	swapped[0] = groups[1];
	swapped[1] = groups[0];
	assert_int_equal(kv->seq_create(cache, swapped, 2, 16, 0, &s), -EINVAL);
	assert_int_equal(kv->seq_create(cache, swapped, 1, 16, 0, &s), -EINVAL);
	close_cache();
}

/* Inside a block a state is changed in place; at its end it is kept, and the one before goes. */
static void test_in_place(void **state)
{
	struct text t = { 0 };

	open_cache(16);
	assert_int_equal(begin(&t), 0);
	write_text(&t, MAX_TOKENS, 0);
	for (uint32_t n = 1; n <= 64; n++) {
		assert_int_equal(step(&t, n), 1);
		land(&t);
		assert_int_equal(used(), (n + 15) / 16 * 512 +
						 (n < 16 || n % 16 == 0 ? 1 : 2) * N_PARTS * PART);
	}
	assert_int_equal(t.n_moves, 4); /* the first token, and after 16, 32 and 48 */
	/* a long step is cut at its last block's end */
	assert_int_equal(step(&t, 200), 2);
	land(&t);
	assert_int_equal(n_copies, 0);
	/* no step from elsewhere */
	struct ig_kv_segment s[IG_KV_MAX_SEGMENTS];
	assert_int_equal(kv->seq_step(t.kv, 199, 210, s), -EINVAL);
	assert_int_equal(kv->seq_step(t.kv, 200, 200, s), -EINVAL);
	assert_int_equal(kv->seq_step(t.kv, 200, MAX_TOKENS + 1, s), -EINVAL);
	end(&t);
	close_cache();
}

/* A sequence that ends leaves the state at its last block's end; the next one begins there. */
static void test_continue(void **state)
{
	struct text a = { 0 }, b = { 0 };

	open_cache(32);
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	step(&a, 70);
	land(&a);
	for (uint32_t n = 71; n < 90; n++) {
		step(&a, n);
		land(&a);
	}
	end(&a);
	assert_int_equal(used(), 0);
	assert_int_equal(cached(), 5 * 512 + N_PARTS * PART);
	assert_int_equal(begin(&b), 0);
	write_text(&b, MAX_TOKENS, 0);
	assert_int_equal(match(&b, 300), 80);
	assert_true(step(&b, 150) > 0); /* reads the snapshot, writes elsewhere */
	land(&b);
	assert_int_equal(begin(&a), 0);
	write_text(&a, 100, 5);
	assert_int_equal(match(&a, 300), 80); /* it is still there: two go on from it */
	step(&a, 120);
	land(&a);
	step(&b, 151);
	step(&a, 121);
	end(&a);
	end(&b);
	assert_int_equal(n_copies, 0);
	close_cache();
}

/* A state that is to be kept becomes a snapshot while the sequence runs, within one step. */
static void test_keep(void **state)
{
	struct text a = { 0 }, b = { 0 };

	open_cache(32);
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	kv->seq_keep(a.kv, 48);
	kv->seq_keep(a.kv, 48);
	kv->seq_keep(a.kv, 33); /* not at a block's end */
	assert_int_equal(step(&a, 130), 3);
	land(&a);
	assert_int_equal(begin(&b), 0);
	write_text(&b, 60, 3);
	assert_int_equal(match(&b, 300), 48);
	/* b's prompt leaves a's at 60: both have the blocks before 48 */
	step(&b, 100);
	land(&b);
	end(&b);
	/* the junction: c leaves a's text where nobody kept a state, d finds one there */
	struct text c = { 0 }, d = { 0 };
	assert_int_equal(begin(&c), 0);
	write_text(&c, 125, 9);
	assert_int_equal(match(&c, 300), 48);
	step(&c, 200);
	land(&c);
	assert_int_equal(begin(&d), 0);
	write_text(&d, 125, 11);
	assert_int_equal(match(&d, 300), 112);
	end(&d);
	end(&c);
	end(&a);
	close_cache();
}

/* Blocks and a state from a file: they are found when they are written, and not before. */
static void test_from_elsewhere(void **state)
{
	struct text a = { 0 }, b = { 0 }, c = { 0 };
	const uint32_t *words;
	void *address[2];

	open_cache(32);
	for (int written = 0; written < 2; written++) {
		assert_int_equal(begin(&a), 0);
		write_text(&a, MAX_TOKENS, 0);
		assert_int_equal(kv->seq_add_state(a.kv), -EINVAL); /* of no tokens */
		for (uint32_t n = 16; n <= 64; n += 16) {
			assert_int_equal(kv->seq_append(a.kv, 1, address), 0);
			kv->seq_commit(a.kv, a.tokens, n);
		}
		assert_null(kv->seq_state(a.kv, 64));
		assert_int_equal(kv->seq_add_state(a.kv), 0);
		assert_int_equal(kv->seq_add_state(a.kv), -EINVAL); /* it has it */
		words = kv->seq_state(a.kv, 64);
		assert_non_null(words);
		for (uint32_t p = 0; p < N_PARTS; p++)
			*part_of(words[p]) = hash_of(&a, 64) + p;
		if (written)
			kv->seq_advance(a.kv, 64);
		end(&a);
		assert_int_equal(begin(&b), 0);
		write_text(&b, 70, 1);
		assert_int_equal(match(&b, 200), written ? 64 : 0);
		if (written)
			step(&b, 100);
		land(&b);
		end(&b);
	}
	/* one that only has the blocks sees the snapshots of them, until they are evicted */
	assert_int_equal(begin(&b), 0);
	write_text(&b, 70, 1);
	assert_int_equal(match(&b, 200), 96);
	assert_int_equal(begin(&c), 0);
	assert_int_equal(kv->seq_share(c.kv, b.kv), 96);
	end(&b);
	assert_ptr_equal(kv->seq_state(c.kv, 64), words);
	assert_int_equal(*part_of(words[0]), hash_of(&a, 64));
	assert_non_null(kv->seq_state(c.kv, 96));
	assert_null(kv->seq_state(c.kv, 80));  /* none was kept */
	assert_null(kv->seq_state(c.kv, 65));  /* inside a block */
	assert_null(kv->seq_state(c.kv, 112)); /* beyond them */
	assert_null(kv->seq_state(c.kv, 0));
	end(&c);
	/* without memory for it */
	close_cache();
	open_cache(1);
	assert_int_equal(begin(&a), 0);
	assert_int_equal(kv->seq_append(a.kv, 1, address), 0);
	kv->seq_commit(a.kv, a.tokens, 16);
	assert_int_equal(kv->seq_add_state(a.kv), -ENOSPC);
	end(&a);
	close_cache();
}

/* Two steps in flight: nothing that they read is dropped or given away before they were waited for. */
static void test_in_flight(void **state)
{
	struct text a = { 0 };
	uint64_t most = 0;

	open_cache(32);
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	step(&a, 15);
	for (uint32_t n = 16; n < 100; n++) {
		assert_true(step(&a, n) > 0);
		most = used() > most ? used() : most;
		/* the step before this one was waited for */
		kv->seq_commit(a.kv, a.tokens, n - 1);
		kv->seq_advance(a.kv, n - 1);
	}
	assert_true(most <= 7 * 512 + 3 * N_PARTS * PART);
	/* the last step's token was discarded: the state is that of the last block */
	end(&a);
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	assert_int_equal(match(&a, 300), 96);
	step(&a, 97);
	end(&a);
	close_cache();
}

static void test_undo(void **state)
{
	static const uint32_t from[] = { 0, 20, 32, 33, 48 }, to[] = { 20, 32, 33, 48, 120 };
	struct ig_kv_segment s[IG_KV_MAX_SEGMENTS];
	struct text a = { 0 };

	open_cache(32);
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	kv->seq_keep(a.kv, 64);
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < 3; k++) { /* planned, and taken back, its memory too */
			uint64_t before;
			assert_int_equal(kv->seq_reserve(a.kv, to[i], to[i]), 0);
			before = used();
			assert_true(kv->seq_step(a.kv, from[i], to[i], s) > 0);
			kv->seq_undo(a.kv, from[i]);
			assert_true(used() <= before);
		}
		assert_true(step(&a, to[i]) > 0);
		land(&a);
	}
	end(&a);
	close_cache();
}

/* Wrong guesses at n tokens behind those that t has and one more, of which n_right are right.  Returns the
 * number of segments. */
static int guess(struct text *t, uint32_t known, uint32_t n, uint32_t n_right)
{
	uint32_t first = t->n_done + known;
	int rc = kv->seq_checkpoint(t->kv, first);

	if (rc)
		return rc;
	for (uint32_t i = n_right; i < n; i++)
		t->tokens[first + i] += 1000;
	rc = step(t, first + n);
	for (uint32_t i = n_right; i < n; i++)
		t->tokens[first + i] -= 1000;
	t->n_done = kv->seq_rewind(t->kv, first + n_right);
	return rc;
}

/* A step leaves the state before its guesses; what was computed behind wrong ones is dropped. */
static void test_guesses(void **state)
{
	struct text t = { 0 };
	uint32_t seed = 1;

	open_cache(32);
	assert_int_equal(begin(&t), 0);
	write_text(&t, MAX_TOKENS, 0);
	step(&t, 5);
	land(&t);
	assert_int_equal(kv->seq_checkpoint(t.kv, 4), -EINVAL);
	assert_int_equal(kv->seq_checkpoint(t.kv, MAX_TOKENS), -EINVAL);
	/* none is right: the state of the first row, which is right, was changed in place */
	assert_int_equal(guess(&t, 1, 3, 0), 2);
	assert_int_equal(t.n_done, 6);
	assert_int_equal(t.n_moves, 2);
	land(&t);
	assert_int_equal(used(), 512 + N_PARTS * PART);
	/* some are: the step's rows are computed again */
	assert_int_equal(guess(&t, 1, 3, 2), 2);
	assert_int_equal(t.n_done, 7);
	land(&t);
	/* all are */
	assert_int_equal(guess(&t, 3, 2, 2), 2);
	assert_int_equal(t.n_done, 12);
	land(&t);
	assert_int_equal(used(), 512 + N_PARTS * PART);
	/* the end of a block among those that are right was kept */
	assert_int_equal(guess(&t, 1, 8, 6), 3);
	assert_int_equal(t.n_done, 16);
	land(&t);
	while (t.n_done < 400) {
		uint32_t known = 1 + seed % 3, n, n_right;
		seed = seed * 1664525 + 1013904223;
		n = 1 + (seed >> 8) % 31;
		n_right = (seed >> 16) % (n + 1);
		assert_true(guess(&t, known, n, n_right) >= 2);
		land(&t);
		assert_true(used() <= (t.n_done + 47) / 16 * 512 + 3 * N_PARTS * PART);
	}
	/* guesses right behind what it has, of several steps */
	for (uint32_t known = 0; known < 40; known++) {
		uint32_t n = t.n_done;
		assert_int_equal(kv->seq_checkpoint(t.kv, n), 0);
		for (uint32_t i = 0; i <= known % 7; i++)
			assert_true(step(&t, n + 1 + i) > 0);
		t.n_done = kv->seq_rewind(t.kv, n);
		assert_int_equal(t.n_done, n);
		assert_true(step(&t, n + 1) > 0);
		land(&t);
	}
	/* a step that is not submitted, and a checkpoint that no step needed */
	for (int i = 0; i < 3; i++) {
		struct ig_kv_segment s[IG_KV_MAX_SEGMENTS];
		uint32_t n = t.n_done;
		assert_int_equal(kv->seq_checkpoint(t.kv, n + 1), 0);
		assert_int_equal(kv->seq_reserve(t.kv, n + 4, n + 4), 0);
		assert_true(kv->seq_step(t.kv, n, n + 4, s) >= 2);
		kv->seq_undo(t.kv, n);
		assert_int_equal(kv->seq_checkpoint(t.kv, n + 1), 0);
		assert_true(step(&t, n + 1) > 0);
		assert_true(step(&t, n + 3) > 0);
		land(&t);
	}
	end(&t);
	/* a snapshot and what continues it */
	assert_int_equal(begin(&t), 0);
	write_text(&t, MAX_TOKENS, 0);
	assert_in_range(match(&t, 500), 432, 499);
	assert_int_equal(guess(&t, 1, 2, 0), 2);
	land(&t);
	end(&t);
	close_cache();
}

/* Without memory for a state behind the guesses there are none, and nothing has changed. */
static void test_no_memory_for_guesses(void **state)
{
	struct text a = { 0 }, b = { 0 };

	open_cache(2); /* one slab of blocks, one of two states */
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	step(&a, 16);
	land(&a);
	/* the second state is for what is behind the guesses, not for the end of the block */
	assert_int_equal(guess(&a, 1, 2, 0), 2);
	assert_int_equal(a.n_done, 17);
	land(&a);
	assert_int_equal(begin(&b), 0);
	write_text(&b, 0, 1);
	assert_int_equal(step(&b, 1), 1);
	land(&b);
	assert_int_equal(guess(&a, 1, 2, 0), -ENOSPC);
	assert_int_equal(a.n_done, 17);
	assert_int_equal(step(&a, 18), 1);
	land(&a);
	end(&b);
	assert_int_equal(guess(&a, 1, 2, 2), 2);
	assert_int_equal(a.n_done, 21);
	land(&a);
	end(&a);
	close_cache();
}

/* Without memory for a second state the first one is changed in place, and nobody fails. */
static void test_no_memory(void **state)
{
	struct text a = { 0 }, b = { 0 };

	open_cache(2); /* one slab of blocks, one of two states */
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	assert_int_equal(step(&a, 10), 1);
	land(&a);
	assert_int_equal(begin(&b), 0);
	write_text(&b, 0, 1);
	assert_int_equal(step(&b, 1), 1);
	land(&b);
	for (uint32_t n = 8; n <= 48; n += 8) {
		assert_int_equal(step(&a, 10 + n), 1);
		land(&a);
		assert_int_equal(step(&b, n), 1);
		land(&b);
	}
	assert_int_equal(a.n_moves, 1);
	struct text c = { 0 };
	assert_int_equal(begin(&c), 0);
	assert_int_equal(kv->seq_reserve(c.kv, 1, 1), -ENOSPC);
	end(&b); /* its state was changed at the last block's end: it left that one */
	assert_int_equal(kv->seq_reserve(c.kv, 1, 1), 0);
	end(&a);
	end(&c);
	close_cache();
}

static uint64_t max_snapshots;

static int option(const struct ig_host *host, const char *key, uint64_t *out)
{
	*out = strcmp(key, "max_snapshots") ? 0 : max_snapshots;
	return 0;
}

/* The option max_snapshots: how many texts can be continued. */
static void test_limit(void **state)
{
	static const struct ig_host host = { .struct_size = sizeof host, .option_number = option };
	static struct text t[6];

	for (uint64_t n = 0; n <= 4; n++) {
		uint64_t n_found = 0;
		max_snapshots = n * N_PARTS * PART + 1;
		assert_int_equal(ingot_module.init(&host), 0);
		open_cache(32);
		for (int i = 0; i < 6; i++) {
			assert_int_equal(begin(&t[i]), 0);
			write_text(&t[i], 0, 100 * (i + 1));
			assert_true(step(&t[i], 40) > 0);
			land(&t[i]);
			end(&t[i]);
		}
		for (int i = 0; i < 6; i++) {
			assert_int_equal(begin(&t[i]), 0);
			write_text(&t[i], 0, 100 * (i + 1));
			n_found += match(&t[i], 300) > 0;
			end(&t[i]);
		}
		assert_int_equal(n_found, n);
		close_cache();
	}
	max_snapshots = 0;
	assert_int_equal(ingot_module.init(&host), 0);
}

/* Snapshots have at most half of the arena; of them, and of nodes, the least recently used goes first. */
static void test_bound(void **state)
{
	static struct text t[16];

	open_cache(16); /* 64 KiB: 21 states are more than half */
	for (int i = 0; i < 16; i++) {
		assert_int_equal(begin(&t[i]), 0);
		write_text(&t[i], 0, 100 * (i + 1));
		assert_true(step(&t[i], 40) > 0);
		land(&t[i]);
		end(&t[i]);
		assert_true(cached() <= 16 * SLAB);
	}
	for (int i = 0; i < 16; i++) {
		assert_int_equal(begin(&t[i]), 0);
		write_text(&t[i], 0, 100 * (i + 1));
		uint32_t n = match(&t[i], 300);
		assert_true(n == 32 || (n == 0 && i < 8));
		end(&t[i]);
	}
	close_cache();
}

/* Who has no space for several blocks gives those back that it took: a slab is empty then, and kept.  To move
 * another slab's blocks there would free one slab, and so on for ever. */
static void test_compact_ends(void **state)
{
	struct text a = { 0 }, b = { 0 };

	open_cache(3); /* two slabs of 8 blocks, and one of two states */
	assert_int_equal(begin(&a), 0);
	write_text(&a, MAX_TOKENS, 0);
	assert_int_equal(step(&a, 1), 1);
	assert_int_equal(kv->seq_reserve(a.kv, 40, 1), 0);
	assert_int_equal(begin(&b), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kv->seq_reserve(b.kv, 14 * 16, 1), -ENOSPC);
		assert_int_equal(kv->compact(cache), 0);
	}
	assert_int_equal(kv->seq_reserve(b.kv, 13 * 16, 1), 0);
	end(&a);
	end(&b);
	close_cache();
}

/* Any texts in a small arena, and compaction. */
static void test_many(void **state)
{
	static struct text t[8];
	unsigned seed = 7;
	int n_matched = 0, n_compact = 0;

	open_cache(14);
	memset(t, 0, sizeof t);
	for (int i = 0; i < 20000; i++) {
		struct text *x = &t[(seed = seed * 1664525u + 1013904223u) >> 16 & 7];
		unsigned r = (seed = seed * 1664525u + 1013904223u) >> 16;
		if (!x->kv) {
			x->kv = NULL;
			assert_int_equal(begin(x), 0);
			write_text(x, r % 120, (int32_t)(r >> 8 & 3));
			n_matched += match(x, 100 + r % 50) > 0;
			kv->seq_keep(x->kv, (x->n_done / 16 + 1 + r % 4) * 16);
		} else if (r % 9 == 0 || x->n_done > 300) {
			end(x);
			x->kv = NULL;
		} else {
			uint32_t n = x->n_done + 1 + (r % 5 ? r % 3 : r % 60);
			if (step(x, n) < 0) {
				n_compact += kv->compact(cache);
				if (step(x, n) < 0) {
					end(x); /* preempted */
					x->kv = NULL;
					continue;
				}
			}
			if (r & 64)
				land(x);
			else
				kv->seq_advance(x->kv, x->n_done);
		}
	}
	for (int i = 0; i < 8; i++)
		if (t[i].kv)
			end(&t[i]);
	assert_true(n_matched > 100);
	assert_true(n_compact > 0);
	close_cache();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),	       cmocka_unit_test(test_in_place),
		cmocka_unit_test(test_continue),       cmocka_unit_test(test_keep),
		cmocka_unit_test(test_in_flight),      cmocka_unit_test(test_undo),
		cmocka_unit_test(test_guesses),	       cmocka_unit_test(test_no_memory_for_guesses),
		cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_bound),
		cmocka_unit_test(test_many),	       cmocka_unit_test(test_limit),
		cmocka_unit_test(test_from_elsewhere), cmocka_unit_test(test_compact_ends),
	};

	kv = ingot_module.kvcache;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
