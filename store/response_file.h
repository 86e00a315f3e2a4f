/*
 * response_file.h: stored responses in SQLite, so that they survive a restart; the daemon's memory
 * has all of them.  A thread of its own writes, and nobody waits for the disk.  When something could
 * not be written (a full disk, no memory), the file is no longer what memory has, and all must be
 * put again (ig_response_file_lost).
 */
#pragma once

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct ig_response_file;

/* Lists of values that never change; references are taken and released by the caller's thread alone. */
struct ig_response_record {
	const char *id, *parent; /* parent: the id of the response that this continues; or NULL */
	uint64_t owner;		 /* the key's identity; 0: no key */
	bool listed;		 /* false: deleted, and there only for those that continue it */
	json_t *messages, *input, *output;
	const char *text; /* the response object */
};

struct ig_response_file_options {
	const char *path;
	/* Nothing can be written (true), or it can be again; any thread, may be NULL. */
	void (*failing)(void *ctx, bool failing);
	void *ctx;
};

/* Open or create the file and its folder, lock it (a second daemon gets -EBUSY), start the thread.
 * Errors name the path.  A full disk is not an error: the thread opens the file when there is
 * space. */
int ig_response_file_open(const struct ig_response_file_options *o, struct ig_response_file **out,
			  struct ig_error *err);
/* Call each for what was written since the last call, parents first; at first for all.  What it
 * does not want (not 0), and what can't be read, is removed; but -ENOMEM, its or ours, ends the
 * reading, and nothing is removed.  An error has text. */
int ig_response_file_read(struct ig_response_file *f,
			  int (*each)(void *ctx, const struct ig_response_record *r), void *ctx,
			  struct ig_error *err);
/* Whether a daemon that hands over to this one may have written since the last read. */
bool ig_response_file_has_news(struct ig_response_file *f);
/* Write a response, whose parent was put before; copies what it needs. */
void ig_response_file_put(struct ig_response_file *f, const struct ig_response_record *r);
/* It is not listed any more, but others continue it. */
void ig_response_file_unlist(struct ig_response_file *f, const char *id);
void ig_response_file_remove(struct ig_response_file *f, const char *id);
/* Leave nothing of what was removed in the file: somebody asked for its deletion. */
void ig_response_file_erase(struct ig_response_file *f);
/* True once when something was lost and the file can be written again.  It is emptied: put all. */
bool ig_response_file_lost(struct ig_response_file *f);
/* Why nothing can be written at the moment, in buf; false: it can.  Any thread. */
bool ig_response_file_failure(struct ig_response_file *f, char *buf, size_t size);
/* As ig_ledger_copy; *n: the responses that are listed. */
int ig_response_file_copy(const char *path, const char *to, int64_t *n, struct ig_error *err);
/* Write what waits, close.  NULL is fine. */
void ig_response_file_close(struct ig_response_file *f);
