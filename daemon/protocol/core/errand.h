/* errand.h: what a small request needs that takes longer than the loop may wait, such as reading the
 * ledger.  The reader thread runs it, and the loop replies with what it wrote. */
#pragma once

#include "daemon/protocol/core/exchange.h"
#include "store/ledger_history.h"

struct ig_errand {
	/* the reader thread: fill in out, or error */
	void (*run)(struct ig_errand *e);
	struct ig_api *api;
	/* what run needs, copied from the request */
	struct ig_ledger_query query;
	bool csv;
	char name[IG_KEY_ID_CAP];
	/* what it made */
	struct ig_strbuf out;
	struct ig_api_error error; /* status 0: none */
	const char *content_type;  /* NULL: JSON */
	/* the loop's */
	struct ig_exchange *exchange; /* NULL: its client left */
	struct ig_errand *next_done;  /* errands' lock */
};

void ig_errands_init(struct ig_errands *a);
void ig_errands_finish(struct ig_errands *a); /* no thread runs one any more */
/* An errand of x, for the caller to fill in and start; NULL, with an error as x's reply. */
struct ig_errand *ig_errand_create(struct ig_exchange *x, void (*run)(struct ig_errand *e));
/* e is not the caller's any more. */
void ig_errand_start(struct ig_errand *e);
/* The client left; NULL is fine. */
void ig_errand_abandon(struct ig_errand *e);
/* Reply with what is done. */
void ig_errands_poll(struct ig_api *api);
