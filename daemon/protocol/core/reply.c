/* reply.c: see reply.h.  The loop's thread. */
#include "daemon/protocol/core/reply.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "daemon/protocol/core/ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the ledger ------------------------------------------------------------------------ */

const char *ig_reply_known_id(const struct ig_reply *r)
{
	return r->opened || r->begun ? r->id : "";
}

const char *ig_reply_model_name(const struct ig_reply *r)
{
	if (r->request.model && r->request.model[0])
		return r->request.model;
	return r->state != IG_REPLY_AT_PREP && r->prepared.model ? r->prepared.model->name :
								   r->model_name;
}

void ig_reply_ledger_name(const struct ig_reply *r, char out[IG_MAX_MODEL_NAME + 1])
{
	const char *name = ig_reply_model_name(r);

	if (r->prepared.model)
		snprintf(out, IG_MAX_MODEL_NAME + 1, "%s", r->prepared.model->name);
	else if (!name[0] || !ig_engine_model_name(r->api->deps.engine, name, out))
		ig_utf8_copy(out, IG_MAX_MODEL_NAME + 1, name);
}

static void record(struct ig_api *api, const struct ig_origin *origin, const char *id,
		   const char *model, int32_t priority, const struct ig_api_error *e)
{
	struct ig_ledger_row row;

	ig_origin_row(origin, ig_now_ns(), &row);
	row.status = e->status;
	row.priority = priority;
	snprintf(row.id, sizeof row.id, "%s", id);
	ig_utf8_copy(row.model, sizeof row.model, model);
	snprintf(row.finish, sizeof row.finish, "refused");
	ig_utf8_copy(row.error, sizeof row.error, e->message);
	ig_engine_record_refused(api->deps.engine, &row);
}

void ig_reply_refuse(const struct ig_reply *r, const struct ig_api_error *e)
{
	char model[IG_MAX_MODEL_NAME + 1];

	ig_reply_ledger_name(r, model);
	record(r->api, r->origin, ig_reply_known_id(r), model, ig_reply_priority(r), e);
}

void ig_reply_record_refused(struct ig_api *api, const struct ig_origin *origin,
			     const struct ig_api_error *e)
{
	record(api, origin, "", "", origin->who.priority, e);
}

void ig_reply_abandoned(const struct ig_reply *r)
{
	struct ig_api_error e = r->error;

	if (r->request.notice || r->protocol->administrative)
		return;
	if (!e.status)
		ig_fail_cancelled(&e, "client_gone");
	ig_reply_refuse(r, &e);
}

/* ---- beside other requests --------------------------------------------------------------- */

int32_t ig_reply_priority(const struct ig_reply *r)
{
	const struct ig_request *q = &r->request;
	const struct ig_principal *who = &r->origin->who;

	if (!q->has_priority || (!who->is_free && q->priority < who->priority))
		return who->priority;
	return q->priority;
}

int64_t ig_reply_deadline_ns(const struct ig_reply *r)
{
	double s = r->request.deadline_s;

	return s > 0 ? r->origin->received_ns + (int64_t)(s * 1e9) : 0;
}

int ig_reply_check_deadline(const struct ig_reply *r, int64_t now_ns, struct ig_api_error *e)
{
	int64_t deadline_ns = ig_reply_deadline_ns(r);

	return deadline_ns && now_ns >= deadline_ns ? ig_fail_deadline(e, "") : 0;
}

/* ---- life ------------------------------------------------------------------------------- */

struct ig_reply *ig_reply_create(struct ig_api *api, const struct ig_protocol *p,
				 struct ig_origin *origin, const struct ig_reply_owner *owner,
				 void *ctx)
{
	struct ig_reply *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->api = api;
	r->protocol = p;
	r->origin = ig_origin_ref(origin);
	ig_random_id(r->id, sizeof r->id, p->id_prefix);
	r->owner = owner;
	r->owner_ctx = ctx;
	r->choices = &r->only;
	r->last_output_ns = ig_now_ns();
	link_init(&r->of_owner);
	link_init(&r->of_parked);
	link_append(&api->replies, &r->all);
	return r;
}

