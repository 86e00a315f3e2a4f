/*
 * ollama_request.c: the bodies of /api/chat and /api/generate.  Without messages or a prompt they
 * load the model, or unload it with keep_alive 0.
 */
#include "daemon/protocol/ollama/ollama_private.h"

#include "daemon/engine/stream.h"

#include <stdlib.h>
#include <string.h>

static int param_tools(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_tools(r, name, v, IG_TOOLS_NESTED, e);
}

static const struct ig_param common_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model), .required = true },
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ "options", .read = ig_ollama_options },
	{ "format", .read = ig_ollama_format },
	{ "think", .read = ig_ollama_think },
	{ "keep_alive", .read = ig_ollama_keep_alive },
	{ "logprobs", IG_PARAM_BOOL, IG_AT(logprobs) },
	{ "top_logprobs", IG_PARAM_INT, IG_AT(n_top), 0, IG_MAX_TOP },
	{ .more = ig_normalize_params },
	/* a prompt longer than the context is refused, and nothing drops out of it */
	{ "truncate", IG_PARAM_NOTED, .values = "false" },
	{ "shift", IG_PARAM_NOTED, .values = "false" },
	{ NULL },
};

static const struct ig_param chat_params[] = {
	{ "messages", .read = ig_ollama_messages },
	{ "tools", .read = param_tools },
	{ .more = common_params },
	{ NULL },
};

static const struct ig_param generate_params[] = {
	{ "prompt", IG_PARAM_TEXT },
	{ "system", IG_PARAM_TEXT },
	{ "raw", IG_PARAM_BOOL },
	{ "images", .read = ig_ollama_images },
	{ "suffix", IG_PARAM_ONLY, .values = "\"\"" },
	{ "template", IG_PARAM_ONLY, .values = "\"\"" }, /* the model's own is a Jinja program */
	{ "context", IG_PARAM_ONLY, .values = "[]" },	 /* never sent: /api/chat has histories */
	{ .more = common_params },
	{ NULL },
};

/* By a table, with Ollama's defaults. */
static int read_body(struct ig_request *r, const struct ig_param *table, json_t *root,
		     struct ig_api_error *e)
{
	r->stream = true;
	r->sampling.temperature = 0.8;
	r->sampling.top_k = 40;
	r->sampling.top_p = 0.9;
	if (ig_params_read(r, r, table, NULL, root, e) < 0)
		return -1;
	if (!r->model[0])
		return ig_fail_missing(e, "model");
	if (r->n_top && !r->logprobs)
		return ig_fail_value(e, "top_logprobs", "only allowed when 'logprobs' is true");
	return 0;
}

static void only_load(struct ig_request *r)
{
	r->no_output = true;
	r->stream = false;
}

static int check_chat(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (read_body(r, chat_params, root, e) < 0)
		return -1;
	if (!r->messages)
		only_load(r);
	return 0;
}

static int add_text(struct ig_request *r, const char *role, json_t *text, struct ig_api_error *e)
{
	return ig_request_add(r, json_pack("{s:s, s:O}", "role", role, "content", text), e);
}

int ig_ollama_set_prompt(struct ig_request *r, const char *text, size_t len, struct ig_api_error *e)
{
	r->prompts = calloc(1, sizeof *r->prompts);
	if (!r->prompts)
		return ig_fail_memory(e);
	r->n_prompts = 1;
	r->prompts[0].text = ig_copy_text(text, len);
	r->prompts[0].len = len;
	return r->prompts[0].text ? 0 : ig_fail_memory(e);
}

static int check_generate(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *prompt = json_object_get(root, "prompt"), *system = json_object_get(root, "system");
	bool raw = json_is_true(json_object_get(root, "raw"));

	if (read_body(r, generate_params, root, e) < 0)
		return -1;
	if (raw && json_string_length(system))
		return ig_fail_value(e, "system", "not with 'raw', whose prompt is all there is");
	if (!json_string_length(prompt)) {
		only_load(r);
		return 0;
	}
	if (raw)
		return ig_ollama_set_prompt(r, json_string_value(prompt),
					    json_string_length(prompt), e);
	if (json_string_length(system) && add_text(r, "system", system, e) < 0)
		return -1;
	return add_text(r, "user", prompt, e);
}

const struct ig_request_format ig_ollama_chat_request = { .check = check_chat },
			       ig_ollama_generate_request = { .check = check_generate };
