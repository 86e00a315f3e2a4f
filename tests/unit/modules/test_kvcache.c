/*
 * test_kvcache.c: the service "paged", by itself and against a naive model: every
 * token's place holds a stamp of its sequence and position, so a block that two
 * sequences wrongly share, or that moves, shows as a wrong stamp.
 */
#include <ingot/build_id.h>
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

static const struct ig_kvcache_service *kv;

struct memory {
	int n_mapped, n_maps, n_copies, fail_after; /* fail_after < 0: never */
};

static void *map_slab(void *ctx, uint64_t bytes)
{
	struct memory *m = ctx;

	if (m->fail_after >= 0 && m->n_mapped >= m->fail_after)
		return NULL;
	m->n_mapped++;
	m->n_maps++;
	return malloc(bytes); /* malloc, so that ASan sees a use after unmap */
}

static void unmap_slab(void *ctx, void *base, uint64_t bytes)
{
	((struct memory *)ctx)->n_mapped--;
	free(base);
}

static void copy(void *ctx, void *dst, const void *src, uint64_t n_bytes)
{
	((struct memory *)ctx)->n_copies++;
	memcpy(dst, src, n_bytes);
}

static struct ig_kvcache *make(struct memory *m, uint64_t arena, uint64_t slab)
{
	struct ig_kv_arena a = { .struct_size = sizeof a,
				 .arena_bytes = arena,
				 .slab_bytes = slab,
				 .ctx = m,
				 .map_slab = map_slab,
				 .unmap_slab = unmap_slab,
				 .copy = copy };
	struct ig_error err;
	struct ig_kvcache *c = NULL;

	*m = (struct memory){ .fail_after = -1 };
	assert_int_equal(kv->create(&a, &c, &err), 0);
	return c;
}

static uint32_t add_group(struct ig_kvcache *c, uint32_t layers, uint32_t heads, uint32_t dim,
			  uint32_t dtype, struct ig_kv_layout *l)
{
	uint32_t g = 99;

	*l = (struct ig_kv_layout){ .k_dtype = dtype,
				    .v_dtype = dtype,
				    .n_layers = layers,
				    .n_kv_heads = heads,
				    .head_dim = dim };
	assert_int_equal(kv->layout(c, l, NULL), 0);
	assert_int_equal(kv->add_group(c, l, 0, &g, NULL), 0);
	return g;
}

static int reserve(struct ig_kv_seq *s, uint32_t n) { return kv->seq_reserve(s, n, n); }

static struct ig_kv_stats stats(const struct ig_kvcache *c)
{
	struct ig_kv_stats s;

	kv->stats(c, &s);
	return s;
}

static void test_module(void **state)
{
	assert_int_equal(ingot_module.head.magic, IG_MODULE_MAGIC);
	assert_int_equal(ingot_module.head.abi_major, IG_ABI_MAJOR);
	assert_int_equal(ingot_module.head.abi_minor, IG_ABI_MINOR);
	assert_int_equal(ingot_module.head.struct_size, sizeof(struct ig_module));
	assert_string_equal(ingot_module.build_id, IG_BUILD_ID);
	assert_string_equal(ingot_module.name, "kvcache");
	assert_string_equal(kv->name, "paged");
	assert_int_equal(kv->struct_size, sizeof *kv);
	assert_int_equal(kv->version, IG_KVCACHE_VERSION);
}

static void test_keys_alone(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 64 << 20, 4 << 20);
	struct ig_kv_layout l;
	struct ig_error err;
	uint32_t group;

	/* GLM-4.7-Flash's, 52.9 KiB a token; where V would be, K is */
	l = (struct ig_kv_layout){ .k_dtype = IG_F16,
				   .v_dtype = IG_Q8_0,
				   .n_layers = 47,
				   .n_kv_heads = 1,
				   .head_dim = 576,
				   .kind = IG_CACHE_K };
	assert_int_equal(kv->layout(c, &l, &err), 0);
	assert_int_equal(l.v_dtype, IG_F16);
	assert_int_equal(l.v_offset, 0);
	assert_int_equal(l.v_token_stride, 1152);
	assert_int_equal(l.block_bytes, 16 * 47 * 1152);
	assert_int_equal(kv->add_group(c, &l, 0, &group, &err), 0);
	l.v_offset = 64;
	assert_int_equal(kv->add_group(c, &l, 0, &group, &err), -EINVAL);
	kv->destroy(c);
}

