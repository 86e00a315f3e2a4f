/*
 * model_wait.h: waiting for models to be loaded.  All requests for the same model name share one
 * wait, which the engine calls back and which is never freed: a request that ends meanwhile needs
 * no clean-up.
 */
#pragma once

#include "daemon/engine/engine.h"
#include "daemon/protocol/core/wake.h"

#include <pthread.h>

struct ig_model_wait;

struct ig_model_waits {
	struct ig_engine *engine;
	struct ig_wakes *wakes;
	pthread_mutex_t lock;
	struct ig_model_wait *first; /* under the lock; never freed before the end */
};

/* A load that a request waits for. */
struct ig_model_ticket {
	struct ig_model_wait *wait; /* NULL: none */
	uint64_t number;
};

void ig_model_waits_init(struct ig_model_waits *ws, struct ig_engine *engine,
			 struct ig_wakes *wakes);
void ig_model_waits_finish(struct ig_model_waits *ws);

/* Any prep thread: as ig_engine_take_model; with -EINPROGRESS *ticket is set, and the loop is
 * woken when the load has ended. */
int ig_model_take(struct ig_model_waits *ws, const char *name, const struct ig_engine_model **out,
		  struct ig_model_ticket *ticket, struct ig_error *err);
/* Any thread: whether the load has ended. */
bool ig_model_ticket_due(const struct ig_model_ticket *ticket);
/* The name in the requests; "": the default model. */
const char *ig_model_ticket_name(const struct ig_model_ticket *ticket);

/* A malloc'd list; NULL without memory. */
struct ig_model_status *ig_models_read(struct ig_engine *e, size_t *n);
/* The one of this name (NULL or empty: the default); NULL: none. */
const struct ig_model_status *ig_models_find(const struct ig_model_status *list, size_t n,
					     const char *name);
