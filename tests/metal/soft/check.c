/*
 * check.c: what shaders built with --checked call before each of their loads and
 * stores (tools/msl/common.py, CHECKED).
 *
 * An access must lie in a buffer bound to the dispatch, in a registered range, in
 * threadgroup memory or on the fiber's stack, and a vector at a multiple of its size.
 * Two threads must not touch a byte of threadgroup memory, one of them writing, without
 * a barrier between that orders it: a shadow of that memory holds the last writer and two
 * readers, and how many barriers there had been; of two bytes, and of each of them once somebody
 * touches one alone.
 */
#include "private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <link.h>
#endif

#define ATOMIC 0x8000u /* in `thread`: not a plain access */

struct touch {
	uint32_t epoch; /* groups and threadgroup barriers before it */
	uint16_t thread;
	uint16_t simd_epoch; /* simdgroup barriers before it, the low 16 bits */
};
struct soft_shadow {
	struct touch write, read[2];
}; /* of two bytes, or, if they are split, of the even one; those of the odd ones lie behind all */
#define UNIT 2

/* Where the program's constants are: nothing may be written there, all may read. */
static struct soft_range constants[64];
static uint32_t n_constants;

#ifdef __linux__
static int note_segment(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if ((p->p_type == PT_LOAD && !(p->p_flags & PF_W)) || p->p_type == PT_GNU_RELRO) {
			if (n_constants == sizeof constants / sizeof *constants)
				return 1;
			constants[n_constants++] = (struct soft_range){
				info->dlpi_addr + p->p_vaddr,
				info->dlpi_addr + p->p_vaddr + p->p_memsz,
			};
		}
	}
	return info->dlpi_name[0] == '\0' ? 1 : 0; /* the program itself comes first */
}

void soft_check_start(void) { dl_iterate_phdr(note_segment, NULL); }
#else
void soft_check_start(void) {}
#endif

int soft_check_prepare(struct soft_worker *w)
{
	size_t n = ((size_t)(w->shared_end - w->shared) + UNIT - 1) / UNIT;

	if (w->shadow_capacity < n) {
		free(w->shadow);
		free(w->split);
		w->shadow_capacity = 0;
		w->shadow = calloc(n * UNIT, sizeof *w->shadow);
		w->split = malloc(n);
		if (!w->shadow || !w->split)
			return -ENOMEM;
		w->shadow_capacity = n;
	}
	if (n)
		memset(w->split, 0, n);
	return 0;
}

void soft_check_group(struct soft_worker *w)
{
	size_t n = (size_t)(w->shared_end - w->shared);

	if (n)
		memset(w->shared, 0xff, n); /* NaN, until somebody writes */
}

/* May this thread's access follow that one unordered? */
static __attribute__((always_inline)) inline bool apart(const struct soft_worker *w,
							const struct touch *old, uint16_t me)
{
	uint32_t thread = old->thread & ~ATOMIC, simdgroup = (me & ~ATOMIC) / SOFT_LANES;

	if (old->epoch != w->epoch || thread == (me & ~ATOMIC) || (old->thread & me & ATOMIC))
		return true;
	return thread / SOFT_LANES == simdgroup &&
	       old->simd_epoch != (uint16_t)w->simd[simdgroup].epoch;
}

static void __attribute__((noinline, noreturn, cold)) race(struct soft_worker *w, const void *pc,
							   uintptr_t at, const struct touch *old,
							   const char *does, const char *did)
{
	soft_fail(pc, "race: %s threadgroup byte %zu, which thread %u %s with no barrier between",
		  does, (size_t)(at - (uintptr_t)w->shared), old->thread & ~ATOMIC, did);
}

/* One access to what a shadow is of; `at` is for the report. */
static __attribute__((always_inline)) inline void shadow_access(struct soft_worker *w,
								const void *pc, uintptr_t at,
								struct soft_shadow *s,
								const struct touch *me, bool write)
{
	if (!apart(w, &s->write, me->thread))
		race(w, pc, at, &s->write, write ? "writes" : "reads", "wrote");
	if (write) {
		for (int r = 0; r < 2; r++)
			if (!apart(w, &s->read[r], me->thread))
				race(w, pc, at, &s->read[r], "writes", "read");
		s->write = *me;
	} else if (s->read[0].epoch != w->epoch || s->read[0].thread == me->thread) {
		s->read[0] = *me;
	} else {
		s->read[1] = *me;
	}
}

/* Bytes of which some are one of their unit alone, or lie in one that is split. */
static void __attribute__((noinline)) split_access(struct soft_worker *w, const void *pc,
						   size_t from, size_t n, const struct touch *me,
						   bool write)
{
	for (; n; n--, from++) {
		size_t unit = from / UNIT;
		struct soft_shadow *even = w->shadow + unit,
				   *odd = w->shadow + w->shadow_capacity + unit;

		if (!w->split[unit]) {
			*odd = *even;
			w->split[unit] = 1;
		}
		shadow_access(w, pc, (uintptr_t)w->shared + from, from % UNIT ? odd : even, me,
			      write);
	}
}

