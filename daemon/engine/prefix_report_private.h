/* prefix_report_private.h: the engine's side of prefix_report.h.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* The memory of what recent requests said. */
#define IG_PROMPTS_BYTES ((uint64_t)16 << 20)

/* s was admitted for the first time, and n_cached of its tokens were cached.  n_known: the tokens of
 * its prefix in the index, for a model with a window.  Fills in s->result.report and remembers s. */
void ig_prefix_report(struct ig_sched *sch, struct ig_seq *s, uint32_t n_known);
/* s has ended; result.n_output is known. */
void ig_prefix_report_end(struct ig_sched *sch, struct ig_seq *s);
