/* tokens_request.c: the bodies of POST /v1/tokenize and /v1/detokenize: a text or a
 * conversation, or token ids. */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/tokens/tokens.h"

#include <stdlib.h>

static int param_one_text(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_string(v) ? ig_param_prompt(r, name, v, e) :
				   ig_fail_type(e, name, "a string", v);
}

static int param_tokens(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list of tokens", v);
	if (!json_array_size(v)) { /* no tokens are an empty text */
		r->prompts = calloc(1, sizeof *r->prompts);
		r->n_prompts = r->prompts ? 1 : 0;
		return r->prompts ? 0 : ig_fail_memory(e);
	}
	if (!json_is_integer(json_array_get(v, 0)))
		return ig_fail_type(e, name, "a list of tokens", json_array_get(v, 0));
	return ig_param_prompt(r, name, v, e);
}

static const struct ig_param tokenize_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "prompt", .read = param_one_text },
	{ "messages", .read = ig_param_messages },
	{ "tools", .read = ig_param_tools },
	{ "chat_template_kwargs", .read = ig_param_template_vars },
	/* a BOS before a text; of a conversation: the start of the assistant's turn */
	{ "add_special_tokens", IG_PARAM_NOT, IG_AT(plain) },
	{ "return_token_strs", IG_PARAM_BOOL, IG_AT(token_texts) },
	{ .more = ig_normalize_params },
	{ NULL },
};

static const struct ig_param detokenize_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "tokens", .read = param_tokens, .required = true },
	{ NULL },
};

static int check_tokenize(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (r->messages && r->n_prompts)
		return ig_fail_value(e, "messages", "not with a prompt");
	return r->messages || r->n_prompts ? 0 : ig_fail_missing(e, "prompt");
}

const struct ig_request_format ig_tokenize_request = { tokenize_table, check_tokenize };
const struct ig_request_format ig_detokenize_request = { detokenize_table, NULL };
