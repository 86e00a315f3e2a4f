/* conn.c: output and input of a connection, how it is closed, and the timer.  One timer runs while
 * there are requests or output (keep-alives, clients that do not read); an idle daemon has no
 * timer. */
#include "daemon/net/net_private.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* The longest interval between two sweeps: the delay until a slow client is noticed. */
#define SWEEP_NS 1000000000
/* How long input is read and discarded at the end. */
#define LINGER_S 2
/* With so many bytes of later requests the socket is not read; a client that leaves is noticed
 * only while it is. */
#define MAX_AHEAD 65536

bool ig_conn_begin_out(struct conn *c)
{
	static const char pre[LWS_PRE];

	ig_strbuf_clear(&c->out);
	ig_strbuf_add(&c->out, pre, sizeof pre);
	return ig_strbuf_ok(&c->out);
}

static void set_reading(struct conn *c)
{
	bool pause = false;

	if (c->lingering)
		pause = false;
	else if (c->choked)
		pause = true; /* libwebsockets would spin on input while it holds output */
	else if (c->kind == CONN_HTTP)
		pause = c->n_ahead > MAX_AHEAD && (c->exchange || c->ended);
	else if (c->session)
		pause = c->n_ahead || !ig_session_wants_input(c->session);
	if (pause == c->paused)
		return;
	c->paused = pause;
	lws_rx_flow_control(c->wsi, !pause);
}

bool ig_conn_write(struct conn *c, size_t before)
{
	if (!ig_strbuf_ok(&c->out))
		return false;
	size_t start = LWS_PRE - before, n = c->out.len - start;
	if (!n)
		return true;
	int rc = lws_write(c->wsi, (unsigned char *)c->out.data + start, n, LWS_WRITE_RAW);
	/* A large buffer is not held for the life of the connection. */
	if (c->out.cap > 65536)
		ig_strbuf_finish(&c->out);
	if (rc >= 0 && lws_partial_buffered(c->wsi)) {
		c->choked = true;
		ig_net_want_write(c);
	}
	return rc >= 0;
}

int ig_conn_append(struct conn *c, const void *data, size_t len, uint64_t max)
{
	if (len > max || c->in_len > max - len)
		return -E2BIG;
	if (!ig_array_grow(c->in, &c->in_cap, c->in_len + len))
		return -ENOMEM;
	if (len)
		memcpy(c->in + c->in_len, data, len);
	c->in_len += len;
	c->in[c->in_len] = 0;
	return 0;
}

char *ig_conn_take_in(struct conn *c, size_t *len)
{
	if (ig_conn_append(c, NULL, 0, SIZE_MAX) < 0)
		return NULL;
	char *p = c->in;
	*len = c->in_len;
	c->in = NULL;
	c->in_len = c->in_cap = 0;
	return p;
}

/* ---- input ------------------------------------------------------------------------- */

static int use(struct conn *c, char *data, size_t len, size_t *used)
{
	enum conn_kind kind;

	*used = 0;
	do {
		size_t n = 0;
		kind = c->kind;
		int rc = kind == CONN_HTTP ? ig_http_receive(c, data + *used, len - *used, &n) :
					     ig_ws_receive(c, data + *used, len - *used, &n);
		*used += n;
		if (rc)
			return rc;
	} while (kind != c->kind); /* upgraded */
	if (c->ended)
		*used = len;
	return 0;
}

int ig_conn_resume(struct conn *c)
{
	size_t used;

	if (!c->n_ahead)
		return 0;
	int rc = use(c, c->ahead, c->n_ahead, &used);
	if (rc)
		return rc;
	c->n_ahead -= used;
	if (c->n_ahead && used) {
		memmove(c->ahead, c->ahead + used, c->n_ahead);
	} else if (!c->n_ahead) {
		free(c->ahead);
		c->ahead = NULL;
		c->cap_ahead = 0;
	}
	set_reading(c);
	return 0;
}

static int put_ahead(struct conn *c, const char *data, size_t len)
{
	if (!len)
		return 0;
	if (!ig_array_grow(c->ahead, &c->cap_ahead, c->n_ahead + len))
		return -1;
	memcpy(c->ahead + c->n_ahead, data, len);
	c->n_ahead += len;
	return 0;
}

