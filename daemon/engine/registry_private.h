/*
 * registry_private.h: configured models and their loaded instances: what entries.c, models.c,
 * loader.c and contract.c share.
 *
 * An *entry* is a configured name; an *instance* (struct ig_model) is a file that was
 * opened for it, with its program and memory.  An entry points at the instance that
 * requests get now; a reload may replace it, and the old one stays until its last holder
 * has released it.  Every instance counts in the memory contract, whoever holds it.
 *
 * One lock (ig_models.lock) guards all of it.  While it is held, no callback is called, no
 * file opened and no weight packed.  Where both are taken, the scheduler's lock comes first.
 */
#pragma once

#include "daemon/engine/instance_private.h"

#include <pthread.h>

/* A callback for the end of a load. */
struct ig_waiter {
	void (*ready)(void *ctx);
	void *ctx;
	struct ig_waiter *next;
};

enum ig_load {
	IG_LOAD_NONE,
	IG_LOAD_QUEUED,
	IG_LOAD_RUNS,
};

/* What must follow the load that runs, because the configuration has changed. */
enum ig_again {
	IG_AGAIN_NO,
	IG_AGAIN_LOOK,
	IG_AGAIN_LOAD,
};

struct ig_model_entry {
	TAILQ_ENTRY(ig_model_entry) link;  /* in the configuration's order */
	TAILQ_ENTRY(ig_model_entry) queue; /* while it is IG_LOAD_QUEUED */
	char *name, *path;
	struct ig_model_wants wants;
	uint32_t keep_alive_ms;
	struct ig_model_adapter *adapters; /* [n_adapters]; their file_ids: at the last reload */
	uint32_t n_adapters;
	struct ig_model_draft draft; /* its file_id: at the last reload */
	bool pin, at_start;
	/* A request's keep_alive: in place of keep_alive_ms while the model stays loaded. */
	bool has_asked;
	int64_t asked_ns;	/* negative: never unloaded; 0: as soon as nobody uses it */
	struct ig_model *model; /* that requests get; holds a reference.  NULL: none */
	enum ig_load load;
	bool look_only;	       /* the load only reads the file's figures */
	enum ig_again again;   /* when the load that runs has ended */
	bool blocked;	       /* it waits until an older instance of its own is freed */
	bool gone;	       /* no longer configured; freed when its load has ended */
	uint64_t version;      /* of its options: a load of another version is discarded */
	struct ig_error error; /* of the last load; code 0: it succeeded */
	int64_t failed_ns;
	struct ig_waiter *waiters;
	/* of the file as it was opened last; "" and 0: not known */
	char arch[64];
	struct ig_model_traits traits;
	uint32_t n_context;
	struct ig_need need;
	uint64_t scratch_bytes; /* the program's own */
	int64_t created_s;
	uint64_t n_loads;
	double loaded_s;
};
TAILQ_HEAD(ig_entry_list, ig_model_entry);
TAILQ_HEAD(ig_model_list, ig_model);

/* Bytes.  weights, scratch and logits are those of the instances that exist. */
struct ig_contract {
	uint64_t budget, arena, slab, weights, scratch;
	uint64_t logits; /* all copies of logits, as many as steps may be in flight */
	/* Bytes that the system counts for the process; 0: it does not; NULL: before loads. */
	uint64_t (*footprint)(void);
};

struct ig_models {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* the loader's */
	struct ig_backend
		*backend; /* NULL: destroyed; the last release of an instance frees this */
	/* Have the engine's thread make a change; returns when it is done. */
	void (*change)(void *ctx, struct ig_change *c);
	void *change_ctx;
	uint32_t chunk;			/* maximum rows of one sequence in a step */
	const struct ig_config *config; /* the current one */
	struct ig_entry_list entries, queue;
	size_t n_entries;
	struct ig_model_entry *default_entry; /* NULL: there are no entries */
	struct ig_model_list all;	      /* instances that exist and are counted */
	struct ig_contract contract;	      /* budget, arena and slab are fixed */
	bool draining, stopping;
	uint64_t to_free; /* bytes of idle models, because the system is short of memory */
	pthread_t thread;
	bool has_thread;
};

/* How long a loaded model stays without a request, in nanoseconds; negative: always. */
static inline int64_t ig_entry_keep_ns(const struct ig_model_entry *s)
{
	if (s->has_asked)
		return s->asked_ns;
	return s->keep_alive_ms ? (int64_t)s->keep_alive_ms * 1000000 : -1;
}

static inline bool ig_model_is_current(const struct ig_model *m)
{
	return m->entry && m->entry->model == m;
}
