/*
 * module.h: what a loadable module exports, and what it gets.
 *
 * A module exports one object, `const struct ig_module ingot_module`.  It is
 * read as data before anything in it is called.  A module links nothing of ours;
 * it gets the host's functions through `struct ig_host` and other modules' ops by
 * name.
 *
 * The ABI has two tiers.  Tier 1, all that an architecture needs, is this header,
 * error.h, dtype.h, params.h, record.h, arch.h, arch_files.h, hparams.h and layers.h.  It
 * has a version, and within a major version it only grows: structs at their end, where
 * zero means what was before, by a minor version each time.  A module may have been built
 * against an older minor version, never against a newer one.  Tier 2, what ops, kernels
 * and the cache service need, is op.h, gpu.h, gpu_lower.h and kvcache.h.  A module that brings
 * those must have been built against the same declarations: its build id says so.
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

/* An op that a module records.  An op keeps its meaning: what a newer version adds is
 * off where its parameters are zero, and anything else has another name. */
struct ig_op_version {
	const char *name;
	uint32_t version; /* this one or a newer one */
	uint32_t reserved;
};

/* Of every version: by it the host knows how to read the rest. */
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
	IG_OPTION_SIZE = 2, /* bytes; the file may say 4MiB */
	IG_OPTION_TIME = 3, /* ms; the file says 5s */
	IG_OPTION_CHOICE = 4,
	IG_OPTION_TEXT = 5,
};

/* One option of a module: modules.NAME.KEY of ingot.yaml, where NAME is the module's.  An
 * element of an array, so it never grows: what is reserved is zero. */
struct ig_module_option {
	const char *key; /* of a-z, 0-9 and _ */
	uint32_t type;	 /* enum ig_module_option_type */
	uint32_t reserved;
	uint64_t min, max;	    /* of INT, SIZE, TIME; of TEXT its length in bytes */
	uint64_t number;	    /* the default; of BOOL 0 or 1 */
	const char *text;	    /* the default of CHOICE and TEXT */
	const char *const *choices; /* of CHOICE; NULL-terminated */
	const char *unit;	    /* of INT, "tokens"; may be NULL */
	const char *help;	    /* a sentence, which the commented ingot.yaml has */
	uint64_t reserved_too;
};

struct ig_module {
	struct ig_module_head head; /* IG_MODULE_HEAD */
	const char *name;
	const char *version;
	const struct ig_op_version *requires_ops; /* ends with a NULL name; may be NULL */
	const struct ig_arch *const *archs;	  /* NULL-terminated; may be NULL */
	/* Called once, after the checks; 0 or a negative errno.  May be NULL. */
	int (*init)(const struct ig_host *host);

	/* Tier 2. */
	char build_id[24];		/* IG_BUILD_ID of build_id.h, where there is any of: */
	const struct ig_op *const *ops; /* NULL-terminated; may be NULL */
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

/* Handles while recording; negative: none, or an earlier error. */
typedef int32_t ig_value;
typedef int32_t ig_weight;
#define IG_NONE (-1)

/* What the host offers.  Valid as long as the process. */
struct ig_host {
	uint32_t struct_size;
	uint16_t abi_major, abi_minor;

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
	/* An array of whole numbers or of booleans (0 and 1): its length to *n, its first
	 * elements to out[cap]. */
	int (*meta_array_u32)(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			      uint64_t *n, struct ig_error *err);
	/* 1 when the file has a tensor of that name. */
	int (*meta_has_tensor)(const struct ig_meta *m, const char *name);
	/* The file's tensor of that name as a matrix (see `weight`).  0, or -ENOENT. */
	int (*meta_tensor)(const struct ig_meta *m, const char *name, int64_t *n_rows,
			   int64_t *n_cols);

	/* Recording.  Errors stick to the graph: later calls return IG_NONE. */
	ig_weight (*weight)(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
	/* Record op `name`; out[] receives its values.  params, its parameter struct, begins
	 * with its own size (params.h). */
	int (*record)(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		      uint32_t n_in, const ig_weight *weights, uint32_t n_weights, ig_value *out,
		      uint32_t n_out);
	/* The graph's first error, or 0. */
	int (*graph_status)(const struct ig_graph *g);

	/* Tier 2, what ops need (op.h); NULL where the build id is another. */
	const struct ig_kernel_host *(*kernels)(const char *build_id);

	/* Since 1.1.  What the configuration says of the module that was given this host, or
	 * the default: 0, -ENOENT (no option has that key), -EINVAL (its type is another).
	 * option_number is for BOOL, INT, SIZE (bytes) and TIME (ms), option_text for CHOICE
	 * and TEXT.  From init on, any thread. */
	int (*option_number)(const struct ig_host *host, const char *key, uint64_t *out);
	int (*option_text)(const struct ig_host *host, const char *key, const char **out);
};

#endif
