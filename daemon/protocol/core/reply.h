/*
 * reply.h: one request and its response, from its arrival until its owner destroys it.  Prep parses
 * and prepares it; its owner opens and submits it: one generation of the engine for each choice,
 * whose text is parsed into parts, which the protocol's writer writes as events or one object.
 */
#pragma once

#include "daemon/protocol/core/api_private.h"
#include "daemon/protocol/core/child.h"
#include "daemon/protocol/core/choice.h"
#include "daemon/protocol/core/prepare.h"
#include "daemon/protocol/core/protocol.h"

/* The owner of a reply: an exchange or a session. */
struct ig_reply_owner {
	/* It is parsed, or has an error.  A request is to be prepared (ig_reply_prepare), with its
	 * history if it continues a response. */
	void (*parsed)(void *ctx, struct ig_reply *r);
	/* Prep has finished with it, or its wait has ended: it has an error, or is prepared, or is
	 * not (its wait was ended). */
	void (*ready)(void *ctx, struct ig_reply *r);
	/* There is something to write, a keep-alive is due, or it began to wait. */
	void (*news)(void *ctx, struct ig_reply *r);
};

enum ig_reply_state {
	IG_REPLY_READY,	   /* its owner has it */
	IG_REPLY_AT_PARSE, /* the parse thread has it, but for the loop's members */
	IG_REPLY_AT_PREP,  /* prep has it; the loop reads what writers of keep-alives need */
	IG_REPLY_PARKED,   /* waits for its model to be loaded */
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
	bool over;	     /* parked: deliver it as it is */
	bool held, admitted; /* counts against its key's limits: while it waits; while it runs */
	bool begun;	     /* its stream began before it was prepared */
	bool opened;	     /* it has its choices, and the client may know its id */
	bool submitted;	     /* or its submission failed */
	bool finished;	     /* all choices are, or error is set and there are none */
	bool keepalive;	     /* one is due */
	int64_t parked_ns;   /* since when it waits; 0: it never waited */
	int64_t waited_ns;   /* how long it waited for its model */
	int64_t last_output_ns;
	const char *cancelled; /* the reason, if before its lane was free; NULL: it is not */
	char model_name[IG_MAX_MODEL_NAME + 1]; /* of the default model, where it is not prepared */

	/* ---- the other threads' in IG_REPLY_AT_PARSE and IG_REPLY_AT_PREP ---- */
	struct ig_reply *next_done;
	const struct ig_request_format *format; /* NULL: it is parsed */
	char *text;
	size_t len;
	/* as the options were when it arrived */
	bool refuse_tools, refuse_unknown;
	struct ig_prompt_rules *rules;
	struct ig_request request; /* prep changes only what the loop does not read meanwhile */
	struct ig_prepared prepared;
	uint64_t applied;	   /* bit i: rule i has changed the prompt */
	struct ig_api_error error; /* status 0: none */
	bool waits;		   /* its model is being loaded; ticket is set */
	struct ig_model_ticket ticket;

	/* ---- the loop's, once opened ---- */
	struct ig_choice
		*choices; /* [n_choices]: prompt by prompt, n of each; only, if at most one */
	struct ig_choice only;
	uint32_t n_choices, n_finished;
	const void *connection; /* the WebSocket that may continue it; NULL: none */
	/* its writer's */
	int stage;
	int32_t sequence;	/* the next sequence_number */
	bool framed;		/* Responses: events go out as SSE frames */
	struct ig_child *child; /* a program whose output it writes; NULL: none */
	/* A model that the program has downloaded, until the folder of models was read again. */
	char *pulled, pulled_name[IG_MAX_MODEL_NAME + 1]; /* its path; NULL: none */
	bool looked;					  /* the folder was read since */
};

/* A request that has arrived; NULL without memory. */
struct ig_reply *ig_reply_create(struct ig_api *api, const struct ig_protocol *p,
				 struct ig_origin *origin, const struct ig_reply_owner *owner,
				 void *ctx);
