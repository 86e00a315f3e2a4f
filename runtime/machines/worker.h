/*
 * worker.h: what a rank behind the first does: it loads its part of each model that rank 0 loads, computes it for each
 * step, and ends with rank 0.
 */
#pragma once

#include "runtime/machines/part.h"

struct ig_modules;

struct ig_worker {
	struct ig_link *link;
	struct ig_driver *driver;
	const struct ig_modules *modules;
	/* The path of a model whose path's last part is name, on this machine: -ENOENT with text. */
	int (*find)(void *ctx, const char *name, const char **path, struct ig_error *err);
	ig_part_layout *layout;
	void *ctx; /* of both */
};

/* Until rank 0 ends: 0.  -ENODEV with text if rank 0 is gone, -EPROTO for what it should not have sent. */
int ig_worker_run(const struct ig_worker *w, struct ig_error *err);
