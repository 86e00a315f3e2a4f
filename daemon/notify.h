/* notify.h: tells the supervisor (systemd's Type=notify) what the daemon does: one datagram a message,
 * to the socket that NOTIFY_SOCKET names.  Without that variable nothing is sent.  Main's thread. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct ig_notify {
	int fd; /* -1: nobody is told */
	struct sockaddr_un to;
	socklen_t to_len;
	int64_t every_ns; /* half of WATCHDOG_USEC; 0: no sign of life is wanted */
	int64_t due_ns;	  /* when the next one is */
	bool failing;	  /* the last message could not be sent, which was logged */
};

/* By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; an error names the variable.  Call ig_notify_close
 * in any case. */
int ig_notify_open(struct ig_notify *n, struct ig_error *err);
void ig_notify_close(struct ig_notify *n);

/* NAME=VALUE; several lines are several variables. */
void ig_notify_send(struct ig_notify *n, const char *text);
/* One line for people. */
__attribute__((format(printf, 2, 3))) void ig_notify_status(struct ig_notify *n, const char *format,
							    ...);
/* What is under way, start or stop, may take this long from now on. */
void ig_notify_extend(struct ig_notify *n, int64_t ms);
/* The configuration is being read again; READY=1 ends it. */
void ig_notify_reloading(struct ig_notify *n);

/* Milliseconds until the next sign of life is due, at least 0, or -1: none is wanted. */
int64_t ig_notify_due_ms(const struct ig_notify *n);
/* If it is due, send it, or leave it out: the supervisor ends a daemon that leaves out too many. */
void ig_notify_watchdog(struct ig_notify *n, bool (*is_alive)(void *ctx), void *ctx);
