/*
 * engine.c: the engine's life and its doors for other threads: submit, cancel,
 * resume, list, describe.  What happens between is scheduler.c's.
 */
#include "daemon/engine/sequence_private.h"

#include "base/build_id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Compiled grammars that are kept for later requests. */
#define GRAMMAR_CACHE_BYTES (256u << 20)

/* ---- options ------------------------------------------------------------------------ */

static uint32_t clamp(uint32_t v, uint32_t low, uint32_t high)
{
	return v < low ? low : v > high ? high : v;
}

static void read_options(const struct ig_engine *e, const struct ig_config *c,
			 struct ig_engine_options *o)
{
	o->prefill_chunk = clamp(c->scheduler.prefill_chunk, 1, e->max_rows);
	o->max_queue = c->scheduler.max_queue;
	o->max_output_tokens = c->scheduler.max_output_tokens;
	o->slow_client_timeout_ns = (int64_t)c->server.slow_client_timeout_ms * 1000000;
}

void ig_engine_reload(struct ig_engine *e, const struct ig_config *config)
{
	pthread_mutex_lock(&e->lock);
	read_options(e, config, &e->options);
	e->events = true;
	pthread_cond_signal(&e->wake);
	pthread_mutex_unlock(&e->lock);
	ig_models_reload(e->models, config);
}

/* ---- life ------------------------------------------------------------------------------ */

static int open_modules(struct ig_engine *e, const struct ig_config *config, struct ig_error *err)
{
	char *const *folders = config->modules.path; /* the loaded configuration names them */
	int rc;

	if (!folders || !folders[0])
		return ig_fail(err, -EINVAL, "modules.path names no folder");
	rc = ig_modules_create(&e->modules, err);
	if (rc < 0)
		return rc;
	rc = ig_modules_load_folders(e->modules, folders, err);
	if (!rc)
		rc = ig_modules_start(e->modules, err);
	if (rc < 0)
		return rc;
	e->kv = ig_modules_kvcache(e->modules, config->kvcache.service);
	if (!e->kv)
		return ig_fail(err, -ENOENT,
			       "kvcache.service is \"%s\"; no module in %s%s brings it",
			       config->kvcache.service, folders[0], folders[1] ? " …" : "");
	return 0;
}

static int open_driver(struct ig_engine *e, const struct ig_config *config, struct ig_error *err)
{
	struct ig_driver_options o = {
		.isa = config->runtime.isa,
		.n_threads = config->runtime.threads,
		.activations = config->runtime.activations,
		.experts = config->runtime.experts,
		.strict = config->runtime.strict,
	};

	int rc = ig_driver_open(config->runtime.driver, &o, &e->driver, err);

	if (rc < 0)
		return rc;
	if (!strcmp(config->runtime.run_ahead, "auto"))
		e->max_flights = ig_driver_steps_in_flight(e->driver);
	else
		e->max_flights = strcmp(config->runtime.run_ahead, "on") ? 1 : IG_STEPS_IN_FLIGHT;
	return 0;
}

int ig_lock_init(pthread_mutex_t *lock, pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_mutex_init(lock, NULL);

	if (rc)
		return -rc;
	pthread_condattr_init(&attr);
#ifndef __APPLE__
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
	rc = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	if (rc)
		pthread_mutex_destroy(lock);
	return -rc;
}

void ig_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts;
	int64_t left;

	if (deadline_ns == INT64_MAX) {
		pthread_cond_wait(cond, lock);
		return;
	}
	left = deadline_ns - ig_now_ns();
	if (left <= 0)
		return;
#ifdef __APPLE__
	ts = (struct timespec){ left / 1000000000, left % 1000000000 };
	pthread_cond_timedwait_relative_np(cond, lock, &ts);
#else
	ts = (struct timespec){ deadline_ns / 1000000000, deadline_ns % 1000000000 };
	pthread_cond_timedwait(cond, lock, &ts); /* CLOCK_MONOTONIC */
#endif
}

int ig_engine_create(const struct ig_engine_deps *deps, struct ig_engine **out,
		     struct ig_error *err)
{
	const struct ig_config *config = deps->config;
	struct ig_engine *e = calloc(1, sizeof *e);
	int rc;

