/* session.h: requests one after another on a connection, which is opened again when it is lost. */
#pragma once

#include "cli/net/response.h"
#include "cli/net/endpoint.h"
#include "cli/net/ws_client.h"

struct ig_session {
	const struct ig_endpoint *e;
	struct ig_ws *ws;   /* NULL: not connected */
	unsigned n_retries; /* when there is no daemon or the connection is lost */
	/* Called with each event; a non-zero result ends the response with that code.  May be NULL. */
	int (*raw)(void *ctx, const char *json, size_t len);
	/* Called before a retry in wait_ms.  May be NULL. */
	void (*retrying)(void *ctx, const char *why, unsigned wait_ms);
	void *ctx;
};

/* -ECONNREFUSED, -ETIMEDOUT, -EPROTO, -EACCES, -EINTR as ig_ws_open; does not retry. */
int ig_session_connect(struct ig_session *s, struct ig_error *err);
/* Send the request, and read the response to its end.  The caller initialises a.  0: the response
 * has ended, see a->state.  -EINTR: ig_interrupted was set, and the daemon did not confirm the
 * cancellation in time; the connection is closed.  The result of a->text or raw.  Otherwise an
 * error of the connection, with text; a has the events before it.
 *
 * A request whose connection is lost before its first token is sent again on a new one. */
int ig_session_request(struct ig_session *s, const struct ig_cli_request *q, struct ig_response *a,
		       struct ig_error *err);
void ig_session_close(struct ig_session *s);
