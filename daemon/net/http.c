/*
 * http.c: HTTP/1.1 over libwebsockets: what of a request is checked before any of
 * it is believed, bodies in, replies out.
 *
 * libwebsockets does not decode chunked bodies (chunked.c does), takes a length and a
 * transfer encoding together, takes any version and any Upgrade, and closes a socket
 * with a reset when bytes were unread.  So a request that is refused at its head gets
 * its reply at once, then our side of the socket is shut and what still comes is thrown
 * away for a moment.  Where two readers could disagree about where a request ends, it
 * is refused and the connection with it.
 */
#include "daemon/net/net_private.h"

#include "base/clock.h"
#include "daemon/net/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#ifdef __linux__
#include <sys/random.h>
#endif

/* How long the rest of a refused body is read away. */
#define LINGER_S 2
/* About so much is written at a time. */
#define PIECE 16384
/* A body may take so long, and a second more for each KiB that has come: whoever drips
 * holds a connection no longer than whoever is silent. */
#define BODY_GRACE_S 20
#define BODY_BYTES_S 1024

static const struct {
	enum lws_token_indexes token;
	const char *name;
} methods[] = {
	{ WSI_TOKEN_GET_URI, "GET" },	      { WSI_TOKEN_POST_URI, "POST" },
	{ WSI_TOKEN_OPTIONS_URI, "OPTIONS" }, { WSI_TOKEN_HEAD_URI, "HEAD" },
	{ WSI_TOKEN_PUT_URI, "PUT" },	      { WSI_TOKEN_PATCH_URI, "PATCH" },
	{ WSI_TOKEN_DELETE_URI, "DELETE" },   { WSI_TOKEN_CONNECT, "CONNECT" },
};

static const char *reason_phrase(int status)
{
	static const struct {
		int status;
		const char *text;
	} phrases[] = {
		{ 200, "OK" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 411, "Length Required" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 426, "Upgrade Required" },
		{ 429, "Too Many Requests" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
		if (phrases[i].status == status)
			return phrases[i].text;
	return status < 500 ? "Error" : "Server Error";
}

/* ---- replies ------------------------------------------------------------------------ */

static void request_id(char *out, size_t cap)
{
	unsigned char raw[12];
	size_t n = (size_t)snprintf(out, cap, "req_");

#ifdef __linux__
	/* An id for people to find a line by: zeros would do no harm. */
	memset(raw, 0, sizeof raw);
	ssize_t got = getrandom(raw, sizeof raw, 0);
	(void)got;
#else
	arc4random_buf(raw, sizeof raw);
#endif
	for (size_t i = 0; i < sizeof raw; i++)
		n += (size_t)snprintf(out + n, cap - n, "%02x", raw[i]);
}

static void common_headers(struct conn *c, int status)
{
	char id[40];

	request_id(id, sizeof id);
	ig_strbuf_printf(&c->out, "HTTP/1.1 %d %s\r\nx-request-id: %s\r\n", status,
			 reason_phrase(status), id);
	if (c->origin[0])
		ig_strbuf_printf(&c->out,
				 "access-control-allow-origin: %s\r\nvary: origin\r\n"
				 "access-control-expose-headers: x-request-id, retry-after\r\n",
				 c->origin);
	if (status == 426)
		ig_strbuf_puts(&c->out, "upgrade: websocket\r\nsec-websocket-version: 13\r\n"
					"connection: upgrade, ");
	else
		ig_strbuf_puts(&c->out, "connection: ");
	ig_strbuf_puts(&c->out, c->keep_open ? "keep-alive\r\n" : "close\r\n");
}

static void write_head(struct conn *c, const struct ig_http_head *h)
{
	/* A stream ends with its connection, and a drain ends every connection. */
	if (h->length < 0 || c->net->draining)
		c->keep_open = false;
	common_headers(c, h->status);
	ig_strbuf_printf(&c->out, "content-type: %s\r\n", h->content_type);
	if (h->length >= 0)
		ig_strbuf_printf(&c->out, "content-length: %lld\r\n", (long long)h->length);
	else
		ig_strbuf_puts(&c->out, "cache-control: no-cache\r\nx-accel-buffering: no\r\n");
	if (h->allow)
		ig_strbuf_printf(&c->out, "allow: %s\r\n", h->allow);
	if (h->retry_after_s)
		ig_strbuf_printf(&c->out, "retry-after: %u\r\n", h->retry_after_s);
	if (h->status == 401)
		ig_strbuf_puts(&c->out, "www-authenticate: Bearer realm=\"ingot\"\r\n");
	ig_strbuf_puts(&c->out, "\r\n");
	c->head_written = true;
}

void ig_http_finish(struct conn *c)
{
	ig_exchange_end(c->exchange);
	c->exchange = NULL;
}

/* Nothing more from us; the rest of the request is read and dropped, so that the
 * reply is not lost to a reset. */
static int linger(struct conn *c)
{
	c->lingering = true;
	c->since_ns = ig_now_ns();
	shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_SHUTDOWN_FLUSH, LINGER_S);
	return 0;
}

/* The exchange has its reply: write all of it now and be done with the connection. */
static int reply_now(struct conn *c, bool has_body)
{
	struct ig_http_head h;

	c->keep_open = false;
	if (!c->exchange || !ig_exchange_head(c->exchange, &h) || !ig_conn_begin_out(c))
		return -1;
	write_head(c, &h);
	if (!c->head_only)
		ig_exchange_fill(c->exchange, &c->out);
	bool ok = ig_conn_write(c, LWS_WRITE_HTTP);
	ig_http_finish(c);
	c->blocked_ns = 0;
	return ok && has_body ? linger(c) : -1;
}

/* Refuse at the head of a request. */
static int refuse(struct conn *c, int status, const char *code, const char *message)
{
	struct ig_http_request r = { .method = c->method,
				     .path = c->path ? c->path : "",
				     .client = c->client,
				     .who = c->who };

	/* What came with a length or an encoding may have bytes on the way. */
	bool has_body = !strcmp(c->method, "POST") ||
			lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0 ||
			lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0;

	c->exchange = ig_exchange_refuse(c->net->api, status, code, message, &r, c);
	return reply_now(c, has_body);
}

/* ---- heads ---------------------------------------------------------------------------- */

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
static int check_head(struct conn *c, const char **code, const char **message)
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
static int check_body(struct conn *c, const char **code, const char **message)
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

/* A browser asks first whether it may, when the page's origin is one that is listed. */
static int preflight(struct conn *c)
{
	c->keep_open = false;
	if (!ig_conn_begin_out(c))
		return -1;
	common_headers(c, 204);
	/* "*" covers what SDKs add of their own; it does not cover authorization. */
	ig_strbuf_puts(&c->out,
		       "access-control-allow-methods: GET, POST, DELETE\r\n"
		       "access-control-allow-headers: authorization, content-type, x-api-key, "
		       "anthropic-version, anthropic-beta, openai-beta, *\r\n"
		       "access-control-max-age: 600\r\n\r\n");
	ig_conn_write(c, LWS_WRITE_HTTP);
	return -1;
}

/* libwebsockets has cut it at each "&" and undone %XX; false: it is too long. */
static bool read_query(struct conn *c, char *out, size_t cap)
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

static int begin_exchange(struct conn *c, const char *method)
{
	struct ig_http_request r = {
		.method = method, .path = c->path, .client = c->client, .who = c->who
	};
	char query[1024];

	if (!read_query(c, query, sizeof query))
		return refuse(c, 414, "query_too_long", "What follows \"?\" is too long.");
	r.query = query[0] ? query : NULL;
	if (c->reading_body) {
		r.body = ig_conn_take_in(c, &r.body_len);
		c->reading_body = false;
		if (!r.body)
			return -1;
	}
	c->exchange = ig_exchange_begin(c->net->api, &r, c);
	return c->exchange ? 0 : -1;
}

static void begin_request(struct conn *c)
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
	if (header(c, WSI_TOKEN_CONNECTION, text, sizeof text) && strcasecmp(text, "keep-alive"))
		c->keep_open = false;
}

