/* handoff.h: passes replies to the parse thread, then to the prep thread, and back. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct ig_api;
struct ig_reply;

struct ig_handoff {
	pthread_mutex_t lock;
	struct ig_reply *done, **done_tail; /* lock */
	bool stopped;			    /* lock: results are dropped */
};

void ig_handoff_init(struct ig_handoff *h);
/* Have it parsed; if it is, prepared.  -EAGAIN, -ENOMEM: nothing was started. */
int ig_handoff_send(struct ig_reply *r);
/* The replies that the two have finished, a list by next_done. */
struct ig_reply *ig_handoff_take(struct ig_api *api);
/* Their results are dropped from now on. */
void ig_handoff_stop(struct ig_handoff *h);
void ig_handoff_finish(struct ig_handoff *h);
