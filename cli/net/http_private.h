/* http_private.h: a request to the daemon as libcurl's handle; shared by http_client.c and the
 * benchmark's client. */
#pragma once

#include <curl/curl.h>

#include "cli/net/endpoint.h"

/* Set the address, key, certificates and the headers, which the caller frees with curl_slist_free_all
 * after the handle; no proxy, no redirects.  False without memory. */
bool ig_http_prepare(CURL *c, const struct ig_endpoint *e, const char *path, bool has_body,
		     struct curl_slist **headers);
