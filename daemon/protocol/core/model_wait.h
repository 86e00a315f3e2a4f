/*
 * model_wait.h: models that are asked for and not loaded.
 *
 * For all requests that name a model alike there is one wait that the engine calls back,
 * so that a client which leaves meanwhile leaves nothing behind.
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
	struct ig_model_wait *first; /* prep's; they stay until the end */
};

/* A load that was under way when it was asked for. */
struct ig_model_ticket {
	struct ig_model_wait *wait; /* NULL: none */
	uint64_t number;
};

void ig_model_waits_init(struct ig_model_waits *ws, struct ig_engine *engine,
			 struct ig_wakes *wakes);
void ig_model_waits_finish(struct ig_model_waits *ws);

/* The prep thread: as ig_engine_take_model; with -EINPROGRESS a ticket, and the loop is
 * woken when the load has ended. */
int ig_model_take(struct ig_model_waits *ws, const char *name, const struct ig_engine_model **out,
		  struct ig_model_ticket *ticket, struct ig_error *err);
/* Any thread: whether the load has ended since. */
bool ig_model_ticket_due(const struct ig_model_ticket *ticket);
/* As requests have it; "": the default one. */
const char *ig_model_ticket_name(const struct ig_model_ticket *ticket);

/* ---- what there is ---- */

/* All that are configured, malloc'd; NULL without memory. */
struct ig_model_status *ig_models_read(struct ig_engine *e, size_t *n);
/* The one that is meant by name (NULL or empty: the default) in the list; NULL: none. */
const struct ig_model_status *ig_models_find(const struct ig_model_status *list, size_t n,
					     const char *name);
