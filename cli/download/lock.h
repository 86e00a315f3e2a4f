/* lock.h: MODEL.lock beside a model's file or folder: its name, where it is from, and the sizes and
 * hashes that were checked.  The daemon takes the name from it. */
#pragma once

#include "cli/download/hub_repo.h"

struct ig_lock {
	const char *name, *license;
	/* of the Hub; NULL: of models.yaml's sources */
	const struct ig_hub *hub;
	const struct ig_hub_repo *repo;
	const struct ig_hub_choice *choice;
	/* of sources */
	const char *file, *sha256;
	uint64_t n_bytes;
};

/* Write the lock of the model at path, mode 644. */
int ig_lock_write(const char *path, const struct ig_lock *l, struct ig_error *err);
void ig_lock_remove(const char *path);
