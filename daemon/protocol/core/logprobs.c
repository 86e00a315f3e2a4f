/*
 * logprobs.c: tokens as clients read them: their text, which need not be whole
 * characters, and their bytes.
 */
#include "daemon/protocol/core/logprobs.h"

#include "base/utf8.h"

#include <string.h>

void ig_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id)
{
	size_t len = 0;
	bool special;
	const char *bytes = ig_tokenizer_token(m->tokenizer, id, &len, &special);

	for (size_t i = 0; bytes && i < len;) {
		/* the longest character that begins here, or none */
		struct ig_utf8 u = { 0 };
		size_t n = 0;
		while (i + n < len && n < 4 && ig_utf8_feed(&u, bytes + i + n, 1)) {
			n++;
			if (ig_utf8_whole(&u))
				break;
		}
		if (n && ig_utf8_whole(&u)) {
			ig_strbuf_add(out, bytes + i, n);
			i += n;
		} else {
			ig_strbuf_puts(out, "\xef\xbf\xbd");
			i++;
		}
	}
}

void ig_json_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id)
{
	struct ig_strbuf text = { 0 };

	ig_token_text(&text, m, id);
	ig_strbuf_json(out, text.len ? text.data : "", text.len);
	out->failed |= text.failed;
	ig_strbuf_finish(&text);
}

/* The members of a token's object; no braces. */
static void token(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id, float logprob,
		  bool with_bytes)
{
	size_t len = 0;
	bool special;
	const char *bytes = ig_tokenizer_token(m->tokenizer, id, &len, &special);

	ig_strbuf_puts(out, "\"token\":");
	ig_json_token_text(out, m, id);
	ig_strbuf_printf(out, ",\"logprob\":%.8g", (double)logprob);
	if (!with_bytes)
		return;
	ig_strbuf_puts(out, ",\"bytes\":[");
	for (size_t i = 0; bytes && i < len; i++)
		ig_strbuf_printf(out, "%s%u", i ? "," : "", (unsigned char)bytes[i]);
	ig_strbuf_puts(out, "]");
}

void ig_json_logprobs(struct ig_strbuf *out, const struct ig_engine_model *m,
		      const struct ig_token_note *notes, size_t first, size_t last, bool with_bytes)
{
	ig_strbuf_puts(out, "[");
	for (size_t i = first; i < last; i++) {
		const struct ig_token_note *n = &notes[i];
		ig_strbuf_puts(out, i > first ? ",{" : "{");
		token(out, m, n->id, n->logprob, with_bytes);
		ig_strbuf_puts(out, ",\"top_logprobs\":[");
		for (int32_t k = 0; k < n->n_top; k++) {
			ig_strbuf_puts(out, k ? ",{" : "{");
			token(out, m, n->top[k].id, n->top[k].logprob, with_bytes);
			ig_strbuf_puts(out, "}");
		}
		ig_strbuf_puts(out, "]}");
	}
	ig_strbuf_puts(out, "]");
}
