/* origin.h: where a request comes from: made when it arrives, shared by everything that
 * handles it until its row is in the ledger. */
#pragma once

#include "store/keys.h"
#include "store/ledger.h"

#include <stdatomic.h>
#include <string.h>

/* Reference-counted; immutable once the engine may have it. */
struct ig_origin {
	atomic_uint n_refs;
	char request_id[IG_REQUEST_ID_CAP]; /* x-request-id: the client's, or ours */
	char endpoint[32];		    /* "POST /v1/chat/completions", "ws /v1/responses" … */
	char client[64];		    /* address, or unix:uid=… */
	struct ig_principal who;	    /* whose key it is */
	int64_t received_ns, received_wall_ns;
	char ignored[IG_IGNORED_CAP];	    /* what of the request is not known here; "": nothing */
	char normalized[IG_NORMALIZED_CAP]; /* the rules that changed its prompt: "dates, mine" */
	const char *tool_format;	    /* of calls, if it is not the model's own; else NULL */
};

/* Received now; texts that are too long are truncated.  NULL without memory. */
struct ig_origin *ig_origin_create(const char *request_id, const char *endpoint, const char *client,
				   const struct ig_principal *who);
struct ig_origin *ig_origin_ref(struct ig_origin *o);
void ig_origin_unref(struct ig_origin *o); /* NULL is fine */
/* Whether two requests are of one client: with the same key, or both without one from the same
 * address. */
static inline bool ig_same_client(uint64_t identity, const char *address, uint64_t other_identity,
				  const char *other_address)
{
	return identity == other_identity && (identity || !strcmp(address, other_address));
}
/* A number for its client: of others it is most likely another one. */
uint64_t ig_origin_client(const struct ig_origin *o);
/* The row of a request that has not run: of its times only the total is known. */
void ig_origin_row(const struct ig_origin *o, int64_t now_ns, struct ig_ledger_row *row);
