/*
 * session.c: one Responses WebSocket: lanes, queueing, cancels.  Every message is parsed on the
 * parse thread, in order.  A create is sent to prep when its lane is free and fewer than 16
 * responses of the connection run, and starts when it is prepared.  Running responses write events
 * in rotation.
 */
#include "base/clock.h"
#include "daemon/protocol/core/session.h"
#include "daemon/protocol/core/waiting.h"
#include "daemon/protocol/responses/responses_private.h"

#include <stdlib.h>
#include <string.h>

#define ENDPOINT "ws " IG_RESPONSES_PATH
#define MAX_RUNNING 16
#define MAX_LANES 32	/* names that one connection may use, without the default lane */
#define MAX_WAITING 128 /* creates of one connection that wait for their lane */
/* Messages that are being parsed, and messages to be sent: with more the socket is not read. */
#define MAX_READING 4
#define MAX_MESSAGES 16

struct message { /* an outgoing message that is not an event of a response */
	struct message *next;
	struct ig_strbuf text;
};

struct socket {
	struct ig_session is;
	struct link of_api;
	struct ig_api *api;
	void *conn;
	struct ig_origin *origin; /* of the upgrade */
	/* Replies by of_owner: messages that are being parsed; creates that wait, in the order of
	 * their arrival; running ones, the next to write first. */
	struct link reading, waiting, running;
	size_t n_reading, n_waiting, n_running, n_messages;
	struct message *messages, **messages_tail;
	char *lanes[MAX_LANES];
	size_t n_lanes;
	bool broken; /* no memory for one: the connection is closed */
};

static struct socket *socket_of(struct ig_session *is) { return link_entry(is, struct socket, is); }

static void want_write(struct socket *s) { s->api->deps.want_write(s->conn); }

static struct ig_reply *reply_at(struct link *l)
{
	return link_entry(l, struct ig_reply, of_owner);
}

/* ---- messages out --------------------------------------------------------------------- */

static struct message *message_new(struct socket *s)
{
	struct message *n = calloc(1, sizeof *n);

	if (!n) {
		s->broken = true;
		return NULL;
	}
	*s->messages_tail = n;
	s->messages_tail = &n->next;
	s->n_messages++;
	want_write(s);
	return n;
}

static void queue_error(struct socket *s, const struct ig_api_error *e, const char *stream_id)
{
	struct message *n = message_new(s);
	struct ig_api_error known = *e;

	known.retry_after_s = ig_error_retry_after(e, s->api->deps.options.retry_after_s);
	if (n)
		ig_ws_error_event(&n->text, &known, stream_id);
}

/* A response that the lane failed to continue can't be continued again. */
static void drop_parent(struct socket *s, const struct ig_request *q)
{
	if (q->previous_id)
		ig_response_store_remove_lane(s->api->responses->store, s, q->stream_id,
					      q->previous_id);
}

/* Record and report an error, and destroy the reply. */
static void refuse(struct socket *s, struct ig_reply *r, const struct ig_api_error *e)
{
	ig_reply_refuse(r, e);
	drop_parent(s, &r->request);
	queue_error(s, e, r->request.stream_id);
	ig_reply_destroy(r);
}

/* ---- lanes ----------------------------------------------------------------------- */

/* Remember the lane's name; false when there are too many, or no memory. */
static bool know_lane(struct socket *s, const char *name, struct ig_api_error *e)
{
	if (!name[0])
		return true;
	for (size_t i = 0; i < s->n_lanes; i++)
		if (!strcmp(s->lanes[i], name))
			return true;
	if (s->n_lanes == MAX_LANES) {
		ig_api_fail(e, 400, "websocket_stream_limit_reached", "stream_id",
			    "A connection may use at most %d stream ids.", MAX_LANES);
		return false;
	}
	char *copy = strdup(name);
	if (!copy) {
		ig_fail_memory(e);
		return false;
	}
	s->lanes[s->n_lanes++] = copy;
	return true;
}

