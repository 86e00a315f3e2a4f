/* strbuf.h: a string that grows.  After a failed allocation all calls do nothing and ig_strbuf_ok
 * is false, so a chain of calls needs one check.  Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ig_strbuf {
	char *data; /* NUL-terminated when len > 0; NULL while empty */
	size_t len; /* bytes, without the NUL */
	size_t cap;
	bool failed;
};

void ig_strbuf_finish(struct ig_strbuf *b); /* frees; b is empty then */
static inline bool ig_strbuf_ok(const struct ig_strbuf *b) { return !b->failed; }
/* The contents; "" while b is empty. */
static inline const char *ig_strbuf_text(const struct ig_strbuf *b)
{
	return b->len ? b->data : "";
}

void ig_strbuf_add(struct ig_strbuf *b, const void *data, size_t len);
void ig_strbuf_puts(struct ig_strbuf *b, const char *s);
__attribute__((format(printf, 2, 3))) void ig_strbuf_printf(struct ig_strbuf *b, const char *fmt,
							    ...);
/* Empty b, but keep its memory; a failure is cleared too. */
void ig_strbuf_clear(struct ig_strbuf *b);
/* Ensure space for len more bytes; false on failure. */
bool ig_strbuf_reserve(struct ig_strbuf *b, size_t len);
/* The string, which the caller frees; b is empty then.  NULL on failure. */
char *ig_strbuf_steal(struct ig_strbuf *b);

/* A copy of len bytes, which may have NULs among them, with a NUL at the end; the caller's.  NULL
 * without memory. */
char *ig_copy_text(const char *s, size_t len);
