/*
 * params.c: the members of a request by tables, and parameters that several protocols have.  Each
 * reader takes one JSON value that is not null and either stores it in the request or fails with
 * the parameter's name, what was expected and what came.
 */
#include "daemon/protocol/core/params.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int ig_read_text(json_t **out, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_string(v))
		return ig_fail_type(e, name, "a string", v);
	json_decref(*out);
	*out = json_incref(v);
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

/* Whether v is of the type of the first of these values. */
static bool is_like(const json_t *v, const char *values)
{
	switch (values[0]) {
	case '"': return json_is_string(v);
	case '[': return json_is_array(v);
	case '{': return json_is_object(v);
	case 't':
	case 'f': return json_is_boolean(v);
	default: return json_is_number(v);
	}
}

/* A value of which its text is found in values as a whole. */
static int read_listed(struct ig_request *r, const struct ig_param *p, const char *name, json_t *v,
		       struct ig_api_error *e)
{
	static const char around[] = " ,:";

	if (p->kind == IG_PARAM_WORD && !json_is_string(v))
		return ig_fail_type(e, name, "a string", v);
	if (p->kind == IG_PARAM_NOTED && !is_like(v, p->values))
		return ig_fail_value(e, name, "expected %s, got %s", p->values,
				     ig_json_type_name(v));
	char *text = ig_json_to_text(v);
	if (!text)
		return ig_fail_memory(e);
	size_t n = strlen(text);
	const char *at = strstr(p->values, text);
	while (at && ((at > p->values && !strchr(around, at[-1])) || !strchr(around, at[n])))
		at = strstr(at + 1, text);
	int rc = at ? 0 :
		 p->kind == IG_PARAM_WORD ?
		      ig_fail_value(e, name, "expected %s, got %.48s", p->values, text) :
		 p->kind == IG_PARAM_NOTED ? ig_request_ignore(r, name, NULL, p->values, e) :
					     ig_fail_unsupported(e, name, p->values);
	free(text);
	return rc;
}

/* A value that is stored as it is. */
static int read_json(json_t **out, const char *name, const char *expected, bool ok, json_t *v,
		     struct ig_api_error *e)
{
	if (!ok)
		return ig_fail_type(e, name, expected, v);
	*out = v;
	return 0;
}

static int read_value(struct ig_request *r, void *target, const struct ig_param *p,
		      const char *name, json_t *v, struct ig_api_error *e)
{
	union {
		char *string;
		bool flag;
		int32_t n;
		double real;
		json_t *json;
	} unused = { 0 };
	void *to = p->at ? (char *)target + p->at : (void *)&unused;

	switch (p->kind) {
	case IG_PARAM_READ: return p->read(r, name, v, e);
	case IG_PARAM_SKIP: return 0;
	case IG_PARAM_STRING: return ig_read_string(to, name, v, e);
	case IG_PARAM_INT: return ig_read_int(to, (int32_t)p->min, (int32_t)p->max, name, v, e);
	case IG_PARAM_NUMBER:
	case IG_PARAM_ABOVE:
		return read_number(to, p->min, p->kind == IG_PARAM_ABOVE, p->max, name, v, e);
	case IG_PARAM_TEXT: return read_json(to, name, "a string", json_is_string(v), v, e);
	case IG_PARAM_OBJECT: return read_json(to, name, "an object", json_is_object(v), v, e);
	case IG_PARAM_LIST: return read_json(to, name, "a list", json_is_array(v), v, e);
	case IG_PARAM_BOOLEAN: return read_json(to, name, "a boolean", json_is_boolean(v), v, e);
	case IG_PARAM_BOOL:
	case IG_PARAM_NOT:
		if (!json_is_boolean(v))
			return ig_fail_type(e, name, "a boolean", v);
		*(bool *)to = json_is_true(v) == (p->kind == IG_PARAM_BOOL);
		return 0;
	default: return read_listed(r, p, name, v, e);
	}
}

/* ---- objects ------------------------------------------------------------------- */

void ig_member_name(char *out, size_t cap, const char *at, const char *name)
{
	char shown[100];

	ig_printable(shown, sizeof shown, name);
	int n = snprintf(out, cap, "%s%s%s", at ? at : "", at ? "." : "", shown);
	if (n < 0 || (size_t)n >= cap)
		memcpy(out + cap - 4, "...", 4);
}

