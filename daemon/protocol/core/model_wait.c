/* model_wait.c: see model_wait.h. */
#include "daemon/protocol/core/model_wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ig_model_wait {
	struct ig_model_wait *next;
	struct ig_model_waits *of;
	char name[129];
	bool registered;	       /* lock: the engine will call back */
	atomic_uint_least64_t n_ended; /* callbacks so far */
};

static void set_registered(struct ig_model_wait *w, bool registered)
{
	pthread_mutex_lock(&w->of->lock);
	w->registered = registered;
	pthread_mutex_unlock(&w->of->lock);
}

/* Any thread of the engine: a load has ended. */
static void load_ended(void *ctx)
{
	struct ig_model_wait *w = ctx;

	set_registered(w, false);
	atomic_fetch_add(&w->n_ended, 1);
	ig_wake_loop(w->of->wakes);
}

/* Under the lock.  Only configured names get here, so that the list is bounded. */
static struct ig_model_wait *wait_for(struct ig_model_waits *ws, const char *name)
{
	for (struct ig_model_wait *w = ws->first; w; w = w->next)
		if (!strcmp(w->name, name))
			return w;
	struct ig_model_wait *w = calloc(1, sizeof *w);
	if (!w || strlen(name) >= sizeof w->name) {
		free(w);
		return NULL;
	}
	snprintf(w->name, sizeof w->name, "%s", name);
	w->of = ws;
	atomic_init(&w->n_ended, 0);
	w->next = ws->first;
	ws->first = w;
	return w;
}

int ig_model_take(struct ig_model_waits *ws, const char *name, const struct ig_engine_model **out,
		  struct ig_model_ticket *ticket, struct ig_error *err)
{
	int rc = ig_engine_take_model(ws->engine, name, NULL, NULL, out, err);

	if (rc != -EINPROGRESS)
		return rc;
	pthread_mutex_lock(&ws->lock);
	struct ig_model_wait *w = wait_for(ws, name);
	bool first = w && !w->registered;
	if (first)
		w->registered = true;
	pthread_mutex_unlock(&ws->lock);
	if (!w)
		return ig_fail(err, -ENOMEM, "the server is out of memory");
	/* Any callback from here on makes the ticket due, also one before the request is parked. */
	*ticket = (struct ig_model_ticket){ w, atomic_load(&w->n_ended) };
	rc = ig_engine_take_model(ws->engine, name, first ? load_ended : NULL, w, out, err);
	if (rc != -EINPROGRESS && first)
		load_ended(w); /* another prep thread may rely on the callback */
	return rc;
}

bool ig_model_ticket_due(const struct ig_model_ticket *ticket)
{
	return atomic_load(&ticket->wait->n_ended) != ticket->number;
}

const char *ig_model_ticket_name(const struct ig_model_ticket *ticket)
{
	return ticket->wait->name;
}

void ig_model_waits_init(struct ig_model_waits *ws, struct ig_engine *engine,
			 struct ig_wakes *wakes)
{
	ws->engine = engine;
	ws->wakes = wakes;
	pthread_mutex_init(&ws->lock, NULL);
}

void ig_model_waits_finish(struct ig_model_waits *ws)
{
	while (ws->first) {
		struct ig_model_wait *w = ws->first;
		ws->first = w->next;
		free(w);
	}
	pthread_mutex_destroy(&ws->lock);
}

struct ig_model_status *ig_models_read(struct ig_engine *e, size_t *n)
{
	for (size_t cap = 16;; cap *= 2) {
		struct ig_model_status *list = calloc(cap, sizeof *list);
		if (!list)
			return NULL;
		*n = ig_engine_models(e, list, cap);
		if (*n < cap)
			return list;
		free(list); /* there may be more */
	}
}

const struct ig_model_status *ig_models_find(const struct ig_model_status *list, size_t n,
					     const char *name)
{
	const struct ig_model_status *same = NULL;

	for (size_t i = 0; i < n; i++) {
		if (name && name[0] ? !strcmp(list[i].name, name) : list[i].is_default)
			return &list[i];
		if (name && name[0] && !same && ig_model_is_same_name(list[i].name, name))
			same = &list[i];
	}
	return same;
}
