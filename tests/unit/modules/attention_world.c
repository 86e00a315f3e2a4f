/* attention_world.c: see attention_world.h. */
#include "attention_world.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define SLAB_BLOCKS 5

const struct ig_module *world_module(void)
{
	static const struct ig_module *m;

	if (!m) {
		void *so = dlopen(ATTENTION_MODULE, RTLD_NOW | RTLD_LOCAL);

		if (!so)
			fail_msg("%s", dlerror());
		m = dlsym(so, "ingot_module");
		assert_non_null(m);
	}
	return m;
}

const struct ig_op *world_op(const char *name)
{
	for (const struct ig_op *const *op = world_module()->ops; *op; op++)
		if (!strcmp((*op)->name, name))
			return *op;
	fail_msg("the module has no op %s", name);
	return NULL;
}

static int isa_is_here(uint32_t isa)
{
	if (isa == IG_ISA_GENERIC)
		return 1;
#if defined(__x86_64__)
	if (isa == IG_ISA_AVX2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (isa == IG_ISA_AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#elif defined(__aarch64__)
	if (isa == IG_ISA_NEON)
		return 1;
#endif
	return 0;
}

const struct ig_cpu_kernel *world_kernel(const struct ig_op *op, uint32_t isa)
{
	for (uint32_t i = 0; i < op->n_cpu_kernels; i++)
		if (op->cpu_kernels[i].isa == isa && isa_is_here(isa))
			return &op->cpu_kernels[i];
	return NULL;
}

const char *world_isa_name(uint32_t isa)
{
	return isa == IG_ISA_GENERIC ? "generic" :
	       isa == IG_ISA_AVX2    ? "avx2" :
	       isa == IG_ISA_AVX512  ? "avx512" :
				       "neon";
}

/* ---- numbers ------------------------------------------------------------------------- */

static uint64_t state = 1;

void world_seed(uint64_t seed) { state = seed * 0x9e3779b97f4a7c15u + 1; }

uint32_t world_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

float world_uniform(void) { return (float)(world_random() >> 8) * 0x1p-23f - 1.0f; }

/* A half from a float, by the definition: a multiple of the unit in its last place. */
static uint16_t half_of(float f)
{
	int e;
	double unit, n;

	frexp((double)f, &e);
	e = e < -13 || f == 0 ? -13 : e; /* frexp: 0 of 0 */
	unit = ldexp(1, e - 11);
	n = rint(fabs((double)f) / unit); /* 0 … 2048 */
	if (e == -13 && n < 1024)
		return (uint16_t)((signbit(f) ? 0x8000 : 0) | (int)n);
	return (uint16_t)((signbit(f) ? 0x8000 : 0) | (((e + 14) << 10) + (int)n - 1024));
}

float world_half(uint16_t h)
{
	int e = (h >> 10) & 31, m = h & 1023;
	double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return (float)(h & 0x8000 ? -v : v);
}

/* ---- the world ------------------------------------------------------------------------- */

/* Bytes of K or V of a head; elements have a gap behind each token, Q8_0 has one layout. */
static uint64_t half_head(uint32_t dtype, uint32_t head_dim, uint64_t *token_stride)
{
	*token_stride = 0;
	if (dtype == IG_Q8_0)
		return 16 * head_dim + 16 * 2 * (head_dim / 32);
	*token_stride = head_dim * (dtype == IG_F16 ? 2 : 4) + 16;
	return 16 * *token_stride;
}

void world_create(struct world *w, uint32_t dtype, uint32_t n_kv_heads, uint32_t head_dim,
		  const int32_t *lens, uint32_t n_seqs)
{
	uint32_t n_blocks = 0, n_words, max_blocks = 0;
	uint32_t *words;

	memset(w, 0, sizeof *w);
	/* gaps at every level, so that no stride can be taken for another */
	w->layout = (struct ig_kv_layout){ .k_dtype = dtype >> 16 ? (dtype >> 16) - 1 : dtype,
					   .v_dtype = dtype & 0xffff,
					   .n_layers = WORLD_LAYERS,
					   .n_kv_heads = n_kv_heads,
					   .head_dim = head_dim };
	w->layout.v_offset = half_head(w->layout.k_dtype, head_dim, &w->layout.k_token_stride) + 32;
	w->layout.head_stride = w->layout.v_offset +
				half_head(w->layout.v_dtype, head_dim, &w->layout.v_token_stride) +
				64;
	w->layout.layer_stride = n_kv_heads * w->layout.head_stride + 48;
	w->layout.block_bytes = WORLD_LAYERS * w->layout.layer_stride + 80;
	for (uint32_t i = 0; i < n_seqs; i++) {
		uint32_t n = (uint32_t)(lens[i] + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;

		n_blocks += n;
		max_blocks = n > max_blocks ? n : max_blocks;
	}
	w->n_seqs = n_seqs;
	w->n_slabs = n_blocks / SLAB_BLOCKS + 2; /* some blocks stay free */
	assert_true(w->n_slabs <= sizeof w->slabs / sizeof w->slabs[0]);
	w->slab_bytes = SLAB_BLOCKS * w->layout.block_bytes;
	for (uint32_t i = 0; i < w->n_slabs; i++) {
		w->slabs[i] = malloc(w->slab_bytes);
		assert_non_null(w->slabs[i]);
		memset(w->slabs[i], 0xff, w->slab_bytes);
	}
	n_words = w->n_slabs * SLAB_BLOCKS;
	words = malloc(n_words * sizeof *words);
	assert_non_null(words);
	for (uint32_t i = 0; i < n_words; i++)
		words[i] = IG_BLOCK_WORD(i / SLAB_BLOCKS, i % SLAB_BLOCKS);
	for (uint32_t i = n_words - 1; i > 0; i--) {
		uint32_t j = world_random() % (i + 1), t = words[i];

		words[i] = words[j];
		words[j] = t;
	}
	w->kv.max_blocks = max_blocks + 1;
	w->block_tables = malloc(n_seqs * (size_t)w->kv.max_blocks * sizeof *w->block_tables);
	assert_non_null(w->block_tables);
	memset(w->block_tables, 0xff, n_seqs * (size_t)w->kv.max_blocks * sizeof *w->block_tables);
	n_blocks = 0;
	for (uint32_t i = 0; i < n_seqs; i++)
		for (int32_t t = 0; t < lens[i]; t += IG_BLOCK_TOKENS)
			w->block_tables[i * w->kv.max_blocks + t / IG_BLOCK_TOKENS] =
				words[n_blocks++];
	free(words);
	w->kv.layout = &w->layout;
	w->kv.block_tables = w->block_tables;
}

void world_destroy(struct world *w)
{
	for (uint32_t i = 0; i < w->n_slabs; i++)
		free(w->slabs[i]);
	free(w->block_tables);
	free(w->snapshot);
}

uint32_t world_dtype(const struct world *w, int v)
{
	return v ? w->layout.v_dtype : w->layout.k_dtype;
}

/* K or V of the position's block. */
static unsigned char *half_of_block(const struct world *w, uint32_t seq, int32_t pos,
				    uint32_t layer, uint32_t head, int v)
{
	uint32_t word = w->block_tables[seq * w->kv.max_blocks + pos / IG_BLOCK_TOKENS];

	return (unsigned char *)w->slabs[IG_BLOCK_SLAB(word)] +
	       IG_BLOCK_INDEX(word) * w->layout.block_bytes + layer * w->layout.layer_stride +
	       head * w->layout.head_stride + (v ? w->layout.v_offset : 0);
}

void *world_slot(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		 int v)
{
	assert_true(world_dtype(w, v) != IG_Q8_0);
	return half_of_block(w, seq, pos, layer, head, v) +
	       (uint32_t)(pos % IG_BLOCK_TOKENS) *
		       (v ? w->layout.v_token_stride : w->layout.k_token_stride);
}

int8_t *world_code(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		   int v, uint32_t d)
{
	const uint32_t t = (uint32_t)(pos % IG_BLOCK_TOKENS);

	return (int8_t *)half_of_block(w, seq, pos, layer, head, v) +
	       (v ? t * w->layout.head_dim + d : d * 16 + t);
}

uint16_t *world_scale(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer,
		      uint32_t head, int v, uint32_t d)
{
	return (uint16_t *)(void *)(half_of_block(w, seq, pos, layer, head, v) +
				    16 * w->layout.head_dim) +
	       d / 32 * 16 + pos % IG_BLOCK_TOKENS;
}

float world_element(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		    int v, uint32_t d)
{
	const char *slot;
	uint16_t h;
	float f;

	if (world_dtype(w, v) == IG_Q8_0)
		return (float)*world_code(w, seq, pos, layer, head, v, d) *
		       world_half(*world_scale(w, seq, pos, layer, head, v, d));
	slot = world_slot(w, seq, pos, layer, head, v);
	if (world_dtype(w, v) == IG_F16) {
		memcpy(&h, slot + d * sizeof h, sizeof h);
		return world_half(h);
	}
	memcpy(&f, slot + d * sizeof f, sizeof f);
	return f;
}

void world_set(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
	       int v, uint32_t d, float f)
{
	char *slot;
	uint16_t h;

	if (world_dtype(w, v) == IG_Q8_0) { /* a scale of its own for every token and group */
		if (d % 32 == 0)
			*world_scale(w, seq, pos, layer, head, v, d) =
				half_of((0.75f + world_uniform() / 4) / 127);
		*world_code(w, seq, pos, layer, head, v, d) = (int8_t)lrintf(f * 127);
		return;
	}
	slot = world_slot(w, seq, pos, layer, head, v);
	h = half_of(f);
	if (world_dtype(w, v) == IG_F16)
		memcpy(slot + d * sizeof h, &h, sizeof h);
	else
		memcpy(slot + d * sizeof f, &f, sizeof f);
}

void world_fill(struct world *w, uint32_t layer, const int32_t *lens)
{
	for (uint32_t seq = 0; seq < w->n_seqs; seq++)
		for (int32_t t = 0; t < lens[seq]; t++)
			for (uint32_t i = 0; i < 2 * w->layout.n_kv_heads; i++)
				for (uint32_t d = 0; d < w->layout.head_dim; d++)
					world_set(w, seq, t, layer, i / 2, i % 2, d,
						  world_uniform());
}

void world_wipe(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		int v)
{
	const uint32_t n = w->layout.head_dim, dtype = world_dtype(w, v);

	if (dtype != IG_Q8_0) {
		memset(world_slot(w, seq, pos, layer, head, v), 0xff,
		       n * (dtype == IG_F16 ? 2 : 4));
		return;
	}
	for (uint32_t d = 0; d < n; d++) {
		*world_code(w, seq, pos, layer, head, v, d) = -1;
		*world_scale(w, seq, pos, layer, head, v, d) = 0xffff;
	}
}

void world_snapshot(struct world *w)
{
	free(w->snapshot);
	w->snapshot = malloc(w->n_slabs * w->slab_bytes);
	assert_non_null(w->snapshot);
	for (uint32_t i = 0; i < w->n_slabs; i++)
		memcpy(w->snapshot + i * w->slab_bytes, w->slabs[i], w->slab_bytes);
}

uint64_t world_changed(const struct world *w)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < w->n_slabs; i++)
		for (uint64_t b = 0; b < w->slab_bytes; b++)
			n += ((unsigned char *)w->slabs[i])[b] !=
			     w->snapshot[i * w->slab_bytes + b];
	return n;
}

/* ---- guarded matrices -------------------------------------------------------------------- */

void guarded_create(struct guarded *g, int64_t n_rows, int64_t n_cols)
{
	memset(g, 0, sizeof *g);
	g->t = (struct ig_tensor){ .n_rows = n_rows,
				   .n_cols = n_cols,
				   .row_stride = n_cols * 4 + GUARD,
				   .dtype = IG_F32,
				   .layout = IG_LAYOUT_ROWS };
	g->n_bytes = GUARD + (uint64_t)n_rows * (uint64_t)g->t.row_stride;
	g->bytes = malloc(g->n_bytes);
	assert_non_null(g->bytes);
	memset(g->bytes, 0xa5, g->n_bytes);
	g->t.data = g->bytes + GUARD;
}

float *guarded_row(const struct guarded *g, int64_t row)
{
	return (float *)((char *)g->t.data + row * g->t.row_stride);
}

void guarded_check(const struct guarded *g)
{
	for (uint64_t i = 0; i < g->n_bytes; i++) {
		int64_t in_row = ((int64_t)i - GUARD) % g->t.row_stride;

		if ((i < GUARD || in_row >= g->t.n_cols * 4) && g->bytes[i] != 0xa5)
			fail_msg("byte %lld outside of the rows was written", (long long)i);
	}
}

void guarded_destroy(struct guarded *g) { free(g->bytes); }

void world_run(const struct ig_cpu_kernel *k, const struct ig_op_launch *launch, int order)
{
	const uint64_t n_bytes = k->scratch_bytes ? k->scratch_bytes(launch) : 0;
	const int64_t n_units = k->n_units(launch);
	unsigned char *scratch = malloc(n_bytes + 2 * GUARD);

	assert_non_null(scratch);
	assert_true(n_units > 0);
	memset(scratch, 0xff, n_bytes + 2 * GUARD);
	if (order == 0)
		k->run(launch, 0, n_units, scratch + GUARD);
	else
		for (int64_t i = n_units - 1; i >= 0; i--)
			k->run(launch, i, i + 1, scratch + GUARD);
	for (uint64_t i = 0; i < GUARD; i++)
		if (scratch[i] != 0xff || scratch[GUARD + n_bytes + i] != 0xff)
			fail_msg("a byte outside of the scratch was written");
	free(scratch);
}
