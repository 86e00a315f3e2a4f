/*
 * test_prefix.c: the prefix index, through the service: what seq_match gives back is
 * the K and V of exactly these tokens, whatever came and went in between.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ingot/kvcache.h>
#include <ingot/module.h>

#define SLAB_BYTES 4096
#define MAX_TOKENS 160
#define N_SEQS 6

static const struct ig_kvcache_service *kv;
static int n_mapped;

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
	memcpy(dst, src, n_bytes);
}

static struct ig_kvcache *make(uint32_t n_slabs)
{
	struct ig_kv_arena a = { .struct_size = sizeof a,
				 .arena_bytes = (uint64_t)n_slabs * SLAB_BYTES,
				 .slab_bytes = SLAB_BYTES,
				 .map_slab = map_slab,
				 .unmap_slab = unmap_slab,
				 .copy = copy };
	struct ig_kvcache *c;
	struct ig_error err;

	assert_int_equal(kv->create(&a, &c, &err), 0);
	return c;
}

/* Two groups of blocks of 1024 and 512 bytes. */
static void add_groups(struct ig_kvcache *c, struct ig_kv_layout l[2], uint32_t g[2])
{
	struct ig_error err;

	l[0] = (struct ig_kv_layout){
		.k_dtype = IG_F16, .v_dtype = IG_F16, .n_layers = 1, .n_kv_heads = 1, .head_dim = 16
	};
	l[1] = (struct ig_kv_layout){
		.k_dtype = IG_F16, .v_dtype = IG_F16, .n_layers = 1, .n_kv_heads = 1, .head_dim = 8
	};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kv->layout(c, &l[i], &err), 0);
		assert_int_equal(kv->add_group(c, &l[i], 0, &g[i], &err), 0);
	}
}

static int reserve(struct ig_kv_seq *s, uint32_t n) { return kv->seq_reserve(s, n, n); }

static struct ig_kv_stats stats(const struct ig_kvcache *c)
{
	struct ig_kv_stats st;

	kv->stats(c, &st);
	return st;
}

/* ---- a sequence that writes what it computes -------------------------------------------- */

struct text {
	struct ig_kv_seq *seq;
	uint64_t salt;
	int32_t tokens[MAX_TOKENS];
	uint32_t n;
};

/* What "K and V" of position n - 1 are: of all tokens up to there, and of the salt, so that
 * it shows whose they are. */
static uint64_t content(const struct text *t, uint32_t n, uint32_t group)
{
	uint64_t h = 1469598103934665603u + group + 2 * t->salt;

	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (uint64_t)(uint32_t)t->tokens[i]) * 1099511628211u;
	return h;
}

static void *place(struct ig_kvcache *c, const struct ig_kv_layout *l, struct text *t,
		   uint32_t group, uint32_t at)
{
	uint32_t n, n_slabs;
	const uint32_t *blocks = kv->seq_blocks(t->seq, group, &n);
	void *const *bases = kv->slab_bases(c, &n_slabs);

	assert_true(at / IG_BLOCK_TOKENS < n);
	return (char *)bases[IG_BLOCK_SLAB(blocks[at / IG_BLOCK_TOKENS])] +
	       IG_BLOCK_INDEX(blocks[at / IG_BLOCK_TOKENS]) * l[group].block_bytes +
	       at % IG_BLOCK_TOKENS * l[group].k_token_stride;
}

static void compute(struct ig_kvcache *c, const struct ig_kv_layout *l, struct text *t,
		    uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		for (uint32_t g = 0; g < 2; g++) {
			uint64_t v = content(t, i + 1, g);
			memcpy(place(c, l, t, g, i), &v, sizeof v);
		}
}

static void check(struct ig_kvcache *c, const struct ig_kv_layout *l, struct text *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t g = 0; g < 2; g++) {
			uint64_t v = content(t, i + 1, g);
			assert_memory_equal(place(c, l, t, g, i), &v, sizeof v);
		}
}

/* Begin a text of n tokens, as an engine would; the number that was cached. */
static uint32_t begin(struct ig_kvcache *c, const struct ig_kv_layout *l, const uint32_t *g,
		      struct text *t)
{
	uint32_t n_cached = 77;

