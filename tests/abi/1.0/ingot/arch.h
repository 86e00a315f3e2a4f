/*
 * arch.h: what an architecture's file needs.  Tier 1 (module.h).
 *
 * An architecture is one file that reads from top to bottom like the model's
 * paper: hyper-parameters, cache groups, then `record`, which declares weights
 * and records ops (record.h).
 */
#ifndef INGOT_ARCH_H
#define INGOT_ARCH_H

#include <ingot/record.h>

#define IG_MAX_CACHE_GROUPS 4

/* An element of an array, so it never grows: what is reserved is zero. */
struct ig_cache_group {
	uint32_t struct_size;
	uint32_t n_layers, n_kv_heads, head_dim;
	uint32_t window; /* 0: all positions are kept */
	uint32_t reserved[3];
};

/* What every model tells the engine.  The host's, zeroed, with its own struct_size. */
struct ig_model_info {
	uint32_t struct_size;
	uint32_t n_vocab;
	uint32_t n_context; /* as trained: the most positions */
	uint32_t n_groups;
	struct ig_cache_group groups[IG_MAX_CACHE_GROUPS];
};

struct ig_arch {
	uint32_t struct_size;
	uint32_t params_size; /* bytes of hyper-parameters; the host owns them */
	const char *name;     /* general.architecture of GGUF */
	/* Read and check the hyper-parameters; fill in info.  0 or a negative errno
	 * with text naming the key that is wrong. */
	int (*read_params)(const struct ig_host *host, const struct ig_meta *meta, void *params,
			   struct ig_model_info *info, struct ig_error *err);
	/* Record the whole model, `sample` last.  Returns the graph's status. */
	int (*record)(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		      const void *params);
	/* 1: the file is of this architecture, though general.architecture says another's
	 * name (Mixtral's say llama).  Goes before the name; that two architectures claim one
	 * file is an error.  NULL: the name alone counts. */
	int (*claims)(const struct ig_host *host, const struct ig_meta *meta);
};

#endif
