/*
 * test_kv_window.c: cache groups with a window, through the service: what a sequence
 * still reads is there and its own, what it does not is given up, and a beginning is
 * found again exactly where its window's blocks are there too.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ingot/kvcache.h>
#include <ingot/module.h>

#define SLAB_BYTES 4096
#define MAX_TOKENS 400
#define N_GROUPS 2
#define N_SEQS 6

static const struct ig_kvcache_service *kv;
static int n_mapped;
static uint32_t n_hits, n_full, n_compacted; /* what happened in a chaos */

static void *map_slab(void *ctx, uint64_t bytes)
{
	n_mapped++;
	return malloc(bytes); /* malloc, so that ASan sees a use after unmap */
}

static void unmap_slab(void *ctx, void *base, uint64_t bytes)
{
	n_mapped--;
	free(base);
}

static void copy(void *ctx, void *dst, const void *src, uint64_t n_bytes)
{
	memcpy(dst, src, n_bytes);
}

/* ---- a cache of two groups, and sequences that write what they compute ------------------- */

struct world {
	struct ig_kvcache *cache;
	struct ig_kv_layout l[N_GROUPS];
	uint32_t g[N_GROUPS], window[N_GROUPS];
};

struct text {
	struct ig_kv_seq *seq;
	int32_t tokens[MAX_TOKENS];
	uint32_t n;	     /* computed */
	uint32_t n_capacity; /* tokens with space, in every group */
	uint32_t n_advanced;
};

/* Blocks of 1024 and 512 bytes. */
static struct world make(uint32_t n_slabs, uint32_t window_0, uint32_t window_1)
{
	struct ig_kv_arena a = { .struct_size = sizeof a,
				 .arena_bytes = (uint64_t)n_slabs * SLAB_BYTES,
				 .slab_bytes = SLAB_BYTES,
				 .map_slab = map_slab,
				 .unmap_slab = unmap_slab,
				 .copy = copy };
	struct world w = { .window = { window_0, window_1 } };
	struct ig_error err;

	assert_int_equal(kv->create(&a, &w.cache, &err), 0);
	for (uint32_t i = 0; i < N_GROUPS; i++) {
		w.l[i] = (struct ig_kv_layout){ .k_dtype = IG_F16,
						.v_dtype = IG_F16,
						.n_layers = 1,
						.n_kv_heads = 1,
						.head_dim = i ? 8 : 16 };
		assert_int_equal(kv->layout(w.cache, &w.l[i], &err), 0);
		assert_int_equal(kv->add_group(w.cache, &w.l[i], w.window[i], &w.g[i], &err), 0);
	}
	return w;
}

static void finish(struct world *w)
{
	struct ig_kv_stats st;

	kv->stats(w->cache, &st);
	assert_int_equal(st.n_blocks_used, 0);
	assert_int_equal(st.used_bytes, 0);
	assert_int_equal(st.free_bytes, st.arena_bytes / SLAB_BYTES * SLAB_BYTES);
	for (uint32_t i = 0; i < N_GROUPS; i++)
		kv->remove_group(w->cache, w->g[i]);
	kv->stats(w->cache, &st);
	assert_int_equal(st.cached_bytes, 0);
	assert_int_equal(n_mapped, 0);
	kv->destroy(w->cache);
}

static struct ig_kv_stats stats(const struct world *w)
{
	struct ig_kv_stats st;

	kv->stats(w->cache, &st);
	return st;
}

/* What "K and V" of position n - 1 are: of all tokens up to there. */
static uint64_t content(const int32_t *tokens, uint32_t n, uint32_t group)
{
	uint64_t h = 1469598103934665603u + group;

	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 1099511628211u;
	return h;
}

static uint32_t word_of(struct text *t, uint32_t group, uint32_t block)
{
	uint32_t n;
	const uint32_t *blocks = kv->seq_blocks(t->seq, group, &n);

	assert_true(block < n);
	return blocks[block];
}

