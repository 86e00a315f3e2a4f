/* scheduler_private.h: the scheduler as the engine and the loader see it; see loop.c. */
#pragma once

#include "daemon/engine/generation.h"
#include "daemon/engine/instance_private.h"

struct ig_sched;

/* Published at each step's boundary. */
struct ig_sched_figures {
	struct ig_kv_stats kv;
	uint32_t n_all, n_waiting, n_running, n_paused;
	bool draining;
};

/* Without its thread.  device_lost: see struct ig_engine_deps. */
int ig_sched_create(const struct ig_backend *b, const struct ig_config *config,
		    void (*device_lost)(void *ctx), void *ctx, struct ig_sched **out,
		    struct ig_error *err);
/* Start its thread; the backend has its cache. */
int ig_sched_start(struct ig_sched *sch, struct ig_error *err);
/* Before the thread starts: fn(ctx, n_bytes) is called on it when the cache has no idle blocks left
 * and the system is still short of n_bytes of memory. */
void ig_sched_on_short(struct ig_sched *sch, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx);
/* What its thread does over and over: one boundary, and the steps behind it.  False: it is to end.  rests:
 * nothing is left to do before another thread wakes it, or a time comes. */
bool ig_sched_turn(struct ig_sched *sch, bool *rests);
/* Refuse new requests. */
void ig_sched_drain(struct ig_sched *sch);
/* Cancel all sequences and end the thread. */
void ig_sched_stop(struct ig_sched *sch);
void ig_sched_destroy(struct ig_sched *sch);

/* ---- any thread; see engine.h ---- */

void ig_sched_reload(struct ig_sched *sch, const struct ig_config *config);
int ig_sched_submit(struct ig_sched *sch, const struct ig_gen_spec *spec, uint64_t *gen,
		    struct ig_error *err);
void ig_sched_cancel(struct ig_sched *sch, uint64_t gen, const char *reason);
void ig_sched_resume(struct ig_sched *sch, uint64_t gen);
size_t ig_sched_list(struct ig_sched *sch, struct ig_gen_info *out, size_t cap);
struct ig_sched_figures ig_sched_figures(struct ig_sched *sch);
bool ig_sched_is_alive(struct ig_sched *sch);
/* Have c made at a step's boundary, by the engine's thread while there is one; returns when
 * it is done.  One caller at a time.  sched is a struct ig_sched. */
void ig_sched_change(void *sched, struct ig_change *c);
/* Something that a boundary looks at has changed.  sched is a struct ig_sched. */
void ig_sched_wake(void *sched);
/* The system is short of memory: free n_bytes of idle cache between the next steps; 0: it no
 * longer is.  sched is a struct ig_sched. */
void ig_sched_reclaim(void *sched, uint64_t n_bytes);