int ig_reply_read(struct ig_reply *r, const struct ig_request_format *format, char *text,
		  size_t len)
{
	r->format = format;
	r->text = text;
	r->len = len;
	/* an administrator's slip must not pass for what was asked */
	r->refuse_unknown = r->api->deps.options.refuse_unknown || r->protocol->administrative;
	r->refuse_tools = r->api->deps.options.refuse_tools;
	if (!r->rules)
		r->rules = ig_prompt_rules_ref(r->api->deps.options.rules);
	int rc = ig_handoff_send(r);
	if (rc < 0) {
		free(r->text);
		r->text = NULL;
	}
	return rc;
}

int ig_reply_prepare(struct ig_reply *r)
{
	int rc = ig_handoff_send(r);

	if (!rc && r->request.stream)
		r->owner->news(r->owner_ctx, r);
	return rc;
}

static void drop_choices(struct ig_reply *r)
{
	for (uint32_t i = 0; i < r->n_choices; i++)
		ig_choice_finish(&r->choices[i]);
	if (r->choices != &r->only)
		free(r->choices);
	r->choices = &r->only;
	r->n_choices = 0;
}

int ig_reply_open(struct ig_reply *r)
{
	uint32_t n =
		(uint32_t)(r->prepared.model ? r->prepared.n_prompts : 1) * (uint32_t)r->request.n;

	if (r->protocol->immediate || r->request.no_output)
		n = 0;
	if (n > 1) {
		struct ig_choice *choices = calloc(n, sizeof *choices);
		if (!choices)
			return -1;
		r->choices = choices;
	}
	for (uint32_t i = 0; i < n; i++) {
		r->n_choices++;
		if (ig_choice_init(&r->choices[i], r, i) < 0) {
			drop_choices(r);
			return -1;
		}
	}
	r->opened = true;
	r->finished = !n;
	r->last_output_ns = ig_now_ns();
	return 0;
}

/* It has ended, or its client left: charge and release its limits. */
static void release_limits(struct ig_reply *r)
{
	struct ig_usage u;

	if (!r->admitted)
		return;
	r->admitted = false;
	ig_reply_usage(r, &u);
	ig_limits_charge(r->api->limits, &r->origin->who, u.output, ig_now_ns());
	ig_limits_release(r->api->limits, &r->origin->who);
}

void ig_reply_destroy(struct ig_reply *r)
{
	if (!r)
		return;
	link_remove(&r->of_owner);
	r->owner_ctx = NULL;
	if (r->state == IG_REPLY_AT_PARSE || r->state == IG_REPLY_AT_PREP)
		return; /* destroyed when the thread has finished with it */
	if (r->state == IG_REPLY_PARKED)
		ig_reply_abandoned(r);
	release_limits(r);
	if (r->held)
		ig_limits_release(r->api->limits, &r->origin->who);
	drop_choices(r);
	ig_child_end(r->child);
	free(r->pulled);
	link_remove(&r->all);
	link_remove(&r->of_parked);
	free(r->text);
	ig_request_finish(&r->request);
	ig_prepared_finish(&r->prepared);
	ig_prompt_rules_unref(r->rules);
	ig_origin_unref(r->origin);
	free(r);
}

/* ---- to the engine ------------------------------------------------------------------------ */

/* A choice that can't be submitted ends the reply. */
static void give_up(struct ig_reply *r, const struct ig_api_error *e)
{
	if (!r->error.status)
		r->error = *e;
	for (uint32_t i = 0; i < r->n_choices; i++) {
		struct ig_choice *c = &r->choices[i];
		if (c->finished)
			continue;
		ig_choice_cancel(c, "server_error");
		c->finished = true;
		c->result =
			(struct ig_gen_result){ .finish = IG_FINISH_CANCELLED, .stop_index = -1 };
	}
	r->n_finished = r->n_choices;
	r->finished = true;
	release_limits(r);
}

static int check_deadline(struct ig_reply *r, struct ig_api_error *e)
{
	if (ig_reply_check_deadline(r, ig_now_ns(), e) < 0) {
		ig_reply_refuse(r, e);
		return -1;
	}
	return 0;
}

/* By the tokens of its prompts; output tokens are charged when it ends. */
static int admit(struct ig_reply *r, struct ig_api_error *e)
{
	int64_t n = 0;

	for (size_t i = 0; i < r->prepared.n_prompts; i++)
		n += (int64_t)r->prepared.prompts[i].n;
	if (ig_limits_admit(r->api->limits, &r->origin->who, n, ig_now_ns(), e) < 0) {
		ig_reply_refuse(r, e);
		return -1;
	}
	r->admitted = true;
	return 0;
}

