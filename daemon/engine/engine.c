/* engine.c: the engine's public functions, by backend, models, scheduler and prep. */
#include "daemon/engine/engine.h"

#include "base/build_id.h"
#include "base/clock.h"
#include "daemon/engine/loader_private.h"
#include "daemon/engine/scheduler_private.h"
#include "daemon/engine/models_private.h"
#include "daemon/engine/job_threads_private.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

struct ig_engine {
	struct ig_backend backend;
	struct ig_sched *sched;
	struct ig_models *models;
	struct ig_job_threads *parse, *prep, *reader;
};

/* ---- life ------------------------------------------------------------------------------ */

static int start_threads(struct ig_engine *e, struct ig_error *err)
{
	int rc;

	ig_sched_on_short(e->sched, ig_models_reclaim, e->models);
	if (e->backend.disk &&
	    (rc = ig_kv_files_start(e->backend.disk, ig_sched_wake, e->sched, err)))
		return rc;
	rc = ig_sched_start(e->sched, err);
	return rc ? rc : ig_models_start(e->models, err);
}

int ig_engine_create(const struct ig_engine_deps *deps, struct ig_engine **out,
		     struct ig_error *err)
{
	const struct ig_config *config = deps->config;
	struct ig_engine *e = calloc(1, sizeof *e);
	int rc;

	if (!e)
		return ig_fail(err, -ENOMEM, "out of memory for the engine");
	e->backend.modules = deps->modules;
	e->backend.ledger = deps->ledger;
	e->backend.metrics = deps->metrics;
	e->backend.loading = deps->loading;
	e->backend.loading_ctx = deps->ctx;
	if ((rc = ig_backend_open(&e->backend, config, err)) ||
	    (rc = ig_sched_create(&e->backend, config, deps->device_lost, deps->ctx, &e->sched,
				  err)) ||
	    (rc = ig_models_create(&e->backend, config, ig_sched_change, e->sched, &e->models,
				   err)) ||
	    (rc = ig_job_threads_create("parse", 1, &e->parse, err)) ||
	    (rc = ig_job_threads_create("prep", config->server.prep_threads, &e->prep, err)) ||
	    (rc = ig_job_threads_create("reader", 1, &e->reader, err)) ||
	    (rc = start_threads(e, err))) {
		ig_engine_destroy(e);
		return rc;
	}
	ig_driver_watch_memory(e->backend.driver, ig_sched_reclaim, e->sched);
	*out = e;
	return 0;
}

void ig_engine_reload(struct ig_engine *e, const struct ig_config *config)
{
	ig_sched_reload(e->sched, config);
	ig_models_reload(e->models, config);
}

void ig_engine_drain(struct ig_engine *e)
{
	ig_sched_drain(e->sched);
	ig_models_drain(e->models);
}

bool ig_engine_is_alive(struct ig_engine *e) { return ig_sched_is_alive(e->sched); }

uint32_t ig_engine_n_active(struct ig_engine *e) { return ig_sched_figures(e->sched).n_all; }

void ig_engine_destroy(struct ig_engine *e)
{
	if (!e)
		return;
	if (e->backend.driver)
		ig_driver_watch_memory(e->backend.driver, NULL, NULL);
	if (e->sched)
		ig_sched_drain(e->sched);
	if (e->models)
		ig_models_drain(e->models);
	ig_job_threads_destroy(e->reader);
	ig_job_threads_destroy(e->parse);
	ig_job_threads_destroy(e->prep); /* run their last jobs, which see the engine draining */
	/* the loader's thread may still need a change by the engine's */
	if (e->models)
		ig_models_stop(e->models);
	if (e->sched)
		ig_sched_stop(e->sched);
	if (e->models)
		ig_models_destroy(e->models);
	ig_kv_files_close(e->backend.disk); /* its thread wakes the scheduler */
	e->backend.disk = NULL;
	if (e->sched)
		ig_sched_destroy(e->sched);
	ig_backend_close(&e->backend);
	free(e);
}

int ig_engine_parse(struct ig_engine *e, void (*fn)(void *ctx), void *ctx)
{
	return ig_job_threads_run(e->parse, &(struct ig_job){ .fn = fn, .ctx = ctx });
}

int ig_engine_prep(struct ig_engine *e, const struct ig_job *job)
{
	return ig_job_threads_run(e->prep, job);
}

