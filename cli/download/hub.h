/*
 * hub.h: requests to the Hugging Face Hub, or to what HF_ENDPOINT names: its origin, the token, and
 * what its errors mean.  The token is sent to that origin alone; a redirect to another one is
 * returned, not followed.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <stdbool.h>
#include <stdint.h>

#define IG_HUB_MAX_URL 8192

struct ig_hub {
	char endpoint[480];   /* https://huggingface.co; no slash at its end */
	char token[480];      /* "": none */
	char token_from[480]; /* the variable or the file, for messages */
	bool plain;	      /* http: redirects may be http too */
	int64_t stall_s, retries;
	double retry_wait_s;
};

/* One response.  Texts are printable ASCII; "" is none. */
struct ig_hub_reply {
	long status;
	struct ig_strbuf body;
	char url[IG_HUB_MAX_URL];      /* that answered */
	char location[IG_HUB_MAX_URL]; /* of a redirect to another origin, absolute */
	char next[IG_HUB_MAX_URL];     /* the next page, on the Hub's origin */
	char error_code[64], error_message[240];
	char commit[64], etag[160]; /* X-Repo-Commit, X-Linked-Etag without quotes */
	uint64_t linked_size;	    /* X-Linked-Size; UINT64_MAX: none */
	double wait_s;		    /* of a 429; negative: not said */
};

/* Read HF_ENDPOINT and the token: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH, or the
 * file "token" of HF_HOME. */
int ig_hub_open(struct ig_hub *h, struct ig_error *err);
/* The address below the endpoint, with what a URL may not have encoded; -ENAMETOOLONG. */
int ig_hub_url(const struct ig_hub *h, char *buf, size_t size, struct ig_error *err,
	       const char *first, const char *path, const char *last);
/* GET, or HEAD, of an address of the Hub's origin; redirects within it are followed, 429 and 5xx and
 * broken connections are retried.  0 for a status of 200 to 399, with *out, which the caller
 * finishes in every case; otherwise an error that says what the Hub said about `what`. */
int ig_hub_ask(const struct ig_hub *h, const char *url, bool head, const char *what,
	       struct ig_hub_reply *out, struct ig_error *err);
void ig_hub_reply_finish(struct ig_hub_reply *r);
/* Whether the address has the endpoint's scheme, host and port. */
bool ig_hub_is_own(const struct ig_hub *h, const char *url);
/* Set the options that all transfers have: protocols, redirects, proxy, time limits.  c is a
 * CURL *.  False without memory. */
bool ig_hub_setup(const struct ig_hub *h, void *c, const char *url);
/* Seconds, unless Ctrl-C comes. */
void ig_wait_s(double s);