static void test_layouts(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 64 << 20, 4 << 20);
	struct ig_kv_layout l;
	struct ig_error err;

	add_group(c, 30, 3, 64, IG_F16, &l); /* SmolLM2-135M: 23,040 bytes a token */
	assert_int_equal(l.k_token_stride, 128);
	assert_int_equal(l.v_offset, 2048);
	assert_int_equal(l.head_stride, 2 * 2048);
	assert_int_equal(l.layer_stride, 2 * 3 * 2048);
	assert_int_equal(l.block_bytes, 16 * 23040);
	add_group(c, 2, 1, 6, IG_F32, &l);
	assert_int_equal(l.k_token_stride, 24);
	assert_int_equal(l.head_stride, 2 * 384);
	assert_int_equal(l.block_bytes, 2 * 2 * 384);
	add_group(c, 1, 1, 1, IG_F16, &l); /* 32 bytes of values; a head begins on a line */
	assert_int_equal(l.head_stride, 2 * 64);
	add_group(c, 30, 3, 64, IG_Q8_0, &l); /* 17 bytes for 16 values of 8 bits */
	assert_int_equal(l.k_token_stride, 0);
	assert_int_equal(l.v_offset, 17 * 64);
	assert_int_equal(l.head_stride, 2 * 17 * 64);
	assert_int_equal(l.block_bytes, 16 * 23040 * 17 / 32);
	/* keys and values of their own types; a head of 32 ends inside a line */
	l = (struct ig_kv_layout){ .k_dtype = IG_Q8_0,
				   .v_dtype = IG_F16,
				   .n_layers = 2,
				   .n_kv_heads = 3,
				   .head_dim = 32 };
	assert_int_equal(kv->layout(c, &l, &err), 0);
	assert_int_equal(l.k_token_stride, 0);
	assert_int_equal(l.v_token_stride, 64);
	assert_int_equal(l.v_offset, 576); /* 544 rounded up to lines */
	assert_int_equal(l.head_stride, 576 + 1024);
	assert_int_equal(l.layer_stride, 3 * (576 + 1024));
	l.k_dtype = IG_F32, l.v_dtype = IG_Q8_0;
	assert_int_equal(kv->layout(c, &l, &err), 0);
	assert_int_equal(l.k_token_stride, 128);
	assert_int_equal(l.v_token_stride, 0);
	assert_int_equal(l.head_stride, 2048 + 576);

	l = (struct ig_kv_layout){ .k_dtype = IG_F16,
				   .v_dtype = IG_Q4_1,
				   .n_layers = 1,
				   .n_kv_heads = 1,
				   .head_dim = 64 };
	assert_int_equal(kv->layout(c, &l, &err), -EINVAL);
	assert_non_null(strstr(err.text, "values of type 3"));
	l.head_dim = 80;
	l.v_dtype = IG_Q8_0;
	assert_int_equal(kv->layout(c, &l, &err), -ENOTSUP);
	assert_non_null(strstr(err.text,
			       "values in q8_0 (kvcache.dtype, or the model's kv_dtype) need "
			       "heads of a multiple of 32 values, this model's have 80"));
	l = (struct ig_kv_layout){
		.k_dtype = IG_F16, .v_dtype = IG_F16, .n_layers = 0, .n_kv_heads = 1, .head_dim = 64
	};
	assert_int_equal(kv->layout(c, &l, &err), -EINVAL);
	l = (struct ig_kv_layout){ .k_dtype = IG_F16,
				   .v_dtype = IG_F16,
				   .n_layers = 80,
				   .n_kv_heads = 8,
				   .head_dim = 128 };
	assert_int_equal(kv->layout(c, &l, &err), -EINVAL);
	assert_non_null(strstr(err.text, "5242880 bytes"));
	assert_non_null(strstr(err.text, "kvcache.slab"));
	l = (struct ig_kv_layout){ .k_dtype = IG_F32,
				   .v_dtype = IG_F32,
				   .n_layers = 65536,
				   .n_kv_heads = 65536,
				   .head_dim = 65536 };
	assert_int_equal(kv->layout(c, &l, &err), -EINVAL);
	l = (struct ig_kv_layout){ .k_dtype = IG_F16,
				   .v_dtype = IG_F16,
				   .n_layers = UINT32_MAX,
				   .n_kv_heads = UINT32_MAX,
				   .head_dim = UINT32_MAX };
	assert_int_equal(kv->layout(c, &l, &err), -EINVAL);

	uint32_t g;
	l = (struct ig_kv_layout){
		.k_dtype = IG_F16, .v_dtype = IG_F16, .n_layers = 1, .n_kv_heads = 1, .head_dim = 64
	};
	assert_int_equal(kv->add_group(c, &l, 0, &g, &err),
			 -EINVAL); /* strides were never asked for */
	kv->destroy(c);
	kv->destroy(NULL);
}

