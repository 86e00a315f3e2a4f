/* step_private.h: what is computed; see step.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Submit one more step, of the next model in turn that has work.  False: there is none. */
bool ig_sched_submit_step(struct ig_sched *sch);
/* Wait for the oldest step under way, and take over what it computed. */
void ig_sched_wait_step(struct ig_sched *sch);
