/*
 * module.c: the module "moe": mixture of experts as three ops, and the architectures that
 * are made of them, of the core ops and of those of the module "attention".
 */
#include "moe_private.h"

static const char *const requires_ops[] = { "embed",	 "norm",   "linear",	 "glu",
					    "logits",	 "sample", "rope_table", "rope_kv",
					    "attention", NULL };
static const struct ig_op *const ops[] = { &ig_op_moe_route, &ig_op_moe_glu, &ig_op_moe_combine,
					   NULL };
#define X(name) extern const struct ig_arch ig_arch_##name;
ARCHS
#undef X
#define X(name) &ig_arch_##name,
static const struct ig_arch *const archs[] = { ARCHS NULL };

extern const struct ig_module ingot_module;

__attribute__((visibility("default"))) const struct ig_module ingot_module = {
	.magic = IG_MODULE_MAGIC,
	.abi_version = IG_MODULE_ABI,
	.struct_size = sizeof(struct ig_module),
	.build_id = IG_BUILD_ID,
	.name = "moe",
	.version = IG_VERSION,
	.requires_ops = requires_ops,
	.ops = ops,
	.archs = archs,
	.init = ig_moe_init,
};
