/*
 * head.c: the head of a request, and the checks before any of it is used.  libwebsockets takes a
 * length and a transfer encoding together, any version and any Upgrade.  A request is refused, and
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

static const struct {
	enum lws_token_indexes token;
	const char *name;
} methods[] = {
	{ WSI_TOKEN_GET_URI, "GET" },	      { WSI_TOKEN_POST_URI, "POST" },
	{ WSI_TOKEN_OPTIONS_URI, "OPTIONS" }, { WSI_TOKEN_HEAD_URI, "HEAD" },
	{ WSI_TOKEN_PUT_URI, "PUT" },	      { WSI_TOKEN_PATCH_URI, "PATCH" },
	{ WSI_TOKEN_DELETE_URI, "DELETE" },   { WSI_TOKEN_CONNECT, "CONNECT" },
};

/* A header's value; 1: present, 0: absent, -1: too long or with a NUL in it. */
static int header(struct conn *c, enum lws_token_indexes token, char *out, size_t cap)
{
	int n = lws_hdr_total_length(c->wsi, token);

	out[0] = 0;
	if (n <= 0)
		return 0;
	/* Values of a repeated header are joined by a comma. */
	n = lws_hdr_copy(c->wsi, out, (int)cap, token);
	return n > 0 && strlen(out) == (size_t)n ? 1 : -1;
}

/* The client's x-request-id, or a new one. */
static void read_request_id(struct conn *c)
{
	static const char name[] = "x-request-id:";
	unsigned char raw[12] = { 0 }; /* only to find a line of the log: zeros are harmless */
	int n = lws_hdr_custom_copy(c->wsi, c->request_id, sizeof c->request_id, name,
				    sizeof name - 1);

	if (n > 0 && strlen(c->request_id) == (size_t)n && ig_check_request_id(c->request_id))
		return;
	ig_random_bytes(raw, sizeof raw);
	n = snprintf(c->request_id, sizeof c->request_id, "req_");
	for (size_t i = 0; i < sizeof raw; i++)
		n += snprintf(c->request_id + n, sizeof c->request_id - (size_t)n, "%02x", raw[i]);
}

void ig_head_begin(struct conn *c)
{
	char text[64], version[16];

	c->reading_body = c->head_written = c->head_only = c->ended = c->is_chunked = false;
	c->in_len = 0;
	c->chunked = (struct ig_chunked){ 0 };
	c->since_ns = ig_now_ns();
	/* HTTP/1.1 connections stay open by default, those of 1.0 do not. */
	c->is_1_1 = header(c, WSI_TOKEN_HTTP, version, sizeof version) > 0 &&
		    !strcmp(version, "HTTP/1.1");
	c->keep_open = c->is_1_1;
	read_request_id(c);
	if (header(c, WSI_TOKEN_CONNECTION, text, sizeof text) && strcasecmp(text, "keep-alive"))
		c->keep_open = false;
}

/* Whether a list of tokens, such as Connection's, has this one. */
static bool has_token(const char *list, const char *token)
{
	size_t n = strlen(token);

	while (*list) {
		size_t skip = strspn(list, " \t,"), len = strcspn(list + skip, ", \t");
		if (len == n && !strncasecmp(list + skip, token, n))
			return true;
		list += skip + len;
	}
	return false;
}

#if LWS_LIBRARY_VERSION_NUMBER >= 4003000
static bool is_name(const char *name, size_t n)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < n; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		      (name[i] >= '0' && name[i] <= '9') || (name[i] && strchr(others, name[i]))))
			return false;
	return n > 0;
}

/* name includes the colon. */
static void check_name(const char *name, int n, void *bad)
{
	if (n < 2 || !is_name(name, (size_t)n - 1))
		*(bool *)bad = true;
}

static bool has_bad_name(struct conn *c)
{
	bool bad = false;

	lws_hdr_custom_name_foreach(c->wsi, check_name, &bad);
	return bad;
}
#else
/* Older libwebsockets does not list unknown names.  A name with a blank beside it is unknown,
 * and a folded line begins with a blank: query those that define where a request ends or
 * which host it is for. */
static bool has_bad_name(struct conn *c)
{
	static const char *const names[] = { "transfer-encoding", "content-length", "host",
					     "connection", "upgrade" };
	static const char *const beside[][2] = {
		{ "", " " }, { "", "\t" }, { " ", "" }, { "\t", "" }
	};
	char name[40];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		for (size_t j = 0; j < sizeof beside / sizeof beside[0]; j++) {
			int n = snprintf(name, sizeof name, "%s%s%s:", beside[j][0], names[i],
					 beside[j][1]);
			if (lws_hdr_custom_length(c->wsi, name, n) >= 0)
				return true;
		}
	return false;
}
#endif

static int read_line(struct conn *c, struct refusal *why)
{
	c->method[0] = 0;
	free(c->path);
	c->path = NULL;
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		int n = lws_hdr_total_length(c->wsi, methods[i].token);
		if (n <= 0)
			continue;
		snprintf(c->method, sizeof c->method, "%s", methods[i].name);
		c->path = malloc((size_t)n + 1);
		if (!c->path)
			return 500;
		if (lws_hdr_copy(c->wsi, c->path, n + 1, methods[i].token) < 0)
			c->path[0] = 0;
		break;
	}
	if (c->path && ig_utf8_valid(c->path, strlen(c->path)))
		return 0;
	return ig_refuse(why, 400, "invalid_url",
			 c->path ? "The path is not UTF-8." : "The method is not known.");
}

