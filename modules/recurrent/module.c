/* module.c: the module "recurrent": the ops of recurrent layers, whose states lie in the cache, and the
 * architectures that use them. */
#include "recurrent_private.h"

#include <ingot/build_id.h>

static const struct ig_op_version requires_ops[] = {
	{ "embed", 1 },	 { "norm", 1 },	      { "linear", 1 },	{ "glu", 1 },	    { "logits", 1 },
	{ "sample", 1 }, { "rope_table", 1 }, { "rope_kv", 1 }, { "attention", 1 }, { NULL },
};
static const struct ig_op *const ops[] = { &ig_op_conv1d, &ig_op_gated_delta, &ig_op_norm_gated,
					   &ig_op_selective_scan, NULL };
#define X(name) extern const struct ig_arch ig_arch_##name;
ARCHS
#undef X
#define X(name) &ig_arch_##name,
static const struct ig_arch *const archs[] = { ARCHS NULL };

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.build_id = IG_BUILD_ID,
	.name = "recurrent",
	.version = IG_VERSION,
	.requires_ops = requires_ops,
	.ops = ops,
	.archs = archs,
};