static void test_create_refusals(void **state)
{
	struct memory m;
	struct ig_kv_arena a = { .struct_size = sizeof a,
				 .arena_bytes = 1 << 20,
				 .slab_bytes = 3 << 12,
				 .ctx = &m,
				 .map_slab = map_slab,
				 .unmap_slab = unmap_slab,
				 .copy = copy };
	struct ig_kvcache *c = NULL;
	struct ig_error err;

	assert_int_equal(kv->create(&a, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "power of two"));
	a.slab_bytes = 2 << 20;
	assert_int_equal(kv->create(&a, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "holds no slab"));
	a.arena_bytes = (uint64_t)1 << 40;
	a.slab_bytes = 4096;
	assert_int_equal(kv->create(&a, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "kvcache.slab"));
	a.struct_size = 8;
	assert_int_equal(kv->create(&a, &c, &err), -EINVAL);
	assert_null(c);
}

static void test_exhaustion_is_all_or_nothing(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 4 * 4096 + 100, 4096);
	struct ig_kv_layout l;
	uint32_t g[2];
	struct ig_kv_seq *a, *b;
	uint32_t n;

	g[0] = add_group(c, 1, 1, 16, IG_F16, &l); /* 1024 bytes: 4 blocks a slab */
	g[1] = add_group(c, 1, 1, 32, IG_F16, &l); /* 2048 bytes: 2 blocks a slab */
	assert_int_equal(kv->seq_create(c, g, 2, 1000, 0, &a), 0);
	assert_int_equal(kv->seq_create(c, g, 2, 1000, 0, &b), 0);
	assert_int_equal(stats(c).committed_bytes, 0); /* nothing is taken before it is needed */
	assert_int_equal(reserve(a, 32), 0);
	assert_int_equal(stats(c).used_bytes, 2 * 1024 + 2 * 2048);
	assert_int_equal(stats(c).committed_bytes, 2 * 4096);
	/* b's 2 + 2 blocks are there; then the first group's 3 more are, the second's
	 * are not, and nothing at all is kept of the attempt */
	assert_int_equal(reserve(b, 20), 0);
	assert_int_equal(stats(c).n_blocks_used, 8);
	struct ig_kv_stats before = stats(c);
	assert_int_equal(reserve(b, 80), -ENOSPC);
	struct ig_kv_stats after = stats(c);
	assert_int_equal(after.n_blocks_used, before.n_blocks_used);
	assert_int_equal(after.used_bytes, before.used_bytes);
	assert_int_equal(after.free_bytes, before.free_bytes);
	for (uint32_t i = 0; i < 2; i++) {
		kv->seq_blocks(b, i, &n);
		assert_int_equal(n, 2);
	}
	assert_null(kv->seq_blocks(b, 2, &n));
	assert_int_equal(n, 0);
	assert_int_equal(reserve(b, 1001), -EINVAL); /* beyond its max_tokens */
	assert_int_equal(reserve(b, 10), 0);	     /* less than it has: nothing to do */
	kv->seq_destroy(a);
	assert_int_equal(reserve(b, 64), 0);
	kv->seq_destroy(b);
	assert_int_equal(stats(c).n_blocks_used, 0);
	assert_int_equal(stats(c).used_bytes, 0);
	kv->destroy(c);
	assert_int_equal(m.n_mapped, 0);
}

