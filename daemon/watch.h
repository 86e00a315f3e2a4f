/*
 * watch.h: has a file changed?  By asking the system for it each time, so that it holds on
 * every system, for every way in which editors write, and for links.  Not for threads to
 * share.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

/* What tells one state of a file from another. */
struct ig_watch_stamp {
	bool there;
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec written, changed;
};

struct ig_watch {
	struct ig_watch_stamp taken; /* what was read last */
	struct ig_watch_stamp seen;  /* by the last look */
};

/* The file as it is now is what was read: call it before reading. */
void ig_watch_take(struct ig_watch *w, const char *path);
/* Whether it is another than was taken, and the same as at the look before: what is still
 * being written is not looked into.  A file that is not there has not changed: editors
 * take it away for a moment. */
bool ig_watch_look(struct ig_watch *w, const char *path);
