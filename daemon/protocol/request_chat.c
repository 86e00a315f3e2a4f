/*
 * request_chat.c: the body of POST /v1/chat/completions.
 *
 * One table of parameters; the messages become the template's, developer is
 * taken for system.
 */
#include "daemon/protocol/request-private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_types[] = { "text", NULL };

/* What the SDKs' message objects carry when they are sent back, empty or null. */
static int check_message_key(const char *key, const char *param, json_t *v, struct ig_api_error *e)
{
	if (json_is_null(v) || !strcmp(key, "role") || !strcmp(key, "content"))
		return 0;
	if (!strcmp(key, "tool_calls") || !strcmp(key, "annotations"))
		return json_is_array(v) && !json_array_size(v) ? 0 :
		       ig_fail_unsupported(e, param, "an empty list");
	return ig_fail_unsupported(e, param, NULL);
}

static int read_message(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	char param[160], shown[64];
	const char *key;
	json_t *v;

	snprintf(param, sizeof param, "messages[%zu]", i);
	if (!json_is_object(m))
		return ig_fail_type(e, param, "an object", m);
	json_object_foreach(m, key, v) {
		snprintf(shown, sizeof shown, "%.40s", key);
		snprintf(param, sizeof param, "messages[%zu].%s", i, strlen(key) > 40 ? "…" : shown);
		if (check_message_key(key, param, v, e) < 0)
			return -1;
	}
	return ig_request_read_message(r, "messages", i, m, text_types, text_types, e);
}

static int param_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (read_message(r, i, json_array_get(v, i), e) < 0)
			return -1;
	return 0;
}

static int param_stream_options(struct ig_request *r, const char *name, json_t *v,
				struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value) {
		char param[96];
		snprintf(param, sizeof param, "stream_options.%s", strlen(key) > 40 ? "…" : key);
		if (json_is_null(value))
			continue;
		if (!strcmp(key, "include_usage")) {
			if (ig_read_bool(&r->include_usage, param, value, e) < 0)
				return -1;
		} else if (!strcmp(key, "include_obfuscation")) {
			if (!json_is_false(value))
				return ig_fail_unsupported(e, param, "false");
		} else {
			return ig_fail_unsupported(e, param, NULL);
		}
	}
	return 0;
}

static int param_response_format(struct ig_request *r, const char *name, json_t *v,
				 struct ig_api_error *e)
{
	return ig_read_format(r, name, v, true, e);
}

static int param_tools(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_tools(r, name, v, IG_TOOLS_NESTED, e);
}

static int param_tool_choice(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_tool_choice(r, name, v, IG_TOOLS_NESTED, e);
}

static int param_modalities(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	const char *first = json_string_value(json_array_get(v, 0));

	if (!first || json_array_size(v) != 1 || strcmp(first, "text"))
		return ig_fail_unsupported(e, name, "[\"text\"]");
	return 0;
}

static const struct ig_param table[] = {
	{ "model", ig_param_model },
	{ "messages", param_messages },
	{ "temperature", ig_param_temperature },
	{ "top_p", ig_param_top_p },
	{ "top_k", ig_param_top_k },
	{ "seed", ig_param_seed },
	{ "max_tokens", ig_param_max_tokens },
	{ "max_completion_tokens", ig_param_max_tokens },
	{ "stop", ig_param_stop },
	{ "stream", ig_param_stream },
	{ "stream_options", param_stream_options },
	{ "metadata", ig_param_metadata },
	{ "store", ig_param_false }, /* there is nothing to fetch it from */
	{ "user", ig_param_any_string },
	{ "safety_identifier", ig_param_any_string },
	{ "prompt_cache_key", ig_param_any_string },
	{ "service_tier", ig_param_auto },
	{ "n", ig_param_one },
	{ "logprobs", ig_param_false },
	{ "top_logprobs", ig_param_zero },
	{ "min_p", ig_param_min_p },
	{ "frequency_penalty", ig_param_frequency_penalty },
	{ "presence_penalty", ig_param_presence_penalty },
	{ "repetition_penalty", ig_param_repetition_penalty },
	{ "logit_bias", ig_param_logit_bias },
	{ "response_format", param_response_format },
	{ "modalities", param_modalities },
	{ "tools", param_tools },
	{ "functions", ig_param_empty_list },
	{ "tool_choice", param_tool_choice },
	{ "parallel_tool_calls", ig_param_parallel_tool_calls },
	{ NULL, NULL },
};

int ig_request_parse_chat(const char *text, size_t len, struct ig_request *r,
			  struct ig_api_error *e)
{
	json_t *root;

	ig_request_init(r, IG_REQUEST_CHAT);
	*e = (struct ig_api_error){ 0 };
	if (ig_json_load_object(text, len, &root, e) < 0)
		return -1;
	int rc = ig_params_read(r, table, root, e);
	json_t *messages = json_object_get(root, "messages"),
	       *options = json_object_get(root, "stream_options");
	if (!rc && (!messages || json_is_null(messages)))
		rc = ig_fail_missing(e, "messages");
	if (!rc && !json_array_size(r->messages))
		rc = ig_fail_value(e, "messages", "expected at least one message");
	if (!rc && options && !json_is_null(options) && !r->stream)
		rc = ig_fail_value(e, "stream_options", "only allowed when 'stream' is true");
	if (!rc)
		rc = ig_check_tool_choice(r, "tool_choice", e);
	json_decref(root);
	return rc;
}
