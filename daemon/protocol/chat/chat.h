/* chat.h: OpenAI's chat completions and completions. */
#pragma once

#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_chat_protocol, ig_completions_protocol;

ig_request_parse ig_request_parse_chat, ig_request_parse_completion;

/* Parameters that others have too. */
ig_param_fn ig_param_messages, ig_param_tools, ig_param_n, ig_param_stream_options;
/* A prompt or several. */
ig_param_fn ig_param_prompt;

/* What both write. */
void ig_chat_usage(struct ig_json_writer *w, const struct ig_reply *r);
bool ig_chat_wait(struct ig_reply *r, struct ig_strbuf *out);
/* The last frame: an error, or [DONE]. */
void ig_chat_end(struct ig_strbuf *out, const struct ig_reply *r);
