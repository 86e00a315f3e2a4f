/* conn.c: output and input of a connection, and the timer.  One timer runs while there are requests
 * or output (keep-alives, clients that do not read); an idle daemon has no timer. */
#include "daemon/net/net_private.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* The longest interval between two sweeps: the delay until a slow client is noticed. */
#define SWEEP_NS 1000000000

bool ig_conn_begin_out(struct conn *c)
{
	static const char pre[LWS_PRE];

	ig_strbuf_clear(&c->out);
	ig_strbuf_add(&c->out, pre, sizeof pre);
	return ig_strbuf_ok(&c->out);
}

bool ig_conn_write(struct conn *c, enum lws_write_protocol kind)
{
	if (!ig_strbuf_ok(&c->out))
		return false;
	size_t n = c->out.len - LWS_PRE;
	if (!n && kind != LWS_WRITE_TEXT)
		return true;
	int rc = lws_write(c->wsi, (unsigned char *)c->out.data + LWS_PRE, n, kind);
	/* A large buffer is not held for the life of the connection. */
	if (c->out.cap > 65536)
		ig_strbuf_finish(&c->out);
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
