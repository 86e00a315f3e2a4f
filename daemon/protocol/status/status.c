/* status.c: what the daemon says of itself: whether it is up, its figures, what runs. */
#include "daemon/protocol/status/status.h"

#include "daemon/protocol/core/json_text.h"

#include <stdlib.h>

/* Requests that /v1/ingot/requests lists at most. */
#define MAX_LISTED 1024

void ig_get_health(struct ig_exchange *x, const struct ig_http_request *r)
{
	if (!x->api->draining) {
		ig_strbuf_puts(&x->body, "{\"status\":\"ok\"}");
		ig_exchange_reply(x, 200);
		return;
	}
	ig_strbuf_puts(&x->body, "{\"status\":\"draining\"}");
	x->retry_after_s = x->api->deps.options.retry_after_s;
	ig_exchange_reply(x, 503);
}

void ig_get_metrics(struct ig_exchange *x, const struct ig_http_request *r)
{
	ig_metrics_write(x->api->deps.metrics, &x->body);
	ig_exchange_reply(x, 200);
	x->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

void ig_get_requests(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_gen_info *list = calloc(MAX_LISTED, sizeof *list);
	struct ig_strbuf *out = &x->body;
	struct ig_api_error e;

	if (!list) {
		ig_fail_memory(&e);
		ig_exchange_fail(x, &e);
		return;
	}
	size_t n = ig_engine_list(x->api->deps.engine, list, MAX_LISTED),
	       shown = n < MAX_LISTED ? n : MAX_LISTED;
	ig_strbuf_printf(out, "{\"object\":\"list\",\"total\":%zu,\"data\":[", n);
	for (size_t i = 0; i < shown; i++) {
		const struct ig_gen_info *g = &list[i];
		ig_strbuf_puts(out, i ? ",{\"id\":" : "{\"id\":");
		ig_json_text(out, g->id);
		ig_strbuf_puts(out, ",\"model\":");
		ig_json_text(out, g->model);
		ig_strbuf_puts(out, ",\"endpoint\":");
		ig_json_text(out, g->endpoint);
		ig_strbuf_puts(out, ",\"client\":");
		ig_json_text(out, g->client);
		ig_strbuf_puts(out, ",\"state\":");
		ig_json_text(out, g->state);
		ig_strbuf_printf(out,
				 ",\"prompt_tokens\":%d,\"prefilled_tokens\":%d,"
				 "\"output_tokens\":%d,\"age_s\":%.3f}",
				 g->n_prompt, g->n_prefilled, g->n_output, g->age_s);
	}
	ig_strbuf_puts(out, "]}");
	free(list);
	ig_exchange_reply(x, 200);
}

void ig_get_status(struct ig_exchange *x, const struct ig_http_request *r)
{
	ig_engine_describe(x->api->deps.engine, &x->body);
	ig_exchange_reply(x, 200);
}