static __attribute__((always_inline)) inline void shared_access(struct soft_worker *w,
								const void *pc, uintptr_t at,
								size_t n, bool write,
								uint16_t atomic)
{
	const struct soft_thread *t = &w->now->t;
	struct touch me = { w->epoch, (uint16_t)(t->index | atomic),
			    (uint16_t)w->simd[t->simdgroup].epoch };
	size_t from = at - (uintptr_t)w->shared, unit = from / UNIT;

	if (__builtin_expect((from | n) % UNIT != 0, 0)) {
		split_access(w, pc, from, n, &me, write);
		return;
	}
	for (; n; n -= UNIT, unit++) {
		if (__builtin_expect(w->split[unit], 0))
			split_access(w, pc, unit * UNIT, UNIT, &me, write);
		else
			shadow_access(w, pc, (uintptr_t)w->shared + unit * UNIT, w->shadow + unit,
				      &me, write);
	}
}

#define FAR ((uintptr_t)1 << 34) /* beyond that an address is not an index gone wrong */

static void __attribute__((noinline, noreturn, cold)) outside(struct soft_worker *w, const void *pc,
							      uintptr_t at, size_t n, bool write)
{
	/* Name the nearest thing below it. */
	const struct soft_dispatch *d = w->d;
	const char *does = write ? "writes" : "reads";
	uintptr_t best = 0;
	int which = -1;

	for (int i = 0; i < SOFT_MAX_BUFFERS; i++) {
		uintptr_t base = (uintptr_t)d->buffer[i].base;

		if (base && base <= at && base >= best) {
			best = base;
			which = i;
		}
	}
	if (w->shared && (uintptr_t)w->shared <= at && (uintptr_t)w->shared >= best &&
	    at - (uintptr_t)w->shared < FAR)
		soft_fail(pc,
			  "out of bounds: %s %zu bytes at %zu of threadgroup memory, which has %zu",
			  does, n, (size_t)(at - (uintptr_t)w->shared),
			  (size_t)(w->shared_end - w->shared));
	if (which >= 0 && at - best < FAR)
		soft_fail(pc, "out of bounds: %s %zu bytes at %zu of buffer %d, which has %llu",
			  does, n, (size_t)(at - best), which,
			  (unsigned long long)d->buffer[which].n_bytes);
	soft_fail(pc, "out of bounds: %s %zu bytes at %#llx, which is in no buffer", does, n,
		  (unsigned long long)at);
}

/* The entry of a place in the code.  Most places only ever look into one buffer. */
static inline uint32_t last_of(const void *pc)
{
	return (uint32_t)((uintptr_t)pc >> 2) & (SOFT_N_LAST - 1);
}

static void keep_last(struct soft_worker *w, const void *pc, uintptr_t from, size_t n_bytes,
		      bool written)
{
	uint32_t i = last_of(pc);

	w->last[i].from = from;
	w->last[i].n_bytes = n_bytes;
	w->last[i].written = written;
}

static bool in_range(struct soft_worker *w, const void *pc, uintptr_t at, size_t n)
{
	uint32_t low = 0, high = w->n_ranges;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (w->ranges[middle].to <= at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == w->n_ranges || at < w->ranges[low].from || at + n > w->ranges[low].to)
		return false;
	keep_last(w, pc, w->ranges[low].from, w->ranges[low].to - w->ranges[low].from, true);
	return true;
}

static void __attribute__((noinline)) device_access(struct soft_worker *w, const void *pc,
						    uintptr_t at, size_t n, bool write)
{
	int only_read = -1;
	uint32_t i;

	for (i = 0; i < SOFT_MAX_BUFFERS; i++) {
		uintptr_t base = (uintptr_t)w->d->buffer[i].base;

		if (!base || at < base || at + n > base + w->d->buffer[i].n_bytes)
			continue;
		if (write && !(w->access[i] & SOFT_WRITE)) {
			only_read = (int)i;
			continue;
		}
		keep_last(w, pc, base, w->d->buffer[i].n_bytes, (w->access[i] & SOFT_WRITE) != 0);
		return;
	}
	if (in_range(w, pc, at, n))
		return;
	if (only_read >= 0)
		soft_fail(pc, "writes to buffer %d, which the kernel declares const", only_read);
	if (!write) {
		if (at >= (uintptr_t)w && at + n <= (uintptr_t)(w + 1)) {
			/* what the entry point hands to the kernel */
			keep_last(w, pc, (uintptr_t)w, sizeof *w, false);
			return;
		}
		for (i = 0; i < n_constants; i++)
			if (at >= constants[i].from && at + n <= constants[i].to) {
				keep_last(w, pc, constants[i].from,
					  constants[i].to - constants[i].from, false);
				return;
			}
	}
	outside(w, pc, at, n, write);
}

