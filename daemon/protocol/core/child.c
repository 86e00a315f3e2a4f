/*
 * child.c: see child.h.  The thread is detached: it ends with its program, which may take longer
 * than the reply and than the daemon.  What it shares with the loop is counted and under a lock.
 */
#include "daemon/protocol/core/child.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of lines that nobody has taken; a program that writes more waits. */
#define MAX_BYTES ((size_t)64 << 10)

struct ig_child {
	char **argv;
	struct ig_wake *wake; /* the loop's */
	pthread_mutex_t lock;
	pthread_cond_t room;
	/* ---- under the lock ---- */
	struct ig_strbuf text; /* not taken yet */
	pid_t pid;	       /* 0: it does not run */
	int status;
	bool ended;	/* status is set, all was read */
	bool stopped;	/* it is to end */
	bool abandoned; /* the loop has no interest: wake is not signalled any more */
	unsigned n_refs;
};

static void free_argv(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}

static char **copy_argv(const char *const *argv)
{
	size_t n = 0;

	while (argv[n])
		n++;
	char **copy = calloc(n + 1, sizeof *copy);
	for (size_t i = 0; copy && i < n; i++)
		if (!(copy[i] = strdup(argv[i]))) {
			free_argv(copy);
			return NULL;
		}
	return copy;
}

/* Releases the lock. */
static void unref(struct ig_child *c)
{
	bool last = !--c->n_refs;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	pthread_cond_destroy(&c->room);
	pthread_mutex_destroy(&c->lock);
	ig_strbuf_finish(&c->text);
	free_argv(c->argv);
	free(c);
}

/* ---- the thread ------------------------------------------------------------------------- */

/* Under the lock. */
static void tell(struct ig_child *c)
{
	if (!c->abandoned)
		ig_wake_signal(c->wake);
}

/* Append what came; wait for the loop where it has not taken enough. */
static void append(struct ig_child *c, const char *data, size_t n)
{
	pthread_mutex_lock(&c->lock);
	while (c->text.len + n > MAX_BYTES && !c->abandoned)
		pthread_cond_wait(&c->room, &c->lock);
	if (!c->abandoned)
		ig_strbuf_add(&c->text, data, n);
	tell(c);
	pthread_mutex_unlock(&c->lock);
}

static void read_all(struct ig_child *c, int fd)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			append(c, buf, (size_t)n);
}

/* The exit status, once the program has ended; negative: it was not started. */
static int run_program(struct ig_child *c)
{
	struct ig_process s = { .argv = (const char *const *)c->argv,
				.own_group = true,
				.no_descriptors = true };
	int fds[2], st, rc;
	pid_t pid = 0;

	if (pipe(fds) < 0)
		return -errno;
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	s.out = fds[1];
	rc = ig_process_start(&s, &pid);
	close(fds[1]);
	if (!rc) {
		pthread_mutex_lock(&c->lock);
		c->pid = pid;
		if (c->stopped)
			kill(-pid, SIGTERM);
		pthread_mutex_unlock(&c->lock);
		read_all(c, fds[0]);
	}
	close(fds[0]);
	if (rc)
		return rc;
	/* Its number is its own until waitpid. */
	siginfo_t info;
	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&c->lock);
	c->pid = 0;
	pthread_mutex_unlock(&c->lock);
	while (waitpid(pid, &st, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return ig_process_status(st);
}

static void *run(void *ctx)
{
	struct ig_child *c = ctx;
	int status = run_program(c);

	pthread_mutex_lock(&c->lock);
	c->status = ig_strbuf_ok(&c->text) ? status : -ENOMEM;
	c->ended = true;
	tell(c);
	unref(c);
	return NULL;
}

/* ---- the loop ------------------------------------------------------------------------------ */

struct ig_child *ig_child_start(struct ig_wakes *wakes, const char *const *argv,
				void (*news)(void *ctx), void *ctx)
{
	struct ig_child *c = calloc(1, sizeof *c);
	pthread_attr_t attr;
	pthread_t thread;

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->room, NULL);
	c->n_refs = 2;
	c->argv = copy_argv(argv);
	c->wake = c->argv ? ig_wake_get(wakes, news, ctx) : NULL;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (!c->wake || pthread_create(&thread, &attr, run, c)) {
		if (c->wake)
			ig_wake_put(c->wake);
		pthread_mutex_lock(&c->lock);
		c->n_refs = 1;
		unref(c);
		c = NULL;
	}
	pthread_attr_destroy(&attr);
	return c;
}

bool ig_child_take(struct ig_child *c, struct ig_strbuf *out)
{
	ig_strbuf_clear(out);
	pthread_mutex_lock(&c->lock);
	const char *end = c->text.len ? memchr(c->text.data, '\n', c->text.len) : NULL;
	size_t n = end ? (size_t)(end - c->text.data) : 0;
	/* A line that does not fit is given in pieces, which are no lines of its program's. */
	if (!end && c->text.len && (c->ended || c->text.len >= MAX_BYTES / 2))
		n = c->text.len;
	if (end || n) {
		size_t used = n + (end != NULL);
		ig_strbuf_add(out, c->text.data, n);
		memmove(c->text.data, c->text.data + used, c->text.len - used);
		c->text.len -= used;
		pthread_cond_signal(&c->room);
	}
	pthread_mutex_unlock(&c->lock);
	return end || n;
}

bool ig_child_has_ended(struct ig_child *c)
{
	pthread_mutex_lock(&c->lock);
	bool ended = c->ended && !c->text.len;
	pthread_mutex_unlock(&c->lock);
	return ended;
}

int ig_child_status(struct ig_child *c)
{
	pthread_mutex_lock(&c->lock);
	int status = c->status;
	pthread_mutex_unlock(&c->lock);
	return status;
}

/* Under the lock. */
static void stop(struct ig_child *c)
{
	if (!c->stopped && c->pid)
		kill(-c->pid, SIGTERM);
	c->stopped = true;
}

void ig_child_stop(struct ig_child *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	stop(c);
	pthread_mutex_unlock(&c->lock);
}

void ig_child_end(struct ig_child *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	if (!c->ended)
		stop(c);
	c->abandoned = true;
	pthread_cond_signal(&c->room);
	struct ig_wake *wake = c->wake;
	unref(c);
	ig_wake_put(wake);
}
