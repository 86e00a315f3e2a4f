/* net.h: the sockets.  One thread (the loop) owns libwebsockets and all of the
 * protocol's state; HTTP and WebSocket come in on one port. */
#pragma once

#include "daemon/engine/engine.h"
#include "store/response_file.h"

struct ig_net;

enum ig_net_event {
	IG_NET_DRAINED, /* draining, and the last connection is closed */
	IG_NET_FAILED,	/* the loop ended by itself */
	IG_NET_RELOAD,	/* a model was downloaded: the configuration is to be read again */
};

struct ig_net_deps {
	struct ig_engine *engine;
	struct ig_metrics *metrics;
	struct ig_response_file *responses; /* NULL: they do not survive a restart */
	const struct ig_config *config;	    /* valid until the end; a reload does not replace it */
	void (*event)(void *ctx, enum ig_net_event ev); /* loop thread; may be NULL */
	void *event_ctx;
};

/* Whether ig_net_create can succeed now, by addresses, certificate and keys; to fail before
 * models are loaded.  The error is that of ig_net_create. */
int ig_net_probe(const struct ig_config *config, struct ig_error *err);
/* Listen and start the loop; when it returns 0, requests are served.  An error
 * names host and port, or file, and reason. */
int ig_net_create(const struct ig_net_deps *deps, struct ig_net **out, struct ig_error *err);
/* "http://HOST:PORT", "https://…"; "unix:PATH" without TCP. */
void ig_net_url(const struct ig_net *net, char *out, size_t cap);
/* Any thread but the loop: apply the reloadable options; config is not used afterwards.  When it
 * returns, they hold for every request that comes. */
void ig_net_reload(struct ig_net *net, const struct ig_config *config);
/* Likewise: read keys and certificate again.  Errors are logged, and the old ones stay; a missing
 * file of keys counts as one without keys. */
void ig_net_reload_files(struct ig_net *net);
/* The sockets that listen, for a successor; returns their number, at most 3. */
size_t ig_net_sockets(const struct ig_net *net, int *fds);
/* A successor accepts from them: no longer here, and each connection is closed after its next reply.
 * IG_NET_DRAINED comes after the last. */
void ig_net_hand_over(struct ig_net *net);
/* Main's thread: whether the loop has turned since the last call, which wakes it. */
bool ig_net_is_alive(struct ig_net *net);
/* New requests get 503; idle connections are closed, others when they are done. */
void ig_net_drain(struct ig_net *net);
/* Cancel what runs, close everything, join the loop.  The engine must still exist. */
void ig_net_stop(struct ig_net *net);
/* After ig_net_stop and ig_engine_destroy.  NULL is fine. */
void ig_net_destroy(struct ig_net *net);

/* File descriptors that so many connections need, including the daemon's own. */
uint32_t ig_net_n_fds(uint32_t max_connections);
