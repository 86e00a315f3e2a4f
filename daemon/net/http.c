/* http.c: HTTP/1.1: heads and bodies in, replies out, one request of a connection after the other.
 * After a request that is refused while more of it may come, further input is discarded for a
 * while: see ig_conn_end. */
#include "daemon/net/net_private.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* About so many bytes are written at a time. */
#define PIECE 16384
/* A body may take so many seconds, and one more for each KiB received, so that a client that
 * sends single bytes does not hold a connection for ever. */
#define BODY_GRACE_S 20
#define BODY_BYTES_S 1024
#define HEADER_TIMEOUT_S 20    /* to send a request's head */
#define KEEPALIVE_TIMEOUT_S 60 /* a connection without a request */

static const char *reason_phrase(int status)
{
	static const struct {
		int status;
		const char *text;
	} phrases[] = {
		{ 200, "OK" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 304, "Not Modified" },
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
		{ 431, "Request Header Fields Too Large" },
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
				 "retry-after, x-ingot-ignored, x-ingot-normalized, "
				 "x-ingot-tool-format\r\n",
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
	if (h->length < 0 || c->net->draining || c->net->handed_over)
		c->keep_open = false;
	common_headers(c, h->status);
	ig_strbuf_printf(&c->out, "content-type: %s\r\n", h->content_type);
	if (h->etag)
		ig_strbuf_printf(&c->out, "etag: %s\r\n", h->etag);
	if (h->fields)
		ig_strbuf_puts(&c->out, h->fields);
	if (h->length >= 0 && h->status != 304) /* whose length would be that of a 200 */
		ig_strbuf_printf(&c->out, "content-length: %lld\r\n", (long long)h->length);
	else if (h->length < 0)
		ig_strbuf_puts(&c->out, "cache-control: no-cache\r\nx-accel-buffering: no\r\n");
	if (h->allow)
		ig_strbuf_printf(&c->out, "allow: %s\r\n", h->allow);
	if (h->retry_after_s)
		ig_strbuf_printf(&c->out, "retry-after: %u\r\n", h->retry_after_s);
	if (h->status == 504) /* a client's deadline; packages ask again after other 5xx */
		ig_strbuf_puts(&c->out, "x-should-retry: false\r\n");
	if (h->ignored[0])
		ig_strbuf_printf(&c->out, "x-ingot-ignored: %s\r\n", h->ignored);
	if (h->tool_format)
		ig_strbuf_printf(&c->out, "x-ingot-tool-format: %s\r\n", h->tool_format);
	if (h->normalized && h->normalized[0])
		ig_strbuf_printf(&c->out, "x-ingot-normalized: %s\r\n", h->normalized);
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

/* The exchange has its reply: write all of it now and end the connection. */
static int reply_now(struct conn *c, bool more)
{
	struct ig_http_head h;

	c->keep_open = false;
	if (!c->exchange || !ig_exchange_head(c->exchange, &h) || !ig_conn_begin_out(c))
		return -1;
	write_head(c, &h);
	if (!c->head_only)
		ig_exchange_fill(c->exchange, &c->out);
	bool ok = ig_conn_write(c, 0);
	ig_http_finish(c);
	return ok ? ig_conn_end(c, more) : -1;
}

/* Refuse a request; more: its end has not come. */
static int refuse(struct conn *c, int status, const char *code, const char *message, bool more)
{
	struct ig_http_request r = { .method = c->method,
				     .path = c->path ? c->path : "",
				     .client = c->client,
				     .request_id = c->request_id,
				     .who = c->who };

	c->reading_body = false;
	c->exchange = ig_exchange_refuse(c->net->api, status, code, message, &r, c);
	return reply_now(c, more);
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
	return ig_conn_write(c, 0) ? ig_conn_end(c, false) : -1;
}

static int begin_exchange(struct conn *c)
{
	struct ig_http_request r = { .method = c->head_only ? "GET" : c->method,
				     .path = c->path,
				     .query = c->query[0] ? c->query : NULL,
				     .client = c->client,
				     .request_id = c->request_id,
				     .if_none_match =
					     ig_head_field(&c->head, "if-none-match", NULL),
				     .wants_html = ig_head_wants_html(&c->head),
				     .who = c->who };

	/* From here on our own timers decide: a reply may take long. */
	lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	if (c->reading_body) {
		r.body = ig_conn_take_in(c, &r.body_len);
		c->reading_body = false;
		if (!r.body)
			return -1;
	}
	c->exchange = ig_exchange_begin(c->net->api, &r, c);
	return c->exchange ? 0 : -1;
}

static int begin_body(struct conn *c)
{
	bool more = c->length > 0 || c->is_chunked;

	if (!ig_api_takes_body(c->net->api, c->method, c->path))
		return begin_exchange(c) ? -1 : reply_now(c, more);
	c->reading_body = true;
	if (!more)
		return begin_exchange(c);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_HTTP_CONTENT, BODY_GRACE_S);
	if (!ig_head_field(&c->head, "expect", NULL))
		return 0;
	if (!ig_conn_begin_out(c))
		return -1;
	ig_strbuf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
	return ig_conn_write(c, 0) ? 0 : -1;
}

static int check_upgrade(struct conn *c, const char *to, struct refusal *why)
{
	int status = ig_head_check_handshake(c, to, why);

	if (!status && c->net->draining)
		status =
			ig_refuse(why, 503, "server_shutting_down", "The server is shutting down.");
	return status;
}

/* A whole head, or one that ig_head_find refused. */
static int on_head(struct conn *c, char *data, size_t len, enum ig_head_rc rc)
{
	struct refusal why = { NULL, "The server is out of memory." };

	int status = ig_head_begin(c, data, len, rc, &why);
	const char *upgrade = ig_head_field(&c->head, "upgrade", NULL);
	if (!status)
		status = ig_head_check(c, &why);
	/* A preflight request has no key. */
	bool is_preflight = !status && !strcmp(c->method, "OPTIONS") && c->origin[0];
	if (!status && !is_preflight)
		status = ig_who_check(c, &why);
	if (!status)
		status = ig_head_check_body(c, &why);
	if (!status && upgrade)
		status = check_upgrade(c, upgrade, &why);
	bool more = rc != IG_HEAD_WHOLE || ig_head_field(&c->head, "content-length", NULL) ||
		    ig_head_field(&c->head, "transfer-encoding", NULL);
	if (status)
		return refuse(c, status, why.code, why.message, more);
	if (is_preflight)
		return preflight(c);
	if (upgrade)
		return ig_ws_accept(c);
	c->head_only = !strcmp(c->method, "HEAD");
	return strcmp(c->method, "POST") ? begin_exchange(c) : begin_body(c);
}

static int receive_head(struct conn *c, char *data, size_t len, size_t *used)
{
	size_t skipped = 0;

	/* Some clients send an empty line after a body. */
	while (len - skipped >= 2 && !c->scanned && !memcmp(data + skipped, "\r\n", 2))
		skipped += 2;
	*used = skipped;
	if (len == skipped || (len - skipped == 1 && data[skipped] == '\r'))
		return 0;
	if (!c->reading_head)
		lws_set_timeout(c->wsi, PENDING_TIMEOUT_ESTABLISH_WITH_SERVER, HEADER_TIMEOUT_S);
	c->reading_head = true;
	enum ig_head_rc rc = ig_head_find(data + skipped, len - skipped,
					  c->net->config->server.max_header, &c->scanned);
	if (rc == IG_HEAD_MORE)
		return 0;
	size_t n = rc == IG_HEAD_WHOLE ? c->scanned : len - skipped;
	c->scanned = 0;
	*used += n;
	int closes = on_head(c, data + skipped, n, rc);
	c->head = (struct ig_head){ 0 };
	return closes;
}

/* ---- bodies ----------------------------------------------------------------------------- */

static int too_large(struct conn *c)
{
	return refuse(c, 413, "body_too_large", "The body is larger than server.max_body.", true);
}

static int receive_chunks(struct conn *c, const char *in, size_t n, size_t *used)
{
	enum ig_chunked_rc rc;
	const char *data;
	size_t len, left = n;

	while ((rc = ig_chunked_feed(&c->chunked, &in, &left, &data, &len)) == IG_CHUNKED_DATA) {
		int e = ig_conn_append(c, data, len, c->net->config->server.max_body);
		if (e < 0)
			return e == -E2BIG ? too_large(c) : -1;
	}
	*used = n - left;
	if (rc == IG_CHUNKED_BAD)
		return refuse(c, 400, "invalid_chunk", "The chunked body is malformed.", true);
	return rc == IG_CHUNKED_MORE ? 0 : begin_exchange(c);
}

static int receive_body(struct conn *c, const char *data, size_t len, size_t *used)
{
	int64_t took_s = (ig_now_ns() - c->since_ns) / 1000000000;

	if (took_s > BODY_GRACE_S + (int64_t)(c->in_len / BODY_BYTES_S))
		return refuse(c, 408, "request_timeout", "The body arrives too slowly.", true);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_HTTP_CONTENT, BODY_GRACE_S);
	if (c->is_chunked)
		return receive_chunks(c, data, len, used);
	*used = c->length - c->in_len < len ? (size_t)(c->length - c->in_len) : len;
	if (ig_conn_append(c, data, *used, c->length) < 0)
		return -1;
	return c->in_len == c->length ? begin_exchange(c) : 0;
}

int ig_http_receive(struct conn *c, char *data, size_t len, size_t *used)
{
	*used = 0;
	while (*used < len && c->kind == CONN_HTTP && !c->exchange && !c->ended) {
		size_t n = 0;
		int rc = c->reading_body ? receive_body(c, data + *used, len - *used, &n) :
					   receive_head(c, data + *used, len - *used, &n);
		*used += n;
		if (rc)
			return rc;
		if (!n)
			break;
	}
	return 0;
}

/* ---- output ----------------------------------------------------------------------------- */

static int next_request(struct conn *c)
{
	ig_http_finish(c);
	if (!c->keep_open || c->net->draining)
		return ig_conn_end(c, false);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_HTTP_KEEPALIVE_IDLE, KEEPALIVE_TIMEOUT_S);
	return ig_conn_resume(c);
}

int ig_http_writable(struct conn *c)
{
	enum ig_fill fill = IG_FILL_WAIT;
	struct ig_http_head h;

	if (!c->exchange || !ig_exchange_head(c->exchange, &h))
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
	if (!ig_conn_write(c, 0))
		return -1;
	if (fill == IG_FILL_DATA)
		ig_net_want_write(c);
	return fill == IG_FILL_END ? next_request(c) : 0;
}
