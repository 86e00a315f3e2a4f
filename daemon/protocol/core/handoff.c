/* handoff.c: see handoff.h.  Each reply goes to the parse thread once, and, as a request, to a
 * prep thread.  So the loop knows soon what was asked for, however long prep takes for other
 * prompts. */
#include "daemon/protocol/core/handoff.h"

#include "daemon/protocol/core/prepare.h"
#include "daemon/protocol/core/reply.h"

#include <stdlib.h>

/* Back to the loop: from here on r is its. */
static void give_back(struct ig_reply *r)
{
	struct ig_api *api = r->api;
	struct ig_handoff *h = &api->handoff;

	pthread_mutex_lock(&h->lock);
	bool stopped = h->stopped;
	r->next_done = NULL;
	if (!stopped) {
		*h->done_tail = r;
		h->done_tail = &r->next_done;
	}
	pthread_mutex_unlock(&h->lock);
	if (stopped) /* nobody takes it, but the engine needs its model back */
		ig_prepared_finish(&r->prepared);
	else
		ig_wake_loop(&api->wakes);
}

/* The parse thread. */
static void parse(void *ctx)
{
	struct ig_reply *r = ctx;

	ig_request_read(r->format, r->text, r->len, r->refuse_unknown, &r->request, &r->error);
	r->format = NULL;
	free(r->text);
	r->text = NULL;
	give_back(r);
}

/* A prep thread. */
static void prepare(void *ctx)
{
	struct ig_reply *r = ctx;

	ig_prepare(r);
	give_back(r);
}

int ig_handoff_send(struct ig_reply *r)
{
	struct ig_engine *engine = r->api->deps.engine;
	enum ig_reply_state was = r->state;
	bool parsed = !r->format;

	r->waits = false;
	r->state = parsed ? IG_REPLY_AT_PREP : IG_REPLY_AT_PARSE;
	struct ig_job job = { .fn = prepare, .ctx = r, .client = ig_origin_client(r->origin) };
	if (parsed)
		job.n_bytes = ig_prompt_bytes(&r->request);
	int rc = parsed ? ig_engine_prep(engine, &job) : ig_engine_parse(engine, parse, r);
	if (rc < 0)
		r->state = was;
	return rc;
}

struct ig_reply *ig_handoff_take(struct ig_api *api)
{
	struct ig_handoff *h = &api->handoff;

	pthread_mutex_lock(&h->lock);
	struct ig_reply *first = h->done;
	h->done = NULL;
	h->done_tail = &h->done;
	pthread_mutex_unlock(&h->lock);
	return first;
}

void ig_handoff_init(struct ig_handoff *h)
{
	pthread_mutex_init(&h->lock, NULL);
	h->done_tail = &h->done;
}

void ig_handoff_stop(struct ig_handoff *h)
{
	pthread_mutex_lock(&h->lock);
	h->stopped = true;
	pthread_mutex_unlock(&h->lock);
}

void ig_handoff_finish(struct ig_handoff *h) { pthread_mutex_destroy(&h->lock); }
