/* packed_files.c: see packed_files.h. */
#include "store/packed_files.h"

#include "base/array.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define ENDING ".packed"
#define FILE_NAME_BYTES (IG_KV_NAME_TEXT + sizeof ENDING)
/* Nothing is written that would leave less than this free to others. */
#define LEAST_FREE ((uint64_t)1 << 30)
/* A part of a file that nobody has finished: writing takes minutes at most. */
#define STALE_S 3600

struct ig_packed_files {
	char *path;
	int folder;
	uint64_t max_bytes; /* the option; 0: by what is free */
};

struct entry {
	char name[FILE_NAME_BYTES];
	uint64_t n_bytes;
	int64_t used_ns;
};

struct entries {
	struct entry *all;
	uint32_t n, cap;
	uint64_t n_bytes; /* together */
};

static void file_name(const struct ig_kv_name *name, char out[FILE_NAME_BYTES])
{
	ig_kv_name_write(name, out);
	memcpy(out + IG_KV_NAME_TEXT - 1, ENDING, sizeof ENDING);
}

/* NAME.packed, or what is being written for it: NAME.packed.part.NUMBER. */
static bool is_ours(const char *text, bool *part)
{
	struct ig_kv_name name;

	if (!ig_kv_name_read(text, &name))
		return false;
	text += IG_KV_NAME_TEXT - 1;
	*part = !strncmp(text, ENDING ".part.", sizeof ENDING ".part." - 1);
	return *part || !strcmp(text, ENDING);
}

static bool see_file(struct ig_packed_files *f, const char *name, struct entries *e)
{
	struct stat st;
	bool part;

	if (!is_ours(name, &part) || fstatat(f->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return true;
	if (part) {
		if (time(NULL) - st.st_mtime > STALE_S)
			unlinkat(f->folder, name, 0);
		return true;
	}
	if (!ig_array_grow(e->all, &e->cap, e->n))
		return false;
	struct entry *one = &e->all[e->n++];
	*one = (struct entry){ .n_bytes = (uint64_t)st.st_size, .used_ns = ig_mtime_ns(&st) };
	memcpy(one->name, name, strlen(name) + 1);
	e->n_bytes += one->n_bytes;
	return true;
}

/* All files; e->all is the caller's to free.  0 or -errno. */
static int look(struct ig_packed_files *f, struct entries *e)
{
	int fd = openat(f->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;

	*e = (struct entries){ 0 };
	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && (d = readdir(dir)))
		rc = see_file(f, d->d_name, e) ? 0 : -ENOMEM;
	closedir(dir);
	return rc;
}

/* ---- space --------------------------------------------------------------------------------- */

static uint64_t disk_free(const struct ig_packed_files *f)
{
	struct statvfs v;

	return fstatvfs(f->folder, &v) < 0 ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}

/* The least recently used one but `spared`; NULL: there is none. */
static struct entry *find_oldest(struct entries *e, const char *spared)
{
	struct entry *oldest = NULL;

	for (uint32_t i = 0; i < e->n; i++)
		if (e->all[i].n_bytes && strcmp(e->all[i].name, spared) &&
		    (!oldest || e->all[i].used_ns < oldest->used_ns))
			oldest = &e->all[i];
	return oldest;
}

static uint64_t bytes_of(const struct entries *e, const char *name)
{
	for (uint32_t i = 0; i < e->n; i++)
		if (!strcmp(e->all[i].name, name))
			return e->all[i].n_bytes;
	return 0;
}

/* Remove files until all, with n_bytes for `name`, are within the limit. */
static bool remove_until(struct ig_packed_files *f, struct entries *e, const char *name,
			 uint64_t n_bytes, struct ig_error *why)
{
	uint64_t own = bytes_of(e, name), others = e->n_bytes - own, n_free = disk_free(f);
	uint64_t all = n_free + e->n_bytes, most = f->max_bytes ? f->max_bytes : all / 2;
	struct entry *oldest;

	if (most > (all > LEAST_FREE ? all - LEAST_FREE : 0))
		most = all > LEAST_FREE ? all - LEAST_FREE : 0;
	if (n_bytes > most) {
		ig_fail(why, -ENOSPC,
			"runtime.packed_cache %s: %.1f MiB do not fit into %.1f MiB "
			"(runtime.packed_cache_size, and what is free there)",
			f->path, (double)n_bytes / (1 << 20), (double)most / (1 << 20));
		return false;
	}
	while (others + n_bytes > most && (oldest = find_oldest(e, name))) {
		if (!unlinkat(f->folder, oldest->name, 0))
			ig_log_info("runtime.packed_cache %s: %s, %.1f MiB, is removed for another",
				    f->path, oldest->name, (double)oldest->n_bytes / (1 << 20));
		others -= oldest->n_bytes;
		oldest->n_bytes = 0;
	}
	return true;
}

bool ig_packed_files_make_space(struct ig_packed_files *f, const struct ig_kv_name *name,
				uint64_t n_bytes, struct ig_error *why)
{
	char text[FILE_NAME_BYTES];
	struct entries e;
	int rc = look(f, &e);
	bool fits = false;

	file_name(name, text);
	if (rc)
		ig_fail(why, rc, "runtime.packed_cache %s: %s", f->path, strerror(-rc));
	else
		fits = remove_until(f, &e, text, n_bytes, why);
	free(e.all);
	return fits;
}

/* ---- files ----------------------------------------------------------------------------------- */

char *ig_packed_files_path(const struct ig_packed_files *f, const struct ig_kv_name *name)
{
	size_t len = strlen(f->path) + 1 + FILE_NAME_BYTES;
	char text[FILE_NAME_BYTES], *out = malloc(len);

	file_name(name, text);
	if (out)
		snprintf(out, len, "%s/%s", f->path, text);
	return out;
}

void ig_packed_files_use(struct ig_packed_files *f, const struct ig_kv_name *name)
{
	char text[FILE_NAME_BYTES];

	file_name(name, text);
	utimensat(f->folder, text, NULL, AT_SYMLINK_NOFOLLOW); /* only their order depends on it */
}

/* ---- life ------------------------------------------------------------------------------------ */

int ig_packed_files_open(const char *folder, uint64_t max_bytes, struct ig_packed_files **out,
			 struct ig_error *err)
{
	struct ig_packed_files *f = calloc(1, sizeof *f);
	int rc;

	*out = NULL;
	if (!f)
		return ig_fail(err, -ENOMEM, "out of memory for runtime.packed_cache");
	f->max_bytes = max_bytes;
	f->path = strdup(folder);
	rc = f->path ? ig_open_folder(f->path, "runtime.packed_cache", err) :
		       ig_fail(err, -ENOMEM, "out of memory for runtime.packed_cache");
	f->folder = rc;
	if (rc < 0) {
		ig_packed_files_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

void ig_packed_files_close(struct ig_packed_files *f)
{
	if (!f)
		return;
	if (f->folder >= 0)
		close(f->folder);
	free(f->path);
	free(f);
}
