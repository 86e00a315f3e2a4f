/*
 * session.h: a connection on which answers are asked for, one after another: opened
 * when needed, opened anew when it was lost.
 */
#pragma once

#include "cli/net/response.h"
#include "cli/net/endpoint.h"
#include "cli/net/ws_client.h"

struct ig_session {
	const struct ig_endpoint *e;
	struct ig_ws *ws;   /* NULL: not connected */
	unsigned n_retries; /* when nothing answers or the connection is lost */
	/* Each event as it came; non-zero ends the answer with that code.  May be NULL. */
	int (*raw)(void *ctx, const char *json, size_t len);
	/* It goes wrong, and is tried again in wait_ms.  May be NULL. */
	void (*retrying)(void *ctx, const char *why, unsigned wait_ms);
	void *ctx;
};

/* -ECONNREFUSED, -ETIMEDOUT, -EPROTO, -EACCES, -EINTR as ig_ws_open; tried once. */
int ig_session_connect(struct ig_session *s, struct ig_error *err);
/* Ask, and read to the end.  a is initialised by the caller.  0: the answer has ended,
 * a->state says how.  -EINTR: ig_interrupted was set and the daemon did not confirm the
 * end in time (it was asked to cancel; the connection is closed).  What a->text or raw
 * returned.  Else an error of the connection, with text; a has what came before.
 *
 * An answer of which nothing has come yet is asked for again on a new connection. */
int ig_session_ask(struct ig_session *s, const struct ig_ask *q, struct ig_response *a,
		   struct ig_error *err);
void ig_session_close(struct ig_session *s);