static bool lane_busy(struct socket *s, const char *name)
{
	for (struct link *l = s->running.next; l != &s->running; l = l->next)
		if (!strcmp(reply_at(l)->request.stream_id, name))
			return true;
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		if (ig_reply_prepares(reply_at(l)) && !strcmp(reply_at(l)->request.stream_id, name))
			return true;
	return false;
}

static bool is_full(struct socket *s)
{
	size_t n = s->n_running;

	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		n += ig_reply_prepares(reply_at(l));
	return n >= MAX_RUNNING;
}

/* ---- starting ------------------------------------------------------------------------- */

static void remove_waiting(struct socket *s, struct ig_reply *r)
{
	link_remove(&r->of_owner);
	s->n_waiting--;
}

/* Run a create, or report that it was cancelled or refused. */
static void run(struct socket *s, struct ig_reply *r)
{
	struct ig_api_error e;

	remove_waiting(s, r);
	if (r->cancelled)
		ig_reply_cancel(r, r->cancelled);
	bool failed = !(r->finished && r->n_choices) && ig_reply_submit(r, &e) < 0;
	if (failed)
		drop_parent(s, &r->request);
	/* Some errors are events of the response. */
	if (!failed || ig_reply_streams(r, &e)) {
		link_append(&s->running, &r->of_owner);
		s->n_running++;
		want_write(s);
		return;
	}
	/* Its row is in the ledger. */
	queue_error(s, &e, r->request.stream_id);
	ig_reply_destroy(r);
}

/* Its lane is free: look up the response that it continues, and send it to prep. */
static void prepare(struct socket *s, struct ig_reply *r)
{
	struct ig_api_error e = { 0 };
	int rc = 0;

	r->last_output_ns = ig_now_ns();
	if (!r->request.previous_id ||
	    !ig_responses_recall(s->api, &r->request, &r->origin->who, s, &e))
		rc = ig_reply_prepare(r);
	if (rc < 0)
		ig_fail_unread(&e, rc, s->api->deps.options.retry_after_s);
	if (!e.status)
		return;
	remove_waiting(s, r);
	refuse(s, r, &e);
}

/* Start creates that can. */
static void start_waiting(struct socket *s)
{
	for (struct link *l = s->waiting.next, *next; l != &s->waiting; l = next) {
		struct ig_reply *r = reply_at(l);
		next = l->next;
		if (is_full(s))
			return;
		if (ig_reply_prepares(r) || lane_busy(s, r->request.stream_id))
			continue;
		if (r->cancelled && !ig_reply_open(r))
			run(s, r);
		else
			prepare(s, r);
	}
}

/* Back from prep. */
static void ready(void *ctx, struct ig_reply *r)
{
	struct socket *s = ctx;
	struct ig_api_error e = r->error;

	if (!e.status && ig_reply_open(r) < 0)
		ig_fail_memory(&e);
	if (e.status && ig_reply_streams(r, &e)) {
		drop_parent(s, &r->request);
		ig_reply_refuse(r, &e);
		ig_reply_fail(r, &e);
	}
	if (r->opened) {
		run(s, r);
	} else {
		remove_waiting(s, r);
		refuse(s, r, &e);
	}
	start_waiting(s);
	want_write(s); /* it may be closed */
}

/* ---- messages ------------------------------------------------------------------------ */

static void create(struct socket *s, struct ig_reply *r)
{
	uint32_t retry_after_s = s->api->deps.options.retry_after_s;
	struct ig_api_error e = { 0 };

	if (!know_lane(s, r->request.stream_id, &e)) {
		/* e is set */
	} else if (s->api->draining) {
		ig_fail_shutting_down(&e, retry_after_s);
	} else if (s->n_waiting >= MAX_WAITING) {
		ig_fail_overloaded(&e, retry_after_s,
				   "Too many responses of this connection are waiting.");
	}
	if (e.status) {
		refuse(s, r, &e);
		return;
	}
	link_append(&s->waiting, &r->of_owner);
	s->n_waiting++;
	start_waiting(s);
}

