/*
 * module.c: the module "moe": mixture of experts as three ops, and the architectures that
 * are made of them, of the core ops and of those of the module "attention".
 */
#include "moe_private.h"

#include <ingot/build_id.h>

static const struct ig_op_version requires_ops[] = {
	{ "embed", 1 },	 { "norm", 1 },	      { "linear", 1 },	{ "glu", 1 },	    { "logits", 1 },
	{ "sample", 1 }, { "rope_table", 1 }, { "rope_kv", 1 }, { "attention", 1 }, { NULL },
};
static const struct ig_op *const ops[] = { &ig_op_moe_route, &ig_op_moe_glu, &ig_op_moe_combine,
					   NULL };
static const struct ig_arch *const archs[] = { &ig_arch_qwen3moe, &ig_arch_mixtral, &ig_arch_olmoe,
					       NULL };

const struct ig_module ingot_module = {
	IG_MODULE_HEAD,	       .build_id = IG_BUILD_ID,	     .name = "moe",
	.version = IG_VERSION, .requires_ops = requires_ops, .ops = ops,
	.archs = archs,	       .init = ig_moe_init,
};
