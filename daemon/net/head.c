/*
 * head.c: the head of a request: what of it is checked before any of it is believed.
 *
 * libwebsockets takes a length and a transfer encoding together, any version and any
 * Upgrade.  Where two readers could disagree about where a request ends, it is refused and
 * the connection with it.
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

/* A header's value; 1 there, 0 absent, -1 too long or with a NUL in it. */
static int header(struct conn *c, enum lws_token_indexes token, char *out, size_t cap)
{
	int n = lws_hdr_total_length(c->wsi, token);

	out[0] = 0;
	if (n <= 0)
		return 0;
	/* Parts of a repeated header come joined by a comma. */
	n = lws_hdr_copy(c->wsi, out, (int)cap, token);
	return n > 0 && strlen(out) == (size_t)n ? 1 : -1;
}

/* The client's own, by which it finds a request again, or one of ours. */
static void read_request_id(struct conn *c)
{
	static const char name[] = "x-request-id:";
	unsigned char raw[12] = { 0 }; /* for people to find a line by: zeros would do no harm */
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
	/* HTTP/1.1 stays open unless it says otherwise, 1.0 does not. */
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

/* The name comes with its colon. */
static void judge_name(const char *name, int n, void *bad)
{
	if (n < 2 || !is_name(name, (size_t)n - 1))
		*(bool *)bad = true;
}

static bool has_bad_name(struct conn *c)
{
	bool bad = false;

	lws_hdr_custom_name_foreach(c->wsi, judge_name, &bad);
	return bad;
}
#else
/* Older libwebsockets does not list the names that it does not know.  A blank beside a
 * name makes it one of those, and a line that is folded begins with one: asked for are
 * those that say where a request ends or whom it is for. */
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

static int read_line(struct conn *c, const char **code, const char **message)
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
	*code = "invalid_url";
	*message = c->path ? "The path is not UTF-8." : "The method is not known.";
	return 400;
}

/* The form of a head: what makes it one that everybody reads alike. */
static int check_form(struct conn *c, const char **code, const char **message)
{
	char version[16];

	int status = read_line(c, code, message);
	if (status)
		return status;
	int n = header(c, WSI_TOKEN_HTTP, version, sizeof version);
	if (n <= 0 || strncmp(version, "HTTP/", 5)) {
		*code = "invalid_request_line";
		*message = "The request line has no HTTP version.";
		return 400;
	}
	if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0")) {
		*code = "http_version_not_supported";
		*message = "Only HTTP 1.1 and 1.0 are spoken here.";
		return 505;
	}
	if (has_bad_name(c)) {
		*code = "invalid_header";
		*message = "A header's name has a blank beside it, or a line is folded.";
		return 400;
	}
	return 0;
}

/* What holds for HTTP and for the upgrade alike.  0, or a status with its text. */
int ig_head_check(struct conn *c, const char **code, const char **message)
{
	const struct ig_config *config = c->net->config;
	char host[300];

	c->origin[0] = 0;
	int status = check_form(c, code, message);
	if (status)
		return status;
	if (c->over_limit) {
		*code = "too_many_connections";
		*message = "Too many connections; server.max_connections limits them.";
		return 503;
	}
	int n = header(c, WSI_TOKEN_HOST, host, sizeof host);
	if (n <= 0) {
		*code = "invalid_host";
		*message = n ? "The Host header is too long." : "The Host header is missing.";
		return 400;
	}
	if (strchr(host, ',')) {
		*code = "invalid_host";
		*message = "There are several Host headers.";
		return 400;
	}
	/* No page reaches a unix socket, and what is in Host there is made up. */
	if (!c->local && !ig_check_host(host, config->server.host, config->server.allowed_hosts)) {
		*code = "host_not_allowed";
		*message = "The Host header names another host; server.allowed_hosts lists those "
			   "that are allowed besides the loopback names.";
		return 403;
	}
	n = header(c, WSI_TOKEN_ORIGIN, c->origin, sizeof c->origin);
	if (n && (n < 0 || !ig_check_origin(c->origin, config->server.allowed_origins))) {
		c->origin[0] = 0;
		*code = "origin_not_allowed";
		*message = "Requests of web pages are refused but from those that "
			   "server.allowed_origins lists.";
		return 403;
	}
	return 0;
}

