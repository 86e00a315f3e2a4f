/* admission_private.h: which sequences run; see admission.c.  The engine's thread. */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Insert into waiting, running or ended, by age. */
void ig_sched_insert(struct ig_sched *sch, struct ig_seq *s, struct ig_seq_list *list);
void ig_sched_remove(struct ig_sched *sch, struct ig_seq *s);
void ig_sched_show_later(struct ig_sched *sch, struct ig_seq *s);
/* Publish its state to other threads. */
void ig_sched_publish_state(struct ig_sched *sch, struct ig_seq *s);
void ig_sched_set_paused(struct ig_sched *sch, struct ig_seq *s, bool paused);
void ig_sched_drop_kv(struct ig_sched *sch, struct ig_seq *s);
/* Its finish reason is known; some of its text may not be in the stream yet. */
void ig_sched_end(struct ig_sched *sch, struct ig_seq *s, enum ig_finish finish);
__attribute__((format(printf, 4, 5))) void ig_sched_fail(struct ig_sched *sch, struct ig_seq *s,
							 int code, const char *fmt, ...);
/* Ensure blocks for all tokens that s will have, and in groups with a window for *n more rows.
 * False: s was preempted, or another sequence would have to be while a step is in flight
 * (must_preempt).  Where s is alone in the cache and that is too small, *n is reduced. */
bool ig_sched_ensure_capacity(struct ig_sched *sch, struct ig_seq *s, int32_t *n);
/* Of its tokens, of which n_before were computed, n_done are: blocks and states of kv, of a sequence of m, that no later
 * token reads are free, and one that waits for some may be admitted. */
void ig_sched_advance_kv(struct ig_sched *sch, const struct ig_model *m, struct ig_kv_seq *kv,
			 int32_t n_before, int32_t n_done);
/* Where all places are taken: somebody else gives its place to s, which has none.  False: nobody does, or not
 * before the steps in flight are complete. */
bool ig_sched_take_place(struct ig_sched *sch, const struct ig_seq *s);
/* Admit waiting sequences as far as there are rows and blocks. */
void ig_sched_admit(struct ig_sched *sch);
