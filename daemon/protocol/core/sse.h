/* sse.h: the frames of server-sent events. */
#pragma once

#include "base/strbuf.h"

/* Around a frame's data.  event NULL: it has no name. */
static inline void ig_sse_begin(struct ig_strbuf *out, const char *event)
{
	if (event)
		ig_strbuf_printf(out, "event: %s\n", event);
	ig_strbuf_puts(out, "data: ");
}

static inline void ig_sse_end(struct ig_strbuf *out) { ig_strbuf_puts(out, "\n\n"); }

/* A comment, which readers pass over. */
static inline void ig_sse_keep_alive(struct ig_strbuf *out)
{
	ig_strbuf_puts(out, ": keep-alive\n\n");
}
