/*
 * load.c: gives a lowered plan its memory and its packed weights: packed from the model's file by threads of
 * its own, or mapped from a copy of an earlier load (packed.h).
 */
#include "base/hash.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/tile16.h"
#include "runtime/cpu/cpu_private.h"
#include "runtime/cpu/packed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- packing ------------------------------------------------------------------------------ */

#define PACK_TILES 8 /* tiles that a thread takes at a time */

struct packing {
	struct cpu_program *p;
	uint32_t weight; /* index in the plan */
	atomic_int_fast64_t next_tile;
	uint8_t *rows; /* [n_threads, rows_bytes], for converted tensors */
	uint64_t rows_bytes;
};

static void pack_tiles(void *ctx, uint32_t thread)
{
	struct packing *k = ctx;
	const struct ig_plan_weight *pw = &k->p->plan->weights[k->weight];
	const struct cpu_weight *w = &k->p->weights[k->weight];
	uint64_t tile_bytes = ig_tile16_tile_bytes(pw->shape.dtype, pw->shape.n_cols);
	int64_t n_tiles = ig_tile16_n_tiles(pw->shape.n_rows), t;

	while ((t = atomic_fetch_add(&k->next_tile, PACK_TILES)) < n_tiles) {
		int64_t row = t * IG_TILE, n = pw->shape.n_rows - row;
		if (n > PACK_TILES * IG_TILE)
			n = PACK_TILES * IG_TILE;
		const void *rows = ig_checkpoint_rows(k->p->plan->file, pw->tensor, row, n,
						      k->rows + thread * k->rows_bytes);
		ig_tile16_pack(pw->shape.dtype, rows, n, pw->shape.n_cols,
			       k->p->weight_mem + w->offset + (uint64_t)t * tile_bytes, 0,
			       ig_tile16_n_tiles(n));
	}
}

/* Of all tensors that are converted while they are read: the most bytes of the rows that a
 * thread packs at a time. */
static uint64_t converted_rows_bytes(const struct cpu_program *p)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < p->plan->n_weights; i++) {
		const struct ig_plan_weight *pw = &p->plan->weights[i];
		uint64_t row = ig_dtype_row_bytes(pw->shape.dtype, pw->shape.n_cols);
		if (p->weights[i].used && p->weights[i].layout == IG_LAYOUT_TILE16 &&
		    !pw->tensor->data && most < row)
			most = row;
	}
	return ig_round_up(most * PACK_TILES * IG_TILE, 64);
}

static void copy_rows(const struct cpu_program *p, uint32_t i)
{
	const struct ig_plan_weight *pw = &p->plan->weights[i];
	uint8_t *dst = p->weight_mem + p->weights[i].offset;
	const void *rows = ig_checkpoint_rows(p->plan->file, pw->tensor, 0, pw->shape.n_rows, dst);
	if (rows != dst)
		memcpy(dst, rows, pw->n_bytes);
}

static void *address_of(const struct cpu_program *p, const struct cpu_operand *o)
{
	return o->buffer < 0 ? NULL : p->scratch_mem + p->buffers[o->buffer].offset + o->col_offset;
}

/* From buffers and offsets to addresses. */
static void resolve(struct cpu_program *p)
{
	for (uint32_t i = 0; i < p->n_launches; i++) {
		struct cpu_launch *c = &p->launches[i];
		for (uint32_t j = 0; j < IG_MAX_IN; j++)
			c->launch.in[j].data = address_of(p, &c->in[j]);
		for (uint32_t j = 0; j < IG_MAX_OUT; j++)
			c->launch.out[j].data = address_of(p, &c->out[j]);
		c->launch.shared = address_of(p, &(struct cpu_operand){ .buffer = c->shared });
		for (uint32_t j = 0; j < IG_MAX_WEIGHTS; j++) {
			if (c->weight[j] < 0)
				continue;
			const struct cpu_weight *w = &p->weights[c->weight[j]];
			c->launch.weight[j].data =
				w->mapped ? (void *)p->plan->weights[c->weight[j]].tensor->data :
					    p->weight_mem + w->offset;
		}
	}
}

