/* net_private.h: what the files of this folder share.  The loop thread's. */
#pragma once

#include "daemon/net/chunked.h"
#include "daemon/net/frames.h"
#include "daemon/net/net.h"
#include "daemon/net/request_head.h"
#include "daemon/protocol/api.h"
#include "base/utf8.h"
#include "store/keys.h"

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>

/* Connections past max_connections that still get a 503. */
#define SPARE_CONNECTIONS 32

struct ig_certificate; /* tls.c's */

/* Why a request is refused. */
struct refusal {
	const char *code, *message;
};
static inline int ig_refuse(struct refusal *why, int status, const char *code, const char *message)
{
	*why = (struct refusal){ code, message };
	return status;
}

enum conn_kind { CONN_HTTP, CONN_WEBSOCKET };

struct conn {
	struct conn *next, *prev; /* of the net */
	struct ig_net *net;
	struct lws *wsi;
	enum conn_kind kind;
	bool over_limit;
	bool local; /* over the unix socket */
	int port;   /* that it came to; of the unix socket 0 */
	char client[64];
	struct ig_principal who; /* of the current request; of a WebSocket for its life */
	bool revoked;		 /* who's key was removed: a WebSocket takes no new request */
	int64_t blocked_ns;	 /* since when it waits to write; 0: it does not */
	struct ig_strbuf out;	 /* LWS_PRE bytes, then what is to be written */
	/* A body or a message being received. */
	char *in;
	size_t in_len, in_cap;
	/* Bytes that have arrived and wait: the start of a head, later requests, messages that the
	 * session does not take yet. */
	char *ahead;
	size_t n_ahead, cap_ahead;
	bool choked;	     /* libwebsockets holds output that the socket did not take */
	bool paused;	     /* not reading */
	bool ended, lingers; /* its last output is written; before it is closed, it lingers */
	bool lingering;	     /* only discards input */
	int64_t received_ns; /* when something came last; since lingering: when that began */

	/* HTTP */
	struct ig_exchange *exchange;
	char method[16], *path, *query;	    /* path, query: malloc'd, decoded; query "": none */
	char request_id[IG_REQUEST_ID_CAP]; /* of a WebSocket: of its handshake */
	char origin[256];		    /* allowed; "" */
	struct ig_head head;		    /* only while its request is checked */
	size_t scanned;	 /* bytes of the next head that were searched for its end */
	uint64_t length; /* Content-Length */
	bool reading_head, reading_body, head_written, head_only, keep_open;
	bool is_1_1, is_chunked;
	struct ig_chunked chunked;
	int64_t since_ns; /* when its head was complete */

	/* WebSocket */
	struct ig_session *session;
	struct ig_frames frames;
	struct ig_utf8 utf8;
	uint32_t n_empty;	  /* frames without a payload of the message */
	struct ig_strbuf control; /* control frames to be written */
	bool pinged;		  /* nothing came since */
};

enum listener_kind { LISTENS, LISTENS_TOO, LISTENS_LOCALLY };
#define MAX_LISTENERS 3

struct listener {
	enum listener_kind kind;
	int fd;
	int port; /* of the unix socket 0 */
	/* of libwebsockets; wsi has a copy of fd.  NULL: it accepts no more */
	struct lws_vhost *vhost;
	struct lws *wsi;
};

/* What a reload may change, but for api.client_buffer. */
struct net_options {
	uint32_t slow_client_timeout_ms;
	struct ig_api_options api;
};

struct ig_net {
	struct ig_net_deps deps;
	const struct ig_config *config; /* of the start; but for: */
	struct net_options options;	/* loop */
	struct lws_context *context;
	struct ig_api *api;
	struct conn *conns; /* loop */
	uint32_t n_conns;   /* loop */
	int port;
	char host[128];				  /* with brackets round a v6 address; "": no TCP */
	struct listener listeners[MAX_LISTENERS]; /* loop, once it runs */
	size_t n_listeners;
	int spare_fd;			    /* see accept.c */
	bool handed_over;		    /* loop: a successor has the listeners */
	struct ig_keys *keys;		    /* loop */
	bool keys_required;		    /* loop: there is, or was, a file of keys */
	struct ig_certificate *certificate; /* loop; NULL: no TLS */
	pthread_t thread;
	bool started, draining, drained; /* draining, drained: loop */
	bool sweeping;			 /* loop: the timer is armed */
	lws_sorted_usec_list_t sweep, goodbye;
	atomic_bool want_hand_over, want_drain, want_stop;
	atomic_uint n_woken; /* how often other threads' wishes were looked at */
	unsigned seen_woken; /* main: by ig_net_is_alive */

