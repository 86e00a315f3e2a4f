/* plan_private.h: recording, as struct ig_host offers it to architectures. */
#pragma once

#include "runtime/plan.h"

ig_weight ig_graph_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
int ig_graph_record(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		    uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		    uint32_t n_out);
int ig_graph_status(const struct ig_graph *g);