	assert_int_equal(kv->seq_create(c, g, 2, MAX_TOKENS, t->salt, &t->seq), 0);
	kv->seq_match(t->seq, t->tokens, t->n - 1, &n_cached);
	assert_true(n_cached < t->n && (!n_cached || n_cached >= IG_BLOCK_TOKENS));
	check(c, l, t, n_cached);
	return n_cached;
}

static void fill(struct text *t, uint32_t n, int32_t seed)
{
	t->n = n;
	t->salt = 0;
	for (uint32_t i = 0; i < n; i++)
		t->tokens[i] = (int32_t)(i * 7u) + seed;
}

/* A text of which nothing is cached, and which is computed. */
static void first(struct ig_kvcache *c, const struct ig_kv_layout *l, const uint32_t *g,
		  struct text *t, uint32_t n, int32_t seed)
{
	fill(t, n, seed);
	assert_int_equal(begin(c, l, g, t), 0);
	assert_int_equal(reserve(t->seq, n), 0);
	compute(c, l, t, 0, n);
}

static int setup(void **state)
{
	kv = ingot_module.kvcache;
	n_mapped = 0;
	return 0;
}

/* The first blocks of a sequence, shared; more of them, whose contents the caller has. */
static void test_shared_and_appended(void **state)
{
	struct ig_kvcache *c = make(6);
	struct ig_kv_layout l[2];
	struct text a, b, d;
	uint32_t g[2], n;
	void *address[2];

	add_groups(c, l, g);
	first(c, l, g, &a, 70, 3);
	kv->seq_commit(a.seq, a.tokens, 50);
	fill(&b, 112, 3);
	assert_int_equal(kv->seq_create(c, g, 2, 96, 0, &b.seq), 0);
	assert_int_equal(kv->seq_share(b.seq, a.seq), 48);
	check(c, l, &b, 48);
	assert_int_equal(kv->seq_share(b.seq, a.seq), 0); /* it has blocks already */
	assert_int_equal(stats(c).n_blocks_used, 2 * 5);
	/* both groups are needed */
	assert_int_equal(kv->seq_append(b.seq, 1, address), -EINVAL);
	for (n = 48; n < 96; n += IG_BLOCK_TOKENS) {
		assert_int_equal(kv->seq_append(b.seq, 3, address), 0);
		/* once more, since nothing was committed */
		assert_int_equal(kv->seq_append(b.seq, 3, address), 0);
		for (uint32_t i = 0; i < 2; i++)
			assert_ptr_equal(address[i], place(c, l, &b, i, n));
		compute(c, l, &b, n, n + IG_BLOCK_TOKENS);
		kv->seq_commit(b.seq, b.tokens, n + IG_BLOCK_TOKENS);
	}
	assert_int_equal(kv->seq_append(b.seq, 3, address), -EINVAL); /* it has all its tokens */
	check(c, l, &b, 96);
	kv->seq_destroy(a.seq);
	kv->seq_destroy(b.seq);
	assert_int_equal(begin(c, l, g, &b), 96);
	/* a sequence with another salt, without blocks, or with too few */
	d = b;
	assert_int_equal(kv->seq_create(c, g, 2, MAX_TOKENS, 9, &d.seq), 0);
	assert_int_equal(kv->seq_share(d.seq, b.seq), 0);
	kv->seq_destroy(d.seq);
	assert_int_equal(kv->seq_create(c, g, 2, 80, 0, &d.seq), 0);
	assert_int_equal(kv->seq_share(d.seq, b.seq), 0);
	assert_int_equal(kv->seq_share(b.seq, d.seq), 0);
	kv->seq_destroy(d.seq);
	kv->seq_destroy(b.seq);
	/* the arena is full: nothing changes */
	fill(&d, 130, 500);
	assert_int_equal(begin(c, l, g, &d), 0);
	assert_int_equal(reserve(d.seq, 130), 0);
	fill(&a, 160, 900);
	assert_int_equal(kv->seq_create(c, g, 2, MAX_TOKENS, 0, &a.seq), 0);
	for (n = 0; !kv->seq_append(a.seq, 3, address); n += IG_BLOCK_TOKENS) {
		compute(c, l, &a, n, n + IG_BLOCK_TOKENS);
		kv->seq_commit(a.seq, a.tokens, n + IG_BLOCK_TOKENS);
	}
	assert_true(n >= IG_BLOCK_TOKENS && n < 160);
	check(c, l, &a, n);
	kv->seq_destroy(a.seq);
	kv->seq_destroy(d.seq);
	for (uint32_t i = 0; i < 2; i++)
		kv->remove_group(c, g[i]);
	kv->destroy(c);
}

