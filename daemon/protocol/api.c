/* api.c: what all exchanges and sessions share, from start to end, and the routes. */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/core/errand.h"
#include "daemon/protocol/core/waiting.h"
#include "daemon/protocol/embeddings/embeddings.h"
#include "daemon/protocol/keys/keys.h"
#include "daemon/protocol/messages/messages.h"
#include "daemon/protocol/models/models.h"
#include "daemon/protocol/ollama/ollama.h"
#include "daemon/protocol/page/page.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/status/events.h"
#include "daemon/protocol/status/history.h"
#include "daemon/protocol/status/status.h"
#include "daemon/protocol/tokens/tokens.h"

#include <stdlib.h>

static const struct ig_route routes[] = {
	{ "/v1/chat/completions", .post = &ig_chat_protocol },
	{ "/v1/completions", .post = &ig_completions_protocol },
	{ IG_RESPONSES_PATH, .post = &ig_responses_protocol, .open = ig_session_open },
	{ IG_EVENTS_PATH, .open = ig_events_open, .administrative = true },
	{ IG_RESPONSES_PATH "/input_tokens", .post = &ig_input_tokens_protocol },
	{ IG_RESPONSES_PATH "/", .below = ig_responses_below },
	{ "/v1/messages", .post = &ig_messages_protocol },
	{ "/v1/messages/count_tokens", .post = &ig_count_protocol },
	{ "/v1/embeddings", .post = &ig_embeddings_protocol },
	{ "/v1/rerank", .post = &ig_rerank_protocol },
	{ "/v2/rerank", .post = &ig_rerank_protocol },
	{ "/rerank", .post = &ig_rerank_protocol },
	{ "/v1/tokenize", .post = &ig_tokenize_protocol },
	{ "/v1/detokenize", .post = &ig_detokenize_protocol },
	{ "/v1/models", .get = ig_models_get },
	{ "/v1/models/", .below = ig_models_below },
	{ "/v1/ingot/models/load", .post = &ig_load_protocol },
	{ "/v1/ingot/models/unload", .post = &ig_unload_protocol },
	{ "/v1/ingot/models/pin", .post = &ig_pin_protocol },
	{ "/v1/ingot/models", .get = ig_get_models },
	{ "/v1/ingot/requests", .get = ig_get_requests },
	{ "/v1/ingot/requests/", .below = ig_requests_below },
	{ "/v1/ingot/stats", .get = ig_get_stats },
	{ "/v1/ingot/ledger", .get = ig_get_ledger },
	{ "/v1/ingot/keys", .post = &ig_add_key_protocol, .get = ig_get_keys },
	{ "/v1/ingot/keys/", .below = ig_keys_below },
	{ "/v1/ingot/status", .get = ig_get_status },
	{ "/", .get = ig_page_root },
	{ "/ui", .get = ig_page_get },
	{ "/ui/", .below = ig_page_below },
	{ "/api/chat", .post = &ig_ollama_chat_protocol },
	{ "/api/generate", .post = &ig_ollama_generate_protocol },
	{ "/api/show", .post = &ig_ollama_show_protocol },
	{ "/api/embed", .post = &ig_ollama_embed_protocol },
	{ "/api/embeddings", .post = &ig_ollama_embeddings_protocol },
	{ "/api/pull", .post = &ig_ollama_pull_protocol },
	{ "/api/tags", .get = ig_ollama_tags, .error = ig_ollama_error },
	{ "/api/ps", .get = ig_ollama_ps, .error = ig_ollama_error },
	{ "/api/version", .get = ig_ollama_version, .error = ig_ollama_error },
	{ "/api/", .below = ig_ollama_below, .error = ig_ollama_error },
	{ "/healthz", .get = ig_get_health },
	{ "/metrics", .get = ig_get_metrics },
	{ NULL },
};

struct ig_api *ig_api_create(const struct ig_api_deps *deps)
{
	struct ig_api *api = calloc(1, sizeof *api);

	if (!api)
		return NULL;
	api->limits = ig_limits_create(&deps->options.limits);
	api->responses = ig_responses_create(&deps->options, deps->responses);
	if (!api->limits || !api->responses) {
		ig_limits_destroy(api->limits);
		ig_responses_destroy(api->responses);
		free(api);
		return NULL;
	}
	api->deps = *deps;
	ig_prompt_rules_ref(deps->options.rules);
	api->routes = routes;
	link_init(&api->replies);
	link_init(&api->parked);
	ig_events_init(&api->events);
	ig_ignored_init(&api->ignored);
	ig_wakes_init(&api->wakes, deps->wake, deps->wake_ctx);
	ig_handoff_init(&api->handoff);
	ig_errands_init(&api->errands);
	ig_model_waits_init(&api->model_waits, deps->engine, &api->wakes);
	return api;
}

void ig_api_stop(struct ig_api *api)
{
	ig_handoff_stop(&api->handoff);
	ig_waiting_poll(api);
}

void ig_api_destroy(struct ig_api *api)
{
	if (!api)
		return;
	/* Replies that were at prep. */
	while (!link_empty(&api->replies)) {
		struct ig_reply *r = link_entry(api->replies.next, struct ig_reply, all);
		r->state = IG_REPLY_READY;
		ig_reply_destroy(r);
	}
	ig_model_waits_finish(&api->model_waits);
	ig_handoff_finish(&api->handoff);
	ig_errands_finish(&api->errands);
	ig_wakes_finish(&api->wakes);
	ig_events_finish(&api->events);
	ig_limits_destroy(api->limits);
	ig_responses_destroy(api->responses);
	ig_prompt_rules_unref(api->deps.options.rules);
	free(api);
}

void ig_api_set_options(struct ig_api *api, const struct ig_api_options *o)
{
	ig_prompt_rules_ref(o->rules);
	ig_prompt_rules_unref(api->deps.options.rules);
	api->deps.options = *o;
	ig_limits_set_defaults(api->limits, &o->limits);
	ig_responses_limit(api->responses, o);
}

void ig_api_reloaded(struct ig_api *api) { ig_ollama_pulls_look(api); }

void ig_api_drain(struct ig_api *api)
{
	api->draining = true;
	ig_waiting_drain(api);
	ig_responses_drain(api);
	ig_events_drain(api);
}

void ig_api_poll(struct ig_api *api)
{
	ig_wakes_clear(&api->wakes);
	ig_waiting_poll(api);
	ig_errands_poll(api);
	ig_wakes_deliver(&api->wakes);
}

int64_t ig_api_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t a = ig_waiting_tick(api, now_ns), b = ig_events_tick(api, now_ns);

	return a < 0 || (b >= 0 && b < a) ? b : a;
}
