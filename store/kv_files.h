/*
 * kv_files.h: computed cache blocks on disk, so that a prompt need not be read again after a restart or a
 * change of models.  A folder with one file for each block:
 *
 *   FOLDER/ab/NAME.GROUPS.DEPTH     "ab": the first two digits; all numbers are hexadecimal
 *
 *   bytes  0  magic "INGOTKV1"
 *          8  uint32: bytes before the data, 160; uint32: DEPTH
 *         16  uint32: GROUPS; uint32: 0
 *         24  uint64: bytes of the data
 *         32  NAME; 48 the name of the block before; 64 its 16 tokens, int32
 *        128  SHA-256 of bytes 0 to 127 and of the data
 *        160  data: of each cache group whose bit in GROUPS is set, its block as the arena has it
 *
 * all in the machine's order of bytes, which the name covers.  A file that is not exactly that is removed
 * and counts as missing; files with other names are left alone.  Nothing is synced: after a power failure
 * a file may be damaged, and then it is missing.  Several daemons may use one folder; each keeps to its
 * limit by what it has seen.  The files that were not used for the longest time are removed first, those
 * of a prompt's end before those of its beginning.
 *
 * A thread of its own reads and writes; reads come first.  Functions without another word are for any thread.
 */
#pragma once

#include "store/kv_name.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#define IG_KV_FILE_TOKENS 16 /* of a block */

struct ig_kv_files;

/* A block on its way from or to its file. */
struct ig_kv_block {
	struct ig_kv_name name, before;
	uint32_t depth;	 /* blocks before it in its prompt */
	uint32_t groups; /* bit i: data has the block of the i-th cache group */
	int32_t tokens[IG_KV_FILE_TOKENS];
	int64_t used_ns; /* when its prompt was last used, of ig_wall_ns */
	int rc;		 /* of a read that is done: 0, or -ENOENT: there is no such block */
	/* ---- kv_files.c ---- */
	atomic_bool done;
	bool forgotten;
	TAILQ_ENTRY(ig_kv_block) link;
	uint64_t n_bytes;
	uint8_t data[];
};

struct ig_kv_files_stats {
	bool ready; /* it knows what is in the folder */
	uint64_t n_files, n_bytes, max_bytes;
	uint64_t n_written, n_read, n_evicted;
	uint64_t n_damaged; /* files that were not as they must be */
	uint64_t n_failed;  /* writes that failed */
	char failure[160];  /* why nothing is written now; "" */
};

/* Make the folder if it is missing.  max_bytes 0: a tenth of what is free there, at most 20 GiB.
 * Errors name the folder. */
int ig_kv_files_open(const char *folder, uint64_t max_bytes, struct ig_kv_files **out,
		     struct ig_error *err);
/* Start its thread, which calls wake(ctx) after each read, when there is room to write again, and when it
 * is ready. */
int ig_kv_files_start(struct ig_kv_files *f, void (*wake)(void *ctx), void *ctx,
		      struct ig_error *err);
/* Blocks that wait to be written are written, for at most 3 s.  NULL is fine. */
void ig_kv_files_close(struct ig_kv_files *f);

/* Whether there is a file for the block, and of which groups; it counts as used at used_ns. */
bool ig_kv_files_find(struct ig_kv_files *f, const struct ig_kv_name *name, int64_t used_ns,
		      uint32_t *groups);
bool ig_kv_files_is_ready(const struct ig_kv_files *f);

struct ig_kv_block *ig_kv_block_create(uint64_t n_bytes); /* of data; NULL: no memory */
void ig_kv_block_destroy(struct ig_kv_block *b);
/* Have it written; f owns it from now on.  False: too many wait, and it is still the caller's. */
bool ig_kv_files_write(struct ig_kv_files *f, struct ig_kv_block *b);
/* Have it read into b, which has name, before, groups, tokens and the bytes of data.  b->done is set
 * then. */
void ig_kv_files_read(struct ig_kv_files *f, struct ig_kv_block *b);
/* The caller no longer wants b, which is being read or done; it is freed. */
void ig_kv_files_forget(struct ig_kv_files *f, struct ig_kv_block *b);

/* How long a token of this model takes to read from its file and to compute, in nanoseconds; 0: not known.
 * Kept in FOLDER/rates. */
struct ig_kv_rate {
	double restore_ns, compute_ns;
};
void ig_kv_files_rate(struct ig_kv_files *f, const struct ig_kv_name *model,
		      struct ig_kv_rate *out);
void ig_kv_files_set_rate(struct ig_kv_files *f, const struct ig_kv_name *model,
			  const struct ig_kv_rate *rate);

void ig_kv_files_stats(struct ig_kv_files *f, struct ig_kv_files_stats *out);
