/*
 * tokens_request.c: the bodies of POST /v1/tokenize and /v1/detokenize: a text or a
 * conversation, or token ids.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/tokens/tokens.h"

#include <stdlib.h>

/* add_special_tokens: a BOS before a text; of a conversation: the assistant's turn. */
static int param_special(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	bool special;

	if (ig_read_bool(&special, name, v, e) < 0)
		return -1;
	r->plain = !special;
	return 0;
}

static int param_texts(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->token_texts, name, v, e);
}

static int param_one_text(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_string(v) ? ig_param_prompt(r, name, v, e) :
				   ig_fail_type(e, name, "a string", v);
}

static int param_tokens(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list of tokens", v);
	if (!json_array_size(v)) { /* of nothing comes an empty text */
		r->prompts = calloc(1, sizeof *r->prompts);
		r->n_prompts = r->prompts ? 1 : 0;
		return r->prompts ? 0 : ig_fail_memory(e);
	}
	if (!json_is_integer(json_array_get(v, 0)))
		return ig_fail_type(e, name, "a list of tokens", json_array_get(v, 0));
	return ig_param_prompt(r, name, v, e);
}

static const struct ig_param tokenize_table[] = {
	{ "model", ig_param_model },
	{ "prompt", param_one_text },
	{ "messages", ig_param_messages },
	{ "tools", ig_param_tools },
	{ "chat_template_kwargs", ig_param_template_vars },
	{ "add_special_tokens", param_special },
	{ "return_token_strs", param_texts },
	{ NULL, NULL },
};

static const struct ig_param detokenize_table[] = {
	{ "model", ig_param_model },
	{ "tokens", param_tokens },
	{ NULL, NULL },
};

static int check_tokenize(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (r->messages && r->n_prompts)
		return ig_fail_value(e, "messages", "not with a prompt");
	return r->messages || r->n_prompts ? 0 : ig_fail_missing(e, "prompt");
}

static int check_detokenize(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->n_prompts ? 0 : ig_fail_missing(e, "tokens");
}

int ig_request_parse_tokenize(const char *text, size_t len, struct ig_request *r,
			      struct ig_api_error *e)
{
	return ig_request_read(text, len, tokenize_table, check_tokenize, r, e);
}

int ig_request_parse_detokenize(const char *text, size_t len, struct ig_request *r,
				struct ig_api_error *e)
{
	return ig_request_read(text, len, detokenize_table, check_detokenize, r, e);
}
