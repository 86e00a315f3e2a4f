/*
 * http_client.h: one question to the daemon and its answer, whole, as JSON.
 */
#pragma once

#include "base/json.h"
#include "cli/net/endpoint.h"

/* *out is the caller's (json_decref).  -ECONNREFUSED: nobody answers, -ETIMEDOUT,
 * -EPROTO: an answer that is not 200 or no JSON, *status says which; with text. */
int ig_http_get_json(const struct ig_endpoint *e, const char *path, int timeout_ms, json_t **out,
		     long *status, struct ig_error *err);
/* POST body (borrowed); 202 is an answer too.  timeout_ms 0: for as long as it takes.  code
 * gets the error's, "" when it has none, and err its message alone. */
int ig_http_post_json(const struct ig_endpoint *e, const char *path, json_t *body, int timeout_ms,
		      json_t **out, long *status, char code[64], struct ig_error *err);
