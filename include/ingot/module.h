/*
 * module.h: what a loadable module exports, and what the host provides.
 *
 * A module exports one object, `const struct ig_module ingot_module`.  The host checks it as
 * data before it calls any function of the module.  A module links no library of Ingot: it gets
 * the host's functions through `struct ig_host`, and ops of other modules by name.
 *
 * The ABI has two tiers.  Tier 1 is all that an architecture needs: this header, error.h,
 * dtype.h, params.h, record.h, arch.h, arch_files.h, hparams.h and layers.h.  It has a version.
 * Within a major version it only grows: a new minor version appends members to structs, and
 * zero in them means the earlier behaviour.  A module may be built against an older minor
 * version, but not against a newer one.  Tier 2 is what ops, kernels and the cache service
 * need: op.h, gpu.h, gpu_lower.h and kvcache.h.  A module that provides any of those must be
 * built against the same declarations, which its build id proves.
 */
#ifndef INGOT_MODULE_H
#define INGOT_MODULE_H

#include <ingot/error.h>

#define IG_MODULE_MAGIC 0x4d474e49u /* "INGM" in a little-endian file */
#define IG_ABI_MAJOR 1u
#define IG_ABI_MINOR 1u

struct ig_arch;
struct ig_host;
struct ig_kernel_host;
struct ig_kvcache_service;
struct ig_op;

/* An op that a module records.  A newer version of an op must behave the same if its new
 * parameters are zero; an op with another meaning has another name. */
struct ig_op_version {
	const char *name;
	uint32_t version; /* the oldest that suffices */
	uint32_t reserved;
};

/* The same in every version: it tells the host how to read the rest. */
struct ig_module_head {
	uint32_t magic;
	uint16_t abi_major, abi_minor;
	uint32_t struct_size; /* of struct ig_module */
	uint32_t reserved;
};

#define IG_MODULE_HEAD { IG_MODULE_MAGIC, IG_ABI_MAJOR, IG_ABI_MINOR, sizeof(struct ig_module), 0 }

enum ig_module_option_type {
	IG_OPTION_BOOL = 0,
	IG_OPTION_INT = 1,
	IG_OPTION_SIZE = 2, /* bytes; written as 4MiB */
	IG_OPTION_TIME = 3, /* ms; written as 5s */
	IG_OPTION_CHOICE = 4,
	IG_OPTION_TEXT = 5,
};

/* One option of a module: modules.NAME.KEY in ingot.yaml, where NAME is the module's name.  The
 * struct is an array element and never grows; reserved members must be 0. */
struct ig_module_option {
	const char *key; /* a-z, 0-9 and _; at most 63 bytes */
	uint32_t type;	 /* enum ig_module_option_type */
	uint32_t reserved;
	uint64_t min, max; /* INT, SIZE, TIME: of the value; TEXT: of its length in bytes */
	uint64_t number;   /* the default; BOOL: 0 or 1 */
	const char *text;  /* CHOICE, TEXT: the default */
	const char *const *choices; /* CHOICE: NULL-terminated */
	const char *unit;	    /* INT: e.g. "tokens"; may be NULL */
	const char *help;	    /* one sentence, for the commented ingot.yaml */
	uint64_t reserved_too;
};

struct ig_module {
	struct ig_module_head head; /* IG_MODULE_HEAD */
	const char *name;
	const char *version;
	const struct ig_op_version *requires_ops; /* ends with a NULL name; may be NULL */
	const struct ig_arch *const *archs;	  /* NULL-terminated; may be NULL */
	/* Called once, after the checks; returns 0 or a negative errno.  May be NULL. */
	int (*init)(const struct ig_host *host);

	/* Tier 2. */
	char build_id[24]; /* IG_BUILD_ID of build_id.h; required with ops or kvcache */
	const struct ig_op *const *ops;		  /* NULL-terminated; may be NULL */
	const struct ig_kvcache_service *kvcache; /* may be NULL */

	/* Since 1.1. */
	const struct ig_module_option *options; /* ends with a NULL key; may be NULL */
};

/* The one symbol that a module exports. */
extern __attribute__((visibility("default"))) const struct ig_module ingot_module;

enum ig_log_level {
	IG_LOG_ERROR = 0,
	IG_LOG_WARN = 1,
	IG_LOG_INFO = 2,
	IG_LOG_DEBUG = 3,
};

struct ig_meta;	 /* a model file's metadata */
struct ig_graph; /* a plan while it is recorded */

/* Handles of a graph.  Negative: none, or an error before. */
typedef int32_t ig_value;
typedef int32_t ig_weight;
#define IG_NONE (-1)

/* What the host provides.  Valid until the process ends. */
struct ig_host {
	uint32_t struct_size;
	uint16_t abi_major, abi_minor;

	/* Any thread. */
	void (*log)(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

	/* Metadata of the model's file.  Each returns 0, -ENOENT if the key is missing, or -EINVAL
	 * if it has another type or is out of range, with text in err.  A string is owned by the
	 * file and valid while the file is open; it is not NUL-terminated.  A boolean is the
	 * number 0 or 1. */
	int (*meta_u32)(const struct ig_meta *m, const char *key, uint32_t *out,
			struct ig_error *err);
	int (*meta_f32)(const struct ig_meta *m, const char *key, float *out, struct ig_error *err);
	int (*meta_str)(const struct ig_meta *m, const char *key, const char **out, size_t *len,
			struct ig_error *err);
	/* An array of integers or booleans (0 or 1): *n is its length; its first elements are
	 * written to out[cap]. */
	int (*meta_array_u32)(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			      uint64_t *n, struct ig_error *err);
	/* Returns 1 if the file has a tensor of that name, else 0. */
	int (*meta_has_tensor)(const struct ig_meta *m, const char *name);
	/* The shape of the tensor of that name as a matrix (see `weight`).  0 or -ENOENT. */
	int (*meta_tensor)(const struct ig_meta *m, const char *name, int64_t *n_rows,
			   int64_t *n_cols);

	/* Recording.  The graph stores the first error; then all handles are IG_NONE.
	 * weight: declare the tensor of that name, [n_rows, n_cols]. */
	ig_weight (*weight)(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
	/* Record op `name`; its results are written to out[].  params points to its parameter
	 * struct, whose first member is its size (params.h). */
	int (*record)(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		      uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		      uint32_t n_out);
	/* The graph's first error, or 0. */
	int (*graph_status)(const struct ig_graph *g);

	/* Tier 2: functions for ops (op.h).  NULL if build_id is not the host's. */
	const struct ig_kernel_host *(*kernels)(const char *build_id);

	/* Since 1.1.  The value of an option of the module that got this host: from the
	 * configuration, or the default.  Returns 0, -ENOENT (no such option) or -EINVAL (wrong
	 * type).  option_number: BOOL, INT, SIZE (bytes), TIME (ms); option_text: CHOICE, TEXT.
	 * From init on; any thread. */
	int (*option_number)(const struct ig_host *host, const char *key, uint64_t *out);
	int (*option_text)(const struct ig_host *host, const char *key, const char **out);
};

#endif
