/* check.h: is this request meant for us?  Pure functions over header values. */
#pragma once

#include "store/keys.h"

#include <stdbool.h>
#include <stdint.h>

/* A Host header: a loopback name or address, the configured host, or one of
 * allowed (NULL-terminated); with or without a port.  This is what stops a page
 * that points its own name at 127.0.0.1. */
bool ig_check_host(const char *host, const char *configured, char *const *allowed);
/* An Origin header: only one that is listed. */
bool ig_check_origin(const char *origin, char *const *allowed);
/* A Content-Length: digits and nothing else.  False when it is not one. */
bool ig_check_length(const char *text, uint64_t *out);
/* The key in the value of an Authorization header, "Bearer KEY"; NULL: there is none. */
const char *ig_check_bearer(const char *value, size_t *len);
/* An x-request-id that is fit for a header, the log and the ledger: printable, no blank, and
 * not longer than the ledger's. */
bool ig_check_request_id(const char *text);
/* Whether a role may ask for this path: all but /, /healthz and /v1/ without
 * /v1/ingot/ is the administrators'; a monitor has /metrics and /healthz alone. */
bool ig_check_role(enum ig_role role, const char *path);
/* Whether an address (of a configuration, or a peer's) is this machine's alone. */
bool ig_check_loopback(const char *address);
