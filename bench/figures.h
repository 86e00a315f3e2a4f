/* figures.h: figures of a plan on a GPU, computed without one: dispatches and barriers, bytes that
 * a token reads, command buffers, scratch memory, the time to walk the tape. */
#pragma once

#include <ingot/gpu.h>

struct ig_modules;

/* A dense llama, or with experts a qwen3moe, of this shape; its weights have names and sizes, but
 * no data. */
struct figures_shape {
	const char *name;
	uint32_t n_layers, width, ff, n_heads, n_kv_heads, head_dim, n_vocab, n_context;
	uint32_t n_experts, n_used; /* 0: dense; else ff is that of one expert */
};

/* PREDECESSOR's models: TinyLlama 1.1B, Devstral-Small 24B, Qwen3-30B-A3B. */
extern const struct figures_shape figures_shapes[];
extern const uint32_t figures_n_shapes;

struct figures_step {
	uint32_t rows;			   /* few: one per sequence; many: of one sequence */
	uint32_t n_dispatches, n_barriers; /* of the step */
	uint32_t layer_dispatches, layer_barriers; /* of one layer */
	uint32_t n_command_buffers;		   /* of the driver metal */
	double encode_us;			   /* walking the tape: barriers, grids */
	/* Bytes read: weights as often as kernels read them; values and scratch memory once per
	 * dispatch.  Without the KV cache, which depends on the context's length. */
	uint64_t weight_reads, other_reads;
};

struct figures {
	/* That a token must read: one row of an untied embedding, the used experts. */
	uint64_t weight_bytes;
	uint64_t scratch_bytes, step_bytes;
	uint32_t max_partials, n_dispatches; /* all of the tape's */
	struct figures_step few, many;	     /* one row; a prompt's chunk of max_rows */
};

/* 0 or -errno with text. */
int figures_of(const struct ig_modules *m, const struct figures_shape *shape, uint32_t dtype,
	       uint32_t kind, struct figures *out, struct ig_error *err);
