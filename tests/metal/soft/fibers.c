/*
 * fibers.c: threads of a threadgroup as fibers, barriers, functions of a simdgroup,
 * and the workers among which a grid's threadgroups are shared.
 *
 * A fiber runs until it must wait; then the next lane of its simdgroup goes on, or, if
 * none can, another simdgroup.  A fiber that ends without waiting lends its stack to
 * the next thread, so a kernel without barriers costs a function call a thread.
 *
 * This file is built without sanitizers: they do not follow a stack that changes.
 */
#include "private.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "symbol.h"

/* ---- switching ------------------------------------------------------------------ */

/* Keep what a call must keep on this stack, its place in *save, and go on at `to`. */
void soft_switch(void **save, void *to);

#if defined(__APPLE__)
#define SYMBOL "_soft_switch"
#else
#define SYMBOL "soft_switch"
#endif

#if defined(__x86_64__)
__asm__(".text\n"
	".globl " SYMBOL "\n" SYMBOL ":\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n");
#define N_SAVED 6

static void *first_frame(char *top, void (*start)(void))
{
	void **sp = (void **)((uintptr_t)top & ~(uintptr_t)63) - 1;

	*sp = NULL; /* start's return address: it has none, and is aligned as after a call */
	*--sp = (void *)(uintptr_t)start;
	sp -= N_SAVED;
	memset(sp, 0, N_SAVED * sizeof *sp);
	return sp;
}
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl " SYMBOL "\n"
	".p2align 2\n" SYMBOL ":\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n");
#define N_SAVED 20
#define LINK_REGISTER 11

static void *first_frame(char *top, void (*start)(void))
{
	void **sp = (void **)((uintptr_t)top & ~(uintptr_t)63) - N_SAVED;

	memset(sp, 0, N_SAVED * sizeof *sp);
	sp[LINK_REGISTER] = (void *)(uintptr_t)start;
	return sp;
}
#else
#error "no fibers for this processor"
#endif

__thread struct soft_worker *soft_me __attribute__((tls_model("initial-exec")));

