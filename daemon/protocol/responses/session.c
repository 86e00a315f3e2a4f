/*
 * session.c: one Responses WebSocket: lanes, queueing, cancels.
 *
 * Every message is parsed on the prep thread, in order.  A create takes its turn when its
 * lane is free and fewer than 16 responses of the connection run.  One that continues a
 * response, or whose model was not loaded, goes to prep a second time then, and waits there
 * for what it needs; others are ready before their turn.  Running responses take turns in
 * giving the next event.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"
#include "daemon/protocol/responses/stored.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT "ws /v1/responses"
#define MAX_RUNNING 16
#define MAX_LANES 32	/* names that one connection may use, without the default lane */
#define MAX_WAITING 128 /* creates of one connection that wait for their turn */
/* Messages that are parsed at a time, and replies that wait to be read: beyond
 * them the socket is not read. */
#define MAX_JOBS 4
#define MAX_NOTES 16

struct note { /* a message that belongs to no response's sequence */
	struct note *next;
	struct ig_strbuf text;
};

/* A create that does not run yet. */
struct turn {
	struct link of_session;
	struct ig_session *session;
	struct ig_reply *reply;	   /* NULL: it is prepared when its turn comes */
	struct ig_request request; /* until there is a reply; at prep: its lane and parent only */
	struct ig_job *job;	   /* at prep: its model is, or was, being loaded; else NULL */
	int64_t received_ns, received_wall_ns;
	bool prepares;	       /* it is at prep, and holds its lane */
	const char *cancelled; /* why; NULL: it is not */
};

struct ig_session {
	struct link of_api;
	struct ig_api *api;
	void *conn;
	char client[64];
	struct ig_principal who;
	struct link jobs;
	struct link waiting; /* turns, in the order of their arrival */
	struct link running; /* replies; the head is next to write */
	size_t n_jobs, n_waiting, n_preparing, n_running, n_notes;
	struct note *notes, **notes_tail;
	char *lanes[MAX_LANES];
	size_t n_lanes;
	bool broken; /* out of memory for a reply: the connection ends */
};

static void want_write(struct ig_session *s)
{
	s->api->deps.want_write(s->conn);
}

/* ---- notes --------------------------------------------------------------------- */

static struct note *note_new(struct ig_session *s)
{
	struct note *r = calloc(1, sizeof *r);

	if (!r) {
		s->broken = true;
		return NULL;
	}
	*s->notes_tail = r;
	s->notes_tail = &r->next;
	s->n_notes++;
	want_write(s);
	return r;
}

static void note_error(struct ig_session *s, const struct ig_api_error *e, const char *stream_id)
{
	struct note *r = note_new(s);

	if (r)
		ig_ws_error_event(&r->text, e, stream_id);
}

/* The ledger's row and the event of an error; what the lane could not go on from is not
 * offered again. */
static void refuse(struct ig_session *s, const struct ig_request *r, int64_t received_ns,
		   int64_t received_wall_ns, const struct ig_api_error *e)
{
	ig_api_note_refused(s->api, "", ENDPOINT, s->client, &s->who, r->model, received_ns,
			    received_wall_ns, e);
	if (r->previous_id)
		ig_kept_drop_of_lane(s->api->kept, s, r->stream_id, r->previous_id);
	note_error(s, e, r->stream_id);
}

/* ---- lanes ----------------------------------------------------------------------- */