	pthread_mutex_t reloading; /* before lock: of one reload of files at a time */
	pthread_mutex_t lock;
	bool closed;				 /* lock: the context is destroyed */
	bool reloaded;				 /* lock: next is newer than options */
	struct net_options next;		 /* lock */
	bool new_keys;				 /* lock: next_keys replaces keys */
	struct ig_certificate *next_certificate; /* lock: replaces certificate; NULL: none */
	struct ig_keys *next_keys;		 /* lock: NULL: there is no file */
	bool had_keys;				 /* lock: there was a file once */
	uint64_t n_handed, n_taken;		 /* lock: reloads; equal: the loop has them all */
	pthread_cond_t taken;			 /* n_taken or closed has changed */
};

static inline struct conn *conn_of(struct lws *wsi) { return lws_get_opaque_user_data(wsi); }

/* conn.c */
void ig_net_want_write(void *conn);	/* ask for a writable callback */
bool ig_conn_begin_out(struct conn *c); /* empty out but for LWS_PRE */
/* Write out's contents from there on, at most LWS_PRE bytes before them; false: the connection must
 * be closed. */
bool ig_conn_write(struct conn *c, size_t before);
/* Append to in, bounded by max; 0, -E2BIG or -ENOMEM. */
int ig_conn_append(struct conn *c, const void *data, size_t len, uint64_t max);
/* The buffer of in, which the caller owns: *len bytes, NUL-terminated; NULL on failure. */
char *ig_conn_take_in(struct conn *c, size_t *len);
/* Callbacks; nonzero closes the connection. */
int ig_conn_receive(struct conn *c, char *data, size_t len);
int ig_conn_writable(struct conn *c);
/* Use what waits in ahead, now that the connection may take it. */
int ig_conn_resume(struct conn *c);
/* All output is written: close the connection as soon as it is sent.  linger: more input may come,
 * which is discarded for a while, since closing with unread input resets the connection. */
int ig_conn_end(struct conn *c, bool linger);

/* head.c: each check returns 0, or a status with *why */
/* Parse a head, or as much as there is of one that ig_head_find refused with rc.  c->head points into
 * data. */
int ig_head_begin(struct conn *c, char *data, size_t len, enum ig_head_rc rc, struct refusal *why);
/* The checks that HTTP and the upgrade share. */
int ig_head_check(struct conn *c, struct refusal *why);
/* The body's length or encoding. */
int ig_head_check_body(struct conn *c, struct refusal *why);
int ig_head_check_handshake(struct conn *c, const char *to, struct refusal *why);

/* listen.c: main's thread. */
/* Check whether it can listen as configured and, with net, do: net->listeners. */
int ig_listen_open(struct ig_net *net, const struct ig_config *config, const struct ig_keys *keys,
		   struct ig_error *err);
void ig_listen_close(struct ig_net *net);

/* accept.c: names of protocols, for libwebsockets */
#define IG_CONN_PROTOCOL "ingot"
#define IG_LISTEN_PROTOCOL "ingot-listen"
/* Create net->context, and accept from net->listeners once it is served. */
int ig_accept_begin(struct ig_net *net, const struct lws_protocols *protocols,
		    struct ig_error *err);
void ig_accept_end(struct ig_net *net); /* loop: accept no more */
int ig_accept_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		       size_t len);
/* That a connection came from. */
struct listener *ig_listener_of(struct ig_net *net, struct lws *wsi);

/* tls.c */
/* A certificate with its chain and its key from two PEM files; any thread.  An error names
 * the file and the reason. */
int ig_tls_load(const char *cert, const char *key, struct ig_certificate **out,
		struct ig_error *err);
void ig_tls_free(struct ig_certificate *c); /* NULL is fine */
/* Handshakes of this SSL_CTX use the current net->certificate. */
void ig_tls_serve(struct ig_net *net, void *ssl_ctx);
/* Tell a TLS peer that no more output comes. */
void ig_tls_goodbye(struct lws *wsi);

/* who.c */
/* Fill in c->who by the request's headers and check whether it may request the path: 0, or a
 * status with *why. */
int ig_who_check(struct conn *c, struct refusal *why);
/* "unix:uid=N" */
void ig_who_describe_peer(int fd, char *out, size_t cap);
/* After the keys have changed: mark WebSockets whose key was removed. */
void ig_who_revoke(struct ig_net *net);

/* http.c, websocket.c.  *used: so many of the bytes are done with.  Nonzero closes the connection. */
int ig_http_receive(struct conn *c, char *data, size_t len, size_t *used);
int ig_ws_receive(struct conn *c, char *data, size_t len, size_t *used);
int ig_http_writable(struct conn *c);
int ig_ws_writable(struct conn *c);
/* A handshake was checked: write its reply; the connection is a WebSocket then. */
int ig_ws_accept(struct conn *c);
int ig_ws_timer(struct conn *c);
void ig_http_finish(struct conn *c); /* the exchange and what belongs to it */
void ig_ws_finish(struct conn *c);
