/*
 * backend.h: what a daemon and a worker (daemon/worker.h) open of a configuration, in the same way: the ranks of a model
 * compute the same bits.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/machines/link.h"
#include "runtime/modules/modules.h"
#include "store/config.h"

/* Of the options runtime.*, but for its devices.  The texts are the configuration's. */
struct ig_driver_options ig_backend_driver_options(const struct ig_config *config);
/* The module's service that kvcache.service names.  -ENOENT with text. */
int ig_backend_find_service(const struct ig_modules *modules, const struct ig_config *config,
			    const struct ig_kvcache_service **out, struct ig_error *err);
/* A cache whose slabs are the driver's memory. */
int ig_backend_create_cache(const struct ig_kvcache_service *kv, struct ig_driver *driver,
			    uint64_t arena_bytes, uint64_t slab_bytes, struct ig_kvcache **out,
			    struct ig_error *err);
/* Load runtime.transport and wait for all ranks.  As ig_transport_load and ig_link_open. */
int ig_backend_open_link(const struct ig_config *config, struct ig_link **out,
			 struct ig_error *err);
