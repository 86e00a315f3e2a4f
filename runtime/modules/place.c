/*
 * place.c: who may have changed a module's file.  The way to it is walked from the root by
 * descriptors, so that what is judged is what is then loaded.
 */
#include "runtime/modules/modules_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* To look at a folder and go on from there, which takes no permission to read it. */
#if defined(O_PATH)
#define SEARCH O_PATH
#elif defined(O_SEARCH)
#define SEARCH O_SEARCH
#else
#define SEARCH O_RDONLY
#endif

int place_judge(const struct stat *st, uid_t me, enum place what, const char *path, const char *at,
		struct ig_error *err)
{
	/* In /tmp nobody but its owner moves a folder away, and we look at that one too. */
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

/* Open name in folder `from` and judge it; the descriptor, or an error. */
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
		rc = place_judge(&st, geteuid(), what, path, at, err);
	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

int place_open(const char *path, char real[PATH_MAX], int *out, struct ig_error *err)
{
	if (!realpath(path, real))
		return ig_fail(err, -errno, "module %s: %s", path, strerror(errno));
	int fd = step(AT_FDCWD, "/",
		      real[strcspn(real + 1, "/") + 1] ? PLACE_ANCESTOR : PLACE_FOLDER, path, "/",
		      err);

	for (char *name = real + 1, *end; fd >= 0; name = end + 1) {
		int from = fd;

		end = name + strcspn(name, "/");
		const bool last = !*end;
		*end = 0;
		fd = step(from, name,
			  last		       ? PLACE_FILE :
			  strchr(end + 1, '/') ? PLACE_ANCESTOR :
						 PLACE_FOLDER,
			  path, real, err);
		close(from);
		if (last)
			break;
		*end = '/';
	}
	if (fd < 0)
		return fd;
	*out = fd;
	return 0;
}
