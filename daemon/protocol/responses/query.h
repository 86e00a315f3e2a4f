/* query.h: what may stand behind "?" of kept responses. */
#pragma once

#include "base/strbuf.h"
#include "daemon/protocol/core/request.h"

struct ig_item_query {
	int32_t limit;
	bool ascending;
	char after[64]; /* an item's id; "": from the beginning */
};

/* Of GET /v1/responses/{id}: only what changes nothing.  0 or -1 with *e. */
int ig_query_retrieve(const char *query, struct ig_api_error *e);
/* Of GET /v1/responses/{id}/input_items. */
int ig_query_items(const char *query, struct ig_item_query *q, struct ig_api_error *e);
/* The page of list (items with ids, oldest first) that q asks for, as a list object. */
int ig_query_write(const struct ig_item_query *q, const json_t *list, struct ig_strbuf *out,
		   struct ig_api_error *e);
