/* history.c: see history.h. */
#include "cli/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/utf8.h"

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
		if (text[i] == '\\' || text[i] == '\n')
			ig_strbuf_puts(out, text[i] == '\n' ? "\\n" : "\\\\");
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

static bool append(struct ig_history *h, const char *text, size_t len)
{
	if (h->n == IG_HISTORY_MAX_ENTRIES) {
		free(h->entries[0]);
		memmove(h->entries, h->entries + 1, (h->n - 1) * sizeof *h->entries);
		h->n--;
	}
	if (!ig_array_grow(h->entries, &h->cap, h->n))
		return false;
	h->entries[h->n] = ig_copy_text(text, len);
	return h->entries[h->n] && ++h->n;
}

static bool is_entry(const char *text, size_t len)
{
	return len && len <= IG_HISTORY_MAX_ENTRY && !memchr(text, 0, len) &&
	       ig_utf8_valid(text, len);
}

/* Read the whole file; malformed lines are skipped. */
static int read_entries(struct ig_history *h, int fd, size_t *n_lines)
{
	struct ig_strbuf all = { 0 }, entry = { 0 };
	int rc = ig_read_all(fd, MAX_FILE, NULL, &all);

	*n_lines = 0;
	for (size_t at = 0; !rc && at < all.len; (*n_lines)++) {
		const char *line = all.data + at, *end = memchr(line, '\n', all.len - at);
		size_t len = end ? (size_t)(end - line) : all.len - at;
		at += len + 1;
		ig_strbuf_clear(&entry);
		if (ig_history_read_line(line, len, &entry) && entry.len &&
		    is_entry(entry.data, entry.len) && !append(h, entry.data, entry.len))
			rc = -ENOMEM;
		if (!ig_strbuf_ok(&entry))
			rc = -ENOMEM;
	}
	ig_strbuf_finish(&all);
	ig_strbuf_finish(&entry);
	return rc;
}

/* Rewrite the file with the entries in h; fd is locked. */
static int shorten(const struct ig_history *h, int fd)
{
	struct ig_strbuf b = { 0 };
	int rc = 0;

	for (size_t i = 0; i < h->n && rc == 0; i++)
		rc = ig_history_write_line(h->entries[i], strlen(h->entries[i]), &b) ? 0 : -ENOMEM;
	if (!rc && ftruncate(fd, 0))
		rc = -errno;
	if (!rc)
		rc = ig_write_all(fd, b.data, b.len); /* O_APPEND: at 0 */
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
		return ig_fail(err, -EINVAL, "%.300s is not a regular file", path);
	}
	/* only the owner may read the input, whoever created the file */
	if ((st.st_mode & 0777) != 0600 && fchmod(fd, 0600)) {
		int e = errno;
		close(fd);
		return ig_fail(err, -e, "%.300s: its mode cannot be set to 600: %s", path,
			       strerror(e));
	}
	/* wait while another chat writes; without a lock where locks do not work */
	(void)flock(fd, LOCK_EX);
	return fd;
}

int ig_history_open(struct ig_history *h, const char *path, struct ig_error *err)
{
	size_t n_lines;
	int rc, fd;

	*h = (struct ig_history){ 0 };
	if (!path)
		return 0;
	if ((rc = ig_make_folders_above(path, 0755, err)))
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
	struct ig_strbuf line = { 0 };
	int rc = 0, fd;

	if (!is_entry(text, len) || (h->n && strlen(h->entries[h->n - 1]) == len &&
				     !memcmp(h->entries[h->n - 1], text, len)))
		return 0;
	if (!append(h, text, len))
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!h->path)
		return 1;
	fd = open_file(h->path, err);
	if (fd < 0) {
		rc = fd;
	} else {
		rc = ig_history_write_line(text, len, &line) ?
			     ig_write_all(fd, line.data, line.len) :
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
