/*
 * net.h: the sockets.  One thread (the loop) owns libwebsockets and all of the
 * protocol's state; HTTP and WebSocket come in on one port.
 */
#pragma once

#include "daemon/engine/engine.h"

struct ig_net;

enum ig_net_event {
	IG_NET_DRAINED, /* draining, and the last connection is gone */
	IG_NET_FAILED,	/* the loop ended by itself */
};

struct ig_net_deps {
	struct ig_engine *engine;
	struct ig_metrics *metrics;
	const struct ig_config *config;			/* until the end, whatever is reloaded */
	void (*event)(void *ctx, enum ig_net_event ev); /* loop thread; may be NULL */
	void *event_ctx;
};

/* Whether the configuration can be listened on now: addresses, certificate, keys; to fail
 * before models are loaded.  The error is the one of ig_net_create. */
int ig_net_probe(const struct ig_config *config, struct ig_error *err);
/* Listen and start the loop; when it returns 0, requests are answered.  An error
 * names host and port, or file, and reason. */
int ig_net_create(const struct ig_net_deps *deps, struct ig_net **out, struct ig_error *err);
/* "http://HOST:PORT", "https://…"; "unix:PATH" when that is all. */
void ig_net_url(const struct ig_net *net, char *out, size_t cap);
/* Any thread: take over the reloadable options; config is not used afterwards. */
void ig_net_reload(struct ig_net *net, const struct ig_config *config);
/* Any thread but the loop: read keys and certificate again.  What is wrong with them is
 * logged, and the old ones stay; a file of keys that is gone is one without keys. */
void ig_net_reload_files(struct ig_net *net);
/* New requests get 503, idle connections are closed, the others when they are done. */
void ig_net_drain(struct ig_net *net);
/* Cancel what runs, close everything, join the loop.  The engine must still live. */
void ig_net_stop(struct ig_net *net);
/* After a stop and after the engine's end.  NULL is fine. */
void ig_net_destroy(struct ig_net *net);

/* File descriptors that so many connections need, the daemon's own included. */
uint32_t ig_net_n_fds(uint32_t max_connections);
