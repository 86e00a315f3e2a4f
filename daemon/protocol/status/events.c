/*
 * events.c: /v1/ingot/events, a WebSocket that tells what changes: the requests that run, the daemon's
 * status and its models.  Once a second, while a session is open, the loop makes the texts of which
 * the same GETs consist; those that differ from the last ones are sent, so a daemon that does nothing
 * sends nothing.  A session that reads slowly gets the latest text of each kind, not all of them.
 */
#include "daemon/protocol/status/events.h"

#include "base/clock.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/session.h"
#include "daemon/protocol/models/models.h"
#include "daemon/protocol/status/status.h"

#include <stdlib.h>
#include <string.h>

#define EVERY_NS INT64_C(1000000000)

struct watch {
	struct ig_session is;
	struct link of_api;
	struct ig_api *api;
	void *conn;
	uint64_t seen[IG_N_EVENTS];
	bool spoke; /* the client has sent something, which is answered with an error */
};

static const char *const names[IG_N_EVENTS] = { "status", "requests", "models" };

static struct watch *watch_of(struct ig_session *s) { return link_entry(s, struct watch, is); }

/* ---- what changes --------------------------------------------------------------------------- */

/* Take text for the kind's current one; it is empty then. */
static void take(struct ig_api *api, int kind, struct ig_strbuf *text)
{
	struct ig_strbuf *last = &api->events.texts[kind];

	if (ig_strbuf_ok(text) &&
	    (text->len != last->len || memcmp(text->data, last->data, text->len))) {
		struct ig_strbuf old = *last;
		*last = *text;
		*text = old;
		api->events.versions[kind]++;
	}
	ig_strbuf_finish(text);
}

static void look(struct ig_api *api)
{
	struct ig_strbuf texts[IG_N_EVENTS] = { 0 };

	ig_status_write(api, &texts[IG_EVENT_STATUS]);
	ig_status_write_requests(api, &texts[IG_EVENT_REQUESTS]);
	ig_models_write_states(api, &texts[IG_EVENT_MODELS]);
	for (int i = 0; i < IG_N_EVENTS; i++)
		take(api, i, &texts[i]);
}

static bool has_news(const struct watch *w)
{
	for (int i = 0; i < IG_N_EVENTS; i++)
		if (w->seen[i] != w->api->events.versions[i])
			return true;
	return false;
}

int64_t ig_events_tick(struct ig_api *api, int64_t now_ns)
{
	struct ig_events *e = &api->events;

	if (link_empty(&e->sessions))
		return -1;
	if (now_ns < e->next_ns)
		return e->next_ns - now_ns;
	e->next_ns = now_ns + EVERY_NS;
	look(api);
	for (struct link *l = e->sessions.next; l != &e->sessions; l = l->next) {
		struct watch *w = link_entry(l, struct watch, of_api);
		if (has_news(w))
			api->deps.want_write(w->conn);
	}
	return EVERY_NS;
}

/* ---- a session -------------------------------------------------------------------------------- */

static void receive(struct ig_session *s, char *text, size_t len)
{
	struct watch *w = watch_of(s);

	free(text);
	w->spoke = true;
	w->api->deps.want_write(w->conn);
}

static bool wants_input(const struct ig_session *s)
{
	return !link_entry(s, const struct watch, is)->spoke;
}

static void write_error(struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	struct ig_api_error e;

	ig_api_fail(&e, 400, "unexpected_message", NULL, "This WebSocket takes no messages.");
	ig_json_putf(&w, "{'type': 'error', 'status': 400");
	ig_error_member(&w, &e);
	ig_json_close_object(&w);
}

static enum ig_fill fill(struct ig_session *s, struct ig_strbuf *out)
{
	struct watch *w = watch_of(s);
	struct ig_events *e = &w->api->events;
	struct ig_json_writer json = { .out = out };

	if (w->api->draining)
		return IG_FILL_END;
	if (w->spoke) {
		w->spoke = false;
		write_error(out);
		return IG_FILL_DATA;
	}
	for (int i = 0; i < IG_N_EVENTS; i++) {
		if (w->seen[i] == e->versions[i])
			continue;
		w->seen[i] = e->versions[i];
		ig_json_putf(&json, "{'type': %s, 'data': %-s}", names[i], e->texts[i].data);
		return IG_FILL_DATA;
	}
	return IG_FILL_WAIT;
}

static void cancel(struct ig_session *s, const char *reason) {}

static bool needs_key(const struct ig_session *s) { return true; }

static void end(struct ig_session *s)
{
	struct watch *w = watch_of(s);

	link_remove(&w->of_api);
	free(w);
}

struct ig_session *ig_events_open(struct ig_api *api, const char *request_id, const char *client,
				  const struct ig_principal *who, void *conn)
{
	static const struct ig_session_kind kind = { receive, wants_input, fill,
						     cancel,  end,	   needs_key };
	struct watch *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->is.kind = &kind;
	w->api = api;
	w->conn = conn;
	link_append(&api->events.sessions, &w->of_api);
	/* the first events come at once */
	look(api);
	api->deps.want_write(conn);
	return &w->is;
}

/* ---- all of them --------------------------------------------------------------------------------- */

void ig_events_init(struct ig_events *e) { link_init(&e->sessions); }

void ig_events_finish(struct ig_events *e)
{
	for (int i = 0; i < IG_N_EVENTS; i++)
		ig_strbuf_finish(&e->texts[i]);
}

void ig_events_drain(struct ig_api *api)
{
	struct link *all = &api->events.sessions;

	for (struct link *l = all->next; l != all; l = l->next)
		api->deps.want_write(link_entry(l, struct watch, of_api)->conn);
}
