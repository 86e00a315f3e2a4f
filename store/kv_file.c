/* kv_file.c: the file of one block; its layout is in kv_files.h. */
#include "store/kv_files_private.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define SUM_AT 128

static const char magic[8] = { 'I', 'N', 'G', 'O', 'T', 'K', 'V', '1' };

uint64_t kv_file_bytes(uint64_t n_data)
{
	return (n_data + KV_HEADER_BYTES + PAGE - 1) / PAGE * PAGE;
}

/* ---- names of files -------------------------------------------------------------------- */

void kv_file_path(char out[KV_PATH_BYTES], const struct ig_kv_name *name, uint32_t groups,
		  uint32_t depth)
{
	char hex[IG_KV_NAME_TEXT];

	ig_kv_name_write(name, hex);
	snprintf(out, KV_PATH_BYTES, "%.2s/%s.%x.%x", hex, hex, groups, depth);
}

bool kv_file_parse(const char *folder, const char *file, struct kv_entry *out)
{
	char path[KV_PATH_BYTES];

	*out = (struct kv_entry){ 0 };
	if (!ig_kv_name_read(file, &out->name))
		return false;
	if (sscanf(file + 2 * IG_KV_NAME_BYTES, ".%8x.%8x", &out->groups, &out->depth) != 2)
		return false;
	/* written in one way only */
	kv_file_path(path, &out->name, out->groups, out->depth);
	return !strncmp(path, folder, 2) && !strcmp(path + 3, file);
}

/* ---- bytes ------------------------------------------------------------------------------ */

static void put32(uint8_t *at, uint32_t v) { memcpy(at, &v, sizeof v); }

/* All but the checksum. */
static void write_header(const struct ig_kv_block *b, uint8_t h[KV_HEADER_BYTES])
{
	memset(h, 0, KV_HEADER_BYTES);
	memcpy(h, magic, sizeof magic);
	put32(h + 8, KV_HEADER_BYTES);
	put32(h + 12, b->depth);
	put32(h + 16, b->groups);
	memcpy(h + 24, &b->n_bytes, 8);
	memcpy(h + 32, &b->name, sizeof b->name);
	memcpy(h + 48, &b->before, sizeof b->before);
	memcpy(h + 64, b->tokens, sizeof b->tokens);
}

static bool sum_of(struct ig_kv_namer *n, const uint8_t *header, const struct ig_kv_block *b,
		   uint8_t out[32])
{
	const struct ig_kv_part parts[] = { { header, SUM_AT }, { b->data, b->n_bytes } };

	return ig_kv_sum(n, parts, 2, out);
}

static void set_time(int fd, const struct ig_kv_block *b)
{
	int64_t stamp = kv_stamp(b->used_ns, b->depth);
	struct timespec t = { .tv_sec = (time_t)(stamp / 1000000000),
			      .tv_nsec = stamp % 1000000000 };
	struct timespec times[2] = { t, t };

	futimens(fd, times); /* only the order in which files are removed depends on it */
}

int kv_file_write(int folder, struct ig_kv_namer *n, const struct ig_kv_block *b, uint64_t number)
{
	uint8_t h[KV_HEADER_BYTES];
	char path[KV_PATH_BYTES], part[KV_PATH_BYTES];
	int fd, rc;

	write_header(b, h);
	if (!sum_of(n, h, b, h + SUM_AT))
		return -EIO;
	kv_file_path(path, &b->name, b->groups, b->depth);
	snprintf(part, sizeof part, "part.%ld.%llu", (long)getpid(), (unsigned long long)number);
	fd = openat(folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	rc = ig_write_all(fd, h, sizeof h);
	if (!rc)
		rc = ig_write_all(fd, b->data, b->n_bytes);
	set_time(fd, b);
	if (close(fd) < 0 && !rc)
		rc = -errno;
	if (!rc && renameat(folder, part, folder, path) < 0) {
		char above[3] = { path[0], path[1], 0 };
		if (errno != ENOENT || (mkdirat(folder, above, 0700) < 0 && errno != EEXIST) ||
		    renameat(folder, part, folder, path) < 0)
			rc = -errno;
	}
	if (rc)
		unlinkat(folder, part, 0);
	return rc;
}

static int check(int fd, struct ig_kv_namer *n, struct ig_kv_block *b)
{
	uint8_t h[KV_HEADER_BYTES], want[KV_HEADER_BYTES];
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != KV_HEADER_BYTES + b->n_bytes)
		return -EBADMSG;
	if ((rc = ig_read_at(fd, h, sizeof h, 0)) ||
	    (rc = ig_read_at(fd, b->data, b->n_bytes, sizeof h)))
		return rc;
	write_header(b, want);
	if (!sum_of(n, want, b, want + SUM_AT))
		return -EIO;
	return memcmp(h, want, sizeof h) ? -EBADMSG : 0;
}

int kv_file_read(int folder, struct ig_kv_namer *n, struct ig_kv_block *b)
{
	char path[KV_PATH_BYTES];
	int fd, rc;

	kv_file_path(path, &b->name, b->groups, b->depth);
	/* a FIFO would block */
	fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	rc = check(fd, n, b);
	if (!rc)
		set_time(fd, b);
	close(fd);
	return rc;
}

void kv_file_remove(int folder, const struct kv_entry *e)
{
	char path[KV_PATH_BYTES];

	kv_file_path(path, &e->name, e->groups, e->depth);
	unlinkat(folder, path, 0);
}
