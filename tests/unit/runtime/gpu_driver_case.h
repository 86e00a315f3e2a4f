/*
 * gpu_driver_case.h: a driver over the device that only remembers, a small llama's program on it and a
 * cache of one slab, for the tests of the driver for GPUs.
 */
#pragma once

#include "tests/unit/runtime/fake_gpu.h"

#define ROWS 32
#define SEQS 4
#define SLAB_BYTES (1u << 20)
#define BLOCKS (TOY_CONTEXT / IG_BLOCK_TOKENS)

extern const struct ig_program_limits driver_limits;

struct batch {
	struct ig_step step;
	int32_t ids[ROWS], from[ROWS], positions[ROWS], row_seq[ROWS], lens[SEQS], logit_rows[SEQS];
	struct ig_sample_params sample[SEQS];
	int32_t sampled[SEQS];
};

struct session {
	struct ig_driver *driver;
	struct ig_program *program;
	struct ig_program_memory memory;
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	uint32_t tables[SEQS][BLOCKS];
	void *slabs[8];
	struct batch batch[3];
};

/* state is the small llama. */
int driver_setup(void **state);
int driver_teardown(void **state);

struct ig_gpu_lowered *session_lowered(const struct session *s);
/* Open, lower, load, map a slab; after an error too it is to be stopped. */
int session_start(struct session *s, const struct toy_model *m, const char *driver,
		  const struct ig_driver_options *o, struct ig_error *err);
void session_must_start(struct session *s, const struct toy_model *m, const char *driver);
void session_stop(struct session *s);
/* One row a sequence at position `at`; with ahead, its tokens are the step's before. */
struct ig_step *session_step(struct session *s, int i, int32_t at, const struct batch *ahead);
/* A step is done and gives the tokens that it must. */
void session_assert_runs(struct session *s);