int ig_engine_read(struct ig_engine *e, void (*fn)(void *ctx), void *ctx)
{
	return ig_job_threads_run(e->reader, &(struct ig_job){ .fn = fn, .ctx = ctx });
}

struct ig_grammar_cache *ig_engine_grammars(struct ig_engine *e) { return e->backend.grammars; }

/* ---- models ------------------------------------------------------------------------------ */

bool ig_engine_model_name(struct ig_engine *e, const char *name, char out[IG_MAX_MODEL_NAME + 1])
{
	return ig_models_name(e->models, name, out);
}

int ig_engine_take_model(struct ig_engine *e, const char *name, void (*ready)(void *ctx), void *ctx,
			 const struct ig_engine_model **out, struct ig_error *err)
{
	return ig_models_take(e->models, name, ready, ctx, out, err);
}

int ig_engine_unload_model(struct ig_engine *e, const char *name, struct ig_error *err)
{
	return ig_models_unload(e->models, name, err);
}

int ig_engine_pin_model(struct ig_engine *e, const char *name, bool pin, struct ig_error *err)
{
	return ig_models_pin(e->models, name, pin, err);
}

size_t ig_engine_models(struct ig_engine *e, struct ig_model_status *out, size_t cap)
{
	return ig_models_status(e->models, out, cap);
}

/* ---- requests ------------------------------------------------------------------------------ */

void ig_engine_record_refused(struct ig_engine *e, const struct ig_ledger_row *row)
{
	if (row->status == 503)
		ig_metrics_add(e->backend.metrics, IG_COUNTER_REFUSED, 1);
	ig_backend_record(&e->backend, row);
}

void ig_engine_record_note(struct ig_engine *e, const char *id, const char *text)
{
	struct ig_ledger_row row = { .note = true };

	snprintf(row.id, sizeof row.id, "%s", id);
	snprintf(row.error, sizeof row.error, "%s", text);
	ig_log_info("request %s: %s", id, text);
	if (e->backend.ledger)
		ig_ledger_put(e->backend.ledger, &row);
}

static void record_refusal(struct ig_engine *e, const struct ig_gen_spec *spec, int rc,
			   const struct ig_error *err)
{
	struct ig_ledger_row row;

	ig_origin_row(spec->origin, ig_now_ns(), &row);
	snprintf(row.id, sizeof row.id, "%s", spec->id);
	snprintf(row.model, sizeof row.model, "%s", spec->model->name);
	snprintf(row.finish, sizeof row.finish, "refused");
	snprintf(row.error, sizeof row.error, "%.199s", err->text);
	row.status = rc == -EAGAIN || rc == -ESHUTDOWN ? 503 : rc == -ENOMEM ? 500 : 400;
	row.n_prompt = spec->n_prompt;
	row.priority = spec->priority;
	ig_engine_record_refused(e, &row);
}

int ig_engine_submit(struct ig_engine *e, const struct ig_gen_spec *spec, uint64_t *gen,
		     struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc = ig_sched_submit(e->sched, spec, gen, &why);

	if (rc == 0)
		return 0;
	record_refusal(e, spec, rc, &why);
	return ig_fail(err, rc, "%s", why.text);
}

void ig_engine_cancel(struct ig_engine *e, uint64_t gen, const char *reason)
{
	ig_sched_cancel(e->sched, gen, reason);
}

void ig_engine_resume(struct ig_engine *e, uint64_t gen) { ig_sched_resume(e->sched, gen); }

size_t ig_engine_list(struct ig_engine *e, struct ig_gen_info *out, size_t cap)
{
	return ig_sched_list(e->sched, out, cap);
}

/* ---- describe --------------------------------------------------------------------------------- */

static void describe_module(void *ctx, const char *name, const char *version, const char *path)
{
	struct ig_json_writer *w = ctx;

	ig_json_putf(w, "{'name': %s, 'version': %s, 'path': %s}", name, version, path);
}

/* The driver's text, such as "cpu, avx2, 2 threads", and its first three parts. */
static void describe_driver(struct ig_engine *e, struct ig_json_writer *w)
{
	const char *text = ig_driver_describe(e->backend.driver);
	char name[64] = "", isa[64] = "";
	unsigned n_threads = 0;

	if (sscanf(text, "%63[^,], %63[^,], %u", name, isa, &n_threads) < 1)
		name[0] = 0;
	ig_json_putf(w, "'device': %s, 'driver': %s, 'isa': %s, 'threads': %u", text, name, isa,
		     n_threads);
}

