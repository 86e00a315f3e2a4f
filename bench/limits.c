/*
 * limits.c: this machine's roofline: bytes read from memory per second, and multiply-adds per
 * second in float32 and in 8 bits.
 *
 *   ingot-limits [--threads T] [--mib N] [--json]
 *
 * Every thread reads its own part of a buffer of N MiB over and over (as decoding reads
 * the weights once a token), then runs chains of multiply-adds on registers.  The best
 * of several rounds counts.
 */
#include "base/clock.h"
#include "runtime/cpu/pool.h"

#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MAX_THREADS 64
#define N_ROUNDS 25

struct job {
	const char *data;
	size_t size;		/* a multiple of 512 */
	uint64_t sum;		/* so that nothing is optimised away */
	double done;		/* bytes or multiply-adds */
	int64_t from_ns, to_ns; /* of the last round */
	void (*work)(struct job *j);
};

/* ---- reading ---- */

static void read_plain(struct job *j)
{
	uint64_t s[8] = { 0 };

	for (size_t i = 0; i < j->size; i += 64) {
		uint64_t v[8];
		memcpy(v, j->data + i, sizeof v);
		for (int k = 0; k < 8; k++)
			s[k] += v[k];
	}
	for (int k = 0; k < 8; k++)
		j->sum += s[k];
	j->done = (double)j->size;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_avx2(struct job *j)
{
	__m256i s[8];

	for (int k = 0; k < 8; k++)
		s[k] = _mm256_setzero_si256();
	for (size_t i = 0; i < j->size; i += 256)
		_Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) s[k] = _mm256_add_epi64(
			s[k], _mm256_loadu_si256((const __m256i *)(j->data + i + 32 * k)));
	for (int k = 0; k < 8; k++)
		j->sum += (uint64_t)_mm256_extract_epi64(s[k], 0);
	j->done = (double)j->size;
}

__attribute__((target("avx512f"))) static void read_avx512(struct job *j)
{
	__m512i s[8];

	for (int k = 0; k < 8; k++)
		s[k] = _mm512_setzero_si512();
	for (size_t i = 0; i < j->size; i += 512)
		_Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) s[k] =
			_mm512_add_epi64(s[k], _mm512_loadu_si512(j->data + i + 64 * k));
	for (int k = 0; k < 8; k++)
		j->sum += (uint64_t)_mm512_reduce_add_epi64(s[k]);
	j->done = (double)j->size;
}

/* ---- multiplying: chains, more than latency times width ---- */

#define N_CHAINS 12
#define N_REPEATS 500000
/* Unrolled, so that every chain stays in its register. */
#define EACH_CHAIN _Pragma("GCC unroll 12") for (int k = 0; k < N_CHAINS; k++)

__attribute__((target("avx2,fma"))) static void fma_avx2(struct job *j)
{
	__m256 a[N_CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);

	for (int k = 0; k < N_CHAINS; k++)
		a[k] = _mm256_set1_ps((float)k);
	for (int i = 0; i < N_REPEATS; i++)
		EACH_CHAIN
	a[k] = _mm256_fmadd_ps(a[k], x, y);
	for (int k = 0; k < N_CHAINS; k++)
		j->sum += (uint64_t)_mm256_cvtss_f32(a[k]);
	j->done = 8.0 * N_CHAINS * N_REPEATS;
}

__attribute__((target("avx512f"))) static void fma_avx512(struct job *j)
{
	__m512 a[N_CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);

	for (int k = 0; k < N_CHAINS; k++)
		a[k] = _mm512_set1_ps((float)k);
	for (int i = 0; i < N_REPEATS; i++)
		EACH_CHAIN
	a[k] = _mm512_fmadd_ps(a[k], x, y);
	for (int k = 0; k < N_CHAINS; k++)
		j->sum += (uint64_t)_mm512_cvtss_f32(a[k]);
	j->done = 16.0 * N_CHAINS * N_REPEATS;
}

/* Eight chains: with twelve and the constants gcc spills, and the rate is half of what it is. */
#define N_CHAINS_AVX2 8

__attribute__((target("avx2"))) static void int8_avx2(struct job *j)
{
	__m256i a[N_CHAINS_AVX2], y = _mm256_set1_epi8(5);
	const __m256i ones = _mm256_set1_epi16(1);

	for (int k = 0; k < N_CHAINS_AVX2; k++)
		a[k] = _mm256_set1_epi32(k);
	for (int i = 0; i < N_REPEATS; i++)
		_Pragma("GCC unroll 8") for (int k = 0; k < N_CHAINS_AVX2; k++)
		{
			/* An operand that changes, or the product is taken out of the loop. */
			__m256i p = _mm256_maddubs_epi16(a[k], y);

			a[k] = _mm256_add_epi32(a[k], _mm256_madd_epi16(p, ones));
		}
	for (int k = 0; k < N_CHAINS_AVX2; k++)
		j->sum += (uint64_t)_mm256_extract_epi64(a[k], 0);
	j->done = 32.0 * N_CHAINS_AVX2 * N_REPEATS;
}

