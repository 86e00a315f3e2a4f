/* api_private.h: what all requests share. */
#pragma once

#include "daemon/protocol/api.h"
#include "daemon/protocol/core/handoff.h"
#include "daemon/protocol/core/limits.h"
#include "daemon/protocol/core/link.h"
#include "daemon/protocol/core/model_wait.h"
#include "daemon/protocol/core/wake.h"

struct ig_route;
struct ig_responses;

/* The loop's, but for what says otherwise. */
struct ig_api {
	struct ig_api_deps deps;
	const struct ig_route *routes; /* ended by one without a path */
	bool draining;
	struct link replies; /* all of them */
	struct link parked;  /* those whose model is being loaded, oldest first */
	struct ig_limits *limits;
	struct ig_responses *responses; /* what Responses alone knows */
	struct ig_wakes wakes;
	struct ig_handoff handoff;
	struct ig_model_waits model_waits; /* prep's */
};
