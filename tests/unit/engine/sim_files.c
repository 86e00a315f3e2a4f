/* sim_files.c: see sim_files.h.  The functions are those of store/kv_files.h. */
#include "sim_files.h"

#include "store/kv_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 512

struct ig_kv_files {
	int unused;
};

static struct ig_kv_files the_files;
static struct ig_kv_block *files[MAX_FILES];
static unsigned n_files, n_writes, most_writes;
static bool was_full;
static TAILQ_HEAD(, ig_kv_block) reads, writes;
static struct ig_kv_rate rate;
static void (*wake)(void *ctx);
static void *wake_ctx;

static void drop(unsigned i)
{
	ig_kv_block_destroy(files[i]);
	files[i] = files[--n_files];
}

void sim_files_reset(unsigned most_waiting)
{
	while (n_files)
		drop(0);
	TAILQ_INIT(&reads);
	TAILQ_INIT(&writes);
	n_writes = 0;
	most_writes = most_waiting;
	was_full = false;
	rate = (struct ig_kv_rate){ 0 };
	wake = NULL;
}

void sim_files_take_all(void) { most_writes = UINT32_MAX; }

static struct ig_kv_block *find(const struct ig_kv_name *name)
{
	for (unsigned i = 0; i < n_files; i++)
		if (!memcmp(&files[i]->name, name, sizeof *name))
			return files[i];
	return NULL;
}

static void read_one(bool fails)
{
	struct ig_kv_block *b = TAILQ_FIRST(&reads);
	const struct ig_kv_block *f = find(&b->name);

	TAILQ_REMOVE(&reads, b, link);
	b->rc = !fails && f && f->groups == b->groups && f->n_bytes == b->n_bytes ? 0 : -ENOENT;
	if (!b->rc)
		memcpy(b->data, f->data, f->n_bytes);
	if (b->forgotten)
		ig_kv_block_destroy(b);
	else
		atomic_store(&b->done, true);
}

static void write_one(bool fails, unsigned (*draw)(unsigned n))
{
	struct ig_kv_block *b = TAILQ_FIRST(&writes);

	TAILQ_REMOVE(&writes, b, link);
	n_writes--;
	if (fails || find(&b->name)) {
		ig_kv_block_destroy(b);
		return;
	}
	if (n_files == MAX_FILES)
		drop(draw(n_files));
	files[n_files++] = b;
}

unsigned sim_files_work(unsigned n, unsigned failing, unsigned (*draw)(unsigned n))
{
	unsigned i = 0;

	for (; i < n && !(TAILQ_EMPTY(&reads) && TAILQ_EMPTY(&writes)); i++) {
		bool tell = !TAILQ_EMPTY(&reads), fails = draw(100) < failing;
		if (tell)
			read_one(fails);
		else
			write_one(fails, draw);
		if (was_full && n_writes < (most_writes + 1) / 2)
			tell = true;
		was_full = was_full && !tell;
		if (tell && wake)
			wake(wake_ctx);
	}
	return i;
}

void sim_files_lose(unsigned n, unsigned (*draw)(unsigned n))
{
	while (n-- && n_files)
		drop(draw(n_files));
}

/* ---- store/kv_files.h ---------------------------------------------------------------------------- */

int ig_kv_files_open(const char *folder, uint64_t max_bytes, struct ig_kv_files **out,
		     struct ig_error *err)
{
	*out = &the_files;
	return 0;
}

int ig_kv_files_start(struct ig_kv_files *f, void (*fn)(void *ctx), void *ctx, struct ig_error *err)
{
	wake = fn;
	wake_ctx = ctx;
	return 0;
}

void ig_kv_files_close(struct ig_kv_files *f)
{
	struct ig_kv_block *b;

	if (!f)
		return;
	while ((b = TAILQ_FIRST(&reads))) {
		TAILQ_REMOVE(&reads, b, link);
		ig_kv_block_destroy(b);
	}
	while ((b = TAILQ_FIRST(&writes))) {
		TAILQ_REMOVE(&writes, b, link);
		ig_kv_block_destroy(b);
	}
	while (n_files)
		drop(0);
}

bool ig_kv_files_find(struct ig_kv_files *f, const struct ig_kv_name *name, int64_t used_ns,
		      uint32_t *groups)
{
	const struct ig_kv_block *b = find(name);

	if (b)
		*groups = b->groups;
	return b;
}

bool ig_kv_files_is_ready(const struct ig_kv_files *f) { return true; }

struct ig_kv_block *ig_kv_block_create(uint64_t n_bytes)
{
	struct ig_kv_block *b = calloc(1, sizeof *b + n_bytes);

	if (b)
		b->n_bytes = n_bytes;
	return b;
}

void ig_kv_block_destroy(struct ig_kv_block *b) { free(b); }

bool ig_kv_files_write(struct ig_kv_files *f, struct ig_kv_block *b)
{
	if (n_writes >= most_writes) {
		was_full = true;
		return false;
	}
	TAILQ_INSERT_TAIL(&writes, b, link);
	n_writes++;
	return true;
}

void ig_kv_files_read(struct ig_kv_files *f, struct ig_kv_block *b)
{
	atomic_store(&b->done, false);
	TAILQ_INSERT_TAIL(&reads, b, link);
}

void ig_kv_files_forget(struct ig_kv_files *f, struct ig_kv_block *b)
{
	b->forgotten = true;
	if (atomic_load(&b->done))
		ig_kv_block_destroy(b);
}

void ig_kv_files_rate(struct ig_kv_files *f, const struct ig_kv_name *model, struct ig_kv_rate *out)
{
	*out = rate;
}

void ig_kv_files_set_rate(struct ig_kv_files *f, const struct ig_kv_name *model,
			  const struct ig_kv_rate *r)
{
	rate = *r;
}

void ig_kv_files_stats(struct ig_kv_files *f, struct ig_kv_files_stats *out)
{
	*out = (struct ig_kv_files_stats){ .ready = true, .n_files = n_files };
}
