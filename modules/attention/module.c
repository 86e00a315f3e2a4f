/*
 * module.c: the module "attention": rotary positions, paged attention, and the
 * dense architectures that are made of them and of the core ops.
 */
#include "kernels_private.h"

static const char *const requires_ops[] = { "embed",  "norm",	"linear", "glu",
					    "logits", "sample", NULL };
static const struct ig_op *const ops[] = { &ig_op_rope_table, &ig_op_rope_kv, &ig_op_attention,
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
	.name = "attention",
	.version = IG_VERSION,
	.requires_ops = requires_ops,
	.ops = ops,
	.archs = archs,
};