/* The dispatch under way. */
static struct {
	pthread_mutex_t turn; /* one dispatch after another */
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t go, done;
	uint32_t n_workers, n_busy;
	uint64_t round;
	const struct soft_dispatch *d;
	const struct soft_range *ranges;
	uint32_t n_ranges;
	atomic_uint_fast64_t next; /* group to run */
	atomic_int failed;
	struct soft_report *report; /* written by whoever set `failed` */
	const void *failed_at;
} pool = {
	.turn = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.go = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

void soft_fail(const void *pc, const char *format, ...)
{
	struct soft_worker *w = soft_me;

	if (atomic_exchange(&pool.failed, 1) == 0) {
		struct soft_report *r = pool.report;
		va_list arguments;

		pool.failed_at = pc;
		memcpy(r->group, w->now->t.group_at, sizeof r->group);
		r->thread = w->now->t.index;
		va_start(arguments, format);
		vsnprintf(r->text, sizeof r->text, format, arguments);
		va_end(arguments);
	}
	/* The group's other fibers are left where they stand. */
	soft_switch(&w->dead_sp, w->main_sp);
	__builtin_unreachable();
}

static void fiber_main(void);

/* The lane lies at the stack's lower end, where kernels look (msl_soft.h). */
static inline void settle(struct soft_fiber *f, char *stack)
{
	f->fresh = false;
	f->stack = stack;
	memcpy(stack, &f->t.lane, sizeof f->t.lane);
}

static void begin(struct soft_worker *w, struct soft_fiber *f)
{
	uint32_t i = w->n_stacks++;

	settle(f, w->stacks + (size_t)i * SOFT_STACK_BYTES);
	/* Tops lie at different places in a page, or all would share the same cache sets. */
	f->sp = first_frame(f->stack + SOFT_STACK_BYTES - (i * 7 % 61) * 64 - 64, fiber_main);
}

static void switch_to(struct soft_worker *w, void **save, struct soft_fiber *f)
{
	w->now = f;
	if (f->fresh)
		begin(w, f);
	soft_switch(save, f->sp);
}

/* Somebody who can run: the next lanes of this simdgroup first. */
static inline struct soft_fiber *next_fiber(struct soft_worker *w, uint32_t g, uint32_t lane)
{
	uint32_t ready = w->simd[g].ready, i;

	if (__builtin_expect(ready != 0, 1)) {
		uint32_t above = ready & (uint32_t)(0xfffffffeull << lane);

		return &w->fiber[g * SOFT_LANES + (uint32_t)__builtin_ctz(above ? above : ready)];
	}
	if (w->simd[g].lead_waits) { /* soft_matrix_settle: its time has come */
		w->simd[g].lead_waits = false;
		w->simd[g].ready = 1;
		return &w->fiber[g * SOFT_LANES];
	}
	for (i = 1; i < w->n_simds; i++) {
		uint32_t h = g + i < w->n_simds ? g + i : g + i - w->n_simds;

		if (w->simd[h].ready)
			return &w->fiber[h * SOFT_LANES +
					 (uint32_t)__builtin_ctz(w->simd[h].ready)];
	}
	return NULL;
}

enum kind {
	SUM,
	MAX,
	MIN,
	AND,
	OR,
	XOR,
	PREFIX,
	BALLOT,
	SHUFFLE,
	PRODUCT,
	BARRIER,
};

static const char *const kind_names[] = {
	[SUM] = "simd_sum",
	[MAX] = "simd_max",
	[MIN] = "simd_min",
	[AND] = "simd_and",
	[OR] = "simd_or",
	[XOR] = "simd_xor",
	[PREFIX] = "simd_prefix_sum",
	[BALLOT] = "simd_ballot, _any or _all",
	[SHUFFLE] = "simd_shuffle or _broadcast",
	[PRODUCT] = "simdgroup_multiply_accumulate",
	[BARRIER] = "simdgroup_barrier",
};

/* Nobody can run and not all have ended: say who waits where. */
static void __attribute__((noreturn, cold)) stuck(struct soft_worker *w, const void *pc)
{
	uint32_t ended = w->n_threads - w->n_left, g;

	for (g = 0; g < w->n_simds; g++) {
		const struct soft_simd *s = &w->simd[g];

		if (s->met)
			soft_fail(
				pc,
				"divergence: %d lanes of simdgroup %u wait in %s (line %u), the others have ended or wait elsewhere; %u threads ended, %u wait at threadgroup_barrier",
				__builtin_popcount(s->met), g, kind_names[s->kind], s->line, ended,
				w->waiting);
		if (s->borrowers)
			soft_fail(
				pc,
				"divergence: %d lanes of simdgroup %u want a simdgroup_matrix's elements (line %u), the first lane does not",
				__builtin_popcount(s->borrowers), g, s->line);
	}
	soft_fail(
		pc,
		"divergence: %u threads wait at threadgroup_barrier (line %u), %u have ended without it",
		w->waiting, w->line, ended);
}

static inline void give_way(struct soft_worker *w, struct soft_fiber *me, const void *pc)
{
	struct soft_fiber *f = next_fiber(w, me->t.simdgroup, me->t.lane);

	if (__builtin_expect(f == NULL, 0))
		stuck(w, pc);
	switch_to(w, &me->sp, f);
}

static void fiber_main(void)
{
	struct soft_worker *w = soft_me;

	for (;;) {
		struct soft_fiber *me = w->now, *f;

		w->entry(&w->launch, &me->t);
		w->simd[me->t.simdgroup].ready &= ~(1u << me->t.lane);
		if (--w->n_left == 0)
			break;
		f = next_fiber(w, me->t.simdgroup, me->t.lane);
		if (!f)
			stuck(w, NULL);
		if (!f->fresh)
			switch_to(w, &w->dead_sp, f); /* and never come back */
		settle(f, me->stack);		      /* it runs here, this stack is free */
		w->now = f;
	}
	soft_switch(&w->dead_sp, w->main_sp);
	__builtin_unreachable();
}

/* ---- what kernels call ------------------------------------------------------------- */

#define PC __builtin_return_address(0)

/* True for the lane that comes last; the others come back when it has been. */
static inline bool meet(struct soft_worker *w, struct soft_simd *s, struct soft_fiber *me,
			uint32_t kind, uint32_t line, const void *pc)
{
	uint32_t bit = 1u << me->t.lane;

	if (s->met == 0) {
		s->kind = kind;
		s->line = line;
	} else if (__builtin_expect(s->line != line || s->kind != kind, 0)) {
		soft_fail(
			pc,
			"divergence: lane %u is in %s (line %u), other lanes of its simdgroup in %s (line %u)",
			me->t.lane, kind_names[kind], line, kind_names[s->kind], s->line);
	}
	s->met |= bit;
	if (s->met == s->full) {
		s->met = 0;
		s->ready = s->full;
		s->set ^= 1;
		return true;
	}
	s->ready &= ~bit;
	give_way(w, me, pc);
	return false;
}

/* Halves, quarters and so on: x[i] + x[i + 16] first, the order of msl_nv.h.  Lanes that
 * a last, shorter simdgroup lacks count as `none`. */
#define REDUCE(NAME, KIND, F, T, NONE, X)                                                          \
	T NAME(T x, uint32_t line);                                                                \
	T NAME(T x, uint32_t line)                                                                 \
	{                                                                                          \
		struct soft_worker *w = soft_me;                                                   \
		struct soft_fiber *me = w->now;                                                    \
		struct soft_simd *s = &w->simd[me->t.simdgroup];                                   \
		uint32_t set = s->set;                                                             \
		s->in[set].F[me->t.lane] = x;                                                      \
		if (meet(w, s, me, KIND, line, PC)) {                                              \
			T v[SOFT_LANES];                                                           \
			for (uint32_t i = 0; i < SOFT_LANES; i++)                                  \
				v[i] = s->full >> i & 1 ? s->in[set].F[i] : (NONE);                \
			for (uint32_t n = SOFT_LANES / 2; n; n /= 2) {                             \
				for (uint32_t i = 0; i < n; i++) {                                 \
					T a = v[i], b = v[i + n];                                  \
					v[i] = X;                                                  \
				}                                                                  \
			}                                                                          \
			s->out[set].F[0] = v[0];                                                   \
		}                                                                                  \
		return s->out[set].F[0];                                                           \
	}
REDUCE(soft_sum_float, SUM, f, float, 0.0f, a + b)
REDUCE(soft_max_float, MAX, f, float, -__builtin_inff(), a < b ? b : a)
REDUCE(soft_min_float, MIN, f, float, __builtin_inff(), b < a ? b : a)
REDUCE(soft_sum_uint, SUM, u, uint32_t, 0, a + b)
REDUCE(soft_max_uint, MAX, u, uint32_t, 0, a < b ? b : a)
REDUCE(soft_min_uint, MIN, u, uint32_t, UINT32_MAX, b < a ? b : a)
REDUCE(soft_max_int, MAX, i, int32_t, INT32_MIN, a < b ? b : a)
REDUCE(soft_min_int, MIN, i, int32_t, INT32_MAX, b < a ? b : a)
REDUCE(soft_and_uint, AND, u, uint32_t, UINT32_MAX, a &b)
REDUCE(soft_or_uint, OR, u, uint32_t, 0, a | b)
REDUCE(soft_xor_uint, XOR, u, uint32_t, 0, a ^ b)

/* Each lane adds the lane 1, 2, 4, 8, 16 before it, as in msl_nv.h. */
#define PREFIX_SUM(NAME, F, T)                                                                     \
	T NAME(T x, uint32_t exclusive, uint32_t line);                                            \
	T NAME(T x, uint32_t exclusive, uint32_t line)                                             \
	{                                                                                          \
		struct soft_worker *w = soft_me;                                                   \
		struct soft_fiber *me = w->now;                                                    \
		struct soft_simd *s = &w->simd[me->t.simdgroup];                                   \
		uint32_t set = s->set, lane = me->t.lane;                                          \
		s->in[set].F[lane] = x;                                                            \
		if (meet(w, s, me, PREFIX, line, PC)) {                                            \
			T *v = s->out[set].F;                                                      \
			memcpy(v, s->in[set].F, sizeof s->in[set].F);                              \
			for (uint32_t d = 1; d < SOFT_LANES; d *= 2)                               \
				for (uint32_t i = SOFT_LANES - 1; i >= d; i--)                     \
					v[i] = v[i - d] + v[i];                                    \
		}                                                                                  \
		return !exclusive ? s->out[set].F[lane] : lane ? s->out[set].F[lane - 1] : 0;      \
	}
PREFIX_SUM(soft_prefix_float, f, float)
PREFIX_SUM(soft_prefix_uint, u, uint32_t)

uint32_t soft_ballot(uint32_t x, uint32_t line);
uint32_t soft_ballot(uint32_t x, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];
	uint32_t set = s->set;

	s->in[set].u[me->t.lane] = x;
	if (meet(w, s, me, BALLOT, line, PC)) {
		uint32_t all = 0;

		for (uint32_t i = 0; i < SOFT_LANES; i++)
			all |= (s->full >> i & 1 && s->in[set].u[i]) ? 1u << i : 0;
		s->out[set].u[0] = all;
	}
	return s->out[set].u[0];
}

