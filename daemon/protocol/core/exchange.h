/* exchange.h: one HTTP request and its reply, for the functions that write the reply. */
#pragma once

#include "daemon/protocol/core/reply.h"

struct ig_exchange {
	struct ig_api *api;
	void *conn;
	struct ig_origin *origin;
	const struct ig_protocol *protocol; /* of the path; NULL: none */
	void (*error)(struct ig_strbuf *out, const struct ig_api_error *e); /* of the path */
	struct ig_reply *reply;	  /* of a protocol; NULL: none was made */
	struct ig_http_head head; /* but for length; status 0: not known yet */
	struct ig_errand *errand; /* that makes the reply; NULL: none */
	bool stream, body_given;
	struct ig_strbuf body; /* of a reply that is not a stream */
};

/* The handlers of a path. */
struct ig_route {
	const char *path;
	const struct ig_protocol *post; /* of POST; NULL: not allowed */
	void (*get)(struct ig_exchange *x, const struct ig_http_request *r); /* NULL: not allowed */
	/* Paths below path, which ends in "/"; false: not found. */
	bool (*below)(struct ig_exchange *x, const struct ig_http_request *r, const char *rest);
	/* Of a WebSocket; NULL: there is none. */
	struct ig_session *(*open)(struct ig_api *api, const char *request_id, const char *client,
				   const struct ig_principal *who, void *conn);
	bool administrative; /* what is refused is not in the ledger */
	/* The body of an error where there is no post; NULL: as OpenAI's. */
	void (*error)(struct ig_strbuf *out, const struct ig_api_error *e);
};

/* The reply is body. */
void ig_exchange_reply(struct ig_exchange *x, int status);
/* The reply is an error, in the protocol's format. */
void ig_exchange_fail(struct ig_exchange *x, const struct ig_api_error *e);
void ig_exchange_wrong_method(struct ig_exchange *x, const struct ig_http_request *r,
			      const char *allow);

static inline bool ig_exchange_is_administrator(const struct ig_exchange *x)
{
	return x->origin->who.role == IG_ROLE_ADMINISTRATOR;
}