/* The exchange of before has no reply yet.  To keep what follows would mean to stop
 * reading, and libwebsockets would then neither write nor see the client go. */
static int refuse_pipelined(struct conn *c)
{
	if (c->head_written || c->ended)
		return -1;
	ig_exchange_cancel(c->exchange, "client_gone");
	ig_http_finish(c);
	return refuse(c, 400, "pipelining_not_supported",
		      "Bytes came after the request, before its reply: requests of one "
		      "connection are sent one after the other.");
}

static int on_request(struct conn *c)
{
	const char *code = NULL, *message = "The server is out of memory.", *method;

	if (c->exchange)
		return refuse_pipelined(c);
	begin_request(c);
	int status = check_head(c, &code, &message);
	/* A browser that asks whether it may has no key with it. */
	bool asks = !status && !strcmp(c->method, "OPTIONS") && c->origin[0];
	if (!status && !asks)
		status = ig_who_check(c, &code, &message);
	if (!status)
		status = check_body(c, &code, &message);
	if (status)
		return refuse(c, status, code, message);
	/* From here on our own timers decide: a reply may take its time. */
	lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	if (asks)
		return preflight(c);
	c->head_only = !strcmp(c->method, "HEAD");
	method = c->head_only ? "GET" : c->method;
	if (!strcmp(c->method, "POST")) {
		if (!ig_api_takes_body(c->method, c->path)) {
			int rc = begin_exchange(c, method);
			return rc ? rc : reply_now(c, c->length > 0 || c->is_chunked);
		}
		bool more = c->length > 0 || c->is_chunked;
		if (more)
			lws_set_timeout(c->wsi, PENDING_TIMEOUT_HTTP_CONTENT, BODY_GRACE_S);
		if (lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_EXPECT) > 0 && more) {
			if (!ig_conn_begin_out(c))
				return -1;
			ig_strbuf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
			if (!ig_conn_write(c, LWS_WRITE_HTTP))
				return -1;
		}
		c->reading_body = true;
		return 0;
	}
	return begin_exchange(c, method);
}

static int refuse_body(struct conn *c, int status, const char *code, const char *message)
{
	c->reading_body = false;
	return refuse(c, status, code, message);
}

