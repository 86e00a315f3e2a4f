/* logprobs.h: tokens as clients read them, and their log probabilities. */
#ifndef INGOT_PROTOCOL_CORE_LOGPROBS_H
#define INGOT_PROTOCOL_CORE_LOGPROBS_H

#include "base/strbuf.h"
#include "daemon/engine/engine.h"

/* A token's text; what is no whole character is U+FFFD. */
void ig_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id);
void ig_json_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id);
/* Notes first … last - 1: [{"token","logprob","bytes","top_logprobs"} …]; without bytes
 * where they are not wanted. */
void ig_json_logprobs(struct ig_strbuf *out, const struct ig_engine_model *m,
		      const struct ig_token_note *notes, size_t first, size_t last,
		      bool with_bytes);

#endif
