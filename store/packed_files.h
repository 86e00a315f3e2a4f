/*
 * packed_files.h: the folder of copies of packed weights (runtime.packed_cache), one file for each model and
 * for each build, instruction set and layout that it was packed for: FOLDER/NAME.packed, NAME as in kv_name.h.
 * What is in a file is its writer's (runtime/cpu/packed.h); here are the folder, its limit and its order: the
 * files that were not loaded for the longest time are removed first.  A file that is removed while a daemon
 * has it mapped stays with that daemon.  Several daemons may use one folder; each keeps to its limit by what
 * it finds.  Files with other names are left alone, but for parts of files that nobody has finished.
 *
 * One thread at a time.
 */
#pragma once

#include "store/kv_name.h"

struct ig_packed_files;

/* Make the folder if it is missing, for its owner alone.  max_bytes 0: half of what is free there with the
 * files that are there already.  0, or -errno with text, which names the folder. */
int ig_packed_files_open(const char *folder, uint64_t max_bytes, struct ig_packed_files **out,
			 struct ig_error *err);
void ig_packed_files_close(struct ig_packed_files *f); /* NULL is fine */

/* The path of a name's file; the caller frees it.  NULL: out of memory. */
char *ig_packed_files_path(const struct ig_packed_files *f, const struct ig_kv_name *name);
/* The name's file was used now, if it exists. */
void ig_packed_files_use(struct ig_packed_files *f, const struct ig_kv_name *name);
/* Make space for the name's file of n_bytes, which may exist already, by removing others.  False, and nothing
 * is removed: it can never fit, and why says so. */
bool ig_packed_files_make_space(struct ig_packed_files *f, const struct ig_kv_name *name,
				uint64_t n_bytes, struct ig_error *why);
