/*
 * params.c: the readers of single parameters.
 *
 * Each reader takes one JSON value that is not null and either stores it in the
 * request or fails with the parameter's name, what was expected and what came.
 */
#include "daemon/protocol/core/params.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ig_params_read(struct ig_request *r, const struct ig_param *table, json_t *obj,
		   struct ig_api_error *e)
{
	const char *key;
	json_t *v;

	json_object_foreach(obj, key, v)
	{
		const struct ig_param *p = table;
		if (json_is_null(v))
			continue;
		while (p->name && strcmp(p->name, key))
			p++;
		if (!p->name) {
			char shown[100];
			ig_printable(shown, sizeof shown, key);
			return ig_fail_unsupported(e, shown, NULL);
		}
		if (p->read(r, key, v, e) < 0)
			return -1;
	}
	return 0;
}

/* A client's bytes to an object, within bounds: a value takes about a hundred bytes, which
 * limits what a body of brackets and commas can make of itself. */
static int read_object(const char *text, size_t len, json_t **out, struct ig_api_error *e)
{
	const struct ig_json_limits limits = { .max_depth = 64, .max_values = 200000 };
	struct ig_json_error why;
	int rc = ig_json_read(text, len, &limits, out, &why);

	if (rc == -ENOMEM)
		return ig_fail_memory(e);
	if (rc == -E2BIG)
		return ig_api_fail(e, 400, "invalid_json", NULL, "The JSON %s.", why.text);
	if (rc)
		return ig_api_fail(e, 400, "invalid_json", NULL,
				   "The body is not valid JSON: line %u, column %u: %s.", why.line,
				   why.column, why.text);
	if (json_is_object(*out))
		return 0;
	ig_api_fail(e, 400, "invalid_json", NULL, "Expected a JSON object, got %s.",
		    ig_json_type_name(*out));
	json_decref(*out);
	return -1;
}

int ig_request_read(const char *text, size_t len, const struct ig_param *table,
		    int (*check)(struct ig_request *r, json_t *root, struct ig_api_error *e),
		    struct ig_request *r, struct ig_api_error *e)
{
	json_t *root;
	int rc;

	*r = (struct ig_request){
		.sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
		.n = 1,
		.parallel_tool_calls = true
	};
	*e = (struct ig_api_error){ 0 };
	if (read_object(text, len, &root, e) < 0)
		return -1;
	rc = table ? ig_params_read(r, table, root, e) : 0;
	if (!rc && check)
		rc = check(r, root, e);
	json_decref(root);
	return rc;
}

/* ---- values ------------------------------------------------------------------ */

int ig_read_string(char **out, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_string(v))
		return ig_fail_type(e, name, "a string", v);
	char *s = strdup(json_string_value(v));
	if (!s)
		return ig_fail_memory(e);
	free(*out);
	*out = s;
	return 0;
}

int ig_read_bool(bool *out, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_boolean(v))
		return ig_fail_type(e, name, "a boolean", v);
	*out = json_is_true(v);
	return 0;
}

static int read_number(double *out, double min, bool open_min, double max, const char *name,
		       json_t *v, struct ig_api_error *e)
{
	if (!json_is_number(v))
		return ig_fail_type(e, name, "a number", v);
	double d = json_number_value(v);
	if (!(open_min ? d > min : d >= min) || !(d <= max))
		return ig_fail_value(e, name, "expected a number %s %g and at most %g, got %g",
				     open_min ? "above" : "of at least", min, max, d);
	*out = d;
	return 0;
}

int ig_read_int(int32_t *out, int32_t min, int32_t max, const char *name, json_t *v,
		struct ig_api_error *e)
{
	if (!json_is_integer(v))
		return ig_fail_type(e, name, "an integer", v);
	json_int_t i = json_integer_value(v);
	if (i < min || i > max)
		return ig_fail_value(e, name, "expected an integer from %d to %d, got %lld", min,
				     max, (long long)i);
	*out = (int32_t)i;
	return 0;
}

int ig_param_model(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_string(&r->model, name, v, e);
}

