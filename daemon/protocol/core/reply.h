/*
 * reply.h: one request and its answer, from its arrival until its owner destroys it.
 *
 * Prep parses and prepares it; its owner opens and submits it: one generation of the
 * engine for each choice, whose text is taken apart into parts, which the protocol's
 * writer turns into events or one object.
 */
#pragma once

#include "daemon/protocol/core/api_private.h"
#include "daemon/protocol/core/choice.h"
#include "daemon/protocol/core/prepare.h"
#include "daemon/protocol/core/protocol.h"

/* Whose reply it is: an exchange, a session. */
struct ig_reply_owner {
	/* Prep is done with it, or it waits no longer: it has an error, or is prepared, or
	 * unprepared (it continues a response, whose history is the owner's to look up; its
	 * wait was ended; it defers). */
	void (*ready)(void *ctx, struct ig_reply *r);
	/* There is something to write, or a keep-alive is due, or it is parked from now on. */
	void (*news)(void *ctx, struct ig_reply *r);
};

enum ig_reply_state {
	IG_REPLY_READY,	  /* its owner's */
	IG_REPLY_AT_PREP, /* prep's, but for what is the loop's */
	IG_REPLY_PARKED,  /* its model is being loaded */
};

struct ig_reply {
	struct ig_api *api;
	const struct ig_protocol *protocol;
	struct ig_origin *origin;
	char id[64];

	/* ---- the loop's ---- */
	struct link all, of_owner, of_parked;
	const struct ig_reply_owner *owner;
	void *owner_ctx; /* NULL once the owner has destroyed it while prep had it */
	enum ig_reply_state state;
	bool defers;	     /* it is not parked where its model is not loaded, but ready */
	bool over;	     /* parked: it is to be delivered as it is */
	bool held, admitted; /* counts against its key's limits: while it waits; as it runs */
	bool begun;	     /* its stream has, while its model was being loaded */
	bool opened;	     /* it has its choices, and the client may know its id */
	bool submitted;	     /* or failed to be */
	bool finished;	     /* all choices are, or error says why there will be none */
	bool keepalive;	     /* one is due */
	int64_t parked_ns;   /* since when it waits; 0: it never has */
	int64_t last_output_ns;
	const char *cancelled; /* why, before its turn came; NULL: it is not */
	char model_name[129];  /* of what was not prepared */

	/* ---- prep's while it is there ---- */
	struct ig_reply *next_done;
	ig_request_parse *parse; /* NULL: it is parsed */
	char *text;
	size_t len;
	struct ig_request request; /* lane, parent and model's name stay as they are parsed */
	struct ig_prepared prepared;
	struct ig_api_error error; /* why it has no answer; status 0: it has */
	bool waits;		   /* its model is being loaded, for which it has a ticket */
	struct ig_model_ticket ticket;

	/* ---- the loop's, once opened ---- */
	struct ig_choice
		*choices; /* [n_choices]: prompt by prompt, n of each; only, if at most one */
	struct ig_choice only;
	uint32_t n_choices, n_finished;
	const void *connection; /* the WebSocket that may continue it; NULL: none */
	/* its writer's */
	int stage;
	int32_t sequence; /* next sequence_number */
	bool framed;	  /* Responses: events go out as SSE frames */
};

/* A request that has come; NULL without memory. */
struct ig_reply *ig_reply_create(struct ig_api *api, const struct ig_protocol *p,
				 struct ig_origin *origin, const struct ig_reply_owner *owner,
				 void *ctx);
/* Its text, malloc'd, to prep, which takes it over; parse: the protocol's, or one of its
 * own.  -EAGAIN, -ENOMEM: nothing was started (text is freed). */
int ig_reply_read(struct ig_reply *r, ig_request_parse *parse, char *text, size_t len);
/* Make its choices: of what is unprepared those that can be cancelled.  0 or -1, out of
 * memory. */
int ig_reply_open(struct ig_reply *r);
/* 0, or -1 with *e: refused, by its key's limits or the engine (the ledger has its row).  Of
 * several choices of a prompt the first is submitted; the others follow once its prompt is
 * read, and share it. */
int ig_reply_submit(struct ig_reply *r, struct ig_api_error *e);
/* Take what the engine has written, at most cap bytes of a choice: more parts, or more of
 * the last.  Sets finished, and error when a choice failed. */
void ig_reply_take(struct ig_reply *r, size_t cap);
/* It has no answer but this error, which its writer is to write. */
void ig_reply_fail(struct ig_reply *r, const struct ig_api_error *e);
/* Ends it at the next step; before it was submitted: at once. */
void ig_reply_cancel(struct ig_reply *r, const char *reason);
/* Cancels (client_gone) what still runs. */
void ig_reply_destroy(struct ig_reply *r); /* NULL is fine */

/* The ledger's row of one that never got to submit. */
void ig_reply_refuse(const struct ig_reply *r, const struct ig_api_error *e);
/* The same of one whose client left; nothing where it is about other requests. */
void ig_reply_abandoned(const struct ig_reply *r);
/* The same without a reply. */
void ig_reply_record_refused(struct ig_api *api, const struct ig_origin *origin,
			     const struct ig_api_error *e);

/* "": the client can't know it yet. */
const char *ig_reply_known_id(const struct ig_reply *r);
const char *ig_reply_model_name(const struct ig_reply *r);
static inline long long ig_reply_created_s(const struct ig_reply *r)
{
	return r->origin->received_wall_ns / 1000000000;
}
/* Sums over the choices. */
struct ig_usage {
	int64_t prompt, cached, output;
};
void ig_reply_usage(const struct ig_reply *r, struct ig_usage *u);
/* Something went out: no keep-alive is due for a while. */
void ig_reply_wrote(struct ig_reply *r);
