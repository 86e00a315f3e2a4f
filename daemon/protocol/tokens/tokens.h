/* tokens.h: texts to tokens and back. */
#pragma once

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_tokenize_protocol, ig_detokenize_protocol;

ig_request_parse ig_request_parse_tokenize, ig_request_parse_detokenize;
