/*
 * standstill_private.h: a guard for the engine's loop.  It goes round without a rest only while something moves: a
 * step, a request's end, a block that is saved, restored or evicted.  If it ever doesn't, which would be a mistake,
 * it would use a processor for nothing and say nothing: after IG_STILL_TURNS such turns the log says once what each
 * request waits for, and until something moves each further turn sleeps a little.
 */
#pragma once

#include "daemon/engine/scheduler_private.h"

#define IG_STILL_TURNS 10000

/* Something moved. */
void ig_sched_note_move(struct ig_sched *sch);
/* After each turn; slept: the thread has waited in it. */
void ig_sched_watch_turn(struct ig_sched *sch, bool slept);
