/* watch.h: whether a file has changed.  By polling stat, which works on every system, for
 * every way in which editors write, and for links.  Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

/* Identifies a state of a file. */
struct ig_watch_stamp {
	bool there;
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec written, changed;
};

struct ig_watch {
	struct ig_watch_stamp taken; /* as it was read last */
	struct ig_watch_stamp seen;  /* at the last check */
};

/* Remember the current state; call it before reading the file. */
void ig_watch_take(struct ig_watch *w, const char *path);
/* Whether it differs from the remembered state, and is the same as at the check before: a file
 * that is being written does not count yet.  A missing file has not changed: editors remove it
 * for a moment. */
bool ig_watch_look(struct ig_watch *w, const char *path);
