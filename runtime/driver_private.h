/* driver_private.h: the interface that a driver implements for driver.c. */
#pragma once

#include "runtime/driver.h"

#include <stdatomic.h>

struct ig_driver_class {
	const char *name;
	int (*open)(const struct ig_driver_options *o, struct ig_driver **out,
		    struct ig_error *err);
	void (*close)(struct ig_driver *d);
	const char *(*describe)(const struct ig_driver *d);
	int (*lower)(struct ig_driver *d, const struct ig_plan *plan,
		     const struct ig_program_limits *limits, struct ig_program **out,
		     struct ig_program_memory *memory, struct ig_error *err);
	/* With p->packed, which may be NULL. */
	int (*load)(struct ig_program *p, struct ig_error *err);
	uint64_t (*packed_layout)(const struct ig_program *p, uint64_t *file_bytes); /* NULL: 0 */
	void (*destroy)(struct ig_program *p);
	/* As ig_program_submit and ig_program_wait, with the text in p->error.  wait waits for
	 * in_flight[0]. */
	int (*submit)(struct ig_program *p, const struct ig_step *step);
	int (*wait)(struct ig_program *p);
	void *(*map_slab)(struct ig_driver *d, uint64_t slab_bytes);
	void (*unmap_slab)(struct ig_driver *d, void *base, uint64_t slab_bytes);
	void (*copy)(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes);
	int (*read_slab)(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			 struct ig_error *err);
	int (*write_slab)(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			  struct ig_error *err);
	uint64_t (*memory)(const struct ig_driver *d); /* NULL: 0 */
	bool (*is_unified)(const struct ig_driver *d); /* NULL: no */
	/* NULL: the driver is never told, or keeps nothing. */
	void (*watch_memory)(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes),
			     void *ctx);
	uint64_t (*release)(struct ig_driver *d, uint64_t n_bytes);
	/* As ig_driver_model_info; NULL: by n_ranks. */
	int (*model_info)(const struct ig_driver *d, const struct ig_plan *plan,
			  struct ig_model_info *out, struct ig_error *err);
	uint32_t steps_in_flight;
	uint32_t n_ranks;   /* devices over which plans are divided; 0: 1 */
	bool takes_mtp;	    /* plans may have a head that guesses */
	bool takes_outside; /* steps may have rows that are no token's */
};

/* Have memory for that of n ranks, and the most of any rank once it is filled in. */
int ig_program_set_ranks(struct ig_program *p, uint32_t n, struct ig_error *err);
struct ig_program_memory ig_program_most(const struct ig_program *p);

/* The first member of every driver and of every program. */
struct ig_driver {
	const struct ig_driver_class *class;
	atomic_uint_fast64_t pulse; /* see ig_driver_pulse */
	int64_t landed_ns,
		step_ns; /* the end of the last step that was waited for; see ig_driver_step_ns */
};

struct ig_program {
	const struct ig_driver_class *class;
	struct ig_driver *driver; /* that lowered it; of ig_driver_lower */
	struct ig_program_limits limits;
	uint32_t windows[IG_MAX_CACHE_GROUPS]; /* of the plan's cache groups; 0: none */
	uint32_t n_parts[IG_MAX_CACHE_GROUPS]; /* of groups of state; 0: of another kind */
	uint32_t n_adapters;		       /* of the plan */
	bool has_mtp;			       /* the same: a head that guesses */
	int64_t prepare_ns;		       /* see ig_program_prepare_ns; of submit */
	uint32_t width_in, width_out;	       /* of the plan */
	uint32_t
		width_outside; /* of embeddings from outside that the plan's steps may have; 0: none */
	uint32_t strict;
	uint32_t loaded;
	struct ig_packed_file *packed; /* while it is loaded; NULL: none */
	bool whole_texts;	       /* its plan has no cache: a step has its sequences whole */
	uint32_t split_rows;	       /* see ig_program_split_rows; of lower */
	uint32_t n_ranks; /* over which lower divides it, with their memory, of malloc; 0: one */
	struct ig_program_memory *rank_memory;		     /* [n_ranks] */
	const struct ig_step *in_flight[IG_STEPS_IN_FLIGHT]; /* oldest first */
	int64_t submit_ns[IG_STEPS_IN_FLIGHT];
	uint32_t n_in_flight;
	struct ig_error error; /* of the last submit or wait */
};

/* The width of embeddings from outside that a step of the plan may have; 0: none. */
uint32_t ig_plan_outside_width(const struct ig_plan *plan);

extern const struct ig_driver_class ig_driver_cpu;

/* This executable's drivers in the order in which "auto" tries them; NULL-terminated
 * (drivers.c). */
extern const struct ig_driver_class *const ig_driver_classes[];
