/* websocket.c: Responses over WebSockets, one request at a time on each, as agents use them.
 * Connections are kept; another one is opened when all are busy, and the handshake belongs to the
 * request's latency. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/bench/client.h"
#include "cli/net/response.h"
#include "cli/net/ws_client.h"

#define CONNECT_TIMEOUT_MS 10000
#define N_READY 8 /* opened before the run: a handshake delays the other requests */

struct line {
	struct ig_ws *ws;
	struct ig_bench_sample *s; /* NULL: idle */
	struct ig_response response;
};

struct ig_bench_wire {
	const struct ig_endpoint *e;
	struct line **lines;
	struct pollfd *polls;
	size_t n, cap, cap_polls;
	struct ig_strbuf message;
};

static int on_text(void *ctx, const char *text, size_t len)
{
	struct line *l = ctx;

	if (len)
		ig_bench_token(l->s, l->response.last_ns);
	return 0;
}

static int add_line(struct ig_bench_wire *w, struct line **out, struct ig_error *err)
{
	struct line *l = calloc(1, sizeof *l);
	int rc;

	*out = NULL;
	if (!l || !ig_array_grow(w->lines, &w->cap, w->n) ||
	    !ig_array_grow(w->polls, &w->cap_polls, w->n)) {
		free(l);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	rc = ig_ws_open(w->e, "/v1/responses", CONNECT_TIMEOUT_MS, &l->ws, err);
	if (rc) {
		free(l);
		return rc;
	}
	w->lines[w->n++] = l;
	*out = l;
	return 0;
}

static void drop(struct ig_bench_wire *w, size_t i)
{
	struct line *l = w->lines[i];

	w->lines[i] = w->lines[--w->n];
	ig_ws_close(l->ws);
	free(l);
}

static void close_wire(struct ig_bench_wire *w)
{
	if (!w)
		return;
	while (w->n)
		drop(w, 0);
	free(w->lines);
	free(w->polls);
	ig_strbuf_finish(&w->message);
	free(w);
}

static int open_wire(const struct ig_endpoint *e, struct ig_bench_wire **out, struct ig_error *err)
{
	struct ig_bench_wire *w = calloc(1, sizeof *w);
	struct line *l;
	int rc = w ? 0 : ig_fail(err, -ENOMEM, "out of memory");

	if (w)
		w->e = e;
	for (int i = 0; !rc && i < N_READY; i++)
		rc = add_line(w, &l, err);
	if (rc) {
		close_wire(w);
		w = NULL;
	}
	*out = w;
	return rc;
}

static void write_body(const char *model, const char *prompt, size_t len, uint32_t n_output,
		       struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, "type", "response.create");
	if (model)
		ig_json_put_text(&w, "model", model);
	ig_json_putf(
		&w,
		"'input': %.*s, 'temperature': 0, 'max_output_tokens': %u, 'ignore_eos': true, "
		"'store': false",
		(int)len, prompt, n_output);
	ig_json_close_object(&w);
}

static int send_request(struct ig_bench_wire *w, const struct ig_strbuf *body,
			struct ig_bench_sample *s, struct ig_error *err)
{
	struct ig_error why = { 0 };
	struct line *l = NULL;
	int rc = 0;

	for (size_t i = 0; !l && i < w->n; i++)
		if (!w->lines[i]->s)
			l = w->lines[i];
	if (!l)
		rc = add_line(w, &l, &why);
	if (!rc) {
		ig_response_init(&l->response, on_text, l);
		l->response.thought = on_text;
		l->s = s;
		rc = ig_ws_send(l->ws, body->data, body->len, &why);
	}
	if (rc == -ENOMEM)
		return ig_fail(err, rc, "%s", why.text);
	if (rc)
		ig_bench_end(s, IG_BENCH_FAILED, "%s", why.text);
	return 0;
}

/* The response has ended. */
static void judge(struct line *l)
{
	const struct ig_response *a = &l->response;

	l->s->n_input = a->n_input;
	l->s->n_cached = a->n_cached;
	l->s->n_output = a->n_output;
	if (a->state == IG_RESPONSE_FAILED)
		ig_bench_end(l->s,
			     a->status == 429 || a->status == 503 ? IG_BENCH_REFUSED :
								    IG_BENCH_FAILED,
			     "%.190s", a->error);
	else if (a->state == IG_RESPONSE_CANCELLED)
		ig_bench_end(l->s, IG_BENCH_FAILED, "the server cancelled the response");
	else
		ig_bench_end(l->s, IG_BENCH_OK, NULL);
	l->s = NULL;
}

/* Process what this connection has received.  False: it is of no more use. */
static bool receive(struct ig_bench_wire *w, struct line *l, bool *any)
{
	struct ig_error why = { 0 };
	int rc;

	while (l->s && (rc = ig_ws_next(l->ws, 0, &w->message, &why))) {
		*any = true;
		if (rc > 0)
			rc = ig_response_event(&l->response, ig_strbuf_text(&w->message),
					       w->message.len, ig_now_ns(), &why);
		if (rc < 0) {
			ig_bench_end(l->s, IG_BENCH_FAILED, "%s", why.text);
			return false;
		}
		if (ig_response_ended(&l->response))
			judge(l);
	}
	return true;
}

static int step(struct ig_bench_wire *w, int timeout_ms, struct ig_error *err)
{
	bool any = false;
	size_t n = 0;

	for (size_t i = w->n; i-- > 0;) {
		struct line *l = w->lines[i];
		if (!l->s) {
			ig_ws_idle(l->ws); /* replies to pings */
			if (ig_ws_socket(l->ws) < 0)
				drop(w, i);
		} else if (l->s->outcome || !receive(w, l, &any)) {
			drop(w, i);
		}
	}
	for (size_t i = 0; i < w->n; i++)
		w->polls[n++] =
			(struct pollfd){ .fd = ig_ws_socket(w->lines[i]->ws), .events = POLLIN };
	if (!any && timeout_ms > 0 && poll(w->polls, (nfds_t)n, timeout_ms) < 0 && errno != EINTR)
		return ig_fail(err, -errno, "poll failed");
	return 0;
}

static void cancel(struct ig_bench_wire *w, struct ig_bench_sample *s)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->lines[i]->s == s) {
			drop(w, i); /* which cancels it in the daemon */
			return;
		}
}

const struct ig_bench_transport ig_bench_websocket = {
	.name = "websocket",
	.open = open_wire,
	.write = write_body,
	.send = send_request,
	.step = step,
	.cancel = cancel,
	.close = close_wire,
};
