/*
 * attention.c: time of the op attention on one core, and the bound by fused multiply-adds.  Loads
 * the installed module.
 *
 *   bench-attention MODULE.so [N_HEADS N_KV_HEADS HEAD_DIM]
 *
 * The bound counts 2 * head_dim multiply-adds per query vector and position, at the rate of a loop
 * that does nothing else.  "cold" runs over 30 layers, so that K and V are not in the L2 cache.
 */
#include <ingot/arch.h>
#include <ingot/op.h>

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define N_LAYERS 30

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* without time of other programs */
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int is_supported(uint32_t isa)
{
#if defined(__x86_64__)
	if (isa == IG_ISA_AVX2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (isa == IG_ISA_AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
#if defined(__aarch64__)
	if (isa == IG_ISA_NEON)
		return 1;
#endif
	return isa == IG_ISA_GENERIC;
}

#if defined(__x86_64__)
/* Multiply-adds per microsecond: 12 chains of 8 or 16 lanes, in registers. */
#define RATE(name, target_isa, vec, lanes, set1, fma)                                              \
	__attribute__((target(target_isa))) static double name(void)                               \
	{                                                                                          \
		vec x = set1(0.999f), y = set1(1e-6f);                                             \
		vec a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x,   \
		    l = x;                                                                         \
		double best = 0;                                                                   \
		for (int r = 0; r < 50; r++) {                                                     \
			double t = now_us();                                                       \
			for (int n = 0; n < 20000; n++) {                                          \
				a = fma(a, x, y), b = fma(b, x, y), c = fma(c, x, y);              \
				d = fma(d, x, y), e = fma(e, x, y), f = fma(f, x, y);              \
				g = fma(g, x, y), h = fma(h, x, y), i = fma(i, x, y);              \
				j = fma(j, x, y), k = fma(k, x, y), l = fma(l, x, y);              \
				__asm__ volatile(""                                                \
						 : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e),    \
						   "+v"(f));                                       \
				__asm__ volatile(""                                                \
						 : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k),    \
						   "+v"(l));                                       \
			}                                                                          \
			t = 20000.0 * 12 * (lanes) / (now_us() - t);                               \
			best = t > best ? t : best;                                                \
		}                                                                                  \
		return best;                                                                       \
	}
RATE(rate_avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps)
RATE(rate_avx512, "avx512f,avx512vl,fma", __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps)
#endif

static double rate_of(uint32_t isa)
{
#if defined(__x86_64__)
	if (isa == IG_ISA_AVX2)
		return rate_avx2();
	if (isa == IG_ISA_AVX512)
		return rate_avx512();
#endif
	return 0;
}

struct bench {
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	struct ig_step step;
	struct ig_attention_params p;
	struct ig_op_launch launch;
	int32_t *positions, *row_seq;
};

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return p;
}

/* n_rows rows that end at context, of one sequence. */
static void setup(struct bench *b, uint32_t dtype, int32_t n_rows, int32_t context, uint32_t heads,
		  uint32_t kv_heads, uint32_t dim)
{
	const uint64_t stride = dtype == IG_Q8_0 ? 0 : dim * (dtype == IG_F16 ? 2 : 4);
	const uint64_t half = dtype == IG_Q8_0 ? 16 * dim / 32 * 34 : 16 * stride;
	const uint32_t n_blocks = (uint32_t)(context + 15) / 16;
	uint32_t *words = must(malloc(n_blocks * sizeof *words));
	void **slab = must(malloc(sizeof *slab));
	const int64_t width = (int64_t)heads * dim;

	memset(b, 0, sizeof *b);
	b->layout = (struct ig_kv_layout){ .k_dtype = dtype,
					   .v_dtype = dtype,
					   .n_layers = N_LAYERS,
					   .n_kv_heads = kv_heads,
					   .head_dim = dim,
					   .k_token_stride = stride,
					   .v_token_stride = stride,
					   .v_offset = half,
					   .head_stride = 2 * half,
					   .layer_stride = kv_heads * 2 * half,
					   .block_bytes = N_LAYERS * kv_heads * 2 * half };
	*slab = must(aligned_alloc(4096, (n_blocks * b->layout.block_bytes + 4095) / 4096 * 4096));
	for (uint64_t i = 0; i < n_blocks * b->layout.block_bytes / 4; i++) {
		if (dtype == IG_F32) /* and else halves, which are small as scales too */
			((float *)*slab)[i] = (float)(i % 97) / 97 - 0.5f;
		else
			((uint32_t *)*slab)[i] =
				(uint32_t)((i * 2654435761u >> 7 & 0x83ff83ff) | 0x30003000);
	}
	for (uint32_t i = 0; i < n_blocks; i++)
		words[i] = IG_BLOCK_WORD(0, (i * 7) % n_blocks % 4096);
	b->positions = must(malloc((size_t)n_rows * sizeof(int32_t)));
	b->row_seq = must(calloc((size_t)n_rows, sizeof(int32_t)));
	for (int32_t i = 0; i < n_rows; i++)
		b->positions[i] = context - n_rows + i;
	b->kv = (struct ig_step_kv){ &b->layout, words, n_blocks };
	b->step = (struct ig_step){ .struct_size = sizeof b->step,
				    .n_rows = n_rows,
				    .n_seqs = 1,
				    .positions = b->positions,
				    .row_seq = b->row_seq,
				    .slab_bases = slab,
				    .kv = &b->kv,
				    .n_groups = 1 };
	b->p = (struct ig_attention_params){ sizeof b->p,	    heads, kv_heads, dim, 0, 0,
					     1 / sqrtf((float)dim), 0 };
	b->launch = (struct ig_op_launch){ .struct_size = sizeof b->launch,
					   .n_in = 1,
					   .n_out = 1,
					   .params = &b->p,
					   .step = &b->step };
	b->launch.in[0] = b->launch.out[0] = (struct ig_tensor){
		.n_rows = n_rows, .n_cols = width, .row_stride = width * 4, .dtype = IG_F32
	};
	b->launch.in[0].data = must(malloc((size_t)(n_rows * width) * 4));
	b->launch.out[0].data = must(malloc((size_t)(n_rows * width) * 4));
	for (int64_t i = 0; i < n_rows * width; i++)
		((float *)b->launch.in[0].data)[i] = (float)(i % 89) / 89 - 0.5f;
}

