/* packed.c: see packed.h. */
#include "runtime/cpu/packed.h"

#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "INGOTPW1"
#define HEADER_BYTES 64u
#define ALIGN_BYTES ((uint64_t)64 << 10) /* at least a page, on any machine */
#define PIECE_BYTES ((uint64_t)4 << 20)
/* A thread has the disk take what it wrote after so many pieces: pages that wait to be written can't be
 * freed, and are not in the budget. */
#define SYNC_PIECES 8

static uint64_t n_pieces(uint64_t n_bytes) { return (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES; }

static uint64_t data_offset(uint64_t n_bytes)
{
	uint64_t head = HEADER_BYTES + n_pieces(n_bytes) * sizeof(uint64_t);

	return (head + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

uint64_t ig_packed_file_bytes(uint64_t n_bytes) { return data_offset(n_bytes) + n_bytes; }

#define AHEAD_BYTES 2048 /* as the kernels ask ahead: ops/cpu/tile_fetch.h */
#define N_LANES 8 /* sums at once: a product takes four cycles, and one can begin each cycle */

uint64_t ig_packed_sum(const void *data, uint64_t n)
{
	static const uint64_t odd = 0x9e3779b97f4a7c15u;
	const uint8_t *p = data;
	uint64_t h[N_LANES];

	for (unsigned i = 0; i < N_LANES; i++)
		h[i] = n + i;
	for (const uint8_t *end = p + n / (8 * N_LANES) * (8 * N_LANES); p < end;
	     p += 8 * N_LANES) {
		__builtin_prefetch(p + AHEAD_BYTES);
		/* Unrolled, so that every sum stays in its register. */
		_Pragma("GCC unroll 8") for (unsigned i = 0; i < N_LANES; i++) h[i] =
			ig_hash_mix(h[i] ^ ig_hash_load(p + 8 * i, 8), odd);
	}
	for (unsigned i = 1; i < N_LANES; i++)
		h[0] = ig_hash_mix(h[0] ^ h[i], odd);
	return h[0];
}

static void write_header(const struct ig_packed_file *f, uint64_t n_bytes, uint8_t h[HEADER_BYTES])
{
	const uint64_t piece = PIECE_BYTES;

	memset(h, 0, HEADER_BYTES);
	memcpy(h, MAGIC, 8);
	memcpy(h + 8, &n_bytes, 8);
	memcpy(h + 16, &piece, 8);
	memcpy(h + 24, f->name, sizeof f->name);
}

/* ---- pieces, by all threads ---------------------------------------------------------- */

struct pieces {
	const uint8_t *data;
	uint64_t n_bytes;
	uint64_t *sums; /* [n_pieces] */
	int fd;		/* to write to; negative: compare the sums */
	uint64_t offset;
	atomic_uint_fast64_t next;
	atomic_int rc;
};

static int write_piece(const struct pieces *w, uint64_t i, uint64_t n)
{
	const uint8_t *from = w->data + i * PIECE_BYTES;
	off_t to = (off_t)(w->offset + i * PIECE_BYTES);

	while (n) {
		ssize_t done = pwrite(w->fd, from, n, to);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		from += done;
		to += done;
		n -= (uint64_t)done;
	}
	return 0;
}

static void do_pieces(void *ctx, uint32_t thread)
{
	struct pieces *w = ctx;
	uint64_t i, n_own = 0;
	int rc = 0;

	while (!atomic_load(&w->rc) && !rc &&
	       (i = atomic_fetch_add(&w->next, 1)) < n_pieces(w->n_bytes)) {
		uint64_t left = w->n_bytes - i * PIECE_BYTES;
		uint64_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
		uint64_t sum = ig_packed_sum(w->data + i * PIECE_BYTES, n);
		if (w->fd < 0) {
			rc = sum == w->sums[i] ? 0 : -EBADMSG;
			continue;
		}
		w->sums[i] = sum;
		rc = write_piece(w, i, n);
		if (!rc && ++n_own % SYNC_PIECES == 0 && fsync(w->fd) < 0)
			rc = -errno;
	}
	if (rc)
		atomic_store(&w->rc, rc);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Whether the file begins as it must; its sums. */
static int read_head(const struct ig_packed_file *f, int fd, uint64_t n_bytes, uint64_t *sums)
{
	uint8_t h[HEADER_BYTES], want[HEADER_BYTES];
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != ig_packed_file_bytes(n_bytes))
		return -EBADMSG;
	if ((rc = ig_read_at(fd, h, sizeof h, 0)))
		return rc;
	write_header(f, n_bytes, want);
	if (memcmp(h, want, sizeof h))
		return -EBADMSG;
	return ig_read_at(fd, sums, n_pieces(n_bytes) * sizeof *sums, HEADER_BYTES);
}

static void *map_file(int fd, void *at, uint64_t n_bytes)
{
	void *p = mmap(at, n_bytes, PROT_READ, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd,
		       (off_t)data_offset(n_bytes));

	return p == MAP_FAILED ? NULL : p;
}

static void *map_verified(const struct ig_packed_file *f, int fd, uint64_t n_bytes, uint64_t *sums,
			  struct ig_pool *pool, int *rc)
{
	void *p;

	if ((*rc = read_head(f, fd, n_bytes, sums)))
		return NULL;
	p = map_file(fd, NULL, n_bytes);
	if (!p) {
		*rc = -errno;
		return NULL;
	}
	struct pieces w = { .data = p, .n_bytes = n_bytes, .sums = sums, .fd = -1 };
	ig_pool_run(pool, do_pieces, &w);
	if (!(*rc = atomic_load(&w.rc)))
		return p;
	munmap(p, n_bytes);
	return NULL;
}

void *ig_packed_map(const struct ig_packed_file *f, uint64_t n_bytes, struct ig_pool *pool,
		    struct ig_error *why)
{
	uint64_t *sums = malloc((n_pieces(n_bytes) + 1) * sizeof *sums);
	void *p = NULL;
	/* a FIFO would block */
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = 0;

	if (!sums)
		rc = -ENOMEM;
	else if (fd < 0)
		rc = errno == ELOOP ? -EBADMSG : -errno;
	else
		p = map_verified(f, fd, n_bytes, sums, pool, &rc);
	if (fd >= 0)
		close(fd);
	free(sums);
	if (!p)
		ig_fail(why, rc, "%s: %s", f->path,
			rc == -EBADMSG ? "damaged, or of something else" : strerror(-rc));
	return p;
}

/* ---- writing ------------------------------------------------------------------------------ */

static int write_whole(const struct ig_packed_file *f, int fd, const void *weights,
		       uint64_t n_bytes, uint64_t *sums, struct ig_pool *pool)
{
	uint8_t h[HEADER_BYTES];
	struct pieces w = { .data = weights,
			    .n_bytes = n_bytes,
			    .sums = sums,
			    .fd = fd,
			    .offset = data_offset(n_bytes) };
	int rc;

	ig_pool_run(pool, do_pieces, &w);
	if ((rc = atomic_load(&w.rc)))
		return rc;
	write_header(f, n_bytes, h);
	if ((rc = ig_write_all(fd, h, sizeof h)) ||
	    (rc = ig_write_all(fd, sums, n_pieces(n_bytes) * sizeof *sums)))
		return rc;
	return fsync(fd) < 0 ? -errno : 0;
}

/* The new file, under another name until it is whole. */
static int write_part(const struct ig_packed_file *f, const char *part, void *weights,
		      uint64_t n_bytes, uint64_t *sums, struct ig_pool *pool)
{
	int fd, rc;

	unlink(part); /* of a process that had this number and was killed */
	fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	rc = write_whole(f, fd, weights, n_bytes, sums, pool);
	if (!rc && rename(part, f->path) < 0)
		rc = -errno;
	if (!rc && !map_file(fd, weights, n_bytes))
		rc = -errno;
	close(fd);
	return rc;
}

int ig_packed_write(const struct ig_packed_file *f, void *weights, uint64_t n_bytes,
		    struct ig_pool *pool, struct ig_error *why)
{
	uint64_t *sums = malloc((n_pieces(n_bytes) + 1) * sizeof *sums);
	size_t len = strlen(f->path) + 32;
	char *part = malloc(len);
	int rc = sums && part ? 0 : -ENOMEM;

	if (!rc) {
		snprintf(part, len, "%s.part.%ld", f->path, (long)getpid());
		rc = write_part(f, part, weights, n_bytes, sums, pool);
		if (rc)
			unlink(part);
	}
	free(part);
	free(sums);
	return rc ? ig_fail(why, rc, "%s: %s", f->path, strerror(-rc)) : 0;
}
