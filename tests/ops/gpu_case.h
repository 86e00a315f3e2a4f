/*
 * gpu_case.h: one op on a GPU, for the tests of its lowering and its kernels.
 *
 * A lab is an open device.  ig_gpu_case_run takes the same call that the op's
 * reference takes (float inputs, weights as files have them, results in float),
 * lowers the op by itself, uploads, runs one step and reads back.  Every piece of
 * the device's memory has guard bytes round it, what is not written yet is NaN, and
 * what the op must not write is compared afterwards.
 *
 * Ops that read the cache get a world: the call's step names slabs in host memory,
 * which are uploaded before the run and, on wish, read back after it.
 */
#pragma once

#include "runtime/gpu/device.h"

#include <ingot/arch.h>
#include <ingot/op.h>

struct ig_gpu_lab;

/* "soft" (the software device that this program is linked with), or "cuda" where the
 * build has it.  NULL: the environment's INGOT_TEST_GPU, else "soft".  -ENOTSUP with
 * text where there is no such device. */
int ig_gpu_lab_open(const char *name, struct ig_gpu_lab **out, struct ig_error *err);
void ig_gpu_lab_close(struct ig_gpu_lab *lab); /* NULL is fine */
const struct ig_gpu_facts *ig_gpu_lab_facts(const struct ig_gpu_lab *lab);

/* A copy between cache blocks that the step asks for: bytes of slabs. */
struct ig_gpu_case_copy {
	uint32_t dst_slab, src_slab;
	uint64_t dst_offset, src_offset;
	uint32_t n_bytes;
};

struct ig_gpu_case {
	const struct ig_op *op;
	/* in[] float in IG_LAYOUT_ROWS; weight[] in IG_LAYOUT_ROWS; out[] float, filled in;
	 * step->sampled_ids and step->logits are filled in where they are not NULL. */
	const struct ig_op_launch *launch;
	/* Row class of the inputs. */
	uint32_t in_class;
	/* What out[0] is stored as: IG_F32, or with IG_GPU_OUT_ANY IG_F16, IG_BF16. */
	uint32_t out_dtype;
	uint32_t f32; /* the option for products in float32 */
	/* Weights that may be in tiles (shaders/core/tiles.h) are. */
	uint32_t tiles;
	/* NULL, or the weights, [in[0]'s columns], of the RMS norm of in[0] that the op computes itself; a step
	 * of more rows than its norm_rows() is -EINVAL. */
	const float *norm;
	float norm_eps;
	/* With IG_GPU_OUT_TWICE: NULL, or [rows][out[0]'s columns], where out[0] goes once more as it is stored
	 * in this type. */
	float *also;
	uint32_t also_dtype;
	/* 0: just the step's own counts, so that one row too many is out of bounds. */
	uint32_t max_rows, max_seqs, max_logit_rows, max_context;
	/* Partials that attention may keep; 0: none, every sequence loops. */
	uint32_t max_partials;
	/* Slabs of step->slab_bases, each of slab_bytes in host memory. */
	uint32_t n_slabs;
	uint64_t slab_bytes;
	void *const *slabs_after; /* NULL, or [n_slabs] where they are read back to */
	const struct ig_gpu_case_copy *copies;
	uint32_t n_copies;
};

/* Lower, upload, run, read back.  -ENOTSUP: the op has no such kernel, with text;
 * -EFAULT: something was written that is not the op's to write; else what failed. */
int ig_gpu_case_run(struct ig_gpu_lab *lab, const struct ig_gpu_case *c, struct ig_error *err);

/* The type in which the lowering wants in[i]. */
uint32_t ig_gpu_case_in_dtype(struct ig_gpu_lab *lab, const struct ig_gpu_case *c, uint32_t i);

/* Run the op's reference on c->call, its inputs first rounded as the GPU sees them. */
int ig_gpu_case_reference(struct ig_gpu_lab *lab, const struct ig_gpu_case *c,
			  struct ig_error *err);

/* To nearest, ties to even; halves end at ±65504. */
float ig_gpu_case_round(uint32_t dtype, float x);