static void *place(struct world *w, struct text *t, uint32_t group, uint32_t at)
{
	uint32_t n_slabs, word = word_of(t, group, at / IG_BLOCK_TOKENS);
	void *const *bases = kv->slab_bases(w->cache, &n_slabs);

	assert_int_not_equal(word, IG_BLOCK_NONE);
	assert_true(IG_BLOCK_SLAB(word) < n_slabs);
	assert_non_null(bases[IG_BLOCK_SLAB(word)]);
	return (char *)bases[IG_BLOCK_SLAB(word)] + IG_BLOCK_INDEX(word) * w->l[group].block_bytes +
	       at % IG_BLOCK_TOKENS * w->l[group].k_token_stride;
}

static int reserve(struct text *t, uint32_t n)
{
	int rc = kv->seq_reserve(t->seq, n, n);

	if (rc == 0 && n > t->n_capacity)
		t->n_capacity = n;
	return rc;
}

/* Compute up to n tokens; there is space. */
static void compute(struct world *w, struct text *t, uint32_t n)
{
	assert_true(n <= t->n_capacity);
	for (; t->n < n; t->n++)
		for (uint32_t g = 0; g < N_GROUPS; g++) {
			uint64_t v = content(t->tokens, t->n + 1, g);
			memcpy(place(w, t, g, t->n), &v, sizeof v);
		}
}

/* The first block that a sequence of n tokens, all computed, must have: what follows its
 * last whole block reads. */
static uint32_t first_kept(const struct world *w, uint32_t group, uint32_t n)
{
	uint32_t whole = n - n % IG_BLOCK_TOKENS, window = w->window[group];

	return window && whole >= window ? (whole + 1 - window) / IG_BLOCK_TOKENS : 0;
}

/* All that is read from here on is there, in the sequence's own words; nothing else is. */
static void check(struct world *w, struct text *t)
{
	for (uint32_t g = 0; g < N_GROUPS; g++) {
		uint32_t first = first_kept(w, g, t->n_advanced);

		for (uint32_t b = 0; b < first; b++)
			assert_int_equal(word_of(t, g, b), IG_BLOCK_NONE);
		for (uint32_t i = first * IG_BLOCK_TOKENS; i < t->n; i++) {
			uint64_t v = content(t->tokens, i + 1, g);
			assert_memory_equal(place(w, t, g, i), &v, sizeof v);
		}
	}
}

static void advance(struct text *t)
{
	kv->seq_advance(t->seq, t->n);
	t->n_advanced = t->n;
}

/* Begin a text of n tokens, as an engine would; the number that was cached. */
static uint32_t begin(struct world *w, struct text *t, uint32_t n)
{
	uint32_t n_cached = 77;

	assert_int_equal(kv->seq_create(w->cache, w->g, N_GROUPS, MAX_TOKENS, 0, &t->seq), 0);
	kv->seq_match(t->seq, t->tokens, n - 1, &n_cached);
	assert_true(n_cached < n && (!n_cached || n_cached >= IG_BLOCK_TOKENS));
	t->n = t->n_capacity = t->n_advanced = n_cached;
	check(w, t);
	return n_cached;
}

/* Compute to n as an engine does it, in steps of `chunk` rows. */
static void run(struct world *w, struct text *t, uint32_t n, uint32_t chunk)
{
	while (t->n < n) {
		uint32_t to = n - t->n < chunk ? n : t->n + chunk;

		while (kv->seq_reserve(t->seq, n, to))
			assert_int_equal(kv->compact(w->cache), 1);
		check(w, t);
		t->n_capacity = to;
		compute(w, t, to);
		check(w, t);
		kv->seq_commit(t->seq, t->tokens, t->n);
		advance(t);
		check(w, t);
	}
}

static void end(struct text *t)
{
	kv->seq_destroy(t->seq);
	t->seq = NULL;
}

static void fill(struct text *t, int32_t seed)
{
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		t->tokens[i] = (int32_t)(i * 7u) + seed;
}

static int setup(void **state)
{
	kv = ingot_module.kvcache;
	n_mapped = 0;
	n_hits = n_full = n_compacted = 0;
	return 0;
}

