/* websocket.c: a WebSocket: the handshake's reply, frames into messages, checks of size and encoding,
 * messages out one at a time, pings, closing with a code. */
#include "daemon/net/net_private.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A ping after a minute of silence.  The peer has five minutes to reply: a client that reads slowly
 * replies only after it has read the data before the ping. */
#define PING_NS INT64_C(60000000000)
#define GIVE_UP_NS INT64_C(360000000000)
/* Fragments of a message that may be empty: they are not bounded by its size. */
#define MAX_EMPTY 1000
/* Pongs that wait to be written: bytes; of a flood of pings the rest are dropped. */
#define MAX_CONTROL 4096

static const char *close_text(int code)
{
	switch (code) {
	case 1001: return "the server is shutting down";
	case 1002: return "a frame violates the protocol";
	case 1003: return "only text messages are accepted";
	case 1007: return "the message is not UTF-8";
	case 1008: return "the key is no longer valid";
	case 1009: return "the message is larger than server.max_body";
	default: return "the server ran out of memory";
	}
}

void ig_ws_finish(struct conn *c)
{
	ig_session_end(c->session);
	c->session = NULL;
	ig_strbuf_finish(&c->control);
}

/* ---- frames out --------------------------------------------------------------------- */

/* Write out's contents as one frame. */
static bool write_frame(struct conn *c, int opcode)
{
	unsigned char head[IG_WS_MAX_HEAD];

	if (!ig_strbuf_ok(&c->out))
		return false;
	size_t n = ig_frame_head(head, opcode, c->out.len - LWS_PRE);
	memcpy(c->out.data + LWS_PRE - n, head, n);
	return ig_conn_write(c, n);
}

static int send_close(struct conn *c, const void *payload, size_t len)
{
	ig_ws_finish(c);
	if (!ig_conn_begin_out(c))
		return -1;
	ig_strbuf_add(&c->out, payload, len);
	return write_frame(c, IG_WS_CLOSE) ? ig_conn_end(c, true) : -1;
}

static int close_with(struct conn *c, int code)
{
	const char *text = close_text(code);
	char payload[IG_WS_MAX_CONTROL] = { (char)(code >> 8), (char)code };

	memcpy(payload + 2, text, strlen(text));
	return send_close(c, payload, 2 + strlen(text));
}

static void queue_control(struct conn *c, int opcode, const char *payload, size_t len)
{
	unsigned char head[IG_WS_MAX_HEAD];

	if (c->control.len > MAX_CONTROL)
		return;
	ig_strbuf_add(&c->control, head, ig_frame_head(head, opcode, len));
	ig_strbuf_add(&c->control, payload, len);
	ig_net_want_write(c);
}

/* ---- the handshake ------------------------------------------------------------------ */

int ig_ws_accept(struct conn *c)
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	const char *key = ig_head_field(&c->head, "sec-websocket-key", NULL);
	unsigned char sha[20];
	char text[80], accept[40];

	size_t n = strlen(key);
	memcpy(text, key, n); /* 24 bytes: ig_head_check_handshake */
	memcpy(text + n, guid, sizeof guid);
	lws_SHA1((unsigned char *)text, strlen(text), sha);
	if (lws_b64_encode_string((char *)sha, sizeof sha, accept, sizeof accept) < 0 ||
	    !ig_conn_begin_out(c))
		return -1;
	ig_strbuf_printf(&c->out,
			 "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
			 "connection: upgrade\r\nsec-websocket-accept: %s\r\n%sx-request-id: %s\r\n"
			 "\r\n",
			 accept,
			 ig_head_field(&c->head, "sec-websocket-protocol", NULL) ?
				 "sec-websocket-protocol: ingot\r\n" :
				 "",
			 c->request_id);
	if (!ig_conn_write(c, 0))
		return -1;
	lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
	lws_set_timer_usecs(c->wsi, PING_NS / 1000);
	c->kind = CONN_WEBSOCKET;
	c->session = ig_api_open(c->net->api, c->path, c->request_id, c->client, &c->who, c);
	return c->session ? 0 : close_with(c, 1011);
}