static int check_encoding(struct conn *c, const char **code, const char **message)
{
	char text[32];

	int n = header(c, WSI_TOKEN_HTTP_TRANSFER_ENCODING, text, sizeof text);
	if (!n)
		return 0;
	if (lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0) {
		*code = "invalid_content_length";
		*message = "A request has a Content-Length or a Transfer-Encoding, not both.";
		return 400;
	}
	if (n < 0 || strcasecmp(text, "chunked")) {
		*code = "unsupported_transfer_encoding";
		*message = "The only Transfer-Encoding that is supported is chunked.";
		return 501;
	}
	if (strcmp(c->method, "POST") || !c->is_1_1) {
		*code = "unexpected_body";
		*message = "Only a POST may have a chunked body, and only in HTTP 1.1.";
		return 400;
	}
	c->is_chunked = true;
	/* To libwebsockets it is a body without an end. */
	c->keep_open = false;
	return 0;
}

/* The length of what follows; libwebsockets has not judged any of it. */
int ig_head_check_body(struct conn *c, const char **code, const char **message)
{
	bool post = !strcmp(c->method, "POST");
	char text[32];

	c->length = 0;
	int status = check_encoding(c, code, message);
	if (status || c->is_chunked)
		return status;
	int n = header(c, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof text);
	if (!n && post) {
		*code = "length_required";
		*message = "A POST has a Content-Length or a chunked body.";
		return 411;
	}
	/* To libwebsockets these have a body, then, and it would wait for it. */
	if (!n && (!strcmp(c->method, "PUT") || !strcmp(c->method, "PATCH")))
		c->keep_open = false;
	if (n && (n < 0 || !ig_check_length(text, &c->length))) {
		*code = "invalid_content_length";
		*message = "The Content-Length is not a number.";
		return 400;
	}
	if (c->length > c->net->config->server.max_body) {
		*code = "body_too_large";
		*message = "The body is larger than server.max_body.";
		return 413;
	}
	if (c->length && !post) {
		*code = "unexpected_body";
		*message = "Only a POST may have a body.";
		return 400;
	}
	return 0;
}

/* libwebsockets has cut it at each "&" and undone %XX; false: it is too long. */
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

/* Of a WebSocket's handshake libwebsockets answers what it does not like with silence. */
int ig_head_check_handshake(struct conn *c, const char *to, const char **code, const char **message)
{
	char text[256];

	if (strcasecmp(to, "websocket") || strcmp(c->method, "GET") || !c->is_1_1) {
		*code = "unsupported_upgrade";
		*message = "Only a GET can be upgraded, only in HTTP 1.1 and only to a WebSocket.";
		return 400;
	}
	if (header(c, WSI_TOKEN_CONNECTION, text, sizeof text) <= 0 ||
	    !has_token(text, "upgrade")) {
		*code = "invalid_handshake";
		*message = "The Connection header does not say Upgrade.";
		return 400;
	}
	if (!ig_api_is_websocket(c->net->api, c->path)) {
		*code = "not_found";
		*message = "There is no WebSocket at this path; it is at /v1/responses.";
		return 404;
	}
	if (header(c, WSI_TOKEN_VERSION, text, sizeof text) <= 0 || strcmp(text, "13")) {
		*code = "unsupported_websocket_version";
		*message = "Sec-WebSocket-Version must be 13.";
		return 426;
	}
	/* 16 bytes in base64. */
	if (header(c, WSI_TOKEN_KEY, text, sizeof text) <= 0 || strlen(text) != 24 ||
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			 "0123456789+/") != 22 ||
	    strcmp(text + 22, "==")) {
		*code = "invalid_handshake";
		*message = "Sec-WebSocket-Key must be 16 bytes in base64.";
		return 400;
	}
	int n = header(c, WSI_TOKEN_PROTOCOL, text, sizeof text);
	if (n && (n < 0 || !has_token(text, "ingot"))) {
		*code = "unsupported_subprotocol";
		*message = "The only Sec-WebSocket-Protocol is ingot; it may be left out.";
		return 400;
	}
	return 0;
}
