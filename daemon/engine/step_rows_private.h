/* step_rows_private.h: rows of a step; see step_rows.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Add where the cache has the next sequence of the step in b, kv, which has `done` tokens and gets n rows: its blocks,
 * and the segments of a model with states.  False: there is no state for them. */
bool ig_sched_add_cache(struct ig_sched *sch, const struct ig_model *m, struct ig_step_buffer *b,
			struct ig_kv_seq *kv, int32_t done, int32_t n);
/* Add the next n rows of s to the step f, if it has a state for them (otherwise it is planned again). */
void ig_sched_add_rows(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t n);