__attribute__((target("avx512f,avx512vnni"))) static void int8_vnni(struct job *j)
{
	__m512i a[N_CHAINS], x = _mm512_set1_epi32(0x03030303), y = _mm512_set1_epi32(0x05050505);

	for (int k = 0; k < N_CHAINS; k++)
		a[k] = _mm512_set1_epi32(k);
	for (int i = 0; i < N_REPEATS; i++)
		EACH_CHAIN
	a[k] = _mm512_dpbusd_epi32(a[k], x, y);
	for (int k = 0; k < N_CHAINS; k++)
		j->sum += (uint64_t)_mm512_reduce_add_epi32(a[k]);
	j->done = 64.0 * N_CHAINS * N_REPEATS;
}
#endif

/* The fastest of each kind on this processor; NULL: not measured. */
static void choose(void (**read)(struct job *), void (**f32)(struct job *),
		   void (**int8)(struct job *))
{
	*read = read_plain;
	*f32 = *int8 = NULL;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
		*read = read_avx2;
		*f32 = fma_avx2;
		*int8 = int8_avx2;
	}
	if (__builtin_cpu_supports("avx512f")) {
		*read = read_avx512;
		*f32 = fma_avx512;
	}
	if (__builtin_cpu_supports("avx512vnni"))
		*int8 = int8_vnni;
#endif
}

/* ---- threads ---- */

static void run_job(void *ctx, uint32_t thread)
{
	struct job *j = (struct job *)ctx + thread;

	j->from_ns = ig_now_ns();
	j->work(j);
	j->to_ns = ig_now_ns();
}

/* The rate of the best round.  A worker that starts too late misses its round, whose rate is
 * then lower. */
static double measure(struct ig_pool *pool, struct job *jobs, void (*work)(struct job *))
{
	const uint32_t n = ig_pool_n_threads(pool);
	double best = 0.0;

	for (int r = 0; work && r < N_ROUNDS; r++) {
		int64_t from = INT64_MAX, to = 0;
		double done = 0.0;
		for (uint32_t i = 0; i < n; i++) {
			jobs[i].work = work;
			jobs[i].from_ns = INT64_MAX;
			jobs[i].done = 0.0;
		}
		ig_pool_run(pool, run_job, jobs);
		/* By the threads' own clocks: this one may return long after they finished. */
		for (uint32_t i = 0; i < n; i++) {
			done += jobs[i].done;
			from = jobs[i].from_ns < from ? jobs[i].from_ns : from;
			to = jobs[i].to_ns > to ? jobs[i].to_ns : to;
		}
		best = fmax(best, done * 1e9 / (double)(to - from));
	}
	return best;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "threads", required_argument, NULL, 't' },
		{ "mib", required_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	static struct job jobs[MAX_THREADS];
	void (*read)(struct job *), (*f32)(struct job *), (*int8)(struct job *);
	unsigned long n_threads = 2, mib = 512;
	struct ig_pool *pool;
	bool json = false;
	double bytes, macs, macs8;
	char *data;
	size_t part;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 't')
			n_threads = strtoul(optarg, NULL, 10);
		else if (c == 'm')
			mib = strtoul(optarg, NULL, 10);
		else if (c == 'j')
			json = true;
		else
			return 2;
	}
	if (!n_threads || n_threads > MAX_THREADS || !mib || mib > 65536 || optind != argc) {
		fprintf(stderr, "usage: ingot-limits [--threads 1-%d] [--mib 1-65536] [--json]\n",
			MAX_THREADS);
		return 2;
	}
	part = (size_t)mib * 1048576 / n_threads / 512 * 512;
	data = malloc(part * n_threads);
	if (!data) {
		fprintf(stderr, "ingot-limits: no memory for %lu MiB\n", mib);
		return 1;
	}
	memset(data, 1, part * n_threads);
	for (unsigned i = 0; i < n_threads; i++)
		jobs[i] = (struct job){ .data = data + i * part, .size = part };
	choose(&read, &f32, &int8);
	if (ig_pool_create((uint32_t)n_threads, &pool)) {
		fprintf(stderr, "ingot-limits: %lu threads cannot be started\n", n_threads);
		return 1;
	}
	bytes = measure(pool, jobs, read);
	macs = measure(pool, jobs, f32);
	macs8 = measure(pool, jobs, int8);
	ig_pool_destroy(pool);
	free(data);
	if (json)
		printf("{\"threads\": %lu, \"read_bytes\": %.4g, \"f32_macs\": %.4g, "
		       "\"int8_macs\": %.4g}\n",
		       n_threads, bytes, macs, macs8);
	else
		printf("%lu threads: %.1f GB/s read, %.0f G multiply-adds/s in float32, %.0f in 8 bits\n",
		       n_threads, bytes * 1e-9, macs * 1e-9, macs8 * 1e-9);
	return 0;
}