/* ---- one after the other ------------------------------------------------------------------- */

static void test_lets_go(void **state)
{
	struct world w = make(64, 0, 40);
	struct text t;
	uint32_t n;

	fill(&t, 3);
	begin(&w, &t, 300);
	assert_int_equal(kv->seq_reserve(t.seq, 300, 301), -EINVAL);
	assert_int_equal(kv->seq_reserve(t.seq, 300, 64), 0);
	kv->seq_blocks(t.seq, 0, &n);
	assert_int_equal(n, 19);
	kv->seq_blocks(t.seq, 1, &n);
	assert_int_equal(n, 4);
	t.n_capacity = 64;
	compute(&w, &t, 64);
	/* Positions 25 … 64 are what token 64 reads; block 1 begins at 16. */
	advance(&t);
	check(&w, &t);
	assert_int_equal(word_of(&t, 1, 0), IG_BLOCK_NONE);
	assert_int_not_equal(word_of(&t, 1, 1), IG_BLOCK_NONE);
	assert_int_equal(stats(&w).used_bytes, 19 * 1024 + 3 * 512);
	/* the blocks before it are not taken again */
	assert_int_equal(kv->seq_reserve(t.seq, 300, 70), 0);
	assert_int_equal(stats(&w).used_bytes, 19 * 1024 + 4 * 512);
	t.n_capacity = 70;
	compute(&w, &t, 70);
	kv->seq_advance(t.seq, 20); /* earlier than it is */
	advance(&t);
	check(&w, &t);
	/* token 71 reads from 32 on, but what follows the whole block reads position 25 */
	assert_int_not_equal(word_of(&t, 1, 1), IG_BLOCK_NONE);
	for (uint32_t i = 71; i <= 300; i++) {
		assert_int_equal(reserve(&t, i), 0);
		compute(&w, &t, i);
		advance(&t);
		check(&w, &t);
		assert_true(stats(&w).used_bytes <= 19 * 1024 + 4 * 512);
	}
	end(&t);
	assert_int_equal(stats(&w).cached_bytes, 0);
	finish(&w);
}

/* A window of one position, one of more than there are tokens, one of whole blocks. */
static void test_odd_windows(void **state)
{
	static const uint32_t windows[] = { 1, 2, 15, 16, 17, 32, 33, 399, 400, 4000, UINT32_MAX };

	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
		for (uint32_t chunk = 1; chunk < 200; chunk = chunk * 3 + 1) {
			struct world w = make(40, windows[i], 0);
			struct text t, u;

			fill(&t, 1);
			begin(&w, &t, 333);
			run(&w, &t, 333, chunk);
			u = t;
			end(&t);
			assert_int_equal(begin(&w, &u, 340), 320);
			run(&w, &u, 340, chunk);
			end(&u);
			finish(&w);
		}
	}
}

