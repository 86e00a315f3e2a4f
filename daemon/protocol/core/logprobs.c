/*
 * logprobs.c: tokens as clients read them: their text, which need not be whole
 * characters, and their bytes.
 */
#include "daemon/protocol/core/api_private.h"
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

void ig_json_token(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id,
		   float logprob, bool with_bytes)
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
