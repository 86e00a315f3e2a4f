/* session.c: see session.h. */
#include "cli/net/session.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "cli/download/files.h"

#define CONNECT_TIMEOUT_MS 10000
/* The daemon answers within a step, but a busy machine may not let it; who can't wait presses Ctrl-C again. */
#define CANCEL_WAIT_MS 10000
#define TICK_MS 100
#define FIRST_WAIT_MS 500
#define MAX_WAIT_MS 8000

void ig_session_close(struct ig_session *s)
{
	ig_ws_close(s->ws);
	s->ws = NULL;
}

int ig_session_connect(struct ig_session *s, struct ig_error *err)
{
	return ig_ws_open(s->e, "/v1/responses", CONNECT_TIMEOUT_MS, &s->ws, err);
}

static int send_cancel(struct ig_session *s, const struct ig_response *a)
{
	struct ig_strbuf b = { 0 };
	int rc = -ENOMEM;

	/* without an id: the only request of the connection's default lane */
	if (ig_cli_request_cancel(a->id, &b))
		rc = ig_ws_send(s->ws, b.data, b.len, NULL);
	ig_strbuf_finish(&b);
	return rc;
}

/* Read events to the end of the response. */
static int stream(struct ig_session *s, struct ig_response *a, struct ig_error *err)
{
	struct ig_strbuf msg = { 0 };
	int64_t give_up = 0;
	int rc = 0;

	while (!ig_response_ended(a)) {
		if (ig_interrupted && !give_up) {
			give_up = ig_now_ns() + (int64_t)CANCEL_WAIT_MS * 1000000;
			if (send_cancel(s, a))
				break;
		}
		/* a second Ctrl-C ends the wait */
		if (give_up && (ig_interrupted > 1 || ig_now_ns() > give_up))
			break;
		rc = ig_ws_next(s->ws, TICK_MS, &msg, err);
		if (rc < 0)
			break;
		if (rc == 0)
			continue;
		rc = s->raw ? s->raw(s->ctx, msg.data, msg.len) : 0;
		if (!rc)
			rc = ig_response_event(a, ig_strbuf_text(&msg), msg.len, ig_now_ns(), err);
		if (rc) {
			send_cancel(s, a);
			break;
		}
	}
	ig_strbuf_finish(&msg);
	if (ig_response_ended(a))
		return 0;
	ig_session_close(s);
	return ig_interrupted ? -EINTR : rc;
}

static int wait_ms(unsigned ms)
{
	int64_t until = ig_now_ns() + (int64_t)ms * 1000000;

	while (!ig_interrupted && ig_now_ns() < until)
		poll(NULL, 0, TICK_MS);
	return ig_interrupted ? -EINTR : 0;
}

static bool is_lost(int rc) { return rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -ETIMEDOUT; }

/* The daemon, or its connection, is ending: a new one may serve the request. */
static bool is_ending(const struct ig_response *a)
{
	return a->state == IG_RESPONSE_FAILED &&
	       (!strcmp(a->code, "server_shutting_down") ||
		!strcmp(a->code, "websocket_connection_limit_reached"));
}

static void start_over(struct ig_response *a)
{
	int (*thought)(void *ctx, const char *s, size_t len) = a->thought;

	ig_response_init(a, a->text, a->ctx);
	a->thought = thought;
}

int ig_session_request(struct ig_session *s, const struct ig_cli_request *q, struct ig_response *a,
		       struct ig_error *err)
{
	struct ig_strbuf create = { 0 };
	unsigned wait = FIRST_WAIT_MS;
	int rc = 0;

	if (!ig_cli_request_write(q, &create)) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
	for (unsigned attempt = 0;; attempt++) {
		bool was_open = s->ws != NULL;
		if (!s->ws)
			rc = ig_session_connect(s, err);
		if (s->ws) {
			a->sent_ns = ig_now_ns();
			rc = ig_ws_send(s->ws, create.data, create.len, err);
			rc = rc ? rc : stream(s, a, err);
		}
		if (a->first_ns || attempt >= s->n_retries)
			break;
		if (!rc && is_ending(a)) {
			rc = ig_fail(err, -ECONNRESET, "%s", a->error);
			was_open = false; /* wait: ending takes time */
		}
		if (!is_lost(rc))
			break;
		ig_session_close(s);
		/* a lost idle connection is replaced without a message */
		if (!was_open) {
			if (s->retrying)
				s->retrying(s->ctx, err->text, wait);
			rc = wait_ms(wait);
			if (rc)
				break;
			wait = wait * 2 < MAX_WAIT_MS ? wait * 2 : MAX_WAIT_MS;
		}
		start_over(a);
		*err = (struct ig_error){ 0 };
	}
	if (rc)
		ig_session_close(s);
out:
	ig_strbuf_finish(&create);
	return rc;
}
