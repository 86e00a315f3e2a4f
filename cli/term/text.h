/*
 * text.h: what people read: tables, sizes, durations, and text of others made
 * safe for a terminal.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/strbuf.h"

/* "93.8 MiB" */
const char *ig_text_bytes(char *buf, size_t size, uint64_t n);
/* "0.8 s", "2 m 05 s", "3 h 12 m" */
const char *ig_text_seconds(char *buf, size_t size, double s);
/* "12.3 ms"; "-" when it is no number */
const char *ig_text_ms(char *buf, size_t size, double ms);

/* Append s without control characters (escape sequences among them): spaces stand
 * in for them.  With keep_lines, newline and tab stay. */
void ig_text_plain(struct ig_strbuf *b, const char *s, size_t len, bool keep_lines);

/* "ingot: …" on standard error, one line, control characters taken out. */
__attribute__((format(printf, 1, 2))) void ig_complain(const char *fmt, ...);

#define IG_TABLE_MAX_COLUMNS 16

struct ig_table {
	size_t n_columns, n_cells, cap;
	unsigned right; /* bit i: column i is set flush right */
	char **cells;	/* row by row; the first row is the header */
	bool failed;
};

/* headers: n names; a name that begins with '>' makes a column flush right. */
void ig_table_init(struct ig_table *t, const char *const *headers, size_t n);
void ig_table_finish(struct ig_table *t);
/* The next cell, copied, control characters taken out. */
void ig_table_add(struct ig_table *t, const char *text);
__attribute__((format(printf, 2, 3))) void ig_table_addf(struct ig_table *t, const char *fmt, ...);
/* Append all rows, columns two spaces apart.  False when memory ran out. */
bool ig_table_write(const struct ig_table *t, struct ig_strbuf *out);
/* The same to standard output; -ENOMEM or 0. */
int ig_table_print(const struct ig_table *t);
