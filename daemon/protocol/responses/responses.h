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

/* file: NULL, or what is stored survives a restart; if it can't be read, the log says so. */
struct ig_responses *ig_responses_create(const struct ig_api_options *o,
					 struct ig_response_file *file);
void ig_responses_destroy(struct ig_responses *s); /* NULL is fine */
void ig_responses_limit(struct ig_responses *s, const struct ig_api_options *o);
/* The member "responses": how many are stored, and whether they can be written. */
void ig_responses_describe(struct ig_api *api, struct ig_json_writer *w);
/* Every session checks whether it has anything left to do. */
void ig_responses_drain(struct ig_api *api);
