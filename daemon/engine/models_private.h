/*
 * models_private.h: models by configuration, what is loaded of them, and the thread that
 * loads and unloads.
 *
 * A *slot* is a configured name; an *instance* (struct ig_model) is a file that was
 * opened for it, with its program and memory.  A slot points at the instance that
 * requests are given now; a reload may put another in its place, and the old one stays
 * until the last who holds it lets go.  Instances that exist count in the memory
 * contract, whoever holds them.
 *
 * One lock (ig_models.lock) guards all of it.  No callback is called, no file opened and
 * no weight packed with it held.  Where both are taken, the engine's lock comes first.
 */
#ifndef INGOT_ENGINE_MODELS_PRIVATE_H
#define INGOT_ENGINE_MODELS_PRIVATE_H

#include "daemon/engine/engine_private.h"

#define IG_DEFAULT_ARENA ((uint64_t)4 << 30)
/* An arena that can't hold one conversation of so many tokens serves nobody. */
#define IG_LEAST_TOKENS 256

/* ---- slots ----------------------------------------------------------------------- */

/* Whom to tell when a load has ended. */
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

/* What runs is not what is wanted any more, or not enough. */
enum ig_again {
	IG_AGAIN_NO,
	IG_AGAIN_LOOK,
	IG_AGAIN_LOAD,
};

struct ig_slot {
	TAILQ_ENTRY(ig_slot) link;  /* in the configuration's order */
	TAILQ_ENTRY(ig_slot) queue; /* while it is IG_LOAD_QUEUED */
	char *name, *path;
	uint32_t context, keep_alive_ms;
	bool pin, at_start;
	struct ig_model *model; /* what requests are given; its hold is the slot's.  NULL: none */
	enum ig_load load;
	bool look_only;	       /* the load is a look at the file's figures */
	enum ig_again again;   /* when the load that runs has ended */
	bool blocked;	       /* it waits for the memory of an instance of its own that leaves */
	bool gone;	       /* no longer configured; freed when its load has ended */
	uint64_t version;      /* of what is wanted: a load of another one is thrown away */
	struct ig_error error; /* of the last load; code 0: it was fine */
	int64_t failed_ns;
	struct ig_waiter *waiters;
	/* of the file as it was opened last; "" and 0: not known */
	char arch[64];
	uint32_t n_context;
	struct ig_need need;
	uint64_t scratch_bytes; /* the program's own */
	int64_t created_s;
	uint64_t n_loads;
	double loaded_s;
};
TAILQ_HEAD(ig_slot_list, ig_slot);
TAILQ_HEAD(ig_model_list, ig_model);

/* Bytes.  weights, scratch and logits are those of the instances that exist. */
struct ig_contract {
	uint64_t budget, arena, slab, weights, scratch;
	uint64_t logits; /* all copies of logits, as many as steps may be under way */
};

struct ig_models {
	pthread_mutex_t lock;
	pthread_cond_t wake;	  /* the loader's */
	struct ig_engine *engine; /* NULL: destroyed; the last hold of an instance frees this */
	struct ig_slot_list slots, queue;
	size_t n_slots;
	struct ig_slot *default_slot; /* NULL: there are no slots */
	struct ig_model_list all;     /* instances that exist and are counted */
	struct ig_contract contract;  /* budget, arena and slab are fixed */
	bool draining, stopping;
	pthread_t thread;
	bool has_thread;
	struct ig_kvcache *ruler; /* an empty cache that layouts are asked of; the loader's */
};

/* ---- models.c -------------------------------------------------------------------- */

/* The following are called under the lock. */

/* Have s loaded, or looked at; what runs for it already is not begun twice. */
void ig_slot_queue(struct ig_models *ms, struct ig_slot *s, bool look_only);
/* Give up its instance: it goes as soon as nobody holds it. */
void ig_slot_let_go(struct ig_models *ms, struct ig_slot *s);
struct ig_waiter *ig_slot_take_waiters(struct ig_slot *s);
/* The figures of the file that was opened. */
void ig_slot_note(struct ig_slot *s, const struct ig_model *m);
/* Bytes that would be free if all that nobody uses were unloaded, and what is of s itself. */
uint64_t ig_models_idle_bytes(const struct ig_models *ms, const struct ig_slot *s);
uint64_t ig_models_own_bytes(const struct ig_models *ms, const struct ig_slot *s);
static inline bool ig_model_is_current(const struct ig_model *m)
{
	return m->slot && m->slot->model == m;
}

/* And these without it. */

/* The slots of a configuration, before there are threads. */
int ig_models_set_slots(struct ig_models *ms, const struct ig_config *config, struct ig_error *err);
/* Under the lock, once there are threads. */
int ig_models_set_default(struct ig_models *ms, const char *name, struct ig_error *err);
void ig_waiters_call(struct ig_waiter *w);
void ig_slot_free(struct ig_slot *s); /* NULL is fine */

/* ---- loader.c --------------------------------------------------------------------- */

void ig_models_free(struct ig_models *ms);

/* ---- instance.c ------------------------------------------------------------------- */

/* Open a file, record and lower it: all figures are known, nothing large is allocated.
 * *out has one hold and is in no list. */
int ig_model_open(struct ig_models *ms, const char *name, const char *path, uint32_t context,
		  struct ig_model **out, struct ig_error *err);
/* Allocate and pack, and make its steps. */
int ig_model_load(struct ig_model *m, struct ig_error *err);
/* Free all but the shell that holders point at.  The engine's thread knows it no more. */
void ig_model_close(struct ig_model *m);
/* Which file is there now; zeros: none. */
void ig_file_id_of(const char *path, struct ig_file_id *out);

/* ---- contract.c -------------------------------------------------------------------- */

/* Count those that load at start, find the arena's size, refuse what can't be: the slots'
 * figures are known.  Before there are threads. */
int ig_contract_start(struct ig_models *ms, const struct ig_config *config, struct ig_error *err);
/* What m takes. */
void ig_contract_measure(const struct ig_models *ms, const struct ig_model *m, struct ig_need *out);
/* How many tokens of m the arena holds; -EINVAL: too few. */
int ig_contract_fit_cache(const struct ig_models *ms, struct ig_model *m, struct ig_error *err);
uint64_t ig_contract_free(const struct ig_contract *c);
/* -ENOMEM, with the figures. */
int ig_contract_refuse(const struct ig_contract *c, const char *name, const struct ig_need *n,
		       uint64_t idle, struct ig_error *err);
/* The copies of logits, `all` bytes together; 0 or -ENOMEM. */
int ig_logits_alloc(const struct ig_engine *e, uint64_t all, float *out[IG_STEPS_IN_FLIGHT]);
void ig_logits_free(float *logits[IG_STEPS_IN_FLIGHT]);

#endif
