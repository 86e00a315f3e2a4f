/*
 * module.h: what a loadable module exports, and what it gets.
 *
 * A module exports one object, `const struct ig_module ingot_module`.  It is
 * read as data before anything in it is called: magic, ABI, size, build id,
 * required ops.  A module links nothing of ours; it gets the host's functions
 * through `struct ig_host` and other modules' ops by name.
 *
 * The ABI has two tiers.  Tier 1 is this header, error.h, dtype.h, record.h and
 * arch.h: all that an architecture needs.  Tier 2 is op.h, gpu.h and kvcache.h:
 * what ops, kernels and the cache service need.
 */
#ifndef INGOT_MODULE_H
#define INGOT_MODULE_H

#include <ingot/error.h>

#define IG_MODULE_MAGIC 0x4d474e49u /* "INGM" in a little-endian file */
#define IG_MODULE_ABI 5u

/* The build id is a hash of include/ingot/, computed by the build and passed to
 * every compilation that needs it. */
#ifndef IG_BUILD_ID
#define IG_BUILD_ID "0000000000000000"
#endif

struct ig_host;
struct ig_arch;
struct ig_op;
struct ig_kvcache_service;

struct ig_module {
	uint32_t magic;	      /* IG_MODULE_MAGIC */
	uint32_t abi_version; /* IG_MODULE_ABI */
	uint32_t struct_size; /* sizeof(struct ig_module) */
	uint32_t reserved;
	char build_id[24]; /* IG_BUILD_ID */
	const char *name;
	const char *version;
	const char *const *requires_ops;	  /* NULL-terminated; may be NULL */
	const struct ig_op *const *ops;		  /* NULL-terminated; may be NULL */
	const struct ig_arch *const *archs;	  /* NULL-terminated; may be NULL */
	const struct ig_kvcache_service *kvcache; /* may be NULL */
	/* Called once, after the checks; 0 or a negative errno.  May be NULL. */
	int (*init)(const struct ig_host *host);
};

enum ig_log_level {
	IG_LOG_ERROR = 0,
	IG_LOG_WARN = 1,
	IG_LOG_INFO = 2,
	IG_LOG_DEBUG = 3,
};

struct ig_meta;	 /* a model file's metadata */
struct ig_graph; /* a plan while it is recorded */

/* Handles while recording; negative: none, or an earlier error. */
typedef int32_t ig_value;
typedef int32_t ig_weight;
#define IG_NONE (-1)

/* What the host offers.  Valid as long as the process. */
struct ig_host {
	uint32_t struct_size;
	uint32_t abi_version;

	/* Any thread. */
	void (*log)(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

	/* Model metadata.  Each returns 0, -ENOENT when the key is missing, or
	 * -EINVAL when it has another type or is out of range; err is filled in.
	 * A string belongs to the file and lives as long as it is open. */
	int (*meta_u32)(const struct ig_meta *m, const char *key, uint32_t *out,
			struct ig_error *err);
	int (*meta_f32)(const struct ig_meta *m, const char *key, float *out, struct ig_error *err);
	int (*meta_str)(const struct ig_meta *m, const char *key, const char **out, size_t *len,
			struct ig_error *err);
	/* 1 when the file has a tensor of that name. */
	int (*meta_has_tensor)(const struct ig_meta *m, const char *name);

	/* Recording.  Errors stick to the graph: later calls return IG_NONE. */
	ig_weight (*weight)(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
	/* Record op `name`; out[] receives its values. */
	int (*record)(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		      uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		      uint32_t n_out);
	/* The graph's first error, or 0. */
	int (*graph_status)(const struct ig_graph *g);

	/* The file's tensor of that name as a matrix (see `weight`).  0, or -ENOENT. */
	int (*meta_tensor)(const struct ig_meta *m, const char *name, int64_t *n_rows,
			   int64_t *n_cols);

	/* For ops that are made of others (struct ig_cpu_kernel, inner).  Any thread. */
	const struct ig_op *(*core_op)(const char *name); /* NULL: there is none */
	/* IG_FORM_TILE16: bytes of 16 rows of k values, a multiple of 64 (0: no such layout);
	 * and to lay out 16 rows, as files have them, at a multiple of 64. */
	uint64_t (*tile_bytes)(uint32_t dtype, int64_t k);
	void (*tile_pack)(uint32_t dtype, const void *rows, int64_t k, void *tile);

	/* An array of whole numbers or of booleans (0 and 1): its length to *n, its first
	 * elements to out[cap].  Returns as meta_u32. */
	int (*meta_array_u32)(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			      uint64_t *n, struct ig_error *err);
};

#endif
