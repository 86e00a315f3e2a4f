/* endpoint.h: the daemon's address, from --url, $INGOT_URL or a configuration; the API key, from
 * --api-key-file, $INGOT_API_KEY or --api-key; the certificates to trust. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#define IG_DEFAULT_URL "http://127.0.0.1:6468"

struct ig_endpoint {
	char host[256]; /* a name or an address, without brackets; localhost for a unix socket */
	uint16_t port;
	bool tls;
	char socket[104];    /* path of a unix socket; "": TCP (macOS allows 103 bytes) */
	char authority[272]; /* host:port as in a Host header */
	char url[288];	     /* for messages: http://host:port, unix:/path */
	char api_key[520];   /* "": none */
	char cacert[1024];   /* a PEM file of certificates to trust; "": the system's */
};

/* The options of each command that connects to the daemon. */
struct ig_where {
	const char *url, *config, *api_key, *api_key_file, *cacert;
};

#define IG_WHERE_OPTIONS(w)                                                                            \
	IG_TEXT("url", 0, &(w)->url, "URL",                                                            \
		"http://, https:// or unix:/PATH (default: $INGOT_URL, ingot.yaml, local port 6468)"), \
		IG_TEXT("config", 'c', &(w)->config, "FILE",                                           \
			"the ingot.yaml with the daemon's address"),                                   \
		IG_TEXT("api-key-file", 0, &(w)->api_key_file, "FILE",                                 \
			"a file whose first line is the API key (default: $INGOT_API_KEY)"),           \
		IG_TEXT("api-key", 0, &(w)->api_key, "KEY",                                            \
			"the API key; stays in the shell's history, so prefer --api-key-file"),        \
		IG_TEXT("cacert", 0, &(w)->cacert, "FILE",                                             \
			"certificates (PEM) to trust for https (default: the system's)")

/* http:// https:// ws:// wss://, host, optional port, optional / or /v1 at the end; or
 * unix:/path.  Sets neither key nor certificates. */
int ig_endpoint_parse(const char *url, struct ig_endpoint *out, struct ig_error *err);
/* The first one given of: url, the configuration `config`, $INGOT_URL, the configuration in the
 * usual places, IG_DEFAULT_URL. */
int ig_endpoint_find(const char *url, const char *config, struct ig_endpoint *out,
		     struct ig_error *err);
/* The same with key and certificates.  A key on the command line is overwritten there, so that
 * the list of processes does not show it. */
int ig_endpoint_open(const struct ig_where *w, struct ig_endpoint *out, struct ig_error *err);
/* Print why a request to the daemon failed with rc, and what to do; 1 as ig_complain. */
int ig_endpoint_complain(const struct ig_endpoint *e, int rc, const char *why);
