/* hub_pieces.h: the ranges of a file and how much of each is there, in memory and in FILE.part.meta.
 * The bytes are not trusted to be right: the whole file's hash is checked at the end. */
#pragma once

#include "cli/download/hub_repo.h"

struct ig_hub_piece {
	uint64_t at, n_bytes, done;
	bool busy; /* a transfer writes it */
};

struct ig_hub_pieces {
	struct ig_hub_piece *list;
	size_t n;
	uint64_t piece_bytes;
};

/* As the meta of part says, or all missing; for n_connections transfers.  0 or -ENOMEM. */
int ig_hub_pieces_load(const struct ig_hub_file *file, const char *part, unsigned n_connections,
		       struct ig_hub_pieces *out);
/* All missing; in one piece for a server without ranges. */
int ig_hub_pieces_reset(const struct ig_hub_file *file, uint64_t piece_bytes,
			struct ig_hub_pieces *out);
int ig_hub_pieces_save(const struct ig_hub_file *file, const char *part,
		       const struct ig_hub_pieces *p, struct ig_error *err);
void ig_hub_pieces_forget(const char *part); /* delete the meta */
uint64_t ig_hub_pieces_done(const struct ig_hub_pieces *p);
void ig_hub_pieces_finish(struct ig_hub_pieces *p);