/* The syntax of a head, which all readers must understand alike. */
static int check_syntax(struct conn *c, struct refusal *why)
{
	char version[16];

	int status = read_line(c, why);
	if (status)
		return status;
	int n = header(c, WSI_TOKEN_HTTP, version, sizeof version);
	if (n <= 0 || strncmp(version, "HTTP/", 5))
		return ig_refuse(why, 400, "invalid_request_line",
				 "The request line has no HTTP version.");
	if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0"))
		return ig_refuse(why, 505, "http_version_not_supported",
				 "Only HTTP 1.1 and 1.0 are supported.");
	if (has_bad_name(c))
		return ig_refuse(why, 400, "invalid_header",
				 "A header's name has a blank beside it, or a line is folded.");
	return 0;
}

int ig_head_check(struct conn *c, struct refusal *why)
{
	const struct ig_config *config = c->net->config;
	char host[300];

	c->origin[0] = 0;
	int status = check_syntax(c, why);
	if (status)
		return status;
	if (c->over_limit)
		return ig_refuse(why, 503, "too_many_connections",
				 "Too many connections; server.max_connections limits them.");
	int n = header(c, WSI_TOKEN_HOST, host, sizeof host);
	if (n <= 0)
		return ig_refuse(why, 400, "invalid_host",
				 n ? "The Host header is too long." :
				     "The Host header is missing.");
	if (strchr(host, ','))
		return ig_refuse(why, 400, "invalid_host", "There are several Host headers.");
	/* Web pages can't reach a unix socket, and its Host header has no meaning. */
	if (!c->local && !ig_check_host(host, config->server.host, config->server.allowed_hosts))
		return ig_refuse(
			why, 403, "host_not_allowed",
			"The Host header names another host; server.allowed_hosts lists those "
			"that are allowed besides the loopback names.");
	n = header(c, WSI_TOKEN_ORIGIN, c->origin, sizeof c->origin);
	if (n && (n < 0 || !ig_check_origin(c->origin, config->server.allowed_origins))) {
		c->origin[0] = 0;
		return ig_refuse(why, 403, "origin_not_allowed",
				 "Requests of web pages are refused but from those that "
				 "server.allowed_origins lists.");
	}
	return 0;
}

static int check_encoding(struct conn *c, struct refusal *why)
{
	char text[32];

	int n = header(c, WSI_TOKEN_HTTP_TRANSFER_ENCODING, text, sizeof text);
	if (!n)
		return 0;
	if (lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0)
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
	/* libwebsockets takes it for a body without an end. */
	c->keep_open = false;
	return 0;
}

int ig_head_check_body(struct conn *c, struct refusal *why)
{
	bool post = !strcmp(c->method, "POST");
	char text[32];

	c->length = 0;
	int status = check_encoding(c, why);
	if (status || c->is_chunked)
		return status;
	int n = header(c, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof text);
	if (!n && post)
		return ig_refuse(why, 411, "length_required",
				 "A POST has a Content-Length or a chunked body.");
	/* libwebsockets would wait for a body of these. */
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

/* libwebsockets has split it at each "&" and decoded %XX. */
bool ig_head_query(struct conn *c, char *out, size_t cap)
{
	size_t len = 0;

	out[0] = 0;
	for (int i = 0; lws_hdr_fragment_length(c->wsi, WSI_TOKEN_HTTP_URI_ARGS, i) > 0; i++) {
		int n = lws_hdr_fragment_length(c->wsi, WSI_TOKEN_HTTP_URI_ARGS, i);
		if ((size_t)n + 2 > cap - len)
			return false;
		if (len)
			out[len++] = '&';
		n = lws_hdr_copy_fragment(c->wsi, out + len, (int)(cap - len),
					  WSI_TOKEN_HTTP_URI_ARGS, i);
		if (n < 0)
			return false;
		len += (size_t)n;
	}
	out[len] = 0;
	return true;
}

/* libwebsockets closes without a reply on a handshake that it refuses. */
int ig_head_check_handshake(struct conn *c, const char *to, struct refusal *why)
{
	char text[256];

	if (strcasecmp(to, "websocket") || strcmp(c->method, "GET") || !c->is_1_1)
		return ig_refuse(
			why, 400, "unsupported_upgrade",
			"Only a GET can be upgraded, only in HTTP 1.1 and only to a WebSocket.");
	if (header(c, WSI_TOKEN_CONNECTION, text, sizeof text) <= 0 || !has_token(text, "upgrade"))
		return ig_refuse(why, 400, "invalid_handshake",
				 "The Connection header does not say Upgrade.");
	if (!ig_api_is_websocket(c->net->api, c->path))
		return ig_refuse(why, 404, "not_found",
				 "There is no WebSocket at this path; it is at /v1/responses.");
	if (header(c, WSI_TOKEN_VERSION, text, sizeof text) <= 0 || strcmp(text, "13"))
		return ig_refuse(why, 426, "unsupported_websocket_version",
				 "Sec-WebSocket-Version must be 13.");
	/* 16 bytes in base64. */
	if (header(c, WSI_TOKEN_KEY, text, sizeof text) <= 0 || strlen(text) != 24 ||
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			 "0123456789+/") != 22 ||
	    strcmp(text + 22, "=="))
		return ig_refuse(why, 400, "invalid_handshake",
				 "Sec-WebSocket-Key must be 16 bytes in base64.");
	int n = header(c, WSI_TOKEN_PROTOCOL, text, sizeof text);
	if (n && (n < 0 || !has_token(text, "ingot")))
		return ig_refuse(why, 400, "unsupported_subprotocol",
				 "The only Sec-WebSocket-Protocol is ingot; it may be left out.");
	return 0;
}
