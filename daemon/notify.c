/* notify.c: see notify.h.  sd_notify's protocol by hand: libsystemd would be a library for one sendto. */
#include "daemon/notify.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* A supervisor that reads nothing holds up the daemon for at most this time a message. */
#define SEND_TIMEOUT_S 2
/* Of WATCHDOG_USEC. */
#define MOST_USEC ((unsigned long long)1 << 50)

/* ---- opening ------------------------------------------------------------------------------ */

/* A path, or @NAME: an abstract name, whose first byte is zero and which no NUL ends. */
static int take_address(struct ig_notify *n, const char *name, struct ig_error *err)
{
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || !name[1])
		return ig_fail(err, -EINVAL,
			       "NOTIFY_SOCKET is \"%.80s\", neither a path nor @ and a name", name);
	if (len >= sizeof n->to.sun_path)
		return ig_fail(err, -ENAMETOOLONG, "NOTIFY_SOCKET has %zu bytes, at most %zu fit",
			       len, sizeof n->to.sun_path - 1);
	n->to.sun_family = AF_UNIX;
	memcpy(n->to.sun_path, name, len + 1);
	n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (name[0] == '@')
		n->to.sun_path[0] = 0;
	else
		n->to_len++;
	return 0;
}

/* A whole number above 0. */
static int read_number(const char *name, const char *text, unsigned long long most,
		       unsigned long long *out, struct ig_error *err)
{
	size_t digits = strspn(text, "0123456789");

	if (digits && digits < 19 && !text[digits]) {
		*out = strtoull(text, NULL, 10);
		if (*out && *out <= most)
			return 0;
	}
	return ig_fail(err, -EINVAL, "%s is \"%.40s\", not a number from 1 to %llu", name, text,
		       most);
}

static int take_watchdog(struct ig_notify *n, struct ig_error *err)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	unsigned long long number = 0, whose = 0;
	int rc;

	if (!usec || !*usec)
		return 0;
	rc = read_number("WATCHDOG_USEC", usec, MOST_USEC, &number, err);
	if (!rc && pid && *pid)
		rc = read_number("WATCHDOG_PID", pid, INT32_MAX, &whose, err);
	if (rc || (whose && whose != (unsigned long long)getpid())) /* meant for another process */
		return rc;
	n->every_ns = (int64_t)number * 1000 / 2;
	n->due_ns = ig_now_ns() + n->every_ns;
	return 0;
}

int ig_notify_open(struct ig_notify *n, struct ig_error *err)
{
	const struct timeval limit = { .tv_sec = SEND_TIMEOUT_S };
	const char *name = getenv("NOTIFY_SOCKET");
	int rc;

	*n = (struct ig_notify){ .fd = -1 };
	if (!name || !*name)
		return 0;
	if ((rc = take_address(n, name, err)) || (rc = take_watchdog(n, err)))
		return rc;
	n->fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (n->fd < 0)
		return ig_fail(err, -errno, "can't make a socket for NOTIFY_SOCKET: %s",
			       strerror(errno));
	fcntl(n->fd, F_SETFD, FD_CLOEXEC);
	setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	return 0;
}

void ig_notify_close(struct ig_notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

/* ---- messages ------------------------------------------------------------------------------ */

void ig_notify_send(struct ig_notify *n, const char *text)
{
	if (n->fd < 0)
		return;
	if (sendto(n->fd, text, strlen(text), 0, (const struct sockaddr *)&n->to, n->to_len) >= 0) {
		n->failing = false;
		return;
	}
	if (!n->failing)
		ig_log_warn("the supervisor could not be told (NOTIFY_SOCKET): %s",
			    strerror(errno));
	n->failing = true;
}

void ig_notify_status(struct ig_notify *n, const char *format, ...)
{
	char text[512] = "STATUS=";
	va_list args;

	va_start(args, format);
	vsnprintf(text + 7, sizeof text - 7, format, args);
	va_end(args);
	/* another line would be another variable */
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	ig_notify_send(n, text);
}

void ig_notify_extend(struct ig_notify *n, int64_t ms)
{
	char text[64];

	snprintf(text, sizeof text, "EXTEND_TIMEOUT_USEC=%" PRId64, ms * 1000);
	ig_notify_send(n, text);
}

void ig_notify_reloading(struct ig_notify *n)
{
	char text[64];

	snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, ig_now_ns() / 1000);
	ig_notify_send(n, text);
}

/* ---- signs of life ------------------------------------------------------------------------- */

int64_t ig_notify_due_ms(const struct ig_notify *n)
{
	int64_t left = n->due_ns - ig_now_ns();

	if (n->fd < 0 || !n->every_ns)
		return -1;
	return left <= 0 ? 0 : (left + 999999) / 1000000;
}

void ig_notify_watchdog(struct ig_notify *n, bool (*is_alive)(void *ctx), void *ctx)
{
	if (ig_notify_due_ms(n))
		return;
	n->due_ns = ig_now_ns() + n->every_ns;
	if (is_alive(ctx))
		ig_notify_send(n, "WATCHDOG=1");
	else
		ig_log_error("no sign of life for the supervisor: a thread has not moved since the "
			     "last one, %.1f s ago",
			     (double)n->every_ns * 1e-9);
}
