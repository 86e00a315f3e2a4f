/* completions_request.c: the body of POST /v1/completions: prompts as text, as tokens, or
 * lists of either. */
#include "daemon/engine/stream.h"
#include "daemon/protocol/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>

static int read_ids(struct ig_prompt *p, const char *param, json_t *v, struct ig_api_error *e)
{
	p->ids = malloc(json_array_size(v) * sizeof *p->ids + 1);
	if (!p->ids)
		return ig_fail_memory(e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char sub[96];
		snprintf(sub, sizeof sub, "%s[%zu]", param, i);
		if (ig_read_int(&p->ids[i], 0, INT32_MAX, sub, json_array_get(v, i), e) < 0)
			return -1;
		p->n_ids++;
	}
	return 0;
}

static int read_prompt(struct ig_request *r, const char *param, json_t *v, struct ig_api_error *e)
{
	struct ig_prompt *p = &r->prompts[r->n_prompts++];

	if (json_is_array(v))
		return json_array_size(v) ? read_ids(p, param, v, e) :
					    ig_fail_value(e, param, "expected at least one token");
	if (!json_is_string(v))
		return ig_fail_type(e, param, "a string", v);
	p->len = json_string_length(v);
	p->text = ig_copy_text(json_string_value(v), p->len);
	return p->text ? 0 : ig_fail_memory(e);
}

int ig_param_prompt(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	json_t *first = json_array_get(v, 0);
	bool several = json_is_array(v) && !json_is_integer(first);
	size_t n = several ? json_array_size(v) : 1;

	if (!json_is_array(v) && !json_is_string(v))
		return ig_fail_type(e, name, "a string, a list of tokens, or a list of either", v);
	if (!n)
		return ig_fail_value(e, name, "expected at least one prompt");
	if (n > IG_MAX_CHOICES)
		return ig_fail_value(e, name, "at most %d prompts, got %zu", IG_MAX_CHOICES, n);
	r->prompts = calloc(n, sizeof *r->prompts);
	if (!r->prompts)
		return ig_fail_memory(e);
	if (!several)
		return read_prompt(r, name, v, e);
	for (size_t i = 0; i < n; i++) {
		char param[64];
		json_t *x = json_array_get(v, i);
		snprintf(param, sizeof param, "%s[%zu]", name, i);
		if (!json_is_string(x) && !json_is_array(x))
			return ig_fail_type(e, param, "a string or a list of tokens", x);
		if (read_prompt(r, param, x, e) < 0)
			return -1;
	}
	return 0;
}

static int param_logprobs(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	r->logprobs = true;
	return ig_read_int(&r->n_top, 0, IG_MAX_TOP, name, v, e);
}

static const struct ig_param table[] = {
	{ "prompt", .read = ig_param_prompt, .required = true },
	{ "max_tokens", .read = ig_param_max_tokens },
	{ "n", IG_PARAM_INT, IG_AT(n), 1, IG_MAX_CHOICES },
	{ "best_of", IG_PARAM_NOTED, .values = "1" },
	{ "logprobs", .read = param_logprobs },
	{ "echo", IG_PARAM_BOOL, IG_AT(echo) },
	{ "suffix", IG_PARAM_ONLY, .values = "\"\"" },
	{ "response_format", .read = ig_param_format_nested },
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ "stream_options", .read = ig_param_stream_options },
	{ "user", IG_PARAM_TEXT },
	{ .more = ig_cache_params },
	{ .more = ig_sampling_params },
	{ .more = ig_order_params },
	{ NULL },
};

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (r->n_prompts * (size_t)r->n > IG_MAX_CHOICES)
		return ig_fail_value(e, "n",
				     "%zu prompts with %d choices each: at most %d choices in all",
				     r->n_prompts, r->n, IG_MAX_CHOICES);
	if (r->echo && r->logprobs)
		return ig_fail_value(e, "echo",
				     "the prompt's log probabilities are not computed: not "
				     "with logprobs");
	if (ig_check_stream_options(r, root, e) < 0 || ig_check_ignore_end(r, e) < 0)
		return -1;
	/* the default of this endpoint */
	if (!r->sampling.max_tokens)
		r->sampling.max_tokens = 16;
	return 0;
}

const struct ig_request_format ig_completion_request = { table, check };
