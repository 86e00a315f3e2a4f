/* service.h: starts and stops the daemon's parts.  The main thread's. */
#pragma once

#include "daemon/net/net.h"
#include "daemon/notify.h"
#include "daemon/watch.h"
#include "runtime/modules/modules.h"

struct ig_service {
	struct ig_notify notify;      /* opened by the caller */
	struct ig_config *config;     /* loaded by the caller; the service's from then on */
	struct ig_config *first;      /* of the start, for options that can't be reloaded */
	struct ig_watch watch;	      /* of its file */
	struct ig_watch folder_watch; /* of models.folder: what is in it, not inside the files */
	struct ig_modules *modules;
	struct ig_ledger *ledger;
	struct ig_response_file *responses;
	struct ig_metrics *metrics;
	struct ig_engine *engine;
	struct ig_net *net;
};

/* Load the modules, as the start does, and check their options: the configuration is valid when
 * this returns 0. */
int ig_service_check(struct ig_service *s, struct ig_error *err);
/* The log and the modules alone, for a worker. */
int ig_service_start_modules(struct ig_service *s, struct ig_error *err);
/* Log, modules, ledger, metrics, engine, net: when it returns 0, requests are served.
 * After an error ig_service_stop must be called. */
int ig_service_start(struct ig_service *s, void (*on_net)(void *ctx, enum ig_net_event ev),
		     void (*device_lost)(void *ctx), struct ig_error *err);
/* Read the configuration, the keys and the certificate again and reopen the log; after an
 * error the old ones stay. */
void ig_service_reload(struct ig_service *s);
/* Milliseconds until the next ig_service_watch; -1: the file is not watched. */
int ig_service_watch_ms(const struct ig_service *s);
/* Check the configuration's file and the folder of models, and reload when one has changed. */
void ig_service_watch(struct ig_service *s);
/* Whether the threads that serve requests have moved since the last call; ctx is the service. */
bool ig_service_is_alive(void *ctx);
/* Cancel what runs and free all. */
void ig_service_stop(struct ig_service *s);
