/* models.h: the models as clients see them. */
#pragma once

#include "daemon/protocol/core/exchange.h"

extern const struct ig_protocol ig_load_protocol, ig_unload_protocol, ig_pin_protocol;

/* 404, with the known names. */
int ig_models_fail_unknown(const struct ig_model_status *list, size_t n, const char *name,
			   struct ig_api_error *e);
void ig_models_get(struct ig_exchange *x, const struct ig_http_request *r);
/* /v1/ingot/models: the configured models alone, with all that administrators see. */
void ig_get_models(struct ig_exchange *x, const struct ig_http_request *r);
/* What changes about the configured models by more than the time: a list of {"id", "state", "fits",
 * "pinned", "active_requests", "loads"}. */
void ig_models_write_states(struct ig_api *api, struct ig_strbuf *out);
bool ig_models_below(struct ig_exchange *x, const struct ig_http_request *r, const char *name);
