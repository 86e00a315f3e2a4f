/* fake_private.h: what the files of the double share. */
#pragma once

#include "tests/metal/fake.h"
#include "tests/metal/soft/soft.h"

#include <pthread.h>
#include <stddef.h>

/* ---- reports (fake_state.c) --------------------------------------------------------- */

/* So many more residency sets are wired; whole programs print how many, if INGOT_FAKE_WIRED is set. */
void fake_wire(int change);
__attribute__((format(printf, 1, 2))) void fake_report(const char *fmt, ...);
/* Count *n down; true when it becomes 0. */
bool fake_due(uint32_t *n);

/* What lives and what was done; changed with __atomic_fetch_add. */
extern struct fake_counts fake_counts;
#define FAKE_ADD(field, n) __atomic_fetch_add(&fake_counts.field, (uint32_t)(n), __ATOMIC_SEQ_CST)

/* ---- memory (fake_memory.c) ------------------------------------------------------------ */

/* A buffer's bytes.  They are mapped twice, so that host and GPU can be kept out of them
 * apart: the host while a command buffer may use them, the GPU while they are not
 * resident.  Views of the caller's memory are mapped once, by the caller. */
/* How far a queue has come: its command buffers are numbered from 1 and run in this order.  Never
 * freed: memory may point to one after the queue is gone. */
struct fake_timeline {
	uint64_t committed, judged;
};

struct fake_memory {
	uint8_t *gpu, *host;
	uint64_t n_bytes, mapped_bytes;
	uint32_t serial;
	bool no_copy, untracked;
	bool freed;			/* the MTLBuffer is gone */
	bool by_address;		/* somebody asked for the GPU's address */
	uint32_t refs;			/* under fake_lock, as all below */
	uint32_t readers, writers;	/* command buffers under way */
	struct fake_timeline *timeline; /* of the queue that uses it, or did last */
	uint32_t resident;		/* reasons to be so */
	bool registered;		/* for kernels that follow addresses */
	uint64_t encoder;		/* the last that touched it */
	struct fake_shadow *shadow;
};

extern pthread_mutex_t fake_lock;

/* base NULL: memory of its own.  NULL when there is none. */
struct fake_memory *fake_memory_create(void *base, uint64_t n_bytes, bool untracked);
void fake_memory_ref(struct fake_memory *m);
void fake_memory_unref(struct fake_memory *m);
/* Under way as an operand on this queue: by +1 or -1. */
void fake_memory_use(struct fake_memory *m, struct fake_timeline *t, bool writes, int by);
void fake_memory_resident(struct fake_memory *m, int by);
/* A command buffer's number when it is committed; what the host did until it was done. */
struct fake_timeline *fake_timeline_take(void);
uint64_t fake_memory_commit(struct fake_timeline *t);
void fake_memory_judge(struct fake_timeline *t, uint64_t number);
void fake_memory_address(struct fake_memory *m);
uint64_t fake_memory_allocated(void);

/* ---- hazards (fake_memory.c): what the dispatch that runs now touches ---------------------- */

struct fake_now {
	uint64_t dispatch; /* serial; 0: none runs */
	uint64_t phase;	   /* serial of the first since the last barrier */
	uint64_t encoder;  /* serial */
	uint64_t ordered;  /* encoders up to here are known to be done */
	const char *kernel;
	bool reported;
};
extern struct fake_now fake_now;

/* ---- commands (fake_run.c) ------------------------------------------------------------------ */

struct fake_binding {
	struct fake_memory *memory; /* NULL: bytes or nothing */
	uint64_t offset;
	uint8_t *bytes;
	uint32_t n_bytes;
};

enum fake_command_kind { FAKE_DISPATCH, FAKE_BARRIER, FAKE_FILL };

struct fake_command {
	struct fake_command *next;
	enum fake_command_kind kind;
	const struct soft_kernel *kernel;
	uint32_t groups[3], threads;
	uint32_t threadgroup_bytes;
	uint32_t n_bindings; /* those above are empty */
	uint8_t fill;
	uint64_t fill_offset, fill_bytes;
	struct fake_binding binding[];
};

/* A fence's state: encoders up to this serial were done when it was updated. */
struct fake_fence {
	uint64_t updated;
};

/* One encoder's commands, in order. */
struct fake_pass {
	struct fake_pass *next;
	struct fake_command *first, **last;
	struct fake_memory **used; /* by useResource: resident while it runs */
	uint32_t n_used;
	struct fake_fence *waits[8], *updates[8];
	uint32_t n_waits, n_updates;
};

struct fake_pass *fake_pass_create(void);
void fake_pass_destroy(struct fake_pass *p);
/* Nothing may run any more that uses it; by -1: it has run. */
void fake_pass_under_way(struct fake_pass *p, struct fake_timeline *t, int by);
/* 0, or -EFAULT: a kernel broke a rule. */
int fake_pass_run(struct fake_pass *p);
