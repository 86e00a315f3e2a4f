/* queue_private.h: what loop.c and queue.c share.  Under the scheduler's lock. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Other threads no longer find s. */
void ig_sched_forget(struct ig_sched *sch, struct ig_seq *s);
/* s was cancelled or displaced: the next boundary ends it. */
void ig_sched_end_soon(struct ig_sched *sch, struct ig_seq *s);
/* Something changed: the engine's thread does not sleep. */
void ig_sched_wake_locked(struct ig_sched *sch);
