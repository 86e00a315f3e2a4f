/*
 * ollama_pull.c: /api/pull.  A model that is configured is there.  Another one of the known models
 * is downloaded by `ingot pull`, a program of its own: the download has libcurl, pip and the disk's
 * errors, and none of them reaches the daemon.  Its lines are sent on.  When the client leaves, the
 * program ends; the next pull resumes what it has.  It goes to the folder of models, which is read
 * again before the success; if the model is not served then, the stream ends with an error that says
 * what to add.
 */
#include "daemon/protocol/ollama/ollama_private.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PULLS 4

/* Of a reply. */
enum {
	STAGE_LINES,
	STAGE_SUCCESS, /* the model is there and served */
	STAGE_ENDED,
};

static const struct ig_param pull_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "name", IG_PARAM_STRING, IG_AT(model) },
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ "insecure", IG_PARAM_NOTED, .values = "false" },
	{ "username", IG_PARAM_TEXT },
	{ "password", IG_PARAM_TEXT },
	{ NULL },
};

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "._:/-";

	r->stream = true;
	if (ig_params_read(r, r, pull_params, NULL, root, e) < 0)
		return -1;
	if (!r->model || !r->model[0])
		return ig_fail_missing(e, "model");
	size_t n = strlen(r->model);
	if (n > 200 || strspn(r->model, chars) != n)
		return ig_fail_value(e, "model",
				     "expected at most 200 characters of A-Z a-z 0-9 . _ : / -");
	return 0;
}

static const struct ig_request_format pull_request = { .check = check };

/* Prep has nothing to do. */
static void act(struct ig_reply *r) {}

/* ---- the program's output ---------------------------------------------------------------------- */

/* The file is at path.  Whether it is served, under the name of the request or its own. */
static void check_served(struct ig_reply *r, const char *path)
{
	size_t n = 0;
	struct ig_model_status *list = ig_models_read(r->api->deps.engine, &n);
	const struct ig_model_status *m = list ? ig_models_find(list, n, r->request.model) : NULL;
	int name = (int)ig_model_name_length(r->request.model);

	if (list && !m && r->pulled_name[0])
		m = ig_models_find(list, n, r->pulled_name);
	if (!list)
		ig_fail_memory(&r->error);
	else if (!m)
		ig_api_fail(
			&r->error, 409, "model_not_configured", "model",
			"%.*s is downloaded to %.300s, but not served: it is not in models.folder "
			"of ingot.yaml, or it is no model. Add {name: %.*s, path: …} to models.",
			name, r->request.model, path, name, r->request.model);
	else if (m->state == IG_MODEL_FAILED && strcmp(m->file, path))
		ig_api_fail(&r->error, 409, "model_not_configured", "model",
			    "%.*s is downloaded to %.200s, but the configuration's model of this "
			    "name has the path %.200s, which can't be loaded.",
			    name, r->request.model, path, m->file);
	else
		r->stage = STAGE_SUCCESS;
	free(list);
}

/* The file is at path: have the folder read again, and go on in ig_ollama_pulls_look. */
static void take_path(struct ig_reply *r, const json_t *line, const char *path)
{
	const char *name = ig_json_text(line, "name");

	snprintf(r->pulled_name, sizeof r->pulled_name, "%s", name ? name : "");
	r->looked = false;
	r->pulled = strdup(path);
	if (!r->pulled)
		ig_fail_memory(&r->error);
	else if (r->api->deps.rescan)
		r->api->deps.rescan(r->api->deps.wake_ctx);
	else
		r->looked = true;
}

/* A line of the program's: progress, which is sent on; an error; or where the file is. */
static void take_line(struct ig_reply *r, const struct ig_strbuf *line, struct ig_strbuf *out)
{
	const struct ig_json_limits limits = { .max_depth = 4, .max_values = 64 };
	const char *why, *path;
	json_t *v = NULL;

	if (!ig_strbuf_ok(line) || ig_json_read(line->data, line->len, &limits, &v, NULL))
		return;
	why = ig_json_text(v, "error");
	path = ig_json_text(v, "path");
	if (why)
		ig_api_fail(&r->error, json_is_false(json_object_get(v, "known")) ? 404 : 500,
			    "pull_failed", "model", "%s", why);
	else if (path)
		take_path(r, v, path);
	else if (out && ig_json_text(v, "status")) {
		ig_strbuf_add(out, line->data, line->len);
		ig_strbuf_puts(out, "\n");
	}
	json_decref(v);
}

