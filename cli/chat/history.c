/* history.c: see history.h. */
#include "cli/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/download/files.h"
#include "cli/term/text.h"

#define MAX_FILE (64u << 20)

int ig_history_locate(char *buf, size_t size, struct ig_error *err)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	if (state && state[0] == '/')
		n = snprintf(buf, size, "%s/ingot/chat_history", state);
	else if (home && home[0] == '/')
		n = snprintf(buf, size, "%s/.local/state/ingot/chat_history", home);
	else
		return ig_fail(err, -ENOENT, "neither XDG_STATE_HOME nor HOME is set");
	if (n < 0 || (size_t)n >= size)
		return ig_fail(err, -ENAMETOOLONG, "the path of the history is too long");
	return 0;
}

bool ig_history_write_line(const char *text, size_t len, struct ig_strbuf *out)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\\')
			ig_strbuf_add(out, "\\\\", 2);
		else if (text[i] == '\n')
			ig_strbuf_add(out, "\\n", 2);
		else
			ig_strbuf_add(out, text + i, 1);
	}
	ig_strbuf_add(out, "\n", 1);
	return ig_strbuf_ok(out);
}

bool ig_history_read_line(const char *line, size_t len, struct ig_strbuf *out)
{
	for (size_t i = 0; i < len; i++) {
		if (line[i] != '\\') {
			ig_strbuf_add(out, line + i, 1);
			continue;
		}
		if (++i == len || (line[i] != '\\' && line[i] != 'n'))
			return false;
		ig_strbuf_add(out, line[i] == 'n' ? "\n" : "\\", 1);
	}
	return ig_strbuf_ok(out);
}

static bool keep(struct ig_history *h, const char *text, size_t len)
{
	char *p;

	if (h->n == IG_HISTORY_MAX_ENTRIES) {
		free(h->entries[0]);
		memmove(h->entries, h->entries + 1, (h->n - 1) * sizeof *h->entries);
		h->n--;
	}
	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 64;
		char **grown = realloc(h->entries, cap * sizeof *grown);
		if (!grown)
			return false;
		h->entries = grown;
		h->cap = cap;
	}
	p = malloc(len + 1);
	if (!p)
		return false;
	memcpy(p, text, len);
	p[len] = 0;
	h->entries[h->n++] = p;
	return true;
}

static bool is_kept(const char *text, size_t len)
{
	return len && len <= IG_HISTORY_MAX_ENTRY && !memchr(text, 0, len) &&
	       ig_utf8_valid(text, len);
}

/* Read the whole file; lines that are none of ours are left out. */
static int read_entries(struct ig_history *h, int fd, size_t *n_lines)
{
	struct ig_strbuf all, entry;
	int rc = 0;

	*n_lines = 0;
	ig_strbuf_init(&all);
	ig_strbuf_init(&entry);
	for (;;) {
		if (!ig_strbuf_reserve(&all, 65536)) {
			rc = -ENOMEM;
			goto out;
		}
		ssize_t n = read(fd, all.data + all.len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = -errno;
			goto out;
		}
		if (n == 0)
			break;
		all.len += (size_t)n;
		if (all.len > MAX_FILE) {
			rc = -EFBIG;
			goto out;
		}
	}
	for (size_t at = 0; at < all.len; (*n_lines)++) {
		const char *line = all.data + at, *end = memchr(line, '\n', all.len - at);
		size_t len = end ? (size_t)(end - line) : all.len - at;
		at += len + 1;
		ig_strbuf_clear(&entry);
		if (ig_history_read_line(line, len, &entry) && entry.len &&
		    is_kept(entry.data, entry.len) && !keep(h, entry.data, entry.len))
			rc = -ENOMEM;
		if (!ig_strbuf_ok(&entry))
			rc = -ENOMEM;
		if (rc)
			break;
	}
out:
	ig_strbuf_finish(&all);
	ig_strbuf_finish(&entry);
	return rc;
}

static int write_all(int fd, const char *s, size_t len)
{
	while (len) {
		ssize_t n = write(fd, s, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		s += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The file anew with what is kept of it; fd is locked. */
static int shorten(const struct ig_history *h, int fd)
{
	struct ig_strbuf b;
	int rc = 0;

	ig_strbuf_init(&b);
	for (size_t i = 0; i < h->n && rc == 0; i++)
		rc = ig_history_write_line(h->entries[i], strlen(h->entries[i]), &b) ? 0 : -ENOMEM;
	if (!rc && ftruncate(fd, 0))
		rc = -errno;
	if (!rc)
		rc = write_all(fd, b.data, b.len); /* O_APPEND: at 0 */
	ig_strbuf_finish(&b);
	return rc;
}

static int open_file(const char *path, struct ig_error *err)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd < 0)
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return ig_fail(err, -EINVAL, "%.300s is no regular file", path);
	}
	/* what is typed is nobody else's business, whatever made the file */
	if ((st.st_mode & 0777) != 0600 && fchmod(fd, 0600)) {
		int e = errno;
		close(fd);
		return ig_fail(err, -e, "%.300s: its mode should be 600: %s", path, strerror(e));
	}
	/* waits for another chat that writes just now; where locks don't work, without */
	(void)flock(fd, LOCK_EX);
	return fd;
}

static int make_folder_of(const char *path, struct ig_error *err)
{
	char dir[4096];
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (!n)
		return 0;
	if (n >= sizeof dir)
		return ig_fail(err, -ENAMETOOLONG, "the path of the history is too long");
	memcpy(dir, path, n);
	dir[n] = 0;
	return ig_make_folders(dir, err);
}

int ig_history_open(struct ig_history *h, const char *path, struct ig_error *err)
{
	size_t n_lines;
	int rc, fd;

	*h = (struct ig_history){ 0 };
	if (!path)
		return 0;
	rc = make_folder_of(path, err);
	if (rc)
		return rc;
	fd = open_file(path, err);
	if (fd < 0)
		return fd;
	rc = read_entries(h, fd, &n_lines);
	if (!rc && n_lines > 2 * IG_HISTORY_MAX_ENTRIES)
		rc = shorten(h, fd);
	close(fd);
	if (!rc && !(h->path = strdup(path)))
		rc = -ENOMEM;
	if (rc) {
		ig_history_finish(h);
		return ig_fail(err, rc, "%.300s: %s", path, strerror(-rc));
	}
	return 0;
}

int ig_history_add(struct ig_history *h, const char *text, size_t len, struct ig_error *err)
{
	struct ig_strbuf line;
	int rc = 0, fd;

	if (!is_kept(text, len) || (h->n && strlen(h->entries[h->n - 1]) == len &&
				    !memcmp(h->entries[h->n - 1], text, len)))
		return 0;
	if (!keep(h, text, len))
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!h->path)
		return 1;
	ig_strbuf_init(&line);
	fd = open_file(h->path, err);
	if (fd < 0) {
		rc = fd;
	} else {
		rc = ig_history_write_line(text, len, &line) ? write_all(fd, line.data, line.len) :
							       -ENOMEM;
		if (rc)
			ig_fail(err, rc, "%.300s: %s", h->path, strerror(-rc));
		close(fd);
	}
	ig_strbuf_finish(&line);
	return rc ? rc : 1;
}

void ig_history_finish(struct ig_history *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->entries[i]);
	free(h->entries);
	free(h->path);
	*h = (struct ig_history){ 0 };
}