/* A minute has passed. */
int ig_ws_timer(struct conn *c)
{
	int64_t silent_ns = ig_now_ns() - c->received_ns;

	if (c->ended)
		return 0;
	if (silent_ns >= GIVE_UP_NS)
		return -1;
	if (silent_ns >= PING_NS && !c->pinged) {
		c->pinged = true;
		queue_control(c, IG_WS_PING, "", 0);
	}
	int64_t next_ns = silent_ns < PING_NS ? PING_NS - silent_ns : PING_NS;
	lws_set_timer_usecs(c->wsi, next_ns / 1000 + 1);
	return 0;
}

/* ---- frames in ---------------------------------------------------------------------- */

static int on_frame(struct conn *c)
{
	uint64_t max = c->net->config->server.max_body;

	if (c->revoked)
		return close_with(c, 1008);
	if (c->frames.binary)
		return close_with(c, 1003);
	if (!c->frames.left && ++c->n_empty > MAX_EMPTY)
		return close_with(c, 1009);
	/* The frame's announced size is checked before its first byte. */
	if (c->in_len > max || c->frames.left > max - c->in_len)
		return close_with(c, 1009);
	return 0;
}

static int on_data(struct conn *c, const char *data, size_t len)
{
	if (ig_conn_append(c, data, len, SIZE_MAX) < 0)
		return close_with(c, 1011);
	return ig_utf8_feed(&c->utf8, data, len) ? 0 : close_with(c, 1007);
}

static int on_message(struct conn *c)
{
	size_t n;

	c->n_empty = 0;
	if (!ig_utf8_whole(&c->utf8))
		return close_with(c, 1007);
	char *text = ig_conn_take_in(c, &n);
	if (!text)
		return close_with(c, 1011);
	c->utf8 = (struct ig_utf8){ 0 };
	ig_session_receive(c->session, text, n);
	return 0;
}

static int on_control(struct conn *c)
{
	const struct ig_frames *f = &c->frames;
	const unsigned char *p = (const unsigned char *)f->control;

	if (f->opcode == IG_WS_PING)
		queue_control(c, IG_WS_PONG, f->control, f->n_control);
	if (f->opcode != IG_WS_CLOSE)
		return 0;
	if (f->n_control == 1 || (f->n_control && !ig_ws_close_code((unsigned)p[0] << 8 | p[1])))
		return close_with(c, 1002);
	if (f->n_control && !ig_utf8_valid(p + 2, f->n_control - 2))
		return close_with(c, 1007);
	return send_close(c, p, f->n_control ? 2 : 0);
}

int ig_ws_receive(struct conn *c, char *data, size_t len, size_t *used)
{
	char *in = data, *piece = NULL;
	size_t left = len, n = 0;
	int rc = 0;

	while (!rc && !c->ended && ig_session_wants_input(c->session)) {
		enum ig_frames_rc what = ig_frames_feed(&c->frames, &in, &left, &piece, &n);
		if (what == IG_FRAMES_MORE)
			break;
		rc = what == IG_FRAMES_BEGIN   ? on_frame(c) :
		     what == IG_FRAMES_DATA    ? on_data(c, piece, n) :
		     what == IG_FRAMES_END     ? on_message(c) :
		     what == IG_FRAMES_CONTROL ? on_control(c) :
						 close_with(c, 1002);
	}
	*used = len - left;
	return rc;
}

/* ---- messages out -------------------------------------------------------------------- */

int ig_ws_writable(struct conn *c)
{
	if (c->revoked && ig_session_needs_key(c->session))
		return close_with(c, 1008);
	int rc = ig_session_wants_input(c->session) ? ig_conn_resume(c) : 0;

	if (rc || c->ended || !ig_conn_begin_out(c))
		return rc || c->ended ? rc : close_with(c, 1011);
	if (c->control.len) {
		ig_strbuf_add(&c->out, c->control.data, c->control.len);
		bool ok = ig_strbuf_ok(&c->control) && ig_conn_write(c, 0);
		ig_strbuf_finish(&c->control);
		ig_net_want_write(c);
		return ok ? 0 : -1;
	}
	enum ig_fill fill = ig_session_fill(c->session, &c->out);
	if (fill == IG_FILL_WAIT)
		return 0;
	if (fill == IG_FILL_END)
		return close_with(c, c->net->draining ? 1001 : 1011);
	if (!write_frame(c, IG_WS_TEXT))
		return -1;
	ig_net_want_write(c);
	return 0;
}
