/* lookup.c: retrieves and deletes finished responses by their ids. */
#include "daemon/protocol/responses/query.h"
#include "daemon/protocol/responses/responses_private.h"
#include "daemon/protocol/responses/response_store.h"

#include <stdio.h>
#include <string.h>

static void fail_response(struct ig_exchange *x, const char *id)
{
	struct ig_api_error e;

	ig_api_fail(&e, 404, "response_not_found", "response_id",
		    "Response with id '%.100s' not found.", id);
	ig_exchange_fail(x, &e);
}

static void get_response(struct ig_exchange *x, struct ig_stored_response *k, const char *query)
{
	struct ig_api_error e;

	if (ig_query_retrieve(query, &e) < 0) {
		ig_exchange_fail(x, &e);
		return;
	}
	ig_strbuf_puts(&x->body, ig_stored_response_text(k));
	ig_exchange_reply(x, 200);
}

static void get_input_items(struct ig_exchange *x, struct ig_stored_response *k, const char *query)
{
	struct ig_item_query q;
	struct ig_api_error e;
	json_t *list = NULL;

	if (ig_query_items(query, &q, &e) < 0)
		goto fail;
	list = ig_stored_response_input(k);
	if (!list) {
		ig_fail_memory(&e);
		goto fail;
	}
	if (ig_query_write(&q, list, &x->body, &e) < 0)
		goto fail;
	json_decref(list);
	ig_exchange_reply(x, 200);
	return;
fail:
	json_decref(list);
	ig_exchange_fail(x, &e);
}

static void delete_response(struct ig_exchange *x, struct ig_stored_response *k, const char *id)
{
	struct ig_json_writer w = { .out = &x->body };

	ig_json_putf(&w, "{'id': %s, 'object': 'response.deleted', 'deleted': true}", id);
	ig_response_store_remove(x->api->responses->store, k);
	ig_exchange_reply(x, 200);
}

/* There are no background responses. */
static void cancel_response(struct ig_exchange *x)
{
	struct ig_api_error e;

	ig_api_fail(&e, 400, "invalid_value", "response_id",
		    "Only background responses can be cancelled; this one has ended.");
	ig_exchange_fail(x, &e);
}

/* /v1/responses/{id}, /input_items or /cancel behind it. */
bool ig_responses_below(struct ig_exchange *x, const struct ig_http_request *r, const char *rest)
{
	const char *slash = strchr(rest, '/'), *what = slash ? slash + 1 : "";
	size_t len = slash ? (size_t)(slash - rest) : strlen(rest);
	bool items = !strcmp(what, "input_items"), cancel = !strcmp(what, "cancel"),
	     is_delete = !strcmp(r->method, "DELETE");
	char id[64];

	if (!len || (slash && !items && !cancel))
		return false;
	if (strcmp(r->method, cancel ? "POST" : "GET") && (!is_delete || slash)) {
		ig_exchange_wrong_method(x, r, cancel ? "POST" : items ? "GET" : "GET, DELETE");
		return true;
	}
	snprintf(id, sizeof id, "%.*s", (int)(len < sizeof id ? len : sizeof id - 1), rest);
	struct ig_stored_response *k =
		len < sizeof id ? ig_response_store_find_stored(x->api->responses->store, id,
								x->origin->who.identity) :
				  NULL;
	if (!k)
		fail_response(x, id);
	else if (cancel)
		cancel_response(x);
	else if (is_delete)
		delete_response(x, k, id);
	else if (items)
		get_input_items(x, k, r->query ? r->query : "");
	else
		get_response(x, k, r->query ? r->query : "");
	return true;
}
