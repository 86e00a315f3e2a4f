/* chat.h: OpenAI's chat completions and completions. */
#pragma once

#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_chat_protocol, ig_completions_protocol;

extern const struct ig_request_format ig_chat_request, ig_completion_request;

/* Parameters that other protocols share; prompt is one or several. */
ig_param_fn ig_param_messages, ig_param_tools, ig_param_stream_options, ig_param_prompt;

/* Parts of both responses. */
void ig_chat_usage(struct ig_json_writer *w, const struct ig_reply *r);
bool ig_chat_wait(struct ig_reply *r, struct ig_strbuf *out);
/* The members before choices; object: the object's type. */
void ig_chat_head(struct ig_reply *r, struct ig_json_writer *w, const char *object);
/* The last frames: the usage, if requested, then an error or [DONE]. */
void ig_chat_end(struct ig_reply *r, struct ig_strbuf *out, const char *object);
