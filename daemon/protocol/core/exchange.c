/*
 * exchange.c: one HTTP request and its reply.  Small replies are complete at once; a POST to a
 * protocol is parsed, waits for prep, and maybe for its model, then streams its response or sends
 * it whole.  A stream's headers are sent with its first keep-alive at the latest: until then an
 * error of its prompt or a failed load is an HTTP status.
 */
#include "daemon/protocol/core/exchange.h"

#include "daemon/protocol/core/errand.h"
#include "daemon/protocol/core/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fill of a stream ends after about so many bytes. */
#define FILL_BYTES 8192

void ig_exchange_reply(struct ig_exchange *x, int status)
{
	x->head.status = status;
	x->head.content_type = "application/json";
	x->api->deps.want_write(x->conn);
}

void ig_exchange_fail(struct ig_exchange *x, const struct ig_api_error *e)
{
	ig_strbuf_clear(&x->body);
	x->error(&x->body, e);
	x->head.retry_after_s = ig_error_retry_after(e, x->api->deps.options.retry_after_s);
	ig_exchange_reply(x, e->status);
}

void ig_exchange_wrong_method(struct ig_exchange *x, const struct ig_http_request *r,
			      const char *allow)
{
	struct ig_api_error e;

	ig_api_fail(&e, 405, "method_not_allowed", NULL,
		    "%.10s is not allowed on %.100s; allowed: %s.", r->method, r->path, allow);
	ig_exchange_fail(x, &e);
	x->head.allow = allow;
}

/* ---- replies of protocols ---------------------------------------------------- */

/* Administrative requests are not in the ledger. */
static void refuse(struct ig_exchange *x, const struct ig_api_error *e)
{
	if (!x->protocol || !x->protocol->administrative) {
		if (x->reply)
			ig_reply_refuse(x->reply, e);
		else
			ig_reply_record_refused(x->api, x->origin, e);
	}
	ig_exchange_fail(x, e);
}

static void gather(struct ig_exchange *x)
{
	ig_reply_take(x->reply, SIZE_MAX);
	if (!x->reply->finished || x->head.status)
		return;
	if (x->reply->error.status) {
		ig_exchange_fail(x, &x->reply->error);
		return;
	}
	x->protocol->whole(x->reply, &x->body);
	ig_exchange_reply(x, x->protocol->status ? x->protocol->status(x->reply) : 200);
}

static void begin_stream(struct ig_exchange *x)
{
	x->stream = true;
	x->head.status = 200;
	x->head.content_type = x->protocol->stream_type ? x->protocol->stream_type :
							  "text/event-stream; charset=utf-8";
	x->api->deps.want_write(x->conn);
}

/* A stream that only waits may still be refused with a status: its headers are sent when it runs, or
 * with its first keep-alive. */
static void may_begin_stream(struct ig_exchange *x)
{
	struct ig_reply *r = x->reply;

	if (!r->keepalive && !ig_reply_runs(r)) {
		ig_reply_take(r, 0);
		if (!r->finished)
			return;
		if (r->error.status && !ig_reply_streams(r, &r->error)) {
			ig_exchange_fail(x, &r->error);
			return;
		}
	}
	begin_stream(x);
}

/* After the response headers were sent, the error ends the stream; some errors are a stream. */
static void fail(struct ig_exchange *x, const struct ig_api_error *e)
{
	if (!x->stream && !ig_reply_streams(x->reply, e)) {
		refuse(x, e);
		return;
	}
	ig_reply_refuse(x->reply, e);
	ig_reply_fail(x->reply, e);
	begin_stream(x);
}

/* Look up the response that it continues, then send it to prep. */
static int prepare(struct ig_reply *r, struct ig_api_error *e)
{
	if (r->request.previous_id &&
	    r->protocol->recall(r->api, &r->request, &r->origin->who, NULL, e) < 0)
		return -1;
	int rc = ig_reply_prepare(r);
	return rc < 0 ? ig_fail_unread(e, rc, r->api->deps.options.retry_after_s) : 0;
}