static void test_whole_blocks_of_a_beginning(void **state)
{
	struct ig_kvcache *c = make(8);
	struct ig_kv_layout l[2];
	struct text a, b;
	uint32_t g[2];

	add_groups(c, l, g);
	first(c, l, g, &a, 50, 3);
	kv->seq_commit(a.seq, a.tokens, 20);
	fill(&b, 50, 3);
	assert_int_equal(begin(c, l, g, &b), 16); /* what was committed, in whole blocks */
	kv->seq_destroy(b.seq);
	kv->seq_commit(a.seq, a.tokens, 50);
	kv->seq_commit(a.seq, a.tokens, 50); /* nothing new */
	assert_int_equal(begin(c, l, g, &b), 48);
	assert_int_equal(stats(c).n_blocks_used, 4 + 4); /* a's, shared */
	kv->seq_destroy(b.seq);
	b.n = 48;
	assert_int_equal(begin(c, l, g, &b), 47); /* the last token is left to compute */
	kv->seq_destroy(b.seq);
	fill(&b, 50, 3);
	assert_int_equal(begin(c, l, g, &b), 48);
	assert_int_equal(kv->seq_known(b.seq, b.tokens, 50), 48);
	assert_int_equal(kv->seq_known(b.seq, b.tokens, 47), 32);
	kv->seq_destroy(b.seq);
	b.tokens[16]++;
	assert_int_equal(begin(c, l, g, &b), 16);
	assert_int_equal(kv->seq_known(b.seq, b.tokens, 50), 16);
	kv->seq_destroy(b.seq);
	b.tokens[0]++;
	assert_int_equal(begin(c, l, g, &b), 0);
	kv->seq_destroy(b.seq);
	/* The second block's tokens at the beginning are another prefix. */
	memmove(b.tokens, a.tokens + 16, 34 * sizeof *b.tokens);
	b.n = 34;
	assert_int_equal(begin(c, l, g, &b), 0);
	kv->seq_destroy(b.seq);

	kv->seq_destroy(a.seq);
	assert_int_equal(stats(c).used_bytes, 0);
	assert_int_equal(stats(c).n_blocks_used, 0);
	assert_int_equal(stats(c).cached_bytes, 3 * (1024 + 512));
	assert_int_equal(stats(c).free_bytes, 8 * SLAB_BYTES);
	fill(&a, 50, 3);
	assert_int_equal(begin(c, l, g, &a), 48); /* kept though nobody uses it */
	assert_int_equal(stats(c).cached_bytes, 0);
	/* in portions: what is in use stays */
	assert_int_equal(kv->trim(c, g[0], 10), 0);
	kv->seq_destroy(a.seq);
	assert_int_equal(kv->trim(c, g[0], 2), 2);
	assert_int_equal(stats(c).cached_bytes, 1024 + 512);
	assert_int_equal(begin(c, l, g, &a), 16); /* leaves went first */
	kv->seq_destroy(a.seq);
	assert_int_equal(kv->trim(c, g[0], 10), 1);
	assert_int_equal(kv->trim(c, g[0], 10), 0);
	assert_int_equal(kv->trim(c, 99, 10), 0);
	assert_int_equal(stats(c).cached_bytes, 0);
	first(c, l, g, &a, 50, 3);
	kv->seq_commit(a.seq, a.tokens, 50);
	kv->seq_destroy(a.seq);
	assert_int_equal(stats(c).cached_bytes, 3 * (1024 + 512));
	kv->remove_group(c, g[0]);
	kv->remove_group(c, g[1]);
	assert_int_equal(stats(c).cached_bytes, 0);
	assert_int_equal(n_mapped, 0);
	kv->destroy(c);
}

/* What ends inside a block is found in a copy, which is written on; of several blocks the one with
 * most of it is copied. */
