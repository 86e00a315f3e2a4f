/*
 * head.c: the head of a request, and the checks before any of it is used.  A request is refused, and
 * its connection closed, where two readers could disagree about where it ends.
 */
#include "daemon/net/net_private.h"

#include "base/clock.h"
#include "base/random.h"
#include "daemon/net/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_QUERY 1023

static const char *const methods[] = { "GET", "POST",  "OPTIONS", "HEAD",
				       "PUT", "PATCH", "DELETE",  NULL };

/* The client's x-request-id, or a new one. */
static void read_request_id(struct conn *c, const char *data, size_t len)
{
	unsigned char raw[12] = { 0 }; /* only to find a line of the log: zeros are harmless */

	if (ig_head_peek(data, len, "x-request-id", c->request_id, sizeof c->request_id) &&
	    ig_check_request_id(c->request_id))
		return;
	ig_random_bytes(raw, sizeof raw);
	int n = snprintf(c->request_id, sizeof c->request_id, "req_");
	for (size_t i = 0; i < sizeof raw; i++)
		n += snprintf(c->request_id + n, sizeof c->request_id - (size_t)n, "%02x", raw[i]);
}

static int refuse_syntax(enum ig_head_rc rc, struct refusal *why)
{
	switch (rc) {
	case IG_HEAD_LONG_LINE:
		return ig_refuse(why, 414, "uri_too_long",
				 "The request line is longer than 8 KiB or server.max_header.");
	case IG_HEAD_TOO_LONG:
		return ig_refuse(why, 431, "header_too_large",
				 "The request's head is larger than server.max_header.");
	case IG_HEAD_BAD_FIELD:
		return ig_refuse(why, 400, "invalid_header",
				 "A header's name has a blank beside it, a line is folded or does "
				 "not end in CR LF, or there are control characters.");
	default:
		return ig_refuse(why, 400, "invalid_request_line",
				 "The request line is not a method, a path and a version of HTTP "
				 "with one blank between them, ended by CR LF.");
	}
}

static char *replace(char **text, const char *with)
{
	free(*text);
	return *text = strdup(with);
}

static int read_line(struct conn *c, struct refusal *why)
{
	const char *const *m = methods;
	char *path, *query;

	c->is_1_1 = !strcmp(c->head.version, "HTTP/1.1");
	if (!c->is_1_1 && strcmp(c->head.version, "HTTP/1.0"))
		return ig_refuse(why, 505, "http_version_not_supported",
				 "Only HTTP 1.1 and 1.0 are supported.");
	while (*m && strcmp(*m, c->head.method))
		m++;
	if (!*m)
		return ig_refuse(why, 501, "unknown_method", "The method is not known.");
	snprintf(c->method, sizeof c->method, "%s", *m);
	if (!ig_head_target(c->head.target, &path, &query) || !ig_utf8_valid(path, strlen(path)))
		return ig_refuse(why, 400, "invalid_url",
				 "The request target is not a path, or it is wrongly escaped, or "
				 "not UTF-8.");
	if (!replace(&c->path, path) || !replace(&c->query, query))
		return ig_refuse(why, 500, "server_error", "The server is out of memory.");
	return 0;
}

int ig_head_begin(struct conn *c, char *data, size_t len, enum ig_head_rc rc, struct refusal *why)
{
	c->reading_head = c->reading_body = c->head_written = c->head_only = c->is_chunked = false;
	c->keep_open = false;
	c->in_len = 0;
	c->length = 0;
	c->chunked = (struct ig_chunked){ 0 };
	c->since_ns = ig_now_ns();
	c->method[0] = c->origin[0] = 0;
	c->who = (struct ig_principal){ 0 };
	free(c->path);
	c->path = NULL;
	read_request_id(c, data, len);
	enum ig_head_rc parsed = ig_head_parse(data, len, &c->head);
	if (rc == IG_HEAD_WHOLE)
		rc = parsed;
	if (!c->head.version)
		return refuse_syntax(rc, why);
	int status = read_line(c, why);
	if (!status && rc != IG_HEAD_WHOLE)
		status = refuse_syntax(rc, why);
	if (status)
		return status;
	/* HTTP/1.1 connections stay open by default, those of 1.0 do not. */
	const char *connection = ig_head_field(&c->head, "connection", NULL);
	c->keep_open = c->is_1_1 && (!connection || !strcasecmp(connection, "keep-alive"));
	return 0;
}

/* A field's value; 1: present, 0: absent, -1: too long, or there are several. */
static int header(struct conn *c, const char *name, char *out, size_t cap)
{
	size_t n;
	const char *value = ig_head_field(&c->head, name, &n);

	out[0] = 0;
	if (!value)
		return 0;
	if (n > 1 || strlen(value) >= cap)
		return -1;
	memcpy(out, value, strlen(value) + 1);
	return 1;
}