static void test_system_out_of_memory(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 8 * 4096, 4096);
	struct ig_kv_layout l;
	uint32_t g = add_group(c, 1, 1, 64, IG_F16, &l); /* one block a slab */
	struct ig_kv_seq *s;

	assert_int_equal(l.block_bytes, 4096);
	m.fail_after = 3;
	assert_int_equal(kv->seq_create(c, &g, 1, 1000, 0, &s), 0);
	assert_int_equal(reserve(s, 48), 0);
	assert_int_equal(reserve(s, 64), -ENOSPC);
	m.fail_after = -1;
	assert_int_equal(reserve(s, 128), 0);
	assert_int_equal(reserve(s, 129), -ENOSPC);
	kv->seq_destroy(s);
	kv->destroy(c);
	assert_int_equal(m.n_mapped, 0);
}

static void test_slabs_go_back(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 16 * 4096, 4096);
	struct ig_kv_layout l;
	uint32_t g = add_group(c, 1, 1, 16, IG_F16, &l), h;
	struct ig_kv_seq *s[3];
	uint32_t n;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(kv->seq_create(c, &g, 1, 1024, 0, &s[i]), 0);
		assert_int_equal(reserve(s[i], 16 * 8), 0); /* two slabs */
	}
	assert_int_equal(m.n_mapped, 6);
	kv->seq_destroy(s[0]);
	assert_int_equal(m.n_mapped, 5); /* one of the two is kept */
	kv->seq_destroy(s[1]);
	assert_int_equal(m.n_mapped, 3);
	assert_int_equal(stats(c).committed_bytes, 3 * 4096);
	assert_int_equal(stats(c).free_bytes, 14 * 4096);
	/* coming and going at the edge of a slab maps nothing */
	int maps = m.n_maps;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(kv->seq_create(c, &g, 1, 16, 0, &s[0]), 0);
		assert_int_equal(reserve(s[0], 1), 0);
		kv->seq_destroy(s[0]);
	}
	assert_int_equal(m.n_maps, maps);
	/* a kept slab does not stand in another group's way */
	h = add_group(c, 1, 1, 64, IG_F16, &l);
	assert_int_equal(kv->seq_create(c, &h, 1, 16 * 16, 0, &s[0]), 0);
	assert_int_equal(reserve(s[0], 14 * 16), 0);
	assert_int_equal(m.n_mapped, 16);
	assert_int_equal(reserve(s[0], 15 * 16), -ENOSPC);
	kv->slab_bases(c, &n);
	assert_int_equal(n, 16);
	kv->seq_destroy(s[0]);
	kv->seq_destroy(s[2]);
	kv->remove_group(c, g);
	kv->remove_group(c, h);
	assert_int_equal(m.n_mapped, 0);
	assert_int_equal(stats(c).committed_bytes, 0);
	assert_int_equal(add_group(c, 1, 1, 8, IG_F32, &l), g); /* numbers are used again */
	kv->destroy(c);
}

static unsigned char *place(const struct ig_kvcache *c, const struct ig_kv_layout *l,
			    const struct ig_kv_seq *s, uint32_t group, uint32_t token)
{
	uint32_t n_blocks, n_slabs, word;
	const uint32_t *t = kv->seq_blocks(s, group, &n_blocks);
	void *const *bases = kv->slab_bases(c, &n_slabs);

	assert_true(token / IG_BLOCK_TOKENS < n_blocks);
	word = t[token / IG_BLOCK_TOKENS];
	assert_true(IG_BLOCK_SLAB(word) < n_slabs);
	assert_non_null(bases[IG_BLOCK_SLAB(word)]);
	return (unsigned char *)bases[IG_BLOCK_SLAB(word)] + IG_BLOCK_INDEX(word) * l->block_bytes +
	       token % IG_BLOCK_TOKENS * l->k_token_stride;
}

static void test_seq_refusals(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 16 * 4096, 4096);
	struct ig_kv_layout l;
	uint32_t g = add_group(c, 1, 1, 16, IG_F16, &l), n = 7;
	struct ig_kv_seq *s;

	assert_int_equal(kv->seq_create(c, &g, 1, 0, 0, &s), -EINVAL);
	assert_int_equal(kv->seq_create(c, &g, 0, 5, 0, &s), -EINVAL);
	assert_int_equal(kv->seq_create(c, &n, 1, 5, 0, &s), -EINVAL);
	kv->destroy(c);
}

/* ---- random operations against a naive model -------------------------------------- */

