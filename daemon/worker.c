/* worker.c: see worker.h. */
#include "daemon/worker.h"

#include "base/log.h"
#include "daemon/engine/backend.h"
#include "runtime/machines/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct context {
	const struct ig_config *config;
	const struct ig_kvcache_service *kv;
	struct ig_kvcache *ruler; /* an empty cache to query layouts */
};

static bool is_called(const char *path, const char *name)
{
	const char *last = path ? strrchr(path, '/') : NULL;

	return path && !strcmp(last ? last + 1 : path, name);
}

static int find_model(void *ctx, const char *name, const char **path, struct ig_error *err)
{
	const struct ig_config *config = ((const struct context *)ctx)->config;

	for (size_t i = 0; i < config->n_models; i++) {
		const struct ig_config_model *m = &config->models[i];
		*path = is_called(m->path, name)  ? m->path :
			is_called(m->draft, name) ? m->draft :
						    NULL;
		if (*path)
			return 0;
	}
	return ig_fail(err, -ENOENT, "no model of this machine's configuration has the file %s",
		       name);
}

static int layout(void *ctx, struct ig_kv_layout *l, struct ig_error *err)
{
	const struct context *c = ctx;

	return c->kv->layout(c->ruler, l, err);
}

/* Ends with rank 0, which has to answer its clients first; at once if told again. */
static void on_term(int sig)
{
	static volatile sig_atomic_t n;

	if (n++)
		_exit(128 + sig);
}

static int open_ruler(struct context *c, const struct ig_modules *modules, struct ig_driver *driver,
		      struct ig_error *err)
{
	const uint64_t slab = c->config->kvcache.slab;
	int rc = ig_backend_find_service(modules, c->config, &c->kv, err);

	return rc ? rc : ig_backend_create_cache(c->kv, driver, slab, slab, &c->ruler, err);
}

static int open_link(const struct ig_config *config, struct ig_link **out, struct ig_error *err)
{
	int rc;

	if (!strcmp(config->runtime.transport, "none"))
		return ig_fail(err, -EINVAL, "a worker needs runtime.transport");
	rc = ig_backend_open_link(config, out, err);
	if (!rc && ig_link_rank(*out) == 0)
		rc = ig_fail(err, -EINVAL, "this is rank 0, which is the daemon, not a worker");
	return rc;
}

int ig_daemon_work(const struct ig_config *config, const struct ig_modules *modules,
		   struct ig_error *err)
{
	const struct ig_driver_options o = ig_backend_driver_options(config);
	struct context c = { .config = config };
	struct ig_worker w = {
		.modules = modules, .find = find_model, .layout = layout, .ctx = &c
	};
	int rc = ig_driver_open(config->runtime.driver, &o, &w.driver, err);

	if (!rc)
		rc = open_ruler(&c, modules, w.driver, err);
	if (!rc)
		rc = open_link(config, &w.link, err);
	if (!rc) {
		struct sigaction sa = { .sa_handler = on_term, .sa_flags = SA_RESTART };
		sigaction(SIGTERM, &sa, NULL);
		sigaction(SIGINT, &sa, NULL);
		ig_log_info("rank %u of %u, %s", ig_link_rank(w.link), ig_link_n_ranks(w.link),
			    ig_driver_describe(w.driver));
		rc = ig_worker_run(&w, err);
		if (!rc)
			ig_log_info("rank 0 has ended");
	}
	ig_link_close(w.link);
	if (c.ruler)
		c.kv->destroy(c.ruler);
	if (w.driver)
		ig_driver_close(w.driver);
	return rc;
}