static void parsed(void *ctx, struct ig_reply *r)
{
	struct ig_exchange *x = ctx;
	struct ig_api_error e = r->error;

	if (e.status || prepare(r, &e) < 0)
		fail(x, &e);
}

static void ready(void *ctx, struct ig_reply *r)
{
	struct ig_exchange *x = ctx;
	struct ig_api_error e = r->error;

	if (!e.status && ig_reply_open(r) < 0)
		ig_fail_memory(&e);
	if (e.status) {
		fail(x, &e);
		return;
	}
	if (ig_reply_submit(r, &e) < 0 && !x->stream && !ig_reply_streams(r, &e))
		ig_exchange_fail(x, &e);
	else if (x->stream)
		begin_stream(x);
	else if (r->request.stream)
		may_begin_stream(x);
	else
		gather(x); /* it may be complete already */
}

static void news(void *ctx, struct ig_reply *r)
{
	struct ig_exchange *x = ctx;

	if (ig_reply_prepares(r) && r->keepalive && !x->stream)
		begin_stream(x);
	else if (ig_reply_prepares(r) || x->stream)
		x->api->deps.want_write(x->conn);
	else if (r->request.stream && !x->head.status)
		may_begin_stream(x);
	else
		gather(x);
}

static void post(struct ig_exchange *x, struct ig_http_request *r)
{
	static const struct ig_reply_owner owner = { parsed, ready, news };
	uint32_t retry_after_s = x->api->deps.options.retry_after_s;
	struct ig_api_error e = { 0 };
	int rc;

	if (x->api->draining) {
		ig_fail_shutting_down(&e, retry_after_s);
	} else if (!(x->reply = ig_reply_create(x->api, x->protocol, x->origin, &owner, x))) {
		ig_fail_memory(&e);
	} else {
		char *body = r->body;
		r->body = NULL;
		rc = ig_reply_read(x->reply, x->protocol->request, body, r->body_len);
		if (rc < 0)
			ig_fail_unread(&e, rc, retry_after_s);
	}
	if (e.status)
		refuse(x, &e);
}

/* ---- routes ----------------------------------------------------------------------- */

static const struct ig_route *route_of(const struct ig_api *api, const char *path)
{
	for (const struct ig_route *t = api->routes; t->path; t++)
		if (t->below ? !strncmp(path, t->path, strlen(t->path)) : !strcmp(path, t->path))
			return t;
	return NULL;
}

bool ig_api_takes_body(const struct ig_api *api, const char *method, const char *path)
{
	const struct ig_route *t = route_of(api, path);

	return t && t->post && !strcmp(method, "POST");
}

bool ig_api_is_websocket(const struct ig_api *api, const char *path)
{
	const struct ig_route *t = route_of(api, path);

	return t && t->open;
}

struct ig_session *ig_api_open(struct ig_api *api, const char *path, const char *request_id,
			       const char *client, const struct ig_principal *who, void *conn)
{
	const struct ig_route *t = route_of(api, path);

	return t && t->open ? t->open(api, request_id, client, who, conn) : NULL;
}

static void want_upgrade(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_api_error e;

	ig_api_fail(&e, 426, "upgrade_required", NULL,
		    "GET %.100s is a WebSocket: request an upgrade.", r->path);
	ig_exchange_fail(x, &e);
	x->head.upgrade = true;
}

static void follow(struct ig_exchange *x, const struct ig_route *t, struct ig_http_request *r)
{
	struct ig_api_error e;

	if (t && t->below && t->below(x, r, r->path + strlen(t->path)))
		return;
	if (!t || t->below) {
		ig_api_fail(&e, 404, "not_found", NULL, "Nothing is at %.10s %.200s.", r->method,
			    r->path);
		ig_exchange_fail(x, &e);
	} else if (t->post && !strcmp(r->method, "POST")) {
		post(x, r);
	} else if (t->get && !strcmp(r->method, "GET")) {
		t->get(x, r);
	} else if (t->open && !strcmp(r->method, "GET")) {
		want_upgrade(x, r);
	} else {
		ig_exchange_wrong_method(x, r,
					 !t->get && !t->open ? "POST" :
					 !t->post	     ? "GET" :
							       "GET, POST");
	}
}