/* Whether rows can be written, and why not; null without a ledger. */
static void describe_ledger(struct ig_engine *e, struct ig_json_writer *w)
{
	char why[256];

	if (!e->backend.ledger) {
		ig_json_put_text(w, "ledger", NULL);
		return;
	}
	bool failing = ig_ledger_failure(e->backend.ledger, why, sizeof why);
	ig_json_putf(w, "'ledger': {'failing': %-s, 'error': %s}", ig_json_bool(failing),
		     failing ? why : NULL);
}

/* The folder of computed blocks; null without one. */
static void describe_disk(struct ig_engine *e, struct ig_json_writer *w)
{
	struct ig_kv_files_stats s;

	if (!e->backend.disk) {
		ig_json_put_text(w, "disk", NULL);
		return;
	}
	ig_kv_files_stats(e->backend.disk, &s);
	ig_json_putf(w, "'disk': {'ready': %-s, 'error': %s", ig_json_bool(s.ready),
		     s.failure[0] ? s.failure : NULL);
	ig_json_put_uint(w, "bytes", s.n_bytes);
	ig_json_put_uint(w, "max_bytes", s.max_bytes);
	ig_json_put_uint(w, "blocks", s.n_files);
	ig_json_put_uint(w, "written", s.n_written);
	ig_json_put_uint(w, "read", s.n_read);
	ig_json_put_uint(w, "evicted", s.n_evicted);
	ig_json_put_uint(w, "damaged", s.n_damaged);
	ig_json_put_uint(w, "failed", s.n_failed);
	ig_json_putf(w, "}");
}

/* What each device or machine has of the models; of one alone nothing. */
static void describe_ranks(const struct ig_engine *e, struct ig_json_writer *w)
{
	struct ig_rank_bytes ranks[IG_METRICS_RANKS];
	const uint32_t n = ig_metrics_ranks(e->backend.metrics, ranks);

	ig_json_open_array(w, "ranks");
	for (uint32_t r = 0; r < n; r++) {
		ig_json_putf(w, "{");
		ig_json_put_uint(w, "weight_bytes", ranks[r].weights);
		ig_json_put_uint(w, "scratch_bytes", ranks[r].scratch);
		ig_json_putf(w, "}");
	}
	ig_json_putf(w, "]");
}

void ig_engine_describe(struct ig_engine *e, struct ig_json_writer *w)
{
	struct ig_sched_figures f = ig_sched_figures(e->sched);
	uint64_t sums[4];

	ig_json_putf(w, "'version': %s, 'build_id': %s", IG_VERSION, ig_build_id);
	describe_driver(e, w);
	ig_json_open_array(w, "modules");
	ig_modules_each(e->backend.modules, describe_module, w);
	ig_json_putf(w, "], 'models': [");
	ig_models_describe(e->models, w);
	ig_models_sums(e->models, sums);
	ig_json_putf(w, "], 'memory': {");
	ig_json_put_uint(w, "budget_bytes", sums[0]);
	ig_json_put_uint(w, "weight_bytes", sums[1]);
	ig_json_put_uint(w, "scratch_bytes", sums[2]);
	ig_json_put_uint(w, "arena_bytes", sums[3]);
	describe_ranks(e, w);
	ig_json_putf(w, "}, 'kvcache': {'service': %s", e->backend.kv->name);
	ig_json_put_uint(w, "arena_bytes", f.kv.arena_bytes);
	ig_json_put_uint(w, "committed_bytes", f.kv.committed_bytes);
	ig_json_put_uint(w, "used_bytes", f.kv.used_bytes);
	ig_json_put_uint(w, "cached_bytes", f.kv.cached_bytes);
	ig_json_put_uint(w, "free_bytes", f.kv.free_bytes);
	ig_json_put_uint(w, "blocks_used", f.kv.n_blocks_used);
	describe_disk(e, w);
	ig_json_putf(w, "}");
	describe_ledger(e, w);
	ig_json_putf(w,
		     "'requests': {'active': %u, 'waiting': %u, 'running': %u, 'paused': %u}, "
		     "'draining': %-s",
		     f.n_all, f.n_waiting, f.n_running, f.n_paused, ig_json_bool(f.draining));
}