int ig_param_temperature(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return read_number(&r->sampling.temperature, 0, false, 2, name, v, e);
}

int ig_param_top_p(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return read_number(&r->sampling.top_p, 0, true, 1, name, v, e);
}

int ig_param_top_k(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_int(&r->sampling.top_k, 0, INT32_MAX, name, v, e);
}

int ig_param_min_p(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return read_number(&r->sampling.min_p, 0, false, 1, name, v, e);
}

int ig_param_frequency_penalty(struct ig_request *r, const char *name, json_t *v,
			       struct ig_api_error *e)
{
	return read_number(&r->sampling.frequency_penalty, -2, false, 2, name, v, e);
}

int ig_param_presence_penalty(struct ig_request *r, const char *name, json_t *v,
			      struct ig_api_error *e)
{
	return read_number(&r->sampling.presence_penalty, -2, false, 2, name, v, e);
}

int ig_param_repetition_penalty(struct ig_request *r, const char *name, json_t *v,
				struct ig_api_error *e)
{
	return read_number(&r->sampling.repetition_penalty, 0, true, 10, name, v, e);
}

/* {"token id": bias}.  Whether the model has such a token is the engine's to say. */
int ig_param_logit_bias(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	if (json_object_size(v) > IG_MAX_BIASES)
		return ig_fail_value(e, name, "expected at most %d tokens, got %zu", IG_MAX_BIASES,
				     json_object_size(v));
	if (!json_object_size(v))
		return 0;
	r->sampling.biases = calloc(json_object_size(v), sizeof *r->sampling.biases);
	if (!r->sampling.biases)
		return ig_fail_memory(e);
	json_object_foreach(v, key, value)
	{
		char param[96];
		double bias = 0;
		size_t n = strlen(key);

		snprintf(param, sizeof param, "%s.%s", name, n > 40 ? "…" : key);
		/* one spelling a number: a token can't be named twice */
		if (n < 1 || n > 9 || strspn(key, "0123456789") != n || (n > 1 && *key == '0'))
			return ig_fail_value(e, name, "expected token ids as keys");
		if (read_number(&bias, -100, false, 100, param, value, e) < 0)
			return -1;
		r->sampling.biases[r->sampling.n_biases++] =
			(struct ig_bias){ atoi(key), (float)bias };
	}
	return 0;
}

int ig_param_seed(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_integer(v))
		return ig_fail_type(e, name, "an integer", v);
	r->sampling.seed = (uint64_t)json_integer_value(v);
	r->has_seed = true;
	return 0;
}

int ig_param_max_tokens(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	int32_t n = 0;

	if (ig_read_int(&n, 1, INT32_MAX, name, v, e) < 0)
		return -1;
	if (r->sampling.max_tokens && r->sampling.max_tokens != n)
		return ig_fail_value(e, name,
				     "max_tokens and max_completion_tokens differ "
				     "(%d and %d)",
				     r->sampling.max_tokens, n);
	r->sampling.max_tokens = n;
	return 0;
}

static int add_stop(char **list, size_t i, const char *param, json_t *v, struct ig_api_error *e)
{
	if (!json_is_string(v))
		return ig_fail_type(e, param, "a string", v);
	if (!json_string_length(v))
		return ig_fail_value(e, param, "a stop string must not be empty");
	if (json_string_length(v) > IG_MAX_STOP_BYTES)
		return ig_fail_value(e, param, "a stop string has at most %d bytes, got %zu",
				     IG_MAX_STOP_BYTES, json_string_length(v));
	list[i] = strdup(json_string_value(v));
	return list[i] ? 0 : ig_fail_memory(e);
}

