/*
 * request_responses.c: the messages of the Responses WebSocket: response.create,
 * response.cancel (an extension), response.steer and response.processed.
 *
 * stream_id is read first, so that an error about anything else can name its lane.
 */
#include "daemon/protocol/request-private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const input_types[] = { "input_text", "text", NULL };
static const char *const output_types[] = { "output_text", "text", NULL };

static int read_item(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	char param[160];
	const char *key;
	json_t *v, *type = json_object_get(m, "type");

	snprintf(param, sizeof param, "input[%zu]", i);
	if (!json_is_object(m))
		return ig_fail_type(e, param, "an object", m);
	snprintf(param, sizeof param, "input[%zu].type", i);
	if (type && !json_is_null(type)) {
		if (!json_is_string(type))
			return ig_fail_type(e, param, "a string", type);
		if (strcmp(json_string_value(type), "message"))
			return ig_fail_unsupported(e, param, "\"message\"");
	}
	json_object_foreach(m, key, v) {
		snprintf(param, sizeof param, "input[%zu].%s", i, strlen(key) > 40 ? "…" : key);
		if (json_is_null(v) || !strcmp(key, "type") || !strcmp(key, "role") ||
		    !strcmp(key, "content"))
			continue;
		/* An item that came from us has these; they say nothing about the prompt. */
		if (strcmp(key, "id") && strcmp(key, "status"))
			return ig_fail_unsupported(e, param, NULL);
		if (!json_is_string(v))
			return ig_fail_type(e, param, "a string", v);
	}
	return ig_request_read_message(r, "input", i, m, input_types, output_types, e);
}

static int param_input(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (json_is_string(v)) {
		return ig_request_add_message(r, "user", json_incref(v), e);
	}
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a string or a list of items", v);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (read_item(r, i, json_array_get(v, i), e) < 0)
			return -1;
	return 0;
}

static int param_nothing(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return 0; /* read before the table: type, stream_id, instructions */
}

static int param_stream_true(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return json_is_true(v) ? 0 :
	       ig_fail_unsupported(e, name, "true: a WebSocket always streams");
}

static int param_client_metadata(struct ig_request *r, const char *name, json_t *v,
				 struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object of strings", v);
	json_object_foreach(v, key, value)
		if (!json_is_string(value))
			return ig_fail_type(e, name, "an object of strings", value);
	return 0;
}

static int param_text(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value) {
		char param[96];
		snprintf(param, sizeof param, "text.%s", strlen(key) > 40 ? "…" : key);
		if (json_is_null(value))
			continue;
		if (strcmp(key, "format"))
			return ig_fail_unsupported(e, param, NULL);
		const char *type = json_string_value(json_object_get(value, "type"));
		if (!type || strcmp(type, "text") || json_object_size(value) != 1)
			return ig_fail_unsupported(e, param, "{\"type\": \"text\"}");
	}
	return 0;
}

static int param_tool_choice(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_tool_choice(r, name, v, IG_TOOLS_FLAT, e);
}

static int param_truncation(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	const char *s = json_string_value(v);

	return s && !strcmp(s, "disabled") ? 0 : ig_fail_unsupported(e, name, "\"disabled\"");
}

static const struct ig_param create_table[] = {
	{ "type", param_nothing },
	{ "stream_id", param_nothing },
	{ "instructions", param_nothing },
	{ "model", ig_param_model },
	{ "input", param_input },
	{ "temperature", ig_param_temperature },
	{ "top_p", ig_param_top_p },
	{ "top_k", ig_param_top_k },
	{ "min_p", ig_param_min_p },
	{ "frequency_penalty", ig_param_frequency_penalty },
	{ "presence_penalty", ig_param_presence_penalty },
	{ "repetition_penalty", ig_param_repetition_penalty },
	{ "logit_bias", ig_param_logit_bias },
	{ "seed", ig_param_seed },
	{ "max_output_tokens", ig_param_max_tokens },
	{ "stop", ig_param_stop },
	{ "stream", param_stream_true },
	{ "metadata", ig_param_metadata },
	{ "store", ig_param_store },
	{ "client_metadata", param_client_metadata },
	{ "prompt_cache_key", ig_param_any_string },
	{ "user", ig_param_any_string },
	{ "safety_identifier", ig_param_any_string },
	{ "service_tier", ig_param_auto },
	{ "include", ig_param_empty_list },
	{ "parallel_tool_calls", ig_param_parallel_tool_calls },
	{ "tool_choice", param_tool_choice },
	{ "tools", ig_param_empty_list },
	{ "text", param_text },
	{ "reasoning", ig_param_null_only },
	{ "truncation", param_truncation },
	{ "background", ig_param_false },
	{ "previous_response_id", ig_param_null_only },
	{ NULL, NULL },
};

