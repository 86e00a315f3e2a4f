/* messages.h: Anthropic's messages. */
#pragma once

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_messages_protocol, ig_count_protocol;

/* Thinking that a client does not want to see is in the signature of its block, behind this: the
 * client sends it back, and the model finds it in its history. */
#define IG_OMITTED_THINKING "ingot:"

extern const struct ig_request_format ig_messages_request, ig_count_request;
