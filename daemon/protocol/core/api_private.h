/* api_private.h: the state that all requests share. */
#pragma once

#include "daemon/protocol/api.h"
#include "daemon/protocol/core/handoff.h"
#include "daemon/protocol/core/ignored.h"
#include "daemon/protocol/core/limits.h"
#include "daemon/protocol/core/link.h"
#include "daemon/protocol/core/model_wait.h"
#include "daemon/protocol/core/wake.h"

struct ig_errand;
struct ig_route;
struct ig_responses;

/* Those that the reader thread has finished. */
struct ig_errands {
	pthread_mutex_t lock;
	struct ig_errand *done; /* lock */
};

/* What the sessions of /v1/ingot/events are told: the text of each kind of event, and how often it has
 * changed. */
enum { IG_EVENT_STATUS, IG_EVENT_REQUESTS, IG_EVENT_MODELS, IG_N_EVENTS };
struct ig_events {
	struct link sessions;
	struct ig_strbuf texts[IG_N_EVENTS];
	uint64_t versions[IG_N_EVENTS];
	int64_t next_ns;
};

/* The loop thread's, unless noted. */
struct ig_api {
	struct ig_api_deps deps;
	const struct ig_route *routes; /* the last one has no path */
	bool draining;
	struct link replies; /* all of them */
	struct link parked;  /* whose model is being loaded, oldest first */
	struct ig_limits *limits;
	struct ig_responses *responses; /* private to Responses */
	struct ig_ignored ignored;
	struct ig_wakes wakes;
	struct ig_handoff handoff;
	struct ig_errands errands;
	struct ig_events events;
	struct ig_model_waits model_waits; /* prep's */
};