/* Remember the lane's name; false when there are too many, or no memory. */
static bool know_lane(struct ig_session *s, const char *name, struct ig_api_error *e)
{
	if (!name[0])
		return true;
	for (size_t i = 0; i < s->n_lanes; i++)
		if (!strcmp(s->lanes[i], name))
			return true;
	if (s->n_lanes == MAX_LANES) {
		ig_api_fail(e, 400, "invalid_request_error", "websocket_stream_limit_reached",
			    "stream_id",
			    "A connection may use %d stream ids; this would be another.",
			    MAX_LANES);
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

static bool lane_busy(struct ig_session *s, const char *name)
{
	for (struct link *l = s->running.next; l != &s->running; l = l->next)
		if (!strcmp(link_entry(l, struct ig_reply, of_owner)->request.stream_id, name))
			return true;
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next) {
		struct turn *t = link_entry(l, struct turn, of_session);
		if (t->prepares && !strcmp(t->request.stream_id, name))
			return true;
	}
	return false;
}

/* ---- turns ------------------------------------------------------------------------- */

static const struct ig_request *request_of(const struct turn *t)
{
	return t->reply ? &t->reply->request : &t->request;
}

static void turn_destroy(struct turn *t)
{
	link_remove(&t->of_session);
	t->session->n_waiting--;
	t->session->n_preparing -= t->prepares;
	ig_reply_destroy(t->reply);
	ig_request_finish(&t->request);
	free(t);
}

static void reply_notify(void *owner, struct ig_reply *r)
{
	want_write(owner);
}

/* A reply to the job's request; refused without memory, or NULL. */
static struct ig_reply *reply_new(struct ig_session *s, struct ig_job *job)
{
	struct ig_reply *r = ig_reply_create(job, ENDPOINT, s->client, &s->who, s, reply_notify);

	if (r)
		r->connection = s;
	else
		ig_fail_memory(&job->error);
	return r;
}

/* The turn's reply runs from now on, or is told to have been cancelled, or is refused. */
static void turn_run(struct turn *t)
{
	struct ig_session *s = t->session;
	struct ig_reply *r = t->reply;
	struct ig_api_error e;

	if (t->cancelled)
		ig_reply_cancel(r, t->cancelled);
	/* What has begun says itself how it ends. */
	if ((r->finished && r->n_calls) || !ig_reply_submit(r, &e) || r->sequence) {
		t->reply = NULL;
		link_append(&s->running, &r->of_owner);
		s->n_running++;
		want_write(s);
	} else {
		/* The ledger has its row. */
		if (r->request.previous_id)
			ig_kept_drop_of_lane(s->api->kept, s, r->request.stream_id,
					     r->request.previous_id);
		note_error(s, &e, r->request.stream_id);
	}
	turn_destroy(t);
}

static void start_waiting(struct ig_session *s);

/* Back from prep with what it continues. */
static void deliver_turn(void *owner, struct ig_job *job)
{
	struct turn *t = owner;
	struct ig_session *s = t->session;

	t->job = NULL;
	if (!job->error.status)
		t->reply = reply_new(s, job);
	if (!t->reply && job->begun.id[0]) {
		ig_api_note_refused(s->api, job->begun.id, ENDPOINT, s->client, &s->who,
				    job->request.model, t->received_ns, t->received_wall_ns,
				    &job->error);
		t->reply = reply_new(s, job);
		s->broken |= !t->reply;
	}
	if (t->reply) {
		turn_run(t);
	} else {
		refuse(s, &t->request, t->received_ns, t->received_wall_ns, &job->error);
		turn_destroy(t);
	}
	start_waiting(s);
}

static void turn_waits(void *owner, struct ig_job *job)
{
	struct turn *t = owner;

	t->job = job;
	if (t->cancelled)
		ig_job_end_wait(job);
	want_write(t->session);
}

/* Its turn has come, and with it what it continues. */
static void turn_prepare(struct turn *t)
{
	struct ig_session *s = t->session;
	struct ig_request r = t->request;
	struct ig_api_error e = { 0 };
	int rc;

	/* What the lane and the ledger need to know meanwhile. */
	t->request = (struct ig_request){ 0 };
	memcpy(t->request.stream_id, r.stream_id, sizeof r.stream_id);
	t->request.previous_id = r.previous_id ? strdup(r.previous_id) : NULL;
	t->request.model = r.model ? strdup(r.model) : NULL;
	if (!t->request.previous_id != !r.previous_id || !t->request.model != !r.model)
		ig_fail_memory(&e);
	else if (r.previous_id)
		ig_responses_recall(s->api, &r, &s->who, s, &e);
	if (e.status) {
		ig_request_finish(&r);
	} else {
		struct ig_job_owner owner = { t, deliver_turn, turn_waits, &s->jobs, &s->who };
		rc = ig_job_prepare(s->api, &ig_responses_protocol, &r, t->received_ns,
				    t->received_wall_ns, &owner);
		if (!rc) {
			t->prepares = true;
			s->n_preparing++;
			return;
		}
		if (rc == -EAGAIN) {
			ig_api_fail(&e, 503, "server_error", "server_is_overloaded", NULL,
				    "Too many requests are waiting to be read.");
			e.retry_after_s = s->api->deps.options.retry_after_s;
		} else {
			ig_fail_memory(&e);
		}
	}
	refuse(s, &t->request, t->received_ns, t->received_wall_ns, &e);
	turn_destroy(t);
}

/* Start what may start. */
static void start_waiting(struct ig_session *s)
{
	for (struct link *l = s->waiting.next, *next; l != &s->waiting; l = next) {
		struct turn *t = link_entry(l, struct turn, of_session);
		next = l->next;
		if (s->n_running + s->n_preparing >= MAX_RUNNING)
			return;
		if (t->prepares || lane_busy(s, request_of(t)->stream_id))
			continue;
		if (t->reply)
			turn_run(t);
		else
			turn_prepare(t);
	}
}

static void create(struct ig_session *s, struct ig_job *job)
{
	struct ig_api_error *e = &job->error;
	struct turn *t = NULL;

	if (!know_lane(s, job->request.stream_id, e))
		goto refused;
	if (s->n_waiting >= MAX_WAITING || s->api->draining) {
		ig_api_fail(e, 503, "server_error",
			    s->api->draining ? "server_shutting_down" : "server_is_overloaded",
			    NULL, "%s",
			    s->api->draining ?
				    "The server is shutting down." :
				    "Too many responses of this connection are waiting.");
		e->retry_after_s = s->api->deps.options.retry_after_s;
		goto refused;
	}
	t = calloc(1, sizeof *t);
	if (!t) {
		ig_fail_memory(e);
		goto refused;
	}
	t->session = s;
	t->received_ns = job->received_ns;
	t->received_wall_ns = job->received_wall_ns;
	if (job->request.previous_id || job->waits) {
		t->request = job->request;
		job->request = (struct ig_request){ 0 };
	} else {
		t->reply = reply_new(s, job);
		if (!t->reply) {
			free(t);
			goto refused;
		}
	}
	link_append(&s->waiting, &t->of_session);
	s->n_waiting++;
	start_waiting(s);
	return;
refused:
	refuse(s, &job->request, job->received_ns, job->received_wall_ns, e);
}

static bool is_meant(const char *id, const char *lane, const struct ig_request *r)
{
	if (r->response_id)
		return !strcmp(id, r->response_id) &&
		       (!r->stream_id[0] || !strcmp(lane, r->stream_id));
	return !strcmp(lane, r->stream_id);
}

static void turn_cancel(struct turn *t, const char *reason)
{
	if (!t->cancelled)
		t->cancelled = reason;
	if (t->reply)
		ig_reply_cancel(t->reply, reason);
	else if (t->job && t->job->parked)
		ig_job_end_wait(t->job);
}

/* "": it has none yet that the client knows. */
static const char *id_of(const struct turn *t)
{
	return t->reply ? t->reply->id : t->job ? t->job->begun.id : "";
}

/* By response_id, or all of a lane: what runs and what waits. */
static void cancel(struct ig_session *s, const struct ig_request *r)
{
	size_t n = 0;

	for (struct link *l = s->running.next; l != &s->running; l = l->next) {
		struct ig_reply *c = link_entry(l, struct ig_reply, of_owner);
		if (is_meant(c->id, c->request.stream_id, r) && ++n)
			ig_reply_cancel(c, "client_cancel");
	}
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next) {
		struct turn *t = link_entry(l, struct turn, of_session);
		if (is_meant(id_of(t), request_of(t)->stream_id, r) && ++n)
			turn_cancel(t, "client_cancel");
	}
	if (n) {
		start_waiting(s);
		return;
	}
	struct ig_api_error e;
	if (r->response_id)
		ig_api_fail(&e, 404, "invalid_request_error", "response_not_found", "response_id",
			    "No response '%.80s' runs on this connection.", r->response_id);
	else
		ig_api_fail(&e, 404, "invalid_request_error", "response_not_found", "stream_id",
			    "No response runs on this lane.");
	note_error(s, &e, r->stream_id);
}