int ig_conn_receive(struct conn *c, char *data, size_t len)
{
	size_t used = 0;
	int rc;

	if (!len)
		return -1; /* how libwebsockets 5 reports the end of a unix socket's input */
	if (c->lingering)
		return ig_now_ns() - c->received_ns > LINGER_S * INT64_C(1000000000) ? -1 : 0;
	if (c->ended)
		return 0;
	c->received_ns = ig_now_ns();
	c->pinged = false;
	if (!c->n_ahead) {
		rc = use(c, data, len, &used);
		if (!rc)
			rc = put_ahead(c, data + used, len - used);
	} else {
		rc = put_ahead(c, data, len);
		if (!rc)
			rc = ig_conn_resume(c);
	}
	if (!rc)
		set_reading(c);
	return rc;
}

/* ---- the end ----------------------------------------------------------------------- */

static int finish(struct conn *c)
{
	c->blocked_ns = 0;
	ig_tls_goodbye(c->wsi);
	if (!c->lingers)
		return -1;
	c->lingering = true;
	c->received_ns = ig_now_ns();
	shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
	lws_set_timeout(c->wsi, PENDING_TIMEOUT_SHUTDOWN_FLUSH, LINGER_S);
	set_reading(c);
	return 0;
}

int ig_conn_end(struct conn *c, bool linger)
{
	c->ended = true;
	c->lingers = linger;
	return c->choked ? 0 : finish(c);
}

int ig_conn_writable(struct conn *c)
{
	c->blocked_ns = 0;
	c->choked = false;
	if (c->lingering)
		return 0;
	if (c->ended)
		return finish(c);
	int rc = c->kind == CONN_HTTP ? ig_http_writable(c) : ig_ws_writable(c);
	if (!rc)
		set_reading(c);
	return rc;
}

/* ---- the timer --------------------------------------------------------------------- */

static int64_t sweep_connections(struct ig_net *net, int64_t now)
{
	int64_t limit = (int64_t)net->options.slow_client_timeout_ms * 1000000, next = -1;

	for (struct conn *c = net->conns; c; c = c->next) {
		if (!c->blocked_ns || !limit)
			continue;
		int64_t left = c->blocked_ns + limit - now;
		if (left > 0) {
			if (next < 0 || left < next)
				next = left;
			continue;
		}
		ig_log_info("%s reads nothing for %u ms: closed", c->client,
			    net->options.slow_client_timeout_ms);
		c->blocked_ns = 0;
		ig_exchange_cancel(c->exchange, "slow_client");
		ig_session_cancel(c->session, "slow_client");
		lws_set_timeout(c->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
	}
	return next;
}

static void sweep(lws_sorted_usec_list_t *sul)
{
	struct ig_net *net = lws_container_of(sul, struct ig_net, sweep);
	int64_t now = ig_now_ns();

	/* Set while it runs, so that ig_net_want_write does not arm it too. */
	net->sweeping = true;
	int64_t a = ig_api_tick(net->api, now), b = sweep_connections(net, now);
	net->sweeping = false;
	int64_t next = a < 0 || (b >= 0 && b < a) ? b : a;
	if (next < 0)
		return;
	net->sweeping = true;
	if (next > SWEEP_NS)
		next = SWEEP_NS;
	if (next < 1000000)
		next = 1000000;
	lws_sul_schedule(net->context, 0, &net->sweep, sweep, next / 1000);
}

static void arm_sweep(struct ig_net *net)
{
	if (net->sweeping)
		return;
	net->sweeping = true;
	int64_t next = (int64_t)net->options.api.keepalive_interval_ms * 1000000;
	if (next <= 0 || next > SWEEP_NS)
		next = SWEEP_NS;
	lws_sul_schedule(net->context, 0, &net->sweep, sweep, next / 1000);
}

void ig_net_want_write(void *ctx)
{
	struct conn *c = ctx;

	if (!c->blocked_ns)
		c->blocked_ns = ig_now_ns();
	lws_callback_on_writable(c->wsi);
	arm_sweep(c->net);
}
