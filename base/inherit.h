/*
 * inherit.h: descriptors that a process leaves to its successor, a new program that takes over while
 * the old one goes on: listening sockets and locks.  Nobody waits at a closed port, and no lock is
 * free for a moment, because both hold the same socket and the same lock.  The environment variable
 * INGOT_INHERITED has their numbers; what each is for is known by what it is.  Main's thread, but for
 * ig_inherit_predecessor and the locks.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Read the variable, and remove it. */
void ig_inherit_begin(void);
/* The socket that listens on this address (port 0: on any), or the open file; the caller's.  -1: none
 * was left.  look: a copy, so that it is still there for the next call. */
int ig_inherit_socket(const struct sockaddr *address, socklen_t len, bool look);
int ig_inherit_file(dev_t device, ino_t inode);
/* All has been taken: close the rest, and tell the predecessor, if there is one, that it may go. */
void ig_inherit_end(void);
/* Whether the predecessor still runs; any thread, after ig_inherit_end. */
bool ig_inherit_predecessor(void);

/* Start the program with these descriptors, and those of locks; *alive: a socket that becomes
 * readable when it is ready (a byte) or ends (none).  The process's number or -errno. */
pid_t ig_inherit_start(char *const argv[], const int *fds, size_t n_fds, int *alive);
/* A lock to be left to a successor; forget one that is closed. */
void ig_inherit_keep_lock(int fd);
void ig_inherit_drop_lock(int fd);