static void deliver(void *owner, struct ig_job *job)
{
	struct ig_session *s = owner;
	struct ig_request *r = &job->request;

	s->n_jobs--;
	if (job->error.status) {
		refuse(s, r, job->received_ns, job->received_wall_ns, &job->error);
	} else if (r->kind == IG_REQUEST_CREATE) {
		create(s, job);
	} else if (r->kind == IG_REQUEST_CANCEL) {
		cancel(s, r);
	} else if (r->kind == IG_REQUEST_STEER) {
		struct note *note = note_new(s);
		if (note)
			ig_ws_steer_failed(&note->text, r->steer, r->stream_id);
	}
	want_write(s); /* it may read again, or close */
}

/* ---- the session ---------------------------------------------------------------------- */

struct ig_session *ig_session_open(struct ig_api *api, const char *client,
				   const struct ig_principal *who, void *conn)
{
	struct ig_session *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->api = api;
	s->conn = conn;
	snprintf(s->client, sizeof s->client, "%s", client);
	s->who = *who;
	link_init(&s->jobs);
	link_init(&s->waiting);
	link_init(&s->running);
	s->notes_tail = &s->notes;
	link_append(&api->sessions, &s->of_api);
	return s;
}

void ig_session_receive(struct ig_session *s, char *text, size_t len)
{
	/* What waits for its model is to wait as a turn of its lane. */
	struct ig_job_owner owner = { s, deliver, NULL, &s->jobs, &s->who };
	int rc = ig_job_start(s->api, &ig_responses_protocol, ig_request_parse_ws, text, len,
			      &owner);
	struct ig_api_error e;

	if (!rc) {
		s->n_jobs++;
		return;
	}
	if (rc == -EAGAIN) {
		ig_api_fail(&e, 503, "server_error", "server_is_overloaded", NULL,
			    "Too many requests are waiting to be read.");
		e.retry_after_s = s->api->deps.options.retry_after_s;
	} else {
		ig_fail_memory(&e);
	}
	ig_api_note_refused(s->api, "", ENDPOINT, s->client, &s->who, NULL, ig_now_ns(),
			    ig_wall_ns(), &e);
	note_error(s, &e, NULL);
}

