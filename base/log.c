/* log.c: see log.h.  A message is formatted on the caller's stack and written with one write(2), so
 * that lines of several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int level_limit = IG_LOG_INFO;
static atomic_int log_fd = STDERR_FILENO;

void ig_log_set_level(int level)
{
	atomic_store_explicit(&level_limit, level, memory_order_relaxed);
}

int ig_log_set_file(const char *path)
{
	int fd = STDERR_FILENO;

	if (path) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
		if (fd < 0)
			return -errno;
	}
	int old = atomic_load(&log_fd);
	if (old == STDERR_FILENO || fd == STDERR_FILENO) {
		atomic_store(&log_fd, fd);
		/* an old file stays open: another thread may be writing to it */
		return 0;
	}
	/* replace the file of the same descriptor, so that no writer's message is lost */
	int rc = dup2(fd, old) < 0 || fcntl(old, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

void ig_log(int level, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[1024];
	struct timespec ts;
	struct tm tm;
	va_list ap;

	if (level < 0 || level > atomic_load_explicit(&level_limit, memory_order_relaxed))
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %-5s ", ts.tv_nsec / 1000000,
			      names[level <= IG_LOG_DEBUG ? level : IG_LOG_DEBUG]);
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += (size_t)m < sizeof line - n - 1 ? (size_t)m : sizeof line - n - 2;
	/* one message is one line, even if a client's text has control characters */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = ' ';
	line[n++] = '\n';
	ssize_t done = write(atomic_load(&log_fd), line, n);
	(void)done; /* a full disk must not stop the daemon */
}