static void test_part_of_a_block(void **state)
{
	struct ig_kvcache *c = make(8);
	struct ig_kv_layout l[2];
	struct text t[3], b;
	uint32_t g[2];

	add_groups(c, l, g);
	for (int i = 0; i < 3; i++) {
		fill(&t[i], 48, 3);
		t[i].tokens[18 + 3 * i]++;
		assert_int_equal(begin(c, l, g, &t[i]), i ? 15 + 3 * i : 0);
		assert_int_equal(reserve(t[i].seq, 48), 0);
		compute(c, l, &t[i], i ? 15 + 3 * (uint32_t)i : 0, 48);
		kv->seq_commit(t[i].seq, t[i].tokens, 48);
	}
	for (int i = 0; i < 3; i++)
		check(c, l, &t[i], 48); /* nobody wrote into another's block */
	assert_int_equal(stats(c).n_blocks_used, 2 * (1 + 3 * 2));
	for (int differs = 17; differs < 32; differs++) {
		uint32_t same = differs <= 18 ? differs : differs <= 21 ? 21 : 24;

		fill(&b, 48, 3);
		b.tokens[differs] += 2;
		if (differs < 24)
			same = (uint32_t)differs;
		assert_int_equal(begin(c, l, g, &b), same);
		assert_int_equal(reserve(b.seq, 48), 0);
		compute(c, l, &b, same, 48);
		check(c, l, &b, 48);
		kv->seq_destroy(b.seq); /* it committed nothing */
	}
	/* less than a block is not worth a copy */
	fill(&b, 48, 3);
	b.tokens[15]++;
	assert_int_equal(begin(c, l, g, &b), 0);
	kv->seq_destroy(b.seq);
	for (int i = 0; i < 3; i++)
		kv->seq_destroy(t[i].seq);
	assert_int_equal(stats(c).cached_bytes, (1 + 3 * 2) * (1024 + 512));
	kv->destroy(c);
	assert_int_equal(n_mapped, 0);
}

/* Without a block for the copy the whole blocks are found all the same. */
static void test_no_space_for_a_part(void **state)
{
	struct ig_kvcache *c = make(2); /* 4 large blocks, 8 small ones */
	struct ig_kv_layout l[2];
	struct text a, b;
	uint32_t g[2];

	add_groups(c, l, g);
	first(c, l, g, &a, 64, 3);
	kv->seq_commit(a.seq, a.tokens, 64);
	fill(&b, 64, 3);
	b.tokens[40]++;
	assert_int_equal(begin(c, l, g, &b), 32);
	assert_int_equal(reserve(b.seq, 64), -ENOSPC);
	kv->seq_destroy(b.seq);
	check(c, l, &a, 64);
	kv->seq_destroy(a.seq);
	/* the copy takes the place of the last block */
	assert_int_equal(begin(c, l, g, &b), 40);
	assert_int_equal(stats(c).cached_bytes, 1024 + 512);
	kv->seq_destroy(b.seq);
	kv->destroy(c);
	assert_int_equal(n_mapped, 0);
}

/* Least recently used first, leaves before what they hang on, nothing in use. */
static void test_eviction(void **state)
{
	struct ig_kvcache *c = make(3); /* 2 slabs of 4 large blocks, one of 8 small */
	struct ig_kv_layout l[2];
	struct text t[4];
	uint32_t g[2];

	add_groups(c, l, g);
	for (int i = 0; i < 4; i++) {
		fill(&t[i], 32, 1000 * i);
		assert_int_equal(begin(c, l, g, &t[i]), 0);
		assert_int_equal(reserve(t[i].seq, 32), 0);
		compute(c, l, &t[i], 0, 32);
		kv->seq_commit(t[i].seq, t[i].tokens, 32);
		if (i != 3)
			kv->seq_destroy(t[i].seq);
	}
	fill(&t[0], 33, 0);
	assert_int_equal(begin(c, l, g, &t[0]), 32); /* used again: 1 is the oldest now */
	kv->seq_destroy(t[0].seq);
	/* All 8 large blocks are taken or cached: two more cost text 1 its blocks. */
	struct text x;
	fill(&x, 16, 5555);
	assert_int_equal(begin(c, l, g, &x), 0);
	assert_int_equal(reserve(x.seq, 16), 0);
	fill(&t[1], 33, 1000);
	assert_int_equal(begin(c, l, g, &t[1]), 16); /* its second block went, the first is left */
	kv->seq_destroy(t[1].seq);
	fill(&t[2], 33, 2000);
	assert_int_equal(begin(c, l, g, &t[2]), 32);
	kv->seq_destroy(t[2].seq);
	/* What is in use stays; when only that is left, there is no space. */
	assert_int_equal(reserve(x.seq, 96), 0);
	assert_int_equal(stats(c).cached_bytes, 0);
	assert_int_equal(reserve(x.seq, 97), -ENOSPC);
	check(c, l, &t[3], 32);
	kv->seq_destroy(x.seq);
	kv->seq_destroy(t[3].seq);
	kv->destroy(c);
	assert_int_equal(n_mapped, 0);
}

