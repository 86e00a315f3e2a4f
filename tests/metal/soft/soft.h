/*
 * soft.h: a Metal device in software, for tests.
 *
 * Shaders compiled by `msl soft` (tools/msl) put themselves into a table when the
 * program starts; soft_run runs one of their kernels over a grid and comes back
 * when it is done.  A threadgroup runs on one worker thread, its threads as fibers
 * that give way at barriers and simdgroup functions.  A kernel that breaks a rule is
 * stopped, and a report says which rule, which kernel, group and thread, and where
 * in the source.
 *
 * Found in every build: divergence (a barrier or simdgroup function that not all
 * threads reach, or two different ones), dispatches that no GPU would run.  Found in
 * shaders built with --checked: accesses outside the buffers bound to the dispatch,
 * misaligned ones, races on threadgroup memory, and, as NaN, threadgroup memory that
 * nobody wrote.  Not found: races on device memory.
 *
 * It runs compute kernels and knows nothing of command buffers, resources or hazards
 * between dispatches: that is the business of whoever stands between it and a driver.
 */
#ifndef SOFT_H
#define SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_MAX_THREADS 1024
#define SOFT_MAX_BUFFERS 31
#define SOFT_MAX_THREADGROUP_BYTES 32768

enum soft_kind {
	SOFT_CONSTANTS = 1,   /* `constant T &`: `size` bytes are read */
	SOFT_BUFFER = 2,      /* an address in device memory */
	SOFT_THREADGROUP = 3, /* threadgroup memory; index 0 */
};

enum soft_access {
	SOFT_READ = 1,
	SOFT_WRITE = 2, /* the pointer is not to const */
};

struct soft_argument {
	uint32_t kind;	 /* enum soft_kind */
	uint32_t index;	 /* of [[buffer(index)]] */
	uint32_t size;	 /* SOFT_CONSTANTS: of the struct */
	uint32_t access; /* enum soft_access, or-ed */
};

struct soft_shader;

struct soft_kernel {
	const char *name;
	const struct soft_shader *shader;
	const struct soft_argument *arguments;
	uint32_t n_arguments;
	uint32_t max_threads; /* maxTotalThreadsPerThreadgroup */
	uint64_t entry;
};

struct soft_shader {
	const char *name;     /* "core/linear" */
	uint64_t source_hash; /* FNV-1a of the flattened text (msl flatten) */
	uint32_t source_bytes;
	bool checked;
	const struct soft_kernel *kernels;
	uint32_t n_kernels;
};

/* All shaders of this program; soft_shader(n) is NULL after the last. */
const struct soft_shader *soft_shader(uint32_t i);
const struct soft_shader *soft_find_shader(const char *name);
/* The shader that was made from exactly this text, or NULL. */
const struct soft_shader *soft_find_source(const char *text, size_t n_bytes);
/* In one shader, or, with NULL, in all. */
const struct soft_kernel *soft_find_kernel(const struct soft_shader *s, const char *name);

struct soft_binding {
	void *base;	  /* NULL: nothing bound */
	uint64_t n_bytes; /* from base to the end of the buffer */
};

struct soft_dispatch {
	const struct soft_kernel *kernel;
	uint32_t groups[3];	    /* threadgroups of the grid */
	uint32_t threads[3];	    /* threads of a threadgroup */
	uint32_t threadgroup_bytes; /* of [[threadgroup(0)]] */
	struct soft_binding buffer[SOFT_MAX_BUFFERS];
};

/* What went wrong: `text` is all of it in one line. */
struct soft_report {
	char text[640];
	char where[128]; /* "linear.metal:88", or empty */
	uint32_t group[3];
	uint32_t thread; /* in its threadgroup */
};

/* Start workers (from 1 on, the caller's thread among them), once a process.  0, or
 * -errno: -ENOTSUP where this processor cannot run what the shaders are compiled for. */
int soft_start(uint32_t n_workers);

/* Run a dispatch to its end.  0; -EINVAL: refused, nothing ran; -EFAULT: a kernel broke
 * a rule and was stopped.  Any thread may call; dispatches run one after another. */
int soft_run(const struct soft_dispatch *d, struct soft_report *report);

/* Memory that kernels may reach by addresses that they read from a buffer.  0, -ENOMEM,
 * or -EINVAL (empty, or it overlaps another).  Takes effect with the next dispatch. */
int soft_register_range(void *base, uint64_t n_bytes);
int soft_unregister_range(void *base); /* -ENOENT if it is none */

#endif
