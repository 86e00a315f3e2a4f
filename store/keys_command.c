/* keys_command.c: API keys from a program (server.keys_command), for a fleet whose keys are kept
 * elsewhere: a secret of the cluster, a vault.  It is run without a shell and without arguments, gets
 * none of our descriptors but its output and standard error, and is killed with what it started when
 * it takes too long. */
#include "store/keys.h"

#include "base/clock.h"
#include "base/process.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES (2u << 20) /* as of the file */

/* Read to the end. */
static int read_output(int fd, int64_t until_ns, struct ig_strbuf *out)
{
	char piece[4096];

	for (;;) {
		int64_t left_ms = (until_ns - ig_now_ns()) / 1000000;
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
		ssize_t got = n > 0 ? read(fd, piece, sizeof piece) : 0;
		if (n > 0 && got < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && got == 0)
			return ig_strbuf_ok(out) ? 0 : -ENOMEM;
		if (got > 0)
			ig_strbuf_add(out, piece, (size_t)got);
		if (out->len > MAX_BYTES)
			return -EFBIG;
	}
}

/* Its exit status; with kill_it or after until_ns 128 + SIGKILL. */
static int wait_for(pid_t pid, bool kill_it, int64_t until_ns)
{
	int status;

	/* it has closed its output and may still run */
	while (!kill_it && ig_now_ns() < until_ns) {
		pid_t got = waitpid(pid, &status, WNOHANG);
		if (got == pid)
			return ig_process_status(status);
		if (got < 0 && errno != EINTR)
			return 255;
		poll(NULL, 0, 5);
	}
	kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 255;
	return ig_process_status(status);
}

int ig_keys_run(const char *program, int timeout_ms, struct ig_keys **out, struct ig_error *err)
{
	const char *const argv[] = { program, NULL };
	int64_t until_ns = ig_now_ns() + (int64_t)timeout_ms * 1000000;
	struct ig_strbuf text = { 0 };
	int fds[2], rc, status;
	pid_t pid;

	*out = NULL;
	if (pipe(fds))
		return ig_fail(err, -errno, "%.300s: %s", program, strerror(errno));
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	struct ig_process p = {
		.argv = argv, .out = fds[1], .own_group = true, .no_descriptors = true
	};
	rc = ig_process_start(&p, &pid);
	close(fds[1]);
	if (rc) {
		close(fds[0]);
		return ig_fail(err, rc, "%.300s: cannot be run: %s", program, strerror(-rc));
	}
	rc = read_output(fds[0], until_ns, &text);
	close(fds[0]);
	status = wait_for(pid, rc != 0, until_ns);
	if (rc == -ETIMEDOUT || (!rc && status == 128 + SIGKILL && ig_now_ns() >= until_ns))
		rc = ig_fail(err, -ETIMEDOUT, "%.300s: has not ended after %d s", program,
			     timeout_ms / 1000);
	else if (rc == -EFBIG)
		ig_fail(err, rc, "%.300s: prints more than 2 MiB", program);
	else if (rc)
		ig_fail(err, rc, "%.300s: %s", program, strerror(-rc));
	else if (status)
		rc = ig_fail(err, -EIO, "%.300s: ended with %d", program, status);
	else
		rc = ig_keys_parse(ig_strbuf_text(&text), text.len, program, out, err);
	if (text.data)
		memset(text.data, 0, text.len);
	ig_strbuf_finish(&text);
	return rc;
}
