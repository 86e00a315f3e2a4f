/*
 * cpu_private.h: the cpu driver's program.
 *
 * A lowered plan is a list of phases.  Between two phases every thread waits for
 * all units of the first.  A phase of rows may chain several calls, each reading
 * only its own row of the one before; any other phase may hold calls that do not
 * touch each other's results.
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
	bool mapped_experts; /* experts' weights are read where the file is mapped */
	uint32_t strict;
	char text[96];
};

/* A weight as the driver keeps it. */
struct cpu_weight {
	uint32_t form; /* IG_FORM_ROWS (vectors, mapped experts) or IG_FORM_TILE16 */
	bool used;
	bool mapped;		/* read where the file is; takes none of weight_mem */
	uint64_t offset, bytes; /* in weight_mem */
};

/* Room for a value, or for a value in another form, while phases need it. */
struct cpu_buffer {
	uint64_t row_bytes;
	uint32_t row_class;
	uint32_t first_phase, last_phase;
	uint64_t offset, bytes; /* in scratch_mem */
};

/* Where a call's operand lies. */
struct cpu_operand {
	int32_t buffer;	     /* negative: none */
	uint64_t col_offset; /* bytes into the row */
};

struct cpu_call {
	const struct ig_cpu_kernel *kernel;
	struct ig_op_call call; /* complete but for the numbers of rows and the step */
	struct cpu_operand in[IG_MAX_IN], out[IG_MAX_OUT];
	int32_t weight[IG_MAX_WEIGHTS]; /* of the plan; negative: none */
	uint32_t row_class;		/* of the rows it is run for */
};

struct cpu_phase {
	uint32_t first_call, n_calls;
	bool rows; /* a chain of calls on rows */
};

/* What threads take units from, one a phase: taken in the low half, done in the
 * high half. */
struct cpu_counter {
	_Alignas(64) atomic_uint_fast64_t word;
};

struct cpu_program {
	struct ig_program base;
	struct cpu_driver *driver;
	const struct ig_plan *plan;
	struct cpu_call *calls;
	uint32_t n_calls, cap_calls;
	struct cpu_phase *phases;
	uint32_t n_phases, cap_phases;
	struct cpu_buffer *buffers;
	uint32_t n_buffers, cap_buffers;
	struct cpu_weight *weights;   /* [plan->n_weights] */
	struct cpu_counter *counters; /* [n_phases] */
	uint8_t *weight_mem, *scratch_mem;
	uint64_t weight_bytes, scratch_bytes;
	uint64_t worker_offset, worker_bytes; /* kernels' scratch, one a thread */
};

int ig_cpu_lower(struct ig_driver *d, const struct ig_plan *plan,
		 const struct ig_program_limits *limits, struct ig_program **out,
		 struct ig_program_memory *memory, struct ig_error *err);
int ig_cpu_load(struct ig_program *p, struct ig_error *err);
void ig_cpu_destroy(struct ig_program *p);

/* Zeroed memory straight from the system, in huge pages where they are offered;
 * NULL on failure. */
void *ig_cpu_map(uint64_t bytes);
void ig_cpu_unmap(void *p, uint64_t bytes);
