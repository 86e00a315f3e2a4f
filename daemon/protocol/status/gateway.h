/* gateway.h: what the endpoint picker of Kubernetes' inference gateway reads of the models. */
#pragma once

#include "base/strbuf.h"
#include "daemon/engine/model.h"

/* Append series by vLLM's names, as the picker's protocol for model servers has them (llm-d-router,
 * docs: cache_config_info, lora_requests_info); the gauges by such names are in store/metrics.c.
 * now_s: the wall clock. */
void ig_gateway_write(const struct ig_model_status *list, size_t n, double arena_bytes,
		      double now_s, struct ig_strbuf *out);
