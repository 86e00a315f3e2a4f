/*
 * private.h: what the software device's own files share.  struct soft_launch and
 * struct soft_thread are also declared in tools/msl/include/msl_soft.h, for kernels.
 */
#ifndef SOFT_PRIVATE_H
#define SOFT_PRIVATE_H

#include "soft.h"

#define SOFT_STACK_BYTES (64 * 1024)
#define SOFT_LANES 32
#define SOFT_MAX_LENT 64
#define SOFT_N_LAST 128 /* a power of two */

struct soft_launch {
	void *buffer[SOFT_MAX_BUFFERS];
	void *threadgroup_memory;
};

struct soft_thread {
	uint32_t at[3], group_at[3], group_size[3], groups[3];
	uint32_t index, lane, simdgroup, simdgroups;
};

typedef void (*soft_entry)(const struct soft_launch *l, const struct soft_thread *t);

struct soft_range {
	uintptr_t from, to;
};

/* Values are handed over in two sets in turn: nobody writes a set again before all have
 * left the function that reads it, because the next one needs them all. */
struct soft_simd {
	uint32_t ready;	     /* lanes that can run; a bit a lane */
	uint32_t met;	     /* lanes that wait in the function under way */
	uint32_t full;	     /* lanes there are */
	uint32_t kind, line; /* of the function under way */
	uint32_t set;
	uint32_t epoch; /* simdgroup barriers so far that order threadgroup memory */
	union {
		float f[SOFT_LANES];
		uint32_t u[SOFT_LANES];
		int32_t i[SOFT_LANES];
	} in[2], out[2];
	uint32_t wide[2][SOFT_LANES][4];
	float a[2][64], b[2][64], c[2][64];
	/* Matrices that lane 0 has lent out, and how many at the last time that no other lane
	 * could run: then all had come to the last of them. */
	struct {
		void *matrix;
		uint32_t line;
	} lent[SOFT_MAX_LENT];
	uint32_t n_lent, n_settled;
	uint32_t borrowers; /* lanes that wait for lane 0 to lend one more */
	bool lead_waits;    /* lane 0, until no other lane can run */
};

struct soft_fiber {
	void *sp;
	char *stack;	 /* its lower end */
	bool fresh;	 /* not begun */
	uint32_t n_lent; /* matrices that lane 0 has lent it */
	struct soft_thread t;
};

/* One worker thread, and the threadgroup that it runs. */
struct soft_worker {
	struct soft_fiber fiber[SOFT_MAX_THREADS];
	struct soft_simd simd[SOFT_MAX_THREADS / SOFT_LANES];
	struct soft_fiber *now;
	const struct soft_dispatch *d;
	soft_entry entry;
	uint32_t n_threads, n_simds;
	uint32_t n_left;	/* threads that have not ended */
	uint32_t n_stacks;	/* in use */
	uint32_t waiting, line; /* at the threadgroup barrier */
	uint32_t epoch; /* groups and threadgroup barriers so far that order threadgroup memory */
	void *main_sp, *dead_sp;
	char *mapped, *stacks;	   /* stacks: the first, at a multiple of SOFT_STACK_BYTES */
	char *shared, *shared_end; /* threadgroup memory */
	size_t shared_capacity;
	struct soft_launch launch;
	uint32_t access[SOFT_MAX_BUFFERS]; /* that the kernel declares */
	struct soft_shadow *shadow;	   /* of threadgroup memory; checked shaders */
	uint8_t *split;			   /* by unit of the shadow (check.c) */
	size_t shadow_capacity;		   /* units */
	const struct soft_range *ranges;   /* ascending; of this dispatch */
	uint32_t n_ranges;
	/* Where the last access was of the places in the code that share an entry. */
	struct {
		uintptr_t from;
		size_t n_bytes;
		bool written; /* may be */
	} last[SOFT_N_LAST];
};

extern __thread struct soft_worker *soft_me __attribute__((tls_model("initial-exec")));

/* Stop the kernel with a report; `pc` is an address in it. */
void soft_fail(const void *pc, const char *format, ...)
	__attribute__((noreturn, cold, format(printf, 2, 3)));

/* bindings.c: whether the dispatch can run: 0, or -EINVAL with the reason. */
int soft_refuse(const struct soft_dispatch *d, struct soft_report *r);
/* The dispatch's own copy of the registered ranges, until the next one's; the caller has the turn. */
int soft_copy_ranges(const struct soft_range **list, uint32_t *n);

/* check.c: before a group of a checked shader; -ENOMEM. */
int soft_check_prepare(struct soft_worker *w);
void soft_check_group(struct soft_worker *w);
void soft_check_start(void);

#endif
