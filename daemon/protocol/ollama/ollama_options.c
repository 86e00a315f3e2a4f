/* ollama_options.c: parameters that several of Ollama's endpoints have: options, format, think,
 * keep_alive, images. */
#include "daemon/protocol/ollama/ollama_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ----------------------------------------------------------------------------- */

/* Negative, or 0: no limit. */
static int num_predict(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	int32_t n = 0;

	if (ig_read_int(&n, -2, INT32_MAX, name, v, e) < 0)
		return -1;
	r->sampling.max_tokens = n > 0 ? n : 0;
	return 0;
}

/* Negative: a random one. */
static int seed(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_integer(v))
		return ig_fail_type(e, name, "an integer", v);
	r->has_seed = json_integer_value(v) >= 0;
	r->sampling.seed = r->has_seed ? (uint64_t)json_integer_value(v) : 0;
	return 0;
}

static const struct ig_param option_params[] = {
	{ "num_predict", .read = num_predict },
	{ "temperature", IG_PARAM_NUMBER, IG_AT(sampling.temperature), 0, 2 },
	{ "top_k", IG_PARAM_INT, IG_AT(sampling.top_k), 0, INT32_MAX },
	{ "top_p", IG_PARAM_ABOVE, IG_AT(sampling.top_p), 0, 1 },
	{ "min_p", IG_PARAM_NUMBER, IG_AT(sampling.min_p), 0, 1 },
	{ "repeat_penalty", IG_PARAM_ABOVE, IG_AT(sampling.repetition_penalty), 0, 10 },
	{ "presence_penalty", IG_PARAM_NUMBER, IG_AT(sampling.presence_penalty), -2, 2 },
	{ "frequency_penalty", IG_PARAM_NUMBER, IG_AT(sampling.frequency_penalty), -2, 2 },
	{ "seed", .read = seed },
	{ "stop", .read = ig_param_stop },
	{ .more = ig_order_params },
	/* Without effect here, but at the values that mean nothing: the context, the device and
	 * the threads are the configuration's, and no request loads its model anew. */
	{ "num_ctx", IG_PARAM_NOTED, .values = "0" },
	{ "num_keep", IG_PARAM_NOTED, .values = "0" },
	{ "num_batch", IG_PARAM_NOTED, .values = "0" },
	{ "num_gpu", IG_PARAM_NOTED, .values = "-1" },
	{ "main_gpu", IG_PARAM_NOTED, .values = "0" },
	{ "num_thread", IG_PARAM_NOTED, .values = "0" },
	{ "repeat_last_n", IG_PARAM_NOTED, .values = "-1" }, /* all of the context */
	{ "mirostat", IG_PARAM_NOTED, .values = "0" },
	{ "mirostat_tau", IG_PARAM_NOTED, .values = "5.0" },
	{ "mirostat_eta", IG_PARAM_NOTED, .values = "0.1" },
	{ "tfs_z", IG_PARAM_NOTED, .values = "1, 1.0" },
	{ "typical_p", IG_PARAM_NOTED, .values = "1, 1.0" },
	{ "penalize_newline", IG_PARAM_NOTED, .values = "true" },
	{ "use_mmap", IG_PARAM_NOTED, .values = "true" },
	{ "use_mlock", IG_PARAM_NOTED, .values = "false" },
	{ "low_vram", IG_PARAM_NOTED, .values = "false" },
	{ "numa", IG_PARAM_NOTED, .values = "false" },
	{ NULL },
};

int ig_ollama_options(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_params_read(r, r, option_params, name, v, e);
}

/* ---- keep_alive --------------------------------------------------------------------------- */

/* "1h30m", "-1", "300": as Go's durations, or seconds.  False: it is neither. */
static bool read_duration(const char *s, double *seconds)
{
	static const struct {
		const char *name;
		double s;
	} units[] = { { "ns", 1e-9 }, { "us", 1e-6 }, { "\xc2\xb5s", 1e-6 }, { "ms", 1e-3 },
		      { "s", 1 },     { "m", 60 },    { "h", 3600 } };
	double sign = *s == '-' ? -1 : 1, sum = 0;

	s += *s == '-' || *s == '+';
	if (!*s || strlen(s) > 64)
		return false;
	while (*s) {
		size_t digits = strspn(s, "0123456789."), i = 0;
		char number[65] = "", *end;
		memcpy(number, s, digits);
		double n = strtod(number, &end);
		if (!digits || *end || end == number)
			return false;
		s += digits;
		if (!*s && !sum) {
			sum = n;
			break;
		}
		size_t len = strcspn(s, "0123456789.");
		while (i < sizeof units / sizeof units[0] &&
		       (strlen(units[i].name) != len || strncmp(units[i].name, s, len)))
			i++;
		if (i == sizeof units / sizeof units[0])
			return false;
		sum += n * units[i].s;
		s += len;
	}
	*seconds = sign * sum;
	return true;
}

int ig_ollama_keep_alive(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	double seconds = json_number_value(v);

	if (!json_is_number(v) && !json_is_string(v))
		return ig_fail_type(e, name, "seconds or a duration such as \"5m\"", v);
	if (json_is_string(v) && !read_duration(json_string_value(v), &seconds))
		return ig_fail_value(e, name, "expected seconds or a duration such as \"5m\"");
	r->has_keep_alive = true;
	/* a hundred years is for ever */
	r->keep_alive_ns = seconds < 0 || seconds > 3e9 ? -1 : (int64_t)(seconds * 1e9);
	return 0;
}

/* ---- output ------------------------------------------------------------------------------- */

static int set_var(struct ig_request *r, const char *key, json_t *v, struct ig_api_error *e)
{
	if (!r->template_vars)
		r->template_vars = json_object();
	return r->template_vars && !json_object_set(r->template_vars, key, v) ? 0 :
										ig_fail_memory(e);
}

/* A boolean, or how much; what a model's template does with it is decided when the model is known
 * (ollama_prepare.c). */
int ig_ollama_think(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const char *const levels[] = { "low", "medium", "high", "max", NULL };

	if (!json_is_boolean(v) && !json_is_string(v))
		return ig_fail_type(e, name, "a boolean or a level", v);
	if (json_is_string(v) && !ig_is_one_of(json_string_value(v), levels))
		return ig_fail_value(e, name,
				     "expected a boolean, \"low\", \"medium\", \"high\" or "
				     "\"max\"");
	r->think = json_is_false(v) ? IG_THINK_OFF : IG_THINK_ON;
	return json_is_string(v) ? set_var(r, "reasoning_effort", v, e) : 0;
}

/* "", "json" or a schema. */
int ig_ollama_format(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *word = json_string_value(v);

	if (json_is_object(v)) {
		json_decref(r->schema);
		r->schema = json_incref(v);
		r->form = IG_OUTPUT_SCHEMA;
		return 0;
	}
	if (!word)
		return ig_fail_type(e, name, "\"json\" or a JSON schema", v);
	if (*word && strcmp(word, "json"))
		return ig_fail_value(e, name, "expected \"json\" or a JSON schema");
	r->form = *word ? IG_OUTPUT_OBJECT : IG_OUTPUT_FREE;
	return 0;
}

/* Models read text alone: images are left out. */
int ig_ollama_images(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list of images in base64", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char sub[160];
		snprintf(sub, sizeof sub, "%.120s[%zu]", name, i);
		if (!json_is_string(json_array_get(v, i)))
			return ig_fail_type(e, sub, "a string", json_array_get(v, i));
	}
	return json_array_size(v) ? ig_request_ignore(r, name, NULL, NULL, e) : 0;
}
