/*
 * api.h: what net and protocol say to each other.
 *
 * Protocol knows requests and answers, no sockets; net knows sockets, no JSON.
 * An exchange is one HTTP request and its reply, a session is one WebSocket.
 * Output is pulled: when a connection can take more, net calls fill, and protocol
 * formats what the engine has put into the request's bounded ring since.  So a
 * client that does not read fills only its own ring.
 *
 * Every function is the loop thread's unless it says otherwise.
 */
#pragma once

#include "base/strbuf.h"
#include "daemon/engine/engine.h"
#include "store/keys.h"

struct ig_api; /* what all exchanges and sessions share */
struct ig_exchange;
struct ig_session;

struct ig_api_options {		/* may change with a reload */
	uint64_t client_buffer; /* bytes of the ring of one request */
	uint32_t keepalive_interval_ms;
	uint32_t retry_after_s;
	uint32_t model_wait_ms;	     /* a request waits so long for its model to load */
	uint32_t max_waiting;	     /* so many at once */
	struct ig_key_limits limits; /* of keys that have none of their own, and of nobody */
	uint32_t max_stored;	     /* finished responses that are kept */
	uint64_t max_stored_bytes;
};

struct ig_api_deps {
	struct ig_engine *engine;
	struct ig_metrics *metrics;
	struct ig_api_options options;
	/* Any thread: make the loop call ig_api_poll soon.  Cheap. */
	void (*wake)(void *ctx);
	void *wake_ctx;
	/* Loop thread, from within any call below: conn has something to write. */
	void (*want_write)(void *conn);
};

struct ig_api *ig_api_create(const struct ig_api_deps *deps);
/* Every exchange and session has ended, and there will be no more: what prep still has is
 * let go.  Before the engine is destroyed; not to be polled afterwards. */
void ig_api_stop(struct ig_api *api);
/* After the engine is destroyed and every exchange and session has ended. */
void ig_api_destroy(struct ig_api *api);
void ig_api_set_options(struct ig_api *api, const struct ig_api_options *o);
/* From now on new requests get 503, and sessions end when they have nothing left. */
void ig_api_drain(struct ig_api *api);
/* After a wake: deliver what prep and the engine have done. */
void ig_api_poll(struct ig_api *api);
/* Keep-alives that are due.  Nanoseconds until it wants to be called again; -1 when
 * nothing is under way. */
int64_t ig_api_tick(struct ig_api *api, int64_t now_ns);

/* ---- one HTTP request ------------------------------------------------------- */

struct ig_http_request {
	const char *method;	/* "GET", "POST" … */
	const char *path;	/* decoded, without the query */
	const char *query;	/* what follows "?", decoded; NULL: nothing does */
	const char *client;	/* address, for the ledger */
	const char *request_id; /* x-request-id; NULL: none */
	struct ig_principal who;
	char *body; /* malloc'd, or NULL; passes over */
	size_t body_len;
};

struct ig_http_head {
	int status;
	const char *content_type;
	const char *allow;	/* of 405, else NULL */
	uint32_t retry_after_s; /* 0: no such header */
	bool upgrade;		/* 426: say Upgrade: websocket */
	int64_t length;		/* of the body; -1: a stream that ends with the connection */
};

enum ig_fill {
	IG_FILL_WAIT, /* nothing now; want_write says when */
	IG_FILL_DATA, /* something was appended; there may be more */
	IG_FILL_END,  /* that was the last (something may have been appended) */
};

/* Whether a request to this path has a body that is worth reading. */
bool ig_api_takes_body(const struct ig_api *api, const char *method, const char *path);
/* Whether this path is the one to upgrade to a WebSocket. */
bool ig_api_is_websocket(const struct ig_api *api, const char *path);

/* Never fails but for memory (NULL); errors are replies. */
struct ig_exchange *ig_exchange_begin(struct ig_api *api, struct ig_http_request *r, void *conn);
/* An exchange whose reply is an error that net has found. */
struct ig_exchange *ig_exchange_refuse(struct ig_api *api, int status, const char *code,
				       const char *message, const struct ig_http_request *r,
				       void *conn);
/* False while the reply's status is not known yet. */
bool ig_exchange_head(struct ig_exchange *x, struct ig_http_head *head);
/* Append the next piece of the body. */
enum ig_fill ig_exchange_fill(struct ig_exchange *x, struct ig_strbuf *out);
/* What still runs is cancelled for this reason (slow_client); NULL is fine. */
void ig_exchange_cancel(struct ig_exchange *x, const char *reason);
/* Done, or the client is gone: what still runs is cancelled.  NULL is fine. */
void ig_exchange_end(struct ig_exchange *x);

/* ---- one WebSocket ---------------------------------------------------------- */

struct ig_session *ig_session_open(struct ig_api *api, const char *request_id, const char *client,
				   const struct ig_principal *who, void *conn);
/* One whole text message, valid UTF-8; text is malloc'd and passes over. */
void ig_session_receive(struct ig_session *s, char *text, size_t len);
/* False while it should get no more messages for now; want_write says when to ask
 * again. */
bool ig_session_wants_input(const struct ig_session *s);
/* Append the next message to go out.  IG_FILL_END: nothing, and the server is
 * draining: close. */
enum ig_fill ig_session_fill(struct ig_session *s, struct ig_strbuf *out);
void ig_session_cancel(struct ig_session *s, const char *reason); /* NULL is fine */
void ig_session_end(struct ig_session *s);			  /* NULL is fine */
