/* service.h: the daemon's parts.  main's thread. */
#pragma once

#include "daemon/net/net.h"
#include "daemon/watch.h"
#include "runtime/modules/modules.h"

struct ig_service {
	struct ig_config *config; /* loaded by the caller; the service's from then on */
	struct ig_config *first;  /* of the start: what can't be reloaded */
	struct ig_watch watch;	  /* of its file */
	struct ig_modules *modules;
	struct ig_ledger *ledger;
	struct ig_metrics *metrics;
	struct ig_engine *engine;
	struct ig_net *net;
};

/* Load the modules, which the start does too, and judge what the configuration says of them:
 * it is good when this returns 0. */
int ig_service_check(struct ig_service *s, struct ig_error *err);
/* Log, modules, ledger, metrics, engine, net: when it returns 0, requests are answered.
 * After an error, stop what was started. */
int ig_service_start(struct ig_service *s, void (*on_net)(void *ctx, enum ig_net_event ev),
		     void (*device_lost)(void *ctx), struct ig_error *err);
/* Read the configuration, the keys and the certificate again and reopen the log; on any
 * error the old ones stay. */
void ig_service_reload(struct ig_service *s);
/* How long until the file is to be looked at, in milliseconds; -1: it is not watched. */
int ig_service_watch_ms(const struct ig_service *s);
/* Look at it, and reload when it has changed. */
void ig_service_watch(struct ig_service *s);
/* Cancel what runs and free all. */
void ig_service_stop(struct ig_service *s);