	if (!e)
		return ig_fail(err, -ENOMEM, "out of memory for the engine");
	rc = ig_lock_init(&e->lock, &e->wake);
	if (rc < 0) {
		free(e);
		return ig_fail(err, rc, "the engine's lock can't be made: %s", strerror(-rc));
	}
	pthread_cond_init(&e->changed, NULL);
	TAILQ_INIT(&e->inbox);
	TAILQ_INIT(&e->all);
	TAILQ_INIT(&e->waiting);
	TAILQ_INIT(&e->running);
	TAILQ_INIT(&e->ended);
	TAILQ_INIT(&e->show);
	TAILQ_INIT(&e->turns);
	e->ledger = deps->ledger;
	e->metrics = deps->metrics;
	e->device_lost = deps->device_lost;
	e->device_lost_ctx = deps->ctx;
	/* Each sequence that runs takes a row of a step: more of them than rows would leave
	 * prompts waiting for ever. */
	e->max_rows = config->scheduler.max_batch_tokens ? config->scheduler.max_batch_tokens : 1;
	e->max_seqs = clamp(config->scheduler.max_seqs, 1, e->max_rows);
	if (e->max_seqs < config->scheduler.max_seqs)
		ig_log_warn(
			"scheduler.max_seqs is %u, scheduler.max_batch_tokens %u: so many run at "
			"once",
			config->scheduler.max_seqs, e->max_rows);
	read_options(e, config, &e->options);
	e->n_slots = e->max_seqs;
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		e->flights[i].seqs = calloc(e->max_seqs, sizeof *e->flights[i].seqs);
		if (!e->flights[i].seqs) {
			rc = ig_fail(err, -ENOMEM, "out of memory for %u sequences", e->max_seqs);
			goto fail;
		}
	}
	if (ig_grammar_cache_create(GRAMMAR_CACHE_BYTES, &e->grammars) < 0) {
		rc = ig_fail(err, -ENOMEM, "out of memory for the cache of grammars");
		goto fail;
	}
	rc = open_modules(e, config, err);
	if (rc < 0)
		goto fail;
	rc = open_driver(e, config, err);
	if (rc < 0)
		goto fail;
	rc = ig_models_create(e, config, err);
	if (rc < 0)
		goto fail;
	e->kv->stats(e->cache, &e->kv_stats);
	ig_metrics_set(e->metrics, IG_GAUGE_KV_ARENA_BYTES, (double)e->kv_stats.arena_bytes);
	rc = ig_prep_create(&e->prep, err);
	if (rc < 0)
		goto fail;
	rc = pthread_create(&e->thread, NULL, ig_scheduler_main, e);
	if (rc) {
		rc = ig_fail(err, -rc, "the engine's thread can't be started: %s", strerror(rc));
		goto fail;
	}
	e->has_thread = true;
	rc = ig_models_start(e->models, err);
	if (rc < 0)
		goto fail;
	*out = e;
	return 0;
fail:
	ig_engine_destroy(e);
	return rc;
}

void ig_engine_drain(struct ig_engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->draining = true;
	pthread_mutex_unlock(&e->lock);
	if (e->models)
		ig_models_drain(e->models);
}

uint32_t ig_engine_n_active(struct ig_engine *e)
{
	uint32_t n;

	pthread_mutex_lock(&e->lock);
	n = e->n_all;
	pthread_mutex_unlock(&e->lock);
	return n;
}