static int too_large(struct conn *c)
{
	return refuse_body(c, 413, "body_too_large", "The body is larger than server.max_body.");
}

static int on_chunks(struct conn *c, const char *in, size_t n)
{
	enum ig_chunked_rc rc;
	const char *data;
	size_t len;

	while ((rc = ig_chunked_feed(&c->chunked, &in, &n, &data, &len)) == IG_CHUNKED_DATA) {
		int e = ig_conn_append(c, data, len, c->net->config->server.max_body);
		if (e < 0)
			return e == -E2BIG ? too_large(c) : -1;
	}
	if (rc == IG_CHUNKED_BAD)
		return refuse_body(c, 400, "invalid_chunk", "The chunked body is malformed.");
	if (rc == IG_CHUNKED_MORE)
		return 0;
	if (begin_exchange(c, c->method) < 0)
		return -1;
	ig_net_want_write(c); /* only to put libwebsockets' timer off, which it sets after this */
	return 0;
}

static int on_body(struct conn *c, const void *data, size_t len)
{
	int64_t took_s = (ig_now_ns() - c->since_ns) / 1000000000;

	if (c->lingering)
		return took_s > LINGER_S ? -1 : 0;
	if (!c->reading_body) {
		/* After the end of a chunked body; there is no second request on it. */
		if (c->is_chunked)
			ig_net_want_write(c);
		return 0;
	}
	if (took_s > BODY_GRACE_S + (int64_t)(c->in_len / BODY_BYTES_S))
		return refuse_body(c, 408, "request_timeout", "The body comes too slowly.");
	if (c->is_chunked)
		return on_chunks(c, data, len);
	return ig_conn_append(c, data, len, c->length) < 0 ? -1 : 0;
}

static int on_body_complete(struct conn *c)
{
	/* A chunked one is complete by its own account; this is libwebsockets' own limit. */
	if (c->is_chunked && c->reading_body && !c->lingering)
		return too_large(c);
	if (c->exchange && !c->lingering && !c->is_chunked)
		return refuse_pipelined(c);
	if (c->lingering || !c->reading_body || c->in_len != c->length)
		return -1;
	lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	return begin_exchange(c, c->method);
}

static int on_writable(struct conn *c)
{
	enum ig_fill fill = IG_FILL_WAIT;
	struct ig_http_head h;

	c->blocked_ns = 0;
	if (c->lingering)
		return 0;
	if (c->ended) /* all of it has left */
		return -1;
	if (!c->exchange)
		return 0;
	if (c->is_chunked)
		lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	if (!ig_exchange_head(c->exchange, &h))
		return 0;
	if (!ig_conn_begin_out(c))
		return -1;
	if (!c->head_written)
		write_head(c, &h);
	do {
		size_t was = c->out.len;
		fill = ig_exchange_fill(c->exchange, &c->out);
		if (c->head_only && ig_strbuf_ok(&c->out))
			c->out.len = was;
	} while (fill == IG_FILL_DATA && c->out.len < PIECE);
	if (!ig_conn_write(c, fill == IG_FILL_END ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP))
		return -1;
	if (fill == IG_FILL_DATA)
		ig_net_want_write(c);
	if (fill != IG_FILL_END)
		return 0;
	ig_http_finish(c);
	if (!c->keep_open || c->net->draining) {
		/* Called again when libwebsockets has nothing left of it. */
		c->ended = true;
		ig_net_want_write(c);
		return 0;
	}
	return lws_http_transaction_completed(c->wsi) ? -1 : 0;
}

/* ---- the upgrade ------------------------------------------------------------------------- */

/* Of a WebSocket's handshake libwebsockets answers what it does not like with silence. */
static int check_handshake(struct conn *c, const char *to, const char **code, const char **message)
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
	if (!ig_api_is_websocket(c->path)) {
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

static int on_upgrade(struct conn *c, const char *to)
{
	const char *code = NULL, *message = "The server is out of memory.";

	if (c->exchange)
		return refuse_pipelined(c);
	begin_request(c);
	int status = check_head(c, &code, &message);
	if (!status)
		status = ig_who_check(c, &code, &message);
	if (!status)
		status = check_body(c, &code, &message);
	if (!status)
		status = check_handshake(c, to, &code, &message);
	if (!status && c->net->draining) {
		code = "server_shutting_down";
		message = "The server is shutting down.";
		status = 503;
	}
	return status ? refuse(c, status, code, message) : 0;
}

int ig_http_callback(struct conn *c, enum lws_callback_reasons reason, void *in, size_t len)
{
	switch (reason) {
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
		return on_upgrade(c, in ? in : "") || c->lingering ? -1 : 0;
	case LWS_CALLBACK_HTTP:
		return on_request(c);
	case LWS_CALLBACK_HTTP_BODY:
		return on_body(c, in, len);
	case LWS_CALLBACK_HTTP_BODY_COMPLETION:
		return on_body_complete(c);
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return on_writable(c);
	case LWS_CALLBACK_CLOSED_HTTP:
		ig_http_finish(c);
		return 0;
	default:
		return 0;
	}
}
