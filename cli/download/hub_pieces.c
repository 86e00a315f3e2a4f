/* hub_pieces.c: see hub_pieces.h.  The meta is text: a head, the file's hash, its size and that of a
 * piece, then the bytes that each piece has. */
#include "cli/download/hub_pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define HEAD "ingot pieces 1"
#define MIN_PIECE (UINT64_C(64) << 10)
#define MAX_PIECE (UINT64_C(64) << 20)
#define MAX_PIECES 65536
#define PIECES_EACH 4 /* of a connection, so that a slow one is not waited for at the end */

static const char *hash_of(const struct ig_hub_file *f)
{
	return f->sha256[0] ? f->sha256 : f->sha1;
}

static int lay_out(const struct ig_hub_file *file, uint64_t piece_bytes, struct ig_hub_pieces *out)
{
	uint64_t n = file->n_bytes / piece_bytes + (file->n_bytes % piece_bytes != 0);

	out->list = calloc(n + 1, sizeof *out->list);
	out->n = out->list ? n : 0;
	out->piece_bytes = piece_bytes;
	for (size_t i = 0; i < out->n; i++) {
		uint64_t at = i * piece_bytes, left = file->n_bytes - at;
		out->list[i].at = at;
		out->list[i].n_bytes = left < piece_bytes ? left : piece_bytes;
	}
	return out->list ? 0 : -ENOMEM;
}

static bool path_of(const char *part, const char *end, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s%s", part, end);

	return n > 0 && (size_t)n < size;
}

/* The next number of the text, which ends with end; false: there is none. */
static bool next_number(const char **s, char end, uint64_t *out)
{
	char *stop;

	if (**s < '0' || **s > '9')
		return false;
	errno = 0;
	*out = strtoull(*s, &stop, 10);
	if (errno || *stop != end)
		return false;
	*s = stop + 1;
	return true;
}

static bool parse(const char *text, const struct ig_hub_file *file, struct ig_hub_pieces *out)
{
	char head[160];
	const char *s = text;
	uint64_t n_bytes, piece;

	int n = snprintf(head, sizeof head, HEAD "\n%s\n", hash_of(file));
	if (strncmp(text, head, (size_t)n))
		return false;
	s += n;
	if (!next_number(&s, ' ', &n_bytes) || !next_number(&s, '\n', &piece) ||
	    n_bytes != file->n_bytes || piece < MIN_PIECE || n_bytes / piece >= MAX_PIECES ||
	    lay_out(file, piece, out))
		return false;
	for (size_t i = 0; i < out->n; i++)
		if (!next_number(&s, '\n', &out->list[i].done) ||
		    out->list[i].done > out->list[i].n_bytes)
			return false;
	return true;
}

int ig_hub_pieces_reset(const struct ig_hub_file *file, uint64_t piece_bytes,
			struct ig_hub_pieces *out)
{
	ig_hub_pieces_finish(out);
	return lay_out(file, piece_bytes, out);
}

int ig_hub_pieces_load(const struct ig_hub_file *file, const char *part, unsigned n_connections,
		       struct ig_hub_pieces *out)
{
	uint64_t piece = file->n_bytes / n_connections / PIECES_EACH + 1;
	struct ig_strbuf text = { 0 };
	char path[4096];

	*out = (struct ig_hub_pieces){ 0 };
	if (path_of(part, ".meta", path, sizeof path)) {
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0) {
			bool known = !ig_read_all(fd, MAX_PIECES * 16, NULL, &text) && text.len &&
				     parse(text.data, file, out);
			close(fd);
			ig_strbuf_finish(&text);
			if (known)
				return 0;
		}
	}
	piece = piece < MIN_PIECE ? MIN_PIECE : piece > MAX_PIECE ? MAX_PIECE : piece;
	if (file->n_bytes / piece >= MAX_PIECES)
		piece = file->n_bytes / MAX_PIECES + 1;
	return ig_hub_pieces_reset(file, piece, out);
}

int ig_hub_pieces_save(const struct ig_hub_file *file, const char *part,
		       const struct ig_hub_pieces *p, struct ig_error *err)
{
	char path[4096], temporary[4096];
	struct ig_strbuf b = { 0 };
	int rc = 0, fd = -1;

	if (!path_of(part, ".meta", path, sizeof path) ||
	    !path_of(part, ".meta.new", temporary, sizeof temporary))
		return ig_fail(err, -ENAMETOOLONG, "the path is too long");
	ig_strbuf_printf(&b, HEAD "\n%s\n%llu %llu\n", hash_of(file),
			 (unsigned long long)file->n_bytes, (unsigned long long)p->piece_bytes);
	for (size_t i = 0; i < p->n; i++)
		ig_strbuf_printf(&b, "%llu\n", (unsigned long long)p->list[i].done);
	if (!ig_strbuf_ok(&b)) {
		rc = -ENOMEM;
	} else {
		unlink(temporary);
		fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
		rc = fd < 0 ? -errno : ig_write_all(fd, b.data, b.len);
	}
	if (fd >= 0)
		close(fd);
	if (!rc && rename(temporary, path))
		rc = -errno;
	if (rc)
		unlink(temporary);
	ig_strbuf_finish(&b);
	return rc ? ig_fail(err, rc, "can't write %.300s: %s", path, strerror(-rc)) : 0;
}

void ig_hub_pieces_forget(const char *part)
{
	char path[4096];

	if (path_of(part, ".meta", path, sizeof path))
		unlink(path);
}

uint64_t ig_hub_pieces_done(const struct ig_hub_pieces *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += p->list[i].done;
	return n;
}

void ig_hub_pieces_finish(struct ig_hub_pieces *p)
{
	free(p->list);
	*p = (struct ig_hub_pieces){ 0 };
}
