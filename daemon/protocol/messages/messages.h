/* messages.h: Anthropic's messages. */
#pragma once

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_messages_protocol, ig_count_protocol;

extern const struct ig_request_format ig_messages_request, ig_count_request;
