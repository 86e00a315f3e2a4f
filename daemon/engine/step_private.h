/* step_private.h: building, submitting and completing steps; see step.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Submit one more step, of the next model that has work.  False: none has. */
bool ig_sched_submit_step(struct ig_sched *sch);
/* Wait for the oldest step in flight and process its results. */
void ig_sched_wait_step(struct ig_sched *sch);
