/* tokens_writer.c: the responses of /v1/tokenize and /v1/detokenize: ids and texts.  Nothing is
 * generated; the prep thread does the work. */
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/tokens/tokens.h"
#include "model/tokenizer/detokenizer.h"

#include <stdlib.h>

static void tokenized(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_ids *ids = &r->prepared.prompts[0];
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'count': %zu, 'max_model_len': %u, 'tokens': [", ids->n,
		     r->prepared.model->n_context);
	for (size_t i = 0; i < ids->n; i++)
		ig_json_put_int(&w, NULL, ids->ids[i]);
	ig_json_close_array(&w);
	if (r->request.token_texts) {
		ig_json_open_array(&w, "token_strs");
		for (size_t i = 0; i < ids->n; i++)
			ig_json_put_token(&w, r->prepared.model, ids->ids[i], false);
		ig_json_close_array(&w);
	}
	ig_json_close_object(&w);
}

/* With the names of control tokens, so that tokenizing the text gives the same ids. */
static void detokenized(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_ids *ids = &r->prepared.prompts[0];
	struct ig_strbuf text = { 0 };
	struct ig_json_writer w = { .out = out };
	char *piece = malloc(ig_detokenizer_max(r->prepared.model->tokenizer));
	struct ig_detokenizer d;
	char rest[16];

	ig_detokenizer_init(&d, r->prepared.model->tokenizer);
	ig_detokenizer_begin(&d);
	text.failed = !piece;
	for (size_t i = 0; piece && i < ids->n; i++) {
		size_t len;
		bool special;
		const char *name = ig_tokenizer_token(r->prepared.model->tokenizer, ids->ids[i],
						      &len, &special);
		if (special) {
			ig_strbuf_add(&text, rest, ig_detokenizer_flush(&d, rest));
			ig_strbuf_add(&text, name, len);
			ig_detokenizer_begin(&d);
		} else {
			ig_strbuf_add(&text, piece, ig_detokenizer_put(&d, ids->ids[i], piece));
		}
	}
	ig_strbuf_add(&text, rest, ig_detokenizer_flush(&d, rest));
	free(piece);
	ig_json_putf(&w, "{'prompt':");
	ig_json_put_string(&w, NULL, text.len ? text.data : "", text.len);
	ig_json_close_object(&w);
	out->failed |= text.failed;
	ig_strbuf_finish(&text);
}

const struct ig_protocol ig_tokenize_protocol = {
	.id_prefix = "tok-",
	.prompt_param = "prompt",
	.request = &ig_tokenize_request,
	.whole = tokenized,
	.error = ig_error_object,
	.immediate = true,
};

const struct ig_protocol ig_detokenize_protocol = {
	.id_prefix = "tok-",
	.prompt_param = "tokens",
	.request = &ig_detokenize_request,
	.whole = detokenized,
	.error = ig_error_object,
	.immediate = true,
};
