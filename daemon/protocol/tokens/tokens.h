/* tokens.h: texts to tokens and back. */
#pragma once

#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_tokenize_protocol, ig_detokenize_protocol;

extern const struct ig_request_format ig_tokenize_request, ig_detokenize_request;
