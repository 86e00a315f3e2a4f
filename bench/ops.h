/* ops.h: the cost of each kind of op in a step; see ops.c. */
#pragma once

#include "tests/golden/model/stepper.h"

struct ig_ops_options {
	uint32_t n_prompt;  /* tokens of the prefill step, and the context length of decoding */
	uint32_t n_streams; /* rows of the decode step */
	uint32_t n_rounds;
	double read_bytes, macs; /* the machine's roofline, per second; 0: unknown */
};

/* The share of a node's weights that one row uses: top_k / n_experts of experts, else 1. */
double ig_ops_share(const struct ig_plan_node *n);
/* Measure and print. */
int ig_ops_bench(const struct ig_stepper_model *m, const struct ig_stepper_options *how,
		 const struct ig_ops_options *o, struct ig_error *err);
