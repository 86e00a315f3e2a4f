/* module.c: the module "attention": RoPE, paged attention, and the dense architectures that use
 * them. */
#include "kernels_private.h"

#include <ingot/build_id.h>

static const struct ig_op_version requires_ops[] = {
	{ "embed", 1 },	 { "norm", 1 },	  { "linear", 1 },   { "glu", 1 },
	{ "logits", 1 }, { "sample", 1 }, { "multiply", 1 }, { "soft_cap", 1 },
	{ "pool", 1 },	 { "output", 1 }, { NULL },
};
static const struct ig_op *const ops[] = { &ig_op_rope_table,
					   &ig_op_rope_kv,
					   &ig_op_rope_latent,
					   &ig_op_attention,
					   &ig_op_rope_rows,
					   &ig_op_attention_rows,
					   NULL };
#define X(name) extern const struct ig_arch ig_arch_##name;
ARCHS
#undef X
#define X(name) &ig_arch_##name,
static const struct ig_arch *const archs[] = { ARCHS NULL };

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.build_id = IG_BUILD_ID,
	.name = "attention",
	.version = IG_VERSION,
	.requires_ops = requires_ops,
	.ops = ops,
	.archs = archs,
};
