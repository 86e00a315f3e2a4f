/* check.h: is this request meant for us?  Pure functions over header values. */
#ifndef INGOT_NET_CHECK_H
#define INGOT_NET_CHECK_H

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

#endif
