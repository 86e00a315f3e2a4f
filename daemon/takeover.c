/* takeover.c: see takeover.h. */
#include "daemon/takeover.h"

#include "base/clock.h"
#include "base/inherit.h"
#include "base/log.h"
#include "base/process.h"
#include "store/database.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANCEL_NS 5000000000 /* for a successor to end before it is killed */
#define CANCEL_LOOK_MS 20

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

bool ig_takeover_ready(struct ig_takeover *t)
{
	int status = 0;
	char byte;

	if (read(t->fd, &byte, 1) == 1) {
		ig_log_info("process %ld has taken over; what runs here ends here", (long)t->pid);
		return true;
	}
	waitpid(t->pid, &status, 0);
	ig_log_error("no successor: process %ld ended with status %d; this one goes on",
		     (long)t->pid, ig_process_status(status));
	close(t->fd);
	*t = (struct ig_takeover){ .fd = -1 };
	return false;
}

void ig_takeover_signal(const struct ig_takeover *t, int sig)
{
	if (t->pid)
		kill(t->pid, sig);
}

void ig_takeover_cancel(struct ig_takeover *t)
{
	int status;

	if (!t->pid)
		return;
	kill(t->pid, SIGTERM);
	/* it looks at the signal when its models are loaded */
	for (int64_t end = ig_now_ns() + CANCEL_NS; ig_now_ns() < end;) {
		if (waitpid(t->pid, &status, WNOHANG))
			break;
		poll(NULL, 0, CANCEL_LOOK_MS);
	}
	if (!waitpid(t->pid, &status, WNOHANG)) {
		kill(t->pid, SIGKILL);
		waitpid(t->pid, &status, 0);
	}
	close(t->fd);
	*t = (struct ig_takeover){ .fd = -1 };
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
	return ig_process_status(status);
}

int ig_takeover_guard(const struct ig_takeover *t, char *const argv[])
{
	char pid[24], guard[] = "--guard";

	snprintf(pid, sizeof pid, "%ld", (long)t->pid);
	execvp(argv[0], (char *const[]){ argv[0], guard, pid, NULL });
	return ig_guard(pid);
}

/* ---- asking for it ----------------------------------------------------------------------------- */

int ig_takeover_ask(const struct ig_config *config)
{
	pid_t pid = config->ledger.enabled ? ig_database_holder(config->ledger.path) : 0;

	if (!pid && config->responses.persist)
		pid = ig_database_holder(config->responses.path);
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
