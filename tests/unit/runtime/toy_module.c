/* toy_module.c: a module with architectures that record mistakes on purpose; each
 * is named for its own. */
#include <ingot/arch.h>
#include <ingot/op.h>

#include <errno.h>
#include <string.h>

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	info->n_vocab = 7;
	info->n_context = 16;
	info->n_groups = 1;
	info->groups[0] = (struct ig_cache_group){ sizeof info->groups[0], 1, 1, 8, 0 };
	return 0;
}

static int no_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		     struct ig_model_info *info, struct ig_error *err)
{
	return ig_fail(err, -ERANGE, "toy parameters are out of range");
}

static int no_info(const struct ig_host *host, const struct ig_meta *meta, void *params,
		   struct ig_model_info *info, struct ig_error *err)
{
	return 0;
}

enum mistake { NONE, MISSING, SHAPE, TWO_SHAPES, OP, INPUT, WEIGHT, NORM_SHAPE, NO_SAMPLE };

static int record(const struct ig_host *host, struct ig_graph *g, enum mistake m)
{
	struct ig_rec r = { host, g };
	ig_weight table =
		ig_rec_weight(&r, m == SHAPE ? 8 : 7, 32, m == MISSING ? "nowhere" : "table");
	ig_weight vector = ig_rec_weight(&r, 1, 32, "vector");

	if (m == TWO_SHAPES)
		ig_rec_weight(&r, 8, 32, "table");
	ig_value x = ig_rec_embed(&r, table);
	if (m == OP)
		ig_rec_op(&r, "levitate", NULL, &x, 1, NULL, 0);
	ig_weight w = m == WEIGHT ? 55 : m == NORM_SHAPE ? table : vector;
	x = ig_rec_rms_norm_last(&r, m == INPUT ? 99 : x, w, 1e-5f);
	x = ig_rec_logits(&r, x, table);
	if (m != NO_SAMPLE)
		ig_rec_sample(&r, x);
	return host->graph_status(g);
}

#define TOY(fn, label, read, m)                                                                    \
	static int record_##fn(const struct ig_host *h, struct ig_graph *g,                        \
			       const struct ig_meta *meta, const void *params)                     \
	{                                                                                          \
		return record(h, g, m);                                                            \
	}                                                                                          \
	static const struct ig_arch arch_##fn = { sizeof(struct ig_arch), 4, "toy-" label, read,   \
						  record_##fn };
TOY(good, "good", read_params, NONE)
TOY(missing, "missing-tensor", read_params, MISSING)
TOY(shape, "wrong-shape", read_params, SHAPE)
TOY(two, "two-shapes", read_params, TWO_SHAPES)
TOY(op, "unknown-op", read_params, OP)
TOY(input, "bad-input", read_params, INPUT)
TOY(weight, "bad-weight", read_params, WEIGHT)
TOY(norm, "bad-shape", read_params, NORM_SHAPE)
TOY(sample, "no-sample", read_params, NO_SAMPLE)
TOY(params, "bad-params", no_params, NONE)
TOY(info, "no-info", no_info, NONE)

static const struct ig_arch *const archs[] = {
	&arch_good,   &arch_missing, &arch_shape,  &arch_two,	 &arch_op,   &arch_input,
	&arch_weight, &arch_norm,    &arch_sample, &arch_params, &arch_info, NULL,
};
static const char *const needs[] = { "embed", "norm", "logits", "sample", NULL };

extern const struct ig_module ingot_module;
__attribute__((visibility("default"))) const struct ig_module ingot_module = {
	.magic = IG_MODULE_MAGIC,
	.abi_version = IG_MODULE_ABI,
	.struct_size = sizeof(struct ig_module),
	.build_id = IG_BUILD_ID,
	.name = "toy",
	.version = "1",
	.requires_ops = needs,
	.archs = archs,
};
