/*
 * plan.h: a model's forward pass, recorded once.  The recorder (struct ig_graph) checks the shapes
 * of every op.  A finished plan is immutable.  It has the weights' names and shapes; their data
 * stays in the model's file until a driver packs it.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/op.h>

#include <stdbool.h>

struct ig_adapter;
struct ig_checkpoint;
struct ig_checkpoint_tensor;
struct ig_modules;

struct ig_plan_value {
	struct ig_shape shape;
	int32_t first_node, last_node; /* first write, last read; for sharing scratch memory */
	uint32_t part; /* of a divided plan: 1 + the rank that computes it; 0: all do */
};

struct ig_plan_weight {
	char name[96];
	struct ig_shape shape;
	const struct ig_checkpoint_tensor *tensor; /* see ig_checkpoint_rows */
	uint64_t n_bytes;			   /* of all rows in IG_LAYOUT_ROWS */
	bool of_adapters; /* tensor is the plan's, and in its adapter_mem */
};

struct ig_plan_node {
	const struct ig_op *op;
	const void *params; /* owned by the plan */
	uint32_t n_in, n_weights, n_out;
	ig_value in[IG_MAX_IN]; /* IG_NONE: omitted */
	ig_weight weight[IG_MAX_WEIGHTS];
	ig_value out[IG_MAX_OUT];
};

struct ig_plan {
	struct ig_plan_node *nodes;
	uint32_t n_nodes;
	struct ig_plan_value *values;
	uint32_t n_values;
	struct ig_plan_weight *weights;
	uint32_t n_weights;
	struct ig_model_info info;
	const struct ig_arch *arch;
	uint32_t n_adapters;
	void **adapter_mem; /* [n_adapter_mem] */
	uint32_t n_adapter_mem;
	uint64_t adapter_bytes;
	uint32_t n_ranks, rank;	 /* of a divided plan (split.h); 0: it is not */
	uint32_t first_mtp_node; /* the first of the head that guesses; 0: the plan has none */
	uint32_t width_in,
		width_out; /* of a stage (stages.h): columns of step->stage_in, stage_out; 0: none */
	uint32_t n_results; /* columns of step->logits: the vocabulary, or a vector's dimensions */
	const struct ig_checkpoint *file; /* not owned; must outlive the programs lowered from it */
};

/* Find the file's architecture among the modules, read the hyper-parameters and record it.
 * -ENOTSUP with an unknown architecture and the known ones; a missing tensor and one of another
 * shape are errors that name it. */
int ig_plan_record(const struct ig_modules *m, const struct ig_checkpoint *file,
		   struct ig_plan **out, struct ig_error *err);
/* The same with these adapters: rows of a step may have one (struct ig_step, row_adapter).  A part that
 * no product of the model uses is an error that names it.  The plan copies what it needs. */
struct ig_plan_adapter {
	const char *name; /* for errors */
	const struct ig_adapter *adapter;
};
int ig_plan_record_adapted(const struct ig_modules *m, const struct ig_checkpoint *file,
			   const struct ig_plan_adapter *adapters, uint32_t n_adapters,
			   struct ig_plan **out, struct ig_error *err);
/* The same as ig_plan_record with the head that guesses the token after the next one, if the file has one
 * (info.n_mtp_layers): steps then may have it (struct ig_step, next_ids). */
int ig_plan_record_mtp(const struct ig_modules *m, const struct ig_checkpoint *file,
		       struct ig_plan **out, struct ig_error *err);
void ig_plan_destroy(struct ig_plan *p); /* NULL is fine */
/* What of its file the plan does not use, for people: "12 tensors of vision"; empty: nothing. */
void ig_plan_left_out(const struct ig_plan *p, char *out, size_t size);
