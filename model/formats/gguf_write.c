/* gguf_write.c: see gguf_write.h.  The header is built in memory (a few megabytes for a
 * vocabulary), since counts and the tensors' offsets precede what they describe. */
#include "model/formats/gguf_write.h"

#include "base/array.h"
#include "base/strbuf.h"
#include "model/formats/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ALIGNMENT 32 /* the format's default */
#define MAX_NAME_BYTES 64

struct entry {
	uint64_t offset, n_bytes; /* in the data */
};

struct ig_gguf_writer {
	char *path, *part; /* its name, and the temporary one */
	int fd;
	bool replace, begun, finished;
	struct ig_strbuf keys, tensors; /* in the file's format */
	uint64_t n_keys;
	struct entry *entries;
	uint32_t n_entries, cap;
	bool no_memory;
	uint64_t data_bytes;   /* of all tensors, each padded */
	uint64_t header_bytes; /* padded */
	uint32_t at;	       /* the tensor whose bytes come next */
	uint64_t at_byte;      /* its bytes written so far */
};

static uint64_t padded(uint64_t n) { return (n + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1); }

static void put_string(struct ig_strbuf *b, const char *s, size_t len)
{
	uint64_t n = len;

	ig_strbuf_add(b, &n, sizeof n);
	ig_strbuf_add(b, s, len);
}

/* ---- open ------------------------------------------------------------------------------ */

