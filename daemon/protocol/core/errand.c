/* errand.c: see errand.h. */
#include "daemon/protocol/core/errand.h"

#include <stdlib.h>

static void destroy(struct ig_errand *e)
{
	ig_strbuf_finish(&e->out);
	free(e);
}

void ig_errands_init(struct ig_errands *a)
{
	a->done = NULL;
	pthread_mutex_init(&a->lock, NULL);
}

static struct ig_errand *take(struct ig_errands *a)
{
	pthread_mutex_lock(&a->lock);
	struct ig_errand *list = a->done;
	a->done = NULL;
	pthread_mutex_unlock(&a->lock);
	return list;
}

void ig_errands_finish(struct ig_errands *a)
{
	for (struct ig_errand *e = take(a), *next; e; e = next) {
		next = e->next_done;
		destroy(e);
	}
	pthread_mutex_destroy(&a->lock);
}

struct ig_errand *ig_errand_create(struct ig_exchange *x, void (*run)(struct ig_errand *e))
{
	struct ig_errand *e = calloc(1, sizeof *e);
	struct ig_api_error error;

	if (!e) {
		ig_fail_memory(&error);
		ig_exchange_fail(x, &error);
		return NULL;
	}
	e->run = run;
	e->api = x->api;
	e->exchange = x;
	return e;
}

/* The reader thread. */
static void run(void *ctx)
{
	struct ig_errand *e = ctx;
	struct ig_api *api = e->api;

	e->run(e);
	pthread_mutex_lock(&api->errands.lock);
	e->next_done = api->errands.done;
	api->errands.done = e; /* from here on it is the loop's, which may destroy it */
	pthread_mutex_unlock(&api->errands.lock);
	ig_wake_loop(&api->wakes);
}

void ig_errand_start(struct ig_errand *e)
{
	struct ig_exchange *x = e->exchange;
	struct ig_api_error error;
	int rc = ig_engine_read(e->api->deps.engine, run, e);

	if (!rc) {
		x->errand = e;
		return;
	}
	destroy(e);
	ig_fail_unread(&error, rc, x->api->deps.options.retry_after_s);
	ig_exchange_fail(x, &error);
}

void ig_errand_abandon(struct ig_errand *e)
{
	if (e)
		e->exchange = NULL;
}

static void reply(struct ig_exchange *x, struct ig_errand *e)
{
	x->errand = NULL;
	if (!e->error.status && !ig_strbuf_ok(&e->out))
		ig_fail_memory(&e->error);
	if (e->error.status) {
		ig_exchange_fail(x, &e->error);
		return;
	}
	ig_strbuf_finish(&x->body);
	x->body = e->out;
	e->out = (struct ig_strbuf){ 0 };
	ig_exchange_reply(x, 200);
	if (e->content_type)
		x->head.content_type = e->content_type;
}

void ig_errands_poll(struct ig_api *api)
{
	for (struct ig_errand *e = take(&api->errands), *next; e; e = next) {
		next = e->next_done;
		if (e->exchange)
			reply(e->exchange, e);
		destroy(e);
	}
}