static bool is_meant(const struct ig_reply *r, const struct ig_request *cancel)
{
	const char *lane = r->request.stream_id;

	if (cancel->response_id)
		return !strcmp(ig_reply_known_id(r), cancel->response_id) &&
		       (!cancel->stream_id[0] || !strcmp(lane, cancel->stream_id));
	return !strcmp(lane, cancel->stream_id);
}

static void cancel_waiting(struct ig_reply *r, const char *reason)
{
	if (!r->cancelled)
		r->cancelled = reason;
	if (r->state == IG_REPLY_PARKED)
		ig_reply_end_wait(r);
}

/* By response_id, or all of a lane: what runs and what waits. */
static void cancel(struct socket *s, const struct ig_request *q)
{
	struct ig_api_error e;
	size_t n = 0;

	for (struct link *l = s->running.next; l != &s->running; l = l->next)
		if (is_meant(reply_at(l), q) && ++n)
			ig_reply_cancel(reply_at(l), "client_cancel");
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		if (is_meant(reply_at(l), q) && ++n)
			cancel_waiting(reply_at(l), "client_cancel");
	if (n) {
		start_waiting(s);
		return;
	}
	if (q->response_id)
		ig_api_fail(&e, 404, "response_not_found", "response_id",
			    "No response '%.80s' runs on this connection.", q->response_id);
	else
		ig_api_fail(&e, 404, "response_not_found", "stream_id",
			    "No response runs on this lane.");
	queue_error(s, &e, q->stream_id);
}

static void steer(struct socket *s, const struct ig_request *q)
{
	struct message *n = message_new(s);

	if (n)
		ig_ws_steer_failed(&n->text, q->steer, q->stream_id);
}

static void receive(struct socket *s, struct ig_reply *r)
{
	link_remove(&r->of_owner);
	s->n_reading--;
	if (r->error.status) {
		refuse(s, r, &r->error);
		return;
	}
	if (r->request.notice == IG_WS_CREATE) {
		create(s, r);
		return;
	}
	if (r->request.notice == IG_WS_CANCEL)
		cancel(s, &r->request);
	else if (r->request.notice == IG_WS_STEER)
		steer(s, &r->request);
	ig_reply_destroy(r);
}

static void parsed(void *ctx, struct ig_reply *r)
{
	receive(ctx, r);
	want_write(ctx); /* it may read again, or be closed */
}

static void news(void *ctx, struct ig_reply *r)
{
	if (r->state == IG_REPLY_PARKED && r->cancelled)
		ig_reply_end_wait(r);
	want_write(ctx);
}

/* ---- the session ---------------------------------------------------------------------- */

static void receive_text(struct ig_session *is, char *text, size_t len)
{
	struct socket *s = socket_of(is);
	static const struct ig_reply_owner owner = { parsed, ready, news };
	const struct ig_origin *of = s->origin;
	struct ig_origin *o = ig_origin_create(of->request_id, of->endpoint, of->client, &of->who);
	struct ig_reply *r =
		o ? ig_reply_create(s->api, &ig_responses_protocol, o, &owner, s) : NULL;
	struct ig_api_error e;
	int rc;

	ig_origin_unref(o);
	if (!r) {
		free(text);
		ig_fail_memory(&e);
		ig_reply_record_refused(s->api, s->origin, &e);
		queue_error(s, &e, NULL);
		return;
	}
	r->connection = s;
	rc = ig_reply_read(r, &ig_ws_request, text, len);
	if (rc < 0) {
		ig_fail_unread(&e, rc, s->api->deps.options.retry_after_s);
		refuse(s, r, &e);
		return;
	}
	link_append(&s->reading, &r->of_owner);
	s->n_reading++;
}

static bool wants_input(const struct ig_session *is)
{
	const struct socket *s = link_entry(is, const struct socket, is);

	return s->n_reading < MAX_READING && s->n_messages < MAX_MESSAGES;
}

static enum ig_fill fill_message(struct socket *s, struct ig_strbuf *out)
{
	struct message *n = s->messages;

