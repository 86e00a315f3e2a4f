/* handoff.h: replies on their way to the prep thread and back. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct ig_api;
struct ig_reply;

struct ig_handoff {
	pthread_mutex_t lock;
	struct ig_reply *done, **done_tail; /* lock */
	bool stopped;			    /* lock: nothing is delivered any more */
};

void ig_handoff_init(struct ig_handoff *h);
/* Have it parsed (if it is not) and prepared.  -EAGAIN, -ENOMEM: nothing was started. */
int ig_handoff_send(struct ig_reply *r);
/* Those that prep is done with, a list by next_done. */
struct ig_reply *ig_handoff_take(struct ig_api *api);
/* What prep does from now on is for nobody. */
void ig_handoff_stop(struct ig_handoff *h);
void ig_handoff_finish(struct ig_handoff *h);
