/*
 * progress.h: how far a download is: a bar on a terminal, a line at each tenth
 * elsewhere.  On standard error.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ig_progress {
	uint64_t total, done, start_done;
	int64_t start_ns, shown_ns;
	int shown_tenth;
	bool tty, on;
};

/* done: what an earlier attempt has brought already. */
void ig_progress_start(struct ig_progress *p, uint64_t total, uint64_t done);
void ig_progress_update(struct ig_progress *p, uint64_t done);
/* Ends the bar's line. */
void ig_progress_stop(struct ig_progress *p);
