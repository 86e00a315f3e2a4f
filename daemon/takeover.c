/* takeover.c: see takeover.h. */
#include "daemon/takeover.h"

#include "base/inherit.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

void ig_takeover_start(struct ig_takeover *t, char *const argv[], const struct ig_net *net)
{
	int fds[3];

	if (t->pid) {
		ig_log_warn("process %ld is taking over already", (long)t->pid);
		return;
	}
	unsetenv("WATCHDOG_PID"); /* systemd's watchdog is meant for the successor, too */
	pid_t pid = ig_inherit_start(argv, fds, ig_net_sockets(net, fds), &t->fd);
	if (pid < 0) {
		ig_log_error("no successor: %s can't be started: %s", argv[0], strerror((int)-pid));
		return;
	}
	t->pid = pid;
	ig_log_info("process %ld (%s) is to take over", (long)pid, argv[0]);
}

static void describe(int status, char *out, size_t cap)
{
	if (WIFSIGNALED(status))
		snprintf(out, cap, "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(out, cap, "ended with status %d%s", WEXITSTATUS(status),
			 WEXITSTATUS(status) == 127 ? " (the program can't be run)" : "");
}

bool ig_takeover_ready(struct ig_takeover *t)
{
	char byte, how[64] = "ended";
	int status;

	if (read(t->fd, &byte, 1) == 1) {
		ig_log_info("process %ld has taken over; what runs here ends here", (long)t->pid);
		return true;
	}
	if (waitpid(t->pid, &status, 0) == t->pid)
		describe(status, how, sizeof how);
	ig_log_error("no successor: process %ld %s; this one goes on", (long)t->pid, how);
	close(t->fd);
	*t = (struct ig_takeover){ .fd = -1 };
	return false;
}

void ig_takeover_signal(const struct ig_takeover *t, int sig)
{
	if (t->pid)
		kill(t->pid, sig);
}

/* ---- afterwards ---------------------------------------------------------------------------- */

static pid_t guarded;

static void pass_on(int sig) { kill(guarded, sig); }

int ig_guard(const char *pid)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR2 };
	struct sigaction sa = { .sa_handler = pass_on };
	int status;

	guarded = (pid_t)strtol(pid, NULL, 10);
	if (guarded <= 1) {
		fprintf(stderr, "ingotd: --guard is only for a daemon that was taken over\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaction(signals[i], &sa, NULL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	while (waitpid(guarded, &status, 0) != guarded)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int ig_takeover_guard(const struct ig_takeover *t, char *const argv[])
{
	char pid[24], guard[] = "--guard";

	snprintf(pid, sizeof pid, "%ld", (long)t->pid);
	execvp(argv[0], (char *const[]){ argv[0], guard, pid, NULL });
	return ig_guard(pid);
}

/* ---- asking for it ----------------------------------------------------------------------------- */

/* The process that holds the lock of a database; 0: none. */
static pid_t holder_of(const char *path)
{
	char name[4096], text[32] = "";
	pid_t pid = 0;

	if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name)
		return 0;
	int fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK &&
	    pread(fd, text, sizeof text - 1, 0) > 0)
		pid = (pid_t)strtol(text, NULL, 10);
	close(fd);
	return pid > 1 ? pid : 0;
}

int ig_takeover_ask(const struct ig_config *config)
{
	pid_t pid = config->ledger.enabled ? holder_of(config->ledger.path) : 0;

	if (!pid && config->responses.persist)
		pid = holder_of(config->responses.path);
	if (!pid) {
		fprintf(stderr, "ingotd: no daemon runs with the configuration %s\n", config->file);
		return 1;
	}
	if (kill(pid, SIGUSR2)) {
		fprintf(stderr, "ingotd: process %ld can't be told to hand over: %s\n", (long)pid,
			strerror(errno));
		return 1;
	}
	printf("process %ld starts its successor; its log says how that goes\n", (long)pid);
	return 0;
}