static void test_all_or_nothing(void **state)
{
	struct world w = make(2, 0, 40); /* 4 large and 8 small blocks */
	struct text t;
	uint32_t n;

	fill(&t, 3);
	begin(&w, &t, 64);
	assert_int_equal(kv->seq_reserve(t.seq, 64, 16), 0);
	assert_int_equal(kv->seq_reserve(t.seq, 65, 48), -ENOSPC);
	kv->seq_blocks(t.seq, 0, &n);
	assert_int_equal(n, 4);
	kv->seq_blocks(t.seq, 1, &n);
	assert_int_equal(n, 1);
	assert_int_equal(stats(&w).n_blocks_used, 5);
	assert_int_equal(kv->seq_reserve(t.seq, 64, 64), 0);
	end(&t);
	finish(&w);
	/* with a window alone, a text of any length fits 6 blocks */
	w = make(3, 40, 40); /* 8 large ones */
	fill(&t, 3);
	begin(&w, &t, 400);
	run(&w, &t, 400, 48);
	end(&t);
	finish(&w);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* A conversation is continued at its end, in the least space that its prefill needs. */
static void test_turns(void **state)
{
	for (uint32_t n = 65; n <= 100; n++) {
		/* 200 tokens are 13 large blocks, 4 slabs; the window has up to 8, one slab */
		struct world w = make(5, 0, 40);
		struct text t, u;

		fill(&t, 5);
		begin(&w, &t, n);
		run(&w, &t, n, 48);
		for (uint32_t i = n + 1; i <= 2 * n - 30; i++)
			run(&w, &t, i, 1);
		u = t;
		end(&t);
		assert_int_equal(begin(&w, &u, 200), (2 * n - 30) / 16 * 16);
		run(&w, &u, 200, 48);
		end(&u);
		finish(&w);
	}
}

/* Blocks that lie apart are moved together, whoever holds them. */
static void test_compact(void **state)
{
	struct world w = make(4, 40, 33); /* of blocks of 1024 and 512 bytes */
	struct text t[4], k;

	assert_int_equal(kv->compact(w.cache), 0);
	for (int i = 0; i < 4; i++) {
		fill(&t[i], 100 * i);
		begin(&w, &t[i], 32);
		assert_int_equal(reserve(&t[i], 32), 0);
		compute(&w, &t[i], 32);
	}
	assert_int_equal(kv->compact(w.cache), 0); /* 8 blocks of each: slabs are full */
	kv->seq_commit(t[3].seq, t[3].tokens, 32);
	kv->seq_commit(t[1].seq, t[1].tokens, 32);
	fill(&k, 100);
	assert_int_equal(begin(&w, &k, 33), 32);
	end(&t[0]);
	end(&t[2]);
	end(&t[3]); /* its blocks are loose now, both of each group */
	uint64_t committed = stats(&w).committed_bytes;
	assert_int_equal(kv->compact(w.cache), 1);
	assert_int_equal(stats(&w).committed_bytes, committed - SLAB_BYTES);
	assert_int_equal(stats(&w).cached_bytes, 2 * (1024 + 512));
	check(&w, &t[1]);
	check(&w, &k);
	assert_int_equal(kv->compact(w.cache), 0);
	end(&t[1]);
	check(&w, &k);
	assert_int_equal(begin(&w, &t[3], 33), 32);
	end(&t[3]);
	/* loose blocks go in their order, wherever they were moved to */
	fill(&t[0], 7777);
	begin(&w, &t[0], 100);
	for (uint32_t n = 1; kv->seq_reserve(t[0].seq, n, n) == 0; n++)
		t[0].n_capacity = n;
	assert_int_equal(stats(&w).cached_bytes, 0);
	end(&t[0]);
	end(&k);
	finish(&w);
}

/* What many begin with is continued where it ends, long after the first has left it
 * behind; and from there the rest is computed anew. */
static void test_shared_beginning(void **state)
{
	struct world w = make(64, 0, 40);
	struct text t[4];

	for (int i = 0; i < 4; i++) {
		fill(&t[i], 9);
		for (uint32_t k = 128; k < MAX_TOKENS; k++)
			t[i].tokens[k] += i;
		assert_int_equal(begin(&w, &t[i], 300), i ? 128 : 0);
		run(&w, &t[i], 300, 64);
	}
	assert_int_equal(stats(&w).used_bytes, (8 + 4 * 11) * 1024 + 4 * 4 * 512);
	/* of the beginning one window; of each what it has left behind */
	for (int i = 0; i < 4; i++)
		end(&t[i]);
	finish(&w);
}

/* Blocks that the window has left go apart from their nodes, oldest first; a beginning
 * ends before them then, and is whole again when it was computed anew. */
static void test_loose_blocks_go(void **state)
{
	struct world w = make(6, 0, 40);
	struct text t, u, x;

	fill(&t, 5);
	begin(&w, &t, 160);
	run(&w, &t, 160, 32); /* 10 large blocks, 3 slabs of 4; 10 small ones, 2 slabs of 8 */
	assert_int_equal(stats(&w).used_bytes, 10 * 1024 + 3 * 512);
	assert_int_equal(stats(&w).cached_bytes, 7 * 512);
	assert_int_equal(stats(&w).free_bytes, 6 * SLAB_BYTES - 10 * 1024 - 3 * 512);
	u = t;
	assert_int_equal(begin(&w, &u, 90), 89);
	end(&u);
	/* x needs 6 + 8 of the 6 + 14 that there are; then more, which costs old ones */
	fill(&x, 1000);
	begin(&w, &x, 96);
	assert_int_equal(reserve(&x, 96), 0);
	u = t;
	assert_int_equal(begin(&w, &u, 90), 80); /* no block is left for a copy */
	end(&u);
	compute(&w, &x, 96);
	check(&w, &x);
	assert_int_equal(kv->seq_reserve(x.seq, 113, 113), -ENOSPC);
	end(&x);
	/* all that could go went for the attempt */
	assert_int_equal(stats(&w).cached_bytes, 0);
	u = t;
	assert_int_equal(begin(&w, &u, 130), 0);
	assert_int_equal(kv->seq_known(u.seq, u.tokens, 129), 128); /* only its window is gone */
	run(&w, &u, 90, 32);
	end(&u);
	u = t;
	assert_int_equal(begin(&w, &u, 90), 80); /* five nodes have blocks again */
	end(&u);
	/* the end of t was in use all the time */
	u = t;
	assert_int_equal(begin(&w, &u, 170), 160);
	end(&u);
	check(&w, &t);
	end(&t);
	finish(&w);
}

/* ---- everything at once ----------------------------------------------------------------------- */

static uint64_t rng_state;

static uint32_t rnd(uint32_t n)
{
	rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng_state >> 33) % n;
}

