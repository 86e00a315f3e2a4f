/* changes_private.h: changes of models and memory; see changes.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Make it, or a part of it: then it comes again at the next boundary. */
void ig_sched_make_change(struct ig_sched *sch, struct ig_change *c);
/* The system is short of n_bytes of memory; 0: no longer. */
void ig_sched_start_to_free(struct ig_sched *sch, uint64_t n_bytes);
/* While to_free or unmapped is not 0: free some more. */
void ig_sched_free_idle(struct ig_sched *sch);
