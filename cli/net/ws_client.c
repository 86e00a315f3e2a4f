/*
 * ws_client.c: see ws_client.h.  The only file of the CLI that uses libwebsockets (4.1 to 5.0).
 * lws_service blocks until an event of the socket; a timer ends it after TICK_MS, so that deadlines
 * and Ctrl-C are checked.  Messages are read only when the queue is empty, so it never has more
 * than those of one read.
 */
#include "cli/net/ws_client.h"

#include <errno.h>
#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/download/files.h"

#define TICK_MS 100
#define CLOSE_WAIT_MS 500
#define MAX_MESSAGE (64u << 20)
#define MAX_QUEUED 4096

struct message {
	struct message *next;
	size_t len;
	char text[]; /* of a message to send: after LWS_PRE bytes for lws */
};

struct queue {
	struct message *first, **last;
	size_t n;
};

struct ig_ws {
	struct lws_context *context;
	struct lws *wsi; /* NULL once it is closed */
	lws_sorted_usec_list_t tick;
	struct queue in, out;
	struct ig_strbuf partial;
	bool open, closing;
	char bearer[sizeof((struct ig_endpoint *)0)->api_key + 8]; /* "Bearer KEY"; "": none */
	int rc;							   /* the error that ended it */
	struct ig_error err;
};

static struct message *message_new(const char *text, size_t len, size_t offset)
{
	struct message *m = malloc(sizeof *m + offset + len);

	if (m) {
		m->next = NULL;
		m->len = len;
		memcpy(m->text + offset, text, len);
	}
	return m;
}

static void queue_put(struct queue *q, struct message *m)
{
	if (!q->first)
		q->last = &q->first;
	*q->last = m;
	q->last = &m->next;
	q->n++;
}

static struct message *queue_take(struct queue *q)
{
	struct message *m = q->first;

	if (m) {
		q->first = m->next;
		q->n--;
	}
	return m;
}

static void end(struct ig_ws *ws, int rc, const char *text)
{
	if (!ws->rc)
		ws->rc = ig_fail(&ws->err, rc, "%s", text);
}

static void on_connect_error(struct ig_ws *ws, struct lws *wsi, const char *in, size_t len)
{
	unsigned status = wsi ? lws_http_client_http_response(wsi) : 0;

	if (status == 401 || status == 403)
		ws->rc = ig_fail(&ws->err, -EACCES, "refused the API key (HTTP %u)%s", status,
				 ws->bearer[0] ? "" :
						 ": none was given; see --api-key-file and "
						 "INGOT_API_KEY");
	else if (status)
		ws->rc = ig_fail(&ws->err, -EPROTO,
				 "replied HTTP %u instead of opening a WebSocket", status);
	else if (ws->rc == 0)
		ws->rc = ig_fail(&ws->err, -ECONNREFUSED, "%.*s", (int)(in && len < 200 ? len : 0),
				 in ? in : "");
	if (!ws->err.text[0])
		snprintf(ws->err.text, sizeof ws->err.text, "no connection");
	ws->wsi = NULL;
}

static int on_receive(struct ig_ws *ws, struct lws *wsi, const char *in, size_t len)
{
	if (lws_frame_is_binary(wsi)) {
		end(ws, -ECONNRESET, "the server sent binary data");
		return -1;
	}
	if (len > MAX_MESSAGE - ws->partial.len || ws->in.n >= MAX_QUEUED) {
		end(ws, -ECONNRESET, "the server sent too large a message");
		return -1;
	}
	ig_strbuf_add(&ws->partial, in, len);
	if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi))
		return 0;
	struct message *m = ig_strbuf_ok(&ws->partial) ?
				    message_new(ig_strbuf_text(&ws->partial), ws->partial.len, 0) :
				    NULL;
	ig_strbuf_clear(&ws->partial);
	if (!m) {
		end(ws, -ENOMEM, "out of memory");
		return -1;
	}
	queue_put(&ws->in, m);
	return 0;
}