static inline void lane_exists(const struct soft_simd *s, uint32_t lane, const void *pc)
{
	if (__builtin_expect(lane >= SOFT_LANES || !(s->full >> lane & 1), 0))
		soft_fail(pc, "simd_shuffle from lane %u, which the simdgroup lacks", lane);
}

uint32_t soft_shuffle(uint32_t x, uint32_t lane, uint32_t line);
uint32_t soft_shuffle(uint32_t x, uint32_t lane, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];
	uint32_t set = s->set;

	lane_exists(s, lane, PC);
	s->in[set].u[me->t.lane] = x;
	meet(w, s, me, SHUFFLE, line, PC);
	return s->in[set].u[lane];
}

void soft_shuffle_wide(const void *in, void *out, uint32_t words, uint32_t lane, uint32_t line);
void soft_shuffle_wide(const void *in, void *out, uint32_t words, uint32_t lane, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];
	uint32_t set = s->set;

	lane_exists(s, lane, PC);
	memcpy(s->wide[set][me->t.lane], in, words * sizeof(uint32_t));
	meet(w, s, me, SHUFFLE, line, PC);
	memcpy(out, s->wide[set][lane], words * sizeof(uint32_t));
}

static inline uint32_t matrix_at(uint32_t lane)
{
	uint32_t row = (lane / 4 & 4) + lane / 2 % 4, column = (lane / 4 & 2) * 2 + lane % 2 * 2;

	return row * 8 + column;
}

