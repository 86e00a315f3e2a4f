/*
 * jobs.c: requests on their way through the prep thread, and those that wait for their
 * model.
 *
 * Prep parses a request and prepares it.  Where the model is not loaded it begins the load
 * and is done with the job at once; the loop parks it, with the clocks of its keep-alives
 * and of server.model_wait, and sends it to prep again when the load has ended.  For all
 * jobs that name a model alike there is one ig_model_wait that the engine calls back, so
 * that a client which leaves while it waits leaves nothing behind.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ig_model_wait {
	struct ig_model_wait *next;
	struct ig_api *api;
	char name[129];		       /* as requests have it; "": the default */
	bool registered;	       /* api->lock: the engine will call back */
	atomic_uint_least64_t n_ended; /* calls so far */
};

/* ---- one job ---------------------------------------------------------------------- */

void ig_prepared_finish(struct ig_prepared *p)
{
	for (size_t i = 0; i < p->n_prompts; i++)
		ig_ids_finish(&p->prompts[i]);
	free(p->prompts);
	ig_grammar_unref(p->grammar);
	ig_engine_release_model(p->model);
	*p = (struct ig_prepared){ 0 };
}

static void job_free(struct ig_job *j)
{
	if (j->counted)
		ig_limits_release(j->api->limits, &j->who);
	free(j->text);
	ig_request_finish(&j->request);
	ig_prepared_finish(&j->prepared);
	free(j);
}

/* Whether there is a prompt to prepare, and all that it is made of. */
static bool is_ready(const struct ig_request *r)
{
	switch (r->kind) {
	case IG_REQUEST_CANCEL:
	case IG_REQUEST_STEER:
	case IG_REQUEST_IGNORED:
		return false;
	default:
		return !r->previous_id || r->history;
	}
}

/* The prep thread. */
static void job_run(void *ctx)
{
	struct ig_job *j = ctx;
	struct ig_api *api = j->api;
	int rc = j->parsed ? 0 : j->parse(j->text, j->len, &j->request, &j->error);

	j->parsed = true;
	free(j->text);
	j->text = NULL;
	if (!rc && is_ready(&j->request))
		ig_prepare(j);
	pthread_mutex_lock(&api->lock);
	bool stopped = api->stopped;
	j->next_done = NULL;
	if (!stopped) {
		*api->done_tail = j;
		api->done_tail = &j->next_done;
	}
	pthread_mutex_unlock(&api->lock);
	if (stopped) /* nobody takes it, and the engine is to get its model back */
		ig_prepared_finish(&j->prepared);
	else
		ig_api_wake(api);
}

static struct ig_job *job_new(struct ig_api *api, const struct ig_protocol *p,
			      const struct ig_job_owner *owner)
{
	struct ig_job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	link_init(&j->all);
	link_init(&j->of_owner);
	link_init(&j->of_parked);
	j->api = api;
	j->protocol = p;
	j->owner = *owner;
	j->who = *owner->who;
	return j;
}

static int job_send(struct ig_job *j)
{
	struct ig_api *api = j->api;

	link_append(&api->jobs, &j->all);
	link_append(j->owner.jobs, &j->of_owner);
	int rc = ig_engine_prep(api->deps.engine, job_run, j);
	if (rc < 0) {
		link_remove(&j->all);
		link_remove(&j->of_owner);
		job_free(j);
	}
	return rc;
}

int ig_job_start(struct ig_api *api, const struct ig_protocol *p, ig_request_parse *parse,
		 char *text, size_t len, const struct ig_job_owner *owner)
{
	struct ig_job *j = job_new(api, p, owner);

	if (!j) {
		free(text);
		return -ENOMEM;
	}
	j->parse = parse;
	j->text = text;
	j->len = len;
	j->received_ns = ig_now_ns();
	j->received_wall_ns = ig_wall_ns();
	return job_send(j);
}

