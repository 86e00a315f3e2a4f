/*
 * cuda_case.h: the device `cuda` over a double of libcuda, shaders with the double's kernels, and a
 * program of a few dispatches, for the tests of that device.
 */
#pragma once

#include "fake_libcuda.h"
#include "runtime/gpu/device.h"

#define STEP_BYTES 64u

extern struct fake_cuda *fake; /* from cuda_setup on */

#define SHADER(name) { sizeof(struct ig_shader), 0, name, "", NULL, 0, NULL, NULL, 0, 0 }

/* One with all kernels, and one each whose PTX is wrong, too new, damaged, another. */
extern struct ig_shader cuda_shader, cuda_broken, cuda_newer, cuda_damaged, cuda_other;
extern const struct ig_driver_options cuda_options;
extern const struct ig_gpu_extent cuda_one;

/* A machine with one GPU, of 9.0. */
int cuda_setup(void **state);
/* Nothing is alive, and the library was never called wrongly. */
void cuda_assert_clean(void);
struct ig_gpu_device *cuda_open(void);
/* Of cuda_shader's kernel, one threadgroup without operands. */
struct ig_gpu_dispatch cuda_dispatch(const char *kernel, const void *args, uint32_t n_args);
/* Of a step with so many rows. */
struct ig_gpu_submission cuda_submission(uint32_t slot, uint32_t rows);

/* A program of some dispatches and the memory that it needs. */
struct world {
	struct ig_gpu_device *d;
	struct ig_gpu_tape *tape;
	struct ig_gpu_buffer *memory;
	struct ig_gpu_place places[8];
	struct ig_gpu_program *p;
	struct ig_gpu_ref value, ids, logits;
};

/* The device, a tape with a value and ids. */
void world_begin(struct world *w);
void world_record(struct world *w, const struct ig_gpu_dispatch *d);
/* Places of all buffers, one after the other; the program. */
int world_make(struct world *w, struct ig_error *err);
/* Run a step to its end. */
void world_run(struct world *w, const struct ig_gpu_submission *s);
/* Nothing of it is left. */
void world_end(struct world *w);
