/*
 * http.c: HTTP/1.1 over libwebsockets: bodies in, replies out.  libwebsockets does not decode
 * chunked bodies (chunked.c does), and resets a socket that it closes with unread bytes.  So after
 * a request that is refused at its head our side of the socket is shut down and further input
 * discarded for LINGER_S.
 */
#include "daemon/net/net_private.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* How long the rest of a refused body is read and discarded. */
#define LINGER_S 2
/* About so many bytes are written at a time. */
#define PIECE 16384
/* A body may take so many seconds, and one more for each KiB received, so that a client that
 * sends single bytes does not hold a connection for ever. */
#define BODY_GRACE_S 20
#define BODY_BYTES_S 1024

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

static void common_headers(struct conn *c, int status)
{
	ig_strbuf_printf(&c->out, "HTTP/1.1 %d %s\r\nx-request-id: %s\r\n", status,
			 reason_phrase(status), c->request_id);
	if (c->origin[0])
		ig_strbuf_printf(&c->out,
				 "access-control-allow-origin: %s\r\nvary: origin\r\n"
				 "access-control-expose-headers: x-request-id, "
				 "retry-after, x-ingot-ignored, x-ingot-tool-format\r\n",
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
	if (h->ignored[0])
		ig_strbuf_printf(&c->out, "x-ingot-ignored: %s\r\n", h->ignored);
	if (h->tool_format)
		ig_strbuf_printf(&c->out, "x-ingot-tool-format: %s\r\n", h->tool_format);
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

/* Send nothing more; read and discard the rest of the request, so that the reply is not lost to
 * a reset. */
static int linger(struct conn *c)
{
	c->lingering = true;
	c->since_ns = ig_now_ns();
	shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_SHUTDOWN_FLUSH, LINGER_S);
	return 0;
}

/* The exchange has its reply: write all of it now and end the connection. */
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
				     .request_id = c->request_id,
				     .who = c->who };

	/* A request with a length or an encoding may have more bytes to come. */
	bool has_body = !strcmp(c->method, "POST") ||
			lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0 ||
			lws_hdr_total_length(c->wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0;

	c->exchange = ig_exchange_refuse(c->net->api, status, code, message, &r, c);
	return reply_now(c, has_body);
}

/* ---- requests ------------------------------------------------------------------------- */

/* A browser's preflight request, of a page whose origin is listed. */
static int preflight(struct conn *c)
{
	c->keep_open = false;
	if (!ig_conn_begin_out(c))
		return -1;
	common_headers(c, 204);
	/* "*" covers headers that SDKs add; it does not cover authorization. */
	ig_strbuf_puts(&c->out,
		       "access-control-allow-methods: GET, POST, DELETE\r\n"
		       "access-control-allow-headers: authorization, content-type, x-api-key, "
		       "anthropic-version, anthropic-beta, openai-beta, *\r\n"
		       "access-control-max-age: 600\r\n\r\n");
	ig_conn_write(c, LWS_WRITE_HTTP);
	return -1;
}

static int begin_exchange(struct conn *c, const char *method)
{
	struct ig_http_request r = { .method = method,
				     .path = c->path,
				     .client = c->client,
				     .request_id = c->request_id,
				     .who = c->who };
	char query[1024];

	if (!ig_head_query(c, query, sizeof query))
		return refuse(c, 414, "query_too_long", "The query is too long.");
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

/* The previous exchange has no reply yet.  Queueing this one would mean to stop reading, and
 * libwebsockets would then neither write nor notice that the client leaves. */
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
	struct refusal why = { NULL, "The server is out of memory." };
	const char *method;

	if (c->exchange)
		return refuse_pipelined(c);
	ig_head_begin(c);
	int status = ig_head_check(c, &why);
	/* A preflight request has no key. */
	bool is_preflight = !status && !strcmp(c->method, "OPTIONS") && c->origin[0];
	if (!status && !is_preflight)
		status = ig_who_check(c, &why);
	if (!status)
		status = ig_head_check_body(c, &why);
	if (status)
		return refuse(c, status, why.code, why.message);
	/* From here on our own timers decide: a reply may take long. */
	lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	if (is_preflight)
		return preflight(c);
	c->head_only = !strcmp(c->method, "HEAD");
	method = c->head_only ? "GET" : c->method;
	if (!strcmp(c->method, "POST")) {
		if (!ig_api_takes_body(c->net->api, c->method, c->path)) {
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
	ig_net_want_write(c); /* only to cancel the timer that libwebsockets sets after this */
	return 0;
}

static int on_body(struct conn *c, const void *data, size_t len)
{
	int64_t took_s = (ig_now_ns() - c->since_ns) / 1000000000;

	if (c->lingering)
		return took_s > LINGER_S ? -1 : 0;
	if (!c->reading_body) {
		/* After a chunked body; the connection takes no second request. */
		if (c->is_chunked)
			ig_net_want_write(c);
		return 0;
	}
	if (took_s > BODY_GRACE_S + (int64_t)(c->in_len / BODY_BYTES_S))
		return refuse_body(c, 408, "request_timeout", "The body arrives too slowly.");
	if (c->is_chunked)
		return on_chunks(c, data, len);
	return ig_conn_append(c, data, len, c->length) < 0 ? -1 : 0;
}

static int on_body_complete(struct conn *c)
{
	/* A chunked body ends with its last chunk; this is libwebsockets' own limit. */
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
	if (c->ended) /* all of it was sent */
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
		/* Called again when libwebsockets has sent everything. */
		c->ended = true;
		ig_net_want_write(c);
		return 0;
	}
	return lws_http_transaction_completed(c->wsi) ? -1 : 0;
}

/* ---- the upgrade ------------------------------------------------------------------------- */

static int on_upgrade(struct conn *c, const char *to)
{
	struct refusal why = { NULL, "The server is out of memory." };

	if (c->exchange)
		return refuse_pipelined(c);
	ig_head_begin(c);
	int status = ig_head_check(c, &why);
	if (!status)
		status = ig_who_check(c, &why);
	if (!status)
		status = ig_head_check_body(c, &why);
	if (!status)
		status = ig_head_check_handshake(c, to, &why);
	if (!status && c->net->draining) {
		status = ig_refuse(&why, 503, "server_shutting_down",
				   "The server is shutting down.");
	}
	return status ? refuse(c, status, why.code, why.message) : 0;
}

/* To the handshake's reply, which libwebsockets writes; all others are ours. */
static int add_headers(struct conn *c, struct lws_process_html_args *a)
{
	unsigned char *end = (unsigned char *)a->p + a->max_len;

	return lws_add_http_header_by_name(
		c->wsi,
		(const unsigned char *)"x-request-id:", (const unsigned char *)c->request_id,
		(int)strlen(c->request_id), (unsigned char **)&a->p, end);
}

int ig_http_callback(struct conn *c, enum lws_callback_reasons reason, void *in, size_t len)
{
	switch (reason) {
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
		return on_upgrade(c, in ? in : "") || c->lingering ? -1 : 0;
	case LWS_CALLBACK_ADD_HEADERS: return add_headers(c, in);
	case LWS_CALLBACK_HTTP: return on_request(c);
	case LWS_CALLBACK_HTTP_BODY: return on_body(c, in, len);
	case LWS_CALLBACK_HTTP_BODY_COMPLETION: return on_body_complete(c);
	case LWS_CALLBACK_HTTP_WRITEABLE: return on_writable(c);
	case LWS_CALLBACK_CLOSED_HTTP: ig_http_finish(c); return 0;
	default: return 0;
	}
}