static const struct ig_param *find(const struct ig_param *p, const char *key)
{
	for (; p->name || p->more; p++) {
		const struct ig_param *found = p->name ? NULL : find(p->more, key);
		if (found || (p->name && !strcmp(p->name, key)))
			return found ? found : p;
	}
	return NULL;
}

static int check_required(const struct ig_param *p, const char *at, const json_t *obj,
			  struct ig_api_error *e)
{
	char name[160];

	for (; p->name || p->more; p++) {
		if (!p->name && check_required(p->more, at, obj, e) < 0)
			return -1;
		const json_t *v = p->required ? json_object_get(obj, p->name) : obj;
		if (v && !json_is_null(v))
			continue;
		ig_member_name(name, sizeof name, at, p->name);
		return ig_fail_missing(e, name);
	}
	return 0;
}

int ig_request_repeat(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!r->repeated)
		r->repeated = json_object();
	return r->repeated && !json_object_set(r->repeated, name, v) ? 0 : ig_fail_memory(e);
}

int ig_params_read(struct ig_request *r, void *target, const struct ig_param *table, const char *at,
		   json_t *obj, struct ig_api_error *e)
{
	char name[160];
	const char *key;
	json_t *v;

	if (!json_is_object(obj))
		return ig_fail_type(e, at, "an object", obj);
	json_object_foreach(obj, key, v)
	{
		const struct ig_param *p = find(table, key);
		if (json_is_null(v))
			continue;
		ig_member_name(name, sizeof name, at, key);
		if (!p && ig_request_ignore(r, name, NULL, NULL, e) < 0)
			return -1;
		if (p && (read_value(r, target, p, name, v, e) < 0 ||
			  (p->repeated && ig_request_repeat(r, key, v, e) < 0)))
			return -1;
	}
	return check_required(table, at, obj, e);
}

int ig_read_type(const char **type, const char *at, json_t *v, struct ig_api_error *e)
{
	char name[160];

	if (!json_is_object(v))
		return ig_fail_type(e, at, "an object", v);
	json_t *t = json_object_get(v, "type");
	ig_member_name(name, sizeof name, at, "type");
	if (!t)
		return ig_fail_missing(e, name);
	*type = json_string_value(t);
	return *type ? 0 : ig_fail_type(e, name, "a string", t);
}

/* Texts of conversations: a model may generate U+0000, and what it said comes back.  They keep their length on
 * their way to the tokenizer.  All other strings are C strings: in a name, a pattern or an id it is an error. */
static const char *const texts[] = {
	"content",  "text",	    "input",	 "output",    "prompt",
	"system",   "instructions", "arguments", "reasoning", "reasoning_content",
	"thinking", "signature",    "refusal",	 "query",     "documents",
	NULL
};
/* A tool call's arguments, whatever its keys are. */
static const char *const objects[] = { "arguments", "input", NULL };

/* A client's bytes to an object, within bounds: a value takes about a hundred bytes, which
 * limits what a body of brackets and commas can make of itself. */
