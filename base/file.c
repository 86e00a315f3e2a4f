/* file.c: see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#define READ_BYTES 65536

int ig_read_all(int fd, size_t max, const volatile sig_atomic_t *stop, struct ig_strbuf *out)
{
	size_t start = out->len;

	for (;;) {
		if (!ig_strbuf_reserve(out, READ_BYTES))
			return -ENOMEM;
		ssize_t n = read(fd, out->data + out->len, READ_BYTES);
		if (n < 0 && errno == EINTR && !(stop && *stop))
			continue;
		if (n < 0)
			return -errno;
		out->len += (size_t)n;
		out->data[out->len] = 0;
		if (n == 0 || out->len - start > max)
			return n ? -EFBIG : 0;
	}
}

int ig_read_file(const char *path, size_t max, struct ig_strbuf *out, struct ig_error *err)
{
	/* O_NONBLOCK: opening a named pipe must not wait for a writer */
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = ig_fail(err, -EINVAL, "%.300s is not a regular file", path);
	else if ((rc = ig_read_all(fd, max, NULL, out)) == -EFBIG)
		ig_fail(err, rc, "%.300s is larger than %zu MiB", path, max >> 20);
	else if (rc)
		ig_fail(err, rc, "%.300s: %s", path, strerror(-rc));
	if (fd >= 0)
		close(fd);
	return rc;
}

int ig_read_at(int fd, void *to, uint64_t len, uint64_t at)
{
	while (len) {
		ssize_t n = pread(fd, to, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		to = (char *)to + n;
		len -= (uint64_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

int ig_write_all(int fd, const void *data, size_t len)
{
	for (const char *p = data; len;) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int ig_sync_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder =
		slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	int fd = folder ? open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY) : -1;
	int rc = fd >= 0 && !fsync(fd) ? 0 : -errno;

	if (fd >= 0)
		close(fd);
	free(folder);
	return rc;
}

int ig_replace_file(const char *path, const void *data, size_t len, struct ig_error *err)
{
	struct ig_strbuf name = { 0 };
	int rc = -ENOMEM, fd = -1;

	ig_strbuf_printf(&name, "%s.XXXXXX", path);
	if (ig_strbuf_ok(&name)) {
		fd = mkstemp(name.data);
		/* mkstemp's mode is 600 less the umask */
		rc = fd < 0 || fchmod(fd, 0600) ? -errno : ig_write_all(fd, data, len);
	}
	if (!rc && fsync(fd))
		rc = -errno;
	if (fd >= 0 && close(fd) && !rc)
		rc = -errno;
	if (!rc && rename(name.data, path))
		rc = -errno;
	if (rc && fd >= 0)
		unlink(name.data);
	ig_strbuf_finish(&name);
	if (rc)
		return ig_fail(err, rc, "%.300s: cannot be written: %s", path, strerror(-rc));
	rc = ig_sync_folder_of(path);
	return rc ? ig_fail(err, rc, "%.300s: written, but its folder could not be synced: %s",
			    path, strerror(-rc)) :
		    0;
}

int ig_make_folders_above(const char *file, unsigned mode, struct ig_error *err)
{
	char *path = strdup(file);
	struct stat st;
	int rc = 0;

	if (!path)
		return ig_fail(err, -ENOMEM, "%.300s: out of memory", file);
	for (char *p = *path ? strchr(path + 1, '/') : NULL; p && !rc; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(path, mode) && errno != EEXIST) {
			int why = errno;
			/* a read-only file system reports that before it reports EEXIST */
			if (stat(path, &st))
				rc = ig_fail(err, -why, "%.300s: cannot make the folder %.300s: %s",
					     file, path, strerror(why));
		}
		*p = '/';
	}
	free(path);
	return rc;
}

bool ig_program_path(char *buf, size_t size)
{
	char real[PATH_MAX];
	int n;
#ifdef __APPLE__
	char path[PATH_MAX];
	uint32_t cap = sizeof path;

	if (_NSGetExecutablePath(path, &cap) || !realpath(path, real))
		return false;
#else

	if (!realpath("/proc/self/exe", real))
		return false;
#endif
	n = snprintf(buf, size, "%s", real);
	return n > 0 && (size_t)n < size;
}

bool ig_program_folder(char *buf, size_t size)
{
	if (!ig_program_path(buf, size))
		return false;
	*strrchr(buf, '/') = 0;
	return true;
}

int ig_open_folder(const char *path, const char *what, struct ig_error *err)
{
	struct ig_strbuf inside = { 0 };
	int fd, rc;

	ig_strbuf_printf(&inside, "%s/x", path);
	if (!ig_strbuf_ok(&inside))
		return ig_fail(err, -ENOMEM, "out of memory");
	rc = ig_make_folders_above(inside.data, 0700, err);
	ig_strbuf_finish(&inside);
	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ig_fail(err, -errno, "%s %s: %s", what, path, strerror(errno));
	if (faccessat(fd, ".", R_OK | W_OK | X_OK, 0) < 0) {
		rc = ig_fail(err, -errno, "%s %s: files can't be made there: %s", what, path,
			     strerror(errno));
		close(fd);
		return rc;
	}
	return fd;
}

int64_t ig_mtime_ns(const struct stat *st)
{
#ifdef __APPLE__
	return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#else
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#endif
}
