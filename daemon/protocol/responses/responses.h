/* responses.h: OpenAI's Responses, over HTTP and a WebSocket. */
#pragma once

#include "daemon/protocol/core/exchange.h"

#define IG_RESPONSES_PATH "/v1/responses"

extern const struct ig_protocol ig_responses_protocol, ig_input_tokens_protocol;

/* The message of a WebSocket: ig_request's notice. */
enum ig_ws_message {
	IG_WS_CREATE,
	IG_WS_CANCEL,
	IG_WS_STEER,
	IG_WS_PROCESSED,
};

/* The last one is of a message of the WebSocket. */
extern const struct ig_request_format ig_create_request, ig_input_tokens_request, ig_ws_request;

bool ig_responses_below(struct ig_exchange *x, const struct ig_http_request *r, const char *rest);

struct ig_responses *ig_responses_create(const struct ig_api_options *o);
void ig_responses_destroy(struct ig_responses *s); /* NULL is fine */
void ig_responses_limit(struct ig_responses *s, const struct ig_api_options *o);
/* Every session checks whether it has anything left to do. */
void ig_responses_drain(struct ig_api *api);