bool ig_session_wants_input(const struct ig_session *s)
{
	return s->n_jobs < MAX_JOBS && s->n_notes < MAX_NOTES;
}

/* A keep-alive of a response whose model is being loaded. */
static bool fill_waiting(struct ig_session *s, struct ig_strbuf *out)
{
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next) {
		struct turn *t = link_entry(l, struct turn, of_session);
		if (t->job && ig_job_keep_alive(t->job, ig_responses_wait_event, out))
			return true;
	}
	return false;
}

enum ig_fill ig_session_fill(struct ig_session *s, struct ig_strbuf *out)
{
	if (s->broken)
		return IG_FILL_END;
	if (s->notes) {
		struct note *r = s->notes;
		s->notes = r->next;
		if (!s->notes)
			s->notes_tail = &s->notes;
		s->n_notes--;
		if (!ig_strbuf_ok(&r->text))
			s->broken = true;
		else
			ig_strbuf_add(out, r->text.data, r->text.len);
		ig_strbuf_finish(&r->text);
		free(r);
		return s->broken ? IG_FILL_END : IG_FILL_DATA;
	}
	for (size_t i = 0, n = s->n_running; i < n; i++) {
		struct ig_reply *c = link_entry(s->running.next, struct ig_reply, of_owner);
		bool last = false, some = ig_responses_next_event(c, out, &last);
		/* To the end of the line, or out. */
		link_remove(&c->of_owner);
		if (last) {
			s->n_running--;
			ig_reply_destroy(c);
			start_waiting(s);
		} else {
			link_append(&s->running, &c->of_owner);
		}
		if (some)
			return IG_FILL_DATA;
	}
	if (fill_waiting(s, out))
		return IG_FILL_DATA;
	if (s->api->draining && !s->n_jobs && !s->n_waiting && !s->n_running)
		return IG_FILL_END;
	return IG_FILL_WAIT;
}

void ig_sessions_drain(struct ig_api *api)
{
	for (struct link *l = api->sessions.next; l != &api->sessions; l = l->next)
		want_write(link_entry(l, struct ig_session, of_api));
}

void ig_session_cancel(struct ig_session *s, const char *reason)
{
	if (!s)
		return;
	for (struct link *l = s->running.next; l != &s->running; l = l->next)
		ig_reply_cancel(link_entry(l, struct ig_reply, of_owner), reason);
	for (struct link *l = s->waiting.next; l != &s->waiting; l = l->next)
		turn_cancel(link_entry(l, struct turn, of_session), reason);
}

void ig_session_end(struct ig_session *s)
{
	if (!s)
		return;
	ig_jobs_abandon(&s->jobs, ENDPOINT, s->client, false);
	while (!link_empty(&s->running))
		ig_reply_destroy(link_entry(s->running.next, struct ig_reply, of_owner));
	while (!link_empty(&s->waiting)) {
		struct turn *t = link_entry(s->waiting.next, struct turn, of_session);
		struct ig_api_error e;
		if (t->reply) {
			ig_reply_cancel(t->reply, "client_gone");
		} else {
			ig_api_fail(&e, 499, "invalid_request_error", NULL, NULL,
				    "cancelled before it ran (client_gone)");
			ig_api_note_refused(s->api, "", ENDPOINT, s->client, &s->who,
					    t->request.model, t->received_ns, t->received_wall_ns,
					    &e);
		}
		turn_destroy(t);
	}
	ig_kept_drop_connection(s->api->kept, s);
	while (s->notes) {
		struct note *r = s->notes;
		s->notes = r->next;
		ig_strbuf_finish(&r->text);
		free(r);
	}
	for (size_t i = 0; i < s->n_lanes; i++)
		free(s->lanes[i]);
	link_remove(&s->of_api);
	free(s);
}
