/*
 * attention_world.h: what the tests of the module attention stand on: the module
 * as it is shipped, and a small world of sequences whose K and V lie in shuffled
 * blocks of several slabs.
 *
 * Every byte that no token owns is 0xff: NaN in both formats, so a kernel that
 * looks at one shows it.
 */
#ifndef ATTENTION_WORLD_H
#define ATTENTION_WORLD_H

#include <ingot/arch.h>
#include <ingot/op.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* The types of K and V as one; a type alone means both. */
#define KEYS_VALUES(k, v) (((k) + 1u) << 16 | (v))

#define WORLD_LAYERS 2
#define WORLD_MAX_SEQS 8

struct world {
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	uint32_t n_seqs, n_slabs;
	uint64_t slab_bytes;
	void *slabs[256];
	uint32_t *block_tables;
	unsigned char *snapshot; /* of all slabs */
};

/* The op of the module; the test fails when it is not there. */
const struct ig_op *world_op(const char *name);
const struct ig_module *world_module(void);
/* NULL when the op has no kernel for it or this machine can't run it. */
const struct ig_cpu_kernel *world_kernel(const struct ig_op *op, uint32_t isa);
const char *world_isa_name(uint32_t isa);

/* The same numbers in every run. */
void world_seed(uint64_t seed);
uint32_t world_random(void);
float world_uniform(void); /* in [-1, 1) */

/* Sequences of lens[i] tokens; nothing is written yet. */
void world_create(struct world *w, uint32_t dtype, uint32_t n_kv_heads, uint32_t head_dim,
		  const int32_t *lens, uint32_t n_seqs);
void world_destroy(struct world *w);
/* Random K and V for every token of every sequence in layer. */
void world_fill(struct world *w, uint32_t layer, const int32_t *lens);
/* The slot of K (v: of V), of a token in F16 or F32: its elements one after the other. */
void *world_slot(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		 int v);
/* An element of it, in any type. */
float world_element(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		    int v, uint32_t d);
/* Set it, rounded.  Q8_0: the scale is that of values in [-1, 1], and random, where d % 32 is 0. */
void world_set(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
	       int v, uint32_t d, float f);
/* Of Q8_0: the code of an element, and its scale as a half. */
int8_t *world_code(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		   int v, uint32_t d);
uint16_t *world_scale(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer,
		      uint32_t head, int v, uint32_t d);
/* 0xff in every byte of the token. */
void world_wipe(const struct world *w, uint32_t seq, int32_t pos, uint32_t layer, uint32_t head,
		int v);
uint32_t world_dtype(const struct world *w, int v);
float world_half(uint16_t h); /* as a float */
void world_snapshot(struct world *w);
/* The bytes of the slabs that differ from the snapshot. */
uint64_t world_changed(const struct world *w);

/* A matrix of floats with guards after each row and around it. */
struct guarded {
	unsigned char *bytes;
	uint64_t n_bytes;
	struct ig_tensor t;
};

void guarded_create(struct guarded *g, int64_t n_rows, int64_t n_cols);
void guarded_check(const struct guarded *g);
void guarded_destroy(struct guarded *g);
float *guarded_row(const struct guarded *g, int64_t row);

/* Run a kernel over its units, with scratch of just the size that it asks for:
 * all at once (order 0) or one by one from the last to the first (1). */
void world_run(const struct ig_cpu_kernel *k, const struct ig_op_launch *launch, int order);

#endif
