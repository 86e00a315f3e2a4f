/* process.c: see process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* These functions return a positive errno, as posix_spawn does. */

#define FIRST_KEPT 3

/* Copies above all the numbers that they become, since one of those may be another's source. */
static int copy_kept(const struct ig_process *s, int *copies, size_t *n)
{
	if (s->n_keep > IG_PROCESS_KEEP)
		return E2BIG;
	for (*n = 0; *n < s->n_keep; ++*n) {
		copies[*n] = fcntl(s->keep[*n], F_DUPFD_CLOEXEC, FIRST_KEPT + IG_PROCESS_KEEP);
		if (copies[*n] < 0)
			return errno;
	}
	return 0;
}

static int set_files(const struct ig_process *s, const int *copies, posix_spawn_file_actions_t *fa)
{
	int rc = posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0);

	if (!rc && s->quiet)
		rc = posix_spawn_file_actions_addopen(fa, 2, "/dev/null", O_WRONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(fa, s->out ? s->out : 2, 1);
	for (size_t i = 0; i < s->n_keep && !rc; i++)
		rc = posix_spawn_file_actions_adddup2(fa, copies[i], FIRST_KEPT + (int)i);
	if (rc || !s->no_descriptors)
		return rc;
#ifdef __APPLE__
	return s->quiet ? 0 : posix_spawn_file_actions_addinherit_np(fa, 2);
#else
	return posix_spawn_file_actions_addclosefrom_np(fa, FIRST_KEPT + (int)s->n_keep);
#endif
}

static int set_attributes(const struct ig_process *s, posix_spawnattr_t *attr)
{
	short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGKILL);
	sigdelset(&all, SIGSTOP);
	if (s->own_group)
		flags |= POSIX_SPAWN_SETPGROUP;
#ifdef __APPLE__
	if (s->no_descriptors)
		flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
	if (!(rc = posix_spawnattr_setflags(attr, flags)) &&
	    !(rc = posix_spawnattr_setpgroup(attr, 0)) &&
	    !(rc = posix_spawnattr_setsigmask(attr, &none)))
		rc = posix_spawnattr_setsigdefault(attr, s->defaults ? s->defaults : &all);
	return rc;
}

int ig_process_start(const struct ig_process *s, pid_t *pid)
{
	char *const *argv = (char *const *)s->argv, *const *env = s->env ? s->env : environ;
	int copies[IG_PROCESS_KEEP];
	size_t n_copies = 0;
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	int rc;

	if ((rc = posix_spawn_file_actions_init(&fa)))
		return -rc;
	if ((rc = posix_spawnattr_init(&attr))) {
		posix_spawn_file_actions_destroy(&fa);
		return -rc;
	}
	if (!(rc = copy_kept(s, copies, &n_copies)) && !(rc = set_files(s, copies, &fa)) &&
	    !(rc = set_attributes(s, &attr)))
		rc = s->in_path ? posix_spawnp(pid, argv[0], &fa, &attr, argv, env) :
				  posix_spawn(pid, argv[0], &fa, &attr, argv, env);
	while (n_copies)
		close(copies[--n_copies]);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

int ig_process_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
