/*
 * cpu_private.h: the cpu driver's program.  A lowered plan is a list of phases with a barrier
 * between them; one of a single unit is a part of the barrier before it.  A phase of rows may chain several kernels, each of which reads only its own row of
 * the previous result; any other phase may have several kernels that are independent of each other.
 */
#pragma once

#include "runtime/cpu/isa.h"
#include "runtime/cpu/pool.h"
#include "runtime/driver_private.h"

#include <stdatomic.h>

struct cpu_driver {
	struct ig_driver base;
	struct ig_pool *pool;
	uint32_t isa;	     /* enum ig_isa */
	bool f32;	     /* activations stay float32 */
	bool mapped_experts; /* experts' weights are read from the mapped file */
	uint32_t strict;
	char text[96];
};

/* A weight's memory. */
struct cpu_weight {
	uint32_t layout; /* IG_LAYOUT_ROWS (vectors, mapped experts) or IG_LAYOUT_TILE16 */
	bool used;
	bool mapped;		/* read from the mapped file, not in weight_mem */
	uint64_t offset, bytes; /* in weight_mem */
};

/* Scratch memory of a value, in one layout, in the phases that need it. */
struct cpu_buffer {
	uint64_t row_bytes; /* 0: it has no rows, and `bytes` is given */
	uint32_t row_class;
	uint32_t first_phase, last_phase;
	uint64_t offset, bytes; /* in scratch_mem */
};

/* The memory of an operand. */
struct cpu_operand {
	int32_t buffer;	     /* negative: none */
	uint64_t col_offset; /* bytes into the row */
};

struct cpu_launch {
	const struct ig_cpu_kernel *kernel;
	struct ig_op_launch launch; /* complete except for the numbers of rows and the step */
	struct cpu_operand in[IG_MAX_IN], out[IG_MAX_OUT];
	int32_t weight[IG_MAX_WEIGHTS]; /* index in the plan; negative: none */
	uint32_t row_class;		/* of the rows that it computes */
	int32_t shared;			/* buffer of what its workers share; negative: none */
};

struct cpu_phase {
	uint32_t first_launch, n_launches;
	bool rows;   /* a chain of kernels whose units are rows */
	bool of_mtp; /* of the head: only in steps that have it */
};

/* Counts the units of one phase.  n_units is set before the phase opens. */
struct cpu_counter {
	_Alignas(64) atomic_int_fast64_t taken;
	atomic_int_fast64_t finished;
	int64_t n_units;
};

struct cpu_program {
	struct ig_program base;
	struct cpu_driver *driver;
	const struct ig_plan *plan;
	struct cpu_launch *launches;
	uint32_t n_launches, cap_launches;
	struct cpu_phase *phases;
	uint32_t n_phases, cap_phases;
	struct cpu_buffer *buffers;
	uint32_t n_buffers, cap_buffers;
	struct cpu_weight *weights;   /* [plan->n_weights] */
	struct cpu_counter *counters; /* [n_phases], and one more with `open` */
	atomic_uint_fast32_t *open; /* the phase that threads are at, in a cache line of its own */
	uint8_t *weight_mem;	    /* read-only if it is a mapped copy */
	uint8_t *scratch_mem;
	uint64_t weight_bytes, scratch_bytes;
	uint64_t worker_offset, worker_bytes; /* kernels' scratch, per thread */
};

int ig_cpu_lower(struct ig_driver *d, const struct ig_plan *plan,
		 const struct ig_program_limits *limits, struct ig_program **out,
		 struct ig_program_memory *memory, struct ig_error *err);
int ig_cpu_load(struct ig_program *p, struct ig_error *err);
uint64_t ig_cpu_packed_layout(const struct ig_program *p, uint64_t *file_bytes);
void ig_cpu_destroy(struct ig_program *p);

static inline uint64_t ig_round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* Zeroed memory from the system, in huge pages if possible; NULL: no memory. */
void *ig_cpu_map(uint64_t bytes);
void ig_cpu_unmap(void *p, uint64_t bytes);
