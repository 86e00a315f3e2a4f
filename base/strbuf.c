/* strbuf.c: see strbuf.h. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ig_strbuf_finish(struct ig_strbuf *b)
{
	free(b->data);
	*b = (struct ig_strbuf){ 0 };
}

bool ig_strbuf_reserve(struct ig_strbuf *b, size_t len)
{
	size_t cap = b->cap ? b->cap : 64;
	char *p;

	if (b->failed || len >= SIZE_MAX / 4 - b->len) {
		b->failed = true;
		return false;
	}
	while (cap < b->len + len + 1)
		cap *= 2;
	if (cap == b->cap)
		return true;
	p = realloc(b->data, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	return true;
}

void ig_strbuf_add(struct ig_strbuf *b, const void *data, size_t len)
{
	if (!ig_strbuf_reserve(b, len))
		return;
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = 0;
}

void ig_strbuf_puts(struct ig_strbuf *b, const char *s) { ig_strbuf_add(b, s, strlen(s)); }

void ig_strbuf_printf(struct ig_strbuf *b, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		b->failed = true;
	else if (ig_strbuf_reserve(b, (size_t)n)) {
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void ig_strbuf_clear(struct ig_strbuf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = 0;
}

char *ig_strbuf_steal(struct ig_strbuf *b)
{
	if (!ig_strbuf_reserve(b, 0))
		return NULL;
	b->data[b->len] = 0;
	char *p = b->data;
	*b = (struct ig_strbuf){ 0 };
	return p;
}

char *ig_copy_text(const char *s, size_t len)
{
	char *p = malloc(len + 1);

	if (p) {
		memcpy(p, s, len);
		p[len] = 0;
	}
	return p;
}
