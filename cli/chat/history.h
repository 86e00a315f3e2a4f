/*
 * history.h: what was typed in earlier chats: a list of messages and the file that
 * keeps it ($XDG_STATE_HOME/ingot/chat_history, mode 600).
 *
 * One entry a line, backslash and newline escaped.  Entries are appended as they are
 * made, so that two chats at once lose nothing of each other.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"

#define IG_HISTORY_MAX_ENTRIES 1000
#define IG_HISTORY_MAX_ENTRY 65536 /* bytes; longer ones are not kept */

struct ig_history {
	char **entries; /* oldest first */
	size_t n, cap;
	char *path; /* NULL: no file */
};

/* The file's place, from XDG_STATE_HOME or HOME; -ENOENT when neither is set. */
int ig_history_locate(char *buf, size_t size, struct ig_error *err);
/* Read the file; one that is not there is empty.  path NULL: kept in memory alone.
 * Of a file that grew past twice the limit only the last entries are kept there. */
int ig_history_open(struct ig_history *h, const char *path, struct ig_error *err);
/* At the end, and in the file.  The same text twice in a row, an empty one, and one that
 * is too long are left out: 0.  1: added. */
int ig_history_add(struct ig_history *h, const char *text, size_t len, struct ig_error *err);
void ig_history_finish(struct ig_history *h);

/* An entry as its line, with the newline; and back (len without the newline).  False:
 * out of memory, or an escape that write does not make. */
bool ig_history_write_line(const char *text, size_t len, struct ig_strbuf *out);
bool ig_history_read_line(const char *line, size_t len, struct ig_strbuf *out);