/* out NULL: progress is not sent. */
static void take_lines(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_strbuf line = { 0 };

	while (r->child && ig_child_take(r->child, &line))
		take_line(r, &line, out);
	ig_strbuf_finish(&line);
	if (r->pulled && r->looked) {
		check_served(r, r->pulled);
		free(r->pulled);
		r->pulled = NULL;
	}
	if (r->pulled || !r->child || !ig_child_has_ended(r->child) || r->error.status ||
	    r->stage == STAGE_SUCCESS)
		return;
	int status = ig_child_status(r->child);
	if (status < 0)
		ig_api_fail(&r->error, 500, "pull_failed", NULL, "ingot could not be run: %s.",
			    strerror(-status));
	else
		ig_api_fail(&r->error, 500, "pull_failed", NULL,
			    "ingot pull ended with status %d; the daemon's log has its messages.",
			    status);
}

static void news(void *ctx)
{
	struct ig_reply *r = ctx;

	if (!r->request.stream)
		take_lines(r, NULL);
	r->owner->news(r->owner_ctx, r);
}

void ig_ollama_pulls_look(struct ig_api *api)
{
	for (struct link *l = api->replies.next, *after; l != &api->replies; l = after) {
		struct ig_reply *r = link_entry(l, struct ig_reply, all);
		after = l->next;
		if (!r->pulled)
			continue;
		r->looked = true;
		news(r);
	}
}

/* ---- its start ----------------------------------------------------------------------------------- */

/* ingot beside ingotd, as installed, or in the build tree. */
static bool find_program(char *out, size_t cap)
{
	static const char *const places[] = { "ingot", "../cli/ingot" };
	char folder[4000];

	if (!ig_program_folder(folder, sizeof folder))
		return false;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		int n = snprintf(out, cap, "%s/%s", folder, places[i]);
		if (n > 0 && (size_t)n < cap && !access(out, X_OK))
			return true;
	}
	return false;
}

static unsigned count_pulls(const struct ig_api *api)
{
	unsigned n = 0;

	for (struct link *l = api->replies.next; l != &api->replies; l = l->next)
		n += link_entry(l, struct ig_reply, all)->child != NULL;
	return n;
}

static bool is_there(struct ig_reply *r)
{
	size_t n = 0;
	struct ig_model_status *list = ig_models_read(r->api->deps.engine, &n);
	const struct ig_model_status *m = list ? ig_models_find(list, n, r->request.model) : NULL;
	bool there = m && m->state != IG_MODEL_FAILED;

	free(list);
	return there;
}

static int start(struct ig_reply *r, struct ig_api_error *e)
{
	char program[4096], name[256];

	if (is_there(r)) {
		r->stage = STAGE_SUCCESS;
		return 0;
	}
	if (r->origin->who.role != IG_ROLE_ADMINISTRATOR)
		return ig_api_fail(e, 403, "administrator_required", "model",
				   "Only the key of an administrator may download a model.");
	const char *folder = r->api->deps.options.models_folder;
	if (!folder[0])
		return ig_api_fail(e, 409, "model_not_configured", "model",
				   "No folder of models is served (models.folder), so nothing is "
				   "downloaded into one.");
	if (count_pulls(r->api) >= MAX_PULLS)
		return ig_fail_overloaded(e, r->api->deps.options.retry_after_s,
					  "Too many models are being downloaded.");
	if (!find_program(program, sizeof program))
		return ig_api_fail(e, 500, "server_error", NULL,
				   "The program ingot, which downloads models, is not beside "
				   "ingotd.");
	snprintf(name, sizeof name, "%.*s", (int)ig_model_name_length(r->request.model),
		 r->request.model);
	const char *argv[] = { program, "pull", "--json-lines", "--to", folder, "--", name, NULL };
	r->child = ig_child_start(&r->api->wakes, argv, news, r);
	return r->child ? 0 : ig_fail_memory(e);
}

/* ---- the response ---------------------------------------------------------------------------------- */

static void status_line(struct ig_strbuf *out, const char *status)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'status': %s", status);
	ig_ollama_end_line(&w);
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	size_t begin = out->len;

	if (r->stage != STAGE_ENDED) {
		if (!r->child && !r->error.status)
			status_line(out, "pulling manifest");
		take_lines(r, out);
		ig_reply_take(r, 0);
		if (r->finished && r->error.status) {
			ig_ollama_error(out, &r->error);
			ig_strbuf_puts(out, "\n");
		} else if (r->finished) {
			status_line(out, "success");
		} else if (out->len == begin && r->keepalive) {
			status_line(out, "pulling");
		}
		if (r->finished)
			r->stage = STAGE_ENDED;
	}
	*last = r->stage == STAGE_ENDED;
	if (out->len > begin)
		ig_reply_wrote(r);
	return out->len > begin;
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'status': 'success'}");
}

const struct ig_protocol ig_ollama_pull_protocol = {
	.id_prefix = "pull-",
	.request = &pull_request,
	.stream_type = IG_NDJSON,
	.act = act,
	.start = start,
	.next = next,
	.whole = whole,
	.error = ig_ollama_error,
	.immediate = true,
};