static int open_part(struct ig_gguf_writer *w, struct ig_error *err)
{
	size_t size = strlen(w->path) + 40;

	w->part = malloc(size);
	if (!w->part)
		return ig_fail(err, -ENOMEM, "%.300s: out of memory", w->path);
	/* Concurrent writers have different names; a file left by a killed process is not touched. */
	for (int i = 0; i < 100; i++) {
		snprintf(w->part, size, "%s.part-%ld", w->path, (long)getpid() + i * 100000L);
		w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (w->fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	int e = errno;
	free(w->part);
	w->part = NULL;
	return ig_fail(err, -e, "%.300s: can't be made: %s", w->path, strerror(e));
}

int ig_gguf_create(const char *path, bool replace, struct ig_gguf_writer **out,
		   struct ig_error *err)
{
	struct ig_gguf_writer *w;
	struct stat st;
	int rc;

	*out = NULL;
	if (!*path)
		return ig_fail(err, -EINVAL, "the file to write has no name");
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return ig_fail(err, -EISDIR, "%.300s is a folder; name a file in it", path);
		if (!S_ISREG(st.st_mode))
			return ig_fail(err, -EINVAL, "%.300s exists and is not a regular file",
				       path);
		if (!replace)
			return ig_fail(err, -EEXIST, "%.300s is there already", path);
	} else if (path[strlen(path) - 1] == '/') {
		return ig_fail(err, -EINVAL, "%.300s names a folder, not a file", path);
	}
	w = calloc(1, sizeof *w);
	if (!w)
		return ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	w->fd = -1;
	w->replace = replace;
	w->path = strdup(path);
	rc = w->path ? open_part(w, err) : ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	if (rc) {
		ig_gguf_close(w);
		return rc;
	}
	*out = w;
	return 0;
}

void ig_gguf_close(struct ig_gguf_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	if (w->part && !w->finished)
		unlink(w->part);
	ig_strbuf_finish(&w->keys);
	ig_strbuf_finish(&w->tensors);
	free(w->entries);
	free(w->path);
	free(w->part);
	free(w);
}

/* ---- the header ------------------------------------------------------------------------ */

void ig_gguf_put(struct ig_gguf_writer *w, const char *key, size_t key_len, uint32_t type,
		 const void *raw, size_t n_bytes)
{
	put_string(&w->keys, key, key_len);
	ig_strbuf_add(&w->keys, &type, sizeof type);
	ig_strbuf_add(&w->keys, raw, n_bytes);
	w->n_keys++;
}

void ig_gguf_put_str(struct ig_gguf_writer *w, const char *key, const char *s, size_t len)
{
	struct ig_strbuf raw = { 0 };

	put_string(&raw, s, len);
	if (ig_strbuf_ok(&raw))
		ig_gguf_put(w, key, strlen(key), IG_GGUF_STRING, raw.data, raw.len);
	else
		w->no_memory = true;
	ig_strbuf_finish(&raw);
}

void ig_gguf_put_u32(struct ig_gguf_writer *w, const char *key, uint32_t v)
{
	ig_gguf_put(w, key, strlen(key), IG_GGUF_U32, &v, sizeof v);
}

int ig_gguf_add_tensor(struct ig_gguf_writer *w, const char *name, const int64_t *dims,
		       uint32_t n_dims, uint32_t dtype, struct ig_error *err)
{
	size_t len = strlen(name);
	uint64_t n_bytes;

	if (len == 0 || len > MAX_NAME_BYTES)
		return ig_fail(err, -EINVAL,
			       "%.200s: tensor '%.80s': a name has 1 to %d bytes in a GGUF file",
			       w->path, name, MAX_NAME_BYTES);
	if (n_dims < 1 || n_dims > 4)
		return ig_fail(err, -EINVAL,
			       "%.200s: tensor '%s' has %" PRIu32 " dimensions, a GGUF "
			       "file has 1 to 4",
			       w->path, name, n_dims);
	n_bytes = ig_dtype_row_bytes(dtype, dims[0]);
	if (!n_bytes)
		return ig_fail(err, -EINVAL,
			       "%.200s: tensor '%s': rows of %" PRId64 " values can't be %s",
			       w->path, name, dims[0], ig_dtype_name(dtype));
	for (uint32_t i = 1; i < n_dims; i++)
		if (dims[i] < 1 || __builtin_mul_overflow(n_bytes, (uint64_t)dims[i], &n_bytes))
			return ig_fail(err, -EINVAL,
				       "%.200s: tensor '%s': dimension %" PRIu32 " is %" PRId64,
				       w->path, name, i, dims[i]);
	/* Far below what would overflow with padding and header. */
	if (n_bytes > UINT64_MAX / 4 || w->data_bytes > UINT64_MAX / 4)
		return ig_fail(err, -EFBIG, "%.200s: tensor '%s' has %" PRIu64 " bytes", w->path,
			       name, n_bytes);
	if (!ig_array_grow(w->entries, &w->cap, w->n_entries))
		return ig_fail(err, -ENOMEM, "%.300s: out of memory", w->path);
	w->entries[w->n_entries++] = (struct entry){ w->data_bytes, n_bytes };

	uint64_t offset = w->data_bytes;
	put_string(&w->tensors, name, len);
	ig_strbuf_add(&w->tensors, &n_dims, sizeof n_dims);
	for (uint32_t i = 0; i < n_dims; i++) {
		uint64_t ne = (uint64_t)dims[i];
		ig_strbuf_add(&w->tensors, &ne, sizeof ne);
	}
	ig_strbuf_add(&w->tensors, &dtype, sizeof dtype);
	ig_strbuf_add(&w->tensors, &offset, sizeof offset);
	w->data_bytes += padded(n_bytes);
	return 0;
}

uint64_t ig_gguf_file_bytes(const struct ig_gguf_writer *w)
{
	return padded(24 + w->keys.len + w->tensors.len) + w->data_bytes;
}

/* ---- the bytes ------------------------------------------------------------------------- */

static int put_bytes(struct ig_gguf_writer *w, const void *data, size_t n, struct ig_error *err)
{
	const char *p = data;

	while (n) {
		/* Some systems take no more than 2 GiB at once. */
		ssize_t wrote = write(w->fd, p, n < 1 << 30 ? n : 1 << 30);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return ig_fail(err, -errno, "%.300s: can't write: %s", w->part,
				       strerror(errno));
		if (wrote == 0)
			return ig_fail(err, -EIO, "%.300s: can't write: nothing was taken",
				       w->part);
		p += wrote;
		n -= (size_t)wrote;
	}
	return 0;
}

static int put_zeros(struct ig_gguf_writer *w, uint64_t n, struct ig_error *err)
{
	static const char zeros[ALIGNMENT];

	return n ? put_bytes(w, zeros, (size_t)n, err) : 0;
}

static int check_space(const struct ig_gguf_writer *w, struct ig_error *err)
{
	uint64_t need = ig_gguf_file_bytes(w), left;
	struct statvfs v;

	if (fstatvfs(w->fd, &v))
		return 0; /* unknown: the write will fail */
	left = (uint64_t)v.f_bavail * (v.f_frsize ? v.f_frsize : v.f_bsize);
	if (left >= need)
		return 0;
	return ig_fail(err, -ENOSPC, "%.300s: %.1f MB are needed, its disk has %.1f MB left",
		       w->path, (double)need / 1e6, (double)left / 1e6);
}

int ig_gguf_begin(struct ig_gguf_writer *w, struct ig_error *err)
{
	struct {
		char magic[4];
		uint32_t version;
		uint64_t n_tensors, n_keys;
	} head = { { 'G', 'G', 'U', 'F' }, 3, w->n_entries, w->n_keys };
	uint64_t n = sizeof head + w->keys.len + w->tensors.len;
	int rc;

	_Static_assert(sizeof head == 24, "as the file has it");
	if (!ig_strbuf_ok(&w->keys) || !ig_strbuf_ok(&w->tensors))
		return ig_fail(err, -ENOMEM, "%.300s: out of memory for its header", w->path);
	if ((rc = check_space(w, err)) || (rc = put_bytes(w, &head, sizeof head, err)) ||
	    (rc = put_bytes(w, w->keys.data, w->keys.len, err)) ||
	    (rc = put_bytes(w, w->tensors.data, w->tensors.len, err)) ||
	    (rc = put_zeros(w, padded(n) - n, err)))
		return rc;
	w->begun = true;
	return 0;
}

int ig_gguf_write(struct ig_gguf_writer *w, const void *data, size_t n_bytes, struct ig_error *err)
{
	const char *p = data;
	int rc;

	while (n_bytes) {
		if (!w->begun || w->at == w->n_entries)
			return ig_fail(err, -EINVAL, "%.300s: bytes after the last tensor",
				       w->path);
		const struct entry *e = &w->entries[w->at];
		uint64_t left = e->n_bytes - w->at_byte;
		size_t n = n_bytes < left ? n_bytes : (size_t)left;
		if ((rc = put_bytes(w, p, n, err)))
			return rc;
		p += n;
		n_bytes -= n;
		w->at_byte += n;
		if (w->at_byte == e->n_bytes) {
			if ((rc = put_zeros(w, padded(e->n_bytes) - e->n_bytes, err)))
				return rc;
			w->at++;
			w->at_byte = 0;
		}
	}
	return 0;
}

/* ---- the end --------------------------------------------------------------------------- */

static void sync_folder(const char *path)
{
	char *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
	int fd;

	if (!dir)
		return;
	if (slash)
		slash[slash == dir] = 0;
	fd = open(slash ? dir : ".", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		/* Some file systems can't sync a folder; the name exists anyway. */
		(void)fsync(fd);
		close(fd);
	}
	free(dir);
}

/* Rename the file; without replace, a file created meanwhile is not overwritten. */
static int take_name(const struct ig_gguf_writer *w)
{
	if (!w->replace) {
		if (link(w->part, w->path) == 0) {
			unlink(w->part);
			return 0;
		}
		if (errno == EEXIST)
			return -EEXIST;
		/* a file system without hard links */
		if (access(w->path, F_OK) == 0)
			return -EEXIST;
	}
	return rename(w->part, w->path) ? -errno : 0;
}

int ig_gguf_finish(struct ig_gguf_writer *w, struct ig_error *err)
{
	int fd = w->fd, rc;

	if (!w->begun || w->at != w->n_entries)
		return ig_fail(err, -EINVAL, "%.300s: %u of %u tensors were written", w->path,
			       w->at, w->n_entries);
	/* Sync before the rename: a power failure must not leave an incomplete model under its
	 * final name. */
	if (fsync(fd) && errno != EINVAL && errno != ENOTSUP)
		return ig_fail(err, -errno, "%.300s: can't write: %s", w->part, strerror(errno));
	w->fd = -1;
	if (close(fd))
		return ig_fail(err, -errno, "%.300s: can't write: %s", w->part, strerror(errno));
	if ((rc = take_name(w)))
		return ig_fail(err, rc, "%.300s: can't take this name: %s", w->path, strerror(-rc));
	w->finished = true;
	sync_folder(w->path);
	return 0;
}
