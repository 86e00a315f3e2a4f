/* ops.h: the core ops, one file each: shape check, reference, table of cpu kernels.  Modules
 * provide other ops. */
#pragma once

#include <ingot/record.h>
#include <ingot/op.h>

extern const struct ig_op ig_op_embed, ig_op_norm, ig_op_linear, ig_op_linear_heads, ig_op_glu,
	ig_op_logits, ig_op_sample, ig_op_adapt_down, ig_op_adapt_up, ig_op_glu_join,
	ig_op_multiply, ig_op_soft_cap, ig_op_pool, ig_op_output, ig_op_sum, ig_op_concat,
	ig_op_stage_in, ig_op_stage_out;

/* NULL-terminated. */
extern const struct ig_op *const ig_core_ops[];