	s->messages = n->next;
	if (!s->messages)
		s->messages_tail = &s->messages;
	s->n_messages--;
	if (!ig_strbuf_ok(&n->text))
		s->broken = true;
	else
		ig_strbuf_add(out, n->text.data, n->text.len);
	ig_strbuf_finish(&n->text);
	free(n);
	return s->broken ? IG_FILL_END : IG_FILL_DATA;
}

static bool fill_running(struct socket *s, struct ig_strbuf *out)
{
	for (size_t i = 0, n = s->n_running; i < n; i++) {
		struct ig_reply *r = reply_at(s->running.next);
		bool last = false, some = ig_responses_next_event(r, out, &last);
		/* To the end of the list, or out of it. */
		link_remove(&r->of_owner);
		if (last) {
			s->n_running--;
			ig_reply_destroy(r);
			start_waiting(s);
		} else {
			link_append(&s->running, &r->of_owner);
		}
		if (some)
			return true;
	}
	return false;
}

/* A keep-alive of a response that is being prepared, or whose model is being loaded. */
static bool fill_waiting(struct socket *s, struct ig_strbuf *out)
{
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		if (ig_reply_keep_alive(reply_at(l), ig_responses_wait_event, out))
			return true;
	return false;
}

static enum ig_fill fill(struct ig_session *is, struct ig_strbuf *out)
{
	struct socket *s = socket_of(is);

	if (s->broken)
		return IG_FILL_END;
	if (s->messages)
		return fill_message(s, out);
	if (fill_running(s, out) || fill_waiting(s, out))
		return IG_FILL_DATA;
	if (s->api->draining && !s->n_reading && !s->n_waiting && !s->n_running)
		return IG_FILL_END;
	return IG_FILL_WAIT;
}

void ig_responses_drain(struct ig_api *api)
{
	struct link *all = &api->responses->sessions;

	for (struct link *l = all->next; l != all; l = l->next)
		want_write(link_entry(l, struct socket, of_api));
}

static void cancel_all(struct ig_session *is, const char *reason)
{
	struct socket *s = socket_of(is);

	for (struct link *l = s->running.next; l != &s->running; l = l->next)
		ig_reply_cancel(reply_at(l), reason);
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		cancel_waiting(reply_at(l), reason);
}

static void end(struct ig_session *is)
{
	struct socket *s = socket_of(is);

	while (!link_empty(&s->reading))
		ig_reply_destroy(reply_at(s->reading.next));
	while (!link_empty(&s->running))
		ig_reply_destroy(reply_at(s->running.next));
	while (!link_empty(&s->waiting)) {
		struct ig_reply *r = reply_at(s->waiting.next);
		if (r->state == IG_REPLY_READY)
			ig_reply_cancel(r, "client_gone");
		ig_reply_destroy(r);
	}
	ig_response_store_remove_lane(s->api->responses->store, s, NULL, NULL);
	while (s->messages) {
		struct message *n = s->messages;
		s->messages = n->next;
		ig_strbuf_finish(&n->text);
		free(n);
	}
	for (size_t i = 0; i < s->n_lanes; i++)
		free(s->lanes[i]);
	link_remove(&s->of_api);
	ig_origin_unref(s->origin);
	free(s);
}

struct ig_session *ig_session_open(struct ig_api *api, const char *request_id, const char *client,
				   const struct ig_principal *who, void *conn)
{
	static const struct ig_session_kind kind = { receive_text, wants_input, fill,
						     cancel_all,   end,		NULL };
	struct socket *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->origin = ig_origin_create(request_id, ENDPOINT, client, who);
	if (!s->origin) {
		free(s);
		return NULL;
	}
	s->api = api;
	s->conn = conn;
	link_init(&s->reading);
	link_init(&s->waiting);
	link_init(&s->running);
	s->messages_tail = &s->messages;
	link_append(&api->responses->sessions, &s->of_api);
	s->is.kind = &kind;
	return &s->is;
}