/* ---- the exchange -------------------------------------------------------------------- */

static struct ig_exchange *exchange_new(struct ig_api *api, const struct ig_http_request *r,
					void *conn)
{
	const struct ig_route *t = route_of(api, r->path);
	struct ig_exchange *x = calloc(1, sizeof *x);
	char endpoint[32];

	if (!x)
		return NULL;
	snprintf(endpoint, sizeof endpoint, "%.6s %.24s", r->method, r->path);
	x->origin =
		ig_origin_create(r->request_id ? r->request_id : "", endpoint, r->client, &r->who);
	if (!x->origin) {
		free(x);
		return NULL;
	}
	x->api = api;
	x->conn = conn;
	x->protocol = t ? t->post : NULL;
	x->error = x->protocol ? x->protocol->error : t && t->error ? t->error : ig_error_object;
	return x;
}

struct ig_exchange *ig_exchange_begin(struct ig_api *api, struct ig_http_request *r, void *conn)
{
	struct ig_exchange *x = exchange_new(api, r, conn);

	if (x)
		follow(x, route_of(api, r->path), r);
	free(r->body);
	r->body = NULL;
	return x;
}

struct ig_exchange *ig_exchange_refuse(struct ig_api *api, int status, const char *code,
				       const char *message, const struct ig_http_request *r,
				       void *conn)
{
	struct ig_exchange *x = exchange_new(api, r, conn);
	const struct ig_route *t = route_of(api, r->path);
	struct ig_api_error e;

	if (!x)
		return NULL;
	ig_api_fail(&e, status, code, NULL, "%s", message);
	if (ig_api_takes_body(api, r->method, r->path) || (t && t->open && !t->administrative))
		refuse(x, &e);
	else
		ig_exchange_fail(x, &e);
	return x;
}

bool ig_exchange_head(struct ig_exchange *x, struct ig_http_head *head)
{
	if (!x->head.status)
		return false;
	*head = x->head;
	head->ignored = x->origin->ignored;
	head->tool_format = x->origin->tool_format;
	head->normalized = x->origin->normalized;
	head->length = x->stream ? -1 : (int64_t)x->body.len;
	return true;
}

enum ig_fill ig_exchange_fill(struct ig_exchange *x, struct ig_strbuf *out)
{
	size_t start = out->len;
	bool last = false;

	if (!x->head.status)
		return IG_FILL_WAIT;
	if (!x->stream) {
		if (!ig_strbuf_ok(&x->body))
			out->failed = true;
		else if (!x->body_given)
			ig_strbuf_add(out, x->body.data, x->body.len);
		x->body_given = true;
		return IG_FILL_END;
	}
	if (!x->reply->opened)
		return ig_reply_keep_alive(x->reply, x->protocol->wait, out) ? IG_FILL_DATA :
									       IG_FILL_WAIT;
	while (out->len - start < FILL_BYTES && !last)
		if (!x->protocol->next(x->reply, out, &last) && !last)
			break;
	if (last)
		return IG_FILL_END;
	return out->len > start ? IG_FILL_DATA : IG_FILL_WAIT;
}

void ig_exchange_cancel(struct ig_exchange *x, const char *reason)
{
	if (x && x->reply && x->reply->opened)
		ig_reply_cancel(x->reply, reason);
}

void ig_exchange_end(struct ig_exchange *x)
{
	if (!x)
		return;
	ig_reply_destroy(x->reply);
	ig_errand_abandon(x->errand);
	ig_origin_unref(x->origin);
	ig_strbuf_finish(&x->body);
	free(x);
}
