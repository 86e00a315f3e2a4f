/* stored_response.c: stores a finished response, and finds it again. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool give_ids(json_t *list)
{
	static const char *const prefixes[][2] = {
		{ "message", "msg_" },
		{ "reasoning", "rs_" },
		{ "function_call", "fc_" },
		{ "custom_tool_call", "ctc_" },
		{ "function_call_output", "fco_" },
		{ "custom_tool_call_output", "ctco_" },
	};
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));
		char id[48];
		size_t k = 0;
		if (json_object_get(v, "id"))
			continue;
		while (k + 1 < sizeof prefixes / sizeof prefixes[0] && strcmp(prefixes[k][0], type))
			k++;
		ig_random_id(id, sizeof id, prefixes[k][1]);
		if (json_object_set_new(v, "id", json_string(id)) < 0)
			return false;
	}
	return true;
}

/* The output's items, as values, and as messages. */
static bool read_output(struct ig_reply *r, json_t **output, json_t **messages)
{
	const struct ig_json_limits limits = { .allow_nul =
						       true }; /* a model may generate any byte */
	struct ig_strbuf b = { 0 };
	json_t *v;
	size_t i;

	ig_response_items(r, NULL, &(struct ig_json_writer){ .out = &b });
	*messages = json_array();
	if (ig_strbuf_ok(&b))
		ig_json_read(b.data, b.len, &limits, output, NULL);
	ig_strbuf_finish(&b);
	if (!*output || !*messages)
		return false;
	json_array_foreach(*output, i, v)
	{
		/* An incomplete tool call has no result, and templates can't render it. */
		bool half = json_object_get(v, "call_id") &&
			    strcmp(json_string_value(json_object_get(v, "status")), "completed");
		if (!half && ig_items_fold(*messages, v) < 0)
			return false;
	}
	return true;
}

/* Store the response; object: as text. */
static int store_response(struct ig_reply *r, const char *object)
{
	struct ig_request *q = &r->request;
	json_t *output = NULL, *messages = NULL;
	int rc = -ENOMEM;

	if (!q->store && !r->connection)
		return 0;
	if (read_output(r, &output, &messages) && give_ids(q->items)) {
		struct ig_stored_response_spec spec = {
			.id = r->id,
			.owner = r->origin->who.identity,
			.stored = q->store,
			.connection = r->connection,
			.lane = q->stream_id,
			.previous_id = q->previous_id,
			.history = q->history,
			.messages = q->messages,
			.output_messages = messages,
			.input = q->store ? q->items : NULL,
			.output = q->store ? output : NULL,
			.text = q->store ? object : NULL,
		};
		rc = ig_response_store_add(r->api->responses->store, &spec);
	}
	json_decref(output);
	json_decref(messages);
	return rc;
}

/* The ledger's row of a warm-up without a prompt. */
static void record_done(struct ig_reply *r)
{
	struct ig_ledger_row row;

	ig_origin_row(r->origin, ig_now_ns(), &row);
	row.status = 200;
	snprintf(row.id, sizeof row.id, "%s", r->id);
	ig_reply_ledger_name(r, row.model);
	snprintf(row.finish, sizeof row.finish, "%s", ig_finish_name(IG_FINISH_STOP));
	ig_engine_record_refused(r->api->deps.engine, &row);
}

/* Store first, so that the member store is right. */
void ig_response_final(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_strbuf object = { 0 };

	r->stage = STAGE_FINAL;
	ig_response_object(r, &object);
	if (ig_response_outcome(r) == IG_OUTCOME_FAILED) {
		/* A response that the lane failed to continue can't be continued again. */
		if (r->request.previous_id)
			ig_response_store_remove_lane(r->api->responses->store, r->connection,
						      r->request.stream_id, r->request.previous_id);
	} else if (ig_strbuf_ok(&object) && store_response(r, object.data) < 0 &&
		   r->request.store) {
		r->request.store = false;
		ig_strbuf_clear(&object);
		ig_response_object(r, &object);
	}
	out->failed |= object.failed;
	ig_strbuf_add(out, object.data, object.len);
	ig_strbuf_finish(&object);
	if (!r->n_choices && !r->error.status) /* a refusal has its row */
		record_done(r);
}

int ig_responses_recall(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
			const void *connection, struct ig_api_error *e)
{
	struct ig_stored_response *k = ig_response_store_find(api->responses->store, q->previous_id,
							      who->identity, connection);

	if (!k)
		return ig_api_fail(e, 400, "previous_response_not_found", "previous_response_id",
				   "Previous response with id '%.100s' not found.", q->previous_id);
	q->history = ig_stored_response_messages(k);
	return q->history ? 0 : ig_fail_memory(e);
}

/* ---- the state of Responses in ig_api ------------------------------------------------------ */

struct ig_responses *ig_responses_create(const struct ig_api_options *o,
					 struct ig_response_file *file)
{
	struct ig_responses *s = calloc(1, sizeof *s);
	struct ig_error err = { 0 };

	if (!s)
		return NULL;
	link_init(&s->sessions);
	s->store = ig_response_store_create(o->max_stored, o->max_stored_per_lane,
					    o->max_stored_bytes);
	if (!s->store) {
		free(s);
		return NULL;
	}
	if (file && ig_response_store_keep(s->store, file, &err) < 0)
		ig_log_error("%s; the others are not there", err.text);
	return s;
}

void ig_responses_destroy(struct ig_responses *s)
{
	if (s)
		ig_response_store_destroy(s->store);
	free(s);
}

void ig_responses_describe(struct ig_api *api, struct ig_json_writer *w)
{
	struct ig_response_store_figures f = ig_response_store_figures(api->responses->store);

	ig_json_open_object(w, "responses");
	ig_json_put_uint(w, "stored", f.count);
	ig_json_put_uint(w, "bytes", f.bytes);
	ig_json_putf(w, "'persist': %-s, 'failing': %-s, 'error': %s", ig_json_bool(f.persist),
		     ig_json_bool(f.failure[0] != 0), f.failure[0] ? f.failure : NULL);
	ig_json_close_object(w);
}

void ig_responses_limit(struct ig_responses *s, const struct ig_api_options *o)
{
	ig_response_store_limit(s->store, o->max_stored, o->max_stored_per_lane,
				o->max_stored_bytes);
}
