/* status.c: the daemon's health, metrics, status and running requests. */
#include "daemon/protocol/status/status.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "daemon/protocol/core/model_wait.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/waiting.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/status/gateway.h"

#include <stdlib.h>
#include <string.h>

/* The most requests that /v1/ingot/requests lists. */
#define MAX_LISTED 1024

void ig_get_health(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_json_writer w = { .out = &x->body };
	bool draining = x->api->draining;

	ig_json_putf(&w, "{'status': %s}", draining ? "draining" : "ok");
	if (draining)
		x->head.retry_after_s = x->api->deps.options.retry_after_s;
	ig_exchange_reply(x, draining ? 503 : 200);
}

void ig_get_metrics(struct ig_exchange *x, const struct ig_http_request *r)
{
	const struct ig_metrics *m = x->api->deps.metrics;
	size_t n = 0;
	struct ig_model_status *list = ig_models_read(x->api->deps.engine, &n);

	ig_metrics_write(m, &x->body);
	if (list)
		ig_gateway_write(list, n, ig_metrics_get(m, IG_GAUGE_KV_ARENA_BYTES),
				 (double)ig_wall_ns() * 1e-9, &x->body);
	x->body.failed |= !list;
	free(list);
	ig_exchange_reply(x, 200);
	x->head.content_type = "text/plain; version=0.0.4; charset=utf-8";
}

static void write_request(struct ig_json_writer *w, const struct ig_gen_info *g)
{
	enum ig_prefix_reason reason = ig_prefix_full_reason(&g->report);
	int32_t n_same = g->report.n_other_key ? g->report.n_other_key : g->report.n_same;

	ig_json_putf(
		w,
		"{'id': %s, 'model': %s, 'endpoint': %s, 'client': %s, 'key': %s, 'state': %s, "
		"'prompt_tokens': %d, 'prefilled_tokens': %d, 'cached_tokens': %.0f, "
		"'output_tokens': %d, 'draft_tokens': %d, 'accepted_tokens': %d, "
		"'priority': %d, 'age_s': %.3f, 'cache_reason': %s, "
		"'cache_same_tokens': %.0f, 'cache_compared': %s}",
		g->id, g->model, g->endpoint, g->client, g->key, g->state, g->n_prompt,
		g->n_prefilled, g->n_cached < 0 ? NAN : (double)g->n_cached, g->n_output,
		g->n_drafted, g->n_accepted, g->priority, g->age_s,
		reason ? ig_prefix_reason_name(reason) : NULL,
		n_same < 0 || !reason ? NAN : (double)n_same,
		g->report.compared[0] ? g->report.compared : NULL);
}

/* A reply that waits for its model: of it no token is known. */
static void fill_parked(const struct ig_reply *r, int64_t now_ns, struct ig_gen_info *g)
{
	char model[IG_MAX_MODEL_NAME + 1];

	*g = (struct ig_gen_info){ .state = "loading",
				   .priority = ig_reply_priority(r),
				   .n_cached = -1,
				   .age_s = (double)(now_ns - r->origin->received_ns) * 1e-9 };
	ig_reply_ledger_name(r, model);
	ig_utf8_copy(g->model, sizeof g->model, model);
	memcpy(g->id, r->id, sizeof g->id);
	memcpy(g->endpoint, r->origin->endpoint, sizeof g->endpoint);
	memcpy(g->client, r->origin->client, sizeof g->client);
	memcpy(g->key, r->origin->who.key, sizeof g->key);
}

void ig_status_write_requests(struct ig_api *api, struct ig_strbuf *out)
{
	struct ig_gen_info *list = calloc(MAX_LISTED, sizeof *list);
	struct ig_json_writer w = { .out = out };
	const int64_t now = ig_now_ns();

	if (!list) {
		out->failed = true;
		return;
	}
	size_t n = ig_engine_list(api->deps.engine, list, MAX_LISTED);
	for (struct link *l = api->parked.next; l != &api->parked; l = l->next, n++)
		if (n < MAX_LISTED)
			fill_parked(link_entry(l, struct ig_reply, of_parked), now, &list[n]);
	ig_json_putf(&w, "{'object': 'list', 'total': %zu, 'data': [", n);
	for (size_t i = 0; i < n && i < MAX_LISTED; i++)
		write_request(&w, &list[i]);
	ig_json_putf(&w, "]}");
	free(list);
}

void ig_get_requests(struct ig_exchange *x, const struct ig_http_request *r)
{
	ig_status_write_requests(x->api, &x->body);
	ig_exchange_reply(x, 200);
}

/* The reply with this id, or with a choice of this id. */
static struct ig_reply *find_running(struct ig_api *api, const char *id)
{
	for (struct link *l = api->replies.next; l != &api->replies; l = l->next) {
		struct ig_reply *r = link_entry(l, struct ig_reply, all);
		bool waits = r->state == IG_REPLY_PARKED && !r->over;
		if (!r->owner_ctx || (!waits && !r->submitted) || r->finished)
			continue;
		if (!strcmp(r->id, id))
			return r;
		for (uint32_t i = 0; i < r->n_choices; i++)
			if (!strcmp(r->choices[i].id, id))
				return r;
	}
	return NULL;
}

bool ig_requests_below(struct ig_exchange *x, const struct ig_http_request *r, const char *id)
{
	struct ig_json_writer w = { .out = &x->body };
	struct ig_api_error e;
	char shown[80];

	if (strcmp(r->method, "DELETE")) {
		ig_exchange_wrong_method(x, r, "DELETE");
		return true;
	}
	struct ig_reply *found = find_running(x->api, id);
	if (!found) {
		ig_printable(shown, sizeof shown, id);
		ig_api_fail(&e, 404, "request_not_found", "id", "No request '%s' runs.", shown);
		ig_exchange_fail(x, &e);
		return true;
	}
	if (found->state == IG_REPLY_PARKED) {
		ig_api_fail(&found->error, 500, "request_cancelled", NULL,
			    "The request was cancelled (administrator).");
		ig_reply_end_wait(found);
	} else {
		ig_reply_cancel(found, "administrator");
	}
	ig_json_putf(&w, "{'object': 'request', 'id': %s, 'cancelled': true}", found->id);
	ig_exchange_reply(x, 200);
	return true;
}

void ig_status_write(struct ig_api *api, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_engine_describe(api->deps.engine, &w);
	ig_responses_describe(api, &w);
	ig_json_close_object(&w);
}

void ig_get_status(struct ig_exchange *x, const struct ig_http_request *r)
{
	ig_status_write(x->api, &x->body);
	ig_exchange_reply(x, 200);
}