static int on_writable(struct ig_ws *ws, struct lws *wsi)
{
	struct message *m = queue_take(&ws->out);

	if (!m) {
		if (!ws->closing)
			return 0;
		lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, NULL, 0);
		return -1;
	}
	int n = lws_write(wsi, (unsigned char *)m->text + LWS_PRE, m->len, LWS_WRITE_TEXT);
	bool failed = n < 0 || (size_t)n < m->len;
	free(m);
	if (failed) {
		end(ws, -ECONNRESET, "the connection broke while sending");
		return -1;
	}
	if (ws->out.first || ws->closing)
		lws_callback_on_writable(wsi);
	return 0;
}

static void on_peer_close(struct ig_ws *ws, const unsigned char *in, size_t len)
{
	char text[200];
	unsigned code = len >= 2 ? (unsigned)in[0] << 8 | in[1] : 1005;

	snprintf(text, sizeof text, "the server closed the connection (%u%s%.*s)", code,
		 len > 2 ? " " : "", len > 2 && len < 127 ? (int)(len - 2) : 0,
		 len > 2 ? (const char *)in + 2 : "");
	end(ws, -ECONNRESET, text);
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		    size_t len)
{
	struct lws_context *context = wsi ? lws_get_context(wsi) : NULL;
	struct ig_ws *ws = context ? lws_context_user(context) : NULL;

	if (!ws)
		return 0;
	switch (reason) {
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR: on_connect_error(ws, wsi, in, len); break;
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER: {
		unsigned char **p = in;
		if (ws->bearer[0] &&
		    lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_AUTHORIZATION,
						 (const unsigned char *)ws->bearer,
						 (int)strlen(ws->bearer), p, *p + len))
			return -1;
		break;
	}
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		ws->wsi = wsi;
		ws->open = true;
		lws_callback_on_writable(wsi);
		break;
	case LWS_CALLBACK_CLIENT_RECEIVE: return on_receive(ws, wsi, in, len);
	case LWS_CALLBACK_CLIENT_WRITEABLE: return on_writable(ws, wsi);
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE: on_peer_close(ws, in, len); break;
	case LWS_CALLBACK_CLIENT_CLOSED:
		end(ws, -ECONNRESET, "the connection was lost");
		ws->wsi = NULL;
		break;
	default: break;
	}
	return 0;
}

static void on_tick(lws_sorted_usec_list_t *sul)
{
	/* empty: the timer only makes lws_service return */
}

/* Call lws_service once, for at most TICK_MS. */
static void service(struct ig_ws *ws)
{
	lws_sul_schedule(ws->context, 0, &ws->tick, on_tick, TICK_MS * LWS_US_PER_MS);
	if (lws_service(ws->context, 0) < 0)
		end(ws, -ECONNRESET, "the event loop failed");
}

static void destroy(struct ig_ws *ws)
{
	struct message *m;

	if (ws->context)
		lws_context_destroy(ws->context);
	while ((m = queue_take(&ws->in)))
		free(m);
	while ((m = queue_take(&ws->out)))
		free(m);
	ig_strbuf_finish(&ws->partial);
	free(ws);
}

static int wait_open(struct ig_ws *ws, int timeout_ms)
{
	int64_t until = ig_now_ns() + (int64_t)timeout_ms * 1000000;

	while (!ws->open && !ws->rc) {
		if (ig_interrupted)
			end(ws, -EINTR, "interrupted");
		else if (ig_now_ns() > until)
			end(ws, -ETIMEDOUT, "no reply in time");
		else
			service(ws);
	}
	return ws->open ? 0 : ws->rc;
}

int ig_ws_open(const struct ig_endpoint *e, const char *path, int timeout_ms, struct ig_ws **out,
	       struct ig_error *err)
{
	static const struct lws_protocols protocols[] = {
		{ .name = "ingot-client", .callback = callback, .rx_buffer_size = 65536 },
		{ 0 },
	};
	struct lws_context_creation_info info = { 0 };
	struct lws_client_connect_info connect = { 0 };
	struct ig_ws *ws = calloc(1, sizeof *ws);
	char socket[sizeof e->socket + 2];
	int rc;

