/*
 * gpu_case_private.h: one run of a case, between gpu_case.c, which lowers and runs it and reads back, and
 * gpu_case_step.c, which makes the step.
 */
#pragma once

#include "tests/ops/gpu_case.h"

#define GUARD 256 /* bytes before and after; keeps what lies between them aligned */
#define GUARD_BYTE 0xa5
#define UNSET_BYTE 0xff /* NaN in every type */
#define SLOT 1u		/* the step runs in this slot; the ids of the one before are in the other */

struct ig_gpu_lab {
	const struct ig_gpu_device_class *class;
	struct ig_gpu_device *device;
};

/* One buffer of the tape: what it holds on the device before the run. */
struct piece {
	struct ig_gpu_buffer *buffer;
	uint8_t *image; /* [GUARD + n_bytes + GUARD] */
	uint64_t n_bytes;
	/* What the op may write: n_rows rows of row_bytes, stride apart.  0 rows: none of
	 * it; UINT32_MAX: all of it. */
	uint32_t n_rows;
	uint64_t row_bytes, stride;
};

/* All that one run holds. */
struct run {
	struct ig_gpu_lab *lab;
	const struct ig_gpu_case *c;
	struct ig_gpu_tape *tape;
	struct ig_gpu_launch launch;
	struct ig_gpu_norm norm; /* of in[0], where the case has one */
	struct piece *pieces;	 /* [tape->n_buffers] */
	struct ig_gpu_place *places;
	struct ig_gpu_buffer **slabs;  /* [n_slabs] */
	struct ig_gpu_buffer *outside; /* the step's rows from outside, the last one first */
	uint8_t *outside_image;
	uint64_t outside_bytes;
	struct ig_gpu_program *program;
	uint8_t *step;
	uint64_t step_bytes, cap_step;
	uint32_t live[IG_N_LIVE];
};

/* The step's bytes as shaders/step.h has them, and the counts that grids follow. */
int ig_gpu_case_pack(struct run *r, struct ig_error *err);
