/*
 * history.h: the input of earlier chats: a list of messages, and its file
 * ($XDG_STATE_HOME/ingot/chat_history, mode 600).  One entry a line, with backslash and newline
 * escaped.  Each entry is appended at once, so that two chats at a time lose no entry of each
 * other.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"

#define IG_HISTORY_MAX_ENTRIES 1000
#define IG_HISTORY_MAX_ENTRY 65536 /* bytes; longer ones are not added */

struct ig_history {
	char **entries; /* oldest first */
	size_t n, cap;
	char *path; /* NULL: no file */
};

/* The file's path, from XDG_STATE_HOME or HOME; -ENOENT when neither is set. */
int ig_history_locate(char *buf, size_t size, struct ig_error *err);
/* Read the file, which is created if needed; path NULL: use no file.  A file of more than twice
 * IG_HISTORY_MAX_ENTRIES is cut to the last ones. */
int ig_history_open(struct ig_history *h, const char *path, struct ig_error *err);
/* Append to the list and to the file.  1: added, 0: not added, because the text is empty, too
 * long, not UTF-8 or the same as the last entry. */
int ig_history_add(struct ig_history *h, const char *text, size_t len, struct ig_error *err);
void ig_history_finish(struct ig_history *h);

/* An entry as its line, with the newline; and back (len without the newline).  False:
 * out of memory, or an escape that ig_history_write_line does not write. */
bool ig_history_write_line(const char *text, size_t len, struct ig_strbuf *out);
bool ig_history_read_line(const char *line, size_t len, struct ig_strbuf *out);