static inline void whole_simdgroup(const struct soft_simd *s, const void *pc)
{
	if (__builtin_expect(s->full != UINT32_MAX, 0))
		soft_fail(pc, "simdgroup_matrix in a simdgroup of %d threads",
			  __builtin_popcount(s->full));
}

#if defined(__x86_64__)
#define WITH_FMA __attribute__((target("avx2,fma"))) /* soft_start asks whether they are there */
#else
#define WITH_FMA
#endif

/* c += a * b, all 8x8 and row by row: a fused sum over k of each element, in ascending order. */
static WITH_FMA void multiply_8x8(float *restrict c, const float *restrict a,
				  const float *restrict b)
{
	for (uint32_t row = 0; row < 8; row++) {
		float sum[8];

		memcpy(sum, c + row * 8, sizeof sum);
		for (uint32_t k = 0; k < 8; k++)
			for (uint32_t i = 0; i < 8; i++)
				sum[i] = __builtin_fmaf(a[row * 8 + k], b[k * 8 + i], sum[i]);
		memcpy(c + row * 8, sum, sizeof sum);
	}
}

/* Checked shaders: c += a * b, each lane with its own two elements; the last one computes for all. */
void soft_mma(float *c, float a0, float a1, float b0, float b1, uint32_t line);
void soft_mma(float *c, float a0, float a1, float b0, float b1, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];
	uint32_t set = s->set, at = matrix_at(me->t.lane);

	whole_simdgroup(s, PC);
	s->a[set][at] = a0;
	s->a[set][at + 1] = a1;
	s->b[set][at] = b0;
	s->b[set][at + 1] = b1;
	memcpy(&s->c[set][at], c, 2 * sizeof *c);
	if (meet(w, s, me, PRODUCT, line, PC))
		multiply_8x8(s->c[set], s->a[set], s->b[set]);
	memcpy(c, &s->c[set][at], 2 * sizeof *c);
}

