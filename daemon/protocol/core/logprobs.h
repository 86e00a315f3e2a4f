/* logprobs.h: tokens as clients read them, and their log probabilities. */
#pragma once

#include "base/json.h"
#include "daemon/engine/engine.h"

/* A token's text; what is no whole character is U+FFFD. */
void ig_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id);
/* As a value; key: as a key. */
void ig_json_put_token(struct ig_json_writer *w, const struct ig_engine_model *m, int32_t id,
		       bool key);
/* The member "logprobs", or another of this name, of notes first … last - 1:
 * [{"token","logprob","bytes","top_logprobs"} …]; without bytes where they are not wanted. */
void ig_json_put_logprobs(struct ig_json_writer *w, const char *name,
			  const struct ig_engine_model *m, const struct ig_token_logprob *logprobs,
			  size_t first, size_t last, bool with_bytes);
