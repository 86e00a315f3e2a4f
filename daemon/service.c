/* service.c: starts and stops the daemon's parts in order, and reloads the configuration. */
#include "daemon/service.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Between two checks of the configuration's file; a change is applied when two checks see the
 * same file. */
#define WATCH_MS 1000
/* A model's load, as the supervisor is told: a slow disk reads 20 MB a second. */
#define LOAD_TIMEOUT_MS 60000
#define LEAST_BYTES_PER_MS 20000

/* launchd sets a limit of 256 descriptors: raise it to what the connections need. */
static void raise_fd_limit(const struct ig_config *config)
{
	struct rlimit r;
	rlim_t want = ig_net_n_fds(config->server.max_connections);

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= want)
		return;
	r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur < want)
		ig_log_warn("only %llu file descriptors; server.max_connections = %u wants %llu",
			    (unsigned long long)r.rlim_cur, config->server.max_connections,
			    (unsigned long long)want);
}

static int apply_log(const struct ig_config *config, struct ig_error *err)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	const char *file = config->log.file && config->log.file[0] ? config->log.file : NULL;

	for (int i = 0; i < 4; i++)
		if (!strcmp(config->log.level, names[i]))
			ig_log_set_level(i);
	int rc = ig_log_set_file(file);
	return rc < 0 ? ig_fail(err, rc, "log.file %s: %s", file ? file : "", strerror(-rc)) : 0;
}

static void log_taken(void *ctx, const char *key, const char *was, const char *is, bool reloadable)
{
	if (reloadable)
		ig_log_info("%s: %s -> %s", key, was, is);
}

static void log_left(void *ctx, const char *key, const char *was, const char *is, bool reloadable)
{
	if (!reloadable)
		ig_log_warn("%s: %s -> %s needs a restart", key, was, is);
}

static int check_modules(const struct ig_service *s, struct ig_config *config, struct ig_error *err)
{
	const struct ig_module *modules[IG_MAX_MODULES];
	size_t n = ig_modules_list(s->modules, modules);

	return ig_config_check_modules(config, modules, n, err);
}

int ig_service_check(struct ig_service *s, struct ig_error *err)
{
	int rc = ig_modules_create(&s->modules, err);

	if (!rc)
		rc = ig_modules_load_folders(s->modules, s->config->modules.path, err);
	return rc ? rc : check_modules(s, s->config, err);
}

static void reload(struct ig_service *s)
{
	struct ig_config *config = NULL;
	struct ig_error err = { 0 };

	ig_watch_take(&s->watch, s->config->file);
	ig_watch_take(&s->folder_watch, s->config->models_folder);
	if (ig_config_load_again(s->config, &config, &err) < 0 ||
	    check_modules(s, config, &err) < 0) {
		ig_config_destroy(config);
		ig_log_error("reload: %s; the old configuration stays", err.text);
		apply_log(s->config, &err);  /* a rotated file is reopened all the same */
		ig_net_reload_files(s->net); /* and keys are read again */
		return;
	}
	if (apply_log(config, &err) < 0)
		ig_log_error("reload: %s", err.text);
	ig_engine_reload(s->engine, config);
	ig_net_reload(s->net, config);
	ig_log_info("reload: %s", config->file); /* it holds now */
	ig_net_reload_files(s->net);
	if (s->ledger)
		ig_ledger_set_retention(s->ledger, config->ledger.retention_days);
	/* Said when it holds, each against the current value: of the last file read, or of the start. */
	ig_config_diff(s->config, config, log_taken, NULL);
	ig_config_diff(s->first, config, log_left, NULL);
	if (s->config != s->first)
		ig_config_destroy(s->config);
	s->config = config;
}

void ig_service_reload(struct ig_service *s)
{
	ig_notify_reloading(&s->notify);
	reload(s);
	ig_notify_send(&s->notify, "READY=1");
}

int ig_service_watch_ms(const struct ig_service *s)
{
	return s->config->server.watch_config ? WATCH_MS : -1;
}

void ig_service_watch(struct ig_service *s)
{
	if (!s->config->server.watch_config)
		return;
	/* both, for each remembers what it saw */
	bool file = ig_watch_look(&s->watch, s->config->file);
	bool folder = ig_watch_look(&s->folder_watch, s->config->models_folder);
	if (!file && !folder)
		return;
	ig_log_info("%s has changed", file ? s->config->file : s->config->models_folder);
	ig_service_reload(s);
}