/* ---- plain shaders: matrices that the first lane has for all (msl_soft_matrix.h) -------- */

/* The first lane waits until no other lane of its simdgroup can run. */
static void settle_lanes(struct soft_worker *w, struct soft_simd *s, struct soft_fiber *me,
			 const void *pc)
{
	if (s->ready != 1) {
		s->ready &= ~1u;
		s->lead_waits = true;
		give_way(w, me, pc);
	}
	s->n_settled = s->n_lent;
}

void soft_matrix_settle(void);
void soft_matrix_settle(void)
{
	struct soft_worker *w = soft_me;

	settle_lanes(w, &w->simd[w->now->t.simdgroup], w->now, PC);
}

/* The first lane's n-th matrix to be lent, for all lanes to find their elements in. */
void *soft_matrix_lend(void *m, uint32_t line);
void *soft_matrix_lend(void *m, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];
	uint32_t n, bit = 1u << me->t.lane;

	whole_simdgroup(s, PC);
	if (me->t.lane == 0) {
		if (s->n_lent - s->n_settled == SOFT_MAX_LENT)
			settle_lanes(w, s, me, PC);
		n = s->n_lent++ % SOFT_MAX_LENT;
		s->lent[n].matrix = m;
		s->lent[n].line = line;
		s->ready |= s->borrowers;
		s->borrowers = 0;
		return m;
	}
	n = me->n_lent++;
	while (s->n_lent == n) {
		s->ready &= ~bit;
		s->borrowers |= bit;
		s->line = line;
		give_way(w, me, PC);
	}
	n %= SOFT_MAX_LENT;
	if (__builtin_expect(s->lent[n].line != line, 0))
		soft_fail(
			PC,
			"divergence: lane %u wants a simdgroup_matrix's elements in line %u, the first lane in line %u",
			me->t.lane, line, s->lent[n].line);
	return s->lent[n].matrix;
}

#define MEM_THREADGROUP 2

void soft_simdgroup_barrier(uint32_t flags, uint32_t line);
void soft_simdgroup_barrier(uint32_t flags, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;
	struct soft_simd *s = &w->simd[me->t.simdgroup];

	if (meet(w, s, me, BARRIER, line, PC) && flags & MEM_THREADGROUP)
		s->epoch++;
}

void soft_threadgroup_barrier(uint32_t flags, uint32_t line);
void soft_threadgroup_barrier(uint32_t flags, uint32_t line)
{
	struct soft_worker *w = soft_me;
	struct soft_fiber *me = w->now;

	if (w->waiting++ == 0)
		w->line = line;
	else if (__builtin_expect(w->line != line, 0))
		soft_fail(
			PC,
			"divergence: at the threadgroup_barrier of line %u, while others wait at that of line %u",
			line, w->line);
	if (w->waiting == w->n_threads) {
		w->waiting = 0;
		for (uint32_t g = 0; g < w->n_simds; g++)
			w->simd[g].ready = w->simd[g].full;
		if (flags & MEM_THREADGROUP)
			w->epoch++;
		return;
	}
	w->simd[me->t.simdgroup].ready &= ~(1u << me->t.lane);
	give_way(w, me, PC);
}

/* ---- threadgroups -------------------------------------------------------------------- */

