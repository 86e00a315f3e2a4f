/* files.h: folders, hashes and moves for pull, and the Ctrl-C flag that long commands check. */
#pragma once

#include <ingot/error.h>
#include <signal.h>
#include <stdbool.h>

/* Set by SIGINT and SIGTERM after ig_catch_interrupts; a second signal ends the
 * process at once with 130. */
extern volatile sig_atomic_t ig_interrupted;
void ig_catch_interrupts(void);

/* Make the folder and those above it; an error when it is not writable. */
int ig_make_folders(const char *path, struct ig_error *err);
/* 0 when the file has this size and hash; -EBADMSG with text when not. */
int ig_check_file(const char *path, uint64_t n_bytes, const char *sha256, struct ig_error *err);
/* The same by git's SHA-1 of a blob. */
int ig_check_blob(const char *path, uint64_t n_bytes, const char *sha1, struct ig_error *err);
/* fsync `from`, rename it to `to`, fsync the folder. */
int ig_move_into_place(const char *from, const char *to, struct ig_error *err);
/* -ENOSPC with the numbers when the folder's disk has fewer than n_bytes left. */
int ig_check_space(const char *dir, uint64_t n_bytes, struct ig_error *err);
/* Delete a folder and everything in it; does not follow links. */
void ig_remove_tree(const char *dir);

/* Whether the cause of a failure is this machine, so that another source would fail too. */
bool ig_is_local_failure(int rc);
