/*
 * endpoint.h: where the daemon is: from --url, $INGOT_URL, or a configuration.
 */
#ifndef INGOT_CLI_ENDPOINT_H
#define INGOT_CLI_ENDPOINT_H

#include <ingot/op.h>
#include <stdbool.h>

#define IG_DEFAULT_URL "http://127.0.0.1:6468"

struct ig_endpoint {
	char host[256]; /* a name or an address, without brackets */
	uint16_t port;
	char authority[272]; /* host:port as in a Host header */
	char url[288]; /* http://host:port */
};

/* http:// or ws://, host, optional port, optional / or /v1 at the end. */
int ig_endpoint_parse(const char *url, struct ig_endpoint *out, struct ig_error *err);
/* From its parts; host without brackets. */
int ig_endpoint_set(struct ig_endpoint *e, const char *host, uint32_t port, struct ig_error *err);
/* The first that is there of: url, the configuration `config`, $INGOT_URL, the
 * configuration found in the usual places, IG_DEFAULT_URL. */
int ig_endpoint_find(const char *url, const char *config, struct ig_endpoint *out,
		     struct ig_error *err);
/* "nothing answers at URL (why)", and what to do. */
void ig_endpoint_complain_absent(const struct ig_endpoint *e, const char *why);

#endif
