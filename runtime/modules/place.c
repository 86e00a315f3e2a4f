/*
 * place.c: checks who may change a module's file.  Its folder and the file are opened once, and
 * the folders above are opened from that descriptor by "..", so that the checked file is the one
 * that is loaded.
 */
#include "runtime/modules/modules_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a folder without permission to read it. */
#if defined(O_PATH)
#define SEARCH O_PATH
#elif defined(O_SEARCH)
#define SEARCH O_SEARCH
#else
#define SEARCH O_RDONLY
#endif

int place_check(const struct stat *st, uid_t me, enum place what, const char *path, const char *at,
		struct ig_error *err)
{
	/* In a sticky folder (/tmp) only a folder's owner can move it, and the owner is checked. */
	const bool sticky = what == PLACE_ANCESTOR && st->st_uid == 0 && st->st_mode & S_ISVTX;

	if (what == PLACE_FILE && !S_ISREG(st->st_mode))
		return ig_fail(err, -ENOEXEC, "module %s: is not a file", path);
	if (st->st_uid != 0 && st->st_uid != me)
		return ig_fail(err, -EPERM,
			       "module %s: refused, %s belongs to user %ju, neither to root nor to "
			       "user %ju, who runs this",
			       path, at, (uintmax_t)st->st_uid, (uintmax_t)me);
	if (st->st_mode & S_IWOTH && !sticky)
		return ig_fail(err, -EPERM,
			       "module %s: refused, %s can be written by everyone (mode %04o)",
			       path, at, (unsigned)(st->st_mode & 07777));
	return 0;
}

/* Open name in folder `from` and check it; returns the descriptor or an error. */
static int step(int from, const char *name, enum place what, const char *path, const char *at,
		struct ig_error *err)
{
	const int flags = O_NOFOLLOW | O_CLOEXEC |
			  (what == PLACE_FILE ? O_RDONLY | O_NONBLOCK : SEARCH | O_DIRECTORY);
	struct stat st;
	int fd = openat(from, name, flags), rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		rc = ig_fail(err, -errno, "module %s: %s: %s", path, at, strerror(errno));
	else
		rc = place_check(&st, geteuid(), what, path, at, err);
	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

/* Check every folder above `folder`, whose path is real; closes the descriptor and changes
 * real. */
static int judge_ancestors(int folder, char *real, const char *path, struct ig_error *err)
{
	struct stat here, above;
	int rc = fstat(folder, &here) ? -errno : 0;

	while (!rc) {
		char *slash = strrchr(real, '/');
		slash[slash == real] = 0;
		int fd = step(folder, "..", PLACE_ANCESTOR, path, real, err);
		close(folder);
		if ((folder = fd) < 0)
			return fd;
		rc = fstat(folder, &above) ? -errno : 0;
		if (above.st_dev == here.st_dev && above.st_ino == here.st_ino)
			break; /* the root is its own parent */
		here = above;
	}
	close(folder);
	return rc ? ig_fail(err, rc, "module %s: %s", path, strerror(-rc)) : 0;
}

int place_open(const char *path, char real[PATH_MAX], int *out, struct ig_error *err)
{
	char above[PATH_MAX];

	if (!realpath(path, real))
		return ig_fail(err, -errno, "module %s: %s", path, strerror(errno));
	char *name = strrchr(real, '/') + 1;
	snprintf(above, sizeof above, "%.*s", name - real > 1 ? (int)(name - real) - 1 : 1, real);
	int folder = step(AT_FDCWD, above, PLACE_FOLDER, path, above, err);
	if (folder < 0)
		return folder;
	int fd = step(folder, name, PLACE_FILE, path, real, err);
	int rc = judge_ancestors(folder, above, path, err);
	if (fd < 0 || rc) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : rc;
	}
	*out = fd;
	return 0;
}
