/* fits.h: whether a model that is not here yet would fit in the memory of this machine. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ig_fit {
	uint64_t budget; /* memory for models, as the daemon's contract has it; 0: not known */
	uint64_t cache;	 /* of it for keys and values */
};

/* By the configuration in the usual places, or the defaults. */
void ig_fit_read(struct ig_fit *out);
/* The weights take as much as the files. */
bool ig_fits(const struct ig_fit *f, uint64_t n_bytes);
