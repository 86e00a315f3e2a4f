/*
 * fake_memory.c: the bytes of the double's buffers, and who may touch them when.
 *
 * While a command buffer that writes a buffer is under way, the host's mapping of it is
 * closed; while one only reads it, it can't be written.  A breach is noticed by the
 * fault.  A write is always a mistake.  A read is one if the GPU changed those bytes
 * afterwards: parts of a buffer that the GPU leaves alone may be read.  After a fault the
 * access goes on, one instruction long (on x86-64; elsewhere the page stays open until
 * the command buffer is done, and only the first access to it is seen).
 *
 * The GPU's mapping is closed while a buffer is not resident.
 *
 * In shaders built with --checked every load and store passes through here on its way to
 * the software device (the linker's --wrap): two dispatches of which no barrier stands
 * between must not touch the same byte, one of them writing.
 */
#include "tests/metal/fake_private.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_MEMORIES 8192
#define MAX_TOUCHES 512
#define MAX_TIMELINES 1024 /* of queues that live at the same time */
#define UNIT 2		   /* bytes that the shadow tells apart */

struct fake_shadow {
	uint32_t writer, reader[2]; /* dispatches */
};

/* A host's access to memory that the GPU may be using. */
struct touch {
	struct fake_memory *memory;
	struct fake_timeline *timeline;
	uint64_t offset, until; /* the last command buffer that was committed there */
	uint32_t was;
	bool writes;
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_now fake_now;

/* Read by the fault handler without the lock: entries change as a whole. */
static struct fake_memory *memories[MAX_MEMORIES];
static uint32_t n_memories; /* the highest that was ever used */
static uint32_t n_serials;
static uint64_t n_allocated;
static struct touch touches[MAX_TOUCHES];
static uint32_t n_touches;
static bool touches_locked;
static struct fake_timeline timelines[MAX_TIMELINES];
static uint32_t n_timelines;
static uint64_t page;

/* Pages that are open for the instruction under way on this thread. */
static __thread struct fake_memory *stepping[4];
static __thread uint32_t n_stepping;

/* ---- protection --------------------------------------------------------------------- */

static int host_protection(const struct fake_memory *m)
{
	return m->writers ? PROT_NONE : m->readers ? PROT_READ : PROT_READ | PROT_WRITE;
}

static void protect(struct fake_memory *m)
{
	if (m->no_copy)
		return;
	mprotect(m->host, m->mapped_bytes, host_protection(m));
	mprotect(m->gpu, m->mapped_bytes, m->resident ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static struct fake_memory *find(uintptr_t at, bool host)
{
	uint32_t n = __atomic_load_n(&n_memories, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++) {
		struct fake_memory *m = __atomic_load_n(&memories[i], __ATOMIC_ACQUIRE);
		if (!m || (host && m->no_copy))
			continue;
		uintptr_t base = (uintptr_t)(host ? m->host : m->gpu);
		if (at >= base && at < base + m->mapped_bytes)
			return m;
	}
	return NULL;
}

static void step_one(void *context)
{
#if defined(__x86_64__) && defined(__linux__)
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= 0x100;
#endif
}

static bool is_write(const void *context)
{
#if defined(__x86_64__) && defined(__linux__)
	return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
	return false; /* judged by what changes */
#endif
}

/* The list's own lock, which a fault handler may take: whoever has it touches no buffer. */
static void lock_touches(void)
{
	while (__atomic_test_and_set(&touches_locked, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock_touches(void) { __atomic_clear(&touches_locked, __ATOMIC_RELEASE); }

static void add_touches(const struct touch *more, uint32_t n)
{
	lock_touches();
	for (uint32_t i = 0; i < n && n_touches < MAX_TOUCHES; i++)
		touches[n_touches++] = more[i];
	unlock_touches();
}

static uint32_t take_touches(struct touch *out)
{
	lock_touches();
	uint32_t n = n_touches;
	memcpy(out, touches, n * sizeof *touches);
	n_touches = 0;
	unlock_touches();
	return n;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	struct fake_memory *m = find(at, true);
	int saved = errno;

	if (m) {
		mprotect(m->host, m->mapped_bytes, PROT_READ | PROT_WRITE);
		errno = saved;
		if (host_protection(m) == (PROT_READ | PROT_WRITE))
			return; /* it was opened meanwhile */
		struct fake_timeline *line = __atomic_load_n(&m->timeline, __ATOMIC_ACQUIRE);
		struct touch t = { .memory = m,
				   .timeline = line,
				   .offset = (at - (uintptr_t)m->host) & ~(uint64_t)3,
				   .writes = is_write(context),
				   .until = __atomic_load_n(&line->committed, __ATOMIC_SEQ_CST) };
		memcpy(&t.was, m->host + t.offset, 4);
		add_touches(&t, 1);
		if (n_stepping < 4)
			stepping[n_stepping++] = m;
		step_one(context);
		return;
	}
	m = find(at, false);
	if (m && !m->no_copy) {
		mprotect(m->gpu, m->mapped_bytes, PROT_READ | PROT_WRITE);
		errno = saved;
		if (m->resident)
			return;
		fake_report("kernel %s reaches buffer %u at byte %llu, which is not resident",
			    fake_now.kernel ? fake_now.kernel : "?", m->serial,
			    (unsigned long long)(at - (uintptr_t)m->gpu));
		return;
	}
	signal(number, SIG_DFL); /* a fault as any other: it comes again and ends the program */
}

static void on_step(int number, siginfo_t *info, void *context)
{
	for (uint32_t i = 0; i < n_stepping; i++) {
		struct fake_memory *m = stepping[i];
		int p = host_protection(m);
		mprotect(m->host, m->mapped_bytes, p);
		if (p != host_protection(m)) /* it was opened or closed meanwhile */
			mprotect(m->host, m->mapped_bytes, host_protection(m));
	}
	n_stepping = 0;
#if defined(__x86_64__) && defined(__linux__)
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
#endif
}

/* Again for every buffer: a test's framework may have put its own in the place. */
static void catch_faults(void)
{
	struct sigaction a = { .sa_flags = SA_SIGINFO };

	page = (uint64_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&a.sa_mask);
	a.sa_sigaction = on_fault;
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGBUS, &a, NULL);
	a.sa_sigaction = on_step;
	sigaction(SIGTRAP, &a, NULL);
}

/* What did the host do while this queue's command buffers up to this number were under way?  Those
 * behind it may change what it read: that is their right. */
void fake_memory_judge(struct fake_timeline *line, uint64_t number)
{
	static struct touch taken[MAX_TOUCHES];

	pthread_mutex_lock(&fake_lock);
	uint32_t n = take_touches(taken), n_kept = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct touch *t = &taken[i];
		struct fake_memory *m = t->memory;
		uint32_t is;
		if (t->timeline != line || t->until > number) {
			taken[n_kept++] = *t;
			continue;
		}
		/* Read when the last that was under way had been judged, and its buffers were not
		 * open again yet: what changed them since came later. */
		if (t->until <= line->judged && !t->writes)
			continue;
		mprotect(m->host, m->mapped_bytes, PROT_READ | PROT_WRITE);
		memcpy(&is, m->host + t->offset, 4);
		protect(m);
		if (t->writes)
			fake_report(
				"the host writes byte %llu of buffer %u while the GPU may use it",
				(unsigned long long)t->offset, m->serial);
		else if (is != t->was)
			fake_report(
				"the host reads byte %llu of buffer %u, and the GPU changes it later",
				(unsigned long long)t->offset, m->serial);
	}
	line->judged = number;
	add_touches(taken, n_kept);
	pthread_mutex_unlock(&fake_lock);
}

struct fake_timeline *fake_timeline_take(void)
{
	return &timelines[__atomic_fetch_add(&n_timelines, 1, __ATOMIC_SEQ_CST) % MAX_TIMELINES];
}

uint64_t fake_memory_commit(struct fake_timeline *t)
{
	return __atomic_add_fetch(&t->committed, 1, __ATOMIC_SEQ_CST);
}

/* ---- life -------------------------------------------------------------------------------- */

/* Two mappings of the same pages, each with a page behind it that nobody may touch. */
static bool map_twice(struct fake_memory *m)
{
	int fd = memfd_create("metal double", MFD_CLOEXEC);
	bool done = false;

	if (fd < 0)
		return false;
	if (ftruncate(fd, (off_t)m->mapped_bytes) == 0) {
		uint8_t **to[2] = { &m->gpu, &m->host };
		done = true;
		for (int i = 0; i < 2; i++) {
			void *p = mmap(NULL, m->mapped_bytes + page, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
			*to[i] = p == MAP_FAILED ? NULL : p;
			if (p == MAP_FAILED ||
			    mmap(p, m->mapped_bytes, i ? PROT_READ | PROT_WRITE : PROT_NONE,
				 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
				done = false;
		}
	}
	close(fd);
	return done;
}

static void unmap(struct fake_memory *m)
{
	if (m->no_copy)
		return;
	if (m->gpu)
		munmap(m->gpu, m->mapped_bytes + page);
	if (m->host)
		munmap(m->host, m->mapped_bytes + page);
}

struct fake_memory *fake_memory_create(void *base, uint64_t n_bytes, bool untracked)
{
	struct fake_memory *m = calloc(1, sizeof *m);
	uint32_t i;

	catch_faults();
	if (!m)
		return NULL;
	m->n_bytes = n_bytes;
	m->mapped_bytes = (n_bytes + page - 1) / page * page;
	m->untracked = untracked;
	m->refs = 1;
	if (base) {
		m->gpu = m->host = base;
		m->no_copy = true;
	} else if (!map_twice(m)) {
		unmap(m);
		free(m);
		return NULL;
	}
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < MAX_MEMORIES && memories[i]; i++)
		;
	if (i == MAX_MEMORIES) {
		pthread_mutex_unlock(&fake_lock);
		unmap(m);
		free(m);
		return NULL;
	}
	m->serial = ++n_serials;
	n_allocated += m->no_copy ? 0 : m->mapped_bytes;
	__atomic_store_n(&memories[i], m, __ATOMIC_RELEASE);
	if (i >= n_memories)
		__atomic_store_n(&n_memories, i + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&fake_lock);
	return m;
}

void fake_memory_ref(struct fake_memory *m)
{
	pthread_mutex_lock(&fake_lock);
	m->refs++;
	pthread_mutex_unlock(&fake_lock);
}

void fake_memory_unref(struct fake_memory *m)
{
	pthread_mutex_lock(&fake_lock);
	bool last = --m->refs == 0;
	for (uint32_t i = 0; last && i < n_memories; i++)
		if (memories[i] == m)
			__atomic_store_n(&memories[i], NULL, __ATOMIC_RELEASE);
	lock_touches();
	for (uint32_t i = 0; last && i < n_touches; i++)
		if (touches[i].memory == m)
			touches[i--] = touches[--n_touches];
	unlock_touches();
	if (last) {
		n_allocated -= m->no_copy ? 0 : m->mapped_bytes;
		if (m->registered)
			soft_unregister_range(m->gpu);
	}
	pthread_mutex_unlock(&fake_lock);
	if (!last)
		return;
	unmap(m);
	free(m->shadow);
	free(m);
}

uint64_t fake_memory_allocated(void)
{
	pthread_mutex_lock(&fake_lock);
	uint64_t n = n_allocated;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

/* ---- use ----------------------------------------------------------------------------------- */

void fake_memory_use(struct fake_memory *m, struct fake_timeline *t, bool writes, int by)
{
	pthread_mutex_lock(&fake_lock);
	__atomic_store_n(&m->timeline, t, __ATOMIC_RELEASE);
	uint32_t *n = writes ? &m->writers : &m->readers;
	*n += (uint32_t)by;
	protect(m);
	pthread_mutex_unlock(&fake_lock);
}

/* Kernels may follow addresses into what is resident and has an address that is known. */
static void show_to_kernels(struct fake_memory *m)
{
	bool wanted = m->resident && m->by_address;

	if (wanted == m->registered)
		return;
	if (wanted)
		soft_register_range(m->gpu, m->n_bytes);
	else
		soft_unregister_range(m->gpu);
	m->registered = wanted;
}

void fake_memory_resident(struct fake_memory *m, int by)
{
	pthread_mutex_lock(&fake_lock);
	bool was = m->resident != 0;
	m->resident += (uint32_t)by;
	if (was != (m->resident != 0)) {
		protect(m);
		show_to_kernels(m);
	}
	pthread_mutex_unlock(&fake_lock);
}

void fake_memory_address(struct fake_memory *m)
{
	pthread_mutex_lock(&fake_lock);
	m->by_address = true;
	show_to_kernels(m);
	pthread_mutex_unlock(&fake_lock);
}

/* ---- hazards --------------------------------------------------------------------------------- */

static void hazard(const struct fake_memory *m, uint64_t at, const char *does, const char *did,
		   uint32_t other)
{
	if (fake_now.reported)
		return;
	fake_now.reported = true;
	fake_report(
		"kernel %s (dispatch %llu) %s byte %llu of buffer %u, which dispatch %u %s with no "
		"barrier between",
		fake_now.kernel, (unsigned long long)fake_now.dispatch, does,
		(unsigned long long)at, m->serial, other, did);
}

static void note(struct fake_memory *m, uint64_t at, bool write)
{
	struct fake_shadow *s = &m->shadow[at / UNIT];
	uint32_t me = (uint32_t)fake_now.dispatch, first = (uint32_t)fake_now.phase;

	if (s->writer >= first && s->writer != me)
		hazard(m, at, write ? "writes" : "reads", "wrote", s->writer);
	for (int i = 0; i < 2; i++)
		if (write && s->reader[i] >= first && s->reader[i] != me)
			hazard(m, at, "writes", "read", s->reader[i]);
	if (write) {
		s->writer = me;
	} else if (s->reader[0] != me) {
		s->reader[1] = s->reader[0];
		s->reader[0] = me;
	}
}

/* A memory of the GPU, or the addresses between two of them. */
struct place {
	uintptr_t from, n_bytes;
	struct fake_memory *memory; /* NULL: there is none */
};

static struct place place_of(uintptr_t at)
{
	uint32_t n = __atomic_load_n(&n_memories, __ATOMIC_ACQUIRE);
	uintptr_t below = 0, above = UINTPTR_MAX;
	struct fake_memory *m = find(at, false);

	if (m)
		return (struct place){ (uintptr_t)m->gpu, m->mapped_bytes, m };
	for (uint32_t i = 0; i < n; i++) {
		m = __atomic_load_n(&memories[i], __ATOMIC_ACQUIRE);
		uintptr_t from = m ? (uintptr_t)m->gpu : 0, to = m ? from + m->mapped_bytes : 0;
		if (to <= at)
			below = to > below ? to : below;
		else
			above = from < above ? from : above;
	}
	return (struct place){ below, above - below, NULL };
}

/* Where the GPU's accesses go.  What was found is kept for the rest of the dispatch, also where there is nothing: most are
 * to stacks and threadgroup memory. */
static inline struct fake_memory *find_again(uintptr_t at)
{
	static __thread struct place known[8];
	static __thread uint64_t dispatch;
	static __thread uint32_t next, last;

	if (dispatch == fake_now.dispatch && at - known[last].from < known[last].n_bytes)
		return known[last].memory;
	if (dispatch != fake_now.dispatch) {
		memset(known, 0, sizeof known);
		dispatch = fake_now.dispatch;
	}
	for (last = 0; last < 8; last++)
		if (at - known[last].from < known[last].n_bytes)
			return known[last].memory;
	last = next++ % 8;
	known[last] = place_of(at);
	return known[last].memory;
}

static void __attribute__((noinline)) touched_memory(struct fake_memory *m, uintptr_t at, size_t n,
						     bool write)
{
	if (m->no_copy && !write)
		return;
	if (m->untracked && m->encoder > fake_now.ordered && m->encoder != fake_now.encoder &&
	    !fake_now.reported) {
		fake_now.reported = true;
		fake_report(
			"kernel %s touches buffer %u, which is untracked, as an encoder before did, "
			"and no fence is between",
			fake_now.kernel, m->serial);
	}
	m->encoder = fake_now.encoder;
	if (!m->shadow)
		m->shadow = calloc(m->mapped_bytes / UNIT, sizeof *m->shadow);
	uint64_t first = at - (uintptr_t)m->gpu, room = m->mapped_bytes - first;
	uint64_t end = first + (n < room ? n : room);
	for (uint64_t i = first; m->shadow && i < end; i += UNIT - i % UNIT)
		note(m, i, write);
}

static void touched(const void *p, size_t n, bool write)
{
	struct fake_memory *m;

	if (!fake_now.dispatch || !n)
		return;
	m = find_again((uintptr_t)p);
	if (m) /* not a stack, threadgroup memory or constants */
		touched_memory(m, (uintptr_t)p, n, write);
}

/* The call after it is the last thing each does, so that the software device sees the
 * kernel's own address as the one to return to. */
#define WRAP(NAME)                                                                                 \
	void __real_soft_check_##NAME##_noabort(const void *p);                                    \
	void __wrap_soft_check_##NAME##_noabort(const void *p);
#define WRAP_SIZE(N)                                                                               \
	WRAP(load##N)                                                                              \
	WRAP(store##N)                                                                             \
	void __wrap_soft_check_load##N##_noabort(const void *p)                                    \
	{                                                                                          \
		touched(p, N, false);                                                              \
		__real_soft_check_load##N##_noabort(p);                                            \
	}                                                                                          \
	void __wrap_soft_check_store##N##_noabort(const void *p)                                   \
	{                                                                                          \
		touched(p, N, true);                                                               \
		__real_soft_check_store##N##_noabort(p);                                           \
	}
WRAP_SIZE(1)
WRAP_SIZE(2)
WRAP_SIZE(4)
WRAP_SIZE(8)
WRAP_SIZE(16)

void __real_soft_check_loadN_noabort(const void *p, size_t n);
void __wrap_soft_check_loadN_noabort(const void *p, size_t n);
void __wrap_soft_check_loadN_noabort(const void *p, size_t n)
{
	touched(p, n, false);
	__real_soft_check_loadN_noabort(p, n);
}

void __real_soft_check_storeN_noabort(const void *p, size_t n);
void __wrap_soft_check_storeN_noabort(const void *p, size_t n);
void __wrap_soft_check_storeN_noabort(const void *p, size_t n)
{
	touched(p, n, true);
	__real_soft_check_storeN_noabort(p, n);
}

void *__real_soft_check_memcpy(void *to, const void *from, size_t n);
void *__wrap_soft_check_memcpy(void *to, const void *from, size_t n);
void *__wrap_soft_check_memcpy(void *to, const void *from, size_t n)
{
	touched(from, n, false);
	touched(to, n, true);
	return __real_soft_check_memcpy(to, from, n);
}