static void teardown(struct bench *b)
{
	free(b->launch.in[0].data);
	free(b->launch.out[0].data);
	free(b->step.slab_bases[0]);
	free((void *)(uintptr_t)b->step.slab_bases);
	free((void *)(uintptr_t)b->kv.block_tables);
	free(b->positions);
	free(b->row_seq);
}

/* Microseconds per layer, the best of many. */
static double measure(struct bench *b, const struct ig_cpu_kernel *k, int cold)
{
	void *scratch = must(malloc(k->scratch_bytes ? k->scratch_bytes(&b->launch) : 1));
	double best = 1e30, until = now_us() + 4e5;

	do {
		double t = now_us();
		for (uint32_t i = 0; i < N_LAYERS; i++) {
			b->p.layer = cold ? i : 0;
			k->run(&b->launch, 0, k->n_units(&b->launch), scratch);
		}
		t = (now_us() - t) / N_LAYERS;
		best = t < best ? t : best;
	} while (now_us() < until);
	free(scratch);
	return best;
}

int main(int argc, char **argv)
{
	static const struct {
		uint32_t dtype;
		int32_t n_rows, context;
	} runs[] = {
		{ IG_F16, 512, 512 }, { IG_F32, 512, 512 },  { IG_F16, 64, 512 },
		{ IG_F16, 1, 512 },   { IG_F32, 1, 512 },    { IG_F16, 1, 64 },
		{ IG_F16, 1, 4096 },  { IG_Q8_0, 512, 512 }, { IG_Q8_0, 64, 512 },
		{ IG_Q8_0, 1, 512 },  { IG_Q8_0, 1, 64 },    { IG_Q8_0, 1, 4096 },
	};
	static const char *const names[] = {
		[IG_F32] = "f32", [IG_F16] = "f16", [IG_Q8_0] = "q8_0"
	};
	const uint32_t heads = argc > 4 ? (uint32_t)atoi(argv[2]) : 9;
	const uint32_t kv_heads = argc > 4 ? (uint32_t)atoi(argv[3]) : 3;
	const uint32_t dim = argc > 4 ? (uint32_t)atoi(argv[4]) : 64;
	void *so = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const struct ig_module *m = so ? dlsym(so, "ingot_module") : NULL;
	const struct ig_op *op = NULL;

	for (const struct ig_op *const *o = m ? m->ops : NULL; o && *o; o++)
		if (!strcmp((*o)->name, "attention"))
			op = *o;
	if (!op || !heads || !kv_heads || heads % kv_heads || !dim || dim % 8 || dim > 256) {
		fprintf(stderr, "usage: %s attention.so [N_HEADS N_KV_HEADS HEAD_DIM]\n", argv[0]);
		return 2;
	}
	printf("%u heads, %u KV heads of %u dimensions; one core, us a layer\n", heads, kv_heads,
	       dim);
	printf("%-8s %-4s %5s %8s %10s %10s %10s\n", "isa", "kv", "rows", "context", "warm", "cold",
	       "fma bound");
	for (uint32_t i = 0; i < op->n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &op->cpu_kernels[i];
		double rate;
		if (!is_supported(k->isa))
			continue;
		rate = rate_of(k->isa);
		for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
			struct bench b;
			double pairs = 0, warm, cold;
			if (runs[r].dtype == IG_Q8_0 && dim % 32)
				continue;
			setup(&b, runs[r].dtype, runs[r].n_rows, runs[r].context, heads, kv_heads,
			      dim);
			for (int32_t j = 0; j < runs[r].n_rows; j++)
				pairs += (double)(b.positions[j] + 1) * heads;
			warm = measure(&b, k, 0);
			cold = measure(&b, k, 1);
			printf("%-8s %-4s %5d %8d %10.1f %10.1f ",
			       k->isa == IG_ISA_GENERIC ? "generic" :
			       k->isa == IG_ISA_AVX2	? "avx2" :
			       k->isa == IG_ISA_AVX512	? "avx512" :
							  "neon",
			       names[runs[r].dtype], runs[r].n_rows, runs[r].context, warm, cold);
			if (rate > 0)
				printf("%10.1f\n", pairs * 2 * dim / rate);
			else
				printf("%10s\n", "-");
			teardown(&b);
		}
	}
	return 0;
}