#define N_SEQS 12
#define MAX_TOKENS 120

struct naive {
	struct ig_kv_seq *seq;
	uint32_t n; /* tokens */
	uint32_t stamp[MAX_TOKENS];
};

static uint32_t rng_state;

static uint32_t rnd(uint32_t n)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 17;
	rng_state ^= rng_state << 5;
	return rng_state % n;
}

static void check_all(struct ig_kvcache *c, const struct ig_kv_layout l[2], const struct naive *s)
{
	uint32_t words[2][N_SEQS * 8];
	uint32_t n_words[2] = { 0, 0 };
	struct ig_kv_stats st = stats(c);

	for (int i = 0; i < N_SEQS; i++) {
		for (uint32_t g = 0; s[i].seq && g < 2; g++) {
			uint32_t n;
			const uint32_t *t = kv->seq_blocks(s[i].seq, g, &n);

			assert_int_equal(n, (s[i].n + 15) / 16);
			for (uint32_t k = 0; k < s[i].n; k++) {
				uint32_t got;
				memcpy(&got, place(c, &l[g], s[i].seq, g, k), 4);
				assert_int_equal(got, s[i].stamp[k] + g);
			}
			for (uint32_t b = 0; b < n; b++) {
				uint32_t j = 0;
				while (j < n_words[g] && words[g][j] != t[b])
					j++;
				if (j == n_words[g])
					words[g][n_words[g]++] = t[b];
			}
		}
	}
	assert_int_equal(st.n_blocks_used, n_words[0] + n_words[1]);
	assert_int_equal(st.used_bytes,
			 n_words[0] * l[0].block_bytes + n_words[1] * l[1].block_bytes);
	assert_true(st.used_bytes <= st.committed_bytes);
	assert_true(st.committed_bytes <= st.arena_bytes);
}

static void test_random(void **state)
{
	struct memory m;
	struct ig_kvcache *c = make(&m, 12 * 4096, 4096);
	struct ig_kv_layout l[2];
	struct naive s[N_SEQS] = { 0 };
	uint32_t g[2], stamp = 1, n_full = 0;

	g[0] = add_group(c, 1, 1, 16, IG_F16, &l[0]);
	g[1] = add_group(c, 3, 1, 8, IG_F32, &l[1]);
	rng_state = 0x1234567;
	for (int step = 0; step < 20000; step++) {
		struct naive *a = &s[rnd(N_SEQS)];
		uint32_t what = rnd(10);

		if (!a->seq) {
			assert_int_equal(kv->seq_create(c, g, 2, MAX_TOKENS, 0, &a->seq), 0);
			a->n = 0;
		} else if (what < 2) {
			kv->seq_destroy(a->seq);
			a->seq = NULL;
		} else {
			uint32_t n = a->n + rnd(20);
			if (n > MAX_TOKENS)
				n = MAX_TOKENS;
			int rc = reserve(a->seq, n);
			if (rc < 0) {
				assert_int_equal(rc, -ENOSPC);
				n_full++;
			} else {
				for (; a->n < n; a->n++) {
					stamp += 2;
					a->stamp[a->n] = stamp;
					for (uint32_t i = 0; i < 2; i++) {
						uint32_t v = stamp + i;
						memcpy(place(c, &l[i], a->seq, i, a->n), &v, 4);
					}
				}
			}
		}
		if (step % 7 == 0)
			check_all(c, l, s);
	}
	assert_true(n_full > 50); /* it really happened */
	for (int i = 0; i < N_SEQS; i++)
		kv->seq_destroy(s[i].seq);
	assert_int_equal(stats(c).n_blocks_used, 0);
	assert_true(m.n_mapped <= 2); /* one spare a group */
	kv->destroy(c);
	assert_int_equal(m.n_mapped, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_module),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_keys_alone),
		cmocka_unit_test(test_create_refusals),
		cmocka_unit_test(test_exhaustion_is_all_or_nothing),
		cmocka_unit_test(test_system_out_of_memory),
		cmocka_unit_test(test_slabs_go_back),
		cmocka_unit_test(test_seq_refusals),
		cmocka_unit_test(test_random),
	};

	kv = ingot_module.kvcache;
	return cmocka_run_group_tests_name("kvcache", tests, NULL, NULL);
}
