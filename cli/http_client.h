/*
 * http_client.h: one GET from the daemon, whole, as JSON.
 */
#ifndef INGOT_CLI_HTTP_CLIENT_H
#define INGOT_CLI_HTTP_CLIENT_H

#include <jansson.h>

#include "cli/endpoint.h"

/* *out is the caller's (json_decref).  -ECONNREFUSED: nobody answers, -ETIMEDOUT,
 * -EPROTO: an answer that is not 200 or no JSON, *status says which; with text. */
int ig_http_get_json(const struct ig_endpoint *e, const char *path, int timeout_ms, json_t **out,
		     long *status, struct ig_error *err);

#endif
