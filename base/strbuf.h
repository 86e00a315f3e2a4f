/*
 * strbuf.h: a string that grows.  Allocation failure sticks: later calls do
 * nothing and ig_strbuf_ok says so, so that a chain is checked once.
 * Not for threads to share.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ig_strbuf {
	char *data; /* NUL-terminated when len > 0; NULL while empty */
	size_t len; /* bytes, without the NUL */
	size_t cap;
	bool failed;
};

void ig_strbuf_init(struct ig_strbuf *b);
void ig_strbuf_finish(struct ig_strbuf *b); /* frees; b is as after init */
static inline bool ig_strbuf_ok(const struct ig_strbuf *b) { return !b->failed; }

void ig_strbuf_add(struct ig_strbuf *b, const void *data, size_t len);
void ig_strbuf_puts(struct ig_strbuf *b, const char *s);
__attribute__((format(printf, 2, 3))) void ig_strbuf_printf(struct ig_strbuf *b, const char *fmt,
							    ...);
/* Forget the contents, keep the memory. */
void ig_strbuf_clear(struct ig_strbuf *b);
/* Make room for len more bytes; false on failure. */
bool ig_strbuf_reserve(struct ig_strbuf *b, size_t len);
/* The string, owned by the caller (free), b is empty again; NULL on failure. */
char *ig_strbuf_steal(struct ig_strbuf *b);
