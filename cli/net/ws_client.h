/*
 * ws_client.h: one WebSocket connection as blocking calls: open, send a text, wait
 * for the next text, close.  One thread.
 */
#pragma once

#include "base/strbuf.h"
#include "cli/net/endpoint.h"

struct ig_ws;

/* With the endpoint's key, TLS or unix socket.  -ECONNREFUSED: nobody answers there,
 * -EPROTO: someone does, but not with a WebSocket, -EACCES: the key is refused,
 * -ETIMEDOUT, -EINTR (ig_interrupted); each with text. */
int ig_ws_open(const struct ig_endpoint *e, const char *path, int timeout_ms, struct ig_ws **out,
	       struct ig_error *err);
/* Queue a text message; it goes out while the others wait. */
int ig_ws_send(struct ig_ws *ws, const char *text, size_t len, struct ig_error *err);
/* The next text message replaces what is in msg.  1: there is one, 0: none came
 * within timeout_ms, -ECONNRESET: the connection has ended (text says how). */
int ig_ws_next(struct ig_ws *ws, int timeout_ms, struct ig_strbuf *msg, struct ig_error *err);
/* For one who waits for something else, a person's typing, meanwhile: the socket to
 * poll for reading (-1: none), and what to call when it has something: answers pings,
 * notices that the server has gone. */
int ig_ws_socket(const struct ig_ws *ws);
void ig_ws_idle(struct ig_ws *ws);
/* Say goodbye (code 1000), wait shortly, free.  NULL is fine. */
void ig_ws_close(struct ig_ws *ws);
