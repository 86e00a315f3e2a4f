/* check.h: checks of header values; pure functions. */
#pragma once

#include "store/keys.h"

#include <stdbool.h>
#include <stdint.h>

/* A Host header: a loopback name or address, the configured host, or one of
 * allowed (NULL-terminated); with or without a port.  This stops a web page whose
 * own name resolves to 127.0.0.1. */
bool ig_check_host(const char *host, const char *configured, char *const *allowed);
/* An Origin header: whether it is listed. */
bool ig_check_origin(const char *origin, char *const *allowed);
/* An Origin header: whether it is the server's own page, by the request's Host header or by an allowed
 * name with the server's port. */
bool ig_check_own_origin(const char *origin, const char *host, const char *configured,
			 char *const *allowed, int port);
/* A Content-Length: digits alone, else false. */
bool ig_check_length(const char *text, uint64_t *out);
/* The key of an Authorization header, "Bearer KEY"; NULL: none. */
const char *ig_check_bearer(const char *value, size_t *len);
/* Whether an x-request-id is fit for a header, the log and the ledger: printable, no blank, and
 * not longer than the ledger's. */
bool ig_check_request_id(const char *text);
/* Whether a role may request this path: an administrator any, a user /, /healthz and /v1/ without
 * /v1/ingot/, a monitor /metrics and /healthz alone. */
bool ig_check_role(enum ig_role role, const char *path);
/* Whether an address (configured, or a peer's) is a loopback address. */
bool ig_check_loopback(const char *address);
