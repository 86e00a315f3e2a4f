/*
 * endpoint.h: where the daemon is and how to get in: from --url, $INGOT_URL, or a
 * configuration; the API key from --api-key-file, $INGOT_API_KEY or --api-key.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#define IG_DEFAULT_URL "http://127.0.0.1:6468"

struct ig_endpoint {
	char host[256]; /* a name or an address, without brackets; localhost for a unix socket */
	uint16_t port;
	bool tls;
	char socket[104];    /* path of a unix socket; "": TCP (macOS takes 103 bytes) */
	char authority[272]; /* host:port as in a Host header */
	char url[288];	     /* as a person would say it: http://host:port, unix:/path */
	char api_key[520];   /* "": none */
	char cacert[1024];   /* a PEM file of certificates to trust; "": the system's */
};

/* The options of each command that asks the daemon. */
struct ig_where {
	const char *url, *config, *api_key, *api_key_file, *cacert;
};

#define IG_WHERE_OPTIONS(w)                                                                             \
	{ "url",                                                                                        \
	  0,                                                                                            \
	  IG_OPT_STRING,                                                                                \
	  &(w)->url,                                                                                    \
	  NULL,                                                                                         \
	  "URL",                                                                                        \
	  "the daemon: http://, https://, unix:/PATH (default: $INGOT_URL, ingot.yaml, " IG_DEFAULT_URL \
	  ")" },                                                                                        \
		{ "config",                                                                             \
		  'c',                                                                                  \
		  IG_OPT_STRING,                                                                        \
		  &(w)->config,                                                                         \
		  NULL,                                                                                 \
		  "FILE",                                                                               \
		  "the ingot.yaml that says where the daemon is" },                                     \
		{ "api-key-file",                                                                       \
		  0,                                                                                    \
		  IG_OPT_STRING,                                                                        \
		  &(w)->api_key_file,                                                                   \
		  NULL,                                                                                 \
		  "FILE",                                                                               \
		  "the API key is this file's first line (default: $INGOT_API_KEY)" },                  \
		{ "api-key",                                                                            \
		  0,                                                                                    \
		  IG_OPT_STRING,                                                                        \
		  &(w)->api_key,                                                                        \
		  NULL,                                                                                 \
		  "KEY",                                                                                \
		  "the API key; it stays in the shell's history, prefer the above" },                   \
		{ "cacert",                                                                             \
		  0,                                                                                    \
		  IG_OPT_STRING,                                                                        \
		  &(w)->cacert,                                                                         \
		  NULL,                                                                                 \
		  "FILE",                                                                               \
		  "certificates (PEM) to trust for https (default: the system's)" }

/* http:// https:// ws:// wss://, host, optional port, optional / or /v1 at the end; or
 * unix:/path.  No key, no certificates. */
int ig_endpoint_parse(const char *url, struct ig_endpoint *out, struct ig_error *err);
/* The first that is there of: url, the configuration `config`, $INGOT_URL, the
 * configuration found in the usual places, IG_DEFAULT_URL. */
int ig_endpoint_find(const char *url, const char *config, struct ig_endpoint *out,
		     struct ig_error *err);
/* The same with key and certificates.  A key on the command line is blotted out there,
 * so that it does not show among the processes. */
int ig_endpoint_open(const struct ig_where *w, struct ig_endpoint *out, struct ig_error *err);
/* "nothing answers at URL (why)", and what to do. */
void ig_endpoint_complain_absent(const struct ig_endpoint *e, const char *why);