/* Pack all weights into weight_mem, with all threads of the pool. */
static int pack_weights(struct cpu_program *p, struct ig_pool *pool, struct ig_error *err)
{
	uint64_t rows_bytes = converted_rows_bytes(p);
	uint8_t *rows = malloc(rows_bytes ? rows_bytes * ig_pool_n_threads(pool) : 1);

	if (!rows)
		return ig_fail(err, -ENOMEM, "no memory for packing weights");
	for (uint32_t i = 0; i < p->plan->n_weights; i++) {
		const struct ig_plan_weight *pw = &p->plan->weights[i];
		const struct cpu_weight *w = &p->weights[i];
		if (!w->used || w->mapped)
			continue;
		if (w->layout == IG_LAYOUT_TILE16) {
			struct packing k = {
				.p = p, .weight = i, .rows = rows, .rows_bytes = rows_bytes
			};
			ig_pool_run(pool, pack_tiles, &k);
		} else {
			copy_rows(p, i);
		}
		ig_checkpoint_drop_tensor(p->plan->file, pw->tensor);
	}
	free(rows);
	return 0;
}

/* ---- loading ------------------------------------------------------------------------------ */

uint64_t ig_cpu_packed_layout(const struct ig_program *base, uint64_t *file_bytes)
{
	const struct cpu_program *p = (const struct cpu_program *)base;
	uint64_t h = IG_FNV1A;

	if (!p->weight_bytes)
		return 0;
	for (uint32_t i = 0; i < p->plan->n_weights; i++) {
		const struct ig_plan_weight *pw = &p->plan->weights[i];
		const struct cpu_weight *w = &p->weights[i];
		const uint64_t lies[] = { pw->shape.dtype,
					  (uint64_t)pw->shape.n_rows,
					  (uint64_t)pw->shape.n_cols,
					  w->layout,
					  w->offset,
					  w->bytes };
		if (!w->used || w->mapped)
			continue;
		h = ig_fnv1a(h, pw->name, strlen(pw->name) + 1);
		h = ig_fnv1a(h, lies, sizeof lies);
	}
	*file_bytes = ig_packed_file_bytes(p->weight_bytes);
	return h ? h : 1;
}

/* The copy, or new memory with packed weights, of which a copy is written. */
static int load_weights(struct cpu_program *p, struct ig_pool *pool, struct ig_error *err)
{
	struct ig_packed_file *f = p->weight_bytes ? p->base.packed : NULL;
	uint64_t n = p->weight_bytes ? p->weight_bytes : 1;
	int rc;

	if (f && (p->weight_mem = ig_packed_map(f, n, pool, &f->why))) {
		f->result = IG_PACKED_MAPPED;
		return 0;
	}
	p->weight_mem = ig_cpu_map(n);
	if (!p->weight_mem)
		return ig_fail(err, -ENOMEM, "no memory for %llu bytes of weights",
			       (unsigned long long)n);
	if ((rc = pack_weights(p, pool, err)))
		return rc;
	if (f && !ig_packed_write(f, p->weight_mem, n, pool, &f->why))
		f->result = IG_PACKED_WRITTEN;
	return 0;
}

int ig_cpu_load(struct ig_program *base, struct ig_error *err)
{
	struct cpu_program *p = (struct cpu_program *)base;
	struct ig_pool *pool;
	int rc;

	p->scratch_mem = ig_cpu_map(p->scratch_bytes ? p->scratch_bytes : 1);
	if (!p->scratch_mem)
		return ig_fail(err, -ENOMEM, "no memory for %llu bytes of scratch",
			       (unsigned long long)p->scratch_bytes);
	/* Packing has its own threads: the engine's steps use the driver's while a model loads. */
	rc = ig_pool_create(ig_pool_n_threads(p->driver->pool), &pool);
	if (rc)
		return ig_fail(err, rc, "threads for packing weights cannot be started");
	rc = load_weights(p, pool, err);
	ig_pool_destroy(pool);
	if (!rc)
		resolve(p);
	return rc;
}

void ig_cpu_destroy(struct ig_program *base)
{
	struct cpu_program *p = (struct cpu_program *)base;

	if (!p)
		return;
	ig_cpu_unmap(p->weight_mem, p->weight_bytes ? p->weight_bytes : 1);
	ig_cpu_unmap(p->scratch_mem, p->scratch_bytes ? p->scratch_bytes : 1);
	free(p->counters);
	free(p->weights);
	free(p->buffers);
	free(p->phases);
	free(p->launches);
	free(p);
}