static void rows_dropped(void *ctx, uint64_t n)
{
	ig_metrics_add(ctx, IG_COUNTER_LEDGER_DROPPED, n);
}

static void ledger_failing(void *ctx, bool failing)
{
	ig_metrics_set(ctx, IG_GAUGE_LEDGER_FAILING, failing);
}

static void responses_failing(void *ctx, bool failing)
{
	ig_metrics_set(ctx, IG_GAUGE_RESPONSES_FAILING, failing);
}

static int open_ledger(struct ig_service *s, struct ig_error *err)
{
	struct ig_ledger_options o = { s->config->ledger.path,
				       s->config->ledger.queue,
				       s->config->ledger.retention_days,
				       rows_dropped,
				       s->metrics,
				       ledger_failing };

	return s->config->ledger.enabled ? ig_ledger_open(&o, &s->ledger, err) : 0;
}

static int open_responses(struct ig_service *s, struct ig_error *err)
{
	const char *path = s->config->responses.path;
	struct ig_response_file_options o = { path, responses_failing, s->metrics };

	if (s->config->responses.persist)
		return ig_response_file_open(&o, &s->responses, err);
	if (!access(path, F_OK))
		ig_log_warn("%s has responses of an earlier start, and responses.persist is off: "
			    "they are neither used nor deleted",
			    path);
	return 0;
}

/* For a start that takes longer than the supervisor would wait. */
static void tell_loading(void *ctx, const char *model, uint64_t bytes)
{
	struct ig_service *s = ctx;

	ig_notify_status(&s->notify, "Loading model %s, %.1f MiB of weights", model,
			 (double)bytes / (1 << 20));
	ig_notify_extend(&s->notify, LOAD_TIMEOUT_MS + (int64_t)(bytes / LEAST_BYTES_PER_MS));
}

bool ig_service_is_alive(void *ctx)
{
	struct ig_service *s = ctx;
	bool engine = ig_engine_is_alive(s->engine), net = ig_net_is_alive(s->net);

	return engine && net;
}

int ig_service_start_modules(struct ig_service *s, struct ig_error *err)
{
	int rc = apply_log(s->config, err);

	s->first = s->config;
	if (!rc)
		rc = ig_service_check(s, err);
	return rc ? rc :
		    ig_modules_start(s->modules, s->config->modules.settings,
				     s->config->modules.n_settings, err);
}

int ig_service_start(struct ig_service *s, void (*on_net)(void *ctx, enum ig_net_event ev),
		     void (*device_lost)(void *ctx), struct ig_error *err)
{
	int rc;

	ig_watch_take(&s->watch, s->config->file);
	ig_watch_take(&s->folder_watch, s->config->models_folder);
	if ((rc = ig_net_probe(s->config, err)) || /* before the slow part */
	    (rc = ig_service_start_modules(s, err)))
		return rc;
	raise_fd_limit(s->config);
	s->metrics = ig_metrics_create();
	if (!s->metrics)
		return ig_fail(err, -ENOMEM, "out of memory");
	if ((rc = open_ledger(s, err)) || (rc = open_responses(s, err)))
		return rc;
	struct ig_engine_deps deps = { .config = s->config,
				       .modules = s->modules,
				       .ledger = s->ledger,
				       .metrics = s->metrics,
				       .device_lost = device_lost,
				       .loading = tell_loading,
				       .ctx = s };
	if ((rc = ig_engine_create(&deps, &s->engine, err)))
		return rc;
	struct ig_net_deps net = { .engine = s->engine,
				   .metrics = s->metrics,
				   .responses = s->responses,
				   .config = s->config,
				   .event = on_net };
	return ig_net_create(&net, &s->net, err);
}

void ig_service_stop(struct ig_service *s)
{
	if (s->net)
		ig_net_stop(s->net);
	ig_engine_destroy(s->engine);
	ig_net_destroy(s->net);
	ig_response_file_close(s->responses);
	ig_ledger_close(s->ledger);
	ig_metrics_destroy(s->metrics);
	ig_modules_destroy(s->modules);
	if (s->config != s->first)
		ig_config_destroy(s->first);
	ig_config_destroy(s->config);
}
