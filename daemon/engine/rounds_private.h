/* rounds_private.h: which rows steps have; see rounds.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Choose the sequences and rows of the next round of m, and ensure their blocks.  False: a
 * sequence must be preempted, which waits until no step is in flight. */
bool ig_sched_plan_round(struct ig_sched *sch, struct ig_model *m);
/* Rows of the step f from m's round. */
void ig_sched_take_rows(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f);
/* Whether a step of m that runs ahead would have rows of long prompts, and not one of a stream that sits out: its
 * time would come on top of that of the stream's own next step, which has such rows, too. */
bool ig_sched_would_widen_gap(const struct ig_sched *sch, const struct ig_model *m);
