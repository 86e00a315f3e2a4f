/* messages.h: Anthropic's messages. */
#pragma once

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_messages_protocol, ig_count_protocol;

ig_request_parse ig_request_parse_messages, ig_request_parse_count;