int ig_param_stop(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	size_t n = json_is_array(v) ? json_array_size(v) : 1;

	if (!json_is_array(v) && !json_is_string(v))
		return ig_fail_type(e, name, "a string or a list of strings", v);
	if (n > IG_MAX_STOPS)
		return ig_fail_value(e, name, "at most %d stop strings, got %zu", IG_MAX_STOPS, n);
	if (!n)
		return 0;
	r->sampling.stops = calloc(n + 1, sizeof *r->sampling.stops);
	if (!r->sampling.stops)
		return ig_fail_memory(e);
	if (!json_is_array(v))
		return add_stop(r->sampling.stops, 0, name, v, e);
	for (size_t i = 0; i < n; i++) {
		char param[48];
		snprintf(param, sizeof param, "%s[%zu]", name, i);
		if (add_stop(r->sampling.stops, i, param, json_array_get(v, i), e) < 0)
			return -1;
	}
	return 0;
}

int ig_param_stream(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->stream, name, v, e);
}

int ig_param_store(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->store, name, v, e);
}

/* OpenAI's limits: 16 pairs, keys of 64 characters, values of 512. */
int ig_param_metadata(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object of strings", v);
	if (json_object_size(v) > 16)
		return ig_fail_value(e, name, "at most 16 pairs, got %zu", json_object_size(v));
	json_object_foreach(v, key, value)
	{
		char shown[100], param[128];
		ig_printable(shown, sizeof shown, key);
		snprintf(param, sizeof param, "%s.%s", name, shown);
		if (ig_utf8_count(key, strlen(key)) > 64)
			return ig_fail_value(e, name, "a key has more than 64 characters (\"%s\")",
					     shown);
		if (!json_is_string(value))
			return ig_fail_type(e, param, "a string", value);
		if (ig_utf8_count(json_string_value(value), json_string_length(value)) > 512)
			return ig_fail_value(e, param, "more than 512 characters");
	}
	free(r->metadata);
	r->metadata = ig_json_to_text(v);
	return r->metadata ? 0 : ig_fail_memory(e);
}

int ig_param_template_vars(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_decref(r->template_vars);
	r->template_vars = json_incref(v);
	return 0;
}

/* ---- values that change nothing ---------------------------------------------- */

int ig_param_any_string(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_string(v) ? 0 : ig_fail_type(e, name, "a string", v);
}

int ig_param_false(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_false(v) ? 0 : ig_fail_unsupported(e, name, "false");
}

int ig_param_one(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_integer(v) && json_integer_value(v) == 1 ? 0 :
								  ig_fail_unsupported(e, name, "1");
}

int ig_param_empty_list(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_array(v) && !json_array_size(v) ?
		       0 :
		       ig_fail_unsupported(e, name, "an empty list");
}

int ig_param_auto(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_string(v) && !strcmp(json_string_value(v), "auto") ?
		       0 :
		       ig_fail_unsupported(e, name, "\"auto\"");
}

int ig_param_parallel_tool_calls(struct ig_request *r, const char *name, json_t *v,
				 struct ig_api_error *e)
{
	return ig_read_bool(&r->parallel_tool_calls, name, v, e);
}

int ig_param_ignore_end(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->sampling.ignore_end, name, v, e);
}

int ig_check_stream_options(const struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *options = json_object_get(root, "stream_options");

	if (options && !json_is_null(options) && !r->stream)
		return ig_fail_value(e, "stream_options", "only allowed when 'stream' is true");
	return 0;
}

/* ---- the request ------------------------------------------------------------------ */

void ig_request_finish(struct ig_request *r)
{
	free(r->model);
	free(r->instructions);
	json_decref(r->history);
	json_decref(r->messages);
	json_decref(r->tools);
	json_decref(r->template_vars);
	for (size_t i = 0; i < r->n_prompts; i++) {
		free(r->prompts[i].text);
		free(r->prompts[i].ids);
	}
	free(r->prompts);
	for (char **s = r->sampling.stops; s && *s; s++)
		free(*s);
	free(r->sampling.stops);
	free(r->sampling.biases);
	json_decref(r->schema);
	free(r->regex);
	free(r->tool_name);
	free(r->metadata);
	json_decref(r->said);
	json_decref(r->items);
	free(r->previous_id);
	free(r->response_id);
	free(r->steer);
	*r = (struct ig_request){ 0 };
}
