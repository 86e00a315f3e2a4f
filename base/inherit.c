/* inherit.c: see inherit.h. */
#include "base/inherit.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "INGOT_INHERITED"
#define FIRST_FD 3

extern char **environ;

static int left[IG_PROCESS_KEEP]; /* by the predecessor, and not taken yet */
static size_t n_left;
static atomic_int predecessor = -1; /* a socket to it */
static pthread_mutex_t locks_lock = PTHREAD_MUTEX_INITIALIZER;
static int locks[IG_PROCESS_KEEP];
static size_t n_locks;

/* ---- from the predecessor ------------------------------------------------------------------ */

static void close_on_exec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

/* "N": the first N descriptors from FIRST_FD on, of which the first is the socket to it. */
void ig_inherit_begin(void)
{
	const char *text = getenv(VARIABLE);
	char *end = NULL;
	long n = text ? strtol(text, &end, 10) : 0;

	n_left = 0;
	if (text && end != text && !*end && n > 0 && n <= IG_PROCESS_KEEP) {
		for (int fd = FIRST_FD; fd < FIRST_FD + n; fd++) {
			struct stat st;
			if (fstat(fd, &st))
				continue;
			close_on_exec(fd);
			if (fd == FIRST_FD)
				atomic_store(&predecessor, fd);
			else
				left[n_left++] = fd;
		}
	}
	unsetenv(VARIABLE);
}

static int take(size_t i)
{
	int fd = left[i];

	/* in their order: with port 0 the first one is meant */
	memmove(&left[i], &left[i + 1], (--n_left - i) * sizeof *left);
	return fd;
}

/* Of a TCP address; NULL: it has none. */
static in_port_t *port_of(struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET	? &((struct sockaddr_in *)a)->sin_port :
	       a->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port :
					  NULL;
}

static bool listens_on(int fd, const struct sockaddr *address, socklen_t len)
{
	struct sockaddr_storage is = { 0 }, want = { 0 };
	socklen_t n = sizeof is;

	if (len > sizeof want || getsockname(fd, (struct sockaddr *)&is, &n) || n > len)
		return false;
	memcpy(&want, address, len);
	in_port_t *port = port_of(&want), *bound = port_of(&is);
	if (port && bound && !*port)
		*port = *bound;
	return !memcmp(&is, &want, n);
}

int ig_inherit_socket(const struct sockaddr *address, socklen_t len, bool look)
{
	for (size_t i = 0; i < n_left; i++)
		if (listens_on(left[i], address, len))
			return look ? fcntl(left[i], F_DUPFD_CLOEXEC, FIRST_FD) : take(i);
	return -1;
}

int ig_inherit_file(dev_t device, ino_t inode)
{
	struct stat st;

	for (size_t i = 0; i < n_left; i++)
		if (!fstat(left[i], &st) && st.st_dev == device && st.st_ino == inode)
			return take(i);
	return -1;
}

void ig_inherit_end(void)
{
	int fd = atomic_load(&predecessor);

	while (n_left)
		close(left[--n_left]);
	if (fd >= 0 && write(fd, "", 1) != 1)
		atomic_store(&predecessor, -1); /* it is gone */
}

bool ig_inherit_predecessor(void)
{
	int fd = atomic_load(&predecessor);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0)
		return false;
	if (poll(&p, 1, 0) == 0)
		return true;
	atomic_store(&predecessor, -1); /* it says nothing, so this is its end; fd stays open */
	return false;
}

/* ---- to a successor ---------------------------------------------------------------------------- */

void ig_inherit_keep_lock(int fd)
{
	pthread_mutex_lock(&locks_lock);
	if (n_locks < IG_PROCESS_KEEP)
		locks[n_locks++] = fd;
	pthread_mutex_unlock(&locks_lock);
}

void ig_inherit_drop_lock(int fd)
{
	pthread_mutex_lock(&locks_lock);
	for (size_t i = 0; i < n_locks; i++)
		if (locks[i] == fd)
			locks[i--] = locks[--n_locks];
	pthread_mutex_unlock(&locks_lock);
}

/* The environment with the variable; free it. */
static char **environment(char *variable)
{
	size_t n = 0;

	while (environ[n])
		n++;
	char **env = calloc(n + 2, sizeof *env);
	if (!env)
		return NULL;
	for (size_t i = 0; i < n; i++)
		env[i] = environ[i];
	env[n] = variable;
	return env;
}

pid_t ig_inherit_start(char *const argv[], const int *fds, size_t n_fds, int *alive)
{
	char variable[sizeof VARIABLE + 16];
	int all[IG_PROCESS_KEEP], pair[2];
	size_t n = 0;
	pid_t pid = -1;

	*alive = -1;
	if (1 + n_fds > IG_PROCESS_KEEP)
		return -E2BIG;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -errno;
	close_on_exec(pair[0]);
	close_on_exec(pair[1]);
	all[n++] = pair[1];
	for (size_t i = 0; i < n_fds; i++)
		all[n++] = fds[i];
	pthread_mutex_lock(&locks_lock);
	for (size_t i = 0; i < n_locks && n < IG_PROCESS_KEEP; i++)
		all[n++] = locks[i];
	pthread_mutex_unlock(&locks_lock);
	snprintf(variable, sizeof variable, VARIABLE "=%zu", n);
	char **env = environment(variable);
	struct ig_process p = { .argv = (const char *const *)argv,
				.in_path = true,
				.out = STDOUT_FILENO,
				.no_descriptors = true,
				.keep = all,
				.n_keep = n,
				.env = env };
	int rc = env ? ig_process_start(&p, &pid) : -ENOMEM;
	free(env);
	close(pair[1]);
	if (rc)
		close(pair[0]);
	else
		*alive = pair[0];
	return rc ? rc : pid;
}
