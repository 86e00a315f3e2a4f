/* exchange.h: one HTTP request and its reply, for what answers it. */
#pragma once

#include "daemon/protocol/core/reply.h"

struct ig_exchange {
	struct ig_api *api;
	void *conn;
	struct ig_origin *origin;
	const struct ig_protocol *protocol; /* of the path; NULL: none */
	struct ig_reply *reply;		    /* of a protocol; NULL: it has not come to that */
	int status;			    /* 0: not known yet */
	const char *content_type, *allow;
	uint32_t retry_after_s;
	bool stream, upgrade, body_given;
	struct ig_strbuf body; /* of a reply that is no stream */
};

/* What is at a path. */
struct ig_route {
	const char *path;
	const struct ig_protocol *post; /* what is POSTed there; NULL: nothing */
	void (*get)(struct ig_exchange *x, const struct ig_http_request *r); /* NULL: nothing */
	/* What lies below path, which ends in "/"; false: nothing is there. */
	bool (*below)(struct ig_exchange *x, const struct ig_http_request *r, const char *rest);
	bool is_websocket;
};

/* The reply is body, whole. */
void ig_exchange_reply(struct ig_exchange *x, int status);
/* Or an error, in its protocol's way. */
void ig_exchange_fail(struct ig_exchange *x, const struct ig_api_error *e);
void ig_exchange_wrong_method(struct ig_exchange *x, const struct ig_http_request *r,
			      const char *allow);

static inline bool ig_exchange_is_administrator(const struct ig_exchange *x)
{
	return x->origin->who.role == IG_ROLE_ADMINISTRATOR;
}
