/*
 * api.h: the interface between net and protocol.
 *
 * Protocol knows requests and responses, no sockets; net knows sockets, no JSON.  An exchange is
 * one HTTP request and its reply, a session is one WebSocket.  Output is pulled: when a connection
 * can take more, net calls fill, and protocol formats what the engine has put into the request's
 * bounded ring.  So a client that does not read fills only its own ring.
 *
 * All functions are for the loop thread unless they say otherwise.
 */
#pragma once

#include "base/strbuf.h"
#include "daemon/engine/engine.h"
#include "store/keys.h"
#include "store/prompt_rules.h"
#include "store/response_file.h"

struct ig_api; /* shared by all exchanges and sessions */
struct ig_exchange;
struct ig_session;

struct ig_api_options {		/* may change with a reload */
	uint64_t client_buffer; /* bytes of the ring of one request */
	uint32_t keepalive_interval_ms;
	uint32_t retry_after_s;
	uint32_t model_wait_ms;	     /* how long a request waits for its model to load */
	uint32_t max_waiting;	     /* how many wait at once */
	struct ig_key_limits limits; /* of keys without their own, and of requests without a key */
	uint32_t max_stored;	     /* finished responses that are stored */
	uint64_t max_stored_bytes;
	bool refuse_tools;   /* of a model whose template knows none; false: a fallback is used */
	bool refuse_unknown; /* what a request has that is not known here; false: it is noted */
	char model_id_prefix[65];      /* "": models are listed once */
	char models_folder[1024];      /* that downloads go to; "": not known */
	uint32_t max_stored_per_lane;  /* of a WebSocket, with store: false */
	struct ig_prompt_rules *rules; /* for prompts; the api takes a reference of its own */
};

struct ig_api_deps {
	struct ig_engine *engine;
	struct ig_metrics *metrics;
	struct ig_api_options options;
	/* Any thread: make the loop call ig_api_poll soon.  Cheap. */
	void (*wake)(void *ctx);
	/* Loop thread: there may be a new model in models_folder: have it read, and call
	 * ig_api_reloaded after that.  May be NULL. */
	void (*rescan)(void *ctx);
	void *wake_ctx; /* of rescan and reload_keys too */
	/* Any thread but the loop: read the keys again; they count when it returns. */
	void (*reload_keys)(void *ctx);
	struct ig_response_file *responses; /* to survive a restart; NULL: they don't */
	const char *ledger_path;	    /* NULL: there is none */
	const char *keys_path;		    /* "" or NULL: there is none */
	/* Loop thread, from within any call below: conn has something to write. */
	void (*want_write)(void *conn);
};

struct ig_api *ig_api_create(const struct ig_api_deps *deps);
/* All exchanges and sessions have ended: drop what prep still has.  Before the engine is
 * destroyed; must not be polled afterwards. */
void ig_api_stop(struct ig_api *api);
/* After the engine is destroyed and every exchange and session has ended. */
void ig_api_destroy(struct ig_api *api);
void ig_api_set_options(struct ig_api *api, const struct ig_api_options *o);
/* The configuration was read again, with or without a change. */
void ig_api_reloaded(struct ig_api *api);
/* New requests get 503, and sessions end when they have nothing left to do. */
void ig_api_drain(struct ig_api *api);
/* After a wake: deliver the results of prep and the engine. */
void ig_api_poll(struct ig_api *api);
/* Send keep-alives that are due.  Returns the nanoseconds until the next call; -1: no request is
 * active. */
int64_t ig_api_tick(struct ig_api *api, int64_t now_ns);

struct ig_http_request {
	const char *method;	   /* "GET", "POST" … */
	const char *path;	   /* decoded, without the query */
	const char *query;	   /* after "?", decoded; NULL: none */
	const char *client;	   /* address, for the ledger */
	const char *request_id;	   /* x-request-id; NULL: none */
	const char *if_none_match; /* NULL: none */
	bool wants_html;	   /* its Accept names text/html: a browser shows the reply */
	struct ig_principal who;
	char *body; /* malloc'd, or NULL; the exchange takes it over */
	size_t body_len;
};

struct ig_http_head {
	int status;
	const char *content_type;
	const char *etag;	 /* quoted; NULL: no such header */
	const char *fields;	 /* whole lines of further headers; NULL: none */
	const char *allow;	 /* of 405, else NULL */
	uint32_t retry_after_s;	 /* 0: no such header */
	const char *ignored;	 /* x-ingot-ignored; "": no such header */
	const char *tool_format; /* x-ingot-tool-format; NULL: no such header */
	const char *normalized;	 /* x-ingot-normalized; "" or NULL: no such header */
	bool upgrade;		 /* 426: send Upgrade: websocket */
	int64_t length;		 /* of the body; -1: a stream that ends with the connection */
};

enum ig_fill {
	IG_FILL_WAIT, /* nothing now; want_write follows */
	IG_FILL_DATA, /* something was appended; there may be more */
	IG_FILL_END,  /* complete (something may have been appended) */
};

/* Whether this method and path take a body. */
bool ig_api_takes_body(const struct ig_api *api, const char *method, const char *path);
/* Whether this path can be upgraded to a WebSocket. */
bool ig_api_is_websocket(const struct ig_api *api, const char *path);

/* NULL without memory; all other errors are replies. */
struct ig_exchange *ig_exchange_begin(struct ig_api *api, struct ig_http_request *r, void *conn);
/* An exchange whose reply is this error of net. */
struct ig_exchange *ig_exchange_refuse(struct ig_api *api, int status, const char *code,
				       const char *message, const struct ig_http_request *r,
				       void *conn);
/* False while the reply's status is not known yet. */
bool ig_exchange_head(struct ig_exchange *x, struct ig_http_head *head);
/* Append the next part of the body. */
enum ig_fill ig_exchange_fill(struct ig_exchange *x, struct ig_strbuf *out);
/* Cancel what still runs for this reason (slow_client); NULL is fine. */
void ig_exchange_cancel(struct ig_exchange *x, const char *reason);
/* Done, or the client left: cancels what still runs.  NULL is fine. */
void ig_exchange_end(struct ig_exchange *x);

/* At this path, which can be upgraded; NULL without memory. */
struct ig_session *ig_api_open(struct ig_api *api, const char *path, const char *request_id,
			       const char *client, const struct ig_principal *who, void *conn);
/* Of Responses. */
struct ig_session *ig_session_open(struct ig_api *api, const char *request_id, const char *client,
				   const struct ig_principal *who, void *conn);
/* One complete text message, valid UTF-8; takes over text, which is malloc'd. */
void ig_session_receive(struct ig_session *s, char *text, size_t len);
/* False while it takes no more messages; want_write follows when that may have changed. */
bool ig_session_wants_input(const struct ig_session *s);
/* Append the next message.  IG_FILL_END: there is none and the connection must be closed. */
enum ig_fill ig_session_fill(struct ig_session *s, struct ig_strbuf *out);
/* Whether it must end when its key is removed; else it only takes no more messages. */
bool ig_session_needs_key(const struct ig_session *s);
void ig_session_cancel(struct ig_session *s, const char *reason); /* NULL is fine */
void ig_session_end(struct ig_session *s);			  /* NULL is fine */
