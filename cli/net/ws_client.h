/* ws_client.h: one WebSocket connection with blocking calls: open, send a text, wait for the next
 * text, close.  One thread. */
#pragma once

#include "base/strbuf.h"
#include "cli/net/endpoint.h"

struct ig_ws;

/* With the endpoint's key, TLS or unix socket.  With text: -ECONNREFUSED: no connection, -EPROTO:
 * the server did not open a WebSocket, -EACCES: it refused the key, -ETIMEDOUT, -EINTR
 * (ig_interrupted). */
int ig_ws_open(const struct ig_endpoint *e, const char *path, int timeout_ms, struct ig_ws **out,
	       struct ig_error *err);
/* Queue a text message, which the other calls send while they wait. */
int ig_ws_send(struct ig_ws *ws, const char *text, size_t len, struct ig_error *err);
/* Replace msg by the next text message.  1, 0: none arrived within timeout_ms (0: sends and
 * receives what it can without waiting), -ECONNRESET: the connection has ended, with text. */
int ig_ws_next(struct ig_ws *ws, int timeout_ms, struct ig_strbuf *msg, struct ig_error *err);
/* For a caller that waits for input meanwhile: the socket to poll for reading (-1: none), and the
 * function to call when it is readable: replies to pings, notices the connection's end. */
int ig_ws_socket(const struct ig_ws *ws);
void ig_ws_idle(struct ig_ws *ws);
/* Send a close (code 1000), wait at most 500 ms, free.  NULL is fine. */
void ig_ws_close(struct ig_ws *ws);
