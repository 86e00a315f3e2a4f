/* failing_disk.c: see failing_disk.h.  Where files may be larger than 2 GiB, glibc's headers give some calls
 * other names: both are wrapped, and the one that is not called stays unused. */
#include "tests/unit/failing_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long n_left = -1; /* calls until one fails; -1: none does */
static atomic_int failure;
static atomic_bool all_fail, has_failed;

void failing_disk_at(long n, int code, bool all)
{
	atomic_store(&n_left, -1);
	atomic_store(&failure, code);
	atomic_store(&all_fail, all);
	atomic_store(&has_failed, false);
	atomic_store(&n_left, n);
}

bool failing_disk_failed(void)
{
	atomic_store(&n_left, -1);
	return atomic_load(&has_failed);
}

/* Count one more; true: it is to fail. */
static bool fails(void)
{
	long n = atomic_load(&n_left);

	while (n >= 0)
		if (atomic_compare_exchange_weak(&n_left, &n,
						 n || atomic_load(&all_fail) ? n - !!n : -1)) {
			if (n)
				return false;
			atomic_store(&has_failed, true);
			errno = atomic_load(&failure);
			return true;
		}
	return false;
}

#define WRAP(name, parameters, ...)                                                                \
	int __real_##name parameters;                                                              \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters { return fails() ? -1 : __real_##name(__VA_ARGS__); }

#define WRAP_SIZE(name, parameters, ...)                                                           \
	ssize_t __real_##name parameters;                                                          \
	ssize_t __wrap_##name parameters;                                                          \
	ssize_t __wrap_##name parameters { return fails() ? -1 : __real_##name(__VA_ARGS__); }

/* The mode is read only where a file may be made. */
#define WRAP_OPEN(name, parameters, ...)                                                           \
	int __real_##name(parameters, ...);                                                        \
	int __wrap_##name(parameters, ...);                                                        \
	int __wrap_##name(parameters, ...)                                                         \
	{                                                                                          \
		mode_t mode = 0;                                                                   \
		va_list ap;                                                                        \
		if (flags & O_CREAT) {                                                             \
			va_start(ap, flags);                                                       \
			mode = (mode_t)va_arg(ap, int);                                            \
			va_end(ap);                                                                \
		}                                                                                  \
		return fails() ? -1 : __real_##name(__VA_ARGS__, mode);                            \
	}
#define COMMA ,

WRAP_OPEN(open, const char *path COMMA int flags, path, flags)
WRAP_OPEN(open64, const char *path COMMA int flags, path, flags)
WRAP_OPEN(openat, int folder COMMA const char *path COMMA int flags, folder, path, flags)
WRAP_OPEN(openat64, int folder COMMA const char *path COMMA int flags, folder, path, flags)
WRAP_SIZE(read, (int fd, void *to, size_t n), fd, to, n)
WRAP_SIZE(write, (int fd, const void *from, size_t n), fd, from, n)
WRAP_SIZE(pread, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
WRAP_SIZE(pread64, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
WRAP(fstat, (int fd, struct stat *st), fd, st)
WRAP(fstat64, (int fd, struct stat *st), fd, st)
WRAP(fstatat, (int fd, const char *path, struct stat *st, int flags), fd, path, st, flags)
WRAP(fstatat64, (int fd, const char *path, struct stat *st, int flags), fd, path, st, flags)
WRAP(futimens, (int fd, const struct timespec *times), fd, times)
WRAP(fsync, (int fd), fd)
WRAP(mkdir, (const char *path, mode_t mode), path, mode)
WRAP(mkdirat, (int fd, const char *path, mode_t mode), fd, path, mode)
WRAP(rename, (const char *from, const char *to), from, to)
WRAP(renameat, (int fd, const char *from, int to_fd, const char *to), fd, from, to_fd, to)
WRAP(unlink, (const char *path), path)
WRAP(unlinkat, (int fd, const char *path, int flags), fd, path, flags)
