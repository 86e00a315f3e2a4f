/* kv_files.c: the thread that reads and writes blocks, its queues and limits.  See kv_files.h. */
#include "store/kv_files_private.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Bytes of blocks that wait to be written. */
#define MAX_WAITING ((uint64_t)64 << 20)
#define DEFAULT_MOST ((uint64_t)20 << 30)
#define DEFAULT_SHARE 10 /* a tenth of what is free */
/* Nothing is written that would leave less than this free to others. */
#define LEAST_FREE ((uint64_t)256 << 20)
#define LEAST_FREE_SHARE 50 /* or this part of the disk, if it is less */
/* After a write that failed. */
#define PAUSE_NS ((int64_t)30 * 1000000000)
#define CLOSE_NS ((int64_t)3 * 1000000000)
#define RATES_NS ((int64_t)10 * 1000000000)
/* A part of a file that nobody has finished. */
#define STALE_S 3600

TAILQ_HEAD(queue, ig_kv_block);

struct ig_kv_files {
	char *path;
	int folder;
	uint64_t wanted_max; /* the option; 0: by what is free */
	void (*wake)(void *ctx);
	void *wake_ctx;
	pthread_t thread;
	bool has_thread;
	struct ig_kv_namer *namer; /* the thread's, as are the next */
	uint64_t number;	   /* of the next part */
	int64_t rates_ns;	   /* when they were saved */
	bool warned;
	atomic_bool ready;

	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* ---- under the lock ---- */
	struct kv_index index;
	struct kv_rates rates;
	struct queue reads, writes;
	uint64_t n_waiting; /* bytes in writes */
	bool stopping, was_full;
	int64_t close_ns, paused_ns; /* until when it writes, and from when on it does again */
	struct ig_kv_files_stats stats;
};

/* ---- blocks -------------------------------------------------------------------------------- */

struct ig_kv_block *ig_kv_block_create(uint64_t n_bytes)
{
	struct ig_kv_block *b = malloc(sizeof *b + n_bytes);

	if (!b)
		return NULL;
	memset(b, 0, sizeof *b);
	b->n_bytes = n_bytes;
	return b;
}

void ig_kv_block_destroy(struct ig_kv_block *b) { free(b); }

/* ---- what is in the folder ------------------------------------------------------------------- */

static void see_file(struct ig_kv_files *f, int dir, const char *above, const char *name)
{
	struct kv_entry e;
	struct stat st;

	if (!kv_file_parse(above, name, &e) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode) || st.st_size < KV_HEADER_BYTES)
		return;
	e.n_bytes = kv_file_bytes((uint64_t)st.st_size - KV_HEADER_BYTES);
	e.stamp = ig_mtime_ns(&st);
	pthread_mutex_lock(&f->lock);
	/* of a block with two files, of different groups, the first that is seen counts */
	bool known = kv_index_find(&f->index, &e.name) || kv_index_add(&f->index, &e);
	pthread_mutex_unlock(&f->lock);
	if (!known)
		unlinkat(dir, name, 0);
}

static void remove_stale_part(int dir, const char *name)
{
	struct stat st;

	if (!strncmp(name, "part.", 5) && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
	    S_ISREG(st.st_mode) && time(NULL) - st.st_mtime > STALE_S)
		unlinkat(dir, name, 0);
}

