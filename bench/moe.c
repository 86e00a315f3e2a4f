/*
 * moe.c: one layer of experts on one thread, in the shape of Qwen3-30B-A3B: the time of routing,
 * and of the experts' products compared with a dense matrix of the same number of bytes (one row)
 * or multiply-adds (512 rows), measured alternately.
 *
 *   ninja bench-moe, then ./bench-moe ATTENTION.so MOE.so
 *
 * The weights exceed every cache; each step selects other experts.
 */
#include "base/clock.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"
#include "runtime/cpu/isa.h"
#include "runtime/modules/modules.h"

#include <stdlib.h>
#include <string.h>

#define N_EXPERTS 128
#define TOP_K 8
#define WIDTH 2048
#define FF 768
#define MAX_ROWS 512
#define ROUNDS 40

static const uint32_t dtypes[] = { IG_Q4_0, IG_Q8_0, IG_Q4_K, IG_F16 };

static void *filled(uint64_t bytes, int byte)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!p)
		abort(); /* a bench */
	memset(p, byte, bytes);
	return p;
}

static struct ig_tensor values(void *data, int64_t n, int64_t k, uint32_t layout)
{
	return (struct ig_tensor){ data,   n,	  k, (int64_t)ig_layout_row_bytes(layout, k),
				   IG_F32, layout };
}

static const struct ig_cpu_kernel *kernel(const struct ig_op *op, uint32_t dtype)
{
	const struct ig_cpu_kernel *best = NULL;

	for (uint32_t i = 0; i < op->n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &op->cpu_kernels[i];
		if (ig_isa_includes(ig_isa_best(), k->isa) && k->weight_layout != IG_LAYOUT_ROWS &&
		    (k->weight_dtype == dtype) &&
		    (!best || k->isa > best->isa || best->in_layout == IG_LAYOUT_ROWS))
			best = k;
	}
	if (!best)
		abort();
	return best;
}

/* Microseconds of one run. */
static double time_call(struct ig_op_launch *c, const struct ig_cpu_kernel *k, void *scratch)
{
	int64_t began = ig_now_ns();
	c->kernel = k;
	k->run(c, 0, k->n_units(c), scratch);
	return (double)(ig_now_ns() - began) / 1e3;
}

static void least(double *best, double x)
{
	if (*best == 0 || x < *best)
		*best = x;
}

