/*
 * takeover.h: an upgrade that refuses no connection.  At SIGUSR2 the daemon starts the program at its
 * own path, which may be a newer one, and leaves it its sockets and locks (base/inherit.h).  When the
 * successor serves, this process accepts no more, ends what runs, and then guards the successor: whoever started
 * it (launchd, a shell, a container) sees one process that goes on.  Main's thread.
 */
#pragma once

#include "daemon/net/net.h"

#include <sys/types.h>

struct ig_takeover {
	pid_t pid; /* of the successor; 0: none */
	int fd;	   /* readable when it is ready, or has ended; -1: none */
};

/* Start the successor with the arguments of this process; the log says if that fails, and nothing has changed. */
void ig_takeover_start(struct ig_takeover *t, char *const argv[], const struct ig_net *net);
/* fd is readable: true when the successor serves; false: it ended, which is logged, and may be started
 * again. */
bool ig_takeover_ready(struct ig_takeover *t);
/* Pass a signal on, if there is a successor. */
void ig_takeover_signal(const struct ig_takeover *t, int sig);
/* This process is to end: so is a successor that does not serve yet.  Returns when it has ended. */
void ig_takeover_cancel(struct ig_takeover *t);
/* Become a process that passes signals to the successor, and ends as it does: with this status.  Signals must be
 * blocked, and wait until it has handlers for them. */
int ig_takeover_guard(const struct ig_takeover *t, char *const argv[]);
/* What it becomes: "--guard PID".  Returns the exit status. */
int ig_guard(const char *pid);
/* `ingotd --takeover`: tell the daemon with this configuration to hand over. */
int ig_takeover_ask(const struct ig_config *config);