int ig_head_check(struct conn *c, struct refusal *why)
{
	const struct ig_config *config = c->net->config;
	char host[300];
	size_t n_hosts;

	if (c->over_limit)
		return ig_refuse(why, 503, "too_many_connections",
				 "Too many connections; server.max_connections limits them.");
	if (strlen(c->query) > MAX_QUERY)
		return ig_refuse(why, 414, "query_too_long", "The query is too long.");
	ig_head_field(&c->head, "host", &n_hosts);
	int n = header(c, "host", host, sizeof host);
	if (n_hosts > 1 || strchr(host, ','))
		return ig_refuse(why, 400, "invalid_host", "There are several Host headers.");
	if (n < 0)
		return ig_refuse(why, 400, "invalid_host", "The Host header is too long.");
	/* In HTTP/1.0, which no browser speaks but health checks of proxies do, it may be absent. */
	if (!host[0] && (n || c->is_1_1))
		return ig_refuse(why, 400, "invalid_host", "The Host header is missing.");
	/* Web pages can't reach a unix socket, and its Host header has no meaning. */
	if (n && !c->local &&
	    !ig_check_host(host, config->server.host, config->server.allowed_hosts))
		return ig_refuse(
			why, 403, "host_not_allowed",
			"The Host header names another host; server.allowed_hosts lists those "
			"that are allowed besides the loopback names.");
	n = header(c, "origin", c->origin, sizeof c->origin);
	if (n && (n < 0 || (!ig_check_own_origin(c->origin, host, config->server.host,
						 config->server.allowed_hosts, c->port) &&
			    !ig_check_origin(c->origin, config->server.allowed_origins)))) {
		c->origin[0] = 0;
		return ig_refuse(why, 403, "origin_not_allowed",
				 "Requests of web pages are refused but from the server's own and "
				 "from those that server.allowed_origins lists.");
	}
	return 0;
}

static int check_encoding(struct conn *c, struct refusal *why)
{
	char text[32];

	int n = header(c, "transfer-encoding", text, sizeof text);
	if (!n)
		return 0;
	if (ig_head_field(&c->head, "content-length", NULL))
		return ig_refuse(
			why, 400, "invalid_content_length",
			"A request has a Content-Length or a Transfer-Encoding, not both.");
	if (n < 0 || strcasecmp(text, "chunked"))
		return ig_refuse(why, 501, "unsupported_transfer_encoding",
				 "The only Transfer-Encoding that is supported is chunked.");
	if (strcmp(c->method, "POST") || !c->is_1_1)
		return ig_refuse(why, 400, "unexpected_body",
				 "Only a POST may have a chunked body, and only in HTTP 1.1.");
	c->is_chunked = true;
	return 0;
}

int ig_head_check_body(struct conn *c, struct refusal *why)
{
	bool post = !strcmp(c->method, "POST");
	char text[32];

	int status = check_encoding(c, why);
	if (status || c->is_chunked)
		return status;
	int n = header(c, "content-length", text, sizeof text);
	if (!n && post)
		return ig_refuse(why, 411, "length_required",
				 "A POST has a Content-Length or a chunked body.");
	/* Some expect a body of these that ends with the connection. */
	if (!n && (!strcmp(c->method, "PUT") || !strcmp(c->method, "PATCH")))
		c->keep_open = false;
	if (n && (n < 0 || !ig_check_length(text, &c->length)))
		return ig_refuse(why, 400, "invalid_content_length",
				 "The Content-Length is not a number.");
	if (c->length > c->net->config->server.max_body)
		return ig_refuse(why, 413, "body_too_large",
				 "The body is larger than server.max_body.");
	if (c->length && !post)
		return ig_refuse(why, 400, "unexpected_body", "Only a POST may have a body.");
	return 0;
}

int ig_head_check_handshake(struct conn *c, const char *to, struct refusal *why)
{
	char text[256];

	if (strcasecmp(to, "websocket") || strcmp(c->method, "GET") || !c->is_1_1)
		return ig_refuse(
			why, 400, "unsupported_upgrade",
			"Only a GET can be upgraded, only in HTTP 1.1 and only to a WebSocket.");
	if (!ig_head_has_token(&c->head, "connection", "upgrade"))
		return ig_refuse(why, 400, "invalid_handshake",
				 "The Connection header does not say Upgrade.");
	if (!ig_api_is_websocket(c->net->api, c->path))
		return ig_refuse(why, 404, "not_found",
				 "There is no WebSocket at this path; there are /v1/responses and "
				 "/v1/ingot/events.");
	if (header(c, "sec-websocket-version", text, sizeof text) <= 0 || strcmp(text, "13"))
		return ig_refuse(why, 426, "unsupported_websocket_version",
				 "Sec-WebSocket-Version must be 13.");
	/* 16 bytes in base64. */
	if (header(c, "sec-websocket-key", text, sizeof text) <= 0 || strlen(text) != 24 ||
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			 "0123456789+/") != 22 ||
	    strcmp(text + 22, "=="))
		return ig_refuse(why, 400, "invalid_handshake",
				 "Sec-WebSocket-Key must be 16 bytes in base64.");
	if (ig_head_field(&c->head, "sec-websocket-protocol", NULL) &&
	    !ig_head_has_token(&c->head, "sec-websocket-protocol", "ingot"))
		return ig_refuse(why, 400, "unsupported_subprotocol",
				 "The only Sec-WebSocket-Protocol is ingot; it may be left out.");
	return 0;
}