static int read_object(const char *text, size_t len, json_t **out, struct ig_api_error *e)
{
	const struct ig_json_limits limits = {
		.max_depth = 64, .max_values = 200000, .nul_texts = texts, .nul_objects = objects
	};
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

int ig_request_read(const struct ig_request_format *format, const char *text, size_t len,
		    bool refuse_unknown, struct ig_request *r, struct ig_api_error *e)
{
	json_t *root;

	*r = (struct ig_request){
		.sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
		.n = 1,
		.parallel_tool_calls = true,
		.refuse_unknown = refuse_unknown
	};
	*e = (struct ig_api_error){ 0 };
	if (read_object(text, len, &root, e) < 0)
		return -1;
	int rc = format->params ? ig_params_read(r, r, format->params, NULL, root, e) : 0;
	if (!rc && format->check)
		rc = format->check(r, root, e);
	json_decref(root);
	return rc;
}

/* ---- parameters ---------------------------------------------------------------- */

/* {"token id": bias}.  Whether the model has such a token is checked in prepare.c. */
static int param_logit_bias(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
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

static int param_seed(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
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
				     "max_tokens and max_completion_tokens differ (%d and %d)",
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

const struct ig_param ig_sampling_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "temperature", IG_PARAM_NUMBER, IG_AT(sampling.temperature), 0, 2 },
	{ "top_p", IG_PARAM_ABOVE, IG_AT(sampling.top_p), 0, 1 },
	{ "top_k", IG_PARAM_INT, IG_AT(sampling.top_k), 0, INT32_MAX },
	{ "min_p", IG_PARAM_NUMBER, IG_AT(sampling.min_p), 0, 1 },
	{ "frequency_penalty", IG_PARAM_NUMBER, IG_AT(sampling.frequency_penalty), -2, 2 },
	{ "presence_penalty", IG_PARAM_NUMBER, IG_AT(sampling.presence_penalty), -2, 2 },
	{ "repetition_penalty", IG_PARAM_ABOVE, IG_AT(sampling.repetition_penalty), 0, 10 },
	{ "logit_bias", .read = param_logit_bias },
	{ "seed", .read = param_seed },
	{ "stop", .read = ig_param_stop },
	{ "ignore_eos", IG_PARAM_BOOL, IG_AT(sampling.ignore_end) },
	{ NULL },
};

static int param_priority(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	r->has_priority = true;
	return ig_read_int(&r->priority, -IG_PRIORITY_MAX, IG_PRIORITY_MAX, name, v, e);
}

const struct ig_param ig_order_params[] = {
	{ "priority", .read = param_priority },
	{ "deadline", IG_PARAM_ABOVE, IG_AT(deadline_s), 0, 86400 },
	{ NULL },
};

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

int ig_param_effort(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	if (!s)
		return ig_fail_type(e, name, "a string", v);
	if (n < 1 || n > 32 || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") != n)
		return ig_fail_value(e, name,
				     "expected a word such as none, minimal, low, medium or "
				     "high");
	return 0;
}

int ig_request_set_effort(struct ig_request *r, json_t *effort, struct ig_api_error *e)
{
	if (!json_is_string(effort))
		return 0;
	if (!r->template_vars)
		r->template_vars = json_object();
	if (json_object_get(r->template_vars, "reasoning_effort"))
		return 0;
	if (!r->template_vars || json_object_set(r->template_vars, "reasoning_effort", effort) < 0)
		return ig_fail_memory(e);
	if (!strcmp(json_string_value(effort), "none") &&
	    !json_object_get(r->template_vars, "enable_thinking") &&
	    json_object_set_new(r->template_vars, "enable_thinking", json_false()) < 0)
		return ig_fail_memory(e);
	return 0;
}

int ig_check_stream_options(const struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *options = json_object_get(root, "stream_options");

	if (options && !json_is_null(options) && !r->stream)
		return ig_fail_value(e, "stream_options", "only allowed when 'stream' is true");
	return 0;
}

/* ---- the request ------------------------------------------------------------------ */

/* ---- why a prompt was not cached ------------------------------------------------------- */

static int param_cache_options(struct ig_request *r, const char *name, json_t *v,
			       struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "comparison_response_id", IG_PARAM_STRING, IG_AT(compare_id) },
		{ "mode", IG_PARAM_NOTED, .values = "\"implicit\"" },
		{ "prewarm", IG_PARAM_NOTED, .values = "false" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

const struct ig_param ig_normalize_params[] = {
	{ "prompt_cache_normalize", IG_PARAM_NOT, IG_AT(verbatim) },
	{ NULL },
};

const struct ig_param ig_cache_params[] = {
	{ "prompt_cache_diagnostics", IG_PARAM_BOOL, IG_AT(cache_report) },
	{ "prompt_cache_options", .read = param_cache_options },
	{ NULL },
};

void ig_request_finish(struct ig_request *r)
{
	free(r->model);
	json_decref(r->instructions);
	json_decref(r->history);
	json_decref(r->messages);
	json_decref(r->tools);
	json_decref(r->formats);
	json_decref(r->prediction);
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
	json_decref(r->repeated);
	json_decref(r->items);
	json_decref(r->namespaces);
	free(r->previous_id);
	free(r->compare_id);
	free(r->response_id);
	free(r->steer);
	free(r->query);
	if (r->new_key)
		memset(r->new_key, 0, sizeof *r->new_key);
	free(r->new_key);
	*r = (struct ig_request){ 0 };
}
