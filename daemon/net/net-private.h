/* net-private.h: what server.c, http.c and websocket.c share.  The loop thread's. */
#ifndef INGOT_NET_NET_PRIVATE_H
#define INGOT_NET_NET_PRIVATE_H

#include "daemon/net/net.h"
#include "daemon/protocol/exchange.h"
#include "daemon/protocol/utf8.h"

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>

/* Connections past max_connections that are still told so, with a 503. */
#define SPARE_CONNECTIONS 32

enum conn_kind { CONN_HTTP, CONN_WEBSOCKET };

struct conn {
	struct conn *next, *prev; /* of the net */
	struct ig_net *net;
	struct lws *wsi;
	enum conn_kind kind;
	bool over_limit;
	char client[64];
	int64_t blocked_ns; /* since when it wants to write and can't; 0: it does not */
	struct ig_strbuf out; /* LWS_PRE bytes, then what is to be written */
	/* A body or a message as it comes in. */
	char *in;
	size_t in_len, in_cap;

	/* HTTP */
	struct ig_exchange *exchange;
	char method[8], *path; /* path: malloc'd, decoded */
	char origin[256]; /* allowed; "" */
	uint64_t length; /* Content-Length */
	bool reading_body, head_written, head_only, keep_open, ended, lingering;

	/* WebSocket */
	struct ig_session *session;
	struct ig_utf8 utf8;
	int close_code; /* 0: open */
	bool paused; /* not reading */
};

/* What a reload may change. */
struct net_options {
	uint32_t slow_client_timeout_ms, keepalive_interval_ms, retry_after_s;
};

struct ig_net {
	struct ig_net_deps deps;
	const struct ig_config *config; /* of the start; but for: */
	struct net_options options; /* loop */
	struct lws_context *context;
	struct ig_api *api;
	struct conn *conns; /* loop */
	uint32_t n_conns; /* loop */
	int port;
	char host[128]; /* for people: brackets round a v6 address */
	pthread_t thread;
	bool started, draining, drained; /* draining, drained: loop */
	bool sweeping; /* loop: the timer is armed */
	lws_sorted_usec_list_t sweep, goodbye;
	atomic_bool want_drain, want_stop;

	pthread_mutex_t lock;
	bool closed; /* lock: the context is gone */
	bool reloaded; /* lock: next is newer than options */
	struct net_options next; /* lock */
};

static inline struct conn *conn_of(struct lws *wsi)
{
	return lws_get_opaque_user_data(wsi);
}

/* server.c */
void ig_net_want_write(void *conn); /* ask for a writable callback */
bool ig_conn_begin_out(struct conn *c); /* empty out but for LWS_PRE */
/* Write out's contents; false: the connection is to be closed. */
bool ig_conn_write(struct conn *c, enum lws_write_protocol kind);
/* Append to in, bounded by max; 0, -E2BIG or -ENOMEM. */
int ig_conn_append(struct conn *c, const void *data, size_t len, uint64_t max);
/* Give up the buffer of in: *len bytes, malloc'd, NUL-terminated; NULL on failure. */
char *ig_conn_take_in(struct conn *c, size_t *len);

/* http.c, websocket.c: callbacks by reason.  Nonzero closes the connection. */
int ig_http_callback(struct conn *c, enum lws_callback_reasons reason, void *in, size_t len);
int ig_ws_callback(struct conn *c, enum lws_callback_reasons reason, void *in, size_t len);
void ig_http_finish(struct conn *c); /* the exchange and what belongs to it */
void ig_ws_finish(struct conn *c);

#endif
