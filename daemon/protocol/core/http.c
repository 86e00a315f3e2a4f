/*
 * http.c: one HTTP request and its reply: what is where, and what each answers.
 *
 * Small replies are complete at once; what a protocol is POSTed waits for prep, and maybe
 * for its model, then streams from its reply or gathers it.  A stream's head goes out with
 * its first keep-alive at the latest: until then a load that fails is a status.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"
#include "daemon/protocol/responses/stored.h"
#include "daemon/protocol/responses/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESPONSES_PATH "/v1/responses"
#define MODELS_PATH "/v1/models"
/* Requests that /v1/ingot/requests lists at most. */
#define MAX_LISTED 1024
/* A stream's piece is filled up to about so much before it is handed over. */
#define PIECE 8192

struct ig_exchange {
	struct ig_api *api;
	void *conn;
	char client[64], endpoint[32];
	struct ig_principal who;
	const struct ig_protocol *protocol; /* of the path; NULL: none */
	struct link jobs;
	struct ig_job *job; /* its model is being loaded */
	struct ig_reply *reply;
	int status; /* 0: not known yet */
	const char *content_type, *allow;
	uint32_t retry_after_s;
	bool stream, upgrade, body_given;
	bool cut;	       /* the stream ends here: there is no memory to say why */
	struct ig_strbuf body; /* of a reply that is no stream */
};

static void reply_json(struct ig_exchange *x, int status)
{
	x->status = status;
	x->content_type = "application/json";
	x->api->deps.want_write(x->conn);
}

static void reply_error(struct ig_exchange *x, const struct ig_api_error *e)
{
	ig_strbuf_clear(&x->body);
	if (x->protocol)
		x->protocol->error(&x->body, e);
	else
		ig_error_object(&x->body, e);
	x->retry_after_s = e->retry_after_s;
	reply_json(x, e->status);
}

/* ---- small replies --------------------------------------------------------------- */

static bool is_administrator(const struct ig_exchange *x)
{
	return x->who.role == IG_ROLE_ADMINISTRATOR;
}

static void get_models(struct ig_exchange *x)
{
	struct ig_api_error e;

	if (ig_models_list(x->api, is_administrator(x), &x->body, &e) < 0)
		reply_error(x, &e);
	else
		reply_json(x, 200);
}

static void get_model(struct ig_exchange *x, const char *name)
{
	struct ig_api_error e;

	if (ig_models_show(x->api, name, is_administrator(x), &x->body, &e) < 0)
		reply_error(x, &e);
	else
		reply_json(x, 200);
}

static void get_health(struct ig_exchange *x)
{
	if (!x->api->draining) {
		ig_strbuf_puts(&x->body, "{\"status\":\"ok\"}");
		reply_json(x, 200);
		return;
	}
	ig_strbuf_puts(&x->body, "{\"status\":\"draining\"}");
	x->retry_after_s = x->api->deps.options.retry_after_s;
	reply_json(x, 503);
}

