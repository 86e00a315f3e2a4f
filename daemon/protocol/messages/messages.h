/* messages.h: Anthropic's messages. */
#ifndef INGOT_PROTOCOL_MESSAGES_MESSAGES_H
#define INGOT_PROTOCOL_MESSAGES_MESSAGES_H

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_messages_protocol, ig_count_protocol;

extern const struct ig_request_format ig_messages_request, ig_count_request;

#endif
