/* query.h: the query parameters of stored responses. */
#pragma once

#include "base/strbuf.h"
#include "daemon/protocol/core/request.h"

struct ig_item_query {
	int32_t limit;
	bool ascending;
	char after[64]; /* an item's id; "": from the start */
};

/* Of GET /v1/responses/{id}: only parameters without effect.  0 or -1 with *e. */
int ig_query_retrieve(const char *query, struct ig_api_error *e);
/* Of GET /v1/responses/{id}/input_items. */
int ig_query_items(const char *query, struct ig_item_query *q, struct ig_api_error *e);
/* Write the page of list (items with ids, oldest first) that q selects, as a list object. */
int ig_query_write(const struct ig_item_query *q, const json_t *list, struct ig_strbuf *out,
		   struct ig_api_error *e);