static void run_group(struct soft_worker *w, uint64_t group)
{
	const uint32_t *groups = w->d->groups;
	uint32_t at[3] = { (uint32_t)(group % groups[0]), (uint32_t)(group / groups[0] % groups[1]),
			   (uint32_t)(group / groups[0] / groups[1]) };
	uint32_t i, g;

	for (i = 0; i < w->n_threads; i++) {
		memcpy(w->fiber[i].t.group_at, at, sizeof at);
		w->fiber[i].fresh = true;
		w->fiber[i].n_lent = 0;
	}
	for (g = 0; g < w->n_simds; g++) {
		struct soft_simd *s = &w->simd[g];
		uint32_t lanes = w->n_threads - g * SOFT_LANES;

		s->full = s->ready = lanes >= SOFT_LANES ? UINT32_MAX : (1u << lanes) - 1;
		s->met = 0;
		s->lead_waits = false;
		s->n_lent = s->n_settled = s->borrowers = 0;
	}
	w->n_left = w->n_threads;
	w->n_stacks = w->waiting = 0;
	w->epoch++;
	if (w->d->kernel->shader->checked)
		soft_check_group(w);
	switch_to(w, &w->main_sp, &w->fiber[0]);
}

static struct soft_worker *new_worker(void)
{
	struct soft_worker *w = calloc(1, sizeof *w);
	size_t n_bytes = (size_t)(SOFT_MAX_THREADS + 1) * SOFT_STACK_BYTES;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (!w)
		return NULL;
#ifdef MAP_NORESERVE
	flags |= MAP_NORESERVE;
#endif
	w->mapped = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (w->mapped == MAP_FAILED) {
		free(w);
		return NULL;
	}
	w->stacks = w->mapped + (-(uintptr_t)w->mapped & (SOFT_STACK_BYTES - 1));
	return w;
}

/* Threadgroup memory, positions that are the same for all groups, bindings. */
static int prepare(struct soft_worker *w, const struct soft_dispatch *d)
{
	const struct soft_kernel *k = d->kernel;
	size_t n_bytes = d->threadgroup_bytes;
	uint32_t i;

	w->d = d;
	w->entry = (soft_entry)(uintptr_t)k->entry;
	w->n_threads = d->threads[0] * d->threads[1] * d->threads[2];
	w->n_simds = (w->n_threads + SOFT_LANES - 1) / SOFT_LANES;
	w->ranges = pool.ranges;
	w->n_ranges = pool.n_ranges;
	memset(w->last, 0, sizeof w->last);
	if (n_bytes > w->shared_capacity) {
		size_t capacity = (n_bytes + 127) & ~(size_t)127;

		free(w->shared);
		w->shared_capacity = 0;
		w->shared = aligned_alloc(128, capacity);
		if (!w->shared)
			return -ENOMEM;
		w->shared_capacity = capacity;
	}
	w->shared_end = w->shared + n_bytes;
	w->launch.threadgroup_memory = n_bytes ? w->shared : NULL;
	for (i = 0; i < SOFT_MAX_BUFFERS; i++) {
		w->launch.buffer[i] = d->buffer[i].base;
		w->access[i] = SOFT_READ | SOFT_WRITE;
	}
	for (i = 0; i < k->n_arguments; i++)
		if (k->arguments[i].kind != SOFT_THREADGROUP)
			w->access[k->arguments[i].index] = k->arguments[i].access;
	for (i = 0; i < w->n_threads; i++) {
		struct soft_thread *t = &w->fiber[i].t;

		t->at[0] = i % d->threads[0];
		t->at[1] = i / d->threads[0] % d->threads[1];
		t->at[2] = i / d->threads[0] / d->threads[1];
		memcpy(t->group_size, d->threads, sizeof t->group_size);
		memcpy(t->groups, d->groups, sizeof t->groups);
		t->index = i;
		t->lane = i % SOFT_LANES;
		t->simdgroup = i / SOFT_LANES;
		t->simdgroups = w->n_simds;
	}
	return k->shader->checked ? soft_check_prepare(w) : 0;
}

/* Every worker takes groups until none are left. */
static void work(struct soft_worker *w)
{
	const struct soft_dispatch *d = pool.d;
	uint64_t n_groups = (uint64_t)d->groups[0] * d->groups[1] * d->groups[2], i;

	soft_me = w;
	if (prepare(w, d) < 0) {
		if (atomic_exchange(&pool.failed, 1) == 0)
			snprintf(pool.report->text, sizeof pool.report->text, "out of memory");
		return;
	}
	while (!atomic_load(&pool.failed) && (i = atomic_fetch_add(&pool.next, 1)) < n_groups)
		run_group(w, i);
}