	*out = NULL;
	if (!ws)
		return ig_fail(err, -ENOMEM, "out of memory");
	/* lws sends even loopback traffic through a proxy of the environment */
	unsetenv("http_proxy");
	unsetenv("socks_proxy");
	lws_set_log_level(0, NULL);
	info.port = CONTEXT_PORT_NO_LISTEN;
	info.protocols = protocols;
	info.user = ws;
	info.fd_limit_per_thread = 32; /* not a table of the soft limit, which may be a million */
	if (e->api_key[0])
		snprintf(ws->bearer, sizeof ws->bearer, "Bearer %s", e->api_key);
#ifdef LWS_WITH_TLS
	if (e->tls)
		info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
	if (e->cacert[0])
		info.client_ssl_ca_filepath = e->cacert;
#else
	if (e->tls) {
		rc = ig_fail(err, -EPROTO, "is https, but libwebsockets was built without TLS");
		goto fail;
	}
#endif
	ws->context = lws_create_context(&info);
	if (!ws->context) {
		rc = ig_fail(err, -ENOMEM, "libwebsockets does not start");
		goto fail;
	}
	connect.context = ws->context;
	/* lws reads an address that begins with + as a unix socket */
	snprintf(socket, sizeof socket, "+%s", e->socket);
	connect.address = e->socket[0] ? socket : e->host;
	if (e->tls)
		connect.ssl_connection = LCCSCF_USE_SSL;
	connect.port = e->port;
	connect.path = path;
	connect.host = e->authority;
	connect.local_protocol_name = protocols[0].name; /* sends no subprotocol */
	connect.pwsi = &ws->wsi;
	if (!lws_client_connect_via_info(&connect) && !ws->rc)
		end(ws, -ECONNREFUSED, "no connection");
	rc = wait_open(ws, timeout_ms);
	if (rc) {
		ig_fail(err, rc, "%s", ws->err.text);
		goto fail;
	}
	*out = ws;
	return 0;
fail:
	destroy(ws);
	return rc;
}

int ig_ws_socket(const struct ig_ws *ws) { return ws->wsi ? lws_get_socket_fd(ws->wsi) : -1; }

void ig_ws_idle(struct ig_ws *ws)
{
	int64_t until = ig_now_ns() + (int64_t)CLOSE_WAIT_MS * 1000000;

	/* a round to read, one to write the reply: a pong, the echo of a close */
	for (int i = 0; ws->wsi && (i < 3 || (ws->rc && ig_now_ns() < until)); i++) {
		lws_sul_schedule(ws->context, 0, &ws->tick, on_tick, i < 3 ? 1 : LWS_US_PER_MS);
		if (lws_service(ws->context, i < 3 ? -1 : 0) < 0) {
			end(ws, -ECONNRESET, "the event loop failed");
			break;
		}
	}
}

int ig_ws_send(struct ig_ws *ws, const char *text, size_t len, struct ig_error *err)
{
	if (!ws->wsi)
		return ig_fail(err, -ECONNRESET, "%s", ws->err.text);
	struct message *m = len > MAX_MESSAGE ? NULL : message_new(text, len, LWS_PRE);
	if (!m)
		return ig_fail(err, -ENOMEM, "out of memory");
	queue_put(&ws->out, m);
	lws_callback_on_writable(ws->wsi);
	return 0;
}

int ig_ws_next(struct ig_ws *ws, int timeout_ms, struct ig_strbuf *msg, struct ig_error *err)
{
	int64_t until = timeout_ms ? ig_now_ns() + (int64_t)timeout_ms * 1000000 : INT64_MAX;
	bool idled = false;
	struct message *m;

	while (!ws->in.first) {
		if (ws->rc)
			return ig_fail(err, ws->rc, "%s", ws->err.text);
		if (ig_now_ns() > until || idled)
			return 0;
		idled = timeout_ms == 0;
		if (idled)
			ig_ws_idle(ws);
		else
			service(ws);
	}
	m = queue_take(&ws->in);
	ig_strbuf_clear(msg);
	ig_strbuf_add(msg, m->text, m->len);
	free(m);
	return ig_strbuf_ok(msg) ? 1 : ig_fail(err, -ENOMEM, "out of memory");
}

void ig_ws_close(struct ig_ws *ws)
{
	if (!ws)
		return;
	int64_t until = ig_now_ns() + (int64_t)CLOSE_WAIT_MS * 1000000;
	ws->closing = true;
	if (ws->wsi)
		lws_callback_on_writable(ws->wsi);
	while (ws->wsi && !ws->rc && ig_now_ns() < until)
		service(ws);
	destroy(ws);
}
