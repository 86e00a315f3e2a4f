/*
 * waiting.c: see waiting.h.  Replies come back from the parse thread and from prep.  Where a
 * request's model is not loaded, prep starts the load and returns the reply.  The loop parks it,
 * with timers for its keep-alives, server.model_wait and its deadline, and sends it to prep again
 * when the load has ended.
 */
#include "daemon/protocol/core/waiting.h"

#include "base/clock.h"
#include "daemon/protocol/core/normalize.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Its owner left meanwhile. */
static void bury(struct ig_reply *r)
{
	ig_reply_abandoned(r);
	ig_reply_destroy(r);
}

static void deliver_parsed(struct ig_reply *r)
{
	r->state = IG_REPLY_READY;
	if (r->owner_ctx)
		r->owner->parsed(r->owner_ctx, r);
	else
		bury(r);
}

static void deliver(struct ig_reply *r)
{
	struct ig_api *api = r->api;

	link_remove(&r->of_parked);
	/* From here on it counts when it is admitted. */
	if (r->held)
		ig_limits_release(api->limits, &r->origin->who);
	r->held = false;
	if (r->error.status == 503 && !r->error.retry_after_s)
		r->error.retry_after_s = api->deps.options.retry_after_s;
	r->state = IG_REPLY_READY;
	if (r->parked_ns)
		r->waited_ns = ig_now_ns() - r->parked_ns;
	if (r->owner_ctx)
		r->owner->ready(r->owner_ctx, r);
	else
		bury(r);
}

static void fail_loading(struct ig_reply *r)
{
	uint32_t ms = r->api->deps.options.model_wait_ms;
	const char *name = ig_model_ticket_name(&r->ticket);
	char waited[80] = "";

	if (ms)
		snprintf(waited, sizeof waited, ", for more than %g s (server.model_wait)",
			 ms / 1000.0);
	ig_api_fail(&r->error, 503, "model_loading", "model",
		    "%s%s%s is being loaded%s; try again later.",
		    name[0] ? "The model '" : "The default model", name, name[0] ? "'" : "",
		    waited);
}

static bool can_park(const struct ig_api *api)
{
	uint32_t n = 0;

	for (struct link *l = api->parked.next; l != &api->parked; l = l->next)
		n++;
	return n < api->deps.options.max_waiting;
}

/* Park a reply that waits for its model, or refuse it. */
static void park(struct ig_reply *r)
{
	struct ig_api *api = r->api;
	int64_t now = ig_now_ns();

	if (api->draining)
		ig_fail_shutting_down(&r->error, 0);
	else if (!api->deps.options.model_wait_ms)
		fail_loading(r);
	else if (!can_park(api))
		ig_fail_overloaded(&r->error, 0,
				   "Too many requests wait for models that are being loaded.");
	else if (!r->held && !r->protocol->immediate)
		r->held = !ig_limits_hold(api->limits, &r->origin->who, now, &r->error);
	if (r->error.status) {
		deliver(r);
		return;
	}
	if (!r->parked_ns)
		r->parked_ns = now;
	r->state = IG_REPLY_PARKED;
	link_append(&api->parked, &r->of_parked);
	r->owner->news(r->owner_ctx, r);
}

void ig_reply_end_wait(struct ig_reply *r)
{
	r->over = true;
	ig_wake_loop(&r->api->wakes);
}

/* The first whose wait is over, or whose load has ended; NULL: none. */
static struct ig_reply *first_awake(struct ig_api *api)
{
	for (struct link *l = api->parked.next; l != &api->parked; l = l->next) {
		struct ig_reply *r = link_entry(l, struct ig_reply, of_parked);
		if (r->over || ig_model_ticket_due(&r->ticket))
			return r;
	}
	return NULL;
}

static void wake_parked(struct ig_api *api)
{
	struct ig_reply *r;

	/* A delivery may change the list. */
	while ((r = first_awake(api))) {
		int rc = r->over ? 0 : ig_handoff_send(r);
		if (rc == -EAGAIN) /* tried again when prep has finished a request */
			return;
		if (rc < 0)
			ig_fail_memory(&r->error);
		if (r->over || rc < 0)
			deliver(r);
		else
			link_remove(&r->of_parked);
	}
}

void ig_waiting_poll(struct ig_api *api)
{
	for (struct ig_reply *r = ig_handoff_take(api), *next; r; r = next) {
		next = r->next_done;
		ig_ignored_take(r);
		ig_normalize_take(r);
		if (r->prepared.style.fallback)
			r->origin->tool_format = "hermes-fallback";
		if (r->state == IG_REPLY_AT_PARSE)
			deliver_parsed(r);
		else if (r->waits && r->owner_ctx)
			park(r);
		else
			deliver(r);
	}
	wake_parked(api);
}

void ig_waiting_drain(struct ig_api *api)
{
	while (!link_empty(&api->parked)) {
		struct ig_reply *r = link_entry(api->parked.next, struct ig_reply, of_parked);
		ig_fail_shutting_down(&r->error, 0);
		deliver(r);
	}
}

/* ---- timers ------------------------------------------------------------------------------ */

/* The first that has reached its timeout or its deadline; *next: nanoseconds until another will. */
static struct ig_reply *first_overdue(struct ig_api *api, int64_t now_ns, int64_t *next)
{
	int64_t limit = (int64_t)api->deps.options.model_wait_ms * 1000000;

	*next = -1;
	for (struct link *l = api->parked.next; l != &api->parked; l = l->next) {
		struct ig_reply *r = link_entry(l, struct ig_reply, of_parked);
		int64_t left = r->parked_ns + limit - now_ns, end = ig_reply_deadline_ns(r);
		if (end && end - now_ns < left)
			left = end - now_ns;
		if (left <= 0)
			return r;
		if (*next < 0 || left < *next)
			*next = left;
	}
	return NULL;
}

static bool wants_keep_alive(const struct ig_reply *r)
{
	if (ig_reply_prepares(r))
		return r->owner_ctx && r->request.stream && r->protocol->wait;
	return r->submitted && !r->finished;
}

int64_t ig_waiting_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t interval = (int64_t)api->deps.options.keepalive_interval_ms * 1000000, next;
	struct ig_reply *r;

	while ((r = first_overdue(api, now_ns, &next))) {
		if (!ig_reply_check_deadline(r, now_ns, &r->error))
			fail_loading(r);
		deliver(r);
	}
	for (struct link *l = api->replies.next; interval && l != &api->replies; l = l->next) {
		r = link_entry(l, struct ig_reply, all);
		if (!wants_keep_alive(r))
			continue;
		int64_t left = r->last_output_ns + interval - now_ns;
		if (left <= 0) {
			if (!r->keepalive) {
				r->keepalive = true;
				r->owner->news(r->owner_ctx, r);
			}
			left = interval;
		}
		if (next < 0 || left < next)
			next = left;
	}
	return next;
}

bool ig_reply_keep_alive(struct ig_reply *r, bool (*write)(struct ig_reply *r, struct ig_strbuf *),
			 struct ig_strbuf *out)
{
	if (!ig_reply_prepares(r) || !r->keepalive)
		return false;
	ig_reply_wrote(r);
	/* Its stream begins: the client gets the name of the default model too. */
	if (!r->begun)
		ig_engine_model_name(r->api->deps.engine, NULL, r->model_name);
	r->begun = true;
	r->keepalive = write(r, out);
	return true;
}
