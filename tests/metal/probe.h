/* probe.h: a small program on the device metal, for tests: values x, y, z of PROBE_N
 * floats, ids, a slab, and kernels of probe.metal in any order. */
#pragma once

#include "runtime/gpu/device.h"
#include "tests/metal/probe_args.h"

#define PROBE_N 64

enum probe_value { PROBE_X, PROBE_Y, PROBE_Z, PROBE_N_VALUES };

struct probe {
	struct ig_gpu_device *device;
	struct ig_gpu_tape *tape;
	struct ig_gpu_ref value[PROBE_N_VALUES], ids, kv;
	struct ig_gpu_buffer *scratch, *id_buffer, *slab;
	struct ig_gpu_place *places;
	struct ig_gpu_program *program;
	uint64_t step_bytes;
};

/* Without a program yet: probe_emit, then probe_load.  0 or a negative errno. */
extern uint32_t probe_keep_wired_ms; /* of devices that probe_open opens */
int probe_open(struct probe *p, struct ig_error *err);
void probe_close(struct probe *p);

/* A dispatch of kernel from value x to value y, over PROBE_N elements. */
struct ig_gpu_dispatch probe_dispatch(struct probe *p, const char *kernel,
				      const struct probe_args *args, int x, int y);
void probe_emit(struct probe *p, const struct ig_gpu_dispatch *d);
/* The same in short: probe_add and its like with args.a = a. */
void probe_op(struct probe *p, const char *kernel, float a, int x, int y);
/* probe_far: the slab, read and written; probe_ids. */
void probe_far(struct probe *p);
void probe_ids(struct probe *p);
int probe_load(struct probe *p, struct ig_error *err);

void probe_write(struct probe *p, int value, float first); /* first, first + 1, … */
float probe_read(struct probe *p, int value, int i);
int probe_submit(struct probe *p, uint32_t slot, uint32_t step_value, struct ig_error *err);
int probe_wait(struct probe *p, uint32_t slot, const int32_t **ids, struct ig_error *err);
