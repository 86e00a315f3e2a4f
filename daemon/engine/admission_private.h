/* admission_private.h: who runs; see admission.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Into waiting, running or ended, by age. */
void ig_sched_insert(struct ig_sched *sch, struct ig_seq *s, struct ig_seq_list *list);
void ig_sched_remove(struct ig_sched *sch, struct ig_seq *s);
void ig_sched_show_later(struct ig_sched *sch, struct ig_seq *s);
/* What other threads are told of it. */
void ig_sched_publish_state(struct ig_sched *sch, struct ig_seq *s);
void ig_sched_set_paused(struct ig_sched *sch, struct ig_seq *s, bool paused);
void ig_sched_drop_kv(struct ig_sched *sch, struct ig_seq *s);
/* The end is known; its text may still have to be shown. */
void ig_sched_end(struct ig_sched *sch, struct ig_seq *s, enum ig_finish finish);
__attribute__((format(printf, 4, 5))) void ig_sched_fail(struct ig_sched *sch, struct ig_seq *s,
							 int code, const char *fmt, ...);
/* Blocks for all tokens that s will have, of groups with a window for *n rows more.  False:
 * s is in the running list no more, or somebody would have to be preempted while a step is
 * under way (wants_room).  Where s has the cache for itself and that is too small, *n
 * becomes smaller. */
bool ig_sched_ensure_capacity(struct ig_sched *sch, struct ig_seq *s, int32_t *n);
/* Let those in that wait, as far as there are rows and blocks. */
void ig_sched_admit(struct ig_sched *sch);