/* Two compute the same at the same time: one's blocks are found, both go on. */
static void test_twins(void **state)
{
	struct ig_kvcache *c = make(8);
	struct ig_kv_layout l[2];
	struct text t[2], b;
	uint32_t g[2];

	add_groups(c, l, g);
	for (int i = 0; i < 2; i++) {
		fill(&t[i], 64, 9);
		assert_int_equal(begin(c, l, g, &t[i]), 0);
		assert_int_equal(reserve(t[i].seq, 64), 0);
		compute(c, l, &t[i], 0, 64);
	}
	kv->seq_commit(t[0].seq, t[0].tokens, 40);
	kv->seq_commit(t[1].seq, t[1].tokens, 64);
	kv->seq_commit(t[0].seq, t[0].tokens, 64);
	kv->seq_destroy(t[0].seq);
	check(c, l, &t[1], 64);
	kv->seq_destroy(t[1].seq);
	assert_int_equal(stats(c).used_bytes, 0);
	fill(&b, 65, 9);
	assert_int_equal(begin(c, l, g, &b), 64);
	kv->seq_destroy(b.seq);
	kv->destroy(c);
	assert_int_equal(n_mapped, 0);
}

/* What one salt has committed is not there for another, however alike their bits are. */
static void test_salts(void **state)
{
	static const uint64_t salts[] = { 0, 1, (uint64_t)1 << 32, (uint64_t)1 << 63, 0 };
	struct ig_kvcache *c = make(16);
	struct ig_kv_layout l[2];
	struct text t[5], b;
	uint32_t g[2];

	add_groups(c, l, g);
	for (int i = 0; i < 5; i++) {
		fill(&t[i], 33, 9);
		t[i].salt = salts[i];
		assert_int_equal(begin(c, l, g, &t[i]), i == 4 ? 32 : 0);
		assert_int_equal(reserve(t[i].seq, 33), 0);
		compute(c, l, &t[i], i == 4 ? 32 : 0, 33);
		kv->seq_commit(t[i].seq, t[i].tokens, 33);
	}
	for (int i = 0; i < 5; i++)
		kv->seq_destroy(t[i].seq);
	/* each has kept its own; they go as all others do */
	assert_int_equal(stats(c).cached_bytes, 4 * 2 * (1024 + 512));
	b = t[2];
	assert_int_equal(begin(c, l, g, &b), 32);
	kv->seq_destroy(b.seq);
	assert_int_equal(kv->trim(c, g[0], 100), 8);
	assert_int_equal(begin(c, l, g, &b), 0);
	kv->seq_destroy(b.seq);
	kv->destroy(c);
	assert_int_equal(n_mapped, 0);
}

/* ---- everything at once --------------------------------------------------------------------- */

static uint64_t rng_state;

static uint32_t rnd(uint32_t n)
{
	rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng_state >> 33) % n;
}