int ig_job_prepare(struct ig_api *api, const struct ig_protocol *p, struct ig_request *r,
		   int64_t received_ns, int64_t received_wall_ns, const struct ig_job_owner *owner)
{
	struct ig_job *j = job_new(api, p, owner);

	if (!j) {
		ig_request_finish(r);
		return -ENOMEM;
	}
	j->parsed = true;
	j->request = *r;
	*r = (struct ig_request){ 0 };
	j->received_ns = received_ns;
	j->received_wall_ns = received_wall_ns;
	return job_send(j);
}

/* A request whose client left before it ran. */
static void note_abandoned(struct ig_job *j)
{
	struct ig_api_error e = j->error;

	if (j->request.kind == IG_REQUEST_CANCEL || j->request.kind == IG_REQUEST_STEER ||
	    j->request.kind == IG_REQUEST_IGNORED || j->protocol->administrative)
		return;
	if (!e.status)
		ig_api_fail(&e, 499, "invalid_request_error", NULL, NULL,
			    "cancelled before it ran (client_gone)");
	ig_api_note_refused(j->api, j->begun.id, j->endpoint, j->client, &j->who, j->request.model,
			    j->received_ns, j->received_wall_ns, &e);
}

static void job_deliver(struct ig_job *j)
{
	struct ig_api *api = j->api;

	link_remove(&j->all);
	link_remove(&j->of_owner);
	/* It may be admitted now, and counts as that then. */
	if (j->counted)
		ig_limits_release(api->limits, &j->who);
	j->counted = false;
	if (j->error.status == 503 && !j->error.retry_after_s)
		j->error.retry_after_s = api->deps.options.retry_after_s;
	if (j->owner.ctx)
		j->owner.deliver(j->owner.ctx, j);
	else if (j->endpoint[0])
		note_abandoned(j);
	job_free(j);
}

static void unpark(struct ig_job *j)
{
	link_remove(&j->of_parked);
	j->parked = false;
	j->api->n_parked--;
}

void ig_jobs_abandon(struct link *owner_jobs, const char *endpoint, const char *client,
		     bool prepared)
{
	while (!link_empty(owner_jobs)) {
		struct ig_job *j = link_entry(owner_jobs->next, struct ig_job, of_owner);
		j->owner.ctx = NULL;
		if (j->parse || prepared) {
			snprintf(j->endpoint, sizeof j->endpoint, "%s", endpoint);
			snprintf(j->client, sizeof j->client, "%s", client);
		}
		if (j->parked) {
			unpark(j);
			job_deliver(j); /* to nobody */
		} else {
			link_remove(&j->of_owner);
		}
	}
}

/* ---- waiting for a model -------------------------------------------------------------- */

/* Any thread of the engine's: a load has ended. */
static void load_ended(void *ctx)
{
	struct ig_model_wait *w = ctx;
	struct ig_api *api = w->api;

	pthread_mutex_lock(&api->lock);
	w->registered = false;
	pthread_mutex_unlock(&api->lock);
	atomic_fetch_add(&w->n_ended, 1);
	ig_api_wake(api);
}

/* The prep thread.  Only names of models get here: there are not more than were ever
 * configured. */
static struct ig_model_wait *wait_for(struct ig_api *api, const char *name)
{
	for (struct ig_model_wait *w = api->waits; w; w = w->next)
		if (!strcmp(w->name, name))
			return w;
	struct ig_model_wait *w = calloc(1, sizeof *w);
	if (!w || strlen(name) >= sizeof w->name) {
		free(w);
		return NULL;
	}
	snprintf(w->name, sizeof w->name, "%s", name);
	w->api = api;
	atomic_init(&w->n_ended, 0);
	w->next = api->waits;
	api->waits = w;
	return w;
}

