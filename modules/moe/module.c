/* module.c: the module "moe": three ops for mixture of experts, and the architectures that use
 * them. */
#include "moe_private.h"

#include <ingot/build_id.h>

static const struct ig_op_version requires_ops[] = {
	{ "embed", 1 },	    { "norm", 1 },	   { "linear", 1 },	    { "glu", 1 },
	{ "logits", 1 },    { "sample", 1 },	   { "rope_table", 1 },	    { "rope_kv", 1 },
	{ "attention", 1 }, { "linear_heads", 1 }, { "rope_latent", 1 },    { "rope_rows", 1 },
	{ "pool", 1 },	    { "output", 1 },	   { "attention_rows", 1 }, { NULL },
};
static const struct ig_op *const ops[] = { &ig_op_moe_route, &ig_op_moe_glu, &ig_op_moe_combine,
					   NULL };
#define X(name) extern const struct ig_arch ig_arch_##name;
ARCHS
#undef X
#define X(name) &ig_arch_##name,
static const struct ig_arch *const archs[] = { ARCHS NULL };

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.build_id = IG_BUILD_ID,
	.name = "moe",
	.version = IG_VERSION,
	.requires_ops = requires_ops,
	.ops = ops,
	.archs = archs,
	.init = ig_moe_init,
};
