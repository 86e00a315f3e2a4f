/* endings_private.h: the ends of sequences; see endings.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* End s now, without the rest of its text. */
void ig_sched_end_cancelled(struct ig_sched *sch, struct ig_seq *s, const char *reason);
/* Pass on the text of the list `show`. */
void ig_sched_show_all(struct ig_sched *sch);
void ig_sched_visit_paused(struct ig_sched *sch);
/* The deadline of s, which has arrived, is looked at when it is over. */
void ig_sched_note_deadline(struct ig_sched *sch, const struct ig_seq *s);
void ig_sched_end_late(struct ig_sched *sch);
/* When the first paused sequence reaches its timeout, or any its deadline; INT64_MAX: none will. */
int64_t ig_sched_next_timeout(const struct ig_sched *sch);
