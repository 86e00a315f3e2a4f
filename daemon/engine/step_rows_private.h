/* step_rows_private.h: rows of a step; see step_rows.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Add the next n rows of s to the step f, if it has a state for them (otherwise it is planned again). */
void ig_sched_add_rows(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t n);