/* x is zero: the time of a product does not depend on it. */
static void bench(const struct ig_modules *m, uint32_t dtype, int64_t rows)
{
	const struct ig_moe_route_params route_p = { sizeof route_p, N_EXPERTS, TOP_K, 1, 1 };
	const struct ig_moe_glu_params glu_p = { sizeof glu_p, IG_ACT_SILU, N_EXPERTS, TOP_K };
	const struct ig_moe_combine_params down_p = { sizeof down_p, N_EXPERTS, TOP_K, 0 };
	const struct ig_linear_params dense_p = { sizeof dense_p, 1, IG_ACT_NONE, 0 };
	const struct ig_cpu_kernel *route = ig_modules_op(m, "moe_route")->cpu_kernels;
	const struct ig_cpu_kernel *glu = kernel(ig_modules_op(m, "moe_glu"), dtype);
	const struct ig_cpu_kernel *down = kernel(ig_modules_op(m, "moe_combine"), dtype);
	const struct ig_cpu_kernel *dense = kernel(ig_modules_op(m, "linear"), dtype);
	const uint64_t in_tile = ig_tile16_tile_bytes(dtype, WIDTH);
	const uint64_t out_tile = ig_tile16_tile_bytes(dtype, FF);
	const uint64_t in_bytes = in_tile * FF / IG_TILE, out_bytes = out_tile * WIDTH / IG_TILE;
	/* as many multiply-adds a row as top_k experts' gate and up */
	const int64_t n_dense = 2 * TOP_K * FF;
	uint8_t *w = filled(N_EXPERTS * (2 * in_bytes + out_bytes), 0x2c);
	float *x = filled(MAX_ROWS * WIDTH * 4, 0), *y = filled(MAX_ROWS * 4 * n_dense, 0);
	float *logits = filled(MAX_ROWS * N_EXPERTS * 4, 0);
	void *routes = filled(MAX_ROWS * 4 * TOP_K * 4 + 4096, 0);
	void *h = filled(MAX_ROWS * TOP_K * FF * 4, 0), *scratch;
	double best[4] = { 0 };
	uint32_t seed = 1;
	struct ig_op_launch c[4] = {
		{ .n_in = 1, .n_out = 1, .params = &route_p },
		{ .n_in = 2, .n_weights = 2, .n_out = 1, .params = &glu_p },
		{ .n_in = 2, .n_weights = 1, .n_out = 1, .params = &down_p },
		{ .n_in = 1, .n_weights = 1, .n_out = 1, .params = &dense_p },
	};

	c[0].in[0] = values(logits, rows, N_EXPERTS, IG_LAYOUT_ROWS);
	c[0].out[0] = c[1].in[1] = c[2].in[1] = values(routes, rows, 4 * TOP_K, IG_LAYOUT_ROWS);
	c[1].in[0] = c[3].in[0] = values(x, rows, WIDTH, glu->in_layout);
	for (int i = 0; i < 2; i++)
		c[1].weight[i] = (struct ig_tensor){ w + (uint64_t)i * N_EXPERTS * in_bytes,
						     N_EXPERTS * FF,
						     WIDTH,
						     0,
						     dtype,
						     IG_LAYOUT_TILE16 };
	c[1].out[0] = values(h, rows, TOP_K * FF, IG_LAYOUT_ROWS);
	c[2].in[0] = values(h, rows, TOP_K * FF, down->in_layout);
	c[2].weight[0] = (struct ig_tensor){
		w + 2 * N_EXPERTS * in_bytes, N_EXPERTS * WIDTH, FF, 0, dtype, IG_LAYOUT_TILE16
	};
	c[2].out[0] = values(y, rows, WIDTH, IG_LAYOUT_ROWS);
	c[3].weight[0] = (struct ig_tensor){ w, n_dense, WIDTH, 0, dtype, IG_LAYOUT_TILE16 };
	c[3].out[0] = values(y, rows, n_dense, IG_LAYOUT_ROWS);
	scratch = filled(glu->scratch_bytes(&c[1]) + down->scratch_bytes(&c[2]), 0);
	for (int round = 0; round < (rows == 1 ? 10 * ROUNDS : 4); round++) {
		for (int64_t i = 0; i < rows * N_EXPERTS; i++) {
			seed = seed * 1664525 + 1013904223;
			logits[i] = (float)(seed >> 8) * 0x1p-24f;
		}
		memset(h, 0, (size_t)rows * TOP_K * FF * 4);
		/* other bytes than the last dense one read, for one row */
		c[3].weight[0].data = w + (uint64_t)(round % 4) * (N_EXPERTS / 4) * in_bytes;
		least(&best[0], time_call(&c[0], route, NULL));
		least(&best[1], time_call(&c[1], glu, scratch));
		memset(h, 0, (size_t)rows * TOP_K * FF * 4);
		least(&best[2], time_call(&c[2], down, scratch));
		least(&best[3], time_call(&c[3], dense, NULL));
	}
	const double macs = (double)rows * TOP_K * FF * WIDTH, us = 1e3;
	if (rows == 1)
		printf("%-5s %s, 1 row:    route %.1f us, glu %.0f us %.1f GB/s, combine %.0f us %.1f GB/s; "
		       "a dense product %.1f GB/s\n",
		       glu->in_layout == IG_LAYOUT_Q8 ? "q8" : "float", ig_isa_name(glu->isa),
		       best[0], best[1], 2 * TOP_K * (double)in_bytes / best[1] / us, best[2],
		       TOP_K * (double)out_bytes / best[2] / us,
		       (double)in_tile * (double)n_dense / IG_TILE / best[3] / us);
	else
		printf("%-5s %s, %d rows: route %.0f us, glu %.1f ms %.0f GMAC/s, combine %.1f ms "
		       "%.0f GMAC/s; a dense product %.0f GMAC/s\n",
		       glu->in_layout == IG_LAYOUT_Q8 ? "q8" : "float", ig_isa_name(glu->isa),
		       (int)rows, best[0], best[1] / us, 2 * macs / best[1] / us, best[2] / us,
		       macs / best[2] / us, 2 * macs / best[3] / us);
	free(w);
	free(x);
	free(y);
	free(logits);
	free(routes);
	free(h);
	free(scratch);
}

int main(int argc, char **argv)
{
	struct ig_error err = { 0 };
	struct ig_modules *m;
	int rc = ig_modules_create(&m, &err);

	if (argc != 3) {
		fprintf(stderr, "bench-moe ATTENTION.so MOE.so\n");
		return 2;
	}
	for (int i = 1; i < argc && !rc; i++)
		rc = ig_modules_load(m, argv[i], &err);
	if (!rc)
		rc = ig_modules_start(m, NULL, 0, &err);
	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		printf("%s:\n", ig_dtype_name(dtypes[i]));
		bench(m, dtypes[i], 1);
		bench(m, dtypes[i], MAX_ROWS);
	}
	ig_modules_destroy(m);
	return 0;
}