int ig_job_take_model(struct ig_job *j, struct ig_error *err)
{
	struct ig_api *api = j->api;
	struct ig_engine *e = api->deps.engine;
	const char *name = j->request.model ? j->request.model : "";
	int rc = ig_engine_take_model(e, name, NULL, NULL, &j->prepared.model, err);

	if (rc != -EINPROGRESS)
		return rc;
	struct ig_model_wait *w = wait_for(api, name);
	if (!w)
		return ig_fail(err, -ENOMEM, "the server is out of memory");
	/* A call that comes from here on, whoever asked for it, sends the job to prep again: so
	 * none is missed that comes before the job is parked. */
	j->wait = w;
	j->ticket = atomic_load(&w->n_ended);
	pthread_mutex_lock(&api->lock);
	bool first = !w->registered;
	w->registered = true;
	pthread_mutex_unlock(&api->lock);
	rc = ig_engine_take_model(e, name, first ? load_ended : NULL, w, &j->prepared.model, err);
	if (rc != -EINPROGRESS && first) {
		pthread_mutex_lock(&api->lock);
		w->registered = false;
		pthread_mutex_unlock(&api->lock);
	}
	return rc;
}

static bool load_has_ended(const struct ig_job *j)
{
	return atomic_load(&j->wait->n_ended) != j->ticket;
}

static void fail_draining(struct ig_job *j)
{
	ig_api_fail(&j->error, 503, "server_error", "server_shutting_down", NULL,
		    "The server is shutting down.");
}

static void fail_loading(struct ig_job *j)
{
	uint32_t ms = j->api->deps.options.model_wait_ms;
	const char *name = j->wait->name;
	char waited[80] = "";

	if (ms)
		snprintf(waited, sizeof waited, ", for more than %g s by now (server.model_wait)",
			 ms / 1000.0);
	ig_api_fail(&j->error, 503, "server_error", "model_loading", "model",
		    "%s%s%s is being loaded%s; try again later.",
		    name[0] ? "The model '" : "The default model", name, name[0] ? "'" : "",
		    waited);
}

/* A job that waits: to the parked ones, or it is refused. */
static void park(struct ig_job *j)
{
	struct ig_api *api = j->api;
	int64_t now = ig_now_ns();

	if (api->draining) {
		fail_draining(j);
	} else if (!api->deps.options.model_wait_ms) {
		fail_loading(j);
	} else if (api->n_parked >= api->deps.options.max_waiting) {
		ig_api_fail(&j->error, 503, "server_error", "server_is_overloaded", NULL,
			    "Too many requests wait for models that are being loaded.");
	} else if (!j->counted && !j->protocol->immediate) {
		j->counted = !ig_limits_hold(api->limits, &j->who, now, &j->error);
	}
	if (j->error.status) {
		job_deliver(j);
		return;
	}
	if (!j->parked_ns)
		j->parked_ns = j->last_output_ns = now;
	j->parked = true;
	link_append(&api->parked, &j->of_parked);
	api->n_parked++;
	j->owner.waits(j->owner.ctx, j);
}

void ig_job_end_wait(struct ig_job *j)
{
	j->over = true;
	ig_api_wake(j->api);
}

/* The first that is to be delivered, or has a load to ask for again; NULL: none. */
static struct ig_job *first_awake(struct ig_api *api)
{
	for (struct link *l = api->parked.next; l != &api->parked; l = l->next) {
		struct ig_job *j = link_entry(l, struct ig_job, of_parked);
		if (j->over || load_has_ended(j))
			return j;
	}
	return NULL;
}

static void wake_parked(struct ig_api *api)
{
	struct ig_job *j;

	/* What is delivered may change the list. */
	while ((j = first_awake(api))) {
		if (j->over) {
			unpark(j);
			job_deliver(j);
			continue;
		}
		j->waits = false;
		int rc = ig_engine_prep(api->deps.engine, job_run, j);
		if (rc == -EAGAIN) /* when prep has done something it is asked again */
			return;
		unpark(j);
		if (rc < 0) {
			ig_fail_memory(&j->error);
			job_deliver(j);
		}
	}
}

void ig_jobs_poll(struct ig_api *api)
{
	pthread_mutex_lock(&api->lock);
	struct ig_job *j = api->done;
	api->done = NULL;
	api->done_tail = &api->done;
	pthread_mutex_unlock(&api->lock);
	while (j) {
		struct ig_job *next = j->next_done;
		if (j->waits && j->owner.ctx && j->owner.waits)
			park(j);
		else
			job_deliver(j);
		j = next;
	}
	wake_parked(api);
}

