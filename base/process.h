/* process.h: starts another program, with a list of arguments and without a shell. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define IG_PROCESS_KEEP 16

/* Its standard input is empty, and it blocks no signal. */
struct ig_process {
	const char *const *argv; /* [0]: the program; NULL ends it */
	bool in_path;		 /* a program without a slash is searched in PATH */
	int out;		 /* its standard output; 0: the same as its standard error */
	bool quiet;		 /* its standard error is discarded; else it is ours */
	bool own_group;		 /* it leads a process group of its own */
	bool no_descriptors;	 /* of ours it gets none but these and the next */
	const int *keep;	 /* [n_keep] these become 3, 4, … of it; at most IG_PROCESS_KEEP */
	size_t n_keep;
	char *const *env; /* NULL: ours */
	/* Signals whose action becomes the default one, also where we ignore them; NULL: all. */
	const sigset_t *defaults;
};

/* 0, or a negative errno: it was not started. */
int ig_process_start(const struct ig_process *s, pid_t *pid);
/* What waitpid gave: the exit status, or 128 + the signal that killed it. */
int ig_process_status(int status);
