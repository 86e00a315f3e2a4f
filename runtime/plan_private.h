/* plan_private.h: recording, as struct ig_host offers it to architectures. */
#pragma once

#include "runtime/plan.h"

ig_weight ig_graph_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
int ig_graph_record(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		    uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		    uint32_t n_out);

/* adapted.c: the adapters that a graph records. */
struct ig_adapted {
	const struct ig_plan_adapter *adapters;
	uint32_t n;
	bool **used; /* [n][n_parts] */
};
struct ig_plan *ig_graph_plan(struct ig_graph *g);
struct ig_adapted *ig_graph_adapted(struct ig_graph *g);
struct ig_error *ig_graph_error(struct ig_graph *g);
/* Record one op as it is. */
int ig_graph_record_plain(struct ig_graph *g, const char *op, const void *params,
			  const ig_value *in, uint32_t n_in, const ig_weight *weights,
			  uint32_t n_weights, ig_value *out, uint32_t n_out);
/* A weight of the plan's own: rows of float32 that it takes over. */
ig_weight ig_graph_own_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols,
			      float *data);
/* Whether an adapter changes one of these weights. */
bool ig_adapted_has(struct ig_graph *g, const ig_weight *weights, uint32_t n);
/* Record a product with adapters, as several ops. */
int ig_adapted_record(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		      uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		      uint32_t n_out);
int ig_adapted_init(struct ig_adapted *d, const struct ig_plan_adapter *adapters, uint32_t n);
void ig_adapted_finish(struct ig_adapted *d);
/* Every part was used; or an error with the first that was not. */
int ig_adapted_check(const struct ig_adapted *d, struct ig_error *err);

int ig_graph_status(const struct ig_graph *g);