static __attribute__((always_inline)) inline void
touch(const void *p, size_t n, bool write, size_t align, uint16_t atomic, const void *pc)
{
	struct soft_worker *w = soft_me;
	uintptr_t at = (uintptr_t)p;
	uint32_t i = last_of(pc);

	if (n == 0)
		return;
	if (at - w->last[i].from < w->last[i].n_bytes &&
	    w->last[i].n_bytes - (at - w->last[i].from) >= n && (!write || w->last[i].written) &&
	    (at & (align - 1)) == 0)
		return;
	if (__builtin_expect(at + n < at, 0))
		outside(w, pc, at, n, write);
	if (at >= (uintptr_t)w->now->stack && at + n <= (uintptr_t)w->now->stack + SOFT_STACK_BYTES)
		return;
	if (__builtin_expect((at & (align - 1)) != 0, 0))
		soft_fail(pc, "misaligned: %s %zu bytes at an address that is a multiple of %zu",
			  write ? "writes" : "reads", n, (size_t)(at & -at));
	if (at >= (uintptr_t)w->shared && at + n <= (uintptr_t)w->shared_end)
		shared_access(w, pc, at, n, write, atomic);
	else
		device_access(w, pc, at, n, write);
}

#define PC __builtin_return_address(0)
#define HOOK(N)                                                                                    \
	void soft_check_load##N##_noabort(const void *p);                                          \
	void soft_check_load##N##_noabort(const void *p) { touch(p, N, false, N, 0, PC); }         \
	void soft_check_store##N##_noabort(const void *p);                                         \
	void soft_check_store##N##_noabort(const void *p) { touch(p, N, true, N, 0, PC); }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

/* Of other sizes, or with less alignment than size: said by the kernel, so no mistake. */
void soft_check_loadN_noabort(const void *p, size_t n);
void soft_check_loadN_noabort(const void *p, size_t n) { touch(p, n, false, 1, 0, PC); }
void soft_check_storeN_noabort(const void *p, size_t n);
void soft_check_storeN_noabort(const void *p, size_t n) { touch(p, n, true, 1, 0, PC); }

void *soft_check_memcpy(void *to, const void *from, size_t n);
void *soft_check_memcpy(void *to, const void *from, size_t n)
{
	touch(from, n, false, 1, 0, PC);
	touch(to, n, true, 1, 0, PC);
	return memcpy(to, from, n);
}
void *soft_check_memmove(void *to, const void *from, size_t n);
void *soft_check_memmove(void *to, const void *from, size_t n)
{
	touch(from, n, false, 1, 0, PC);
	touch(to, n, true, 1, 0, PC);
	return memmove(to, from, n);
}
void *soft_check_memset(void *to, int c, size_t n);
void *soft_check_memset(void *to, int c, size_t n)
{
	touch(to, n, true, 1, 0, PC);
	return memset(to, c, n);
}

/* ---- atomics ------------------------------------------------------------------------- */

/* As in msl_soft.h. */
enum { LOAD, STORE, EXCHANGE, ADD, ADD_FLOAT, AND, OR, XOR, MAX_I, MIN_I, MAX_U, MIN_U };

static uint32_t apply(uint32_t op, uint32_t was, uint32_t x)
{
	float a, b;

	switch (op) {
	case STORE:
	case EXCHANGE: return x;
	case ADD: return was + x;
	case ADD_FLOAT:
		memcpy(&a, &was, sizeof a);
		memcpy(&b, &x, sizeof b);
		a += b;
		memcpy(&x, &a, sizeof x);
		return x;
	case AND: return was & x;
	case OR: return was | x;
	case XOR: return was ^ x;
	case MAX_I: return (int32_t)was < (int32_t)x ? x : was;
	case MIN_I: return (int32_t)x < (int32_t)was ? x : was;
	case MAX_U: return was < x ? x : was;
	case MIN_U: return x < was ? x : was;
	default: return was;
	}
}

uint32_t soft_atomic(uint32_t op, void *p, uint32_t x);
uint32_t soft_atomic(uint32_t op, void *p, uint32_t x)
{
	uint32_t *at = p, was;

	touch(p, 4, op != LOAD, 4, ATOMIC, PC);
	was = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (op != LOAD && !__atomic_compare_exchange_n(at, &was, apply(op, was, x), true,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return was;
}

uint32_t soft_atomic_compare(void *p, uint32_t *expected, uint32_t x);
uint32_t soft_atomic_compare(void *p, uint32_t *expected, uint32_t x)
{
	touch(p, 4, true, 4, ATOMIC, PC);
	return __atomic_compare_exchange_n((uint32_t *)p, expected, x, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}
