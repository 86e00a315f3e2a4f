/* test_figures.c: the counts that bench/plan prints, pinned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bench/figures.h"
#include "runtime/modules/modules.h"

#include <errno.h>

static int setup(void **state)
{
	static struct ig_modules *m;
	struct ig_error err = { 0 };

	if (ig_modules_create(&m, &err) || ig_modules_load(m, INGOT_ATTENTION_MODULE, &err) ||
	    ig_modules_load(m, INGOT_MOE_MODULE, &err) || ig_modules_start(m, NULL, 0, &err)) {
		print_error("%s\n", err.text);
		return -1;
	}
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	ig_modules_destroy(*state);
	return 0;
}

static void test_counts(void **state)
{
	static const uint32_t dtypes[] = { IG_F16, IG_BF16, IG_Q8_0, IG_Q4_0, IG_Q4_1 };

	for (uint32_t i = 0; i < figures_n_shapes; i++)
		for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes; j++)
			for (uint32_t kind = IG_GPU_METAL; kind <= IG_GPU_CUDA; kind++) {
				const struct figures_shape *s = &figures_shapes[i];
				struct ig_error err = { 0 };
				/* norm, qkv, rope_kv, split, merge, output, norm, glu, down: each
				 * reads what the one before wrote.  With experts glu and down make
				 * way for five: the router, the route, glu, the products of down and
				 * their sum. */
				const uint32_t dense = s->n_experts ? 12 : 9;
				/* NVIDIA merges a short cache's ranges in one kernel, and products of
				 * weights in tiles compute the norm of their rows. */
				const bool cuda = kind == IG_GPU_CUDA,
					   tiled = cuda && dtypes[j] != IG_F16 &&
						   dtypes[j] != IG_BF16;
				const uint32_t few =
					dense - cuda - (tiled ? s->n_experts ? 1 : 2 : 0);
				/* In a prompt's chunk attention is one kernel, and a route two.
				 * Weights in tiles are unpacked before: of q, k, v, output, gate, up
				 * and down, but not large ones in chunks of up to 512 tokens. */
				const bool large = (uint64_t)s->width * s->ff > 1 << 26;
				const uint32_t many = s->n_experts ? dense : dense - 1,
					       unpacked = s->n_experts || large ? 4 : 7;
				struct figures f;
				if (figures_of(*state, s, dtypes[j], kind, &f, &err))
					fail_msg("%s", err.text);
				assert_int_equal(f.few.layer_dispatches, few);
				assert_int_equal(f.few.layer_barriers, few);
				if (tiled) {
					assert_in_range(f.many.layer_dispatches, many + unpacked,
							many + 3 * unpacked);
				} else {
					assert_int_equal(f.many.layer_dispatches, many);
					assert_int_equal(f.many.layer_barriers, many);
				}
				/* Around the layers: rope_table beside embed, norm, logits, sample. */
				assert_in_range(f.few.n_dispatches - few * s->n_layers, 5, 10);
				/* A token reads each weight once, and little else. */
				assert_true(f.few.weight_reads == f.weight_bytes);
				assert_true(f.few.weight_reads + f.few.other_reads <=
					    f.weight_bytes + f.weight_bytes / 50);
				/* A token of a small model is one command buffer; a large one may take
				 * an M1 longer than a command buffer should run. */
				assert_in_range(f.few.n_command_buffers, 1, i == 0 ? 1 : 12);
				assert_true(f.scratch_bytes < (tiled ? 768u : 512u) << 20);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_counts) };
	return cmocka_run_group_tests_name("figures of plans", tests, setup, teardown);
}
