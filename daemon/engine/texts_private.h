/* texts_private.h: steps of models without a cache; see texts.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Fill in f, whose step is empty, for m.  False: no text is there. */
bool ig_sched_build_texts(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f);
/* The step f is complete: the results of s, which row has. */
void ig_sched_take_texts(struct ig_sched *sch, struct ig_seq *s, const struct ig_flight *f,
			 const struct ig_flight_seq *row, int64_t now);
