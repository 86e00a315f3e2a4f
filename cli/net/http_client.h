/* http_client.h: one HTTP request to the daemon, and its whole reply as JSON. */
#pragma once

#include "base/json.h"
#include "cli/net/endpoint.h"

/* *out is the caller's (json_decref).  With text: -ECONNREFUSED: no connection, -ETIMEDOUT,
 * -EPROTO: the reply is not JSON or its status, in *status, is not 200. */
int ig_http_get_json(const struct ig_endpoint *e, const char *path, int timeout_ms, json_t **out,
		     long *status, struct ig_error *err);
/* DELETE; its reply is only looked at for an error's text. */
int ig_http_delete(const struct ig_endpoint *e, const char *path, int timeout_ms, long *status,
		   struct ig_error *err);
/* POST body (borrowed); 202 is a success too.  timeout_ms 0: no limit.  code gets the error's
 * code, "" when it has none, and err its message alone. */
int ig_http_post_json(const struct ig_endpoint *e, const char *path, json_t *body, int timeout_ms,
		      json_t **out, long *status, char code[64], struct ig_error *err);