/* What the index was told of, as long as nothing was evicted. */
#define MAX_KNOWN 4096
struct known {
	struct {
		uint32_t n;
		int32_t tokens[MAX_TOKENS];
	} texts[MAX_KNOWN];
	uint32_t n;
};

static void learn(struct known *k, const struct text *t)
{
	uint32_t i = k->n ? k->n - 1 : 0;

	/* mostly more of the last one */
	if (!k->n || k->texts[i].n > t->n ||
	    memcmp(k->texts[i].tokens, t->tokens, k->texts[i].n * 4))
		i = k->n++;
	assert_true(k->n <= MAX_KNOWN);
	k->texts[i].n = t->n;
	memcpy(k->texts[i].tokens, t->tokens, t->n * sizeof *t->tokens);
}

static uint32_t longest(const struct known *k, const int32_t *tokens, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		uint32_t m = 0;

		while (m < n && m < k->texts[i].n && k->texts[i].tokens[m] == tokens[m])
			m++;
		/* a block's part, if the text has all of the block */
		if (m < IG_BLOCK_TOKENS || m / IG_BLOCK_TOKENS == k->texts[i].n / IG_BLOCK_TOKENS)
			m -= m % IG_BLOCK_TOKENS;
		best = m > best ? m : best;
	}
	return best;
}

static void check_stats(struct world *w, struct text *s)
{
	uint32_t n_words[N_GROUPS] = { 0 };
	static uint32_t words[N_SEQS * MAX_TOKENS / IG_BLOCK_TOKENS + N_SEQS];
	struct ig_kv_stats st = stats(w);
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < N_GROUPS; g++) {
		for (int i = 0; i < N_SEQS; i++) {
			uint32_t n = 0;
			const uint32_t *b = s[i].seq ? kv->seq_blocks(s[i].seq, g, &n) : NULL;

			for (uint32_t k = 0; k < n; k++) {
				uint32_t j = 0;

				while (j < n_words[g] && words[j] != b[k])
					j++;
				if (b[k] != IG_BLOCK_NONE && j == n_words[g])
					words[n_words[g]++] = b[k];
			}
		}
		bytes += n_words[g] * w->l[g].block_bytes;
	}
	/* With a window each block is known by itself, else as its node's: a twin's own one is
	 * there beside it. */
	if (w->window[0] && w->window[1])
		assert_int_equal(st.used_bytes, bytes);
	assert_true(st.used_bytes + st.cached_bytes <= st.committed_bytes);
	assert_true(st.committed_bytes <= st.arena_bytes);
	assert_true(st.used_bytes + st.free_bytes <= st.arena_bytes);
}

