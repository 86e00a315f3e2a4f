/*
 * worker.h: ingotd --worker: a rank behind the first of a model on several machines.  It listens nowhere; it computes
 * its layers until rank 0, the daemon, ends.
 */
#pragma once

#include "runtime/modules/modules.h"
#include "store/config.h"

/* With modules that are started.  0: rank 0 has ended.  -errno with text. */
int ig_daemon_work(const struct ig_config *config, const struct ig_modules *modules,
		   struct ig_error *err);
