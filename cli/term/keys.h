/*
 * keys.h: a program that has the whole window: its screen besides the shell's one, keys as they are
 * typed, signals.  The terminal is as it was after ig_keys_close, and while the program is stopped
 * (Ctrl-Z).  One at a time; ig_interrupted (files.h) says that it must end.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

enum {
	IG_KEY_NONE = -1,
	IG_KEY_UP = 256,
	IG_KEY_DOWN,
	IG_KEY_PAGE_UP,
	IG_KEY_PAGE_DOWN,
	IG_KEY_HOME,
	IG_KEY_END,
	IG_KEY_DELETE,
	IG_KEY_ESCAPE,
	IG_KEY_OTHER, /* one that has no name here */
};

/* -ENOTTY with text: standard input or output is no terminal, or a dumb one. */
int ig_keys_open(struct ig_error *err);
void ig_keys_close(void); /* without ig_keys_open too */
/* Wait until a key, a signal, or that fd (-1: none) can be read, at most timeout_ms.  True: the window
 * has another size, or the program was stopped: draw all. */
bool ig_keys_wait(int fd, int timeout_ms);
/* The next key that was typed: a character's byte, IG_KEY_…, or IG_KEY_NONE. */
int ig_keys_next(void);
