/*
 * plan.c: prints figures of known models with the driver metal (bench/figures.h).
 *
 *   ninja bench/ingot-plan && bench/ingot-plan [PATHS OF attention.so AND moe.so]
 */
#include "bench/figures.h"
#include "model/formats/checkpoint.h"
#include "runtime/modules/modules.h"

#include <stdio.h>

static void print_step(const struct figures *f, const struct figures_step *s)
{
	printf("  %4u row%s  a layer: %2u dispatches, %2u barriers; a step: %3u and %3u, "
	       "%2u command buffer%s, walked in %.1f us\n",
	       s->rows, s->rows == 1 ? ": " : "s:", s->layer_dispatches, s->layer_barriers,
	       s->n_dispatches, s->n_barriers, s->n_command_buffers,
	       s->n_command_buffers == 1 ? "" : "s", s->encode_us);
	if (s->rows == 1)
		printf("              reads %.1f MB of weights and %.1f MB of values: %.4f x the "
		       "weights' %.1f MB\n",
		       (double)s->weight_reads / 1e6, (double)s->other_reads / 1e6,
		       (double)(s->weight_reads + s->other_reads) / (double)f->weight_bytes,
		       (double)f->weight_bytes / 1e6);
}

int main(int argc, char **argv)
{
	static const uint32_t dtypes[] = { IG_F16, IG_BF16, IG_Q8_0, IG_Q4_0, IG_Q4_1 };
	struct ig_error err = { 0 };
	struct ig_modules *m;
	int rc = ig_modules_create(&m, &err);

	if (!rc)
		rc = ig_modules_load(m, argc > 2 ? argv[1] : INGOT_ATTENTION_MODULE, &err);
	if (!rc)
		rc = ig_modules_load(m, argc > 2 ? argv[2] : INGOT_MOE_MODULE, &err);
	if (!rc)
		rc = ig_modules_start(m, NULL, 0, &err);
	for (uint32_t i = 0; i < figures_n_shapes && !rc; i++)
		for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes && !rc; j++) {
			struct figures f;
			rc = figures_of(m, &figures_shapes[i], dtypes[j], IG_GPU_METAL, &f, &err);
			if (rc)
				break;
			printf("%s, %s: scratch %.1f MB, a step at most %.1f MB, %u partials\n",
			       figures_shapes[i].name, ig_dtype_name(dtypes[j]),
			       (double)f.scratch_bytes / 1e6, (double)f.step_bytes / 1e6,
			       f.max_partials);
			print_step(&f, &f.few);
			print_step(&f, &f.many);
		}
	if (rc)
		fprintf(stderr, "ingot-plan: %s\n", err.text);
	ig_modules_destroy(m);
	return rc ? 1 : 0;
}