/* Have its text, malloc'd and taken over, parsed; format: the protocol's, or another.
 * -EAGAIN, -ENOMEM: nothing was started (text is freed). */
int ig_reply_read(struct ig_reply *r, const struct ig_request_format *format, char *text,
		  size_t len);
/* Send it, parsed, to prep.  -EAGAIN, -ENOMEM: nothing was started. */
int ig_reply_prepare(struct ig_reply *r);
/* It is being prepared, or waits for its model. */
static inline bool ig_reply_prepares(const struct ig_reply *r)
{
	return r->state == IG_REPLY_AT_PREP || r->state == IG_REPLY_PARKED;
}
/* Make its choices, of an unprepared reply only so that it can be cancelled.  0 or -1, out of
 * memory. */
int ig_reply_open(struct ig_reply *r);
/* 0, or -1 with *e: refused, by its key's limits or the engine (its row is in the ledger).  Of
 * several choices of a prompt the first is submitted; the others follow when the prompt is
 * prefilled, and share its blocks. */
int ig_reply_submit(struct ig_reply *r, struct ig_api_error *e);
/* Whether a stream that could not be submitted reports this error itself. */
bool ig_reply_streams(const struct ig_reply *r, const struct ig_api_error *e);
/* Take text from the engine, at most cap bytes of a choice, and parse it into parts.  Sets
 * finished, and error when a choice failed. */
void ig_reply_take(struct ig_reply *r, size_t cap);
/* Finish it with this error, which its writer writes. */
void ig_reply_fail(struct ig_reply *r, const struct ig_api_error *e);
/* The engine has admitted a choice of it: it no longer only waits. */
bool ig_reply_runs(const struct ig_reply *r);
/* Cancel it: at the next step, or at once if it is not submitted. */
void ig_reply_cancel(struct ig_reply *r, const char *reason);
/* Cancels (client_gone) what still runs. */
void ig_reply_destroy(struct ig_reply *r); /* NULL is fine */

/* The ledger's row of a reply that was never submitted. */
void ig_reply_refuse(const struct ig_reply *r, const struct ig_api_error *e);
/* The same where the client left; nothing for requests that have no row. */
void ig_reply_abandoned(const struct ig_reply *r);
/* The same without a reply. */
void ig_reply_record_refused(struct ig_api *api, const struct ig_origin *origin,
			     const struct ig_api_error *e);

/* "": the client does not know it yet. */
const char *ig_reply_known_id(const struct ig_reply *r);
/* The name in the request, or else its model's; "": not known. */
const char *ig_reply_model_name(const struct ig_reply *r);
/* The name in the ledger: the model's own; a request's name where there is no such model. */
void ig_reply_ledger_name(const struct ig_reply *r, char out[IG_MAX_MODEL_NAME + 1]);
/* Its deadline has passed: -1 with *e, which its owner or ig_reply_submit reports.  Any thread. */
int ig_reply_check_deadline(const struct ig_reply *r, int64_t now_ns, struct ig_api_error *e);
static inline long long ig_reply_created_s(const struct ig_reply *r)
{
	return r->origin->received_wall_ns / 1000000000;
}
/* Sums over the choices. */
struct ig_usage {
	long long prompt, cached, output;
	long long drafted, accepted; /* see struct ig_gen_result; of look-ups alone */
};
void ig_reply_usage(const struct ig_reply *r, struct ig_usage *u);
/* The engine's priority: the request's, but no smaller number than its key's; without one of its own
 * the key's. */
int32_t ig_reply_priority(const struct ig_reply *r);
/* By ig_now_ns; 0: it has no deadline. */
int64_t ig_reply_deadline_ns(const struct ig_reply *r);
/* Output was written: restart the keep-alive interval. */
void ig_reply_wrote(struct ig_reply *r);
