/* websocket.c: a WebSocket by libwebsockets: fragments into messages, checks of size and
 * encoding, messages out one at a time, closing with a code. */
#include "daemon/net/net_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *close_text(int code)
{
	switch (code) {
	case 1001: return "the server is shutting down";
	case 1002: return "invalid close frame";
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
}

/* From a callback whose result closes: send the code and its text. */
static int close_with(struct conn *c, int code)
{
	const char *text = close_text(code);

	c->close_code = code;
	c->blocked_ns = 0;
	ig_ws_finish(c);
	lws_close_reason(c->wsi, (enum lws_close_status)code, (unsigned char *)text, strlen(text));
	return -1;
}

static void set_reading(struct conn *c)
{
	bool pause = !ig_session_wants_input(c->session);

	if (pause == c->paused)
		return;
	c->paused = pause;
	lws_rx_flow_control(c->wsi, !pause);
}

static int on_established(struct conn *c)
{
	c->kind = CONN_WEBSOCKET;
	c->in_len = 0;
	c->session = ig_session_open(c->net->api, c->request_id, c->client, &c->who, c);
	return c->session ? 0 : close_with(c, 1011);
}

static int on_receive(struct conn *c, const void *data, size_t len)
{
	if (!c->session)
		return -1;
	if (c->revoked)
		return close_with(c, 1008);
	if (lws_frame_is_binary(c->wsi))
		return close_with(c, 1003);
	/* The frame's announced size is checked with its first bytes. */
	uint64_t max = c->net->config->server.max_body;
	if (lws_remaining_packet_payload(c->wsi) > max)
		return close_with(c, 1009);
	int rc = ig_conn_append(c, data, len, max - lws_remaining_packet_payload(c->wsi));
	if (rc < 0)
		return close_with(c, rc == -E2BIG ? 1009 : 1011);
	if (!ig_utf8_feed(&c->utf8, data, len))
		return close_with(c, 1007);
	if (!lws_is_final_fragment(c->wsi) || lws_remaining_packet_payload(c->wsi))
		return 0;
	if (!ig_utf8_whole(&c->utf8))
		return close_with(c, 1007);
	size_t n;
	char *text = ig_conn_take_in(c, &n);
	if (!text)
		return close_with(c, 1011);
	c->utf8 = (struct ig_utf8){ 0 };
	ig_session_receive(c->session, text, n);
	set_reading(c);
	return 0;
}

/* libwebsockets replies 1002 to codes that it knows to be invalid, and would echo the others. */
static int on_peer_close(struct conn *c, const unsigned char *data, size_t len)
{
	if (!len)
		return 0;
	if (len == 1 || (unsigned)(data[0] << 8 | data[1]) >= 5000)
		return close_with(c, 1002);
	if (!ig_utf8_valid(data + 2, len - 2))
		return close_with(c, 1007);
	return 0;
}

static int on_writable(struct conn *c)
{
	c->blocked_ns = 0;
	if (!c->session)
		return 0;
	set_reading(c);
	if (!ig_conn_begin_out(c))
		return close_with(c, 1011);
	enum ig_fill fill = ig_session_fill(c->session, &c->out);
	if (fill == IG_FILL_WAIT)
		return 0;
	if (fill == IG_FILL_END)
		return close_with(c, c->net->draining ? 1001 : 1011);
	if (!ig_strbuf_ok(&c->out))
		return close_with(c, 1011);
	if (!ig_conn_write(c, LWS_WRITE_TEXT))
		return -1;
	ig_net_want_write(c);
	return 0;
}

int ig_ws_callback(struct conn *c, enum lws_callback_reasons reason, void *in, size_t len)
{
	switch (reason) {
	case LWS_CALLBACK_ESTABLISHED: return on_established(c);
	case LWS_CALLBACK_RECEIVE: return on_receive(c, in, len);
	case LWS_CALLBACK_SERVER_WRITEABLE: return on_writable(c);
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE: return on_peer_close(c, in, len);
	case LWS_CALLBACK_CLOSED: ig_ws_finish(c); return 0;
	default: return 0;
	}
}