static void *worker_main(void *argument)
{
	struct soft_worker *w = argument;
	uint64_t seen = 0;

	for (;;) {
		pthread_mutex_lock(&pool.lock);
		while (pool.round == seen)
			pthread_cond_wait(&pool.go, &pool.lock);
		seen = pool.round;
		pthread_mutex_unlock(&pool.lock);
		work(w);
		pthread_mutex_lock(&pool.lock);
		if (--pool.n_busy == 0)
			pthread_cond_signal(&pool.done);
		pthread_mutex_unlock(&pool.lock);
	}
	return NULL;
}

static struct soft_worker *mine; /* of whoever has the turn */

int soft_start(uint32_t n_workers)
{
	int rc = 0;

#if defined(__x86_64__)
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
	    !__builtin_cpu_supports("bmi2"))
		return -ENOTSUP;
#endif
	pthread_mutex_lock(&pool.turn);
	if (!mine) {
		soft_check_start();
		mine = new_worker();
		if (!mine)
			rc = -ENOMEM;
		else
			pool.n_workers = 1;
	}
	while (rc == 0 && pool.n_workers < n_workers) {
		struct soft_worker *w = new_worker();
		pthread_t thread;

		if (!w) {
			rc = -ENOMEM;
			break;
		}
		rc = -pthread_create(&thread, NULL, worker_main, w);
		if (rc) {
			munmap(w->mapped, (size_t)(SOFT_MAX_THREADS + 1) * SOFT_STACK_BYTES);
			free(w);
			break;
		}
		pthread_detach(thread);
		pool.n_workers++;
	}
	pthread_mutex_unlock(&pool.turn);
	return rc;
}

/* ---- dispatches --------------------------------------------------------------------------- */

/* "kernel, group (x,y,z), thread n, file:line: " before what soft_fail said. */
static void place(const struct soft_dispatch *d, struct soft_report *r)
{
	char said[sizeof r->text];

	memcpy(said, r->text, sizeof said);
	if (pool.failed_at)
		soft_symbol(pool.failed_at, r->where, sizeof r->where);
	snprintf(r->text, sizeof r->text, "%s, group (%u,%u,%u), thread %u%s%s: %.400s",
		 d->kernel->name, r->group[0], r->group[1], r->group[2], r->thread,
		 r->where[0] ? ", " : "", r->where, said);
}

int soft_run(const struct soft_dispatch *d, struct soft_report *report)
{
	uint32_t helpers;
	int rc;

	memset(report, 0, sizeof *report);
	rc = soft_refuse(d, report);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&pool.turn);
	if (!mine) {
		snprintf(report->text, sizeof report->text, "%s: the device was not started",
			 d->kernel->name);
		rc = -EINVAL;
		goto out;
	}
	rc = soft_copy_ranges(&pool.ranges, &pool.n_ranges);
	if (rc < 0) {
		snprintf(report->text, sizeof report->text, "out of memory");
		goto out;
	}
	/* One group is not worth waking anybody. */
	helpers = d->groups[0] * d->groups[1] * d->groups[2] > 1 ? pool.n_workers - 1 : 0;
	pthread_mutex_lock(&pool.lock);
	pool.d = d;
	pool.report = report;
	pool.failed_at = NULL;
	atomic_store(&pool.next, 0);
	atomic_store(&pool.failed, 0);
	if (helpers) {
		pool.n_busy = helpers;
		pool.round++;
		pthread_cond_broadcast(&pool.go);
	}
	pthread_mutex_unlock(&pool.lock);
	work(mine);
	if (helpers) {
		pthread_mutex_lock(&pool.lock);
		while (pool.n_busy)
			pthread_cond_wait(&pool.done, &pool.lock);
		pthread_mutex_unlock(&pool.lock);
	}
	if (atomic_load(&pool.failed)) {
		place(d, report);
		rc = -EFAULT;
	}
out:
	pthread_mutex_unlock(&pool.turn);
	return rc;
}