static void scan(struct ig_kv_files *f, const char *above)
{
	int fd = openat(f->folder, above, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((d = readdir(dir)))
		if (above[0] == '.')
			remove_stale_part(fd, d->d_name);
		else
			see_file(f, fd, above, d->d_name);
	closedir(dir);
}

/* What is free there for this user, and what the disk has; false: not known.  It may wait for the disk: not under the
 * lock, which the engine's thread takes. */
static bool space(const struct ig_kv_files *f, uint64_t *n_free, uint64_t *n_all)
{
	struct statvfs v;

	if (fstatvfs(f->folder, &v) < 0)
		return false;
	*n_free = (uint64_t)v.f_bavail * v.f_frsize;
	*n_all = (uint64_t)v.f_blocks * v.f_frsize;
	return true;
}

static void look_around(struct ig_kv_files *f)
{
	char above[3];
	uint64_t most = f->wanted_max, n_free, n_all;

	scan(f, ".");
	for (int i = 0; i < 256; i++) {
		snprintf(above, sizeof above, "%02x", i);
		scan(f, above);
	}
	bool known = space(f, &n_free, &n_all);
	pthread_mutex_lock(&f->lock);
	if (!most) {
		most = known ? (n_free + f->index.n_bytes) / DEFAULT_SHARE : DEFAULT_MOST;
		most = most < DEFAULT_MOST ? most : DEFAULT_MOST;
	}
	f->stats.max_bytes = most;
	pthread_mutex_unlock(&f->lock);
	ig_log_info("kvcache.disk %s: %u blocks, %.1f of at most %.1f MiB", f->path, f->index.n,
		    (double)f->index.n_bytes / (1 << 20), (double)most / (1 << 20));
	atomic_store(&f->ready, true);
	f->wake(f->wake_ctx);
}

/* ---- writing ------------------------------------------------------------------------------------ */

/* Called and returns under the lock, which others need while a file is removed. */
static void remove_entry(struct ig_kv_files *f, struct kv_entry *e)
{
	struct kv_entry gone = *e;

	kv_index_remove(&f->index, e);
	pthread_mutex_unlock(&f->lock);
	kv_file_remove(f->folder, &gone);
	pthread_mutex_lock(&f->lock);
}

static void evict(struct ig_kv_files *f)
{
	f->stats.n_evicted++;
	remove_entry(f, f->index.heap[0]);
}

/* Called and returns under the lock: room for a file.  False: it is larger than all of it, or the disk is nearly full. */
static bool make_room(struct ig_kv_files *f, uint64_t n_bytes)
{
	uint64_t n_free, n_all, least = LEAST_FREE;

	if (n_bytes > f->stats.max_bytes)
		return false;
	while (f->index.n && f->index.n_bytes + n_bytes > f->stats.max_bytes)
		evict(f);
	pthread_mutex_unlock(&f->lock);
	bool known = space(f, &n_free, &n_all);
	pthread_mutex_lock(&f->lock);
	if (!known)
		return true; /* the write will say */
	if (n_all / LEAST_FREE_SHARE < least)
		least = n_all / LEAST_FREE_SHARE;
	/* others need the disk: give back what was not used for the longest time */
	while (n_free < n_bytes + least && f->index.n) {
		n_free += f->index.heap[0]->n_bytes;
		evict(f);
	}
	return n_free >= n_bytes + least;
}

static void say_failure(struct ig_kv_files *f, int rc)
{
	f->stats.n_failed++;
	f->paused_ns = ig_now_ns() + PAUSE_NS;
	snprintf(f->stats.failure, sizeof f->stats.failure, "%s", strerror(-rc));
	if (!f->warned)
		ig_log_warn(
			"kvcache.disk %s: a block can't be written: %s; none is written for %d s",
			f->path, strerror(-rc), (int)(PAUSE_NS / 1000000000));
	f->warned = true;
}

static void add_entry(struct ig_kv_files *f, const struct ig_kv_block *b)
{
	struct kv_entry e = { .name = b->name,
			      .depth = b->depth,
			      .groups = b->groups,
			      .n_bytes = kv_file_bytes(b->n_bytes),
			      .stamp = kv_stamp(b->used_ns, b->depth) };

	if (!kv_index_add(&f->index, &e))
		kv_file_remove(f->folder, &e);
	f->stats.n_written++;
	f->stats.failure[0] = 0;
	f->warned = false;
}

/* Called and returns under the lock. */
static void write_one(struct ig_kv_files *f, struct ig_kv_block *b)
{
	int rc = 0;

	TAILQ_REMOVE(&f->writes, b, link);
	f->n_waiting -= b->n_bytes;
	bool wanted = ig_now_ns() >= f->paused_ns && !kv_index_find(&f->index, &b->name);
	if (wanted && !make_room(f, kv_file_bytes(b->n_bytes)))
		rc = -ENOSPC;
	if (wanted && !rc) {
		pthread_mutex_unlock(&f->lock);
		rc = kv_file_write(f->folder, f->namer, b, f->number++);
		pthread_mutex_lock(&f->lock);
	}
	if (rc)
		say_failure(f, rc);
	else if (wanted)
		add_entry(f, b);
	ig_kv_block_destroy(b);
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* Called and returns under the lock. */
static void read_one(struct ig_kv_files *f, struct ig_kv_block *b)
{
	struct kv_entry *e;

	TAILQ_REMOVE(&f->reads, b, link);
	pthread_mutex_unlock(&f->lock);
	b->rc = kv_file_read(f->folder, f->namer, b);
	pthread_mutex_lock(&f->lock);
	e = kv_index_find(&f->index, &b->name);
	if (b->rc) {
		if (b->rc != -ENOENT)
			ig_log_warn("kvcache.disk %s: a block's file is left out: %s", f->path,
				    b->rc == -EBADMSG ? "it is damaged" : strerror(-b->rc));
		f->stats.n_damaged += b->rc != -ENOENT;
		/* also one that cannot be read: it would be tried again each time */
		if (e && e->groups == b->groups)
			remove_entry(f, e);
		b->rc = -ENOENT;
	} else {
		f->stats.n_read++;
		if (e)
			kv_index_touch(&f->index, e, kv_stamp(b->used_ns, b->depth));
	}
	if (b->forgotten)
		ig_kv_block_destroy(b);
	else
		atomic_store(&b->done, true);
}

/* ---- the thread ---------------------------------------------------------------------------------- */

/* Called and returns under the lock. */
static void save_rates(struct ig_kv_files *f)
{
	struct kv_rates *copy;
	struct ig_error err = { 0 };

	f->rates_ns = ig_now_ns();
	if (!f->rates.changed || !(copy = malloc(sizeof *copy)))
		return;
	*copy = f->rates;
	f->rates.changed = false;
	pthread_mutex_unlock(&f->lock);
	if (kv_rates_save(copy, f->path, &err) < 0)
		ig_log_debug("%s", err.text);
	free(copy);
	pthread_mutex_lock(&f->lock);
}

static void *run(void *arg)
{
	struct ig_kv_files *f = arg;

	ig_name_thread("kv files");
	look_around(f);
	pthread_mutex_lock(&f->lock);
	for (;;) {
		if (f->rates.changed && ig_now_ns() - f->rates_ns > RATES_NS)
			save_rates(f);
		struct ig_kv_block *b = TAILQ_FIRST(&f->reads);
		bool tell = b;
		if (b) {
			read_one(f, b);
		} else if ((b = TAILQ_FIRST(&f->writes))) {
			if (f->stopping && ig_now_ns() > f->close_ns)
				break;
			write_one(f, b);
			tell = f->was_full && f->n_waiting < MAX_WAITING / 2;
			f->was_full = f->was_full && !tell;
		} else if (f->stopping) {
			break;
		} else {
			ig_wait_until(&f->cond, &f->lock,
				      f->rates.changed ? f->rates_ns + RATES_NS : INT64_MAX);
		}
		if (!tell)
			continue;
		pthread_mutex_unlock(&f->lock);
		f->wake(f->wake_ctx);
		pthread_mutex_lock(&f->lock);
	}
	save_rates(f);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------------ */

int ig_kv_files_open(const char *folder, uint64_t max_bytes, struct ig_kv_files **out,
		     struct ig_error *err)
{
	struct ig_kv_files *f = calloc(1, sizeof *f);
	int rc;

	if (!f)
		return ig_fail(err, -ENOMEM, "out of memory for kvcache.disk");
	f->folder = -1;
	f->wanted_max = max_bytes;
	TAILQ_INIT(&f->reads);
	TAILQ_INIT(&f->writes);
	rc = ig_lock_init(&f->lock, &f->cond);
	if (rc < 0) {
		free(f);
		return ig_fail(err, rc, "the lock of kvcache.disk can't be made: %s",
			       strerror(-rc));
	}
	f->path = strdup(folder);
	f->namer = ig_kv_namer_create();
	if (!f->path || !f->namer || kv_index_init(&f->index) < 0)
		rc = ig_fail(err, -ENOMEM, "out of memory for kvcache.disk");
	else
		rc = f->folder = ig_open_folder(f->path, "kvcache.disk", err);
	if (rc < 0) {
		ig_kv_files_close(f);
		return rc;
	}
	kv_rates_load(&f->rates, f->path);
	*out = f;
	return 0;
}

int ig_kv_files_start(struct ig_kv_files *f, void (*wake)(void *ctx), void *ctx,
		      struct ig_error *err)
{
	f->wake = wake;
	f->wake_ctx = ctx;
	int rc = ig_start_thread(&f->thread, run, f);
	if (rc < 0)
		return ig_fail(err, rc, "the thread of kvcache.disk can't be started: %s",
			       strerror(-rc));
	f->has_thread = true;
	return 0;
}

static void destroy_all(struct queue *q)
{
	struct ig_kv_block *b;

	while ((b = TAILQ_FIRST(q))) {
		TAILQ_REMOVE(q, b, link);
		ig_kv_block_destroy(b);
	}
}

void ig_kv_files_close(struct ig_kv_files *f)
{
	if (!f)
		return;
	if (f->has_thread) {
		pthread_mutex_lock(&f->lock);
		f->stopping = true;
		f->close_ns = ig_now_ns() + CLOSE_NS;
		pthread_cond_signal(&f->cond);
		pthread_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	destroy_all(&f->reads);
	destroy_all(&f->writes);
	kv_index_finish(&f->index);
	ig_kv_namer_destroy(f->namer);
	if (f->folder >= 0)
		close(f->folder);
	pthread_cond_destroy(&f->cond);
	pthread_mutex_destroy(&f->lock);
	free(f->path);
	free(f);
}

/* ---- any thread --------------------------------------------------------------------------------------- */

bool ig_kv_files_is_ready(const struct ig_kv_files *f) { return atomic_load(&f->ready); }

bool ig_kv_files_find(struct ig_kv_files *f, const struct ig_kv_name *name, int64_t used_ns,
		      uint32_t *groups)
{
	struct kv_entry *e;

	pthread_mutex_lock(&f->lock);
	e = kv_index_find(&f->index, name);
	if (e) {
		*groups = e->groups;
		if (kv_stamp(used_ns, e->depth) > e->stamp)
			kv_index_touch(&f->index, e, kv_stamp(used_ns, e->depth));
	}
	pthread_mutex_unlock(&f->lock);
	return e;
}

bool ig_kv_files_write(struct ig_kv_files *f, struct ig_kv_block *b)
{
	pthread_mutex_lock(&f->lock);
	bool fits = !f->n_waiting || f->n_waiting + b->n_bytes <= MAX_WAITING;
	if (fits) {
		TAILQ_INSERT_TAIL(&f->writes, b, link);
		f->n_waiting += b->n_bytes;
		pthread_cond_signal(&f->cond);
	}
	f->was_full = f->was_full || !fits;
	pthread_mutex_unlock(&f->lock);
	return fits;
}

void ig_kv_files_read(struct ig_kv_files *f, struct ig_kv_block *b)
{
	atomic_store(&b->done, false);
	pthread_mutex_lock(&f->lock);
	TAILQ_INSERT_TAIL(&f->reads, b, link);
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

void ig_kv_files_forget(struct ig_kv_files *f, struct ig_kv_block *b)
{
	pthread_mutex_lock(&f->lock);
	bool done = atomic_load(&b->done);
	b->forgotten = true;
	pthread_mutex_unlock(&f->lock);
	if (done)
		ig_kv_block_destroy(b);
}

void ig_kv_files_rate(struct ig_kv_files *f, const struct ig_kv_name *model, struct ig_kv_rate *out)
{
	pthread_mutex_lock(&f->lock);
	kv_rates_get(&f->rates, model, out);
	pthread_mutex_unlock(&f->lock);
}

void ig_kv_files_set_rate(struct ig_kv_files *f, const struct ig_kv_name *model,
			  const struct ig_kv_rate *rate)
{
	pthread_mutex_lock(&f->lock);
	kv_rates_set(&f->rates, model, rate);
	if (f->rates.changed)
		pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

void ig_kv_files_stats(struct ig_kv_files *f, struct ig_kv_files_stats *out)
{
	pthread_mutex_lock(&f->lock);
	*out = f->stats;
	out->ready = atomic_load(&f->ready);
	out->n_files = f->index.n;
	out->n_bytes = f->index.n_bytes;
	pthread_mutex_unlock(&f->lock);
}