/* The first that has waited for too long; *next: when another will have. */
static struct ig_job *first_overdue(struct ig_api *api, int64_t now_ns, int64_t *next)
{
	int64_t limit = (int64_t)api->deps.options.model_wait_ms * 1000000;

	for (struct link *l = api->parked.next; l != &api->parked; l = l->next) {
		struct ig_job *j = link_entry(l, struct ig_job, of_parked);
		int64_t left = j->parked_ns + limit - now_ns;
		if (left <= 0)
			return j;
		if (*next < 0 || left < *next)
			*next = left;
	}
	return NULL;
}

int64_t ig_jobs_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t interval = (int64_t)api->deps.options.keepalive_interval_ms * 1000000, next = -1;
	struct ig_job *j;

	while ((j = first_overdue(api, now_ns, &next))) {
		unpark(j);
		fail_loading(j);
		job_deliver(j);
		next = -1;
	}
	for (struct link *l = api->parked.next; interval && l != &api->parked; l = l->next) {
		j = link_entry(l, struct ig_job, of_parked);
		if (!j->request.stream || !j->protocol->wait)
			continue;
		int64_t left = j->last_output_ns + interval - now_ns;
		if (left <= 0) {
			if (!j->keepalive) {
				j->keepalive = true;
				j->owner.waits(j->owner.ctx, j);
			}
			left = interval;
		}
		if (left < next)
			next = left;
	}
	return next;
}

void ig_jobs_drain(struct ig_api *api)
{
	while (!link_empty(&api->parked)) {
		struct ig_job *j = link_entry(api->parked.next, struct ig_job, of_parked);
		unpark(j);
		fail_draining(j);
		job_deliver(j);
	}
}

/* ---- streams that wait ------------------------------------------------------------------ */

/* What it will be known by; the default model's name is the engine's to say. */
static bool begin(struct ig_job *j)
{
	struct ig_begun *b = &j->begun;
	size_t n;

	if (b->id[0])
		return true;
	struct ig_model_status *list = ig_models_read(j->api, &n);
	if (!list)
		return false;
	const struct ig_model_status *m = ig_models_find(list, n, j->request.model);
	snprintf(b->model, sizeof b->model, "%s", m ? m->name : j->wait->name);
	free(list);
	ig_random_id(b->id, sizeof b->id, j->protocol->id_prefix);
	b->created_s = j->received_wall_ns / 1000000000;
	return true;
}

bool ig_job_keep_alive(struct ig_job *j, bool (*write)(struct ig_reply *r, struct ig_strbuf *out),
		       struct ig_strbuf *out)
{
	if (!j->parked || !j->keepalive)
		return false;
	j->keepalive = false;
	j->last_output_ns = ig_now_ns();
	if (!begin(j))
		return false; /* the next one may find memory */
	struct ig_begun *b = &j->begun;
	struct ig_reply r = { .api = j->api,
			      .protocol = j->protocol,
			      .request = j->request,
			      .created_s = b->created_s,
			      .stage = b->stage,
			      .sequence = b->sequence };
	memcpy(r.id, b->id, sizeof r.id);
	r.stand_in.name = b->model;
	r.model = &r.stand_in;
	j->keepalive = write(&r, out);
	b->stage = r.stage;
	b->sequence = r.sequence;
	return true;
}

/* ---- all of them ------------------------------------------------------------------------- */

void ig_jobs_init(struct ig_api *api)
{
	link_init(&api->jobs);
	link_init(&api->parked);
	api->done_tail = &api->done;
}

void ig_jobs_stop(struct ig_api *api)
{
	pthread_mutex_lock(&api->lock);
	api->stopped = true;
	pthread_mutex_unlock(&api->lock);
	ig_jobs_poll(api);
}

void ig_jobs_finish(struct ig_api *api)
{
	/* What prep had or never ran. */
	while (!link_empty(&api->jobs)) {
		struct ig_job *j = link_entry(api->jobs.next, struct ig_job, all);
		link_remove(&j->all);
		job_free(j);
	}
	while (api->waits) {
		struct ig_model_wait *w = api->waits;
		api->waits = w->next;
		free(w);
	}
}