void ig_engine_destroy(struct ig_engine *e)
{
	if (!e)
		return;
	ig_engine_drain(e);
	ig_prep_destroy(e->prep); /* its last jobs find the engine draining */
	if (e->models)
		ig_models_stop(
			e->models); /* which may still ask the engine's thread for something */
	if (e->has_thread) {
		pthread_mutex_lock(&e->lock);
		e->stopping = e->events = true;
		pthread_cond_signal(&e->wake);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
		e->has_thread = false;
	}
	if (e->models)
		ig_models_destroy(e->models);
	if (e->cache)
		e->kv->destroy(e->cache);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		free(e->logits[i]);
	ig_grammar_cache_destroy(e->grammars);
	if (e->driver)
		ig_driver_close(e->driver);
	if (e->modules)
		ig_modules_destroy(e->modules);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		free(e->flights[i].seqs);
	pthread_cond_destroy(&e->changed);
	pthread_cond_destroy(&e->wake);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

int ig_engine_prep(struct ig_engine *e, void (*fn)(void *ctx), void *ctx)
{
	return ig_prep_run(e->prep, fn, ctx);
}

struct ig_grammar_cache *ig_engine_grammars(struct ig_engine *e)
{
	return e->grammars;
}

/* ---- requests ------------------------------------------------------------------------------ */

void ig_engine_note(struct ig_engine *e, const struct ig_ledger_row *row)
{
	ig_metrics_request(e->metrics, row);
	if (e->ledger && !ig_ledger_put(e->ledger, row))
		ig_metrics_add(e->metrics, IG_COUNTER_LEDGER_DROPPED, 1);
}

void ig_engine_note_refused(struct ig_engine *e, const struct ig_ledger_row *row)
{
	if (row->status == 503)
		ig_metrics_add(e->metrics, IG_COUNTER_REFUSED, 1);
	ig_engine_note(e, row);
}

static void note_refusal(struct ig_engine *e, const struct ig_gen_spec *spec, int rc,
			 const struct ig_error *err)
{
	struct ig_ledger_row row = { 0 };

	snprintf(row.id, sizeof row.id, "%.63s", spec->id);
	snprintf(row.model, sizeof row.model, "%s", spec->model->name);
	snprintf(row.endpoint, sizeof row.endpoint, "%.31s", spec->endpoint);
	snprintf(row.client, sizeof row.client, "%.63s", spec->client);
	snprintf(row.key, sizeof row.key, "%.39s", spec->key);
	snprintf(row.finish, sizeof row.finish, "refused");
	snprintf(row.error, sizeof row.error, "%.199s", err->text);
	row.status = rc == -EAGAIN || rc == -ESHUTDOWN ? 503 : rc == -ENOMEM ? 500 : 400;
	row.received_ns = spec->received_wall_ns ? spec->received_wall_ns : ig_wall_ns();
	row.n_prompt = spec->n_prompt;
	row.queue_ms = row.prefill_ms = row.decode_ms = row.ttft_ms = -1;
	row.total_ms =
		spec->received_ns ? (float)((double)(ig_now_ns() - spec->received_ns) * 1e-6) : -1;
	ig_engine_note_refused(e, &row);
}

int ig_engine_submit(struct ig_engine *e, struct ig_gen_spec *spec, uint64_t *gen,
		     struct ig_error *err)
{
	struct ig_engine_options options;
	struct ig_error why = { 0 };
	struct ig_seq *s = NULL;
	int rc;

	pthread_mutex_lock(&e->lock);
	options = e->options;
	pthread_mutex_unlock(&e->lock);
	rc = ig_seq_create(spec, &options, &s, &why);
	if (rc < 0)
		goto refused;

	pthread_mutex_lock(&e->lock);
	if (e->draining) {
		rc = ig_fail(&why, -ESHUTDOWN, "the server is shutting down");
	} else {
		/* What the engine has not looked at yet may find a free slot at once. */
		uint32_t n_waiting = e->n_waiting_shown + e->n_inbox;

		if (n_waiting >= options.max_queue && n_waiting - options.max_queue >= e->n_slots)
			rc = ig_fail(&why, -EAGAIN, "the queue is full: %u requests wait",
				     n_waiting);
	}
	if (rc == 0) {
		ig_seq_adopt(s, spec);
		s->number = *gen = ++e->last_number;
		TAILQ_INSERT_TAIL(&e->all, s, all);
		TAILQ_INSERT_TAIL(&e->inbox, s, link);
		e->n_all++;
		e->n_inbox++;
		e->events = true;
		pthread_cond_signal(&e->wake);
	}
	pthread_mutex_unlock(&e->lock);
	if (rc == 0)
		return 0;
	ig_seq_destroy(s);
refused:
	note_refusal(e, spec, rc, &why);
	return ig_fail(err, rc, "%s", why.text);
}

/* Under the lock. */
static struct ig_seq *find_seq(struct ig_engine *e, uint64_t gen)
{
	struct ig_seq *s;

	TAILQ_FOREACH (s, &e->all, all)
		if (s->number == gen)
			return s;
	return NULL;
}

void ig_engine_cancel(struct ig_engine *e, uint64_t gen, const char *reason)
{
	struct ig_seq *s;

	pthread_mutex_lock(&e->lock);
	s = find_seq(e, gen);
	if (s && !s->cancel_wanted) {
		s->cancel_wanted = true;
		snprintf(s->cancel_reason, sizeof s->cancel_reason, "%s", reason);
		e->cancels = e->events = true;
		pthread_cond_signal(&e->wake);
	}
	pthread_mutex_unlock(&e->lock);
}

void ig_engine_resume(struct ig_engine *e, uint64_t gen)
{
	struct ig_seq *s;

	pthread_mutex_lock(&e->lock);
	s = find_seq(e, gen);
	if (s && atomic_load_explicit(&s->paused, memory_order_relaxed)) {
		e->events = true;
		pthread_cond_signal(&e->wake);
	}
	pthread_mutex_unlock(&e->lock);
}

size_t ig_engine_list(struct ig_engine *e, struct ig_gen_info *out, size_t cap)
{
	static const char *const states[] = { "waiting", "prefill", "decode", "paused" };
	int64_t now = ig_now_ns();
	struct ig_seq *s;
	size_t n = 0;

	pthread_mutex_lock(&e->lock);
	TAILQ_FOREACH (s, &e->all, all) {
		struct ig_gen_info *i;

		if (n++ >= cap)
			continue;
		i = &out[n - 1];
		*i = (struct ig_gen_info){
			.n_prompt = s->n_prompt,
			.n_prefilled = atomic_load_explicit(&s->n_prefilled, memory_order_relaxed),
			.n_output = atomic_load_explicit(&s->n_output, memory_order_relaxed),
			.age_s = (double)(now - s->received_ns) * 1e-9,
		};
		memcpy(i->id, s->id, sizeof i->id);
		memcpy(i->endpoint, s->endpoint, sizeof i->endpoint);
		memcpy(i->client, s->client, sizeof i->client);
		snprintf(i->model, sizeof i->model, "%s", s->model->name);
		snprintf(i->state, sizeof i->state, "%s",
			 states[atomic_load_explicit(&s->state, memory_order_relaxed)]);
	}
	pthread_mutex_unlock(&e->lock);
	return n;
}

/* ---- describe --------------------------------------------------------------------------------- */

struct describe {
	struct ig_strbuf *out;
	bool first;
};

static void json_str(struct ig_strbuf *b, const char *key, const char *value)
{
	ig_strbuf_json(b, key, strlen(key));
	ig_strbuf_puts(b, ":");
	if (value)
		ig_strbuf_json(b, value, strlen(value));
	else
		ig_strbuf_puts(b, "null");
}

static void json_u64(struct ig_strbuf *b, const char *key, uint64_t value)
{
	ig_strbuf_printf(b, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void describe_module(void *ctx, const char *name, const char *version, const char *path)
{
	struct describe *d = ctx;

	ig_strbuf_puts(d->out, d->first ? "{" : ",{");
	d->first = false;
	json_str(d->out, "name", name);
	ig_strbuf_puts(d->out, ",");
	json_str(d->out, "version", version);
	ig_strbuf_puts(d->out, ",");
	json_str(d->out, "path", path);
	ig_strbuf_puts(d->out, "}");
}

/* "cpu, avx2, 2 threads": the driver says it as text; its three parts, and the
 * whole, as it may say more. */
static void describe_driver(struct ig_engine *e, struct ig_strbuf *out)
{
	const char *text = ig_driver_describe(e->driver);
	char name[64] = "", isa[64] = "";
	unsigned n_threads = 0;

	if (sscanf(text, "%63[^,], %63[^,], %u", name, isa, &n_threads) < 1)
		name[0] = 0;
	json_str(out, "device", text);
	ig_strbuf_puts(out, ",");
	json_str(out, "driver", name);
	ig_strbuf_puts(out, ",");
	json_str(out, "isa", isa);
	json_u64(out, "threads", n_threads);
}

void ig_engine_describe(struct ig_engine *e, struct ig_strbuf *out)
{
	struct describe d = { out, true };
	struct ig_kv_stats kv;
	uint32_t n_all, n_waiting, n_running, n_paused;
	uint64_t sums[4];
	bool draining;

	pthread_mutex_lock(&e->lock);
	kv = e->kv_stats;
	n_all = e->n_all;
	n_waiting = e->n_waiting_shown;
	n_running = e->n_running_shown;
	n_paused = e->n_paused_shown;
	draining = e->draining;
	pthread_mutex_unlock(&e->lock);

	ig_strbuf_puts(out, "{");
	json_str(out, "version", IG_VERSION);
	ig_strbuf_puts(out, ",");
	json_str(out, "build_id", ig_build_id);
	ig_strbuf_puts(out, ",");
	describe_driver(e, out);
	ig_strbuf_puts(out, ",\"modules\":[");
	ig_modules_each(e->modules, describe_module, &d);
	ig_strbuf_puts(out, "],\"models\":[");
	ig_models_describe(e->models, out);
	ig_models_sums(e->models, sums);
	ig_strbuf_printf(out, "],\"memory\":{\"budget_bytes\":%llu", (unsigned long long)sums[0]);
	json_u64(out, "weight_bytes", sums[1]);
	json_u64(out, "scratch_bytes", sums[2]);
	json_u64(out, "arena_bytes", sums[3]);
	ig_strbuf_puts(out, "},\"kvcache\":{");
	json_str(out, "service", e->kv->name);
	json_u64(out, "arena_bytes", kv.arena_bytes);
	json_u64(out, "committed_bytes", kv.committed_bytes);
	json_u64(out, "used_bytes", kv.used_bytes);
	json_u64(out, "free_bytes", kv.free_bytes);
	json_u64(out, "blocks_used", kv.n_blocks_used);
	ig_strbuf_printf(out, "},\"requests\":{\"active\":%u", n_all);
	json_u64(out, "waiting", n_waiting);
	json_u64(out, "running", n_running);
	json_u64(out, "paused", n_paused);
	ig_strbuf_printf(out, "},\"draining\":%s}", draining ? "true" : "false");
}
