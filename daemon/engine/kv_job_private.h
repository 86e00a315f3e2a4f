/*
 * kv_job_private.h: the jobs of kvcache.disk, each of which saves or restores the first blocks of one sequence;
 * shared by kv_disk.c, kv_save.c and kv_restore.c.  The engine's thread.
 */
#pragma once

#include "daemon/engine/scheduler_state_private.h"

/* Fewer blocks are computed again sooner than looked for. */
#define IG_KV_LEAST_BLOCKS 4
#define IG_KV_MAX_READS 16 /* of one job, under way */
#define IG_KV_MAX_SAVED_STATES 3

struct ig_kv_job {
	TAILQ_ENTRY(ig_kv_job) link;
	struct ig_model *model;
	uint64_t salt;
	struct ig_kv_seq *kv;		  /* holds the blocks; NULL: they were given back */
	int32_t *tokens;		  /* [n_blocks, IG_BLOCK_TOKENS] */
	struct ig_kv_name base;		  /* of the model, with its adapter */
	struct ig_kv_name root, *names;	  /* [n_blocks]; the first n_names are known */
	uint32_t n_blocks, n_names, next; /* next: to be saved or to be restored */
	int64_t used_ns, began_ns;
	struct ig_kv_block *copied; /* a save's, for which the files have no room yet */
	/* Of a model with recurrent layers: the state that is being copied, and its parts that are. */
	struct ig_kv_block *state;
	uint32_t n_parts;
	/* a save's: after which blocks it has states, ascending */
	uint32_t states[IG_KV_MAX_SAVED_STATES], n_states, next_state;
	/* a restore's */
	uint32_t first, n_asked;
	uint32_t *groups;			    /* [n_blocks]: which its file has */
	struct ig_kv_block *reads[IG_KV_MAX_READS]; /* by block */
};

static inline struct ig_kv_files *ig_kv_job_files(const struct ig_sched *sch)
{
	return sch->b->disk;
}

/* ---- jobs (kv_job.c) ---- */

/* A job for the first blocks of s, with a sequence of its own that has no blocks yet.  NULL: no memory. */
struct ig_kv_job *ig_kv_job_create(struct ig_sched *sch, const struct ig_seq *s, uint32_t n_blocks);
void ig_kv_job_destroy(struct ig_sched *sch, struct ig_kv_job *j);
/* A sequence for its blocks.  False: no memory. */
bool ig_kv_job_make_seq(const struct ig_sched *sch, struct ig_kv_job *j);
/* Give its blocks back. */
void ig_kv_job_hold_nothing(const struct ig_sched *sch, struct ig_kv_job *j);
/* Know the names up to this block.  False: the library failed. */
bool ig_kv_job_name_blocks(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n);
/* For the file of a block; NULL: no memory. */
struct ig_kv_block *ig_kv_job_block_for(const struct ig_kv_job *j, uint32_t block, uint32_t groups);
/* Copy a block's groups between its data and their places in the cache.  False: the device failed. */
bool ig_kv_job_copy_groups(const struct ig_sched *sch, const struct ig_model *m,
			   struct ig_kv_block *b, void *const *address, bool to_cache);
/* Where the cache has a block of that group; word: as seq_blocks and seq_state have it. */
void *ig_kv_job_address_of(const struct ig_sched *sch, const struct ig_model *m, uint32_t group,
			   uint32_t word);
/* The model's groups of states, as bits. */
uint32_t ig_kv_job_state_groups(const struct ig_model *m);
/* Of the state after so many blocks, whose names are known. */
bool ig_kv_job_has_state_file(const struct ig_sched *sch, const struct ig_kv_job *j,
			      uint32_t n_blocks);
/* For the file of the state after so many blocks; NULL: no memory. */
struct ig_kv_block *ig_kv_job_state_for(const struct ig_sched *sch, const struct ig_kv_job *j,
					uint32_t n_blocks);
/* Copy the next part of the job's state, which is the one after n_blocks blocks.  False: the cache does
 * not have it, or the device failed. */
bool ig_kv_job_copy_part(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n_blocks,
			 bool to_cache);
/* Whether all parts of its state are copied. */
bool ig_kv_job_has_all_parts(const struct ig_kv_job *j);

/* ---- saves (kv_save.c) ---- */

/* Save blocks of the jobs, the first job's first, at least one.  False: the files have no room at the moment. */
bool ig_kv_disk_save_until(struct ig_sched *sch, int64_t end_ns);
/* Whether blocks of m are still to be saved. */
bool ig_kv_disk_has_saves(const struct ig_sched *sch, const struct ig_model *m);
/* End the saves of m, or, if it is NULL, of all models. */
void ig_kv_disk_drop_saves(struct ig_sched *sch, const struct ig_model *m);

/* ---- restores (kv_restore.c) ---- */

/* Add what has been read to the cache, at least a block of each job whose turn it is, and ask for more. */
void ig_kv_disk_restore_until(struct ig_sched *sch, int64_t end_ns);
/* Whether something has been read that was not taken yet, by a job whose turn it is. */
bool ig_kv_disk_has_blocks(const struct ig_sched *sch);
/* Those that wait for the job go on: its own sequence is admitted as it is, others may have more. */
void ig_kv_disk_end_restore(struct ig_sched *sch, struct ig_kv_job *j);

/* ---- kv_disk.c ---- */

/* A model of whole texts has no blocks. */
bool ig_kv_disk_keeps(const struct ig_sched *sch, const struct ig_model *m);
