/*
 * kv_disk_private.h: computed blocks between the cache and its files (store/kv_files.h).
 *
 * When a prompt is read, and when a request ends, its blocks are saved: a job shares them, copies a few at
 * each step's boundary, and the files' thread writes them.  A waiting sequence whose prompt goes on in files is
 * restored before it is admitted, if that takes less time than to compute it: the files' thread reads, and at
 * each boundary what has come is added to the cache, where admission then finds it.  Other sequences run
 * meanwhile.  Jobs give their blocks back as soon as somebody needs them.
 *
 * The engine's thread, but for the names.
 */
#pragma once

#include "daemon/engine/scheduler_private.h"
#include "store/kv_files.h"

#include <stdbool.h>

struct ig_seq;

/* ---- names (kv_names.c) ---- */

/* Of all programs and options that compute.  0, or -errno with text. */
int ig_kv_name_programs(const struct ig_backend *b, const struct ig_config *config,
			struct ig_kv_name *out, struct ig_error *err);
/* Of an opened and lowered model; the loader's thread.  False: out of memory. */
bool ig_kv_name_model(const struct ig_model *m, struct ig_kv_name *out);

/* Of the packed weights of such a model, which lie as the driver says (ig_program_packed_layout). */
bool ig_kv_name_packed(const struct ig_model *m, uint64_t layout, struct ig_kv_name *out);

/* ---- saves and restores (kv_disk.c, kv_save.c, kv_restore.c) ---- */

TAILQ_HEAD(ig_kv_job_list, ig_kv_job);

struct ig_kv_disk {
	struct ig_kv_namer *namer; /* NULL: there are no files */
	struct ig_kv_job_list saves, restores;
	int64_t worked_ns; /* at the last boundary */
	int64_t leave_ns;  /* when a model that is to be removed waits no longer; 0: none is */
};

int ig_kv_disk_init(struct ig_kv_disk *d, const struct ig_backend *b);
/* After the sequences have ended: save what is left, for at most 2 s. */
void ig_kv_disk_finish(struct ig_sched *sch);

/* Save the blocks that s has committed. */
void ig_kv_disk_save(struct ig_sched *sch, struct ig_seq *s);
/* Whether a waiting sequence should wait because its prompt is being restored, or will be. */
bool ig_kv_disk_waits(struct ig_sched *sch, struct ig_seq *s);
/* s ends: nobody waits for its restore. */
void ig_kv_disk_forget(struct ig_sched *sch, struct ig_seq *s);
/* A part of the work, at each boundary. */
void ig_kv_disk_work(struct ig_sched *sch);
/* Give back the blocks of all jobs.  False: there were none. */
bool ig_kv_disk_give_back(struct ig_sched *sch);
/* The model is about to be removed.  False: its blocks are still being saved. */
bool ig_kv_disk_leave(struct ig_sched *sch, const struct ig_model *m);
/* A step of m that only read prompts took so long. */
void ig_kv_disk_learn(struct ig_sched *sch, struct ig_model *m, uint32_t n_rows, double ns);
