/* text.h: text for people: tables, sizes, durations, and text made safe for a terminal. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/strbuf.h"

/* "93.8 MiB" */
const char *ig_text_bytes(char *buf, size_t size, uint64_t n);
/* "0.8 s", "2 m 05 s", "3 h 12 m" */
const char *ig_text_seconds(char *buf, size_t size, double s);
/* "12.3 ms"; "-" when ms is not finite */
const char *ig_text_ms(char *buf, size_t size, double ms);

/* Append s; each control character (they begin escape sequences) becomes a space.  With
 * keep_lines, newline and tab stay. */
void ig_text_plain(struct ig_strbuf *b, const char *s, size_t len, bool keep_lines);
/* Append a formatted text with its control characters as ig_text_plain with keep_lines; "out of
 * memory" when it cannot be formatted. */
__attribute__((format(printf, 2, 0))) void ig_text_vformat(struct ig_strbuf *b, const char *fmt,
							   va_list ap);

/* Print "ingot: …" on standard error, without control characters.  Returns 1, the exit status of
 * a command that failed. */
__attribute__((format(printf, 1, 2))) int ig_complain(const char *fmt, ...);

/* Write to standard output, and flush; 0 or -errno.  plain: without control characters except
 * newline and tab, so that a model's text does not control the terminal. */
int ig_print_text(const char *s, size_t len, bool plain);
/* The same of one line, always plain, with a newline at its end. */
void ig_print_line(const char *s);

#define IG_TABLE_MAX_COLUMNS 16

struct ig_table {
	size_t n_columns, n_cells, cap;
	unsigned right; /* bit i: column i is aligned right */
	char **cells;	/* row by row; the first row is the header */
	bool failed;
};

/* headers: n names; a name that begins with '>' aligns its column right. */
void ig_table_init(struct ig_table *t, const char *const *headers, size_t n);
void ig_table_finish(struct ig_table *t);
/* Add the next cell: a copy without control characters. */
void ig_table_add(struct ig_table *t, const char *text);
__attribute__((format(printf, 2, 3))) void ig_table_addf(struct ig_table *t, const char *fmt, ...);
/* Append all rows, with two spaces between columns.  False without memory. */
bool ig_table_write(const struct ig_table *t, struct ig_strbuf *out);
/* The same to standard output; -ENOMEM or 0. */
int ig_table_print(const struct ig_table *t);
