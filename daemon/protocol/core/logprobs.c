/* logprobs.c: see logprobs.h. */
#include "daemon/protocol/core/logprobs.h"

#include "base/utf8.h"

void ig_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id)
{
	size_t len = 0;
	bool special;
	const char *bytes = ig_tokenizer_token(m->tokenizer, id, &len, &special);

	for (size_t i = 0; bytes && i < len;) {
		int n = ig_utf8_check((const unsigned char *)bytes + i, len - i);
		if (n > 0)
			ig_strbuf_add(out, bytes + i, (size_t)n);
		else
			ig_strbuf_puts(out, "\xef\xbf\xbd");
		i += n > 0 ? (size_t)n : 1;
	}
}

void ig_json_put_token(struct ig_json_writer *w, const struct ig_engine_model *m, int32_t id,
		       bool key)
{
	struct ig_strbuf text = { 0 };
	const char *s;

	ig_token_text(&text, m, id);
	s = text.len ? text.data : "";
	if (key)
		ig_json_put_key(w, s, text.len);
	else
		ig_json_put_string(w, NULL, s, text.len);
	w->out->failed |= text.failed;
	ig_strbuf_finish(&text);
}

/* The members of a token's object. */
static void put_logprob(struct ig_json_writer *w, const struct ig_engine_model *m, int32_t id,
			float logprob, bool with_bytes)
{
	size_t len = 0;
	bool special;
	const char *bytes = ig_tokenizer_token(m->tokenizer, id, &len, &special);

	ig_json_putf(w, "'token':");
	ig_json_put_token(w, m, id, false);
	ig_json_putf(w, "'logprob': %.8g", (double)logprob);
	if (!with_bytes)
		return;
	ig_json_open_array(w, "bytes");
	for (size_t i = 0; bytes && i < len; i++)
		ig_json_put_uint(w, NULL, (unsigned char)bytes[i]);
	ig_json_close_array(w);
}

void ig_json_put_logprobs(struct ig_json_writer *w, const char *name,
			  const struct ig_engine_model *m, const struct ig_token_logprob *logprobs,
			  size_t first, size_t last, bool with_bytes)
{
	ig_json_open_array(w, name);
	for (size_t i = first; i < last; i++) {
		const struct ig_token_logprob *n = &logprobs[i];
		ig_json_open_object(w, NULL);
		put_logprob(w, m, n->id, n->logprob, with_bytes);
		ig_json_open_array(w, "top_logprobs");
		for (int32_t k = 0; k < n->n_top; k++) {
			ig_json_open_object(w, NULL);
			put_logprob(w, m, n->top[k].id, n->top[k].logprob, with_bytes);
			ig_json_close_object(w);
		}
		ig_json_putf(w, "]}");
	}
	ig_json_close_array(w);
}
