/*
 * arch.h: what the file of an architecture needs.  Tier 1 (module.h).  An architecture is one file
 * that reads from top to bottom like the model's paper: hyper-parameters, cache groups, then
 * `record`, which declares weights and records ops (record.h).
 */
#ifndef INGOT_ARCH_H
#define INGOT_ARCH_H

#include <ingot/record.h>

#define IG_MAX_CACHE_GROUPS 4

struct ig_arch_files; /* arch_files.h */

enum {
	IG_CACHE_KV = 0,    /* K and V of each token */
	IG_CACHE_STATE = 1, /* a state of fixed size, whatever the number of tokens */
	IG_CACHE_K = 2,	    /* K of each token alone: values are a part of it */
};

/* Layers with the same KV cache layout and window, or with the same state.  Of a state, n_kv_heads is
 * the number of parts of a layer and head_dim the number of float32 of a part; there is no window.
 * Groups of state come after all others.  The struct is an array element and never grows; `reserved`
 * must be 0. */
struct ig_cache_group {
	uint32_t struct_size;
	uint32_t n_layers, n_kv_heads, head_dim;
	uint32_t window; /* of the sliding window, in tokens; 0: every position is cached */
	uint32_t kind;	 /* IG_CACHE_KV … */
	uint32_t reserved[2];
};

/* What a model tells the engine.  The host owns it, zeroes it and sets struct_size. */
struct ig_model_info {
	uint32_t struct_size;
	uint32_t n_vocab;
	uint32_t n_context; /* the largest context in tokens, as trained */
	uint32_t n_groups;
	struct ig_cache_group groups[IG_MAX_CACHE_GROUPS];
	/* What a step computes of a sequence.  Other results than tokens are the rows of the op
	 * `output`: n_groups is then 0, and a step has a sequence whole. */
	uint32_t result; /* enum ig_result */
	/* Since 1.1.  Layers of the head that record_mtp records: with the head, group 0 has so many more,
	 * behind its others.  0: the file has no head. */
	uint32_t n_mtp_layers;
};

enum ig_result {
	IG_RESULT_TOKENS = 0,
	IG_RESULT_EMBEDDING = 1, /* a vector, not normalised */
	IG_RESULT_SCORE =
		2, /* how well a text answers a query: one logit, or those of yes and no */
};

struct ig_arch {
	uint32_t struct_size;
	uint32_t params_size; /* bytes of hyper-parameters; the host owns and zeroes them */
	const char *name;     /* general.architecture in GGUF */
	/* Read and check the hyper-parameters; fill in info.  Returns 0 or a negative errno with
	 * a text that names the wrong key. */
	int (*read_params)(const struct ig_host *host, const struct ig_meta *meta, void *params,
			   struct ig_model_info *info, struct ig_error *err);
	/* Record the whole model; the last op is `sample`, or `output`.  Returns the graph's status. */
	int (*record)(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		      const void *params);
	/* Returns 1 if the file is of this architecture although general.architecture names
	 * another one (Mixtral's files say "llama").  A claim has precedence over the name; two
	 * claims of one file are an error.  NULL: the name decides. */
	int (*claims)(const struct ig_host *host, const struct ig_meta *meta);
	/* Since 1.1.  How folders of safetensors are read; NULL-terminated.  NULL: they are not
	 * supported. */
	const struct ig_arch_files *const *files;
	/* Since 1.1.  Record the head that guesses the token after the next one (multi-token prediction):
	 * behind all of `record`, whose last norm reads x.  Its last op is `sample` with guess 1.  Returns
	 * the graph's status.  NULL: the architecture has none. */
	int (*record_mtp)(const struct ig_host *host, struct ig_graph *g,
			  const struct ig_meta *meta, const void *params, ig_value x);
};

#endif