static int param_response_id(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_string(&r->response_id, name, v, e);
}

static const struct ig_param cancel_table[] = {
	{ "type", param_nothing },
	{ "stream_id", param_nothing },
	{ "response_id", param_response_id },
	{ NULL, NULL },
};

static int read_stream_id(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "stream_id");

	if (!v || json_is_null(v))
		return 0;
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	if (!s || n < 1 || n > IG_MAX_STREAM_ID ||
	    strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != n)
		return ig_api_fail(e, 400, "invalid_request_error", "invalid_stream_id", "stream_id",
				   "Invalid 'stream_id': expected 1 to %d characters of A-Z a-z 0-9 "
				   "_ . -", IG_MAX_STREAM_ID);
	memcpy(r->stream_id, s, n + 1);
	return 0;
}

/* The instructions stand before the input, wherever they stand in the object. */
static int read_instructions(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "instructions");

	if (!v || json_is_null(v))
		return 0;
	return ig_read_string(&r->instructions, "instructions", v, e);
}

static int read_create(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *input = json_object_get(root, "input");

	r->kind = IG_REQUEST_CREATE;
	if (read_instructions(r, root, e) < 0 || ig_params_read(r, create_table, root, e) < 0)
		return -1;
	if (!input || json_is_null(input))
		return ig_fail_missing(e, "input");
	if (!json_array_size(r->messages))
		return ig_fail_value(e, "input", "expected at least one item");
	return 0;
}

static int read_steer(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *id = json_object_get(root, "previous_response_id"),
	       *input = json_object_get(root, "input");
	json_t *back = json_pack("{s:O?, s:O?}", "previous_response_id", id, "input", input);

	r->kind = IG_REQUEST_STEER;
	r->steer = back ? json_dumps(back, JSON_COMPACT) : NULL;
	json_decref(back);
	return r->steer ? 0 : ig_fail_memory(e);
}

int ig_request_parse_ws(const char *text, size_t len, struct ig_request *r,
			struct ig_api_error *e)
{
	json_t *root;
	int rc;

	ig_request_init(r, IG_REQUEST_CREATE);
	r->stream = true;
	*e = (struct ig_api_error){ 0 };
	if (ig_json_load_object(text, len, &root, e) < 0)
		return -1;
	rc = read_stream_id(r, root, e);
	if (rc < 0)
		goto out;
	json_t *v = json_object_get(root, "type");
	const char *type = json_string_value(v);
	if (!v)
		rc = ig_fail_missing(e, "type");
	else if (!type)
		rc = ig_fail_type(e, "type", "a string", v);
	else if (!strcmp(type, "response.create"))
		rc = read_create(r, root, e);
	else if (!strcmp(type, "response.cancel")) {
		r->kind = IG_REQUEST_CANCEL;
		rc = ig_params_read(r, cancel_table, root, e);
	} else if (!strcmp(type, "response.steer"))
		rc = read_steer(r, root, e);
	else if (!strcmp(type, "response.processed"))
		r->kind = IG_REQUEST_IGNORED;
	else
		rc = ig_fail_value(e, "type", "expected response.create, response.cancel or "
				   "response.steer");
out:
	json_decref(root);
	return rc;
}