static void get_metrics(struct ig_exchange *x)
{
	ig_metrics_write(x->api->deps.metrics, &x->body);
	reply_json(x, 200);
	x->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

static void get_requests(struct ig_exchange *x)
{
	struct ig_gen_info *list = calloc(MAX_LISTED, sizeof *list);
	struct ig_strbuf *out = &x->body;
	struct ig_api_error e;

	if (!list) {
		ig_fail_memory(&e);
		reply_error(x, &e);
		return;
	}
	size_t n = ig_engine_list(x->api->deps.engine, list, MAX_LISTED),
	       shown = n < MAX_LISTED ? n : MAX_LISTED;
	ig_strbuf_printf(out, "{\"object\":\"list\",\"total\":%zu,\"data\":[", n);
	for (size_t i = 0; i < shown; i++) {
		const struct ig_gen_info *g = &list[i];
		ig_strbuf_puts(out, i ? ",{\"id\":" : "{\"id\":");
		ig_json_text(out, g->id);
		ig_strbuf_puts(out, ",\"model\":");
		ig_json_text(out, g->model);
		ig_strbuf_puts(out, ",\"endpoint\":");
		ig_json_text(out, g->endpoint);
		ig_strbuf_puts(out, ",\"client\":");
		ig_json_text(out, g->client);
		ig_strbuf_puts(out, ",\"state\":");
		ig_json_text(out, g->state);
		ig_strbuf_printf(out,
				 ",\"prompt_tokens\":%d,\"prefilled_tokens\":%d,"
				 "\"output_tokens\":%d,\"age_s\":%.3f}",
				 g->n_prompt, g->n_prefilled, g->n_output, g->age_s);
	}
	ig_strbuf_puts(out, "]}");
	free(list);
	reply_json(x, 200);
}

static void get_status(struct ig_exchange *x)
{
	ig_engine_describe(x->api->deps.engine, &x->body);
	reply_json(x, 200);
}

static void get_responses(struct ig_exchange *x)
{
	struct ig_api_error e;

	ig_api_fail(&e, 426, "invalid_request_error", "upgrade_required", NULL,
		    "GET " RESPONSES_PATH " is a WebSocket: ask for an upgrade.");
	reply_error(x, &e);
	x->upgrade = true;
}

/* ---- what the protocols answer ---------------------------------------------------- */

static void refuse(struct ig_exchange *x, const char *model, int64_t received_ns,
		   int64_t received_wall_ns, const struct ig_api_error *e)
{
	if (!x->protocol || !x->protocol->administrative)
		ig_api_note_refused(x->api, "", x->endpoint, x->client, &x->who, model, received_ns,
				    received_wall_ns, e);
	reply_error(x, e);
}

static void gather(struct ig_exchange *x);
static void post_deliver(void *owner, struct ig_job *job);
static void post_waits(void *owner, struct ig_job *job);

static struct ig_job_owner owner_of(struct ig_exchange *x)
{
	return (struct ig_job_owner){ x, post_deliver, post_waits, &x->jobs, &x->who };
}

static void reply_notify(void *owner, struct ig_reply *r)
{
	struct ig_exchange *x = owner;

	if (x->stream)
		x->api->deps.want_write(x->conn);
	else
		gather(x);
}

static void gather(struct ig_exchange *x)
{
	ig_reply_take(x->reply, SIZE_MAX);
	if (!x->reply->finished || x->status)
		return;
	if (x->reply->error.status) {
		reply_error(x, &x->reply->error);
		return;
	}
	x->protocol->whole(x->reply, &x->body);
	reply_json(x, x->protocol->status ? x->protocol->status(x->reply) : 200);
}

static void begin_stream(struct ig_exchange *x)
{
	x->stream = true;
	x->status = 200;
	x->content_type = "text/event-stream; charset=utf-8";
	x->api->deps.want_write(x->conn);
}

/* Its head is out already: the error is its end. */
static void fail_stream(struct ig_exchange *x, struct ig_job *job)
{
	ig_api_note_refused(x->api, job->begun.id, x->endpoint, x->client, &x->who,
			    job->request.model, job->received_ns, job->received_wall_ns,
			    &job->error);
	x->reply = ig_reply_create(job, x->endpoint, x->client, &x->who, x, reply_notify);
	x->cut = !x->reply;
	x->api->deps.want_write(x->conn);
}

/* What it continues is looked up; then it goes to prep again. */
static void prepare_again(struct ig_exchange *x, struct ig_job *job, struct ig_api_error *e)
{
	if (ig_responses_recall(x->api, &job->request, &x->who, NULL, e) < 0)
		return;
	struct ig_job_owner owner = owner_of(x);
	int rc = ig_job_prepare(x->api, x->protocol, &job->request, job->received_ns,
				job->received_wall_ns, &owner);
	if (rc == -EAGAIN) {
		ig_api_fail(e, 503, "server_error", "server_is_overloaded", NULL,
			    "Too many requests are waiting to be read.");
		e->retry_after_s = x->api->deps.options.retry_after_s;
	} else if (rc < 0) {
		ig_fail_memory(e);
	}
}

static void post_deliver(void *owner, struct ig_job *job)
{
	struct ig_exchange *x = owner;
	struct ig_api_error e = job->error;

	x->job = NULL;
	if (!e.status && job->request.previous_id && !job->request.history) {
		prepare_again(x, job, &e);
		if (!e.status)
			return;
	}
	if (e.status && x->stream) {
		fail_stream(x, job);
		return;
	}
	if (e.status) {
		refuse(x, job->request.model, job->received_ns, job->received_wall_ns, &e);
		return;
	}
	x->reply = ig_reply_create(job, x->endpoint, x->client, &x->who, x, reply_notify);
	if (!x->reply) {
		ig_fail_memory(&job->error);
		if (x->stream)
			fail_stream(x, job);
		else
			refuse(x, NULL, job->received_ns, job->received_wall_ns, &job->error);
		return;
	}
	/* A stream that has begun says itself why there is no more of it. */
	if (ig_reply_submit(x->reply, &e) < 0 && !x->stream) {
		reply_error(x, &e);
		return;
	}
	if (x->reply->request.stream)
		begin_stream(x);
	else
		gather(x); /* some have nothing to wait for */
}

static void post_waits(void *owner, struct ig_job *job)
{
	struct ig_exchange *x = owner;

	x->job = job;
	if (job->keepalive && !x->stream)
		begin_stream(x);
	else
		x->api->deps.want_write(x->conn);
}

static void post(struct ig_exchange *x, struct ig_http_request *r)
{
	int64_t now = ig_now_ns(), wall = ig_wall_ns();
	struct ig_api_error e = { 0 };
	char *body = r->body;

	r->body = NULL;
	if (x->api->draining) {
		ig_api_fail(&e, 503, "server_error", "server_shutting_down", NULL,
			    "The server is shutting down.");
		free(body);
	} else {
		struct ig_job_owner owner = owner_of(x);
		int rc = ig_job_start(x->api, x->protocol, x->protocol->parse, body, r->body_len,
				      &owner);
		if (rc == -EAGAIN)
			ig_api_fail(&e, 503, "server_error", "server_is_overloaded", NULL,
				    "Too many requests are waiting to be read.");
		else if (rc < 0)
			ig_fail_memory(&e);
	}
	if (!e.status)
		return;
	if (e.status == 503)
		e.retry_after_s = x->api->deps.options.retry_after_s;
	refuse(x, NULL, now, wall, &e);
}

static void wrong_method(struct ig_exchange *x, const char *method, const char *path,
			 const char *allow)
{
	struct ig_api_error e;

	ig_api_fail(&e, 405, "invalid_request_error", "method_not_allowed", NULL,
		    "%.10s is not allowed on %.100s; allowed: %s.", method, path, allow);
	reply_error(x, &e);
	x->allow = allow;
}

/* ---- kept responses --------------------------------------------------------------- */

static void fail_response(struct ig_exchange *x, const char *id)
{
	struct ig_api_error e;

	ig_api_fail(&e, 404, "invalid_request_error", "response_not_found", "response_id",
		    "Response with id '%.100s' not found.", id);
	reply_error(x, &e);
}

static void get_response(struct ig_exchange *x, struct ig_kept *k, const char *query)
{
	struct ig_api_error e;

	if (ig_query_retrieve(query, &e) < 0) {
		reply_error(x, &e);
		return;
	}
	ig_strbuf_puts(&x->body, ig_kept_text(k));
	reply_json(x, 200);
}

static void get_input_items(struct ig_exchange *x, struct ig_kept *k, const char *query)
{
	struct ig_item_query q;
	struct ig_api_error e;
	json_t *list = NULL;

	if (ig_query_items(query, &q, &e) < 0)
		goto fail;
	list = ig_kept_input(k);
	if (!list) {
		ig_fail_memory(&e);
		goto fail;
	}
	if (ig_query_write(&q, list, &x->body, &e) < 0)
		goto fail;
	json_decref(list);
	reply_json(x, 200);
	return;
fail:
	json_decref(list);
	reply_error(x, &e);
}

static void delete_response(struct ig_exchange *x, struct ig_kept *k, const char *id)
{
	ig_strbuf_puts(&x->body, "{\"id\":");
	ig_json_text(&x->body, id);
	ig_strbuf_puts(&x->body, ",\"object\":\"response.deleted\",\"deleted\":true}");
	ig_kept_drop(x->api->kept, k);
	reply_json(x, 200);
}

/* Nothing runs in the background, and what runs elsewhere ends with its connection. */
static void cancel_response(struct ig_exchange *x)
{
	struct ig_api_error e;

	ig_api_fail(&e, 400, "invalid_request_error", "invalid_value", "response_id",
		    "Only background responses can be cancelled; this one has ended.");
	reply_error(x, &e);
}

/* /v1/responses/{id}, /input_items or /cancel behind it; false: no such path. */
static bool route_response(struct ig_exchange *x, const struct ig_http_request *r)
{
	const char *at = r->path + sizeof RESPONSES_PATH, *slash = strchr(at, '/'),
		   *what = slash ? slash + 1 : "";
	size_t len = slash ? (size_t)(slash - at) : strlen(at);
	bool items = !strcmp(what, "input_items"), cancel = !strcmp(what, "cancel");
	char id[64];

	if (!len || (slash && !items && !cancel))
		return false;
	/* Ours are shorter. */
	snprintf(id, sizeof id, "%.*s", (int)(len < sizeof id ? len : 0), at);
	const char *allow = cancel ? "POST" : items ? "GET" : "GET, DELETE";
	bool is_delete = !strcmp(r->method, "DELETE");
	if (strcmp(r->method, cancel ? "POST" : "GET") && (!is_delete || slash)) {
		wrong_method(x, r->method, r->path, allow);
		return true;
	}
	struct ig_kept *k = ig_kept_find_stored(x->api->kept, id, x->who.identity);
	if (!k) {
		snprintf(id, sizeof id, "%.*s", (int)(len < sizeof id ? len : sizeof id - 1), at);
		fail_response(x, id);
	} else if (cancel) {
		cancel_response(x);
	} else if (is_delete) {
		delete_response(x, k, id);
	} else if (items) {
		get_input_items(x, k, r->query ? r->query : "");
	} else {
		get_response(x, k, r->query ? r->query : "");
	}
	return true;
}

/* ---- routes ----------------------------------------------------------------------- */

static const struct ig_protocol *const protocols[] = {
	&ig_chat_protocol,	   &ig_completions_protocol, &ig_responses_protocol,
	&ig_input_tokens_protocol, &ig_messages_protocol,    &ig_count_protocol,
	&ig_tokenize_protocol,	   &ig_detokenize_protocol,  &ig_load_protocol,
	&ig_unload_protocol,
};
#define N_PROTOCOLS (sizeof protocols / sizeof protocols[0])

static const struct {
	const char *path;
	void (*get)(struct ig_exchange *x);
} lookups[] = {
	{ RESPONSES_PATH, get_responses },
	{ MODELS_PATH, get_models },
	{ "/healthz", get_health },
	{ "/metrics", get_metrics },
	{ "/v1/ingot/requests", get_requests },
	{ "/v1/ingot/status", get_status },
};
#define N_LOOKUPS (sizeof lookups / sizeof lookups[0])

const struct ig_protocol *ig_protocol_at(const char *path)
{
	for (size_t i = 0; i < N_PROTOCOLS; i++)
		if (!strcmp(path, protocols[i]->path))
			return protocols[i];
	return NULL;
}

bool ig_api_takes_body(const char *method, const char *path)
{
	return !strcmp(method, "POST") && ig_protocol_at(path);
}

bool ig_api_is_websocket(const char *path)
{
	return !strcmp(path, RESPONSES_PATH);
}

static void route(struct ig_exchange *x, struct ig_http_request *r)
{
	struct ig_api_error e;
	bool is_get = !strcmp(r->method, "GET"), is_post = !strcmp(r->method, "POST"),
	     known = false;

	if (x->protocol && is_post) {
		post(x, r);
		return;
	}
	for (size_t i = 0; i < N_LOOKUPS; i++) {
		if (strcmp(r->path, lookups[i].path))
			continue;
		if (is_get) {
			lookups[i].get(x);
			return;
		}
		known = true;
	}
	if (x->protocol || known) {
		wrong_method(x, r->method, r->path,
			     !known	  ? "POST" :
			     !x->protocol ? "GET" :
					    "GET, POST");
		return;
	}
	if (!strncmp(r->path, MODELS_PATH "/", sizeof MODELS_PATH)) {
		if (is_get)
			get_model(x, r->path + sizeof MODELS_PATH);
		else
			wrong_method(x, r->method, r->path, "GET");
		return;
	}
	if (!strncmp(r->path, RESPONSES_PATH "/", sizeof RESPONSES_PATH) && route_response(x, r))
		return;
	ig_api_fail(&e, 404, "invalid_request_error", "not_found", NULL,
		    "Nothing is at %.10s %.200s.", r->method, r->path);
	reply_error(x, &e);
}

/* ---- the exchange -------------------------------------------------------------------- */

static struct ig_exchange *exchange_new(struct ig_api *api, const struct ig_http_request *r,
					void *conn)
{
	struct ig_exchange *x = calloc(1, sizeof *x);

	if (!x)
		return NULL;
	x->api = api;
	x->conn = conn;
	link_init(&x->jobs);
	if (r) {
		snprintf(x->client, sizeof x->client, "%s", r->client);
		x->who = r->who;
		snprintf(x->endpoint, sizeof x->endpoint, "%.6s %.24s", r->method, r->path);
		x->protocol = ig_protocol_at(r->path);
	}
	return x;
}

struct ig_exchange *ig_exchange_begin(struct ig_api *api, struct ig_http_request *r, void *conn)
{
	struct ig_exchange *x = exchange_new(api, r, conn);

	if (x)
		route(x, r);
	free(r->body);
	r->body = NULL;
	return x;
}

struct ig_exchange *ig_exchange_refuse(struct ig_api *api, int status, const char *code,
				       const char *message, const struct ig_http_request *r,
				       void *conn)
{
	struct ig_exchange *x = exchange_new(api, r, conn);
	struct ig_api_error e;

	if (!x)
		return NULL;
	ig_api_fail(&e, status, status >= 500 ? "server_error" : "invalid_request_error", code,
		    NULL, "%s", message);
	if (status == 503)
		e.retry_after_s = api->deps.options.retry_after_s;
	/* The ledger is about requests for a model's work. */
	if (r && (ig_api_takes_body(r->method, r->path) || ig_api_is_websocket(r->path)) &&
	    (!x->protocol || !x->protocol->administrative))
		ig_api_note_refused(api, "", x->endpoint, x->client, &x->who, NULL, ig_now_ns(),
				    ig_wall_ns(), &e);
	reply_error(x, &e);
	return x;
}

bool ig_exchange_head(struct ig_exchange *x, struct ig_http_head *head)
{
	if (!x->status)
		return false;
	*head = (struct ig_http_head){
		.status = x->status,
		.content_type = x->content_type,
		.allow = x->allow,
		.retry_after_s = x->retry_after_s,
		.upgrade = x->upgrade,
		.length = x->stream ? -1 : (int64_t)x->body.len,
	};
	return true;
}

enum ig_fill ig_exchange_fill(struct ig_exchange *x, struct ig_strbuf *out)
{
	size_t start = out->len;
	bool last = false;

	if (!x->status)
		return IG_FILL_WAIT;
	if (!x->stream) {
		if (!ig_strbuf_ok(&x->body))
			out->failed = true;
		else if (!x->body_given)
			ig_strbuf_add(out, x->body.data, x->body.len);
		x->body_given = true;
		return IG_FILL_END;
	}
	if (x->cut)
		return IG_FILL_END;
	if (!x->reply) {
		if (x->job && ig_job_keep_alive(x->job, x->protocol->wait, out))
			return IG_FILL_DATA;
		return IG_FILL_WAIT;
	}
	while (out->len - start < PIECE && !last)
		if (!x->protocol->next(x->reply, out, &last) && !last)
			break;
	if (last)
		return IG_FILL_END;
	return out->len > start ? IG_FILL_DATA : IG_FILL_WAIT;
}

void ig_exchange_cancel(struct ig_exchange *x, const char *reason)
{
	if (x && x->reply)
		ig_reply_cancel(x->reply, reason);
}

void ig_exchange_end(struct ig_exchange *x)
{
	if (!x)
		return;
	ig_jobs_abandon(&x->jobs, x->endpoint, x->client, true);
	ig_reply_destroy(x->reply);
	ig_strbuf_finish(&x->body);
	free(x);
}
