/* watch.c: see watch.h. */
#include "daemon/watch.h"

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same(const struct ig_watch_stamp *a, const struct ig_watch_stamp *b)
{
	return a->there == b->there && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       same_time(a->written, b->written) && same_time(a->changed, b->changed);
}

static struct ig_watch_stamp stamp_of(const char *path)
{
	struct ig_watch_stamp s = { 0 };
	struct stat st;

	if (stat(path, &st) < 0)
		return s;
	s.there = true;
	s.dev = st.st_dev;
	s.ino = st.st_ino;
	s.size = st.st_size;
#ifdef __APPLE__
	s.written = st.st_mtimespec;
	s.changed = st.st_ctimespec;
#else
	s.written = st.st_mtim;
	s.changed = st.st_ctim;
#endif
	return s;
}

void ig_watch_take(struct ig_watch *w, const char *path) { w->taken = w->seen = stamp_of(path); }

bool ig_watch_look(struct ig_watch *w, const char *path)
{
	struct ig_watch_stamp now = stamp_of(path);
	bool still = same(&now, &w->seen);

	w->seen = now;
	return now.there && still && !same(&now, &w->taken);
}