int ig_reply_submit(struct ig_reply *r, struct ig_api_error *e)
{
	r->submitted = true;
	r->last_output_ns = ig_now_ns();
	if (r->n_choices && (check_deadline(r, e) < 0 || admit(r, e) < 0)) {
		give_up(r, e);
		return -1;
	}
	for (uint32_t i = 0; i < r->n_choices; i += (uint32_t)r->request.n) {
		if (!ig_choice_submit(&r->choices[i], e))
			continue;
		give_up(r, e);
		return -1;
	}
	if (r->protocol->start && r->protocol->start(r, e) < 0) {
		give_up(r, e);
		return -1;
	}
	r->finished &= !r->child;
	return 0;
}

bool ig_reply_streams(const struct ig_reply *r, const struct ig_api_error *e)
{
	return r->begun || (r->request.stream && r->protocol->streams_overflow && e->code &&
			    !strcmp(e->code, "context_length_exceeded"));
}

/* Submit the other choices of a prompt when the first has prefilled it. */
static void submit_others(struct ig_reply *r)
{
	uint32_t n = (uint32_t)r->request.n;
	struct ig_api_error e;

	for (uint32_t i = 0; n > 1 && i < r->n_choices && !r->finished; i += n) {
		const struct ig_choice *first = &r->choices[i];
		/* Submitted already, or cancelled while they waited. */
		if (r->choices[i + 1].stream || r->choices[i + 1].finished)
			continue;
		if (!first->n_bytes && !first->finished)
			continue;
		for (uint32_t k = 1; k < n; k++)
			if (ig_choice_submit(&r->choices[i + k], &e) < 0) {
				give_up(r, &e);
				return;
			}
	}
}

/* ---- output ------------------------------------------------------------------------ */

void ig_reply_take(struct ig_reply *r, size_t cap)
{
	if (r->finished || (r->child && !ig_child_has_ended(r->child)) || r->pulled)
		return;
	for (uint32_t i = 0; i < r->n_choices; i++)
		ig_choice_take(&r->choices[i], cap);
	submit_others(r);
	if (r->finished || r->n_finished < r->n_choices)
		return;
	r->finished = true;
	for (uint32_t i = 0; i < r->n_choices && !r->error.status; i++)
		ig_result_error(&r->choices[i].result, &r->error);
	release_limits(r);
}

bool ig_reply_runs(const struct ig_reply *r)
{
	bool waits = r->n_choices > 0;

	for (uint32_t i = 0; i < r->n_choices; i++)
		waits = waits &&
			(!r->choices[i].stream || ig_stream_n_cached(r->choices[i].stream) < 0);
	return !waits;
}

void ig_reply_fail(struct ig_reply *r, const struct ig_api_error *e)
{
	r->error = *e;
	r->opened = r->finished = true;
}

void ig_reply_cancel(struct ig_reply *r, const char *reason)
{
	struct ig_api_error e;

	if (r->finished)
		return;
	for (uint32_t i = 0; i < r->n_choices; i++)
		ig_choice_cancel(&r->choices[i], reason);
	ig_child_stop(r->child);
	if (r->submitted)
		return;
	ig_fail_cancelled(&e, reason);
	ig_reply_refuse(r, &e);
	r->finished = true;
	if (r->n_choices)
		ig_result_error(&r->choices[0].result, &r->error);
}

void ig_reply_usage(const struct ig_reply *r, struct ig_usage *u)
{
	*u = (struct ig_usage){ 0 };
	for (uint32_t i = 0; i < r->n_choices; i++) {
		const struct ig_gen_result *g = &r->choices[i].result;
		u->output += g->n_output;
		u->drafted += g->n_drafted - g->n_model_drafted - g->n_mtp_drafted;
		u->accepted += g->n_accepted - g->n_model_accepted - g->n_mtp_accepted;
		/* A prompt counts once, however many choices it has. */
		if (i % (uint32_t)r->request.n)
			continue;
		u->prompt += g->n_prompt;
		u->cached += g->n_cached;
	}
}

void ig_reply_wrote(struct ig_reply *r)
{
	r->keepalive = false;
	r->last_output_ns = ig_now_ns();
}
