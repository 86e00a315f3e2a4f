/* handoff.c: see handoff.h.  Prep parses a request and prepares it; a request that
 * continues a response returns to the loop in between, for its history. */
#include "daemon/protocol/core/handoff.h"

#include "daemon/protocol/core/prepare.h"
#include "daemon/protocol/core/reply.h"

#include <stdlib.h>

/* Whether there is a prompt to prepare, with its history. */
static bool is_complete(const struct ig_request *q)
{
	return !q->notice && (!q->previous_id || q->history);
}

/* The prep thread. */
static void run(void *ctx)
{
	struct ig_reply *r = ctx;
	struct ig_api *api = r->api; /* r belongs to the loop once it is in the list */
	struct ig_handoff *h = &api->handoff;
	int rc = 0;

	if (r->format)
		rc = ig_request_read(r->format, r->text, r->len, r->refuse_unknown, &r->request,
				     &r->error);
	r->format = NULL;
	free(r->text);
	r->text = NULL;
	if (!rc && is_complete(&r->request))
		ig_prepare(r);
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

int ig_handoff_send(struct ig_reply *r)
{
	enum ig_reply_state was = r->state;

	r->waits = false;
	r->state = IG_REPLY_AT_PREP;
	int rc = ig_engine_prep(r->api->deps.engine, run, r);
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