/* known NULL: in so little space that blocks and nodes are evicted all the time. */
static void chaos(uint32_t n_slabs, uint32_t window_0, uint32_t window_1, int n_steps,
		  struct known *known)
{
	struct world w = make(n_slabs, window_0, window_1);
	static struct text s[N_SEQS];
	memset(s, 0, sizeof s);
	for (int step = 0; step < n_steps; step++) {
		struct text *a = &s[rnd(N_SEQS)];

		if (!a->seq) {
			/* few tokens, so that beginnings are alike */
			uint32_t n = 1 + rnd(MAX_TOKENS - 1), change = 16 * rnd(20), n_cached;

			for (uint32_t i = 0; i < MAX_TOKENS; i++)
				a->tokens[i] =
					(int32_t)(i < change ? i : i + 1 + rnd(2) * (i % 16 == 0));
			n_cached = begin(&w, a, n);
			if (known)
				assert_int_equal(n_cached, longest(known, a->tokens, n - 1));
			n_hits += n_cached > 0;
			n = n < a->n + 150 ? n : a->n + 150;
			if (reserve(a, n)) {
				n_full++;
				end(a);
				continue;
			}
			compute(&w, a, n);
		} else if (rnd(4) == 0) {
			end(a);
			continue;
		} else {
			uint32_t n = a->n + rnd(rnd(3) ? 4 : 60);

			n = n > MAX_TOKENS ? MAX_TOKENS : n;
			if (reserve(a, n)) {
				n_full++;
				n_compacted += (uint32_t)kv->compact(w.cache);
				check(&w, a);
				if (rnd(2))
					end(a);
				continue;
			}
			if (rnd(16) == 0)
				n_compacted += (uint32_t)kv->compact(w.cache);
			compute(&w, a, n);
		}
		check(&w, a);
		if (known || rnd(4)) {
			kv->seq_commit(a->seq, a->tokens, known || rnd(4) ? a->n : rnd(a->n + 1));
			if (known)
				learn(known, a);
		}
		if (known || rnd(8))
			advance(a);
		check(&w, a);
		check_stats(&w, s);
	}
	for (int i = 0; i < N_SEQS; i++)
		if (s[i].seq)
			end(&s[i]);
	finish(&w);
}

static void test_chaos(void **state)
{
	static const uint32_t windows[][2] = { { 0, 40 },   { 40, 0 }, { 24, 56 }, { 1, 0 },
					       { 16, 200 }, { 17, 0 }, { 100, 33 } };

	rng_state = 0x5eed;
	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
		chaos(16, windows[i][0], windows[i][1], 6000, NULL);
		chaos(5, windows[i][0], windows[i][1], 3000, NULL);
	}
	/* all of it really happened */
	printf("# %u hits, %u full, %u compacted\n", n_hits, n_full, n_compacted);
	assert_true(n_hits > 3000 && n_full > 1000 && n_compacted > 100);
}

/* With enough space nothing is evicted, wherever windows are. */
static void test_chaos_with_spare_blocks(void **state)
{
	static struct known known;

	rng_state = 0xfeed;
	known.n = 0;
	chaos(20000, 0, 40, 1500, &known);
	known.n = 0;
	chaos(20000, 100, 17, 1500, &known);
	printf("# %u hits\n", n_hits);
	assert_true(n_hits > 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lets_go),
		cmocka_unit_test(test_odd_windows),
		cmocka_unit_test(test_all_or_nothing),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_shared_beginning),
		cmocka_unit_test(test_loose_blocks_go),
		cmocka_unit_test_setup(test_chaos, setup),
		cmocka_unit_test_setup(test_chaos_with_spare_blocks, setup),
	};
	return cmocka_run_group_tests_name("cache windows", tests, setup, NULL);
}