static void test_chaos(void **state)
{
	struct ig_kvcache *c = make(10);
	struct ig_kv_layout l[2];
	static struct text s[N_SEQS];
	uint32_t g[2], n_hits = 0, n_parts = 0, n_full = 0;

	memset(s, 0, sizeof s);
	add_groups(c, l, g);
	rng_state = 0x5eed;
	for (int step = 0; step < 30000; step++) {
		struct text *a = &s[rnd(N_SEQS)];

		if (!a->seq) {
			/* few tokens, so that beginnings are alike */
			a->n = 1 + rnd(MAX_TOKENS - 1);
			a->salt = rnd(2);
			uint32_t change = 16 * rnd(8);
			for (uint32_t i = 0; i < a->n; i++)
				a->tokens[i] =
					(int32_t)(i < change ? i : i + 1 + rnd(2) * (i % 16 == 0));
			uint32_t n_cached = begin(c, l, g, a);
			n_hits += n_cached > 0;
			n_parts += n_cached % IG_BLOCK_TOKENS > 0;
			if (reserve(a->seq, a->n)) {
				n_full++;
				kv->seq_destroy(a->seq);
				a->seq = NULL;
				continue;
			}
			compute(c, l, a, n_cached, a->n);
		} else if (rnd(3) == 0) {
			check(c, l, a, a->n);
			kv->seq_destroy(a->seq);
			a->seq = NULL;
			continue;
		} else {
			uint32_t n = a->n + rnd(10);
			if (n > MAX_TOKENS)
				n = MAX_TOKENS;
			if (reserve(a->seq, n)) {
				n_full++;
				continue;
			}
			for (uint32_t i = a->n; i < n; i++)
				a->tokens[i] = (int32_t)(i + rnd(2));
			compute(c, l, a, a->n, n);
			a->n = n;
		}
		check(c, l, a, a->n);
		kv->seq_commit(a->seq, a->tokens, rnd(2) ? a->n : rnd(a->n + 1));
		struct ig_kv_stats st = stats(c);
		assert_true(st.used_bytes <= st.committed_bytes && st.free_bytes <= st.arena_bytes);
		assert_true(st.used_bytes + st.cached_bytes <= st.committed_bytes);
	}
	assert_true(n_hits > 1000 && n_parts > 500 && n_full > 50); /* all really happened */
	for (int i = 0; i < N_SEQS; i++)
		kv->seq_destroy(s[i].seq);
	assert_int_equal(stats(c).n_blocks_used, 0);
	kv->remove_group(c, g[0]);
	kv->remove_group(c, g[1]);
	assert_int_equal(n_mapped, 0);
	kv->destroy(c);
}

static uint64_t max_cached;

static int option(const struct ig_host *host, const char *key, uint64_t *out)
{
	*out = strcmp(key, "max_cached") ? 0 : max_cached;
	return 0;
}

/* The option max_cached: beyond it the least recently used goes at once. */
static void test_limit(void **state)
{
	static const struct ig_host host = { .struct_size = sizeof host, .option_number = option };
	struct ig_kvcache *c = make(8);
	struct ig_kv_layout l[2];
	struct text a;
	uint32_t g[2];

	add_groups(c, l, g);
	for (max_cached = 4 * (1024 + 512); max_cached; max_cached -= 1024 + 512) {
		const uint32_t n = max_cached < 3 * (1024 + 512) ? max_cached / (1024 + 512) : 3;

		assert_int_equal(ingot_module.init(&host), 0);
		fill(&a, 50, 3);
		begin(c, l, g, &a);
		assert_int_equal(reserve(a.seq, 50), 0);
		compute(c, l, &a, 0, 50);
		kv->seq_commit(a.seq, a.tokens, 50);
		assert_int_equal(stats(c).cached_bytes, 0); /* all is in use */
		kv->seq_destroy(a.seq);
		assert_int_equal(stats(c).cached_bytes, n * (1024 + 512));
		assert_int_equal(begin(c, l, g, &a), n * IG_BLOCK_TOKENS);
		kv->seq_destroy(a.seq);
	}
	assert_int_equal(ingot_module.init(&host), 0); /* no limit again */
	kv->remove_group(c, g[0]);
	kv->remove_group(c, g[1]);
	assert_int_equal(n_mapped, 0);
	kv->destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_blocks_of_a_beginning),
		cmocka_unit_test(test_shared_and_appended),
		cmocka_unit_test(test_part_of_a_block),
		cmocka_unit_test(test_no_space_for_a_part),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_salts),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_chaos),
	};
	return cmocka_run_group_tests_name("prefix index", tests, setup, NULL);
}
