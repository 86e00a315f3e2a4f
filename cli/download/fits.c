/* fits.c: see fits.h.  The budget is that of daemon/engine/contract.c. */
#include "cli/download/fits.h"

#include <string.h>

#include "base/log.h"
#include "base/machine.h"
#include "runtime/driver.h"
#include "store/config.h"

/* Without kvcache.arena the cache gets what the weights leave: with less than this, it is short. */
#define LEAST_CACHE ((uint64_t)1 << 30)

static uint64_t default_budget(const struct ig_config *c)
{
	struct ig_driver_options o = { .isa = c->runtime.isa,
				       .n_threads = 1,
				       .activations = c->runtime.activations,
				       .experts = c->runtime.experts };
	struct ig_error err = { 0 };
	struct ig_driver *driver = NULL;
	uint64_t device = 0;
	bool unified = false;
	uint32_t devices[IG_CONFIG_DEVICES];

	o.devices = devices;
	o.n_devices = ig_config_devices(c, devices, &o.all_devices);
	if (strcmp(c->runtime.driver, "cpu") &&
	    !ig_driver_open(c->runtime.driver, &o, &driver, &err)) {
		device = ig_driver_memory(driver);
		unified = ig_driver_is_unified(driver);
		ig_driver_close(driver);
	}
	return ig_default_budget(ig_machine_memory(), device, unified);
}

void ig_fit_read(struct ig_fit *out)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };

	*out = (struct ig_fit){ .cache = LEAST_CACHE };
	ig_log_set_level(-1); /* what is wrong with a configuration is not pull's to say */
	if (!ig_config_load_or_defaults(NULL, &c, &err)) {
		out->budget = c->memory.budget ? c->memory.budget : default_budget(c);
		if (c->kvcache.arena)
			out->cache = c->kvcache.arena;
	}
	ig_config_destroy(c);
	if (!out->budget)
		out->budget = ig_default_budget(ig_machine_memory(), 0, false);
}

bool ig_fits(const struct ig_fit *f, uint64_t n_bytes)
{
	return f->cache <= f->budget && n_bytes <= f->budget - f->cache;
}
